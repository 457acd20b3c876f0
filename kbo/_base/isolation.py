"""Isolation of kbo from the settings of PyTorch and NumPy in the caller's thread.

These settings are the default device, the gradient mode, the inference mode, and the reaction of NumPy to errors. kbo
computes without them (``isolated``, around every public entry). They are restored while kbo calls a function of the
caller (``as_caller``).

kbo does not change settings of the whole process, since other threads of the program use them at the same time: the
default dtype, deterministic algorithms, detection of anomalies, warnings as errors, print options, locale, states of
the global random generators, and the number of threads. No result of kbo depends on them.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import ParamSpec, TypeVar

import numpy as np
import torch

from kbo._base.program_state import USUAL_ERRORS, Settings

P = ParamSpec("P")
R = TypeVar("R")


class _Thread(threading.local):
    """By thread, the caller's settings that kbo has put aside; None outside of kbo."""

    caller: _CallerSettings | None = None


_thread = _Thread()


class _CallerSettings:
    """The caller's settings in this thread, to put aside and to restore.

    Args:
        device_only: Whether only the default device is put aside.

    Attributes:
        gradients: Whether the caller records gradients.
    """

    def __init__(self, device_only: bool) -> None:
        self._device_only = device_only
        self._contexts = ExitStack()
        self.gradients = True

    def put_aside(self) -> None:
        """Replace settings that differ from the defaults by the defaults."""
        enter = self._contexts.enter_context
        self.gradients = torch.is_grad_enabled()
        if torch.get_default_device().type != "cpu":
            enter(torch.device("cpu"))
        if self._device_only:
            return
        if torch.is_inference_mode_enabled():
            enter(torch.inference_mode(False))
        if not torch.is_grad_enabled():
            enter(torch.enable_grad())
        if np.geterr() != USUAL_ERRORS:
            enter(np.errstate(**USUAL_ERRORS))

    def bring_back(self) -> None:
        """Restore the caller's settings."""
        self._contexts.close()


def isolated(function: Callable[P, R]) -> Callable[P, R]:
    """Return a public function that computes without its caller's settings. It must be no generator function."""
    return _decorated(function, device_only=False)


def tensors_on_cpu(function: Callable[P, R]) -> Callable[P, R]:
    """Return a public function that creates its tensors on the CPU; the gradient mode stays the caller's."""
    return _decorated(function, device_only=True)


def _decorated(function: Callable[P, R], device_only: bool) -> Callable[P, R]:
    @functools.wraps(function)
    def call(*args: P.args, **options: P.kwargs) -> R:
        if _thread.caller is not None:  # called by another public function
            return function(*args, **options)
        caller = _CallerSettings(device_only)
        try:
            _thread.caller = caller
            caller.put_aside()
            return function(*args, **options)
        finally:
            _thread.caller = None
            caller.bring_back()

    return call


@contextmanager
def as_caller() -> Iterator[None]:
    """Restore the caller's settings for a block that calls a function of the caller."""
    caller = _thread.caller
    if caller is None:
        yield
        return
    gradients = torch.is_grad_enabled()  # kbo may compute without gradients where it calls
    try:
        _thread.caller = None
        caller.bring_back()
        torch.set_grad_enabled(caller.gradients)
        yield
    finally:
        caller.put_aside()  # with changes that the caller's function has made
        torch.set_grad_enabled(gradients)
        _thread.caller = caller


def settings_of_caller() -> Settings:
    """Return the settings of the code that called kbo in this thread, for the workers of kbo."""
    with as_caller():
        deterministic = 0
        if torch.are_deterministic_algorithms_enabled():
            deterministic = 2 if torch.is_deterministic_algorithms_warn_only_enabled() else 1
        errors = dict(np.geterr())
        for kind, reaction in errors.items():
            if reaction in ("call", "log"):  # they call a function, which belongs to this thread
                errors[kind] = USUAL_ERRORS[kind]
        return Settings(
            device=str(torch.get_default_device()),
            gradients=torch.is_grad_enabled(),
            inference=torch.is_inference_mode_enabled(),
            errors=errors,
            dtype=str(torch.get_default_dtype()).removeprefix("torch."),
            deterministic=deterministic,
        )
