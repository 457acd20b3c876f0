"""Bounds of the energy ``|xi|^2`` of t noises around ``t sigma^2``, at all times t at once.

Given the past, the noise is strictly sub-Gaussian: sub-Gaussian with its standard deviation sigma
as the constant. Then

    E exp(g xi^2 / sigma^2) <= (1 - 2 g)^-1/2,   E exp(-g xi^2 / sigma^2) <= (2 + exp(-3 g)) / 3,

the first for ``0 <= g < 1/2``, the second for ``g >= 0`` (with equality for the three-point law of
kurtosis 3). Gaussian, Rademacher and uniform noise is strictly sub-Gaussian; noise with rare spikes
is not. For noise with no more mass near zero than Gaussian noise, the second right side is ``(1 + 2
g)^-1/2``, which is smaller. With L(g) for the right side, ``exp(g |xi|^2 / sigma^2 - t ln L(g))``
is a supermartingale for every g. The bounds below differ in how they choose g for all t at once.
Each function returns the least and the most energy in units of sigma^2; each of the two fails at
any time with probability at most delta. docs/theory/noise.md has the proofs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import mul

_ETA = (math.exp(0.25) + math.exp(-0.25)) / 2
"""Factor eta that it costs to use one g for all t in ``[e^k, e^(k+1))``."""

LEAST_RATES = [2.0 * 2**-i for i in range(12)]
MOST_RATES = [0.45 * 2**-i for i in range(12)]
"""Values of -g and g, in units of 1 / sigma^2; the smallest is best after about 10^7 rounds."""


def stitched(t: int, delta: float) -> tuple[float, float]:
    """Return ``t - 2 eta sqrt(t L)`` and ``t + 2 eta sqrt(t L) + 2 L``, least and most energy.

    Here ``L = ln(1/delta) + ln(pi^2 (1 + floor(ln t))^2 / 6)``, and there is one g for each
    ``[e^k, e^(k+1))``. This is the concentration in Durand et al. (2018), Theorem 3, without slack.
    """
    interval = 1 + math.floor(math.log(t))
    L = math.log(1 / delta) + math.log(math.pi**2 * interval**2 / 6)
    spread = 2 * _ETA * math.sqrt(t * L)
    return t - spread, t + spread + 2 * L


def averaged(t: int, delta: float, strict: bool) -> tuple[float, float]:
    """Return the energies at which averages of the supermartingales over g reach ``1 / delta``.

    The average is one supermartingale, so Ville's inequality is tighter than a union bound over the
    grid of g, and than ``stitched``.

    Args:
        t: Number of noises.
        delta: Probability that the lower bound fails at any time; the same for the upper bound.
        strict: The assumption on the noise. True: it is strictly sub-Gaussian. False, a stronger
            assumption: it also has no more mass near zero than Gaussian noise.
    """
    level = math.log(1 / delta)
    least_logs: list[float] = []
    for g in LEAST_RATES:
        if strict:
            log_L = math.log((2 + math.exp(-3 * g)) / 3)
        else:
            log_L = -0.5 * math.log1p(2 * g)
        least_logs.append(-t * log_L)
    most_logs = [0.5 * t * math.log1p(-2 * g) for g in MOST_RATES]
    least = crossing(LEAST_RATES, least_logs, level)
    most = -crossing(MOST_RATES, most_logs, level)
    return least, most


def crossing(rates: Sequence[float], logs: Sequence[float], level: float) -> float:
    """Return the x at which ``ln mean_j exp(logs_j - rates_j x)`` falls to ``level``.

    All rates are positive. The function is convex and decreasing. So Newton's method, started where
    the first term alone has the level, increases to the root and never exceeds it.
    """
    log_count = math.log(len(logs))
    x = max((log - log_count - level) / rate for rate, log in zip(rates, logs, strict=True))
    for _ in range(50):
        terms = [log - rate * x for rate, log in zip(rates, logs, strict=True)]
        largest = max(terms)
        weights = [math.exp(term - largest) for term in terms]
        total = math.fsum(weights)
        excess = largest + math.log(total / len(terms)) - level
        step = excess * total / sum(map(mul, weights, rates))
        if step <= 1e-9 * abs(x):
            break
        x += step
    return x
