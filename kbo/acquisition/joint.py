"""The base of acquisition functions about several functions, with a model and a confidence for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from botorch.acquisition.objective import PosteriorTransform
from botorch.models import ModelListGP
from torch import Tensor

from kbo import checks
from kbo.acquisition.base import CheckedAcquisition
from kbo.acquisition.ucb import KernelUCB
from kbo.confidence import Confidence
from kbo.errors import InvalidInput
from kbo.regression import Posterior

Located = tuple[Posterior, Tensor]


class JointAcquisition(CheckedAcquisition):
    """An acquisition function made of the upper confidence bounds of several functions.

    Args:
        model: The models of kbo.
        confidences: The bound of each of them.
        transforms: The posterior transform of each function that is used, by its number in ``model``.
        X_pending: Points [p d] that are being evaluated.

    Attributes:
        terms: The upper confidence bound of each function that is used, by its number.

    Raises:
        InvalidInput: An argument is of another kind, or the numbers of models and bounds differ.
    """

    def __init__(
        self,
        model: ModelListGP,
        confidences: Sequence[Confidence],
        transforms: Mapping[int, PosteriorTransform | None],
        X_pending: Tensor | None = None,
    ) -> None:
        super().__init__(model=model)
        models: list[Any] = list(model.models)
        if not isinstance(confidences, Sequence) or len(confidences) != len(models):
            raise InvalidInput(
                f"confidences must be a list of one bound for each of {len(models)} models, got "
                f"{checks.shown(confidences)}."
            )
        self.terms: dict[int, KernelUCB] = {
            i: KernelUCB(models[i], confidences[i], transforms[i]) for i in sorted(transforms)
        }
        self.set_X_pending(X_pending)

    @property
    def guarantee(self) -> str | None:
        """The guarantees of the terms, in words; None without one, for the reasons of ``objections``."""
        if self.objections:
            return None
        known = [f"function {i}: {term.guarantee}" for i, term in self.terms.items()]
        return "; ".join([*known, f"all hold together with probability at least 1 - {self._delta:g}"])

    @property
    def objections(self) -> list[str]:
        """The reasons why no theorem covers the values, in words; none if one does."""
        reasons = [f"function {i}: {reason}" for i, term in self.terms.items() for reason in term.objections]
        if not reasons and self._delta >= 1:
            reasons.append(
                f"the probabilities with which the bounds may fail add up to {self._delta:g}, so nothing is known of "
                "all of them together: give each a smaller delta"
            )
        return reasons

    @property
    def _delta(self) -> float:
        return sum(term.confidence.delta_on(term.state()) for term in self.terms.values())

    def located(self, X: Tensor) -> dict[KernelUCB, Located]:
        """Return for each term its posterior and the points X [... d] in its inputs."""
        return {term: term.model.state_and_points(X) for term in self.terms.values()}

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Replace the points [p d] that are being evaluated; None or an empty tensor clears them."""
        for term in self.terms.values():
            term.set_X_pending(X_pending)
            self.X_pending: Tensor | None = term.X_pending
