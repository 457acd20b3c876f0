"""The model of the practical setting: kernel, noise level, trend and outcome transform, fitted to some values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from gpytorch.kernels import Kernel
from torch import Tensor

from kbo._base import checks
from kbo.errors import InvalidInput
from kbo.optimize.surrogates.bowl import PLAIN, Bowl
from kbo.optimize.surrogates.fitting import LEAST_NOISE, MOST, fit
from kbo.optimize.surrogates.outcome_transform import OutcomeTransform, around, least_skewed, linear
from kbo.optimize.surrogates.predictive import Predictive

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
) -> Fitted:
    """Fit kernel, noise level and trend to values y [n] in units of the objective, larger ones better, at X [n D].

    Values are standardised. They are also made less skewed if this makes them more likely, each with its own fitted
    trend. The trend has a bowl for up to 500 values. With more values it is constant, since they show themselves where
    the objective is good.

    Args:
        X: Points of the unit cube.
        y: Values.
        noise_std: The noise level in units of the objective, if it is known. Then values are only standardised, and a
            level below a hundredth of their spread is raised to that. 0 if there is no noise: then the fitted noise
            level is the part of the values that the kernel does not explain.
        errors: Standard errors [n] of predicted values besides the noise, 0 for the others; zeros by default.
        ratios: Noise variances [n] of the values in units of ``noise_std ** 2``; ones by default.
        cut: Whether values far on the bad side are first cut, which hides how bad they are, or only compressed.

    Raises:
        InvalidInput: Arguments that cannot be used.
    """
    return fit_objective(X, y, noise_std, errors, ratios, cut=cut, bowl=PLAIN)


def fit_objective(
    X: Tensor,
    y: Tensor,
    noise_std: float | None,
    errors: Tensor | None,
    ratios: Tensor | None,
    *,
    cut: bool,
    bowl: Bowl,
) -> Fitted:
    """Fit the model of an objective, with the bowl of its space; other arguments as for ``fit_values``."""
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
    fits = [
        _fit_under(transform, X, y, noise_std, errors, ratios, bowl=bowl)
        for transform in dict.fromkeys(candidates)
    ]
    _, likeliest = max(fits, key=lambda fit: fit[0])
    return likeliest


def _fit_under(
    transform: OutcomeTransform,
    X: Tensor,
    y: Tensor,
    noise_std: float | None,
    errors: Tensor | None,
    ratios: Tensor | None,
    *,
    bowl: Bowl | None,
) -> tuple[float, Fitted]:
    """Return the log-density of the values under a transform, and the fitted model.

    The log-density is comparable between transforms. It is that of the targets plus the sum of ``log dt/dy`` over the
    fitted values, by the change of variables from targets to values.
    """
    noiseless = noise_std == 0
    level = _noise_level(transform, noise_std)
    if errors is not None:
        errors = transform.errors(y, errors)
    targets = transform(y)
    model = fit(X, targets, level, errors, ratios, noiseless=noiseless, bowl=bowl)
    n_fitted = min(len(y), MOST)
    log_density = model.log_density + n_fitted * transform.log_slope(y)
    fitted = Fitted(
        kernel=model.kernel,
        noise_std=model.noise_std,
        transform=transform.above(model.constant),
        height=model.height,
        bowl=bowl or PLAIN,
        gain=model.gain,
        predictive=partial(Predictive, noise_std=level, noiseless=noiseless, bowl=bowl),
    )
    return log_density, fitted


def _noise_level(transform: OutcomeTransform, noise_std: float | None) -> float | None:
    """Return the given noise level in units of the targets; None if it is to be fitted."""
    if not noise_std:
        return None
    level = noise_std / transform.spread / transform.unit
    return min(max(level, LEAST_NOISE), _MOST_NOISE)
