"""The surrogate of a list of hypotheses: a surrogate for each one that is left, and the union of their bounds.

    f(x) is in  [min_j lower_j(x), max_j upper_j(x)],   j not refuted

If hypothesis j* is true, its confidence set contains f at all times with probability 1 - delta. Then it is never
refuted, and its interval is a part of the union. The other hypotheses need not hold, so delta is not divided among them
(docs/theory/hypotheses.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from kbo._base.isolation import isolated
from kbo.confidence import Confidence
from kbo.errors import InvalidInput, RefutedAssumptions
from kbo.optimize.assumptions.hypotheses import Hypothesis
from kbo.optimize.surrogates.certified_surrogate import Assumptions, CertifiedSurrogate
from kbo.optimize.surrogates.evaluation import Evaluation
from kbo.optimize.surrogates.surrogate import Bound
from kbo.regression import Posterior

LARGER_HYPOTHESES = "in kbo.hypotheses a larger size, more turns or more noise"

_MOST_SHOWN = 3
"""Largest number of hypotheses that an account names."""

LowerAndUpper = tuple[Tensor, Tensor]
"""Lower and upper bound [...]."""


@dataclass(frozen=True, eq=False, repr=False)
class HypothesesSurrogate(CertifiedSurrogate):
    """The surrogate of a quantity under several hypotheses, with the union of the bounds of those not refuted.

    Args:
        hypotheses: All hypotheses, including refuted ones.
        surrogates: The surrogates of the hypotheses that are not refuted, by position in the list.
        refuted: For each refuted hypothesis, by position, the number of values after which it was refuted.
    """

    hypotheses: Sequence[Hypothesis] = ()
    surrogates: Mapping[int, CertifiedSurrogate] = field(default_factory=dict)
    refuted: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        given: Assumptions,
        hypotheses: Sequence[Hypothesis],
        surrogates: Mapping[int, CertifiedSurrogate],
        refuted: Mapping[int, int],
    ) -> HypothesesSurrogate:
        """Return the surrogate of the hypotheses that are left; mean and values come from the first of them."""
        first = next(iter(surrogates.values()))
        return cls(
            given=given,
            method=first.method,
            device=first.device,
            posterior=first.posterior,
            order=first.order,
            values=first.values,
            selected=first.selected,
            n_evaluations=first.n_evaluations,
            span=first.span,
            hypotheses=hypotheses,
            surrogates=surrogates,
            refuted=refuted,
        )

    def after(self, evaluations: Sequence[Evaluation]) -> HypothesesSurrogate:
        updated = self
        for evaluation in evaluations:
            updated = updated._after(evaluation)
        return updated

    def _after(self, evaluation: Evaluation) -> HypothesesSurrogate:
        """Return the surrogate after one evaluation, which may refute some hypotheses.

        Raises:
            RefutedAssumptions: The evaluation refutes all hypotheses that are left.
        """
        surrogates = {}
        refuted = dict(self.refuted)
        for position, surrogate in self.surrogates.items():
            try:
                surrogates[position] = surrogate.after([evaluation])
            except RefutedAssumptions:
                refuted[position] = len(surrogate.values) + 1
        if not surrogates:
            raise RefutedAssumptions(
                "The data refute every hypothesis of the list: the objective is rougher, larger or noisier than each "
                "says, or no function. Add hypotheses with shorter lengthscales, larger norms or more noise "
                f"({LARGER_HYPOTHESES})",
                hypotheses=len(refuted),
                n=max(refuted.values()),
            )
        return self.of(self.given, self.hypotheses, surrogates, refuted)

    @property
    def left(self) -> list[Hypothesis]:
        """The hypotheses that are not refuted."""
        return [self.hypotheses[position] for position in self.surrogates]

    def bound(self, number: int) -> Bound:
        bounds = [surrogate.bound(number) for surrogate in self.surrogates.values()]
        return union(bounds, len(self.hypotheses))

    @cached_property
    def reported(self) -> Confidence | None:
        if len(self.bounds) < len(self.surrogates):
            return None
        return union(self.bounds, len(self.hypotheses)).confidence

    @cached_property
    def latest(self) -> Bound | None:
        bounds = []
        for surrogate in self.surrogates.values():
            if surrogate.latest is None:
                return None
            bounds.append(surrogate.latest)
        return union(bounds, len(self.hypotheses))

    @property
    def bounds(self) -> Sequence[Bound]:
        return [bound for surrogate in self.surrogates.values() for bound in surrogate.bounds]

    @isolated
    def assumptions(self) -> dict[str, Any]:
        return {
            "kernel": "given",
            "noise_std": max(hypothesis.noise_std for hypothesis in self.left),
            "norm_bound": max(hypothesis.norm_bound for hypothesis in self.left),
            "delta": self.given.delta,
            "from": f"the largest of {len(self.left)} hypotheses that are left",
        }

    def account(self) -> dict[str, str]:
        return {"hypotheses": _hypotheses_left(self), **super().account()}


def _hypotheses_left(surrogate: HypothesesSurrogate) -> str:
    """Return in words which hypotheses are left, and how many are refuted."""
    left = surrogate.left
    text = f"{len(left)} of {len(surrogate.hypotheses)} are left"
    if surrogate.refuted:
        last = max(surrogate.refuted.values())
        text += f" ({len(surrogate.refuted)} refuted, the last after {last} values)"
    text += ": " + "; ".join(map(str, left[:_MOST_SHOWN]))
    if len(left) > _MOST_SHOWN:
        text += f"; {len(left) - _MOST_SHOWN} more"
    return text


class Union(Confidence):
    """The union of the intervals of several bounds, each on its own posterior.

    A bound that the data refute is left out. The guarantee is the statement of the first bound, or the same statement
    with kernel and numbers of another hypothesis. So all bounds must be of one kind.

    Args:
        bounds: The bounds of the hypotheses that are left, at least one.
        n_hypotheses: The number of hypotheses before the data.
    """

    def __init__(self, bounds: Sequence[Bound], n_hypotheses: int) -> None:
        self.bounds: Sequence[Bound] = bounds
        self.n_hypotheses: int = n_hypotheses
        self.delta: float = max(bound.confidence.delta for bound in bounds)

    def interval(self, state: Posterior, X: Tensor) -> LowerAndUpper:
        return self._union(state, lambda bound: bound.confidence.interval(bound.posterior, X))

    def quick_interval(self, state: Posterior, X: Tensor) -> LowerAndUpper:
        return self._union(state, lambda bound: bound.confidence.quick_interval(bound.posterior, X))

    def finite_on(self, state: Posterior) -> bool:
        self._check(state)
        return all(bound.confidence.finite_on(bound.posterior) for bound in self.bounds)

    def delta_on(self, state: Posterior) -> float:
        self._check(state)
        return max(bound.confidence.delta_on(bound.posterior) for bound in self.bounds)

    def guarantee_on(self, state: Posterior) -> str | None:
        if self.objections(state):
            return None
        first = self.bounds[0]
        statement = first.confidence.guarantee_on(first.posterior)
        return (
            f"{statement}; or if kernel and numbers of another one of {self.n_hypotheses} "
            "hypotheses are right instead"
        )

    def objections(self, state: Posterior) -> list[str]:
        """Return the reasons why the theorem of a bound does not cover its posterior, for all bounds."""
        self._check(state)
        reasons = []
        kinds = {type(bound.confidence) for bound in self.bounds}
        if len(kinds) > 1:
            reasons.append("the hypotheses have bounds of several kinds")
        for bound in self.bounds:
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
        for bound in self.bounds:
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
        if state is not self.bounds[0].posterior:
            raise InvalidInput(
                "a union of bounds is about the posteriors of its hypotheses, and was given another "
                "one: use the confidence and the posterior that union(...) returns."
            )


@dataclass(frozen=True, eq=False)
class UnionBound(Bound):
    """A union of bounds, with the posterior of the first one, which has the reported mean."""

    confidence: Union

    def given(self, X: Tensor, targets: Tensor | None = None) -> Bound:
        bounds = [bound.given(X, targets) for bound in self.confidence.bounds]
        return union(bounds, self.confidence.n_hypotheses)


def union(bounds: Sequence[Bound], n_hypotheses: int) -> UnionBound:
    """Return the union of several bounds, which holds if one of them does, as one bound; arguments as ``Union``."""
    return UnionBound(Union(bounds, n_hypotheses), bounds[0].posterior)
