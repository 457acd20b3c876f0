"""``python -m experiments.tuning.fronts``: tuners of several objectives, by the fronts that they recommend.

A front is judged by the true values of its trials, without noise: by its hypervolume, as a share of the hypervolume of
the best known front. This front consists of all trials of all runs on the problem.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import torch
import typer
from torch import Tensor

from experiments import commands
from experiments.commands import Out, Quiet, Verbose, Workers
from experiments.output import tables
from experiments.papers.experiment import Frame
from experiments.problems.objectives import DEVELOPMENT, HELD_OUT
from experiments.sweep.cells import Cell, Rows
from experiments.tuning.front_tuners import TUNERS, tuner
from experiments.tuning.ranks import mean_ranks, rank_words
from experiments.tuning.runs import code, timed
from kbo._base import checks
from kbo.optimize.objectives.hypervolume import non_dominated

PROBLEMS: Mapping[str, Any] = {"development": DEVELOPMENT, "held-out": HELD_OUT}

NOISES = (0.0, 0.05)
"""Noise of the objectives in the comparison, in interquartile ranges."""

CHECKPOINTS = (60, 150)
"""Numbers of trials after which fronts are judged."""

SLOW = ("gpsampler", "qlognehvi")
"""Tuners that run on few problems and to the first checkpoint only: 60 trials take about 20 and 100 CPU seconds."""

N_SLOW_PROBLEMS = 6
"""Number of problems for the slow tuners; they are spread over the suite."""

SLOWEST_NOISE = 0.05
"""The only noise with which qLogNEHVI runs."""


def run(
    suite: str,
    problem: str,
    name: str,
    noise: float,
    seed: int,
    checkpoints: Sequence[int],
    version: str = "",
) -> Rows:
    """Run a tuner on a problem.

    Args:
        suite: A key of ``PROBLEMS``.
        problem: The name of one of its problems.
        name: A key of ``front_tuners.TUNERS``.
        noise: The standard deviation of the noise, in interquartile ranges of each objective.
        seed: Seed of noise and tuner.
        checkpoints: Numbers of trials after which the front is judged; the run ends with the last.
        version: A hash of the code of the tuner. It is not used; it makes runs of different code different cells.

    Returns:
        A row at every checkpoint: ``front``, the true values of the recommended trials, and ``visited``, those of the
        trials that no other trial of the run dominates, both in JSON; ``reference``; and ``cpu_seconds`` of the tuner.
    """
    objectives = PROBLEMS[suite][problem](noise=noise, seed=seed)
    spent: list[float] = []
    with timed(spent):
        chosen = tuner(name, objectives.space, seed, objectives.names)
    rows: Rows = []
    visited = []
    for trial in range(1, max(checkpoints) + 1):
        with timed(spent):
            params = chosen.ask()
        values = objectives(params)
        visited.append(objectives.truth(params))
        with timed(spent):
            chosen.tell(params, values)
        if trial not in checkpoints:
            continue
        with timed(spent):
            recommended = chosen.recommended()
        utilities = minus(visited)
        row = {
            "trials": trial,
            "front": json.dumps([objectives.truth(params) for params in recommended]),
            "visited": json.dumps(minus(utilities[non_dominated(utilities)]).tolist()),
            "reference": json.dumps(objectives.reference),
            "cpu_seconds": sum(spent),
        }
        rows.append(row)
    return rows


def hypervolume(values: Sequence[Sequence[float]], reference: Sequence[float]) -> float:
    """Return the hypervolume of values [n m] with a reference [m], computed by BoTorch; smaller values are better."""
    from botorch.utils.multi_objective.hypervolume import Hypervolume

    least = minus([reference])[0]
    utilities = minus(values)
    utilities = utilities[(utilities > least).all(-1)].unique(dim=0)
    if not len(utilities):
        return 0.0
    return Hypervolume(least).compute(utilities[non_dominated(utilities)])


def minus(values: Any) -> Tensor:
    """Return minus the values [n m], so that larger ones are better."""
    return -torch.as_tensor(values, dtype=torch.float64)


def cells(suite: str, seeds: int, names: Sequence[str], trials: Sequence[int]) -> list[Cell]:
    """Return the runs of a suite.

    Args:
        suite: A key of ``PROBLEMS``.
        seeds: Number of runs on a problem with each noise; the seeds are 1, 2, ...
        names: Keys of ``front_tuners.TUNERS``.
        trials: Numbers of trials after which fronts are judged.
    """
    problems = list(PROBLEMS[suite])
    for_slow = [problems[i * len(problems) // N_SLOW_PROBLEMS] for i in range(N_SLOW_PROBLEMS)]
    runs = []
    for seed in range(1, seeds + 1):
        for problem, noise, name in itertools.product(problems, NOISES, names):
            if name in SLOW and problem not in for_slow:
                continue
            if name == "qlognehvi" and noise != SLOWEST_NOISE:
                continue
            checkpoints = list(trials)
            if name in SLOW:
                checkpoints = checkpoints[:1]
            arguments = {
                "suite": suite,
                "problem": problem,
                "name": name,
                "noise": noise,
                "seed": seed,
                "checkpoints": checkpoints,
            }
            if name == "kbo":
                arguments["version"] = code()
            label = f"{problem} {name} {noise} seed{seed} T{checkpoints[-1]}"
            runs.append(Cell("experiments.tuning.fronts:run", arguments, label))
    return runs


def shares(rows: Frame) -> Frame:
    """Return the hypervolume of each row's front, as a share of that of the best known front of its problem."""
    largest = {problem: best_hypervolume(part) for problem, part in rows.groupby("problem")}

    def share(row: Any) -> float:
        most = largest[row["problem"]]
        if most == 0:
            return 0.0
        return hypervolume(json.loads(row["front"]), json.loads(row["reference"])) / most

    return rows.apply(share, axis=1)


