"""Kernel ridge regression in 90-digit arithmetic, for given float64 data: the reference of ``test_rounding.py``.

Numbers are integers in units of 2^-BITS, so that numpy multiplies them without loss; logarithms, roots and exponentials
are those of mpmath. Nothing is shared with kbo.
"""

from __future__ import annotations

import copy

import mpmath
import numpy as np

BITS = 400
mpmath.mp.prec = BITS

SHAPES = {
    "rbf": lambda r: mpmath.exp(-r * r / 2),
    "matern12": lambda r: mpmath.exp(-r),
    "matern32": lambda r: (1 + mpmath.sqrt(3) * r) * mpmath.exp(-mpmath.sqrt(3) * r),
    "matern52": lambda r: (
        (1 + mpmath.sqrt(5) * r + 5 * r * r / 3) * mpmath.exp(-mpmath.sqrt(5) * r)
    ),
}


def fixed(value) -> int:
    """Return the integer of a number: exact for float64 numbers above 2^-300."""
    return int(mpmath.nint(mpmath.ldexp(mpmath.mpf(value), BITS)))


def real(value: int) -> mpmath.mpf:
    """Return the number of an integer."""
    return mpmath.ldexp(mpmath.mpf(int(value)), -BITS)


def gram(shape: str, lengthscale: float, X, Z) -> np.ndarray:
    """Return the kernel matrix of the rows of X and Z."""
    g, scale = SHAPES[shape], mpmath.mpf(lengthscale)
    seen: dict[tuple, int] = {}

    def entry(x, z) -> int:
        if (key := (*x, *z)) not in seen:
            square = sum((mpmath.mpf(a) - mpmath.mpf(b)) ** 2 for a, b in zip(x, z, strict=True))
            seen[key] = seen[(*z, *x)] = fixed(g(mpmath.sqrt(square) / scale))
        return seen[key]

    return np.array([[entry(x, z) for z in Z] for x in X], dtype=object).reshape(len(X), len(Z))


