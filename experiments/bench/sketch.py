"""Bandit runs, sketched and with unknown noise; long streams; a million candidates; GPyTorch's inducing points."""

from __future__ import annotations

import copy
import itertools
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from gpytorch.kernels import InducingPointKernel, RBFKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.settings import sgpr_diagonal_correction
from torch import Tensor

from experiments.bandits import BanditMethod, BanditProblem
from experiments.bench.race import Bench, Goal, Result, agree, medians, megabytes, wall_and_memory
from experiments.bench.setups import mean_and_variance, single_task_gp, sketch, uniform
from experiments.problems import stationary_kernel
from experiments.sweep.threads import threads
from kbo import bandit
from kbo.confidence import AdaptiveSelfNormalized, FixedWidth, NoiseBounds
from kbo.models import NystromGP
from kbo.regression import AdaptiveRidge, FixedDictionary, GreedyDictionary, NystromRidge


def cpu_seconds(problem: BanditProblem, method: BanditMethod) -> list[float]:
    """CPU seconds of the method alone, so far, after every round."""
    rows = bandit.play(problem.make(method), problem.environment(0), problem.rounds)
    return [row["cpu_seconds"] for row in rows]


def short_run(device: torch.device, n: int, method: BanditMethod, most: float) -> list[Result]:
    """Time a run of n rounds, the median of three."""
    total = statistics.median(
        cpu_seconds(BanditProblem("chessboard", rounds=n), method)[-1] for _ in range(3)
    )
    return [
        Result(
            f"{n} rounds of {method.method} on Chessboard, CPU", total, goal=Goal(more=most), n=n
        )
    ]


def long_run(
    device: torch.device, n: int, problem: BanditProblem, method: BanditMethod, on: str
) -> list[Result]:
    """Time a run of n rounds, and measure the peak memory of the process in MB."""
    seconds = cpu_seconds(replace(problem, rounds=n), method)
    return [
        Result(f"{n} rounds of {method.method} on {on}, CPU", seconds[-1], goal=Goal(more=60), n=n),
        late_step(seconds, n),
        Result(
            "  peak memory of the process",
            megabytes(peak=True),
            goal=Goal(more=1000, unit="MB"),
            n=n,
            unit="MB",
        ),
    ]


