"""Draws of the objective as functions, which can be evaluated anywhere and updated by more values.

    f(x) = phi(x)'a + B(x) b + k(x, X) A^-1 (y - phi(X)'a - B b - eps),   A = K + s^2 diag(r)

This is Matheron's rule (Wilson et al. 2020, "Efficiently sampling functions from Gaussian process posteriors", Sec. 3).
phi are random Fourier features of the kernel, a is standard normal, and eps is a draw of the noise. b is the most
likely trend for ``y - phi(X)'a - eps``, with a draw from its prior as the prior mean. Every draw has its own features,
so draws have the covariance of the posterior for any number of features; their law is only nearly Gaussian.

Every second draw has no bowl in its trend (see ``process``), unless the draws must agree with the intervals. The bowl
keeps a search away from the corners, but it is no knowledge about the objective. If it explains most of the values, all
draws with it have their optimum near the centre.

Each draw has one of the kernels and noise levels over which intervals are averaged; each of these occurs as often as
its weight says. A factor of the standard deviations scales the deviations of a draw from the mean of its kernel, and
the noise of further values. ``Predictive.draws`` scales the deviations from the mean over all kernels instead.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kbo.optimize.surrogates.outcome_transform import OutcomeTransform
from kbo.optimize.surrogates.process import Array, Process, Regression, on_one_thread
from kbo.regression import Hypothetical, Posterior

Rows = NDArray[np.intp]

_N_FREQUENCIES = 128
"""Number of frequencies of the random features of a draw."""

_NU = 2.5
"""Smoothness of the Matern kernel of the practical setting."""


class Functions(ABC):
    """Joint draws of the objective as functions, without noise, in units of the objective, larger values better.

    Args:
        transform: The map from values of the objective to targets.

    Attributes:
        count: The number s of draws.
    """

    count: int

    def __init__(self, transform: OutcomeTransform) -> None:
        self.transform = transform

    def __call__(self, X: Tensor) -> Tensor:
        """Return the values [s N] of all draws at features X, as for ``targets``."""
        return self.transform.inverse(self.targets(X))

    @abstractmethod
    def targets(self, X: Tensor) -> Tensor:
        """Return the targets [s N] of all draws at features X [N D], or of each draw at its own features [s N D]."""

    @abstractmethod
    def updated(self, Z: Tensor, X: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return the posterior mean and variance [s N] of the targets at X, after noisy values of each draw at Z.

        Args:
            X: Features [N D].
            Z: Features [k D] of the further values. Row i of the result is the posterior after values of draw i.
            generator: Source of the noise.
        """


class _Draws(NamedTuple):
    """The draws with one kernel, noise level and trend.

    Attributes:
        rows: The positions [r] of these draws among all draws.
        process: The data and the trend.
        theta: Logarithms of lengthscales and noise variance [D + 1].
        frequencies: Frequencies [r f D] of the random features.
        series: Coefficients [r 2f] of the random features.
        trend: Coefficients [r b] of the trend.
        weights: Coefficients [r n] of the kernel at the data.
    """

    rows: Rows
    process: Process
    theta: Array
    frequencies: Array
    series: Array
    trend: Array
    weights: Array


