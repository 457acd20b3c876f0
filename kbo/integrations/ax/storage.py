"""Ax's tables of what it can store, construct and fit."""

from __future__ import annotations

from typing import Any

import torch
from ax.core.search_space import SearchSpaceDigest
from ax.generators.torch.botorch_modular.surrogate import submodel_input_constructor
from ax.generators.torch.botorch_modular.utils import ModelConfig, fit_botorch_model
from ax.storage.botorch_modular_registry import (
    register_acquisition,
    register_acquisition_function,
    register_model,
)
from ax.storage.json_store.registry import CORE_DECODER_REGISTRY, CORE_ENCODER_REGISTRY
from ax.storage.transform_registry import register_transform
from botorch.utils.datasets import SupervisedDataset
from gpytorch.kernels import Kernel
from torch import Tensor

from kbo.acquisition import AMMUCB, CMMUCB, DMMUCB, ChainingUCB, InflatedThompsonSampling, KernelUCB
from kbo.confidence import NoiseBounds
from kbo.integrations.ax.digits import StoredDigits
from kbo.integrations.ax.features import features_of, space_of
from kbo.integrations.ax.kernels import STORABLE, build, describe
from kbo.integrations.ax.models import CertifiedGP, MethodGP, PracticalGP
from kbo.integrations.ax.rules import MethodSampling, MethodUCB, SeededAcquisition
from kbo.models import AdaptiveRidgeGP, KernelRidgeGP, NystromGP, StreamingGP
from kbo.optimize import Certified, Practical

_MODELS = (KernelRidgeGP, NystromGP, AdaptiveRidgeGP, CertifiedGP, PracticalGP)
_ACQUISITIONS = (KernelUCB, AMMUCB, DMMUCB, CMMUCB, ChainingUCB, InflatedThompsonSampling, MethodUCB, MethodSampling)


def register() -> None:
    """Tell Ax how to store what kbo puts into a generation strategy; importing ``kbo.integrations.ax`` does it.

    Models, acquisition functions, settings, noise bounds, and kernels made of RBF, Matern, Scale, sums and products.
    Calling it again changes nothing.
    """
    for model in _MODELS:
        register_model(model)
    for acquisition in _ACQUISITIONS:
        register_acquisition_function(acquisition)
    register_acquisition(SeededAcquisition)
    register_transform(StoredDigits)
    for kernel in STORABLE:
        CORE_ENCODER_REGISTRY.setdefault(kernel, _kernel_to_dict)
    CORE_ENCODER_REGISTRY[NoiseBounds] = _noise_bounds_to_dict
    CORE_DECODER_REGISTRY.update(
        {
            "KboKernel": build_kernel,  # pyright: ignore[reportArgumentType]
            "NoiseBounds": NoiseBounds,
            "Certified": Certified,  # dataclasses, which Ax encodes by itself
            "Practical": Practical,
        }
    )


def _kernel_to_dict(kernel: Kernel) -> dict[str, Any]:
    return {"__type": "KboKernel", "description": describe(kernel)}


def build_kernel(description: dict[str, Any]) -> Kernel:
    """The kernel that was stored."""
    return build(description)


def _noise_bounds_to_dict(bounds: NoiseBounds) -> dict[str, Any]:
    return {"__type": "NoiseBounds", **bounds._described()}


@fit_botorch_model.register(StreamingGP)
def _fit_nothing(model: StreamingGP, *args: Any, **kwargs: Any) -> None:
    """What kbo's models know is given."""


@fit_botorch_model.register(PracticalGP)
def _fit_practical(model: PracticalGP, *args: Any, **kwargs: Any) -> None:
    model.estimate()


@submodel_input_constructor.register(MethodGP)
def _method_inputs(
    botorch_model_class: type[MethodGP],
    model_config: ModelConfig,
    dataset: SupervisedDataset,
    search_space_digest: SearchSpaceDigest,
    surrogate: Any,
) -> dict[str, Any]:
    inputs = {
        "train_X": dataset.X,
        "train_Y": dataset.Y,
        "input_transform": features_of(search_space_digest),
        **model_config.model_options,
    }
    if issubclass(botorch_model_class, CertifiedGP):
        return {**inputs, "sem": _largest(dataset.Yvar), "space": space_of(search_space_digest)}
    known = dataset.Yvar is not None and not bool(dataset.Yvar.isnan().any())
    return {**inputs, "sem": _largest(dataset.Yvar) if known else None}


def _largest(variances: Tensor | None) -> float | None:
    """The largest standard error; None if there are none."""
    if variances is None or bool(variances.isnan().all()):
        return None
    return float(torch.nan_to_num(variances, nan=0.0).max().sqrt())
