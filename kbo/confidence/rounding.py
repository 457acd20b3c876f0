"""Rounding in float64: bounds are widened by what it may do to them, and objected to where that is not small.

Bounds are stated as ``mean +- width sqrt(variance)`` at some ridge a. With ``e = state.error.rounding(a)`` the computed
mean is off by at most ``e sqrt(variance quad / a)``, and the others by a factor of at most 1 + e: all of it is relative
to the standard deviation, so a wider width accounts for it (docs/theory/rounding.md).
"""

from __future__ import annotations

import math
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from kbo import regression
from kbo.regression import Posterior

_UNKNOWN = 1e-3
"""Largest effect of an error of the kernel that is assumed, not proved: bounds are not widened by it."""

MOST = 0.01
"""Largest rounding error of a bound with a guarantee, relative to the standard deviation."""


Number = TypeVar("Number", float, Tensor)


class Error(NamedTuple):
    """The error of a posterior as a function of the ridge, ``flat + steep / ridge``, in plain numbers."""

    flat: float
    steep: float

    @classmethod
    def through(cls, at_infinity: float, at_one: float) -> Error:
        """Return the error that has these values at an infinite ridge and at 1."""
        return cls(at_infinity, at_one - at_infinity)

    def at(self, ridge: Number) -> Number:
        """Return the error as it is accounted for: at most ``MOST``."""
        e: Number = self.flat + self.steep / ridge
        return e.clamp_max(MOST) if isinstance(e, Tensor) else min(e, MOST)

    @property
    def least_ridge(self) -> float:
        """The least ridge at which it is at most ``MOST``: 0 if no ridge is too small, infinite if all are."""
        return self.steep / (MOST - self.flat) if self.flat < MOST else math.inf


def accounted(error: regression.Error, ridge: float | Tensor) -> Tensor:
    """Return the error of rounding at a ridge as it is accounted for: at most ``MOST``."""
    return torch.clamp_max(error.rounding(ridge), MOST)


def endpoints(error: regression.Error) -> tuple[Tensor, Tensor]:
    """Return the error at an infinite ridge and at 1, for the caller to read and make an ``Error`` of."""
    return error.rounding(math.inf), error.rounding(1.0)


def log_det_error(error: regression.Error, ridge: float) -> Tensor:
    """Return what rounding may have taken from the log-determinant at a ridge, []."""
    return math.sqrt(error.terms + 1) * accounted(error, ridge)


def radius_factor(e: float, terms: int, delta: float) -> float:
    """Return the factor by which an error e may have lowered the squared radius of a mixture.

    It is ``1 + l`` of docs/theory/rounding.md, "The bounds".
    """
    # It is at least 2 sigma^2 ln(1/delta), against which the error of log_det is measured.
    return 1 + (2 + math.sqrt(terms + 1) / (2 * math.log(1 / delta))) * e


def widened(e: Tensor, width: float | Tensor, quad: Tensor, ridge: float | Tensor) -> Tensor:
    """Return ``(1 + 4 e) (width + e sqrt(quad / ridge))``: with this width bounds contain those without rounding."""
    return (width + e * torch.sqrt(quad / ridge)) * (1 + 4 * e)


def objections(state: Posterior, ridge: float) -> list[str]:
    """Return the objection to a bound that reads the posterior at a ridge where rounding is not small."""
    error = state.error
    e = float(error.rounding(ridge))
    reasons = [f"rounding at the ridge {ridge:.3g} may move the bounds by {e:.2g} of their width"] * (not e <= MOST)
    if (assumed := error.of_kernel()) and not 4 * assumed * float(state.trace) / ridge <= _UNKNOWN:
        reasons.append(
            f"the ridge {ridge:.3g} is small against the error that is assumed of a kernel whose formula is "
            f"unknown, {assumed:.2g} of k(x, x): use a larger ridge, or another kernel of GPyTorch"
        )
    return reasons
