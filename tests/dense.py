"""The textbook formulas, dense and in float64: what every test compares with. Nothing here comes from kbo."""

from __future__ import annotations

import copy
import math

import torch
from scipy.stats import norm
from torch import Tensor


def close(actual: Tensor | float, expected: Tensor, tol: float = 1e-8) -> None:
    actual = actual if isinstance(actual, Tensor) else expected.new_tensor(actual)
    torch.testing.assert_close(actual, expected, rtol=tol, atol=tol)


def at_each(state, ridges, name: str, *points: Tensor) -> Tensor:
    """A number of a posterior, or of its formulas, at each of r ridges, [r ...]."""
    return torch.stack([getattr(state.at(float(ridge)), name)(*points) for ridge in ridges])


def predicted(state, Z: Tensor, ridges) -> tuple[Tensor, Tensor]:
    """Mean and variance at each of r ridges, [r ...]."""
    moments = [state.at(float(ridge)).predict(Z) for ridge in ridges]
    mean, variance = zip(*moments, strict=True)
    return torch.stack(mean), torch.stack(variance)


def gram(kernel, X: Tensor, Z: Tensor) -> Tensor:
    """``k(X, Z)`` by GPyTorch, pair by pair: so evaluated, distances carry no cancellation error."""
    kernel = copy.deepcopy(kernel).to(X)
    if X.numel() == 0 or Z.numel() == 0:
        return X.new_zeros(len(X), len(Z))
    with torch.no_grad():
        return kernel(X.repeat_interleave(len(Z), 0), Z.repeat(len(X), 1), diag=True).reshape(
            len(X), len(Z)
        )


class Dense:
    """A Gaussian process with noise variance ``ridge``; a list of ridges gives a leading axis.

    ``error``: at least the operator norm of ``residual``; bounds pay for it.
    ``weights``: observation i has the noise variance ``ridge / weights[i]``.
    """

    error = 0.0

    def __init__(self, kernel, X: Tensor, y: Tensor, weights: Tensor | None = None) -> None:
        self.kernel, self.X, self.y, self.n = kernel, X, y, len(y)
        self.K, self.I = gram(kernel, X, X), torch.eye(len(X)).to(X)
        self.w = torch.ones_like(y) if weights is None else weights

    def mean(self, Z: Tensor, ridge) -> Tensor:
        k = gram(self.kernel, Z, self.X)
        return self._each(ridge, lambda r: k @ self._solve(self.y, r))

    def covariance(self, Z1: Tensor, Z2: Tensor, ridge) -> Tensor:
        k1, k2, k12 = (
            gram(self.kernel, Z1, self.X),
            gram(self.kernel, self.X, Z2),
            gram(self.kernel, Z1, Z2),
        )
        return self._each(ridge, lambda r: k12 - k1 @ self._solve(k2, r))

    def predict(self, Z: Tensor, ridge) -> tuple[Tensor, Tensor]:
        return self.mean(Z, ridge), self.covariance(Z, Z, ridge).diagonal(dim1=-2, dim2=-1)

    def log_det(self, ridge) -> Tensor:
        return self._each(ridge, lambda r: torch.linalg.slogdet(self.I + self.K * self.w / r)[1])

    def quad(self, ridge) -> Tensor:
        return self._each(ridge, lambda r: r * self.y @ self._solve(self.y, r))

    def effective_dimension(self, ridge) -> Tensor:
        return self._each(ridge, lambda r: self._solve(self.K, r).trace())

    def at(self, ridge: float) -> DenseAt:
        return DenseAt(self, ridge)

    @property
    def trace(self) -> Tensor:
        return self.w @ self.K.diagonal()

    @property
    def residual(self) -> Tensor:
        """What an approximation leaves of the kernel matrix."""
        return torch.zeros_like(self.K)

    def missed(self, ridge: float) -> Tensor:
        """Hadamard's bound of ``ln det(I + residual / ridge)``, the observations of a location counted together."""
        _, location = torch.unique(self.X, dim=0, return_inverse=True)
        merged = (
            torch.zeros(len(self.X)).to(self.X).index_add(0, location, self.residual.diagonal())
        )
        return torch.log1p(merged / ridge).sum()

    def leverage_sum(self, ridge: float) -> Tensor:
        """The sum of the leverages of the observations; at least the exact effective dimension."""
        return self.effective_dimension(ridge) + self.residual.trace() / ridge

    def _solve(self, B: Tensor, ridge: float) -> Tensor:
        return torch.linalg.solve(self.K + ridge * self.I / self.w, B)

    @staticmethod
    def _each(ridge, formula) -> Tensor:
        return (
            torch.stack([formula(r) for r in ridge]) if isinstance(ridge, list) else formula(ridge)
        )


