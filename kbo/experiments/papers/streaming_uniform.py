"""What is learned from points that are drawn uniformly from the arms: noise bounds, ridges, envelopes."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from kbo.confidence import AdaptiveMixture, NoiseBounds
from kbo.experiments.bandits import BanditMethod
from kbo.experiments.papers import streaming_plots
from kbo.experiments.papers.streaming_methods import ADAPTIVE, DELTA, FIXED, LOWER, MIXTURE, ORACLE, UPPER, game
from kbo.experiments.sweep.cells import Cell
from kbo.experiments.sweep.runner import Sweep, Workers, sweep
from kbo.recipes.method import Method
from kbo.regression import KernelRidge, Posterior, track

if TYPE_CHECKING:
    import pandas as pd

FIXED_RIDGE, FIXED_GAIN = "paper, fixed ridge", "paper, fixed ridge and gain"
"""The noise bounds of the paper from the fit at the first ridge, ``upper^2 / C^2``, which stays.

The first pays the information gain at ``lower^2 / C^2``, as the adaptive form must, the second that at the ridge.
"""

_PLAYERS = {
    ORACLE: BanditMethod(ORACLE),
    FIXED: BanditMethod(FIXED),
    "paper": BanditMethod(ADAPTIVE, noise_variant="paper"),
    "tight": BanditMethod(ADAPTIVE, noise_variant="tight"),
    "tight+grid": BanditMethod(ADAPTIVE),
    "mixture": BanditMethod(MIXTURE),
    **dict.fromkeys((FIXED_RIDGE, FIXED_GAIN), BanditMethod(FIXED)),
    **{kind: BanditMethod(f"{kind}-ucb") for kind in ("amm", "dmm", "cmm")},
}
_UNKNOWN_MIXTURES = {f"{kind}-adaptive": kind for kind in ("amm", "dmm", "cmm")}
_SEEDS, _ROUNDS, _MARKS = 20, 1000, (100, 300, 1000)
_QUICK = "\n(--quick: tiny sizes)"


class _FixedGain(NoiseBounds):
    """Noise bounds for a ridge that stays: the log-determinant is that at the ridge."""

    def deviation(self, state: Posterior) -> float:
        return 2 * math.log(1 / self.event_delta) + float(state.log_det([self.ridge])[0])


def learn(form: str, seed: int, rounds: int, every: int) -> list[dict[str, Any]]:
    """Every so many observations: noise bounds and ridge, and the envelope's height above f and its half width.

    Returns:
        ``round``, ``ridge``; ``upper`` and ``lower`` bound of the noise level where there are any; ``above`` and
        ``half``, means over the arms, where there is an envelope.
    """
    played = game(quick=False)
    world, random = played.environment(seed), torch.Generator().manual_seed(40_000 + seed)
    arms = world.fixed_arms
    assert arms is not None
    truth, method = world.mean(arms), _method(form)
    state = method.state(arms)
    bounds, stays = state.schedule, form in (FIXED_RIDGE, FIXED_GAIN)
    if stays:
        kind = NoiseBounds if form == FIXED_RIDGE else _FixedGain
        bounds = kind(world.norm_bound, DELTA, UPPER, LOWER, "paper")
        state = track(KernelRidge(world.kernel, bounds.ridge), arms)
    rows = []
    for t in range(1, rounds + 1):
        x = arms[torch.randint(len(arms), (1,), generator=random)]
        state.update(x, world.observe(x))
        if stays and isinstance(bounds, NoiseBounds):
            bounds.ridge = state.ridge
            bounds.update(state)
        if t % every == 0:
            row: dict[str, Any] = {"round": t, "ridge": state.ridge}
            if isinstance(bounds, NoiseBounds):
                row |= {"upper": bounds.upper, "lower": bounds.lower}
            if not stays:
                row |= _sizes(method, state, arms, truth)
            rows.append(row)
    return rows


def _method(form: str) -> Method:
    if form in _UNKNOWN_MIXTURES:
        return replace(
            game(quick=False).make(BanditMethod(MIXTURE)), confidence=AdaptiveMixture(_UNKNOWN_MIXTURES[form])
        )
    return game(quick=False).make(_PLAYERS[form])


def _sizes(method: Method, state: Any, arms: Tensor, truth: Tensor) -> dict[str, float]:
    assert method.confidence is not None
    lower, upper = method.confidence.interval(state, arms)
    return {"above": float((upper - truth).mean()), "half": float((upper - lower).mean() / 2)}


def learned(names: list[str], folder: Path, quick: bool, workers: Workers, progress: bool) -> Sweep:
    """The rows of ``learn`` for forms, with the form as ``method``."""
    rounds, seeds, dear = (40, 2, 10) if quick else (_ROUNDS, _SEEDS, 100)
    often = {name: dear if name.startswith("cmm") else 10 for name in names}
    cells = [
        Cell(
            f"{__name__}:learn",
            {"form": name, "seed": seed, "rounds": rounds, "every": often[name]},
            f"uniform {name} T{rounds} seed{seed}",
        )
        for seed in range(seeds)
        for name in names
    ]
    found = sweep(cells, folder / "cells", workers=workers, progress=progress)
    if not found.rows.empty:
        found.rows["method"] = found.rows["form"]
    return found


def illustration(folder: Path, quick: bool, workers: Workers, progress: bool) -> str:
    """Figure 1: the function, noisy data and envelopes after 30 and 100 observations; always quick."""
    world, random = game(quick=False).environment(0), torch.Generator().manual_seed(40_000)
    X = torch.rand(100, 1, generator=random, dtype=torch.float64)
    y, grid = world.observe(X), torch.linspace(0, 1, 401, dtype=torch.float64).unsqueeze(-1)
    panels, lines = {}, ["mean half width of the envelopes"]
    for n in (30, 100):
        bounds = {}
        for name in (ORACLE, FIXED, "tight+grid", "mixture"):
            method = _method(name)
            state = method.state()
            state.update(X[:n], y[:n])
            assert method.confidence is not None
            bounds[name] = method.confidence.interval(state, grid)
        panels[f"n = {n}"] = ((X[:n, 0], y[:n]), bounds)
        halves = ", ".join(f"{name} {float((high - low).mean() / 2):.3f}" for name, (low, high) in bounds.items())
        lines.append(f"n = {n:3d}:  {halves}")
    picture = folder / "figure1.png"
    title = f"envelopes at delta = {DELTA:g}: noise 0.1, norm 2.06, told at most {UPPER:g} and 5"
    note = "the oracle is told the noise; tight+grid: Corollary 1; mixture: DMM at the learned noise level"
    streaming_plots.envelopes(grid[:, 0], world.mean(grid), panels, picture, title=title, note=note)
    return "\n".join([*lines, f"picture  {picture}"])


def _quantities(
    number: int,
    names: list[str],
    values: list[str],
    title: str,
    ylabel: str,
    note: str,
    truth: tuple[str, float] | None,
    folder: Path,
    quick: bool,
    workers: Workers,
    progress: bool,
) -> str:
    """Figures 2 to 5: quantities of forms against rounds; the text has their medians at some rounds."""
    found = learned(names, folder, quick, workers, progress)
    if found.rows.empty:
        return found.checked("")
    picture = folder / f"figure{number}.png"
    streaming_plots.curves(found.rows, values, picture, title=title, ylabel=ylabel, truth=truth, note=note)
    table = _medians(found.rows, values)
    return found.checked(f"{title}; medians over seeds\n{table}{_QUICK * quick}\npicture  {picture}")


_NOISE = ("true noise level", 0.1)
FIGURES = {
    1: illustration,
    2: partial(
        _quantities,
        2,
        [ORACLE, FIXED, "paper", "tight+grid", "mixture"],
        ["above"],
        "upper envelope minus the function, mean over the arms; uniform points",
        "mean height above f",
        "oracle, fixed: Theorem 1; paper, tight+grid: Corollary 1; through burn-in paper is worse than fixed",
        None,
    ),
    3: partial(
        _quantities,
        3,
        ["paper", "tight", "tight+grid", "mixture"],
        ["upper", "lower"],
        "upper and lower bound of the noise level, uniform points",
        "noise level",
        f"known beforehand: {LOWER:g} to {UPPER:g}; in burn-in upper bounds do not move, the paper's for longest",
        _NOISE,
    ),
    4: partial(
        _quantities,
        4,
        [FIXED_RIDGE, FIXED_GAIN, "paper", "tight", "tight+grid"],
        ["upper"],
        "upper bound of the noise level: fixed against adaptive ridge",
        "noise level",
        "adaptive beats fixed if both pay the gain of the least ridge possible, not if fixed pays its own",
        _NOISE,
    ),
    5: partial(
        _quantities,
        5,
        ["paper", "tight", "tight+grid", "mixture"],
        ["ridge"],
        "the ridge, uniform points",
        "ridge",
        "the mixture takes the ridge with the smallest radius, from a grid of its own",
        ("oracle: noise variance / norm bound²", (0.1 / 5) ** 2),
    ),
}
"""The figures of this file: envelopes, their heights, noise bounds, fixed against adaptive ridges, ridges."""


_WIDTH_FORMS = ("paper", "tight", "tight+grid", *_UNKNOWN_MIXTURES, ORACLE, "amm", "dmm", "cmm")


def width(folder: Path, quick: bool, workers: Workers, progress: bool) -> str:
    """Mean half width of the envelopes after 100, 300, 1000 uniform observations, noise unknown and told."""
    found = learned(list(_WIDTH_FORMS), folder, quick, workers, progress)
    if found.rows.empty:
        return found.checked("")
    marks = (10, 20, 40) if quick else _MARKS
    table = found.rows[found.rows["round"].isin(marks)].pivot_table(
        index="method", columns="round", values="half", sort=False
    )
    told = ["no" if str(name) in _WIDTH_FORMS[:6] else "yes" for name in table.index]
    table.insert(0, "told the noise", told)
    heading = "mean half width of the envelopes over the arms, after n uniform observations; means over seeds"
    return found.checked(f"{heading}\n{table.to_string(float_format='{:.3f}'.format)}{_QUICK * quick}")


def _medians(rows: pd.DataFrame, values: list[str]) -> str:
    last = max(rows["round"].tolist())
    wanted = [int(last * part) for part in (0.1, 0.2, 0.3, 0.5, 0.7, 1.0)]
    kept = rows[rows["round"].isin(wanted)]
    table = kept.pivot_table(index="method", columns="round", values=values, aggfunc="median", sort=False)
    return table.to_string(float_format="{:.4g}".format)