class FittedFunctions(Functions):
    """Draws of the objective with the kernels and noise levels of a predictive distribution.

    Args:
        transform: The map from values of the objective to targets.
        process: Data and trend of the model.
        thetas: Logarithms [k D + 1] of lengthscales and noise variance, of k hypotheses.
        probabilities: Probabilities [k] of the hypotheses.
        factor: Factor of the deviations of a draw from the mean of its kernel and noise level.
        count: The number of draws.
        generator: Source of randomness.
        one_trend: Whether all draws have the trend of the model, as the intervals do. Otherwise every second draw has a
            constant trend.

    Attributes:
        noise_std: Noise levels [s] of the draws, times the factor.
    """

    def __init__(
        self,
        transform: OutcomeTransform,
        process: Process,
        thetas: Array,
        probabilities: Array,
        factor: float,
        count: int,
        generator: torch.Generator,
        *,
        one_trend: bool = False,
    ) -> None:
        super().__init__(transform)
        self.count = count
        self._factor = factor
        theta_of_draw = _assigned(probabilities, count, generator)
        self.noise_std: Tensor = torch.from_numpy(factor * np.exp(thetas[theta_of_draw, -1] / 2))
        self._draws: list[_Draws] = []
        processes = [process]
        if not one_trend:
            processes.append(process.without_bowl())
        for i in np.unique(theta_of_draw):
            rows = np.flatnonzero(theta_of_draw == i)
            for first, with_trend in enumerate(processes):
                part = rows[first :: len(processes)]
                if len(part):
                    drawn = partial(self._drawn, part, with_trend, thetas[i], generator)
                    self._draws.append(on_one_thread(drawn))

    def _drawn(
        self, rows: Rows, process: Process, theta: Array, generator: torch.Generator
    ) -> _Draws:
        """Draw functions with one kernel, noise level and trend, by Matheron's rule."""
        regression = Regression(process, theta)
        n, D = process.X.shape
        r = len(rows)
        frequencies = _frequencies(theta, r, D, generator)
        series = _normal(generator, r, 2 * _N_FREQUENCIES) / math.sqrt(_N_FREQUENCIES)
        # The prior of the constant is flat, so any draw of it serves.
        prior_trend = np.tile(process.b0[:, None], r)
        prior_std = 1 / np.sqrt(process.P.diagonal()[1:, None])
        prior_trend[1:] += prior_std * _normal(generator, len(prior_std), r)
        noise = regression.noise_std[:, None] * _normal(generator, n, r)
        prior = _series(process.X, frequencies, series).T
        trend, weights = regression.solve(process.y[:, None] - prior - noise, prior_trend)
        mean_trend, mean_weights = regression.solve(process.y[:, None], process.b0[:, None])
        return _Draws(
            rows,
            process,
            theta,
            frequencies,
            self._factor * series,
            (mean_trend + self._factor * (trend - mean_trend)).T,
            (mean_weights + self._factor * (weights - mean_weights)).T,
        )

    def targets(self, X: Tensor) -> Tensor:
        points = X.cpu()
        values = np.empty((self.count, points.shape[-2]))
        for draws in self._draws:
            values[draws.rows] = on_one_thread(partial(_values, draws, points))
        return torch.from_numpy(values).to(X.device)

    def updated(self, Z: Tensor, X: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        Z = Z.cpu()
        points = X.cpu()
        mean = np.empty((self.count, len(points)))
        variance = np.empty((self.count, len(points)))
        for draws in self._draws:
            noise = _normal(generator, len(draws.rows), len(Z))
            update = partial(self._update, draws, Z, points, noise)
            mean[draws.rows], variance[draws.rows] = on_one_thread(update)
        return torch.from_numpy(mean).to(X.device), torch.from_numpy(variance).to(X.device)

    def _update(
        self, draws: _Draws, Z: Tensor, points: Tensor, noise: Array
    ) -> tuple[Array, Array]:
        """Return mean [r N] and variance [N] at points [N D], after values of draws at Z [k D].

        Args:
            draws: The draws.
            Z: The features of the values.
            points: The points.
            noise: The noise [r k] of the values, in its standard deviations.
        """
        process = draws.process.with_points(Z)
        regression = Regression(process, draws.theta)
        noise_std = self._factor * regression.noise_std[-len(Z) :]
        new = _values(draws, Z) + noise_std * noise
        known = np.tile(process.y, (len(new), 1))
        targets = np.concatenate([known, new], 1).T
        trend, weights = regression.solve(targets, process.b0[:, None])
        B = process.trend_columns(points)
        kernel = process.kernel(points, draws.theta)
        mean = (B @ trend + kernel @ weights).T
        return mean, self._factor**2 * regression.variance(kernel, B)


class DrawnFunctions(Functions):
    """Draws of the objective from any posterior whose kernel has random features.

    Args:
        transform: The map from values of the objective to targets.
        posterior: The posterior.
        noise_std: The noise level, in units of the targets.
        count: The number of draws.
        like: Features [1 D] of any point, for dimension, dtype and device.
        generator: Source of randomness.

    Raises:
        InvalidInput: The kernel has no random features.
    """

    def __init__(
        self,
        transform: OutcomeTransform,
        posterior: Posterior,
        noise_std: float,
        count: int,
        like: Tensor,
        generator: torch.Generator,
    ) -> None:
        super().__init__(transform)
        self.count = count
        self._posterior = posterior
        self._noise_std = noise_std
        at = posterior.at()
        self._deviations = [at.draw_function(like, generator) for _ in range(count)]

    def targets(self, X: Tensor) -> Tensor:
        mean = self._posterior.predict(X)[0]
        of_each = X.expand(self.count, *X.shape[-2:])
        deviations = [draw(x) for draw, x in zip(self._deviations, of_each, strict=True)]
        return mean + torch.stack(deviations)

    def updated(self, Z: Tensor, X: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        noise = torch.from_numpy(_normal(generator, self.count, len(Z))).to(Z)
        observed = self.targets(Z) + self._noise_std * noise
        batch = Z.expand(self.count, *Z.shape)
        return Hypothetical(self._posterior, batch, observed).predict(X.unsqueeze(0))


def _assigned(probabilities: Array, count: int, generator: torch.Generator) -> Rows:
    """Return for each draw the position of its hypothesis, [count], in random order.

    Each hypothesis occurs as often as its probability [k] says, up to rounding (systematic resampling).
    """
    levels = (np.arange(count) + 0.5) / count
    cumulative = probabilities.cumsum() / probabilities.sum()
    positions = np.minimum(np.searchsorted(cumulative, levels), len(probabilities) - 1)
    return positions[torch.randperm(count, generator=generator).numpy()]


def _normal(generator: torch.Generator, *shape: int) -> Array:
    """Draw standard normal numbers of a shape."""
    return torch.randn(shape, generator=generator, dtype=torch.float64).numpy()


def _frequencies(theta: Array, r: int, D: int, generator: torch.Generator) -> Array:
    """Draw frequencies [r f D] from the spectral density of the kernel, Student's t with 5 degrees of freedom."""
    normal = _normal(generator, r, _N_FREQUENCIES, D)
    squares = _normal(generator, r, _N_FREQUENCIES, round(2 * _NU)) ** 2
    return normal / np.sqrt(squares.mean(-1, keepdims=True)) * np.exp(-theta[:-1])


def _values(draws: _Draws, points: Tensor) -> Array:
    """Return the targets [r N] of draws at points [N D], or at their own rows of the points [s N D] of all draws."""
    if points.ndim == 3:
        points = points[torch.from_numpy(draws.rows)]
    process = draws.process
    series = _series(process.centred(points), draws.frequencies, draws.series)
    trend = _combined(process.trend_columns(points), draws.trend)
    return series + trend + _combined(process.kernel(points, draws.theta), draws.weights)


def _series(points: Array, frequencies: Array, coefficients: Array) -> Array:
    """Return sums [r N] of the random features: sines and cosines of ``points @ frequencies.T``.

    They are computed in float32, where sines take a small part of the time. The errors are at most 1e-5, far below any
    noise level.

    Args:
        points: Points [N D], or [r N D], less their centre.
        frequencies: Frequencies [r f D].
        coefficients: Coefficients [r 2f] of sines and cosines.
    """
    phases = (points @ frequencies.swapaxes(1, 2)).astype(np.float32)
    features = np.concatenate([np.sin(phases), np.cos(phases)], -1)
    return _combined(features, coefficients.astype(np.float32))


def _combined(columns: Array, coefficients: Array) -> Array:
    """Return the sums [r N] of columns [N c] or [r N c] times coefficients [r c]."""
    return (columns @ coefficients[:, :, None])[:, :, 0]
