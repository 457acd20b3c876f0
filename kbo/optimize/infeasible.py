"""Certificate that no point of a finite space keeps all limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kbo.optimize.constrained import ConstraintBelief, limits
from kbo.optimize.constraint import Constraint
from kbo.optimize.search.search import MOST_POINTS
from kbo.optimize.slacks import least_possible
from kbo.space import Params, Space


@dataclass(frozen=True)
class Infeasible:
    """At every point of the space the bounds exclude some limit, so while the bounds hold none keeps all of them.

    Attributes:
        points: Number of points.
        params: The point that is nearest to keeping all limits, in prior standard deviations.
        bounds: The best values that the bounds leave to the quantities there, by name.
        constraints: The constraints.
    """

    points: int
    params: Params
    bounds: Mapping[str, float]
    constraints: tuple[Constraint, ...]

    def __str__(self) -> str:
        broken = [c for c in self.constraints if c.name in self.bounds and not c.kept_by(self.bounds[c.name])]
        shown = " and ".join(
            f"{c.name} {'at least' if c.sign < 0 else 'at most'} {self.bounds[c.name]:.4g} ({c})" for c in broken
        )
        return f"infeasible: none of the {self.points} points can keep all limits; the nearest one has {shown}"


@torch.no_grad()
def certificate(
    space: Space, limited: Sequence[ConstraintBelief], constraints: Sequence[Constraint], tried: Tensor
) -> Infeasible | None:
    """Return the certificate that no point keeps all limits; None if there is none, or the points are too many.

    Args:
        space: The search space.
        limited: The constraints with their beliefs.
        constraints: The constraints.
        tried: Features [n D] of trials; there is none if one of these possibly keeps all limits.

    Raises:
        RefutedAssumptions: No function satisfies the assumptions of a bound and fits the data.
    """
    points = space.points(MOST_POINTS)
    if points is None or not limited or bool((least_possible(limits(limited), tried) >= 0).any()):
        return None
    X = space.features(points)
    least = least_possible(limits(limited), X)
    row = int(least.argmax())
    if float(least[row]) >= 0:
        return None
    upper = {
        one.constraint.name: one.constraint.sign * float(one.belief.interval(X[row : row + 1])[2]) for one in limited
    }
    return Infeasible(len(points), space.params(points[row]), upper, tuple(constraints))
