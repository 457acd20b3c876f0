"""Comparison of early stopping: the share of training steps that is used, and the loss of quality.

``kbo.minimize`` runs without a pruner and with each pruner, on recorded trainings. The quality of a run is the mean
final error of the recommended parameters.
"""

from __future__ import annotations

import itertools
from typing import Any

import pandas as pd

import kbo
from experiments.papers.experiment import Frame, Plan, cells_of, store
from experiments.problems.curves import SPACES, STEPS, TrainingCurves
from experiments.sweep.cells import Rows

PRUNERS = {"none": None, "curves": "curves", "median": "median", "hyperband": "hyperband"}
"""The pruner of a run, by the name of the run."""


def run(problem: str, name: str, seed: int, trials: int) -> Rows:
    """Run kbo with a pruner.

    Args:
        problem: A key of ``experiments.problems.curves.SPACES``.
        name: A key of ``PRUNERS``.
        seed: Seed of problem and kbo.
        trials: Number of trials.

    Returns:
        One row: ``share``, the number of steps divided by that of whole trainings; ``stopped``, the share of trials
        that were stopped; ``value``, the mean final error of the recommended parameters; ``inside``, whether this error
        is in its interval.
    """
    objective = TrainingCurves(problem, seed=seed)
    result = kbo.minimize(objective, objective.space, trials, seed=seed, pruner=PRUNERS[name])
    assert result.params is not None
    steps = sum(len(trial.reports) for trial in result.trials)
    stopped = sum(trial.pruned for trial in result.trials)
    value = objective.noiseless(result.params)
    lower = result.lower or 0.0
    upper = result.upper or 0.0
    row = {
        "problem": problem,
        "name": name,
        "share": steps / (trials * STEPS),
        "stopped": stopped / trials,
        "value": value,
        "inside": lower <= value <= upper,
    }
    return [row]


def stopping(quick: bool) -> Plan:
    """Each of the problems with each of the pruners."""
    seeds = 10
    trials = 50
    if quick:
        seeds = 1
        trials = 8
    arguments = [
        {"problem": problem, "name": name, "trials": trials}
        for problem, name in itertools.product(SPACES, PRUNERS)
    ]
    return Plan(
        f"{trials} trials: share of the steps, and final error of the recommended parameters (difference to no pruner, "
        "mean ± standard error)",
        {"": summary},
        {".md": store(summary), ".csv": store(lambda rows: rows)},
        cells_of(run, range(seeds), arguments),
    )


def summary(rows: Frame) -> Frame:
    """Return the share of the steps and the error: a line for each problem and for all, a column for each pruner."""
    lines: dict[str, dict[Any, str]] = {}
    for (problem, name), part in rows.groupby(["problem", "name"], sort=False):
        without_pruner = rows[(rows["problem"] == problem) & (rows["name"] == "none")]
        difference = part.set_index("seed")["value"] - without_pruner.set_index("seed")["value"]
        error = f"{part['value'].mean():.4f} ({difference.mean():+.4f} ± {difference.sem():.4f})"
        lines.setdefault(str(problem), {})[name] = f"{part['share'].mean():.0%}, {error}"
    of_all = {}
    for name, part in rows.groupby("name"):
        shares = part[["share", "stopped", "inside"]].mean()
        of_all[name] = ", ".join(f"{share:.0%}" for share in shares)
    lines["steps, trials stopped, interval right"] = of_all
    return pd.DataFrame(lines).T[list(rows["name"].unique())]
