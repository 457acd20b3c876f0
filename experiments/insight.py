"""``python -m experiments.insight``: how often the statistics of a run are right, on functions with a known optimum."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import torch
import typer

import kbo
from experiments import commands
from experiments.commands import Out, Quiet, Verbose, Workers
from experiments.output import tables
from experiments.problems import BBOB
from experiments.sweep.cells import Cell, Rows
from experiments.sweep.runner import sweep
from kbo._base import checks
from kbo.optimize.insight.credible_sets import Effect
from kbo.optimize.insight.expected_gain import GO_ON, N_MORE, STOP
from kbo.optimize.insight.importance import NEGLIGIBLE_SHARE, shapley_shares, walks
from kbo.space import Params, Space

if TYPE_CHECKING:
    import pandas as pd

DIMENSIONS = (2, 3, 5)

NOISES = ("none", "gauss", "gauss-0.5", "gauss-2")
"""Names of ``experiments.problems.bbob.NOISES``: 0, 0.05, 0.5 and 2 interquartile ranges of the function."""

N_CONTINUATIONS = 3
"""Number of continuations of a run; the mean of their gains counts as the true gain."""

_N_WALKS = 2**14
"""Number of random walks for the true Shapley effects: about 100 000 evaluations in 5 dimensions."""

_EFFECT = 0.05
"""A parameter has an effect if its share of the variance is at least this."""


def measure(function: int, dim: int, noise: str, trials: int, seed: int) -> Rows:
    """Return the statistics of a run with the truth, a row for each parameter.

    Args:
        function: Number of the function, 1 to 24.
        dim: Number of parameters.
        noise: A key of ``experiments.problems.bbob.NOISES``.
        trials: Number of trials.
        seed: Seed of the run and instance of the function, from 0.
    """
    problem = BBOB(function, dim, 1 + seed, noise, seed=seed)
    optimizer = tuned(problem, trials, seed)
    gains = later_gains(problem, optimizer, seed)
    return compared(problem, optimizer, gains)


def tuned(problem: BBOB, trials: int, seed: int) -> kbo.Optimizer:
    """Return an optimiser after ``trials`` trials of a problem."""
    optimizer = kbo.Optimizer(problem.space, seed=seed)
    _continue(problem, optimizer, trials)
    return optimizer


def _continue(problem: BBOB, optimizer: kbo.Optimizer, trials: int) -> None:
    """Make ``trials`` further trials."""
    for _ in range(trials):
        params = optimizer.ask()
        optimizer.tell(params, problem(params))


def later_gains(problem: BBOB, optimizer: kbo.Optimizer, seed: int) -> list[float]:
    """Return the true gain of ``N_MORE`` further trials in each continuation with new noise; one without noise."""
    before = problem.noiseless(_recommended(optimizer))
    count = N_CONTINUATIONS
    if problem.noise == "none":
        count = 1
    gains = []
    for i in range(count):
        other = copy.copy(problem)
        other.reseed(1_000_000 + N_CONTINUATIONS * seed + i)
        later = copy.copy(optimizer)
        _continue(other, later, N_MORE)
        gains.append(before - problem.noiseless(_recommended(later)))
    return gains


def _recommended(optimizer: kbo.Optimizer) -> Params:
    best = optimizer.recommended()
    assert best is not None
    return best.params


def compared(problem: BBOB, optimizer: kbo.Optimizer, gains: Sequence[float]) -> Rows:
    """Return statistics and truth, a row for each parameter; each row also has the statistics of the whole run."""
    answers = optimizer.insight.answers()
    assert answers is not None
    best = optimizer.recommended()
    assert best is not None
    assert best.value is not None
    interval = optimizer.interval(best.params)
    assert interval is not None
    lower, _, upper = interval
    if problem.noise == "none":
        lower = upper = best.value
    value = problem.noiseless(best.params)
    gain = sum(gains) / len(gains)
    run = {
        "noise": problem.noise,
        "dimension": problem.space.dimension,
        "value": lower <= value <= upper,
        "gain": answers.gain.lower <= gain <= answers.gain.upper,
        "expected": answers.gain.value,
        "gain lower": answers.gain.lower,
        "gain upper": answers.gain.upper,
        "gained": gain,
        "tolerance": answers.tolerance,
        "decision": answers.decision,
        "outlier": optimizer.insight.outlier() is not None,
    }
    shares = true_shares(problem)
    return [run | _of_parameter(problem, effect, shares) for effect in answers.effects]


def _of_parameter(problem: BBOB, effect: Effect, shares: torch.Tensor) -> dict[str, Any]:
    """Return statistics and truth about one parameter."""
    column = list(problem.space.parameters).index(effect.name)
    parameter = problem.space.parameters[effect.name]
    solution = float(problem.space.unit(problem.solution)[column])
    assert effect.range is not None
    low, high = parameter.units(effect.range.values).tolist()
    good_width = 0.0
    if effect.good is not None:
        good_low, good_high = parameter.units(effect.good.values).tolist()
        good_width = good_high - good_low
    share = float(shares[column])
    return {
        "parameter": effect.name,
        "range": low <= solution <= high,
        "width": high - low,
        "good": good_width,
        "share": effect.share.lower <= share <= effect.share.upper,
        "share width": effect.share.upper - effect.share.lower,
        "true share": share,
        "visible": effect.visible,
        "negligible": effect.negligible,
    }


def true_shares(problem: BBOB) -> torch.Tensor:
    """Return the Shapley effects [P] of a function."""
    space = problem.space
    order, points = walks(space.dimension, range(space.dimension), _N_WALKS)
    values = _values(problem, space, points.flatten(0, 1)).reshape(1, *points.shape[:2])
    rows = torch.arange(len(order)).unsqueeze(0)
    return shapley_shares(values, order, rows)[0]


def _values(problem: BBOB, space: Space, units: torch.Tensor) -> torch.Tensor:
    """Return the values [n] without noise at points [n P] of the unit cube."""
    low, high = torch.tensor(space.pairs(), dtype=torch.float64).T
    points = (low + units * (high - low)).tolist()
    return torch.tensor([problem.noiseless(point) for point in points], dtype=torch.float64)


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the share of runs in which each statistic is right: a column for each noise, and one for all."""
    import pandas as pd

    groups = [*rows.groupby("noise", sort=False), ("all", rows)]
    columns = {noise: _shares(part) for noise, part in groups}
    return pd.DataFrame(columns)


