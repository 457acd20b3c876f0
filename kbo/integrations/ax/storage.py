"""Registration of strategy, models and acquisition functions of kbo with Ax's JSON and SQL storage."""

from __future__ import annotations

from typing import Any

from ax.generators.torch.botorch_modular.utils import fit_botorch_model
from ax.storage.botorch_modular_registry import register_acquisition_function, register_model
from ax.storage.json_store.registry import CORE_DECODER_REGISTRY, CORE_ENCODER_REGISTRY

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
from kbo.integrations.ax.kernels import STORABLE, build_kernel, describe_kernel
from kbo.integrations.ax.node import KBONode
from kbo.models import AdaptiveRidgeGP, KernelRidgeGP, NystromGP, StreamingGP
from kbo.optimize import Certified, Constraint, Hypothesis, Practical

_MODELS = (KernelRidgeGP, NystromGP, AdaptiveRidgeGP)
_ACQUISITION_FUNCTIONS = (
    AMMUCB,
    CMMUCB,
    DMMUCB,
    ChainingUCB,
    ConstrainedKernelUCB,
    InflatedThompsonSampling,
    KernelUCB,
)
_NOISE_BOUNDS = (NoiseBounds, MixtureNoiseBounds)


def register() -> None:
    """Register the parts of kbo that Ax stores. The import of the package does this; another call changes nothing."""
    for model in _MODELS:
        register_model(model)
    for acquisition_function in _ACQUISITION_FUNCTIONS:
        register_acquisition_function(acquisition_function)
    for kind in STORABLE.values():
        CORE_ENCODER_REGISTRY.setdefault(kind, _encoded_kernel)
    for kind in _NOISE_BOUNDS:
        CORE_ENCODER_REGISTRY[kind] = _encoded_noise_bounds
    CORE_ENCODER_REGISTRY[KBONode] = _encoded_node
    CORE_DECODER_REGISTRY["KboKernel"] = build_kernel  # pyright: ignore[reportArgumentType]
    CORE_DECODER_REGISTRY["KBONode"] = _decoded_node  # pyright: ignore[reportArgumentType]
    for kind in (Certified, Hypothesis, Practical, Constraint, *_NOISE_BOUNDS):
        CORE_DECODER_REGISTRY[kind.__name__] = kind


def _encoded_kernel(kernel: Any) -> dict[str, Any]:
    """Return a kernel as JSON values."""
    return {"__type": "KboKernel", "description": describe_kernel(kernel)}


def _encoded_noise_bounds(bounds: Any) -> dict[str, Any]:
    """Return bounds on the noise level as JSON values."""
    return {"__type": type(bounds).__name__, **bounds.description}


def _encoded_node(node: KBONode) -> dict[str, Any]:
    """Return the arguments of a node as JSON values."""
    return {"__type": "KBONode", **node.arguments}


def _decoded_node(**arguments: Any) -> KBONode:
    """Return the node with stored arguments. Ax decodes arguments for a function, but not for a class of nodes."""
    return KBONode(**arguments)


@fit_botorch_model.register(StreamingGP)
def _fit_nothing(model: StreamingGP, *args: Any, **kwargs: Any) -> None:
    """Do nothing: the kernel and the ridge of this model are given, not fitted."""
