"""How chaining fares with the size of the set, and whether its bounds hold."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from kbo.confidence import Chaining, Confidence, FiniteSet
from kbo.experiments.draw import tables
from kbo.experiments.papers import chaining_plots
from kbo.experiments.papers.chaining_problems import ALGORITHM, NOISE, PROVED, UNION, cells, with_error
from kbo.experiments.sweep.cells import Cell, concatenate
from kbo.experiments.sweep.runner import Sweep, Workers, sweep
from kbo.problems import GaussianProcessBandit
from kbo.recipes.method import Method

_SEEDS = {1000: 16, 10_000: 16, 100_000: 4, 1_000_000: 2}
"""Number of points -> seeds of the study of sizes."""

_DELTA, _SIDE, _RUNS_A_CELL, _FIRST_SEED = 0.1, 5.0, 20, 97_000


def size(folder: Path, quick: bool, workers: Workers, progress: bool) -> str:
    """Regret after 30 rounds and time, from 10^3 to 10^6 points on a square of side 10; few rounds: 10^6 are dear."""
    seeds, rounds = ({20: 2, 40: 2, 80: 1}, 6) if quick else (_SEEDS, 30)
    *small, large = (
        cells(["gp-draw"], (ALGORITHM, PROVED, UNION), count, points, rounds, every=rounds, side=10.0)
        for points, count in seeds.items()
    )
    found = sweep(itertools.chain(*small), folder / "cells", workers=workers, progress=progress)
    rest = sweep(large, folder / "cells", workers=1, progress=progress)  # several at once would take gigabytes
    rows = concatenate([found.rows, rest.rows])
    found = Sweep(rows, found.failures + rest.failures, found.requested + rest.requested)
    if found.rows.empty:
        return found.checked("")
    table = _sizes(found.rows, rounds)
    picture, csv = folder / "size.png", folder / "size.csv"
    table.to_csv(csv, index=False)
    title = f"draws of a Gaussian process on a square of side 10, lengthscale 1, noise {NOISE:g}"
    chaining_plots.sizes(table, picture, title=title, rounds=rounds)
    lines: list[tuple[str, ...]] = [("points", "method", "simple regret", "cumulative", "CPU s a round", "seeds")]
    lines += [
        (
            str(row.points),
            row.method,
            with_error(row.best, row.error),
            with_error(row.cumulative, row.cumulative_error),
            f"{row.seconds:.3g}",
            str(row.seeds),
        )
        for row in tables.typed(table)
    ]
    heading = f"after {rounds} rounds, mean ± standard error over the seeds; {title}"
    return found.checked(f"{heading}\n\n{tables.aligned(lines)}\n\ntable    {csv}\npicture  {picture}")


def _sizes(rows: pd.DataFrame, rounds: int) -> pd.DataFrame:
    """A line for every number of points and method."""
    last = rows[rows["round"] == rounds].assign(seconds=rows["cpu_seconds"] / rounds)
    found = {"best": ("best", "mean"), "error": ("best", "sem"), "seeds": ("seed", "count")}
    found |= {"cumulative": ("cumulative", "mean"), "cumulative_error": ("cumulative", "sem")}
    return last.groupby(["points", "method"], sort=False).agg(**found, seconds=("seconds", "mean")).reset_index()


def watch(first: int, runs: int, points: int, rounds: int) -> list[dict[str, Any]]:
    """Bounds beside the function, before and after every round, in runs of Algorithm 1 with seeds from ``first``.

    Returns:
        A row for every run and bound: ``outside``, the share of points and moments at which the function is outside;
        ``half``, the mean half width; ``closest``, the largest ``|f - mean| / half width``; ``excess``, the largest
        ``|f - mean| - half width``.
    """
    return [row for seed in range(first, first + runs) for row in _watch(seed, points, rounds)]


def _watch(seed: int, points: int, rounds: int) -> list[dict[str, Any]]:
    """One run; all bounds see the same posterior."""
    world = GaussianProcessBandit(points, _SIDE, 1.0, noise_std=NOISE, seed=seed)
    arms, truth = world.fixed_arms, world.mean(world.fixed_arms)
    algorithm = Chaining(_DELTA, points=arms)
    bounds: dict[str, Confidence] = {ALGORITHM: algorithm, PROVED: algorithm.proved(), UNION: FiniteSet(points, _DELTA)}
    player = Method(ALGORITHM, world.kernel, NOISE**2, algorithm)
    state, seen = player.state(arms), {name: [] for name in bounds}
    for t in range(rounds + 1):
        if t:
            index = player.choose(state, arms)
            state.update(arms[index : index + 1], world.observe(arms[index : index + 1]))
        for name, confidence in bounds.items():
            lower, upper = confidence.interval(state, arms)
            seen[name].append(((truth - (lower + upper) / 2).abs(), (upper - lower) / 2))
    return [
        {"seed": seed, "method": name, **_outside(*map(torch.stack, zip(*pairs, strict=True)))}
        for name, pairs in seen.items()
    ]


def _outside(error: Tensor, half: Tensor) -> dict[str, float]:
    """Numbers of a run from ``|f - mean|`` and half widths at all moments and points; a width may be zero."""
    return {
        "outside": float((error > half + 1e-9).double().mean()),
        "half": float(half.mean()),
        "closest": float((error / half).nan_to_num(0.0, posinf=math.inf).max()),
        "excess": float((error - half).max()),
    }


def coverage(folder: Path, quick: bool, workers: Workers, progress: bool) -> str:
    """1000 runs of Algorithm 1 on 300 points, 40 rounds: is the function outside some bound, at any point and time?"""
    runs, points, rounds = (4, 40, 5) if quick else (1000, 300, 40)
    size = min(runs, _RUNS_A_CELL)
    asked = [
        Cell(
            f"{__name__}:watch",
            {"first": first, "runs": size, "points": points, "rounds": rounds},
            f"watch {points} T{rounds} seed{first}",
        )
        for first in range(_FIRST_SEED, _FIRST_SEED + runs, size)
    ]
    found = sweep(asked, folder / "cells", workers=workers, progress=progress)
    if found.rows.empty:
        return found.checked("")
    table = _coverage(found.rows)
    csv = folder / "coverage.csv"
    table.to_csv(csv, index=False)
    lines: list[tuple[str, ...]] = [
        ("bound", "promise", "runs", "outside", "of points", "half width", "closest", "excess")
    ]
    lines += [
        (
            row.method,
            tables.NONE if row.method == ALGORITHM else f"at most {_DELTA:.0%}",
            str(row.runs),
            str(row.failed),
            f"{row.outside:.2%}",
            f"{row.half:.3f}",
            f"{row.closest:.3f}" if math.isfinite(row.closest) else tables.NONE,
            f"{row.excess:.3f}",
        )
        for row in tables.typed(table)
    ]
    return found.checked(
        f"{_COVERAGE.format(points=points, rounds=rounds)}\n\n{tables.aligned(lines)}\n\ntable    {csv}"
    )


_COVERAGE = f"""\
runs of {{rounds}} rounds of {ALGORITHM} in which a draw of a Gaussian process is outside mean +- bound at any time
{{points}} points on a square of side {_SIDE:g}, lengthscale 1, Gaussian noise {NOISE:g}, delta = {_DELTA:g}
of points: share of all points at all times; half width: mean of them; closest: largest |f - mean| / half width of all
runs, "-" where a half width is zero; excess: largest |f - mean| - half width of all runs"""


def _coverage(rows: pd.DataFrame) -> pd.DataFrame:
    """A line for every bound."""
    groups = rows.assign(failed=rows["outside"] > 0).groupby("method", sort=False)
    found = {"runs": ("seed", "count"), "failed": ("failed", "sum"), "outside": ("outside", "mean")}
    found |= {"half": ("half", "mean"), "closest": ("closest", "max"), "excess": ("excess", "max")}
    return groups.agg(**found).reset_index()


STUDIES = {"size": size, "coverage": coverage}
"""Studies of this file by name."""
