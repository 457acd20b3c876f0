"""The points of a sketch for the search of a maximum among many observations."""

from __future__ import annotations

from kbo.regression import GreedyDictionary
from kbo.regression.sketch.dictionary import Observed, pivots


class FocusedDictionary(GreedyDictionary):
    """Close to each other where the targets are largest, and sparse elsewhere.

    The first observations, which come together, are drawn from. Later ones, which come one by one, enter as in a greedy
    dictionary until it is full; then all are drawn from again. A draw is a pivoted Cholesky factorisation in which what
    is unexplained of a location is divided by the rank of its target, as in the weighted designs of Moss, Ober &
    Picheny (2023). Observations that are left out count through the features of those that stay.

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
        rows = sketch.rows
        rank = 1 + (rows.sums / rows.counts).argsort(descending=True).argsort()
        self.capped |= rows.n > self.kept
        return pivots(lambda i: sketch.k(rows.X[i : i + 1], rows.X)[0], rows.prior, self.kept, 1e-9, 1 / rank)
