"""Devices of tensors: which ones there are, and when they are done."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from kbo._base import checks
from kbo.errors import InvalidInput


def available() -> list[str]:
    """Return the devices that can be used here: the CPU, and accelerators that hold float64."""
    accelerator = getattr(torch, "accelerator", None)  # from PyTorch 2.6 on
    kind = (
        accelerator.current_accelerator().type
        if accelerator and accelerator.is_available()
        else "cuda"
    )
    names = [f"{kind}:{i}" for i in range(getattr(torch, kind).device_count())]
    return ["cpu", *(name for name in names if isinstance(_tried(name), torch.device))]


def device(name: str, value: Any = None) -> torch.device:
    """Return the device that an argument means; None is the CPU.

    Raises:
        InvalidInput: It is not there, or holds no float64.
    """
    found = _tried("cpu" if value is None else value)
    if isinstance(found, torch.device):
        return found
    reason = f"{type(found).__name__}: {found}".splitlines()[0][:100]
    raise InvalidInput(
        f"{name} must be one that can be used here ({', '.join(available())}), got {checks.shown(value)} ({reason})."
    ) from found


def synchronize(device: torch.device) -> None:
    """Wait until a device has done all its work."""
    getattr(torch, device.type).synchronize(device)


def read(*parts: Tensor) -> list[float]:
    """Return the numbers of tensors as floats; each has one number or shape [r]."""
    return [number for part in parts for number in part.reshape(-1).tolist()]


def on_host(*parts: Tensor) -> list[np.ndarray]:
    """Return tensors as arrays; on the CPU they share memory."""
    return [part.detach().cpu().numpy() for part in parts]


def megabytes(device: torch.device, peak: bool) -> float:
    """Return the memory of tensors on a device, at its peak or at present; 0 where it counts none, as the CPU."""
    count = getattr(
        getattr(torch, device.type), "max_memory_allocated" if peak else "memory_allocated", None
    )
    return count(device) / 1e6 if count else 0.0


def _tried(value: Any) -> torch.device | Exception:
    """Return a device with its index after a number went there and back, or why none did."""
    try:
        number = torch.zeros((), dtype=torch.float64, device=value)
        number.item()
        return number.device
    except Exception as error:  # of many kinds, one for each of its libraries
        return error
