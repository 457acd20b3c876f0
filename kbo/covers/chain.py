"""Hierarchical covers ``T_1 c T_2 c ...`` of radii that are halved: Contal, Malherbe & Vayatis (2015), Algorithm 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from kbo.covers.euclidean import EuclideanNets
from kbo.covers.greedy import AT_ONCE, greedy_cover, greedy_round, uncovered
from kbo.covers.metric import Metric
from kbo.covers.nets import first_fit_net
from kbo.covers.ranked import Ranked


class Chain:
    """Covers of a set at the radii ``scale``, ``scale / 2``, ``scale / 4``, ..., every one part of the next.

    Level i = 1, 2, .. adds a cover of what is further than its radius from the level before. Sets of at most
    ``AT_ONCE`` points are covered by greedy search throughout. Of larger ones the coarse levels are, until more than
    half of the points that are searched become centres, so that there is little to gain; finer levels are nets, of
    Euclidean neighbours where the kernel is stationary.

    Args:
        metric: The set.
        scale: The radius of level 1, in units of the distance.
        depth: Number of levels.

    Attributes:
        scale: The radius of level 1.
        sizes: ``|T_1|, |T_2|, ..``.
    """

    def __init__(self, metric: Metric, scale: float, depth: int) -> None:
        self.scale, self.sizes = scale, []
        self._order = torch.zeros(0, dtype=torch.long, device=metric.device)
        self._net: Callable[[Any, float, Tensor], Tensor] | None = None
        self.extend(metric, depth)

    def __len__(self) -> int:
        return len(self.sizes)

    def radius(self, level: int) -> float:
        """The radius of a level, from 1."""
        return self.scale * 2.0 ** (1 - level)

    def centres(self, level: int) -> Tensor:
        """The numbers of the points of ``T_level``, in the order in which they were added."""
        return self._order[: self.sizes[level - 1]]

    def extend(self, metric: Metric, depth: int) -> None:
        """Add levels until there are ``depth``; the metric may be that of more data."""
        levels = range(len(self) + 1, depth + 1)
        small = len(metric) <= AT_ONCE and len(self._order) < len(metric) and levels
        ranked = Ranked(metric, [self.radius(level) for level in levels]) if small else None
        for level in levels:
            radius = self.radius(level)
            if len(self._order) < len(metric):
                new = self._added(metric, radius) if ranked is None else self._searched(ranked, radius)
                self._order = torch.cat([self._order, new])
            self.sizes.append(len(self._order))

    def _searched(self, ranked: Ranked, radius: float) -> Tensor:
        """What a level of a small set adds: exactly Algorithm 1."""
        return ranked.cover(radius, ranked.uncovered(self._order, radius))

    def _added(self, metric: Metric, radius: float) -> Tensor:
        """What a level of a large set adds."""
        if self._net is not None:
            return self._net(metric, radius, self._order)
        left = uncovered(metric, metric[self._order], radius)
        centres = greedy_round(metric, radius, left)
        if 2 * len(centres) > min(len(left), AT_ONCE):
            nets = EuclideanNets.over(metric)
            self._net = _first_fit if nets is None else nets.net
            return self._net(metric, radius, self._order)
        rest = left[uncovered(metric[left], metric[centres], radius)]
        return torch.cat([centres, greedy_cover(metric, radius, rest)])


def _first_fit(metric: Metric, radius: float, centres: Tensor) -> Tensor:
    return first_fit_net(metric, radius, uncovered(metric, metric[centres], radius))
