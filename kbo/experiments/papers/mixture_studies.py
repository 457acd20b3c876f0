"""Beyond the papers: do the bounds hold, what does the optimality gap promise, what if the norm is unknown?"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from kbo import bandit, recipes
from kbo.confidence import Confidence, MartingaleMixture, UnknownNorm, norm_lower_bound, squared_radius
from kbo.experiments.draw import lines as plots
from kbo.experiments.sweep.cells import Cell
from kbo.experiments.sweep.runner import Workers, sweep
from kbo.problems import RKHSBandit
from kbo.regression import FixedDictionary, KernelRidge, NystromRidge, track

if TYPE_CHECKING:
    import pandas as pd

DELTA = 0.1
_HERE = __name__
_KERNELS = ("rbf", "matern52", "matern32", "matern12")
_RUNS_A_CELL = 20


def validity(folder: Path, quick: bool, workers: Workers, progress: bool) -> str:
    """1000 runs of 300 adaptive rounds: how often does any bound fail at any round and any of 200 points?"""
    runs, rounds = (20, 40) if quick else (1000, 300)
    cells = [
        Cell(f"{_HERE}:watch", {"first": first, "runs": _RUNS_A_CELL, "rounds": rounds}, f"validity {first}")
        for first in range(0, runs, _RUNS_A_CELL)
    ]
    found = sweep(cells, folder / "cells", workers=workers, progress=progress)
    names = [name for name in found.rows.columns if name.startswith("failed: ")]
    lines = [f"{name[8:]:34s} {sum(found.rows[name]):5d} of {len(found.rows)}" for name in names]
    heading = f"runs of {rounds} adaptive rounds in which a bound failed; promised: at most {DELTA:.0%}"
    return found.checked("\n".join([heading, *lines]))


def watch(first: int, runs: int, rounds: int) -> list[dict[str, Any]]:
    """Whether each bound ever failed, for ``runs`` runs with seeds from ``first``."""
    return [_watch(seed, rounds) for seed in range(first, first + runs)]


def _watch(seed: int, rounds: int) -> dict[str, Any]:
    """One run of DMM-UCB on fixed arms, under the eyes of every bound."""
    name = _KERNELS[seed % len(_KERNELS)]
    problem = RKHSBandit(name, 0.3, dim=2, norm=5.0, noise_std=0.3, n_arms=200, fixed=True, seed=50_000 + seed)
    arms, B, sigma = problem.fixed_arms, problem.norm_bound, problem.noise_std
    assert arms is not None
    methods = {
        method: recipes.make(method, problem.kernel, sigma, B, DELTA, horizon=rounds)
        for method in ("ay-gp-ucb", "igp-ucb", "amm-ucb", "dmm-ucb", "cmm-ucb")
    }
    truth, player = problem.mean(arms), methods["dmm-ucb"]
    state = player.state()
    tracked, sketched = track(state, arms), NystromRidge(problem.kernel, state.ridge, FixedDictionary(arms[:20]))
    failed = dict.fromkeys([*methods, "sketched cmm-ucb", "f in the mixture's set", "norm lower bound"], False)
    misfit = 0.0
    for t in range(1, rounds + 1):
        index, _ = player.confidence.argmax_upper(tracked, arms)  # pyright: ignore[reportOptionalMemberAccess]
        y = problem.observe(arms[index : index + 1])
        for posterior in (state, sketched):
            posterior.update(arms[index : index + 1], y)
        misfit += float((y - truth[index]) ** 2)
        failed["f in the mixture's set"] |= misfit > float(squared_radius(state, sigma, DELTA))
        everything = t % 100 == 0 or t in (20, 50, rounds)  # these follow from the set, and cost more
        for method, recipe in methods.items():
            if method != "cmm-ucb" or everything:
                failed[method] |= _outside(recipe.confidence, tracked, arms, truth)
        if everything:
            failed["sketched cmm-ucb"] |= _outside(methods["cmm-ucb"].confidence, sketched, arms, truth)
        if everything or t % 10 == 0:
            failed["norm lower bound"] |= float(norm_lower_bound(state, sigma, DELTA)) > B
    return {"seed": seed, "kernel_name": name, **{f"failed: {method}": value for method, value in failed.items()}}


def _outside(confidence: Confidence | None, state: Any, X: Tensor, truth: Tensor) -> bool:
    assert confidence is not None
    lower, upper = confidence.interval(state, X)
    return bool(((truth < lower - 1e-9) | (truth > upper + 1e-9)).any())


def gap(folder: Path, quick: bool, workers: Workers, progress: bool) -> str:
    """200 finite problems of 1000 arms: is the recommended arm within the gap, and when is the gap small?"""
    problems, rounds = (2, 30) if quick else (200, 300)
    methods = ("cmm-ucb", "dmm-ucb", "amm-ucb", "ay-gp-ucb")
    cells = [
        Cell(f"{_HERE}:play_with_gap", {"method": method, "seed": seed, "rounds": rounds}, f"gap {method} seed{seed}")
        for seed in range(problems)
        for method in methods
    ]
    found = sweep(cells, folder / "cells", workers=workers, progress=progress)
    if found.rows.empty:
        return found.checked("")
    rows, picture = found.rows, folder / "gap.png"
    title = f"optimality gap: {problems} problems of 1000 arms, Matérn 5/2 0.5, d = 2, δ = {DELTA:g}"
    plots.medians(
        rows.assign(relative=rows["gap"] / rows["range"]), "relative", picture, title=title, ylabel="gap / range"
    )
    lines = ["method         regret above gap   stops at 5% of the range  median gap / range at the end"]
    for method, group in rows.groupby("method", sort=False):
        runs = [run for _, run in group.groupby("seed")]
        broken = sum(bool((run["simple_regret"] > run["gap"]).any()) for run in runs)
        stops = [run.loc[run["gap"] <= 0.05 * run["range"], "round"].min() for run in runs]
        stopped = [float(stop) for stop in stops if stop == stop]
        when = f"{len(stopped)} of {len(runs)}" + (f", median {statistics.median(stopped):.0f}" if stopped else "")
        end = statistics.median(float(run["gap"].iloc[-1] / run["range"].iloc[-1]) for run in runs)
        lines.append(f"{method!s:12s} {f'{broken} of {len(runs)}':>18s} {when:>26s} {end:30.3f}")
    return found.checked("\n".join([title, *lines, f"picture  {picture}"]))


def play_with_gap(method: str, seed: int, rounds: int) -> list[dict[str, Any]]:
    """Gap and simple regret every five rounds."""
    problem = RKHSBandit("matern52", 0.5, dim=2, n_arms=1000, fixed=True, seed=60_000 + seed)
    assert problem.fixed_arms is not None
    values = problem.mean(problem.fixed_arms)
    scale = problem.scale(rounds)
    made = recipes.make(
        method, problem.kernel, problem.noise_std, problem.norm_bound, DELTA, scale=scale, horizon=rounds
    )
    rows = bandit.play(made, problem, rounds, seed, gap_every=5)
    kept = ("round", "gap", "simple_regret", "cpu_seconds")
    return [
        {**{key: row[key] for key in kept}, "range": float(values.max() - values.min())} for row in rows if "gap" in row
    ]


def norm(folder: Path, quick: bool, workers: Workers, progress: bool) -> str:
    """The lower confidence bound of the norm after n uniform data, and regret when the norm is unknown."""
    lines = [
        "lower confidence bound of the norm (truth 10), mean and largest of 20 problems",
        "kernel          n = 20        100        300",
    ]
    for name in ("rbf", "matern32"):
        found = torch.tensor([_norm_bounds(name, seed) for seed in range(2 if quick else 20)])
        lines.append(
            f"{name:10s}" + "".join(f"  {a:.2f}/{b:.2f}" for a, b in zip(found.mean(0), found.amax(0), strict=True))
        )
    from kbo.experiments.papers.mixture import games

    methods, seeds = ("cmm-ucb", "cmm-ucb-doubling", "cmm-ucb-practical"), range(2 if quick else 10)
    cells = [game.cell(method, seed) for seed in seeds for game in games(quick).values() for method in methods]
    found = sweep(cells, folder / "cells", workers=workers, progress=progress)
    if found.rows.empty:
        return found.checked("")
    table = _final_regret(found.rows, "cmm-ucb")
    lines += ["", "cumulative regret at the end, means over the same problems", table]
    return found.checked("\n".join(lines))


def _norm_bounds(kernel: str, seed: int) -> list[float]:
    problem = RKHSBandit(kernel, 0.5, seed=70_000 + seed)
    state, found, generator = KernelRidge(problem.kernel, problem.noise_std**2), [], torch.Generator().manual_seed(seed)
    for more in (20, 80, 200):
        X = torch.rand(more, problem.dim, generator=generator, dtype=torch.float64)
        state.update(X, problem.observe(X))
        found.append(float(norm_lower_bound(state, problem.noise_std, 0.01)))
    return found


MULTIPLES = (1.02, 1.05, 1.1, 1.15, 1.2, 1.25, 1.5, 2.0)


def multiple(folder: Path, quick: bool, workers: Workers, progress: bool) -> str:
    """Which multiple of the norm's lower bound to use in practice: regret on problems that no table has."""
    worlds: list[Mapping[str, Any]] = [
        {"kernel": "rbf", "lengthscale": 0.35, "dim": 2, "norm": 5.0},
        {"kernel": "matern52", "lengthscale": 0.35, "dim": 2, "norm": 5.0},
        {"kernel": "matern32", "lengthscale": 0.7, "dim": 3, "norm": 20.0},
        {"kernel": "rbf", "lengthscale": 0.3, "dim": 3, "norm": 3.0},
    ]
    rounds, seeds = (20, 1) if quick else (300, 10)
    cells = [
        Cell(
            f"{_HERE}:play_unknown",
            {"method": method, "seed": seed, "rounds": rounds, **world},
            f"multiple {method} {seed}",
        )
        for seed in range(seeds)
        for world in worlds
        for method in ("known", "doubling", *map(str, MULTIPLES))
    ]
    found = sweep(cells, folder / "cells", workers=workers, progress=progress)
    if found.rows.empty:
        return found.checked("")
    return found.checked("cumulative regret, means over the same problems\n" + _final_regret(found.rows, "known"))


