"""Certificate that no point of a space keeps all limits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kbo.optimize.constraints.constraint import Constraint
from kbo.optimize.constraints.feasibility import ConstraintSurrogate, limits
from kbo.optimize.constraints.slacks import upper_slack
from kbo.optimize.insight.branch_and_bound import bound_maximum, slack_bounds
from kbo.optimize.search.search import MOST_POINTS
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
        return _text(self)


@torch.no_grad()
def certificate(
    space: Space,
    surrogates: Sequence[ConstraintSurrogate],
    constraints: Sequence[Constraint],
    tried: Tensor,
    evaluations: int,
) -> Infeasible | None:
    """Return the certificate that no point keeps all limits; None if there is none.

    Args:
        space: The search space.
        surrogates: The constraints with their surrogates.
        constraints: The constraints.
        tried: Points [n P] of trials in the unit cube; there is none if one of these possibly keeps all limits.
        evaluations: Points at which bounds may be computed for a proof, where the space has more than 10 000.

    Raises:
        RefutedAssumptions: No function satisfies the assumptions of a bound and fits the data.
    """
    if not surrogates or any(not entry.surrogate.guarantee() for entry in surrogates):
        return None
    bounds = limits(surrogates)
    if bool((upper_slack(bounds, space.features(tried)) >= 0).any()):
        return None
    points = space.points(MOST_POINTS)
    if points is None:
        n_points = None
        proof = bound_maximum(slack_bounds(surrogates, space), space, evaluations, until=0.0)
        if proof is None or proof.largest >= 0:
            return None
        examined = torch.cat([tried, space.units([space.params(proof.point)])])
        slack = upper_slack(bounds, space.features(examined)).cpu()
    else:
        n_points = len(points)
        examined = points
        slack = upper_slack(bounds, space.features(points)).cpu()
        if bool((slack >= 0).any()):
            return None
    is_candidate = space.satisfies(examined) & (slack < 0)  # a bound may say nothing of the others
    nearest = examined[slack.masked_fill(~is_candidate, -math.inf).argmax()]
    return Infeasible(
        points=n_points,
        params=space.params(nearest),
        bounds=_best_values(surrogates, space.features(nearest.unsqueeze(0))),
        constraints=tuple(constraints),
        delta=sum(entry.surrogate.assumptions()["delta"] for entry in surrogates),
    )


def _best_values(surrogates: Sequence[ConstraintSurrogate], X: Tensor) -> dict[str, float]:
    """Return the best value that the bounds leave to each quantity at features X [1 D], by name."""
    values = {}
    for constraint, surrogate in surrogates:
        values[constraint.name] = constraint.sign * float(surrogate.interval(X)[2])
    return values


def _text(infeasible: Infeasible) -> str:
    """Return the certificate in words."""
    broken = []
    for constraint in infeasible.constraints:
        if constraint.name not in infeasible.bounds:
            continue
        bound = infeasible.bounds[constraint.name]
        if constraint.kept_by(bound):
            continue
        if constraint.sign < 0:
            broken.append(f"{constraint.name} at least {bound:.4g} ({constraint})")
        else:
            broken.append(f"{constraint.name} at most {bound:.4g} ({constraint})")
    if infeasible.points is None:
        points = "no point"
        nearest = "the nearest one found"
    else:
        points = f"none of the {infeasible.points} points"
        nearest = "the nearest one"
    return (
        f"infeasible: {points} can keep all limits; {nearest} has {' and '.join(broken)}; "
        f"with probability at least {1 - infeasible.delta:g}, if the assumptions are right"
    )
