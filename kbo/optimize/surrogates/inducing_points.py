"""Inducing points of the practical model: dense near the best observations, sparse elsewhere."""

from __future__ import annotations

from torch import Tensor

from kbo.regression import GreedyDictionary
from kbo.regression.sketch.dictionary import Observed, pivots

MOST_EXACT = 500
"""Observations with an exact posterior; of more, a sketch is taken."""

MOST_POINTS, N_DRAWN = 320, 224
"""Inducing points at which a part of them is drawn, and the size of that part."""

LEFT_OUT = 0.1
"""Part of the noise variance that the sketch may leave unexplained of an observation."""


class FocusedDictionary(GreedyDictionary):
    """Dense where the targets are largest, and sparse elsewhere.

    The first observations, which come together, are drawn from. Later ones, which come one by one, enter as in a greedy
    dictionary until it is full; then all are drawn from again. A draw is a pivoted Cholesky factorisation in which the
    unexplained variance of a location is divided by the rank of its target, as in the weighted designs of Moss, Ober &
    Picheny (2023). Observations that are left out count through the features of the others.

    Args:
        threshold: As for ``GreedyDictionary``.
        most: Number of points at which it is full.
        kept: Largest number of points that are drawn, fewer.
    """

    in_blocks = True

    def __init__(self, threshold: float, most: int, kept: int) -> None:
        super().__init__(threshold, most)
        self.kept = kept

    def redraws(self, sketch: Observed) -> list[int] | None:
        if 0 < sketch.m < (self.most or 1):
            return None
        return self.chosen(sketch)

    def chosen(self, sketch: Observed) -> list[int]:
        rows = sketch.rows
        means = rows.sums / rows.counts
        rank = 1 + means.argsort(descending=True).argsort()
        self.capped |= rows.n > self.kept
        least = 1e-9 * float(rows.prior.max())

        def covariance(i: int) -> Tensor:
            return sketch.k(rows.X[i : i + 1], rows.X)[0]

        return pivots(covariance, rows.prior, self.kept, least, 1 / rank)[0]
