"""The parts of kbo in Ax's JSON and SQL storage: kernels as plain values, models and acquisition functions."""

from __future__ import annotations

import copy
from typing import Any

import torch
from ax.generators.torch.botorch_modular.utils import fit_botorch_model
from ax.storage.botorch_modular_registry import register_acquisition_function, register_model
from ax.storage.json_store.registry import CORE_DECODER_REGISTRY, CORE_ENCODER_REGISTRY
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
from kbo.acquisition import (
    AMMUCB,
    CMMUCB,
    DMMUCB,
    ChainingUCB,
    ConstrainedKernelUCB,
    InflatedThompsonSampling,
    KernelUCB,
)
from kbo.errors import InvalidInput
from kbo.models import KernelRidgeGP, NystromGP, StreamingGP
from kbo.optimize import Certified, Constraint, Hypothesis, Practical

_KINDS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (RBFKernel, MaternKernel, ScaleKernel, AdditiveKernel, ProductKernel)
}
"""Kernel classes that can be stored, by name. Their subclasses cannot: they may compute another function."""


def describe_kernel(kernel: Kernel) -> dict[str, Any]:
    """Return plain values from which ``build_kernel`` makes exactly the same function.

    Raises:
        InvalidInput: A part of the kernel is of a class that cannot be stored.
    """
    return _description(copy.deepcopy(checks.kernel(kernel)).double())


def _description(kernel: Kernel) -> dict[str, Any]:
    """Return the plain values of a kernel that is in double precision."""
    name = type(kernel).__name__
    if _KINDS.get(name) is not type(kernel):
        raise InvalidInput(
            f"Ax cannot store a kernel of class {name}: pass one made of {', '.join(_KINDS)}, or use "
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
    """Return the kernel of a description, in double precision and with constant parameters."""
    kind = _KINDS[description["kind"]]
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


def register() -> None:
    """Register the parts of kbo that Ax stores; a node of kbo registers itself."""
    register_model(KernelRidgeGP)
    register_model(NystromGP)
    for acquisition_function in (
        AMMUCB,
        CMMUCB,
        DMMUCB,
        ChainingUCB,
        ConstrainedKernelUCB,
        InflatedThompsonSampling,
        KernelUCB,
    ):
        register_acquisition_function(acquisition_function)
    for kind in _KINDS.values():
        CORE_ENCODER_REGISTRY.setdefault(kind, _encoded)
    CORE_DECODER_REGISTRY["KboKernel"] = build_kernel  # pyright: ignore[reportArgumentType]
    for kind in (Certified, Hypothesis, Practical, Constraint):
        CORE_DECODER_REGISTRY[kind.__name__] = kind


def _encoded(kernel: Any) -> dict[str, Any]:
    """Return a kernel as JSON values."""
    return {"__type": "KboKernel", "description": describe_kernel(kernel)}


@fit_botorch_model.register(StreamingGP)
def _fit_nothing(model: StreamingGP, *args: Any, **kwargs: Any) -> None:
    """Do nothing: the kernel and the ridge of this model are given, not fitted."""
