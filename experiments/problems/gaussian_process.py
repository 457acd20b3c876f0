"""A draw of a Gaussian process on a box (Contal et al. 2015, Sec. 4), exact to rounding for any number of arms."""

from __future__ import annotations

import math

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from experiments.problems.base import FixedArms, RowNumbers, streams
from experiments.problems.rkhs import stationary_kernel
from kbo._base import checks
from kbo.errors import InvalidInput

_DEVIATIONS = 8.5
"""Number of standard deviations of the spectral density that are used: exp(-8.5^2 / 2) is the precision of float64."""

_MOST_COEFFICIENTS = 2**24
"""Largest number of coefficients of a function: 128 MiB."""

_BLOCK = 2**21
"""Number of values in memory at the same time while the function is evaluated."""


def fourier_features(x: Tensor, side: float, lengthscale: float) -> Tensor:
    """Features whose inner products are the Gaussian kernel in one dimension, for points at most ``side`` apart.

    The kernel is the integral of ``cos(w (x - z))`` over its spectral density, normal with variance 1 / lengthscale^2.
    The trapezoid rule of step h turns it into the sum of the kernel over the shifts ``x - z + 2 pi i / h``: the nearest
    shift is 8.5 lengthscales away, so the features are right to 1e-15. For coordinates x [...] they are cosines and
    sines [... m], with m = 1 + 2 ceil(8.5 (side / lengthscale + 8.5) / (2 pi)).
    """
    step = 2 * math.pi / (side + _DEVIATIONS * lengthscale)
    frequencies = step * torch.arange(_highest(side, lengthscale) + 1, device="cpu").to(x)
    density = torch.exp(-(lengthscale * frequencies).square() / 2)
    weights = step * lengthscale / math.sqrt(2 * math.pi) * density
    weights[1:] *= 2  # a frequency and its negative
    angles = x.unsqueeze(-1) * frequencies
    roots = weights.sqrt()
    return torch.cat([roots * angles.cos(), roots[1:] * angles[..., 1:].sin()], -1)


def _highest(side: float, lengthscale: float) -> int:
    """The number of frequencies above 0."""
    return math.ceil(_DEVIATIONS * (side / lengthscale + _DEVIATIONS) / (2 * math.pi))


class GaussianProcessBandit(FixedArms):
    """A function drawn from a Gaussian process with a Gaussian kernel, on arms drawn uniformly from a box.

    The kernel is a product over the coordinates, so products of ``fourier_features`` of the coordinates are its
    features. The function is their sum with independent standard normal coefficients. Its values at any points of the
    box have the covariance of the kernel to rounding; drawing them directly would cost the cube of their number.

    A draw of a Gaussian process has no finite norm in the RKHS of its kernel. Here the number of coefficients is
    finite: more could not be distinguished from rounding. ``norm_bound`` is the norm of the coefficients, the norm in
    the RKHS of the features. It grows with the box and is too large to be useful for a method, so it is nominal.

    Args:
        n_points: Arms.
        side: Side of the box [0, side]^dim.
        lengthscale: Lengthscale of the kernel.
        dim: 1, 2 or 3.
        noise_std: Standard deviation of the Gaussian noise.
        seed: Seed of arms, function and noise.

    Attributes:
        coefficients: Coefficients of the products of features, one axis of m numbers for each coordinate.

    Raises:
        InvalidInput: There are so many features that the coefficients would not fit into memory.
    """

    def __init__(
        self,
        n_points: int = 10_000,
        side: float = 20.0,
        lengthscale: float = 1.0,
        dim: int = 2,
        noise_std: float = 0.05,
        seed: int = 0,
    ) -> None:
        self.n_arms: int = checks.whole("n_points", n_points, 1, 10**7)
        self.side: float = checks.positive("side", side)
        self.noise_std: float = checks.positive("noise_std", noise_std)
        lengthscale = checks.positive("lengthscale", lengthscale)
        exact = torch.tensor(lengthscale, dtype=torch.float64, device="cpu")
        self.kernel: Kernel = stationary_kernel("rbf", exact)
        self.lengthscale: float = float(lengthscale)
        points, function, noise_rng = streams(seed)
        self.noise_rng: torch.Generator = noise_rng
        self.dim: int = checks.whole("dim", dim, 1, 3)
        m = 1 + 2 * _highest(self.side, self.lengthscale)
        if m**dim > _MOST_COEFFICIENTS:
            raise InvalidInput(
                f"a box of side {side:g} and lengthscale {lengthscale:g} need {m} features in each of {dim} "
                f"dimensions, {m**dim:.2g} in all, above {_MOST_COEFFICIENTS:.2g}: take a larger lengthscale, a "
                "smaller side or fewer dimensions."
            )
        self.coefficients: Tensor = torch.randn(
            (m,) * self.dim, generator=function, dtype=torch.float64, device="cpu"
        )
        self.norm_bound: float = float(self.coefficients.norm())
        uniform = torch.rand(
            self.n_arms, self.dim, generator=points, dtype=torch.float64, device="cpu"
        )
        self.fixed_arms: Tensor = self.side * uniform
        self._numbers = RowNumbers(self.fixed_arms)
        self._means = self._evaluate(self.fixed_arms)

    def mean(self, X: Tensor) -> Tensor:
        """Values [n] of the function at X [n dim], anywhere in the box.

        Raises:
            InvalidInput: A row outside the box, or a tensor of another shape or dtype.
        """
        if X is self.fixed_arms:
            return self._means
        checks.rows("X", X, self.fixed_arms, self.dim)
        if bool(X.lt(0).any() or X.gt(self.side).any()):
            raise InvalidInput(
                f"X has a coordinate outside [0, {self.side:g}]: the function is drawn on that box only."
            )
        # A matrix product rounds one row differently from many rows, but the mean of an arm must always be the same.
        numbers = self._numbers(X)
        known = numbers >= 0
        means = self._means[numbers]
        if bool(known.all()):
            return means
        return torch.where(known, means, self._evaluate(X))

    def _evaluate(self, X: Tensor) -> Tensor:
        """Values [n] at X [n dim], computed in blocks of rows."""
        rows = max(1, _BLOCK // len(self.coefficients) ** max(1, self.dim - 1))
        return torch.cat([self._block(part) for part in X.split(rows)])

    def _block(self, X: Tensor) -> Tensor:
        """Values [n] at X [n dim]: the coefficients, contracted with the features of each coordinate in turn."""
        m = len(self.coefficients)
        features = fourier_features(X, self.side, self.lengthscale)
        contracted = features[:, 0] @ self.coefficients.reshape(m, -1)
        for i in range(1, self.dim):
            tensor = contracted.reshape(len(X), m, m ** (self.dim - 1 - i))
            contracted = (features[:, i].unsqueeze(1) @ tensor).squeeze(1)
        return contracted.squeeze(-1)
