"""Local worker processes, by the library pebble, whose workers may be stopped or die without taking the others along.

Workers end with the process that started them, even if that is killed.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from kbo.errors import InvalidInput
from kbo.experiments.sweep.pool import Engine, Submit

try:
    from pebble import ProcessExpired, ProcessPool
except ImportError as error:
    raise ImportError("kbo.experiments.sweep.processes needs pebble: pip install 'kbo[cli]'") from error


@dataclass(frozen=True)
class Processes(Engine):
    """Worker processes on this machine.

    Attributes:
        workers: Their number.
        time_limit: Seconds that a cell may take, if limited; then its worker is stopped, and the cell has failed.

    Raises:
        InvalidInput: A number is not positive.
    """

    workers: int
    time_limit: float | None = None

    crashes = (ProcessExpired, BrokenProcessPool)

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise InvalidInput(f"workers must be at least 1, got {self.workers}.")
        if self.time_limit is not None and not self.time_limit > 0:
            raise InvalidInput(f"time_limit must be a positive number of seconds, got {self.time_limit}.")

    @contextmanager
    def session(self, items: int, retry: bool) -> Iterator[Submit]:  # noqa: D102
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
