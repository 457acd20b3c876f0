"""The first values of a parameter that was added to the space."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from kbo.confidence import Confidence
from kbo.optimize.search.search import Search
from kbo.optimize.search.subspace import Subspace
from kbo.optimize.strategies.strategy import Strategy
from kbo.optimize.strategies.upper_bounds import (
    FeasibleUpperBound,
    HypervolumeUpperBound,
    UpperBoundPoint,
)
from kbo.space import Params
from kbo.space.parameters import Parameter

_PLACES = torch.tensor([0.125, 0.375, 0.625, 0.875], dtype=torch.float64)
"""Unit coordinates of the values to try: the middles of the quarters of a range."""

_FEW = 3
"""Largest number of different values of a parameter with which a further one is tried."""

_OPTIMISTIC: tuple[Strategy, ...] = (
    HypervolumeUpperBound(),
    FeasibleUpperBound(),
    UpperBoundPoint(),
)
"""The first of these strategies that applies chooses the other parameters."""


@dataclass(frozen=True)
class NewParameter(Strategy):
    """Maximise the upper bound at a new value of an added parameter, far from its values so far (at most three).

    The results so far say nothing about a parameter that a change of the space added. If trials run one after the
    other, the upper bound alone leads to new values of it. But parallel trials, chosen before any of them has a result,
    would get similar values. So this strategy applies only while other trials are being evaluated. It does not apply
    under constraints on parameters, or in a part of the space.
    """

    def propose(self, search: Search) -> Params | None:
        subspace = search.subspace
        if search.bound is None or not search.space.added or not len(search.avoided):
            return None
        if not len(search.tried):
            return None
        if subspace.partial or subspace.boxed or subspace.constrained:
            return None
        n_free = int(subspace.fixed.isnan().sum())
        if n_free == 1 or subspace.choices is not None:
            return None
        for column, (name, parameter) in enumerate(search.space.parameters.items()):
            if name not in search.space.added:
                continue
            value = _next_value(parameter, search.tried[:, column])
            if value is None:
                continue
            context = {name if search.space.named else column: value}
            search_there = replace(search, subspace=Subspace(search.space, context))
            for strategy in _OPTIMISTIC:
                params = strategy.propose(search_there)
                if params is not None:
                    return params
        return None

    def confidence(self, search: Search) -> Confidence | None:
        return search.confidence

    def describe(self) -> str:
        return "best optimistic bound at a new value of a parameter that was added"


def _next_value(parameter: Parameter, tried: Tensor) -> Any:
    """Return the value farthest from those tried [n], in unit coordinates; None if over three, or all, were tried."""
    values = parameter.values(_PLACES)
    distances = (parameter.units(values).unsqueeze(-1) - tried).abs().amin(-1)
    farthest = int(distances.argmax())
    if len(tried.unique()) > _FEW or distances[farthest] == 0:
        return None
    return values[farthest]
