"""A chain that is kept while data arrive: yesterday's covers are covers today."""

from __future__ import annotations

import weakref
from collections import Counter
from typing import Any

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
        self._known: tuple[Chain, Tensor, _Snapshot] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"refresh": self.refresh, "_known": None}  # a snapshot knows objects; a chain is found again

    def chain(self, state: KernelRidge | NystromRidge, points: Tensor, depth: int) -> Chain:
        """A chain of the points [N d] under ``state``, of at least that depth."""
        if self._known is not None:
            chain, known, snapshot = self._known
            same = known.shape == points.shape and bool((known == points).all())
            if same and state.n <= self.refresh * snapshot.n and snapshot.extended_by(state):
                if depth > len(chain):
                    chain.extend(PosteriorMetric(state, points), depth)
                return chain
        kappa = float(state.prior_variance(points).max()) ** 0.5
        chain = Chain(PosteriorMetric(state, points), kappa, depth)
        self._known = chain, points, _Snapshot(state, points)
        return chain


class _Snapshot:
    """What distances depend on, at one moment."""

    def __init__(self, state: KernelRidge | NystromRidge, points: Tensor) -> None:
        self._probes = points[:: -(-len(points) // _PROBES)]
        self.n, self._fixed = state.n, self._what_must_stay(state)
        self._source, self._counts = weakref.ref(source(state)), _counts(state)

    def extended_by(self, state: KernelRidge | NystromRidge) -> bool:
        """Whether all that can have happened since is more data."""
        now = self._what_must_stay(state)
        if any(a.shape != b.shape or not torch.equal(a, b) for a, b in zip(self._fixed, now, strict=True)):
            return False
        return self._source() is source(state) or self._counts <= _counts(state)

    def _what_must_stay(self, state: KernelRidge | NystromRidge) -> list[Tensor]:
        anchors = state.anchors if isinstance(state, NystromRidge) else self._probes[:0]
        return [self._probes.new_tensor([state.ridge]), state.prior(self._probes, self._probes), anchors]


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