def best_hypervolume(rows: Frame) -> float:
    """Return the hypervolume of all trials of all runs on one problem."""
    values: list[list[float]] = []
    for front in [*rows["front"], *rows["visited"]]:
        values += json.loads(front)
    return hypervolume(values, json.loads(rows["reference"].iloc[0]))


def standings(rows: Frame) -> Frame:
    """Return the table for one noise and one number of trials, a line for each tuner."""
    table = rows.pivot(index=["problem", "seed"], columns="name", values="share")
    table = table[rows["name"].unique()]
    rank = rank_words(mean_ranks(1 - table))
    lines = {}
    for name in table:
        own = table[name].dropna()
        line = {"mean rank [95%]": rank[name], "hypervolume": f"{own.mean():.3f}"}
        if "kbo" in table:
            line["of kbo in these runs"] = f"{table['kbo'][own.index].mean():.3f}"
        seconds = rows[rows["name"] == name]["cpu_seconds"].mean()
        lines[name] = line | {"CPU s a run": f"{seconds:.1f}", "runs": f"{len(own)}"}
    return pd.DataFrame(lines).T


def report(rows: Frame) -> str:
    """Return all tables."""
    rows = rows.assign(share=shares(rows))
    parts = []
    for (noise, trials), part in rows.groupby(["noise", "trials"]):
        title = f"noise {noise:g}, {trials} trials: share of the best known hypervolume"
        parts.append(f"{title}\n\n{tables.markdown(standings(part))}")
    return "\n\n".join(parts)


def compare(
    problems: Annotated[
        str, typer.Option(help='"development" (odd pairs of bbob-biobj) or "held-out" (even).')
    ] = "development",
    seeds: Annotated[int, typer.Option(min=1, help="Runs per problem and noise.")] = 1,
    tuners: Annotated[
        str, typer.Option(help=f"Of {', '.join(TUNERS)}; with commas between.")
    ] = ",".join(TUNERS),
    trials: Annotated[
        list[int] | None,
        typer.Option(
            "--trials",
            "-n",
            min=10,
            help="Trials after which fronts are judged.",
            show_default="60 150",
        ),
    ] = None,
    only: Annotated[str, typer.Option(help="Only these problems, with commas between.")] = "",
    workers: Workers = None,
    out: Out = Path("kbo-runs"),
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Compare tuners of several objectives by the fronts that they recommend.

    Finished runs are kept: the same command continues after Ctrl-C. If the code of kbo has changed, its runs are
    repeated.

    Example:  python -m experiments.tuning.fronts --problems held-out
    """
    commands.apply_verbosity(quiet, verbose)
    checks.one_of("problems", problems, PROBLEMS)
    names = commands.names_in("tuners", tuners, TUNERS)
    runs = cells(problems, seeds, names, sorted(trials or CHECKPOINTS))
    if only:
        kept = commands.names_in("only", only, PROBLEMS[problems])
        runs = [cell for cell in runs if cell.arguments["problem"] in kept]
    path = out / f"fronts-{problems}"
    commands.sweep_and_report(runs, path, report, workers=workers, quiet=quiet)


def main() -> None:
    """Run the command."""
    commands.run(compare)


if __name__ == "__main__":
    main()
