"""Optima of draws: where each draw of the objective is largest, all parameters free, constraints kept.

A draw is evaluated at points that cover the space and near the best trials. From the best of these it climbs: again and
again it is compared with its value at random steps, which become shorter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from kbo._base.quasirandom import sobol
from kbo.optimize.feasibility import ConstraintSurrogate, probably_feasible
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
    points, all_listed = _candidates(space, trials, n_covering, seeds)
    feasible = probably_feasible(space, constraints, points)
    feasible[: len(trials)] = True
    points = points[feasible]
    values = functions.targets(space.features(points)).cpu()
    best_values, best = values.max(1)
    found = Optima(points[best], best_values)
    if not all_listed:
        steps = torch.Generator().manual_seed(seeds[2])
        for scale in _SCALES:
            found = _climbed(space, functions, constraints, found, scale, steps)
    return Optima(found.units, functions.transform.inverse(found.values))


def _candidates(
    space: Space, trials: Tensor, n_covering: int, seeds: Sequence[int]
) -> tuple[Tensor, bool]:
    """Return points [n P], those of the trials first, and whether these are all points of a finite space."""
    listed = space.points(_MOST_LISTED)
    if listed is not None:
        return torch.cat([trials, listed]), True
    generator = torch.Generator().manual_seed(seeds[0])
    whole = Subspace(space)
    if whole.choices is not None:
        rows = torch.randperm(len(whole.choices), generator=generator)[:n_covering]
        return torch.cat([trials, whole.choices[rows]]), True
    if whole.constrained:
        covering = whole.draw(n_covering, generator)
    else:
        covering = whole.place(sobol(n_covering, space.dimension, seed=seeds[0]))
    near = torch.Generator().manual_seed(seeds[1])
    centres = trials[:_N_BEST].repeat(_N_NEAR // len(trials[:_N_BEST]), 1)
    scales = torch.logspace(-2.5, -0.5, len(centres), dtype=torch.float64).unsqueeze(1)
    moved = (centres + scales * _normal(centres.shape, near)).clamp(0, 1)
    return torch.cat([trials, whole.place(moved), covering]), False


def _climbed(
    space: Space,
    functions: Functions,
    constraints: Sequence[ConstraintSurrogate],
    found: Optima,
    scale: float,
    generator: torch.Generator,
) -> Optima:
    """Return the optima after the best of random steps from each, where it is better and keeps the constraints."""
    s, P = found.units.shape
    steps = scale * _normal((s, _N_STEPS, P), generator)
    changed = torch.randint(P, (s, _N_STEPS // 2, 1), generator=generator)
    is_changed = torch.zeros(s, _N_STEPS, P, dtype=torch.bool)
    is_changed[:, _N_STEPS // 2 :] = True
    is_changed[:, : _N_STEPS // 2].scatter_(2, changed, True)
    moved = found.units.unsqueeze(1) + torch.where(is_changed, steps, 0.0)
    moved = Subspace(space).place(moved.flatten(0, 1).clamp(0, 1))
    features = space.features(moved).unflatten(0, (s, _N_STEPS))
    values = functions.own_targets(features).cpu()
    best_values, best = values.max(1)
    best_units = moved.unflatten(0, (s, _N_STEPS))[torch.arange(s), best]
    is_better = best_values > found.values
    is_better[is_better.clone()] = probably_feasible(space, constraints, best_units[is_better])
    units = torch.where(is_better.unsqueeze(1), best_units, found.units)
    return Optima(units, torch.where(is_better, best_values, found.values))


def _normal(shape: Sequence[int], generator: torch.Generator) -> Tensor:
    """Return standard normal numbers of a shape."""
    return torch.randn(tuple(shape), generator=generator, dtype=torch.float64)
