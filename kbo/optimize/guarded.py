"""Methods that run one at a time, and never on a state that another one left half changed."""

from __future__ import annotations

import functools
import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from kbo.errors import InvalidInput, JournalError, RefutedAssumptions

P = ParamSpec("P")
R = TypeVar("R")
Self = TypeVar("Self", bound="Guarded")

_locks: weakref.WeakSet[Lock] = weakref.WeakSet()


class Lock:
    """A re-entrant lock; copies have one of their own, and in a forked child it is free."""

    def __init__(self) -> None:
        self.renew()
        _locks.add(self)

    def renew(self) -> None:
        """Begin with a free lock: its owner is not in this process."""
        self.lock = threading.RLock()

    def __reduce__(self) -> tuple[type[Lock], tuple[()]]:
        return Lock, ()


def _renew_in_child() -> None:
    for lock in list(_locks):
        lock.renew()


os.register_at_fork(after_in_child=_renew_in_child)


class Guarded(ABC):
    """An object that computes what it holds from a record, again after a method was interrupted."""

    def __init__(self) -> None:
        self._guard, self._torn = Lock(), False

    @abstractmethod
    def _rebuild(self) -> None:
        """Compute everything again from the record."""

    def _whole(self, method: Callable[..., R], *args: Any, **options: Any) -> R:
        if self._torn:
            self._rebuild()
        self._torn = True
        try:
            found = method(self, *args, **options)
        except (InvalidInput, JournalError, RefutedAssumptions):  # which leave everything as it was
            self._torn = False
            raise
        self._torn = False
        return found


def guarded(method: Callable[Concatenate[Self, P], R]) -> Callable[Concatenate[Self, P], R]:
    """Let a method wait for the methods of other threads; such methods must not call each other."""

    @functools.wraps(method)
    def call(self: Self, *args: P.args, **options: P.kwargs) -> R:
        # On one line: between two, an interrupt could come after the method and before the lock is released.
        with self._guard.lock: return self._whole(method, *args, **options)  # noqa: E701  # fmt: skip

    return call
