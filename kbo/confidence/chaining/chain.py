"""Hierarchical covers ``T_1 c T_2 c ...`` of radii that are halved: Contal, Malherbe & Vayatis (2015), Algorithm 1."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from kbo._base import checks
from kbo.confidence.chaining.greedy import (
    AT_ONCE,
    dominating,
    first_fit_net,
    greedy_round,
    uncovered,
)
from kbo.confidence.chaining.metric import Metric
from kbo.confidence.chaining.neighbours import Neighbours
from kbo.errors import InvalidInput

_LITTLE_TO_GAIN = 0.5
"""Share of the searched points that become centres above which greedy search does not pay."""


class Chain:
    """Covers of a set at the radii ``scale``, ``scale / 2``, ``scale / 4``, ..., every one part of the next.

    Level i = 1, 2, .. adds a cover of the points that are further than its radius from the level before. Sets of at
    most ``AT_ONCE`` points are covered by greedy search at all levels. Of larger ones the coarse levels are, until many
    of the points become centres; finer levels are nets, of Euclidean neighbours where the kernel is stationary.

    Args:
        metric: The set.
        scale: The radius of level 1, in units of the distance.
        depth: Number of levels.

    Raises:
        InvalidInput: A number out of its range, here or in ``centres``.

    Attributes:
        scale: The radius of level 1.
        sizes: ``|T_1|, |T_2|, ..``.
    """

    def __init__(self, metric: Metric, scale: float, depth: int) -> None:
        self.scale: float = checks.non_negative("scale", scale)
        self.sizes: list[int] = []
        self._slack = 0.0
        checks.instance("metric", metric, Metric)
        checks.whole("depth", depth, 1)
        self._order = torch.zeros(0, dtype=torch.long, device=metric.device)
        radial = metric.radial() if len(metric) > AT_ONCE else None
        self._neighbours = None if radial is None else Neighbours(*radial)
        self._fine = False
        self.extend(metric, depth)

    def __len__(self) -> int:
        return len(self.sizes)

    def __repr__(self) -> str:
        return f"Chain(sizes={self.sizes}, radii={[self.radius(level) for level in range(1, len(self) + 1)]})"

    def radius(self, level: int) -> float:
        """Return the radius of a level, from 1."""
        return self.scale * 2.0 ** (1 - level)

    def reach(self, level: int) -> float:
        """Return the largest distance of a point to the centres of a level, rounding included."""
        return math.sqrt(self.radius(level) ** 2 + self._slack)

    def centres(self, level: int) -> Tensor:
        """Return the numbers of the points of ``T_level``, in the order in which they were added."""
        if level not in range(1, len(self) + 1):
            raise InvalidInput(f"level must be 1 to {len(self)}, got {level!r}.")
        return self._order[: self.sizes[level - 1]]

    def extend(self, metric: Metric, depth: int) -> None:
        """Add levels until there are ``depth``; the metric may be that of more data."""
        levels = range(len(self) + 1, depth + 1)
        self._slack = max(self._slack, metric.slack)
        small = len(metric) <= AT_ONCE and len(self._order) < len(metric) and levels
        ranks = metric.ranks([self.radius(level) for level in levels]).cpu() if small else None
        for i, level in enumerate(levels):
            if len(self._order) < len(metric):
                new = (
                    self._added(metric, self.radius(level))
                    if ranks is None
                    else self._searched(ranks, i)
                )
                self._order = torch.cat([self._order, new])
            self.sizes.append(len(self._order))

    def _searched(self, ranks: Tensor, i: int) -> Tensor:
        """Return the points that radius i of ``ranks`` [N N], on the host, adds to a small set: exactly Algorithm 1."""
        best = torch.zeros_like(ranks[0])
        for some in self._order.cpu().split(512) if len(self._order) else ():
            best = torch.maximum(best, ranks.index_select(0, some).amax(0))
        return dominating(ranks, i, (best <= i).nonzero().squeeze(-1)).to(self._order.device)

    def _added(self, metric: Metric, radius: float) -> Tensor:
        """Return the points that a radius adds for a large set."""
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
                self._fine = (
                    share > _LITTLE_TO_GAIN / 2
                )  # that of the next level is twice as large or more, as a rule
                if share > _LITTLE_TO_GAIN:
                    return self._added(metric, radius)
            left = left[~torch.isin(left, centres)]  # a centre covers itself in spite of rounding
            chosen, left = (
                torch.cat([chosen, centres]),
                self._uncovered(metric, radius, centres, left),
            )
        return chosen

    def _uncovered(self, metric: Metric, radius: float, centres: Tensor, among: Tensor) -> Tensor:
        """Return the numbers ``among`` of points that are within ``radius`` of no centre."""
        if self._neighbours is not None:
            return self._neighbours.uncovered(metric, radius, centres, among)
        return among[uncovered(metric[among], metric[centres], radius)]
