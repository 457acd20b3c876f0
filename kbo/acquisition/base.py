"""The base of the acquisition functions of kbo: a model with one output, a confidence, and pending points."""

from __future__ import annotations

import copy

import torch
from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.acquisition.objective import PosteriorTransform, ScalarizedPosteriorTransform
from torch import Tensor

from kbo._base import checks
from kbo.confidence import Confidence
from kbo.confidence.unexplained import unexplained
from kbo.errors import InvalidInput, RefutedAssumptions
from kbo.models import PosteriorModel
from kbo.regression import Posterior


class CheckedAcquisition(AcquisitionFunction):
    """An acquisition function whose mistakes in shapes and arguments are named."""

    def __call__(self, X: Tensor) -> Tensor:
        """Return the values [b] of the batches X [b q d].

        Of fantasies, a model of batch shape f, they are the values [b'] to which b and f broadcast.
        """
        if checks.shaped("X", X).ndim < 2 or not X.shape[-2]:
            raise InvalidInput(
                f"X must have shape [b q d], got {tuple(X.shape)}: use X.unsqueeze(-2)."
            )
        shapes = self.batch_shapes()
        if any(shapes.values()):
            checks.batch_shape(X=X.shape[:-2], **shapes)
        return super().__call__(X)

    def batch_shapes(self) -> dict[str, torch.Size]:
        """Return the batch shapes of the models, by words that name them."""
        return {"the model": self.model.batch_shape}  # pyright: ignore


class ConfidenceAcquisition(CheckedAcquisition):
    """An acquisition function made of a model and a confidence.

    Args:
        model: A model of kbo.
        confidence: The bound.
        posterior_transform: None, or a ``ScalarizedPosteriorTransform`` with one weight; with weight -1 f is minimised.
        X_pending: Points [p d] that are being evaluated.

    Raises:
        InvalidInput: The model, the confidence or the posterior transform is of another kind.
    """

    X_pending: Tensor | None = None

    model: PosteriorModel

    def __init__(
        self,
        model: PosteriorModel,
        confidence: Confidence,
        posterior_transform: PosteriorTransform | None = None,
        X_pending: Tensor | None = None,
    ) -> None:
        super().__init__(model=model)
        check_model(model)
        self.confidence: Confidence = checks.instance("confidence", confidence, Confidence)
        weight, offset = _affine(posterior_transform)
        self.weight: float = weight
        self.offset: float = offset
        self.set_X_pending(X_pending)

    @property
    def guarantee(self) -> str | None:
        """The guarantee of the bounds, in words; None without one, for the reasons of ``objections``.

        It is about functions and noise in the units of the model's (transformed) targets.
        """
        return None if self.objections else self.confidence.guarantee_on(self.state())

    @property
    def objections(self) -> list[str]:
        """The reasons why no theorem covers the values, in words; none if one does."""
        state = self.state()
        reasons = self.confidence.objections(state)
        if not self.finite:
            reasons.append(
                "the bounds are not finite yet, so points are ranked by their standard deviation"
            )
        if self.X_pending is not None:
            reasons.append(
                "X_pending is set, so the values include hypothetical observations: for a guarantee use an acquisition "
                "function without it"
            )
        if not reasons and state.n:
            try:
                copy.copy(self.confidence).interval(state, self.model.train_inputs[0][:1])  # pyright: ignore
            except RefutedAssumptions as refuted:
                reasons.append(str(refuted))
            if not reasons and unexplained(self.confidence, state):
                reasons.append(
                    "the values are further from every function of norm at most norm_bound than the noise is"
                )
        return reasons

    @property
    def finite(self) -> bool:
        """Whether the bounds are finite yet; if not, points are ranked by their standard deviation."""
        return self.confidence.finite_on(self.state())

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Replace the points [p d] that are being evaluated; None or an empty tensor clears them."""
        if X_pending is None or not checks.tensor("X_pending", X_pending).numel():
            self.X_pending = None
        else:
            self.X_pending = checks.rows("X_pending", X_pending).detach().clone()

    def differentiable(self, values: Tensor, X: Tensor) -> Tensor:
        """Return the values, or raise InvalidInput if those at X should have a gradient and cannot have one."""
        if X.requires_grad and torch.is_grad_enabled() and not values.requires_grad:
            raise InvalidInput(
                "the model has no data, and its prior is the same everywhere, so there is nothing to optimise: begin "
                "with points that fill the space, for example botorch.utils.sampling.draw_sobol_samples."
            )
        return values

    def state(self) -> Posterior:
        """Return the posterior in the units of the (transformed) inputs and targets."""
        self.model.eval()
        return self.model.state


def check_model(model: PosteriorModel) -> None:
    """Raise InvalidInput unless ``model`` is a model of kbo whose input transform makes one point of one."""
    if not isinstance(model, PosteriorModel):
        raise InvalidInput(
            f"model must be a model of kbo.models, got {type(model).__name__}: use for example KernelRidgeGP; "
            "of a ModelListGP pass one of its models, or take ConstrainedKernelUCB for limits."
        )
    if getattr(transform := getattr(model, "input_transform", None), "is_one_to_many", False):
        raise InvalidInput(
            f"the input_transform {type(transform).__name__} of the model makes several points of one, but bounds and "
            "draws of kbo are about one point: give the model another transform, or use an acquisition function of "
            "BoTorch with a risk measure, which goes through model.posterior."
        )


def _affine(transform: PosteriorTransform | None) -> tuple[float, float]:
    """Return weight and offset of the affine function of f that a posterior transform stands for."""
    if transform is None:
        return 1.0, 0.0
    if not isinstance(transform, ScalarizedPosteriorTransform) or transform.weights.numel() != 1:
        raise InvalidInput(
            "posterior_transform must be None or a ScalarizedPosteriorTransform with one weight, got "
            f"{type(transform).__name__}: a bound of f is no bound of other functions of f."
        )
    weights = transform.weights
    assert isinstance(weights, Tensor)
    return float(weights[0]), float(transform.offset)
