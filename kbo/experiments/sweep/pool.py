"""Worker processes that may die: the work of a dead one is tried again, alone.

Workers live no longer than the process that started them, even if that is killed: each holds one end of a pipe whose
other end closes with its parent.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection
from typing import Any, TypeVar

Item = TypeVar("Item")

ALONE = 2
"""How often an item whose worker died is tried again, in a pool of its own."""


def work_off(
    items: Iterable[Item],
    function: Callable[[Item], Any],
    workers: int,
    finished: Callable[[Item, Any], None],
    died: Callable[[Item], None],
) -> None:
    """Apply ``function`` to all items, in worker processes.

    When a worker dies (out of memory, killed, a crash in native code), nobody knows which of the items in the works was
    to blame. Each of them is tried again alone; an item that kills its worker every time is given to ``died``.

    Args:
        items: What to work on; picklable.
        function: Picklable; should not raise.
        workers: Number of processes.
        finished: Called in this process with an item and its result, as they finish.
        died: Called in this process with an item whose worker died every time.

    Raises:
        KeyboardInterrupt: Ctrl-C; the workers have ended then.
    """
    queue = deque(items)
    while queue:
        for item in _together(queue, function, workers, finished):
            if all(_together(deque([item]), function, 1, finished) for _ in range(ALONE)):
                died(item)


def _together(
    queue: deque[Item], function: Callable[[Item], Any], workers: int, finished: Callable[[Item, Any], None]
) -> list[Item]:
    """Work the queue off; should a worker die, stop and return the items that were in the works."""
    running: dict[Future, Item] = {}
    with _pool(min(workers, len(queue))) as pool:
        try:
            while queue or running:
                while queue and len(running) < workers:
                    with _interrupts_held():  # workers inherit this: Ctrl-C is for their parent alone
                        running[pool.submit(function, queue[0])] = queue[0]
                    queue.popleft()
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    finished(running[future], future.result())
                    del running[future]
        except BrokenProcessPool:
            wait(running)  # a broken pool settles every future
    casualties = []
    for future, item in running.items():
        if future.exception() is None:
            finished(item, future.result())
        else:
            casualties.append(item)
    return casualties


@contextlib.contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)[::-1]
    executor = ProcessPoolExecutor(workers, context, _start, (theirs,))
    try:
        yield executor
    except BaseException:
        ours.close()  # the workers end at once, in the middle of their work
        raise
    finally:
        executor.shutdown(wait=True, cancel_futures=True)
        ours.close()
        theirs.close()


def _start(lifeline: Connection) -> None:
    """First thing in a worker: one thread for the mathematics, one that ends it with its parent."""
    import torch

    def follow() -> None:
        with contextlib.suppress(EOFError, OSError):
            lifeline.recv()  # nothing is ever sent: this returns when the other end closes
        os._exit(1)

    torch.set_num_threads(1)
    threading.Thread(target=follow, daemon=True).start()


@contextlib.contextmanager
def _interrupts_held() -> Iterator[None]:
    if not hasattr(signal, "pthread_sigmask"):  # not on Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
