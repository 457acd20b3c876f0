"""The base of the acquisition functions: a model with one output, a confidence, and pending points."""

from __future__ import annotations

import copy

import torch
from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.acquisition.objective import PosteriorTransform, ScalarizedPosteriorTransform
from torch import Tensor

from kbo._base import checks
from kbo.confidence import Confidence
from kbo.confidence.least_norm import unexplained
from kbo.errors import InvalidInput, RefutedAssumptions
from kbo.models.base import PosteriorModel
from kbo.regression import Posterior


class CheckedAcquisition(AcquisitionFunction):
    """An acquisition function that raises an error for points of a wrong shape."""

    def __call__(self, X: Tensor) -> Tensor:
        """Return the values [b] of the batches X [b q d].

        For a model of fantasies, of batch shape f, the values have the shape to which b and f
        broadcast.
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
        """Return the batch shape of each model; the keys are its names in messages."""
        return {"the model": self.model.batch_shape}  # pyright: ignore


class ConfidenceAcquisition(CheckedAcquisition):
    """An acquisition function made of a model and a confidence.

    Args:
        model: A model of kbo.
        confidence: The bound.
        posterior_transform: None, or a ``ScalarizedPosteriorTransform`` with one weight; with
            weight -1 f is minimised.
        X_pending: Points [p d] that are being evaluated.

    Raises:
        InvalidInput: The model, the confidence or the posterior transform is of another kind.

    Attributes:
        weight, offset: The maximised function is ``weight f + offset``.
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
        self.confidence: Confidence = checks.instance(
            "confidence", confidence, Confidence, ": for mean + 2 std take FixedWidth(2.0)"
        )
        self.weight: float = 1.0
        self.offset: float = 0.0
        if posterior_transform is not None:
            transform = _checked_transform(posterior_transform)
            self.weight = float(transform.weights)  # pyright: ignore[reportArgumentType]
            self.offset = float(transform.offset)
        self.set_X_pending(X_pending)

    @torch.no_grad()
    def interval(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return lower and upper bound [n] of the function at X [n d], in the units of the data.

        Points and bounds are in units before the transforms of the model. Pending points and the
        posterior transform have no effect. Recommend the point with the largest lower bound. If
        there are ``objections``, nothing is proved about the bounds.

        Raises:
            InvalidInput: X has another shape or device than the data.
            RefutedAssumptions: No function satisfies the assumptions and fits the data.
        """
        state, P = self.model.state_and_points(checks.rows("X", X))
        ends = torch.stack(self.confidence.interval(state, P), -1)  # [n 2]
        if hasattr(self.model, "outcome_transform"):
            transform = self.model.outcome_transform
            columns = [transform.untransform(ends[:, i : i + 1], X=X)[0] for i in range(2)]
            ends = torch.cat(columns, -1).sort(-1).values  # a transform may reverse the order
        return ends[:, 0], ends[:, 1]

    @property
    def guarantee(self) -> str | None:
        """The guarantee of the bounds, in words; None if there are ``objections``.

        Its function and noise are in units of the model's (transformed) targets.
        """
        if self.objections:
            return None
        return self.confidence.guarantee_on(self.state())

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
                "X_pending is set, so the values include hypothetical observations: for a guarantee "
                "use an acquisition function without it"
            )
        if not reasons and state.n:
            reasons += self._refutations(state)
        return reasons

    def _refutations(self, state: Posterior) -> list[str]:
        """Return why the data refute the assumptions of the bounds, in words; empty if they do not."""
        first_point = self.model.train_inputs[0][:1]
        confidence = copy.copy(self.confidence)  # a bound may remember its queries
        try:
            confidence.interval(state, first_point)
        except RefutedAssumptions as refuted:
            return [str(refuted)]
        if unexplained(self.confidence, state):
            return [
                "the values are further from every function of norm at most norm_bound than the "
                "noise is"
            ]
        return []

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
        """Return the values, or raise InvalidInput if X needs a gradient and they have none."""
        if X.requires_grad and torch.is_grad_enabled() and not values.requires_grad:
            raise InvalidInput(
                "the model has no data, and its prior is the same everywhere, so there is nothing to "
                "optimise: begin with points that fill the space, for example "
                "botorch.utils.sampling.draw_sobol_samples."
            )
        return values

    def state(self) -> Posterior:
        """Return the posterior in the units of the (transformed) inputs and targets."""
        self.model.eval()
        return self.model.state


def check_model(model: PosteriorModel) -> None:
    """Raise InvalidInput unless ``model`` is a model of kbo whose transform maps points one to one."""
    if not isinstance(model, PosteriorModel):
        raise InvalidInput(
            f"model must be a model of kbo.models, got {type(model).__name__}: use for example "
            "KernelRidgeGP; of a ModelListGP pass one of its models, or take ConstrainedKernelUCB for "
            "limits."
        )
    transform = getattr(model, "input_transform", None)
    if getattr(transform, "is_one_to_many", False):
        raise InvalidInput(
            f"the input_transform {type(transform).__name__} of the model makes several points of "
            "one, but bounds and draws of kbo are about one point: give the model another transform, "
            "or use an acquisition function of BoTorch with a risk measure, which goes through "
            "model.posterior."
        )


def _checked_transform(transform: PosteriorTransform) -> ScalarizedPosteriorTransform:
    """Return a posterior transform, after a check that it is an affine function of f."""
    if not isinstance(transform, ScalarizedPosteriorTransform) or transform.weights.numel() != 1:
        raise InvalidInput(
            "posterior_transform must be None or a ScalarizedPosteriorTransform with one weight, got "
            f"{type(transform).__name__}: a bound of f is no bound of other functions of f."
        )
    return transform
