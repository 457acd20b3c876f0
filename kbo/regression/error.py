"""Errors of the numbers of a posterior: by an approximation of the kernel matrix, and by rounding.

``Error`` is the interface, for an exact posterior; ``NystromError`` (sketch/error.py) is that of a
sketch. Confidences add the errors to their bounds, or refuse a guarantee.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

from torch import Tensor

from kbo.errors import NotPositiveDefinite
from kbo.kernels import is_positive_definite, least_error, measured_error
from kbo.regression.definiteness import no_kernel

Number = TypeVar("Number", float, Tensor)

_MOST_COMPARED = 16
"""Locations at which a kernel is compared with itself in float32, evenly spaced in their order."""

MOST_TESTED = 1000
"""Locations of a sketch whose kernel matrix is tested for negative eigenvalues: the first ones."""


class Rounding(NamedTuple):
    """Relative error of numbers by rounding in float64, ``e(a) = flat + steep / a`` at ridge a.

    ``e = 4 (t + 1) u (t + 1 + Tr K / a) + 4 r Tr K / a`` for sums of t terms, ``u = 2^-53``, and an
    error r of the kernel relative to ``k(x, x)``. As long as e is small, variance and ``quad`` are
    within e times themselves of their values in exact arithmetic, the mean is within ``e
    sqrt(variance quad / a)`` and ``log_det`` within ``sqrt(t + 1) e``; see docs/theory/rounding.md.
    """

    flat: float
    steep: float

    @classmethod
    def of_algebra(cls, terms: int, trace: float, kernel_error: float = 0.0) -> Rounding:
        """Return e for sums of this many terms, ``Tr K``, and an error of the kernel."""
        t = terms + 1
        u = 2.0**-53
        return cls(flat=4 * t * u * t, steep=4 * (t * u + kernel_error) * trace)

    def at(self, ridge: Number) -> Number:
        """Return e at a ridge."""
        return self.flat + self.steep / ridge


class Error:
    """How far a posterior may be off, by an approximate kernel matrix and by rounding.

    Bounds are widened by it. K~ is the approximation of the kernel matrix K, ``E = K - K~ >= 0``.
    This class is that of an exact posterior, E = 0; approximate ones override the members that
    differ.

    Args:
        state: The posterior.

    Attributes:
        least_ridge: Smallest ridge at which log-determinants and variances keep their digits.
        of_quad: Bound of the rounding of ``quad`` and ``rss``, in squared units of y; zero for sums
            of squares.
        of_coordinates: Error of the kernel by rounding of the coordinates of the data, relative to
            ``k(x, x)``.
    """

    least_ridge: float = 0.0
    of_quad: float = 0.0
    of_coordinates: float = 0.0

    def __init__(self, state: Any) -> None:
        self.state = state

    @property
    def trace(self) -> float:
        """``Tr E``."""
        return 0.0

    def norm(self) -> float:
        """Return an upper bound of the operator norm of E."""
        return 0.0

    def log_det(self, ridge: float) -> float:
        """Return an upper bound of ``ln det(I + E / ridge)``, never above ``Tr E / ridge``."""
        return 0.0

    @property
    def terms(self) -> int:
        """Number of terms of the longest sum of the algebra, in which rounding piles up."""
        return self.state.n

    @property
    def rounding(self) -> Rounding:
        """Error of the numbers by rounding."""
        return Rounding.of_algebra(self.terms, self.state.trace, self.of_coordinates)

    def of_kernel(self) -> float:
        """Return the error assumed of a kernel of unknown formula, relative to ``k(x, x)``.

        It is zero if the formula is known.
        """
        kernel = self.state.kernel
        locations = self.state.locations
        if kernel is None or locations is None:
            return 0.0
        X, _ = locations
        if not len(X):
            return 0.0
        step = -(-len(X) // _MOST_COMPARED)
        return measured_error(kernel, X[::step])

    def negative_eigenvalue(self) -> float:
        """Return the least eigenvalue of the kernel matrix if it is below zero beyond rounding, else 0.

        A negative one proves that the function is no kernel. The matrix is that of the locations,
        without ridge; of a sketch up to ``MOST_TESTED`` locations. O(n^2) for each new location;
        nothing is computed where a theorem says that the function is a kernel.
        """
        state = self.state
        if state.locations is None or state.batch_shape or is_positive_definite(state.kernel):
            return 0.0
        X = state.locations[0].double()
        if state.anchors is not None:
            X = X[:MOST_TESTED]
        least = least_error(state.kernel, state.like.dtype)
        kernel_error = max(least, self.of_coordinates + self.of_kernel())
        trace = float(state.prior_variance(X).sum())
        tolerance = Rounding.of_algebra(len(X), trace, kernel_error).steep
        return state.negative_eigenvalue(X, tolerance)

    def refuse_no_kernel(self) -> None:
        """Raise NotPositiveDefinite if the kernel matrix has a negative eigenvalue."""
        eigenvalue = self.negative_eigenvalue()
        if eigenvalue < 0:
            raise NotPositiveDefinite(f"{no_kernel(eigenvalue)}.")
