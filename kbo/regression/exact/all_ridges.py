"""The eigenbasis of a kernel matrix whose newest rows are a border: every ridge of an exact posterior.

Rows are scaled by the square roots of their counts: with ``C = diag(c)``,

    (K + ridge C^-1)^-1 = C^1/2 (C^1/2 K C^1/2 + ridge I)^-1 C^1/2,

so repeated points keep one decomposition for all ridges.
"""

from __future__ import annotations

import copy
from typing import Self

import torch
from torch import Tensor

from kbo.kernels import DenseKernel
from kbo.regression.exact.observations import Observations
from kbo.regression.numerics import differentiable_once
from kbo.regression.posterior import Posterior
from kbo.regression.resolvent import Number, Resolvent, Shifted, SpectralPath, SpectralRidges


def border_limit(basis: int) -> int:
    """Columns of the border at which the basis is refreshed: wide enough that eigendecompositions are rare."""
    return max(16, basis // 32)


class Eigenbasis(Resolvent):
    """``(K + a I)^-1`` over all rows of some observations, for every a.

    When the basis is refreshed depends on the blocks of the data alone, so a replayed run repeats every rounding.
    """

    def __init__(self, data: Observations, k: DenseKernel) -> None:
        self.data = data
        self.k = k
        self.rows: int = 0
        self._basis = 0
        self.values: Tensor = data.y[:0]
        self.vectors: Tensor = data.X.new_empty(0, 0)
        self.C, self.D = self.vectors, self.vectors
        self.target: tuple[Tensor, Tensor] = data.y[:0], data.y[:0]
        self.rest: Tensor = data.within
        self.grids: dict[tuple[float, ...], Shifted] = {}

    @torch.no_grad()
    def grown(self) -> Self:
        """Return the basis of all rows of the data; paths over this one stay what they are."""
        if self.rows == self.data.rows:
            return self
        basis = copy.copy(self)
        basis._grow()
        return basis

    def _grow(self) -> None:
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
        self.rest = self.data.within
        self.grids = {}

    def _decompose(self, basis: int) -> None:
        X = self.data.X[:basis]
        values, vectors = torch.linalg.eigh(self._scaled(self._scaled(self.k(X, X)).mT))
        self.values = values.clamp_min(0)  # K has no negative eigenvalue, rounding has
        self.vectors = self._scaled(vectors)
        self.C, self.D = X.new_empty(basis, 0), X.new_empty(0, 0)
        self.target = self.vectors.mT @ self.data.y[:basis], X.new_empty(0)
        self._basis = basis

    def _extend(self, start: int, stop: int) -> None:
        new, basis = self.data.X[start:stop], self._basis
        cross = self._scaled(self.k(new, self.data.X[:stop]), start).mT
        side = self._scaled(cross[basis:], basis)
        self.C = torch.cat([self.C, self.vectors.mT @ cross[:basis]], 1)
        self.D = torch.cat([torch.cat([self.D, side[: len(self.D)].mT]), side], 1)
        v, y = self.target
        self.target = v, torch.cat([y, self._scaled(self.data.y[start:stop].unsqueeze(-1), start).squeeze(-1)])

    def _scaled(self, rows: Tensor, start: int = 0) -> Tensor:
        """Return numbers [r q] of the rows of the data from ``start`` on, times the roots of their counts."""
        if self.data.uniform:
            return rows
        return self.data.counts[start : start + len(rows)].sqrt().unsqueeze(-1) * rows

    def covariance(self, prior: Number, form: Number, ridges: Number) -> Number:
        return prior - form

    def quad_of(self, rest: Number, form: Number, ridges: Number) -> Number:
        return rest + ridges * form

    def log_det(self, at: Shifted) -> Tensor:
        ridges = at.ridges.unsqueeze(-1)
        border = at.L.diagonal(dim1=-2, dim2=-1).square() / ridges
        return torch.log1p(self.values / ridges).sum(-1) + border.log().sum(-1)

    def rss(self, at: Shifted) -> Tensor:
        """The scaled residuals are ``a H^-1 y``."""
        return self.rest + at.ridges.square() * self.solved_square(at)

    def effective_dimension(self, at: Shifted) -> Tensor:
        """Rows less ``a Tr (K + a I)^-1``."""
        ridges, W, L, *_ = at
        identity = torch.eye(len(self.D), dtype=W.dtype, device=W.device).expand_as(L)
        WC = torch.linalg.solve_triangular(L, self.C.mT * W.unsqueeze(-2), upper=False)
        corner = torch.linalg.solve_triangular(L, identity, upper=False)
        trace = W.sum(-1) + WC.square().sum((-2, -1)) + corner.square().sum((-2, -1))
        return self.rows - ridges * trace

    def coordinates(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return the kernel columns of X [q d] in the basis [n0 q] and at the border [b q]."""
        p, border = _Coordinates.apply(X, self) if X.requires_grad else self.rotated(self.k(self.data.X, X))
        return p, self._scaled(border, self._basis)

    def rotated(self, cross: Tensor) -> tuple[Tensor, Tensor]:
        """Return kernel columns [n q] in the basis [n0 q], and their rows at the border [b q]."""
        return self.vectors.mT @ cross[: self._basis], cross[self._basis :]


class _Coordinates(torch.autograd.Function):
    """``rotated`` kernel columns of points [q d], with a gradient in few operations."""

    @staticmethod
    def forward(ctx, X: Tensor, basis: Eigenbasis) -> tuple[Tensor, Tensor]:
        cross, ctx.gradient = basis.k.with_gradient(basis.data.X, X)
        ctx.vectors = basis.vectors
        return basis.rotated(cross)

    @staticmethod
    @differentiable_once
    def backward(ctx, p: Tensor, border: Tensor):
        rows = p.mT.contiguous() @ ctx.vectors.mT  # for few points this order is up to three times as fast
        return ctx.gradient(torch.cat([rows.mT, border])), None


class ExactRidges(SpectralRidges):
    """Any ridges of an exact posterior with data."""

    resolvent: Eigenbasis

    def __init__(self, state: Posterior, basis: Eigenbasis) -> None:
        super().__init__(state)
        self.resolvent = basis

    def path(self, X: Tensor) -> SpectralPath:
        self.state.check(X)
        X, basis = X.reshape(-1, *X.shape[-2:]), self.resolvent
        variance = basis.k.diagonal(X)
        prior = basis.k(X, X) if X.shape[-2] > 1 else variance.unsqueeze(-1)
        return SpectralPath(basis, *basis.coordinates(X.reshape(-1, X.shape[-1])), prior, variance, basis.data.trace)
