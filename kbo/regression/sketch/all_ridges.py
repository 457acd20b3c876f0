"""All ridges of a sketched posterior, from the eigenvalues of an m by m matrix."""

from __future__ import annotations

import torch
from torch import Tensor

from kbo.regression.resolvent import Resolvent


class SketchedResolvent(Resolvent):
    """``(B B' + a I)^-1`` for every a, as things stand: one decomposition, O(m^3), and no border.

    Args:
        G: ``B B'``, [m m].
        By: ``B y``, [m].
        yy: ``y'y``.
    """

    def __init__(self, G: Tensor, By: Tensor, yy: float) -> None:
        values, self.vectors = torch.linalg.eigh(G)
        self.values = values.clamp_min(0)
        self.target = self.vectors.mT @ By, By[:0]
        self.rest = By.new_tensor(yy)
        self.C = G[:, :0]
        self.memory = {}

    def border(self, ridges: Tensor) -> Tensor:  # noqa: D102
        return ridges.new_empty(len(ridges), 0, 0)

    def covariance(self, prior: Tensor, form: Tensor, ridges: Tensor) -> Tensor:  # noqa: D102
        return prior + ridges * form

    def quad_of(self, form: Tensor, ridges: Tensor) -> Tensor:  # noqa: D102
        return (self.rest - form).clamp_min(0)

    def log_det(self, ridges: Tensor) -> Tensor:
        """``ln det(I + B'B / a)``, [r]."""
        return torch.log1p(self.values / ridges.unsqueeze(-1)).sum(-1)

    def rss(self, ridges: Tensor) -> Tensor:
        """``|y - B'w|^2 = quad - a |w|^2`` with ``w = M^-1 B y``, [r]."""
        return (self.quad(ridges) - ridges * self.solved_square(ridges)).clamp_min(0)

    def effective_dimension(self, ridges: Tensor) -> Tensor:
        """``Tr B'B (B'B + a I)^-1``, [r]."""
        return (self.values * self.weights(ridges)).sum(-1)

    def coordinates(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Features [m q] in the basis [m q], and nothing at the border [0 q]."""
        return self.vectors.mT @ features, features[:0]
