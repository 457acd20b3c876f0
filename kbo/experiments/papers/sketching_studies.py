"""Studies of sketches: sizes of dictionaries against the effective dimension, and time per step in long runs."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd
import torch

from kbo.experiments.bandits import BanditProblem
from kbo.experiments.draw import lines
from kbo.experiments.papers import sketching
from kbo.experiments.papers.experiment import Frame, Plan, experiments, rounds_of
from kbo.experiments.papers.sketching import RIDGES, exact, sketched
from kbo.experiments.sweep.cells import Cell, concatenate
from kbo.kernels import freeze
from kbo.regression import NystromRidge


def dimension(quick: bool) -> Plan:
    """Dictionary sizes against the effective dimension of the chosen points, on Chessboard at three ridges."""
    rounds, every, seeds = (40, 20, 1) if quick else (1000, 50, 3)
    return Plan(
        f"after {rounds} rounds, means over {seeds} runs",
        {"": _ratios},
        {".png": _draw_sizes},
        [
            Cell(
                f"{__name__}:play_and_measure",
                {"method": name, "ridge": ridge, "seed": seed, "rounds": rounds, "every": every},
                f"dimension {name} ridge{ridge:g} seed{seed}",
            )
            for seed in range(seeds)
            for ridge in RIDGES
            for name in sketched(ridge)
        ],
    )


def _ratios(rows: Frame) -> Frame:
    last = rows[rows["round"] == rows["round"].max()]
    table = last.pivot_table(index=["ridge", "method"], values=["dimension", "m"], sort=False)
    return table.assign(ratio=table["m"] / table["dimension"])


def _draw_sizes(rows: Frame, path: Any) -> None:
    panels = {}
    for ridge, part in rows.groupby("ridge", sort=True):
        first = part[part["method"] == part["method"].iloc[0]]
        beside = first.assign(method="effective dimension", m=first["dimension"])
        panels[f"ridge = mu = {ridge:g}"] = concatenate([part, beside])
    ylabel = "number of anchors, dimension"
    lines.against_rounds(panels, path, title="dictionary sizes on Chessboard", values=["m"], ylabel=ylabel, band="mean")


def play_and_measure(method: str, ridge: float, seed: int, rounds: int, every: int) -> list[dict[str, Any]]:
    """The number of anchors ``m`` and the effective dimension of the exact kernel matrix, every so many rounds."""
    problem = BanditProblem("chessboard", rounds=rounds, delta=0.1)
    environment, made = problem.environment(seed), problem.make(sketched(ridge)[method], seed)
    state, points, rows = made.state(), [], []
    assert isinstance(state, NystromRidge)
    for t, x, _ in rounds_of(made, environment, state, rounds):
        points.append(x)
        if t % every == 0:
            X = torch.cat(points)
            spectrum = torch.linalg.eigvalsh(freeze(environment.kernel, X)(X, X)).clamp_min(0)
            rows.append({"round": t, "m": state.m, "dimension": float((spectrum / (spectrum + ridge)).sum())})
    return rows


def time_per_step(quick: bool) -> Plan:
    """CPU time per step on Chessboard: EK-UCB and BBKB to 10^5 rounds, K-UCB to 2000."""
    ridge, long, short = (10.0, 400, 100) if quick else (10.0, 100_000, 2000)
    streams = [(sketched(ridge)["ek-ucb"], long), (sketched(ridge)["c-bbkb, C = 3"], long), (exact(ridge), short)]
    title = "CPU time per step, Chessboard, ridge 10, one thread"
    return Plan(
        title,
        {"": _steps},
        {".png": partial(lines.time_per_step, title=title, log="xy")},
        [
            BanditProblem("chessboard", rounds=rounds, delta=0.1, every=max(1, rounds // 5000)).cell(method, 0)
            for method, rounds in streams
        ],
    )


def _steps(rows: Frame) -> Frame:
    """A line for every method: rounds, CPU time, and time of a step, averaged over a fiftieth of the run."""
    found = {}
    for method, run in rows.groupby("method", sort=False):
        step = 1e6 * run["cpu_seconds"].diff(width := max(1, len(run) // 50)) / run["round"].diff(width)
        found[str(method)] = {
            "rounds": run["round"].iloc[-1],
            "CPU s": run["cpu_seconds"].iloc[-1],
            "step at a tenth, us": step.iloc[max(width, len(run) // 10 - 1)],
            "step at the end, us": step.iloc[-1],
            "m": run["m"].iloc[-1],
        }
    return pd.DataFrame(found).T


PAPER = replace(
    sketching.PAPER,
    studies=experiments(
        starvation=sketching.starvation, dimension=dimension, time=time_per_step, dictionaries=sketching.dictionaries
    ),
)
