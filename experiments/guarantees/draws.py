"""Half widths of bounds for draws of a Gaussian process, relative to the paper's bound, and the regret of GP-UCB.

``python -m experiments.guarantees.draws``
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from statistics import mean

import torch
from scipy.stats import norm
from torch import Generator, Tensor

from experiments.guarantees.widths import DELTA, KERNELS, SIGMA, half
from experiments.problems import GaussianProcessBandit, stationary_kernel
from kbo import KernelRidge, bandit
from kbo.bandit.method import Method
from kbo.confidence import FiniteSet

VARIANTS = ("paper", "quantile", "mixture")


def ratio_half(mean: Tensor, variance: Tensor, n_points: int) -> Tensor:
    """Return the half widths [N] of the prior-posterior ratio bound at 0.9 delta, for a prior variance of 1.

    The bound is the set of f with ``p(f) / p(f | data) <= n_points / (0.9 delta)``, cut by the interval of the prior at
    0.1 delta.
    """
    information = (1 - variance).clamp_min(1e-12)
    log_terms = -variance.log() + 2 * math.log(n_points / (0.9 * DELTA))
    radius = (variance / information * (log_terms + mean.square() / information)).sqrt()
    centre = mean / information
    prior_radius = float(norm.isf(0.1 * DELTA / n_points / 2))
    upper = (centre + radius).clamp_max(prior_radius)
    lower = (centre - radius).clamp_min(-prior_radius)
    return (upper - lower) / 2


def compared(name: str, n_points: int, rounds: Sequence[int]) -> dict[int, dict[str, float]]:
    """Return the mean half widths at 400 points after given numbers of uniform observations of a draw.

    Args:
        name: A key of ``KERNELS``.
        n_points: Number of points at which the bounds hold together.
        rounds: Numbers of observations.

    Returns:
        Number of observations -> name of a bound -> mean half width.
    """
    kernel = stationary_kernel(*KERNELS[name])
    rng = Generator().manual_seed(0)
    X = torch.rand(max(rounds) + 400, 2, generator=rng, dtype=torch.float64)
    with torch.no_grad():
        gram = kernel(X, X).to_dense()
    root = torch.linalg.cholesky(gram + 1e-8 * torch.eye(len(X)).double())
    y = root @ torch.randn(len(X), generator=rng, dtype=torch.float64)
    y = y + SIGMA * torch.randn(len(X), generator=rng, dtype=torch.float64)
    state = KernelRidge(kernel, SIGMA**2)
    Z = X[-400:]
    halves = {}
    for n in rounds:
        state.update(X[state.n : n], y[state.n : n])
        halves[n] = {}
        for variant in VARIANTS:
            halves[n][variant] = half(FiniteSet(n_points, DELTA, variant), state, Z)
        mean, variance = state.predict(Z)
        halves[n]["prior-posterior ratio"] = float(ratio_half(mean, variance, n_points).mean())
    return halves


def widths(sizes: Sequence[int], rounds: Sequence[int]) -> None:
    """Print the ratios of half widths."""
    for name in KERNELS:
        for n_points in sizes:
            for n, halves in compared(name, n_points, rounds).items():
                paper = halves["paper"]
                ratios = [f"{variant} {half / paper:.3f}" for variant, half in halves.items()]
                print(f"{name:15} N = {n_points:<6} n = {n:<5} {paper:.4f}  {'  '.join(ratios)}")


def regret(seeds: int, n_points: int = 500, rounds: int = 120) -> None:
    """Print the cumulative regret of GP-UCB with each bound, and its difference to that with the paper's bound."""
    regrets: dict[str, Tensor] = {}
    for variant in VARIANTS:
        of_seeds = []
        for seed in range(seeds):
            game = GaussianProcessBandit(n_points, 5.0, 1.0, noise_std=SIGMA, seed=seed)
            posterior = partial(KernelRidge, game.kernel, SIGMA**2)
            method = Method(posterior, FiniteSet(n_points, DELTA, variant))
            rows = bandit.play(method, game, rounds, seed=100 + seed)
            of_seeds.append(sum(row["regret"] for row in rows))
        regrets[variant] = torch.tensor(of_seeds)
        difference = regrets[variant] - regrets["paper"]
        error = difference.std() / seeds**0.5
        words = f"{mean(of_seeds):.1f}  {difference.mean():.1f} +- {error:.1f}"
        print(f"{variant:10} {words}", flush=True)


def main() -> None:
    """Print both tables."""
    widths((100, 1000, 10_000), (0, 5, 20, 60, 120, 400, 1000))
    regret(12)


if __name__ == "__main__":
    main()
