"""``python -m experiments.tuning.front_statistics``: how often statements of kbo about a front with noise are true.

The front is judged by the true values of its trials. Problems have different noise, also with the same seed: with equal
noise, all runs of a seed would be lucky or unlucky together.
"""

from __future__ import annotations

import itertools
import json
import zlib
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from experiments import commands
from experiments.commands import Out, Quiet, Verbose, Workers
from experiments.output import tables
from experiments.papers.experiment import Frame
from experiments.problems.objectives import SeveralObjectives
from experiments.sweep.cells import Cell, Rows
from experiments.tuning.front_tuners import KBOFront
from experiments.tuning.fronts import PROBLEMS, hypervolume, minus
from experiments.tuning.runs import code
from kbo._base import checks
from kbo.optimize.objectives.hypervolume import non_dominated

NOISES = (0.05, 0.5)
"""Noise of the objectives, in interquartile ranges."""

CHECKPOINTS = (30, 60)
"""Numbers of trials after which fronts are judged."""

BINS = (0.0, 0.15, 0.3, 0.5, 0.7, 0.85, 0.95, 1.0)
"""Ends of the intervals in which stated probabilities are grouped."""


def run(
    suite: str,
    problem: str,
    noise: float,
    seed: int,
    checkpoints: Sequence[int],
    version: str = "",
) -> Rows:
    """Run kbo on a problem, and return its statements about the front with the truth, a row at every checkpoint.

    Args:
        suite: A key of ``fronts.PROBLEMS``.
        problem: The name of one of its problems.
        noise: The standard deviation of the noise, in interquartile ranges of each objective.
        seed: Seed of noise and tuner.
        checkpoints: Numbers of trials after which the front is judged; the run ends with the last.
        version: A hash of the code of the tuner. It is not used; it makes runs of different code different cells.
    """
    noise_seed = zlib.crc32(f"{problem} {noise} {seed}".encode())
    objectives = PROBLEMS[suite][problem](noise=noise, seed=noise_seed)
    tuner = KBOFront(objectives.space, seed, objectives.names)
    true_values = []
    rows: Rows = []
    for trial in range(1, max(checkpoints) + 1):
        params = tuner.ask()
        tuner.tell(params, objectives(params))
        true_values.append(objectives.truth(params))
        if trial in checkpoints:
            rows.append({"trials": trial, **checked(tuner, objectives, true_values)})
    return rows


def cells(suite: str, seeds: int, names: Sequence[str], trials: Sequence[int]) -> list[Cell]:
    """Return the runs of a suite.

    Args:
        suite: A key of ``fronts.PROBLEMS``.
        seeds: Number of runs on a problem with each noise; the seeds are 1, 2, ...
        names: Names of problems.
        trials: Numbers of trials after which fronts are judged.
    """
    runs = []
    for seed in range(1, seeds + 1):
        for noise, name in itertools.product(NOISES, names):
            arguments = {
                "suite": suite,
                "problem": name,
                "noise": noise,
                "seed": seed,
                "checkpoints": list(trials),
                "version": code(),
            }
            label = f"{name} {noise} seed{seed}"
            runs.append(Cell("experiments.tuning.front_statistics:run", arguments, label))
    return runs


def checked(
    tuner: KBOFront, objectives: SeveralObjectives, true_values: Sequence[Sequence[float]]
) -> dict[str, Any]:
    """Return the statements of kbo about a front, and the truth.

    Args:
        tuner: The tuner.
        objectives: The problem.
        true_values: The values of all trials without noise [n m].

    Returns:
        ``said``, the stated probabilities of the trials of the front, and ``is_on_front``, whether they are on the true
        front, both in JSON; ``below``, ``inside`` and ``above``: the place of the hypervolume relative to its interval.
    """
    front = tuner.front()
    is_on_front = non_dominated(minus(true_values)).tolist()
    numbers = [point.trial.number for point in front.points]
    interval = front.hypervolume
    assert interval is not None
    reference = [front.reference[name] for name in objectives.names]
    volume = hypervolume([true_values[number] for number in numbers], reference)
    return {
        "said": json.dumps([point.probability for point in front.points]),
        "is_on_front": json.dumps([is_on_front[number] for number in numbers]),
        "below": float(volume < interval.lower),
        "inside": float(interval.lower <= volume <= interval.upper),
        "above": float(volume > interval.upper),
    }


def probabilities(rows: Frame) -> Frame:
    """Return the share of trials that are on the true front, a line for each interval of stated probabilities."""
    said = itertools.chain.from_iterable(map(json.loads, rows["said"]))
    right = itertools.chain.from_iterable(map(json.loads, rows["is_on_front"]))
    trials = pd.DataFrame({"said": list(said), "right": list(right)}, dtype=float)
    names = [f"{low:.0%} to {high:.0%}" for low, high in pairwise(BINS)]
    classes = pd.cut(trials["said"], list(BINS), labels=names, include_lowest=True)
    lines = {}
    for name, part in trials.groupby(classes, observed=True):
        lines[name] = {
            "said": f"{part['said'].mean():.0%}",
            "right": f"{part['right'].mean():.0%}",
            "trials": f"{len(part)}",
        }
    return pd.DataFrame(lines).T


def intervals(rows: Frame) -> Frame:
    """Return the shares of hypervolumes inside, below and above their intervals, a line for each noise and trials."""
    lines = {}
    for (noise, trials), part in rows.groupby(["noise", "trials"]):
        shares = part[["inside", "below", "above"]].mean()
        line = {name: f"{share:.0%}" for name, share in shares.items()}
        lines[f"noise {noise:g}, {trials} trials"] = line | {"fronts": f"{len(part)}"}
    return pd.DataFrame(lines).T


def report(rows: Frame) -> str:
    """Return both tables."""
    parts = ["hypervolume and its 90% interval", tables.markdown(intervals(rows))]
    for noise, part in rows.groupby("noise"):
        parts += [f"noise {noise:g}: probability to be on the front"]
        parts += [tables.markdown(probabilities(part))]
    return "\n\n".join(parts)


def measure(
    problems: Annotated[
        str, typer.Option(help='"development" (odd pairs of bbob-biobj) or "held-out" (even).')
    ] = "development",
    seeds: Annotated[int, typer.Option(min=1, help="Runs per problem and noise.")] = 1,
    trials: Annotated[
        list[int] | None,
        typer.Option(
            "--trials",
            "-n",
            min=10,
            help="Trials after which fronts are judged.",
            show_default="30 60",
        ),
    ] = None,
    only: Annotated[str, typer.Option(help="Only these problems, with commas between.")] = "",
    workers: Workers = None,
    out: Out = Path("kbo-runs"),
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Tune problems with several objectives, and count how often statements about their fronts are true.

    Example:  python -m experiments.tuning.front_statistics --problems held-out
    """
    commands.apply_verbosity(quiet, verbose)
    checks.one_of("problems", problems, PROBLEMS)
    names = list(PROBLEMS[problems])
    if only:
        names = commands.names_in("only", only, names)
    runs = cells(problems, seeds, names, sorted(trials or CHECKPOINTS))
    path = out / f"front-statistics-{problems}"
    commands.sweep_and_report(runs, path, report, workers=workers, quiet=quiet)


def main() -> None:
    """Run the command."""
    commands.run(measure)


if __name__ == "__main__":
    main()
