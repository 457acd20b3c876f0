"""The optimality gap of a run: exact over a finite set, otherwise found by a search, or proved by branch and bound."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from kbo._base.terminal import rounded_up
from kbo.optimize.constraints.feasibility import ConstraintSurrogate
from kbo.optimize.insight.gap.branch_and_bound import (
    BoundedScore,
    Score,
    bound_maximum,
    least,
    obstacle,
)
from kbo.optimize.insight.gap.cells import CellBound, slack_bounds
from kbo.optimize.search.search import MOST_POINTS, Search
from kbo.optimize.surrogates.surrogate import Bound, Surrogate
from kbo.space import Space

WHOLE = "the whole space"
"""The compared points, if these are all points."""

NOT_REQUESTED = "no proof was asked for: pass evaluations="
"""Reason why nothing is proved, if no proof was requested."""

_BELOW_FOUND = "the norm bound or a limit leaves less there than the bounds of the method"
"""Reason why a proved gap is below the found one."""


class Gap(NamedTuple):
    """The optimality gap: how much better the optimum may be than the recommendation, at most.

    The gap of a run. ``kbo.confidence.CandidateGap`` is that of one posterior and one bound over a finite set, without
    a search, a proof or limits.

    Attributes:
        value: If the bounds hold, the largest possible improvement on the recommendation, in units of the objective.
            With several objectives it is the largest possible lead over the front, as a share of its extent.
        proved: Whether the bounds are certified, and the gap holds for all compared points, not only for those that a
            search has found.
        points: The compared points, such as "the whole space".
        exact: Whether the bounds were computed at every point; False after a search from many starts.
        final: Whether the points stay the same after later trials. In the safe setting more points may become safe.
        found: The gap by the bounds of the method, at every point or at those of a search.
        reason: The reason why nothing is proved. For a proved gap below ``found``, it says that another bound excludes
            more than the bounds of the method (docs/theory/gaps.md). Otherwise empty.
    """

    value: float
    proved: bool
    points: str
    exact: bool
    final: bool = True
    found: float = 0.0
    reason: str = ""

    @property
    def scope(self) -> str:
        """The compared points, and what was proved about them, in words."""
        scope = f"over {self.points}"
        if not self.final:
            scope += ", to which others may be added"
        if self.exact:
            return scope
        if self.proved:
            scope += f", proved; {self.found:.4g} was found"
            if self.reason:
                scope += f", but {self.reason} (docs/theory/gaps.md)"
        elif self.reason != NOT_REQUESTED:
            scope += f"; not proved: {self.reason}"
        return scope

    def __str__(self) -> str:
        if self.proved:
            return f"at most {rounded_up(self.value, 4)} ({self.scope})"
        return f"{self.value:.4g}, not guaranteed ({self.scope})"


@dataclass(frozen=True)
class GapProblem:
    """The surrogates, limits and search from which a gap is computed, and the work that a proof may take.

    Attributes:
        surrogates: The surrogates of the objectives, with bounds, by name.
        constraints: The constraints with their surrogates.
        search: A search of the whole space.
        objection: The reason why the bounds have no guarantee; empty if they have one.
        evaluations: The largest number of points at which each proof computes bounds; 0 for no proof.
        goal: The proof ends when the gap is at most this.
    """

    surrogates: Mapping[str, Surrogate]
    constraints: Sequence[ConstraintSurrogate]
    search: Search
    objection: str
    evaluations: int
    goal: float

    @property
    def space(self) -> Space:
        """The search space."""
        return self.search.space

    @property
    def surrogate(self) -> Surrogate:
        """The surrogate of the only objective."""
        (surrogate,) = self.surrogates.values()
        return surrogate


@dataclass(frozen=True)
class Lead:
    """The lead of the points of a space over the recommended trial, or over a front: a score of upper bounds.

    Attributes:
        bounds: The confidence bounds of each function that the score depends on, one for each hypothesis.
        units: The unit of each function.
        found: The largest lead, at every point of a small finite space, otherwise at the points of a search.
        farthest: The point [P] of the unit cube where a search has found it; None if every point was compared.
        in_units: Returns the lead, at least 0 and in units of the gap, for a score.
        score: The score of values of the functions; by default the least value.
        zero: The score of no lead.
    """

    bounds: Sequence[Sequence[Bound]]
    units: Sequence[float]
    found: float
    farthest: Tensor | None
    in_units: Callable[[float], float]
    score: Score = least
    zero: float = 0.0

    def cell_bounds(self) -> list[CellBound]:
        """Return upper bounds of the functions over cells, in their units."""
        pairs = zip(self.bounds, self.units, strict=True)
        return [CellBound(bounds, unit=unit) for bounds, unit in pairs]


def largest_gap(problem: GapProblem, leads: Sequence[Lead], points: str = WHOLE) -> Gap:
    """Return the largest gap of some leads, one for each hypothesis, since any of them may be true.

    It is exact over a small finite space. Otherwise it is proved if a proof is requested and possible.

    Args:
        problem: What is known of the run.
        leads: The leads.
        points: The points of the space, in words, for a proof.
    """
    space = problem.space
    found = max(lead.found for lead in leads)
    reason = problem.objection
    if space.points(MOST_POINTS) is not None:
        if space.constraints:
            points = "all points that satisfy the constraints"
        return Gap(found, not reason, points, exact=True, found=found, reason=reason)
    if not reason and not problem.evaluations:
        reason = NOT_REQUESTED
    for lead in leads:
        reason = reason or obstacle(lead.cell_bounds(), space)
    if reason:
        points = "the points of a search from many starts"
        return Gap(found, False, points, exact=False, found=found, reason=reason)
    slacks = slack_bounds(problem.constraints, space)
    value = max(_proved(problem, lead, slacks) for lead in leads)
    if value < found:
        reason = _BELOW_FOUND
    return Gap(value, True, points, exact=False, found=found, reason=reason)


def _proved(problem: GapProblem, lead: Lead, slacks: Sequence[CellBound]) -> float:
    """Return an upper bound of a lead over the space, proved by branch and bound."""
    assert lead.farthest is not None
    proof = bound_maximum(
        BoundedScore(lead.cell_bounds(), problem.space, slacks, lead.score),
        problem.evaluations,
        lower=lead.zero,
        goal=problem.goal,
        witnesses=lead.farthest.unsqueeze(0),
    )
    assert proof is not None  # there is no obstacle
    return lead.in_units(proof.largest)