def late_step(seconds: list[float], n: int) -> Result:
    """Return the time of a step at the end of a run and at a tenth of it, from the time after every step."""
    few = max(len(seconds) // 50, 1)
    early, late = (
        (seconds[end - 1] - seconds[end - 1 - few]) / few
        for end in (len(seconds) // 10, len(seconds))
    )
    return Result("  a step then / at a tenth of them", late, early, Goal(1.3), n)


def adaptive_run(
    device: torch.device, rounds: int, name: str, step: Goal | None = None, run: Goal | None = None
) -> list[Result]:
    """Time a whole run on a hundred fixed arms; the step is the median of those around two fifths of it."""
    seconds = cpu_seconds(
        BanditProblem("streaming", rounds=rounds, delta=0.1, noise_upper=1.0, noise_lower=0.01),
        BanditMethod(name),
    )
    steps, middle = (
        [after - before for before, after in itertools.pairwise(seconds)],
        2 * rounds // 5,
    )
    median = statistics.median(steps[middle - middle // 20 : middle + middle // 20])
    return [
        Result(f"a step of {name}, 100 fixed arms, CPU", median, goal=step, n=middle),
        Result(f"  {rounds} rounds", seconds[-1], goal=run, n=rounds),
    ]


def adaptive_sketch(device: torch.device, n: int) -> list[Result]:
    """Time a stream of distinct points through a sketch whose ridge follows the noise: update and width, every step."""
    X, bounds = uniform(n, 2, seed=5).to(device), NoiseBounds(5.0, 0.1, upper=1.0)
    noise = 0.1 * torch.randn(n, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    y = torch.sin(4 * X).sum(-1) + noise.to(device)
    nystrom = NystromRidge(
        stationary_kernel("rbf", 0.3).to(device), bounds.ridge, GreedyDictionary(1e-4)
    )
    state, confidence, seconds = AdaptiveRidge(nystrom, bounds), AdaptiveSelfNormalized(), []
    start = time.process_time()
    for x, target in zip(X.split(1), y.split(1), strict=True):
        state.update(x, target)
        confidence.width(state)
        seconds.append(time.process_time() - start)
    total = f"{n} steps of a sketch whose ridge follows the noise, CPU"
    return [Result(total, seconds[-1], n=n), late_step(seconds, n)]


def best(state: NystromRidge, X: Tensor) -> Any:
    """Find the point of the largest bound."""
    return FixedWidth(1.0).argmax_upper(state, X)


def joint_draw(state: NystromRidge, X: Tensor) -> Tensor:
    """Draw from the posterior at all points."""
    return state.at().draw(X, 1, torch.Generator().manual_seed(0))


def on_many_points(
    device: torch.device,
    points: int,
    work: Callable[[NystromRidge, Tensor], Any],
    words: tuple[str, str],
    most: tuple[float, float],
    on_threads: int = 2,
) -> list[Result]:
    """Do some work on fresh points, with m = 200, and measure the memory that it takes beside them."""
    with threads(on_threads):
        state = sketch(200, torch.device("cpu"))
        work(state, uniform(1000, 3, seed=3))
        X = uniform(points, 3, seed=4)
        wall, memory = wall_and_memory(lambda: work(state, X))
    name, what = words
    return [
        Result(f"{name.format(points)}, two threads, wall clock", wall, goal=Goal(more=most[0])),
        Result(
            f"  memory beyond the {what}", memory, goal=Goal(more=most[1], unit="MB"), unit="MB"
        ),
    ]


def inducing_points(device: torch.device, n: int, m: int, points: int, chunk: int) -> list[Result]:
    """Time the same sketch as GPyTorch's inducing-point regression: mean and variance of fresh candidates."""
    X, P = uniform(n, 3, seed=1).to(device), uniform(points, 3, seed=2).to(device)
    y = torch.sin(5 * X).sum(-1, keepdim=True)
    kernel = RBFKernel().double().initialize(lengthscale=0.3).to(device)
    dictionary = FixedDictionary.pivoted(kernel, X[:2000], m)
    likelihood = GaussianLikelihood().double().initialize(noise=0.01).to(device)
    inducing = InducingPointKernel(copy.deepcopy(kernel), dictionary.points.clone(), likelihood)
    ours = NystromGP(X, y, kernel, 0.01, dictionary)

    with sgpr_diagonal_correction(
        False
    ):  # with it the training set has another noise; the mean must be the same
        plain = single_task_gp(X, y, inducing, likelihood)
        agree(
            lambda: mean_and_variance(ours, P[:10])[0], lambda: mean_and_variance(plain, P[:10])[0]
        )
    gp = single_task_gp(X, y, inducing, likelihood)
    found = medians(
        device,
        theirs_batch=lambda: mean_and_variance(gp, P[:chunk].unsqueeze(1)),
        theirs_joint=lambda: mean_and_variance(gp, P),
        kbo_batch=lambda: mean_and_variance(ours, P.unsqueeze(1)),
        kbo_joint=lambda: mean_and_variance(ours, P),
    )
    batches, other = found["theirs_batch"] * points / chunk, f"InducingPointKernel, m = {m}"
    chunked = f"{points} candidates [{points} 1 d] / {other}, in chunks of {chunk}"
    return [
        Result(chunked, found["kbo_batch"], batches, Goal(1 / 500), n),
        Result(
            f"{points} candidates [{points} d] / {other}",
            found["kbo_joint"],
            found["theirs_joint"],
            n=n,
        ),
    ]


_EK_UCB = BanditMethod("EK-UCB", "ek-ucb", 10.0, 0.1)
_K_UCB = BanditMethod("K-UCB", "k-ucb", 10.0, 0.1)
_BBKB = BanditMethod("BBKB", "bbkb", 10.0, 0.1, {"kind": "bbkb", "oversampling": 30, "growth": 3})
_FIXED_ARMS = BanditProblem("rkhs-fixed", {"n_arms": 1000}, delta=0.1)
_LONG = {
    "Chessboard": (BanditProblem("chessboard"), _EK_UCB),
    "1000 fixed arms, RBF 0.5, d = 3": (_FIXED_ARMS, BanditMethod("BBKB", "bbkb")),
}
_BEST = {
    "work": best,
    "words": ("{} fresh arms scored, m = 200, d = 3", "arms"),
    "most": (1.5, 250),
}
_DRAW = {
    "work": joint_draw,
    "words": ("a joint draw over {} fresh candidates, m = 200", "candidates"),
    "most": (1.0, 1000),
}

BENCHES = [
    *(
        Bench(
            short_run, {"n": n, "method": method, "most": most}, {"n": 100} if n == 1000 else None
        )
        for n, goals in ((1000, (0.25, 0.6, 0.5)), (2000, (0.5, 3.5, 1.0)))
        for method, most in zip((_EK_UCB, _K_UCB, _BBKB), goals, strict=True)
    ),
    *(
        Bench(
            long_run,
            {"n": 100_000, "problem": problem, "method": method, "on": on},
            quick=None,
            fresh=True,
        )
        for on, (problem, method) in _LONG.items()
    ),
    Bench(on_many_points, {"points": 1_000_000, **_BEST}, {"points": 10_000}, fresh=True),
    Bench(
        inducing_points,
        {"n": 4000, "m": 100, "points": 1000, "chunk": 100},
        {"n": 500, "m": 30, "points": 20, "chunk": 10},
    ),
    Bench(
        adaptive_run,
        {
            "rounds": 5000,
            "name": "kernel-ucb-adaptive",
            "step": Goal(more=1e-3),
            "run": Goal(more=20),
        },
        {"rounds": 400},
    ),
    Bench(adaptive_run, {"rounds": 5000, "name": "dmm-ucb-adaptive"}, {"rounds": 400}),
    Bench(adaptive_run, {"rounds": 5000, "name": "kernel-ts-adaptive"}, {"rounds": 400}),
    Bench(adaptive_sketch, {"n": 20_000}, {"n": 400}),
    Bench(on_many_points, {"points": 100_000, **_DRAW}, {"points": 1000}, fresh=True),
]
