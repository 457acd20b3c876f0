"""Optimality gap: an upper bound of the improvement on the recommended parameters that is still possible.

The largest upper bound of a set of points less the lower bound of the recommendation, for a maximum: on a finite set
exactly, on the points that are certain to be safe, and on a box by a search or by branch and bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from kbo._base.terminal import Bar
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


class Gap(NamedTuple):
    """The optimality gap over a space.

    Attributes:
        value: The largest possible improvement on the recommendation, if the bounds hold.
        proved: Whether it is certified, and a bound of the whole space, not only the result of a search.
        scope: The points that were compared, in words.
        exact: Whether every point of the space was evaluated; False after a search from many starts.
        final: Whether these points stay the same: in the safe setting others may become certain to be safe.
        found: The gap that a search has found with the bounds of the method.
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


class _Question(NamedTuple):
    """A recommendation that keeps all constraints, and the work that a proof of its gap may take.

    Attributes:
        surrogate: The surrogate of the objective, with a bound.
        constraints: The constraints with their surrogates.
        recommended: Features [1 D] of the recommended parameters.
        search: A search of the whole space.
        objection: The reason why the bounds have no guarantee; empty if they have one.
        evaluations: Points at which bounds may be computed, at most, for each hypothesis; 0 for no proof.
        goal: The proof ends when the gap is at most this.
        counted: Called with numbers of points as they are examined.
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
    """Return the gap of a recommendation that keeps all constraints.

    Args:
        surrogate: The surrogate of the objective, with a bound.
        constraints: The constraints with their surrogates.
        recommended: Features [1 D] of the recommended parameters.
        search: A search of the whole space.
        finished: The trials that have ended.
        safe: In the safe setting the points that are certain to be safe, and those of all trials [n P].
        evaluations: Points at which bounds may be computed, at most, for each hypothesis; 0 for no proof.
        goal: The proof ends when the gap is at most this.
        progress: Whether a bar shows how much of the proof is done.
    """
    objection = objection_to_bounds({"": surrogate}, constraints, finished)
    n_proofs = len(surrogate.bounds)
    if safe is not None:
        n_proofs += len(constraints)
    total = evaluations * n_proofs
    with Bar(total=total, desc="proof of the gap", disable=not progress) as bar:
        question = _Question(
            surrogate, constraints, recommended, search, objection, evaluations, goal, bar.update
        )
        if safe is not None:
            return _on_safe_set(question, *safe)
        if search.space.points(MOST_POINTS) is not None:
            return _on_finite_set(question)
        return _on_box(question, WHOLE)


def objection_to_bounds(
    objectives: Mapping[str, Surrogate],
    constraints: Sequence[ConstraintSurrogate],
    finished: Sequence[Trial],
) -> str:
    """Return the reason why the bounds of an objective or of a constraint have no guarantee; empty if all have one.

    Args:
        objectives: The surrogates of the objectives, by the beginning of a reason.
        constraints: The constraints with their surrogates.
        finished: The trials that have ended.
    """
    of_limits = [(f"{entry.constraint.name}: ", entry.surrogate) for entry in constraints]
    for name, of_quantity in [*objectives.items(), *of_limits]:
        guarantee = of_quantity.guarantee()
        if guarantee:
            continue
        objection = name + guarantee.text.removeprefix("not certified: ")
        for trial in finished:
            if any(way in objection for way in trial.selected):
                return f"{objection} (first trial {trial.number})"
        return objection
    return ""


def _on_finite_set(question: _Question) -> Gap:
    """Return the gap over all points of a small finite space, exactly."""
    value = max(found.gap for found in _found_gaps(question))
    return exact_gap(value, question.search.space, question.objection)


def exact_gap(value: float, space: Space, objection: str) -> Gap:
    """Return a gap for which every point of a space was evaluated; it is proved without an objection to the bounds."""
    scope = WHOLE
    if space.constraints:
        scope = "over all points that satisfy the constraints"
    return Gap(value, not objection, scope, exact=True, found=value, reason=objection)


def _on_safe_set(question: _Question, exploration: Exploration, tried: Tensor) -> Gap:
    """Return the gap over the points that are certain to be safe; over the whole space if it is proved that all are."""
    surrogate = question.surrogate
    space = question.search.space
    units, grows = exploration.safe(question.search, tried)
    assert surrogate.reported is not None
    largest = surrogate.reported.argmax_upper(surrogate.posterior, space.features(units))[1]
    upper = float(surrogate.transform.inverse(torch.tensor(largest, dtype=torch.float64)))
    lower = float(surrogate.interval(question.recommended)[0])
    value = max(upper - lower, 0.0)
    exact = exploration.whole
    proved = exact and not grows and bool(surrogate.guarantee())
    scope = f"over {len(units)} points that are certain to be safe"
    if grows:
        scope += ", to which others may be added"
    gap = Gap(value, proved, scope, exact, final=not grows, found=value)
    if proved:
        return gap
    if question.objection:
        return gap._replace(reason=question.objection)
    if exact:
        return gap._replace(reason="other points may become certain to be safe")
    if not question.evaluations:
        return gap._replace(reason=NOT_REQUESTED)
    if not kept_everywhere(question.constraints, space, question.evaluations, question.counted):
        return gap._replace(reason="it is not proved that every point of the space is safe")
    scope = f"{WHOLE}, every point of which is certain to be safe"
    return _on_box(question._replace(constraints=[]), scope)


def _on_box(question: _Question, scope: str) -> Gap:
    """Return the gap over a space that is too large to evaluate every point: found by a search, or proved.

    With several hypotheses it is the largest of their gaps, since one of them is true.
    """
    space = question.search.space
    gaps = _found_gaps(question)
    widest = max(range(len(gaps)), key=lambda i: gaps[i].gap)
    largest_found = gaps[widest].gap
    reason = question.objection
    if not reason and not question.evaluations:
        reason = NOT_REQUESTED
    for found in gaps:
        reason = reason or obstacle([CellBound([found.bound])], space)
    if reason:
        return unproved_gap(largest_found, reason)
    slacks = slack_bounds(question.constraints, space)
    proved = [_proved(question, found, slacks) for found in gaps]
    value = max(gap for gap, _ in proved)
    return proved_gap(value, largest_found, scope, proved[widest][1])


def proved_gap(value: float, found: float, scope: str, reason: str) -> Gap:
    """Return a proved gap; where it is below the one that was found, ``reason`` is why."""
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
        lower: Its lower bound [] at the recommendation.
        largest: Its largest upper bound.
        gap: The gap, in units of the objective.
    """

    bound: Bound
    lower: Tensor
    largest: LargestUpper
    gap: float


