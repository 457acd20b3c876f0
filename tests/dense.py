"""The textbook formulas, dense and in float64: what every test compares with. Nothing here comes from kbo."""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor


def close(actual: Tensor, expected: Tensor, tol: float = 1e-8) -> None:
    torch.testing.assert_close(actual, expected, rtol=tol, atol=tol)


def gram(kernel, X: Tensor, Z: Tensor) -> Tensor:
    """``k(X, Z)`` by GPyTorch, pair by pair: so evaluated, distances carry no cancellation error."""
    kernel = copy.deepcopy(kernel).to(X)
    if X.numel() == 0 or Z.numel() == 0:
        return X.new_zeros(len(X), len(Z))
    with torch.no_grad():
        return kernel(X.repeat_interleave(len(Z), 0), Z.repeat(len(X), 1), diag=True).reshape(len(X), len(Z))


class Dense:
    """A Gaussian process with noise variance ``ridge``; a list of ridges gives a leading axis."""

    def __init__(self, kernel, X: Tensor, y: Tensor) -> None:
        self.kernel, self.X, self.y, self.n = kernel, X, y, len(y)
        self.K, self.I = gram(kernel, X, X), torch.eye(len(X)).to(X)

    def mean(self, Z: Tensor, ridge) -> Tensor:
        return self._each(ridge, lambda r: gram(self.kernel, Z, self.X) @ self._solve(self.y, r))

    def covariance(self, Z1: Tensor, Z2: Tensor, ridge) -> Tensor:
        k1, k2, k12 = gram(self.kernel, Z1, self.X), gram(self.kernel, self.X, Z2), gram(self.kernel, Z1, Z2)
        return self._each(ridge, lambda r: k12 - k1 @ self._solve(k2, r))

    def predict(self, Z: Tensor, ridge) -> tuple[Tensor, Tensor]:
        return self.mean(Z, ridge), self.covariance(Z, Z, ridge).diagonal(dim1=-2, dim2=-1)

    def log_det(self, ridge) -> Tensor:
        return self._each(ridge, lambda r: torch.linalg.slogdet(self.I + self.K / r)[1])

    def quad(self, ridge) -> Tensor:
        return self._each(ridge, lambda r: r * self.y @ self._solve(self.y, r))

    def effective_dimension(self, ridge) -> Tensor:
        return self._each(ridge, lambda r: self._solve(self.K, r).trace())

    def _solve(self, B: Tensor, ridge: float) -> Tensor:
        return torch.linalg.solve(self.K + ridge * self.I, B)

    @staticmethod
    def _each(ridge, formula) -> Tensor:
        return torch.stack([formula(r) for r in ridge]) if isinstance(ridge, list) else formula(ridge)


Bounds = tuple[Tensor, Tensor]


def symmetric(dense: Dense, Z: Tensor, ridge: float, width) -> Bounds:
    mean, variance = dense.predict(Z, ridge)
    margin = width * variance.sqrt()
    return mean - margin, mean + margin


def ay(dense: Dense, Z: Tensor, ridge: float, noise_std: float, norm_bound: float, delta: float) -> Bounds:
    noise = noise_std * torch.sqrt(dense.log_det(ridge) + 2 * math.log(1 / delta))
    return symmetric(dense, Z, ridge, (noise + math.sqrt(ridge) * norm_bound) / math.sqrt(ridge))


def igp(dense: Dense, Z: Tensor, eta: float, noise_std: float, norm_bound: float, delta: float) -> Bounds:
    gain = dense.log_det(1 + eta) + dense.n * eta + 2 * math.log(1 / delta)
    return symmetric(dense, Z, 1 + eta, noise_std * torch.sqrt(gain) + norm_bound)


def wang_de_freitas(dense: Dense, Z: Tensor, noise_std: float, norm_bound: float, delta: float) -> Bounds:
    gain = dense.log_det(noise_std**2) / 2
    log2, log4 = math.log(2 / delta), math.log(4 / delta)
    square = norm_bound**2 + torch.sqrt(8 * gain * log2) + math.sqrt(2 * log4) * norm_bound
    return symmetric(dense, Z, noise_std**2, torch.sqrt(square + 2 * gain + 2 * noise_std * log2))


def finite_set(dense: Dense, Z: Tensor, ridge: float, n_points: int, delta: float) -> Bounds:
    return symmetric(dense, Z, ridge, math.sqrt(2 * math.log(n_points * (dense.n + 1) ** 2 * math.pi**2 / (6 * delta))))


def squared_radius(dense: Dense, noise_std: float, delta: float, scale: float) -> Tensor:
    a0 = noise_std**2 / scale
    return dense.quad(a0) + noise_std**2 * dense.log_det(a0) + 2 * noise_std**2 * math.log(1 / delta)


def mixture(dense: Dense, Z: Tensor, ridges, noise_std: float, norm_bound: float, delta: float, scale: float) -> Bounds:
    """AMM for one ridge, DMM for several."""
    R2 = squared_radius(dense, noise_std, delta, scale)
    widths = [torch.sqrt((R2 + a * norm_bound**2 - dense.quad(a)) / a) for a in ridges]
    bounds = [symmetric(dense, Z, a, width) for a, width in zip(ridges, widths, strict=True)]
    lower, upper = map(torch.stack, zip(*bounds, strict=True))
    return lower.amax(0), upper.amin(0)


def norm_lower_bound(dense: Dense, ridges, noise_std: float, delta: float, scale: float) -> Tensor:
    R2 = squared_radius(dense, noise_std, delta, scale)
    return torch.sqrt(max(torch.stack([(dense.quad(a) - R2) / a for a in ridges]).max(), torch.zeros(()).to(R2)))
