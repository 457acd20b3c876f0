"""Hierarchical covers ``T_1 c T_2 c ..`` of halved radii: Contal et al. (2015), Algorithm 1.

``ChainMemory`` keeps them while data arrive. Observations never increase a distance. So earlier covers
stay covers, but they may have more points than needed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from kbo._base import checks
from kbo._base.linalg import ill_conditioned_ratio
from kbo.confidence.chaining import cover
from kbo.confidence.chaining.cover import Neighbours, dominating_set, net_of, uncovered
from kbo.confidence.chaining.metric import PosteriorMetric
from kbo.errors import InvalidInput
from kbo.regression import Posterior


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


GROWTH = 2.0
"""Factor by which the data grow before smaller covers are computed."""

_PROBES = 16
"""Number of points at which kernels are compared to notice a change."""


class ChainMemory:
    """The chain of a finite set under a posterior, computed again when the data have doubled.

    It is also computed again for another posterior, and after a change of ridge, kernel, points or
    inducing points.
    """

    def __init__(self) -> None:
        self._cached: _CachedChain | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_cached": None}  # pickles leave the covers out, which may be large

    def chain(self, state: Posterior, points: Tensor, least: float) -> tuple[Chain, int]:
        """Return a chain of covers of the points, and the last level whose radius is large enough.

        Args:
            state: The posterior whose distance is used.
            points: The points [N d].
            least: The smallest radius that is needed, in units of the targets.
        """
        cached = self._cached
        if cached is None or state.n > GROWTH * cached.n or not cached.is_valid(state, points):
            kappa = math.sqrt(float(state.prior_variance(points).max()))
            depth = _depth(kappa, least, points.dtype)
            chain = Chain(PosteriorMetric(state, points), kappa, depth)
            self._cached = _CachedChain(chain, state.n, state, points)
            return chain, depth
        depth = _depth(cached.chain.scale, least, points.dtype)
        if depth > len(cached.chain):
            cached.chain.extend(PosteriorMetric(state, points), depth)
            # The new levels are covers from the present data on; n stays that of the old levels.
            self._cached = _CachedChain(cached.chain, cached.n, state, points)
        return cached.chain, depth


def _depth(kappa: float, least: float, dtype: torch.dtype) -> int:
    """Return the number of levels, at least 1: those of radius ``kappa 2^-j >= least``, j = 0, 1, .."""
    # On finer levels distances would be rounding errors.
    finest = max(least, math.sqrt(ill_conditioned_ratio(dtype)) * kappa)
    depth = 1
    while kappa * 2.0**-depth >= finest > 0:
        depth += 1
    return depth


class _CachedChain:
    """A chain, with copies of all numbers on which its distances depend.

    Args:
        chain: The chain.
        n: Number of observations when it was computed.
        state: The posterior under which all its levels are covers.
        points: The points [N d].
    """

    def __init__(self, chain: Chain, n: int, state: Posterior, points: Tensor) -> None:
        self.chain = chain
        self.n = n
        self._ridge = state.ridge
        self._constants = _copies(_constants(state, points))
        self._locations = _copies(state.locations or ())

    def is_valid(self, state: Posterior, points: Tensor) -> bool:
        """Return whether the covers are still valid: nothing has changed except added data."""
        return (
            state.ridge == self._ridge
            and _equal(_constants(state, points), self._constants)
            and _contains(state.locations or (), self._locations)
        )


def _constants(state: Posterior, points: Tensor) -> list[Tensor]:
    """Return the points, the inducing points, and parameters and some values of the kernel."""
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(len(points), generator=generator, device="cpu")
    probes = points[order[:_PROBES].to(points.device)]
    constants = [points, state.prior(probes, probes)]
    if state.anchors is not None:
        constants.append(state.anchors)
    if state.kernel is not None:
        constants += [*state.kernel.parameters(), *state.kernel.buffers()]
    return constants


def _copies(tensors: Sequence[Tensor]) -> list[Tensor]:
    return [tensor.detach().clone() for tensor in tensors]


def _equal(now: Sequence[Tensor], before: Sequence[Tensor]) -> bool:
    """Return whether two lists of tensors are equal, also in type and device."""
    if len(now) != len(before):
        return False
    for a, b in zip(now, before, strict=True):
        if a.dtype != b.dtype or a.device != b.device or not torch.equal(a, b):
            return False
    return True


def _contains(now: Sequence[Tensor], before: Sequence[Tensor]) -> bool:
    """Return whether observed locations [m d] and counts [m] include the earlier ones.

    The result is False if a posterior keeps no locations.
    """
    if not now or not before:
        return False
    locations, counts = now
    old_locations, old_counts = before
    m = len(old_locations)
    if len(locations) < m or not torch.equal(locations[:m], old_locations):
        return False
    return bool((counts[:m] >= old_counts).all())