class DenseAt:
    """The formulas at one ridge, by the names of ``kbo.regression.PosteriorAt``."""

    def __init__(self, dense: Dense, ridge: float) -> None:
        self.dense, self.ridge = dense, ridge

    def predict(self, Z: Tensor) -> tuple[Tensor, Tensor]:
        return self.dense.predict(Z, self.ridge)

    def covariance(self, X: Tensor, Z: Tensor) -> Tensor:
        return self.dense.covariance(X, Z, self.ridge)

    def log_det(self) -> Tensor:
        return self.dense.log_det(self.ridge)

    def quad(self) -> Tensor:
        return self.dense.quad(self.ridge)

    def effective_dimension(self) -> Tensor:
        return self.dense.effective_dimension(self.ridge)


class Sketched(Dense):
    """The DTC posterior of a dictionary: the data through ``z(x) = k(Z, Z)^-1/2 k(Z, x)``, the prior variance as it is.

    The points of the dictionary must be distinct and well apart. ``K`` is the Nystrom matrix of the data.
    """

    def __init__(
        self, kernel, X: Tensor, y: Tensor, points: Tensor, weights: Tensor | None = None
    ) -> None:
        super().__init__(kernel, X, y, weights)
        values, vectors = torch.linalg.eigh(gram(kernel, points, points))
        self.points, self.root = points, vectors / values.sqrt() @ vectors.mT
        self.exact, self.B = self.K, self.features(X)
        self.K = self.B @ self.B.mT

    def features(self, Z: Tensor) -> Tensor:
        return gram(self.kernel, Z, self.points) @ self.root

    def mean(self, Z: Tensor, ridge) -> Tensor:
        k = self.features(Z) @ self.B.mT
        return self._each(ridge, lambda r: k @ self._solve(self.y, r))

    def covariance(self, Z1: Tensor, Z2: Tensor, ridge) -> Tensor:
        k12, f1, f2 = gram(self.kernel, Z1, Z2), self.features(Z1), self.features(Z2)
        return self._each(ridge, lambda r: k12 - f1 @ self.B.mT @ self._solve(self.B @ f2.mT, r))

    @property
    def trace(self) -> Tensor:
        return self.w @ self.exact.diagonal()

    @property
    def residual(self) -> Tensor:
        return self.w.sqrt().outer(self.w.sqrt()) * (self.exact - self.K)


class Hallucinated(Dense):
    """``dense`` with points P observed at its own mean: the variance knows of P, mean and data do not."""

    def __init__(self, dense: Dense, P: Tensor) -> None:
        super().__init__(dense.kernel, dense.X, dense.y)
        self.dense, self.P = dense, P

    def covariance(self, Z1: Tensor, Z2: Tensor, ridge) -> Tensor:
        p, Z1, Z2 = len(self.P), torch.cat([self.P, Z1]), torch.cat([self.P, Z2])
        ridges = ridge if isinstance(ridge, list) else [ridge]
        joint = dict(zip(ridges, self.dense.covariance(Z1, Z2, ridges), strict=True))

        def conditioned(r: float) -> Tensor:
            S = joint[r][:p, :p] + r * torch.eye(p).to(self.P)
            return joint[r][p:, p:] - joint[r][p:, :p] @ torch.linalg.solve(S, joint[r][:p, p:])

        return self._each(ridge, conditioned)


Bounds = tuple[Tensor, Tensor]


def symmetric(dense: Dense, Z: Tensor, ridge: float, width) -> Bounds:
    mean, variance = dense.predict(Z, ridge)
    margin = width * variance.sqrt()
    return mean - margin, mean + margin


def ay(
    dense: Dense, Z: Tensor, ridge: float, noise_std: float, norm_bound: float, delta: float
) -> Bounds:
    gain = dense.log_det(ridge) + dense.missed(ridge)
    noise = noise_std * torch.sqrt(gain + 2 * math.log(1 / delta))
    norm = norm_bound * (math.sqrt(ridge) + math.sqrt(dense.error))
    return symmetric(dense, Z, ridge, (noise + norm) / math.sqrt(ridge))


def igp(
    dense: Dense, Z: Tensor, eta: float, noise_std: float, norm_bound: float, delta: float
) -> Bounds:
    gain = (
        dense.log_det(1 + eta)
        + dense.missed(1 + eta)
        + dense.n * math.log(1 + eta)
        + 2 * math.log(1 / delta)
    )
    norm = norm_bound * (1 + math.sqrt(dense.error / (1 + eta)))
    return symmetric(dense, Z, 1 + eta, noise_std * torch.sqrt(gain) + norm)


def bkb(
    dense: Dense,
    Z: Tensor,
    ridge: float,
    noise_std: float,
    norm_bound: float,
    delta: float,
    eps: float,
) -> Bounds:
    """Multiplies ``sqrt(variance / ridge)`` in the paper."""
    gain = (
        (1 + eps) / (1 - eps) * (1 + torch.log(1 + dense.trace / ridge)) * dense.leverage_sum(ridge)
    )
    width = noise_std * torch.sqrt(gain + 2 * math.log(1 / delta))
    width = width + (1 + 1 / math.sqrt(1 - eps)) * math.sqrt(ridge) * norm_bound
    return symmetric(dense, Z, ridge, width / math.sqrt(ridge))