def play_unknown(method: str, seed: int, rounds: int, **world: Any) -> list[dict[str, Any]]:
    """The regret of CMM-UCB with the true norm, with doubling, or with a multiple of the norm's lower bound."""
    problem = RKHSBandit(**world, seed=80_000 + seed)
    sigma, scale = problem.noise_std, problem.scale(rounds)
    if method == "known":
        confidence: Confidence = MartingaleMixture(sigma, problem.norm_bound, 0.01, "cmm", scale)
    else:
        confidence = UnknownNorm(sigma, 0.01, scale=scale, multiple=None if method == "doubling" else float(method))
    made = recipes.Method(method, problem.kernel, sigma**2 / scale, confidence)
    return list(bandit.play(made, problem, rounds, seed))[-1:]


def _final_regret(rows: pd.DataFrame, baseline: str) -> str:
    """Mean regret of every method on every problem, and the sums over problems against the baseline's."""
    last = rows[rows["round"] == rows["round"].max()]
    table = last.pivot_table(index=["kernel", "lengthscale"], columns="method", values="cumulative", sort=False)
    against = table.sum() / table[baseline].sum()
    ratios = ", ".join(f"{method} {value:.2f}" for method, value in against.items())
    return f"{table.to_string(float_format='{:.1f}'.format)}\nsum against {baseline}: {ratios}"


