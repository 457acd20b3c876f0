"""Optima of draws: where each draw of the objective is largest, all parameters free, constraints kept.

A draw is evaluated at points near the best trials, and at points that cover the space. From the best point of either
kind it climbs: again and again it is compared with its value after random steps, which become shorter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from kbo._base.quasirandom import sobol
from kbo.optimize.constraints.feasibility import ConstraintSurrogate, probably_feasible
from kbo.optimize.search.subspace import Subspace
from kbo.optimize.surrogates.functions import Functions
from kbo.space import Space

N_COVERING = 768
"""Points that cover the space."""

_N_NEAR = 128
"""Points near the best trials."""

_N_BEST = 8
"""Best trials."""

_MOST_LISTED = 2048
"""Points of a finite space of which each is compared."""

_SCALES = (0.2, 0.1, 0.1, 0.05, 0.05, 0.02, 0.02, 0.01, 0.005, 0.002)
"""Standard deviations of the steps, in parts of a range, one for each round."""

_N_STEPS = 8
"""Steps of a round: half of them change one parameter, the others all."""


class Optima(NamedTuple):
    """The optima of draws.

    Attributes:
        units: Points [s P] of the unit cube.
        values: The values [s] there.
    """

    units: Tensor
    values: Tensor


def optima(
    space: Space,
    functions: Functions,
    constraints: Sequence[ConstraintSurrogate],
    trials: Tensor,
    generator: torch.Generator,
    n_covering: int = N_COVERING,
) -> Optima:
    """Return the optima of draws of the objective.

    Args:
        space: The search space.
        functions: The draws.
        constraints: The constraints with their surrogates, each kept with a probability of a half.
        trials: Points [n P] of trials that keep the constraints, the best one first.
        generator: Source of randomness.
        n_covering: Points that cover the space.
    """
    seeds = torch.randint(2**31, (3,), generator=generator).tolist()
    near, covering = _candidates(space, trials, n_covering, seeds)
    feasible = probably_feasible(space, constraints, near)
    feasible[: len(trials)] = True
    starts = [_best(space, functions, near[feasible])]
    covering = covering[probably_feasible(space, constraints, covering)]
    if len(covering):
        starts.append(_best(space, functions, covering))
    found = Optima(
        torch.stack([start.units for start in starts], 1),
        torch.stack([start.values for start in starts], 1),
    )
    if space.points(_MOST_LISTED) is None and space.table is None:
        steps = torch.Generator().manual_seed(seeds[2])
        for scale in _SCALES:
            found = _climbed(space, functions, constraints, found, scale, steps)
    values, best = found.values.max(1)
    units = found.units[torch.arange(functions.count), best]
    return Optima(units, functions.transform.inverse(values))


def _best(space: Space, functions: Functions, points: Tensor) -> Optima:
    """Return the best of points [n P] for each draw, with targets as values."""
    values, best = functions.targets(space.features(points)).cpu().max(1)
    return Optima(points[best], values)


def _candidates(
    space: Space, trials: Tensor, n_covering: int, seeds: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """Return points [n P] of the trials and near the best of them, and points [m P] that cover the space."""
    whole = Subspace(space)
    generator = torch.Generator().manual_seed(seeds[0])
    listed = space.points(_MOST_LISTED)
    if listed is not None:
        return trials, listed
    if whole.choices is not None:
        rows = torch.randperm(len(whole.choices), generator=generator)[:n_covering]
        return trials, whole.choices[rows]
    if whole.constrained:
        covering = whole.draw(n_covering, generator)
    else:
        covering = whole.place(sobol(n_covering, space.dimension, seed=seeds[0]))
    centres = trials[:_N_BEST]
    centres = centres.repeat(_N_NEAR // len(centres), 1)
    scales = torch.logspace(-2.5, -0.5, len(centres), dtype=torch.float64).unsqueeze(1)
    normal = _normal(centres.shape, torch.Generator().manual_seed(seeds[1]))
    near = whole.place((centres + scales * normal).clamp(0, 1))
    return torch.cat([trials, near]), covering


def _climbed(
    space: Space,
    functions: Functions,
    constraints: Sequence[ConstraintSurrogate],
    found: Optima,
    scale: float,
    generator: torch.Generator,
) -> Optima:
    """Return the best of random steps from each point, where it is better and keeps the constraints.

    Args:
        space: The search space.
        functions: The draws.
        constraints: The constraints with their surrogates.
        found: Points [s m P] with their targets [s m].
        scale: Standard deviation of the steps.
        generator: Source of randomness.
    """
    shape = (*found.units.shape[:2], _N_STEPS, found.units.shape[2])
    s, m, k, P = shape
    steps = scale * _normal(shape, generator)
    is_changed = torch.ones(shape, dtype=torch.bool)
    changed = torch.randint(P, (s, m, k // 2, 1), generator=generator)
    is_changed[:, :, : k // 2] = torch.arange(P) == changed
    moved = found.units.unsqueeze(2) + torch.where(is_changed, steps, 0.0)
    moved = Subspace(space).place(moved.reshape(-1, P).clamp(0, 1))
    values = functions.own_targets(space.features(moved).reshape(s, m * k, -1)).cpu()
    best_values, best = values.reshape(s, m, k).max(2)
    rows = torch.arange(s * m).reshape(s, m) * k + best
    best_units = moved[rows]
    is_better = best_values > found.values
    is_better[is_better.clone()] = probably_feasible(space, constraints, best_units[is_better])
    units = torch.where(is_better.unsqueeze(2), best_units, found.units)
    return Optima(units, torch.where(is_better, best_values, found.values))


def _normal(shape: Sequence[int], generator: torch.Generator) -> Tensor:
    """Return standard normal numbers of a shape."""
    return torch.randn(tuple(shape), generator=generator, dtype=torch.float64)
