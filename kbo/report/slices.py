"""Bounds along one parameter, the others fixed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from kbo.errors import InvalidInput
from kbo.optimize import Optimizer
from kbo.space import Choice, Float, Params

_POINTS = 161
"""Points of a slice along a number; fewer where there are fewer whole numbers."""


@dataclass(frozen=True)
class Slice:
    """Bounds along a parameter, in units of the objective.

    Attributes:
        values: Values of the parameter: increasing numbers, or options.
        lower, mean, upper: The interval at each.
        options: Whether the values are options without an order.
        log: Whether they are on a logarithmic scale.
        whole: Whether the parameter is the only one, so that the slice is the whole function.
    """

    values: list[Any]
    lower: list[float]
    mean: list[float]
    upper: list[float]
    options: bool
    log: bool
    whole: bool


def slice_of(optimizer: Optimizer, parameter: str, at: Params | None = None) -> Slice:
    """Return the bounds along a parameter.

    Args:
        optimizer: The optimiser after the run.
        parameter: Name of the parameter; "x0", "x1", ... where the bounds are a list.
        at: Values of the other parameters; by default those of the recommended setting.

    Raises:
        InvalidInput: There is no such parameter, or no bound yet.
        RefutedAssumptions: In the certified setting, no function satisfies the assumptions.
    """
    space = optimizer.space
    if parameter not in space.parameters:
        raise InvalidInput(f"there is no parameter {parameter!r}; the parameters are {list(space.parameters)}.")
    best = optimizer.recommended()
    if best is None or optimizer.interval(best.params) is None:
        raise InvalidInput("there is no bound to draw: too few evaluations, or a method without one.")
    centre = space.unit(best.params if at is None else at)
    position, described = list(space.parameters).index(parameter), space.parameters[parameter]
    if isinstance(described, Choice):
        units = torch.tensor([described.unit(option) for option in described.options], dtype=centre.dtype)
    elif isinstance(described, Float) or described.high - described.low >= _POINTS:
        units = torch.linspace(0, 1, _POINTS, dtype=centre.dtype)
    else:
        whole = range(described.low, described.high + 1)
        units = torch.tensor([described.unit(value) for value in whole], dtype=centre.dtype)
    points = centre.repeat(len(units), 1)
    points[:, position] = units
    belief = optimizer.belief()
    assert belief is not None
    bounds = belief.interval(space.features(points))
    if not optimizer.maximize:  # the belief is about the objective times -1
        bounds = tuple(-bound for bound in reversed(bounds))
    lower, mean, upper = (bound.tolist() for bound in bounds)
    return Slice(
        values=[described.value(u) for u in units.tolist()],
        lower=lower,
        mean=mean,
        upper=upper,
        options=isinstance(described, Choice),
        log=not isinstance(described, Choice) and described.log,
        whole=space.dimension == 1,
    )
