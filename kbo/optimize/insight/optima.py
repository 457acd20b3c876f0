"""Draws of the objective, and their optima: where each is largest, among points that probably keep the constraints.

A draw is evaluated at points near the best trials, and at points that cover the space. A local search starts at the
best point of either kind. In each round it takes the best of some random steps if that is an improvement; the steps
become shorter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from kbo._base.quasirandom import sobol
from kbo.optimize.constraints.feasibility import ConstraintSurrogate, probably_feasible
from kbo.optimize.search.subspace import Subspace
from kbo.optimize.surrogates.functions import Functions
from kbo.space import Space

_N_COVERING = 768
"""Number of points that cover the space."""

_N_NEAR = 128
"""Number of points near the best trials."""

_N_BEST = 8
"""Number of the best trials near which points are drawn."""

_MOST_LISTED = 2048
"""Largest number of points of a finite space that are all compared."""

_SCALES = (0.2, 0.1, 0.1, 0.05, 0.05, 0.02, 0.02, 0.01, 0.005, 0.002)
"""Standard deviations of the steps of each round, in ranges of the parameters."""

_N_STEPS = 8
"""Number of steps from each point in a round: half of them change one parameter, the others all."""


@dataclass(frozen=True)
class DrawnObjective:
    """Draws of the objective from the model, larger values better, and the constraints.

    Attributes:
        space: The search space.
        functions: The s draws, as functions of features.
        constraints: The constraints with their surrogates.
    """

    space: Space
    functions: Functions
    constraints: Sequence[ConstraintSurrogate]

    def values(self, units: Tensor) -> Tensor:
        """Return the values [s n] of the draws at points [n P] of the unit cube, on the CPU."""
        return self.functions(self.space.features(units)).cpu()

    def targets(self, units: Tensor) -> Tensor:
        """Return the targets [s n] of the draws at points [n P], which have the same order as the values."""
        return self.functions.targets(self.space.features(units)).cpu()

    def targets_of_each(self, units: Tensor) -> Tensor:
        """Return the targets [s n] of each draw at its own points [s n P]."""
        s, n, P = units.shape
        features = self.space.features(units.reshape(s * n, P)).reshape(s, n, -1)
        return self.functions.targets(features).cpu()

    def is_feasible(self, units: Tensor) -> Tensor:
        """Return whether points [n P] keep each constraint with a probability of at least 1/2, [n]."""
        return probably_feasible(self.space, self.constraints, units)


class Optima(NamedTuple):
    """The optima of draws; during the search, the best points of each draw so far.

    Attributes:
        units: Points [s P] of the unit cube, one for each draw; during the search [s m P], from m starts.
        values: The values [s] of the draws at these points; during the search their targets [s m].
    """

    units: Tensor
    values: Tensor


def optima(objective: DrawnObjective, trials: Tensor, generator: torch.Generator) -> Optima:
    """Return the optima [s P] of s draws of the objective, and their values [s].

    Args:
        objective: The draws, and the constraints; the optima keep each with a probability of at least 1/2.
        trials: Points [n P] of trials that keep the constraints, the best one first.
        generator: Source of randomness.
    """
    space = objective.space
    seeds = torch.randint(2**31, (3,), generator=generator).tolist()
    near, covering = _candidates(space, trials, seeds)
    is_feasible = objective.is_feasible(near)
    is_feasible[: len(trials)] = True
    starts = [_best(objective, near[is_feasible])]
    covering = covering[objective.is_feasible(covering)]
    if len(covering):
        starts.append(_best(objective, covering))
    best = Optima(
        torch.stack([start.units for start in starts], 1),
        torch.stack([start.values for start in starts], 1),
    )
    if space.points(_MOST_LISTED) is None and space.table is None:
        steps = torch.Generator().manual_seed(seeds[2])
        for scale in _SCALES:
            best = _climbed(objective, best, scale, steps)
    targets, start = best.values.max(1)
    units = best.units[torch.arange(len(targets)), start]
    return Optima(units, objective.functions.transform.inverse(targets))


def _best(objective: DrawnObjective, points: Tensor) -> Optima:
    """Return for each draw the best of points [n P], with the target as its value."""
    values, best = objective.targets(points).max(1)
    return Optima(points[best], values)


def _candidates(space: Space, trials: Tensor, seeds: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return points [n P] at trials and near the best of them, and points [m P] that cover the space.

    In a small finite space, and in a table, the covering points are its own points, and there are none near the trials.
    """
    whole = Subspace(space)
    generator = torch.Generator().manual_seed(seeds[0])
    listed = space.points(_MOST_LISTED)
    if listed is not None:
        return trials, listed
    if whole.choices is not None:
        rows = torch.randperm(len(whole.choices), generator=generator)[:_N_COVERING]
        return trials, whole.choices[rows]
    if whole.constrained:
        covering = whole.draw(_N_COVERING, generator)
    else:
        covering = whole.moved_inside(sobol(_N_COVERING, space.dimension, seed=seeds[0]))
    centres = trials[:_N_BEST]
    centres = centres.repeat(_N_NEAR // len(centres), 1)
    scales = torch.logspace(-2.5, -0.5, len(centres), dtype=torch.float64).unsqueeze(1)
    normal = _normal(centres.shape, torch.Generator().manual_seed(seeds[1]))
    near = whole.moved_inside((centres + scales * normal).clamp(0, 1))
    return torch.cat([trials, near]), covering


def _climbed(
    objective: DrawnObjective, best: Optima, scale: float, generator: torch.Generator
) -> Optima:
    """Return the best points [s m P] after one round of random steps with standard deviation ``scale``.

    A point moves to the best of its steps if that is better and probably keeps the constraints.
    """
    shape = (*best.units.shape[:2], _N_STEPS, best.units.shape[2])
    s, m, k, P = shape
    steps = scale * _normal(shape, generator)
    is_changed = torch.ones(shape, dtype=torch.bool)
    changed = torch.randint(P, (s, m, k // 2, 1), generator=generator)
    is_changed[:, :, : k // 2] = torch.arange(P) == changed
    moved = best.units.unsqueeze(2) + torch.where(is_changed, steps, 0.0)
    moved = Subspace(objective.space).moved_inside(moved.reshape(-1, P).clamp(0, 1))
    values = objective.targets_of_each(moved.reshape(s, m * k, P))
    best_values, best_step = values.reshape(s, m, k).max(2)
    rows = torch.arange(s * m).reshape(s, m) * k + best_step
    best_units = moved[rows]
    is_better = best_values > best.values
    is_better[is_better.clone()] = objective.is_feasible(best_units[is_better])
    units = torch.where(is_better.unsqueeze(2), best_units, best.units)
    return Optima(units, torch.where(is_better, best_values, best.values))


def _normal(shape: Sequence[int], generator: torch.Generator) -> Tensor:
    """Draw standard normal numbers of a shape."""
    return torch.randn(tuple(shape), generator=generator, dtype=torch.float64)
