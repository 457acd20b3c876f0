"""Optimality gap: an upper bound of the improvement on the recommended parameters that is still possible.

    gap = max_x upper(x) - lower(recommended),   larger values better, at least 0

The maximum is over the points that possibly keep the limits: of a finite set exactly, of a box by a search or by branch
and bound. In the safe setting it is over the points that are certain to be safe.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from kbo._base.terminal import Bar, rounded_up
from kbo.optimize.constraints.feasibility import ConstraintSurrogate, limits
from kbo.optimize.insight.branch_and_bound import (
    CellBound,
    bound_maximum,
    kept_everywhere,
    obstacle,
    slack_bounds,
)
from kbo.optimize.run.trials import Trial
from kbo.optimize.search.bounds import LargestUpper, largest_upper
from kbo.optimize.search.search import MOST_POINTS, Search
from kbo.optimize.strategies.safe_exploration import Exploration
from kbo.optimize.surrogates.surrogate import Bound, Surrogate
from kbo.space import Space

NOT_REQUESTED = "no proof was asked for: pass evaluations="
"""Reason why nothing is proved, where nobody asked for it."""

WHOLE = "over the whole space"
"""Scope of a gap that bounds the improvement at every point."""


class Gap(NamedTuple):
    """The optimality gap over a space.

    Attributes:
        value: The largest possible improvement on the recommendation, if the bounds hold, in units of the objective.
            With several objectives it is the largest possible lead over the front, as a share of its extent.
        proved: Whether the bounds are certified and the gap is the largest of all points in the scope, not only of
            those that a search has found.
        scope: The points that were compared, in words.
        exact: Whether the bounds were computed at every point; False after a search from many starts.
        final: Whether later trials leave the scope as it is. In the safe setting other points may become certain to be
            safe.
        found: The gap that was found with the bounds of the method, by a search or at every point.
        reason: The reason why nothing is proved; of a proved gap that is smaller than ``found``, the bound that
            excludes more than the bounds of the method, and why (docs/theory/gaps.md). Otherwise empty.
    """

    value: float
    proved: bool
    scope: str
    exact: bool
    final: bool = True
    found: float = 0.0
    reason: str = ""

    def __str__(self) -> str:
        if self.proved:
            return f"at most {rounded_up(self.value, 4)} ({self.scope})"
        return f"{self.value:.4g}, not guaranteed ({self.scope})"


class _Task(NamedTuple):
    """The gap to compute: of a recommendation that keeps all constraints, with the work that a proof may take.

    Attributes:
        surrogate: The surrogate of the objective, with a bound.
        constraints: The constraints with their surrogates.
        recommended: Features [1 D] of the recommended parameters.
        search: A search of the whole space.
        objection: The reason why the bounds have no guarantee; empty if they have one.
        evaluations: The largest number of points at which bounds are computed for the proof of each hypothesis; 0 for
            no proof.
        goal: The proof ends when the gap is at most this.
        counted: Called with the number of points that have just been examined, again and again.
    """

    surrogate: Surrogate
    constraints: Sequence[ConstraintSurrogate]
    recommended: Tensor
    search: Search
    objection: str
    evaluations: int
    goal: float
    counted: Callable[[int], object]


def optimality_gap(
    surrogate: Surrogate,
    constraints: Sequence[ConstraintSurrogate],
    recommended: Tensor,
    search: Search,
    finished: Sequence[Trial],
    safe: tuple[Exploration, Tensor] | None,
    evaluations: int,
    goal: float,
    progress: bool,
) -> Gap:
    """Return the gap of a recommendation that keeps all constraints, in units of the objective.

    Args:
        surrogate: The surrogate of the objective, with a bound.
        constraints: The constraints with their surrogates.
        recommended: Features [1 D] of the recommended parameters.
        search: A search of the whole space.
        finished: The trials that have ended.
        safe: In the safe setting the points that are certain to be safe, and those of all trials [n P].
        evaluations: The largest number of points at which bounds are computed for the proof of each hypothesis; 0 for
            no proof.
        goal: The proof ends when the gap is at most this.
        progress: Whether a bar shows how much of the proof is done.
    """
    objection = objection_to_bounds({"": surrogate}, constraints, finished)
    n_proofs = len(surrogate.bounds)
    if safe is not None:
        n_proofs += len(constraints)
    total = evaluations * n_proofs
    with Bar(total=total, desc="proof of the gap", disable=not progress) as bar:
        task = _Task(
            surrogate, constraints, recommended, search, objection, evaluations, goal, bar.update
        )
        if safe is not None:
            return _on_safe_set(task, *safe)
        if search.space.points(MOST_POINTS) is not None:
            return _on_finite_set(task)
        return _on_box(task, WHOLE)


def objection_to_bounds(
    objectives: Mapping[str, Surrogate],
    constraints: Sequence[ConstraintSurrogate],
    finished: Sequence[Trial],
) -> str:
    """Return the reason why the bounds of an objective or of a constraint have no guarantee; empty if all have one.

    Args:
        objectives: The surrogates of the objectives, by the text with which a reason about them begins.
        constraints: The constraints with their surrogates.
        finished: The trials that have ended.
    """
    of_limits = [(f"{entry.constraint.name}: ", entry.surrogate) for entry in constraints]
    for name, of_quantity in [*objectives.items(), *of_limits]:
        guarantee = of_quantity.guarantee()
        if guarantee:
            continue
        objection = f"{name}{guarantee.text}"
        if guarantee.kind == "not certified":
            objection = f"{name}{guarantee.statement}"
        for trial in finished:
            if any(way in objection for way in trial.selected):
                return f"{objection} (first trial {trial.number})"
        return objection
    return ""


def _on_finite_set(task: _Task) -> Gap:
    """Return the exact gap over all points of a small finite space."""
    value = max(found.gap for found in _found_gaps(task))
    return exact_gap(value, task.search.space, task.objection)


def exact_gap(value: float, space: Space, objection: str) -> Gap:
    """Return a gap for which the bounds were computed at every point; it is proved if these have no objection."""
    scope = WHOLE
    if space.constraints:
        scope = "over all points that satisfy the constraints"
    return Gap(value, not objection, scope, exact=True, found=value, reason=objection)


def _on_safe_set(task: _Task, exploration: Exploration, tried: Tensor) -> Gap:
    """Return the gap over the points that are certain to be safe; if all are proved to be, over the whole space."""
    surrogate = task.surrogate
    space = task.search.space
    units, grows = exploration.safe(task.search, tried)
    assert surrogate.reported is not None
    largest = surrogate.reported.argmax_upper(surrogate.posterior, space.features(units))[1]
    upper = float(surrogate.transform.inverse(torch.tensor(largest, dtype=torch.float64)))
    lower = float(surrogate.interval(task.recommended)[0])
    value = max(upper - lower, 0.0)
    exact = exploration.is_exhaustive
    proved = exact and not grows and bool(surrogate.guarantee())
    scope = f"over {len(units)} points that are certain to be safe"
    if grows:
        scope += ", to which others may be added"
    gap = Gap(value, proved, scope, exact, final=not grows, found=value)
    if proved:
        return gap
    if task.objection:
        return gap._replace(reason=task.objection)
    if exact:
        return gap._replace(reason="other points may become certain to be safe")
    if not task.evaluations:
        return gap._replace(reason=NOT_REQUESTED)
    if not kept_everywhere(task.constraints, space, task.evaluations, task.counted):
        return gap._replace(reason="it is not proved that every point of the space is safe")
    scope = f"{WHOLE}, every point of which is certain to be safe"
    return _on_box(task._replace(constraints=[]), scope)


def _on_box(task: _Task, scope: str) -> Gap:
    """Return the gap over a space with too many points to compute bounds at each: found by a search, or proved.

    With several hypotheses it is the largest of their gaps, since one of them is true.
    """
    space = task.search.space
    gaps = _found_gaps(task)
    widest = max(range(len(gaps)), key=lambda i: gaps[i].gap)
    largest_found = gaps[widest].gap
    reason = task.objection
    if not reason and not task.evaluations:
        reason = NOT_REQUESTED
    for found in gaps:
        reason = reason or obstacle([CellBound([found.bound])], space)
    if reason:
        return unproved_gap(largest_found, reason)
    slacks = slack_bounds(task.constraints, space)
    proved = [_proved(task, found, slacks) for found in gaps]
    value = max(gap for gap, _ in proved)
    return proved_gap(value, largest_found, scope, proved[widest][1])


def proved_gap(value: float, found: float, scope: str, reason: str) -> Gap:
    """Return a proved gap; ``reason`` is why it is below the gap that a search has found, if it is."""
    scope += f", proved; {found:.4g} was found"
    if value >= found:
        return Gap(value, True, scope, exact=False, found=found)
    reason += " (docs/theory/gaps.md)"
    return Gap(value, True, f"{scope}, but {reason}", exact=False, found=found, reason=reason)


def unproved_gap(found: float, reason: str) -> Gap:
    """Return a gap that a search has found, and the reason why it is not proved."""
    scope = "by a search from many starts"
    if reason != NOT_REQUESTED:
        scope += f"; not proved: {reason}"
    return Gap(found, False, scope, exact=False, found=found, reason=reason)


class _FoundGap(NamedTuple):
    """The gap that was found with the bound of one hypothesis.

    Attributes:
        bound: The bound.
        lower: Its lower bound [] at the recommendation, in units of the posterior.
        largest: Its largest upper bound.
        gap: The gap, in units of the objective.
    """

    bound: Bound
    lower: Tensor
    largest: LargestUpper
    gap: float


def _found_gaps(task: _Task) -> list[_FoundGap]:
    """Return the gaps that a search finds, or that are exact on a small finite space, one for each hypothesis."""
    surrogate = task.surrogate
    with_bounds = limits(task.constraints)
    to_value = surrogate.transform.inverse
    gaps = []
    for bound in surrogate.bounds:
        confidence = bound.confidence
        lower = confidence.lower(bound.posterior, task.recommended)[0]
        largest = largest_upper(confidence, bound.posterior, task.search, with_bounds)
        difference = float(to_value(largest.value) - to_value(lower))
        gaps.append(_FoundGap(bound, lower, largest, max(difference, 0.0)))
    return gaps


def _proved(task: _Task, found: _FoundGap, slacks: Sequence[CellBound]) -> tuple[float, str]:
    """Return the proved gap by the bound of one hypothesis, and the reason if it is below the found gap; else empty."""
    assert found.largest.point is not None
    lower = float(found.lower)
    maximum = bound_maximum(
        [CellBound([found.bound])],
        task.search.space,
        task.evaluations,
        lower=lower,
        goal=task.goal,
        slacks=slacks,
        witnesses=found.largest.point.unsqueeze(0),
        counted=task.counted,
    )
    assert maximum is not None  # there is no obstacle
    gap = max(maximum.largest - lower, 0.0)
    if math.isfinite(maximum.largest):  # the declared range may exclude the largest values
        to_value = task.surrogate.transform.inverse
        upper = to_value(found.lower.new_tensor(maximum.largest))
        gap = min(gap, max(float(upper - to_value(found.lower)), 0.0))
    if gap < found.gap:
        return gap, maximum.reason
    return gap, ""
