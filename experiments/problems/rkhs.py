"""Bandits whose reward is a function of known RKHS norm."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel
from torch import Tensor

from experiments.problems.base import FixedArms, generators, streams
from kbo._base import checks
from kbo._base.isolation import tensors_on_cpu
from kbo.bandit.problem import Bandit

_LARGEST = 10**7
"""Points and dimensions that memory can hold."""

SMOOTHNESS = {"rbf": math.inf, "matern52": 2.5, "matern32": 1.5, "matern12": 0.5}
"""The smoothness nu of the Matern kernels, by name."""


@tensors_on_cpu
def stationary_kernel(name: str, lengthscale: float | Tensor) -> Kernel:
    """The kernel "rbf", "matern52", "matern32" or "matern12" with a lengthscale, in float64.

    A Python number is rounded to float32, as GPyTorch does; a float64 tensor [] keeps all its digits.
    """
    checks.one_of("kernel", name, SMOOTHNESS)
    checks.positive("lengthscale", lengthscale)
    if name == "rbf":
        kernel = RBFKernel()
    else:
        kernel = MaternKernel(nu=SMOOTHNESS[name])
    kernel.double().requires_grad_(False)
    if not isinstance(lengthscale, Tensor):
        lengthscale = torch.tensor(lengthscale, dtype=torch.float32)
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
        self.kernel: Kernel = stationary_kernel(kernel, lengthscale)
        self.noise_std: float = checks.non_negative("noise_std", noise_std)
        self.norm_bound: float = checks.positive("norm", norm)
        self.dim: int = checks.whole("dim", dim, 1, _LARGEST)
        self.n_arms: int = checks.whole("n_arms", n_arms, 1, _LARGEST)
        self.smoothness: float = SMOOTHNESS[kernel]
        n_centres = checks.whole("n_centres", n_centres, 1, _LARGEST)
        seed = checks.seed(seed)
        fixed = checks.flag("fixed", fixed)
        function, self._arms_rng, noise_rng = generators(3 * seed, 3 * seed + 1, 3 * seed + 2)
        self.noise_rng: torch.Generator = noise_rng
        self.centres: Tensor = torch.rand(
            n_centres, dim, generator=function, dtype=torch.float64, device="cpu"
        )
        weights = torch.randn(n_centres, generator=function, dtype=torch.float64, device="cpu")
        gram = self.kernel(self.centres).to_dense()
        self.weights: Tensor = self.norm_bound * weights / (weights @ gram @ weights).sqrt()
        if fixed:
            self.fixed_arms: Tensor = self._draw()

    def scale(self, rounds: int) -> float:
        """The covariance scale c that the paper uses: 1 for RBF, ``T^(-d / (2d + 2 nu))`` for Matern."""
        if math.isinf(self.smoothness):
            return 1.0
        return rounds ** (-self.dim / (2 * self.dim + 2 * self.smoothness))

    def arms(self) -> Tensor:
        if self.fixed_arms is None:
            return self._draw()
        return self.fixed_arms

    def mean(self, X: Tensor) -> Tensor:
        X = checks.rows("X", X, self.centres, self.dim)
        return self.kernel(X, self.centres).to_dense() @ self.weights

    def standard_noise(self, X: Tensor) -> Tensor:
        return torch.randn(len(X), generator=self.noise_rng, dtype=X.dtype, device="cpu")

    def _draw(self) -> Tensor:
        """Uniform arms [A d]."""
        return torch.rand(
            self.n_arms, self.dim, generator=self._arms_rng, dtype=torch.float64, device="cpu"
        )


_RHO = 0.3
"""Lengthscale of the kernel."""

_COORDINATES = 25
"""Number of coordinates of the function that are not zero."""

_SPIKE_PROBABILITY = 0.02


def _rademacher(u: Tensor) -> Tensor:
    """Either sign with the same probability."""
    return torch.where(u < 0.5, -1.0, 1.0).to(u)


def _laplace(u: Tensor) -> Tensor:
    """The quantile of the Laplace distribution of variance 1."""
    centred = u - 0.5
    return -centred.sign() * torch.log1p(-2 * centred.abs()) / math.sqrt(2)


def _spikes(u: Tensor) -> Tensor:
    """A spike of either sign in 2% of the cases, else 0."""
    size = 1 / math.sqrt(_SPIKE_PROBABILITY)
    negative = u < _SPIKE_PROBABILITY / 2
    spike = u < _SPIKE_PROBABILITY
    return torch.where(negative, -size, torch.where(spike, size, 0.0)).to(u)


NOISES: dict[str, Callable[[Tensor], Tensor]] = {
    "gaussian": torch.special.ndtri,
    "rademacher": _rademacher,
    "laplace": _laplace,
    "spikes": _spikes,
}
"""Noise of mean 0 and variance 1 as functions of uniform numbers in (0, 1)."""


class StreamingBandit(FixedArms):
    """``f(x) = sum_i theta_i phi_i(x)`` in the features of the Gaussian kernel of lengthscale 0.3, on a grid of arms.

    The features ``phi_i(x) = exp(-x^2 / 2 rho^2) (x / rho)^i / sqrt(i!)`` satisfy ``sum_i phi_i(x) phi_i(z) = k(x, z)``
    and are independent, so the RKHS norm of f is the norm of theta. The paper has one function, so theta is the same
    for every seed; 25 of its coordinates are not zero. The maximum of f over [0, 1] is 0.63, at 0.39.

    Only "gaussian" and "rademacher" noise is ``noise_std``-sub-Gaussian. The guarantees of methods do not cover the
    others: "laplace" is sub-Gaussian for no constant, and the constant of "spikes" is far above its standard deviation.

    Args:
        n_arms: Arms, equally spaced in [0, 1], both ends included.
        noise_std: Standard deviation of the noise, whatever its kind.
        noise: "gaussian", "rademacher" (either sign), "laplace", or "spikes" (either sign, in 2% of the rounds; else
            0).
        norm: RKHS norm of the function.
        norm_bound: Norm bound given to methods.
        seed: Seed of the noise.

    Attributes:
        theta: Coordinates [25] of the function.
    """

    norm_is_known = True

    def __init__(
        self,
        n_arms: int = 100,
        noise_std: float = 0.1,
        noise: str = "gaussian",
        norm: float = 2.06,
        norm_bound: float = 5.0,
        seed: int = 0,
    ) -> None:
        checks.one_of("noise", noise, NOISES)
        lengthscale = torch.tensor(_RHO, dtype=torch.float64, device="cpu")
        self.kernel: Kernel = stationary_kernel("rbf", lengthscale)
        self.noise_std: float = checks.positive("noise_std", noise_std)
        self.noise = noise
        self.norm: float = checks.positive("norm", norm)
        self.norm_bound: float = checks.positive("norm_bound", norm_bound)
        self.n_arms: int = checks.whole("n_arms", n_arms, 2)
        grid = torch.linspace(0, 1, self.n_arms, dtype=torch.float64, device="cpu")
        self.fixed_arms: Tensor = grid.unsqueeze(-1)
        theta = torch.from_numpy(np.random.default_rng(12).standard_normal(_COORDINATES))
        self.theta: Tensor = self.norm * theta / theta.norm()
        *_, noise_rng = streams(seed)
        self.noise_rng: torch.Generator = noise_rng

    def mean(self, X: Tensor) -> Tensor:
        checks.points("X", X, dim=1)
        order = torch.arange(_COORDINATES, device="cpu").to(X)
        z = X / _RHO
        log_weights = -(z.square() + torch.lgamma(order + 1)) / 2
        features = z.pow(order) * torch.exp(log_weights)
        return features @ self.theta.to(X)

    def noise_quantile(self, u: Tensor) -> Tensor:
        return NOISES[self.noise](u)
