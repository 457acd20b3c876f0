"""A chain that is kept while data arrive: yesterday's covers are covers today."""

from __future__ import annotations

import math
import weakref
from collections import Counter
from typing import Any, NamedTuple

import torch
from torch import Tensor

from kbo import checks
from kbo.covers.chain import Chain
from kbo.covers.metric import PosteriorMetric
from kbo.regression import KernelRidge, NystromRidge

_PROBES = 16
"""Points at which kernels are compared."""


class ChainMemory:
    """The chain of a set under a posterior that learns, computed anew when the data have grown by a factor.

    Distances only shrink as observations are added at the same ridge, with the same kernel and, if the posterior is
    sketched, the same anchors, so a chain stays one; its covers may just have more points than they need. Whatever else
    happens to the posterior, or another posterior, means a new chain.

    Args:
        refresh: The factor, at least 1.
    """

    def __init__(self, refresh: float) -> None:
        self.refresh = checks.at_least("refresh", refresh, 1)
        self._known: _Known | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"refresh": self.refresh, "_known": None}  # a snapshot knows objects; a chain is found again

    def chain(self, state: KernelRidge | NystromRidge, points: Tensor, depth: int) -> Chain:
        """A chain of the points [N d] under ``state``, of at least that depth."""
        known = self._known
        if known is None or not known.chains(state, points, self.refresh):
            kappa = math.sqrt(float(state.prior_variance(points).max()))
            chain = Chain(PosteriorMetric(state, points), kappa, depth)
            self._known = known = _Known(chain, points.clone(), state.n, _Snapshot(state, points))
        elif depth > len(known.chain):
            # The new levels are covers from here on, not of what was there when the first ones were computed.
            known.chain.extend(PosteriorMetric(state, points), depth)
            self._known = known = known._replace(snapshot=_Snapshot(state, points))
        return known.chain


class _Known(NamedTuple):
    """A chain, its points, the number of observations when it was new, and of what posteriors it is a chain."""

    chain: Chain
    points: Tensor
    n: int
    snapshot: _Snapshot

    def chains(self, state: KernelRidge | NystromRidge, points: Tensor, refresh: float) -> bool:
        """Whether this is a chain of these points under ``state``, and not too old."""
        mine = self.points
        if (mine.shape, mine.dtype, mine.device) != (points.shape, points.dtype, points.device):
            return False
        return state.n <= refresh * self.n and torch.equal(mine, points) and self.snapshot.extended_by(state)


class _Snapshot:
    """What distances depend on, at one moment."""

    def __init__(self, state: KernelRidge | NystromRidge, points: Tensor) -> None:
        chance = torch.Generator().manual_seed(0)
        self._probes = points[torch.randperm(len(points), generator=chance)[:_PROBES].to(points.device)]
        self._fixed = self._what_must_stay(state)
        self._source, self._counts = weakref.ref(source(state)), _counts(state)

    def extended_by(self, state: KernelRidge | NystromRidge) -> bool:
        """Whether all that can have happened since is more data."""
        now = self._what_must_stay(state)
        pairs = zip(self._fixed, now, strict=False)
        if len(now) != len(self._fixed) or not all(a is b or torch.equal(a, b) for a, b in pairs):
            return False
        return self._source() is source(state) or self._counts <= _counts(state)

    def _what_must_stay(self, state: KernelRidge | NystromRidge) -> list[Tensor]:
        """Ridge, anchors, and the kernel: the numbers that it has, and its values for what it is made of."""
        anchors = state.anchors if isinstance(state, NystromRidge) else self._probes[:0]
        numbers = [*(number.detach().clone() for number in state.kernel.parameters()), *state.kernel.buffers()]
        values = state.prior(self._probes, self._probes)
        return [self._probes.new_tensor([state.ridge]), anchors, values, *numbers]


def source(state: KernelRidge | NystromRidge) -> Any:
    """The object that holds the data: as long as it is the same one, data were added at most."""
    return state if state.n == 0 else state.sketch if isinstance(state, NystromRidge) else state.data


def _counts(state: KernelRidge | NystromRidge) -> Counter[tuple[float, ...]]:
    """How often every location was observed."""
    data = state.sketch.rows if isinstance(state, NystromRidge) else state.data
    found: Counter[tuple[float, ...]] = Counter()
    if data is not None:
        for location, count in zip(map(tuple, data.X.tolist()), data.counts.tolist(), strict=True):
            found[location] += round(count)
    return found
