"""Fit of kernel, noise and trend: the maximum of likelihood times prior, with its gradient in closed form.

    y = c - h q(x) + f(x) + noise,   f ~ GP(0, Matern 5/2 with a lengthscale per column),   noise ~ N(0, r s^2)

    log lengthscale_d = m + e_d,   m ~ N(sqrt(2) + log(D) / 2, 3),   e_d ~ N(0, 0.2)
    log s^2 ~ N(-4, 1);  for targets without noise, where s^2 is the variance of what f leaves unexplained, N(-8, 16)
    h ~ N(0.4, 1)

m has the prior of Hvarfner, Hellsten & Nardi (2024), which BoTorch gives to each lengthscale separately; s^2 has the
prior of BoTorch. By the common m the lengthscales are similar unless the data say otherwise. So a fit to a dozen points
in many dimensions does not explain noise by one short lengthscale. Of all variants tried on the practice problems, this
one mattered most.

q is a bowl around the centre, with mean 0 and variance 1 over the unit cube (``surrogates.bowl``). Without it, strong
noise leads every acquisition function into the corners, where a nearly linear function is best and least known (Siivola
et al. 2018). With h = 0.4 the bowl explains a sixth of the variance. The prior of h is wide, so the data decide its
height, which may be negative. Snoek et al. (2015) also have a bowl in their prior mean.

r is 1, or the relative variance of values with error bars. So the ratios of error bars are used, but not their size,
since an error bar over seeds leaves out other noise.

In the maximised density f is integrated out, but the trend is not. With theta the logarithms of lengthscales and s^2,
and b = (c, h), it is the profile density

    max over b of p(y | theta, b) p(theta) p(b)

If b is integrated out as well, the posterior density of theta has the additional factor |B' A^-1 B + P|^(-1/2)
(Rasmussen & Williams 2006, Sec. 2.7). It depends on theta, and is left out here.

With A = K + s^2 diag(r), B = [1, -q], alpha = A^-1 (y - B b) and M = alpha alpha' - A^-1, the derivative of the log
density by a parameter is trace(M dA) / 2, at the most likely b = (B' A^-1 B + P)^-1 (B' A^-1 y + P b_0) with the prior
mean b_0 = (0, 0.4) and the prior precision P = diag(0, 1).
"""

from __future__ import annotations

import functools
import logging
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from gpytorch.kernels import Kernel, MaternKernel
from numpy.typing import NDArray
from scipy.linalg import cho_solve, cholesky, get_blas_funcs, get_lapack_funcs, solve_triangular
from scipy.optimize import minimize
from scipy.spatial.distance import cdist, pdist, squareform
from threadpoolctl import ThreadpoolController
from torch import Tensor

from kbo._base.locks import Lock
from kbo.optimize.surrogates.bowl import PLAIN, Bowl

Array = NDArray[np.float64]
Numbers = TypeVar("Numbers", NDArray[np.floating], Tensor)
R = TypeVar("R")

_symm, _syr = get_blas_funcs(("symm", "syr"))
(_potri,) = get_lapack_funcs(("potri",))

log: logging.Logger = logging.getLogger("kbo")

MOST = 500
"""Largest number of observations that are fitted. Of more, the first 250 are taken, and 250 random ones of the others.

Later observations are close to the best ones: to these alone the fitted lengthscales would be too long."""

NOISE = -4.0, 1.0
"""Mean and variance of the logarithm of the noise variance."""

NOISELESS = -8.0, 16.0
"""Mean and variance of the logarithm of the noise variance where values have no noise. Then it is the variance that the
kernel does not explain: almost none for a smooth objective, and as much as noise for a rugged one."""

LEAST_NOISE = 0.01
"""The least noise level that may be given, in standard deviations of the targets."""

BOWL = 0.4, 1.0
"""Mean and variance of the height of the bowl, in standard deviations of the targets."""

_COMMON = 3.0
"""Variance of m, the common part of the logarithms of the lengthscales."""

_OWN = 0.2
"""Variance of e_d, the own part of the logarithm of each lengthscale."""

_RANGE = 7.0
"""Largest distance of a logarithm from the mean of its prior."""

_STARTS = ((0.0, 0.0), (-1.5, 2.0))
"""Starts of the search, relative to the prior means: smooth with little noise, and rough with much."""


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


