"""Hierarchical covers ``T_1 c T_2 c ..`` of halved radii: Contal et al. (2015), Algorithm 1."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from kbo._base import checks
from kbo.confidence.chaining import cover
from kbo.confidence.chaining.cover import dominating_set, net_of, uncovered
from kbo.confidence.chaining.metric import PosteriorMetric
from kbo.confidence.chaining.neighbours import Neighbours
from kbo.errors import InvalidInput


class Chain:
    """Covers of a set at the radii ``scale``, ``scale / 2``, .., each a subset of the next.

    Level i = 1, 2, .. adds a cover of the points whose distance to the level before exceeds the
    radius of level i. For sets of at most ``cover.AT_ONCE`` points it is a greedy cover, as in
    Algorithm 1. For larger sets it is a net, which has more points and takes a tenth of the time.

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

    def __init__(self, metric: PosteriorMetric, scale: float, depth: int) -> None:
        checks.instance("metric", metric, PosteriorMetric)
        depth = checks.whole("depth", depth, 1)
        self.scale: float = checks.non_negative("scale", scale)
        self.sizes: list[int] = []
        self._slack = 0.0
        self._order = torch.zeros(0, dtype=torch.long, device=metric.device)
        self._neighbours: Neighbours | None = None
        if len(metric) > cover.AT_ONCE:
            radial = metric.radial()
            if radial is not None:
                self._neighbours = Neighbours(*radial)
        self.extend(metric, depth)

    def __len__(self) -> int:
        return len(self.sizes)

    def __repr__(self) -> str:
        radii = [self.radius(level) for level in range(1, len(self) + 1)]
        return f"Chain(sizes={self.sizes}, radii={radii})"

    def radius(self, level: int) -> float:
        """Return the radius ``eps_i`` of level i = 1, 2, .."""
        return self.scale * 2.0 ** (1 - level)

    def reach(self, level: int) -> float:
        """Return an upper bound of the distance of any point to a level, rounding included."""
        return math.sqrt(self.radius(level) ** 2 + self._slack)

    def centres(self, level: int) -> Tensor:
        """Return the point numbers of ``T_level``, in the order in which they were added."""
        if level not in range(1, len(self) + 1):
            raise InvalidInput(f"level must be 1 to {len(self)}, got {level!r}.")
        return self._order[: self.sizes[level - 1]]

    def extend(self, metric: PosteriorMetric, depth: int) -> None:
        """Add levels until there are ``depth``. The metric may include more data than before."""
        radii = [self.radius(level) for level in range(len(self) + 1, depth + 1)]
        self._slack = max(self._slack, metric.slack)
        if not radii:
            return
        if len(metric) == len(self._order):  # every point is a centre
            self.sizes += [len(metric)] * len(radii)
        elif len(metric) <= cover.AT_ONCE:
            self._extend_by_greedy_covers(metric, radii)
        else:
            self._extend_by_nets(metric, radii)

    def _append(self, centres: Tensor) -> None:
        """Add a level: the centres of the level before, and these point numbers [m]."""
        self._order = torch.cat([self._order, centres.to(self._order.device)])
        self.sizes.append(len(self._order))

    def _extend_by_greedy_covers(self, metric: PosteriorMetric, radii: Sequence[float]) -> None:
        """Add levels from all distances: exactly Algorithm 1."""
        ranks = metric.ranks(radii).cpu()  # [N N]
        nearest = torch.zeros_like(ranks[0])  # rank [N] of each point to its nearest centre
        added = self._order.cpu()
        for level in range(len(radii)):
            for centres in added.split(512):
                rows = ranks.index_select(0, centres)
                nearest = torch.cat([nearest.unsqueeze(0), rows]).amax(0)
            not_covered = (nearest <= level).nonzero().squeeze(-1)
            added = dominating_set(ranks, level, not_covered)
            self._append(added)

    def _extend_by_nets(self, metric: PosteriorMetric, radii: Sequence[float]) -> None:
        """Add levels to a set with too many pairs to compare them at once."""
        for radius in radii:
            if self._neighbours is not None:
                self._append(self._neighbours.net(metric, radius, self._order))
            else:
                not_covered = uncovered(metric, metric[self._order], radius)
                self._append(net_of(metric, radius, not_covered))
