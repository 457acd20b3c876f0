"""Euclidean neighbours: covers of very large sets without posterior distances.

For stationary kernels.

Two cheap bounds are enough. Data only bring points together, so the distance is at most that of the
prior, which grows with the Euclidean distance: a k-d tree finds the near points. And a point of
small standard deviation covers every other one, since ``d(x, z) <= std(x) + std(z)``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from scipy.spatial import KDTree
from torch import Tensor

from kbo.confidence.chaining.metric import Metric

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

    def candidates(self, metric: Metric, radius: float, centres: Tensor, among: Tensor) -> Tensor:
        """Return a mask of the points ``among`` that may be within ``radius`` of no centre."""
        reach = self.reach(radius)
        tree = KDTree(self._tree.data[centres.cpu().numpy()])
        distances, _ = tree.query(
            self._tree.data[among.cpu().numpy()],
            distance_upper_bound=np.nextafter(reach, np.inf),
            workers=torch.get_num_threads(),
        )
        is_far = torch.as_tensor(distances > reach, device=among.device)
        is_uncertain = metric.std[among] > radius - metric.std[centres].min()
        return is_far & is_uncertain

    def net(self, radius: float, among: Tensor) -> Tensor:
        """Return the first-fit net of some points, by their numbers, under the prior distance."""
        reach = self.reach(radius)
        is_covered = np.zeros(self._tree.n, dtype=bool)
        centres: list[int] = []
        for point in among.tolist():
            if not is_covered[point]:
                centres.append(point)
                is_covered[self._tree.query_ball_point(self._tree.data[point], reach)] = True
        return torch.tensor(centres, dtype=torch.long, device=among.device)
