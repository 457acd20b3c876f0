"""Himmelblau's function with a trend (Contal et al. 2015, Sec. 4); the kernel has the likeliest lengthscale."""

from __future__ import annotations

import math

import torch
from gpytorch.kernels import Kernel
from scipy.optimize import minimize_scalar
from torch import Tensor

from experiments.problems.base import FixedArms, streams
from experiments.problems.rkhs import stationary_kernel
from kbo._base import checks

_HALF_SIDE = 5.0
"""Half the side of the box [-5, 5]^2."""

_GRID = 201
"""Points per side of the grid whose values set the scale."""

_LENGTHSCALES = (0.1, 10.0)
"""Range of the search for the lengthscale."""

_SUBSET = 100
"""Number of arms whose noisy values set the lengthscale."""

_NORM_BOUND = 15.0


def likeliest_lengthscale(X: Tensor, y: Tensor, noise_std: float) -> float:
    """The lengthscale, 0.1 to 10, of the Gaussian kernel under which noisy values y [n] at X [n d] are likeliest."""
    squares = torch.cdist(X, X, compute_mode="donot_use_mm_for_euclid_dist").square()
    noise = noise_std**2 * torch.eye(len(X), device="cpu").to(X)

    def cost(log_lengthscale: float) -> float:
        """The negative log-likelihood, up to a constant."""
        gram = torch.exp(-squares / (2 * math.exp(2 * log_lengthscale)))
        factor = torch.linalg.cholesky(gram + noise)
        white = torch.linalg.solve_triangular(factor, y.unsqueeze(-1), upper=False)
        return float(white.square().sum() / 2 + factor.diagonal().log().sum())

    limits = tuple(math.log(limit) for limit in _LENGTHSCALES)
    found = minimize_scalar(cost, bounds=limits, method="bounded", options={"xatol": 1e-6})
    return math.exp(found.x)


class HimmelblauBandit(FixedArms):
    """``-(x^2 + y - 11)^2 - (x + y^2 - 7)^2 + trend (x + y)`` on arms drawn uniformly from [-5, 5]^2.

    Without the trend, the four optima are equally good. With it, the optimum near (3, 2) is the best, unless the trend
    is so steep that it hides the polynomial. Values are shifted and scaled to mean 0 and standard deviation 1 over a
    grid of 201 by 201 points, for a prior with mean 0 and variance 1.

    The kernel is Gaussian, with the lengthscale under which noisy values of 100 random arms are likeliest. Its RKHS
    contains no polynomial, so ``norm_bound`` is nominal: a function of norm 15 is within 0.05 of the values, in root
    mean square.

    Args:
        n_points: Arms.
        trend: Slope of the trend along both coordinates, in units of the polynomial.
        noise_std: Standard deviation of the Gaussian noise.
        seed: Seed of arms, of those that set the lengthscale, and of the noise.
    """

    def __init__(
        self, n_points: int = 10_000, trend: float = 5.0, noise_std: float = 0.05, seed: int = 0
    ) -> None:
        self.n_arms: int = checks.whole("n_points", n_points, 2, 10**7)
        self.norm_bound: float = _NORM_BOUND
        self.trend: float = checks.at_least("trend", trend, 0)
        self.noise_std: float = checks.positive("noise_std", noise_std)
        points, subset, noise_rng = streams(seed)
        self.noise_rng: torch.Generator = noise_rng
        side = torch.linspace(-_HALF_SIDE, _HALF_SIDE, _GRID, dtype=torch.float64, device="cpu")
        grid = self._polynomial(torch.cartesian_prod(side, side))
        self._centre = grid.mean()
        self._scale = grid.std(correction=0)
        uniform = torch.rand(self.n_arms, 2, generator=points, dtype=torch.float64, device="cpu")
        self.fixed_arms: Tensor = _HALF_SIDE * (2 * uniform - 1)
        order = torch.randperm(self.n_arms, generator=subset, device="cpu")
        X = self.fixed_arms[order[:_SUBSET]]
        noise = torch.randn(len(X), generator=subset, dtype=torch.float64, device="cpu")
        y = self.mean(X) + self.noise_std * noise
        self.lengthscale: float = likeliest_lengthscale(X, y, self.noise_std)
        self.kernel: Kernel = stationary_kernel("rbf", self.lengthscale)

    def mean(self, X: Tensor) -> Tensor:
        checks.rows("X", X, self.fixed_arms, 2)
        return (self._polynomial(X) - self._centre) / self._scale

    def _polynomial(self, X: Tensor) -> Tensor:
        """Values [n] at X [n 2], neither shifted nor scaled; larger is better."""
        x, y = X.unbind(-1)
        return self.trend * (x + y) - (x.square() + y - 11).square() - (x + y.square() - 7).square()
