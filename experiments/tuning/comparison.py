"""Tuners compared: kbo against BoTorch, Optuna and random search, on noisy functions and real tuning tasks.

A recommendation is judged by its value without noise: its simple regret, or, where the optimum is not known, the mean
of new evaluations. Tuners recommend what they recommend to their own users (``experiments.tuning.tuners``), and
have the same problems and seeds. CPU time is the tuner's own, on one thread.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from experiments import tables
from experiments.papers.experiment import Frame, Paper, Plan, store
from experiments.sweep.cells import Cell
from experiments.tuning import tuners
from experiments.tuning.constrained import constrained
from experiments.tuning.infeasible import infeasible
from experiments.tuning.runs import code, timed
from experiments.tuning.stopping import stopping
from experiments.tuning.suites import CONDITIONAL, PROBLEMS, TABLES, true_value

TUNERS = ("kbo", "qlognei", "gpsampler", "tpe", "random")
SEEDS = 20

EXPENSIVE = ("digits",)
"""Problems that take seconds a trial; run for 50 trials."""

FAST = ("kbo", "tpe", "random")
"""Tuners that can do 2000 trials in minutes."""


def run(
    problem: str,
    name: str,
    seed: int,
    checkpoints: Sequence[int],
    code: str = "",
) -> list[dict[str, Any]]:
    """Run a tuner on a problem.

    Args:
        problem: A key of ``suites.PROBLEMS``.
        name: A key of ``tuners.TUNERS``.
        seed: Of problem, noise and tuner.
        checkpoints: Numbers of trials after which the recommendation is judged; the run ends with the last.
        code: The code of the tuner, as a hash; only there to make runs of another code other cells.

    Returns:
        A row at every checkpoint, and at every trial that is better than all before: ``trials``; ``value`` (without
        noise) and ``regret`` of the recommendation, NaN between checkpoints, infinite where it does not satisfy the
        constraints; ``visited_regret`` of the best trial by its value without noise; ``cpu_seconds`` of the tuner, the
        objective's own not included. Regrets are NaN where the optimum, or the value without noise, is not known.
    """
    make, rows, spent, nan = PROBLEMS[problem], [], [], math.nan
    objective = make(seed=seed)
    optimum = nan if objective.optimum is None else objective.optimum
    options: dict[str, Any] = {}
    if objective.constraints:
        options["constraints"] = objective.constraints
    with timed(spent):
        chosen = tuners.tuner(name, objective.space, seed, max(checkpoints), **options)
    best = math.inf
    for trial in range(1, max(checkpoints) + 1):
        with timed(spent):
            params = chosen.ask()
        value = objective(params)
        truth = None
        if objective.feasible(params):
            truth = objective.noiseless(params)
        with timed(spent):
            chosen.tell(params, value)
        improved = truth is not None and truth < best
        if truth is not None:
            best = min(truth, best)
        judged = nan
        if trial in checkpoints:
            with timed(spent):
                recommended = chosen.recommended()
            judged = math.inf
            if recommended is not None and objective.feasible(recommended):
                judged = true_value(make, objective, recommended, seed)
        if trial in checkpoints or improved:
            regrets = {
                "regret": judged - optimum,
                "visited_regret": nan if math.isinf(best) else best - optimum,
            }
            rows.append({"trials": trial, "value": judged, **regrets, "cpu_seconds": sum(spent)})
    return rows


def cell(problem: str, name: str, seed: int, checkpoints: Sequence[int]) -> Cell:
    """Return the run as a cell."""
    arguments: dict[str, Any] = {
        "problem": problem,
        "name": name,
        "seed": seed,
        "checkpoints": list(checkpoints),
    }
    if name == "kbo":
        arguments["code"] = code()
    return Cell(f"{__name__}:run", arguments, f"{problem} {name}  seed{seed} T{max(checkpoints)}")


def comparison(quick: bool) -> Plan:
    """Table 1: 50 and 200 trials."""
    seeds, short, long = (2, 9, 12) if quick else (SEEDS, 50, 200)
    cells: dict[Cell, str] = {}
    for seed in range(seeds):
        for problem in TABLES:
            for name in TUNERS:
                both = problem not in EXPENSIVE and seed < tuners.seeds_of(name, long, seeds)
                cells[cell(problem, name, seed, [short, long] if both else [short])] = name
    return _plan(cells)


def long_runs(quick: bool) -> Plan:
    """Table 2: 2000 trials."""
    trials, seeds = (12, 1) if quick else (2000, 3)
    cheap = [problem for problem in TABLES if problem not in EXPENSIVE]
    return _plan(
        {
            cell(problem, name, seed, [trials]): name
            for seed in range(seeds)
            for problem in cheap
            for name in FAST
        }
    )


def conditional(quick: bool) -> Plan:
    """Spaces with conditional parameters: 30 and 60 trials."""
    seeds, checkpoints = (1, [7, 9]) if quick else (10, [30, 60])
    names = ("kbo", "kbo-sampler", "tpe", "tpe-group", "random")
    return _plan(
        {
            cell(problem, name, seed, checkpoints): name
            for seed in range(seeds)
            for problem in CONDITIONAL
            for name in names
        }
    )


def _plan(cells: Mapping[Cell, str]) -> Plan:
    """The table of the cells, each with the name of its column."""
    names = {each.key: name for each, name in cells.items()}
    stored = ["problem", "name", "seed", "trials", "value", "regret", "cpu_seconds"]
    return Plan(
        "regret without noise (of learners and diabetes: value), mean ± standard error; * in the best group, see docs",
        {"": summary},
        {".md": store(summary), ".csv": store(lambda rows: rows[stored])},
        list(cells),
        prepare=lambda rows: rows.dropna(subset="value").assign(name=rows["cell"].map(names)),
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
            found[problem, trials] = {
                name: _cell(by_tuner[name], name in best) for name in by_tuner
            }
        found["CPU s a run", trials] = at.groupby("name")["cpu_seconds"].mean().map("{:.1f}".format)
    table = pd.DataFrame(found).T.rename_axis(["problem", "trials"])
    return table[rows["name"].unique()].fillna(tables.NONE)


def best_group(table: Any) -> set[str]:
    """Return the columns that no other one beats, by being less by two standard errors over the rows of both."""

    def beaten(name: str, by: str) -> bool:
        difference = (table[name] - table[by]).dropna()
        return len(difference) > 1 and float(difference.mean()) > 2 * float(difference.sem())

    return {
        name for name in table if not any(beaten(name, other) for other in table if other != name)
    }


def _cell(values: Any, starred: bool) -> str:
    values = values.dropna()
    error = f" ± {values.sem():.1g}" if len(values) > 1 else ""
    few = f" ({len(values)})" if len(values) < SEEDS else ""
    return f"{values.mean():.3g}{error}{few}{'*' if starred else ''}"


PAPER = Paper(
    title="Tuners compared: kbo, BoTorch's qLogNEI, Optuna's GPSampler and TPE, random search",
    tables={1: comparison, 2: long_runs},
    studies={
        "conditional": conditional,
        "stopping": stopping,
        "constrained": constrained,
        "infeasible": infeasible,
    },
)


if __name__ == "__main__":
    from experiments.papers.command import main

    main("tuning")