def _found_gaps(question: _Question) -> list[_FoundGap]:
    """Return the gaps that a search finds, or that are exact on a small finite space, one for each hypothesis."""
    surrogate = question.surrogate
    known_limits = limits(question.constraints)
    in_units = surrogate.transform.inverse
    gaps = []
    for bound in surrogate.bounds:
        confidence = bound.confidence
        lower = confidence.lower(bound.posterior, question.recommended)[0]
        largest = largest_upper(confidence, bound.posterior, question.search, known_limits)
        difference = float(in_units(largest.value) - in_units(lower))
        gaps.append(_FoundGap(bound, lower, largest, max(difference, 0.0)))
    return gaps


def _proved(
    question: _Question, found: _FoundGap, slacks: Sequence[CellBound]
) -> tuple[float, str]:
    """Return the proved gap by the bound of one hypothesis, and if it is below the found one, the reason."""
    assert found.largest.point is not None
    lower = float(found.lower)
    maximum = bound_maximum(
        [CellBound([found.bound])],
        question.search.space,
        question.evaluations,
        lower=lower,
        goal=question.goal,
        slacks=slacks,
        witnesses=found.largest.point.unsqueeze(0),
        counted=question.counted,
    )
    assert maximum is not None  # there is no obstacle
    gap = max(maximum.largest - lower, 0.0)
    if math.isfinite(maximum.largest):  # values outside the declared range are impossible
        raw = question.surrogate.transform.inverse
        upper = raw(found.lower.new_tensor(maximum.largest))
        gap = min(gap, max(float(upper - raw(found.lower)), 0.0))
    if gap < found.gap:
        return gap, maximum.reason
    return gap, ""
