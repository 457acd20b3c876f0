"""Constraints compared: how good the recommended point is, and how often it is truly infeasible.

Every output has noise, so a trial that was observed to be feasible need not be. A recommendation is judged without
noise: its regret is that to the best feasible point; one that is infeasible, or none, counts as worse than any other.
"""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from experiments import tables
from experiments.papers.experiment import Frame, Plan, store
from experiments.problems import CONSTRAINED
from experiments.sweep.cells import Cell, Rows
from experiments.tuning import tuners
from experiments.tuning.ranks import mean_ranks
from experiments.tuning.runs import code, timed

REPORTED = ("gardner1", "gardner2", "townsend", "gramacy", "pressure-vessel", "welded-beam")
"""Problems of the table; nothing was tuned on these. The others of ``CONSTRAINED`` are to develop on."""

TUNERS = ("kbo", "qlognei", "ax", "gpsampler", "tpe", "random")

SEEDS, TRIALS = 10, 50

FEWER = {"gpsampler": 5, "qlognei": 3, "ax": 2}
"""Tuners with fewer runs on each problem, where a run takes more than 20 CPU seconds (gpsampler: 6 to 40)."""


def run(problem: str, name: str, seed: int, trials: int, version: str = "") -> Rows:
    """Run a tuner on a problem with constraints.

    Args:
        problem: A key of ``CONSTRAINED``.
        name: A key of ``tuners.TUNERS`` that takes constraints.
        seed: Of noise and tuner.
        trials: Number of trials.
        version: The code of the tuner, as a hash; only there to make runs of another code other cells.

    Returns:
        One row: ``regret``, NaN if the recommendation is infeasible or there is none, and ``cpu_seconds``.
    """
    objective = CONSTRAINED[problem](seed=seed)
    spent = []
    with timed(spent):
        chosen = tuners.tuner(
            name, objective.space, seed, trials, constraints=objective.constraints
        )
    for _ in range(trials):
        with timed(spent):
            params = chosen.ask()
        value = objective(params)
        with timed(spent):
            chosen.tell(params, value)
    with timed(spent):
        found = chosen.recommended()
    regret = math.nan
    if found is not None and objective.feasible(found):
        regret = objective.noiseless(found) - objective.optimum
    return [{"regret": regret, "cpu_seconds": sum(spent)}]


def constrained(quick: bool) -> Plan:
    """Each of the reported problems with each of the tuners."""
    seeds, trials, problems = (2, 8, REPORTED[:2]) if quick else (SEEDS, TRIALS, REPORTED)
    arguments = [
        {"problem": problem, "name": name, "seed": seed, "trials": trials}
        for seed in range(seeds)
        for name in TUNERS
        for problem in problems
        if seed < FEWER.get(name, seeds)
    ]
    return Plan(
        f"{trials} trials: regret of the recommended point, mean ± standard error of the runs in which it is feasible "
        "(in brackets the runs in which it is not, or there is none)",
        {"": summary},
        {".md": store(summary), ".csv": store(lambda rows: rows)},
        [_cell(**each) for each in arguments],
    )


def _cell(**arguments: Any) -> Cell:
    version = {"version": code()} if arguments["name"] == "kbo" else {}
    return Cell(f"{__name__}:run", arguments | version, " ".join(map(str, arguments.values())))


def summary(rows: Frame) -> Frame:
    """A line for each problem, then the mean rank, the share of infeasible recommendations and the time of a run."""
    found: dict[str, dict[str, str]] = {}
    for (problem, name), part in rows.groupby(["problem", "name"], sort=False):
        regret, missing = part["regret"].dropna(), part["regret"].isna()
        error = f" ± {regret.sem():.1g}" if len(regret) > 1 else ""
        shown = f"{regret.mean():.3g}{error}" if len(regret) else tables.NONE
        found.setdefault(problem, {})[name] = f"{shown} ({missing.sum()} of {len(part)})"
    scores = rows.fillna({"regret": math.inf}).pivot(
        index=["problem", "seed"], columns="name", values="regret"
    )
    standing, by_name = mean_ranks(scores), rows.groupby("name")
    found["mean rank"] = {
        str(name): f"{at['rank']:.2f} [{at['low']:.2f}, {at['high']:.2f}]"
        for name, at in standing.iterrows()
    }
    shares = by_name["regret"].agg(lambda regret: regret.isna().mean())
    found["infeasible"] = shares.map("{:.0%}".format).to_dict()
    found["CPU s a run"] = by_name["cpu_seconds"].mean().map("{:.1f}".format).to_dict()
    return pd.DataFrame(found).T.rename_axis("problem")[rows["name"].unique()].fillna(tables.NONE)
