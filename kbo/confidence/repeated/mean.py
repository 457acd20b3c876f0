"""A confidence sequence for the mean of repeated evaluations in a known range.

It holds for every number of values at once. On paper, for values x_1 .. x_n in [0, 1] with mean mu
and level alpha, two gamblers bet, one that the mean is larger than m and one that it is smaller.
Their wealth is

    W+_n(m) = prod (1 + min(b_i, 1/(2m)) (x_i - m)),
    W-_n(m) = prod (1 - min(b_i, 1/(2 (1-m))) (x_i - m))

with bets b_i that depend on x_1 .. x_{i-1} (Waudby-Smith & Ramdas 2024, Sec. 4.1). At the true mean
neither exceeds 2/alpha with probability 1 - alpha. W+ falls and W- grows in m, so the means that
the data do not refute form an interval. docs/theory/confirm.md has the proof.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_HALVINGS = 60
"""Number of bisections of [0, 1] in the search for a bound, which is rounded outwards."""

_ROUNDING = 1e-12
"""Relative rounding error of sums of a few thousand numbers, by which intervals are widened."""


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
        if log_wealth >= level * (1 + _ROUNDING):
            lower = m
        else:
            upper = m
    return lower
