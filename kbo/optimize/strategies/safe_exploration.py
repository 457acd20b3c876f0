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
from kbo.optimize.feasibility import ConstraintSurrogate, limits
from kbo.optimize.search.search import Search
from kbo.optimize.search.subspace import Subspace
from kbo.optimize.strategies.strategy import Strategy
from kbo.optimize.surrogates.surrogate import Surrogate
from kbo.regression import Posterior
from kbo.space import Params, Space

MOST_POINTS = 100_000
"""Points of a finite space that are all examined."""

_PARTICLES, _SCALES = 512, (0.3, 0.1, 0.03, 0.01)
"""Points of each round of a search, and the standard deviation of their steps in the unit cube."""

_JUMPS = 0.05
"""Part of the coordinates of a point that are drawn from their whole range, for options without an order."""


@dataclass(frozen=True)
class SafeExploration(Strategy):
    """Among the points that are certain to keep all limits, the one about which least is known.

    Args:
        exploration: The points that are certain to be safe.
    """

    exploration: Exploration

    def propose(self, search: Search) -> Params:
        posteriors = [limit.state for limit in search.limits]
        if search.bound is not None:
            posteriors.append(search.bound.posterior)
        point = self.exploration.propose(search.surrogate, posteriors, search, search.tried)
        return search.params(point)

    def describe(self) -> str:
        return (
            "safe exploration: the largest uncertainty among the points that are certain to be safe"
        )


