"""The gap over a set of candidates: how much better than the recommended one any other can still be."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from kbo._base import checks
from kbo.confidence.base import Confidence
from kbo.regression import Posterior


class CandidateGap(NamedTuple):
    """The recommended row of a finite set, and how much better any other row can be.

    Attributes:
        recommended: Row with the largest lower bound, or nearly; see ``candidate_gap``.
        lower: The lower bound of the recommended row.
        upper: The largest upper bound of all rows, hence an upper bound of the maximum.
    """

    recommended: int
    lower: float
    upper: float

    @property
    def value(self) -> float:
        """Upper bound of the simple regret of the recommended row, in units of the targets."""
        return self.upper - self.lower


def candidate_gap(confidence: Confidence, state: Posterior, X: Tensor) -> CandidateGap:
    """Return the row of X [A d] to recommend, and how much better any other row can be.

    The row has the largest lower bound; for ``MartingaleMixture`` of kind "cmm" nearly the largest,
    since only a few rows are searched for their exact bound. Its own bounds are valid either way.

    With the probability of ``confidence.guarantee``, for all rounds at once, the simple regret of
    the recommended row is at most the gap; so a run may stop as soon as the gap is small.

    Raises:
        InvalidInput: X has no rows.
        RefutedAssumptions: No function satisfies the assumptions and fits the data.
    """
    checks.instance("confidence", confidence, Confidence)
    recommended, lower = confidence.argmax_lower(state, X)
    _, upper = confidence.argmax_upper(state, X)
    return CandidateGap(recommended, lower, upper)
