"""The squared radius of a martingale mixture: Flynn & Reeb (2024), eq. 8.

On paper, with s = noise_std^2, c = scale                         | in code
``a = s / c``, one ridge for each scale                           | ``mixture_ridges``
``R^2 = quad(a) + s log_det(a) + 2 s ln(1/delta)``                | ``radius_of``
``R^2 = -2 s ln mean_a exp(-R^2(a) / (2 s))``, several scales     | ``radius_of``
the same of a posterior                                           | ``squared_radius``

With probability 1 - delta, ``|f(x_1..n) - y| <= R`` for all n at once. R does not depend on a bound
of the norm of f. docs/theory/mixtures.md has the proof for several scales.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch

from kbo._base import checks
from kbo.errors import InvalidInput
from kbo.regression import AllRidges, Posterior

MIXED_SCALES = tuple(4.0**j for j in range(-3, 5))
"""Scales whose average is nearly as tight as the best of them (experiments/records/bounds.md)."""

Scale = float | Sequence[float]
"""The covariance scale c of a mixture, or several that are averaged."""


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
