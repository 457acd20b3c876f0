"""Sketched posteriors: whole bandit runs, long streams, a million candidates, and GPyTorch's inducing points."""

from __future__ import annotations

import copy
import statistics
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from gpytorch.kernels import InducingPointKernel, RBFKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.settings import sgpr_diagonal_correction
from torch import Tensor

from kbo import bandit
from kbo.confidence import FixedWidth
from kbo.experiments.bandits import BanditMethod, BanditProblem
from kbo.experiments.bench.race import (
    Bench,
    Figures,
    Row,
    agree,
    at_most,
    at_most_times,
    faster,
    mean_and_variance,
    medians,
    megabytes,
    single_task_gp,
    uniform,
    wall_and_memory,
)
from kbo.experiments.sweep.pool import threads
from kbo.kernels import freeze
from kbo.models import NystromGP
from kbo.problems import stationary_kernel
from kbo.regression import FixedDictionary, NystromRidge


def cpu_seconds(problem: BanditProblem, method: BanditMethod) -> list[float]:
    """Return the CPU seconds of the method alone, so far, after every round."""
    rows = bandit.play(problem.make(method), problem.environment(0), problem.rounds)
    return [row["cpu_seconds"] for row in rows]


def bandit_run(device: torch.device, n: int, problem: BanditProblem, method: BanditMethod, repeats: int = 1) -> Figures:
    """Time a run of n rounds, the median of some, and measure the peak memory of the process in MB."""
    with threads(1):
        runs = [cpu_seconds(replace(problem, rounds=n), method) for _ in range(repeats)]
    total = statistics.median(run[-1] for run in runs)
    return {**early_and_late(runs[0]), "total": total, "peak": megabytes(peak=True)}


