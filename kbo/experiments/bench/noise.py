"""Unknown noise and Thompson sampling: steps of adaptive methods, whole runs, and draws over many candidates."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable

import torch

from kbo.confidence import AdaptiveSelfNormalized, NoiseBounds
from kbo.experiments.bandits import BanditMethod, BanditProblem
from kbo.experiments.bench.race import Row, in_fresh_process, least, threads, wall_and_memory
from kbo.experiments.bench.sketch import cpu_seconds, sketch, uniform
from kbo.problems import stationary_kernel
from kbo.regression import AdaptiveRidge, GreedyDictionary, NystromRidge, centred_draws

_ADAPTIVE = {"kernel-ucb-adaptive": (1e-3, 20.0), "dmm-ucb-adaptive": (None, None), "kernel-ts-adaptive": (None, None)}
"""Goals: CPU seconds of a step at t = 2000, and of 5000 rounds."""

_CANDIDATES = 100_000


def _adaptive(device: torch.device, quick: bool) -> list[Row]:
    """Whole runs on a hundred fixed arms; the step is the median of those of rounds 1900 to 2100."""
    rounds, rows = 400 if quick else 5000, []
    middle = 2 * rounds // 5
    for name, (step_goal, goal) in _ADAPTIVE.items():
        problem = BanditProblem("streaming", rounds=rounds, delta=0.1, noise_upper=1.0, noise_lower=0.01)
        seconds = cpu_seconds(problem, BanditMethod(name))
        steps = [after - before for before, after in itertools.pairwise(seconds)]
        step = statistics.median(steps[middle - middle // 20 : middle + middle // 20])
        rows += [
            _figure(f"a step of {name}, 100 fixed arms, CPU", middle, step, step_goal),
            _figure(f"  {rounds} rounds", rounds, seconds[-1], goal),
        ]
    return rows


def _sketched(device: torch.device, quick: bool) -> list[Row]:
    """A stream of distinct points through a sketch whose ridge follows the noise: update and width, every step."""
    n = 400 if quick else 20_000
    X, bounds = uniform(n, 2, seed=5).to(device), NoiseBounds(5.0, 0.1, upper=1.0)
    noise = 0.1 * torch.randn(n, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    y = torch.sin(4 * X).sum(-1) + noise.to(device)
    sketch_of = NystromRidge(stationary_kernel("rbf", 0.3).to(device), bounds.ridge, GreedyDictionary(1e-4))
    state, confidence, seconds = AdaptiveRidge(sketch_of, bounds), AdaptiveSelfNormalized(), [time.process_time()]
    for x, target in zip(X.split(1), y.split(1), strict=True):
        state.update(x, target)
        confidence.width(state)
        seconds.append(time.process_time())
    tenth, few = n // 10, n // 50
    early, late = ((seconds[end] - seconds[end - few]) / few for end in (tenth, n))
    return [
        Row(f"{n} steps of a sketch whose ridge follows the noise, CPU", n, seconds[-1] - seconds[0], 0.0, "", True),
        Row("  a step then / at a tenth of them", n, late, early, "at most 1.3 times", late <= 1.3 * early),
    ]


def _draws(device: torch.device, quick: bool) -> list[Row]:
    """One joint draw over candidates from a sketched posterior on two threads, in a fresh process."""
    candidates = _CANDIDATES // 100 if quick else _CANDIDATES
    code = f"from kbo.experiments import speed_noise; print(*speed_noise.draw({candidates}))"
    wall, memory = map(float, in_fresh_process(code).split())
    name = f"a joint draw over {candidates} fresh candidates, m = 200, two threads, wall clock"
    return [least(name, 0, wall, 1.0), least("  memory beyond the candidates", 0, memory, 1000, "MB")]


def draw(candidates: int, on_threads: int = 2) -> tuple[float, float]:
    """Wall-clock seconds of a joint draw over so many candidates, and the memory in MB that it takes beside them."""
    with threads(on_threads):
        state, generator = sketch(200, torch.device("cpu")), torch.Generator().manual_seed(0)
        centred_draws(state, uniform(1000, 3, seed=3), 1, generator)
        X = uniform(candidates, 3, seed=4)
        return wall_and_memory(lambda: centred_draws(state, X, 1, generator))


def _figure(name: str, n: int, found: float, goal: float | None) -> Row:
    return Row(name, n, found, 0.0, "", True) if goal is None else least(name, n, found, goal)


BENCHMARKS: list[Callable[[torch.device, bool], list[Row]]] = [_adaptive, _sketched, _draws]
