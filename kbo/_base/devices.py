"""Devices of tensors: the device for an argument, and copies of numbers from a device to the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from kbo._base import checks
from kbo.errors import InvalidInput


def device(name: str, value: Any = None) -> torch.device:
    """Return the device for an argument; None means the CPU.

    Raises:
        InvalidInput: There is no such device, or it does not support float64.
    """
    try:
        return _tested("cpu" if value is None else value)
    except Exception as error:  # of many kinds, one for each library of a device
        reason = f"{type(error).__name__}: {error}".splitlines()[0][:100]
        raise InvalidInput(
            f"{name} must be one that can be used here ({', '.join(_available())}), got "
            f"{checks.shown(value)} ({reason})."
        ) from error


def _available() -> list[str]:
    """Return the names of the devices that can be used here: the CPU, and accelerators that support float64."""
    kind = "cuda"
    accelerator = getattr(torch, "accelerator", None)  # from PyTorch 2.6 on
    if accelerator and accelerator.is_available():
        kind = accelerator.current_accelerator().type
    accelerators = [f"{kind}:{i}" for i in range(getattr(torch, kind).device_count())]
    return ["cpu", *filter(_is_usable, accelerators)]


def _is_usable(name: str) -> bool:
    """Return whether a device can be used here, and supports float64."""
    try:
        _tested(name)
    except Exception:
        return False
    return True


def _tested(value: Any) -> torch.device:
    """Return a device with its index, after a test that sends a float64 number there and back."""
    number = torch.zeros((), dtype=torch.float64, device=value)
    number.item()
    return number.device


def read(*tensors: Tensor) -> list[float]:
    """Return all numbers of tensors in one list of floats; a tensor has one number or shape [r]."""
    return [number for tensor in tensors for number in tensor.reshape(-1).tolist()]


def on_host(*tensors: Tensor) -> list[np.ndarray]:
    """Return tensors as NumPy arrays; an array of a CPU tensor shares its memory."""
    return [tensor.detach().cpu().numpy() for tensor in tensors]
