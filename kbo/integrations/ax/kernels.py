"""Kernels as plain values that survive Ax's storage."""

from __future__ import annotations

import copy
from typing import Any

import torch
from gpytorch.constraints import Positive
from gpytorch.kernels import (
    AdditiveKernel,
    Kernel,
    MaternKernel,
    ProductKernel,
    RBFKernel,
    ScaleKernel,
)
from torch import Tensor

from kbo._base import checks
from kbo._base.surroundings import fixed
from kbo.errors import InvalidInput

STORABLE: dict[str, Any] = {
    kind.__name__: kind
    for kind in (RBFKernel, MaternKernel, ScaleKernel, AdditiveKernel, ProductKernel)
}
"""Kernels that can be stored, by name. A subclass may compute something else, so only these classes themselves."""


def describe_kernel(kernel: Kernel) -> dict[str, Any]:
    """Plain values from which ``build_kernel`` makes the same function, to the last digit."""
    return _described(copy.deepcopy(checks.kernel(kernel)).double())


def _described(kernel: Kernel) -> dict[str, Any]:
    kind = type(kernel)
    if kind not in STORABLE.values():
        raise InvalidInput(
            f"Ax cannot store a kernel of class {kind.__name__}: pass one made of {', '.join(STORABLE)}, or use "
            "kbo.minimize or kbo.Optimizer."
        )
    entry: dict[str, Any] = {"kind": kind.__name__}
    if isinstance(columns := kernel.active_dims, Tensor):
        entry["columns"] = columns.tolist()
    if isinstance(kernel, ScaleKernel):
        return entry | {
            "scale": float(kernel.outputscale.detach()),
            "base": _described(kernel.base_kernel),
        }
    if isinstance(kernel, (AdditiveKernel, ProductKernel)):
        return entry | {"parts": [_described(part) for part in kernel.kernels]}  # pyright: ignore[reportArgumentType]
    assert isinstance(kernel.lengthscale, Tensor)
    options = {"nu": float(kernel.nu)} if isinstance(kernel, MaternKernel) else {}
    return entry | {"lengthscales": kernel.lengthscale.flatten().tolist(), **options}


@fixed
def build_kernel(description: dict[str, Any]) -> Kernel:
    """The kernel of a description, in double precision and with constant parameters."""
    if description.get("kind") not in STORABLE:
        kinds = ", ".join(STORABLE)
        raise InvalidInput(
            f"{description!r} does not describe a kernel: its kind must be one of {kinds}."
        )
    kind, columns = STORABLE[description["kind"]], description.get("columns")
    if "parts" in description:
        return kind(*(build_kernel(part) for part in description["parts"]))
    plain: Any = Positive(transform=None)  # pyright: ignore[reportArgumentType]  # other transforms round
    if kind is ScaleKernel:
        base = build_kernel(description["base"])
        kernel = ScaleKernel(base, active_dims=columns, outputscale_constraint=plain).double()
        kernel.outputscale = torch.tensor(description["scale"], dtype=torch.float64, device="cpu")
    else:
        scales = torch.tensor(description["lengthscales"], dtype=torch.float64, device="cpu")
        options = {"nu": description["nu"]} if kind is MaternKernel else {}
        ard = len(scales) if len(scales) > 1 else None
        kernel = kind(
            ard_num_dims=ard, active_dims=columns, lengthscale_constraint=plain, **options
        ).double()
        kernel.lengthscale = scales
    return kernel.requires_grad_(False)
