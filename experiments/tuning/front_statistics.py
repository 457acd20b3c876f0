"""``python -m experiments.tuning.front_statistics``: how often what kbo says of a front with noise is true.

The front is judged by the true values of its trials. The noise differs between problems, also with the same seed: with
the same numbers for all of them, the runs of a seed are lucky or unlucky together.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from experiments import commands, tables
from experiments.commands import Out, Quiet, Verbose, Workers
from experiments.papers.experiment import Frame
from experiments.problems.objectives import SeveralObjectives
from experiments.sweep.cells import Cell, Rows
from experiments.sweep.runner import sweep
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
"""Ends of the classes of probabilities."""


def run(
    suite: str,
    problem: str,
    noise: float,
    seed: int,
    checkpoints: Sequence[int],
    version: str = "",
) -> Rows:
    """Run kbo on a problem, and return what it says of the front with what is true, a row at every checkpoint.

    Args:
        suite: A key of ``fronts.PROBLEMS``.
        problem: The name of one of its problems.
        noise: The standard deviation of the noise, in interquartile ranges of each objective.
        seed: Of noise and tuner.
        checkpoints: Numbers of trials after which the front is judged; the run ends with the last.
        version: The code of the tuner, as a hash; only there to make runs of another code other cells.
    """
    noise_seed = zlib.crc32(f"{problem} {noise} {seed}".encode())
    objectives = PROBLEMS[suite][problem](noise=noise, seed=noise_seed)
    chosen = KBOFront(objectives.space, seed, objectives.names)
    true = []
    rows: Rows = []
    for trial in range(1, max(checkpoints) + 1):
        params = chosen.ask()
        chosen.tell(params, objectives(params))
        true.append(objectives.truth(params))
        if trial in checkpoints:
            rows.append({"trials": trial, **checked(chosen, objectives, true)})
    return rows


def checked(
    chosen: KBOFront, objectives: SeveralObjectives, true: Sequence[Sequence[float]]
) -> dict[str, Any]:
    """Return what is said of a front and what is true, given the true values of all trials.

    ``said`` has the probabilities of its trials, ``is_on_front`` whether they are on the true front, both in JSON;
    ``below``, ``inside`` and ``above`` say on which side of its interval the hypervolume is.
    """
    front = chosen.front()
    is_on_front = non_dominated(minus(true)).tolist()
    rows = [point.trial.number for point in front.points]
    interval = front.hypervolume
    assert interval is not None
    reference = [front.reference[name] for name in objectives.names]
    volume = hypervolume([true[row] for row in rows], reference)
    return {
        "said": json.dumps([point.probability for point in front.points]),
        "is_on_front": json.dumps([is_on_front[row] for row in rows]),
        "below": float(volume < interval.lower),
        "inside": float(interval.lower <= volume <= interval.upper),
        "above": float(volume > interval.upper),
    }


def probabilities(rows: Frame) -> Frame:
    """Return how many trials with about the same probability are on the true front, a line for each class."""
    said = [probability for text in rows["said"] for probability in json.loads(text)]
    right = [is_right for text in rows["is_on_front"] for is_right in json.loads(text)]
    trials = pd.DataFrame({"said": said, "right": right}, dtype=float)
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
    """Return how often the hypervolume is inside its interval, and on which side it is not, by noise and trials."""
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
    """Tune problems with several objectives and known true values, and count how often what is said of fronts is true.

    Example:  python -m experiments.tuning.front_statistics --problems held-out
    """
    commands.apply_verbosity(quiet, verbose)
    checks.one_of("problems", problems, PROBLEMS)
    names = list(PROBLEMS[problems])
    if only:
        names = [checks.one_of("only", name, names) for name in only.split(",")]
    cells = []
    for seed in range(1, seeds + 1):
        for noise in NOISES:
            for name in names:
                arguments = {
                    "suite": problems,
                    "problem": name,
                    "noise": noise,
                    "seed": seed,
                    "checkpoints": sorted(trials or CHECKPOINTS),
                    "version": code(),
                }
                label = f"{name} {noise} seed{seed}"
                cells.append(Cell("experiments.tuning.front_statistics:run", arguments, label))
    folder = commands.folder(out) / f"front-statistics-{problems}"
    with commands.shown():
        found = sweep(cells, folder, workers=workers, progress=not quiet)
        typer.echo(found.checked(report(found.rows)))


def main() -> None:
    """Run the command."""
    commands.run(measure)


if __name__ == "__main__":
    main()
