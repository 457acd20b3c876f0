"""A sketched posterior at its own ridge, which follows every observation in O(m^2).

On paper                                       | in code
``mean = z'M^-1 B y``                          | ``weights @ z``
``variance = k - |z|^2 + ridge z'M^-1 z``      | ``predict``; M^-1 = S S' in ``linalg/inverse_root.py``
``ln det(I + B'B / ridge)``                    | ``log_det``
``y'y - (By)'M^-1 By``                         | ``quad``
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from kbo.regression.posterior import LowRankAnswers, Posterior, clamped, in_chunks
from kbo.regression.sketch.all_ridges import SketchedResolvent, factors
from kbo.regression.sketch.draws import SketchDraws
from kbo.regression.sketch.features import kept_for
from kbo.regression.sketch.stream import Sketch

_CHUNK = {"cpu": 2**19, "cuda": 2**26}
"""Entries of k(Z, x) that are evaluated at once."""

_MANY, _LARGE = 32, 1e-3
"""Points per anchor from which a prediction is worth an eigendecomposition, which halves the work per point; and the
ridge, as a fraction of the kernel, from which the variance has all its digits then."""


class OwnRidge(SketchDraws, LowRankAnswers):
    """Answers of a sketched posterior at its own ridge.

    Args:
        state: The posterior.
        sketch: Its data.
        weights: ``M^-1 B y``, [m].
        spectrum: Returns the resolvent of the data.
    """

    def __init__(
        self, state: Posterior, sketch: Sketch, weights: Tensor, spectrum: Callable[[], SketchedResolvent]
    ) -> None:
        super().__init__(state, sketch.ridge)
        self.sketch, self.weights, self.spectrum = sketch, weights, spectrum

    def predict(self, X: Tensor) -> tuple[Tensor, Tensor]:  # noqa: D102
        self.state.check(X)
        flat, m = X.reshape(-1, X.shape[-1]), self.sketch.m
        many = len(flat) > _MANY * m and self.ridge >= _LARGE * (self.sketch.kappa or 1.0)
        size = max(1, _CHUNK.get(X.device.type, 2**19) // max(1, m))
        mean, variance = in_chunks(self._halved() if many else self._moments, flat, size)
        return mean.reshape(X.shape[:-1]), variance.reshape(X.shape[:-1])

    def _moments(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance [N] of X [N d]."""
        dtype, X = X.dtype, X.double()
        z, prior = self.sketch.features(X), self.sketch.k.diagonal(X)
        form = (kept_for(z, self.sketch.root.S).mT @ z).square().sum(0)
        variance = (prior - z.square().sum(0)).clamp_min(0) + self.ridge * form
        return (self.weights @ z).to(dtype), self.clamped(variance, prior).to(dtype)

    def _halved(self) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
        """The same for many points: ``|z|^2 - ridge z'M^-1 z = |V k(Z, x)|^2`` in one product instead of two."""
        basis, whitener = self.spectrum(), self.sketch.features.whitener
        V = (basis.values / (basis.values + self.ridge)).sqrt().unsqueeze(-1) * basis.vectors.mT @ whitener
        alpha = self.weights @ whitener

        def moments(X: Tensor) -> tuple[Tensor, Tensor]:
            dtype, X = X.dtype, X.double()
            columns, prior = self.sketch.features.columns(X), self.sketch.k.diagonal(X)
            mean = alpha @ columns
            variance = prior - (V @ columns).square_().sum(0)
            return mean.to(dtype), self.clamped(variance, prior).to(dtype)

        return moments

    def clamped(self, variance: Tensor, prior: Tensor) -> Tensor:
        """Return variances clamped from below at their least possible value."""
        return clamped(variance, prior, self.ridge, self.sketch.trace)

    def factored(self, X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return mean and factors: ``covariance(x, x') = k(x, x') - z(x)'z(x') + ridge z(x)'M^-1 z(x')``."""
        self.state.check(X)
        z = self.sketch.features(X.reshape(-1, X.shape[-1]).double())
        return factors(self.weights @ z, z, kept_for(z, self.sketch.root.S).mT @ z, self.ridge, X)

    def log_det(self) -> Tensor:  # noqa: D102
        return self._number(self.sketch.log_det())

    def quad(self) -> Tensor:  # noqa: D102
        return self._number(self.sketch.quad(self.weights))

    def rss(self) -> Tensor:  # noqa: D102
        return self._number(self.sketch.rss(self.weights))

    def effective_dimension(self) -> Tensor:
        """Return ``Tr B'B (B'B + ridge I)^-1``, the effective dimension of the sketched kernel matrix."""
        return self._number(self.sketch.effective_dimension())

    def _number(self, value: float) -> Tensor:
        return torch.tensor(value, dtype=self.state.dtype, device=self.state.device)

    def root(self) -> Tensor:  # noqa: D102
        return self.sketch.root.S