def early_and_late(seconds: list[float]) -> Figures:
    """Return the time of a run, and that of a step at a tenth of it and at its end, from the time after every step."""
    few = max(len(seconds) // 50, 1)
    early, late = ((seconds[end - 1] - seconds[end - 1 - few]) / few for end in (len(seconds) // 10, len(seconds)))
    return {"total": seconds[-1], "early": early, "late": late}


def on_many_points(
    device: torch.device, points: int, work: Callable[[NystromRidge, Tensor], Any], on_threads: int = 2
) -> Figures:
    """Time some work on fresh points, and measure the memory in MB that it takes beside them."""
    with threads(on_threads):
        state = sketch(200, torch.device("cpu"))
        work(state, uniform(1000, 3, seed=3))
        X = uniform(points, 3, seed=4)
        return wall_and_memory(lambda: work(state, X))


def best(state: NystromRidge, X: Tensor) -> Any:
    """Find the point of the largest bound."""
    return FixedWidth(1.0).argmax_upper(state, X)


def inducing_points(device: torch.device, n: int, m: int, points: int, chunk: int) -> Figures:
    """Time the same sketch as GPyTorch's inducing-point regression: mean and variance of fresh candidates."""
    X, P = uniform(n, 3, seed=1).to(device), uniform(points, 3, seed=2).to(device)
    y = torch.sin(5 * X).sum(-1, keepdim=True)
    kernel = RBFKernel().double().initialize(lengthscale=0.3).to(device)
    dictionary = FixedDictionary.pivoted(kernel, X[:2000], m)
    likelihood = GaussianLikelihood().double().initialize(noise=0.01).to(device)
    inducing = InducingPointKernel(copy.deepcopy(kernel), dictionary.points.clone(), likelihood)
    ours = NystromGP(X, y, kernel, 0.01, dictionary)

    with sgpr_diagonal_correction(False):  # with it the training set has another noise; the mean must be the same
        plain = single_task_gp(X, y, inducing, likelihood)
        agree(lambda: mean_and_variance(ours, P[:10])[0], lambda: mean_and_variance(plain, P[:10])[0])
    gp = single_task_gp(X, y, inducing, likelihood)
    found = medians(
        device,
        theirs_batch=lambda: mean_and_variance(gp, P[:chunk].unsqueeze(1)),
        theirs_joint=lambda: mean_and_variance(gp, P),
        kbo_batch=lambda: mean_and_variance(ours, P.unsqueeze(1)),
        kbo_joint=lambda: mean_and_variance(ours, P),
    )
    return {**found, "theirs_batches": found["theirs_batch"] * points / chunk}


def throughput(device: torch.device, n: int, m: int) -> Figures:
    """Time the scoring of many arms on a GPU, against the device's own pace in the product that it takes."""
    state, confidence, X = sketch(m, device), FixedWidth(1.0), uniform(n, 3, seed=4).to(device)
    left = torch.rand(m, m, device=device, dtype=torch.float64)
    right = torch.rand(m, n, device=device, dtype=torch.float64)
    k = freeze(state.kernel, X)

    works = {
        "scored": lambda: confidence.argmax_upper(state, X),
        "product": lambda: left @ right,
        "both": lambda: (left @ right, k(state.anchors, X)),
    }
    for warm_up in works.values():
        warm_up()
    found = medians(device, **works)
    return {**found, "rate": n / found["scored"] / 1e6, "product_rate": n / found["product"] / 1e6}


def sketch(m: int, device: torch.device) -> NystromRidge:
    """Return a posterior of 2000 observations in three dimensions with about m anchors."""
    kernel, X = stationary_kernel("rbf", 0.2).to(device), uniform(2000, 3, seed=1).to(device)
    state = NystromRidge(kernel, 0.01, FixedDictionary.pivoted(kernel, X, m))
    state.update(X, torch.sin(5 * X).sum(-1))
    return state


_EK_UCB = BanditMethod("EK-UCB", "ek-ucb", 10.0, 0.1)
_K_UCB = BanditMethod("K-UCB", "k-ucb", 10.0, 0.1)
_BBKB = BanditMethod("BBKB", "bbkb", 10.0, 0.1, {"kind": "bbkb", "oversampling": 30, "growth": 3})
_CHESSBOARD = BanditProblem("chessboard")
_FIXED_ARMS = BanditProblem("rkhs-fixed", {"n_arms": 1000}, delta=0.1)


def _short(n: int, method: BanditMethod, goal: float, quick: dict[str, int] | None) -> Bench:
    rows = [Row("{n} rounds of {method.method} on Chessboard, CPU", "total", goal=at_most(goal))]
    return Bench(
        bandit_run, rows, {"n": n, "problem": BanditProblem("chessboard"), "method": method, "repeats": 3}, quick
    )


def _long(on: str, problem: BanditProblem, method: BanditMethod) -> Bench:
    rows = [
        Row(f"{{n}} rounds of {{method.method}} on {on}, CPU", "total", goal=at_most(60)),
        Row("  a step then / at a tenth of them", "late", "early", at_most_times(1.3)),
        Row("  peak memory of the process", "peak", goal=at_most(1000, "MB"), unit="MB"),
    ]
    return Bench(bandit_run, rows, {"n": 100_000, "problem": problem, "method": method}, quick=None, fresh=True)


_CANDIDATES = "{points} candidates [{points} %sd] / InducingPointKernel, m = {m}"

BENCHES = [
    _short(1000, _EK_UCB, 0.25, {"n": 100}),
    _short(1000, _K_UCB, 0.6, {"n": 100}),
    _short(1000, _BBKB, 0.5, {"n": 100}),
    _short(2000, _EK_UCB, 0.5, None),
    _short(2000, _K_UCB, 3.5, None),
    _short(2000, _BBKB, 1.0, None),
    _long("Chessboard", _CHESSBOARD, _EK_UCB),
    _long("1000 fixed arms, RBF 0.5, d = 3", _FIXED_ARMS, BanditMethod("BBKB", "bbkb")),
    Bench(
        on_many_points,
        [
            Row("{points} fresh arms scored, m = 200, d = 3, two threads, wall clock", "wall", goal=at_most(1.5)),
            Row("  memory beyond the arms", "memory", goal=at_most(250, "MB"), unit="MB"),
        ],
        {"points": 1_000_000, "work": best},
        quick={"points": 10_000},
        fresh=True,
    ),
    Bench(
        inducing_points,
        [
            Row(_CANDIDATES % "1 " + ", in chunks of {chunk}", "kbo_batch", "theirs_batches", faster(500)),
            Row(_CANDIDATES % "", "kbo_joint", "theirs_joint"),
        ],
        {"n": 4000, "m": 100, "points": 1000, "chunk": 100},
        quick={"n": 500, "m": 30, "points": 20, "chunk": 10},
    ),
    Bench(
        throughput,
        [
            Row("{n} arms scored, m = {m} / the product of [m m] and [m {n}] alone", "scored", "product"),
            Row("  the same / that product and the kernel", "scored", "both"),
            Row("  arms a second, in millions", "rate", "product_rate", unit=""),
        ],
        {"n": 1_000_000, "m": 512},
        quick={"n": 10_000},
        devices=["cuda"],
    ),
]
