"""The surrogate of a list of hypotheses: a surrogate for each one that is left, and the union of their bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from kbo._base.isolation import isolated
from kbo.confidence import Confidence
from kbo.errors import RefutedAssumptions
from kbo.optimize.assumptions.hypotheses import Hypothesis
from kbo.optimize.surrogates.bound import Bound
from kbo.optimize.surrogates.certified_surrogate import Assumptions, CertifiedSurrogate
from kbo.optimize.surrogates.evaluation import Evaluation
from kbo.optimize.surrogates.union import union

LARGER_HYPOTHESES = "in kbo.hypotheses a larger size, more turns or more noise"

_MOST_SHOWN = 3
"""Largest number of hypotheses that an account names."""


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
