"""What the acquisition functions of kbo have in common: a model, a confidence, one output, pending points."""

from __future__ import annotations

from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.acquisition.objective import PosteriorTransform, ScalarizedPosteriorTransform
from torch import Tensor

from kbo.confidence import Confidence
from kbo.errors import InvalidInput
from kbo.models import PosteriorModel
from kbo.regression import Posterior


class ConfidenceAcquisition(AcquisitionFunction):
    """An acquisition function made of a model and a confidence.

    Args:
        model: A model of kbo.
        confidence: The bound.
        posterior_transform: None, or a ``ScalarizedPosteriorTransform`` with one weight; with weight -1 f is minimised.
        X_pending: Points [p d] that are being evaluated.

    Raises:
        InvalidInput: The model or the posterior transform is of another kind.
    """

    X_pending: Tensor | None = None

    def __init__(
        self,
        model: PosteriorModel,
        confidence: Confidence,
        posterior_transform: PosteriorTransform | None = None,
        X_pending: Tensor | None = None,
    ) -> None:
        super().__init__(model=model)
        check_model(model)
        check_confidence(confidence)
        self.confidence = confidence
        self.weight, self.offset = affine(posterior_transform)
        self.set_X_pending(X_pending)

    @property
    def guarantee(self) -> str | None:
        """What is proved about the bounds, in words; None if nothing is."""
        return self.confidence.guarantee_on(self._regression)

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Points X_pending [p d] that are being evaluated; None or an empty tensor clears them."""
        self.X_pending = X_pending.detach().clone() if X_pending is not None and len(X_pending) else None

    @property
    def _regression(self) -> Posterior:
        """The posterior in the units of the (transformed) inputs and targets."""
        self.model.eval()
        return self.model.regression  # pyright: ignore[reportReturnType]


def check_model(model: PosteriorModel) -> None:
    """Raise InvalidInput unless ``model`` is a model of kbo."""
    if not isinstance(model, PosteriorModel):
        raise InvalidInput(f"model must be a model of kbo.models, got {type(model).__name__}.")


def check_confidence(confidence: Confidence) -> None:
    """Raise InvalidInput unless ``confidence`` is a confidence of kbo, not its class."""
    if not isinstance(confidence, Confidence):
        raise InvalidInput(f"confidence must be an instance of a class of kbo.confidence, got {confidence!r}.")


def affine(transform: PosteriorTransform | None) -> tuple[float, float]:
    """Weight and offset of the affine function of f that a posterior transform stands for.

    Raises:
        InvalidInput: It is of another kind.
    """
    if transform is None:
        return 1.0, 0.0
    if not isinstance(transform, ScalarizedPosteriorTransform) or transform.weights.numel() != 1:
        raise InvalidInput(
            "posterior_transform must be None or a ScalarizedPosteriorTransform with one weight, got "
            f"{type(transform).__name__}: a bound of f says nothing about other functions of f."
        )
    weights = transform.weights
    assert isinstance(weights, Tensor)
    return float(weights[0]), float(transform.offset)
