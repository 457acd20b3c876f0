"""Studies of chaining: the size of the set, and the coverage of its bounds."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from kbo.confidence import Chaining, Confidence, FiniteSet
from kbo.experiments import bandits
from kbo.experiments.draw import lines, tables
from kbo.experiments.draw.canvas import blank, dress, legend_below, logarithmic, plain_numbers, styles_of
from kbo.experiments.papers import chaining
from kbo.experiments.papers.chaining import ALGORITHM, NOISE, PROVED, UNION, problem
from kbo.experiments.papers.experiment import TOLERANCE, Frame, Plan, cells_of_runs, experiments, misses, rounds_of
from kbo.problems import GaussianProcessBandit
from kbo.recipes.method import Method

_SEEDS = {1000: 16, 10_000: 16, 100_000: 4, 1_000_000: 2}
"""Number of points -> seeds of the study of sizes."""

_DELTA, _SIDE, _FIRST_SEED = 0.1, 5.0, 97_000


def size(quick: bool) -> Plan:
    """Regret after 30 rounds and time, from 10^3 to 10^6 points on a square of side 10; 10^6 are expensive."""
    seeds, rounds = ({20: 2, 40: 2, 80: 1}, 6) if quick else (_SEEDS, 30)
    *small, large = (
        bandits.cells([problem("gp-draw", points, rounds, rounds, 10.0)], (ALGORITHM, PROVED, UNION), count)
        for points, count in seeds.items()
    )
    title = f"draws of a Gaussian process on a square of side 10, lengthscale 1, noise {NOISE:g}"

    def table(rows: Frame) -> Frame:
        groups = rows.groupby(["n_points", "method"], sort=False)
        found = {"simple regret": groups["best"].agg(tables.with_error)}
        found |= {"cumulative": groups["cumulative"].agg(tables.with_error)}
        return pd.DataFrame({**found, "CPU s a round": groups["seconds"].mean(), "seeds": groups["seed"].count()})

    def csv(rows: Frame, path: Path) -> None:
        found = {"best": ("best", "mean"), "error": ("best", "sem"), "seeds": ("seed", "count")}
        found |= {"cumulative": ("cumulative", "mean"), "cumulative_error": ("cumulative", "sem")}
        groups = rows.rename(columns={"n_points": "points"}).groupby(["points", "method"], sort=False)
        groups.agg(**found, seconds=("seconds", "mean")).reset_index().to_csv(path, index=False)

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
        {".csv": csv, ".png": draw},
        [cell for cells in small for cell in cells],
        alone=large,  # several at once would take gigabytes
        prepare=lambda rows: rows[rows["round"] == rounds].assign(seconds=rows["cpu_seconds"] / rounds),
    )


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
    environment = GaussianProcessBandit(points, _SIDE, 1.0, noise_std=NOISE, seed=seed)
    arms, truth = environment.fixed_arms, environment.mean(environment.fixed_arms)
    algorithm = Chaining(_DELTA, points=arms)
    bounds: dict[str, Confidence] = {ALGORITHM: algorithm, PROVED: algorithm.reported()}
    bounds[UNION] = FiniteSet(points, _DELTA)
    method = Method(ALGORITHM, environment.kernel, NOISE**2, algorithm)
    state = method.state(arms)
    seen = {name: [misses(bound, state, arms, truth)] for name, bound in bounds.items()}
    for _ in rounds_of(method, environment, state, rounds):
        for name, bound in bounds.items():
            seen[name].append(misses(bound, state, arms, truth))
    return [
        {"seed": seed, "method": name, **_outside(*map(torch.stack, zip(*pairs, strict=True)))}
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
        found = {"runs": ("seed", "count"), "failed": ("failed", "sum"), "outside": ("outside", "mean")}
        found |= {"half": ("half", "mean"), "closest": ("closest", "max"), "excess": ("excess", "max")}
        return groups.agg(**found)

    def shown(rows: Frame) -> Frame:
        table = counts(rows)
        table.insert(
            0, "promise", [tables.NONE if name == ALGORITHM else f"at most {_DELTA:.0%}" for name in table.index]
        )
        names = {"failed": "runs outside", "outside": "share of points", "half": "half width"}
        return table.replace(math.inf, tables.NONE).rename(columns=names)

    return Plan(
        f"runs of {rounds} rounds of {ALGORITHM} in which a draw of a Gaussian process is outside mean +- bound at any "
        f"time\n{points} points on a square of side {_SIDE:g}, lengthscale 1, Gaussian noise {NOISE:g}, delta = "
        f"{_DELTA:g}\nshare of points: at all times; half width: mean; closest: largest |f - mean| / half width of all "
        'runs,\n"-" where a half width is zero; excess: largest |f - mean| - half width of all runs',
        {"": shown},
        {".csv": lambda rows, path: counts(rows).reset_index().to_csv(path, index=False)},
        cells_of_runs(
            f"{__name__}:watch", _FIRST_SEED, runs, f"watch {points} T{rounds}", points=points, rounds=rounds
        ),
    )


PAPER = replace(chaining.PAPER, studies=experiments(size=size, coverage=coverage))
