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

import torch
from torch import Tensor

from kbo import checks
from kbo.linalg import cholesky
from kbo.regression.numerics import clamped, warn_below_precision
from kbo.regression.posterior import AllRidges, Posterior
from kbo.regression.ridge_path import Moments, RidgePath
from kbo.stateful import Stateful

_CHUNK = {"cpu": 2**22, "cuda": 2**26}
"""Numbers of the largest temporary, ridges x border x basis."""

_MOST_GRIDS = 8
"""Grids of ridges whose factors are kept."""


class Resolvent(Stateful, ABC):
    """``H(a)^-1`` for all a.

    Attributes:
        values: Eigenvalues l [n0] of A0, at least 0.
        vectors: Eigenvectors Q [N n0] of A0.
        C: The border in the basis, [n0 b], and D, the corner of A at the border, [b b].
        target: y in the basis [n0] and at the border [b].
        rest: The part of ``quad`` that does not depend on the ridge.
        grids: Weights and factors of the grids of ridges in use; emptied when anything changes.
    """

    values: Tensor
    vectors: Tensor
    C: Tensor
    D: Tensor
    target: tuple[Tensor, Tensor]
    rest: Tensor
    grids: dict[tuple[float, ...], tuple[Tensor, Tensor]]

    @abstractmethod
    def log_det(self, ridges: Tensor) -> Tensor:
        """``ln det(I + K / a)``, [r]."""

    @abstractmethod
    def rss(self, ridges: Tensor) -> Tensor:
        """``|y - mean(X)|^2``, [r]."""

    @abstractmethod
    def effective_dimension(self, ridges: Tensor) -> Tensor:
        """``Tr K (K + a I)^-1``, [r]."""

    @abstractmethod
    def covariance(self, prior: Tensor, form: Tensor, ridges: Tensor) -> Tensor:
        """The posterior covariance from its prior part and ``p'H^-1 q``."""

    @abstractmethod
    def quad_of(self, form: Tensor, ridges: Tensor) -> Tensor:
        """``quad`` [r] from ``y'H^-1 y`` [r]."""

    def weights(self, ridges: Tensor) -> Tensor:
        """``1 / (l + a)``, [r n0]."""
        return 1 / (self.values + ridges.unsqueeze(-1))

    def schur(self, ridges: Tensor, W: Tensor) -> Tensor:
        """The factor of S, [r b b]."""
        size = max(1, _CHUNK.get(W.device.type, 2**22) // max(1, self.C.numel()))
        products = [(self.C.mT * w.unsqueeze(-2)) @ self.C for w in W.split(size)]
        T = self.D + ridges.reshape(-1, 1, 1) * torch.eye(len(self.D), dtype=W.dtype, device=W.device)
        return cholesky(T - torch.cat(products), len(self.values))

    def factored(self, ridges: Tensor) -> tuple[Tensor, Tensor]:
        """Weights and factor for a grid of ridges; several numbers in turn are computed at the same grid."""
        key = tuple(ridges.tolist())
        if key not in self.grids:
            if len(self.grids) >= _MOST_GRIDS:
                self.grids.clear()
            W = self.weights(ridges)
            self.grids[key] = W, self.schur(ridges, W)
        return self.grids[key]

    def fit(self, ridges: Tensor, W: Tensor, L: Tensor) -> tuple[Tensor, Tensor]:
        """``L^-1 e_y`` [r b], and ``quad`` [r]."""
        v, y = self.target
        s = torch.linalg.solve_triangular(L, (y - (W * v) @ self.C).unsqueeze(-1), upper=False).squeeze(-1)
        form = W @ v.square() + s.square().sum(-1)
        return s, self.quad_of(form, ridges)

    def quad(self, ridges: Tensor) -> Tensor:
        """``quad`` [r] for ridges [r]."""
        return self.fit(ridges, *self.factored(ridges))[1]

    def solved_square(self, ridges: Tensor) -> Tensor:
        """``|H^-1 y|^2``, [r]."""
        W, L = self.factored(ridges)
        s = self.fit(ridges, W, L)[0].unsqueeze(-1)
        border = torch.linalg.solve_triangular(L.mT, s, upper=True).squeeze(-1)
        rest = W * (self.target[0] - border @ self.C.mT)
        return rest.square().sum(-1) + border.square().sum(-1)

    def whiten(self, p: Tensor, p_border: Tensor, ridge: Tensor) -> tuple[Tensor, Tensor]:
        """``diag(l + a)^-1/2 p`` and ``L^-1 e_p`` for p [n0 q]: the factors of ``p'H^-1 p``."""
        W = self.weights(ridge.reshape(1))
        e = p_border - self.C.mT @ (W.mT * p)
        return W.mT.sqrt() * p, torch.linalg.solve_triangular(self.schur(ridge.reshape(1), W)[0], e, upper=False)


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
        trace: Tensor,
        dtype: torch.dtype | None = None,
    ) -> None:
        self.resolvent = resolvent
        self.prior = prior
        self.variance = variance
        self.trace = trace
        self.dtype: torch.dtype = dtype or variance.dtype
        self.p: Tensor = p.reshape(len(p), *variance.shape)
        self.p_border: Tensor = p_border.reshape(len(p_border), *variance.shape)

    def select(self, groups: Tensor) -> SpectralPath:  # noqa: D102
        p, p_border = self.p[:, groups], self.p_border[:, groups]
        prior, variance = self.prior[groups], self.variance[groups]
        return SpectralPath(self.resolvent, p, p_border, prior, variance, self.trace, self.dtype)

    def at(self, ridges: Tensor) -> Moments:  # noqa: D102
        H, ridges = self.resolvent, ridges.to(self.variance.dtype)
        W = H.weights(ridges)
        L = H.schur(ridges, W)
        s_y, quad = H.fit(ridges, W, L)
        mean, covariance = self._moments(ridges, W, L, s_y)
        return Moments(mean.to(self.dtype), covariance.to(self.dtype), quad.to(self.dtype))

    def grid(self, ridges: Tensor) -> Moments:  # noqa: D102
        H, ridges = self.resolvent, ridges.to(self.variance.dtype)
        W, L = H.factored(ridges)
        s_y, quad = H.fit(ridges, W, L)
        parts = [self._moments(ridges[i : i + 1], W[i : i + 1], L[i : i + 1], s_y[i : i + 1]) for i in range(len(W))]
        mean, covariance = (torch.stack(part).to(self.dtype) for part in zip(*parts, strict=True))
        return Moments(mean, covariance, quad.unsqueeze(-1).to(self.dtype))

    def _moments(self, ridges: Tensor, W: Tensor, L: Tensor, s_y: Tensor) -> tuple[Tensor, Tensor]:
        """Mean [B g] and covariance [B g g] at one ridge (leading axis 1) or one per group (leading axis B)."""
        H, (n0, B, g) = self.resolvent, self.p.shape
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

    def __init__(self, state: Posterior, resolvent: Resolvent) -> None:
        super().__init__(state)
        self.resolvent = resolvent

    def number(self, name: str, ridges: Tensor) -> Tensor:  # noqa: D102
        warn_below_precision(float(ridges.min()), self.state.least_ridge)
        return getattr(self.resolvent, name)(ridges.to(self.resolvent.values)).to(self.state.dtype)

    def predict(self, X: Tensor, ridges: Tensor) -> tuple[Tensor, Tensor]:
        """In chunks of points."""
        size = max(1, _CHUNK.get(checks.shaped("X", X).device.type, 2**22) // max(1, len(self.resolvent.vectors)))
        parts = [super(SpectralRidges, self).predict(part, ridges) for part in X.reshape(-1, X.shape[-1]).split(size)]
        mean, variance = (torch.cat(part, -1) for part in zip(*parts, strict=True))
        shape = (len(ridges), *X.shape[:-1])
        return mean.reshape(shape), variance.reshape(shape)
