"""Tuners compared: kbo against BoTorch, Optuna and random search, on noisy functions and real tuning tasks.

A recommendation is judged by its value without noise: its simple regret, or, where the optimum is not known, the mean
of new evaluations. Tuners recommend what they recommend to their own users (``kbo.experiments.tuning.tuners``), and
have the same problems and seeds. CPU time is the tuner's own, on one thread.

The study "practice" is how the defaults of the practical setting were chosen, on other problems than those of the
tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from kbo.experiments.draw import tables
from kbo.experiments.papers.experiment import Frame, Paper, Plan, store
from kbo.experiments.sweep.cells import Cell
from kbo.experiments.tuning import tuners
from kbo.experiments.tuning.runs import PRACTICE, SUITE, cell

TUNERS = tuple(tuners.TUNERS)
SEEDS = 20
LONG_SEEDS = {"qlognei": 3, "gpsampler": 5}
"""Seeds with 200 trials, of tuners that take minutes for them; the others run all seeds."""

EXPENSIVE = ("digits",)
"""Problems that take seconds a trial; run for 50 trials."""

FEW_SEEDS = 3
"""Seeds of 2000 trials."""

FAST = ("kbo", "tpe", "random")
"""Tuners that can do 2000 trials in minutes."""

_WIDTHS, _COMMON, _OWN = (
    "kbo.recipes.registry.PRACTICAL_WIDTHS",
    "kbo.optimize.fitting.COMMON",
    "kbo.optimize.fitting.OWN",
)

VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "width 1": {"constants": {_WIDTHS: [1.0]}},
    "width 2": {"constants": {_WIDTHS: [2.0]}},
    "widths 1 and 2": {"constants": {_WIDTHS: [1.0, 2.0]}},
    "own lengthscales": {"constants": {_COMMON: 0.0, _OWN: 3.0}},
    "cut at 3": {"constants": {"kbo.optimize.practical.OUTLYING": 3.0}},
    "dmm-ucb": {"options": {"method": "dmm-ucb"}},
}
"""Variants of the practical setting that were compared on the practice problems."""

PRACTICE_SEEDS = 5


def comparison(quick: bool) -> Plan:
    """Table 1: 50 and 200 trials."""
    seeds, short, long = (2, 9, 12) if quick else (SEEDS, 50, 200)
    cells: dict[Cell, str] = {}
    for seed in range(seeds):
        for problem in SUITE:
            for name in TUNERS:
                both = problem not in EXPENSIVE and seed < LONG_SEEDS.get(name, seeds)
                cells[cell(problem, name, seed, [short, long] if both else [short])] = name
    return _plan(cells)


def long_runs(quick: bool) -> Plan:
    """Table 2: 2000 trials."""
    trials, seeds = (12, 1) if quick else (2000, FEW_SEEDS)
    problems = [problem for problem in SUITE if problem not in EXPENSIVE]
    return _plan(
        {cell(problem, name, seed, [trials]): name for seed in range(seeds) for problem in problems for name in FAST}
    )


def practice(quick: bool) -> Plan:
    """Variants of the practical setting on problems of their own."""
    seeds, checkpoints = (1, [9]) if quick else (PRACTICE_SEEDS, [50, 200])
    return _plan(
        {
            cell(problem, "kbo", seed, checkpoints, variant, **changes): variant
            for seed in range(seeds)
            for problem in PRACTICE
            for variant, changes in VARIANTS.items()
        }
    )


def _plan(cells: Mapping[Cell, str]) -> Plan:
    """The table of the cells, each with the name of its column."""
    names = {each.key: name for each, name in cells.items()}
    stored = ["problem", "name", "seed", "trials", "value", "regret", "cpu_seconds"]
    return Plan(
        "regret (diabetes, digits: value) without noise, mean ± standard error; * in the best group, see docs",
        {"": summary},
        {".md": store(summary), ".csv": store(lambda rows: rows[stored])},
        list(cells),
        prepare=lambda rows: rows.assign(name=rows["cell"].map(names)),
    )


def summary(rows: Frame) -> Frame:
    """A line for every problem and number of trials, a column for every tuner, CPU seconds a run at the end.

    A star marks the best group: those that no other beats by two standard errors of the differences, over the seeds
    that both ran.

    Args:
        rows: Tidy rows with ``problem``, ``name``, ``seed``, ``trials``, ``value``, ``regret``, ``cpu_seconds``.
    """
    found = {}
    for trials, at in rows.groupby("trials"):
        for problem, part in at.groupby("problem", sort=False):
            score = "regret" if part["regret"].notna().all() else "value"
            by_tuner = part.pivot_table(index="seed", columns="name", values=score)
            best = best_group(by_tuner)
            found[problem, trials] = {name: _cell(by_tuner[name], name in best) for name in by_tuner}
        found["CPU s a run", trials] = at.groupby("name")["cpu_seconds"].mean().map("{:.1f}".format)
    table = pd.DataFrame(found).T.rename_axis(["problem", "trials"])
    return table[rows["name"].unique()].fillna(tables.NONE)


def best_group(table: Any) -> set[str]:
    """Return the columns that no other one beats, by being less by two standard errors over the rows of both."""

    def beaten(name: str, by: str) -> bool:
        difference = (table[name] - table[by]).dropna()
        return len(difference) > 1 and float(difference.mean()) > 2 * float(difference.sem())

    return {name for name in table if not any(beaten(name, other) for other in table if other != name)}


def _cell(values: Any, starred: bool) -> str:
    values = values.dropna()
    error = f" ± {values.sem():.1g}" if len(values) > 1 else ""
    few = f" ({len(values)})" if len(values) < SEEDS else ""
    return f"{values.mean():.3g}{error}{few}{'*' if starred else ''}"


PAPER = Paper(
    title="Tuners compared: kbo, BoTorch's qLogNEI, Optuna's GPSampler and TPE, random search",
    tables={1: comparison, 2: long_runs},
    studies={"practice": practice},
)
