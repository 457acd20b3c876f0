"""The predictive distribution for reports: averaged over kernels and noise levels, and scaled by its errors.

    p(f(x) | y) = sum_i w_i p(f(x) | y, theta_i),    sd(x) = max(1, e) sd(f(x) | y)

theta_1 is the mode of the profile density of kernel and noise level (``surrogates.fitting``): the trend is the most
likely one, and is not integrated out. The other theta_i are drawn from the normal distribution with the curvature at
the mode (Laplace; Rasmussen & Williams 2006, Sec. 3.4), and w_i are truncated importance weights for the profile
density (Ionides 2008). Given theta_i, the variance of f(x) includes that of the trend. e is the root mean square of the
leave-one-out errors, in standard deviations, of the best quarter of the observed values. These values decide which
trial is recommended, and their noise has probably been favourable.
"""

from __future__ import annotations

import math
from functools import partial
from statistics import NormalDist

import numpy as np
import torch
from torch import Tensor

from kbo._base.quasirandom import sobol
from kbo.optimize.surrogates.fitting import NOISELESS, Loss, mode
from kbo.optimize.surrogates.functions import FittedFunctions
from kbo.optimize.surrogates.outcome_transform import OutcomeTransform
from kbo.optimize.surrogates.process import Array, Bowl, Process, Regression, on_one_thread

NOISE = -3.0, 2.0
"""Mean and variance of the logarithm of the noise variance. The prior of the search is narrower and expects less noise:
a search loses less by taking much noise for little than by the reverse. An interval loses the same by both."""

_N_DRAWS = 16
"""Number of theta_i, the mode included."""

_LARGEST_WEIGHT = math.exp(3)
"""Largest importance weight, relative to the median weight."""

_FEWEST_ERRORS = 5
"""Least number of leave-one-out errors over which e is averaged."""

_NORMAL_MAD = 1.4826
"""Standard deviation of a normal distribution, divided by its median absolute deviation."""

_STEP = 1e-3
"""Step of the finite differences of the gradient."""


