"""Locks for objects that several threads share, and calls at the start of a forked child process."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable

_locks: weakref.WeakSet[Lock] = weakref.WeakSet()


def after_fork_in_child(function: Callable[[], None]) -> None:
    """Register a function that is called in every forked child; do nothing if the platform has no fork."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)


class Lock:
    """A re-entrant lock. A copy is a new lock, and in a forked child process the lock is free."""

    def __init__(self) -> None:
        self.renew()
        _locks.add(self)

    def renew(self) -> None:
        """Replace the lock by a free one, since the thread that holds it is not in this process."""
        self.lock: threading.RLock = threading.RLock()

    def __reduce__(self) -> tuple[type[Lock], tuple[()]]:
        return Lock, ()


def _renew_in_child() -> None:
    """Renew all locks in a forked child."""
    for lock in list(_locks):
        lock.renew()


after_fork_in_child(_renew_in_child)
