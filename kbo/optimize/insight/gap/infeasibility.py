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
from kbo.optimize.insight.gap.cells import slack_bounds
from kbo.optimize.quantities.quantities import Quantities
from kbo.optimize.search.search import MOST_POINTS
from kbo.space import Params


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
        points = "no point"
        if self.points is not None:
            points = f"none of the {self.points} points"
        return (
            f"infeasible: {points} can keep all limits; the nearest one found has {' and '.join(self._broken())}; "
            f"with probability at least {beside(1 - self.delta, 1.0)}, if the assumptions are right"
        )

    def _broken(self) -> list[str]:
        """Return the quantities that break their limits at ``params``, with their best values, in words."""
        broken = []
        for constraint in self.constraints:
            bound = self.bounds.get(constraint.name)
            if bound is None or constraint.kept_by(bound):
                continue
            side = "at most"
            if constraint.sign < 0:
                side = "at least"
            shown = beside(bound, constraint.sign * constraint.limit)
            broken.append(f"{constraint.name} {side} {shown} ({constraint})")
        return broken


@torch.no_grad()
def certificate(quantities: Quantities, evaluations: int) -> Infeasible | None:
    """Return the certificate that no point keeps all limits; None if some point may, and if nothing is proved.

    Args:
        quantities: The quantities of the run.
        evaluations: The largest number of points at which a proof computes bounds; only used if the space has more than
            10 000 points or real parameters.

    Raises:
        RefutedAssumptions: No function satisfies the assumptions of a bound and fits the data.
    """
    space = quantities.space
    surrogates = quantities.limits()
    if not surrogates or any(not entry.surrogate.guarantee() for entry in surrogates):
        return None
    bounds = limits(surrogates)
    tried = quantities.units_of(quantities.trials.complete)
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
        constraints=tuple(quantities.constraints),
        delta=sum(entry.surrogate.assumptions()["delta"] for entry in surrogates),
    )


def _best_values(surrogates: Sequence[ConstraintSurrogate], X: Tensor) -> dict[str, float]:
    """Return the best value of each quantity that the bounds allow at features X [1 D], by name."""
    values = {}
    for constraint, surrogate in surrogates:
        values[constraint.name] = constraint.sign * float(surrogate.interval(X)[2])
    return values