def ekucb(
    dense: Dense,
    Z: Tensor,
    ridge: float,
    noise_std: float,
    norm_bound: float,
    delta: float,
    mu: float = 0.0,
) -> Bounds:
    """EK-UCB; K-UCB for mu = 0."""
    gain = torch.log(math.e + math.e * dense.trace / ridge) * dense.leverage_sum(ridge)
    noise = noise_std * torch.sqrt(2 * math.log(1 / delta) + gain)
    width = (math.sqrt(ridge) + math.sqrt(mu)) * norm_bound + noise
    return symmetric(dense, Z, ridge, width / math.sqrt(ridge))


def finite_set(
    dense: Dense, Z: Tensor, ridge: float, n_points: int, delta: float, variant: str
) -> Bounds:
    t, prior = dense.n + 1, gram(dense.kernel, Z, Z).diagonal()
    share = 6 * delta / (math.pi**2 * t**2 * n_points)  # of each point, at this round
    if variant != "mixture":
        return symmetric(
            dense,
            Z,
            ridge,
            norm.isf(share / 2) if variant == "quantile" else (-2 * math.log(share)) ** 0.5,
        )
    tau, u = 4 * prior, 1 / dense.predict(Z, ridge)[1]
    # sqrt(1 + tau u) = (n_points / delta)^-1 exp(tau s^2 / (2 (1 + tau u))) at s = width sqrt(u)
    square = 2 * (1 + tau * u) / tau * torch.log(torch.sqrt(1 + tau * u) * n_points / delta)
    return symmetric(dense, Z, ridge, torch.sqrt(square / u))


def squared_radius(dense: Dense, noise_std: float, delta: float, scale) -> Tensor:
    """Eq. 8, or with several scales the average of its martingales; a sketch adds what it misses."""
    s, scales = noise_std**2, [scale] if isinstance(scale, float) else list(scale)
    logs = [
        -dense.quad(a) / (2 * s) - (dense.log_det(a) + dense.missed(a)) / 2 - math.log(len(scales))
        for a in (s / c for c in scales)
    ]
    return 2 * s * math.log(1 / delta) - 2 * s * torch.logsumexp(torch.stack(logs), 0)


def widened(
    dense: Dense, noise_std: float, norm_bound, delta: float, scale, error: float
) -> Tensor:
    """``(R + B sqrt|E|)^2``, with ``error`` at least ``|E|``."""
    return (
        squared_radius(dense, noise_std, delta, scale).sqrt() + norm_bound * math.sqrt(error)
    ) ** 2


def mixture(
    dense: Dense,
    Z: Tensor,
    ridges,
    noise_std: float,
    norm_bound: float,
    delta: float,
    scale,
    error: float = 0.0,
) -> Bounds:
    """AMM for one ridge, DMM for several."""
    R2 = widened(dense, noise_std, norm_bound, delta, scale, error)
    widths = [torch.sqrt((R2 + a * norm_bound**2 - dense.quad(a)) / a) for a in ridges]
    bounds = [symmetric(dense, Z, a, width) for a, width in zip(ridges, widths, strict=True)]
    lower, upper = map(torch.stack, zip(*bounds, strict=True))
    return lower.amax(0), upper.amin(0)


def exact_mixture(
    dense: Dense,
    Z: Tensor,
    noise_std: float,
    norm_bound: float,
    delta: float,
    scale,
    error: float = 0.0,
) -> Bounds:
    """CMM: point by point the best of all ridges, on a grid that is refined around its best ridge."""
    R2 = widened(dense, noise_std, norm_bound, delta, scale, error)
    scales = [scale] if isinstance(scale, float) else scale
    least, most = (noise_std**2 / c for c in (max(scales), min(scales)))

    def best(z: Tensor, sign: int) -> Tensor:
        grid = torch.linspace(
            math.log(1e-8 * least * max(dense.n, 1)), math.log(1e12 * most), 60
        ).to(R2)
        for _ in range(6):
            ridges = grid.exp()
            (mean, variance), quad = dense.predict(z, ridges.tolist()), dense.quad(ridges.tolist())
            width = torch.sqrt((R2 + ridges * norm_bound**2 - quad) / ridges)
            values = (sign * mean[:, 0] + width * variance[:, 0].sqrt()).nan_to_num(math.inf)
            i = int(values.argmin())
            low, high = grid[max(i - 1, 0)], grid[min(i + 1, len(grid) - 1)]
            grid = low + (high - low) * torch.linspace(0, 1, 13).to(R2)
        return sign * values[i]

    lower, upper = (torch.stack([best(z, sign) for z in Z.split(1)]) for sign in (-1, 1))
    return lower, upper


def norm_lower_bound(dense: Dense, ridges, noise_std: float, delta: float, scale) -> Tensor:
    R2 = squared_radius(dense, noise_std, delta, scale)
    return torch.sqrt(
        max(torch.stack([(dense.quad(a) - R2) / a for a in ridges]).max(), torch.zeros(()).to(R2))
    )
