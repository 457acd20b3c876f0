"""Covers of very large sets under stationary kernels, by Euclidean distances.

Two cheap upper bounds replace the distances of the posterior. Data never increase a distance, so it
is at most that of the prior, which grows with the Euclidean distance: a k-d tree finds the near
points. And ``d(x, z) <= std(x) + std(z)``: a centre of small standard deviation covers all points
of small standard deviation.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from scipy.spatial import KDTree
from torch import Tensor

from kbo.confidence.chaining.metric import PosteriorMetric

_HALVINGS = 60


class Neighbours:
    """A set under a stationary kernel, by Euclidean distances.

    Args:
        coordinates: The points in lengthscales, [N k].
        kernel: The kernel as a decreasing function of the distance of coordinates.
    """

    def __init__(self, coordinates: Tensor, kernel: Callable[[Tensor], Tensor]) -> None:
        self._kernel = kernel
        self._coordinates = coordinates
        self._tree = KDTree(coordinates.cpu().numpy())

    def reach(self, radius: float) -> float:
        """Return the largest Euclidean distance that is within ``radius`` under the prior."""
        reach = 0.0
        beyond = float(np.ptp(self._tree.data, axis=0).sum()) + 1.0
        for _ in range(_HALVINGS):
            middle = (reach + beyond) / 2
            variance, covariance = self._kernel(
                self._coordinates.new_tensor([0.0, middle])
            ).tolist()
            if 2 * (variance - covariance) <= radius**2:
                reach = middle
            else:
                beyond = middle
        return reach

    def net(self, metric: PosteriorMetric, radius: float, centres: Tensor) -> Tensor:
        """Return points that cover the set together with the centres, by their numbers.

        A first-fit net, under the prior distance, of all points that no cheap bound shows to be
        covered. Points that are covered all the same make it larger, never wrong.
        """
        reach = self.reach(radius)
        points = self._tree.data
        added: list[int] = []
        if not len(centres):  # the point of the least standard deviation covers most others
            added.append(int(metric.std.argmin()))
            centres = metric.std.argmin().reshape(1)
        tree = KDTree(points[centres.cpu().numpy()])
        within = np.nextafter(reach, np.inf)
        workers = torch.get_num_threads()
        distances, _ = tree.query(points, distance_upper_bound=within, workers=workers)
        # d(x, c) <= std(x) + std(c)
        is_small = metric.std <= radius - metric.std[centres].min()
        is_covered = (distances <= reach) | is_small.cpu().numpy()
        for point in np.flatnonzero(~is_covered).tolist():
            if not is_covered[point]:
                added.append(point)
                is_covered[self._tree.query_ball_point(points[point], reach)] = True
        return torch.tensor(added, dtype=torch.long, device=metric.device)
