"""Limits on weighted sums as a mixed-integer linear program: whether points satisfy them all, and some that do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from scipy.optimize import Bounds, LinearConstraint, milp
from torch import Tensor

from kbo.errors import InvalidInput
from kbo.space.conditions import Condition
from kbo.space.constraints import Linear, in_words, limits_of
from kbo.space.parameters import Float, Int, Parameter

_LEAST_MARGIN = 1e-7
"""Part of the range of the real parameters in a sum by which a point can keep from its limits; with less, solvers and
float64 cannot tell inside from outside."""

_SECONDS = 10.0
"""Time after which a search for a point with whole numbers ends without an answer."""


class Program:
    """The linear program of limits on parameters.

    Every parameter in a limit, and every parent of one, has variables: a real number its place in [0, 1] of its range,
    a whole or stepped one the number of its steps, any other one, and every parent, an indicator for each option. All
    are zero where the parameter is not active. The last variable is the margin that real parameters keep from all
    limits.

    Args:
        parameters: Those of the space by name.
        conditions: Those of the space.
        limits: The limits, by names of parameters.
        context: Unit coordinates of parameters that are given wherever they are active.
    """

    def __init__(
        self,
        parameters: Mapping[str, Parameter],
        conditions: Mapping[str, Condition],
        limits: Sequence[Linear],
        context: Mapping[str, float] = {},
    ) -> None:
        self._parameters, self._conditions = parameters, conditions
        needed = {name for limit in limits for name in limit.weights}
        while parents := {conditions[name].parent for name in needed & conditions.keys()} - needed:
            needed |= parents
        self._needed = [name for name in parameters if name in needed]
        parents = {condition.parent for condition in conditions.values()}
        self._listed = {
            name: name in parents or not isinstance(parameters[name], (Float, Int))
            for name in self._needed
        }
        self._first, size = {}, 0
        for name in self._needed:
            self._first[name] = size
            size += len(parameters[name].options) if self._listed[name] else 1
        self.size: int = size + 1
        self._upper, self._whole = np.ones(self.size), np.zeros(self.size)
        self._rows: list[tuple[np.ndarray, float, float]] = []
        for name in self._needed:
            self._restrict(name, context.get(name))
        for limit in limits:
            self._limit(limit)

    def _variables(self, name: str, at: Sequence[int] | None = None) -> np.ndarray:
        """The sum of some variables of a parameter, by default all of them, as coefficients."""
        row, p = np.zeros(self.size), self._parameters[name]
        count = len(p.options) if self._listed[name] else 1
        row[[self._first[name] + i for i in (range(count) if at is None else at)]] = 1
        return row

    def _active(self, name: str) -> tuple[np.ndarray, float]:
        """Whether a parameter is active, as coefficients and a constant."""
        if name not in self._conditions:
            return np.zeros(self.size), 1.0
        parent, values = self._conditions[name]
        options = self._parameters[parent].options
        return self._variables(parent, [options.index(value) for value in values]), 0.0

    def _restrict(self, name: str, u: float | None) -> None:
        """Add the variables of a parameter, with a value if its unit coordinate is given."""
        p, own, (active, always) = self._parameters[name], self._variables(name), self._active(name)
        steps, given = len(p.options), torch.tensor(0.0 if u is None else u, dtype=torch.float64)
        self._whole[own > 0] = steps > 0
        if self._listed[name]:
            self._rows.append((own - active, always, always))
            if u is None:
                return
            own, at = self._variables(name, [int(p.index(given))]), 1.0
        else:
            self._upper[own > 0] = most = steps - 1.0 if steps else 1.0
            if u is None:
                at = most
            elif steps:
                at = float(p.index(given))
            else:
                low, high = limits_of(p)
                at = (p.value(u) - low) / (high - low)
        self._rows.append((own - at * active, -np.inf if u is None else at * always, at * always))

    def _value(self, name: str) -> tuple[np.ndarray, float, float]:
        """The value of a parameter as coefficients and a constant, and its range if it is a real number."""
        p, first, (active, always) = self._parameters[name], self._first[name], self._active(name)
        if self._listed[name]:
            row = np.zeros(self.size)
            row[first : first + len(p.options)] = [float(value) for value in p.options]
            return row, 0.0, 0.0
        low, high = map(float, limits_of(p))
        unit = (high - low) / (len(p.options) - 1 if p.options else 1)
        return (
            low * active + unit * self._variables(name),
            low * always,
            0.0 if p.options else high - low,
        )

    def _limit(self, limit: Linear) -> None:
        row, constant, room = np.zeros(self.size), 0.0, 0.0
        for name, weight in limit.weights.items():
            coefficients, part, width = self._value(name)
            row, constant, room = (
                row + weight * coefficients,
                constant + weight * part,
                room + abs(weight) * width,
            )
        scale = float(np.abs(row).max()) or 1.0
        margin = np.zeros(self.size)
        margin[-1] = room
        low, high = limit.ends
        self._rows.append(((row + margin) / scale, -np.inf, (high - constant) / scale))
        self._rows.append(((row - margin) / scale, (low - constant) / scale, np.inf))

    def solve(self, cost: np.ndarray, least_margin: float = 0.0) -> np.ndarray | None:
        """The variables that minimise a cost; None if there are none, InvalidInput if none were found in time."""
        arrays: list[Any] = [np.array(part) for part in zip(*self._rows, strict=True)]
        box: list[Any] = [np.append(np.zeros(self.size - 1), least_margin), self._upper]
        found = milp(
            cost,
            integrality=self._whole,
            bounds=Bounds(*box),
            constraints=LinearConstraint(*arrays),
            options={"time_limit": _SECONDS},
        )
        if found.x is None and found.status != 2:
            raise InvalidInput(
                f"no point that satisfies the constraints was found in {_SECONDS:g} seconds ({found.message}): give "
                "fewer constraints on whole numbers and choices, or write them as a function of params."
            )
        return found.x

    def margin(self) -> float | None:
        """The largest margin from all limits, in parts of the ranges of real parameters; None if no point is inside."""
        best = self.solve(-np.eye(self.size)[-1])
        return None if best is None else float(best[-1])

    def corners(self, n: int, generator: torch.Generator) -> np.ndarray:
        """Variables [k V] that minimise n random costs, a tenth of the largest margin away from the limits."""
        margin = self.margin() or 0.0
        costs = torch.randn(n, self.size, generator=generator, dtype=torch.float64).numpy()
        costs[:, -1] = 0
        found = [x for cost in costs if (x := self.solve(cost, 0.1 * margin)) is not None]
        return np.array(found).reshape(-1, self.size)

    def units(self, variables: np.ndarray) -> Tensor:
        """The points [n P] of the unit cube of variables [n V]; NaN for parameters without variables."""
        points = torch.full((len(variables), len(self._parameters)), torch.nan, dtype=torch.float64)
        for i, (name, p) in enumerate(self._parameters.items()):
            if name in self._first:
                places = [self._unit(name, p, x) for x in variables.tolist()]
                points[:, i] = torch.tensor(places, dtype=torch.float64)
        return points

    def _unit(self, name: str, p: Parameter, x: list[float]) -> float:
        first = self._first[name]
        if self._listed[name]:
            part = x[first : first + len(p.options)]
            return p.unit(p.options[part.index(max(part))])
        low, high = limits_of(p)
        if p.options:
            return p.unit(p.options[round(x[first])])
        return p.unit(min(max(low + x[first] * (high - low), low), high))


def check(
    parameters: Mapping[str, Parameter],
    conditions: Mapping[str, Condition],
    limits: Sequence[Linear],
) -> None:
    """Check that some point satisfies all limits, and that they leave room for the real parameters.

    Raises:
        InvalidInput: None does, with the limits that contradict each other; or the room is too small.
    """

    def fails(some: Sequence[Linear]) -> bool:
        margin = Program(parameters, conditions, some).margin()
        return margin is None or (possible and margin < _LEAST_MARGIN)

    largest = Program(parameters, conditions, limits).margin()
    possible = largest is not None
    if possible and largest >= _LEAST_MARGIN:
        return
    culprits = list(limits)
    for limit in limits:  # leave out those without which the others fail too
        rest = [other for other in culprits if other is not limit]
        if rest and fails(rest):
            culprits = rest
    text, several = in_words(culprits), len(culprits) > 1
    if possible:
        raise InvalidInput(
            f"{text} leave{'' if several else 's'} real parameters no room (less than {_LEAST_MARGIN:g} "
            "of their ranges): leave one of them out of the space, and compute it from the others in the objective."
        )
    if several:
        raise InvalidInput(
            f"{text} contradict each other: no point within the bounds satisfies all."
        )
    ends = [
        sorted((w * low, w * high)) for w, low, high in _ends(culprits[0], parameters, conditions)
    ]
    low, high = map(sum, zip(*ends, strict=True))
    raise InvalidInput(
        f"no point satisfies {text}: within the bounds the sum is from {low:g} to {high:g}."
    )


def _ends(
    limit: Linear, parameters: Mapping[str, Parameter], conditions: Mapping[str, Condition]
) -> Iterator[tuple[float, float, float]]:
    """Weight, least and largest value of each parameter in a sum, which adds 0 where it is not active."""
    for name, weight in limit.weights.items():
        values = [*limits_of(parameters[name]), *[0.0] * (name in conditions)]
        yield weight, min(values), max(values)
