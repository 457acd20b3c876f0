"""Confidence sequences for the mean and the median of repeated evaluations.

They hold for every number n of values at once; docs/theory/confirm.md has the proofs. The mean is that
of values in a known range. For values x_1 .. x_n in [0, 1] with mean mu and level alpha, two gamblers
bet, one that the mean is larger than m and one that it is smaller. Their wealth is

    W+_n(m) = prod (1 + min(b_i, 1/(2m)) (x_i - m)),
    W-_n(m) = prod (1 - min(b_i, 1/(2 (1-m))) (x_i - m))

with bets b_i that depend on x_1 .. x_{i-1} (Waudby-Smith & Ramdas 2024, Sec. 4.1). At the true mean
neither exceeds 2/alpha with probability 1 - alpha. W+ falls and W- grows in m, so the means that
the data do not refute form an interval.

The median is that of independent values of any distribution: skewed, discrete, or without a mean. For
a number m with P(x_i <= m) >= 1/2, where s of the values are at most m,

    M(s, n) = 2 int_0^(1/2) (2 p)^s (2 (1 - p))^(n - s) dp = 2^(n + 1) P(B > s) / ((n + 1) C(n, s))

with B binomial of n + 1 fair coins: a beta-binomial mixture, as Howard & Ramdas (2022) use for
quantiles, with uniform weights on [0, 1/2]. Each (2 p)^s (2 (1 - p))^(n - s) is a supermartingale of
expectation at most 1, and so is its average M. By Ville's inequality M stays below 1/alpha with
probability 1 - alpha. M falls in s. Let s be the largest number with M(s, n) >= 1/alpha. Then the
(s + 1)-th smallest value is at most the median, for all n at once, and likewise from above.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtrc, gammaln

Array = NDArray[np.float64]

_HALVINGS = 60
"""Number of bisections of [0, 1] in the search for a bound, which is rounded outwards."""

_ROUNDING_OF_SUMS = 1e-12
"""Relative rounding error of sums of a few thousand numbers, by which intervals are widened."""

_ROUNDING_OF_LOG = 1e-9
"""Rounding error of ``ln M``, by which the required level is raised."""


def bounded_mean(
    values: Sequence[float], alpha: float, low: float, high: float
) -> tuple[float, float]:
    """Return the interval of the mean of values in [low, high].

    Args:
        values: The values so far [n], in their order. Given the values before, each has the same
            mean.
        alpha: Probability that the interval misses the mean for some n.
        low: The least possible value.
        high: The largest possible value.
    """
    x = ((np.array(values, dtype=float) - low) / (high - low)).clip(0.0, 1.0)
    bets = _bets(x, alpha)
    level = math.log(2 / alpha)
    lower = _lower_bound(x, bets, level)
    upper = 1 - _lower_bound(1 - x, bets, level)
    return low + (high - low) * lower, low + (high - low) * upper


def _bets(x: Array, alpha: float) -> Array:
    """Return the bets b_i [n], each computed from the values before it (Theorem 3 of the paper)."""
    t = np.arange(1, len(x) + 1)
    means = (0.5 + x.cumsum()) / (t + 1)
    variances = (0.25 + ((x - means) ** 2).cumsum()) / (t + 1)
    earlier_variances = np.append(0.25, variances)[:-1]
    return np.sqrt(2 * math.log(2 / alpha) / (earlier_variances * t * np.log(t + 1)))


def _lower_bound(x: Array, bets: Array, level: float) -> float:
    """Return the least m at which ``ln W+_n(m)`` is below ``level``, rounded down."""
    lower = 0.0
    upper = 1.0
    for _ in range(_HALVINGS):
        m = (lower + upper) / 2
        log_wealth = float(np.log1p(np.minimum(bets, 0.5 / m) * (x - m)).sum())
        if log_wealth >= level * (1 + _ROUNDING_OF_SUMS):
            lower = m
        else:
            upper = m
    return lower


def median(values: Sequence[float]) -> float:
    """Return the median of one or more values; for an even number, the mean of the middle two."""
    ordered = sorted(values)
    below = ordered[(len(ordered) - 1) // 2]
    above = ordered[len(ordered) // 2]
    return below / 2 + above / 2  # a sum of two very large values would overflow


def median_bounds(
    values: Sequence[float], alpha_lower: float, alpha_upper: float
) -> tuple[float, float]:
    """Return bounds of the median of independent values; infinite for few values.

    Args:
        values: The values so far [n], in any order.
        alpha_lower: Probability that the lower bound is above the median for some n.
        alpha_upper: Probability that the upper bound is below the median for some n.
    """
    ordered = sorted(values)
    n = len(ordered)
    lower = -math.inf
    upper = math.inf
    refuted_below = _most_refuted(n, alpha_lower)
    if refuted_below is not None:
        lower = ordered[refuted_below]
    refuted_above = _most_refuted(n, alpha_upper)
    if refuted_above is not None:
        upper = ordered[n - 1 - refuted_above]
    return lower, upper


def _most_refuted(n: int, alpha: float) -> int | None:
    """Return the largest s with M(s, n) >= 1 / alpha; None if there is none."""
    level = -math.log(alpha) + _ROUNDING_OF_LOG
    if _log_martingale(0, n) < level:
        return None
    reached = 0
    missed = (n + 1) // 2  # at half of the values M is at most 1
    while missed - reached > 1:
        s = (reached + missed) // 2
        if _log_martingale(s, n) >= level:
            reached = s
        else:
            missed = s
    return reached


def _log_martingale(s: int, n: int) -> float:
    """Return the logarithm of M(s, n) for s at most n / 2."""
    log_binomial = gammaln(n + 1) - gammaln(s + 1) - gammaln(n - s + 1)
    tail = bdtrc(s, n + 1, 0.5)
    return float((n + 1) * math.log(2) + math.log(tail) - math.log(n + 1) - log_binomial)
