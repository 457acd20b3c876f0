"""The growing Cholesky factor of a kernel matrix at one ridge."""

from __future__ import annotations

import torch
from torch import Tensor

from kbo.linalg import GrowingCholesky, GrowingTensor
from kbo.regression.exact.observations import Observations


class Factor:
    """L, z = L^-1 y and the running determinant for one ridge; the notation of ``exact.py``."""

    def __init__(self, ridge: float, data: Observations) -> None:
        self.ridge, self.data = ridge, data
        self.cholesky = GrowingCholesky(data.X)
        self.z = GrowingTensor(data.y[:0])
        self.log_det = data.within.new_zeros(())

    @property
    def n(self) -> int:
        """Rows so far."""
        return self.cholesky.n

    @property
    def quad(self) -> Tensor:
        """``y'(I + K / ridge)^-1 y``, []."""
        return self.data.within + self.ridge * self.z.value.square().sum()

    @torch.no_grad()
    def extend(self, stop: int, cross: Tensor, block: Tensor) -> None:
        """Take in the rows up to ``stop``, given their kernel columns."""
        start = self.n
        noise = self.ridge / self.data.counts[start:stop]
        regularised = block.clone()
        regularised.diagonal().add_(noise)
        self.cholesky.append(cross, regularised)
        left, corner = self.cholesky.rows(start, stop)
        rest = (self.data.y[start:stop] - left @ self.z.value).unsqueeze(-1)
        z = rest / corner if stop - start == 1 else torch.linalg.solve_triangular(corner, rest, upper=False)
        self.z.append(z.squeeze(-1))
        self.log_det = self.log_det + (corner.diagonal().square() / noise).log().sum()

    @torch.no_grad()
    def rss(self) -> Tensor:
        """``|y - mean(X)|^2``, in O(n^2): the residuals of the rows are ``ridge C^-1 A^-1 y``."""
        solved = self.cholesky.solve_transposed(self.z.value)
        return self.data.within + self.ridge**2 * (solved.square() / self.data.counts).sum()

    @torch.no_grad()
    def effective_dimension(self) -> Tensor:
        """``sum_r 1 - (ridge / c_r) [A^-1]_rr``: the sum of leverages over observations."""
        identity = torch.eye(self.n, dtype=self.data.X.dtype, device=self.data.X.device)
        inverse_diagonal = self.cholesky.solve(identity).square().sum(0)
        return (1 - self.ridge / self.data.counts * inverse_diagonal).sum()

    def fork(self, data: Observations) -> Factor:
        """A copy that grows with other data."""
        copy = object.__new__(Factor)
        copy.ridge, copy.data, copy.log_det = self.ridge, data, self.log_det
        copy.cholesky, copy.z = self.cholesky.fork(), self.z.fork()
        return copy
