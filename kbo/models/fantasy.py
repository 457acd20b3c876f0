"""A model with hypothetical observations, for fantasies and look-ahead acquisition functions."""

from __future__ import annotations

import torch
from torch import Tensor

from kbo.models.base import RegressionModel
from kbo.regression import Hypothetical


class FantasyGP(RegressionModel):
    """``model`` after hypothetical observations; batched and differentiable in them.

    Args:
        model: The model of the real data.
        P: Hypothetical points in the model's transformed inputs, [... p d].
        targets: Their targets in the model's transformed units, [... p], with any leading fantasy axes.
    """

    def __init__(self, model: RegressionModel, P: Tensor, targets: Tensor) -> None:
        super().__init__()
        self.train_inputs = (P,)
        self.train_targets = targets
        self._hypothetical = Hypothetical(model.regression, P, targets)
        self.covar_module = model.covar_module
        if hasattr(model, "input_transform"):
            self.input_transform = model.input_transform
            self._has_transformed_inputs = True
        if hasattr(model, "outcome_transform"):
            self.outcome_transform = model.outcome_transform
        self.eval()

    @property
    def regression(self) -> Hypothetical:
        """The posterior of the real and the hypothetical data."""
        return self._hypothetical

    @property
    def batch_shape(self) -> torch.Size:
        """Fantasies times batches."""
        return self.train_targets.shape[:-1]
