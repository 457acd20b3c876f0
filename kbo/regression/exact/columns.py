"""Moments of an exact posterior at fixed points, updated row by row, for ``FixedPoints``.

Notation as in kernel_ridge.py: A = K + ridge C^-1 = L L', z = L^-1 y, and W = L^-1 k(X, P) [n A]
for fixed points P [A d]. A new row ``[l', p]`` of L and a new entry z_new of z add the row w to W.
This costs O(n A), a solve O(n^2 A):

    w = (k(x_new, P) - l'W) / p,    mean += z_new w,    variance -= w^2.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kbo._base.linalg import GrowingTensor
from kbo._base.stateful import Stateful
from kbo.regression.all_ridges import AllRidges
from kbo.regression.exact.eigenbasis import Eigenbasis
from kbo.regression.numerics import clamped, keep_latest
from kbo.regression.posterior import Columns
from kbo.regression.spectral_ridges import SpectralRidges

_MOST_RIDGES = 4
"""Number of ridges at which W is kept; the least recently used one is dropped."""


class ExactColumns(Columns):
    """Mean and variance of a ``KernelRidge`` at fixed points, [A].

    It keeps O(n A) numbers for each ridge in use, and O(n A) for ``across``: the kernel columns of
    the points in the eigenbasis.
    """

    def __init__(self, state: Any, points: Tensor) -> None:
        super().__init__(state, points)
        self.prior: Tensor = state.prior_variance(points)
        self._moments: dict[float, _Moments] = {}
        self._in_eigenbasis: _KernelColumns | None = None

    def predict(self, ridge: float) -> tuple[Tensor, Tensor]:
        moments = self._updated(ridge)
        variance = clamped(moments.variance, self.prior, ridge, self.state.trace)
        return moments.mean.clone(), variance

    @torch.no_grad()
    def _updated(self, ridge: float) -> _Moments:
        """Return the moments at a ridge after all rows of the data."""
        data = self.state.data
        k = self.state.dense_kernel
        factor = self.state.factor(ridge)
        moments = self._moments.pop(ridge, None)
        if moments is None or moments.layout != data.layout:
            moments = _Moments(data.layout, self.prior)
        for start, stop in data.blocks_after(moments.W.n):
            rectangle, corner = factor.rows(start, stop)
            columns = k(data.X[start:stop], self.points) - rectangle @ moments.W.value
            w = torch.linalg.solve_triangular(corner, columns, upper=False)
            moments.W.append(w)
            moments.mean = moments.mean + factor.z[start:stop] @ w
            moments.variance = moments.variance - w.square().sum(0)
        keep_latest(self._moments, ridge, moments, _MOST_RIDGES)
        return moments

    @torch.no_grad()
    def across(self) -> AllRidges:
        basis = self.state.basis()
        columns = self._in_eigenbasis
        if columns is None or columns.vectors is not basis.vectors:
            columns = _KernelColumns(basis, self.points)
            self._in_eigenbasis = columns
        columns.extend(basis, self.points)
        variance = self.prior.unsqueeze(-1)
        prior = variance.unsqueeze(-1)
        return SpectralRidges(self.state, basis, columns.p, columns.border.value, prior, variance)


class _KernelColumns(Stateful):
    """The kernel columns of the points in an eigenbasis and at its border.

    Attributes:
        vectors: The eigenvectors of the basis, by which a change of basis is noticed.
        p: The kernel columns in the basis, [n0 A].
        border: The kernel columns at the border, [b A].
    """

    def __init__(self, basis: Eigenbasis, points: Tensor) -> None:
        p, border = basis.coordinates(points)
        self.vectors: Tensor = basis.vectors
        self.p: Tensor = p
        self.border: GrowingTensor = GrowingTensor(border)

    def extend(self, basis: Eigenbasis, points: Tensor) -> None:
        """Add the rows of the data that the border has gained."""
        start = len(self.p) + self.border.n
        rows = basis.k(basis.data.X[start:], points)
        self.border.append(basis.data.counts[start:].sqrt().unsqueeze(-1) * rows)


class _Moments(Stateful):
    """W, and mean and variance of the points, at one ridge, after the first n rows of the data.

    Attributes:
        layout: The version of the rows of the data from which W was computed.
        W: ``L^-1 k(X, P)``, [n A].
        mean: The mean at the points, [A].
        variance: The variance at the points, [A].
    """

    def __init__(self, layout: int, prior: Tensor) -> None:
        self.layout: int = layout
        self.W: GrowingTensor = GrowingTensor(prior.new_empty(0, len(prior)))
        self.mean: Tensor = torch.zeros_like(prior)
        self.variance: Tensor = prior
