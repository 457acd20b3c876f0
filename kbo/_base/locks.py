"""Locks of objects that several threads share, and what a forked child does first."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable

_locks: weakref.WeakSet[Lock] = weakref.WeakSet()


def after_fork_in_child(function: Callable[[], None]) -> None:
    """Call a function in every forked child; nothing where the platform has no fork."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)


class Lock:
    """A re-entrant lock; copies have one of their own, and in a forked child it is free."""

    def __init__(self) -> None:
        self.renew()
        _locks.add(self)

    def renew(self) -> None:
        """Begin with a free lock: its owner is not in this process."""
        self.lock: threading.RLock = threading.RLock()

    def __reduce__(self) -> tuple[type[Lock], tuple[()]]:
        return Lock, ()


def _renew_in_child() -> None:
    """Free all locks of a forked child."""
    for lock in list(_locks):
        lock.renew()


after_fork_in_child(_renew_in_child)
