"""kbo computes without the settings of PyTorch and NumPy that a program has made for its thread.

These are the default device, the gradient and the inference mode, and the reaction of NumPy to
errors. They are put aside while kbo computes (``isolated``, around every public entry), and are
back while it calls a function of the caller's (``as_caller``).

Settings of a whole process are left alone, since other threads of the program need them at the same
time: the default dtype, deterministic algorithms, detection of anomalies, warnings as errors, print
options, locale, the states of the global random generators, and the number of threads. No result of
kbo depends on them.
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
    """The settings of the caller that are put aside in this thread; None outside of kbo."""

    caller: _CallerSettings | None = None


_thread = _Thread()


class _CallerSettings:
    """Settings of the caller in this thread, which are put aside and brought back.

    Args:
        device_only: Whether that is the default device alone.

    Attributes:
        gradients: Whether the caller records gradients.
    """

    def __init__(self, device_only: bool) -> None:
        self._device_only = device_only
        self._contexts = ExitStack()
        self.gradients = True

    def put_aside(self) -> None:
        """Replace the settings that differ from those of a fresh program."""
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
        """Make the settings those of the caller again."""
        self._contexts.close()


def isolated(function: Callable[P, R]) -> Callable[P, R]:
    """Let a public function compute without the settings of its caller; no generator function."""
    return _decorated(function, device_only=False)


def tensors_on_cpu(function: Callable[P, R]) -> Callable[P, R]:
    """Let a public function create its tensors on the CPU; gradients are the caller's."""
    return _decorated(function, device_only=True)


def _decorated(function: Callable[P, R], device_only: bool) -> Callable[P, R]:
    @functools.wraps(function)
    def call(*args: P.args, **options: P.kwargs) -> R:
        if _thread.caller is not None:  # within another public function
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
    """Bring the settings of the caller back for a block that calls a function of the caller's."""
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
        caller.put_aside()  # with the settings that the function of the caller's has made
        torch.set_grad_enabled(gradients)
        _thread.caller = caller


def settings_of_caller() -> Settings:
    """Return the settings of the code that called kbo in this thread, for its workers."""
    with as_caller():
        deterministic = 0
        if torch.are_deterministic_algorithms_enabled():
            deterministic = 2 if torch.is_deterministic_algorithms_warn_only_enabled() else 1
        errors = dict(np.geterr())
        for kind, reaction in errors.items():
            if reaction in ("call", "log"):  # a function, which belongs to this thread
                errors[kind] = USUAL_ERRORS[kind]
        return Settings(
            device=str(torch.get_default_device()),
            gradients=torch.is_grad_enabled(),
            inference=torch.is_inference_mode_enabled(),
            errors=errors,
            dtype=str(torch.get_default_dtype()).removeprefix("torch."),
            deterministic=deterministic,
        )
