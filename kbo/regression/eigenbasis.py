"""A posterior at every ridge from one eigendecomposition: ``(K + a I)^-1`` for all a.

The first n0 rows K0 = Q diag(l) Q' are decomposed once; the b rows that came later are a border
whose columns C are rotated by Q':

    H(a) = [[diag(l) + a, C], [C', T]],     T = D + a I,     S = T - C' diag(1 / (l + a)) C,

    p'H^-1 q = sum_i p_i q_i / (l_i + a) + e_p'S^-1 e_q,
         e_p = p_border - C' diag(1 / (l + a)) p.

On paper, with p the kernel column of x in this basis      | in code
``mean = p'H^-1 y``                                        | ``SpectralRidges.grid``, ``at``
``covariance = k(x, x') - p'H^-1 p'``                      | ``SpectralRidges.grid``, ``at``
``ln det(I + K / a) = sum ln(1 + l / a) + ln det(S / a)``  | ``Resolvent.log_det``
``y'(I + K / a)^-1 y = constant + a y'H^-1 y``             | ``Resolvent.shifted``
``|y - mean(X)|^2 = constant + a^2 |H^-1 y|^2``            | ``Resolvent.rss``

A ridge costs O(n0 b (b + points)). Two posteriors use this. ``Eigenbasis`` is the exact one; its
basis is refreshed when the border has grown to a fixed part of it. ``sketch/nystrom.py`` has the
sketched one, the exact posterior of the kernel matrix B'B, without a border.

Rows of an exact posterior are scaled by the square roots of their counts c: with ``N = diag(c)``,

    (K + ridge N^-1)^-1 = N^1/2 (N^1/2 K N^1/2 + ridge I)^-1 N^1/2,

so repeated points keep one decomposition for all ridges.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from scipy.linalg.lapack import dposv  # pyright: ignore[reportAttributeAccessIssue]
from torch import Tensor

from kbo._base import devices
from kbo._base.linalg import cholesky
from kbo._base.stateful import Stateful
from kbo.errors import NotPositiveDefinite
from kbo.kernels import DenseKernel
from kbo.regression.all_ridges import AllRidges, InChunks, Moments, MomentsOnHost
from kbo.regression.numerics import block_of, clamped, kernel_columns, warn_below_precision
from kbo.regression.observations import Observations

_BLOCK = 2**20
"""Numbers of the largest temporary: ridges x border x basis, or basis x points."""


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
    """``H(a)^-1`` for all a.

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

    def across(self, state: Any, X: Tensor | None) -> AllRidges:
        """Return a posterior at any ridge, with groups of points X [... g d], or without points."""
        if X is None:
            return self.without_points(state)
        size = max(1, block_of(_BLOCK, X.device) // max(1, len(self.vectors) * X.shape[-2]))
        if not X.requires_grad and X.shape[:-2].numel() > size:
            return InChunks(state, X, partial(self.at_points, state), size)
        return self.at_points(state, X.reshape(-1, *X.shape[-2:]))

    def at_points(self, state: Any, X: Tensor) -> SpectralRidges:
        """Return a posterior at any ridge, with groups of points X [B g d], all at once."""
        X = X.to(self.values.dtype)
        variance = self.k.diagonal(X)
        prior = self.k(X, X) if X.shape[-2] > 1 else variance.unsqueeze(-1)
        p, p_border = self.coordinates(X.reshape(-1, X.shape[-1]))
        return SpectralRidges(state, self, p, p_border, prior, variance)

    def without_points(self, state: Any) -> SpectralRidges:
        """Return a posterior at any ridge, without points."""
        no_points = self.values.new_empty(0, 1)
        p = self.values.new_empty(len(self.values), 0)
        p_border = self.values.new_empty(len(self.D), 0)
        return SpectralRidges(state, self, p, p_border, no_points.unsqueeze(-1), no_points)

    def shifted(self, ridges: Tensor, checked: bool = True) -> Shifted:
        """Return ``H(a)`` at ridges [r].

        Args:
            ridges: a.
            checked: Whether a ridge without a factor is an error; it is NaN otherwise.
        """
        ridges = ridges.to(self.values)
        y, y_border = self.target
        W = (self.values + ridges.unsqueeze(-1)).reciprocal()
        form = W @ y.square()
        if not len(y_border):
            L = W.new_zeros(len(W), 0, 0)
            return Shifted(ridges, W, L, W[:, :0], self._quad(form, ridges))
        size = max(1, block_of(_BLOCK, W.device) // max(1, self.C.numel()))
        parts = [self.D - (self.C.mT * w.unsqueeze(-2)) @ self.C for w in W.split(size)]
        S = torch.cat(parts) if len(parts) > 1 else parts[0]
        S.diagonal(dim1=-2, dim2=-1).add_(ridges.unsqueeze(-1))
        if checked:
            L = cholesky(S, len(self.values))
        else:
            L, failed = torch.linalg.cholesky_ex(S)
            L = L.masked_fill((failed > 0).reshape(-1, 1, 1), torch.nan)
        e = torch.addmm(y_border, W * y, self.C, alpha=-1).unsqueeze(-1)
        s_y = torch.linalg.solve_triangular(L, e, upper=False).squeeze(-1)
        return Shifted(ridges, W, L, s_y, self._quad(form + s_y.square().sum(-1), ridges))

    def _quad(self, form: Tensor, ridges: Tensor) -> Tensor:
        return self.constant + ridges * form

    def grid(self, ridges: Sequence[float]) -> Shifted:
        """Return ``H(a)`` at ridges; the latest is kept, as several numbers are read in turn."""
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
        border = torch.linalg.solve_triangular(shifted.L.mT, shifted.s_y.unsqueeze(-1), upper=True)
        border = border.squeeze(-1)  # H^-1 y at the border, [r b]
        basis = shifted.W * (self.target[0] - border @ self.C.mT)
        square = basis.square().sum(-1) + border.square().sum(-1)
        return self.constant + shifted.ridges.square() * square

    @torch.no_grad()
    def quadratic_forms(self, p: Tensor, p_border: Tensor) -> Callable[[float], np.ndarray]:
        """Return ``P'H^-1 P`` of y and p [n0 q], [1+q 1+q], as a function of one ridge.

        On the host, where few points cost less than the calls of PyTorch for them; NaN where H has
        no factor. With ``V = [C, P]`` in the basis, ``[[T, .], [P_border', 0]] - V' diag(W) V``
        holds S, e and the first sum of the form.
        """
        values, C, D, y, y_border = devices.on_host(self.values, self.C, self.D, *self.target)
        points, points_border = devices.on_host(p, p_border)
        V = np.column_stack([C, y, points]).T.copy()  # [b+1+q n0]
        b = len(D)
        whole = np.zeros((len(V), len(V)))
        whole[:b, :b] = D
        whole[b, :b] = y_border
        whole[b + 1 :, :b] = points_border.T
        diagonal = np.arange(b)

        def at(ridge: float) -> np.ndarray:
            scaled = V / np.sqrt(values + ridge)
            reduced = whole - scaled @ scaled.T
            if b == 0:
                return -reduced
            reduced[diagonal, diagonal] += ridge
            e = reduced[b:, :b]
            _, solved, failed = dposv(reduced[:b, :b], e.T)
            if failed:
                return np.full_like(reduced[b:, b:], np.nan)
            return e @ solved - reduced[b:, b:]

        return at


class SpectralRidges(AllRidges):
    """A posterior at any ridges through a ``Resolvent``.

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
        warn_below_precision(min(ridges), self.state.error.least_ridge)
        return self._shifted(ridges)

    def _shifted(self, ridges: Sequence[float]) -> Shifted:
        try:
            return self.resolvent.grid(ridges)
        except NotPositiveDefinite:
            self.state.error.refuse_no_kernel()
            raise

    def _number(self, value: Tensor) -> Tensor:
        """Return a number in the dtype of the data."""
        return value.to(self.state.like.dtype)

    def select(self, groups: Tensor) -> SpectralRidges:
        some = copy.copy(self)
        some.p = self.p[:, groups]
        some.p_border = self.p_border[:, groups]
        some.prior = self.prior[groups]
        some.variance = self.variance[groups]
        return some

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
            least = ridge / (ridge + self.trace) * variance  # as in numerics.clamped
            variances = np.maximum(prior - form.diagonal()[1:], least)
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
            means = []
            covariances = []
            for i in range(len(ridges)):
                at_one = Shifted(*[part[i : i + 1] for part in shifted])
                one_mean, one_covariance = self._joint(at_one)
                means.append(one_mean)
                covariances.append(one_covariance)
            mean = torch.stack(means)
            covariance = torch.stack(covariances)
        return self._moments_of(mean, covariance, shifted.quad.unsqueeze(-1))

    def _moments_of(self, mean: Tensor, covariance: Tensor, quad: Tensor) -> Moments:
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

        At one ridge for all groups, or at one for each: the leading axis of ``shifted`` is 1 or B.
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


def border_limit(basis: int) -> int:
    """Return the columns of the border at which the basis is refreshed."""
    return max(16, basis // 32)


class Eigenbasis(Resolvent):
    """``(K + a I)^-1`` over all rows of some observations, for every a.

    When the basis is refreshed depends on the blocks of the data alone, so a replayed run repeats
    every rounding.
    """

    def __init__(self, data: Observations, k: DenseKernel) -> None:
        self.data = data
        self.k = k
        self.rows: int = 0
        self._basis: int = 0  # rows that are decomposed, n0
        self.values = data.y[:0]
        self.vectors = data.X.new_empty(0, 0)
        self.C = self.vectors
        self.D = self.vectors
        self.target = (data.y[:0], data.y[:0])
        self.constant = data.within

    @torch.no_grad()
    def grown(self) -> Self:
        """Return the basis of all rows of the data; this one stays as it is."""
        if self.rows == self.data.rows:
            return self
        basis = copy.copy(self)
        basis._grow()
        return basis

    def _grow(self) -> None:
        basis = self._basis
        border: list[tuple[int, int]] = []
        for start, stop in self.data.blocks_after(self.rows):
            if stop - basis > border_limit(basis):
                basis = stop
                border = []
            else:
                border.append((start, stop))
            self.rows = stop
        if basis != self._basis:
            self._decompose(basis)
        for start, stop in border:
            self._extend(start, stop)
        self.constant = self.data.within
        self._latest = None

    def _decompose(self, basis: int) -> None:
        """Make the first rows the basis, O(n0^3)."""
        X = self.data.X[:basis]
        K = self._scaled(self._scaled(self.k(X, X)).mT)
        values, vectors = torch.linalg.eigh(K)
        self.values = values.clamp_min(0)  # negative ones are rounding
        self.vectors = self._scaled(vectors)
        self.C = X.new_empty(basis, 0)
        self.D = X.new_empty(0, 0)
        self.target = (self.vectors.mT @ self.data.y[:basis], X.new_empty(0))
        self._basis = basis

    def _extend(self, start: int, stop: int) -> None:
        """Add rows to the border, O(n0^2) each."""
        basis = self._basis
        cross = self._scaled(self.k(self.data.X[start:stop], self.data.X[:stop]), start).mT
        corner = self._scaled(cross[basis:], basis)  # [b + r r]
        self.C = torch.cat([self.C, self.vectors.mT @ cross[:basis]], 1)
        above = torch.cat([self.D, corner[: len(self.D)].mT])
        self.D = torch.cat([above, corner], 1)
        y, y_border = self.target
        new = self._scaled(self.data.y[start:stop].unsqueeze(-1), start).squeeze(-1)
        self.target = (y, torch.cat([y_border, new]))

    def _scaled(self, rows: Tensor, start: int = 0) -> Tensor:
        """Return rows [r q], from row ``start`` of the data on, times the roots of their counts."""
        if self.data.uniform:
            return rows
        return self.data.counts[start : start + len(rows)].sqrt().unsqueeze(-1) * rows

    def coordinates(self, X: Tensor) -> tuple[Tensor, Tensor]:
        cross = kernel_columns(self.k, self.data.X, X)
        # For few points the gradient of this order of the product is up to three times as fast.
        p = (cross[: self._basis].mT.contiguous() @ self.vectors).mT
        return p, self._scaled(cross[self._basis :], self._basis)
