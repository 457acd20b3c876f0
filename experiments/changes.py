"""``python -m experiments.changes``: runs whose space changes after some trials, on functions with a known optimum.

A run goes on in the changed space with all its trials. It is compared with a new run in the changed space, with a run
that had this space from the start, and with samplers of Optuna whose ranges change within one study.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
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
from experiments.tuning.peers import OptunaTuner
from experiments.tuning.ranks import DRAWS, mean_ranks, scores_at
from experiments.tuning.runs import code
from kbo._base import checks
from kbo.space import Space

if TYPE_CHECKING:
    import pandas as pd

DIMENSIONS = (3, 5)

NOISES = ("none", "gauss", "gauss-0.5")
"""Names of ``experiments.problems.bbob.NOISES``: 0, 0.05 and 0.5 interquartile ranges of the function."""

N_FIRST = 20
"""Trials before the space changes."""

N_TRIALS = 60
"""Trials of a run."""

CHECKPOINTS = (30, 40, N_TRIALS)
"""Numbers of trials after which the recommendation is judged."""

HELD_OUT_FROM = 101
"""Instances of held-out functions begin here; development has instances 1, 2, ..."""

_LEAST_REGRET = 1e-8
"""The smallest regret in a ratio, the smallest target of COCO."""

MOST_PARAMETERS = {"gpsampler": 3}
"""By method, the largest number of parameters: methods that take 5 seconds a run are limited."""

Values = dict[str, float]
Bounds = dict[str, tuple[float, float]]


@dataclass(frozen=True)
class Change:
    """A space that changes during a run.

    Attributes:
        first: The bounds of the first ``N_FIRST`` trials.
        final: The bounds of the later trials.
        was: By name, the values of parameters that are fixed in the first trials.
    """

    first: Bounds
    final: Bounds
    was: Values

    def contains(self, params: Values) -> bool:
        """Return whether parameters are in the final space."""
        return all(low <= params[name] <= high for name, (low, high) in self.final.items())


def widened(problem: BBOB, seed: int) -> Change:
    """Return a change after which two ranges are twice as wide; the optimum is in their new halves."""
    final = _bounds(problem)
    first = dict(final)
    for name, optimum in list(zip(final, problem.solution, strict=True))[:2]:
        low, high = final[name]
        middle = (low + high) / 2
        if optimum > middle:
            first[name] = (low, middle)
        else:
            first[name] = (middle, high)
    return Change(first, final, {})


def added(problem: BBOB, seed: int) -> Change:
    """Return a change that adds a parameter; before, it was fixed at the quarter point farther from the optimum."""
    final = _bounds(problem)
    low, high = final["x0"]
    quarter = (high - low) / 4
    value = high - quarter
    if problem.solution[0] > (low + high) / 2:
        value = low + quarter
    first = {name: pair for name, pair in final.items() if name != "x0"}
    return Change(first, final, {"x0": value})


def narrowed(problem: BBOB, seed: int) -> Change:
    """Return a change after which two ranges are a quarter as wide, around the recommendation of kbo before it."""
    first = _bounds(problem)
    tuner = Known(Change(first, first, {}), seed)
    objective = _objective(problem, seed)
    for _ in range(N_FIRST):
        params = tuner.ask()
        tuner.tell(params, objective(params))
    centre = tuner.recommended()
    final = dict(first)
    for name in list(first)[:2]:
        low, high = first[name]
        width = (high - low) / 4
        start = min(max(centre[name] - width / 2, low), high - width)
        final[name] = (start, start + width)
    return Change(first, final, {})


SCENARIOS: dict[str, Callable[[BBOB, int], Change]] = {
    "widened": widened,
    "added": added,
    "narrowed": narrowed,
}


def _bounds(problem: BBOB) -> Bounds:
    return {f"x{i}": pair for i, pair in enumerate(problem.space.pairs())}


class Changed:
    """A run of kbo whose space changes.

    Args:
        change: The change.
        seed: The seed.

    Attributes:
        begins: The number of its first trial.
    """

    begins: int = 0

    def __init__(self, change: Change, seed: int) -> None:
        self._change = change
        self._seed = seed
        self._optimizer = self._new()

    def _new(self) -> kbo.Optimizer:
        return kbo.Optimizer(self._change.first, seed=self._seed)

    def change(self) -> None:
        """Go on in the final space."""
        self._optimizer.change(self._change.final, was=self._change.was)

    def ask(self) -> Values:
        """Return the next parameters."""
        params: Any = self._optimizer.ask()
        return params

    def tell(self, params: Values, value: float) -> None:
        """Learn a value."""
        self._optimizer.tell(params, value)

    def recommended(self) -> Values:
        """Return the parameters to use at present."""
        best = self._optimizer.recommended()
        assert best is not None
        params: Any = best.params
        return params


class Known(Changed):
    """A run of kbo that has the final space from the start."""

    def _new(self) -> kbo.Optimizer:
        return kbo.Optimizer(self._change.final, seed=self._seed)

    def change(self) -> None:
        pass


class Again(Known):
    """A run of kbo that begins in the final space when the space changes."""

    begins: int = N_FIRST


class Study(OptunaTuner):
    """A sampler of Optuna whose ranges change within one study; recommends the best trial in the final space."""

    begins: int = 0

    def __init__(self, change: Change, seed: int, sampler: str, **options: Any) -> None:
        super().__init__(Space(change.first), seed, N_TRIALS, sampler, **options)
        self._change = change

    def change(self) -> None:
        """Go on in the final space."""
        self._space = Space(self._change.final)

    def recommended(self) -> Values:
        inside = {}
        for trial in self._study.trials:
            params = self._change.was | trial.params
            if self._change.contains(params):
                inside[trial.number] = (trial.value, params)
        _, params = min(inside.values(), key=lambda pair: pair[0])
        return params


class Random:
    """Uniform points of the present space; recommends the best observed point in the final space."""

    begins: int = 0

    def __init__(self, change: Change, seed: int) -> None:
        self._change = change
        self._bounds = change.first
        self._generator = torch.Generator().manual_seed(seed)
        self._best = math.inf, {}

    def change(self) -> None:
        """Go on in the final space."""
        self._bounds = self._change.final

    def ask(self) -> Values:
        """Return the next parameters."""
        units = torch.rand(len(self._bounds), generator=self._generator, dtype=torch.float64)
        pairs = zip(self._bounds.items(), units.tolist(), strict=True)
        return {name: low + unit * (high - low) for (name, (low, high)), unit in pairs}

    def tell(self, params: Values, value: float) -> None:
        """Learn a value."""
        complete = self._change.was | params
        if value < self._best[0] and self._change.contains(complete):
            self._best = value, complete

    def recommended(self) -> Values:
        """Return the parameters to use at present."""
        return self._best[1]


METHODS: dict[str, Callable[[Change, int], Any]] = {
    "change": Changed,
    "again": Again,
    "known": Known,
    "tpe": partial(Study, sampler="TPESampler"),
    "gpsampler": partial(Study, sampler="GPSampler", warn_independent_sampling=False),
    "random": Random,
}


def measure(
    scenario: str, function: int, dim: int, noise: str, seed: int, method: str, code: str = ""
) -> Rows:
    """Return the regret of the recommendation of a method, a row for each of the ``CHECKPOINTS``.

    Args:
        scenario: A key of ``SCENARIOS``.
        function: Number of the function, 1 to 24.
        dim: Number of parameters.
        noise: A key of ``experiments.problems.bbob.NOISES``.
        seed: Instance of the function; it also decides the seeds of noise and method.
        method: A key of ``METHODS``.
        code: A hash of the code of kbo. It is not used; it makes runs of different code different cells.
    """
    problem = BBOB(function, dim, seed, noise)
    # Different functions have different noise and different first points.
    own_seed = 10_000 * seed + 100 * dim + function
    change = SCENARIOS[scenario](problem, own_seed)
    objective = _objective(problem, own_seed)
    tuner = METHODS[method](change, own_seed)
    rows = []
    for trial in range(tuner.begins, N_TRIALS):
        if trial == N_FIRST:
            tuner.change()
        params = tuner.ask()
        tuner.tell(params, objective(change.was | params))
        if trial + 1 in CHECKPOINTS:
            best = tuner.recommended()
            value = problem.noiseless([best[name] for name in change.final])
            regret = value - problem.optimum
            rows.append({"trials": trial + 1, "value": value, "regret": regret})
    return rows


def _objective(problem: BBOB, seed: int) -> Callable[[Mapping[str, float]], float]:
    """Return the noisy objective as a function of parameters by name, with its sequence of noise from the start."""
    problem.reseed(seed)
    return lambda params: problem([params[f"x{i}"] for i in range(len(params))])


def cells(problems: str, scenarios: list[str], methods: list[str], seeds: int) -> list[Cell]:
    """Return the runs; arguments as for ``run``."""
    functions = range(1, 25)
    first_seed = HELD_OUT_FROM
    if problems == "development":
        functions = range(1, 25, 2)
        first_seed = 1
    seed_numbers = range(first_seed, first_seed + seeds)
    runs = []
    for seed, scenario, function, dim, noise, method in product(
        seed_numbers, scenarios, functions, DIMENSIONS, NOISES, methods
    ):
        if dim > MOST_PARAMETERS.get(method, dim):
            continue
        arguments: dict[str, Any] = {"scenario": scenario, "function": function, "dim": dim}
        arguments |= {"noise": noise, "seed": seed, "method": method}
        if METHODS[method] in (Changed, Again, Known):
            arguments["code"] = code()
        label = f"{scenario} f{function} d{dim} {noise} {seed} {method}"
        runs.append(Cell("experiments.changes:measure", arguments, label))
    return runs


def summary(rows: pd.DataFrame, trials: int = N_TRIALS) -> pd.DataFrame:
    """Return mean ranks with 95% intervals after ``trials`` trials, a line for each scenario and noise."""
    return _by_scenario(rows, trials, _rank_words)


def comparison(rows: pd.DataFrame, trials: int = N_TRIALS) -> pd.DataFrame:
    """Return the share of runs in which ``change`` is better than each method, and the ratio of their regrets."""
    return _by_scenario(rows, trials, _pairwise_words)


def _by_scenario(
    rows: pd.DataFrame, trials: int, words: Callable[[pd.DataFrame], dict[str, str]]
) -> pd.DataFrame:
    """Return a table with a line for each scenario and noise; ``words`` makes its cells from the regrets."""
    import pandas as pd

    named = rows.assign(name=rows["method"], problem=rows["function"])
    named["seed"] = named["noise"] + " " + named["dim"].map(str) + " " + named["seed"].map(str)
    found = {}
    for scenario, part in named.groupby("scenario", sort=False):
        groups = [*part.groupby("noise", sort=False), ("all", part)]
        for noise, group in groups:
            regrets = dict(scores_at(group, "regret"))[trials]
            found[scenario, noise] = {"n": str(len(regrets)), **words(regrets)}
    table = pd.DataFrame(found).T
    return table.rename_axis(["space", "noise"])


def _rank_words(regrets: pd.DataFrame) -> dict[str, str]:
    """Return the mean rank of every method with its interval."""
    ranks: Any = mean_ranks(regrets)
    return {
        name: f"{at['rank']:.2f} ({at['low']:.2f} to {at['high']:.2f})"
        for name, at in ranks.iterrows()
    }


def _pairwise_words(regrets: pd.DataFrame) -> dict[str, str]:
    """Return the share of runs in which ``change`` is better, with its interval, and the mean ratio of regrets."""
    words = {}
    for name in regrets:
        if name == "change":
            continue
        pair = regrets[["change", name]].dropna()
        if pair.empty:
            continue
        # With two methods, a mean rank is one plus the share of the runs in which the other method is better.
        rank: Any = mean_ranks(pair, DRAWS).loc["change"]
        better = [f"{2 - rank[key]:.0%}" for key in ("rank", "high", "low")]
        logarithms: Any = pair.clip(lower=_LEAST_REGRET).map(math.log10)
        ratio = 10 ** float((logarithms["change"] - logarithms[name]).mean())
        words[str(name)] = f"{better[0]} ({better[1]} to {better[2]}), {ratio:.2f}"
    return words


def report(rows: pd.DataFrame) -> str:
    """Return both tables for each of the ``CHECKPOINTS``."""
    parts = []
    for trials in CHECKPOINTS:
        parts.append(f"mean rank of the regret after {trials} trials (95%)")
        parts.append(tables.markdown(summary(rows, trials)))
        parts.append("change is better in (95%), geometric mean of the ratio of its regret")
        parts.append(tables.markdown(comparison(rows, trials)))
    return "\n\n".join(parts)


def run(
    problems: Annotated[
        str,
        typer.Option(
            help='"development" (functions of odd number, instances from 1) or "held-out" (all, from 101).'
        ),
    ] = "development",
    scenarios: Annotated[
        str, typer.Option(help=f"Of {', '.join(SCENARIOS)}, separated by commas.")
    ] = "widened,added",
    methods: Annotated[
        str, typer.Option(help=f"Of {', '.join(METHODS)}, separated by commas.")
    ] = ",".join(METHODS),
    seeds: Annotated[int, typer.Option(min=1, help="Instances of every function.")] = 1,
    workers: Workers = None,
    out: Out = Path("kbo-runs"),
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Change the space of a run after 20 of 60 trials, and compare the regret with that of other methods.

    Example:  python -m experiments.changes --problems held-out
    """
    commands.apply_verbosity(quiet, verbose)
    checks.one_of("problems", problems, ("development", "held-out"))
    chosen = commands.names_in("scenarios", scenarios, SCENARIOS)
    compared = commands.names_in("methods", methods, METHODS)
    runs = cells(problems, chosen, compared, seeds)
    path = out / f"changes-{problems}"
    commands.sweep_and_report(runs, path, report, workers=workers, quiet=quiet)


def main() -> None:
    """Run the command."""
    commands.run(run)


if __name__ == "__main__":
    main()
