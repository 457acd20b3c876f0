"""Devices of tensors: which ones there are, and numbers that are read from them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from kbo._base import checks
from kbo.errors import InvalidInput


def device(name: str, value: Any = None) -> torch.device:
    """Return the device that an argument means; None is the CPU.

    Raises:
        InvalidInput: It is not there, or holds no float64.
    """
    device_or_error = _device_or_error("cpu" if value is None else value)
    if isinstance(device_or_error, torch.device):
        return device_or_error
    error = device_or_error
    reason = f"{type(error).__name__}: {error}".splitlines()[0][:100]
    raise InvalidInput(
        f"{name} must be one that can be used here ({', '.join(_available())}), got "
        f"{checks.shown(value)} ({reason})."
    ) from error


def _available() -> list[str]:
    """Return the devices that can be used here: the CPU, and accelerators that hold float64."""
    kind = "cuda"
    accelerator = getattr(torch, "accelerator", None)  # from PyTorch 2.6 on
    if accelerator and accelerator.is_available():
        kind = accelerator.current_accelerator().type
    names = [f"{kind}:{i}" for i in range(getattr(torch, kind).device_count())]
    return ["cpu", *(name for name in names if isinstance(_device_or_error(name), torch.device))]


def _device_or_error(value: Any) -> torch.device | Exception:
    """Return a device with its index after a number went there and back, or the error."""
    try:
        number = torch.zeros((), dtype=torch.float64, device=value)
        number.item()
        return number.device
    except Exception as error:  # of many kinds, one for each library of a device
        return error


def read(*tensors: Tensor) -> list[float]:
    """Return the numbers of tensors as floats; each has one number or shape [r]."""
    return [number for tensor in tensors for number in tensor.reshape(-1).tolist()]


def tensors_on_cpu(*tensors: Tensor) -> list[np.ndarray]:
    """Return tensors as arrays; on the CPU they share memory."""
    return [tensor.detach().cpu().numpy() for tensor in tensors]
