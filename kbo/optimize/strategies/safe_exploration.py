"""Safe exploration (SafeOpt): every trial is at a point that is certain to keep all limits.

For runs with ``kbo.Safe``, over any space. ``kbo/bandit/safe.py`` is the exploration of a finite set alone, which this
module uses, and ``kbo/acquisition/safe.py`` is for loops of BoTorch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kbo._base import checks
from kbo.bandit.safe import SafeSet
from kbo.confidence import Limit
from kbo.errors import InvalidInput, RefutedAssumptions
from kbo.optimize.constraints.feasibility import ConstraintSurrogate, limits
from kbo.optimize.search.search import Search
from kbo.optimize.search.subspace import Subspace
from kbo.optimize.strategies.strategy import Strategy
from kbo.space import Params, Space

MOST_POINTS = 100_000
"""Largest number of points of a finite space whose points are all examined."""

_N_PARTICLES = 512
"""Number of points of each round of a search for safe points."""

_SCALES = (0.3, 0.1, 0.03, 0.01)
"""Standard deviation of the steps of each round, in widths of the unit cube."""

_JUMP_PROBABILITY = 0.05
"""Probability with which a coordinate is drawn from its whole range, since options have no order for steps."""


class SafePoints:
    """The safe points after the trials so far: those that are certain to keep all limits.

    Points become safe by proved bounds alone, and stay safe. In a finite space of at most 100 000 points all points are
    examined; in other spaces ``safe_set`` examines given points.

    Args:
        space: The space.
        start: Parameters that are known to be safe.
        n_limits: Number of limits that the assumptions alone do not prove to be kept everywhere.

    Attributes:
        space: As given.
        start: The points [s P] of the unit cube that are known to be safe.
        limits: The limits with the last proved bounds of their quantities; empty before the first.
        refutation: The error that says why the assumptions are wrong; None while they may be right.
        all_points: All points [N P] of a small finite space, and the safe set among them; None for other spaces.

    Raises:
        InvalidInput: A start that is not in the space, or no limit.
    """

    def __init__(self, space: Space, start: Sequence[Any], n_limits: int) -> None:
        if not n_limits:
            raise InvalidInput(
                "kbo.Safe needs a limit that a trial can break, and there is none: pass "
                "constraints=[kbo.Constraint(...)]; if there are some, every function of their "
                "norm_bound keeps them: check limit and norm_bound, or use kbo.Certified."
            )
        units = []
        for number, params in enumerate(start):
            with checks.inside(f"start[{number}]"):
                units.append(space.unit(params))
                violated = space.violated(params)
                if violated:
                    raise InvalidInput(
                        f"{checks.shown(params)} violates the constraints {', '.join(violated)}."
                    )
        self.space: Space = space
        self.start: Tensor = torch.stack(units)
        self._n_limits = n_limits
        self.limits: list[Limit] = []
        self.refutation: RefutedAssumptions | None = None
        self.all_points: tuple[Tensor, SafeSet] | None = None
        points = space.points(MOST_POINTS)
        if points is not None:
            self.all_points = points, self.safe_set(points)

    def learn(self, surrogates: Sequence[ConstraintSurrogate]) -> None:
        """Add the points that are safe by the bounds after a trial, if the bounds of all limits are proved.

        Args:
            surrogates: The constraints with their surrogates.

        Raises:
            RefutedAssumptions: No function satisfies the assumptions of a bound and fits the data.
        """
        proved = [e for e in surrogates if e.surrogate.posterior.n and e.surrogate.guarantee()]
        if len(proved) < self._n_limits:
            return
        try:
            self._update(surrogates)
        except RefutedAssumptions as error:  # kept, so that no later trial begins
            self.refutation = error
            raise

    def _update(self, surrogates: Sequence[ConstraintSurrogate]) -> None:
        """Replace the bounds, add the points that are safe by them, and check that each start may still be safe."""
        self.limits = limits(surrogates)
        if self.all_points is not None:
            _, safe_set = self.all_points
            safe_set.update(self.limits)
        for constraint, surrogate in surrogates:
            _, _, upper = surrogate.interval(self.space.features(self.start))
            if bool((upper < constraint.limit).any()):
                params = self.space.params(self.start[int(upper.argmin())])
                bound = constraint.sign * float(upper.min())
                side = "most"
                if constraint.sign < 0:
                    side = "least"
                self.refutation = RefutedAssumptions(
                    f"The data refute that the given points are safe: start {params} is not safe: {constraint.name} "
                    f"is at {side} {bound:.4g} ({constraint})"
                )

    @property
    def is_exhaustive(self) -> bool:
        """Whether all points of the space are examined."""
        return self.all_points is not None

    def safe_set(self, units: Tensor) -> SafeSet:
        """Return the safe set among points [n P]: the starts, and the points that are safe by the last bounds."""
        is_start = among(units, self.start).to(self.space.device)
        safe_set = SafeSet(self.space.features(units), is_start)
        if self.limits:
            safe_set.update(self.limits)
        return safe_set

    def is_quickly_safe(self, units: Tensor) -> Tensor:
        """Return whether points [n P] are safe by a bound that is quick to compute, or are starts, [n]."""
        is_start = among(units, self.start)
        if not self.limits:
            return is_start
        X = self.space.features(units)
        is_certain = torch.ones_like(is_start)
        for limit in self.limits:
            certain, _ = limit.quick_slacks(X)
            is_certain &= (certain >= 0).cpu()
        return is_start | is_certain


def among(units: Tensor, others: Tensor) -> Tensor:
    """Return whether points [n P] are among other points [m P], [n]."""
    rows = set(map(tuple, others.tolist()))
    return torch.tensor([tuple(row) in rows for row in units.tolist()], dtype=torch.bool)


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