def unit_kernel(columns: int) -> MaternKernel:
    """Return a Matern 5/2 kernel on the unit cube with a lengthscale per column, at the median of its prior."""
    kernel = MaternKernel(nu=2.5, ard_num_dims=columns).double().requires_grad_(False)
    # In float32, as GPyTorch takes a number of Python unless the default dtype is another one.
    median = torch.tensor(math.exp(_lengthscale_mean(columns)), dtype=torch.float32)
    kernel.initialize(lengthscale=median)
    return kernel


def matern(distance: Numbers, decay: Numbers) -> Numbers:
    """Return the Matern 5/2 kernel ``(1 + u + u^2 / 3) exp(-u)`` [...] of points at scaled distances.

    Args:
        distance: The distances u [...]: sqrt(5) times those in lengthscales.
        decay: ``exp(-u)`` [...].
    """
    return (1 + distance + distance * distance / 3) * decay


def _lengthscale_mean(columns: int) -> float:
    """Return the prior mean of the logarithm of a lengthscale."""
    return math.sqrt(2) + math.log(columns) / 2


class Loss:
    """Minus the logarithm of the profile density of theta, up to a constant, with its gradient.

    It is computed by NumPy and LAPACK for speed. With PyTorch and its gradients, a trial of ``minimize`` takes 2.6
    times as long in runs of 20 trials, and 2.1 times in runs of 500. With NumPy without the symmetric products of
    LAPACK, it takes 1.3 times as long in runs of 500.

    Args:
        X: Points [n D].
        y: Targets [n], larger ones better.
        noise: Mean and variance of the prior of the logarithm of the noise variance.
        errors: Standard errors [n] of the targets besides the noise; zeros by default.
        ratios: Noise variances [n] in units of s^2; ones by default.
        bowl: The function q of the trend; None for a constant trend.
    """

    def __init__(
        self,
        X: Tensor,
        y: Tensor,
        noise: tuple[float, float] = NOISE,
        errors: Tensor | None = None,
        ratios: Tensor | None = None,
        *,
        bowl: Bowl | None = PLAIN,
    ) -> None:
        n, D = X.shape
        mean, variance = BOWL
        self.bowl: Bowl | None = bowl
        self.B: Array = self.trend_columns(X).numpy()
        self.b0: Array = np.array([0.0, mean])
        self.P: Array = np.diag([0.0, 1 / variance])
        if bowl is None:
            self.b0 = self.b0[:1]
            self.P = self.P[:1, :1]
        self.centre: Tensor = X.mean(0)
        self.X: Array = (X - self.centre).numpy()
        self.squares: Array = self.X**2
        self.X_and_ones: Array = np.column_stack([self.X, np.ones(n)])
        self.y: Array = y.numpy()
        self.extra: Array | float = 0.0
        if errors is not None:
            self.extra = errors.square().numpy()
        self.ratios: Array | float = 1.0
        if ratios is not None:
            self.ratios = ratios.numpy()
        self.y_and_B: Array = np.column_stack([self.y, self.B])
        self.means: Array = np.array([_lengthscale_mean(D)] * D + [noise[0]])
        covariance = np.diag([_OWN] * D + [noise[1]])
        covariance[:D, :D] += _COMMON
        self.precision: Array = np.linalg.inv(covariance)

    def __call__(self, theta: Array) -> tuple[float, Array]:
        """Return value and gradient [D + 1] at theta [D + 1], the logarithms of lengthscales and noise variance.

        Raises:
            np.linalg.LinAlgError: The matrix is not positive definite at working precision.
        """
        L, slope, b, alpha = self._terms(theta)
        D = self.X.shape[1]
        log_likelihood = self._log_likelihood(L, b, alpha)
        inverse = _potri(L, lower=True, overwrite_c=True)[0]
        # -M, of which only the lower triangle is used
        M = _syr(-1.0, alpha, a=inverse, lower=True, overwrite_a=True)
        by_noise = -(M.diagonal() * self.ratios).sum() * math.exp(theta[-1]) / 2
        # d k(x, z) / d log lengthscale_d = slope (x_d - z_d)^2 / lengthscale_d^2, summed over all pairs unformed
        M *= slope
        sums = _symm(1.0, M, self.X_and_ones, lower=True)
        pairs = (self.X * sums[:, :D]).sum(0) - sums[:, D] @ self.squares
        by_lengthscales = pairs * np.exp(-2 * theta[:-1])
        deviation = theta - self.means
        prior_slope = self.precision @ deviation
        b_deviation = b - self.b0
        log_prior = -float(deviation @ prior_slope + b_deviation @ self.P @ b_deviation) / 2
        gradient = prior_slope - np.append(by_lengthscales, by_noise)
        return -log_prior - log_likelihood, gradient

    def trend_columns(self, X: Tensor) -> Tensor:
        """Return the columns of the trend [n b] at points X [n D]: the constant, and the bowl if there is one."""
        constant = torch.ones(len(X), dtype=torch.float64)
        if self.bowl is None:
            return constant.unsqueeze(1)
        return torch.stack([constant, -self.bowl(X)], 1)

    def trend(self, theta: Array) -> tuple[float, float, float]:
        """Return the most likely c and h at theta, and the gain in log-likelihood over a constant with noise."""
        L, _, b, alpha = self._terms(theta)
        variance = max(float(self.y.var()), sys.float_info.min)
        of_constant = -len(self.y) * (math.log(2 * math.pi * variance) + 1) / 2
        gain = self._log_likelihood(L, b, alpha) - of_constant
        height = 0.0
        if len(b) > 1:
            height = float(b[1])
        return float(b[0]), height, gain

    def predict(self, theta: Array, Z: Tensor) -> tuple[Array, Array]:
        """Return mean and variance [m] of ``c - h q + f`` at points Z [m D], given theta (Sec. 2.7)."""
        L, _, b, alpha = self._terms(theta)
        scale = math.sqrt(5) * np.exp(-theta[:-1])
        points = (Z - self.centre).numpy() * scale
        distance = cdist(points, self.X * scale)
        k = matern(distance, np.exp(-distance))
        B = self.trend_columns(Z).numpy()
        solved = solve_triangular(L, np.column_stack([k.T, self.B]), lower=True)
        L_k = solved[:, : len(k)]
        L_B = solved[:, len(k) :]
        unexplained = np.maximum(1 - (L_k**2).sum(0), 0)
        B_left = B - L_k.T @ L_B  # what the kernel leaves of the trend
        by_trend = (B_left @ np.linalg.inv(L_B.T @ L_B + self.P) * B_left).sum(1)
        return B @ b + k @ alpha, unexplained + by_trend

    def left_out(self, theta: Array) -> tuple[Array, Array]:
        """Return the leave-one-out errors [n] of the targets in standard deviations, and these standard deviations [n].

        With ``C = A^-1 - A^-1 B (B' A^-1 B + P)^-1 B' A^-1`` an error is ``alpha_i / C_ii``, and its standard deviation
        ``C_ii^(-1/2)`` (Rasmussen & Williams 2006, Sec. 5.4.2).
        """
        L, _, _, alpha = self._terms(theta)
        inverse = _potri(L, lower=True)[0]
        inverse = np.tril(inverse) + np.tril(inverse, -1).T
        of_B = inverse @ self.B
        inverse -= of_B @ np.linalg.inv(self.B.T @ of_B + self.P) @ of_B.T
        root_precision = np.sqrt(inverse.diagonal())
        return alpha / root_precision, 1 / root_precision

    def _log_likelihood(self, L: Array, b: Array, alpha: Array) -> float:
        """Return the log-likelihood of the targets, given the terms at theta."""
        deviation = self.y - self.B @ b
        log_det = 2 * np.log(L.diagonal()).sum()
        return float(
            -(deviation @ alpha + len(deviation) * math.log(2 * math.pi)) / 2 - log_det / 2
        )

    def _terms(self, theta: Array) -> tuple[Array, Array, Array, Array]:
        """Return the four terms of the density at theta: Cholesky factor, slope, trend and alpha.

        They are the lower Cholesky factor [n n] of A, the slope [n n] of the kernel, the most likely b [b], and
        ``alpha = A^-1 (y - B b)`` [n]. A is ``K + s^2 diag(r)`` plus the squares of the errors. The slope is
        ``5/3 (1 + u) exp(-u)``, 0 on the diagonal, where u is sqrt(5) times the scaled distance.
        """
        distance = pdist(self.X * (math.sqrt(5) * np.exp(-theta[:-1])))
        decay = np.exp(-distance)
        slope = (1 + distance) * decay
        k = (
            slope + distance * distance * decay / 3
        )  # ``matern(distance, decay)``, of which the slope is a part
        A = squareform(k, checks=False)
        np.fill_diagonal(A, 1 + math.exp(theta[-1]) * self.ratios + self.extra)
        L = cholesky(A.T, lower=True, overwrite_a=True, check_finite=False)
        solved = cho_solve((L, True), self.y_and_B, check_finite=False)
        products = self.B.T @ solved
        b = np.linalg.solve(products[:, 1:] + self.P, products[:, 0] + self.P @ self.b0)
        alpha = solved[:, 0] - solved[:, 1:] @ b
        return L, squareform(5 / 3 * slope, checks=False).T, b, alpha


