"""The engine interface, a place where cells are worked on; the loop that drives any engine; local worker processes.

An engine only hands out futures. ``run_all`` decides which item runs next and which is tried again because its worker
died, alike for local processes and for Ray (``kbo.experiments.sweep.ray``).
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from kbo.errors import InvalidInput
from kbo.extras import require

Item = TypeVar("Item")
Submit = Callable[[Callable[[Any], Any], Any], Future[Any]]
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


@dataclass(frozen=True)
class Processes(Engine):
    """Worker processes on this machine, which end with this process, even if that is killed.

    They are those of the library pebble, which may be stopped or die without taking the others along.

    Attributes:
        workers: Their number.
        time_limit: Seconds that a cell may take, if limited; then its worker is stopped, and the cell has failed.

    Raises:
        InvalidInput: A number is not positive.
        ImportError: When work begins: pebble is not installed.
    """

    workers: int
    time_limit: float | None = None

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise InvalidInput(f"workers must be at least 1, got {self.workers}.")
        if self.time_limit is not None and not self.time_limit > 0:
            raise InvalidInput(f"time_limit must be a positive number of seconds, got {self.time_limit}.")

    @property
    def crashes(self) -> tuple[type[Exception], ...]:  # noqa: D102
        from pebble import ProcessExpired

        return ProcessExpired, BrokenProcessPool

    @contextmanager
    def session(self, items: int, retry: bool) -> Iterator[Submit]:  # noqa: D102
        require("kbo.experiments.sweep.pool", "cli", "pebble")
        from pebble import ProcessPool

        workers = 1 if retry else min(self.workers, items)  # several together may have run out of memory
        context = multiprocessing.get_context("spawn")  # PyTorch's threads and locks do not survive a fork
        pool = ProcessPool(workers, initializer=_start, context=context)

        def submit(function: Callable[[Any], Any], item: Any) -> Future:
            try:
                with _interrupts_blocked():  # workers inherit this: Ctrl-C is for their parent alone
                    return pool.schedule(function, [item], timeout=self.time_limit)
            except RuntimeError as error:  # pebble gives a pool up if all workers die before they begin to work
                future = Future()
                future.set_exception(BrokenProcessPool(str(error)))
                return future

        try:
            yield submit
        finally:
            pool.stop()
            pool.join()

    def capacity(self) -> int:  # noqa: D102
        return self.workers


def _start() -> None:
    """Prepare a worker: one thread for the mathematics, and one that waits for the end of the parent."""
    torch.set_num_threads(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    if not hasattr(signal, "pthread_sigmask"):  # not on Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def threads(count: int) -> Iterator[None]:
    """PyTorch on so many threads inside the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
