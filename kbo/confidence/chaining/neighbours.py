"""Covers of very large sets under stationary kernels, by Euclidean distances.

Two cheap upper bounds replace the posterior distance d. First, data never increase d, so it is at
most the prior distance. This grows with the Euclidean distance, so a k-d tree finds near points.
Second, ``d(x, z) <= std(x) + std(z)``, so a centre of small standard deviation covers all points of
small standard deviation.
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
    """A finite set with a stationary kernel, whose covers are found by Euclidean distances.

    Args:
        coordinates: The points in units of the lengthscales, [N k].
        kernel: The kernel as a decreasing function of the distance of coordinates.
    """

    def __init__(self, coordinates: Tensor, kernel: Callable[[Tensor], Tensor]) -> None:
        self._kernel = kernel
        self._coordinates = coordinates
        self._tree = KDTree(coordinates.cpu().numpy())

    def reach(self, radius: float) -> float:
        """Return the largest Euclidean distance at which the prior distance is within ``radius``."""
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
        """Return point numbers that cover the set together with the centres.

        They are a first-fit net, under the prior distance, of the points that the cheap bounds do
        not show to be covered. If some of these are covered in fact, the net is larger than needed,
        but valid.
        """
        reach = self.reach(radius)
        points = self._tree.data
        added: list[int] = []
        if not len(centres):  # take the point of least standard deviation, which covers most others
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
