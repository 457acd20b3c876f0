"""The predictive distribution for reports: averaged over kernels and noise levels, and not surer than it has been.

    p(f(x) | y) = sum_i w_i p(f(x) | y, theta_i),    sd(x) = max(1, e) sd(f(x) | y)

theta_1 is the mode of the posterior density, the others are drawn from the normal distribution with the curvature there
(Laplace; Rasmussen & Williams 2006, Sec. 3.4), and w_i are importance weights, truncated (Ionides 2008). e is the root
mean square of the leave-one-out errors, in standard deviations, of the best quarter of the observed values: these
decide which trial is recommended, and their noise is likely to have been favourable.
"""

from __future__ import annotations

import math
from functools import partial
from statistics import NormalDist

import numpy as np
import torch
from torch import Tensor

from kbo._base.quasirandom import sobol
from kbo.optimize.surrogates.fitting import NOISELESS, Array, Loss, mode, on_one_thread

NOISE = -3.0, 2.0
"""Mean and variance of the logarithm of the noise variance: wider than that of the search, which loses less by taking
much noise for little than by the reverse. An interval loses the same by both."""

_DRAWS = 16
"""Number of theta_i."""

_LARGEST = math.exp(3)
"""Largest weight of one of them, relative to the median."""

_FEWEST = 5
"""Values of which there are leave-one-out errors, at least."""


class Predictive:
    """The distribution of the targets, without noise, after all values; arguments as for ``fitting.fit``.

    ``predicted`` says which of them [n] are predictions.
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
        exact: bool,
        with_bowl: bool,
    ) -> None:
        self._loss = Loss(X, y, NOISELESS if exact else NOISE, errors, ratios, with_bowl=with_bowl)
        self._exact, self._observed = exact, np.flatnonzero(~predicted.numpy())
        self._thetas, self._weights, self._error = on_one_thread(partial(self._draws, noise_std))

    def __call__(self, Z: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and standard deviation [m] of the targets at points Z [m D]."""
        found = on_one_thread(
            lambda: [self._loss.predict(theta, Z.cpu()) for theta in self._thetas]
        )
        means, variances = (np.array(part) for part in zip(*found, strict=True))
        if self._exact:  # what the kernel does not explain is a part of the objective
            variances += np.exp(self._thetas[:, -1:])
        mean = self._weights @ means
        variance = self._weights @ (variances + (means - mean) ** 2)
        return Z.new_tensor(mean), self._error * Z.new_tensor(variance).sqrt()

    @property
    def noise_std(self) -> float:
        """The root of the mean noise variance."""
        return math.sqrt(float(self._weights @ np.exp(self._thetas[:, -1])))

    def left_out(self) -> tuple[int, int]:
        """Return how many observed values are inside the 90% interval that the others predict, and their number."""
        errors = np.abs(self._loss.left_out(self._thetas[0]))[self._observed] / self._error
        return int((errors <= NormalDist().inv_cdf(0.95)).sum()), len(errors)

    def _draws(self, noise_std: float | None) -> tuple[Array, Array, float]:
        """Return theta [k D + 1], their weights [k], and by how much the standard deviations are too small."""
        loss = self._loss
        density, theta = mode(loss, noise_std)
        best = self._observed[np.argsort(-loss.y[self._observed], kind="stable")]
        best = best[: max(_FEWEST, len(best) // 4)]
        error = max(1.0, math.sqrt(np.mean(loss.left_out(theta)[best] ** 2)))
        free = len(theta) - (noise_std is not None)
        try:
            curvature, axes = np.linalg.eigh(_hessian(loss, theta)[:free, :free])
        except (
            np.linalg.LinAlgError
        ):  # at the edge of what can be computed: as far as the prior reaches
            curvature, axes = np.linalg.eigh(loss.precision[:free, :free])
        curvature = np.maximum(curvature, np.linalg.eigvalsh(loss.precision).min() / 2)
        uniform = sobol(_DRAWS - 1, free, seed=0)
        normal = torch.special.ndtri(uniform.clamp(1e-9, 1 - 1e-9)).numpy()
        thetas = np.repeat(theta[None], _DRAWS, 0)
        thetas[1:, :free] += normal / np.sqrt(curvature) @ axes.T
        proposal = np.append(0.0, -(normal**2).sum(1) / 2)
        ratios = np.array([_log_density(loss, one) for one in thetas]) - density - proposal
        weights = np.exp(np.minimum(ratios - np.median(ratios), math.log(_LARGEST)))
        kept = weights > 0
        return thetas[kept], weights[kept] / weights.sum(), error


def _log_density(loss: Loss, theta: Array) -> float:
    """Return the log-density; minus infinity where it cannot be computed."""
    try:
        return -loss(theta)[0]
    except np.linalg.LinAlgError:
        return -math.inf


def _hessian(loss: Loss, theta: Array, step: float = 1e-3) -> Array:
    """Return the second derivatives [D + 1, D + 1] of the loss, by differences of its gradient."""
    columns = [
        (loss(theta + step * e)[1] - loss(theta - step * e)[1]) / (2 * step)
        for e in np.eye(len(theta))
    ]
    return (np.array(columns) + np.array(columns).T) / 2
