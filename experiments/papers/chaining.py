"""Contal, Malherbe & Vayatis (2015): optimisation with the chaining of Gaussian-process draws, Chaining-UCB.

Noise 0.05 of known standard deviation, delta = 0.05, 10^4 points, 10 uniform observations before the first round.

"chaining-ucb" is Algorithm 1 of the paper. "chaining-ucb-rigorous" is the bound by the same covers that is proved, see
``kbo.confidence.Chaining``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from experiments import bandits, lines, tables
from experiments.bandits import BanditProblem
from experiments.papers import experiment
from experiments.papers.experiment import TOLERANCE, Frame, Paper, Plan, store
from experiments.problems import GaussianProcessBandit
from experiments.styles import styles_of
from kbo._base.linalg import safe_sqrt
from kbo._base.plotting import GREY, blank, dress, legend_below, logarithmic, plain_numbers
from kbo.bandit.method import Method
from kbo.confidence import Chaining, Confidence, FiniteSet
from kbo.regression import KernelRidge

ALGORITHM, PROVED, UNION, RANDOM = "chaining-ucb", "chaining-ucb-rigorous", "gp-ucb", "random"
"""Algorithm 1; the chain whose bound is proved; GP-UCB with a union over all points; uniform choice."""

NOISE, DELTA, INITIAL = 0.05, 0.05, 10
"""Standard deviation of the noise, the probability of failure, and uniform observations before the first round."""

PROBLEMS = ("gp-draw", "himmelblau", "graphs")

_FAIL, _SIDE = 0.1, 5.0
"""Probability of failure and side of the square in the study of coverage."""


def problem(
    name: str, points: int, rounds: int, every: int = 1, side: float = 20.0
) -> BanditProblem:
    """The problem with so many points; draws of a Gaussian process have lengthscale 1 on a square of that side."""
    size = {"n_graphs" if name == "graphs" else "n_points": points, "noise_std": NOISE}
    options = {"side": side, "lengthscale": 1.0} if name == "gp-draw" else {}
    return BanditProblem(name, {**size, **options}, rounds, DELTA, initial=INITIAL, every=every)


def illustration(quick: bool) -> Plan:
    """Figure 1: a posterior on [0, 10], and the exploration terms with their least value subtracted; always quick."""
    environment = GaussianProcessBandit(
        n_points=6, side=10.0, lengthscale=1.0, dim=1, noise_std=NOISE, seed=29
    )
    X, grid = environment.fixed_arms, torch.linspace(0, 10, 400, dtype=torch.float64).unsqueeze(-1)
    state = KernelRidge(environment.kernel, NOISE**2)
    state.update(X, y := environment.observe(X))
    mean, variance = state.predict(grid)
    std, union, algorithm = (
        safe_sqrt(variance),
        FiniteSet(len(grid), DELTA),
        Chaining(DELTA, points=grid),
    )
    terms = {
        ALGORITHM: (algorithm.bonus(state)(std), "Algorithm 1"),
        PROVED: (algorithm.reported().bonus(state)(std), "proved"),
        UNION: (union.upper(state, grid) - mean, "union over all points"),
    }
    chain, x, truth = algorithm.chain(state), grid[:, 0], environment.mean(grid)
    sizes = ", ".join(
        f"{size} within {chain.radius(i):g}" for i, size in enumerate(chain.sizes, start=1)
    )
    table = {
        f"{name}, {remark}": {
            "least": float(term.min()),
            "least to most": float(term.max() - term.min()),
        }
        for name, (term, remark) in terms.items()
    }

    def draw(_: Frame, path: Path) -> None:
        figure = blank(7.5, 6.6)
        above, below = figure.subplots(2, 1, sharex=True)
        dress(
            above,
            f"posterior of a draw of a Gaussian process, lengthscale 1, noise {NOISE:g}",
            "",
            "f(x)",
        )
        dress(below, f"exploration terms at delta = {DELTA:g}", "x", "term minus its minimum")
        lines.draw_bounds(
            above, x, truth, (X[:, 0], y), {"random": (mean - std, mean + std)}, shade=0.2
        )
        above.plot(x, mean, color=GREY, lw=1.6, label="mean ± std")
        for name, (term, remark) in terms.items():
            below.plot(x, term - term.min(), label=f"{name}, {remark}", **styles_of([name])[name])
        legend_below(
            figure, "only differences of exploration terms between points matter for the choice", 3
        )
        figure.savefig(path, dpi=150)

    return Plan(
        f"exploration on {len(grid)} points after {len(y)} observations; only differences matter for the choice",
        {f"covers: {sizes}": lambda _: pd.DataFrame(table).T},
        {".png": draw},
    )


def comparison(quick: bool) -> Plan:
    """Figure 2: simple regret on the three problems of the paper, and which method is ahead when."""
    points, rounds, seeds, marks = (
        (60, 6, 2, (2, 6)) if quick else (10_000, 150, 32, (20, 40, 60, 100, 150))
    )
    least = 1e-3  # that a logarithmic scale still shows
    title = f"simple regret, {points} points, noise {NOISE:g}, delta = {DELTA:g}, {seeds} seeds"
    shown = {
        "simple regret, mean ± standard error over the seeds": partial(regret, marks),
        f"{ALGORITHM} minus {UNION}, paired by seed: mean ± standard error; seeds where it is better, equal, worse": (
            partial(paired, marks)
        ),
        'rounds until half of the seeds have reached that simple regret; "-" if fewer ever do': reached,
    }

    def markdown(rows: Frame, path: Path) -> None:
        parts = [f"{heading}\n\n{tables.markdown(table(rows))}" for heading, table in shown.items()]
        path.write_text("\n\n".join([*parts, experiment.QUICK * quick]), encoding="utf-8")

    look: dict[str, Any] = {
        "values": ["best"],
        "ylabel": "simple regret",
        "band": "two errors",
        "least": least,
    }
    note, columns = f"below {least:g} not shown", ["problem", "method", "seed", "round", "best"]
    files = {
        ".png": partial(lines.against_rounds, title=title, panel="problem", note=note, **look),
        ".md": markdown,
        ".csv": store(lambda rows: rows.loc[rows["round"].isin(marks), columns]),
    }
    chosen = [problem(name, points, rounds) for name in PROBLEMS]
    return Plan(
        title, shown, files, bandits.cells(chosen, (ALGORITHM, PROVED, UNION, RANDOM), seeds)
    )


def regret(marks: Sequence[int], rows: Frame) -> Frame:
    """A line for every problem and method, a column for every mark."""
    groups = rows[rows["round"].isin(marks)].groupby(["problem", "method", "round"], sort=False)
    table = groups["best"].agg(tables.with_error).unstack("round").add_prefix("t = ")
    return table.assign(
        **{"CPU s a run": groups["cpu_seconds"].mean().unstack("round")[max(marks)]}
    )


def paired(marks: Sequence[int], rows: Frame) -> Frame:
    """A line for every problem and mark."""
    kept = rows[rows["round"].isin(marks)]
    table = kept.pivot_table(
        index=["problem", "round", "seed"], columns="method", values="best", sort=False
    )
    groups = (table[ALGORITHM] - table[UNION]).dropna().groupby(["problem", "round"], sort=False)
    signs = {"better": -1, "equal": 0, "worse": 1}
    counts = {
        name: groups.agg(lambda x, sign=sign: (np.sign(x) == sign).sum())
        for name, sign in signs.items()
    }
    return pd.DataFrame({f"{ALGORITHM} minus {UNION}": groups.agg(tables.with_error), **counts})


def reached(rows: Frame) -> Frame:
    """A line for every problem and method, a column for every simple regret."""
    found = {}
    for key, part in rows.groupby(["problem", "method"], sort=False):
        table = part.pivot_table(index="round", columns="seed", values="best")
        # Simple regret only falls, so the rounds in which half of the seeds are not there yet come first.
        waits = {
            f"{goal:g}": int(((table <= goal).mean(axis=1) < 0.5).sum())
            for goal in (0.5, 0.2, 0.1, 0.01)
        }
        found[key] = {
            goal: str(wait + 1) if wait < len(table) else tables.NONE
            for goal, wait in waits.items()
        }
    return pd.DataFrame(found).T.rename_axis(["problem", "method"])


def size(quick: bool) -> Plan:
    """Regret after 30 rounds and time, from 10^3 to 10^6 points on a square of side 10; 10^6 are expensive."""
    seeds, rounds = (
        ({20: 2, 40: 2, 80: 1}, 6)
        if quick
        else ({1000: 16, 10_000: 16, 100_000: 4, 1_000_000: 2}, 30)
    )
    *small, large = (
        bandits.cells(
            [problem("gp-draw", points, rounds, rounds, 10.0)], (ALGORITHM, PROVED, UNION), count
        )
        for points, count in seeds.items()
    )
    title = f"draws of a Gaussian process on a square of side 10, lengthscale 1, noise {NOISE:g}"

    def table(rows: Frame) -> Frame:
        shown = {
            "simple regret": ("best", tables.with_error),
            "cumulative": ("cumulative", tables.with_error),
            "CPU s a round": ("seconds", "mean"),
            "seeds": ("seed", "count"),
        }
        return rows.groupby(["n_points", "method"], sort=False).agg(**shown)

    def csv(rows: Frame) -> Frame:
        stored = {"best": ("best", "mean"), "error": ("best", "sem"), "seeds": ("seed", "count")}
        stored |= {"cumulative": ("cumulative", "mean"), "cumulative_error": ("cumulative", "sem")}
        groups = rows.groupby(["n_points", "method"], sort=False)
        return groups.agg(**stored, seconds=("seconds", "mean")).rename_axis(["points", "method"])

    def draw(rows: Frame, path: Path) -> None:
        figure = blank(9.0, 4.4)
        left, right = figure.subplots(1, 2)
        dress(left, f"simple regret after {rounds} rounds", "number of points", "simple regret")
        dress(right, "time", "number of points", "CPU seconds a round")
        styles, dots = styles_of([ALGORITHM, PROVED, UNION]), {"marker": "o", "ms": 4}
        lines.curves(left, rows, styles, "best", "two errors", by="n_points", **dots, label=None)
        lines.curves(right, rows, styles, "seconds", "mean", by="n_points", **dots)
        for axes in (left, right):
            axes.set_xscale("log")
        logarithmic(right)
        plain_numbers(right.yaxis)
        figure.suptitle(title, x=0.01, ha="left", fontsize=11)
        counts = ", ".join(map(str, seeds.values()))
        legend_below(figure, f"{lines.BANDS['two errors']}; {counts} seeds from left to right")
        figure.savefig(path, dpi=150)

    return Plan(
        f"after {rounds} rounds, mean ± standard error over the seeds; {title}",
        {"": table},
        {".csv": store(csv), ".png": draw},
        [cell for cells in small for cell in cells],
        alone=large,  # several at once would take gigabytes
        prepare=lambda rows: rows[rows["round"] == rounds].assign(
            seconds=rows["cpu_seconds"] / rounds
        ),
    )


def watch(seed: int, points: int, rounds: int) -> list[dict[str, Any]]:
    """Bounds beside the function, before and after every round of Algorithm 1; all see the same posterior.

    Returns:
        A row for every bound: ``outside``, the share of points and moments at which the function is outside;
        ``half``, the mean half width; ``closest``, the largest ``|f - mean| / half width``; ``excess``, the largest
        ``|f - mean| - half width``.
    """
    environment = GaussianProcessBandit(points, _SIDE, 1.0, noise_std=NOISE, seed=seed)
    arms, truth = environment.fixed_arms, environment.mean(environment.fixed_arms)
    algorithm = Chaining(_FAIL, points=arms)
    bounds: dict[str, Confidence] = {
        ALGORITHM: algorithm,
        PROVED: algorithm.reported(),
        UNION: FiniteSet(points, _FAIL),
    }
    method = Method(partial(KernelRidge, environment.kernel, NOISE**2), algorithm)
    state = method.state(arms)
    seen = {name: [experiment.misses(bound, state, arms, truth)] for name, bound in bounds.items()}
    for _ in experiment.rounds_of(method, environment, state, rounds):
        for name, bound in bounds.items():
            seen[name].append(experiment.misses(bound, state, arms, truth))
    return [
        {"method": name, **_outside(*map(torch.stack, zip(*pairs, strict=True)))}
        for name, pairs in seen.items()
    ]


def _outside(error: Tensor, half: Tensor) -> dict[str, float]:
    """Numbers of a run from ``|f - mean|`` and half widths at all moments and points; a width may be zero."""
    return {
        "outside": float((error > half + TOLERANCE).double().mean()),
        "half": float(half.mean()),
        "closest": float((error / half).nan_to_num(0.0, posinf=math.inf).max()),
        "excess": float((error - half).max()),
    }


def coverage(quick: bool) -> Plan:
    """Runs of Algorithm 1 in which the function is outside some bound: 1000 runs of 40 rounds on 300 points."""
    runs, points, rounds = (4, 40, 5) if quick else (1000, 300, 40)

    def counts(rows: Frame) -> Frame:
        groups = rows.assign(failed=rows["outside"] > 0).groupby("method", sort=False)
        found = {
            "runs": ("seed", "count"),
            "failed": ("failed", "sum"),
            "outside": ("outside", "mean"),
        }
        found |= {
            "half": ("half", "mean"),
            "closest": ("closest", "max"),
            "excess": ("excess", "max"),
        }
        return groups.agg(**found)

    def shown(rows: Frame) -> Frame:
        table = counts(rows).replace(math.inf, tables.NONE)
        table.insert(
            0,
            "promise",
            [tables.NONE if name == ALGORITHM else f"at most {_FAIL:.0%}" for name in table.index],
        )
        return table.rename(
            columns={"failed": "runs outside", "outside": "share of points", "half": "half width"}
        )

    return Plan(
        f"runs of {rounds} rounds of {ALGORITHM} in which a draw of a Gaussian process is outside mean +- bound at any "
        f"time\n{points} points on a square of side {_SIDE:g}, lengthscale 1, Gaussian noise {NOISE:g}, delta = "
        f"{_FAIL:g}\nshare of points: at all times; half width: mean; closest: largest |f - mean| / half width of all "
        'runs,\n"-" where a half width is zero; excess: largest |f - mean| - half width of all runs',
        {"": shown},
        {".csv": store(counts)},
        experiment.cells_of(
            watch, range(97_000, 97_000 + runs), [{"points": points, "rounds": rounds}], at_once=20
        ),
    )


PAPER = Paper(
    title="Contal, Malherbe & Vayatis (2015), Optimization for Gaussian processes via chaining",
    figures={1: illustration, 2: comparison},
    studies={"size": size, "coverage": coverage},
)
"""The figures and studies."""


if __name__ == "__main__":
    from experiments.papers.command import main

    main("chaining")
