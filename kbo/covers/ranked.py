"""A small set with all its distances, a byte each, for covers at radii that are known beforehand."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from kbo.covers.greedy import dominating
from kbo.covers.metric import Metric


class Ranked:
    """Who is within which of the radii of whom: every distance is formed once for all of them.

    Args:
        metric: The set; N^2 bytes are taken.
        radii: Decreasing, at most 255.
    """

    def __init__(self, metric: Metric, radii: Sequence[float]) -> None:
        assert len(radii) < 256
        self._radii = list(radii)
        # How many of the radii a distance is within.
        self._ranks = torch.empty(len(metric), len(metric), dtype=torch.uint8, device=metric.device)
        for rows, columns, squared in metric.pairs():
            rank = torch.zeros_like(squared, dtype=torch.uint8)
            for radius in self._radii:
                rank += squared <= metric.limit(radius)
            self._ranks[rows, columns] = rank
            self._ranks[columns, rows] = rank.mT

    def cover(self, radius: float, among: Tensor) -> Tensor:
        """As ``greedy_cover``, at one of the radii."""
        return dominating((self._ranks > self._radii.index(radius)).view(torch.uint8), among)

    def uncovered(self, centres: Tensor, radius: float) -> Tensor:
        """Numbers of the points that are within ``radius``, one of the radii, of no centre."""
        rank = torch.zeros_like(self._ranks[0])
        for some in centres.split(512) if len(centres) else ():
            rank = torch.maximum(rank, self._ranks.index_select(0, some).amax(0))
        return (rank <= self._radii.index(radius)).nonzero().squeeze(-1)
