"""Confidence sequences for the mean of repeated evaluations: they hold for every number of values at once.

On paper, for values x_1 .. x_n with the mean mu, at level alpha:

* Gaussian, of unknown variance: with S = sum (x_i - mu) and Q = sum (x_i - mu)^2

      M_n(mu) = sqrt(1 / (n + 1)) (1 - S^2 / ((n + 1) Q))^(-n/2)

  has the expectation 1 at the true mean for every n (Lai 1976; Wang & Ramdas 2024), so by Ville's inequality it stays
  below 1/alpha with probability 1 - alpha. With the sample variance s^2 = sum (x_i - mean)^2 / n the set of all mu with
  M_n(mu) < 1/alpha is ``mean +- r s``, r^2 = p / (1 - p), p = (1 - (sqrt(n + 1) / alpha)^(-2/n)) (n + 1) / n.
* In [0, 1], nothing else known: the wealth of two gamblers, of whom one bets on a larger and one on a smaller mean,

      W+_n(m) = prod (1 + min(b_i, 1/(2m)) (x_i - m)),   W-_n(m) = prod (1 - min(b_i, 1/(2 (1-m))) (x_i - m))

  with bets b_i that depend on x_1 .. x_{i-1} (Waudby-Smith & Ramdas 2024, Sec. 4.1). At the true mean neither exceeds
  2/alpha with probability 1 - alpha. W+ falls and W- grows in m, so what remains is an interval.

docs/theory/confirm.md has the proofs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_STEPS = 60
"""Halvings of [0, 1] for the bounds of a gambler, which are rounded outwards."""

_ROUNDING = 1e-12
"""Relative error of sums of a few thousand numbers, by which an interval is widened."""


def gaussian_mean(values: Sequence[float], alpha: float) -> tuple[float, float]:
    """Return the interval of the mean of independent Gaussian values of unknown variance; infinite for few values.

    Args:
        values: The values so far [n], in any order.
        alpha: Probability that the interval of some number of values misses the mean.
    """
    n = len(values)
    # q is what M says of values infinitely far from mu, so p >= 1: nothing is refuted yet
    p = (1 - (math.sqrt(n + 1) / alpha) ** (-2 / n)) * (n + 1) / n if n else 1.0
    if p >= 1:
        return -math.inf, math.inf
    peak = max(map(abs, values)) or 1.0  # squares of very large values would overflow
    mean = math.fsum(x / peak for x in values) / n
    deviation = math.sqrt(math.fsum((x / peak - mean) ** 2 for x in values) / n)
    half = math.sqrt(p / (1 - p)) * deviation * (1 + _ROUNDING) + _ROUNDING * abs(mean) * (deviation > 0)
    return peak * (mean - half), peak * (mean + half)


def bounded_mean(values: Sequence[float], alpha: float, low: float, high: float) -> tuple[float, float]:
    """Return the interval of the mean of values in [low, high], of which each has that mean given those before.

    Args:
        values: The values so far [n], in their order.
        alpha: Probability that the interval of some number of values misses the mean.
        low: The least possible value.
        high: The largest possible value.
    """
    x = ((np.array(values, dtype=float) - low) / (high - low)).clip(0.0, 1.0)
    bets, level = _bets(x, alpha), math.log(2 / alpha)
    lower, upper = _least(x, bets, level), 1 - _least(1 - x, bets, level)
    return low + (high - low) * lower, low + (high - low) * upper


def _bets(x: Array, alpha: float) -> Array:
    """Return the bets [n], each from the values before it (their Theorem 3)."""
    t = np.arange(1, len(x) + 1)
    means = (0.5 + x.cumsum()) / (t + 1)
    variances = np.append(0.25, (0.25 + ((x - means) ** 2).cumsum()) / (t + 1))[:-1]
    return np.sqrt(2 * math.log(2 / alpha) / (variances * t * np.log(t + 1)))


def _least(x: Array, bets: Array, level: float) -> float:
    """Return a bound below which every mean is refuted by the gambler who bets on a larger one."""
    left, right = 0.0, 1.0
    for _ in range(_STEPS):
        m = (left + right) / 2
        wealth = float(np.log1p(np.minimum(bets, 0.5 / m) * (x - m)).sum())
        left, right = (m, right) if wealth >= level * (1 + _ROUNDING) else (left, m)
    return left
