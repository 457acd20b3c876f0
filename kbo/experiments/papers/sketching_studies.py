"""What sketches are about: starved variances, sizes of dictionaries against the effective dimension, flat time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kbo.experiments.bandits import BanditMethod, BanditProblem
from kbo.experiments.draw import tables
from kbo.experiments.papers import sketching_plots as sketch_plots
from kbo.experiments.papers.sketching_methods import batched, exact, paper_players, variants
from kbo.experiments.sweep.cells import Cell
from kbo.experiments.sweep.runner import Workers, sweep
from kbo.kernels import freeze
from kbo.problems import stationary_kernel
from kbo.regression import KernelRidge, LeverageResampling, NystromRidge

_EVALUATIONS = (6, 63, 215)
_RIDGES = (1.0, 10.0, 100.0)


def starvation(name: str, folder: Path, quick: bool, workers: Workers, progress: bool) -> str:
    """BKB's figure 2: a draw from a GP, observed on [0, 0.5] only; three posteriors on [0, 1]; always quick.

    The kernel is ``exp(-100 |x - x'|^2 / 2)``, a lengthscale of 0.1; the noise has standard deviation 0.1, the ridge is
    its square. DTC and SoR (the sketch without ``k - |z|^2``) have the same dictionary, drawn by BKB.
    """
    kernel, random = stationary_kernel("rbf", 0.1), torch.Generator().manual_seed(1)
    x = torch.linspace(0, 1, 401, dtype=torch.float64)
    observed = 0.5 * torch.rand(_EVALUATIONS[-1], generator=random, dtype=torch.float64)
    f = _draw(kernel, torch.cat([x, observed]), random)
    y = f[len(x) :] + 0.1 * torch.randn(len(observed), generator=random, dtype=torch.float64)
    panels, lines = (
        {},
        ["mean standard deviation on [0.7, 1], where there are no data", "   n   m  exact    DTC    SoR"],
    )
    for n in _EVALUATIONS:
        full = KernelRidge(kernel, 0.01)
        sketch = NystromRidge(kernel, 0.01, LeverageResampling())
        for state in (full, sketch):
            state.update(observed[:n, None], y[:n])
        posteriors = {"exact": full.predict(x[:, None]), "DTC (kbo)": sketch.predict(x[:, None])}
        posteriors["SoR"] = _subset_of_regressors(sketch, x[:, None])
        bands = {method: (mean, variance.sqrt()) for method, (mean, variance) in posteriors.items()}
        panels[f"{n} evaluations, m = {sketch.m}"] = ((observed[:n], y[:n]), bands)
        deviations = "".join(f"{float(deviation[x >= 0.7].mean()):7.3f}" for _, deviation in bands.values())
        lines.append(f"{n:4d} {sketch.m:3d}{deviations}")
    picture = folder / name
    title = "variance starvation: Gaussian kernel of lengthscale 0.1, observed on [0, 0.5]"
    sketch_plots.starvation(x, f[: len(x)], panels, picture, title=title)
    return "\n".join([*lines, f"picture  {picture}"])


def _draw(kernel: Any, x: Tensor, random: torch.Generator) -> Tensor:
    """A draw [N] from the GP at x [N]."""
    gram = freeze(kernel, x[:, None])(x[:, None], x[:, None])
    values, vectors = torch.linalg.eigh(gram)
    return vectors @ (values.clamp_min(0).sqrt() * torch.randn(len(x), generator=random, dtype=torch.float64))


def _subset_of_regressors(sketch: NystromRidge, X: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance ``ridge z'M^-1 z`` [N] at X [N d]."""
    mean, variance = sketch.predict(X)
    unexplained = sketch.prior_variance(X) - sketch.features(X).square().sum(0)
    return mean, (variance - unexplained.clamp_min(0)).clamp_min(0)


def dimension(folder: Path, quick: bool, workers: Workers, progress: bool) -> str:
    """Dictionary sizes against the effective dimension of the points played, on Chessboard at three ridges."""
    rounds, every, seeds = (40, 20, 1) if quick else (1000, 50, 3)
    sizes = [
        Cell(
            f"{__name__}:play_and_measure",
            {"method": player.method, "ridge": ridge, "seed": seed, "rounds": rounds, "every": every},
            f"dimension {player.method} ridge{ridge:g} seed{seed}",
        )
        for seed in range(seeds)
        for ridge in _RIDGES
        for player in _sketched(ridge)
    ]
    found = sweep(sizes, folder / "cells", workers=workers, progress=progress)
    if found.rows.empty:
        return found.checked("")
    import pandas as pd

    picture, title = folder / "dimension.png", "dictionary sizes on Chessboard"
    panels = {f"ridge = mu = {ridge:g}": part for ridge, part in found.rows.groupby("ridge", sort=True)}
    sketch_plots.sizes(panels, picture, title=title)
    last = pd.DataFrame(found.rows[found.rows["round"] == rounds])
    table = pd.pivot_table(last, index=["ridge", "method"], values=["dimension", "m"], sort=False)
    table = table.assign(ratio=table["m"] / table["dimension"])
    text = table.to_string(float_format="{:.1f}".format)
    return found.checked(f"after {rounds} rounds, means over {seeds} runs\n{text}\npicture  {picture}")


def _sketched(ridge: float) -> list[BanditMethod]:
    return [player for player in (*paper_players(ridge), *variants(ridge)) if player.dictionary is not None]


def play_and_measure(method: str, ridge: float, seed: int, rounds: int, every: int) -> list[dict[str, Any]]:
    """The number of anchors ``m`` and the effective dimension of the exact kernel matrix, every so many rounds."""
    (player,) = (player for player in _sketched(ridge) if player.method == method)
    played = BanditProblem("chessboard", rounds=rounds, delta=0.1)
    world, made = played.environment(seed), played.make(player, seed)
    state, chance, points, rows = made.state(), torch.Generator().manual_seed(seed), [], []
    assert isinstance(state, NystromRidge)
    for t in range(1, rounds + 1):
        arms = world.arms()
        index = made.choose(state, arms, chance)
        points.append(arms[index : index + 1])
        state.update(points[-1], world.observe(points[-1]))
        if t % every == 0:
            X = torch.cat(points)
            spectrum = torch.linalg.eigvalsh(freeze(world.kernel, X)(X, X)).clamp_min(0)
            rows.append({"round": t, "m": state.m, "dimension": float((spectrum / (spectrum + ridge)).sum())})
    return rows


def time_per_step(folder: Path, quick: bool, workers: Workers, progress: bool) -> str:
    """CPU time per step on Chessboard: EK-UCB and BBKB to 10^5 rounds, K-UCB to 2000."""
    ridge, long, short = (10.0, 400, 100) if quick else (10.0, 100_000, 2000)
    ek_ucb = next(player for player in paper_players(ridge) if player.method == "ek-ucb")
    streams = [(ek_ucb, long), (batched("c-bbkb, C = 3", ridge, 3.0), long), (exact(ridge), short)]
    asked = [
        BanditProblem("chessboard", rounds=rounds, delta=0.1, every=max(1, rounds // 5000)).cell(player, 0)
        for player, rounds in streams
    ]
    found = sweep(asked, folder / "cells", workers=workers, progress=progress)
    if found.rows.empty:
        return found.checked("")
    picture = folder / "time.png"
    sketch_plots.long_time_per_step(found.rows, picture, title="CPU time per step, Chessboard, ridge 10, one thread")
    lines = ["method           rounds  CPU s  step at a tenth, us  step at the end, us    m"]
    for method, run in found.rows.groupby("method", sort=False):
        rounds, seconds = run["round"].tolist(), run["cpu_seconds"].tolist()
        early, late = (1e6 * _step(rounds, seconds, at) for at in (len(rounds) // 10, len(rounds)))
        size = tables.count(float(run["m"].iloc[-1]))
        lines.append(f"{method!s:15s} {rounds[-1]:7d} {seconds[-1]:6.1f} {early:20.0f} {late:20.0f} {size:>5s}")
    return found.checked("\n".join([*lines, f"picture  {picture}"]))


def _step(rounds: list[int], seconds: list[float], end: int) -> float:
    """Seconds of a step in the last fiftieth of the run before its row number ``end``."""
    start = max(0, end - 1 - max(1, len(rounds) // 50))
    return (seconds[end - 1] - seconds[start]) / max(1, rounds[end - 1] - rounds[start])
