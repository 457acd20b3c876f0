"""Settings of PyTorch and NumPy in a program, for its worker threads and worker processes.

Worker processes import this module first. So it imports a library only to change a setting of that library.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

USUAL_ERRORS: dict[str, Any] = {
    "divide": "warn",
    "over": "warn",
    "under": "ignore",
    "invalid": "warn",
}
"""Default reaction of NumPy to errors."""


@dataclass(frozen=True)
class Settings:
    """The settings of PyTorch and NumPy in a program; the default values are those of the libraries.

    Attributes:
        device: The default device, as text.
        gradients: Whether gradients are recorded.
        inference: Whether inference mode is on.
        errors: The reaction of NumPy to each kind of error.
        dtype: The default dtype, as text.
        deterministic: 1 if PyTorch refuses algorithms that are not deterministic, 2 if it warns, otherwise 0.
    """

    device: str = "cpu"
    gradients: bool = True
    inference: bool = False
    errors: dict[str, Any] = field(default_factory=USUAL_ERRORS.copy)
    dtype: str = "float32"
    deterministic: int = 0

    def of_thread(self) -> Settings:
        """Return the settings that each thread has for itself; the others have their defaults."""
        return Settings(self.device, self.gradients, self.inference, self.errors)

    def of_process(self) -> Settings:
        """Return the settings for another process: without the index of the device, since it may see other devices."""
        return replace(self, device=self.device.partition(":")[0])

    def obstacle(self) -> str:
        """Return the reason why this process cannot apply the settings; empty if it can."""
        try:
            with self.applied():
                if self.device != "cpu":
                    import_module("torch").empty(0)
            return ""
        except Exception as error:  # of many kinds, one for each library of a device
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            return f"the worker process cannot have the settings of the program ({self}): {reason}"

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Apply the settings during a block."""
        with ExitStack() as stack:
            if self.errors != USUAL_ERRORS:
                stack.enter_context(import_module("numpy").errstate(**self.errors))
            if replace(self, errors=USUAL_ERRORS) != Settings():
                self._apply_to_torch(stack)
            yield

    def _apply_to_torch(self, stack: ExitStack) -> None:
        """Apply the settings of PyTorch until the stack is closed."""
        torch = import_module("torch")
        if self.device != "cpu":
            stack.enter_context(torch.device(self.device))
        if self.inference:
            stack.enter_context(torch.inference_mode())
        stack.enter_context(torch.set_grad_enabled(self.gradients))
        if self.dtype != "float32":
            stack.callback(torch.set_default_dtype, torch.get_default_dtype())
            torch.set_default_dtype(getattr(torch, self.dtype))
        if self.deterministic:
            stack.callback(torch.use_deterministic_algorithms, False)
            torch.use_deterministic_algorithms(True, warn_only=self.deterministic == 2)


@contextmanager
def preserved() -> Iterator[None]:
    """Restore the settings of PyTorch and NumPy after a block, if the library was imported before the block.

    The settings are gradient mode, inference mode, default dtype and device, the number of threads, and the reaction of
    NumPy to errors. Neither library is imported here.
    """
    before = [(read, write, read()) for read, write in _readers_and_writers()]
    try:
        yield
    finally:
        for read, write, value in before:
            if read() != value:
                write(value)


_inference_modes: list[Any] = []  # PyTorch leaves a mode when the object that entered it is gone


def _readers_and_writers() -> list[tuple[Callable[[], Any], Callable[[Any], Any]]]:
    """Return functions that read and write each setting of the imported libraries."""
    settings: list[tuple[Callable[[], Any], Callable[[Any], Any]]] = []
    torch = sys.modules.get("torch")
    if torch is not None:

        def set_inference_mode(mode: bool) -> None:
            _inference_modes.append(torch.inference_mode(mode))
            _inference_modes[-1].__enter__()

        def set_default_device(device: Any) -> None:
            torch.set_default_device(None if device.type == "cpu" else device)

        # The inference mode is first: it sets the gradient mode too.
        settings.append((torch.is_inference_mode_enabled, set_inference_mode))
        settings.append((torch.is_grad_enabled, torch.set_grad_enabled))
        settings.append((torch.get_default_dtype, torch.set_default_dtype))
        settings.append((torch.get_default_device, set_default_device))
        settings.append((torch.get_num_threads, torch.set_num_threads))
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        settings.append((numpy.geterr, lambda errors: numpy.seterr(**errors)))
    return settings
