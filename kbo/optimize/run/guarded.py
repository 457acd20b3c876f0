"""Methods that run one at a time, and never on a state that another one left half changed."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch

from kbo._base.locks import Lock
from kbo._base.surroundings import fixed
from kbo.errors import InvalidInput, JournalError, RefutedAssumptions

P = ParamSpec("P")
R = TypeVar("R")
Self = TypeVar("Self", bound="Guarded")


class Guarded(ABC):
    """An object that computes what it holds from a record, again after a method was interrupted."""

    def __init__(self) -> None:
        self._guard, self._interrupted = Lock(), False

    @abstractmethod
    def _rebuild(self) -> None:
        """Compute everything again from the record."""

    @fixed
    def _whole(self, method: Callable[..., R], *args: Any, **options: Any) -> R:
        if self._interrupted:
            self._rebuild()
        self._interrupted = True
        gradients, threads = torch.is_grad_enabled(), torch.get_num_threads()
        try:
            found = method(self, *args, **options)
        except (
            InvalidInput,
            JournalError,
            RefutedAssumptions,
        ):  # after which memory is that of the record
            self._interrupted = False
            raise
        finally:  # an interrupt inside of PyTorch's own context managers leaves what they set
            if torch.is_grad_enabled() != gradients:
                torch.set_grad_enabled(gradients)
            if torch.get_num_threads() != threads:
                torch.set_num_threads(threads)
        self._interrupted = False
        return found


def guarded(method: Callable[Concatenate[Self, P], R]) -> Callable[Concatenate[Self, P], R]:
    """Let a method wait for the methods of other threads; such methods must not call each other."""

    @functools.wraps(method)
    def call(self: Self, *args: P.args, **options: P.kwargs) -> R:
        # On one line: between two, an interrupt could come after the method and before the lock is released.
        with self._guard.lock: return self._whole(method, *args, **options)  # noqa: E701  # fmt: skip

    return call
