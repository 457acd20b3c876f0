"""Limits on unknown functions: the points that certainly keep a limit, and those that possibly do.

If the bounds of a function hold, a point with ``certain(X) >= 0`` keeps the limit, and a point with
``possible(X) < 0`` breaks it. So the sets ``certain(X) >= 0`` and ``possible(X) >= 0`` enclose the
feasible set (Sui et al. 2015, eq. 6; Xu et al. 2023, Sec. 3).
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from kbo._base import checks
from kbo.confidence.base import Confidence
from kbo.errors import InvalidInput
from kbo.regression import Posterior


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
