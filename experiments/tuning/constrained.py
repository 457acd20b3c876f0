"""Comparison of tuners with constraints: how good the recommended point is, and how often it is truly infeasible.

Every output has noise, so a trial that was observed as feasible may be infeasible. A recommendation is judged without
noise, by its regret relative to the best feasible point. An infeasible or missing recommendation counts as the worst.
"""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from experiments.output import tables
from experiments.papers.experiment import Frame, Plan, store
from experiments.problems import CONSTRAINED
from experiments.sweep.cells import Cell, Rows
from experiments.tuning import ranks, tuners
from experiments.tuning.runs import code, timed

REPORTED = ("gardner1", "gardner2", "townsend", "gramacy", "pressure-vessel", "welded-beam")
"""Problems of the table; nothing was tuned on these. The other problems of ``CONSTRAINED`` are for development."""

TUNERS = ("kbo", "qlognei", "ax", "gpsampler", "tpe", "random")

SEEDS = 10
TRIALS = 50

FEWER = {"gpsampler": 5, "qlognei": 3, "ax": 2}
"""Number of runs on each problem for tuners that take more than 20 CPU seconds a run (gpsampler: 6 to 40)."""


def run(problem: str, name: str, seed: int, trials: int, version: str = "") -> Rows:
    """Run a tuner on a problem with constraints.

    Args:
        problem: A key of ``CONSTRAINED``.
        name: A key of ``tuners.TUNERS`` that takes constraints.
        seed: Seed of noise and tuner.
        trials: Number of trials.
        version: A hash of the code of the tuner. It is not used; it makes runs of different code different cells.

    Returns:
        One row: ``regret``, NaN if the recommendation is infeasible or there is none, and ``cpu_seconds``.
    """
    objective = CONSTRAINED[problem](seed=seed)
    constraints = objective.constraints
    spent: list[float] = []
    with timed(spent):
        tuner = tuners.tuner(name, objective.space, seed, trials, constraints=constraints)
    for _ in range(trials):
        with timed(spent):
            params = tuner.ask()
        value = objective(params)
        with timed(spent):
            tuner.tell(params, value)
    with timed(spent):
        recommended = tuner.recommended()
    regret = math.nan
    if recommended is not None and objective.feasible(recommended):
        regret = objective.noiseless(recommended) - objective.optimum
    return [{"regret": regret, "cpu_seconds": sum(spent)}]


def constrained(quick: bool) -> Plan:
    """Each of the reported problems with each of the tuners."""
    seeds = SEEDS
    trials = TRIALS
    problems = REPORTED
    if quick:
        seeds = 2
        trials = 8
        problems = REPORTED[:2]
    cells = []
    for seed in range(seeds):
        for name in TUNERS:
            if seed < FEWER.get(name, seeds):
                cells += [_cell(problem, name, seed, trials) for problem in problems]
    return Plan(
        f"{trials} trials: regret of the recommended point, mean ± standard error of the runs in which it is feasible "
        "(in brackets the runs in which it is not, or there is none)",
        {"": summary},
        {".md": store(summary), ".csv": store(lambda rows: rows)},
        cells,
    )


def _cell(problem: str, name: str, seed: int, trials: int) -> Cell:
    """Return the run as a cell."""
    arguments = {"problem": problem, "name": name, "seed": seed, "trials": trials}
    if name == "kbo":
        arguments["version"] = code()
    return Cell(f"{__name__}:run", arguments, f"{problem} {name} {seed} {trials}")


def summary(rows: Frame) -> Frame:
    """Return a line for each problem, then mean ranks, shares of infeasible recommendations and times of a run."""
    lines: dict[str, dict[str, str]] = {}
    for (problem, name), part in rows.groupby(["problem", "name"], sort=False):
        lines.setdefault(problem, {})[name] = _regret_words(part["regret"])
    scores = rows.fillna({"regret": math.inf})
    scores = scores.pivot(index=["problem", "seed"], columns="name", values="regret")
    lines["mean rank"] = ranks.rank_words(ranks.mean_ranks(scores)).to_dict()
    by_name = rows.groupby("name")
    shares = by_name["regret"].agg(lambda regret: regret.isna().mean())
    lines["infeasible"] = shares.map("{:.0%}".format).to_dict()
    lines["CPU s a run"] = by_name["cpu_seconds"].mean().map("{:.1f}".format).to_dict()
    return pd.DataFrame(lines).T.rename_axis("problem")[rows["name"].unique()].fillna(tables.NONE)


def _regret_words(regrets: Any) -> str:
    """Return the mean of the known regrets, its standard error, and the number of unknown ones, as text."""
    known = regrets.dropna()
    words = tables.NONE
    if len(known):
        words = f"{known.mean():.3g}"
    if len(known) > 1:
        words += f" ± {known.sem():.1g}"
    return f"{words} ({len(regrets) - len(known)} of {len(regrets)})"
