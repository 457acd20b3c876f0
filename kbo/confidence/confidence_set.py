"""The confidence set F of a martingale mixture, and its radius R: Flynn & Reeb (2024), Sec. 4.

On paper, with s = noise_std^2, c = scale                                | in code
``a = s / c``, one ridge for each scale                                  | ``mixture_ridges``
``R^2 = quad(a) + s log_det(a) + 2 s ln(1/delta)`` (eq. 8)               | ``radius_of``
``R^2 = -2 s ln mean_a exp(-R^2(a) / (2 s))``, several scales            | ``radius_of``
the same of a posterior                                                  | ``squared_radius``
``F = {f : |f(x_1..n) - y| <= R, ||f|| <= B}`` (Lemma 4.2)               | ``ConfidenceSet``
``R^2(a) / a``, ``R^2(a) = (R + B sqrt|E|)^2 + a B^2 - quad(a)``         | ``squared_width``
``h(a; x) = mean(x; a) + sqrt(R^2(a) / a) sqrt(variance(x; a))``         | ``h``

With probability 1 - delta, ``|f(x_1..n) - y| <= R`` for all n at once. R does not depend on a bound
of the norm of f. docs/theory/mixtures.md has the proof for several scales.

h(a; x) is at least the maximum of f(x) over F, for every ridge a > 0 (Cor. 4.3, eq. 13). If
``R^2(a) < 0`` for some a, F is empty. E is the error of an approximate kernel matrix, zero for
exact posteriors. Every f in F fits the data within ``R + B sqrt|E|`` in the approximate features,
so the bounds are valid for any approximation (docs/theory/sketch.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from kbo._base import checks
from kbo.confidence import rounding
from kbo.errors import InvalidInput
from kbo.regression import AllRidges, Posterior, Rounding
from kbo.regression.error import Number

MIXED_SCALES = tuple(4.0**j for j in range(-3, 5))
"""Scales whose average is nearly as tight as the best of them (experiments/records/bounds.md)."""

Scale = float | Sequence[float]
"""The covariance scale c of a mixture, or several that are averaged."""

EXACT = Rounding(0.0, 0.0)
"""No rounding errors."""


class RidgeFit(NamedTuple):
    """The fit of a posterior at one ridge.

    Attributes:
        quad: ``quad(a)``, in squared units of the targets; an upper bound if the posterior is
            approximate.
        log_det: An upper bound of the exact ``log_det(a)``.
    """

    quad: float
    log_det: float


def squared_radius(state: Posterior, noise_std: float, delta: float, scale: Scale = 1.0) -> float:
    """Return the squared radius ``R^2`` of a martingale mixture, in squared units of the targets.

    With probability 1 - delta, ``|f(X) - y|^2 <= R^2`` for all n at once.

    Args:
        state: The posterior.
        noise_std: Sub-Gaussian constant of the noise, in units of the targets.
        delta: Probability that the bounds may fail.
        scale: Covariance scale c of the mixture, or several.
    """
    checks.instance("state", state, Posterior)
    delta = checks.probability("delta", delta)
    ridges = mixture_ridges(noise_std, scale)
    return radius_of(fits_at(state, ridges, len(ridges) > 1), noise_std, delta)


def radius_of(fits: Sequence[RidgeFit], noise_std: float, delta: float) -> float:
    """Return ``R^2`` of the mixture over one ridge, or of the average over several.

    The mean of Flynn & Reeb's martingales over the ridges is a martingale too. Its ``R^2`` exceeds
    that of the best of r ridges by at most ``2 s ln r``.

    Args:
        fits: The fits at the ridges, [r].
        noise_std: Sub-Gaussian constant of the noise.
        delta: Probability that the bounds may fail.
    """
    s = noise_std**2
    radii = [quad + s * (log_det + 2 * math.log(1 / delta)) for quad, log_det in fits]
    smallest = min(radii)  # subtracted, so that the mean cannot underflow
    mean = sum(math.exp((smallest - radius) / (2 * s)) for radius in radii) / len(radii)
    return smallest - 2 * s * math.log(mean)


def fits_at(state: Posterior, ridges: Sequence[float], spectral: bool) -> list[RidgeFit]:
    """Return the fits of a posterior at these ridges, [r].

    ``det(I + A + E) <= det(I + A) det(I + E)`` accounts for the error E of an approximate posterior.

    Args:
        state: The posterior.
        ridges: The ridges a, [r].
        spectral: Whether to use one eigenbasis, ``across()``, instead of one factorisation per
            ridge.
    """
    posterior = state.across() if spectral else AllRidges(state)
    table = torch.stack([posterior.quad(ridges), posterior.log_det(ridges)], -1)
    fits = []
    error = state.error
    for ridge, (quad, log_det) in zip(ridges, table.tolist(), strict=True):
        fits.append(RidgeFit(quad, log_det + error.log_det(ridge)))
    return fits


def mixture_ridges(noise_std: float, scale: Scale) -> list[float]:
    """Return ``a = noise_std^2 / c`` for every scale c, increasing, in units of the kernel."""
    noise_std = checks.positive("noise_std", noise_std)
    scales = checked_scale(scale)
    if not isinstance(scales, Sequence):
        return [noise_std**2 / scales]
    return sorted(noise_std**2 / c for c in scales)


def checked_scale(scale: Scale) -> Scale:
    """Return one scale as a float, or several as a tuple.

    Raises:
        InvalidInput: There is none, or one is not a finite number above zero.
    """
    if not isinstance(scale, Sequence) or isinstance(scale, (str, bytes, bytearray)):
        return checks.positive("scale", scale)  # pyright: ignore[reportArgumentType]
    if not scale:
        raise InvalidInput(
            "scale must be a number above zero or a sequence of at least one, got none."
        )
    return tuple(checks.positive("scale", c) for c in scale)


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
