"""Registration with Ax's JSON and SQL storage of the strategy of kbo, and of models and acquisition functions."""

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


def register() -> None:
    """Register what strategies with parts of kbo contain; the import of the package does it.

    Calling it again changes nothing.
    """
    for model in (KernelRidgeGP, NystromGP, AdaptiveRidgeGP):
        register_model(model)
    for acquisition in (
        AMMUCB,
        CMMUCB,
        DMMUCB,
        ChainingUCB,
        ConstrainedKernelUCB,
        InflatedThompsonSampling,
        KernelUCB,
    ):
        register_acquisition_function(acquisition)
    for kind in STORABLE.values():
        CORE_ENCODER_REGISTRY.setdefault(
            kind, lambda k: {"__type": "KboKernel", "description": describe_kernel(k)}
        )
    for kind in (NoiseBounds, MixtureNoiseBounds):
        CORE_ENCODER_REGISTRY[kind] = lambda bounds: {
            "__type": type(bounds).__name__,
            **bounds.description,
        }
    CORE_ENCODER_REGISTRY[KBONode] = lambda node: {"__type": "KBONode", **node.arguments}
    CORE_DECODER_REGISTRY["KboKernel"] = build_kernel  # pyright: ignore[reportArgumentType]
    # A function, since Ax does not decode the arguments of a node.
    CORE_DECODER_REGISTRY["KBONode"] = lambda **arguments: KBONode(**arguments)  # pyright: ignore[reportArgumentType]
    classes = (Certified, Hypothesis, Practical, Constraint, NoiseBounds, MixtureNoiseBounds)
    CORE_DECODER_REGISTRY.update({kind.__name__: kind for kind in classes})


@fit_botorch_model.register(StreamingGP)
def _fit_nothing(model: StreamingGP, *args: Any, **kwargs: Any) -> None:
    """Leave the given kernel and ridge as they are."""
