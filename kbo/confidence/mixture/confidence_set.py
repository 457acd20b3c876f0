"""The confidence set F of a martingale mixture, and the upper bound h: Flynn & Reeb (2024), Sec. 4.

On paper                                                                | in code
``F = {f : |f(x_1..n) - y| <= R, ||f|| <= B}`` (Lemma 4.2)              | ``ConfidenceSet``
``R^2(a) / a``, ``R^2(a) = (R + B sqrt|E|)^2 + a B^2 - quad(a)``        | ``squared_width``
``h(a; x) = mean(x; a) + sqrt(R^2(a) / a) sqrt(variance(x; a))``        | ``h``

h(a; x) is at least the maximum of f(x) over F, for every ridge a > 0 (Cor. 4.3, eq. 13). If
``R^2(a) < 0`` for some a, F is empty. E is the error of an approximate kernel matrix, zero for
exact posteriors. Every f in F fits the data within ``R + B sqrt|E|`` in the approximate features,
so the bounds are valid for any approximation (docs/theory/sketch.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from kbo.confidence import rounding
from kbo.regression import Posterior, Rounding
from kbo.regression.error import Number

EXACT = Rounding(0.0, 0.0)
"""No rounding errors."""


@dataclass(frozen=True)
class ConfidenceSet:
    """The functions of norm at most B that fit the data to within R.

    With probability 1 - delta it contains f, for all n at once.

    Attributes:
        squared_radius: ``(R + B sqrt|E|)^2``, rounded up, in squared units of the targets.
        norm_bound: B, in units of the targets over sqrt(kernel).
        rounding: Relative error of the posterior's numbers by rounding.
    """

    squared_radius: float
    norm_bound: float
    rounding: Rounding = EXACT

    def squared_width(self, quad: Number, ridge: Number) -> Number:
        """Return ``R^2(a) / a``, rounded up; negative at a ridge a that proves F to be empty."""
        # (1 + 10 e) (S (1 + 5 e) - quad) / a with S = C + a B^2 is at least the square of the width
        # that accounts for the rounding errors (docs/theory/rounding.md).
        e = rounding.accounted(self.rounding, ridge)
        slack = (self.squared_radius + self.norm_bound**2 * ridge) * (1 + 5 * e) - quad
        return slack * (1 + 10 * e) / ridge


def h(mean: Any, deviation: Any, squared_width: Any) -> Any:
    """Return ``mean + sqrt(R^2(a) / a) sqrt(variance)``, an upper bound of f over F, [...].

    For a lower bound of f, call it with ``-mean`` and take the negative of the result.

    Args:
        mean: Mean at the ridge a, [...]; like the others a number, an array or a tensor.
        deviation: Square root of the variance, [...].
        squared_width: ``R^2(a) / a``, at least 0.
    """
    return mean + squared_width**0.5 * deviation


def confidence_set(
    state: Posterior, square: float, norm_bound: float, delta: float, a0: float
) -> ConfidenceSet:
    """Return the confidence set of a posterior, rounded up.

    Args:
        state: The posterior.
        square: ``R^2``, in squared units of the targets.
        norm_bound: B, in units of the targets over sqrt(kernel).
        delta: Probability that the set may miss f.
        a0: The least ridge at which the radius was computed.
    """
    error = state.error
    rounded = error.rounding
    e = rounding.accounted(rounded, a0)
    factor = rounding.radius_factor(e, error.terms, delta)
    C = factor * widened_squared_radius(square, norm_bound, error.norm())
    return ConfidenceSet(C, norm_bound, rounded)


def widened_squared_radius(square: float, norm_bound: float, error: float) -> float:
    """Return ``(R + B sqrt|E|)^2`` from ``R^2`` and ``|E|``."""
    return (math.sqrt(square) + norm_bound * math.sqrt(error)) ** 2
