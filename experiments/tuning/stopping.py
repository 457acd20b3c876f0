"""Early stopping compared: how many steps of training are saved, and what that costs in quality.

``kbo.minimize`` without a pruner and with each of them, on recorded trainings. The quality of a run is the mean final
error of the recommended parameters.
"""

from __future__ import annotations

from typing import Any

import kbo
from experiments.papers.experiment import Frame, Plan, cells_of, store
from experiments.problems.curves import SPACES, STEPS, TrainingCurves
from experiments.sweep.cells import Rows

PRUNERS = {"none": None, "curves": "curves", "median": "median", "hyperband": "hyperband"}
"""Names of the runs, and their pruners."""


def run(problem: str, name: str, seed: int, trials: int) -> Rows:
    """Run kbo with a pruner; return the share of the steps of whole trainings, and the final error."""
    objective = TrainingCurves(problem, seed=seed)
    result = kbo.minimize(objective, objective.space, trials, seed=seed, pruner=PRUNERS[name])
    assert result.params is not None
    steps, stopped = (
        sum(len(t.reports) for t in result.trials),
        sum(t.pruned for t in result.trials),
    )
    value, interval = objective.noiseless(result.params), (result.lower or 0.0, result.upper or 0.0)
    return [
        {
            "problem": problem,
            "name": name,
            "share": steps / (trials * STEPS),
            "stopped": stopped / trials,
            "value": value,
            "inside": interval[0] <= value <= interval[1],
        }
    ]


def stopping(quick: bool) -> Plan:
    """Each of the problems with each of the pruners."""
    seeds, trials = (1, 8) if quick else (10, 50)
    arguments = [
        {"problem": problem, "name": name, "trials": trials}
        for problem in SPACES
        for name in PRUNERS
    ]
    return Plan(
        f"{trials} trials: share of the steps, and final error of the recommended parameters (difference to no pruner, "
        "mean ± standard error)",
        {"": summary},
        {".md": store(summary), ".csv": store(lambda rows: rows)},
        cells_of(run, range(seeds), arguments),
    )


def summary(rows: Frame) -> Frame:
    """A line for each problem and the mean, and for each pruner the share of the steps, and quality."""
    found: dict[str, dict[Any, str]] = {}
    for (problem, name), part in rows.groupby(["problem", "name"], sort=False):
        whole = rows[(rows["problem"] == problem) & (rows["name"] == "none")]
        more = part.set_index("seed")["value"] - whole.set_index("seed")["value"]
        error = f"{part['value'].mean():.4f} ({more.mean():+.4f} ± {more.sem():.4f})"
        found.setdefault(str(problem), {})[name] = f"{part['share'].mean():.0%}, {error}"
    for name, part in rows.groupby("name"):
        shares = (
            f"{part['share'].mean():.0%}, {part['stopped'].mean():.0%}, {part['inside'].mean():.0%}"
        )
        found.setdefault("steps, trials stopped, interval right", {})[name] = shares
    import pandas as pd

    return pd.DataFrame(found).T[list(rows["name"].unique())]
