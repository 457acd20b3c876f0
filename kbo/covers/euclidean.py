"""Nets of very large sets: points that are surely covered are found without forming a posterior distance.

Two bounds are enough, and both are cheap. Data only bring points together, so under a stationary kernel the distance is
at most that of the prior, which grows with the Euclidean distance: a k-d tree finds who is near. And

    d(x, z) <= std(x) + std(z),

so the best known point covers every other that is known well. What else is covered is overlooked, which makes a net
larger but never wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy.spatial import KDTree
from torch import Tensor

from kbo.covers.metric import Metric, PosteriorMetric
from kbo.kernels import freeze

_TOGETHER = 1024
"""Points whose neighbours are looked up together."""


class EuclideanNets:
    """First-fit nets of a set under a stationary kernel.

    Args:
        coordinates: The points in lengthscales, [N c].
        prior: The kernel as a decreasing function of the distance of coordinates.
    """

    def __init__(self, coordinates: Tensor, prior: Callable[[Tensor], Tensor]) -> None:
        self._like, self._prior = coordinates, prior
        self._coordinates = coordinates.cpu().numpy()
        self._tree = KDTree(self._coordinates)

    @classmethod
    def over(cls, metric: Metric) -> EuclideanNets | None:
        """Nets of the set; None if its distances have nothing to do with Euclidean ones."""
        if not isinstance(metric, PosteriorMetric):
            return None
        radial = freeze(metric.state.kernel, metric.points).radial(metric.points)
        return None if radial is None else cls(*radial)

    def reach(self, radius: float) -> float:
        """The largest Euclidean distance, in lengthscales, at which the distance of the prior is at most ``radius``."""
        near, far = 0.0, float(np.ptp(self._coordinates, axis=0).sum()) + 1.0
        g = self._prior
        for _ in range(60):
            middle = (near + far) / 2
            r = self._like.new_tensor([0.0, middle])
            at_zero, value = g(r).tolist()
            near, far = (middle, far) if 2 * (at_zero - value) <= radius**2 else (near, middle)
        return near

    def net(self, metric: Any, radius: float, centres: Tensor) -> Tensor:
        """Numbers of points that, with the centres, cover the set.

        Args:
            metric: The set under the posterior of now.
            radius: The radius.
            centres: Numbers of points that are there already.
        """
        std, reach = metric.std.cpu().numpy(), self.reach(radius)
        covered = np.zeros(len(std), dtype=bool)
        before = centres.cpu().numpy()
        for start in range(0, len(before), _TOGETHER):
            for ball in self._balls(before[start : start + _TOGETHER], reach):
                covered[ball] = True
        best = before[std[before].argmin()] if len(before) else int(std.argmin())
        chosen = [] if len(before) else [best]
        covered |= std <= radius - std[best]
        covered[chosen] = True
        left = np.flatnonzero(~covered)
        while len(left):
            for point, ball in zip(left[:_TOGETHER], self._balls(left[:_TOGETHER], reach), strict=True):
                if not covered[point]:
                    chosen.append(point)
                    covered[ball] = True
            left = left[_TOGETHER:]
            left = left[~covered[left]]
        return torch.as_tensor(np.array(chosen, dtype=np.int64), device=metric.device)

    def _balls(self, points: np.ndarray, reach: float) -> list[list[int]]:
        """The neighbours of points."""
        return self._tree.query_ball_point(self._coordinates[points], reach, workers=torch.get_num_threads())