def sketch(folder: Path, quick: bool, workers: Workers, progress: bool) -> str:
    """Mean width of the upper bound above f, exact and sketched, after n uniform observations."""
    n, sizes = (100, (10, 20)) if quick else (1000, (50, 100, 200, 400))
    lines = [f"mean of upper bound - f at 300 points, n = {n}, d = 3, norm 10, noise 0.1, delta 0.01"]
    for kernel, lengthscale in (("rbf", 0.5), ("rbf", 0.2), ("matern52", 0.5)):
        problem = RKHSBandit(kernel, lengthscale, seed=1)
        X, Z = (
            problem.arms().new_empty(n, 3).uniform_(generator=_seeded(1)),
            torch.rand(300, 3, generator=_seeded(2), dtype=torch.float64),
        )
        y, truth, sigma, scale = problem.observe(X), problem.mean(Z), problem.noise_std, problem.scale(n)
        kinds = {
            kind: MartingaleMixture(sigma, problem.norm_bound, 0.01, kind, scale) for kind in ("cmm", "dmm", "amm")
        }
        exact = KernelRidge(problem.kernel, sigma**2 / scale)
        exact.update(X, y)
        words = [f"exact {kind} {float((bound.upper(exact, Z) - truth).mean()):.3f}" for kind, bound in kinds.items()]
        for m in sizes:
            state = NystromRidge(problem.kernel, exact.ridge, FixedDictionary.pivoted(problem.kernel, X, m))
            state.update(X, y)
            words.append(f"m = {m}: {float((kinds['cmm'].upper(state, Z) - truth).mean()):.3f}")
        lines.append(f"{kernel} {lengthscale:g}:  " + ",  ".join(words))
    return "\n".join(lines)


def _seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
