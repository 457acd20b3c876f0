"""Answers of an exact posterior for a fixed set of points, after every observation.

A row of the factor turns into a row of ``W = L^-1 k(X, points)`` by one product, so mean and variance of A points
follow a new observation in O(n A) instead of O(n^2 A):

    w = (k(x_new, points) - l'W) / l_nn,   mean += z_new w,   variance -= w^2.

For every ridge at once, the coordinates of the points in the eigenbasis are kept as long as the basis is.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kbo.linalg import GrowingTensor
from kbo.regression.exact.all_ridges import Eigenbasis
from kbo.regression.numerics import clamped
from kbo.regression.posterior import MOST_JOINT, Followed
from kbo.regression.resolvent import SpectralPath
from kbo.regression.ridge_path import RidgePath
from kbo.stateful import Stateful

_MOST_RIDGES = 4
"""Ridges that are kept; the least recently used one is dropped and would be recomputed."""


class FollowedExact(Followed):
    """O(n A) numbers of memory for each ridge, and for the eigenbasis."""

    state: Any  # a KernelRidge, which makes this

    def __init__(self, state: Any, points: Tensor) -> None:
        super().__init__(state, points)
        self.prior: Tensor = state.prior_variance(points)
        self.columns: dict[float, _Columns] = {}
        self._vectors: Tensor | None = None  # of the eigenbasis in which the points are kept
        self._joint: Tensor | None = None

    def predict(self, ridge: float) -> tuple[Tensor, Tensor]:
        if self.state.data is None:
            return torch.zeros_like(self.prior), self.prior.clone()
        columns = self._current(ridge)
        return columns.mean.clone(), clamped(columns.variance, self.prior, ridge, self.state.data.trace)

    def covariance(self, ridge: float) -> Tensor:
        """Return the joint covariance [A A], in O(n A^2) for up to ``MOST_JOINT`` points."""
        if self.state.data is None or len(self.points) > MOST_JOINT:
            return super().covariance(ridge)
        W = self._current(ridge).W.value
        return self.joint_prior() - W.mT @ W

    def path(self) -> RidgePath:
        """Return the path of the points, whose coordinates follow the eigenbasis."""
        if self.state.data is None:
            return super().path()
        (basis, p, border), prior = self.in_basis(), self.prior.unsqueeze(-1)
        return SpectralPath(basis, p, border, prior.unsqueeze(-1), prior, basis.data.trace)

    @torch.no_grad()
    def in_basis(self) -> tuple[Eigenbasis, Tensor, Tensor]:
        """Return the eigenbasis, and the points in it [n0 A] and at its border [b A]."""
        basis = self.state.basis()
        if self._vectors is not basis.vectors:
            self._vectors, (self._p, border) = basis.vectors, basis.coordinates(self.points)
            self._border = GrowingTensor(border)
        start = len(self._p) + self._border.n
        new = basis.k(basis.data.X[start:], self.points)
        self._border.append(basis.data.counts[start:].sqrt().unsqueeze(-1) * new)
        return basis, self._p, self._border.value

    @torch.no_grad()
    def joint_prior(self) -> Tensor:
        """Return the prior covariance [A A], computed once."""
        joint = self._joint = self.state.prior(self.points, self.points) if self._joint is None else self._joint
        return joint

    @torch.no_grad()
    def _current(self, ridge: float) -> _Columns:
        factor = self.state.factor(ridge)
        data, columns = factor.data, self.columns.pop(ridge, None)
        if columns is None or columns.layout != data.layout:
            columns = _Columns(data.layout, self.prior)
        self.columns[ridge] = columns  # at the end of the dict: the most recently used
        if len(self.columns) > _MOST_RIDGES:
            del self.columns[next(iter(self.columns))]
        for start, stop in data.blocks_after(columns.W.n):
            left, corner = factor.cholesky.rows(start, stop)
            rest = factor.k(data.X[start:stop], self.points) - left @ columns.W.value
            w = torch.linalg.solve_triangular(corner, rest, upper=False)
            columns.W.append(w)
            columns.mean = columns.mean + factor.z[start:stop] @ w
            columns.variance = columns.variance - w.square().sum(0)
        return columns


class _Columns(Stateful):
    """W, mean and variance of the points at one ridge, for rows of one layout."""

    def __init__(self, layout: int, prior: Tensor) -> None:
        self.layout = layout
        self.W = GrowingTensor(prior.new_empty(0, len(prior)))
        self.mean, self.variance = torch.zeros_like(prior), prior
