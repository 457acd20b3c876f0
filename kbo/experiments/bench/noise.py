"""Unknown noise and Thompson sampling: steps of adaptive methods, whole runs, and draws over many candidates."""

from __future__ import annotations

import itertools
import math
import statistics
import time

import torch
from torch import Tensor

from kbo.confidence import AdaptiveSelfNormalized, NoiseBounds
from kbo.experiments.bandits import BanditMethod, BanditProblem
from kbo.experiments.bench.race import Bench, Result, at_most
from kbo.experiments.bench.setups import uniform
from kbo.experiments.bench.sketch import cpu_seconds, late_step, on_many_points
from kbo.problems import stationary_kernel
from kbo.regression import AdaptiveRidge, GreedyDictionary, NystromRidge, centred_draws


def adaptive_run(
    device: torch.device, rounds: int, name: str, step: float = math.inf, run: float = math.inf
) -> list[Result]:
    """Time a whole run on a hundred fixed arms; the step is the median of those around two fifths of it."""
    seconds = cpu_seconds(
        BanditProblem("streaming", rounds=rounds, delta=0.1, noise_upper=1.0, noise_lower=0.01), BanditMethod(name)
    )
    steps, middle = [after - before for before, after in itertools.pairwise(seconds)], 2 * rounds // 5
    median = statistics.median(steps[middle - middle // 20 : middle + middle // 20])
    goals = [at_most(most) if math.isfinite(most) else None for most in (step, run)]
    return [
        Result(f"a step of {name}, 100 fixed arms, CPU", median, goal=goals[0], n=middle),
        Result(f"  {rounds} rounds", seconds[-1], goal=goals[1], n=rounds),
    ]


def adaptive_sketch(device: torch.device, n: int) -> list[Result]:
    """Time a stream of distinct points through a sketch whose ridge follows the noise: update and width, every step."""
    X, bounds = uniform(n, 2, seed=5).to(device), NoiseBounds(5.0, 0.1, upper=1.0)
    noise = 0.1 * torch.randn(n, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    y = torch.sin(4 * X).sum(-1) + noise.to(device)
    nystrom = NystromRidge(stationary_kernel("rbf", 0.3).to(device), bounds.ridge, GreedyDictionary(1e-4))
    state, confidence, seconds = AdaptiveRidge(nystrom, bounds), AdaptiveSelfNormalized(), []
    start = time.process_time()
    for x, target in zip(X.split(1), y.split(1), strict=True):
        state.update(x, target)
        confidence.width(state)
        seconds.append(time.process_time() - start)
    total = f"{n} steps of a sketch whose ridge follows the noise, CPU"
    return [Result(total, seconds[-1], n=n), late_step(seconds, n)]


def joint_draw(state: NystromRidge, X: Tensor) -> Tensor:
    """Draw from the posterior at all points."""
    return centred_draws(state, X, 1, torch.Generator().manual_seed(0))


def many_candidates(device: torch.device, points: int) -> list[Result]:
    """Draw from the posterior at very many points."""
    wall, memory = on_many_points(points, joint_draw)
    name = f"a joint draw over {points} fresh candidates, m = 200, two threads, wall clock"
    return [
        Result(name, wall, goal=at_most(1)),
        Result("  memory beyond the candidates", memory, goal=at_most(1000, "MB"), unit="MB"),
    ]


BENCHES = [
    Bench(adaptive_run, {"rounds": 5000, "name": "kernel-ucb-adaptive", "step": 1e-3, "run": 20}, {"rounds": 400}),
    Bench(adaptive_run, {"rounds": 5000, "name": "dmm-ucb-adaptive"}, {"rounds": 400}),
    Bench(adaptive_run, {"rounds": 5000, "name": "kernel-ts-adaptive"}, {"rounds": 400}),
    Bench(adaptive_sketch, {"n": 20_000}, {"n": 400}),
    Bench(many_candidates, {"points": 100_000}, {"points": 1000}, fresh=True),
]
