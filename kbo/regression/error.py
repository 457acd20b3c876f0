"""Errors of the numbers of a posterior: by an approximation of the kernel matrix, and by rounding.

``Error`` is the interface, and the error of an exact posterior. ``NystromError`` (sketch/error.py)
is the error of a sketch. Confidences widen their bounds by the errors, or give no guarantee.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

from torch import Tensor

from kbo.errors import NotPositiveDefinite
from kbo.kernels import is_positive_definite, least_error, measured_error

Number = TypeVar("Number", float, Tensor)

_MOST_COMPARED = 16
"""Number of locations, evenly spaced in their order, for comparing a kernel with float32."""

MOST_TESTED = 1000
"""Number of first locations of a sketch whose matrix is tested for negative eigenvalues."""


class Rounding(NamedTuple):
    """Relative error of numbers by rounding in float64, ``e(a) = flat + steep / a`` at ridge a.

    ``e = 4 (t + 1) u (t + 1 + Tr K / a) + 4 r Tr K / a`` for sums of t terms, ``u = 2^-53``, and an
    error r of the kernel relative to ``k(x, x)``. As long as e is small, the errors are

    * of variance and ``quad``: at most e times their value
    * of the mean: at most ``e sqrt(variance quad / a)``
    * of ``log_det``: at most ``sqrt(t + 1) e`` (docs/theory/rounding.md).
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
    """Bounds of the error of a posterior, by an approximate kernel matrix and by rounding.

    Confidences widen their bounds by it. K~ is the approximation of the kernel matrix K, ``E = K -
    K~ >= 0``. This class is for exact posteriors, E = 0. A subclass for approximate ones overrides
    the members that differ.

    Args:
        state: The posterior.

    Attributes:
        least_ridge: Smallest ridge at which log-determinants and variances are accurate.
        of_quad: Bound of the rounding error of ``quad`` and ``rss``, in squared units of y; zero if
            they are computed as sums of squares.
        of_coordinates: Error of the kernel because coordinates are rounded, relative to
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
        """Number of terms of the longest sum in the linear algebra, for ``rounding``."""
        return self.state.n

    @property
    def rounding(self) -> Rounding:
        """Error of the numbers by rounding."""
        return Rounding.of_algebra(self.terms, self.state.trace, self.of_coordinates)

    def of_kernel(self) -> float:
        """Return the assumed error of the kernel, relative to ``k(x, x)``; 0 for a known formula."""
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

        A negative one proves that the function is no kernel, so no theorem applies, because there is
        no RKHS. The matrix is K without the ridge, at all locations, for a sketch at the first
        ``MOST_TESTED``. It costs O(n^3) after new locations, and nothing where a theorem says that
        the function is a kernel. That a function which passes is a kernel remains an assumption
        (docs/theory/rounding.md).
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
        eigenvalue = state.least_eigenvalue(X)
        return eigenvalue if eigenvalue < -tolerance else 0.0

    def refuse_no_kernel(self) -> None:
        """Raise NotPositiveDefinite if the kernel matrix has a negative eigenvalue."""
        eigenvalue = self.negative_eigenvalue()
        if eigenvalue < 0:
            raise NotPositiveDefinite(f"{no_kernel(eigenvalue)}.")


def no_kernel(eigenvalue: float) -> str:
    """Return in words that a function is no kernel."""
    return (
        "the function is no kernel, so nothing is proved at any ridge or norm bound: its matrix on "
        f"the data has the eigenvalue {eigenvalue:.2g}, far beyond rounding, and that of a kernel "
        "has none below zero. Take another kernel; sums and products of kernels are kernels, "
        "differences are not"
    )
