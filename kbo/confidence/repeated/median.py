"""A confidence sequence for the median of repeated evaluations.

It holds for every number of values at once. On paper, for independent values x_1 .. x_n and a
number m with P(x_i <= m) >= 1/2, where s of the values are at most m:

    M(s, n) = 2 int_0^(1/2) (2 p)^s (2 (1 - p))^(n - s) dp = 2^(n + 1) P(B > s) / ((n + 1) C(n, s))

with B binomial of n + 1 fair coins. Each (2 p)^s (2 (1 - p))^(n - s) is a supermartingale of
expectation at most 1, and so is its average M. By Ville's inequality M stays below 1/alpha with
probability 1 - alpha. M falls in s. Let s be the largest number with M(s, n) >= 1/alpha. Then the
(s + 1)-th smallest value is at most the median, for all n at once, and likewise from above. The
distribution may be any: skewed, discrete, or without a mean. docs/theory/confirm.md has the proof.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from scipy.special import bdtrc, gammaln

_ROUNDING = 1e-9
"""Rounding error of ``ln M``, by which the required level is raised."""


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
    level = -math.log(alpha) + _ROUNDING
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
