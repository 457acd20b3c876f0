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
    """CPU seconds that the method has taken after each round, without the problem."""
    rows = bandit.play(problem.make(method), problem.environment(0), problem.rounds)
    return [row["cpu_seconds"] for row in rows]


def short_run(device: torch.device, n: int, method: BanditMethod, most: float) -> list[Result]:
    """Time a run of n rounds, the median of three."""
    problem = BanditProblem("chessboard", rounds=n)
    total = statistics.median(cpu_seconds(problem, method)[-1] for _ in range(3))
    name = f"{n} rounds of {method.method} on Chessboard, CPU"
    return [Result(name, total, goal=Goal(more=most), n=n)]


def long_run(
    device: torch.device, n: int, problem: BanditProblem, method: BanditMethod, on: str
) -> list[Result]:
    """Time a run of n rounds, and measure the peak memory of the process in MB."""
    seconds = cpu_seconds(replace(problem, rounds=n), method)
    memory = megabytes(peak=True)
    memory_goal = Goal(more=1000, unit="MB")
    return [
        Result(f"{n} rounds of {method.method} on {on}, CPU", seconds[-1], goal=Goal(more=60), n=n),
        late_step(seconds, n),
        Result("  peak memory of the process", memory, goal=memory_goal, n=n, unit="MB"),
    ]


