"""Fingerprints of kernels, by which a journal knows that it is continued with the same one."""

from __future__ import annotations

import copy
import hashlib

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from kbo.errors import InvalidInput
from kbo.kernels import freeze

_NO_NUMBERS = ("training", "ard_num_dims")
"""Attributes of kernels that change no value."""


def fingerprint(kernel: Kernel, columns: int) -> str:
    """Return a text that is equal for kernels of the same classes, parameters and values, to eight digits.

    The values, at some points [16 columns], do not tell kernels apart whose lengthscales are much shorter than the
    distances; kbo 0.14 and before wrote them alone.
    """
    X = torch.rand(16, columns, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    try:
        values = freeze(kernel, X)(X, X)
    except (RuntimeError, IndexError) as error:
        raise InvalidInput(
            f"the kernel cannot be evaluated on the {columns} features of this space: {error}"
        ) from error
    return f"{type(kernel).__name__} {_hash(_digits(values))} {_hash(_described(kernel))}"


def _described(kernel: Kernel) -> str:
    """Return the classes of a kernel and its parts, their numbers, parameters and buffers, as text."""
    texts = []
    for name, part in copy.deepcopy(kernel).double().named_modules():
        if isinstance(part, Kernel):
            plain = {
                key: value
                for key, value in vars(part).items()
                if isinstance(value, (int, float, str))
            }
            plain = {
                key: value
                for key, value in plain.items()
                if key[0] != "_" and key not in _NO_NUMBERS
            }
            texts.append(f"{name} {type(part).__qualname__} {sorted(plain.items())}")
            for raw, value in part.named_parameters(recurse=False):
                texts.append(_digits(getattr(part, raw.removeprefix("raw_"), value)))
            texts += [
                _hash(buffer.cpu().numpy().tobytes()) for buffer in part.buffers(recurse=False)
            ]
    return "\n".join(texts)


def _digits(values: Tensor) -> str:
    return " ".join(f"{value:.8e}" for value in values.flatten().tolist())


def _hash(text: str | bytes) -> str:
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()[:16]
