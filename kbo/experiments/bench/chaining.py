"""Chaining: an iteration on ten thousand points against dense matrices, and whole chains of very large sets."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import torch
from torch import Tensor

from kbo import recipes
from kbo.confidence import Chaining
from kbo.confidence.chaining.bound import heights
from kbo.experiments.bench.race import (
    MeanVariance,
    Row,
    agree,
    in_fresh_process,
    least,
    peak_megabytes,
    seconds,
    threads,
    wall_and_memory,
)
from kbo.experiments.papers.chaining_problems import ALGORITHM, DELTA, NOISE, world
from kbo.problems import Bandit
from kbo.recipes.method import Method
from kbo.regression import KernelRidge, Posterior

_OBSERVED, _IN_A_ROW = 70, 50
"""Uniform observations before the clock starts, and iterations that share its time."""

_LARGE, _VERY_LARGE = 100_000, 1_000_000


def _iteration(device: torch.device, quick: bool) -> list[Row]:
    """Choose and update, again and again, with covers that are kept, against one iteration with dense matrices."""
    points, rounds = (100, 5) if quick else (10_000, _IN_A_ROW)
    game = world("gp-draw", 0, points)
    (arms, method), (_, other) = _method(game, device), _method(game, device)  # each has covers of its own
    state, fed = (_fed(player.state(arms), game, arms) for player in (method, other))
    X, y = _data(game, arms)

    def step() -> MeanVariance:
        index = method.choose(state, arms)
        chosen = arms[index : index + 1]
        state.update(chosen, game.observe(chosen.cpu()).to(device))
        return chosen, chosen

    def scores() -> MeanVariance:
        assert other.confidence is not None
        return (upper := other.confidence.upper(fed, arms)), upper

    def dense() -> MeanVariance:
        return (upper := _dense(X, y, arms)), upper

    agree(scores, dense)
    ours, theirs = seconds([step] * rounds, device) / rounds, seconds([dense], device)
    name = f"an iteration of {ALGORITHM}, {points} points, mean of {rounds} / dense matrices"
    return [Row(name, _OBSERVED, ours, theirs, "at most 0.3 s", ours <= 0.3)]


def _dense(X: Tensor, y: Tensor, arms: Tensor) -> Tensor:
    """The upper bound [N] of Algorithm 1 with every matrix written out; lengthscale 1."""

    def k(a: Tensor, b: Tensor) -> Tensor:
        return torch.exp(-torch.cdist(a, b).square() / 2)

    factor = torch.linalg.cholesky(k(X, X) + NOISE**2 * torch.eye(len(X)).to(X))
    rows = torch.linalg.solve_triangular(factor, torch.cat([k(X, arms), y.unsqueeze(-1)], 1), upper=False)
    covariance = k(arms, arms) - rows[:, :-1].mT @ rows[:, :-1]
    variance = covariance.diagonal().clone()
    distance = (variance.unsqueeze(-1) + variance - 2 * covariance).clamp_min(0).sqrt()
    std, chosen, sizes, radii = variance.clamp_min(0).sqrt(), torch.zeros(0, dtype=torch.long).to(X.device), [], []
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


def _large(device: torch.device, quick: bool) -> list[Row]:
    """Chains of large sets on two threads, in fresh processes."""
    points, more = (size // 100 if quick else size for size in (_LARGE, _VERY_LARGE))
    wall, memory = _in_fresh_process(points, device, 3)
    wall_of_more, memory_of_more = _in_fresh_process(more, torch.device("cpu"), 1)
    return [
        least(f"a chain of {points} points, two threads, wall clock", _OBSERVED, wall, 60.0),
        least("  memory", _OBSERVED, memory, 2000, "MB"),
        least(f"a chain of {more} points, two threads, wall clock", _OBSERVED, wall_of_more, 300.0),
        Row("  memory", _OBSERVED, memory_of_more, 0.0, "", True, "MB"),
    ]


def _in_fresh_process(points: int, device: torch.device, times: int) -> tuple[float, float]:
    code = f"from kbo.experiments import speed_chaining; print(*speed_chaining.chain({points}, '{device}', {times}))"
    wall, memory = map(float, in_fresh_process(code).split())
    return wall, memory


def chain(points: int, device: str = "cpu", times: int = 1, on_threads: int = 2) -> tuple[float, float]:
    """Wall-clock seconds of a chain of so many points, computed anew, and the memory in MB that it takes.

    The seconds are those of the first of ``times``, or the median of three; the memory of a device is added.
    """
    with threads(on_threads):
        game = world("gp-draw", 0, points)
        arms, method = _method(game, torch.device(device))
        state = _fed(KernelRidge(method.kernel, method.ridge), game, arms)
        _covers(state, arms[:100])
        if times > 1:
            wall, memory = wall_and_memory(lambda: _covers(state, arms))
        else:
            before, start = peak_megabytes(), time.perf_counter()
            _covers(state, arms)
            wall, memory = time.perf_counter() - start, peak_megabytes() - before
    return wall, memory + (torch.cuda.max_memory_allocated(device) / 1e6 if arms.is_cuda else 0.0)


def _covers(state: Posterior, arms: Tensor) -> list[int]:
    """The sizes of the covers, computed anew."""
    return Chaining(DELTA, points=arms).chain(state).sizes


def _method(game: Bandit, device: torch.device) -> tuple[Tensor, Method]:
    """The points on that device, and the method that plays them there."""
    assert game.fixed_arms is not None
    arms = game.fixed_arms.to(device)
    return arms, recipes.make(ALGORITHM, game.kernel.to(device), NOISE, game.norm_bound, DELTA, points=arms)


def _data(game: Bandit, arms: Tensor) -> tuple[Tensor, Tensor]:
    """Values at the first points, which are as random as any, without noise: the same whenever one asks."""
    X = arms[:_OBSERVED]
    return X, game.mean(X.cpu()).to(X)


def _fed(state: Posterior, game: Bandit, arms: Tensor) -> Posterior:
    state.update(*_data(game, arms))
    return state


BENCHMARKS: list[Callable[[torch.device, bool], list[Row]]] = [_iteration, _large]
