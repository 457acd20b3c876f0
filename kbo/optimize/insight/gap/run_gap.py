"""The optimality gap of a run: that of its recommended trial, or of the front of several objectives.

    gap = max_x upper(x) - lower(recommended),   larger values better, at least 0

The maximum is over the points that possibly keep the limits; in the safe setting it is over the safe points.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from kbo.optimize.constraints.feasibility import ConstraintSurrogate, limits
from kbo.optimize.constraints.safe_points import SafePoints
from kbo.optimize.insight.gap.branch_and_bound import kept_everywhere
from kbo.optimize.insight.gap.front_gap import front_gap
from kbo.optimize.insight.gap.gap import (
    NOT_REQUESTED,
    WHOLE,
    Gap,
    GapProblem,
    Lead,
    largest_gap,
)
from kbo.optimize.proposal.trial_search import search_after_trials
from kbo.optimize.quantities.front_trials import front_trials
from kbo.optimize.quantities.quantities import Quantities
from kbo.optimize.quantities.recommendation import recommended_trial
from kbo.optimize.run.trials import Trial
from kbo.optimize.search.bounds import largest_upper
from kbo.optimize.strategies.safe_exploration import certainly_safe
from kbo.optimize.surrogates.outcome_transform import OutcomeTransform
from kbo.optimize.surrogates.surrogate import Surrogate


def run_gap(quantities: Quantities, seed: int, evaluations: int, goal: float) -> Gap | None:
    """Return the optimality gap of a run; None without a bound, or without a recommendation that keeps all constraints.

    Args:
        quantities: The quantities of the run.
        seed: The seed of the run.
        evaluations: The largest number of points at which a proof computes bounds, for each hypothesis; 0 for no proof.
        goal: The proof ends when the gap is at most this.
    """
    best = recommended_trial(quantities)
    surrogates = quantities.surrogates()
    if best is None or not surrogates:
        return None
    constraints = quantities.limits()
    problem = GapProblem(
        surrogates=surrogates,
        constraints=constraints,
        search=search_after_trials(quantities, seed),
        objection=objection_to_bounds(surrogates, constraints, quantities.trials.finished),
        evaluations=evaluations,
        goal=goal,
    )
    if quantities.objectives:
        return _gap_of_front(quantities, problem)
    return _gap_of_recommendation(quantities, problem, best)


def _gap_of_recommendation(quantities: Quantities, problem: GapProblem, best: Trial) -> Gap | None:
    """Return the gap of the recommended trial; None unless it is known to keep all constraints."""
    if quantities.constraints and not quantities.feasibility(best).kept:
        return None
    recommended = quantities.features([best])
    if quantities.safe_points is None:
        return largest_gap(problem, recommendation_leads(problem, recommended))
    tried = quantities.units_of(quantities.trials.all)
    return gap_on_safe_set(problem, recommended, quantities.safe_points, tried)


def _gap_of_front(quantities: Quantities, problem: GapProblem) -> Gap | None:
    """Return the gap of the front; None without a front, and while no trial of it is known to keep all constraints."""
    compared = front_trials(quantities)
    if compared is None or len(problem.constraints) < len(quantities.limited):
        return None
    trials = compared.front
    if quantities.constraints:
        trials = [trial for trial in trials if quantities.feasibility(trial).kept]
    if not trials:
        return None
    return front_gap(problem, quantities.features(trials), compared.extents)


def recommendation_leads(problem: GapProblem, recommended: Tensor) -> list[Lead]:
    """Return the lead of the space over recommended parameters by the bounds of each hypothesis.

    Args:
        problem: What is known of the run, which has one objective.
        recommended: Features [1 D] of the recommended parameters, which keep all limits.
    """
    surrogate = problem.surrogate
    with_bounds = limits(problem.constraints)
    leads = []
    for bound in surrogate.bounds:
        lower = bound.confidence.lower(bound.posterior, recommended)[0]
        largest = largest_upper(bound, problem.search, with_bounds)
        to_value = surrogate.transform.inverse
        found = float(to_value(largest.value) - to_value(lower))
        leads.append(
            Lead(
                bounds=[[bound]],
                units=[1.0],
                found=max(found, 0.0),
                farthest=largest.point,
                in_units=partial(_improvement, surrogate.transform, lower),
                zero=float(lower),
            )
        )
    return leads


def _improvement(transform: OutcomeTransform, lower: Tensor, largest: float) -> float:
    """Return the improvement on a lower bound [] by a target that is at most ``largest``, in units of the objective."""
    gap = max(largest - float(lower), 0.0)
    if math.isfinite(largest):  # the declared range may exclude the largest values
        upper = transform.inverse(lower.new_tensor(largest))
        gap = min(gap, max(float(upper - transform.inverse(lower)), 0.0))
    return gap


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
    points = f"{len(units)} points that are certain to be safe"
    gap = Gap(value, proved, points, exact, final=not grows, found=value)
    if proved:
        return gap
    if problem.objection:
        return gap._replace(reason=problem.objection)
    if exact:
        return gap._replace(reason="other points may become certain to be safe")
    if not problem.evaluations:
        return gap._replace(reason=NOT_REQUESTED)
    if not kept_everywhere(problem.constraints, space, problem.evaluations):
        return gap._replace(reason="it is not proved that every point of the space is safe")
    points = f"{WHOLE}, every point of which is certain to be safe"
    unlimited = replace(problem, constraints=[])
    return largest_gap(unlimited, recommendation_leads(unlimited, recommended), points)


def objection_to_bounds(
    surrogates: Mapping[str, Surrogate],
    constraints: Sequence[ConstraintSurrogate],
    finished: Sequence[Trial],
) -> str:
    """Return the reason why bounds of an objective or a constraint have no guarantee; empty if all have one.

    Args:
        surrogates: The surrogates of the objectives, by name.
        constraints: The constraints with their surrogates.
        finished: The trials that have ended. The reason names the first of them that is a part of it.
    """
    named = [(f"{name}: ", surrogate) for name, surrogate in surrogates.items()]
    if len(surrogates) == 1:
        named = [("", surrogate) for surrogate in surrogates.values()]
    named += [(f"{entry.constraint.name}: ", entry.surrogate) for entry in constraints]
    for prefix, surrogate in named:
        guarantee = surrogate.guarantee()
        if guarantee:
            continue
        objection = f"{prefix}{guarantee.text}"
        if guarantee.kind == "not certified":
            objection = f"{prefix}{guarantee.statement}"
        for trial in finished:
            if not guarantee.selected.isdisjoint(trial.selected):
                return f"{objection} (first trial {trial.number})"
        return objection
    return ""
