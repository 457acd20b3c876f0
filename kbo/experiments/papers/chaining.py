"""Contal, Malherbe & Vayatis (2015): optimisation with the chaining of Gaussian-process draws, Chaining-UCB.

Noise 0.05 of known standard deviation, delta = 0.05, 10^4 points, 10 uniform observations before the first round.

| figure | shows |
|---|---|
| 1 | a posterior in one dimension, and the exploration terms of its points |
| 2 | simple regret on draws of a Gaussian process, on Himmelblau's function and on graphs |

"chaining-ucb" is Algorithm 1 of the paper. "chaining-ucb-rigorous" is the bound by the same covers that is proved, see
``kbo.confidence.Chaining``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pandas as pd
import torch

from kbo.confidence import Chaining, FiniteSet
from kbo.experiments import bandits
from kbo.experiments.bandits import BanditProblem
from kbo.experiments.draw import lines, tables
from kbo.experiments.draw.canvas import GREY, blank, dress, legend_below, styles_of
from kbo.experiments.papers.catalogue import Paper
from kbo.experiments.papers.experiment import QUICK, Frame, Plan, by, figures
from kbo.linalg import safe_sqrt
from kbo.problems import GaussianProcessBandit
from kbo.regression import KernelRidge

ALGORITHM, PROVED, UNION, RANDOM = "chaining-ucb", "chaining-ucb-rigorous", "gp-ucb", "random"
"""Algorithm 1; the chain whose bound is proved; GP-UCB with a union over all points; uniform choice."""

NOISE, DELTA, INITIAL = 0.05, 0.05, 10
"""Standard deviation of the noise, the probability of failure, and uniform observations before the first round."""

PROBLEMS = ("gp-draw", "himmelblau", "graphs")
POINTS, ROUNDS, SEEDS = 10_000, 150, 32
_MARKS = (20, 40, 60, 100, 150)
"""Rounds of the tables."""

_REACHED = (0.5, 0.2, 0.1, 0.01)
"""Simple regrets that are to be reached."""

_LEAST = 1e-3
"""Simple regret that a logarithmic scale still shows."""


def problem(name: str, points: int, rounds: int, every: int = 1, side: float = 20.0) -> BanditProblem:
    """The problem with so many points; draws of a Gaussian process have lengthscale 1 on a square of that side."""
    size = {"n_graphs" if name == "graphs" else "n_points": points, "noise_std": NOISE}
    options = {"side": side, "lengthscale": 1.0} if name == "gp-draw" else {}
    return BanditProblem(name, {**size, **options}, rounds, DELTA, initial=INITIAL, every=every)


def illustration(quick: bool) -> Plan:
    """Figure 1: a posterior on [0, 10], and the exploration terms with their least value subtracted; always quick."""
    environment = GaussianProcessBandit(n_points=6, side=10.0, lengthscale=1.0, dim=1, noise_std=NOISE, seed=29)
    X, grid = environment.fixed_arms, torch.linspace(0, 10, 400, dtype=torch.float64).unsqueeze(-1)
    state = KernelRidge(environment.kernel, NOISE**2)
    state.update(X, y := environment.observe(X))
    mean, variance = state.predict(grid)
    std, union, algorithm = safe_sqrt(variance), FiniteSet(len(grid), DELTA), Chaining(DELTA, points=grid)
    terms = {
        ALGORITHM: (algorithm.bonus(state)(std), "Algorithm 1"),
        PROVED: (algorithm.reported().bonus(state)(std), "proved"),
        UNION: (union.width(state) * std, "union over all points"),
    }
    chain, x, truth = algorithm.chain(state), grid[:, 0], environment.mean(grid)
    sizes = ", ".join(f"{size} within {chain.radius(i):g}" for i, size in enumerate(chain.sizes, start=1))
    table = {
        f"{name}, {remark}": {"least": float(term.min()), "least to most": float(term.max() - term.min())}
        for name, (term, remark) in terms.items()
    }

    def draw(_: Frame, path: Path) -> None:
        figure = blank(7.5, 6.6)
        above, below = figure.subplots(2, 1, sharex=True)
        dress(above, f"posterior of a draw of a Gaussian process, lengthscale 1, noise {NOISE:g}", "", "f(x)")
        dress(below, f"exploration terms at delta = {DELTA:g}", "x", "term minus its minimum")
        lines.draw_bounds(above, x, truth, (X[:, 0], y), {"random": (mean - std, mean + std)}, shade=0.2)
        above.plot(x, mean, color=GREY, lw=1.6, label="mean ± std")
        for name, (term, remark) in terms.items():
            below.plot(x, term - term.min(), label=f"{name}, {remark}", **styles_of([name])[name])
        legend_below(figure, "only differences of exploration terms between points matter for the choice", 3)
        figure.savefig(path, dpi=150)

    return Plan(
        f"exploration on {len(grid)} points after {len(y)} observations; only differences matter for the choice",
        {f"covers: {sizes}": lambda _: pd.DataFrame(table).T},
        {".png": draw},
    )


def comparison(quick: bool) -> Plan:
    """Figure 2: simple regret on the three problems of the paper, and which method is ahead when."""
    points, rounds, seeds, marks = (60, 6, 2, (2, 6)) if quick else (POINTS, ROUNDS, SEEDS, _MARKS)
    title = f"simple regret, {points} points, noise {NOISE:g}, delta = {DELTA:g}, {seeds} seeds"
    shown = {
        "simple regret, mean ± standard error over the seeds": partial(regret, marks),
        f"{ALGORITHM} minus {UNION}, paired by seed: mean ± standard error; seeds where it is better, equal, worse": (
            partial(paired, marks)
        ),
        'rounds until half of the seeds have reached that simple regret; "-" if fewer ever do': reached,
    }

    def draw(rows: Frame, path: Path) -> None:
        values = {"values": ["best"], "ylabel": "simple regret", "band": "two errors", "least": _LEAST}
        lines.against_rounds(by(rows, "problem"), path, title=title, note=f"below {_LEAST:g} not shown", **values)

    def markdown(rows: Frame, path: Path) -> None:
        parts = [f"{heading}\n\n{tables.markdown(table(rows))}" for heading, table in shown.items()]
        path.write_text("\n\n".join([*parts, QUICK * quick]), encoding="utf-8")

    def csv(rows: Frame, path: Path) -> None:
        kept = rows[rows["round"].isin(marks)]
        kept.to_csv(path, index=False, columns=["problem", "method", "seed", "round", "best"])

    chosen = [problem(name, points, rounds) for name in PROBLEMS]
    methods = (ALGORITHM, PROVED, UNION, RANDOM)
    files = {".png": draw, ".md": markdown, ".csv": csv}
    return Plan(title, shown, files, bandits.cells(chosen, methods, seeds))


def regret(marks: Sequence[int], rows: Frame) -> Frame:
    """A line for every problem and method, a column for every mark."""
    groups = rows[rows["round"].isin(marks)].groupby(["problem", "method", "round"], sort=False)
    table = groups["best"].agg(tables.with_error).unstack("round").add_prefix("t = ")
    table["CPU s a run"] = groups["cpu_seconds"].mean().unstack("round")[max(marks)]
    return table


def paired(marks: Sequence[int], rows: Frame) -> Frame:
    """A line for every problem and mark."""
    kept = rows[rows["round"].isin(marks)]
    table = kept.pivot_table(index=["problem", "round", "seed"], columns="method", values="best", sort=False)
    groups = (table[ALGORITHM] - table[UNION]).dropna().groupby(["problem", "round"], sort=False)
    found = {f"{ALGORITHM} minus {UNION}": groups.agg(tables.with_error)}
    found |= {"better": groups.agg(lambda x: (x < 0).sum()), "equal": groups.agg(lambda x: (x == 0).sum())}
    return pd.DataFrame({**found, "worse": groups.agg(lambda x: (x > 0).sum())})


def reached(rows: Frame) -> Frame:
    """A line for every problem and method, a column for every simple regret."""
    found = {}
    for key, part in rows.groupby(["problem", "method"], sort=False):
        table = part.pivot_table(index="round", columns="seed", values="best")
        # Simple regret only falls, so the rounds in which half of the seeds are not there yet come first.
        waits = {f"{goal:g}": int(((table <= goal).mean(axis=1) < 0.5).sum()) for goal in _REACHED}
        found[key] = {goal: str(wait + 1) if wait < len(table) else tables.NONE for goal, wait in waits.items()}
    return pd.DataFrame(found).T.rename_axis(["problem", "method"])


PAPER = Paper(
    title="Contal, Malherbe & Vayatis (2015), Optimization for Gaussian processes via chaining",
    tables={},
    figures=figures({1: illustration, 2: comparison}),
)
"""The figures; ``chaining_studies`` adds the studies."""
