"""Settings of PyTorch and NumPy that hold for a whole process or thread, kept from code of the caller's own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Setting = tuple[Callable[[], Any], Callable[[Any], Any]]
"""A function that reads a setting, and one that writes it."""

_guards: list[Any] = []  # PyTorch leaves an inference mode when the object that entered it is gone


@contextmanager
def preserved() -> Iterator[None]:
    """Restore gradient mode, inference mode, default dtype and device, threads and error state after the block.

    Imports neither PyTorch nor NumPy, and restores nothing of one that is not imported.
    """
    before = [(read, write, read()) for read, write in _settings()]
    try:
        yield
    finally:
        for read, write, value in before:
            if read() != value:
                write(value)


def _settings() -> list[Setting]:
    found: list[Setting] = []
    if torch := sys.modules.get("torch"):

        def infer(mode: bool) -> None:
            _guards.append(torch.inference_mode(mode))
            _guards[-1].__enter__()

        found += [
            (torch.is_inference_mode_enabled, infer),  # before the gradient mode, which it sets too
            (torch.is_grad_enabled, torch.set_grad_enabled),
            (torch.get_default_dtype, torch.set_default_dtype),
            (
                torch.get_default_device,
                lambda device: torch.set_default_device(None if device.type == "cpu" else device),
            ),
            (torch.get_num_threads, torch.set_num_threads),
        ]
    if numpy := sys.modules.get("numpy"):
        found.append((numpy.geterr, lambda state: numpy.seterr(**state)))
    return found
