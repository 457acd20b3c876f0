"""The eigenbasis of a kernel matrix whose newest rows are a border: every ridge of an exact posterior.

Rows are scaled by the square roots of their counts: with ``C = diag(c)``,

    (K + ridge C^-1)^-1 = C^1/2 (C^1/2 K C^1/2 + ridge I)^-1 C^1/2,

so repeated points keep one decomposition for all ridges.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kbo.kernels import DenseKernel
from kbo.regression.exact.observations import Observations
from kbo.regression.resolvent import Resolvent, border_limit


class Eigenbasis(Resolvent):
    """``(K + a I)^-1`` over all rows of some observations, for every a.

    When the basis is refreshed depends on the blocks of the data alone, so a replayed run repeats every rounding.

    Args:
        data: The observations.
        k: Their kernel.
    """

    def __init__(self, data: Observations, k: DenseKernel) -> None:
        self.data, self.k = data, k
        self.rows = self._basis = 0
        empty = data.X.new_empty(0, 0)
        self.values, self.vectors, self.C, self.D = data.y[:0], empty, empty, empty
        self.grow()

    @torch.no_grad()
    def grow(self) -> None:
        """Take in all rows of the data."""
        basis, border = self._basis, []
        for start, stop in self.data.blocks_after(self.rows):
            if stop - basis > border_limit(basis):
                basis, border = stop, []
            else:
                border.append((start, stop))
            self.rows = stop
        if basis != self._basis:
            self._decompose(basis)
        for start, stop in border:
            self._extend(start, stop)
        self._project()
        self.memory = {}

    def _decompose(self, basis: int) -> None:
        X, scale = self.data.X[:basis], self._scale[:basis]
        values, self.vectors = torch.linalg.eigh(scale * self.k(X, X) * scale.mT)
        self.values = values.clamp_min(0)  # K has no negative eigenvalue, rounding has
        self.C, self.D = X.new_empty(basis, 0), X.new_empty(0, 0)
        self._basis = basis

    def _extend(self, start: int, stop: int) -> None:
        new, scale = self.data.X[start:stop], self._scale
        cross = scale[:start] * self.k(self.data.X[:start], new) * scale[start:stop].mT
        self.C = torch.cat([self.C, self.vectors.mT @ cross[: self._basis]], 1)
        side = cross[self._basis :]
        corner = scale[start:stop] * self.k(new, new) * scale[start:stop].mT
        self.D = torch.cat([torch.cat([self.D, side], 1), torch.cat([side.mT, corner], 1)])

    def _project(self) -> None:
        y = (self._scale * self.data.y.unsqueeze(-1)).squeeze(-1)
        self.target = self.vectors.mT @ y[: self._basis], y[self._basis :]
        self.rest = self.data.within

    @property
    def _scale(self) -> Tensor:
        return self.data.counts.sqrt().unsqueeze(-1)

    def border(self, ridges: Tensor) -> Tensor:  # noqa: D102
        identity = torch.eye(len(self.D), dtype=self.D.dtype, device=self.D.device)
        return self.D + ridges.reshape(-1, 1, 1) * identity

    def covariance(self, prior: Tensor, form: Tensor, ridges: Tensor) -> Tensor:  # noqa: D102
        return prior - form

    def quad_of(self, form: Tensor, ridges: Tensor) -> Tensor:  # noqa: D102
        return self.rest + ridges * form

    def log_det(self, ridges: Tensor) -> Tensor:
        """``ln det(I + K / a)``, [r]."""
        _, L = self.factored(ridges)
        border = L.diagonal(dim1=-2, dim2=-1).square() / ridges.unsqueeze(-1)
        return torch.log1p(self.values / ridges.unsqueeze(-1)).sum(-1) + border.log().sum(-1)

    def rss(self, ridges: Tensor) -> Tensor:
        """``|y - mean(X)|^2``, [r]: the scaled residuals are ``a H^-1 y``."""
        return self.rest + ridges.square() * self.solved_square(ridges)

    def effective_dimension(self, ridges: Tensor) -> Tensor:
        """``Tr K (K + a I)^-1``, [r]: rows less ``a Tr (K + a I)^-1``."""
        W = self.weights(ridges)
        L = self.schur(ridges, W)
        identity = torch.eye(len(self.D), dtype=W.dtype, device=W.device).expand_as(L)
        WC = torch.linalg.solve_triangular(L, self.C.mT * W.unsqueeze(-2), upper=False)
        corner = torch.linalg.solve_triangular(L, identity, upper=False)
        trace = W.sum(-1) + WC.square().sum((-2, -1)) + corner.square().sum((-2, -1))
        return self.rows - ridges * trace

    def coordinates(self, cross: Tensor) -> tuple[Tensor, Tensor]:
        """Kernel columns ``k(rows, points)`` [rows q] in the basis [n0 q] and at the border [b q]."""
        cross = self._scale * cross
        return self.vectors.mT @ cross[: self._basis], cross[self._basis :]

    def whitened(self, cross: Tensor, ridge: Tensor) -> tuple[Tensor, Tensor]:
        """Mean [q] and W [rows q] with posterior covariance ``k - W'W``, from kernel columns [rows q]."""
        parts = self.whiten(*self.coordinates(cross), ridge)
        return self._mean(parts, ridge), torch.cat(parts)

    def _mean(self, parts: tuple[Tensor, Tensor], ridge: Tensor) -> Tensor:
        v, y = self.target
        zv, zy = self.whiten(v.unsqueeze(-1), y.unsqueeze(-1), ridge)
        return (zv.mT @ parts[0] + zy.mT @ parts[1]).squeeze(0)

    def fork(self, data: Observations) -> Eigenbasis:
        """A copy that follows other data; tensors are never changed in place, so they are shared."""
        copy = object.__new__(Eigenbasis)
        vars(copy).update(vars(self))
        copy.data, copy.memory = data, {}
        return copy
