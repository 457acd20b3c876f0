"""Rounding in float64: bounds are widened by what it may do to them, and objected to where that is not small.

Bounds are stated as ``mean +- width sqrt(variance)`` at some ridge a. With ``e = state.error.rounding.at(a)`` the
computed mean is off by at most ``e sqrt(variance quad / a)``, and the others by a factor of at most 1 + e: all of it is
relative to the standard deviation, so a wider width accounts for it (docs/theory/rounding.md).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from kbo.regression import Error, Posterior, Rounding
from kbo.regression.provenance import Number

_UNKNOWN = 1e-3
"""Largest effect of an error of the kernel that is assumed, not proved: bounds are not widened by it."""

MOST = 0.01
"""Largest rounding error of a bound with a guarantee, relative to the standard deviation."""


def accounted(rounding: Rounding, ridge: Number) -> Number:
    """Return the error of rounding at a ridge as it is accounted for: at most ``MOST``."""
    e = rounding.at(ridge)
    return e.clamp_max(MOST) if isinstance(e, Tensor) else min(e, MOST)


def least_ridge(rounding: Rounding) -> float:
    """Return the least ridge at which the error is at most ``MOST``; infinite if it is larger at all of them."""
    return rounding.steep / (MOST - rounding.flat) if rounding.flat < MOST else math.inf


def log_det_error(error: Error, ridge: float) -> float:
    """Return what rounding may have taken from the log-determinant at a ridge."""
    return math.sqrt(error.terms + 1) * accounted(error.rounding, ridge)


def radius_factor(e: float, terms: int, delta: float) -> float:
    """Return the factor by which an error e may have lowered the squared radius of a mixture.

    It is ``1 + l`` of docs/theory/rounding.md, "The bounds".
    """
    # It is at least 2 sigma^2 ln(1/delta), against which the error of log_det is measured.
    return 1 + (2 + math.sqrt(terms + 1) / (2 * math.log(1 / delta))) * e


def widened(state: Posterior, width: float | Tensor, quad: Tensor, ridge: float) -> Tensor:
    """Return ``(1 + 4 e) (width + e sqrt(quad / ridge))``: with this width bounds contain those without rounding."""
    e = accounted(state.error.rounding, ridge)
    return (width + e * torch.sqrt(quad / ridge)) * (1 + 4 * e)


def objections(state: Posterior, ridge: float) -> list[str]:
    """Return the objection to a bound that reads the posterior at a ridge where rounding is not small."""
    error = state.error
    e = error.rounding.at(ridge)
    reasons = [
        f"rounding at the ridge {ridge:.3g} may move the bounds by {e:.2g} of their width"
    ] * (not e <= MOST)
    if (assumed := error.of_kernel()) and not 4 * assumed * state.trace / ridge <= _UNKNOWN:
        reasons.append(
            f"the ridge {ridge:.3g} is small against the error that is assumed of a kernel whose formula is "
            f"unknown, {assumed:.2g} of k(x, x): use a larger ridge, or another kernel of GPyTorch"
        )
    return reasons