def _shares(rows: pd.DataFrame) -> dict[str, str]:
    """Return the share of runs or parameters for which each statistic is right, as text."""
    runs = rows[rows["parameter"] == "x0"]
    hidden = rows[~rows["visible"]]
    visible = rows[rows["visible"]]
    negligible = rows[rows["negligible"]]
    below = runs["gained"] <= runs["tolerance"]
    stop = runs["decision"] == STOP
    go_on = runs["decision"] == GO_ON
    return {
        "runs": f"{len(runs)}",
        "the optimum is in the range of a parameter (90%)": _rate(rows["range"]),
        "mean width of the range": f"{rows['width'].mean():.2f}",
        "mean width of the good values": f"{rows['good'].mean():.2f}",
        "the true value is in its interval (90%)": _rate(runs["value"]),
        "the true gain is in its interval (90%)": _rate(runs["gain"]),
        '"stop" is right': _rate(below[stop]),
        '"go on" is right': _rate(~below[go_on]),
        "of the runs, the gain is below the tolerance": _rate(below),
        "the true share is in its interval (90%)": _rate(rows["share"]),
        "mean width of the interval of the share": f"{rows['share width'].mean():.2f}",
        "a parameter with a visible effect has one": _rate(visible["true share"] >= _EFFECT),
        "a parameter without a visible effect has one": _rate(hidden["true share"] >= _EFFECT),
        "a parameter with a negligible effect has more than 10%": _rate(
            negligible["true share"] >= NEGLIGIBLE_SHARE
        ),
        "runs with an outlier": _rate(runs["outlier"]),
    }


def _rate(right: Any) -> str:
    """Return the share of entries of a column that are True, as text."""
    if not len(right):
        return "none"
    return f"{right.mean():.0%} of {len(right)}"


def run(
    problems: Annotated[
        str, typer.Option(help='"development" (functions of odd number) or "held-out" (even).')
    ] = "development",
    trials: Annotated[int, typer.Option(min=10, help="Trials per run.")] = 40,
    seeds: Annotated[int, typer.Option(min=1, help="Runs per function, dimension and noise.")] = 1,
    workers: Workers = None,
    out: Out = Path("kbo-runs"),
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Tune functions with a known optimum, and count how often the statistics of the runs are right.

    Example:  python -m experiments.insight --problems held-out --trials 40
    """
    commands.apply_verbosity(quiet, verbose)
    checks.one_of("problems", problems, ("development", "held-out"))
    first_function = 1
    if problems == "held-out":
        first_function = 2
    cells = [
        Cell(
            "experiments.insight:measure",
            {"function": function, "dim": dim, "noise": noise, "trials": trials, "seed": seed},
            f"f{function} d{dim} {noise} {seed}",
        )
        for noise in NOISES
        for dim in DIMENSIONS
        for function in range(first_function, 25, 2)
        for seed in range(seeds)
    ]
    folder = commands.folder(out) / f"insight-{problems}"
    with commands.shown():
        found = sweep(cells, folder, workers=workers, progress=not quiet)
        typer.echo(found.checked(tables.markdown(summary(found.rows))))


def main() -> None:
    """Run the command."""
    commands.run(run)


if __name__ == "__main__":
    main()