@dataclass(frozen=True)
class Fit:
    """The fitted parameters: those with the largest profile density, the joint density of theta and trend.

    Attributes:
        kernel: The kernel of f.
        noise_std: The standard deviation s of the noise.
        constant: The constant c.
        height: The height h of the bowl.
        gain: The log-likelihood of the targets, less that of a constant with noise.
        log_density: The logarithm of this density, up to a constant that does not depend on the targets; minus infinity
            if it could not be computed.
    """

    kernel: Kernel
    noise_std: float
    constant: float
    height: float
    gain: float
    log_density: float


def fit(
    X: Tensor,
    y: Tensor,
    noise_std: float | None = None,
    errors: Tensor | None = None,
    ratios: Tensor | None = None,
    *,
    noiseless: bool = False,
    bowl: Bowl | None = PLAIN,
) -> Fit:
    """Fit kernel, noise level and trend to standardised targets y [n] at X [n D]; a function of the data alone.

    Where the likelihood cannot be computed, the prior medians are returned. The fit always runs on the CPU, so a run
    has the same kernel on every device, and hundreds of small steps need no transfer.

    Args:
        X: Points of the unit cube.
        y: Targets of mean 0 and standard deviation 1.
        noise_std: The noise level, if it is given; None if it is fitted.
        errors: Standard errors [n] of the targets besides the noise; zeros by default.
        ratios: Noise variances [n] in units of ``noise_std ** 2``; ones by default.
        noiseless: Whether the targets have no noise.
        bowl: The function q of the trend; None for a constant trend.
    """
    rows = _rows(len(y))
    if errors is not None:
        errors = errors.cpu()[rows]
    if ratios is not None:
        ratios = ratios.cpu()[rows]
    noise = NOISELESS if noiseless else NOISE
    loss = Loss(X.cpu()[rows], y.cpu()[rows], noise, errors, ratios, bowl=bowl)
    log_density, theta = mode(loss, noise_std)
    constant, height, gain = loss.trend(theta)
    kernel = unit_kernel(X.shape[-1])
    kernel.initialize(lengthscale=torch.from_numpy(np.exp(theta[:-1])))
    return Fit(kernel, math.exp(theta[-1] / 2), constant, height, gain, log_density)


