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
"""Number of uniform observations before the time is measured."""


def iterations(device: torch.device, points: int, rounds: int) -> list[Result]:
    """Time choices and updates in a row, which reuse their covers, against one iteration with dense matrices."""
    problem, arms, X, y = _observed(points, device)
    kernel = problem.kernel.to(device)
    method = bandit.make(ALGORITHM, kernel, NOISE, problem.norm_bound, DELTA, points=arms)
    state = method.state(arms)
    state.update(X, y)
    updated = KernelRidge(kernel, NOISE**2)
    updated.update(X, y)
    confidence = Chaining(DELTA, points=arms)

    def step() -> None:
        index = method.choose(state, arms)
        chosen = arms[index : index + 1]
        state.update(chosen, problem.observe(chosen.cpu()).to(device))

    def dense() -> Tensor:
        return _dense(X, y, arms)

    agree(lambda: confidence.upper(updated, arms), dense)
    mean = seconds([step] * rounds, device) / rounds
    dense_seconds = seconds([dense], device)
    name = f"an iteration of {ALGORITHM}, {points} points, mean of {rounds} / dense matrices"
    return [Result(name, mean, dense_seconds, Goal(more=0.3), _OBSERVED)]


def _dense(X: Tensor, y: Tensor, arms: Tensor) -> Tensor:
    """The upper bound [N] of Algorithm 1 with every matrix written out; lengthscale 1."""

    def k(a: Tensor, b: Tensor) -> Tensor:
        return torch.exp(-torch.cdist(a, b).square() / 2)

    factor = torch.linalg.cholesky(k(X, X) + NOISE**2 * torch.eye(len(X)).to(X))
    sides = torch.cat([k(X, arms), y.unsqueeze(-1)], 1)
    solved = torch.linalg.solve_triangular(factor, sides, upper=False)
    rows = solved[:, :-1]
    mean = rows.mT @ solved[:, -1]
    covariance = k(arms, arms) - rows.mT @ rows
    variance = covariance.diagonal().clone()
    std = variance.clamp_min(0).sqrt()
    distance = (variance.unsqueeze(-1) + variance - 2 * covariance).clamp_min(0).sqrt()
    radii, sizes = _dense_chain(distance, float(std.min()))
    bonus = torch.zeros_like(std)
    for radius, height in zip(radii, heights(sizes, radii, len(X) + 1, DELTA), strict=True):
        bonus += height * (std > radius)
    return mean + bonus


def _dense_chain(distance: Tensor, least_std: float) -> tuple[list[float], list[int]]:
    """The radii of the covers of a chain and their sizes, from the distances [N N] of all points."""
    chosen = torch.zeros(0, dtype=torch.long, device=distance.device)
    radii = []
    sizes = []
    for level in range(1, 1 + math.floor(1 - math.log2(least_std))):
        radius = 2.0 ** (1 - level)
        left = (distance[:, chosen] > radius).all(1).nonzero().squeeze(-1)
        cover = _dense_cover(distance[left][:, left] <= radius)
        chosen = torch.cat([chosen, left[cover]])
        radii.append(radius)
        sizes.append(len(chosen))
    return radii, sizes


def _dense_cover(near: Tensor) -> Tensor:
    """The greedy cover of all points of a graph [N N]."""
    is_open = torch.ones(len(near), dtype=torch.bool, device=near.device)
    degrees = near.sum(1)
    chosen = [torch.zeros(0, dtype=torch.long, device=near.device)]
    while bool(is_open.any()):
        best = torch.where(is_open, degrees, -1).argmax()
        covered = (near[best] & is_open).nonzero().squeeze(-1)
        chosen.append(best.unsqueeze(0))
        degrees -= near[covered].sum(0)
        is_open[covered] = False
    return torch.cat(chosen)


def chain(
    device: torch.device,
    points: int,
    times: int,
    most: float,
    on_host: bool = False,
    on_threads: int = 2,
) -> list[Result]:
    """Time a chain of ``points`` points without cached parts, and measure its memory, also on the device.

    The seconds are the median of ``times`` runs. With ``on_host`` the device is not used, and the memory has no goal.
    """
    memory_goal: Goal | None = Goal(more=2000, unit="MB")
    if on_host:
        device = torch.device("cpu")
        memory_goal = None
    with threads(on_threads):
        problem, arms, X, y = _observed(points, device)
        state = KernelRidge(problem.kernel.to(device), NOISE**2)
        state.update(X, y)
        Chaining(DELTA, points=arms[:100]).chain(state)
        wall, memory = wall_and_memory(
            lambda: Chaining(DELTA, points=arms).chain(state).sizes, times
        )
    memory += device_megabytes(device, peak=True)
    name = f"a chain of {points} points, two threads, wall clock"
    return [
        Result(name, wall, goal=Goal(more=most), n=_OBSERVED),
        Result("  memory", memory, goal=memory_goal, n=_OBSERVED, unit="MB"),
    ]


def _observed(points: int, device: torch.device) -> tuple[Bandit, Tensor, Tensor, Tensor]:
    """Return a problem, its points, and noise-free values at the first points; the points are in random order."""
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
