"""Measured constraints in the search and in the recommendation.

Every quantity with a limit has a belief of its own, like the objective. With sign s, limit l and bounds of s g(x):

    certain(x)  = lower(x) - l    at least 0: the limit is kept, if the bounds hold
    possible(x) = upper(x) - l    negative: it is broken, if the bounds hold

In the certified setting the next point is the best by the rule of the objective among those where every constraint is
possibly kept (optimism over the optimistic feasible set: CONFIG, Xu et al. 2023, Alg. 1); if there is none, the one
that is least far from it. In the practical setting the log-probability that all are kept is added to the upper bound.
Both rules, and what is proved of the first: docs/theory/constrained.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from kbo.confidence import Limit
from kbo.confidence.base import decided
from kbo.optimize.constraint import Constraint
from kbo.optimize.run.trials import Trial, quantity, violations
from kbo.optimize.slacks import feasible_first, unit
from kbo.optimize.surrogates.surrogate import Surrogate


class ConstraintBelief(NamedTuple):
    """A constraint and what is known of its quantity.

    Attributes:
        constraint: The constraint.
        belief: The belief about ``constraint.sign`` times the quantity.
    """

    constraint: Constraint
    belief: Surrogate

    @property
    def level(self) -> float:
        """The limit in units of the belief's posterior, which is to be reached."""
        return self.belief.transform.target(self.constraint.limit)


@dataclass(frozen=True)
class Feasibility:
    """Bounds of the measured quantities at the recommended parameters, and how certain they are to keep the limits.

    Attributes:
        constraints: The constraints.
        bounds: Lower bound, mean and upper bound of each quantity, by name; the measured value three times where it has
            no noise, and while there is no bound.
        kept: Whether the pessimistic bounds of all quantities are within their limits.
        probability: The probability that all limits are kept, by the fitted models, which is no guarantee; if
            ``certified`` the probability with which all bounds hold; None if neither is known.
        certified: Whether these bounds hold under given assumptions.
    """

    constraints: tuple[Constraint, ...]
    bounds: Mapping[str, tuple[float, float, float]]
    kept: bool
    probability: float | None
    certified: bool

    def __str__(self) -> str:
        shown = ", ".join(map(self._shown, self.constraints))
        if self.probability is None:
            return f"not certified: {shown}"
        if not self.certified:
            chance = "more than 0.99" if self.probability > 0.99 else f"{self.probability:.2g}"
            return f"with probability {chance} by the fitted models (not guaranteed): {shown}"
        if self.kept:
            return f"with probability at least {self.probability:g} for all constraints at once: {shown}"
        return f"not certified: {shown}"

    def _shown(self, constraint: Constraint) -> str:
        """Return the mean and the limit, and the bound that decides unless the probability does."""
        low, mean, high = self.bounds[constraint.name]
        if low == high or (self.probability is not None and not self.certified):
            return f"{constraint.name} {mean:.4g} ({constraint})"
        bound = f"upper bound {high:.4g}" if constraint.sign < 0 else f"lower bound {low:.4g}"
        return f"{constraint.name} {mean:.4g}, {bound} ({constraint})"


def limits(limited: Sequence[ConstraintBelief]) -> list[Limit]:
    """Return the limits with the bounds that are reported."""
    found = [(one, one.belief.reported) for one in limited]
    return [
        Limit(one.belief.posterior, bound, lower=one.level)
        for one, bound in found
        if bound is not None
    ]


def preferred(
    score: Tensor, limited: Sequence[ConstraintBelief], features: Tensor, trials: Sequence[Trial]
) -> Tensor:
    """Return the scores [n] of completed trials, lower ones for those that are not sure to keep all limits.

    Args:
        score: The scores without constraints [n].
        limited: The constraints with their beliefs.
        features: Features [n D] of the trials.
        trials: The trials.
    """
    if not limited:
        return score
    slacks = []
    for one in limited:
        found = [quantity(trial, one.constraint) for trial in trials]
        values = score.new_tensor(
            [one.constraint.sign * value for value in found if value is not None]
        )
        slack = one.belief.lower(features, values) - one.level
        slacks.append(
            decided(
                slack / unit(one.belief.posterior, features), f"bound of {one.constraint.name!r}"
            )
        )
    return feasible_first(score, torch.stack(slacks).amin(0))


def feasibility(
    delta: float | None,
    constraints: Sequence[Constraint],
    undecided: Sequence[Constraint],
    limited: Sequence[ConstraintBelief],
    best: Trial,
    features: Tensor,
    ways: Sequence[str],
) -> Feasibility:
    """Return what is known of the measured quantities at a completed trial with features [1 D].

    Args:
        delta: Probability that certified bounds may fail; None if no bound is certified.
        constraints: The constraints.
        undecided: Those that are not kept in any case.
        limited: Those of which there is a belief.
        best: The trial.
        features: Its features.
        ways: Ways in which the noise may have decided which values there are, in words.
    """
    bounds = {
        c.name: (value, value, value)
        for c in constraints
        if (value := quantity(best, c)) is not None
    }
    noisy = [one for one in limited if not one.belief.noiseless]
    measured = [c for c in undecided if c not in [one.constraint for one in noisy]]
    kept = violations(best, measured) == 0
    probability = float(kept)
    for constraint, belief in noisy:
        low, mean, high = (constraint.sign * float(value) for value in belief.interval(features))
        bounds[constraint.name] = min(low, high), mean, max(low, high)
        kept &= constraint.sign * low >= constraint.limit
        probability *= belief.probability(features, constraint.limit)
    if delta is None:
        return Feasibility(
            tuple(constraints), bounds, kept, probability if limited else None, False
        )
    certified = not measured and all(one.belief.guarantee(ways) for one in noisy)
    return Feasibility(
        tuple(constraints), bounds, kept, 1 - delta if certified else None, certified
    )
