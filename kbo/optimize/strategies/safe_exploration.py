"""Safe exploration (SafeOpt): every trial is at a point that is certain to keep all limits.

For runs with ``kbo.Safe``, over any space. ``kbo/bandit/safe.py`` is the exploration of a finite set alone, which this
module uses, and ``kbo/acquisition/safe.py`` is for loops of BoTorch.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kbo.bandit.safe import SafeSet
from kbo.errors import InvalidInput
from kbo.optimize.constraints.safe_points import SafePoints, among
from kbo.optimize.search.search import Search
from kbo.optimize.search.subspace import Subspace
from kbo.optimize.strategies.strategy import Strategy
from kbo.space import Params

_N_PARTICLES = 512
"""Number of points of each round of a search for safe points."""

_SCALES = (0.3, 0.1, 0.03, 0.01)
"""Standard deviation of the steps of each round, in widths of the unit cube."""

_JUMP_PROBABILITY = 0.05
"""Probability with which a coordinate is drawn from its whole range, since options have no order for steps."""


@dataclass(frozen=True)
class SafeExploration(Strategy):
    """Choose the most uncertain of the safe points that may be the best or may make other points safe (SafeOpt).

    Safe points are certain to keep all limits. The rule and its sources are in ``kbo.bandit.safe``.

    Args:
        safe_points: The safe points so far.
    """

    safe_points: SafePoints

    def propose(self, search: Search) -> Params:
        return search.params(_next_point(self.safe_points, search))

    def describe(self) -> str:
        return "safe exploration: the largest uncertainty of a safe point that may be the best or make others safe"


def _next_point(safe_points: SafePoints, search: Search) -> Tensor:
    """Return the next point [P] of the unit cube: first each start, then starts again while there are no bounds.

    Raises:
        RefutedAssumptions: The data refute that a start is safe, or the assumptions of a bound.
        InvalidInput: No point of this part of the space is certain to be safe.
    """
    if safe_points.refutation is not None:
        raise safe_points.refutation
    starts = safe_points.start[_within(safe_points.start, search.subspace)]
    untried = starts[~among(starts, search.tried)]
    if len(untried):
        return untried[0]
    if search.surrogate is None or not safe_points.limits:
        if not len(starts):
            raise _no_safe_point()
        return starts[len(search.tried) % len(starts)]
    units, safe_set = _examined(safe_points, search, search.tried)
    is_within = _within(units, search.subspace).to(safe_points.space.device)
    if not bool((safe_set.safe & is_within).any()):
        raise _no_safe_point()
    bound = search.surrogate.bound(search.number)
    posteriors = [limit.state for limit in search.limits]
    if search.bound is not None:  # with pending trials
        posteriors.append(search.bound.posterior)
    return units[safe_set.widest(bound.posterior, bound.confidence, posteriors, is_within)]


def certainly_safe(safe_points: SafePoints, search: Search, tried: Tensor) -> tuple[Tensor, bool]:
    """Return the safe points [n P] of a part of the space, and whether later trials may make more points safe.

    Args:
        safe_points: What is known of safe points.
        search: The search, of the whole space or of a part of it.
        tried: The points [m P] of trials, near which others are drawn.

    Raises:
        InvalidInput: No point of this part of the space is certain to be safe.
    """
    units, safe_set = _examined(safe_points, search, tried)
    is_safe = safe_set.safe.cpu() & _within(units, search.subspace)
    if not bool(is_safe.any()):
        raise _no_safe_point()
    return units[is_safe], safe_set.grows()


def _examined(safe_points: SafePoints, search: Search, tried: Tensor) -> tuple[Tensor, SafeSet]:
    """Return the points [n P] whose safety is examined, some near trials [m P], and the safe set among them."""
    if safe_points.all_points is not None:
        return safe_points.all_points
    units = search.subspace.choices
    if units is None:
        units = _particles(safe_points, search, tried)
    return units, safe_points.safe_set(units)


@torch.no_grad()
def _particles(safe_points: SafePoints, search: Search, tried: Tensor) -> Tensor:
    """Draw points [n P] near safe points, and on lines through two of them."""
    subspace = search.subspace
    generator = search.generator
    dtype = tried.dtype

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, dtype=dtype)

    units = subspace.moved_inside(torch.cat([safe_points.start, tried]))
    units = units[safe_points.space.satisfies(units)]
    if not len(units):
        return units
    safe = units[safe_points.is_quickly_safe(units)]
    for scale in _SCALES:
        parents = units
        if len(safe):
            parents = safe
        pairs = torch.randint(len(parents), (2, _N_PARTICLES), generator=generator)
        first, second = parents[pairs]
        n, P = first.shape
        near = first + scale * torch.randn(n, P, generator=generator, dtype=dtype)
        along = first + (3 * uniform(n, 1) - 1) * (second - first)
        moved = torch.where(uniform(n, 1) < 0.5, near, along).clamp(0, 1)
        jumps = uniform(n, P) < _JUMP_PROBABILITY
        moved = subspace.moved_inside(torch.where(jumps, uniform(n, P), moved))
        moved = moved[safe_points.space.satisfies(moved)]
        units = torch.cat([units, moved])
        safe = torch.cat([safe, moved[safe_points.is_quickly_safe(moved)]])
    return units


def _no_safe_point() -> InvalidInput:
    """Return the error for a part of the space without a safe point."""
    return InvalidInput(
        "no parameters that agree with the context, the choices and within are certain to keep all limits: leave "
        "these out, or add a start that agrees with them."
    )


def _within(units: Tensor, subspace: Subspace) -> Tensor:
    """Return whether points [n P] belong to a part of the space, [n]."""
    if not subspace.partial and not subspace.boxed:
        return torch.ones(len(units), dtype=torch.bool)
    agrees = (subspace.fixed.isnan() | (units == subspace.fixed)).all(-1)
    agrees = agrees & subspace.in_box(units)
    if subspace.choices is None:
        return agrees
    return agrees & among(units, subspace.choices)