def mode(loss: Loss, noise_std: float | None) -> tuple[float, Array]:
    """Return the largest log-density and its theta [D + 1]; theta is the prior medians where it cannot be computed."""
    box = [(mean - _RANGE, mean + _RANGE) for mean in loss.means.tolist()]
    fallback = loss.means.copy()
    if noise_std is not None:
        fallback[-1] = 2 * math.log(noise_std)
        box[-1] = (fallback[-1], fallback[-1])
    starts = []
    for lengthscales, noise in _STARTS:
        start = fallback.copy()
        start[:-1] += lengthscales
        if noise_std is None:
            start[-1] += noise
        starts.append(start)
    return on_one_thread(lambda: _best_mode(loss, starts, box, fallback))


def _best_mode(
    loss: Loss, starts: Sequence[Array], box: Sequence[tuple[float, float]], fallback: Array
) -> tuple[float, Array]:
    """Return the largest log-density that is found from some starts, and its theta [D + 1].

    If it cannot be computed from any start, these are minus infinity and ``fallback``.
    """
    largest = -math.inf
    theta = fallback
    for start in starts:
        try:
            minimum = minimize(
                loss, start, jac=True, method="L-BFGS-B", bounds=box, options={"maxiter": 60}
            )
        except np.linalg.LinAlgError as error:
            log.warning("kernel and noise could not be fitted from one start: %s", error)
            continue
        if -minimum.fun > largest:
            largest = -float(minimum.fun)
            theta = minimum.x
    return largest, theta


def _rows(n: int) -> Tensor:
    """Return the rows [at most 500] of n observations to fit; the same n gives the same rows."""
    if n <= MOST:
        return torch.arange(n)
    first = MOST // 2
    others = torch.randperm(n - first, generator=torch.Generator().manual_seed(n))[: MOST - first]
    return torch.cat([torch.arange(first), first + others])
