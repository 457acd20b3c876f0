"""The gap of a front: by how much, at most, a point of the space may be better than every trial of the front.

Let the bounds of all objectives hold, and larger values be better. Then for every point x of the space that keeps the
limits, there is a trial p of the front with f_k(x) <= f_k(p) + gap * extent_k for all objectives k, where

    gap = max_x score(U_1(x), ..., U_m(x)),   score(u) = min_p max_k (u_k - L_k(p)) / extent_k

with upper bounds U and lower bounds L. The score grows with each u_k, so branch and bound only needs bounds of each
objective over a cell (docs/theory/gaps.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kbo.confidence import Limit
from kbo.optimize.constraints.feasibility import feasible_first, limits, upper_slack
from kbo.optimize.insight.gap.branch_and_bound import BoundedScore, bound_maximum, obstacle
from kbo.optimize.insight.gap.cell_bound import CellBound, slack_bounds
from kbo.optimize.insight.gap.gap import (
    NOT_REQUESTED,
    WHOLE,
    Gap,
    exact_gap,
    proved_gap,
    unproved_gap,
)
from kbo.optimize.insight.gap.gap_problem import GapProblem
from kbo.optimize.search.search import MOST_POINTS
from kbo.optimize.surrogates.surrogate import Surrogate

_AT_ONCE = 1000
"""Number of points that are compared with the front at once."""


@dataclass(frozen=True)
class _Lead:
    """The lead of a point over a front: the score in the docstring of the module.

    Attributes:
        surrogates: The surrogates of the m objectives.
        extents: The unit [m] of each objective.
        limits: The limits on measured quantities.
        lower: Lower bounds [f m] of the objectives at the f trials of the front, in units of the extents.
    """

    surrogates: Sequence[Surrogate]
    extents: Tensor
    limits: Sequence[Limit]
    lower: Tensor

    @classmethod
    def over(cls, problem: GapProblem, front: Tensor, extents: Tensor) -> _Lead:
        """Return the lead over a front of trials with features [f D]; other arguments as for ``front_gap``."""
        surrogates = list(problem.surrogates.values())
        lower = _scaled([surrogate.interval(front)[0] for surrogate in surrogates], extents)
        return cls(surrogates, extents, limits(problem.constraints), lower)

    def score(self, upper: Tensor) -> Tensor:
        """Return the lead [n] of points with upper bounds [n m] of the objectives, in units of the extents."""
        return (upper.unsqueeze(-2) - self.lower).amax(-1).amin(-1)

    def at(self, features: Tensor) -> Tensor:
        """Return the lead [n] at features [n D]; below every lead where the bounds say that a limit is broken."""
        bounds = [surrogate.interval(features)[2] for surrogate in self.surrogates]
        lead = self.score(_scaled(bounds, self.extents))
        if not self.limits:
            return lead
        return feasible_first(lead, upper_slack(self.limits, features).cpu())

    def cell_bounds(self) -> list[CellBound]:
        """Return upper bounds of the objectives over cells, in units of the extents."""
        bounds = []
        for surrogate, extent in zip(self.surrogates, self.extents.tolist(), strict=True):
            bounds.append(CellBound(surrogate.bounds, unit=extent))
        return bounds


def front_gap(problem: GapProblem, front: Tensor, extents: Tensor) -> Gap:
    """Return the gap of a front, as a share of its extents: the largest lead of a point over it, at least 0.

    Args:
        problem: What is known of the run, which has m objectives.
        front: Features [f D] of the trials of the front, which keep the limits.
        extents: The unit [m] of each objective.
    """
    space = problem.space
    lead = _Lead.over(problem, front, extents)
    points = space.points(MOST_POINTS)
    if points is not None:
        leads = [lead.at(features) for features in space.features(points).split(_AT_ONCE)]
        largest = max(float(torch.cat(leads).amax()), 0.0)
        return exact_gap(largest, space, problem.objection)
    farthest = problem.search.argmax_point(lead.at).unsqueeze(0)
    found = max(float(lead.at(space.features(farthest))[0]), 0.0)
    functions = lead.cell_bounds()
    reason = problem.objection
    if not reason and not problem.evaluations:
        reason = NOT_REQUESTED
    reason = reason or obstacle(functions, space)
    if reason:
        return unproved_gap(found, reason)
    slacks = slack_bounds(problem.constraints, space)
    proof = bound_maximum(
        BoundedScore(functions, space, slacks, lead.score),
        problem.evaluations,
        goal=problem.goal,
        witnesses=farthest,
        counted=problem.counted,
    )
    assert proof is not None  # there is no obstacle
    return proved_gap(max(proof.largest, 0.0), found, WHOLE, proof.reason)


def _scaled(bounds: list[Tensor], extents: Tensor) -> Tensor:
    """Return bounds [n m] of m objectives in units of their extents."""
    return (torch.stack(bounds, -1) / extents.to(bounds[0])).cpu()
