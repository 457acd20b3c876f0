"""Fit of kernel, noise and trend: the maximum of likelihood times prior, with its gradient in closed form.

The model is that of ``process.py``, with the priors

    log lengthscale_d = m + e_d,   m ~ N(sqrt(2) + log(D) / 2, 3),   e_d ~ N(0, 0.2)
    log s^2 ~ N(-4, 1);  for targets without noise, where s^2 is the variance of what f leaves unexplained, N(-8, 16)

m has the prior of Hvarfner, Hellsten & Nardi (2024), which BoTorch gives to each lengthscale separately; s^2 has the
prior of BoTorch. By the common m the lengthscales are similar unless the data say otherwise. So a fit to a dozen points
in many dimensions does not explain noise by one short lengthscale. Of all variants tried on the practice problems, this
one mattered most.

In the maximised density f is integrated out, but the trend is not. It is the profile density of theta, the logarithms
of lengthscales and s^2:

    max over b of p(y | theta, b) p(theta) p(b)

If b is integrated out as well, the posterior density of theta has the additional factor |B' A^-1 B + P|^(-1/2)
(Rasmussen & Williams 2006, Sec. 2.7). It depends on theta, and is left out here.

With alpha = A^-1 (y - B b) and M = alpha alpha' - A^-1, the derivative of the log density by a parameter is
trace(M dA) / 2, at the most likely b.
"""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Sequence

import numpy as np
import torch
from gpytorch.kernels import MaternKernel
from scipy.linalg import get_blas_funcs, get_lapack_funcs
from scipy.optimize import minimize
from scipy.spatial.distance import squareform

from kbo.optimize.surrogates.process import Array, Process, Regression, on_one_thread

_symm, _syr = get_blas_funcs(("symm", "syr"))
(_potri,) = get_lapack_funcs(("potri",))

log: logging.Logger = logging.getLogger("kbo")

NOISE = -4.0, 1.0
"""Mean and variance of the logarithm of the noise variance."""

NOISELESS = -8.0, 16.0
"""Mean and variance of the logarithm of the noise variance where values have no noise. Then it is the variance that the
kernel does not explain: almost none for a smooth objective, and as much as noise for a rugged one."""

_COMMON = 3.0
"""Variance of m, the common part of the logarithms of the lengthscales."""

_OWN = 0.2
"""Variance of e_d, the own part of the logarithm of each lengthscale."""

_RANGE = 7.0
"""Largest distance of a logarithm from the mean of its prior."""

_STARTS = ((0.0, 0.0), (-1.5, 2.0))
"""Starts of the search, relative to the prior means: smooth with little noise, and rough with much."""


def unit_kernel(columns: int) -> MaternKernel:
    """Return a Matern 5/2 kernel on the unit cube with a lengthscale per column, at the median of its prior."""
    kernel = MaternKernel(nu=2.5, ard_num_dims=columns).double().requires_grad_(False)
    # In float32, as GPyTorch takes a number of Python unless the default dtype is another one.
    median = torch.tensor(math.exp(_lengthscale_mean(columns)), dtype=torch.float32)
    kernel.initialize(lengthscale=median)
    return kernel


def _lengthscale_mean(columns: int) -> float:
    """Return the prior mean of the logarithm of a lengthscale."""
    return math.sqrt(2) + math.log(columns) / 2


class Loss:
    """Minus the logarithm of the profile density of theta, up to a constant, with its gradient.

    It is computed by NumPy and LAPACK for speed. With PyTorch and its gradients, a trial of ``minimize`` takes 2.6
    times as long in runs of 20 trials, and 2.1 times in runs of 500. With NumPy without the symmetric products of
    LAPACK, it takes 1.3 times as long in runs of 500.

    Args:
        process: Points, targets and prior of the trend.
        noise: Mean and variance of the prior of the logarithm of the noise variance.

    Attributes:
        means: The prior means [D + 1] of theta.
        precision: The prior precision [D + 1, D + 1] of theta.
    """

    def __init__(self, process: Process, noise: tuple[float, float] = NOISE) -> None:
        n, D = process.X.shape
        self._process = process
        self._squares = process.X**2
        self._X_and_ones = np.column_stack([process.X, np.ones(n)])
        self.means: Array = np.array([_lengthscale_mean(D)] * D + [noise[0]])
        covariance = np.diag([_OWN] * D + [noise[1]])
        covariance[:D, :D] += _COMMON
        self.precision: Array = np.linalg.inv(covariance)

    def __call__(self, theta: Array) -> tuple[float, Array]:
        """Return value and gradient [D + 1] at theta [D + 1], the logarithms of lengthscales and noise variance.

        Raises:
            np.linalg.LinAlgError: The matrix is not positive definite at working precision.
        """
        process = self._process
        regression = Regression(process, theta)
        b, alpha = regression.solve(process.y, process.b0)
        log_likelihood = regression.log_likelihood(b, alpha)
        inverse = _potri(regression.L, lower=True, overwrite_c=True)[0]
        # -M, of which only the lower triangle is used
        M = _syr(-1.0, alpha, a=inverse, lower=True, overwrite_a=True)
        by_noise = -(M.diagonal() * process.ratios).sum() * math.exp(theta[-1]) / 2
        # d k(x, z) / d log lengthscale_d = slope (x_d - z_d)^2 / lengthscale_d^2, summed over all pairs unformed
        M *= squareform(5 / 3 * regression.slope, checks=False).T
        sums = _symm(1.0, M, self._X_and_ones, lower=True)
        pairs = (process.X * sums[:, :-1]).sum(0) - sums[:, -1] @ self._squares
        by_lengthscales = pairs * np.exp(-2 * theta[:-1])
        deviation = theta - self.means
        prior_slope = self.precision @ deviation
        b_deviation = b - process.b0
        log_prior = -float(deviation @ prior_slope + b_deviation @ process.P @ b_deviation) / 2
        gradient = prior_slope - np.append(by_lengthscales, by_noise)
        return -log_prior - log_likelihood, gradient

    def trend(self, theta: Array) -> tuple[float, float, float]:
        """Return the most likely c and h at theta, and the gain in log-likelihood over a constant with noise."""
        y = self._process.y
        regression = Regression(self._process, theta)
        b, alpha = regression.solve(y, self._process.b0)
        variance = max(float(y.var()), sys.float_info.min)
        of_constant = -len(y) * (math.log(2 * math.pi * variance) + 1) / 2
        height = 0.0
        if len(b) > 1:
            height = float(b[1])
        return float(b[0]), height, regression.log_likelihood(b, alpha) - of_constant


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