def eliminate(M: np.ndarray) -> list[int]:
    """Eliminate the first columns, as many as there are rows, in place, and return the pivots."""
    m = len(M)
    pivots = []
    for j in range(m):
        pivots.append(int(M[j, j]))
        factors = [(int(value) << BITS) // pivots[-1] for value in M[j, j + 1 : m]]
        if factors:
            rows = np.array(factors, dtype=object)[:, None] * M[j, j + 1 :]
            M[j + 1 :, j + 1 :] -= rows >> BITS
    return pivots


def inner(a, b, pivots: list[int]) -> int:
    """Return ``sum(a b / pivots)``."""
    return sum(int(x) * int(y) // p for x, y, p in zip(a, b, pivots, strict=True))


class Exact:
    """The regression of y on X, and its answers at the points Z, at any ridge; all arguments are lists of floats."""

    def __init__(self, shape: str, lengthscale: float, X, y, Z) -> None:
        self.n = len(X)
        targets = np.array([fixed(value) for value in y], dtype=object)[:, None]
        self.table = np.hstack(
            [gram(shape, lengthscale, X, X), gram(shape, lengthscale, X, Z), targets]
        )
        self.among_points = gram(shape, lengthscale, Z, Z)
        self.answers: dict[mpmath.mpf, tuple] = {}
        self.missed, self.error = lambda ridge: 0, mpmath.mpf(0)

    def sketched(self, m: int, n_points: int, missed, error: float) -> Exact:
        """Return the sketch whose anchors are the last m of the points, which are dropped.

        Args:
            m: Number of anchors.
            n_points: Number of the other points.
            missed: ``ln det(I + E / ridge)`` as a function of the ridge, to be added to ``log_det``.
            error: The norm of E, or a bound of it.
        """
        K, T, y = np.hsplit(self.table, [self.n, self.table.shape[1] - 1])
        rows = T[:, n_points:].T  # k(Z, X)
        M = np.hstack(
            [self.among_points[n_points:, n_points:], rows, self.among_points[n_points:, :n_points]]
        )
        pivots = eliminate(M)
        B, z = M[:, m : m + self.n], M[:, m + self.n :]
        scaled = (
            np.array([[int(b) << BITS for b in row] for row in B], dtype=object)
            // np.array(pivots)[:, None]
        )
        sketch = copy.copy(self)
        sketch.table = np.hstack([(scaled.T @ B) >> BITS, (scaled.T @ z) >> BITS, y])
        sketch.missed, sketch.error, sketch.answers = missed, mpmath.mpf(error), {}
        sketch.residual = K - sketch.table[:, : self.n]
        return sketch

    def at(self, ridge) -> tuple[list, list, mpmath.mpf, mpmath.mpf]:
        """Return mean and variance at Z, ``ln det(I + K / ridge)`` and ``y'(I + K / ridge)^-1 y``."""
        ridge, n = mpmath.mpf(ridge), self.n
        if ridge not in self.answers:
            M = self.table.copy()
            M[range(n), range(n)] += fixed(ridge)
            pivots = eliminate(M)
            y = M[:, -1]
            mean = [real(inner(column, y, pivots)) for column in M[:, n:-1].T]
            variance = [1 - real(inner(column, column, pivots)) for column in M[:, n:-1].T]
            log_det = mpmath.fsum(mpmath.log(real(p) / ridge) for p in pivots)
            log_det += mpmath.mpf(float(self.missed(float(ridge))))
            self.answers[ridge] = mean, variance, log_det, ridge * real(inner(y, y, pivots))
        return self.answers[ridge]

    def bounds(self, ridge, width) -> list[tuple]:
        """Return ``mean -+ width sqrt(variance)`` at Z."""
        mean, variance, _, _ = self.at(ridge)
        return [
            (m - width * mpmath.sqrt(v), m + width * mpmath.sqrt(v))
            for m, v in zip(mean, variance, strict=True)
        ]

    def self_normalized(self, ridge, noise_std, norm_bound, delta) -> list[tuple]:
        """AY-GP-UCB."""
        noise = mpmath.mpf(noise_std) * mpmath.sqrt(
            self.at(ridge)[2] + 2 * mpmath.log(1 / mpmath.mpf(delta))
        )
        return self.bounds(
            ridge, noise / mpmath.sqrt(ridge) + norm_bound * (1 + mpmath.sqrt(self.error / ridge))
        )

    def improved(self, eta, noise_std, norm_bound, delta) -> list[tuple]:
        """IGP-UCB."""
        gain = (
            self.at(1 + mpmath.mpf(eta))[2]
            + self.n * mpmath.log(1 + mpmath.mpf(eta))
            + 2 * mpmath.log(1 / mpmath.mpf(delta))
        )
        return self.bounds(
            1 + mpmath.mpf(eta), mpmath.mpf(noise_std) * mpmath.sqrt(gain) + norm_bound
        )

    def squared_radius(self, noise_std, delta, scale=1.0) -> mpmath.mpf:
        """Equation 8 of the paper."""
        s = mpmath.mpf(noise_std) ** 2
        _, _, log_det, quad = self.at(s / mpmath.mpf(scale))
        return quad + s * log_det + 2 * s * mpmath.log(1 / mpmath.mpf(delta))

    def norm_lower_bound(self, ridges, noise_std, delta) -> mpmath.mpf:
        """The least norm that is not refuted at these ridges; without a sketch."""
        square = self.squared_radius(noise_std, delta)
        return mpmath.sqrt(max(0, *((self.at(a)[3] - square) / mpmath.mpf(a) for a in ridges)))

    def mixture(self, ridges, noise_std, norm_bound, delta, scale=1.0) -> list[tuple]:
        """AMM and DMM: the best of some ridges at every point and side."""
        B = mpmath.mpf(norm_bound)
        radius = mpmath.sqrt(self.squared_radius(noise_std, delta, scale))
        square = (radius + B * mpmath.sqrt(self.error)) ** 2
        every = []
        for ridge in map(mpmath.mpf, ridges):
            slack = square + ridge * B**2 - self.at(ridge)[3]
            if slack < 0:
                raise ArithmeticError("no function of this norm fits the data")
            every.append(self.bounds(ridge, mpmath.sqrt(slack / ridge)))
        return [
            (max(b[0] for b in point), min(b[1] for b in point))
            for point in zip(*every, strict=True)
        ]

    def best_mixture(self, noise_std, norm_bound, delta, scale=1.0, points: int = 2) -> list[tuple]:
        """CMM at the first points: the best ridge, in ever finer grids of its logarithm, which has one valley."""
        a0 = float(noise_std) ** 2 / scale
        numbers = noise_std, norm_bound, delta, scale
        found = []
        for point in range(points):
            ends = []
            for side, sign in ((0, -1), (1, 1)):
                grid = [mpmath.log(a0) + mpmath.log(10) * j / 2 for j in range(-12, 17)]
                for _ in range(14):
                    values = [
                        sign * self.mixture([mpmath.exp(t)], *numbers)[point][side] for t in grid
                    ]
                    best = min(range(len(grid)), key=values.__getitem__)
                    low, high = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
                    grid = [low + (high - low) * j / 4 for j in range(5)]
                ends.append(sign * min(values))
            found.append(tuple(ends))
        return found
