"""A chain that is kept while data arrive: covers of earlier data are covers of more data."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any, NamedTuple

import torch
from torch import Tensor

from kbo import checks
from kbo.covers.chain import Chain
from kbo.covers.metric import PosteriorMetric
from kbo.regression import Posterior

_PROBES = 16
"""Points at which kernels are compared."""


class ChainMemory:
    """The chain of a set under a posterior that learns, computed again when the data have grown by a factor.

    Distances only shrink as observations are added at the same ridge, with the same kernel and, if the posterior is
    sketched, the same anchors, so a chain stays one; its covers may just have more points than they need. Any other
    change of the posterior, or another posterior, means a new chain.

    Args:
        refresh: The factor, at least 1.
    """

    def __init__(self, refresh: float) -> None:
        self.refresh = checks.at_least("refresh", refresh, 1)
        self._known: _Known | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"refresh": self.refresh, "_known": None}  # versions are numbers of one process

    def chain(self, state: Posterior, points: Tensor, depth: int) -> Chain:
        """Return a chain of the points [N d] under ``state``, of at least that depth."""
        known = self._known
        if known is None or not known.serves(state, points, self.refresh):
            kappa = math.sqrt(float(state.prior_variance(points).max()))
            chain = Chain(PosteriorMetric(state, points), kappa, depth)
            self._known = known = _Known(chain, points.clone(), state.n, _Snapshot(state, points))
        elif depth > len(known.chain):
            # The new levels are covers from here on, not of the data at which the first ones were computed.
            known.chain.extend(PosteriorMetric(state, points), depth)
            self._known = known = known._replace(snapshot=_Snapshot(state, points))
        return known.chain


class _Known(NamedTuple):
    """A chain, its points, the number of observations when it was new, and the posterior it was computed under."""

    chain: Chain
    points: Tensor
    n: int
    snapshot: _Snapshot

    def serves(self, state: Posterior, points: Tensor, refresh: float) -> bool:
        """Whether this is a chain of these points under ``state``, and not too old."""
        mine = self.points
        if (mine.shape, mine.dtype, mine.device) != (points.shape, points.dtype, points.device):
            return False
        return state.n <= refresh * self.n and torch.equal(mine, points) and self.snapshot.extended_by(state)


class _Snapshot:
    """Everything that distances depend on, at one moment."""

    def __init__(self, state: Posterior, points: Tensor) -> None:
        rng = torch.Generator().manual_seed(0)
        self._probes = points[torch.randperm(len(points), generator=rng)[:_PROBES].to(points.device)]
        self._prior_version, self._prior = state.prior_version, self._prior_of(state)
        self._ridge, self._anchors = state.ridge, _copied(state.anchors)
        known = state.locations
        self._locations = None if known is None else (known[0].clone(), known[1].clone())

    def extended_by(self, state: Posterior) -> bool:
        """Whether ``state`` differs by additional data at most."""
        same_anchors = _equal([self._anchors], [state.anchors])
        same_prior = state.prior_version == self._prior_version or _equal(self._prior, self._prior_of(state))
        return (
            state.ridge == self._ridge and same_anchors and same_prior and _contains(state.locations, self._locations)
        )

    def _prior_of(self, state: Posterior) -> list[Tensor | None]:
        """The numbers of the kernel, and its values at the probes for kernels whose numbers are not known."""
        numbers = [_copied(number) for number in state.hyperparameters]
        return [state.prior(self._probes, self._probes), *numbers]


def _copied(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.detach().clone()


def _equal(before: list[Tensor | None], now: list[Tensor | None]) -> bool:
    def same(a: Tensor | None, b: Tensor | None) -> bool:
        return a is None and b is None if a is None or b is None else torch.equal(a, b)

    return len(before) == len(now) and all(map(same, before, now))


def _contains(now: tuple[Tensor, Tensor] | None, before: tuple[Tensor, Tensor] | None) -> bool:
    """Whether every location was observed at least as often as before."""
    if now is None or before is None:
        return False
    (X, counts), (old, old_counts) = now, before
    m = len(old)
    if len(X) >= m and torch.equal(X[:m], old) and bool((counts[:m] >= old_counts).all()):
        return True
    return _counter(old, old_counts) <= _counter(X, counts)


def _counter(X: Tensor, counts: Tensor) -> Counter[tuple[float, ...]]:
    found: Counter[tuple[float, ...]] = Counter()
    for location, count in zip(map(tuple, X.tolist()), counts.tolist(), strict=True):
        found[location] += round(count)
    return found
