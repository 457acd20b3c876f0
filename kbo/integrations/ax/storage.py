"""Values that survive Ax's JSON and SQL storage: kernels, noise bounds, and outcomes to the digits that it keeps.

Models, acquisition functions and transforms are stored by their names, the settings as the dataclasses that they are.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import torch
from ax.adapter.data_utils import ExperimentData
from ax.adapter.transforms.base import Transform
from ax.storage.botorch_modular_registry import (
    register_acquisition,
    register_acquisition_function,
    register_model,
)
from ax.storage.json_store.registry import CORE_DECODER_REGISTRY, CORE_ENCODER_REGISTRY
from ax.storage.transform_registry import register_transform
from gpytorch.constraints import Positive
from gpytorch.kernels import AdditiveKernel, Kernel, MaternKernel, ProductKernel, RBFKernel, ScaleKernel
from torch import Tensor

from kbo import checks
from kbo.acquisition import (
    AMMUCB,
    CMMUCB,
    DMMUCB,
    ChainingUCB,
    ConstrainedKernelUCB,
    InflatedThompsonSampling,
    KernelUCB,
)
from kbo.confidence import MixtureNoiseBounds, NoiseBounds
from kbo.errors import InvalidInput
from kbo.integrations.ax.constraints import Supported
from kbo.integrations.ax.models import (
    CertifiedGP,
    MethodConstrainedUCB,
    MethodSampling,
    MethodUCB,
    PracticalGP,
    SeededAcquisition,
)
from kbo.integrations.ax.seen import Seen
from kbo.models import AdaptiveRidgeGP, KernelRidgeGP, NystromGP
from kbo.optimize import Certified, Practical

STORABLE: dict[str, Any] = {
    kind.__name__: kind for kind in (RBFKernel, MaternKernel, ScaleKernel, AdditiveKernel, ProductKernel)
}
"""Kernels that can be stored, by name. A subclass may compute something else, so only these classes themselves."""

_MODELS = (KernelRidgeGP, NystromGP, AdaptiveRidgeGP, CertifiedGP, PracticalGP)
_ACQUISITIONS = (
    *(KernelUCB, AMMUCB, DMMUCB, CMMUCB, ChainingUCB, InflatedThompsonSampling, ConstrainedKernelUCB),
    *(MethodUCB, MethodConstrainedUCB, MethodSampling),
)

_DECIMALS, _DIGITS = 10, 12  # Ax stores ten decimals, and reading them back may change the last bit of a number
_SMALL = 1e-3  # outcomes that are all smaller than this are not rounded: storage keeps too few of their digits


def register() -> None:
    """Register with Ax's storage what a generation strategy of kbo contains; the import of the package does it.

    Calling it again changes nothing.
    """
    for model in _MODELS:
        register_model(model)
    for acquisition in _ACQUISITIONS:
        register_acquisition_function(acquisition)
    register_acquisition(SeededAcquisition)
    register_transform(StoredDigits)
    register_transform(Supported)
    register_transform(Seen)
    for kind in STORABLE.values():
        CORE_ENCODER_REGISTRY.setdefault(kind, lambda k: {"__type": "KboKernel", "description": describe_kernel(k)})
    for kind in (NoiseBounds, MixtureNoiseBounds):
        CORE_ENCODER_REGISTRY[kind] = lambda bounds: {"__type": type(bounds).__name__, **bounds.description}
    CORE_DECODER_REGISTRY["KboKernel"] = build_kernel  # pyright: ignore[reportArgumentType]
    CORE_DECODER_REGISTRY.update(
        {kind.__name__: kind for kind in (NoiseBounds, MixtureNoiseBounds, Certified, Practical)}
    )


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
        return entry | {"scale": float(kernel.outputscale.detach()), "base": _described(kernel.base_kernel)}
    if isinstance(kernel, (AdditiveKernel, ProductKernel)):
        return entry | {"parts": [_described(part) for part in kernel.kernels]}  # pyright: ignore[reportArgumentType]
    assert isinstance(kernel.lengthscale, Tensor)
    options = {"nu": float(kernel.nu)} if isinstance(kernel, MaternKernel) else {}
    return entry | {"lengthscales": kernel.lengthscale.flatten().tolist(), **options}


def build_kernel(description: dict[str, Any]) -> Kernel:
    """The kernel of a description, in double precision and with constant parameters."""
    if description.get("kind") not in STORABLE:
        kinds = ", ".join(STORABLE)
        raise InvalidInput(f"{description!r} does not describe a kernel: its kind must be one of {kinds}.")
    kind, columns = STORABLE[description["kind"]], description.get("columns")
    if "parts" in description:
        return kind(*(build_kernel(part) for part in description["parts"]))
    plain: Any = Positive(transform=None)  # pyright: ignore[reportArgumentType]  # other transforms round
    if kind is ScaleKernel:
        base = build_kernel(description["base"])
        kernel = ScaleKernel(base, active_dims=columns, outputscale_constraint=plain).double()
        kernel.outputscale = torch.tensor(description["scale"], dtype=torch.float64)
    else:
        scales = torch.tensor(description["lengthscales"], dtype=torch.float64)
        options = {"nu": description["nu"]} if kind is MaternKernel else {}
        ard = len(scales) if len(scales) > 1 else None
        kernel = kind(ard_num_dims=ard, active_dims=columns, lengthscale_constraint=plain, **options).double()
        kernel.lengthscale = scales
    return kernel.requires_grad_(False)


class StoredDigits(Transform):
    """Rounds each outcome and standard error to ten decimals and twelve digits: a resumed run has the same data."""

    def transform_experiment_data(self, experiment_data: ExperimentData) -> ExperimentData:
        """The data to these digits."""
        data = experiment_data.observation_data
        for column in data.columns:
            if column[0] in ("mean", "sem"):
                data[column] = rounded(data[column].to_numpy(dtype=float))
        return ExperimentData(arm_data=experiment_data.arm_data, observation_data=data)


def rounded(values: np.ndarray) -> np.ndarray:
    """Numbers [n] to the digits that Ax stores."""
    finite = np.abs(values[np.isfinite(values)])
    if not len(finite) or finite.max() < _SMALL:
        return values
    return np.array([_round(value) for value in values.tolist()])


def _round(value: float) -> float:
    if value == 0 or not math.isfinite(value):
        return value
    return round(value, min(_DECIMALS, _DIGITS - 1 - math.floor(math.log10(abs(value)))))
