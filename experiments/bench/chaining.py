"""Chaining: an iteration on ten thousand points against dense matrices, and whole chains of very large sets."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from experiments.bench.race import (
    Bench,
    Goal,
    Result,
    agree,
    device_megabytes,
    seconds,
    wall_and_memory,
)
from experiments.papers import chaining as paper
from experiments.papers.chaining import ALGORITHM, DELTA, NOISE
from experiments.sweep.threads import threads
from kbo import bandit
from kbo.bandit import Bandit
from kbo.confidence import Chaining
from kbo.confidence.chaining.bonus import heights
from kbo.regression import KernelRidge

_OBSERVED = 70
"""Uniform observations before the clock starts."""


def iterations(device: torch.device, points: int, rounds: int) -> list[Result]:
    """Time choices and updates in a row, with covers that are kept, against one iteration with dense matrices."""
    problem, arms, X, y = _observed(points, device)
    kernel = problem.kernel.to(device)
    method = bandit.make(ALGORITHM, kernel, NOISE, problem.norm_bound, DELTA, points=arms)
    state, updated, confidence = (
        method.state(arms),
        KernelRidge(kernel, NOISE**2),
        Chaining(DELTA, points=arms),
    )
    state.update(X, y)
    updated.update(X, y)

    def step() -> None:
        index = method.choose(state, arms)
        chosen = arms[index : index + 1]
        state.update(chosen, problem.observe(chosen.cpu()).to(device))

    def dense() -> Tensor:
        return _dense(X, y, arms)

    agree(lambda: confidence.upper(updated, arms), dense)
    mean, dense_seconds = seconds([step] * rounds, device) / rounds, seconds([dense], device)
    name = f"an iteration of {ALGORITHM}, {points} points, mean of {rounds} / dense matrices"
    return [Result(name, mean, dense_seconds, Goal(more=0.3), _OBSERVED)]


def _dense(X: Tensor, y: Tensor, arms: Tensor) -> Tensor:
    """The upper bound [N] of Algorithm 1 with every matrix written out; lengthscale 1."""

    def k(a: Tensor, b: Tensor) -> Tensor:
        return torch.exp(-torch.cdist(a, b).square() / 2)

    factor = torch.linalg.cholesky(k(X, X) + NOISE**2 * torch.eye(len(X)).to(X))
    rows = torch.linalg.solve_triangular(
        factor, torch.cat([k(X, arms), y.unsqueeze(-1)], 1), upper=False
    )
    covariance = k(arms, arms) - rows[:, :-1].mT @ rows[:, :-1]
    variance = covariance.diagonal().clone()
    distance = (variance.unsqueeze(-1) + variance - 2 * covariance).clamp_min(0).sqrt()
    std, chosen, sizes, radii = (
        variance.clamp_min(0).sqrt(),
        torch.zeros(0, dtype=torch.long).to(X.device),
        [],
        [],
    )
    for level in range(1, 1 + math.floor(1 - math.log2(float(std.min())))):
        radii.append(2.0 ** (1 - level))
        left = (distance[:, chosen] > radii[-1]).all(1).nonzero().squeeze(-1)
        chosen = torch.cat([chosen, left[_dense_cover(distance[left][:, left] <= radii[-1])]])
        sizes.append(len(chosen))
    steps = zip(radii, heights(sizes, radii, len(X) + 1, DELTA), strict=True)
    return rows[:, :-1].mT @ rows[:, -1] + sum(
        (height * (std > radius) for radius, height in steps), torch.zeros_like(std)
    )


def _dense_cover(near: Tensor) -> Tensor:
    """The greedy cover of all points of a graph [N N]."""
    alive = torch.ones(len(near), dtype=torch.bool, device=near.device)
    degrees, chosen = near.sum(1), [alive.nonzero()[:0, 0]]
    while bool(alive.any()):
        best = torch.where(alive, degrees, -1).argmax()
        new = (near[best] & alive).nonzero().squeeze(-1)
        chosen.append(best.unsqueeze(0))
        degrees, alive[new] = degrees - near[new].sum(0), False
    return torch.cat(chosen)


def chain(
    device: torch.device,
    points: int,
    times: int,
    most: float,
    on_host: bool = False,
    on_threads: int = 2,
) -> list[Result]:
    """Time a chain of so many points, computed again, and measure the memory that it takes, with that of the device.

    The seconds are the median of so many times. ``on_host`` leaves the device alone, and has no goal for the memory.
    """
    device = torch.device("cpu") if on_host else device
    with threads(on_threads):
        problem, arms, X, y = _observed(points, device)
        state = KernelRidge(problem.kernel.to(device), NOISE**2)
        state.update(X, y)
        Chaining(DELTA, points=arms[:100]).chain(state)
        wall, memory = wall_and_memory(
            lambda: Chaining(DELTA, points=arms).chain(state).sizes, times
        )
    name, goal = (
        f"a chain of {points} points, two threads, wall clock",
        None if on_host else Goal(more=2000, unit="MB"),
    )
    return [
        Result(name, wall, goal=Goal(more=most), n=_OBSERVED),
        Result(
            "  memory",
            memory + device_megabytes(device, peak=True),
            goal=goal,
            n=_OBSERVED,
            unit="MB",
        ),
    ]


def _observed(points: int, device: torch.device) -> tuple[Bandit, Tensor, Tensor, Tensor]:
    """Return a problem, its points, and noise-free values at the first points, which are as random as any."""
    problem = paper.problem("gp-draw", points, rounds=1).environment(0)
    assert problem.fixed_arms is not None
    arms = problem.fixed_arms.to(device)
    X = arms[:_OBSERVED]
    return problem, arms, X, problem.mean(X.cpu()).to(X)


BENCHES = [
    Bench(iterations, {"points": 10_000, "rounds": 50}, {"points": 100, "rounds": 5}),
    Bench(chain, {"points": 100_000, "times": 3, "most": 60.0}, {"points": 1000}, fresh=True),
    Bench(
        chain,
        {"points": 1_000_000, "times": 1, "most": 300.0, "on_host": True},
        {"points": 10_000},
        fresh=True,
    ),
]
