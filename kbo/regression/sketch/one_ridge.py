"""A sketched posterior at one ridge; its own ridge follows every observation in O(m^2).

Notation: M = B B' + ridge I and S S' = M^-1 (``linalg/inverse_root.py``).

On paper                                       | in code
``w = M^-1 B y``                               | ``weights``
``mean = z'w = (S'B y)'(S'z)``                 | ``weights @ z``, ``whitened @ p``
``variance = k - |z|^2 + ridge z'M^-1 z``      | ``_moments``
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

from kbo.linalg import InverseRoot
from kbo.regression.numerics import block_of, clamped, in_chunks
from kbo.regression.posterior import LowRankAnswers
from kbo.regression.sampling import SamplePath
from kbo.regression.sketch.features import kept_for
from kbo.regression.sketch.stream import Sketch
from kbo.stateful import passed_on

_BLOCK = 2**19
"""Entries of k(Z, x) that are evaluated at once."""

_MANY, _LARGE = 32, 1e-3
"""Points per anchor from which a prediction is worth an eigendecomposition, which halves the work per point; and the
ridge, as a fraction of the kernel, from which the variance has all its digits then."""


class SketchAnswers(LowRankAnswers):
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
        mean, variance = in_chunks(self._halved() if many else self._moments, flat, size)
        return mean.reshape(X.shape[:-1]), variance.reshape(X.shape[:-1])

    def _moments(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance [N] of X [N d]."""
        dtype, X = X.dtype, X.double()
        z, prior = self.sketch.features(X), self.sketch.k.diagonal(X)
        p = kept_for(z, self.root.S).mT @ z
        variance = (prior - z.square().sum(0)).clamp_min(0).add(p.square().sum(0), alpha=self.ridge)
        return (self.whitened @ p).to(dtype), clamped(variance, prior, self.ridge, self.sketch.trace).to(dtype)

    def _halved(self) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
        """The same for many points: ``|z|^2 - ridge z'M^-1 z = |V k(Z, x)|^2`` in one product instead of two."""
        basis, whitener = self.state.spectrum(), self.sketch.features.whitener
        V = (basis.values / (basis.values + self.ridge)).sqrt().unsqueeze(-1) * basis.vectors.mT @ whitener
        alpha = self.weights @ whitener

        def moments(X: Tensor) -> tuple[Tensor, Tensor]:
            dtype, X = X.dtype, X.double()
            columns, prior = self.sketch.features.columns(X), self.sketch.k.diagonal(X)
            mean = alpha @ columns
            variance = clamped(prior - (V @ columns).square_().sum(0), prior, self.ridge, self.sketch.trace)
            return mean.to(dtype), variance.to(dtype)

        return moments

    def factored(self, X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """``covariance(x, x') = k(x, x') - z(x)'z(x') + ridge z(x)'M^-1 z(x')``."""
        self.state.check(X)
        z = self.sketch.features(X.reshape(-1, X.shape[-1]).double())
        part = math.sqrt(self.ridge) * kept_for(z, self.root.S).mT @ z
        U, V = (torch.cat([z, side]) for side in (-part, part))
        U, V = (side.reshape(len(side), *X.shape[:-1]).movedim(0, -2).to(X.dtype) for side in (U, V))
        return (self.weights @ z).reshape(X.shape[:-1]).to(X.dtype), U, V

    def log_det(self) -> Tensor:
        return self.state.number(self.root.log_det if self.sketch.n else 0.0)

    def quad(self) -> Tensor:
        return (self.sketch.yy - self.sketch.By @ self.weights).clamp_min(0).to(self.state.dtype)

    def rss(self) -> Tensor:
        return (self.quad() - self.ridge * self.weights.square().sum().to(self.state.dtype)).clamp_min(0)

    def effective_dimension(self) -> Tensor:
        """``Tr B'B M^-1 = m - ridge Tr M^-1``, of the sketched kernel matrix."""
        if not self.sketch.n:
            return self.state.number(0.0)
        return (self.sketch.m - self.ridge * self.root.S.square().sum()).to(self.state.dtype)

    # Draws; ``sampling.py`` states their law

    def weight_draws(self, count: int, generator: torch.Generator | None) -> Tensor:
        """Return weights [m count] of the features, less their mean: draws of ``N(0, ridge M^-1)``."""
        normal = torch.randn(self.sketch.m, count, generator=generator, dtype=torch.float64)
        return math.sqrt(self.ridge) * self.root.S @ normal.to(self.root.S.device)

    @torch.no_grad()
    def deviations(self, X: Tensor, count: int, generator: torch.Generator | None = None) -> Tensor:
        """Of the features' part jointly, of the residual point by point; any N."""
        self.state.check(X)
        return self._draws(X, self.weight_draws(count, generator), generator)

    @torch.no_grad()
    def sample(self, X: Tensor, count: int, generator: torch.Generator | None = None) -> Tensor:
        self.state.check(X)
        return self._draws(X, self.weights.unsqueeze(-1) + self.weight_draws(count, generator), generator)

    def _draws(self, X: Tensor, weights: Tensor, generator: torch.Generator | None) -> Tensor:
        """Draws [count N] at X [N d] with feature weights [m count]; each block of points is evaluated once."""
        sketch, count = self.sketch, weights.shape[1]
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
    def draw_function(self, like: Tensor, generator: torch.Generator | None = None) -> SamplePath:
        """``z(x)'w + h(x) - z(x)'L^-1 h(Z)``, h from the prior."""
        self.state.check(like)
        prior = self.state.draw_prior(like.double(), generator)
        features = self.sketch.features.fork()  # the draw stays as it is when the dictionary changes
        weights = self.weight_draws(1, generator)[:, 0]
        projected = torch.linalg.solve_triangular(features.L, prior(features.anchors).unsqueeze(-1), upper=False)
        return SamplePath(prior, features, weights - projected.squeeze(-1))


def residual_noise(X: Tensor, count: int, generator: torch.Generator | None) -> Tensor:
    """Return standard normal numbers [count N] for the residual at X [N d]."""
    return torch.randn(count, len(X), generator=generator, dtype=torch.float64).to(X.device)
