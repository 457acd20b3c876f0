"""The optimality gap of a run: that of its recommendation, or of the front of several objectives."""

from __future__ import annotations

from kbo._base.terminal import Bar
from kbo.optimize.insight.gap.front_gap import front_gap
from kbo.optimize.insight.gap.gap import Gap
from kbo.optimize.insight.gap.gap_problem import GapProblem, objection_to_bounds
from kbo.optimize.insight.gap.recommendation_gap import gap_on_safe_set, recommendation_gap
from kbo.optimize.proposal.begin_search import search_after_trials
from kbo.optimize.quantities.quantities import Quantities
from kbo.optimize.quantities.recommendation import front_trials, recommended_trial
from kbo.optimize.run.trials import Trial


def run_gap(
    quantities: Quantities, seed: int, evaluations: int, goal: float, progress: bool
) -> Gap | None:
    """Return the optimality gap of a run; None without a bound, or without a recommendation that keeps all constraints.

    Args:
        quantities: The quantities of the run.
        seed: The seed of the run.
        evaluations: The largest number of points at which a proof computes bounds, for each hypothesis; 0 for no proof.
        goal: The proof ends when the gap is at most this.
        progress: Whether a bar shows how much of the proof is done.
    """
    best = recommended_trial(quantities)
    surrogates = quantities.surrogates()
    if best is None or not surrogates:
        return None
    constraints = quantities.limits()
    total = evaluations * _n_proofs(quantities)
    with Bar(total=total, desc="proof of the gap", disable=not progress) as bar:
        problem = GapProblem(
            surrogates=surrogates,
            constraints=constraints,
            search=search_after_trials(quantities, seed),
            objection=objection_to_bounds(surrogates, constraints, quantities.trials.finished),
            evaluations=evaluations,
            goal=goal,
            counted=bar.update,
        )
        if quantities.objectives:
            return _gap_of_front(quantities, problem)
        return _gap_of_recommendation(quantities, problem, best)


def _n_proofs(quantities: Quantities) -> int:
    """Return the largest number of proofs: one for a front, otherwise one for each hypothesis and each safe limit."""
    if quantities.objectives:
        return 1
    n = sum(len(surrogate.bounds) for surrogate in quantities.surrogates().values())
    if quantities.safe_points is not None:
        n += len(quantities.limits())
    return n


def _gap_of_recommendation(quantities: Quantities, problem: GapProblem, best: Trial) -> Gap | None:
    """Return the gap of the recommended trial; None unless it is known to keep all constraints."""
    if quantities.constraints and not quantities.feasibility(best).kept:
        return None
    recommended = quantities.features([best])
    if quantities.safe_points is None:
        return recommendation_gap(problem, recommended)
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
