"""Draws from a sketched posterior; ``sampling/finite_set.py`` says what law they have."""

from __future__ import annotations

import math
from abc import abstractmethod

import torch
from torch import Tensor

from kbo.regression.posterior import Answers
from kbo.regression.sampling.function import SamplePath
from kbo.regression.sketch.stream import Sketch

_CHUNK = {"cpu": 2**19, "cuda": 2**26}
"""Features that are evaluated at once."""


class SketchDraws(Answers):
    """Answers of a sketch that draw the weights of its features.

    Attributes:
        sketch: The data of the posterior.
    """

    sketch: Sketch

    @abstractmethod
    def root(self) -> Tensor:
        """Return a square root [m r] of ``(B B' + ridge I)^-1``."""

    def weight_draws(self, count: int, generator: torch.Generator | None) -> Tensor:
        """Return weights [m count] of the features, less their mean: draws of ``N(0, ridge M^-1)``."""
        root = self.root()
        normal = torch.randn(root.shape[-1], count, generator=generator, dtype=torch.float64)
        return math.sqrt(self.ridge) * root @ normal.to(root.device)

    @torch.no_grad()
    def deviations(self, X: Tensor, count: int, generator: torch.Generator | None = None) -> Tensor:
        """Return draws [count N] of the features' part, jointly, and of the residual, point by point; any N."""
        self.state.check(X)
        weights, normal = self.weight_draws(count, generator), residual_noise(X, count, generator)
        out, sketch = X.new_empty(count, len(X)), self.sketch
        size = max(1, _CHUNK.get(X.device.type, 2**19) // max(1, sketch.m))
        for start in range(0, len(X), size):
            here = slice(start, start + size)
            points = X[here].double()
            z = sketch.features(points)
            residual = (sketch.k.diagonal(points) - z.square().sum(0)).clamp_min(0)
            out[:, here] = (weights.mT @ z).addcmul_(residual.sqrt(), normal[:, here])
        return out

    @torch.no_grad()
    def draw_function(self, like: Tensor, generator: torch.Generator | None = None) -> SamplePath:
        """Return a draw less its mean: ``z(x)'w + h(x) - z(x)'L^-1 h(Z)``, h from the prior."""
        self.state.check(like)
        prior = self.state.draw_prior(like.double(), generator)
        features = self.sketch.features.fork()  # the draw stays as it is when the dictionary changes
        weights = self.weight_draws(1, generator)[:, 0]
        projected = torch.linalg.solve_triangular(features.L, prior(features.anchors).unsqueeze(-1), upper=False)
        return SamplePath(prior, features, weights - projected.squeeze(-1))


def residual_noise(X: Tensor, count: int, generator: torch.Generator | None) -> Tensor:
    """Return standard normal numbers [count N] for the residual at X [N d]."""
    return torch.randn(count, len(X), generator=generator, dtype=torch.float64).to(X.device)
