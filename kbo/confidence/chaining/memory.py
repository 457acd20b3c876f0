"""A chain of covers that is kept while data arrive.

Observations never increase a distance. So earlier covers stay covers, but they may have more points
than needed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from kbo._base.linalg import ill_conditioned_ratio
from kbo.confidence.chaining.chain import Chain
from kbo.confidence.chaining.metric import PosteriorMetric
from kbo.regression import Posterior

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