def late_step(seconds: list[float], n: int) -> Result:
    """Return the time of a step at the end of a run against a tenth of the run, given the time after every step."""
    few = max(len(seconds) // 50, 1)
    tenth = len(seconds) // 10
    early = (seconds[tenth - 1] - seconds[tenth - 1 - few]) / few
    late = (seconds[-1] - seconds[-1 - few]) / few
    return Result("  a step then / at a tenth of them", late, early, Goal(1.3), n)


def adaptive_run(
    device: torch.device, rounds: int, name: str, step: Goal | None = None, run: Goal | None = None
) -> list[Result]:
    """Time a whole run on a hundred fixed arms, and a step: the median of the steps around two fifths of the run.

    Args:
        device: Not used: the run is on the CPU.
        rounds: Rounds of the run.
        name: Name of the method.
        step: The goal for a step; None for no goal.
        run: The goal for the run; None for no goal.
    """
    problem = BanditProblem(
        "streaming", rounds=rounds, delta=0.1, noise_upper=1.0, noise_lower=0.01
    )
    seconds = cpu_seconds(problem, BanditMethod(name))
    steps = [after - before for before, after in itertools.pairwise(seconds)]
    middle = 2 * rounds // 5
    half = middle // 20
    median = statistics.median(steps[middle - half : middle + half])
    return [
        Result(f"a step of {name}, 100 fixed arms, CPU", median, goal=step, n=middle),
        Result(f"  {rounds} rounds", seconds[-1], goal=run, n=rounds),
    ]


def adaptive_sketch(device: torch.device, n: int) -> list[Result]:
    """Time a stream of distinct points through a sketch whose ridge follows the noise; a step is update and width."""
    X = uniform(n, 2, seed=5).to(device)
    noise = 0.1 * torch.randn(n, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    y = torch.sin(4 * X).sum(-1) + noise.to(device)
    kernel = stationary_kernel("rbf", 0.3).to(device)
    bounds = NoiseBounds(5.0, 0.1, upper=1.0)
    nystrom = NystromRidge(kernel, bounds.ridge, GreedyDictionary(1e-4))
    state = AdaptiveRidge(nystrom, bounds)
    confidence = AdaptiveSelfNormalized()
    seconds = []
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
    """Time some work on fresh points with m = 200, and measure the memory that it needs in addition to the points.

    Args:
        device: Not used: the work is on the CPU.
        points: Number of points.
        work: A function of the posterior and the points.
        words: Name of the line, with a place for the number, and the name of the points.
        most: The goals: most seconds and most megabytes.
        on_threads: Number of threads of the work.
    """
    with threads(on_threads):
        state = sketch(200, torch.device("cpu"))
        work(state, uniform(1000, 3, seed=3))
        X = uniform(points, 3, seed=4)
        wall, memory = wall_and_memory(lambda: work(state, X))
    line, points_name = words
    most_seconds, most_megabytes = most
    goal = Goal(more=most_seconds)
    memory_goal = Goal(more=most_megabytes, unit="MB")
    return [
        Result(f"{line.format(points)}, two threads, wall clock", wall, goal=goal),
        Result(f"  memory beyond the {points_name}", memory, goal=memory_goal, unit="MB"),
    ]


def inducing_points(device: torch.device, n: int, m: int, points: int, chunk: int) -> list[Result]:
    """Time the same sketch as GPyTorch's inducing-point regression: mean and variance of fresh candidates."""
    X = uniform(n, 3, seed=1).to(device)
    P = uniform(points, 3, seed=2).to(device)
    y = torch.sin(5 * X).sum(-1, keepdim=True)
    kernel = RBFKernel().double().initialize(lengthscale=0.3).to(device)
    dictionary = FixedDictionary.pivoted(kernel, X[:2000], m)
    likelihood = GaussianLikelihood().double().initialize(noise=0.01).to(device)
    inducing = InducingPointKernel(copy.deepcopy(kernel), dictionary.points.clone(), likelihood)
    ours = NystromGP(X, y, kernel, 0.01, dictionary)

    # The correction changes the noise of the training set. The means are equal only without it.
    with sgpr_diagonal_correction(False):
        plain = single_task_gp(X, y, inducing, likelihood)
        agree(
            lambda: mean_and_variance(ours, P[:10])[0], lambda: mean_and_variance(plain, P[:10])[0]
        )
    gp = single_task_gp(X, y, inducing, likelihood)
    times = medians(
        device,
        theirs_batch=lambda: mean_and_variance(gp, P[:chunk].unsqueeze(1)),
        theirs_joint=lambda: mean_and_variance(gp, P),
        kbo_batch=lambda: mean_and_variance(ours, P.unsqueeze(1)),
        kbo_joint=lambda: mean_and_variance(ours, P),
    )
    batches = times["theirs_batch"] * points / chunk
    other = f"InducingPointKernel, m = {m}"
    chunked = f"{points} candidates [{points} 1 d] / {other}, in chunks of {chunk}"
    joint = f"{points} candidates [{points} d] / {other}"
    return [
        Result(chunked, times["kbo_batch"], batches, Goal(1 / 500), n),
        Result(joint, times["kbo_joint"], times["theirs_joint"], n=n),
    ]


_EK_UCB = BanditMethod("EK-UCB", "ek-ucb", 10.0, 0.1)
_K_UCB = BanditMethod("K-UCB", "k-ucb", 10.0, 0.1)
_BBKB = BanditMethod("BBKB", "bbkb", 10.0, 0.1, {"kind": "bbkb", "oversampling": 30, "growth": 3})
_ON_CHESSBOARD = {
    "n": 100_000,
    "problem": BanditProblem("chessboard"),
    "method": _EK_UCB,
    "on": "Chessboard",
}
_ON_FIXED_ARMS = {
    "n": 100_000,
    "problem": BanditProblem("rkhs-fixed", {"n_arms": 1000}, delta=0.1),
    "method": BanditMethod("BBKB", "bbkb"),
    "on": "1000 fixed arms, RBF 0.5, d = 3",
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

_ADAPTIVE = {
    "rounds": 5000,
    "name": "kernel-ucb-adaptive",
    "step": Goal(more=1e-3),
    "run": Goal(more=20),
}

BENCHES = [
    Bench(short_run, {"n": 1000, "method": _EK_UCB, "most": 0.25}, {"n": 100}),
    Bench(short_run, {"n": 1000, "method": _K_UCB, "most": 0.6}, {"n": 100}),
    Bench(short_run, {"n": 1000, "method": _BBKB, "most": 0.5}, {"n": 100}),
    Bench(short_run, {"n": 2000, "method": _EK_UCB, "most": 0.5}, quick=None),
    Bench(short_run, {"n": 2000, "method": _K_UCB, "most": 3.5}, quick=None),
    Bench(short_run, {"n": 2000, "method": _BBKB, "most": 1.0}, quick=None),
    Bench(long_run, _ON_CHESSBOARD, quick=None, fresh=True),
    Bench(long_run, _ON_FIXED_ARMS, quick=None, fresh=True),
    Bench(on_many_points, {"points": 1_000_000, **_BEST}, {"points": 10_000}, fresh=True),
    Bench(
        inducing_points,
        {"n": 4000, "m": 100, "points": 1000, "chunk": 100},
        {"n": 500, "m": 30, "points": 20, "chunk": 10},
    ),
    Bench(adaptive_run, _ADAPTIVE, {"rounds": 400}),
    Bench(adaptive_run, {"rounds": 5000, "name": "dmm-ucb-adaptive"}, {"rounds": 400}),
    Bench(adaptive_run, {"rounds": 5000, "name": "kernel-ts-adaptive"}, {"rounds": 400}),
    Bench(adaptive_sketch, {"n": 20_000}, {"n": 400}),
    Bench(on_many_points, {"points": 100_000, **_DRAW}, {"points": 1000}, fresh=True),
]
