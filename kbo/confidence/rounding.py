"""Rounding in float64: bounds are widened by it, or have an objection where it is not small.

Bounds are ``mean +- width sqrt(variance)`` at some ridge a. With ``e = state.error.rounding.at(a)``
the error of the computed mean is at most ``e sqrt(variance quad / a)``; variance, quad and log_det
are wrong by a factor of at most 1 + e. All errors are relative to the standard deviation, so a
larger width accounts for them (docs/theory/rounding.md).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from kbo.regression import Error, Posterior, Rounding
from kbo.regression.error import Number

_UNKNOWN = 1e-3
"""Largest effect of an assumed error of the kernel that is ignored; a larger one is an objection."""

MOST = 0.01
"""Largest rounding error of a bound with a guarantee, relative to the standard deviation."""


def accounted(rounding: Rounding, ridge: Number) -> Number:
    """Return the rounding error at a ridge by which bounds are widened, at most ``MOST``."""
    e = rounding.at(ridge)
    if isinstance(e, Tensor):
        return e.clamp_max(MOST)
    return min(e, MOST)


def least_ridge(rounding: Rounding) -> float:
    """Return the least ridge at which the error is at most ``MOST``; infinite if there is none."""
    if rounding.flat >= MOST:
        return math.inf
    return rounding.steep / (MOST - rounding.flat)


def log_det_error(error: Error, ridge: float) -> float:
    """Return an upper bound of how much rounding has lowered the log-determinant at a ridge."""
    return math.sqrt(error.terms + 1) * accounted(error.rounding, ridge)


def radius_factor(e: float, terms: int, delta: float) -> float:
    """Return the factor by which an error e may have lowered the squared radius of a mixture.

    It is ``1 + l`` of docs/theory/rounding.md, "The bounds".
    """
    # The error of log_det is relative to the squared radius, which is at least 2 sigma^2 ln(1/delta).
    return 1 + (2 + math.sqrt(terms + 1) / (2 * math.log(1 / delta))) * e


def widened(state: Posterior, width: float | Tensor, quad: Tensor, ridge: float) -> Tensor:
    """Return ``(1 + 4 e) (width + e sqrt(quad / ridge))``, a width that accounts for rounding."""
    e = accounted(state.error.rounding, ridge)
    return (width + e * torch.sqrt(quad / ridge)) * (1 + 4 * e)


def objections(state: Posterior, ridge: float) -> list[str]:
    """Return the objections to a bound at a ridge: one if rounding is not small there."""
    error = state.error
    reasons = []
    e = error.rounding.at(ridge)
    if not e <= MOST:
        reasons.append(
            f"rounding at the ridge {ridge:.3g} may move the bounds by {e:.2g} of their width"
        )
    assumed = error.of_kernel()
    if assumed > 0 and not 4 * assumed * state.trace / ridge <= _UNKNOWN:
        reasons.append(
            f"the ridge {ridge:.3g} is small against the error that is assumed of a kernel whose "
            f"formula is unknown, {assumed:.2g} of k(x, x): use a larger ridge, or another kernel "
            "of GPyTorch"
        )
    return reasons
