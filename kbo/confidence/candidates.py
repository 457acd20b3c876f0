"""The optimality gap over a set of candidates: how much better than the recommended one another can be."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from kbo._base import checks
from kbo.confidence.base import Confidence
from kbo.regression import Posterior


class CandidateGap(NamedTuple):
    """The recommended row of a finite set, and a bound of how much better another row can be.

    Attributes:
        recommended: The row with the largest lower bound, or nearly; see ``candidate_gap``.
        lower: The lower bound of the recommended row.
        upper: The largest upper bound of all rows, an upper bound of the maximum.
    """

    recommended: int
    lower: float
    upper: float

    @property
    def value(self) -> float:
        """Upper bound of the simple regret of the recommended row, in units of the targets."""
        return self.upper - self.lower


def candidate_gap(confidence: Confidence, state: Posterior, X: Tensor) -> CandidateGap:
    """Return the row of X [A d] to recommend, and a bound of how much better another row can be.

    The row has the largest lower bound. For ``MartingaleMixture`` of kind "cmm" it has nearly the
    largest, because the exact bound is computed for a few rows only. The gap is valid in both
    cases.

    With the probability of ``confidence.guarantee``, for all rounds at once, the simple regret of
    the recommended row is at most the gap. So a run may stop as soon as the gap is small.

    Raises:
        InvalidInput: X has no rows.
        RefutedAssumptions: No function satisfies the assumptions and fits the data.
    """
    checks.instance("confidence", confidence, Confidence)
    recommended, lower = confidence.argmax_lower(state, X)
    _, upper = confidence.argmax_upper(state, X)
    return CandidateGap(recommended, lower, upper)
