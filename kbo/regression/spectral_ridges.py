"""Mean and covariance of points at every ridge, from one eigendecomposition of the data.

Used by ``across()``. Notation as in resolvent.py; p is the kernel column of x in the basis and at
the border.

On paper                                | in code
``mean(x) = p(x)'H^-1 y``               | ``SpectralRidges.grid``, ``at``
``cov(x, z) = k(x, z) - p(x)'H^-1 p(z)`` | ``SpectralRidges.grid``, ``at``

Each ridge costs O(n0 b (b + points)).
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kbo._base import devices
from kbo.errors import NotPositiveDefinite
from kbo.regression.all_ridges import AllRidges, InChunks, Moments, MomentsOnHost
from kbo.regression.numerics import block_of, clamped, warn_below_precision
from kbo.regression.resolvent import Resolvent, Shifted

_BLOCK = 2**20
"""Entries of the largest temporary, basis x points."""


def spectral_ridges(state: Any, resolvent: Resolvent, X: Tensor | None) -> AllRidges:
    """Return a posterior at any ridge, with groups of points X [... g d], or without points."""
    if X is None:
        return _without_points(state, resolvent)
    size = max(1, block_of(_BLOCK, X.device) // max(1, len(resolvent.vectors) * X.shape[-2]))
    if not X.requires_grad and X.shape[:-2].numel() > size:
        return InChunks(state, X, partial(_at_points, state, resolvent), size)
    return _at_points(state, resolvent, X.reshape(-1, *X.shape[-2:]))


def _at_points(state: Any, resolvent: Resolvent, X: Tensor) -> SpectralRidges:
    """Return a posterior at any ridge, with groups of points X [B g d], all at once."""
    X = X.to(resolvent.values.dtype)
    variance = resolvent.k.diagonal(X)
    prior = resolvent.k(X, X) if X.shape[-2] > 1 else variance.unsqueeze(-1)
    p, p_border = resolvent.coordinates(X.reshape(-1, X.shape[-1]))
    return SpectralRidges(state, resolvent, p, p_border, prior, variance)


def _without_points(state: Any, resolvent: Resolvent) -> SpectralRidges:
    """Return a posterior at any ridge, without points."""
    no_points = resolvent.values.new_empty(0, 1)
    p = resolvent.values.new_empty(len(resolvent.values), 0)
    p_border = resolvent.values.new_empty(len(resolvent.D), 0)
    return SpectralRidges(state, resolvent, p, p_border, no_points.unsqueeze(-1), no_points)


class SpectralRidges(AllRidges):
    """A posterior at any ridges, computed from a ``Resolvent``.

    Args:
        state: The posterior.
        resolvent: ``H(a)^-1``.
        p: Kernel columns of the groups in the basis, [n0 B g] or [n0 Bg].
        p_border: Kernel columns at the border, [b B g] or [b Bg].
        prior: Prior covariance of the groups, [B g g].
        variance: ``k(x, x)`` of the points, [B g]: computed variances are clamped from below.
    """

    def __init__(
        self,
        state: Any,
        resolvent: Resolvent,
        p: Tensor,
        p_border: Tensor,
        prior: Tensor,
        variance: Tensor,
    ) -> None:
        super().__init__(state)
        self.resolvent: Resolvent = resolvent
        self.prior: Tensor = prior
        self.variance: Tensor = variance
        self.trace: float = state.trace  # as the data are now
        self.p: Tensor = p.reshape(len(p), *variance.shape)
        self.p_border: Tensor = p_border.reshape(len(p_border), *variance.shape)

    def log_det(self, ridges: Sequence[float]) -> Tensor:
        return self._number(self.resolvent.log_det(self._grid(ridges)))

    def quad(self, ridges: Sequence[float]) -> Tensor:
        return self._number(self._grid(ridges).quad)

    def rss(self, ridges: Sequence[float]) -> Tensor:
        return self._number(self.resolvent.rss(self._grid(ridges)))

    def _grid(self, ridges: Sequence[float]) -> Shifted:
        """Return ``H(a)`` at ridges, with a warning where rounding errors are visible."""
        warn_below_precision(min(ridges), self.state.error.least_ridge)
        return self._shifted(ridges)

    def _shifted(self, ridges: Sequence[float]) -> Shifted:
        """Return ``H(a)`` at ridges; if it fails because k is no kernel, the error says so."""
        try:
            return self.resolvent.grid(ridges)
        except NotPositiveDefinite:
            self.state.error.refuse_no_kernel()
            raise

    def _number(self, value: Tensor) -> Tensor:
        """Return a number in the dtype of the data."""
        return value.to(self.state.like.dtype)

    def select(self, groups: Tensor) -> SpectralRidges:
        selected = copy.copy(self)
        selected.p = self.p[:, groups]
        selected.p_border = self.p_border[:, groups]
        selected.prior = self.prior[groups]
        selected.variance = self.variance[groups]
        return selected

    @torch.no_grad()
    def on_host(self, groups: Sequence[int]) -> MomentsOnHost:
        rows = torch.tensor(groups, dtype=torch.long, device=self.p.device)
        forms = self.resolvent.quadratic_forms(
            self.p.flatten(1).index_select(1, rows), self.p_border.flatten(1).index_select(1, rows)
        )
        prior, variance, constant = devices.on_host(
            self.prior.flatten().index_select(0, rows),
            self.variance.flatten().index_select(0, rows),
            self.resolvent.constant,
        )

        def at(ridge: float) -> tuple[np.ndarray, np.ndarray, float]:
            form = forms(ridge)
            least_variance = ridge / (ridge + self.trace) * variance  # as in numerics.clamped
            variances = np.maximum(prior - form.diagonal()[1:], least_variance)
            return form[0, 1:], variances, float(constant + ridge * form[0, 0])

        return at

    def at(self, ridges: Tensor) -> Moments:
        shifted = self.resolvent.shifted(ridges, checked=False)
        mean, covariance = self._joint(shifted)
        return self._moments_of(mean, covariance, shifted.quad)

    def grid(self, ridges: Sequence[float]) -> Moments:
        shifted = self._shifted(ridges)
        if self.p.shape[-1] == 1:  # groups of one point: all ridges in one product
            mean, covariance = self._single(shifted)
        else:
            at_each = [
                Shifted(*[field[i : i + 1] for field in shifted]) for i in range(len(ridges))
            ]
            means, covariances = zip(*map(self._joint, at_each), strict=True)
            mean = torch.stack(means)
            covariance = torch.stack(covariances)
        return self._moments_of(mean, covariance, shifted.quad.unsqueeze(-1))

    def _moments_of(self, mean: Tensor, covariance: Tensor, quad: Tensor) -> Moments:
        """Return moments in the dtype of the data."""
        return Moments(self._number(mean), self._number(covariance), self._number(quad))

    def _single(self, shifted: Shifted) -> tuple[Tensor, Tensor]:
        """Return mean [r B 1] and covariance [r B 1 1] of groups of one point."""
        C = self.resolvent.C
        y = self.resolvent.target[0]
        W = shifted.W
        p = self.p.squeeze(-1)  # [n0 B]
        e = self.p_border.squeeze(-1) - (W.unsqueeze(-2) * C.mT) @ p
        s = torch.linalg.solve_triangular(shifted.L, e, upper=False)  # [r b B]
        mean = (W * y) @ p + (shifted.s_y.unsqueeze(-2) @ s).squeeze(-2)
        form = W @ p.square() + s.square().sum(-2)
        ridges = shifted.ridges.unsqueeze(-1)
        variance = self.variance.squeeze(-1)
        covariance = clamped(variance - form, variance, ridges, self.trace)
        return mean.unsqueeze(-1), covariance.unsqueeze(-1).unsqueeze(-1)

    def _joint(self, shifted: Shifted) -> tuple[Tensor, Tensor]:
        """Return mean [B g] and covariance [B g g].

        ``shifted`` has one ridge for all groups, or one for each: its leading axis is 1 or B.
        """
        C = self.resolvent.C
        y = self.resolvent.target[0]
        n0, B, g = self.p.shape
        b = len(self.p_border)
        Wp = shifted.W.mT.unsqueeze(-1) * self.p
        e = self.p_border.reshape(b, B * g) - C.mT @ Wp.reshape(n0, B * g)
        if len(shifted.L) == 1:
            s = torch.linalg.solve_triangular(shifted.L[0], e, upper=False).reshape(b, B, g)
            mean_border = torch.tensordot(shifted.s_y[0], s, 1)
        else:
            e = e.reshape(b, B, g).movedim(0, 1)
            s = torch.linalg.solve_triangular(shifted.L, e, upper=False).movedim(0, 1)
            mean_border = torch.einsum("kb,bkg->kg", shifted.s_y, s)
        mean = torch.tensordot(y, Wp, 1) + mean_border
        if g == 1:
            form = (Wp * self.p).sum(0) + s.square().sum(0)  # [B 1]
            ridges = shifted.ridges.unsqueeze(-1)
            variance = clamped(self.variance - form, self.variance, ridges, self.trace)
            return mean, variance.unsqueeze(-1)
        form = torch.einsum("nkg,nkh->kgh", Wp, self.p) + torch.einsum("bkg,bkh->kgh", s, s)
        return mean, self.prior - form
