"""Hierarchical covers ``T_1 c T_2 c ...`` of radii that are halved: Contal, Malherbe & Vayatis (2015), Algorithm 1."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from kbo import checks
from kbo.covers.greedy import AT_ONCE, greedy_round, uncovered
from kbo.covers.metric import Metric
from kbo.covers.neighbours import Neighbours
from kbo.covers.nets import first_fit_net
from kbo.covers.ranked import Ranked
from kbo.errors import InvalidInput

_LITTLE_TO_GAIN = 0.5
"""The share of the searched points that become centres from which on greedy search is not worth its time."""


class Chain:
    """Covers of a set at the radii ``scale``, ``scale / 2``, ``scale / 4``, ..., every one part of the next.

    Level i = 1, 2, .. adds a cover of what is further than its radius from the level before. Sets of at most
    ``AT_ONCE`` points are covered by greedy search throughout. Of larger ones the coarse levels are, until so many
    points become centres that there is little to gain; finer levels are nets, of Euclidean neighbours where the kernel
    is stationary.

    Args:
        metric: The set.
        scale: The radius of level 1, in units of the distance.
        depth: Number of levels.

    Raises:
        InvalidInput: A number out of its range, here or in a question.

    Attributes:
        scale: The radius of level 1.
        sizes: ``|T_1|, |T_2|, ..``.
    """

    def __init__(self, metric: Metric, scale: float, depth: int) -> None:
        self.scale, self.sizes, self._slack = checks.non_negative("scale", scale), [], 0.0
        checks.at_least("depth", depth, 1)
        self._order = torch.zeros(0, dtype=torch.long, device=metric.device)
        self._neighbours = Neighbours.over(metric) if len(metric) > AT_ONCE else None
        self._fine = False
        self.extend(metric, depth)

    def __len__(self) -> int:
        return len(self.sizes)

    def __repr__(self) -> str:
        return f"Chain(sizes={self.sizes}, radii={[self.radius(level) for level in range(1, len(self) + 1)]})"

    def radius(self, level: int) -> float:
        """The radius of a level, from 1."""
        return self.scale * 2.0 ** (1 - level)

    def reach(self, level: int) -> float:
        """What the distance of a point to the centres of a level is at most, rounding included."""
        return math.sqrt(self.radius(level) ** 2 + self._slack)

    def centres(self, level: int) -> Tensor:
        """The numbers of the points of ``T_level``, in the order in which they were added."""
        if level not in range(1, len(self) + 1):
            raise InvalidInput(f"level must be 1 to {len(self)}, got {level!r}.")
        return self._order[: self.sizes[level - 1]]

    def extend(self, metric: Metric, depth: int) -> None:
        """Add levels until there are ``depth``; the metric may be that of more data."""
        levels = range(len(self) + 1, depth + 1)
        self._slack = max(self._slack, metric.slack)
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
        everything = torch.arange(len(metric), device=metric.device)
        if self._fine and self._neighbours is not None:
            return self._neighbours.net(metric, radius, self._order)
        left, chosen = self._uncovered(metric, radius, self._order, everything), self._order[:0]
        if self._fine:
            return first_fit_net(metric, radius, left)
        while len(left):
            centres = greedy_round(metric, radius, left)
            if not len(chosen):
                share = len(centres) / min(len(left), AT_ONCE)
                self._fine = share > _LITTLE_TO_GAIN / 2  # that of the next level is twice as large or more, as a rule
                if share > _LITTLE_TO_GAIN:
                    return self._added(metric, radius)
            left = left[~torch.isin(left, centres)]  # a centre covers itself, whatever rounding says
            chosen, left = torch.cat([chosen, centres]), self._uncovered(metric, radius, centres, left)
        return chosen

    def _uncovered(self, metric: Metric, radius: float, centres: Tensor, among: Tensor) -> Tensor:
        """The numbers ``among`` of points that are within ``radius`` of no centre."""
        if self._neighbours is not None:
            return self._neighbours.uncovered(metric, radius, centres, among)
        return among[uncovered(metric[among], metric[centres], radius)]
