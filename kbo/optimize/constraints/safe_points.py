"""The points that are certain to keep all limits, after each trial: where ``kbo.Safe`` may evaluate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from kbo._base import checks
from kbo.bandit.safe import SafeSet
from kbo.confidence import Limit
from kbo.errors import InvalidInput, RefutedAssumptions
from kbo.optimize.constraints.feasibility import ConstraintSurrogate, limits
from kbo.space import Space

MOST_POINTS = 100_000
"""Largest number of points of a finite space whose points are all examined."""


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
