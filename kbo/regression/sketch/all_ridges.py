"""All ridges of a sketched posterior, from the eigenvalues of an m by m matrix."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kbo.regression.resolvent import Number, Resolvent, Shifted, SpectralPath, SpectralRidges
from kbo.regression.ridge_path import RidgePath


class SketchedResolvent(Resolvent):
    """``(B B' + a I)^-1`` for every a: one decomposition of ``G = B B'`` [m m], O(m^3), and no border."""

    def __init__(self, G: Tensor, By: Tensor, yy: float) -> None:
        values, vectors = torch.linalg.eigh(G)
        self.vectors: Tensor = vectors
        self.values: Tensor = values.clamp_min(0)
        self.target: tuple[Tensor, Tensor] = self.vectors.mT @ By, By[:0]
        self.rest: Tensor = By.new_full((), yy)
        self.C, self.D = G[:, :0], G[:0, :0]
        self.grids: dict[tuple[float, ...], Shifted] = {}

    def covariance(self, prior: Number, form: Number, ridges: Number) -> Number:
        return prior + ridges * form

    def quad_of(self, rest: Number, form: Number, ridges: Number) -> Number:
        return rest - form

    def log_det(self, at: Shifted) -> Tensor:
        return torch.log1p(self.values / at.ridges.unsqueeze(-1)).sum(-1)

    def rss(self, at: Shifted) -> Tensor:
        """``|y - B'w|^2 = quad - a |w|^2`` with ``w = M^-1 B y``."""
        return (self.quad(at) - at.ridges * self.solved_square(at)).clamp_min(0)

    def effective_dimension(self, at: Shifted) -> Tensor:
        return (self.values * at.W).sum(-1)

    def coordinates(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return features [m q] in the basis [m q], and nothing at the border [0 q]."""
        return self.vectors.mT @ features, features[:0]


class SketchedRidges(SpectralRidges):
    """Any ridges of a sketched posterior."""

    state: Any  # a NystromRidge, which makes this

    @property
    def resolvent(self) -> SketchedResolvent:  # pyright: ignore[reportIncompatibleVariableOverride]
        """That of the state; without data it moves to the device of the points."""
        return self.state.spectrum()

    def path(self, X: Tensor) -> RidgePath:
        self.state.check(X)
        dtype, sketch, X = X.dtype, self.state.sketch, X.reshape(-1, *X.shape[-2:]).double()
        z = sketch.features(X.reshape(-1, X.shape[-1]))
        prior = None if X.shape[-2] == 1 else sketch.k(X, X)
        return self.path_of(z, sketch.k.diagonal(X), dtype, prior)

    def path_of(self, z: Tensor, variance: Tensor, dtype: torch.dtype, prior: Tensor | None = None) -> RidgePath:
        """Return the path of points with features z [m Bg], ``k(x, x)`` [B g] and, for groups of several, k [B g g]."""
        grouped = z.reshape(len(z), *variance.shape)
        if prior is None:
            residual = (variance - grouped.square().sum(0)).clamp_min(0).unsqueeze(-1)
        else:
            residual = prior - torch.einsum("mbg,mbh->bgh", grouped, grouped)
        trace, p = self.state.sketch.trace, self.resolvent.coordinates(z)
        return SpectralPath(self.resolvent, *p, residual, variance, trace, dtype)
