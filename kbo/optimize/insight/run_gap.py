"""The optimality gap of a run: of its recommendation, or of the front of several objectives."""

from __future__ import annotations

from kbo.optimize.insight.front import Front
from kbo.optimize.insight.front_gap import front_gap
from kbo.optimize.insight.gap import Gap, optimality_gap
from kbo.optimize.insight.insight import Insight
from kbo.optimize.proposal.begin_search import search_after_trials
from kbo.optimize.quantities.quantities import Quantities


def run_gap(
    insight: Insight, seed: int, evaluations: int, goal: float, progress: bool
) -> Gap | None:
    """Return the optimality gap of a run; None without a bound, or without a recommendation that keeps all constraints.

    Args:
        insight: The statistics of the run.
        seed: The seed of the run.
        evaluations: Points at which bounds may be computed, at most, for each hypothesis; 0 for no proof.
        goal: The proof ends when the gap is at most this.
        progress: Whether a bar shows how much of the proof is done.
    """
    quantities = insight.quantities
    best = quantities.recommended()
    bounded = quantities.bounded()
    if best is None or bounded is None:
        return None
    if quantities.objectives:
        front = insight.front()
        return _gap_of_front(quantities, front, seed, evaluations, goal, progress)
    if quantities.constraints and not quantities.feasibility(best).kept:
        return None
    safe = None
    if quantities.safe_points is not None:
        tried = quantities.units_of(quantities.trials.all)
        safe = (quantities.safe_points, tried)
    surrogate, _ = bounded
    return optimality_gap(
        surrogate,
        quantities.limits(),
        quantities.features([best]),
        search_after_trials(quantities, seed),
        quantities.trials.finished,
        safe,
        evaluations,
        goal,
        progress,
    )


def _gap_of_front(
    quantities: Quantities,
    front: Front | None,
    seed: int,
    evaluations: int,
    goal: float,
    progress: bool,
) -> Gap | None:
    """Return the gap of a front; None without one, and while no trial of it is known to keep all constraints."""
    if front is None or len(quantities.limits()) < len(quantities.limited):
        return None
    trials = [point.trial for point in front.points]
    if quantities.constraints:
        trials = [trial for trial in trials if quantities.feasibility(trial).kept]
    if not trials:
        return None
    return front_gap(
        quantities.surrogates(),
        front.extents,
        quantities.limits(),
        quantities.features(trials),
        search_after_trials(quantities, seed),
        quantities.trials.finished,
        evaluations,
        goal,
        progress,
    )
