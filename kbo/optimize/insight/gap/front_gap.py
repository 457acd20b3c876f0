"""The gap of a front: by how much, at most, a point of the space may be better than every trial of the front.

Let the bounds of all objectives hold, and larger values be better. Then for every point x of the space that keeps the
limits, there is a trial p of the front with f_k(x) <= f_k(p) + gap * extent_k for all objectives k, where

    gap = max_x score(U_1(x), ..., U_m(x)),   score(u) = min_p max_k (u_k - L_k(p)) / extent_k

with upper bounds U and lower bounds L. The score grows with each u_k, so branch and bound only needs bounds of each
objective over a cell (docs/theory/gaps.md).
"""

from __future__ import annotations

import torch
from torch import Tensor

from kbo.optimize.constraints.feasibility import feasible_first, limits, upper_slack
from kbo.optimize.insight.gap.gap import Gap, GapProblem, Lead, largest_gap
from kbo.optimize.search.search import MOST_POINTS

_AT_ONCE = 1000
"""Number of points that are compared with the front at once."""


def front_gap(problem: GapProblem, front: Tensor, extents: Tensor) -> Gap:
    """Return the gap of a front, as a share of its extents: the largest lead of a point over it, at least 0.

    Args:
        problem: What is known of the run, which has m objectives.
        front: Features [f D] of the trials of the front, which keep the limits.
        extents: The unit [m] of each objective.
    """
    surrogates = problem.surrogates.values()
    with_bounds = limits(problem.constraints)

    def bounds(features: Tensor, side: int) -> Tensor:
        """Return lower bounds (side 0) or upper bounds (side 2) of the objectives [n m], in units of the extents."""
        of_each = [surrogate.interval(features)[side] for surrogate in surrogates]
        return (torch.stack(of_each, -1) / extents.to(of_each[0])).cpu()

    lower = bounds(front, 0)

    def score(upper: Tensor) -> Tensor:
        """Return the lead [n] of points with upper bounds [n m] of the objectives, in units of the extents."""
        return (upper.unsqueeze(-2) - lower).amax(-1).amin(-1)

    def lead_at(features: Tensor) -> Tensor:
        """Return the lead [n] at features [n D]; below every lead where the bounds say that a limit is broken."""
        lead = score(bounds(features, 2))
        if not with_bounds:
            return lead
        return feasible_first(lead, upper_slack(with_bounds, features).cpu())

    farthest = None
    points = problem.space.points(MOST_POINTS)
    if points is None:
        farthest = problem.search.argmax_point(lead_at)
        points = farthest.unsqueeze(0)
    leads = [lead_at(features) for features in problem.space.features(points).split(_AT_ONCE)]
    lead = Lead(
        bounds=[surrogate.bounds for surrogate in surrogates],
        units=extents.tolist(),
        found=max(float(torch.cat(leads).amax()), 0.0),
        farthest=farthest,
        in_units=lambda largest: max(largest, 0.0),
        score=score,
    )
    return largest_gap(problem, [lead])
