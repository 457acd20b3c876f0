"""Counts of the operations of some code on its device: kernels, synchronisations, uploads, arithmetic and traffic.

The counts do not depend on the machine; the time of each operation does (``experiments.bench.device``).
"""

from __future__ import annotations

import math
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_WITHOUT_KERNEL = {
    "empty",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
    "empty_like",
    "_unsafe_view",
    "lift_fresh",
    "squeeze_",
    "unsqueeze_",
    "transpose_",
    "t_",
    "detach_",
}
"""Operators that neither compute nor move data."""

_WAITING = {
    "_local_scalar_dense",
    "equal",
    "is_nonzero",
    "_linalg_check_errors",
    "nonzero",
    "masked_select",
    "bincount",
    "histc",
    "_unique",
    "_unique2",
    "unique_dim",
    "unique_consecutive",
    "unique_dim_consecutive",
    "repeat_interleave",
    "_linalg_eigh",
    "_linalg_eigvals",
    "_linalg_svd",
    "linalg_eig",
    "linalg_lstsq",
    "_assert_scalar",
}
"""Operators for which the host waits: the size of the result depends on the values, or a status is read."""

_INDEXING = ("index", "index_put")


@dataclass(frozen=True)
class Kernel:
    """A kernel: its name, floating-point operations, and bytes that are read and written at least once."""

    name: str
    flops: float
    bytes: float


class Operations(TorchDispatchMode):
    """A context that records the operations inside it on a device, also of backward passes.

    On the CPU, reading a number counts as a wait, but copying a tensor does not.

    Args:
        device: The device.

    Attributes:
        kernels: The kernels in order.
        syncs: Number of synchronisations, by operator and innermost line of kbo.
        uploads: Number of copies from the host to the device, in the same way, except those of ``torch.tensor``, which
            torch hides.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device = device
        self.kernels: list[Kernel] = []
        self.syncs: Counter[tuple[str, str]] = Counter()
        self.uploads: Counter[tuple[str, str]] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        inputs = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        outputs = [x for x in tree_leaves(out) if isinstance(x, Tensor)]
        if self.device.type not in {x.device.type for x in (*inputs, *outputs)}:
            return out
        if name in ("_to_copy", "copy_") and inputs[-1].device != outputs[0].device:
            if outputs[0].device.type == "cpu":
                self.syncs[name, _line()] += 1
            else:
                self.uploads[name, _line()] += 1
            return out
        bare = name.removesuffix("_")
        if bare in _WAITING or (bare in _INDEXING and _is_mask(inputs)):
            self.syncs[name, _line()] += 1
        elif bare in _INDEXING and len({x.device for x in inputs}) > 1:
            self.uploads[name, _line()] += 1
        if name not in _WITHOUT_KERNEL and not func.is_view and outputs:
            kernel = Kernel(name, _flops(bare, inputs, outputs), _traffic(inputs, outputs))
            self.kernels.append(kernel)
        return out


def _is_mask(inputs: Sequence[Tensor]) -> bool:
    """Return whether an indexing operator has a mask as index; the size of its result then depends on values."""
    return len(inputs) > 1 and inputs[1].dtype == torch.bool


def _traffic(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> float:
    """Return the bytes of all inputs and outputs; a tensor that is both counts once."""
    tensors = {id(x): x for x in (*inputs, *outputs)}
    return sum(x.numel() * x.element_size() for x in tensors.values())


def _flops(name: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> float:
    """Return the floating-point operations: exact for linear algebra, else one for each number of the result."""
    size = outputs[0].numel()
    shape: list[int] = []
    if inputs:
        shape = list(inputs[0].shape)
    if name in ("mm", "bmm", "mv", "dot"):
        return 2.0 * size * shape[-1]
    if name in ("addmm", "baddbmm", "addmv"):
        return 2.0 * size * inputs[1].shape[-1]
    if name in ("linalg_solve_triangular", "triangular_solve"):
        return float(size) * shape[-1]
    if name == "cholesky_solve":
        return 2.0 * size * inputs[1].shape[-1]
    if name == "linalg_cholesky_ex":
        return math.prod(shape) * shape[-1] / 3
    if name == "_linalg_eigh":
        return 9.0 * math.prod(shape) * shape[-1]
    return float(size)


def _line() -> str:
    """Return the innermost line of kbo on the stack, as ``kbo/folder/file.py:line function``; "" outside of it."""
    for frame, line in traceback.walk_stack(None):
        parts = Path(frame.f_code.co_filename).parts
        if "kbo" in parts and "bench" not in parts and "tests" not in parts:
            start = len(parts) - parts[::-1].index("kbo") - 1
            return f"{'/'.join(parts[start:])}:{line} {frame.f_code.co_name}"
    return ""
