"""A posterior at every ridge, from one eigendecomposition of the data, for ``across()``.

The first n0 rows, ``K0 = Q diag(l) Q'``, are decomposed once. The b later rows form a border, whose
columns C are rotated by Q':

    H(a) = K + a I = [[diag(l) + a, C], [C', T]],     T = D + a I,     S = T - C' diag(1 / (l + a)) C.

With W = 1 / (l + a), block elimination gives, for vectors p and q in the basis and at the border,

    p'H^-1 q = sum_i p_i q_i W_i + e_p'S^-1 e_q,     e_p = p_border - C' diag(W) p.

With the kernel column p(x) of a point in the basis and at the border,

On paper                                                   | in code
``ln det(I + K / a) = sum ln(1 + l / a) + ln det(S / a)``  | ``Resolvent.log_det``
``y'(I + K / a)^-1 y = constant + a y'H^-1 y``             | ``Resolvent.shifted``
``|y - mean(X)|^2 = constant + a^2 |H^-1 y|^2``            | ``Resolvent.rss``
``mean(x) = p(x)'H^-1 y``                                  | ``SpectralRidges.grid``, ``at``
``cov(x, z) = k(x, z) - p(x)'H^-1 p(z)``                   | ``SpectralRidges.grid``, ``at``

Each ridge costs O(n0 b (b + points)). Two posteriors use this file: the exact one
(exact/eigenbasis.py) and the sketched one (``NystromSpectrum``, sketch/nystrom.py), which is exact
for the kernel matrix B'B and has no border.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.linalg.lapack import dposv
from torch import Tensor

from kbo._base import devices
from kbo._base.linalg import cholesky
from kbo._base.stateful import Stateful
from kbo.errors import NotPositiveDefinite
from kbo.kernels import DenseKernel
from kbo.regression.all_ridges import AllRidges, InChunks, Moments, MomentsOnHost
from kbo.regression.numerics import block_of, clamped, warn_below_precision

_BLOCK = 2**20
"""Entries of the largest temporary: ridges x border x basis, or basis x points."""


class Shifted(NamedTuple):
    """``H(a)`` and the fit of the data at several ridges.

    Attributes:
        ridges: a, [r].
        W: ``1 / (l + a)``, [r n0].
        L: The Cholesky factor of S, [r b b].
        s_y: ``L^-1 e_y``, [r b].
        quad: ``y'(I + K / a)^-1 y``, [r].
    """

    ridges: Tensor
    W: Tensor
    L: Tensor
    s_y: Tensor
    quad: Tensor


class Resolvent(Stateful, ABC):
    """``H(a)^-1`` for every ridge a.

    Attributes:
        k: The kernel.
        values: Eigenvalues l [n0] of K0, at least 0.
        vectors: Eigenvectors Q [N n0] of K0, times the scale of rows of the data.
        C: The border in the basis, [n0 b].
        D: The corner of K at the border, [b b].
        target: y in the basis [n0] and at the border [b].
        constant: The part of y'y that no ridge explains, [].
    """

    k: DenseKernel
    values: Tensor
    vectors: Tensor
    C: Tensor
    D: Tensor
    target: tuple[Tensor, Tensor]
    constant: Tensor
    _latest: tuple[tuple[float, ...], Shifted] | None = None

    @abstractmethod
    def coordinates(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return the kernel columns of X [q d] in the basis [n0 q] and at the border [b q]."""

    def shifted(self, ridges: Tensor, checked: bool = True) -> Shifted:
        """Return ``H(a)`` at ridges [r].

        Args:
            ridges: a.
            checked: Whether a matrix without a Cholesky factor is an error; otherwise it is NaN.
        """
        ridges = ridges.to(self.values)
        y, y_border = self.target
        W = (self.values + ridges.unsqueeze(-1)).reciprocal()
        form = W @ y.square()
        if not len(y_border):
            L = W.new_zeros(len(W), 0, 0)
            return Shifted(ridges, W, L, W[:, :0], self._quad(form, ridges))
        size = max(1, block_of(_BLOCK, W.device) // max(1, self.C.numel()))
        chunks = [self.D - (self.C.mT * w.unsqueeze(-2)) @ self.C for w in W.split(size)]
        S = torch.cat(chunks)
        S.diagonal(dim1=-2, dim2=-1).add_(ridges.unsqueeze(-1))
        if checked:
            L = cholesky(S, len(self.values))
        else:
            L, failed_row = torch.linalg.cholesky_ex(S)
            L = L.masked_fill((failed_row > 0).reshape(-1, 1, 1), torch.nan)
        e = torch.addmm(y_border, W * y, self.C, alpha=-1).unsqueeze(-1)
        s_y = torch.linalg.solve_triangular(L, e, upper=False).squeeze(-1)
        return Shifted(ridges, W, L, s_y, self._quad(form + s_y.square().sum(-1), ridges))

    def _quad(self, form: Tensor, ridges: Tensor) -> Tensor:
        """Return ``y'(I + K / a)^-1 y``, [r], given ``y'H^-1 y`` [r]."""
        return self.constant + ridges * form

    def grid(self, ridges: Sequence[float]) -> Shifted:
        """Return ``H(a)`` at ridges; the last result is kept for several reads in turn."""
        key = tuple(ridges)
        latest = self._latest  # read once: another thread may replace it
        if latest is None or latest[0] != key:
            latest = (key, self.shifted(self.values.new_tensor(key)))
            self._latest = latest
        return latest[1]

    def log_det(self, shifted: Shifted) -> Tensor:
        """Return ``ln det(I + K / a)``, [r]."""
        ridges = shifted.ridges.unsqueeze(-1)
        of_border = shifted.L.diagonal(dim1=-2, dim2=-1).square() / ridges
        return torch.log1p(self.values / ridges).sum(-1) + of_border.log().sum(-1)

    def rss(self, shifted: Shifted) -> Tensor:
        """Return ``|y - mean(X)|^2``, [r]: the residuals are ``a H^-1 y``."""
        # H^-1 y at the border [r b], and in the basis [r n0].
        solved = torch.linalg.solve_triangular(shifted.L.mT, shifted.s_y.unsqueeze(-1), upper=True)
        border = solved.squeeze(-1)
        basis = shifted.W * (self.target[0] - border @ self.C.mT)
        square = basis.square().sum(-1) + border.square().sum(-1)
        return self.constant + shifted.ridges.square() * square

    @torch.no_grad()
    def quadratic_forms(self, p: Tensor, p_border: Tensor) -> Callable[[float], np.ndarray]:
        """Return ``P'H^-1 P`` of y and p [n0 q], [1+q 1+q], as a function of one ridge.

        It computes on the host, which is faster for few points than calls of PyTorch. It is NaN
        where H has no factor. With ``V = [C, P]`` in the basis, ``[[T, .], [P_border', 0]] - V'
        diag(W) V`` contains S, e and the first sum of the form.
        """
        values, C, D, y, y_border = devices.on_host(self.values, self.C, self.D, *self.target)
        points, points_border = devices.on_host(p, p_border)
        V = np.column_stack([C, y, points]).T.copy()  # [b+1+q n0]
        b = len(D)
        at_border = np.zeros((len(V), len(V)))
        at_border[:b, :b] = D
        at_border[b, :b] = y_border
        at_border[b + 1 :, :b] = points_border.T
        diagonal = np.arange(b)

        def forms(ridge: float) -> np.ndarray:
            scaled = V / np.sqrt(values + ridge)
            reduced = at_border - scaled @ scaled.T
            if b == 0:
                return -reduced
            reduced[diagonal, diagonal] += ridge
            e = reduced[b:, :b]
            _, solved, failed_row = dposv(reduced[:b, :b], e.T)
            if failed_row:
                return np.full_like(reduced[b:, b:], np.nan)
            return e @ solved - reduced[b:, b:]

        return forms


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
