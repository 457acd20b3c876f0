"""A posterior at every ridge from one eigendecomposition: ``(A + a I)^-1`` for all a, while A grows.

The first n0 rows A0 = Q diag(l) Q' are decomposed once; the b rows that came later are a border whose columns C are
rotated by Q':

    H(a) = [[diag(l) + a, C], [C', T]],     T = D + a I,     S = T - C' diag(1 / (l + a)) C,

    p'H^-1 q = sum_i p_i q_i / (l_i + a) + e_p'S^-1 e_q,      e_p = p_border - C' diag(1 / (l + a)) p.

A ridge costs O(n0 b (b + points)). The basis is refreshed when the border has grown to a fixed part of it. Two
posteriors use this; the sketched one has no border.

| | exact, A = K | sketched, A = B B' |
|---|---|---|
| covariance | ``k(x, x') - p'H^-1 q`` | ``residual(x, x') + a p'H^-1 q`` |
| quad | ``rest + a y'H^-1 y`` | ``rest - y'H^-1 y`` |
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from scipy.linalg.lapack import dposv  # pyright: ignore[reportAttributeAccessIssue]
from torch import Tensor

from kbo import checks
from kbo.devices import on_host
from kbo.linalg import cholesky
from kbo.regression.numerics import block_of, clamped, warn_below_precision
from kbo.regression.posterior import AllRidges
from kbo.regression.ridge_path import Moments, RidgePath
from kbo.stateful import Stateful

Number = TypeVar("Number", float, Tensor)

_BLOCK = 2**22
"""Numbers of the largest temporary, ridges x border x basis."""

_MOST_GRIDS = 8
"""Grids of ridges whose factors are kept."""


class Shifted(NamedTuple):
    """``H(a)`` and the fit of the data at several ridges.

    Attributes:
        ridges: a, [r].
        W: ``1 / (l + a)``, [r n0].
        L: The factor of S, [r b b].
        s: ``L^-1 e_y``, [r b].
        quad: ``quad``, [r].
    """

    ridges: Tensor
    W: Tensor
    L: Tensor
    s: Tensor
    quad: Tensor


class Resolvent(Stateful, ABC):
    """``H(a)^-1`` for all a.

    Attributes:
        values: Eigenvalues l [n0] of A0, at least 0.
        vectors: Eigenvectors Q [N n0] of A0, times what scales rows of the data.
        C: The border in the basis, [n0 b], and D, the corner of A at the border, [b b].
        target: y in the basis [n0] and at the border [b].
        rest: The part of ``quad`` that does not depend on the ridge.
        grids: The grids of ridges in use; emptied when anything changes.
    """

    values: Tensor
    vectors: Tensor
    C: Tensor
    D: Tensor
    target: tuple[Tensor, Tensor]
    rest: Tensor
    grids: dict[tuple[float, ...], Shifted]

    @abstractmethod
    def log_det(self, at: Shifted) -> Tensor:
        """``ln det(I + K / a)``, [r]."""

    @abstractmethod
    def rss(self, at: Shifted) -> Tensor:
        """``|y - mean(X)|^2``, [r]."""

    @abstractmethod
    def effective_dimension(self, at: Shifted) -> Tensor:
        """``Tr K (K + a I)^-1``, [r]."""

    @abstractmethod
    def covariance(self, prior: Number, form: Number, ridges: Number) -> Number:
        """The posterior covariance from its prior part and ``p'H^-1 q``."""

    @abstractmethod
    def quad_of(self, rest: Number, form: Number, ridges: Number) -> Number:
        """``quad`` from ``rest`` and ``y'H^-1 y``; below zero only by rounding."""

    def shifted(self, ridges: Tensor, checked: bool = True) -> Shifted:
        """Return ``H(a)`` at ridges [r]; where it has no factor an error, or NaN for the caller to find."""
        ridges = ridges.to(self.values)
        W, (v, y) = (self.values + ridges.unsqueeze(-1)).reciprocal(), self.target
        form = W @ v.square()
        if not len(y):
            return Shifted(ridges, W, W.new_zeros(len(W), 0, 0), W[:, :0], self._quad(form, ridges))
        size = max(1, block_of(_BLOCK, W.device) // max(1, self.C.numel()))
        parts = [self.D - (self.C.mT * w.unsqueeze(-2)) @ self.C for w in W.split(size)]
        T = torch.cat(parts) if len(parts) > 1 else parts[0]
        T.diagonal(dim1=-2, dim2=-1).add_(ridges.unsqueeze(-1))
        if checked:
            L = cholesky(T, len(self.values))
        else:
            L, failed = torch.linalg.cholesky_ex(T)
            L = L.masked_fill((failed > 0).reshape(-1, 1, 1), torch.nan)
        e = torch.addmm(y, W * v, self.C, alpha=-1).unsqueeze(-1)
        s = torch.linalg.solve_triangular(L, e, upper=False).squeeze(-1)
        return Shifted(ridges, W, L, s, self._quad(form + s.square().sum(-1), ridges))

    def _quad(self, form: Tensor, ridges: Tensor) -> Tensor:
        return self.quad_of(self.rest, form, ridges).clamp_min(0)

    def grid(self, ridges: Tensor) -> Shifted:
        """Return ``H(a)`` at ridges of which several numbers in turn are computed."""
        key = tuple(ridges.tolist())
        if key not in self.grids:
            if len(self.grids) >= _MOST_GRIDS:
                self.grids.clear()
            self.grids[key] = self.shifted(ridges)
        return self.grids[key]

    @torch.no_grad()
    def forms(self, p: Tensor, p_border: Tensor) -> Callable[[float], np.ndarray]:
        """Return ``P'H^-1 P`` of y and p [n0 q], [1+q 1+q], as a function of one ridge, NaN where H has no factor.

        On the host, where for few points a ridge costs less than the calls of PyTorch for it. With ``V = [C, P]`` in
        the basis, ``[[T, .], [P_border', 0]] - V' diag(1 / (l + a)) V`` holds S, e and the first sum of the form.
        """
        parts = on_host(self.values, self.C, self.D, *self.target, p, p_border)
        values, C, D, v, y, p_, border = parts
        b = len(D)
        V, whole = np.column_stack([C, v, p_]).T.copy(), np.zeros((b + 1 + p.shape[1],) * 2)
        whole[:b, :b], whole[b, :b], whole[b + 1 :, :b] = D, y, border.T
        diagonal = np.arange(b)

        def at(ridge: float) -> np.ndarray:
            scaled = V / np.sqrt(values + ridge)
            rest = whole - scaled @ scaled.T
            if not b:
                return -rest
            rest[diagonal, diagonal] += ridge
            _, solved, failed = dposv(rest[:b, :b], rest[b:, :b].T)
            return np.full_like(rest[b:, b:], np.nan) if failed else rest[b:, :b] @ solved - rest[b:, b:]

        return at

    def quad(self, at: Shifted) -> Tensor:
        """``quad`` [r]."""
        return at.quad

    def solved_square(self, at: Shifted) -> Tensor:
        """``|H^-1 y|^2``, [r]."""
        border = torch.linalg.solve_triangular(at.L.mT, at.s.unsqueeze(-1), upper=True).squeeze(-1)
        rest = at.W * (self.target[0] - border @ self.C.mT)
        return rest.square().sum(-1) + border.square().sum(-1)


class SpectralPath(RidgePath):
    """The path of groups of points over a ``Resolvent``.

    Args:
        resolvent: ``H(a)^-1``.
        p: The groups in the basis, [n0 B g] or [n0 Bg].
        p_border: The groups at the border, [b B g] or [b Bg].
        prior: Prior part of their covariance, [B g g].
        variance: ``k(x, x)`` of the points, [B g]: computed variances are clamped from below.
        trace: ``Tr K``, [].
        dtype: Of the moments; that of the numbers inside if omitted.
    """

    def __init__(
        self,
        resolvent: Resolvent,
        p: Tensor,
        p_border: Tensor,
        prior: Tensor,
        variance: Tensor,
        trace: Tensor | float,
        dtype: torch.dtype | None = None,
    ) -> None:
        self.resolvent = resolvent
        self.prior = prior
        self.variance = variance
        self.trace = trace
        self.dtype: torch.dtype = dtype or variance.dtype
        self.p: Tensor = p.reshape(len(p), *variance.shape)
        self.p_border: Tensor = p_border.reshape(len(p_border), *variance.shape)

    def select(self, groups: Tensor) -> SpectralPath:
        p, p_border = self.p[:, groups], self.p_border[:, groups]
        prior, variance = self.prior[groups], self.variance[groups]
        return SpectralPath(self.resolvent, p, p_border, prior, variance, self.trace, self.dtype)

    @torch.no_grad()
    def few(self, groups: Sequence[int]) -> Callable[[float], tuple[list[tuple[float, float]], float]]:
        H, rows = self.resolvent, torch.tensor(groups, device=self.p.device)
        forms = H.forms(*(side.squeeze(-1).index_select(1, rows) for side in (self.p, self.p_border)))
        each = (part.flatten().index_select(0, rows) for part in (self.prior, self.variance))
        numbers = on_host(*each, *(torch.as_tensor(number).to(self.variance) for number in (H.rest, self.trace)))
        prior, variance, rest, trace = (part.tolist() for part in numbers)

        def at(ridge: float) -> tuple[list[tuple[float, float]], float]:
            found, share = forms(ridge).tolist(), ridge / (ridge + trace)
            (form_y, *means), rows_p = found[0], zip(prior, variance, found[1:], strict=True)
            variances = [max(H.covariance(k, row[i], ridge), share * v) for i, (k, v, row) in enumerate(rows_p, 1)]
            return list(zip(means, variances, strict=True)), max(H.quad_of(rest, form_y, ridge), 0.0)

        return at

    def at(self, ridges: Tensor) -> Moments:
        at = self.resolvent.shifted(ridges, checked=False)
        mean, covariance = self._moments(at)
        return Moments(mean.to(self.dtype), covariance.to(self.dtype), at.quad.to(self.dtype))

    def grid(self, ridges: Tensor) -> Moments:
        at = self.resolvent.grid(ridges)
        quad = at.quad.unsqueeze(-1)
        if self.p.shape[-1] == 1:
            return Moments(*(part.to(self.dtype) for part in (*self._alone(at), quad)))
        parts = [self._moments(Shifted(*one)) for one in zip(*(part.split(1) for part in at), strict=True)]
        mean, covariance = (torch.stack(part).to(self.dtype) for part in zip(*parts, strict=True))
        return Moments(mean, covariance, quad.to(self.dtype))

    def _alone(self, at: Shifted) -> tuple[Tensor, Tensor]:
        """Mean [r B 1] and covariance [r B 1 1] of groups of one, by matrix products over all ridges."""
        H, p, (ridges, W, L, s_y, _) = self.resolvent, self.p.squeeze(-1), at
        e = self.p_border.squeeze(-1) - (W.unsqueeze(-2) * H.C.mT) @ p
        s = torch.linalg.solve_triangular(L, e, upper=False)
        mean = (W * H.target[0]) @ p + (s_y.unsqueeze(-2) @ s).squeeze(-2)
        form = (W @ p.square() + s.square().sum(-2)).unsqueeze(-1)
        ridges = ridges.reshape(-1, 1, 1)
        covariance = H.covariance(self.prior.squeeze(-1), form, ridges)
        return mean.unsqueeze(-1), clamped(covariance, self.variance, ridges, self.trace).unsqueeze(-1)

    def _moments(self, at: Shifted) -> tuple[Tensor, Tensor]:
        """Mean [B g] and covariance [B g g] at one ridge (leading axis 1) or one per group (leading axis B)."""
        H, (n0, B, g), (ridges, W, L, s_y, _) = self.resolvent, self.p.shape, at
        Wp = W.mT.unsqueeze(-1) * self.p
        e = self.p_border.reshape(L.shape[-1], B * g) - H.C.mT @ Wp.reshape(n0, B * g)
        if len(L) == 1:
            s = torch.linalg.solve_triangular(L[0], e, upper=False).reshape(self.p_border.shape)
            mean = torch.tensordot(s_y[0], s, 1)
        else:
            e = e.reshape(self.p_border.shape).movedim(0, 1)
            s = torch.linalg.solve_triangular(L, e, upper=False).movedim(0, 1)
            mean = torch.einsum("kb,bkg->kg", s_y, s)
        mean = mean + torch.tensordot(H.target[0], Wp, 1)
        if g == 1:
            form = ((Wp * self.p).sum(0) + s.square().sum(0)).unsqueeze(-1)
        else:
            form = torch.einsum("nkg,nkh->kgh", Wp, self.p) + torch.einsum("bkg,bkh->kgh", s, s)
        covariance = H.covariance(self.prior, form, ridges.reshape(-1, 1, 1))
        if g == 1:
            least = clamped(covariance[..., 0], self.variance, ridges.unsqueeze(-1), self.trace)
            covariance = least.unsqueeze(-1)
        return mean, covariance


class SpectralRidges(AllRidges):
    """Any ridges of a posterior through a resolvent."""

    resolvent: Resolvent

    def number(self, name: str, ridges: Tensor) -> Tensor:
        warn_below_precision(min(ridges.tolist()), self.state.error.least_ridge)
        return getattr(self.resolvent, name)(self.resolvent.grid(ridges)).to(self.state.dtype)

    def quad_at(self) -> Callable[[float], float]:
        H = self.resolvent
        forms, rest = H.forms(H.C[:, :0], H.D[:, :0]), float(H.rest)
        return lambda ridge: max(H.quad_of(rest, forms(ridge).item(), ridge), 0.0)

    def predict(self, X: Tensor, ridges: Tensor) -> tuple[Tensor, Tensor]:
        """In chunks of points."""
        size = max(1, block_of(_BLOCK, checks.shaped("X", X).device) // max(1, len(self.resolvent.vectors)))
        if X.ndim == 2 and X.shape[0] <= size:
            return super().predict(X, ridges)
        parts = [super(SpectralRidges, self).predict(part, ridges) for part in X.reshape(-1, X.shape[-1]).split(size)]
        mean, variance = (torch.cat(part, -1) for part in zip(*parts, strict=True))
        shape = (len(ridges), *X.shape[:-1])
        return mean.reshape(shape), variance.reshape(shape)
