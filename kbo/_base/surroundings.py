"""Settings of PyTorch and NumPy that a program makes for all its code, and that kbo computes without.

Settings of a thread are put aside while kbo computes (``fixed``, around every public entry), and are back while it
calls a function of the caller's (``callers``): the default device, the gradient and the inference mode, and what NumPy
does on errors. Settings of a whole process are left alone, since other threads of the program need them at the same
time; no result of kbo depends on them, except for drawn functions, of which BoTorch rounds one random frequency to the
default dtype: the default dtype, deterministic algorithms, detection of anomalies, warnings as
errors, print options, locale, and the states of the global random generators. The number of threads is a matter of
resources, and stays as the program has set it.

Worker processes import this module before anything else, so it imports PyTorch and NumPy when it needs them.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from kbo._base.lazy import Lazy

if TYPE_CHECKING:
    import numpy
    import torch
else:
    numpy = Lazy("numpy")
    torch = Lazy("torch")

P = ParamSpec("P")
R = TypeVar("R")

_USUAL = {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}
"""What NumPy does on errors, unless a program has set something else."""


class _Thread(threading.local):
    """The state of a thread: the settings that are put aside in it at present; None outside of kbo."""

    aside: _Aside | None = None


_thread = _Thread()


class _Aside:
    """Settings of this thread that are put aside, and can be brought back for a while.

    Args:
        device_only: Whether that is the default device alone.
    """

    def __init__(self, device_only: bool) -> None:
        self._device_only = device_only
        self._contexts = ExitStack()
        self.gradients = True

    def put(self) -> None:
        """Put aside whatever differs from the settings of a fresh program."""
        self.gradients = torch.is_grad_enabled()
        if torch.get_default_device().type != "cpu":
            self._contexts.enter_context(torch.device("cpu"))
        if self._device_only:
            return
        if torch.is_inference_mode_enabled():
            self._contexts.enter_context(torch.inference_mode(False))
        if not torch.is_grad_enabled():
            self._contexts.enter_context(torch.enable_grad())
        if numpy.geterr() != _USUAL:
            self._contexts.enter_context(numpy.errstate(**_USUAL))  # pyright: ignore[reportArgumentType]

    def bring_back(self) -> None:
        """Make the settings those of the caller again."""
        self._contexts.close()


def fixed(function: Callable[P, R]) -> Callable[P, R]:
    """Let a public function compute without the settings of its caller; a generator of rows needs ``callers``."""
    return _decorated(function, device_only=False)


def on_host(function: Callable[P, R]) -> Callable[P, R]:
    """Let a public function create its tensors on the CPU, whatever the default device; gradients are the caller's."""
    return _decorated(function, device_only=True)


def _decorated(function: Callable[P, R], device_only: bool) -> Callable[P, R]:
    @functools.wraps(function)
    def call(*args: P.args, **options: P.kwargs) -> R:
        if _thread.aside is not None:
            return function(*args, **options)
        aside = _Aside(device_only)
        try:
            _thread.aside = aside
            aside.put()
            return function(*args, **options)
        finally:
            _thread.aside = None
            aside.bring_back()

    return call


@contextmanager
def callers() -> Iterator[None]:
    """Bring the settings of the caller back for a block that calls a function of the caller's."""
    aside = _thread.aside
    if aside is None:
        yield
        return

    own_gradients = torch.is_grad_enabled()  # kbo may compute without gradients where it calls
    try:
        _thread.aside = None
        aside.bring_back()
        torch.set_grad_enabled(aside.gradients)
        yield
    finally:
        aside.put()  # also what the function of the caller's has set
        torch.set_grad_enabled(own_gradients)
        _thread.aside = aside


def _without_callbacks(errors: dict[str, Any]) -> dict[str, Any]:
    """Return NumPy's modes on errors; those that call a function of one thread are the usual ones."""
    modes = {}
    for kind, mode in errors.items():
        modes[kind] = _USUAL[kind] if mode in ("call", "log") else mode
    return modes


@dataclass(frozen=True)
class Settings:
    """The settings of a program that differ from those of a fresh one, for a thread or a process that works for it.

    Attributes:
        device: The default device, as text.
        gradients: Whether gradients are recorded.
        inference: Whether it is inference mode.
        errors: What NumPy does on errors.
        dtype: The default dtype, as text.
        deterministic: Whether PyTorch refuses (1) or reports (2) algorithms that are not deterministic.
        anomalies: Whether PyTorch looks for NaN in gradients (2) or only remembers the forward pass (1).
    """

    device: str = "cpu"
    gradients: bool = True
    inference: bool = False
    errors: dict[str, Any] = field(default_factory=lambda: dict(_USUAL))
    dtype: str = "float32"
    deterministic: int = 0
    anomalies: int = 0

    @classmethod
    def of_caller(cls) -> Settings:
        """Return the settings of the code that called kbo in this thread."""
        with callers():
            anomalies = 0
            if torch.is_anomaly_enabled():
                anomalies = 2 if torch.is_anomaly_check_nan_enabled() else 1
            deterministic = 0
            if torch.are_deterministic_algorithms_enabled():
                deterministic = 2 if torch.is_deterministic_algorithms_warn_only_enabled() else 1
            return cls(
                device=str(torch.get_default_device()),
                gradients=torch.is_grad_enabled(),
                inference=torch.is_inference_mode_enabled(),
                errors=_without_callbacks(dict(numpy.geterr())),
                dtype=str(torch.get_default_dtype()).removeprefix("torch."),
                deterministic=deterministic,
                anomalies=anomalies,
            )

    def of_thread(self) -> Settings:
        """Return those that every thread has for itself."""
        return Settings(self.device, self.gradients, self.inference, self.errors)

    def of_process(self) -> Settings:
        """Return those for a process that sees its own devices alone: without the number of the device."""
        return replace(self, device=self.device.partition(":")[0])

    def obstacle(self) -> str:
        """Return why this process cannot have the settings, for example without the device; empty if it can."""
        try:
            with self.applied():
                if self.device != Settings.device:
                    torch.empty(0)
                return ""
        except Exception as error:  # of many kinds, one for each library of a device
            shown = f"{type(error).__name__}: {error}".splitlines()[0]
            return f"the worker process cannot have the settings of the program ({self}): {shown}"

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Make the settings those of a block; libraries that need none are not imported for it."""
        usual = Settings()
        with ExitStack() as contexts:
            if self.errors != usual.errors:
                contexts.enter_context(numpy.errstate(**self.errors))
            if Settings(errors=self.errors) != self:
                self._apply_to_torch(contexts, usual)
            yield

    def _apply_to_torch(self, contexts: ExitStack, usual: Settings) -> None:

        if self.device != usual.device:
            contexts.enter_context(torch.device(self.device))
        if self.inference:
            contexts.enter_context(torch.inference_mode())
        contexts.enter_context(torch.set_grad_enabled(self.gradients))
        if self.dtype != usual.dtype:
            contexts.callback(torch.set_default_dtype, torch.get_default_dtype())
            torch.set_default_dtype(getattr(torch, self.dtype))
        if self.deterministic:
            contexts.callback(torch.use_deterministic_algorithms, False)
            torch.use_deterministic_algorithms(True, warn_only=self.deterministic == 2)
        if self.anomalies:
            contexts.enter_context(
                torch.autograd.set_detect_anomaly(True, check_nan=self.anomalies == 2)
            )
