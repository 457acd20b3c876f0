"""Kernels as plain values that JSON can hold, and back, to the last digit."""

from __future__ import annotations

import copy
from typing import Any

import torch
from gpytorch.constraints import Positive
from gpytorch.kernels import AdditiveKernel, Kernel, MaternKernel, ProductKernel, RBFKernel, ScaleKernel
from torch import Tensor

from kbo.errors import InvalidInput

STORABLE: tuple[type[Kernel], ...] = (RBFKernel, MaternKernel, ScaleKernel, AdditiveKernel, ProductKernel)
"""Subclasses may compute something else, so only these classes themselves are stored."""


def describe(kernel: Kernel) -> dict[str, Any]:
    """Plain values from which ``build`` makes the same function.

    Raises:
        InvalidInput: A kernel, or a part of one, of another class, or a batch of kernels.
    """
    if isinstance(kernel, Kernel) and kernel.batch_shape != torch.Size([]):
        raise InvalidInput(f"kernel has batch shape {tuple(kernel.batch_shape)}; kbo needs an unbatched kernel.")
    return _described(copy.deepcopy(kernel).double() if isinstance(kernel, Kernel) else kernel)


def _described(kernel: Kernel) -> dict[str, Any]:
    kind = type(kernel)
    if kind not in STORABLE:
        raise InvalidInput(
            f"Ax cannot store a kernel of class {kind.__name__}: pass one made of "
            f"{', '.join(known.__name__ for known in STORABLE)}, or use kbo.minimize or kbo.Optimizer."
        )
    entry: dict[str, Any] = {"kind": kind.__name__}
    if isinstance(columns := kernel.active_dims, Tensor):
        entry["columns"] = columns.tolist()
    if isinstance(kernel, ScaleKernel):
        entry |= {"scale": float(kernel.outputscale.detach()), "base": _described(kernel.base_kernel)}
    elif isinstance(kernel, (AdditiveKernel, ProductKernel)):
        entry["parts"] = [_described(part) for part in kernel.kernels]  # pyright: ignore[reportArgumentType]
    else:
        assert isinstance(kernel.lengthscale, Tensor)
        entry["lengthscales"] = kernel.lengthscale.flatten().tolist()
        if isinstance(kernel, MaternKernel):
            entry["nu"] = float(kernel.nu)
    return entry


def build(description: dict[str, Any]) -> Kernel:
    """The kernel of a description, in double precision and with constant parameters.

    Raises:
        InvalidInput: Not a description.
    """
    kinds: dict[str, Any] = {known.__name__: known for known in STORABLE}
    if description.get("kind") not in kinds:
        raise InvalidInput(f"{description!r} does not describe a kernel: its kind must be one of {', '.join(kinds)}.")
    kind, columns = kinds[description["kind"]], description.get("columns")
    if "parts" in description:
        return kind(*(build(part) for part in description["parts"]))
    plain: Any = Positive(transform=None)  # pyright: ignore[reportArgumentType]  # others round what they transform
    if kind is ScaleKernel:
        kernel = ScaleKernel(build(description["base"]), active_dims=columns, outputscale_constraint=plain).double()
        kernel.outputscale = torch.tensor(description["scale"], dtype=torch.float64)
        return kernel.requires_grad_(False)
    scales = torch.tensor(description["lengthscales"], dtype=torch.float64)
    given = {"nu": description["nu"]} if kind is MaternKernel else {}
    ard = len(scales) if len(scales) > 1 else None
    kernel = kind(ard_num_dims=ard, active_dims=columns, lengthscale_constraint=plain, **given).double()
    kernel.lengthscale = scales
    return kernel.requires_grad_(False)
