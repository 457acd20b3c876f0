"""The union of the bounds of several hypotheses, which holds if at least one of them is true.

    f(x) is in  [min_j lower_j(x), max_j upper_j(x)],   j not refuted

If hypothesis j* is true, its confidence set contains f at all times with probability 1 - delta. Then it is never
refuted, and its interval is a part of the union. The other hypotheses need not hold, so delta is not divided among them
(docs/theory/hypotheses.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kbo.confidence import Confidence
from kbo.errors import InvalidInput, RefutedAssumptions
from kbo.optimize.surrogates.bound import Bound
from kbo.regression import Posterior

LowerAndUpper = tuple[Tensor, Tensor]
"""Lower and upper bound [...]."""


class Union(Confidence):
    """The union of the intervals of several bounds, each on its own posterior.

    A bound that the data refute is left out. The guarantee is the statement of the first bound, or the same statement
    with kernel and numbers of another hypothesis. So all bounds must be of one kind.

    Args:
        bounds: The bounds of the hypotheses that are left, at least one.
        n_hypotheses: The number of hypotheses before the data.
    """

    def __init__(self, bounds: Sequence[Bound], n_hypotheses: int) -> None:
        self._bounds: Sequence[Bound] = bounds
        self._n_hypotheses: int = n_hypotheses
        self.delta: float = max(bound.confidence.delta for bound in bounds)

    def interval(self, state: Posterior, X: Tensor) -> LowerAndUpper:
        return self._union(state, lambda bound: bound.confidence.interval(bound.posterior, X))

    def quick_interval(self, state: Posterior, X: Tensor) -> LowerAndUpper:
        return self._union(state, lambda bound: bound.confidence.quick_interval(bound.posterior, X))

    def finite_on(self, state: Posterior) -> bool:
        self._check(state)
        return all(bound.confidence.finite_on(bound.posterior) for bound in self._bounds)

    def delta_on(self, state: Posterior) -> float:
        self._check(state)
        return max(bound.confidence.delta_on(bound.posterior) for bound in self._bounds)

    def guarantee_on(self, state: Posterior) -> str | None:
        if self.objections(state):
            return None
        first = self._bounds[0]
        statement = first.confidence.guarantee_on(first.posterior)
        return (
            f"{statement}; or if kernel and numbers of another one of {self._n_hypotheses} "
            "hypotheses are right instead"
        )

    def objections(self, state: Posterior) -> list[str]:
        """Return the reasons why the theorem of a bound does not cover its posterior, for all bounds."""
        self._check(state)
        reasons = []
        kinds = {type(bound.confidence) for bound in self._bounds}
        if len(kinds) > 1:
            reasons.append("the hypotheses have bounds of several kinds")
        for bound in self._bounds:
            reasons += bound.confidence.objections(bound.posterior)
        return list(dict.fromkeys(reasons))

    def _union(self, state: Posterior, interval: Callable[[Bound], LowerAndUpper]) -> LowerAndUpper:
        """Return the union of intervals [...] of the bounds that are not refuted.

        Raises:
            RefutedAssumptions: All bounds are refuted.
        """
        self._check(state)
        lower = []
        upper = []
        refutation = None
        for bound in self._bounds:
            try:
                lower_j, upper_j = interval(bound)
            except RefutedAssumptions as error:
                refutation = error
            else:
                lower.append(lower_j)
                upper.append(upper_j)
        if refutation is not None and not lower:
            raise refutation
        return torch.stack(lower).amin(0), torch.stack(upper).amax(0)

    def _check(self, state: Posterior) -> None:
        """Raise InvalidInput unless ``state`` is the posterior with which the union was made."""
        if state is not self._bounds[0].posterior:
            raise InvalidInput(
                "a union of bounds is about the posteriors of its hypotheses, and was given another "
                "one: use the pair of confidence and posterior that kbo.optimize.surrogates.union.union returns."
            )


@dataclass(frozen=True, eq=False)
class UnionBound(Bound):
    """A union of bounds, with the posterior of the first one, which has the reported mean.

    Attributes:
        bounds: The bounds of the hypotheses that are left.
        n_hypotheses: The number of hypotheses before the data.
    """

    bounds: Sequence[Bound] = ()
    n_hypotheses: int = 0

    def given(self, X: Tensor, targets: Tensor | None = None) -> Bound:
        return union([bound.given(X, targets) for bound in self.bounds], self.n_hypotheses)


def union(bounds: Sequence[Bound], n_hypotheses: int) -> Bound:
    """Return the union of several bounds, which holds if one of them does, as one bound; arguments as ``Union``."""
    confidence = Union(bounds, n_hypotheses)
    return UnionBound(confidence, bounds[0].posterior, None, bounds, n_hypotheses)
