"""Bounds that hold if one of several hypotheses is true, whichever it is.

    {f(x)} is in  U_j [lower_j(x), upper_j(x)],   j not refuted

If hypothesis j* is true, its confidence set contains f at all times with probability 1 - delta. Then it is never
refuted, and its interval is a part of the union. Nothing is asked of the others, so delta is not divided among them
(docs/theory/hypotheses.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from kbo._base import checks
from kbo.confidence.base import Confidence
from kbo.errors import InvalidInput, RefutedAssumptions
from kbo.regression import Posterior


class AnyOf(Confidence):
    """The union of the bounds of several hypotheses, each with a posterior of its own (``kbo.regression.Several``).

    A hypothesis that the data refute is left out. The statement is that of the first one, with the numbers of whichever
    is true, so all must be bounds of one kind.

    Args:
        confidences: The bounds of the hypotheses that are left, in the order of the posteriors.
        n_hypotheses: How many there were before the data; by default as many.

    Raises:
        InvalidInput: There is none.

    Example:
        >>> state = kbo.regression.Several([kbo.KernelRidge(k, 0.01) for k in kernels])
        >>> confidence = kbo.confidence.AnyOf([kbo.confidence.MartingaleMixture(0.1, 2.0, 0.05) for k in kernels])
        >>> lower, upper = confidence.interval(state, X)
    """

    def __init__(self, confidences: Sequence[Confidence], n_hypotheses: int | None = None) -> None:
        if not isinstance(confidences, (list, tuple)) or not confidences:
            raise InvalidInput(
                f"confidences must be a list, at least of one, got {checks.shown(confidences)}."
            )
        self._confidences = [checks.instance("confidences", one, Confidence) for one in confidences]
        self.n_hypotheses: int = len(confidences) if n_hypotheses is None else n_hypotheses
        self.delta: float = max(one.delta for one in confidences)

    def hypotheses(self, state: Posterior) -> list[tuple[Confidence, Posterior]]:
        states = getattr(state, "states", (state,))
        if len(states) != len(self._confidences):
            raise InvalidInput(
                f"state must have one posterior for each of {len(self._confidences)} hypotheses, "
                f"kbo.regression.Several([...]), and has {len(states)}."
            )
        return list(zip(self._confidences, states, strict=True))

    def _statement_on(self, state: Posterior) -> str | None:
        statements = [one._statement_on(own) for one, own in self.hypotheses(state)]
        if None in statements or len(set(map(type, self._confidences))) > 1:
            return None
        others = f"or if kernel and numbers of another one of {self.n_hypotheses} hypotheses are right instead"
        return f"{statements[0]}; {others}"

    def delta_on(self, state: Posterior) -> float:
        return max(one.delta_on(own) for one, own in self.hypotheses(state))

    def objections(self, state: Posterior) -> list[str]:
        """Return the reasons of all hypotheses why their theorems do not cover their posteriors."""
        mixed = ["the hypotheses have bounds of several kinds"] * (
            len(set(map(type, self._confidences))) > 1
        )
        reasons = [reason for one, own in self.hypotheses(state) for reason in one.objections(own)]
        return list(dict.fromkeys(mixed + reasons))

    def finite_on(self, state: Posterior) -> bool:
        return all(one.finite_on(own) for one, own in self.hypotheses(state))

    def reported(self) -> Confidence | None:
        found: list[Any] = [one.reported() for one in self._confidences]
        return None if None in found else AnyOf(found, self.n_hypotheses)

    def for_trial(self, number: int) -> Confidence:
        return AnyOf([one.for_trial(number) for one in self._confidences], self.n_hypotheses)

    def interval(self, state: Posterior, X: Tensor) -> tuple[Tensor, Tensor]:
        return self._union(state, lambda one, own: one.interval(own, X))

    def quick_interval(self, state: Posterior, X: Tensor) -> tuple[Tensor, Tensor]:
        return self._union(state, lambda one, own: one.quick_interval(own, X))

    def _union(
        self, state: Posterior, interval: Callable[[Confidence, Posterior], tuple[Tensor, Tensor]]
    ) -> tuple[Tensor, Tensor]:
        found, refuted = [], None
        for one, own in self.hypotheses(state):
            try:
                found.append(interval(one, own))
            except RefutedAssumptions as error:
                refuted = error
        if refuted is not None and not found:
            raise refuted
        lower, upper = (torch.stack(sides) for sides in zip(*found, strict=True))
        return lower.amin(0), upper.amax(0)
