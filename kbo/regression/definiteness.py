"""A test of whether a function is a kernel: its matrix K on the data has no negative eigenvalue.

If K has one, no theorem applies, because there is no RKHS. The factor of ``K + ridge I`` does not
show it when the ridge is large. So this test factors K itself, plus a shift for rounding, for which
bounds account (docs/theory/rounding.md).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from kbo._base.linalg import GrowingCholesky
from kbo._base.stateful import Stateful
from kbo.errors import NotPositiveDefinite

Prior = Callable[[Tensor, Tensor], Tensor]
"""A function ``k(X, Z)``, [n m] for X [n d] and Z [m d]."""

_SMALLEST = 1e-300
"""The shift of a matrix of zeros."""


class Definiteness(Stateful):
    """A test of the kernel matrix K of locations, in float64, for negative eigenvalues.

    It can be extended by further locations, O(n^2) for each.

    Args:
        like: Any points with the device and the number of columns of the locations.
        tolerance: The rounding error of K, in units of the kernel.

    Attributes:
        X: The locations whose rows are in the factor, [n d].
        shift: What is added to the diagonal of K, in units of the kernel.
        factor: The Cholesky factor of ``K + shift I``.
        eigenvalue: The least eigenvalue of K if it was found below ``-tolerance``, else 0.
    """

    def __init__(self, like: Tensor, tolerance: float) -> None:
        self.X: Tensor = like[:0]
        # Twice the shift that is needed: it stays enough until n has grown by about half.
        self.shift: float = max(2 * tolerance, _SMALLEST)
        self.factor = GrowingCholesky(like)
        self.eigenvalue: float = 0.0

    def covers(self, X: Tensor, tolerance: float) -> bool:
        """Return whether X [r d] begins with the locations, and the shift is large enough."""
        n = len(self.X)
        if tolerance > self.shift or n > len(X) or X.shape[1:] != self.X.shape[1:]:
            return False
        return X.device == self.X.device and torch.equal(X[:n], self.X)

    @torch.no_grad()
    def extend(self, prior: Prior, X: Tensor, tolerance: float) -> None:
        """Test the locations X [r d], which begin with those tested before.

        Args:
            prior: The function ``k``.
            X: The locations.
            tolerance: The rounding error of K, in units of the kernel.
        """
        n = len(self.X)
        if n == len(X) or self.eigenvalue < 0:  # more rows never raise the least eigenvalue
            return
        new = X[n:]
        targets = X.new_zeros(len(new))
        try:
            self.factor.append(prior(self.X, new), prior(new, new), self.shift, targets)
        except NotPositiveDefinite:
            K = prior(X, X)
            if bool(K.isfinite().all()):  # otherwise the posterior raises an error
                least_eigenvalue = float(torch.linalg.eigvalsh(K)[0])
                if least_eigenvalue < -tolerance:
                    self.eigenvalue = least_eigenvalue
        self.X = X[: self.factor.n].clone()


def no_kernel(eigenvalue: float) -> str:
    """Return in words that a function is no kernel."""
    return (
        "the function is no kernel, so nothing is proved at any ridge or norm bound: its matrix on "
        f"the data has the eigenvalue {eigenvalue:.2g}, far beyond rounding, and that of a kernel "
        "has none below zero. Take another kernel; sums and products of kernels are kernels, "
        "differences are not"
    )
