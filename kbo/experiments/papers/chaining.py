"""Contal, Malherbe & Vayatis (2015): optimisation with the chaining of Gaussian-process draws, Chaining-UCB.

Noise 0.05 of known standard deviation, delta = 0.05, 10^4 points, 10 uniform observations before the first round.

| figure | shows |
|---|---|
| 1 | a posterior in one dimension, and what its points are given for exploration |
| 2 | simple regret on draws of a Gaussian process, on Himmelblau's function and on graphs |

"chaining-ucb" is Algorithm 1 of the paper. "chaining-ucb-rigorous" is the bound by the same covers that is proved, see
``kbo.confidence.Chaining``.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from kbo.confidence import Chaining, FiniteSet
from kbo.experiments.draw import tables
from kbo.experiments.papers import chaining_plots, chaining_studies
from kbo.experiments.papers.catalogue import Paper
from kbo.experiments.papers.chaining_problems import (
    ALGORITHM,
    DELTA,
    NOISE,
    PROBLEMS,
    PROVED,
    RANDOM,
    UNION,
    cells,
    with_error,
)
from kbo.experiments.sweep.runner import Workers, sweep
from kbo.linalg import safe_sqrt
from kbo.problems import GaussianProcessBandit
from kbo.regression import KernelRidge

if TYPE_CHECKING:
    import pandas as pd

POINTS, ROUNDS, SEEDS = 10_000, 150, 32
_MARKS = (20, 40, 60, 100, 150)
"""Rounds of the tables."""

_REACHED = (0.5, 0.2, 0.1, 0.01)
"""Simple regrets that are to be reached."""

_QUICK = "\n(--quick: tiny sizes, so the figures are not those of the paper)\n"

Lines = list[tuple[str, ...]]


def illustration(folder: Path, quick: bool, workers: Workers, progress: bool) -> str:
    """Figure 1: a posterior on [0, 10], and the exploration terms with their least value subtracted; always quick."""
    world = GaussianProcessBandit(n_points=6, side=10.0, lengthscale=1.0, dim=1, noise_std=NOISE, seed=29)
    state, grid = KernelRidge(world.kernel, NOISE**2), torch.linspace(0, 10, 400, dtype=torch.float64).unsqueeze(-1)
    state.update(world.fixed_arms, y := world.observe(world.fixed_arms))
    mean, variance = state.predict(grid)
    std, union = safe_sqrt(variance), FiniteSet(len(grid), DELTA)
    algorithm = Chaining(DELTA, points=grid)
    terms = {
        f"{ALGORITHM}, Algorithm 1": algorithm.bonus(state)(std),
        f"{PROVED}, proved": algorithm.proved().bonus(state)(std),
        f"{UNION}, union over all points": union.width(state) * std,
    }
    lines: Lines = [("term", "least", "least to most")]
    lines += [
        (name, f"{float(term.min()):.2f}", f"{float(term.max() - term.min()):.2f}") for name, term in terms.items()
    ]
    picture = folder / "figure1.png"
    chaining_plots.illustration(
        grid[:, 0], (mean, std, world.mean(grid)), (world.fixed_arms[:, 0], y), terms, picture, noise=NOISE, delta=DELTA
    )
    chain = algorithm.chain(state)
    sizes = ", ".join(f"{size} within {chain.radius(i):g}" for i, size in enumerate(chain.sizes, start=1))
    heading = f"exploration on {len(grid)} points after {len(y)} observations; only differences matter for the choice"
    return f"{heading}\n\n{tables.aligned(lines)}\n\ncovers   {sizes}\npicture  {picture}"


def comparison(folder: Path, quick: bool, workers: Workers, progress: bool) -> str:
    """Figure 2: simple regret on the three problems of the paper, and who is ahead when."""
    points, rounds, seeds, marks = (60, 6, 2, (2, 6)) if quick else (POINTS, ROUNDS, SEEDS, _MARKS)
    asked = cells(PROBLEMS, (ALGORITHM, PROVED, UNION, RANDOM), seeds, points, rounds)
    found = sweep(asked, folder / "cells", workers=workers, progress=progress)
    if found.rows.empty:
        return found.checked("")
    picture = folder / "figure2.png"
    panels = {str(name): part for name, part in found.rows.groupby("problem", sort=False)}
    title = f"simple regret, {points} points, noise {NOISE:g}, delta = {DELTA:g}, {seeds} seeds"
    chaining_plots.simple_regret(panels, picture, title=title)
    parts = {
        "simple regret, mean ± standard error over the seeds": _regret(found.rows, marks),
        f"{ALGORITHM} minus {UNION}, paired by seed: mean ± standard error; seeds where it is better, equal, worse": (
            _paired(found.rows, marks)
        ),
        'rounds until half of the seeds have reached that simple regret; "-" if fewer ever do': _reached(found.rows),
    }
    markdown, csv = folder / "figure2.md", folder / "figure2.csv"
    ruled = "\n\n".join(f"{name}\n\n{tables.ruled(part)}" for name, part in parts.items())
    markdown.write_text(f"{ruled}\n{_QUICK * quick}", encoding="utf-8")
    kept = found.rows[found.rows["round"].isin(list(marks))]
    kept.to_csv(csv, index=False, columns=["problem", "method", "seed", "round", "best"])
    text = "\n\n".join(f"{name}\n\n{tables.aligned(part)}" for name, part in parts.items())
    return found.checked(f"{text}\n{_QUICK * quick}\ntable    {markdown}\n         {csv}\npicture  {picture}")


def _regret(rows: pd.DataFrame, marks: tuple[int, ...]) -> Lines:
    """A line for every problem and method, a column for every mark."""
    lines: Lines = [("problem", "method", *(f"t = {t}" for t in marks), "CPU s a run")]
    for (problem, method), part in _groups(rows, ["problem", "method"]):
        table = part.pivot_table(index="seed", columns="round", values="best")
        seconds = part["cpu_seconds"][part["round"] == max(marks)].mean()
        lines.append((problem, method, *(_error(table[t]) for t in marks), f"{seconds:.2f}"))
    return lines


def _paired(rows: pd.DataFrame, marks: tuple[int, ...]) -> Lines:
    """A line for every problem and mark."""
    lines: Lines = [("problem", "t", f"{ALGORITHM} minus {UNION}", "better", "equal", "worse")]
    for (problem,), part in _groups(rows, ["problem"]):
        table = part.pivot_table(index="seed", columns=["method", "round"], values="best")
        if not {ALGORITHM, UNION} <= set(part["method"]):
            continue
        for t in marks:
            difference = (table[ALGORITHM, t] - table[UNION, t]).dropna()
            counts = (difference < 0).sum(), (difference == 0).sum(), (difference > 0).sum()
            lines.append((problem, str(t), _error(difference), *map(str, counts)))
    return lines


def _reached(rows: pd.DataFrame) -> Lines:
    """A line for every problem and method, a column for every simple regret."""
    lines: Lines = [("problem", "method", *(f"{goal:g}" for goal in _REACHED))]
    for (problem, method), part in _groups(rows, ["problem", "method"]):
        table = part.pivot_table(index="round", columns="seed", values="best")
        # Simple regret only falls, so the rounds in which half of the seeds are not there yet come first.
        waits = [int(((table <= goal).mean(axis=1) < 0.5).sum()) for goal in _REACHED]
        lines.append((problem, method, *(str(w + 1) if w < len(table) else tables.NONE for w in waits)))
    return lines


def _groups(rows: pd.DataFrame, by: list[str]) -> Iterable[tuple[tuple[str, ...], pd.DataFrame]]:
    return rows.groupby(by, sort=False)  # pyright: ignore[reportReturnType]


def _error(values: Any) -> str:
    return with_error(values.mean(), values.sem())


PAPER = Paper(
    title="Contal, Malherbe & Vayatis (2015), Optimization for Gaussian processes via chaining",
    tables={},
    figures={1: illustration, 2: comparison},
    studies=chaining_studies.STUDIES,
)
"""What of the paper can be repeated."""
