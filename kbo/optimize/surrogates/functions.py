"""Draws of the objective as functions, which can be evaluated anywhere and updated by more values.

    f(x) = phi(x)'a + B(x) b + k(x, X) A^-1 (y - phi(X)'a - B b - eps),   A = K + s^2 diag(r)

This is Matheron's rule (Wilson et al. 2020, "Efficiently sampling functions from Gaussian process posteriors", Sec. 3).
phi are random Fourier features of the kernel, a is standard normal, and eps is a draw of the noise. b is the most
likely trend for ``y - phi(X)'a - eps``, with a draw from its prior as the prior mean.

Every second draw has no bowl in its trend (see ``fitting``), unless the draws must agree with the intervals. The bowl
keeps a search away from the corners, but it is no knowledge about the objective. If it explains most of the values, all
draws with it have their optimum near the centre.

Each draw has one of the kernels and noise levels over which intervals are averaged; each of these occurs as often as
its weight says. All draws with one kernel share its random features. A factor of the standard deviations scales the
deviations of a draw from the mean of its kernel, and the noise of further values. ``Predictive.draws`` scales the
deviations from the mean over all kernels instead.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor

from kbo.optimize.surrogates.fitting import Array, Loss, matern
from kbo.optimize.surrogates.outcome_transform import OutcomeTransform
from kbo.regression import Hypothetical, Posterior

_N_FREQUENCIES = 256
"""Number of frequencies of the random features of a kernel."""

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
        """Return the values [s N] of all draws at features X [N D]."""
        return self.transform.inverse(self.targets(X))

    @abstractmethod
    def targets(self, X: Tensor) -> Tensor:
        """Return the targets [s N] of all draws at features X [N D]."""

    @abstractmethod
    def targets_of_each(self, X: Tensor) -> Tensor:
        """Return the targets [s k] of each draw at its own features X [s k D]."""

    @abstractmethod
    def updated(self, Z: Tensor, X: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return the posterior mean and variance [s N] of the targets at X, after noisy values of each draw at Z.

        Args:
            X: Features [N D].
            Z: Features [k D] of the further values. Row i of the result is the posterior after values of draw i.
            generator: Source of the noise.
        """


class _Hypothesis(NamedTuple):
    """The draws with one kernel, noise level and trend.

    Attributes:
        rows: The positions [r] of these draws among all draws.
        theta: Logarithms of lengthscales and noise variance [D + 1].
        frequencies: Frequencies [f D] of the random features.
        series: Coefficients [2f r] of the random features.
        trend: Coefficients [b r] of the trend.
        weights: Coefficients [n r] of the kernel at the data.
    """

    rows: Tensor
    theta: Array
    frequencies: Tensor
    series: Tensor
    trend: Tensor
    weights: Tensor


class Data(NamedTuple):
    """The data of a regression.

    Attributes:
        X: Points [n D], less their centre.
        B: Columns of the trend [n b].
        ratios: Noise variances [n] in units of the common one.
        extra: Variances [n] besides the noise: 0, except for predicted values.
    """

    X: Tensor
    B: Tensor
    ratios: Tensor
    extra: Tensor

    @classmethod
    def of(cls, loss: Loss) -> Data:
        """Return the data to which a model is fitted."""
        ones = torch.ones(len(loss.y), dtype=torch.float64)
        ratios = torch.as_tensor(loss.ratios) * ones
        extra = torch.as_tensor(loss.extra) * ones
        return cls(torch.from_numpy(loss.X), torch.from_numpy(loss.B), ratios, extra)

    def with_trend(self, n: int) -> Data:
        """Return the data with the first n columns of the trend."""
        return self._replace(B=self.B[:, :n])

    def with_points(self, X: Tensor, B: Tensor) -> Data:
        """Return the data with further points X [k D], less the centre, and their columns B [k b] of the trend."""
        ratios = torch.ones(len(X), dtype=torch.float64)
        return Data(
            torch.cat([self.X, X]),
            torch.cat([self.B, B]),
            torch.cat([self.ratios, ratios]),
            torch.cat([self.extra, torch.zeros_like(ratios)]),
        )


