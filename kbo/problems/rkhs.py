"""Bandits whose reward is a function of known RKHS norm (Flynn & Reeb 2024, Sec. 7)."""

from __future__ import annotations

import math

import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel
from torch import Tensor

from kbo import checks
from kbo.errors import InvalidInput
from kbo.problems.base import Bandit, generators

SMOOTHNESS = {"rbf": math.inf, "matern52": 2.5, "matern32": 1.5, "matern12": 0.5}


def stationary_kernel(name: str, lengthscale: float | Tensor) -> Kernel:
    """The kernel "rbf", "matern52", "matern32" or "matern12" with that lengthscale, in float64.

    GPyTorch rounds a Python number to float32; a float64 tensor [] keeps all its digits.
    """
    if name not in SMOOTHNESS:
        raise InvalidInput(f"unknown kernel {name!r}; known: {', '.join(SMOOTHNESS)}.")
    checks.positive("lengthscale", float(lengthscale))
    kernel = RBFKernel() if name == "rbf" else MaternKernel(nu=SMOOTHNESS[name])
    kernel = kernel.double().requires_grad_(False)
    kernel.initialize(lengthscale=lengthscale)
    return kernel


class RKHSBandit(Bandit):
    """``f = b sum_i w_i k(., z_i)`` scaled to norm ``norm``, with new uniform arms every round.

    Args:
        kernel: "rbf", "matern52", "matern32" or "matern12".
        lengthscale: Its lengthscale.
        dim: Dimension of the cube [0, 1]^d.
        norm: RKHS norm of the function, also the ``norm_bound``.
        noise_std: Standard deviation of the Gaussian noise.
        n_arms: Arms per round.
        fixed: Offer the same arms every round.
        n_centres: Number of centres z_i.
        seed: Seed of function, arms and noise.

    Attributes:
        centres: The centres [c d].
        weights: The weights [c] of the scaled function.
    """

    norm_is_known = True

    def __init__(
        self,
        kernel: str = "rbf",
        lengthscale: float = 0.5,
        dim: int = 3,
        norm: float = 10.0,
        noise_std: float = 0.1,
        n_arms: int = 100,
        fixed: bool = False,
        n_centres: int = 20,
        seed: int = 0,
    ) -> None:
        self.kernel = stationary_kernel(kernel, lengthscale)
        self.noise_std, self.norm_bound = noise_std, norm
        self.dim, self.n_arms, self.smoothness = dim, n_arms, SMOOTHNESS[kernel]
        function, self._arms_rng, self.noise_rng = generators(3 * seed, 3 * seed + 1, 3 * seed + 2)
        self.centres = torch.rand(n_centres, dim, generator=function, dtype=torch.float64)
        weights = torch.randn(n_centres, generator=function, dtype=torch.float64)
        gram = self.kernel(self.centres).to_dense()
        self.weights = norm * weights / (weights @ gram @ weights).sqrt()
        if fixed:
            self.fixed_arms = self._draw()

    def scale(self, rounds: int) -> float:
        """The covariance scale c that the paper uses: 1 for RBF, ``T^(-d / (2d + 2 nu))`` for Matern."""
        if math.isinf(self.smoothness):
            return 1.0
        return rounds ** (-self.dim / (2 * self.dim + 2 * self.smoothness))

    def arms(self) -> Tensor:  # noqa: D102
        return self._draw() if self.fixed_arms is None else self.fixed_arms

    def mean(self, X: Tensor) -> Tensor:  # noqa: D102
        return self.kernel(X, self.centres).to_dense() @ self.weights

    def standard_noise(self, X: Tensor) -> Tensor:  # noqa: D102
        return torch.randn(len(X), generator=self.noise_rng, dtype=X.dtype)

    def _draw(self) -> Tensor:
        return torch.rand(self.n_arms, self.dim, generator=self._arms_rng, dtype=torch.float64)
