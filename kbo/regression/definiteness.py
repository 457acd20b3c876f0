"""Whether a function is a kernel, as far as data can tell: its matrix has no negative eigenvalue.

A posterior factors ``K + ridge I``, which succeeds as long as the ridge hides negative eigenvalues
of K. Then there is no space of functions whose norm a theorem could bound. So K itself is factored
here, shifted by what rounding may do to it, which bounds account for (docs/theory/rounding.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Prior = Callable[[Tensor, Tensor], Tensor]
"""A function ``k(X, Z)``, [n m] for X [n d] and Z [m d]."""

_SMALLEST = 1e-300
"""The shift of a matrix of zeros."""


@dataclass(frozen=True)
class Definiteness:
    """The result of a test of the kernel matrix K of some locations.

    Attributes:
        X: The locations [n d], in float64.
        factor: The Cholesky factor of ``K + tolerance I``, [n n]; empty if there is none.
        tolerance: The shift, at least the rounding error of K, in units of the kernel.
        eigenvalue: The least eigenvalue of K if it is below ``-tolerance``, else 0.
    """

    X: Tensor
    factor: Tensor
    tolerance: float
    eigenvalue: float = 0.0

    def covers(self, X: Tensor, tolerance: float) -> bool:
        """Return whether X [r d] begins with the locations, and the shift is large enough."""
        n = len(self.X)
        if tolerance > self.tolerance or n > len(X) or X.shape[1:] != self.X.shape[1:]:
            return False
        return X.device == self.X.device and torch.equal(X[:n], self.X)


@torch.no_grad()
def definiteness_of(
    prior: Prior, X: Tensor, tolerance: float, before: Definiteness | None = None
) -> Definiteness:
    """Test the kernel matrix of the locations X [n d], in float64.

    O(n^2) for each new location if ``before`` is of the first of them, else O(n^3).

    Args:
        prior: The function ``k``.
        X: The locations.
        tolerance: The rounding error of K, in units of the kernel.
        before: The result of an earlier test.
    """
    if before is None or not before.covers(X, tolerance):
        # Twice the shift that is needed: it is enough until there are about half as many more.
        shift = max(2 * tolerance, _SMALLEST)
        before = Definiteness(X[:0], X.new_empty(0, 0), shift)
    n = len(before.X)
    if n == len(X) or before.eigenvalue < 0:  # more rows do not raise the least eigenvalue
        return before
    shift = before.tolerance
    new = X[n:]
    cross = torch.linalg.solve_triangular(before.factor, prior(before.X, new), upper=False)
    schur = prior(new, new) - cross.mT @ cross
    schur.diagonal().add_(shift)
    corner, failed_row = torch.linalg.cholesky_ex(schur)
    if int(failed_row) == 0:
        factor = X.new_empty(len(X), len(X))
        factor[:n, :n] = before.factor
        factor[:n, n:] = 0
        factor[n:, :n] = cross.mT
        factor[n:, n:] = corner
        return Definiteness(X.clone(), factor, shift)
    K = prior(X, X)
    if not bool(K.isfinite().all()):
        return before  # other errors say so
    least = float(torch.linalg.eigvalsh(K)[0])
    if least < -tolerance:
        return Definiteness(X.clone(), X.new_empty(0, 0), shift, least)
    return before


def no_kernel(eigenvalue: float) -> str:
    """Return in words that a function is no kernel."""
    return (
        "the function is no kernel, so nothing is proved at any ridge or norm bound: its matrix on "
        f"the data has the eigenvalue {eigenvalue:.2g}, far beyond rounding, and that of a kernel "
        "has none below zero. Take another kernel; sums and products of kernels are kernels, "
        "differences are not"
    )
