"""Inducing points of the practical model for many values: dense near the best observations, sparse elsewhere."""

from __future__ import annotations

from torch import Tensor

from kbo.regression import GreedyDictionary
from kbo.regression.sketch.dictionary import Observed, pivots

MOST_EXACT = 500
"""Largest number of observations with an exact posterior; more have a sketch."""

MOST_POINTS = 320
"""Number of inducing points at which they are chosen again."""

N_DRAWN = 224
"""Number of inducing points that are then chosen."""

LEFT_OUT = 0.1
"""Variance of an observation that the sketch may leave unexplained, in noise variances."""


class FocusedDictionary(GreedyDictionary):
    """A dictionary of inducing points: dense where the targets are largest, and sparse elsewhere.

    The first observations come together, and the points are chosen from them. Later observations come one by one and
    enter as in a greedy dictionary, until it is full; then the points are chosen again, from all. They are the pivots
    of a Cholesky factorisation in which the unexplained variance of a location is divided by the rank of its target (as
    in the weighted designs of Moss, Ober & Picheny 2023). Other observations count through the features of the points.

    Args:
        threshold: As for ``GreedyDictionary``.
        most: Number of points at which the dictionary is full.
        kept: Largest number of points that one choice keeps; less than ``most``.
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
