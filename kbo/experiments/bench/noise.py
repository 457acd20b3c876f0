"""Unknown noise and Thompson sampling: steps of adaptive methods, whole runs, and draws over many candidates."""

from __future__ import annotations

import itertools
import statistics
import time

import torch
from torch import Tensor

from kbo.confidence import AdaptiveSelfNormalized, NoiseBounds
from kbo.experiments.bandits import BanditMethod, BanditProblem
from kbo.experiments.bench.race import Bench, Figures, Goal, Row, at_most, at_most_times, uniform
from kbo.experiments.bench.sketch import cpu_seconds, early_and_late, on_many_points
from kbo.problems import stationary_kernel
from kbo.regression import AdaptiveRidge, GreedyDictionary, NystromRidge, centred_draws


def adaptive_run(device: torch.device, rounds: int, name: str) -> Figures:
    """Time a whole run on a hundred fixed arms; the step is the median of those around two fifths of it."""
    seconds = cpu_seconds(
        BanditProblem("streaming", rounds=rounds, delta=0.1, noise_upper=1.0, noise_lower=0.01), BanditMethod(name)
    )
    steps, middle = [after - before for before, after in itertools.pairwise(seconds)], 2 * rounds // 5
    step = statistics.median(steps[middle - middle // 20 : middle + middle // 20])
    return {"n": middle, "step": step, "total": seconds[-1]}


def adaptive_sketch(device: torch.device, n: int) -> Figures:
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
    return early_and_late(seconds)


def joint_draw(state: NystromRidge, X: Tensor) -> Tensor:
    """Draw from the posterior at all points."""
    return centred_draws(state, X, 1, torch.Generator().manual_seed(0))


def _adaptive_run(name: str, step: Goal | None = None, run: Goal | None = None) -> Bench:
    rows = [
        Row("a step of {name}, 100 fixed arms, CPU", "step", goal=step),
        Row("  {rounds} rounds", "total", goal=run, n="rounds"),
    ]
    return Bench(adaptive_run, rows, {"rounds": 5000, "name": name}, quick={"rounds": 400})


_DRAW = "a joint draw over {points} fresh candidates, m = 200, two threads, wall clock"

BENCHES = [
    _adaptive_run("kernel-ucb-adaptive", at_most(1e-3), at_most(20)),
    _adaptive_run("dmm-ucb-adaptive"),
    _adaptive_run("kernel-ts-adaptive"),
    Bench(
        adaptive_sketch,
        [
            Row("{n} steps of a sketch whose ridge follows the noise, CPU", "total"),
            Row("  a step then / at a tenth of them", "late", "early", at_most_times(1.3)),
        ],
        {"n": 20_000},
        quick={"n": 400},
    ),
    Bench(
        on_many_points,
        [
            Row(
                "a joint draw over {points} fresh candidates, m = 200, two threads, wall clock", "wall", goal=at_most(1)
            ),
            Row("  memory beyond the candidates", "memory", goal=at_most(1000, "MB"), unit="MB"),
        ],
        {"points": 100_000, "work": joint_draw},
        quick={"points": 1000},
        fresh=True,
    ),
]
