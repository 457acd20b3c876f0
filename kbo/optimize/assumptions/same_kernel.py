"""Whether a kernel is the same: when a journal is continued, and after a change of the space.

A journal holds the fingerprint of a kernel, so that no other kernel continues its run. Certified bounds hold after a
change of the space if the kernel stays the same function of the parameters.
"""

from __future__ import annotations

import copy
import hashlib
from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from kbo.bandit import methods
from kbo.errors import InvalidInput
from kbo.kernels import freeze
from kbo.space import Space

_NO_NUMBERS = ("training", "ard_num_dims")
"""Attributes of kernels that change no value."""


def fingerprint(kernel: Kernel, columns: int) -> str:
    """Return the fingerprint of a kernel: equal for the same classes, parameters and values, to eight decimals.

    The values are those at random points [16 columns]. Kernels with very short lengthscales have the same values there,
    so the parameters count as well. Journals of kbo 0.14 and before have the values alone.
    """
    X = torch.rand(16, columns, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    try:
        values = freeze(kernel, X)(X, X)
    except (RuntimeError, IndexError) as error:
        raise InvalidInput(
            f"the kernel cannot be evaluated on the {columns} features of this space: {error}"
        ) from error
    return f"{type(kernel).__name__} {_hash(_digits(values))} {_hash(_text_of(kernel))}"


def _text_of(kernel: Kernel) -> str:
    """Return the classes, numbers, parameters and buffers of a kernel and its parts, as text."""
    texts = []
    for name, module in copy.deepcopy(kernel).double().named_modules():
        if not isinstance(module, Kernel):
            continue
        texts.append(f"{name} {type(module).__qualname__} {_plain_attributes(module)}")
        for raw, value in module.named_parameters(recurse=False):
            texts.append(_digits(getattr(module, raw.removeprefix("raw_"), value)))
        buffers = module.buffers(recurse=False)
        texts += [_hash(buffer.cpu().numpy().tobytes()) for buffer in buffers]
    return "\n".join(texts)


def _plain_attributes(kernel: Kernel) -> list[tuple[str, Any]]:
    """Return the public numbers and texts of a kernel that may change its values, sorted by name."""
    attributes = []
    for name, value in vars(kernel).items():
        is_public = not name.startswith("_") and name not in _NO_NUMBERS
        if is_public and isinstance(value, (int, float, str)):
            attributes.append((name, value))
    return sorted(attributes)


def _digits(values: Tensor) -> str:
    """Return numbers as text, with eight decimals."""
    return " ".join(f"{value:.8e}" for value in values.flatten().tolist())


def _hash(text: str | bytes) -> str:
    """Return the first 16 digits of the SHA-256 of a text."""
    data = text.encode() if isinstance(text, str) else text
    return hashlib.sha256(data).hexdigest()[:16]


def check_bounds_go_on(method: str, former: Space, space: Space) -> None:
    """Raise InvalidInput unless the certified bounds of a method still hold after a change of the space.

    They do if parameters have the same features in both spaces, since then the kernel is the same function of them.
    """
    if methods.get(method).fixed_kernel:
        raise InvalidInput(
            f"the bound of method {method!r} is about the points of one finite space, which cannot change: "
            "begin a new run; evaluated=... takes the results over."
        )
    changed = space.replacing(former, same_scale=True)
    reasons = []
    if changed.labels != former.labels:
        reasons.append(f"it compares {changed.labels} in place of {former.labels}")
    for name, parameter in changed.compared.items():
        if former.compared.get(name) not in (None, parameter):
            reasons.append(
                f"{name!r} has another scale: {parameter} in place of {former.compared[name]}"
            )
    if reasons:
        raise InvalidInput(
            "in the certified setting a space can change only where the kernel stays the same function of the "
            f"parameters: {'; '.join(reasons)}. Begin a new run there; evaluated=... takes the results over."
        )
