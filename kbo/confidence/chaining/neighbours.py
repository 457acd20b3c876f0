"""Covers of very large sets under stationary kernels: most covered points are found without posterior distances.

Two bounds are enough, and both are cheap. Data only bring points together, so the distance is at most that of the
prior, which grows with the Euclidean distance: a k-d tree finds the near points. And

    d(x, z) <= std(x) + std(z),

so the point of the least standard deviation covers every other of a small one.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from scipy.spatial import KDTree
from torch import Tensor

from kbo.confidence.chaining.greedy import uncovered
from kbo.confidence.chaining.metric import Metric

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

    def reach(self, radius: float) -> float:
        """Return the largest Euclidean distance [lengthscales] at which that of the prior is at most ``radius``."""
        near, far = 0.0, float(np.ptp(self._coordinates, axis=0).sum()) + 1.0
        g = self._prior
        for _ in range(60):
            middle = (near + far) / 2
            r = self._like.new_tensor([0.0, middle])
            at_zero, value = g(r).tolist()
            near, far = (
                (middle, far) if 2 * (at_zero - value) <= radius * radius else (near, middle)
            )
        return near

    def uncovered(self, metric: Metric, radius: float, centres: Tensor, among: Tensor) -> Tensor:
        """Return the numbers ``among`` of points that are within ``radius`` of no centre."""
        among = among[self._unsure(metric, radius, centres, among)]
        return among[uncovered(metric[among], metric[centres], radius)]

    def _unsure(self, metric: Metric, radius: float, centres: Tensor, among: Tensor) -> Tensor:
        """Return the positions in ``among`` of points that may be within ``radius`` of no centre."""
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

    def net(self, metric: Metric, radius: float, centres: Tensor) -> Tensor:
        """Return points that, with the centres, cover the set: a first-fit net of what is not surely covered.

        Points that are covered, but not surely, are covered again, which makes the net larger, never wrong.

        Args:
            metric: The set under the current posterior.
            radius: The radius.
            centres: Numbers of the centres so far.
        """
        everything = torch.arange(len(metric), device=metric.device)
        chosen = [] if len(centres) else [int(metric.std.argmin())]
        before = torch.cat([centres, centres.new_tensor(chosen)])
        left = self._unsure(metric, radius, before, everything).cpu().numpy()
        covered, reach = np.zeros(len(metric), dtype=bool), self.reach(radius)
        while len(left):
            some = left[: self._affordable(left[:_TOGETHER], reach)]
            balls = self._tree.query_ball_point(
                self._coordinates[some], reach, workers=torch.get_num_threads()
            )
            for point, ball in zip(some, balls, strict=True):
                if not covered[point]:
                    chosen.append(point)
                    covered[ball] = True
            left = left[len(some) :]
            left = left[~covered[left]]
        return torch.as_tensor(np.array(chosen, dtype=np.int64), device=metric.device)

    def _affordable(self, points: np.ndarray, reach: float) -> int:
        """Return how many of the points, from the first, have few enough neighbours together to be listed."""
        workers = torch.get_num_threads()
        counts = self._tree.query_ball_point(
            self._coordinates[points], reach, return_length=True, workers=workers
        )
        return max(1, int((counts.cumsum() <= _LISTED).sum()))
