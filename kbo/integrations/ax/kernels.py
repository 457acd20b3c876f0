"""Kernels as plain values that Ax's storage can keep."""

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
from kbo._base.isolation import isolated
from kbo.errors import InvalidInput

_KINDS = (RBFKernel, MaternKernel, ScaleKernel, AdditiveKernel, ProductKernel)

STORABLE: dict[str, Any] = {kind.__name__: kind for kind in _KINDS}
"""Kernel classes that can be stored, by name. Their subclasses cannot: they may compute another function."""


def describe_kernel(kernel: Kernel) -> dict[str, Any]:
    """Return plain values from which ``build_kernel`` makes exactly the same function.

    Raises:
        InvalidInput: A part of the kernel is of a class that is not in ``STORABLE``.
    """
    return _description(copy.deepcopy(checks.kernel(kernel)).double())


def _description(kernel: Kernel) -> dict[str, Any]:
    """Return the plain values of a kernel that is in double precision."""
    name = type(kernel).__name__
    if STORABLE.get(name) is not type(kernel):
        raise InvalidInput(
            f"Ax cannot store a kernel of class {name}: pass one made of {', '.join(STORABLE)}, or use "
            "kbo.minimize or kbo.Optimizer."
        )
    entry: dict[str, Any] = {"kind": name}
    columns = kernel.active_dims
    if isinstance(columns, Tensor):
        entry["columns"] = columns.tolist()
    if isinstance(kernel, ScaleKernel):
        entry["scale"] = float(kernel.outputscale.detach())
        entry["base"] = _description(kernel.base_kernel)
        return entry
    if isinstance(kernel, (AdditiveKernel, ProductKernel)):
        components: Any = kernel.kernels
        entry["parts"] = [_description(component) for component in components]
        return entry
    assert isinstance(kernel.lengthscale, Tensor)
    entry["lengthscales"] = kernel.lengthscale.flatten().tolist()
    if isinstance(kernel, MaternKernel):
        entry["nu"] = float(kernel.nu)
    return entry


@isolated
def build_kernel(description: dict[str, Any]) -> Kernel:
    """Return the kernel of a description, in double precision and with constant parameters.

    Raises:
        InvalidInput: The description has no kind of ``STORABLE``.
    """
    name = description.get("kind")
    if name not in STORABLE:
        kinds = ", ".join(STORABLE)
        raise InvalidInput(
            f"{description!r} does not describe a kernel: its kind must be one of {kinds}."
        )
    kind = STORABLE[name]
    if "parts" in description:
        return kind(*map(build_kernel, description["parts"]))
    columns = description.get("columns")
    identity: Any = Positive(transform=None)  # pyright: ignore[reportArgumentType]  # other transforms round
    if kind is ScaleKernel:
        base = build_kernel(description["base"])
        kernel = ScaleKernel(base, active_dims=columns, outputscale_constraint=identity).double()
        kernel.outputscale = torch.tensor(description["scale"], dtype=torch.float64, device="cpu")
        return kernel.requires_grad_(False)
    lengthscales = torch.tensor(description["lengthscales"], dtype=torch.float64, device="cpu")
    options: dict[str, Any] = {"active_dims": columns, "lengthscale_constraint": identity}
    if len(lengthscales) > 1:
        options["ard_num_dims"] = len(lengthscales)
    if kind is MaternKernel:
        options["nu"] = description["nu"]
    kernel = kind(**options).double()
    kernel.lengthscale = lengthscales
    return kernel.requires_grad_(False)
