"""A chain that is kept while data arrive: covers of earlier data are covers of more data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

from kbo._base import checks
from kbo._base.linalg import ill_conditioned_ratio
from kbo.confidence.chaining.chain import Chain
from kbo.confidence.chaining.metric import PosteriorMetric
from kbo.regression import Posterior

_PROBES = 16
"""Points at which kernels are compared."""


class ChainMemory:
    """The chain of a set under a posterior, computed again when the data have grown by a factor.

    Distances only shrink as observations are added at the same ridge, with the same kernel and, if the posterior is
    sketched, the same anchors, so a chain stays one; its covers may just have more points than they need. Any other
    change of the posterior, or another posterior, means a new chain.

    Args:
        refresh: The factor, at least 1.
    """

    def __init__(self, refresh: float) -> None:
        self.refresh: float = checks.at_least("refresh", refresh, 1)
        self._known: _Known | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"refresh": self.refresh, "_known": None}  # covers of large sets are large

    def chain(self, state: Posterior, points: Tensor, least: float) -> tuple[Chain, int]:
        """Return a chain of the points [N d] under ``state``, and its last level of a radius of at least ``least``."""
        known = self._known
        if (
            known is None
            or state.n > self.refresh * known.n
            or not known.extended_by(state, points)
        ):
            kappa = math.sqrt(float(state.prior_variance(points).max()))
            depth = _levels(kappa, least, points.dtype)
            self._known = known = _Known(
                Chain(PosteriorMetric(state, points), kappa, depth), state, points, state.n
            )
            return known.chain, depth
        depth = _levels(known.chain.scale, least, points.dtype)
        if depth > len(known.chain):
            # The new levels are covers from here on, not of the data at which the first ones were computed.
            known.chain.extend(PosteriorMetric(state, points), depth)
            self._known = known = _Known(known.chain, state, points, known.n)
        return known.chain, depth


def _levels(kappa: float, least: float, dtype: torch.dtype) -> int:
    """Return the number of the radii ``kappa``, ``kappa / 2``, .. that are at least ``least``, at least 1."""
    # Finer levels would be made of rounding errors.
    least = max(least, math.sqrt(ill_conditioned_ratio(dtype)) * kappa)
    levels = 1
    while kappa * 2.0**-levels >= least > 0:
        levels += 1
    return levels


class _Known:
    """A chain that was new at n observations, and all that its distances depend on."""

    def __init__(self, chain: Chain, state: Posterior, points: Tensor, n: int) -> None:
        self.chain, self.n, self._ridge, self._spanned = (
            chain,
            n,
            state.ridge,
            _copied(_spanned(state, points)),
        )
        rng = torch.Generator().manual_seed(0)
        self._probes = points[
            torch.randperm(len(points), generator=rng, device="cpu")[:_PROBES].to(points.device)
        ]
        self._kernel, self._prior = state.kernel, _copied(self._prior_of(state))
        self._locations = _copied(state.locations or ())

    def extended_by(self, state: Posterior, points: Tensor) -> bool:
        """Return whether ``state`` differs by additional data at most, on the same points."""
        return (
            state.ridge == self._ridge
            and _same(_spanned(state, points), self._spanned)
            and (
                self._kernel is state.kernel is not None
                or _same(self._prior_of(state), self._prior)
            )
            and _contains(state.locations or (), self._locations)
        )

    def _prior_of(self, state: Posterior) -> list[Tensor]:
        """Return the numbers of the kernel, and its values at the probes for kernels whose numbers are not known."""
        probes = self._probes
        numbers = (
            [] if state.kernel is None else [*state.kernel.parameters(), *state.kernel.buffers()]
        )
        return [state.prior(probes, probes), *(number.to(probes.device) for number in numbers)]


def _spanned(state: Posterior, points: Tensor) -> list[Tensor]:
    """Return the points, and the anchors of an approximate posterior."""
    return [points] if state.anchors is None else [points, state.anchors]


def _copied(tensors: Sequence[Tensor]) -> list[Tensor]:
    return [tensor.detach().clone() for tensor in tensors]


def _same(now: Sequence[Tensor], before: Sequence[Tensor]) -> bool:
    kind = attrgetter("dtype", "device", "shape")
    return list(map(kind, now)) == list(map(kind, before)) and _all(
        (a == b).all() for a, b in zip(now, before, strict=True)
    )


def _contains(now: Sequence[Tensor], before: Sequence[Tensor]) -> bool:
    """Return whether the first locations are those of before, observed as often at least; False if not kept."""
    if not now or not before:
        return False
    (X, counts), (old, old_counts) = now, before
    m = len(old)
    return len(X) >= m and _all([(X[:m] == old).all(), (counts[:m] >= old_counts).all()])


def _all(conditions: Iterable[Tensor]) -> bool:
    """Return whether all of some conditions [] hold, in one read of their device."""
    return bool(torch.stack(list(conditions)).all())
