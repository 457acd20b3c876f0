"""State dicts of models, those of PyTorch with a checksum: loading one changes everything or nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from kbo.errors import InvalidInput
from kbo.stateful import checksum

CHECKSUM = "_extra_state"
"""Name that PyTorch gives to what a module adds to its state dict."""


def checksum_of(state: Mapping[str, Any], late: bool = False) -> Tensor:
    """Return the checksum [] of a state dict, less its own; another if its values were chosen ``late``, after data."""
    values = {name: value for name, value in state.items() if name != CHECKSUM}
    return torch.tensor(checksum([values, "chosen after data"] if late else values))


def late(state: Mapping[str, Any]) -> bool:
    """Whether the checksum of a state dict says that its values were chosen after data."""
    return _equals(state.get(CHECKSUM), checksum_of(state, late=True))


def check(model: str, state: Any, own: Mapping[str, Any], strict: bool) -> None:
    """Raise InvalidInput unless a state dict can be loaded as a whole.

    Args:
        model: The class of the model.
        state: The state dict that was given.
        own: That of the model as it is.
        strict: Whether it must have all values, and the checksum that was made with them.
    """
    if not isinstance(state, Mapping) or (strict and set(state) != set(own)):
        found = ", ".join(map(str, state)) if isinstance(state, Mapping) else type(state).__name__
        raise InvalidInput(
            f"state_dict of a {model} must have the values {', '.join(own)}, got {found:.300}. Without the last, the "
            "checksum, as in kbo 0.8 and earlier, pass strict=False."
        )
    for name in set(own) & set(state) - {CHECKSUM}:
        value, shape = state[name], tuple(own[name].shape)
        if not _replaces(value, own[name]):
            plain = isinstance(value, Tensor) and not value.is_nested  # nested tensors have no shape
            given = f"{value.dtype}, {tuple(value.shape)}, {value.device}" if plain else type(value).__name__
            raise InvalidInput(f"{name} of the state dict must be a finite tensor of shape {shape}, got {given}.")
    if strict and not (_equals(state[CHECKSUM], checksum_of(state)) or late(state)):
        raise InvalidInput(
            "the state dict does not have the checksum that was made with it: it was changed or damaged. Load another "
            "copy; or pass strict=False if you changed it."
        )


def _equals(value: Any, checksum: Tensor) -> bool:
    return _replaces(value, checksum) and float(value) == float(checksum)


def _replaces(value: Any, own: Tensor) -> bool:
    """Whether a value is a tensor like this one, finite where it is (bounds of a constraint may be infinite)."""
    if not isinstance(value, Tensor) or value.is_nested or value.is_meta:
        return False
    if (value.shape, value.layout) != (own.shape, own.layout):
        return False
    kind = value.is_floating_point() == own.is_floating_point()
    return kind and bool((torch.isfinite(value) | ~torch.isfinite(own.to(value.device))).all())
