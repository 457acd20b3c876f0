"""Contal, Malherbe & Vayatis (2015): optimisation with the chaining of Gaussian-process draws, Chaining-UCB.

The noise has the known standard deviation 0.05; delta = 0.05; there are 10^4 points, and 10 uniform observations before
the first round.

"chaining-ucb" is Algorithm 1 of the paper. "chaining-ucb-rigorous" is a bound with a proof that uses the same covers;
see ``kbo.confidence.Chaining``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from experiments import bandits
from experiments.bandits import BanditProblem
from experiments.output import lines, tables
from experiments.output.styles import styles_of
from experiments.papers import experiment
from experiments.papers.experiment import TOLERANCE, Frame, Paper, Plan, store
from experiments.problems import GaussianProcessBandit
from kbo._base.linalg import safe_sqrt
from kbo._base.plotting import GREY, blank, dress, legend_below, logarithmic, plain_numbers
from kbo.bandit.method import Method
from kbo.confidence import Chaining, Confidence, FiniteSet
from kbo.regression import KernelRidge

ALGORITHM = "chaining-ucb"
PROVED = "chaining-ucb-rigorous"
UNION = "gp-ucb"
RANDOM = "random"
"""Algorithm 1; the chain whose bound is proved; GP-UCB with a union over all points; uniform choice."""

NOISE = 0.05
"""Standard deviation of the noise."""

DELTA = 0.05
"""Probability of failure."""

INITIAL = 10
"""Uniform observations before the first round."""

PROBLEMS = ("gp-draw", "himmelblau", "graphs")

_COVERAGE_DELTA = 0.1
_SIDE = 5.0
"""Probability of failure and side of the square in the study of coverage."""


def problem(
    name: str, points: int, rounds: int, every: int = 1, side: float = 20.0
) -> BanditProblem:
    """A problem with ``points`` arms; draws of a Gaussian process have lengthscale 1 on a square of the given side."""
    options: dict[str, float] = {"n_points": points, "noise_std": NOISE}
    if name == "graphs":
        options = {"n_graphs": points, "noise_std": NOISE}
    if name == "gp-draw":
        options |= {"side": side, "lengthscale": 1.0}
    return BanditProblem(name, options, rounds, DELTA, initial=INITIAL, every=every)


_REMARKS = {ALGORITHM: "Algorithm 1", PROVED: "proved", UNION: "union over all points"}
"""Remarks on the methods in figure 1."""


def illustration(quick: bool) -> Plan:
    """Figure 1: a posterior on [0, 10], and exploration terms minus their smallest value; always quick."""
    environment = GaussianProcessBandit(
        n_points=6, side=10.0, lengthscale=1.0, dim=1, noise_std=NOISE, seed=29
    )
    X = environment.fixed_arms
    y = environment.observe(X)
    grid = torch.linspace(0, 10, 400, dtype=torch.float64).unsqueeze(-1)
    truth = environment.mean(grid)
    state = KernelRidge(environment.kernel, NOISE**2)
    state.update(X, y)
    chain = Chaining(DELTA, points=grid).chain(state)
    covers = []
    for i, size in enumerate(chain.sizes, start=1):
        covers.append(f"{size} within {chain.radius(i):g}")
    terms = _exploration_terms(state, grid)
    spans = {}
    for name, term in terms.items():
        span = {"least": float(term.min()), "least to most": float(term.max() - term.min())}
        spans[f"{name}, {_REMARKS[name]}"] = span
    picture = partial(
        _draw_illustration, data=(X[:, 0], y), truth=truth, terms=terms, state=state, grid=grid
    )
    return Plan(
        f"exploration on {len(grid)} points after {len(y)} observations; only differences matter for the choice",
        {f"covers: {', '.join(covers)}": lambda _: pd.DataFrame(spans).T},
        {".png": lambda _, path: picture(path)},
    )


def _exploration_terms(state: KernelRidge, grid: Tensor) -> dict[str, Tensor]:
    """The exploration terms [g] of the methods on a grid [g 1]."""
    mean, variance = state.predict(grid)
    std = safe_sqrt(variance)
    algorithm = Chaining(DELTA, points=grid)
    union = FiniteSet(len(grid), DELTA)
    return {
        ALGORITHM: algorithm.bonus(state)(std),
        PROVED: algorithm.reported().bonus(state)(std),
        UNION: union.upper(state, grid) - mean,
    }


def _draw_illustration(
    path: Path,
    *,
    data: lines.Interval,
    truth: Tensor,
    terms: Mapping[str, Tensor],
    state: KernelRidge,
    grid: Tensor,
) -> None:
    """Draw the posterior, and the exploration terms below it."""
    figure = blank(7.5, 6.6)
    above, below = figure.subplots(2, 1, sharex=True)
    title = f"posterior of a draw of a Gaussian process, lengthscale 1, noise {NOISE:g}"
    dress(above, title, "", "f(x)")
    dress(below, f"exploration terms at delta = {DELTA:g}", "x", "term minus its minimum")
    x = grid[:, 0]
    mean, variance = state.predict(grid)
    std = safe_sqrt(variance)
    lines.draw_bounds(above, x, truth, data, {"random": (mean - std, mean + std)}, shade=0.2)
    above.plot(x, mean, color=GREY, lw=1.6, label="mean ± std")
    for name, term in terms.items():
        style = styles_of([name])[name]
        below.plot(x, term - term.min(), label=f"{name}, {_REMARKS[name]}", **style)
    note = "only differences of exploration terms between points matter for the choice"
    legend_below(figure, note, 3)
    figure.savefig(path, dpi=150)


def comparison(quick: bool) -> Plan:
    """Figure 2: simple regret on the three problems of the paper, and the best method after each number of rounds."""
    points = 10_000
    rounds = 150
    seeds = 32
    marks = [20, 40, 60, 100, 150]
    if quick:
        points = 60
        rounds = 6
        seeds = 2
        marks = [2, 6]
    title = f"simple regret, {points} points, noise {NOISE:g}, delta = {DELTA:g}, {seeds} seeds"
    differences = f"{ALGORITHM} minus {UNION}, paired by seed: mean ± standard error"
    shown = {
        "simple regret, mean ± standard error over the seeds": partial(regret, marks),
        f"{differences}; seeds where it is better, equal, worse": partial(paired, marks),
        'rounds until half of the seeds have reached that simple regret; "-" if fewer ever do': reached,
    }

    def markdown(rows: Frame, path: Path) -> None:
        parts = [f"{heading}\n\n{tables.markdown(table(rows))}" for heading, table in shown.items()]
        note = ""
        if quick:
            note = experiment.QUICK
        path.write_text("\n\n".join([*parts, note]), encoding="utf-8")

    least = 1e-3  # the smallest regret that is shown on the logarithmic scale
    picture = partial(
        lines.against_rounds,
        title=title,
        panel="problem",
        values=["best"],
        ylabel="simple regret",
        band="two errors",
        least=least,
        note=f"below {least:g} not shown",
    )
    columns = ["problem", "method", "seed", "round", "best"]
    kept = store(lambda rows: rows.loc[rows["round"].isin(marks), columns])
    chosen = [problem(name, points, rounds) for name in PROBLEMS]
    cells = bandits.cells(chosen, (ALGORITHM, PROVED, UNION, RANDOM), seeds)
    return Plan(title, shown, {".png": picture, ".md": markdown, ".csv": kept}, cells)


def regret(marks: Sequence[int], rows: Frame) -> Frame:
    """A line for every problem and method, a column for every mark."""
    groups = rows[rows["round"].isin(marks)].groupby(["problem", "method", "round"], sort=False)
    table = groups["best"].agg(tables.with_error).unstack("round").add_prefix("t = ")
    table["CPU s a run"] = groups["cpu_seconds"].mean().unstack("round")[max(marks)]
    return table


def paired(marks: Sequence[int], rows: Frame) -> Frame:
    """A line for every problem and mark."""
    kept = rows[rows["round"].isin(marks)]
    table = kept.pivot_table(
        index=["problem", "round", "seed"], columns="method", values="best", sort=False
    )
    differences = (table[ALGORITHM] - table[UNION]).dropna()
    groups = differences.groupby(["problem", "round"], sort=False)
    return pd.DataFrame(
        {
            f"{ALGORITHM} minus {UNION}": groups.agg(tables.with_error),
            "better": groups.agg(lambda values: (values < 0).sum()),
            "equal": groups.agg(lambda values: (values == 0).sum()),
            "worse": groups.agg(lambda values: (values > 0).sum()),
        }
    )


def reached(rows: Frame) -> Frame:
    """A line for every problem and method, a column for every simple regret."""
    found = {}
    for key, part in rows.groupby(["problem", "method"], sort=False):
        table = part.pivot_table(index="round", columns="seed", values="best")
        # Simple regret only falls, so rounds before half of the seeds have reached the value come first.
        cells = {}
        for goal in (0.5, 0.2, 0.1, 0.01):
            wait = int(((table <= goal).mean(axis=1) < 0.5).sum())
            cells[f"{goal:g}"] = tables.NONE
            if wait < len(table):
                cells[f"{goal:g}"] = str(wait + 1)
        found[key] = cells
    return pd.DataFrame(found).T.rename_axis(["problem", "method"])


def size(quick: bool) -> Plan:
    """Regret after 30 rounds and time, from 10^3 to 10^6 points on a square of side 10; 10^6 are expensive."""
    rounds = 30
    seeds = {1000: 16, 10_000: 16, 100_000: 4, 1_000_000: 2}
    if quick:
        rounds = 6
        seeds = {20: 2, 40: 2, 80: 1}
    largest = max(seeds)
    cells = []
    alone = []  # several cells of the largest problem at the same time would take gigabytes
    for points, count in seeds.items():
        chosen = problem("gp-draw", points, rounds, rounds, 10.0)
        runs = bandits.cells([chosen], (ALGORITHM, PROVED, UNION), count)
        if points == largest:
            alone += runs
        else:
            cells += runs

    def prepare(rows: Frame) -> Frame:
        last = rows[rows["round"] == rounds]
        return last.assign(seconds=last["cpu_seconds"] / rounds)

    title = f"draws of a Gaussian process on a square of side 10, lengthscale 1, noise {NOISE:g}"
    counts = f"{', '.join(map(str, seeds.values()))} seeds from left to right"
    return Plan(
        f"after {rounds} rounds, mean ± standard error over the seeds; {title}",
        {"": _sizes},
        {
            ".csv": store(_stored_sizes),
            ".png": partial(_draw_sizes, title=title, rounds=rounds, counts=counts),
        },
        cells,
        alone=alone,
        prepare=prepare,
    )


def _sizes(rows: Frame) -> Frame:
    """A line for every number of points and method, as text."""
    shown = {
        "simple regret": ("best", tables.with_error),
        "cumulative": ("cumulative", tables.with_error),
        "CPU s a round": ("seconds", "mean"),
        "seeds": ("seed", "count"),
    }
    return rows.groupby(["n_points", "method"], sort=False).agg(**shown)


def _stored_sizes(rows: Frame) -> Frame:
    """A line for every number of points and method: means and standard errors."""
    table = rows.groupby(["n_points", "method"], sort=False).agg(
        best=("best", "mean"),
        error=("best", "sem"),
        seeds=("seed", "count"),
        cumulative=("cumulative", "mean"),
        cumulative_error=("cumulative", "sem"),
        seconds=("seconds", "mean"),
    )
    return table.rename_axis(["points", "method"])


def _draw_sizes(rows: Frame, path: Path, *, title: str, rounds: int, counts: str) -> None:
    """Draw simple regret, and the time of a round, against the number of points."""
    figure = blank(9.0, 4.4)
    left, right = figure.subplots(1, 2)
    dress(left, f"simple regret after {rounds} rounds", "number of points", "simple regret")
    dress(right, "time", "number of points", "CPU seconds a round")
    styles = styles_of([ALGORITHM, PROVED, UNION])
    dots = {"marker": "o", "ms": 4}
    lines.curves(left, rows, styles, "best", "two errors", by="n_points", **dots, label=None)
    lines.curves(right, rows, styles, "seconds", "mean", by="n_points", **dots)
    left.set_xscale("log")
    right.set_xscale("log")
    logarithmic(right)
    plain_numbers(right.yaxis)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    legend_below(figure, f"{lines.BANDS['two errors']}; {counts}")
    figure.savefig(path, dpi=150)


def watch(seed: int, points: int, rounds: int) -> list[dict[str, Any]]:
    """Compare bounds with the function, before and after each round of Algorithm 1, all for the same posterior.

    Returns:
        A row for every bound: ``outside``, the share of points and times at which the function is outside; ``half``,
        the mean half width; ``closest``, the largest ``|f - mean| / half width``; ``excess``, the largest
        ``|f - mean| - half width``.
    """
    environment = GaussianProcessBandit(points, _SIDE, 1.0, noise_std=NOISE, seed=seed)
    arms = environment.fixed_arms
    truth = environment.mean(arms)
    algorithm = Chaining(_COVERAGE_DELTA, points=arms)
    bounds: dict[str, Confidence] = {
        ALGORITHM: algorithm,
        PROVED: algorithm.reported(),
        UNION: FiniteSet(points, _COVERAGE_DELTA),
    }
    method = Method(partial(KernelRidge, environment.kernel, NOISE**2), algorithm)
    state = method.state(arms)
    errors: dict[str, list[Tensor]] = {name: [] for name in bounds}
    halves: dict[str, list[Tensor]] = {name: [] for name in bounds}

    def look() -> None:
        for name, bound in bounds.items():
            error, half = experiment.misses(bound, state, arms, truth)
            errors[name].append(error)
            halves[name].append(half)

    look()
    for _ in experiment.rounds_of(method, environment, state, rounds):
        look()
    rows = []
    for name in bounds:
        numbers = _outside(torch.stack(errors[name]), torch.stack(halves[name]))
        rows.append({"method": name, **numbers})
    return rows


def _outside(error: Tensor, half: Tensor) -> dict[str, float]:
    """The numbers of ``watch``, from ``|f - mean|`` and half widths at all times and points; a width may be zero."""
    return {
        "outside": float((error > half + TOLERANCE).double().mean()),
        "half": float(half.mean()),
        "closest": float((error / half).nan_to_num(0.0, posinf=math.inf).max()),
        "excess": float((error - half).max()),
    }


def coverage(quick: bool) -> Plan:
    """Runs of Algorithm 1 in which the function is outside some bound: 1000 runs of 40 rounds on 300 points."""
    runs = 1000
    points = 300
    rounds = 40
    if quick:
        runs = 4
        points = 40
        rounds = 5
    seeds = range(97_000, 97_000 + runs)
    arguments = {"points": points, "rounds": rounds}
    return Plan(
        f"runs of {rounds} rounds of {ALGORITHM} in which a draw of a Gaussian process is outside mean +- bound at any "
        f"time\n{points} points on a square of side {_SIDE:g}, lengthscale 1, Gaussian noise {NOISE:g}, delta = "
        f"{_COVERAGE_DELTA:g}\nshare of points: at all times; half width: mean; closest: largest |f - mean| / half "
        'width of all runs,\n"-" where a half width is zero; excess: largest |f - mean| - half width of all runs',
        {"": _coverage_in_words},
        {".csv": store(_coverage)},
        experiment.cells_of(watch, seeds, [arguments], at_once=20),
    )


def _coverage(rows: Frame) -> Frame:
    """A line for every bound: its runs, the failed ones, and means or extremes over the runs."""
    groups = rows.assign(failed=rows["outside"] > 0).groupby("method", sort=False)
    return groups.agg(
        runs=("seed", "count"),
        failed=("failed", "sum"),
        outside=("outside", "mean"),
        half=("half", "mean"),
        closest=("closest", "max"),
        excess=("excess", "max"),
    )


def _coverage_in_words(rows: Frame) -> Frame:
    """The table as text, with the allowed share of failures for bounds with a proof."""
    table = _coverage(rows).replace(math.inf, tables.NONE)
    promises = [f"at most {_COVERAGE_DELTA:.0%}"] * len(table)
    promises[list(table.index).index(ALGORITHM)] = tables.NONE
    table.insert(0, "promise", promises)
    names = {"failed": "runs outside", "outside": "share of points", "half": "half width"}
    return table.rename(columns=names)


PAPER = Paper(
    title="Contal, Malherbe & Vayatis (2015), Optimization for Gaussian processes via chaining",
    figures={1: illustration, 2: comparison},
    studies={"size": size, "coverage": coverage},
)
"""The figures and studies."""


if __name__ == "__main__":
    from experiments.papers.command import main

    main("chaining")
