"""Bounds for draws of a Gaussian process on a finite set; ``python -m tests.test_gaussian`` compares their widths."""

from __future__ import annotations

import math
import sys

import pytest
import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel
from scipy.stats import norm
from torch import Tensor

from kbo import KernelRidge, bandit
from kbo.confidence import FiniteSet, widths
from kbo.errors import InvalidInput
from kbo.problems import GaussianProcessBandit
from kbo.recipes.method import Method
from tests.dense import gram

DELTA, NOISE, VARIANTS = 0.1, 0.1, ("paper", "quantile", "mixture")
KERNELS = {
    "RBF 0.2": (RBFKernel, {}, 0.2),
    "RBF 0.5": (RBFKernel, {}, 0.5),
    "Matern 5/2 0.5": (MaternKernel, {"nu": 2.5}, 0.5),
    "Matern 3/2 0.2": (MaternKernel, {"nu": 1.5}, 0.2),
}


def ratio_half(mean: Tensor, variance: Tensor, n_points: int) -> Tensor:
    """Half widths of the prior-posterior ratio at 0.9 delta, cut by the prior's interval at 0.1 delta; ``k = 1``."""
    left = (1 - variance).clamp_min(1e-12)
    half = variance / left * (-variance.log() + 2 * math.log(n_points / (0.9 * DELTA)) + mean.square() / left)
    prior = norm.isf(0.1 * DELTA / n_points / 2)
    upper = (mean / left + half.sqrt()).clamp_max(prior)
    return (upper - (mean / left - half.sqrt()).clamp_min(-prior)) / 2


def compare(name: str, n_points: int, rounds: tuple[int, ...], seed: int = 0) -> dict[int, dict[str, float]]:
    """Mean half widths at 400 points after uniform observations in two dimensions of a draw."""
    make, options, lengthscale = KERNELS[name]
    kernel: Kernel = make(**options).double()
    kernel.lengthscale = lengthscale
    rng = torch.Generator().manual_seed(seed)
    X = torch.rand(max(rounds) + 400, 2, generator=rng, dtype=torch.float64)
    root = torch.linalg.cholesky(gram(kernel, X, X) + 1e-8 * torch.eye(len(X)).double())
    y = root @ torch.randn(len(X), generator=rng, dtype=torch.float64)
    y = y + NOISE * torch.randn(len(X), generator=rng, dtype=torch.float64)
    state, Z, found = KernelRidge(kernel, NOISE**2), X[-400:], {}
    for n in rounds:
        state.update(X[state.n : n], y[state.n : n])
        halves = found[n] = {}
        for variant in VARIANTS:
            lower, upper = FiniteSet(n_points, DELTA, variant).interval(state, Z)
            halves[variant] = float((upper - lower).mean()) / 2
        halves["prior-posterior ratio"] = float(ratio_half(*state.predict(Z), n_points).mean())
    return found


@pytest.mark.parametrize("name", KERNELS)
def test_the_mixture_is_narrowest_once_there_are_data_or_within_a_per_cent(name):
    for halves in compare(name, 1000, (20, 60, 120)).values():
        assert halves["mixture"] < min(0.95 * halves["quantile"], 1.01 * halves["prior-posterior ratio"])
        assert halves["quantile"] < halves["paper"]


@pytest.mark.parametrize("width", [0.5, 3.0, 6.0, 30.0])
def test_exact_tails_keep_the_probability(width):
    exact = widths.exact_tail(width)
    assert exact < width
    assert norm.logsf(exact) + math.log(2) == pytest.approx(-(width**2) / 2, rel=1e-12)


def test_an_unknown_variant_is_refused():
    with pytest.raises(InvalidInput, match="variant"):
        FiniteSet(10, 0.1, "printed")


def regrets(variant: str, seeds: int = 12) -> Tensor:
    """Cumulative regret [seeds] of GP-UCB with this variant on 500 points, 120 rounds."""
    found = []
    for seed in range(seeds):
        problem = GaussianProcessBandit(500, 5.0, 1.0, noise_std=NOISE, seed=seed)
        method = Method(variant, problem.kernel, NOISE**2, FiniteSet(500, DELTA, variant))
        found.append(sum(row["regret"] for row in bandit.play(method, problem, 120, seed=100 + seed)))
    return torch.tensor(found)


def main(regret: bool) -> None:
    if regret:
        paper = regrets("paper")
        for variant in VARIANTS:
            found = regrets(variant)
            less = found - paper
            print(f"{variant:10} {found.mean():.1f}  {less.mean():.1f} +- {less.std() / len(less) ** 0.5:.1f}")
        return
    for name in KERNELS:
        for n_points in (100, 1000, 10_000):
            for n, halves in compare(name, n_points, (0, 5, 20, 60, 120, 400, 1000)).items():
                ratios = "  ".join(f"{key} {half / halves['paper']:.3f}" for key, half in halves.items())
                print(f"{name:15} N = {n_points:<6} n = {n:<5} {halves['paper']:.4f}  {ratios}")


if __name__ == "__main__":
    main("regret" in sys.argv)
