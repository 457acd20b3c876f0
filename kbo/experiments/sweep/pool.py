"""The engine interface: a place where cells are worked on, and the loop that drives any of them.

An engine only hands out futures. ``run_all`` decides which item runs next and which is tried again because its worker
died, alike for local processes (``processes``) and for Ray (``ray``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

import torch

Item = TypeVar("Item")
Submit = Callable[[Callable[[Any], Any], Any], Future]
"""Start ``function(item)``, given the two."""

ATTEMPTS = 3
"""Attempts at an item whose worker dies every time."""


class Engine(ABC):
    """A place to work.

    Attributes:
        crashes: Exceptions of a future whose worker died.
    """

    crashes: tuple[type[Exception], ...]

    @abstractmethod
    def session(self, items: int, retry: bool) -> AbstractContextManager[Submit]:
        """Open the engine for so many items, or for those whose worker died; leaving the block stops what runs."""

    @abstractmethod
    def capacity(self) -> int:
        """Return how many items may be in progress at present, at least 1."""


def run_all(
    engine: Engine, items: Iterable[Item], function: Callable[[Item], Any]
) -> Generator[tuple[Item, Any], None, None]:
    """Apply ``function`` to all items; those whose worker died are tried again when the others are done.

    Args:
        engine: Where to work.
        items: What to work on; picklable.
        function: Picklable; should not raise.

    Yields:
        An item and its result, as they finish, or an item and the reason why it has none: a string.
    """
    left = list(items)
    for attempt in range(ATTEMPTS):
        if not left:
            return
        queue, running, left = deque(left), {}, []
        with engine.session(len(queue), retry=attempt > 0) as submit:
            while queue or running:
                while queue and len(running) < engine.capacity():
                    item = queue.popleft()
                    running[submit(function, item)] = item
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    item = running.pop(future)
                    try:
                        result = future.result()
                    except TimeoutError:
                        yield item, "it took longer than the time limit for a cell"
                    except engine.crashes:
                        left.append(item)
                    else:
                        yield item, result
    reason = "killed, out of memory (fewer --workers need less), or a crash"
    for item in left:
        yield item, f"its worker process died {ATTEMPTS} times: {reason}"


@contextmanager
def threads(count: int) -> Iterator[None]:
    """PyTorch on so many threads inside the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