class Predictive:
    """The posterior distribution of the targets without noise, averaged over kernels and noise levels.

    Args:
        X, y, errors, ratios, bowl: As for ``Process``.
        predicted: Whether each target is a prediction [n].
        noise_std: The noise level, if it is given; None if it is fitted.
        noiseless: Whether the targets have no noise.
    """

    def __init__(
        self,
        X: Tensor,
        y: Tensor,
        errors: Tensor,
        ratios: Tensor,
        predicted: Tensor,
        noise_std: float | None,
        *,
        noiseless: bool,
        bowl: Bowl | None,
    ) -> None:
        self._process = Process(X, y, errors, ratios, bowl=bowl)
        self._loss = Loss(self._process, NOISELESS if noiseless else NOISE)
        self._noiseless = noiseless
        self._observed = np.flatnonzero(~predicted.numpy())
        self._thetas, self._weights, self._error = on_one_thread(partial(self._draws, noise_std))

    def __call__(self, Z: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and standard deviation [m] of the targets at points Z [m D]."""
        points = Z.cpu()
        predictions = on_one_thread(
            lambda: [Regression(self._process, theta).predict(points) for theta in self._thetas]
        )
        means = np.array([mean for mean, _ in predictions])
        variances = np.array([variance for _, variance in predictions])
        if self._noiseless:  # the part that the kernel does not explain belongs to the objective
            variances += np.exp(self._thetas[:, -1:])
        mean = self._weights @ means
        variance = self._weights @ (variances + (means - mean) ** 2)
        return Z.new_tensor(mean), self._error * Z.new_tensor(variance).sqrt()

    def new_values(self, Z: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and standard deviation [m] of the targets of new values, with noise, at points Z [m D]."""
        mean, error = self(Z)
        return mean, (error.square() + self.noise_std**2).sqrt()

    def functions(
        self,
        transform: OutcomeTransform,
        count: int,
        generator: torch.Generator,
    ) -> FittedFunctions:
        """Return joint draws of the objective as functions; arguments as for ``FittedFunctions``."""
        return FittedFunctions(
            transform, self._process, self._thetas, self._weights, self._error, count, generator
        )

    def draws(
        self, transform: OutcomeTransform, Z: Tensor, count: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Return joint draws [s m] of the targets at points Z [m D], and the noise levels [s] of the draws.

        The draws have the mean and the standard deviation of the intervals: the factor max(1, e) also scales the
        differences between kernels. Intervals of targets without noise include the variance that the kernel does not
        explain, so there this is true for the draws with noise.
        """
        functions = FittedFunctions(
            transform,
            self._process,
            self._thetas,
            self._weights,
            1.0,
            count,
            generator,
            one_trend=True,
        )
        mean, _ = self(Z)
        deviations = functions.targets(Z) - mean
        return mean + self._error * deviations, self._error * functions.noise_std

    @property
    def noise_std(self) -> float:
        """The root of the mean noise variance over the theta_i, in units of the targets."""
        return math.sqrt(float(self._weights @ np.exp(self._thetas[:, -1])))

    def left_out(self) -> tuple[int, int]:
        """Return the number of observed values inside the 90% interval that the others predict, and of all of them."""
        errors, _ = Regression(self._process, self._thetas[0]).left_out()
        errors = np.abs(errors[self._observed]) / self._error
        is_inside = errors <= NormalDist().inv_cdf(0.95)
        return int(is_inside.sum()), len(errors)

    def left_out_errors(self) -> tuple[Tensor, Tensor]:
        """Return the leave-one-out errors [n] of all targets, and the standard deviations [n] of the predictions.

        The standard deviations are scaled by the median absolute error of the observed values, which a few wrong values
        hardly change.
        """
        errors, stds = Regression(self._process, self._thetas[0]).left_out()
        median = np.quantile(np.abs(errors[self._observed]), 0.5, method="lower")
        scale = _NORMAL_MAD * median
        return torch.from_numpy(errors * stds), torch.from_numpy(scale * stds)

    def _draws(self, noise_std: float | None) -> tuple[Array, Array, float]:
        """Return the theta_i [k D + 1], their weights w_i [k], and the factor max(1, e) of the standard deviations."""
        log_density, theta = mode(self._loss, noise_std)
        n_free = len(theta) - (noise_std is not None)
        curvature, axes = self._curvature(theta, n_free)
        uniform = sobol(_N_DRAWS - 1, n_free, seed=0)
        normal = torch.special.ndtri(uniform.clamp(1e-9, 1 - 1e-9)).numpy()
        thetas = np.repeat(theta[None], _N_DRAWS, 0)
        thetas[1:, :n_free] += normal / np.sqrt(curvature) @ axes.T
        log_proposals = np.append(0.0, -(normal**2).sum(1) / 2)
        log_densities = np.array([self._log_density(theta) for theta in thetas])
        ratios = log_densities - log_density - log_proposals
        weights = np.exp(np.minimum(ratios - np.median(ratios), math.log(_LARGEST_WEIGHT)))
        is_possible = weights > 0
        return thetas[is_possible], weights[is_possible] / weights.sum(), self._factor(theta)

    def _factor(self, theta: Array) -> float:
        """Return max(1, e) at the mode theta."""
        order = np.argsort(-self._process.y[self._observed], kind="stable")
        n_best = max(_FEWEST_ERRORS, len(order) // 4)
        best = self._observed[order][:n_best]
        errors, _ = Regression(self._process, theta).left_out()
        mean_square = np.mean(errors[best] ** 2)
        return max(1.0, math.sqrt(mean_square))

    def _curvature(self, theta: Array, n_free: int) -> tuple[Array, Array]:
        """Return the curvatures [f] of the loss along its principal axes at the mode, and these axes [f f].

        They are at least half of the least curvature of the prior. If they cannot be computed, those of the prior are
        returned.
        """
        precision = self._loss.precision
        try:
            hessian = self._hessian(theta)
        except np.linalg.LinAlgError:
            hessian = precision
        curvature, axes = np.linalg.eigh(hessian[:n_free, :n_free])
        return np.maximum(curvature, np.linalg.eigvalsh(precision).min() / 2), axes

    def _hessian(self, theta: Array) -> Array:
        """Return the second derivatives [D + 1, D + 1] of the loss, by differences of its gradient."""
        columns = []
        for direction in np.eye(len(theta)):
            after = self._loss(theta + _STEP * direction)[1]
            before = self._loss(theta - _STEP * direction)[1]
            columns.append((after - before) / (2 * _STEP))
        hessian = np.array(columns)
        return (hessian + hessian.T) / 2

    def _log_density(self, theta: Array) -> float:
        """Return the log-density at theta; minus infinity where it cannot be computed."""
        try:
            return -self._loss(theta)[0]
        except np.linalg.LinAlgError:
            return -math.inf
