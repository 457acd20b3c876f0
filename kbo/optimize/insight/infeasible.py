"""Certificate that no point of a space keeps all limits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kbo.optimize.constrained import ConstraintBelief, limits
from kbo.optimize.constraint import Constraint
from kbo.optimize.insight.branch import largest_proved, slacks
from kbo.optimize.search.search import MOST_POINTS
from kbo.optimize.slacks import least_possible
from kbo.space import Params, Space


@dataclass(frozen=True)
class Infeasible:
    """At every point of the space the bounds exclude some limit, so while the bounds hold none keeps all of them.

    Attributes:
        points: Number of points; None for a space of more than 10 000, or with real parameters, where it is proved by
            branch and bound.
        params: The point that is nearest to keeping all limits, in prior standard deviations; of those that were
            examined.
        bounds: The best values that the bounds leave to the quantities there, by name.
        constraints: The constraints.
        delta: Probability that this is wrong.
    """

    points: int | None
    params: Params
    bounds: Mapping[str, float]
    constraints: tuple[Constraint, ...]
    delta: float

    def __str__(self) -> str:
        broken = [
            c
            for c in self.constraints
            if c.name in self.bounds and not c.kept_by(self.bounds[c.name])
        ]
        shown = " and ".join(
            f"{c.name} {'at least' if c.sign < 0 else 'at most'} {self.bounds[c.name]:.4g} ({c})"
            for c in broken
        )
        which = "no point" if self.points is None else f"none of the {self.points} points"
        return (
            f"infeasible: {which} can keep all limits; the nearest one{' found' * (not self.points)} has {shown}; "
            f"with probability at least {1 - self.delta:g}, if the assumptions are right"
        )


@torch.no_grad()
def certificate(
    space: Space,
    limited: Sequence[ConstraintBelief],
    constraints: Sequence[Constraint],
    tried: Tensor,
    evaluations: int,
    delta: float,
) -> Infeasible | None:
    """Return the certificate that no point keeps all limits; None if there is none.

    Args:
        space: The search space.
        limited: The constraints with their beliefs.
        constraints: The constraints.
        tried: Points [n P] of trials in the unit cube; there is none if one of these possibly keeps all limits.
        evaluations: Points at which bounds may be computed for a proof, where the space has more than 10 000.
        delta: Probability that any of the bounds fails.

    Raises:
        RefutedAssumptions: No function satisfies the assumptions of a bound and fits the data.
    """
    known = limits(limited)
    if not limited or bool((least_possible(known, space.features(tried)) >= 0).any()):
        return None
    if (points := space.points(MOST_POINTS)) is not None:
        units = points
        largest = float(least_possible(known, space.features(points)).max())
    elif (
        proof := largest_proved(slacks(limited, space), space, evaluations, until=0.0)
    ) is not None:
        units = torch.cat([tried, space.units([space.params(proof.unit)])])
        largest = proof.largest
    else:
        return None
    if largest >= 0:
        return None
    least = least_possible(
        known, space.features(units)
    ).cpu()  # of which some bound may say nothing
    unit = units[least.masked_fill(~space.satisfies(units) | (least >= 0), -math.inf).argmax()]
    X = space.features(unit.unsqueeze(0))
    upper = {
        one.constraint.name: one.constraint.sign * float(one.belief.interval(X)[2])
        for one in limited
    }
    return Infeasible(
        None if points is None else len(points),
        space.params(unit),
        upper,
        tuple(constraints),
        delta,
    )
