"""The guard of a run: its methods run one at a time, and never on the half-changed state of an interrupted method."""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable
from typing import Any, Concatenate, Never, ParamSpec, Protocol, TypeVar

import torch

from kbo._base.isolation import isolated
from kbo._base.locks import Lock
from kbo.errors import InvalidInput, JournalError, RefutedAssumptions

P = ParamSpec("P")
R = TypeVar("R")


class Guard(Lock):
    """The lock of a run and of the objects built on it, and the repair after an interrupt.

    A guarded method waits for guarded methods of other threads, and may call others itself. If a method was
    interrupted, for example by Ctrl-C, the next one first computes the run from its record again.

    Args:
        rebuild: A method of the owner of the guard that computes the run from its record.
    """

    def __init__(self, rebuild: Callable[[], None]) -> None:
        super().__init__()
        # Weak, so that a run that nobody uses any more is freed, with its journal, without the garbage collector.
        self._rebuild = weakref.WeakMethod(rebuild)
        self._interrupted = False

    def renew(self) -> None:
        """Replace both locks by free ones."""
        super().renew()
        self._active = threading.Lock()  # held while a method runs

    def __reduce__(self) -> Never:
        raise TypeError("a guard cannot be copied: copy the optimiser, or open the run again.")

    def call(self, method: Callable[..., R], *arguments: Any, **options: Any) -> R:
        """Call a method while the lock is held."""
        if self._active.locked():  # another method of this thread calls this one
            return method(*arguments, **options)
        # On one line, because the tests interrupt before each line (tests/faults). After a second line Python returns
        # to the first one to release the lock, and an interrupt there would leave it locked. Python itself looks for
        # interrupts at calls and backward jumps only, and never there.
        with self._active: return self._call_first(method, *arguments, **options)  # noqa: E701  # fmt: skip

    @isolated
    def _call_first(self, method: Callable[..., R], *arguments: Any, **options: Any) -> R:
        if self._interrupted:
            rebuild = self._rebuild()
            assert rebuild is not None
            rebuild()
        self._interrupted = True
        gradients = torch.is_grad_enabled()
        threads = torch.get_num_threads()
        try:
            result = method(*arguments, **options)
        except (InvalidInput, JournalError, RefutedAssumptions):  # memory agrees with the record
            self._interrupted = False
            raise
        finally:  # an interrupt inside of PyTorch's own context managers leaves what they set
            if torch.is_grad_enabled() != gradients:
                torch.set_grad_enabled(gradients)
            if torch.get_num_threads() != threads:
                torch.set_num_threads(threads)
        self._interrupted = False
        return result


class _Guarded(Protocol):
    guard: Guard


Self = TypeVar("Self", bound=_Guarded)


def guarded(method: Callable[Concatenate[Self, P], R]) -> Callable[Concatenate[Self, P], R]:
    """Decorate a method of an object with a ``guard``, so that it runs alone."""

    @functools.wraps(method)
    def call(self: Self, *args: P.args, **options: P.kwargs) -> R:
        # On one line, as in ``Guard.call``.
        with self.guard.lock: return self.guard.call(method, self, *args, **options)  # noqa: E701  # fmt: skip

    return call
