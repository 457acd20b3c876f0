"""Covers of a finite set: points such that every point of the set is within a radius of one.

On paper                                            | in code
greedy cover: Contal et al. (2015), Algorithm 2     | ``greedy_cover``, ``dominating_set``
net: a cover of points further apart than the radius | ``first_fit_net``
a net of a very large set, by Euclidean distances   | ``Neighbours``

``Neighbours`` is for stationary kernels. Two cheap upper bounds replace the posterior distance d.
First, data never increase d, so it is at most the prior distance. This grows with the Euclidean
distance, so a k-d tree finds near points. Second, ``d(x, z) <= std(x) + std(z)``, so a centre of small
standard deviation covers all points of small standard deviation.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import KDTree
from torch import Tensor

from kbo._base import checks
from kbo.confidence.chaining.metric import PosteriorMetric
from kbo.errors import InvalidInput

AT_ONCE = 10_000
"""Largest number of points of which all pairs are compared at once, with one byte per pair."""

NET_BLOCK = 512
"""Number of points that are considered together for a net."""

CENTRE_BLOCK = 512
"""Number of centres that are compared with other points at once."""


def greedy_cover(metric: PosteriorMetric, radius: float) -> Tensor:
    """Return a small cover, in the order of choice: Contal, Malherbe & Vayatis (2015), Algorithm 2.

    The next centre is the point that covers the most uncovered points; ties go to the first.

    Args:
        metric: The set, of at most ``AT_ONCE`` points.
        radius: The radius, at least 0, in units of the distance.

    Raises:
        InvalidInput: A radius below zero, or too many points.
    """
    checks.instance("metric", metric, PosteriorMetric)
    radius = checks.non_negative("radius", radius)
    if len(metric) > AT_ONCE:
        raise InvalidInput(
            f"a greedy cover compares all pairs of at most {AT_ONCE} points, got {len(metric)}: "
            "take first_fit_net, or a Chain."
        )
    ranks = metric.ranks([radius]).cpu()
    everything = torch.arange(len(metric), device="cpu")
    return dominating_set(ranks, 0, everything).to(metric.device)


def dominating_set(ranks: Tensor, level: int, among: Tensor) -> Tensor:
    """Return point numbers of a greedy dominating set of some points of a graph.

    All tensors are on the host, where a choice takes a fifth of the time.

    Args:
        ranks: Bytes [N N]. Two points are neighbours if their rank is above ``level``; every point
            is a neighbour of itself.
        level: The largest rank, at least 0, at which two points are no neighbours.
        among: The numbers of the points to cover; the centres are some of them.
    """
    table = ranks.numpy()
    is_uncovered = np.zeros(len(table), bool)
    is_uncovered[among.numpy()] = True
    gains = _neighbour_counts(table, level, among.numpy())  # uncovered points covered by each
    gains = gains * is_uncovered
    centres: list[int] = []
    while len(table):
        best = int(gains.argmax())
        newly_covered = ((table[best] > level) & is_uncovered).nonzero()[0]
        if len(newly_covered) < 2:
            break  # every uncovered point covers only itself
        centres.append(best)
        is_uncovered[newly_covered] = False
        gains -= _neighbour_counts(table, level, newly_covered)
        gains[newly_covered] = 0  # and below 0 for points that were covered before
    isolated = is_uncovered.nonzero()[0].tolist()
    return torch.tensor(centres + isolated, dtype=torch.long, device="cpu")


def _neighbour_counts(
    table: NDArray[np.uint8], level: int, rows: NDArray[np.int64]
) -> NDArray[np.int32]:
    """Return the number [N] of neighbours that each point has among some rows of the table."""
    counts = np.zeros(len(table), np.int32)
    # A byte counts up to 255; sums of bytes take a fifth of the time of sums of longer integers.
    for start in range(0, len(rows), 255):
        near = table[rows[start : start + 255]] > level
        counts += near.view(np.uint8).sum(0, dtype=np.uint8)
    return counts


def first_fit_net(metric: PosteriorMetric, radius: float) -> Tensor:
    """Return the first-fit net: each point, in order, that no earlier centre covers.

    Args:
        metric: The set. At most N times the size of the net distances are computed.
        radius: The radius, at least 0, in units of the distance.

    Raises:
        InvalidInput: A radius below zero.
    """
    checks.instance("metric", metric, PosteriorMetric)
    radius = checks.non_negative("radius", radius)
    return net_of(metric, radius, torch.arange(len(metric), device=metric.device))


def net_of(metric: PosteriorMetric, radius: float, left: Tensor) -> Tensor:
    """Return the first-fit net of some points, as point numbers.

    Args:
        metric: The set.
        radius: The radius, at least 0, in units of the distance.
        left: The numbers of the points, in the order in which they are visited.
    """
    centres = left[:0]
    while len(left):
        block = left[:NET_BLOCK]
        added = block[_independent_set(metric[block].ranks([radius]))]
        left = left[NET_BLOCK:]
        left = left[uncovered(metric[left], metric[added], radius)]
        centres = torch.cat([centres, added])
    return centres


def _independent_set(near: Tensor) -> Tensor:
    """Return an independent set of a graph by the first-fit rule, as point numbers.

    A point is taken unless an earlier point that was taken is its neighbour.

    Args:
        near: Whether two points are neighbours, [N N].
    """
    table = near.cpu().numpy()
    is_covered = np.zeros(len(table), bool)
    centres: list[int] = []
    for i, row in enumerate(table):
        if not is_covered[i]:
            centres.append(i)
            is_covered |= row > 0
    return torch.tensor(centres, device=near.device)


def uncovered(points: PosteriorMetric, centres: PosteriorMetric, radius: float) -> Tensor:
    """Return the positions of the points whose distance to every centre exceeds ``radius``."""
    left = torch.arange(len(points), device=points.device)
    for _, some_centres in centres.blocks(CENTRE_BLOCK):
        is_covered = [
            block.within(some_centres, radius).any(1)
            for _, block in points[left].blocks(len(some_centres))
        ]
        if is_covered:
            left = left[~torch.cat(is_covered)]
    return left


def covers(metric: PosteriorMetric, centres: Tensor, radius: float) -> bool:
    """Return whether every point is within ``radius`` of a centre; centres [m] are point numbers.

    Raises:
        InvalidInput: The centres are no point numbers.
    """
    checks.instance("metric", metric, PosteriorMetric)
    radius = checks.non_negative("radius", radius)
    size = len(metric)
    is_whole = checks.tensor("centres", centres).dtype == torch.int64
    if centres.ndim != 1 or not is_whole or bool(((centres < 0) | (centres >= size)).any()):
        raise InvalidInput(f"centres must be numbers of points, from 0 and below {size}.")
    return len(uncovered(metric, metric[centres], radius)) == 0


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
