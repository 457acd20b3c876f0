"""The certificate that no point of a space keeps all limits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kbo._base.terminal import beside
from kbo.optimize.constraints.constraint import Constraint
from kbo.optimize.constraints.feasibility import ConstraintSurrogate, limits, upper_slack
from kbo.optimize.insight.gap.branch_and_bound import BoundedScore, bound_maximum
from kbo.optimize.insight.gap.cell_bound import slack_bounds
from kbo.optimize.search.search import MOST_POINTS
from kbo.space import Params, Space


@dataclass(frozen=True)
class Infeasible:
    """A certificate that no point of the space keeps all limits: at each point, the bounds exclude some limit.

    Attributes:
        points: The number of points of the space, all of which were examined. None for a space with more than 10 000
            points or with real parameters, where branch and bound proves the certificate.
        params: Of all examined points, the parameters nearest to keeping all limits: their largest violation of a limit
            is least, in prior standard deviations of the quantity and by optimistic bounds.
        bounds: The best value of each quantity that the bounds allow at ``params``, by name.
        constraints: The constraints.
        delta: Probability, at most, that the certificate is wrong.
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
    """Return the certificate that no point keeps all limits; None if some point may, and if nothing is proved.

    Args:
        space: The search space.
        surrogates: The constraints with their surrogates.
        constraints: The constraints.
        tried: Points [n P] of the trials in the unit cube.
        evaluations: The largest number of points at which a proof computes bounds; only used if the space has more than
            10 000 points or real parameters.

    Raises:
        RefutedAssumptions: No function satisfies the assumptions of a bound and fits the data.
    """
    if not surrogates or any(not entry.surrogate.guarantee() for entry in surrogates):
        return None
    bounds = limits(surrogates)
    if bool((upper_slack(bounds, space.features(tried)) >= 0).any()):
        return None
    points = space.points(MOST_POINTS)
    n_points = None
    if points is None:
        proof = bound_maximum(
            BoundedScore(slack_bounds(surrogates, space), space), evaluations, until=0.0
        )
        if proof is None or proof.largest >= 0:
            return None
        examined = torch.cat([tried, space.units([space.params(proof.point)])])
    else:
        n_points = len(points)
        examined = points
    slack = upper_slack(bounds, space.features(examined)).cpu()
    if points is not None and bool((slack >= 0).any()):
        return None
    # At the point of a proof the bounds of the method may allow what the norm bound excludes.
    is_candidate = space.satisfies(examined) & (slack < 0)
    nearest = examined[slack.masked_fill(~is_candidate, -math.inf).argmax()]
    return Infeasible(
        points=n_points,
        params=space.params(nearest),
        bounds=_best_values(surrogates, space.features(nearest.unsqueeze(0))),
        constraints=tuple(constraints),
        delta=sum(entry.surrogate.assumptions()["delta"] for entry in surrogates),
    )


def _best_values(surrogates: Sequence[ConstraintSurrogate], X: Tensor) -> dict[str, float]:
    """Return the best value of each quantity that the bounds allow at features X [1 D], by name."""
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
        shown = beside(bound, constraint.sign * constraint.limit)
        if constraint.sign < 0:
            broken.append(f"{constraint.name} at least {shown} ({constraint})")
        else:
            broken.append(f"{constraint.name} at most {shown} ({constraint})")
    if infeasible.points is None:
        points = "no point"
        nearest = "the nearest one found"
    else:
        points = f"none of the {infeasible.points} points"
        nearest = "the nearest one"
    return (
        f"infeasible: {points} can keep all limits; {nearest} has {' and '.join(broken)}; "
        f"with probability at least {beside(1 - infeasible.delta, 1.0)}, if the assumptions are right"
    )
