"""The Gaussian process of the practical model at given lengthscales and noise level: its trend, mean and variance.

    y = c - h q(x) + f(x) + noise,   f ~ GP(0, Matern 5/2 with a lengthscale per column),   noise ~ N(0, r s^2)

theta has the logarithms of the lengthscales and of s^2. q is a bowl around the centre. The prior of c is flat, and
h ~ N(0.4, 1): with h = 0.4 the bowl explains a seventh of the variance. The prior is wide, so the data decide
the height, which may be negative. Without a bowl, strong noise leads every acquisition function into the corners, where
a nearly linear function is best and least known (Siivola et al. 2018). Snoek et al. (2015) also have a bowl in their
prior mean.

r is 1, or the relative variance of values with error bars. So the ratios of error bars are used, but not their size,
since an error bar over seeds leaves out other noise.

With A = K + s^2 diag(r) plus the squares of the errors, and B = [1, -q], the most likely trend b = (c, h) is

    b = (B' A^-1 B + P)^-1 (B' A^-1 y + P b_0),   b_0 = (0, 0.4),   P = diag(0, 1)

and mean and variance of ``c - h q + f`` are those of Rasmussen & Williams (2006, Sec. 2.7).
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import cho_solve, cholesky, get_lapack_funcs, solve_triangular
from scipy.spatial.distance import cdist, pdist, squareform
from threadpoolctl import ThreadpoolController
from torch import Tensor

from kbo._base.locks import Lock
from kbo.space import Space

Array = NDArray[np.floating]
R = TypeVar("R")

(_potri,) = get_lapack_funcs(("potri",))

_HEIGHT = 0.4, 1.0
"""Mean and variance of the height of the bowl, in standard deviations of the targets."""

_limit = Lock()
"""Held while the threads of BLAS are limited; without it a second thread would restore the limit of the first."""


@functools.cache
def _blas() -> ThreadpoolController:
    """Return the controller of the threads of BLAS. For a dozen points, threads cost much more time than they save."""
    return ThreadpoolController()


def on_one_thread(compute: Callable[[], R]) -> R:
    """Return the result of a function, computed with one thread of BLAS."""
    # On one line, as in ``Guard.call`` (kbo/optimize/run/guard.py).
    with _limit.lock, _blas().limit(limits=1, user_api="blas"): return compute()  # noqa: E701  # fmt: skip


@dataclass(frozen=True)
class Bowl:
    """The function q of the features of a space: quadratic, and least in the centre.

        q(x) = sum_d q_d / sqrt(4 D / 45),   q_d = (2 x_d - 1)^2 - 1/3

    Over the unit cube it has mean 0 and variance 1. The columns of a choice have a constant length, so they add a
    constant. An inactive parameter counts as in the middle of its range. Its features are zeros (``kbo.space.space``).
    By this formula they are far from the centre, so that options with few parameters would be expected to be bad. So
    conditional parameters have other terms: q_d = 8 x_d^2 - 4 x_d - 1/3 for the two columns (sin, cos) / sqrt(2) of a
    number, whose sum equals the formula where the number is active, and q_d = -1/3 for the columns of a choice.

    Args:
        numbers: The columns of conditional numbers, two for each; none by default.
        choices: The columns of conditional choices; none by default.
    """

    numbers: tuple[int, ...] = ()
    choices: tuple[int, ...] = ()

    @classmethod
    def of(cls, space: Space) -> Bowl:
        """Return the bowl for the features of a space."""
        numbers: list[int] = []
        choices: list[int] = []
        first = 0
        for name, parameter in space.compared.items():
            n_columns = parameter.columns
            if name in space.conditions:
                kind = choices
                if n_columns == 1:
                    kind = numbers
                    n_columns = 2
                kind.extend(range(first, first + n_columns))
            first += n_columns
        return cls(tuple(numbers), tuple(choices))

    def __call__(self, X: Tensor) -> Tensor:
        """Return q(x) [...] at features X [... D]."""
        squares = (2 * X - 1).square()
        if self.numbers:
            of_numbers = X[..., self.numbers]
            squares[..., self.numbers] = 8 * of_numbers.square() - 4 * of_numbers
        if self.choices:
            squares[..., self.choices] = 0.0
        return (squares - 1 / 3).sum(-1) / math.sqrt(4 * X.shape[-1] / 45)


PLAIN = Bowl()
"""The bowl of a space without conditions."""


@dataclass(frozen=True)
class Trend:
    """The prior mean ``-h q(x)`` of targets at points of the unit cube.

    Args:
        height: The height h of the bowl.
        bowl: The bowl q.
    """

    height: float
    bowl: Bowl

    def __call__(self, X: Tensor) -> Tensor:
        """Return the prior mean [...] at points X [... D]."""
        return -self.height * self.bowl(X)


class Process:
    """Targets at points, and the prior of the trend that explains a part of them.

    Args:
        X: Points [n D].
        y: Targets [n], larger ones better.
        errors: Standard errors [n] of the targets besides the noise; zeros by default.
        ratios: Noise variances [n] in units of s^2; ones by default.
        bowl: The function q of the trend; None for a constant trend.

    Attributes:
        X: The points [n D], less their centre.
        y: The targets [n].
        B: The columns of the trend [n b]: the constant, and the bowl if there is one.
        b0: Prior mean [b] of the coefficients of the trend.
        P: Their prior precision [b b].
        ratios: The noise variances [n] in units of s^2.
        extra: The variances [n] besides the noise.
    """

    def __init__(
        self,
        X: Tensor,
        y: Tensor,
        errors: Tensor | None = None,
        ratios: Tensor | None = None,
        *,
        bowl: Bowl | None = PLAIN,
    ) -> None:
        mean, variance = _HEIGHT
        self._bowl = bowl
        self._centre = X.mean(0)
        self.X: Array = self.centred(X)
        self.y: Array = y.numpy()
        self.B: Array = self.trend_columns(X)
        self.b0: Array = np.array([0.0, mean])
        self.P: Array = np.diag([0.0, 1 / variance])
        self.extra: Array = np.zeros(len(y))
        if errors is not None:
            self.extra = errors.square().numpy()
        self.ratios: Array = np.ones(len(y))
        if ratios is not None:
            self.ratios = ratios.numpy()
        if bowl is None:
            self.b0 = self.b0[:1]
            self.P = self.P[:1, :1]

    def without_bowl(self) -> Process:
        """Return the same process with a constant trend."""
        process = copy.copy(self)
        process._bowl = None
        process.B = self.B[:, :1]
        process.b0 = self.b0[:1]
        process.P = self.P[:1, :1]
        return process

    def with_points(self, Z: Tensor) -> Process:
        """Return the process with further points [k D], whose targets are not known."""
        process = copy.copy(self)
        process.X = np.concatenate([self.X, self.centred(Z)])
        process.B = np.concatenate([self.B, self.trend_columns(Z)])
        process.ratios = np.append(self.ratios, np.ones(len(Z)))
        process.extra = np.append(self.extra, np.zeros(len(Z)))
        return process

    def trend_columns(self, Z: Tensor) -> Array:
        """Return the columns of the trend [... b] at points Z [... D]."""
        columns = [torch.ones(Z.shape[:-1], dtype=torch.float64)]
        if self._bowl is not None:
            columns.append(-self._bowl(Z))
        return torch.stack(columns, -1).numpy()

    def kernel(self, Z: Tensor, theta: Array) -> Array:
        """Return the kernel [... n] between points Z [... D] and those of the data: ``(1 + u + u^2 / 3) exp(-u)``.

        u is sqrt(5) times the distance in lengthscales.
        """
        scale = math.sqrt(5) * np.exp(-theta[:-1])
        points = self.centred(Z) * scale
        distance = cdist(points.reshape(-1, points.shape[-1]), self.X * scale)
        kernel = (1 + distance + distance * distance / 3) * np.exp(-distance)
        return kernel.reshape(*points.shape[:-1], -1)

    def centred(self, Z: Tensor) -> Array:
        """Return points [... D] less the centre of the data."""
        return (Z - self._centre).numpy()


class Regression:
    """The regression of the targets on trend and kernel, given theta.

    Args:
        process: Points, targets and prior of the trend.
        theta: Logarithms [D + 1] of lengthscales and noise variance.

    Attributes:
        L: The lower Cholesky factor [n n] of A.
        slope: The slope [n (n - 1) / 2] of the kernel between two points, ``(1 + u) exp(-u)``.
        noise_std: The standard deviations [n] of the targets around trend and kernel.

    Raises:
        np.linalg.LinAlgError: A is not positive definite at working precision.
    """

    def __init__(self, process: Process, theta: Array) -> None:
        self._process = process
        self._theta = theta
        distance = pdist(process.X * (math.sqrt(5) * np.exp(-theta[:-1])))
        decay = np.exp(-distance)
        self.slope: Array = (1 + distance) * decay
        A = squareform(self.slope + distance * distance * decay / 3, checks=False)
        noise_variances = math.exp(theta[-1]) * process.ratios + process.extra
        self.noise_std: Array = np.sqrt(noise_variances)
        np.fill_diagonal(A, 1 + noise_variances)
        self.L: Array = cholesky(A.T, lower=True, overwrite_a=True, check_finite=False)
        self._solved_B = cho_solve((self.L, True), process.B, check_finite=False)
        self._precision = process.B.T @ self._solved_B + process.P

    def solve(self, Y: Array, b0: Array) -> tuple[Array, Array]:
        """Return the most likely trends b [b r] and ``A^-1 (Y - B b)`` [n r] of targets Y [n r].

        Args:
            Y: The targets, or those of a single regression, [n].
            b0: The prior means [b r] of the trends.
        """
        solved = cho_solve((self.L, True), Y, check_finite=False)
        products = self._process.B.T @ solved
        b = np.linalg.solve(self._precision, products + self._process.P @ b0)
        return b, solved - self._solved_B @ b

    def log_likelihood(self, b: Array, alpha: Array) -> float:
        """Return the log-likelihood of the targets with the trend b [b], given ``alpha = A^-1 (y - B b)`` [n]."""
        deviation = self._process.y - self._process.B @ b
        log_det = 2 * np.log(self.L.diagonal()).sum()
        return float(
            -(deviation @ alpha + len(deviation) * math.log(2 * math.pi)) / 2 - log_det / 2
        )

    def predict(self, Z: Tensor) -> tuple[Array, Array]:
        """Return mean and variance [m] of ``c - h q + f`` at points Z [m D]."""
        b, alpha = self.solve(self._process.y, self._process.b0)
        B = self._process.trend_columns(Z)
        kernel = self._process.kernel(Z, self._theta)
        return B @ b + kernel @ alpha, self.variance(kernel, B)

    def variance(self, kernel: Array, B: Array) -> Array:
        """Return the variance [m] at points with kernel [m n] and columns of the trend B [m b]."""
        solved = solve_triangular(self.L, kernel.T, lower=True)
        unexplained = np.maximum(1 - (solved**2).sum(0), 0)
        B_left = B - kernel @ self._solved_B  # what the kernel leaves of the trend
        by_trend = (B_left @ np.linalg.inv(self._precision) * B_left).sum(1)
        return unexplained + by_trend

    def left_out(self) -> tuple[Array, Array]:
        """Return the leave-one-out errors [n] of the targets in standard deviations, and these standard deviations [n].

        With ``C = A^-1 - A^-1 B (B' A^-1 B + P)^-1 B' A^-1`` an error is ``alpha_i / C_ii``, and its standard deviation
        ``C_ii^(-1/2)`` (Rasmussen & Williams 2006, Sec. 5.4.2).
        """
        _, alpha = self.solve(self._process.y, self._process.b0)
        inverse = _potri(self.L, lower=True)[0]
        of_trend = (self._solved_B @ np.linalg.inv(self._precision) * self._solved_B).sum(1)
        root_precision = np.sqrt(inverse.diagonal() - of_trend)
        return alpha / root_precision, 1 / root_precision
