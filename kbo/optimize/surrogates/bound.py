"""A confidence with its posterior: together they bound a function."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from kbo.confidence import Confidence
from kbo.regression import Hypothetical, Posterior


@dataclass(frozen=True, eq=False)
class Bound:
    """A confidence and the posterior that it is about, which bound a function at any features.

    Attributes:
        confidence: The confidence.
        posterior: The posterior.
        norm_bound: The norm bound that the confidence assumes; None if it assumes none.
    """

    confidence: Confidence
    posterior: Posterior
    norm_bound: float | None = None

    def given(self, X: Tensor, targets: Tensor | None = None) -> Bound:
        """Return the bound after hypothetical observations. It is only for the search, and never reported.

        Args:
            X: Features [p D] of the observations.
            targets: Targets [p] of the observations, in units of the posterior; by default the posterior means.
        """
        return Bound(self.confidence, Hypothetical(self.posterior, X, targets), self.norm_bound)
