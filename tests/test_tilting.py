"""Failure probabilities far below what simulation can count, by importance sampling; ``python -m tests.test_tilting``.

Every bound is taken at delta = 1e-6 on one problem: a design of 24 rounds on 12 points, kernel, noise level, and for
the bounds that assume a norm the function of that norm at which the bound fails most easily. Gaussian noise is drawn
from a mixture of distributions under which failures are common; a failure counts with the likelihood ratio. The
directions come from dense formulas and only decide how exact the estimate is; whether a bound fails is up to kbo.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
import torch
from gpytorch.kernels import MaternKernel
from torch import Tensor

from kbo import KernelRidge
from kbo.confidence import (
    BKB,
    EKUCB,
    KUCB,
    Chaining,
    Confidence,
    FiniteSet,
    ImprovedGPUCB,
    MartingaleMixture,
    NoiseBounds,
    RunningIntersection,
    SelfNormalized,
    norm_lower_bound,
    squared_radius,
)
from kbo.confidence.noise.energy import LEAST_RATES, averaged
from kbo.errors import RefutedAssumptions
from tests.dense import gram

DELTA, SIGMA, NORM = 1e-6, 0.3, 2.0
KERNEL = MaternKernel(nu=2.5).double()
KERNEL.lengthscale = 0.3
Z = torch.linspace(0, 1, 12, dtype=torch.float64).unsqueeze(-1)
DESIGN = torch.randint(12, (24,), generator=torch.Generator().manual_seed(0))
ROUNDS = (1, 2, 3, 5, 8, 12, 18, 24)

SUB_GAUSSIAN: dict[str, Callable[[], Confidence]] = {
    "SelfNormalized": lambda: SelfNormalized(SIGMA, NORM, DELTA),
    "ImprovedGPUCB": lambda: ImprovedGPUCB(SIGMA, NORM, DELTA, 2 / 24),
    "BKB": lambda: BKB(SIGMA, NORM, DELTA),
    "EKUCB": lambda: EKUCB(SIGMA, NORM, DELTA, SIGMA**2),
    "KUCB": lambda: KUCB(SIGMA, NORM, DELTA),
    "AMM": lambda: MartingaleMixture(SIGMA, NORM, DELTA, "amm"),
    "RunningIntersection of AMM": lambda: RunningIntersection(MartingaleMixture(SIGMA, NORM, DELTA, "amm"), Z),
}
GAUSSIAN: dict[str, Callable[[], Confidence]] = {
    "FiniteSet, mixture": lambda: FiniteSet(12, DELTA),
    "FiniteSet, quantile": lambda: FiniteSet(12, DELTA, "quantile"),
    "FiniteSet, paper": lambda: FiniteSet(12, DELTA, "paper"),
    "RunningIntersection of FiniteSet": lambda: RunningIntersection(FiniteSet(12, DELTA), Z),
    "Chaining, rigorous": lambda: Chaining(DELTA, rigorous=True, points=Z),
}


@dataclass
class Estimate:
    """Estimated failure probability over delta, its standard error, and the share of draws that failed."""

    ratio: float
    error: float
    failed: float


def states(f: Tensor, noise: Tensor, ridge: float = SIGMA**2) -> Iterator[KernelRidge]:
    """The state after each of ``ROUNDS``; f [12] at the points, noise [24]."""
    state = KernelRidge(KERNEL, ridge)
    for t in ROUNDS:
        rows = slice(state.n, t)
        state.update(Z[DESIGN[rows]], f[DESIGN[rows]] + noise[rows])
        yield state


def fails(confidence: Confidence, f: Tensor, noise: Tensor) -> bool:
    """Whether the function is outside the interval at some point after some of ``ROUNDS``."""
    return any(misses(confidence, state, f) for state in states(f, noise))


def misses(confidence: Confidence, state: KernelRidge, f: Tensor) -> bool:
    """Whether the function is outside the interval at some point; also if a true assumption is refuted."""
    try:
        lower, upper = confidence.interval(state, Z)
    except RefutedAssumptions:
        return True
    return not bool(((lower <= f) & (f <= upper)).all())


def weights(t: int, ridge: float) -> Tensor:
    """The weights [12 24] of the observations in the mean at the points after t rounds."""
    X, full = Z[DESIGN[:t]], torch.zeros(12, 24, dtype=torch.float64)
    full[:, :t] = torch.linalg.solve(gram(KERNEL, X, X) + ridge * torch.eye(t).double(), gram(KERNEL, X, Z)).mT
    return full


def mixed_shifts(
    shifts: Tensor, outside: Callable[[Tensor], bool], count: int, rng: torch.Generator, most: int = 300
) -> Estimate:
    """The probability of ``outside(z)`` for standard normal z, from draws around the shortest of the shifts [j m]."""
    squares = shifts.square().sum(-1)
    kept = squares.topk(min(most, len(squares)), largest=False).indices
    shifts, squares = shifts[kept], squares[kept]
    log_shares = torch.log_softmax(-squares / 2 / 4, 0)  # flatter than the probabilities themselves
    values = []
    for j in torch.multinomial(log_shares.exp(), count, replacement=True, generator=rng).tolist():
        z = shifts[j] + torch.randn(shifts.shape[1], generator=rng, dtype=torch.float64)
        log_ratio = torch.logsumexp(log_shares + shifts @ z - squares / 2, 0)
        values.append(math.exp(-float(log_ratio)) if outside(z) else 0.0)
    return summary(values)


def summary(values: list[float]) -> Estimate:
    found = torch.tensor(values, dtype=torch.float64) / DELTA
    return Estimate(float(found.mean()), float(found.std() / len(found) ** 0.5), float((found > 0).double().mean()))


def sub_gaussian(make: Callable[[], Confidence], count: int, seed: int = 0) -> Estimate:
    """For a function of norm ``NORM`` that is the worst at the point and round where the bound is narrowest."""
    zero, bound = torch.zeros(12, dtype=torch.float64), make()
    needed: list[tuple[float, int, int, float]] = []
    for t, state in zip(ROUNDS, states(zero, torch.zeros(24).double()), strict=True):
        lower, upper = bound.interval(state, Z)
        ridge, half = bound.ridge(state), (upper - lower) / 2
        needed += [(float(half[i] / w.norm()), t, i, ridge) for i, w in enumerate(weights(t, ridge))]
    _, t, i, ridge = min(needed)
    w = torch.zeros(12, dtype=torch.float64).index_add_(0, DESIGN, -weights(t, ridge)[i])
    w[i] += 1  # the representer of f(x) - mean(x) without noise
    K = gram(KERNEL, Z, Z)
    f = NORM * (K @ w) / torch.sqrt(w @ K @ w)
    shifts = []
    for t, state in zip(ROUNDS, states(f, torch.zeros(24).double()), strict=True):
        lower, upper = make().interval(state, Z)
        for i, w in enumerate(weights(t, bound.ridge(state))):
            for side, sign in ((f[i] - lower[i], 1), (upper[i] - f[i], -1)):
                shifts.append(sign * w / w.norm() * side / (SIGMA * w.norm()))
    shifts = torch.stack(shifts)
    rng = torch.Generator().manual_seed(seed)
    return mixed_shifts(shifts, lambda z: fails(make(), f, SIGMA * z), count, rng)


def gaussian(make: Callable[[], Confidence], count: int, seed: int = 0) -> Estimate:
    """For draws of the process: z are the function, by the root of its covariance, and the noise."""
    root, shifts = torch.linalg.cholesky(gram(KERNEL, Z, Z)), []
    for t, state in zip(ROUNDS, states(torch.zeros(12).double(), torch.zeros(24).double()), strict=True):
        lower, upper = make().interval(state, Z)
        w = weights(t, SIGMA**2)
        error = torch.cat([(torch.eye(12).double() - w @ torch.eye(12).double()[DESIGN]) @ root, -SIGMA * w], -1)
        direction = error / error.norm(dim=-1, keepdim=True)
        reach = ((upper - lower) / 2 / error.norm(dim=-1)).unsqueeze(-1)
        shifts += [reach * direction, -reach * direction]
    rng = torch.Generator().manual_seed(seed)
    return mixed_shifts(
        torch.cat(shifts), lambda z: fails(make(), root @ z[:12], SIGMA * z[12:]), count, rng, most=len(ROUNDS) * 24
    )


def mixtures(kinds: tuple[str, ...], count: int, seed: int = 0) -> dict[str, Estimate]:
    """The events behind the mixtures, ``|y - f(X)| > R`` and a lower bound of the norm above the norm, and the bounds.

    Noise is drawn from the alternative that the mixture is made of, with the covariance ``sigma^2 I + c K``.
    """
    rng, K = torch.Generator().manual_seed(seed), gram(KERNEL, Z, Z)
    f = torch.ones(12).double()
    f = f * NORM / torch.sqrt(f @ torch.linalg.solve(K, f))
    S = torch.eye(24).double() + gram(KERNEL, Z[DESIGN], Z[DESIGN]) / SIGMA**2
    root, bounds = torch.linalg.cholesky(S), {kind: MartingaleMixture(SIGMA, NORM, DELTA, kind) for kind in kinds}
    values: dict[str, list[float]] = {name: [] for name in ("squared_radius", "norm_lower_bound", *kinds)}
    for _ in range(count):
        z = root @ torch.randn(24, generator=rng, dtype=torch.float64)
        first = dict.fromkeys(values, 0.0)
        for t, state in zip(ROUNDS, states(f, SIGMA * z), strict=True):
            square = squared_radius(state, SIGMA, DELTA)
            outside = {
                "squared_radius": float((SIGMA * z[:t]).square().sum()) > float(square),
                "norm_lower_bound": float(norm_lower_bound(state, SIGMA, DELTA)) > NORM,
                **{kind: misses(bound, state, f) for kind, bound in bounds.items()},
            }
            log_ratio = (z[:t] @ z[:t] - z[:t] @ torch.linalg.solve(S[:t, :t], z[:t]) - torch.logdet(S[:t, :t])) / 2
            for name in values:
                if outside[name] and first[name] == 0:
                    first[name] = math.exp(-float(log_ratio))
        for name, found in values.items():
            found.append(first[name])
    return {name: summary(found) for name, found in values.items()}


def noise_level(variant: str, count: int, seed: int = 0, n: int = 240) -> Estimate:
    """Bounds of the noise level that miss it; the noise is drawn at other levels, and at its own."""
    rng, scales = torch.Generator().manual_seed(seed), torch.tensor([0.3, 0.45, 0.55, 0.7, 1.35, 1.6, 2.0]).double()
    design = torch.randint(12, (n,), generator=rng)
    f, values, rounds = torch.zeros(12).double(), [], range(20, n + 1, 20)
    for j in torch.randint(len(scales), (count,), generator=rng).tolist():
        z = scales[j] * torch.randn(n, generator=rng, dtype=torch.float64)
        bounds, value = NoiseBounds(NORM, DELTA, None, 0.0, variant), 0.0
        state = KernelRidge(KERNEL, bounds.ridge)
        for t in rounds:
            state.update(Z[design[state.n : t]], (f[design] + SIGMA * z)[state.n : t])
            bounds.update(state)
            if not bounds.lower <= SIGMA <= bounds.upper:
                square = float(z[:t] @ z[:t])
                log_ratios = -t * scales.log() + square / 2 * (1 - scales**-2)
                value = math.exp(-float(torch.logsumexp(log_ratios, 0) - math.log(len(scales))))
                break
        values.append(value)
    return summary(values)


def energy_of_noise(strict: bool, count: int, seed: int = 0, n: int = 400) -> Estimate:
    """The energy of the noise below its lower bound: noise at the edge of the class, tilted as in the mixture."""
    rng, rates = torch.Generator().manual_seed(seed), torch.tensor(LEAST_RATES).double()
    least = torch.tensor([averaged(t, DELTA, strict)[0] for t in range(1, n + 1)]).double()
    drawn = rates[torch.randint(len(rates), (count, 1), generator=rng)]
    if strict:  # three points of kurtosis 3
        laplace, tilted = (2 + (-3 * rates).exp()) / 3, 1 / (1 + 2 * (3 * drawn).exp())
        squares = 3 * (torch.rand(count, n, generator=rng, dtype=torch.float64) < tilted)
    else:
        laplace = (1 + 2 * rates) ** -0.5
        squares = torch.randn(count, n, generator=rng, dtype=torch.float64).square() / (1 + 2 * drawn)
    energy = squares.cumsum(-1)
    first, values = (energy < least).double().argmax(-1), []
    for S, t in zip(energy, first.tolist(), strict=True):
        log_ratio = torch.logsumexp(-rates * S[t] - (t + 1) * laplace.log(), 0) - math.log(len(rates))
        values.append(math.exp(-float(log_ratio)) if S[t] < least[t] else 0.0)
    return summary(values)


def check(found: Estimate) -> None:
    assert found.ratio + 4 * found.error <= 1
    assert found.failed > 0.02  # the draws do reach the event


@pytest.mark.parametrize("name", ["SelfNormalized", "AMM", "RunningIntersection of AMM"])
def test_bounds_for_a_norm_fail_no_more_often_than_stated(name):
    check(sub_gaussian(SUB_GAUSSIAN[name], 60))


@pytest.mark.parametrize("name", GAUSSIAN)
def test_bounds_for_a_gaussian_process_fail_no_more_often_than_stated(name):
    check(gaussian(GAUSSIAN[name], 150))


def test_the_events_behind_the_mixtures_fail_no_more_often_than_stated():
    for found in mixtures(("amm",), 100).values():
        assert found.ratio + 4 * found.error <= 1
    assert found.failed > 0.02


@pytest.mark.parametrize("strict", [True, False])
def test_the_energy_of_the_noise_is_below_its_bound_no_more_often_than_stated(strict):
    check(energy_of_noise(strict, 300))


def test_a_bound_that_is_too_narrow_is_seen():
    assert gaussian(lambda: FiniteSet(1, 20 * DELTA), 150).ratio > 1


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000

    def show(name: str, found: Estimate) -> None:
        print(f"| {name} | {found.ratio:.2g} | {found.error:.1g} | {found.failed:.0%} |", flush=True)

    for name, make in SUB_GAUSSIAN.items():
        show(name, sub_gaussian(make, count))
    for name, make in GAUSSIAN.items():
        show(name, gaussian(make, count))
    for strict in (True, False):
        show(f"energy, {'strict' if strict else 'Gaussian'}", energy_of_noise(strict, count))
    for variant in ("tight+grid", "mixture", "mixture+strict"):
        show(f"NoiseBounds, {variant}", noise_level(variant, count))
    for name, found in mixtures(("amm", "dmm", "cmm"), count // 8).items():
        show(name, found)
