"""The texts of the progress bar of a run: the journal above it, and the numbers beside it."""

from __future__ import annotations

from collections.abc import Sequence

from kbo.optimize.objectives.hypervolume import EXACT, hypervolume, non_dominated
from kbo.optimize.objectives.objective import targets_of
from kbo.optimize.optimizer import Optimizer
from kbo.optimize.run.run import Run
from kbo.optimize.run.trials import Trial


def place_of(run: Run) -> str:
    """Return the path of the journal of a run and whether it is new, as text; empty without a journal."""
    if run.path is None:
        return ""
    n_trials = sum(trial.asked for trial in run.trials.all)  # without known results
    if n_trials == 0:
        return f"a new run in {run.path}"
    count = str(n_trials)
    n_unfinished = n_trials - run.trials.n_asked_ended
    if n_unfinished:
        count += f", {n_unfinished} without a result"
    return f"continuing {run.path}, which has trials ({count}); another path (or --fresh) starts a new run"


def best_so_far(optimizer: Optimizer) -> dict[str, str]:
    """Return the best observed value of the trials within the limits, as text; for several objectives their front."""
    completed = optimizer.insight.within_limits()
    if optimizer.objectives:
        return _front_so_far(optimizer, completed)
    values = [trial.value for trial in completed if trial.value is not None]
    if not values:
        return {}
    best = max(values) if optimizer.maximize else min(values)
    return {"best": f"{best:.4g}"}


def _front_so_far(optimizer: Optimizer, completed: Sequence[Trial]) -> dict[str, str]:
    """Return the number of trials on the observed front, and its hypervolume if all reference values are given."""
    objectives = optimizer.objectives
    targets = targets_of(completed, objectives)
    front = targets[non_dominated(targets)]
    texts = {"front": str(len(front))}
    if len(optimizer.reference) == len(objectives) <= EXACT:
        reference = [
            objective.sign * optimizer.reference[objective.name] for objective in objectives
        ]
        texts["volume"] = f"{float(hypervolume(front, targets.new_tensor(reference))):.4g}"
    return texts
