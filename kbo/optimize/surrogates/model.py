"""The model of the practical setting: kernel, noise level, trend and outcome transform, fitted to some values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from kbo._base import checks
from kbo.errors import InvalidInput
from kbo.optimize.surrogates.fitting import NOISE, NOISELESS, Loss, mode, unit_kernel
from kbo.optimize.surrogates.outcome_transform import OutcomeTransform, around, least_skewed, linear
from kbo.optimize.surrogates.predictive import Predictive
from kbo.optimize.surrogates.process import PLAIN, Bowl, Process

MOST = 500
"""Largest number of observations that are fitted. Of more, the first 250 are taken, and 250 random ones of the others.

Later observations are close to the best ones: to these alone the fitted lengthscales would be too long."""

_LEAST_NOISE = 0.01
"""The least noise level that may be given, in standard deviations of the targets."""

_MOST_NOISE = 1e50
"""Largest noise level in standard deviations of the values: squares of larger ones would overflow."""


@dataclass(frozen=True)
class Fitted:
    """A fitted model of a quantity: its kernel, and the numbers that were fitted to some observations.

    Args:
        kernel: The kernel, on the features of the space.
        noise_std: The noise level, in units of the targets.
        transform: The map from values of the objective to targets.
        height: The height h of the bowl in the prior mean ``-h q(x)``; 0 for a prior mean of 0.
        bowl: The bowl q; by default that of a space without conditions.
        gain: The log-likelihood of the values, less that of a constant with noise.
        predictive: Returns the distribution for reports. Its arguments are points [n D], targets [n], their standard
            errors [n] besides the noise, relative noise variances [n], and whether targets are predicted [n]. Without
            it intervals are those of the posterior with this kernel.
    """

    kernel: Kernel
    noise_std: float
    transform: OutcomeTransform
    height: float = 0.0
    bowl: Bowl = PLAIN
    gain: float = math.inf
    predictive: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Predictive] | None = None

    def __post_init__(self) -> None:
        checks.kernel(self.kernel, "Fitted")
        checks.instance("transform of Fitted", self.transform, OutcomeTransform)
        checks.keep(
            self,
            noise_std=checks.positive("noise_std of Fitted", self.noise_std),
            height=checks.number("height of Fitted", self.height),
        )

    def weights(self, y: Tensor, errors: Tensor, ratios: Tensor) -> Tensor:
        """Return the weights [n] of values y [n] in the posterior; other arguments as for ``fit_values``."""
        variance = self.noise_std**2
        return variance / (variance * ratios + self.transform.errors(y, errors).square())


def fit_values(
    X: Tensor,
    y: Tensor,
    noise_std: float | None = None,
    errors: Tensor | None = None,
    ratios: Tensor | None = None,
    *,
    cut: bool = True,
    bowl: Bowl = PLAIN,
) -> Fitted:
    """Fit kernel, noise level and trend to values y [n] in units of the objective, larger ones better, at X [n D].

    Values are standardised. They are also made less skewed if this makes them more likely, each with its own fitted
    trend. The trend has a bowl for up to 500 values. With more values it is constant, since they show themselves where
    the objective is good. The fit runs on the CPU, so a run has the same kernel on every device. Where the likelihood
    cannot be computed, kernel and noise level are the prior medians.

    Args:
        X: Points of the unit cube.
        y: Values.
        noise_std: The noise level in units of the objective, if it is known. Then values are only standardised, and a
            level below a hundredth of their spread is raised to that. 0 if there is no noise: then the fitted noise
            level is the part of the values that the kernel does not explain.
        errors: Standard errors [n] of predicted values besides the noise, 0 for the others; zeros by default.
        ratios: Noise variances [n] of the values in units of ``noise_std ** 2``; ones by default.
        cut: Whether values far on the bad side are first cut, which hides how bad they are, or only compressed.
        bowl: The bowl of the space; by default that of a space without conditions.

    Raises:
        InvalidInput: Arguments that cannot be used.
    """
    n = len(checks.rows("X", X))
    if checks.points("y", y).shape != (n,) or y.dtype != X.dtype or not n:
        raise InvalidInput(
            f"y must be one value for each row of X, at least one, a tensor [{n}] of {X.dtype}, got {list(y.shape)} of "
            f"{y.dtype}."
        )
    noise_std = checks.maybe(checks.non_negative, "noise_std", noise_std)
    candidates = [linear(y, cut)]
    if not noise_std:
        candidates.append(least_skewed(y, cut))
    trend = bowl if n <= MOST else None
    return _likeliest(candidates, X, y, noise_std, errors, ratios, bowl=trend)


def fit_limited(limit: float, X: Tensor, y: Tensor, noise_std: float | None = None) -> Fitted:
    """Fit the model of a quantity that must reach a limit; arguments as for ``fit_values``.

    Values far from the limit are compressed on both sides, if that makes the values more likely.
    """
    candidates = [around(limit, y, power=1.0)]
    if not noise_std:
        candidates.append(around(limit, y, power=0.0))
    return _likeliest(candidates, X, y, noise_std, None, None, bowl=None)


def _likeliest(
    candidates: Sequence[OutcomeTransform],
    X: Tensor,
    y: Tensor,
    noise_std: float | None,
    errors: Tensor | None,
    ratios: Tensor | None,
    *,
    bowl: Bowl | None,
) -> Fitted:
    """Return the model under the transform that makes the values most likely."""
    rows = _rows(len(y))
    if errors is None:
        errors = torch.zeros_like(y)
    if ratios is None:
        ratios = torch.ones_like(y)
    ratios = ratios.cpu()[rows]
    points = X.cpu()[rows]
    fits = []
    for transform in dict.fromkeys(candidates):
        targets = transform(y).cpu()[rows]
        target_errors = transform.errors(y, errors).cpu()[rows]
        process = Process(points, targets, target_errors, ratios, bowl=bowl)
        log_density, fitted = _fit_under(transform, process, noise_std, bowl)
        # comparable between transforms, by the change of variables from targets to values
        fits.append((log_density + len(rows) * transform.log_slope(y), fitted))
    _, likeliest = max(fits, key=lambda fit: fit[0])
    return likeliest


def _fit_under(
    transform: OutcomeTransform, process: Process, noise_std: float | None, bowl: Bowl | None
) -> tuple[float, Fitted]:
    """Return the log-density of the targets under a transform, and the fitted model."""
    noiseless = noise_std == 0
    level = _noise_level(transform, noise_std)
    loss = Loss(process, NOISELESS if noiseless else NOISE)
    log_density, theta = mode(loss, level)
    constant, height, gain = loss.trend(theta)
    kernel = unit_kernel(process.X.shape[-1])
    kernel.initialize(lengthscale=torch.from_numpy(np.exp(theta[:-1])))
    fitted = Fitted(
        kernel=kernel,
        noise_std=math.exp(theta[-1] / 2),
        transform=transform.above(constant),
        height=height,
        bowl=bowl or PLAIN,
        gain=gain,
        predictive=partial(Predictive, noise_std=level, noiseless=noiseless, bowl=bowl),
    )
    return log_density, fitted


def _noise_level(transform: OutcomeTransform, noise_std: float | None) -> float | None:
    """Return the given noise level in units of the targets; None if it is to be fitted."""
    if not noise_std:
        return None
    level = noise_std / transform.spread / transform.unit
    return min(max(level, _LEAST_NOISE), _MOST_NOISE)


def _rows(n: int) -> Tensor:
    """Return the rows [at most 500] of n observations to fit; the same n gives the same rows."""
    if n <= MOST:
        return torch.arange(n)
    first = MOST // 2
    others = torch.randperm(n - first, generator=torch.Generator().manual_seed(n))[: MOST - first]
    return torch.cat([torch.arange(first), first + others])
