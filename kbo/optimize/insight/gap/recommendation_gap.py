"""The gap of the recommendation: by how much, at most, a point of the space may be better.

    gap = max_x upper(x) - lower(recommended),   larger values better, at least 0

The maximum is over the points that possibly keep the limits. Over a finite set it is exact; over a box it comes from a
search or from branch and bound. In the safe setting it is over the safe points.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from kbo.optimize.constraints.feasibility import limits
from kbo.optimize.insight.gap.branch_and_bound import (
    BoundedScore,
    bound_maximum,
    kept_everywhere,
    obstacle,
)
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
from kbo.optimize.search.bounds import LargestUpper, largest_upper
from kbo.optimize.search.search import MOST_POINTS
from kbo.optimize.strategies.safe_exploration import SafePoints, certainly_safe
from kbo.optimize.surrogates.surrogate import Bound


def recommendation_gap(problem: GapProblem, recommended: Tensor) -> Gap:
    """Return the gap of recommended parameters, in units of the objective.

    Args:
        problem: What is known of the run, which has one objective.
        recommended: Features [1 D] of the recommended parameters, which keep all limits.
    """
    if problem.space.points(MOST_POINTS) is None:
        return _gap_on_box(problem, recommended, WHOLE)
    gap = max(found.gap for found in _found_gaps(problem, recommended))
    return exact_gap(gap, problem.space, problem.objection)


def gap_on_safe_set(
    problem: GapProblem, recommended: Tensor, safe_points: SafePoints, tried: Tensor
) -> Gap:
    """Return the gap over the safe points; if all points are proved to be safe, over the whole space.

    Args:
        problem: What is known of the run, which has one objective.
        recommended: Features [1 D] of the recommended parameters, which keep all limits.
        safe_points: The safe points of the run.
        tried: Points [n P] of all trials in the unit cube.
    """
    surrogate = problem.surrogate
    space = problem.space
    units, grows = certainly_safe(safe_points, problem.search, tried)
    assert surrogate.reported is not None
    largest = surrogate.reported.argmax_upper(surrogate.posterior, space.features(units))[1]
    upper = float(surrogate.transform.inverse(torch.tensor(largest, dtype=torch.float64)))
    lower = float(surrogate.interval(recommended)[0])
    value = max(upper - lower, 0.0)
    exact = safe_points.is_exhaustive
    proved = exact and not grows and bool(surrogate.guarantee())
    scope = f"over {len(units)} points that are certain to be safe"
    if grows:
        scope += ", to which others may be added"
    gap = Gap(value, proved, scope, exact, final=not grows, found=value)
    if proved:
        return gap
    if problem.objection:
        return gap._replace(reason=problem.objection)
    if exact:
        return gap._replace(reason="other points may become certain to be safe")
    if not problem.evaluations:
        return gap._replace(reason=NOT_REQUESTED)
    if not kept_everywhere(problem.constraints, space, problem.evaluations, problem.counted):
        return gap._replace(reason="it is not proved that every point of the space is safe")
    scope = f"{WHOLE}, every point of which is certain to be safe"
    return _gap_on_box(replace(problem, constraints=[]), recommended, scope)


def _gap_on_box(problem: GapProblem, recommended: Tensor, scope: str) -> Gap:
    """Return the gap over a box or a large finite space: proved, or found by a search.

    With several hypotheses it is the largest of their gaps, since any of them may be true.
    """
    space = problem.space
    gaps = _found_gaps(problem, recommended)
    widest = max(range(len(gaps)), key=lambda i: gaps[i].gap)
    largest_found = gaps[widest].gap
    reason = problem.objection
    if not reason and not problem.evaluations:
        reason = NOT_REQUESTED
    for found in gaps:
        reason = reason or obstacle([CellBound([found.bound])], space)
    if reason:
        return unproved_gap(largest_found, reason)
    slacks = slack_bounds(problem.constraints, space)
    proved = [_proved(problem, found, slacks) for found in gaps]
    value = max(gap for gap, _ in proved)
    return proved_gap(value, largest_found, scope, proved[widest][1])


class _FoundGap(NamedTuple):
    """The gap that was found with the bounds of one hypothesis.

    Attributes:
        bound: The bound.
        lower: The lower bound [] at the recommendation, in units of the posterior.
        largest: The largest upper bound over the space.
        gap: The gap, in units of the objective.
    """

    bound: Bound
    lower: Tensor
    largest: LargestUpper
    gap: float


def _found_gaps(problem: GapProblem, recommended: Tensor) -> list[_FoundGap]:
    """Return the gap of each hypothesis: exact on a small finite space, otherwise by a search."""
    surrogate = problem.surrogate
    with_bounds = limits(problem.constraints)
    to_value = surrogate.transform.inverse
    gaps = []
    for bound in surrogate.bounds:
        lower = bound.confidence.lower(bound.posterior, recommended)[0]
        largest = largest_upper(bound, problem.search, with_bounds)
        difference = float(to_value(largest.value) - to_value(lower))
        gaps.append(_FoundGap(bound, lower, largest, max(difference, 0.0)))
    return gaps


def _proved(
    problem: GapProblem, found: _FoundGap, slacks: Sequence[CellBound]
) -> tuple[float, str]:
    """Return the proved gap by the bound of one hypothesis, and the reason if it is below the found gap."""
    assert found.largest.point is not None
    lower = float(found.lower)
    maximum = bound_maximum(
        BoundedScore([CellBound([found.bound])], problem.space, slacks),
        problem.evaluations,
        lower=lower,
        goal=problem.goal,
        witnesses=found.largest.point.unsqueeze(0),
        counted=problem.counted,
    )
    assert maximum is not None  # there is no obstacle
    gap = max(maximum.largest - lower, 0.0)
    if math.isfinite(maximum.largest):  # the declared range may exclude the largest values
        to_value = problem.surrogate.transform.inverse
        upper = to_value(found.lower.new_tensor(maximum.largest))
        gap = min(gap, max(float(upper - to_value(found.lower)), 0.0))
    if gap < found.gap:
        return gap, maximum.reason
    return gap, ""
