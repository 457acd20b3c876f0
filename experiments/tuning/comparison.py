"""Comparison of tuners: kbo against BoTorch, Optuna and random search, on noisy functions and real tuning tasks.

A recommendation is judged by its value without noise: by its simple regret, or, if the optimum is unknown, by the mean
of new evaluations. Each tuner recommends what it recommends to its own users (``experiments.tuning.tuners``). All have
the same problems and seeds. CPU time is that of the tuner without the problem, on one thread.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from experiments.output import tables
from experiments.papers.experiment import Frame, Paper, Plan, store
from experiments.problems import TuningProblem
from experiments.sweep.cells import Cell, Rows
from experiments.tuning import tuners
from experiments.tuning.constrained import constrained
from experiments.tuning.infeasible import infeasible
from experiments.tuning.runs import code, timed
from experiments.tuning.stopping import stopping
from experiments.tuning.suites import CONDITIONAL, PROBLEMS, TABLES, true_value
from kbo.space import Params

TUNERS = ("kbo", "qlognei", "gpsampler", "tpe", "random")
SEEDS = 20

EXPENSIVE = ("digits",)
"""Problems with seconds per trial; their runs have 50 trials."""

FAST = ("kbo", "tpe", "random")
"""Tuners that can do 2000 trials in minutes."""


def run(problem: str, name: str, seed: int, checkpoints: Sequence[int], code: str = "") -> Rows:
    """Run a tuner on a problem.

    Args:
        problem: A key of ``suites.PROBLEMS``.
        name: A key of ``tuners.TUNERS``.
        seed: Seed of problem, noise and tuner.
        checkpoints: Numbers of trials after which the recommendation is judged; the run ends with the last.
        code: A hash of the code of the tuner. It is not used; it makes runs of different code different cells.

    Returns:
        A row at every checkpoint, and at every trial that is better than all before it: ``trials``; ``value`` (without
        noise) and ``regret`` of the recommendation, NaN between checkpoints, infinite if it violates the constraints;
        ``visited_regret``, of the trial with the best value without noise; ``cpu_seconds`` of the tuner, without the
        objective. Regrets are NaN if the optimum, or the value without noise, is unknown.
    """
    objective = PROBLEMS[problem](seed=seed)
    options = {}
    if objective.constraints:
        options["constraints"] = objective.constraints
    spent: list[float] = []
    with timed(spent):
        tuner = tuners.tuner(name, objective.space, seed, max(checkpoints), **options)
    rows = []
    best = math.inf
    for trial in range(1, max(checkpoints) + 1):
        with timed(spent):
            params = tuner.ask()
        value = objective(params)
        visited = visited_value(objective, params)
        with timed(spent):
            tuner.tell(params, value)
        improved = visited < best
        best = min(visited, best)
        recommended_value = math.nan
        if trial in checkpoints:
            with timed(spent):
                recommended = tuner.recommended()
            recommended_value = judged_value(problem, objective, recommended, seed)
        if trial in checkpoints or improved:
            row = {
                "trials": trial,
                "value": recommended_value,
                "regret": regret(objective, recommended_value),
                "visited_regret": math.nan,
                "cpu_seconds": sum(spent),
            }
            if best < math.inf:
                row["visited_regret"] = regret(objective, best)
            rows.append(row)
    return rows


def visited_value(objective: TuningProblem, params: Params) -> float:
    """Return the value without noise of a trial; infinity if it is unknown, or if a constraint is violated."""
    if not objective.feasible(params):
        return math.inf
    value = objective.noiseless(params)
    if value is None:
        return math.inf
    return value


def judged_value(
    problem: str, objective: TuningProblem, recommended: Params | None, seed: int
) -> float:
    """Return the value without noise of a recommendation; infinity if there is none, or if it breaks a constraint."""
    if recommended is None or not objective.feasible(recommended):
        return math.inf
    return true_value(PROBLEMS[problem], objective, recommended, seed)


def regret(objective: TuningProblem, value: float) -> float:
    """Return the difference between a value and the optimum; NaN if the optimum is unknown."""
    if objective.optimum is None:
        return math.nan
    return value - objective.optimum


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
    seeds = SEEDS
    short = 50
    long = 200
    if quick:
        seeds = 2
        short = 9
        long = 12
    cells = []
    for seed in range(seeds):
        for problem in TABLES:
            for name in TUNERS:
                checkpoints = [short]
                if problem not in EXPENSIVE and seed < tuners.seeds_of(name, long, seeds):
                    checkpoints = [short, long]
                cells.append(cell(problem, name, seed, checkpoints))
    return _plan(cells)


def long_runs(quick: bool) -> Plan:
    """Table 2: 2000 trials."""
    seeds = 3
    trials = 2000
    if quick:
        seeds = 1
        trials = 12
    cheap = [problem for problem in TABLES if problem not in EXPENSIVE]
    return _plan(cells_of(range(seeds), cheap, FAST, [trials]))


def conditional(quick: bool) -> Plan:
    """Spaces with conditional parameters: 30 and 60 trials."""
    seeds = 10
    checkpoints = [30, 60]
    if quick:
        seeds = 1
        checkpoints = [7, 9]
    names = ("kbo", "kbo-sampler", "tpe", "tpe-group", "random")
    return _plan(cells_of(range(seeds), CONDITIONAL, names, checkpoints))


def cells_of(
    seeds: Iterable[int],
    problems: Iterable[str],
    names: Iterable[str],
    checkpoints: Sequence[int],
) -> list[Cell]:
    """Return the run of each tuner on each problem with each seed."""
    runs = itertools.product(seeds, problems, names)
    return [cell(problem, name, seed, checkpoints) for seed, problem, name in runs]


def _plan(cells: Sequence[Cell]) -> Plan:
    """Return the table of the cells."""
    stored = ["problem", "name", "seed", "trials", "value", "regret", "cpu_seconds"]
    return Plan(
        "regret without noise (of learners and diabetes: value), mean ± standard error; * no other tuner is better by "
        "two standard errors of the difference",
        {"": summary},
        {".md": store(summary), ".csv": store(lambda rows: rows[stored])},
        cells,
        prepare=lambda rows: rows.dropna(subset="value"),
    )


def summary(rows: Frame) -> Frame:
    """Return the mean scores: a line for every problem and number of trials, a column for every tuner.

    The last line for each number of trials has the CPU seconds of a run. A star marks the best group: tuners that no
    other one beats by two standard errors of the difference, over the seeds of both.

    Args:
        rows: Tidy rows with ``problem``, ``name``, ``seed``, ``trials``, ``value``, ``regret``, ``cpu_seconds``.
    """
    lines = {}
    for trials, of_trials in rows.groupby("trials"):
        for problem, of_problem in of_trials.groupby("problem", sort=False):
            score = "value"
            if of_problem["regret"].notna().all():
                score = "regret"
            by_tuner = of_problem.pivot_table(index="seed", columns="name", values=score)
            best = best_group(by_tuner)
            lines[problem, trials] = {
                name: _cell(by_tuner[name].dropna(), name in best) for name in by_tuner
            }
        seconds = of_trials.groupby("name")["cpu_seconds"].mean()
        lines["CPU s a run", trials] = seconds.map("{:.1f}".format)
    table = pd.DataFrame(lines).T.rename_axis(["problem", "trials"])
    return table[rows["name"].unique()].fillna(tables.NONE)


def best_group(table: Any) -> set[str]:
    """Return the columns that no other column beats: it would be less by two standard errors over common rows."""

    def is_beaten(name: str) -> bool:
        return any(is_less(table[other], table[name]) for other in table if other != name)

    return {name for name in table if not is_beaten(name)}


def is_less(scores: Any, other: Any) -> bool:
    """Return whether scores are less than others by two standard errors of the mean difference, over common rows."""
    difference = (other - scores).dropna()
    return len(difference) > 1 and float(difference.mean()) > 2 * float(difference.sem())


def _cell(scores: Any, is_best: bool) -> str:
    """Return the mean, its standard error, the number of runs if there are fewer than usual, and the star."""
    words = f"{scores.mean():.3g}"
    if len(scores) > 1:
        words += f" ± {scores.sem():.1g}"
    if len(scores) < SEEDS:
        words += f" ({len(scores)})"
    if is_best:
        words += "*"
    return words


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
