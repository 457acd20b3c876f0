"""Safe exploration of a space: the points that are certain to keep all limits, after every trial."""

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
"""Largest number of points of a finite space that are all examined."""

_N_PARTICLES = 512
"""Number of points of each round of a search for safe points."""

_SCALES = (0.3, 0.1, 0.03, 0.01)
"""Standard deviation of the steps of each round, in widths of the unit cube."""

_JUMP_PROBABILITY = 0.05
"""Probability with which a coordinate is drawn from its whole range, as options have no order to step along."""


@dataclass(frozen=True)
class SafeExploration(Strategy):
    """Of the safe points that may be the best or make others safe, the one about which least is known (SafeOpt).

    Safe points are certain to keep all limits. The rule and its sources are in ``kbo.bandit.safe``.

    Args:
        exploration: The points that are certain to be safe.
    """

    exploration: Exploration

    def propose(self, search: Search) -> Params:
        return search.params(self.exploration.propose(search))

    def describe(self) -> str:
        return "safe exploration: the largest uncertainty of a safe point that may be the best or make others safe"


class Exploration:
    """The points of a space that are certain to be safe after the trials so far, and the next one to evaluate.

    In a finite space of at most 100 000 points all are examined, in others points near those that are safe.

    Args:
        space: The space.
        start: Parameters that are known to be safe.
        n_limits: Number of limits that the assumptions alone do not decide.

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
        self._space = space
        self._start = torch.stack(units)
        self._n_limits = n_limits
        self._limits: list[Limit] = []  # by the last bounds that are proved
        self._refuted: RefutedAssumptions | None = None
        self._all_points: tuple[Tensor, SafeSet] | None = None
        points = space.points(MOST_POINTS)
        if points is not None:
            self._all_points = points, self._safe_set(points)

    def learn(self, surrogates: Sequence[ConstraintSurrogate]) -> None:
        """Add the points that are certain to be safe by the bounds after a trial, if all these are proved.

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
        except RefutedAssumptions as error:  # nothing is evaluated any more, whoever asks
            self._refuted = error
            raise

    def _update(self, surrogates: Sequence[ConstraintSurrogate]) -> None:
        """Replace the bounds, add the points that are safe by them, and check that each start still may be safe."""
        self._limits = limits(surrogates)
        if self._all_points is not None:
            _, safe_set = self._all_points
            safe_set.update(self._limits)
        for constraint, surrogate in surrogates:
            _, _, upper = surrogate.interval(self._space.features(self._start))
            if bool((upper < constraint.limit).any()):
                params = self._space.params(self._start[int(upper.argmin())])
                bound = constraint.sign * float(upper.min())
                side = "most"
                if constraint.sign < 0:
                    side = "least"
                self._refuted = RefutedAssumptions(
                    f"The data refute that the given points are safe: start {params} is not safe: {constraint.name} "
                    f"is at {side} {bound:.4g} ({constraint})"
                )

    def propose(self, search: Search) -> Tensor:
        """Return the next point [P] of the unit cube: first the starts, and these again while there are no bounds.

        Args:
            search: The search, of the whole space or of a part of it.

        Raises:
            RefutedAssumptions: A start is not safe, or the bounds were refuted.
            InvalidInput: No point of this part of the space is certain to be safe.
        """
        if self._refuted is not None:
            raise self._refuted
        starts = self._start[_within(self._start, search.subspace)]
        untried = starts[~_among(starts, search.tried)]
        if len(untried):
            return untried[0]
        if search.surrogate is None or not self._limits:
            if not len(starts):
                raise _no_safe_point()
            return starts[len(search.tried) % len(starts)]
        units, safe_set = self._examined(search, search.tried)
        is_within = _within(units, search.subspace).to(self._space.device)
        if not bool((safe_set.safe & is_within).any()):
            raise _no_safe_point()
        bound = search.surrogate.bound(search.number)
        posteriors = [limit.state for limit in search.limits]
        if search.bound is not None:  # with pending trials
            posteriors.append(search.bound.posterior)
        return units[safe_set.widest(bound.posterior, bound.confidence, posteriors, is_within)]

    def safe(self, search: Search, tried: Tensor) -> tuple[Tensor, bool]:
        """Return the points [n P] of a part of the space that are certain to be safe, and whether more may follow."""
        units, safe_set = self._examined(search, tried)
        is_safe = safe_set.safe.cpu() & _within(units, search.subspace)
        if not bool(is_safe.any()):
            raise _no_safe_point()
        return units[is_safe], safe_set.grows()

    @property
    def is_exhaustive(self) -> bool:
        """Whether all points of the space are examined."""
        return self._all_points is not None

    def _examined(self, search: Search, tried: Tensor) -> tuple[Tensor, SafeSet]:
        """Return the points [n P] that are examined, and the safe set among them.

        Args:
            search: The search, of the whole space or of a part of it.
            tried: The points [m P] of trials, near which others are drawn.
        """
        if self._all_points is not None:
            return self._all_points
        units = search.subspace.choices
        if units is None:
            units = self._particles(search, tried)
        return units, self._safe_set(units)

    def _safe_set(self, units: Tensor) -> SafeSet:
        """Return the safe set among points [n P]: the starts, and the points that are certain by the last bounds."""
        is_start = _among(units, self._start).to(self._space.device)
        safe_set = SafeSet(self._space.features(units), is_start)
        if self._limits:
            safe_set.update(self._limits)
        return safe_set

    @torch.no_grad()
    def _particles(self, search: Search, tried: Tensor) -> Tensor:
        """Return points [n P] near those that are certain to be safe, and on lines through two of them."""
        subspace = search.subspace
        generator = search.generator
        dtype = tried.dtype

        def uniform(*shape: int) -> Tensor:
            return torch.rand(*shape, generator=generator, dtype=dtype)

        units = subspace.place(torch.cat([self._start, tried]))
        units = units[subspace.satisfies(units)]
        if not len(units):
            return units
        safe = units[self._quickly_safe(units)]
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
            moved = subspace.place(torch.where(jumps, uniform(n, P), moved))
            moved = moved[subspace.satisfies(moved)]
            units = torch.cat([units, moved])
            safe = torch.cat([safe, moved[self._quickly_safe(moved)]])
        return units

    def _quickly_safe(self, units: Tensor) -> Tensor:
        """Return whether points [n P] are starts, or keep all limits by a bound that is quick to compute, [n]."""
        is_start = _among(units, self._start)
        if not self._limits:
            return is_start
        X = self._space.features(units)
        is_certain = torch.ones_like(is_start)
        for limit in self._limits:
            certain, _ = limit.quick_slacks(X)
            is_certain &= (certain >= 0).cpu()
        return is_start | is_certain


def _no_safe_point() -> InvalidInput:
    """Return the error for a part of the space of which no point is certain to be safe."""
    return InvalidInput(
        "no parameters that agree with the context, the choices and within are certain to keep all limits: leave "
        "these out, or add a start that agrees with them."
    )


def _among(units: Tensor, others: Tensor) -> Tensor:
    """Return whether points [n P] are among other points [m P], [n]."""
    rows = set(map(tuple, others.tolist()))
    return torch.tensor([tuple(row) in rows for row in units.tolist()], dtype=torch.bool)


def _within(units: Tensor, subspace: Subspace) -> Tensor:
    """Return whether points [n P] belong to a part of the space, [n]."""
    if not subspace.partial and not subspace.boxed:
        return torch.ones(len(units), dtype=torch.bool)
    agrees = (subspace.fixed.isnan() | (units == subspace.fixed)).all(-1)
    agrees = agrees & subspace.in_box(units)
    if subspace.choices is None:
        return agrees
    return agrees & _among(units, subspace.choices)
