"""Very large sets under stationary kernels: who is surely covered is found without forming posterior distances.

Two bounds are enough, and both are cheap. Data only bring points together, so the distance is at most that of the
prior, which grows with the Euclidean distance: a k-d tree finds who is near. And

    d(x, z) <= std(x) + std(z),

so the best known point covers every other that is known well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy.spatial import KDTree
from torch import Tensor

from kbo.covers.greedy import uncovered
from kbo.covers.metric import Metric, PosteriorMetric

_LISTED = 2**20
"""Neighbours that are listed together."""

_TOGETHER = 1024
"""Points whose neighbours are looked up together."""


class Neighbours:
    """A set under a stationary kernel, by Euclidean distances.

    Args:
        coordinates: The points in lengthscales, [N c].
        prior: The kernel as a decreasing function of the distance of coordinates.
    """

    def __init__(self, coordinates: Tensor, prior: Callable[[Tensor], Tensor]) -> None:
        self._like, self._prior = coordinates.new_empty(0), prior
        self._coordinates = coordinates.cpu().numpy()
        self._tree = KDTree(self._coordinates)

    @classmethod
    def over(cls, metric: Metric) -> Neighbours | None:
        """The set; None if its distances have nothing to do with Euclidean ones."""
        if not isinstance(metric, PosteriorMetric):
            return None
        radial = metric.state.radial(metric.points)
        return None if radial is None else cls(*radial)

    def reach(self, radius: float) -> float:
        """The largest Euclidean distance, in lengthscales, at which the distance of the prior is at most ``radius``."""
        near, far = 0.0, float(np.ptp(self._coordinates, axis=0).sum()) + 1.0
        g = self._prior
        for _ in range(60):
            middle = (near + far) / 2
            r = self._like.new_tensor([0.0, middle])
            at_zero, value = g(r).tolist()
            near, far = (middle, far) if 2 * (at_zero - value) <= radius * radius else (near, middle)
        return near

    def uncovered(self, metric: Any, radius: float, centres: Tensor, among: Tensor) -> Tensor:
        """The numbers ``among`` of points that are within ``radius`` of no centre; those of sure ones cost little."""
        among = among[self._unsure(metric, radius, centres, among)]
        return among[uncovered(metric[among], metric[centres], radius)]

    def _unsure(self, metric: Any, radius: float, centres: Tensor, among: Tensor) -> Tensor:
        """Positions in ``among`` of points that may be within ``radius`` of no centre."""
        if not len(centres):
            return torch.arange(len(among), device=among.device)
        numbers = among.cpu().numpy()
        tree, reach = KDTree(self._coordinates[centres.cpu().numpy()]), self.reach(radius)
        away, _ = tree.query(
            self._coordinates[numbers],
            distance_upper_bound=np.nextafter(reach, np.inf),
            workers=torch.get_num_threads(),
        )
        known = metric.std[among] <= radius - metric.std[centres].min()
        return (torch.as_tensor(away > reach, device=among.device) & ~known).nonzero().squeeze(-1)

    def net(self, metric: Any, radius: float, centres: Tensor) -> Tensor:
        """Numbers of points that, with the centres, cover the set: a first-fit net of what is not surely covered.

        Points that are covered but not surely are overlooked, which makes the net larger, never wrong.

        Args:
            metric: The set under the posterior of now.
            radius: The radius.
            centres: Numbers of points that are there already.
        """
        everything = torch.arange(len(metric), device=metric.device)
        chosen = [] if len(centres) else [int(metric.std.argmin())]
        before = torch.cat([centres, centres.new_tensor(chosen)])
        left = self._unsure(metric, radius, before, everything).cpu().numpy()
        covered, reach = np.zeros(len(metric), dtype=bool), self.reach(radius)
        while len(left):
            some = left[: self._affordable(left[:_TOGETHER], reach)]
            for point, ball in zip(some, self._balls(some, reach), strict=True):
                if not covered[point]:
                    chosen.append(point)
                    covered[ball] = True
            left = left[len(some) :]
            left = left[~covered[left]]
        return torch.as_tensor(np.array(chosen, dtype=np.int64), device=metric.device)

    def _affordable(self, points: np.ndarray, reach: float) -> int:
        """How many of the points, from the first, have so few neighbours together that lists of them are small."""
        workers = torch.get_num_threads()
        counts = self._tree.query_ball_point(self._coordinates[points], reach, return_length=True, workers=workers)
        return max(1, int((counts.cumsum() <= _LISTED).sum()))

    def _balls(self, points: np.ndarray, reach: float) -> list[list[int]]:
        """The neighbours of points."""
        return self._tree.query_ball_point(self._coordinates[points], reach, workers=torch.get_num_threads())