class Exploration:
    """The safe points of a space, and the next one to evaluate.

    Args:
        space: The space.
        start: Parameters that are known to be safe.
        n_limits: Number of limits that the assumptions do not decide in advance.

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
                if violated := space.violated(params):
                    raise InvalidInput(
                        f"{checks.shown(params)} violates the constraints {', '.join(violated)}."
                    )
        self._space, self._start, self._n_limits = space, torch.stack(units), n_limits
        self._limits: list[Limit] = []  # by the last bounds that are proved
        self._refuted: RefutedAssumptions | None = None
        points = space.points(MOST_POINTS)
        self._whole = None if points is None else (points, self._safe_set(points))

    def learn(self, limited: Sequence[ConstraintSurrogate]) -> None:
        """Take the bounds after a trial, if they are proved.

        Args:
            limited: The constraints with their surrogates.

        Raises:
            RefutedAssumptions: No function satisfies the assumptions of a bound and fits the data.
        """
        known = [one for one in limited if one.surrogate.posterior.n and one.surrogate.guarantee()]
        if len(known) < self._n_limits:
            return
        try:
            self._take(limited)
        except RefutedAssumptions as error:  # nothing is evaluated any more, whoever asks
            self._refuted = error
            raise

    def _take(self, limited: Sequence[ConstraintSurrogate]) -> None:
        self._limits = limits(limited)
        if self._whole is not None:
            self._whole[1].update(self._limits)
        for constraint, surrogate in limited:
            high = surrogate.interval(self._space.features(self._start))[2]
            if bool((high < constraint.limit).any()):
                params = self._space.params(self._start[int(high.argmin())])
                side, bound = (
                    "least" if constraint.sign < 0 else "most",
                    constraint.sign * float(high.min()),
                )
                self._refuted = RefutedAssumptions(
                    f"The data refute that the given points are safe: start {params} is not safe: {constraint.name} "
                    f"is at {side} {bound:.4g} ({constraint})"
                )

    def propose(
        self, belief: Surrogate | None, states: Sequence[Posterior], search: Search, tried: Tensor
    ) -> Tensor:
        """Return the next point [P] of the unit cube: first the starts, and these again while nothing is known.

        Args:
            belief: That of the objective; None while nothing is known.
            states: Posteriors of all quantities by which points are compared.
            search: The part of the space.
            tried: Points [n P] of trials.

        Raises:
            RefutedAssumptions: A start is not safe, or the bounds were refuted.
            InvalidInput: No point of this part of the space is certain to be safe.
        """
        if self._refuted is not None:
            raise self._refuted
        starts = self._start[_within(self._start, search.subspace)]
        if len(fresh := starts[~_among(starts, tried)]):
            return fresh[0]
        if belief is None or not self._limits:
            return starts[len(tried) % len(starts)] if len(starts) else self._none()
        units, found = self._examined(search, tried)
        among = _within(units, search.subspace).to(self._space.device)
        if not bool((found.safe & among).any()):
            self._none()
        objective = belief.bound(search.number)
        return units[found.widest(objective.posterior, objective.confidence, states, among)]

    def safe(self, search: Search, tried: Tensor) -> tuple[Tensor, bool]:
        """Return the points [n P] of a part of the space that are certain to be safe, and whether more may follow."""
        units, found = self._examined(search, tried)
        among = found.safe.cpu() & _within(units, search.subspace)
        return (units[among] if bool(among.any()) else self._none()), found.grows()

    @property
    def whole(self) -> bool:
        """Whether all points of the space are examined."""
        return self._whole is not None

    def _none(self) -> Tensor:
        raise InvalidInput(
            "no parameters that agree with the context, the choices and within are certain to keep all limits: leave "
            "these out, or add a start that agrees with them."
        )

    def _examined(self, search: Search, tried: Tensor) -> tuple[Tensor, SafeSet]:
        """Return points [n P] and which of them are safe."""
        if self._whole is not None:
            return self._whole
        choices = search.subspace.choices
        units = self._particles(search, tried) if choices is None else choices
        return units, self._safe_set(units)

    def _safe_set(self, units: Tensor) -> SafeSet:
        found = SafeSet(
            self._space.features(units), _among(units, self._start).to(self._space.device)
        )
        if self._limits:
            found.update(self._limits)
        return found

    @torch.no_grad()
    def _particles(self, search: Search, tried: Tensor) -> Tensor:
        """Return points [n P] near those that are certain to be safe, and on lines through two of them."""
        generator, options = search.generator, {"generator": search.generator, "dtype": tried.dtype}
        units = search.subspace.place(torch.cat([self._start, tried]))
        units = units[search.subspace.satisfies(units)]
        if not len(units):
            return units
        safe = units[self._quickly_safe(units)]
        for scale in _SCALES:
            from_ = safe if len(safe) else units
            first, second = from_[torch.randint(len(from_), (2, _PARTICLES), generator=generator)]
            near = first + scale * torch.randn(first.shape, **options)
            along = first + (3 * torch.rand(len(first), 1, **options) - 1) * (second - first)
            moved = torch.where(torch.rand(len(first), 1, **options) < 0.5, near, along).clamp(0, 1)
            jumps = torch.rand(first.shape, **options) < _JUMPS
            moved = search.subspace.place(
                torch.where(jumps, torch.rand(first.shape, **options), moved)
            )
            moved = moved[search.subspace.satisfies(moved)]
            units, safe = (
                torch.cat([units, moved]),
                torch.cat([safe, moved[self._quickly_safe(moved)]]),
            )
        return units

    def _quickly_safe(self, units: Tensor) -> Tensor:
        X = self._space.features(units)
        certain = [limit.quick_slacks(X)[0] >= 0 for limit in self._limits]
        return _among(units, self._start) | (
            torch.stack(certain).all(0).cpu() if certain else torch.tensor(False)
        )


def _among(units: Tensor, known: Tensor) -> Tensor:
    """Return whether points [n P] are among the known ones [m P]."""
    rows = set(map(tuple, known.tolist()))
    return torch.tensor([tuple(row) in rows for row in units.tolist()], dtype=torch.bool)


def _within(units: Tensor, subspace: Subspace) -> Tensor:
    """Return whether points [n P] belong to a part of the space."""
    if not subspace.partial and not subspace.boxed:
        return torch.ones(len(units), dtype=torch.bool)
    within = (subspace.fixed.isnan() | (units == subspace.fixed)).all(-1)
    within = within & subspace.in_box(units)
    if subspace.choices is None:
        return within
    return within & _among(units, subspace.choices)
