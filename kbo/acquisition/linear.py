"""Upper confidence bounds of linear combinations of several functions, with a model and a confidence for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.models import ModelListGP
from botorch.utils.transforms import t_batch_mode_transform
from torch import Tensor

from kbo import checks
from kbo.acquisition.joint import JointAcquisition
from kbo.confidence import Confidence
from kbo.errors import InvalidInput


class LinearUCB(JointAcquisition):
    """The upper confidence bound of ``weights_1 f_1 + ... + weights_m f_m + offset``, to be maximised.

    It is the sum of the bounds of its terms, each a ``KernelUCB``; with a negative weight that is from the lower bound
    of f_i. If the bounds of f_i fail with probability delta_i, this one fails with at most the sum of these, however
    the functions and their noise depend on each other. While some f_i has no finite bounds, the value is the sum of the
    standard deviations of these alone, each times the size of its weight: the limit of ever wider bounds.

    Args:
        model: The models of kbo, in the units of their data (without outcome transforms).
        confidences: The bound of each f_i.
        posterior_transform: The weights [m], not all 0, and the offset.
        X_pending: Points [p d] that are being evaluated.

    Raises:
        InvalidInput: An argument is of another kind, the numbers of models, bounds and weights differ, weights are not
            finite or all 0, or a model has an outcome transform.

    Example:
        >>> bounds = [SelfNormalized(noise_std=0.1, norm_bound=2.0, delta=0.05) for _ in range(2)]
        >>> acqf = LinearUCB(ModelListGP(cost, gain), bounds, ScalarizedPosteriorTransform(torch.tensor([-0.5, 1.0])))
    """

    def __init__(
        self,
        model: ModelListGP,
        confidences: Sequence[Confidence],
        posterior_transform: ScalarizedPosteriorTransform,
        X_pending: Tensor | None = None,
    ) -> None:
        checks.instance("posterior_transform", posterior_transform, ScalarizedPosteriorTransform)
        models: list[Any] = list(checks.instance("model", model, ModelListGP).models)
        values: Any = posterior_transform.weights
        weights = checks.points("posterior_transform.weights", values).split(1)
        if len(weights) != len(models):
            raise InvalidInput(
                f"posterior_transform must have a weight for each of {len(models)} models, got {len(weights)} weights."
            )
        if not values.any():
            raise InvalidInput("posterior_transform has no weight other than 0: there is nothing to maximise.")
        if any(hasattr(one, "outcome_transform") for one in models):
            raise InvalidInput(
                "model has an outcome_transform, and its bounds are in transformed units, which cannot be added: scale "
                "the targets and the weights instead."
            )
        transforms = {i: ScalarizedPosteriorTransform(weight) for i, weight in enumerate(weights)}
        super().__init__(model, confidences, transforms, X_pending)
        self.offset: float = posterior_transform.offset

    @t_batch_mode_transform()  # pyright: ignore[reportArgumentType]
    def forward(self, X: Tensor) -> Tensor:
        """Return the values [b] of the batches X [b q d]."""
        with self.located(X) as found:
            terms = {term: at for term, at in found.items() if term.weight}
            unbounded = [term for term, (state, _) in terms.items() if not term.confidence.finite_on(state)]
            if unbounded:
                return torch.stack([abs(term.weight) * term.bounds(*found[term]) for term in unbounded]).sum(0).mean(-1)
            return torch.stack([term.bounds(*at) for term, at in terms.items()]).sum(0).mean(-1) + self.offset
