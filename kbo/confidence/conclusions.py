"""The optimality gap over candidates, and the points that keep a limit, from bounds of any kind.

If the bounds hold, the recommended point of ``candidate_gap`` is worse than the best candidate by at
most the gap. Of a ``Limit``, a point with ``certain(X) >= 0`` keeps it, and a point with ``possible(X)
< 0`` breaks it. So the sets ``certain(X) >= 0`` and ``possible(X) >= 0`` enclose the feasible set (Sui
et al. 2015, eq. 6; Xu et al. 2023, Sec. 3).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from kbo._base import checks
from kbo.confidence.base import Confidence
from kbo.errors import InvalidInput
from kbo.regression import Posterior


class CandidateGap(NamedTuple):
    """The recommended row of a finite set, and a bound of how much better another row can be.

    For one posterior and one bound. The gap of a run, ``kbo.optimize.Gap``, also covers boxes, limits
    and several objectives.

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


@dataclass(frozen=True)
class Limit:
    """An upper or a lower limit on an unknown function, in units of the posterior's targets.

    Args:
        state: The posterior of the function.
        confidence: The bound of the function.
        upper: The largest value that keeps the limit; None for a lower limit.
        lower: The smallest value that keeps the limit; None for an upper limit.

    Raises:
        InvalidInput: Not exactly one of ``upper`` and ``lower`` is given, or it is not finite.
    """

    state: Posterior
    confidence: Confidence
    upper: float | None = None
    lower: float | None = None

    def __post_init__(self) -> None:
        checks.instance("confidence", self.confidence, Confidence)
        if (self.upper is None) == (self.lower is None):
            raise InvalidInput(
                f"a limit has either an upper or a lower value, got upper={self.upper}, "
                f"lower={self.lower}."
            )
        checks.keep(
            self,
            upper=checks.maybe(checks.number, "upper", self.upper),
            lower=checks.maybe(checks.number, "lower", self.lower),
        )

    def slack(self, values: Tensor) -> Tensor:
        """Return the slack [...] of function values [...]: the distance to the limit, negative beyond."""
        if self.upper is not None:
            return self.upper - values
        assert self.lower is not None
        return values - self.lower

    def certain(self, X: Tensor) -> Tensor:
        """Return the slack [...] of the pessimistic bound at X [... d].

        It is at least 0 where the limit is certainly kept.

        Raises:
            RefutedAssumptions: No function satisfies the assumptions of the bound and fits the
                data.
        """
        if self.upper is None:
            return self.slack(self.confidence.lower(self.state, X))
        return self.slack(self.confidence.upper(self.state, X))

    def possible(self, X: Tensor) -> Tensor:
        """Return the slack [...] of the optimistic bound at X [... d].

        It is negative where the limit is certainly broken.

        Raises:
            RefutedAssumptions: No function satisfies the assumptions of the bound and fits the
                data.
        """
        if self.upper is None:
            return self.slack(self.confidence.upper(self.state, X))
        return self.slack(self.confidence.lower(self.state, X))

    def quick_slacks(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return a lower bound of ``certain`` and an upper bound of ``possible``, faster, [...] each."""
        lower, upper = self.confidence.quick_interval(self.state, X)
        if self.upper is None:
            return self.slack(lower), self.slack(upper)
        return self.slack(upper), self.slack(lower)
