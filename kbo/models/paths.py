"""Draws of functions where BoTorch draws paths: ``draw_matheron_paths``, ``PathwiseThompsonSampling`` and others."""

from __future__ import annotations

from typing import Any

import torch
from botorch.sampling.pathwise.paths import SamplePath
from botorch.sampling.pathwise.posterior_samplers import DrawMatheronPaths
from botorch.sampling.pathwise.prior_samplers import draw_kernel_feature_paths
from botorch.sampling.pathwise.update_strategies import gaussian_update
from torch import Tensor

from kbo.errors import InvalidInput
from kbo.models.base import PosteriorModel


class FunctionPaths(SamplePath):
    """Functions drawn from the posterior of a model as it is now, with torch's global generator.

    Args:
        model: The model.
        sample_shape: Their number, as a shape s.
    """

    def __init__(self, model: PosteriorModel, sample_shape: torch.Size) -> None:
        super().__init__()
        model.eval()
        state = model.state.fork()
        self._model, self._state, self._shape = (
            [model],
            state,
            torch.Size(sample_shape),
        )  # the model is no part of it
        self._paths = [
            state.at().draw_function(model.train_inputs[0]) for _ in range(self._shape.numel())
        ]

    def forward(self, X: Tensor, **kwargs: Any) -> Tensor:
        """Return the values [b n] at X [... n d], in units of train_Y; b is the broadcast of ... and s."""
        X = self._model[0].transform_inputs(X)
        shape = torch.broadcast_shapes(X.shape[:-2], self._shape)
        P = X.expand(*shape, *X.shape[-2:]).reshape(-1, len(self._paths), *X.shape[-2:])
        deviations = torch.stack([path(P[:, i]) for i, path in enumerate(self._paths)], 1)
        values = (self._state.predict(P)[0] + deviations).reshape(*shape, X.shape[-2])
        transform: Any = getattr(self._model[0], "outcome_transform", None)
        return (
            values
            if transform is None
            else transform.untransform(values.unsqueeze(-1))[0].squeeze(-1)
        )

    def set_ensemble_as_batch(self, ensemble_as_batch: bool) -> None:
        """Do nothing: there is no ensemble."""


@DrawMatheronPaths.register(PosteriorModel)
def _draw_paths(
    model: PosteriorModel, *, sample_shape: torch.Size, prior_sampler: Any, update_strategy: Any
) -> FunctionPaths:
    if prior_sampler is not draw_kernel_feature_paths or update_strategy is not gaussian_update:
        raise InvalidInput(
            "models of kbo draw functions in their own way: leave out prior_sampler and update_strategy."
        )
    return FunctionPaths(model, sample_shape)
