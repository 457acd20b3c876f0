"""Bounds of the energy ``|xi|^2`` of t noises around ``t sigma^2``, at all times t at once.

The noise is Gaussian to second order: its variance is sigma^2 and ``E exp(g xi^2) <= (1 - 2 g sigma^2)^-1/2`` for every
``g < 1 / (2 sigma^2)`` of either sign, given the past. Gaussian and Rademacher noise are; noise of rare spikes is not.
(That it is sigma-sub-Gaussian is another assumption, of the bounds of the function.)
So ``exp(g |xi|^2 + (t / 2) ln(1 - 2 g sigma^2))`` is a supermartingale for every g. The three bounds differ in how they
choose g for all t at once. Each function returns least and most energy in units of sigma^2, each of which fails with
probability at most delta, ever.
"""

from __future__ import annotations

import math

_ETA = (math.exp(0.25) + math.exp(-0.25)) / 2
"""Factor for choosing one g for all of ``[e^k, e^(k+1))``."""

_LEAST_RATES = [2.0 * 2 ** (-i / 2) for i in range(24)]
_MOST_RATES = [0.45 * 2 ** (-i / 2) for i in range(24)]
"""-g and g in units of 1 / sigma^2: the smallest is the best one after about 10^7 rounds."""


def stitched(t: int, delta: float) -> tuple[float, float]:
    """Return ``t - 2 eta sqrt(t L)`` and ``t + 2 eta sqrt(t L) + 2 L``, with a g for each ``[e^k, e^(k+1))``.

    With ``L = ln(1/delta) + ln(pi^2 (1 + floor(ln t))^2 / 6)``; the concentration in Durand et al. (2018),
    Theorem 3, without slack.
    """
    L = math.log(1 / delta) + math.log(math.pi**2 * (1 + math.floor(math.log(t))) ** 2 / 6)
    spread = 2 * _ETA * math.sqrt(t * L)
    return t - spread, t + spread + 2 * L


def printed_deviation(t: int, delta: float) -> float:
    """Return ``C_t = ln(e/delta) (1 + c_t / ln(1/delta))`` with ``c_t = ln(pi^2 (1 + ln t)^2 / 6)``.

    Durand et al. (2018), Theorem 3; c_t is what the proof needs, in print it is infinite at t = 1.
    """
    c = math.log(math.pi**2 * (1 + math.log(t)) ** 2 / 6)
    return math.log(math.e / delta) * (1 + c / math.log(1 / delta))


def mixed(t: int, delta: float) -> tuple[float, float]:
    """Return the best of a fixed grid of g, each with an equal part of delta: tighter than ``stitched``.

    Ville's inequality for each supermartingale of the grid, and a union over the grid.
    """
    cost = math.log(len(_LEAST_RATES) / delta)
    least = max((0.5 * t * math.log1p(2 * g) - cost) / g for g in _LEAST_RATES)
    most = min((-0.5 * t * math.log1p(-2 * g) + cost) / g for g in _MOST_RATES)
    return least, most
