"""The strategies without a bound: a design that fills the space, the repetition of the best trial, random search."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from kbo._base.quasirandom import sobol
from kbo.optimize.search.options import option_indices
from kbo.optimize.search.search import N_RANDOM, Search
from kbo.optimize.search.subspace import Subspace
from kbo.optimize.strategies.strategy import Strategy
from kbo.space import Params

_FURTHER_ON = 1001
"""Distance in the sequence from a point that is left out to the one that replaces it.

It is odd, since points whose numbers differ by a power of two are close to each other.
"""

_GOLDEN_RATIO = (math.sqrt(5) - 1) / 2
"""Distance between successive points on a line, modulo 1: any number of them are far from each other."""

_SHIFT = 0.1
"""Largest difference between two seeds of the points on a line."""

_MOST_SKIPPED = 16
"""Largest number of points of the sequence that are considered for one trial."""


@dataclass(frozen=True)
class InitialDesign(Strategy):
    """A scrambled Sobol sequence, until there is a surrogate; where choices are given, random ones of them.

    With one parameter it is a sequence of the golden ratio: the first points of a Sobol sequence may be close together.

    Points next to those that are being evaluated are left out (``Search.spacing``). So are points with an option that
    has only failed, at least twice, while other options succeeded.

    Args:
        centre_first: Whether the first point is the centre. It is nearest to all others; in many dimensions the other
            points are close to the boundary.
    """

    centre_first: bool = True

    def propose(self, search: Search) -> Params | None:
        if search.surrogate is not None:
            return None
        if search.subspace.choices is not None:
            return search.random()
        number = search.number
        if self.centre_first:
            if number == 0:
                return search.params(_centre(search.subspace, search.generator))
            number -= 1
        point = _point(search, number)
        for i in range(1, _MOST_SKIPPED):
            if search.is_free(point) and not _has_failing_option(search, point):
                break
            point = _point(search, number + i * _FURTHER_ON)
        return search.params(point)

    def describe(self) -> str:
        return "initial design"


def _has_failing_option(search: Search, point: Tensor) -> bool:
    """Return whether a point [P] has an option that has only failed."""
    for name, option in search.failing:
        indices = option_indices(search.space, name, point.unsqueeze(0)).tolist()
        if any(search.space.parameters[name].options[index] == option for index in indices):
            return True
    return False


def _centre(subspace: Subspace, generator: torch.Generator) -> Tensor:
    """Return the centre [P] of a subspace; under constraints, of many random points the one nearest to their mean."""
    if not subspace.constrained:
        return subspace.spread(torch.full_like(subspace.fixed, 0.5))
    points = subspace.draw(N_RANDOM, generator)
    return points[(points - points.mean(0)).norm(dim=-1).argmin()]


def _point(search: Search, number: int) -> Tensor:
    """Return point ``number`` [P] of the sequence; under constraints only points that satisfy them count."""
    subspace = search.subspace
    P = len(subspace.fixed)
    if P == 1 and not subspace.constrained:
        shift = _SHIFT * (float(sobol(1, 1, search.seed)) - 0.5)
        place = (0.5 + (number + 1) * _GOLDEN_RATIO + shift) % 1
        return subspace.spread(torch.full_like(subspace.fixed, place))
    if not subspace.constrained:
        return subspace.spread(sobol(1, P, search.seed, number)[0])
    points = subspace.moved_inside(sobol(N_RANDOM, P, search.seed))
    points = points[search.space.satisfies(points)]
    if number < len(points):
        return points[number]
    return subspace.sample(search.generator)


@dataclass(frozen=True)
class Repetition(Strategy):
    """Repeat the recommended parameters, while it is not known whether the values have noise.

    Equal values mean that the objective has no noise. One repetition is enough, unless values at different parameters
    are equal too, such as accuracies on few cases: see ``Surrogate.repetitions_needed``. The strategy does not apply
    where a context or choices are given.
    """

    def propose(self, search: Search) -> Params | None:
        if search.surrogate is None or search.surrogate.noiseless is not None:
            return None
        if search.subspace.partial:
            return None
        n_repeated = len(search.tried) - len(search.tried.unique(dim=0))
        if n_repeated >= search.surrogate.repetitions_needed:
            return None
        return search.best

    def describe(self) -> str:
        return "repetition of the recommended trial, which shows whether there is noise"


@dataclass(frozen=True)
class RandomPoint(Strategy):
    """Random parameters, uniform in the unit cube of the space."""

    def propose(self, search: Search) -> Params:
        return search.random()

    def describe(self) -> str:
        return "random"
