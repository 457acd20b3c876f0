"""A sketched posterior at one ridge, at any ridge, and at fixed points.

At its own ridge, M^-1 follows every observation in O(m^2); other ridges follow from the eigenvalues of ``B B'``, [m m].

Notation: M = B B' + ridge I and S S' = M^-1 (``linalg/inverse_root.py``).

On paper                                       | in code
``w = M^-1 B y``                               | ``weights``
``mean = z'w = (S'B y)'(S'z)``                 | ``weights @ z``, ``whitened @ p``
``variance = k - |z|^2 + ridge z'M^-1 z``      | ``_mean_and_variance``
``ln det(I + B'B / ridge)``                    | ``log_det``
``y'y - (By)'w``                               | ``quad``
``|y - B'w|^2 = quad - ridge |w|^2``           | ``rss``
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from kbo._base.linalg import InverseRoot
from kbo._base.stateful import passed_on
from kbo.regression.eigenbasis import Number, Resolvent, Shifted
from kbo.regression.numerics import block_of, clamped, in_chunks
from kbo.regression.posterior import LowRankPosteriorAt
from kbo.regression.sampling import SamplePath
from kbo.regression.sketch.features import kept_for
from kbo.regression.sketch.stream import Sketch

_BLOCK = 2**19
"""Entries of k(Z, x) that are evaluated at once."""

_MANY, _LARGE = 32, 1e-3
"""Points per anchor from which a prediction is worth an eigendecomposition, which halves the work per point; and the
ridge, as a fraction of the kernel, from which the variance has all its digits then."""


class NystromAt(LowRankPosteriorAt):
    """Answers of a sketched posterior; without data it moves to the device of the points that they are given first."""

    state: Any  # a NystromRidge, which makes this
    sketch: Sketch = passed_on("state.sketch")

    @cached_property
    def root(self) -> InverseRoot:
        """``M^-1`` at their ridge."""
        return self.state.root(self.ridge)

    @cached_property
    def whitened(self) -> Tensor:
        """``S'B y``, [m]."""
        return self.sketch.By @ self.root.S

    @cached_property
    def weights(self) -> Tensor:
        """``M^-1 B y``, [m]."""
        return self.root.S @ self.whitened

    def predict(self, X: Tensor) -> tuple[Tensor, Tensor]:
        self.state.check(X)
        flat, m = X.reshape(-1, X.shape[-1]), self.sketch.m
        many = len(flat) > _MANY * m and self.ridge >= _LARGE * (self.sketch.kappa or 1.0)
        size = max(1, block_of(_BLOCK, X.device) // max(1, m))
        mean, variance = in_chunks(self._halved() if many else self._mean_and_variance, flat, size)
        return mean.reshape(X.shape[:-1]), variance.reshape(X.shape[:-1])

    def _mean_and_variance(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance [N] of X [N d]."""
        dtype, X = X.dtype, X.double()
        z, prior = self.sketch.features(X), self.sketch.k.diagonal(X)
        p = kept_for(z, self.root.S).mT @ z
        variance = (prior - z.square().sum(0)).clamp_min(0).add(p.square().sum(0), alpha=self.ridge)
        return (self.whitened @ p).to(dtype), clamped(
            variance, prior, self.ridge, self.sketch.trace
        ).to(dtype)

    def _halved(self) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
        """The same for many points: ``|z|^2 - ridge z'M^-1 z = |V k(Z, x)|^2`` in one product instead of two."""
        basis, whitener = self.state.spectrum(), self.sketch.features.whitener
        V = (
            (basis.values / (basis.values + self.ridge)).sqrt().unsqueeze(-1)
            * basis.vectors.mT
            @ whitener
        )
        alpha = self.weights @ whitener

        def mean_and_variance(X: Tensor) -> tuple[Tensor, Tensor]:
            dtype, X = X.dtype, X.double()
            columns, prior = self.sketch.features.columns(X), self.sketch.k.diagonal(X)
            mean = alpha @ columns
            variance = clamped(
                prior - (V @ columns).square_().sum(0), prior, self.ridge, self.sketch.trace
            )
            return mean.to(dtype), variance.to(dtype)

        return mean_and_variance

    def factored(self, X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """``covariance(x, x') = k(x, x') - z(x)'z(x') + ridge z(x)'M^-1 z(x')``."""
        self.state.check(X)
        z = self.sketch.features(X.reshape(-1, X.shape[-1]).double())
        part = math.sqrt(self.ridge) * kept_for(z, self.root.S).mT @ z
        U, V = (torch.cat([z, side]) for side in (-part, part))
        U, V = (
            side.reshape(len(side), *X.shape[:-1]).movedim(0, -2).to(X.dtype) for side in (U, V)
        )
        return (self.weights @ z).reshape(X.shape[:-1]).to(X.dtype), U, V

    def log_det(self) -> Tensor:
        return self._number(self.root.log_det if self.sketch.n else 0.0)

    def quad(self) -> Tensor:
        return (self.sketch.yy - self.sketch.By @ self.weights).clamp_min(0).to(self.state.like)

    def rss(self) -> Tensor:
        return (
            self.quad() - self.ridge * self.weights.square().sum().to(self.state.like)
        ).clamp_min(0)

    def effective_dimension(self) -> Tensor:
        """``Tr B'B M^-1 = m - ridge Tr M^-1``, of the sketched kernel matrix."""
        if not self.sketch.n:
            return self._number(0.0)
        return (self.sketch.m - self.ridge * self.root.S.square().sum()).to(self.state.like)

    def _number(self, value: float) -> Tensor:
        return self.state.like.new_full((), value)

    # Draws; ``sampling.py`` states their law

    def weight_draws(self, count: int, generator: torch.Generator | None) -> Tensor:
        """Return weights [m count] of the features, less their mean: draws of ``N(0, ridge M^-1)``."""
        normal = torch.randn(
            self.sketch.m, count, generator=generator, dtype=torch.float64, device="cpu"
        )
        return math.sqrt(self.ridge) * self.root.S @ normal.to(self.root.S.device)

    def _draw(self, X: Tensor, count: int, generator: torch.Generator | None) -> Tensor:
        """Of the features' part jointly, of the residual point by point; each block of points is evaluated once."""
        sketch, weights = self.sketch, self.weight_draws(count, generator)
        out, normal = X.new_empty(count, len(X)), residual_noise(X, count, generator)
        size = max(1, block_of(_BLOCK, X.device) // max(1, sketch.m))
        for start in range(0, len(X), size):
            here = slice(start, start + size)
            points = X[here].double()
            z = sketch.features(points)
            residual = (sketch.k.diagonal(points) - z.square().sum(0)).clamp_min(0)
            out[:, here] = (weights.mT @ z).addcmul_(residual.sqrt(), normal[:, here])
        return out

    @torch.no_grad()
    def _draw_function(self, like: Tensor, generator: torch.Generator | None) -> SamplePath:
        """``z(x)'w + h(x) - z(x)'L^-1 h(Z)``, h from the prior."""
        prior = self.state.draw_prior(like.double(), generator)
        features = (
            self.sketch.features.fork()
        )  # the draw stays as it is when the dictionary changes
        weights = self.weight_draws(1, generator)[:, 0]
        projected = torch.linalg.solve_triangular(
            features.L, prior(features.anchors).unsqueeze(-1), upper=False
        )
        return SamplePath(prior, features, weights - projected.squeeze(-1))


def residual_noise(X: Tensor, count: int, generator: torch.Generator | None) -> Tensor:
    """Return standard normal numbers [count N] for the residual at X [N d]."""
    return torch.randn(count, len(X), generator=generator, dtype=torch.float64, device="cpu").to(
        X.device
    )


class SketchedResolvent(Resolvent):
    """``(B B' + a I)^-1`` for every a: one decomposition of ``G = B B'`` [m m], O(m^3), and no border."""

    def __init__(self, G: Tensor, By: Tensor, yy: float) -> None:
        values, vectors = torch.linalg.eigh(G)
        self.vectors: Tensor = vectors
        self.values: Tensor = values.clamp_min(0)
        self.target: tuple[Tensor, Tensor] = self.vectors.mT @ By, By[:0]
        self.constant: Tensor = By.new_full((), yy)
        self.C, self.D = G[:, :0], G[:0, :0]
        self.grids: dict[tuple[float, ...], Shifted] = {}

    def multipliers(self, ridges: Number) -> tuple[Number | float, Number | float]:
        return ridges, -1.0

    def log_det(self, shifted: Shifted) -> Tensor:
        return torch.log1p(self.values / shifted.ridges.unsqueeze(-1)).sum(-1)

    def rss(self, shifted: Shifted) -> Tensor:
        """``|y - B'w|^2 = quad - a |w|^2`` with ``w = M^-1 B y``."""
        return (shifted.quad - shifted.ridges * self.solved_square(shifted)).clamp_min(0)