class FittedFunctions(Functions):
    """Draws of the objective with the kernels and noise levels of a predictive distribution.

    Args:
        transform: The map from values of the objective to targets.
        loss: Data and prior of the model.
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
        loss: Loss,
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
        self._centre = loss.centre
        self._trend = loss.trend_columns
        self._data = Data.of(loss)
        self._y = torch.from_numpy(loss.y)
        self._b0 = torch.from_numpy(loss.b0)
        self._P = torch.from_numpy(loss.P)
        theta_of_draw = _assigned(torch.from_numpy(probabilities), count, generator)
        noise_variances = torch.from_numpy(thetas[:, -1]).exp()
        self.noise_std = factor * noise_variances[theta_of_draw].sqrt()
        self._hypotheses = []
        trends = [self._b0]
        if len(self._b0) > 1 and not one_trend:
            trends.append(self._b0[:1])
        for i in theta_of_draw.unique().tolist():
            draws = (theta_of_draw == i).nonzero().flatten()
            for first, b0 in enumerate(trends):
                rows = draws[first :: len(trends)]
                if len(rows):
                    hypothesis = self._hypothesis(rows, thetas[i], b0, generator)
                    self._hypotheses.append(hypothesis)

    def _hypothesis(
        self, rows: Tensor, theta: Array, b0: Tensor, generator: torch.Generator
    ) -> _Hypothesis:
        """Draw functions with one kernel, noise level and trend, by Matheron's rule."""
        data = self._data.with_trend(len(b0))
        n, D = data.X.shape
        n_draws = len(rows)
        frequencies = _frequencies(theta, D, generator)
        series = _normal(2 * _N_FREQUENCIES, n_draws, generator) / math.sqrt(_N_FREQUENCIES)
        P = self._precision(b0)
        regression = Regression(data, P, theta)
        # The prior of the constant is flat, so any draw of it serves.
        prior_trend = b0.unsqueeze(1).repeat(1, n_draws)
        prior_std = P.diagonal()[1:].rsqrt().unsqueeze(1)
        prior_trend[1:] += prior_std * _normal(len(prior_std), n_draws, generator)
        noise = regression.noise_std.unsqueeze(1) * _normal(n, n_draws, generator)
        sines, cosines = _features(data.X, frequencies)
        of_sines, of_cosines = series.chunk(2)
        prior = sines @ of_sines + cosines @ of_cosines
        trend, weights = regression(self._y.unsqueeze(1) - prior - noise, prior_trend)
        mean_trend, mean_weights = regression(self._y.unsqueeze(1), b0.unsqueeze(1))
        return _Hypothesis(
            rows,
            theta,
            frequencies,
            self._factor * series,
            mean_trend + self._factor * (trend - mean_trend),
            mean_weights + self._factor * (weights - mean_weights),
        )

    def targets(self, X: Tensor) -> Tensor:
        points = X.cpu()
        values = torch.empty(self.count, len(points), dtype=torch.float64)
        for hypothesis in self._hypotheses:
            columns = self._columns(hypothesis, points)
            sums = torch.zeros(len(points), len(hypothesis.rows), dtype=torch.float64)
            for block, coefficients in zip(columns, _coefficients(hypothesis), strict=True):
                sums += block @ coefficients
            values[hypothesis.rows] = sums.mT
        return values.to(X.device)

    def targets_of_each(self, X: Tensor) -> Tensor:
        points = X.cpu()
        values = torch.empty(points.shape[:2], dtype=torch.float64)
        for hypothesis in self._hypotheses:
            shape = len(hypothesis.rows), points.shape[1]
            columns = self._columns(hypothesis, points[hypothesis.rows].flatten(0, 1))
            sums = torch.zeros(shape, dtype=torch.float64)
            for block, coefficients in zip(columns, _coefficients(hypothesis), strict=True):
                of_draw = block.unflatten(0, shape)
                sums += torch.bmm(of_draw, coefficients.mT.unsqueeze(2)).squeeze(2)
            values[hypothesis.rows] = sums
        return values.to(X.device)

    def _columns(self, hypothesis: _Hypothesis, points: Tensor) -> list[Tensor]:
        """Return sines, cosines, trend and kernel [N ...] at points [N D], in the order of ``_coefficients``."""
        centred = points - self._centre
        sines, cosines = _features(centred, hypothesis.frequencies)
        kernel = _kernel(centred, self._data.X, hypothesis.theta)
        trend = self._trend(points)[:, : len(hypothesis.trend)]
        return [sines, cosines, trend, kernel]

    def _precision(self, b0: Tensor) -> Tensor:
        """Return the prior precision [b b] of the coefficients of a trend whose prior mean is b0 [b]."""
        return self._P[: len(b0), : len(b0)]

    def updated(self, Z: Tensor, X: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        Z = Z.cpu()
        points = X.cpu()
        values = self.targets(Z)
        all_data = self._data.with_points(Z - self._centre, self._trend(Z))
        all_B = self._trend(points)
        mean = torch.empty(self.count, len(points), dtype=torch.float64)
        variance = torch.empty(self.count, len(points), dtype=torch.float64)
        for hypothesis in self._hypotheses:
            b0 = self._b0[: len(hypothesis.trend)]
            data = all_data.with_trend(len(b0))
            B = all_B[:, : len(b0)]
            regression = Regression(data, self._precision(b0), hypothesis.theta)
            n_draws = len(hypothesis.rows)
            noise_std = self._factor * regression.noise_std[-len(Z) :].unsqueeze(1)
            new = values[hypothesis.rows].mT + noise_std * _normal(len(Z), n_draws, generator)
            targets = torch.cat([self._y.unsqueeze(1).expand(-1, n_draws), new])
            trend, weights = regression(targets, b0.unsqueeze(1))
            columns = _kernel(points - self._centre, data.X, hypothesis.theta)
            mean[hypothesis.rows] = (B @ trend + columns @ weights).mT
            variance[hypothesis.rows] = self._factor**2 * regression.variance(columns, B)
        return mean.to(X.device), variance.to(X.device)


class DrawnFunctions(Functions):
    """Draws of the objective from any posterior whose kernel has random features.

    Args:
        transform: The map from values of the objective to targets.
        posterior: The posterior.
        noise_std: The noise level, in units of the targets.
        count: The number of draws.
        like: Features [1 D] of any point, which give the dimension.
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
        deviations = torch.stack([deviation(X) for deviation in self._deviations])
        return self._posterior.predict(X)[0] + deviations

    def targets_of_each(self, X: Tensor) -> Tensor:
        deviations = [deviation(x) for deviation, x in zip(self._deviations, X, strict=True)]
        mean = self._posterior.predict(X.flatten(0, 1))[0].unflatten(0, X.shape[:2])
        return mean + torch.stack(deviations)

    def updated(self, Z: Tensor, X: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        noise = self._noise_std * _normal(self.count, len(Z), generator).to(Z)
        observed = self.targets(Z) + noise
        batch = Z.expand(self.count, *Z.shape)
        return Hypothetical(self._posterior, batch, observed).predict(X.unsqueeze(0))


class Regression:
    """The regression of targets on trend and kernel, given theta (Rasmussen & Williams 2006, Sec. 2.7).

    Args:
        data: The data.
        P: Prior precision [b b] of the coefficients of the trend.
        theta: Logarithms of lengthscales and noise variance [D + 1].

    Attributes:
        noise_std: Standard deviations [n] of the noise.
    """

    def __init__(self, data: Data, P: Tensor, theta: Array) -> None:
        self._B = data.B
        self._P = P
        variance = math.exp(theta[-1]) * data.ratios + data.extra
        self.noise_std = variance.sqrt()
        self._L = torch.linalg.cholesky(_kernel(data.X, data.X, theta) + variance.diag())
        self._solved_B = torch.cholesky_solve(self._B, self._L)
        self._precision = self._B.mT @ self._solved_B + P

    def __call__(self, Y: Tensor, b0: Tensor) -> tuple[Tensor, Tensor]:
        """Return trends [b r] and weights [n r] of targets Y [n r], with prior means b0 [b r] of the trends."""
        solved = torch.cholesky_solve(Y, self._L)
        trend = torch.linalg.solve(self._precision, self._B.mT @ solved + self._P @ b0)
        return trend, solved - self._solved_B @ trend

    def variance(self, columns: Tensor, B: Tensor) -> Tensor:
        """Return the variance [N] without noise at points with kernel columns [N n] and trend B [N b]."""
        solved = torch.linalg.solve_triangular(self._L, columns.mT, upper=False)
        remaining = B - columns @ self._solved_B
        by_trend = (remaining * torch.linalg.solve(self._precision, remaining.mT).mT).sum(1)
        return (1 - solved.square().sum(0)).clamp_min(0) + by_trend


def _assigned(probabilities: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Return for each draw the position of its hypothesis, [count], in random order.

    Each hypothesis occurs as often as its probability [k] says, up to rounding (systematic resampling).
    """
    levels = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    cumulative = probabilities.cumsum(0) / probabilities.sum()
    positions = torch.searchsorted(cumulative, levels).clamp_max(len(probabilities) - 1)
    return positions[torch.randperm(count, generator=generator)]


def _normal(rows: int, columns: int, generator: torch.Generator) -> Tensor:
    """Draw standard normal numbers [rows columns]."""
    return torch.randn(rows, columns, generator=generator, dtype=torch.float64)


def _frequencies(theta: Array, D: int, generator: torch.Generator) -> Tensor:
    """Draw frequencies [f D] from the spectral density of the kernel, Student's t with 5 degrees of freedom."""
    normal = _normal(_N_FREQUENCIES, D, generator)
    squares = _normal(_N_FREQUENCIES, round(2 * _NU), generator).square()
    lengthscales = torch.from_numpy(theta[:-1]).exp()
    return normal * squares.mean(1, keepdim=True).rsqrt() / lengthscales


def _features(points: Tensor, frequencies: Tensor) -> tuple[Tensor, Tensor]:
    """Return the random features at points [N D]: sines and cosines [N f] of ``points @ frequencies.T``.

    They are computed in float32, where sines take a third of the time. The errors are at most 1e-5, far below any noise
    level.
    """
    phases = (points @ frequencies.mT).float()
    return phases.sin().double(), phases.cos().double()


def _coefficients(hypothesis: _Hypothesis) -> list[Tensor]:
    """Return the coefficients [... r] of sines, cosines, trend and kernel."""
    return [*hypothesis.series.chunk(2), hypothesis.trend, hypothesis.weights]


def _kernel(points: Tensor, data: Tensor, theta: Array) -> Tensor:
    """Return the Matern 5/2 kernel [N n] of points [N D] and data [n D]."""
    scale = math.sqrt(5) * torch.from_numpy(-theta[:-1]).exp()
    exact = "donot_use_mm_for_euclid_dist"
    distance = torch.cdist(points * scale, data * scale, compute_mode=exact)
    return matern(distance, (-distance).exp())
