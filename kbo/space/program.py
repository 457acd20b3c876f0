"""Linear constraints as a mixed-integer linear program: it finds points inside, or proves that there are none.

``Space`` uses it to refuse constraints that contradict each other, and ``feasible`` to find the starts of its walks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from scipy.optimize import Bounds, LinearConstraint, milp
from torch import Tensor

from kbo.errors import InvalidInput
from kbo.space.bounds import Condition
from kbo.space.constraints import Linear, in_words
from kbo.space.parameters import Parameter

_LEAST_MARGIN = 1e-7
"""Smallest margin from the limits, as a share of the ranges of the real parameters in a sum.

With a smaller margin, solvers and float64 cannot tell inside from outside."""

_INFEASIBLE = 2
"""Status of SciPy's ``milp`` that means: proved that there is no solution."""

_SECONDS = 10.0
"""Time limit of one solution, in seconds."""


class Program:
    """The mixed-integer linear program of limits on parameters.

    Every parameter in a limit has variables, and so have its parents. They are zero if the parameter is not active:

    * a real number: its position in its range, in [0, 1];
    * a whole number, or a number with a step: the number of its steps from the low end;
    * any other parameter, and every parent: an indicator for each option.

    The last of the V variables is the margin that real parameters keep from all limits.

    Args:
        parameters: The parameters of the space by name.
        conditions: The conditions of the space.
        limits: The limits, with names of parameters as keys.
    """

    def __init__(
        self,
        parameters: Mapping[str, Parameter],
        conditions: Mapping[str, Condition],
        limits: Sequence[Linear],
    ) -> None:
        self._parameters = parameters
        self._conditions = conditions
        self._has_indicators: dict[str, bool] = {}
        self._variables: dict[str, list[int]] = {}
        self._number_variables(self._names_in(limits))
        self._upper = np.ones(self.size)
        self._is_whole = np.zeros(self.size)
        self._rows: list[tuple[np.ndarray, float, float]] = []
        for name in self._variables:
            if self._has_indicators[name]:
                self._add_indicators(name)
            else:
                self._add_number(name)
        for limit in limits:
            self._add_limit(limit)

    def _names_in(self, limits: Sequence[Linear]) -> set[str]:
        """Return the names of the parameters in limits, and of all their ancestors."""
        names = set()
        for limit in limits:
            for name in limit.weights:
                names.add(name)
                while name in self._conditions:
                    name = self._conditions[name].parent
                    names.add(name)
        return names

    def _number_variables(self, names: set[str]) -> None:
        """Number the variables of the parameters, and set ``size``, the number V of all variables with the margin."""
        parents = {condition.parent for condition in self._conditions.values()}
        n_variables = 0
        for name, parameter in self._parameters.items():
            if name not in names:
                continue
            self._has_indicators[name] = name in parents or not parameter.is_range
            n_own = len(parameter.options) if self._has_indicators[name] else 1
            self._variables[name] = list(range(n_variables, n_variables + n_own))
            n_variables += n_own
        self.size: int = n_variables + 1

    def _row(self, variables: Sequence[int], coefficients: Any = 1.0) -> np.ndarray:
        """Return a row of coefficients [V] of the program: the given ones for some variables, 0 for the others."""
        row = np.zeros(self.size)
        row[variables] = coefficients
        return row

    def _active(self, name: str) -> tuple[np.ndarray, float]:
        """Return a linear expression that is 1 if a parameter is active, else 0: coefficients [V] and a constant."""
        if name not in self._conditions:
            return np.zeros(self.size), 1.0
        parent, values = self._conditions[name]
        options = self._parameters[parent].options
        indicators = self._variables[parent]
        possible = [value for value in values if value in options]  # a fixed parent has one option
        return self._row([indicators[options.index(value)] for value in possible]), 0.0

    def _add_indicators(self, name: str) -> None:
        """Demand that exactly one indicator of an active parameter is 1."""
        variables = self._variables[name]
        self._is_whole[variables] = 1
        active, constant = self._active(name)
        self._rows.append((self._row(variables) - active, constant, constant))

    def _add_number(self, name: str) -> None:
        """Demand that the variable of an active number is in its range."""
        p = self._parameters[name]
        variables = self._variables[name]
        largest = 1.0
        if p.options:
            self._is_whole[variables] = 1
            largest = len(p.options) - 1.0
        self._upper[variables] = largest
        active, constant = self._active(name)
        self._rows.append((self._row(variables) - largest * active, -np.inf, largest * constant))

    def _value(self, name: str) -> tuple[np.ndarray, float]:
        """Return the value of a parameter, 0 if it is not active, as coefficients [V] and a constant."""
        p = self._parameters[name]
        variables = self._variables[name]
        if self._has_indicators[name]:
            return self._row(variables, [float(value) for value in p.options]), 0.0
        low, high = map(float, p.ends)
        active, constant = self._active(name)
        unit = high - low
        if p.options:
            unit /= len(p.options) - 1
        return low * active + self._row(variables, unit), low * constant

    def _add_limit(self, limit: Linear) -> None:
        """Demand both ends of a limit: low + margin * room <= sum of weight * value <= high - margin * room.

        The room is the sum of |weight| * (high - low) over the real parameters. Both rows are divided by the largest
        coefficient of the sum.
        """
        total = np.zeros(self.size)
        constant = 0.0
        room = 0.0
        for name, weight in limit.weights.items():
            row, offset = self._value(name)
            total = total + weight * row
            constant += weight * offset
            p = self._parameters[name]
            if not p.options:
                room += abs(weight) * float(p.ends[1] - p.ends[0])
        scale = float(np.abs(total).max()) or 1.0
        margin = self._row([-1], room)
        low, high = limit.ends
        self._rows.append(((total + margin) / scale, -np.inf, (high - constant) / scale))
        self._rows.append(((total - margin) / scale, (low - constant) / scale, np.inf))

    def solve(self, cost: np.ndarray, least_margin: float = 0.0) -> np.ndarray | None:
        """Return the variables [V] that minimise cost [V] @ variables; None if no variables satisfy the limits.

        Raises:
            InvalidInput: The solver found no variables within the time limit, and no proof that there are none.
        """
        arrays: list[Any] = [np.array(column) for column in zip(*self._rows, strict=True)]
        lower: Any = self._row([-1], least_margin)
        upper: Any = self._upper
        solution = milp(
            cost,
            integrality=self._is_whole,
            bounds=Bounds(lower, upper),
            constraints=LinearConstraint(*arrays),
            options={"time_limit": _SECONDS},
        )
        if solution.x is None and solution.status != _INFEASIBLE:
            raise InvalidInput(
                f"no point that satisfies the constraints was found in {_SECONDS:g} seconds ({solution.message}): give "
                "fewer constraints on whole numbers and choices, or write them as a function of params."
            )
        return solution.x

    def margin(self) -> float | None:
        """Return the largest margin from all limits, as a share of the room; None if no point is inside."""
        best = self.solve(self._row([-1], -1.0))
        if best is None:
            return None
        return float(best[-1])

    def corners(self, n: int, generator: torch.Generator) -> np.ndarray:
        """Return variables [k V] that minimise n random costs, k <= n: corners of the limits.

        Each keeps at least a tenth of the largest margin from the limits.
        """
        least_margin = 0.1 * (self.margin() or 0.0)
        costs = torch.randn(n, self.size, generator=generator, dtype=torch.float64).numpy()
        costs[:, -1] = 0
        corners = []
        for cost in costs:
            corner = self.solve(cost, least_margin)
            if corner is not None:
                corners.append(corner)
        return np.array(corners).reshape(-1, self.size)

    def units(self, variables: np.ndarray) -> Tensor:
        """Return variables [n V] as points [n P] of the unit cube; NaN for parameters without variables."""
        points = torch.full((len(variables), len(self._parameters)), torch.nan, dtype=torch.float64)
        for column, (name, p) in enumerate(self._parameters.items()):
            if name in self._variables:
                values = [self._value_at(name, p, row) for row in variables]
                points[:, column] = p.units(values)
        return points

    def _value_at(self, name: str, p: Parameter, variables: np.ndarray) -> Any:
        """Return the value that variables [V] give a parameter."""
        of_parameter = variables[self._variables[name]]
        if self._has_indicators[name]:
            return p.options[int(of_parameter.argmax())]
        if p.options:
            return p.options[round(of_parameter[0])]
        low, high = p.ends
        return min(max(low + float(of_parameter[0]) * (high - low), low), high)


def check(
    parameters: Mapping[str, Parameter],
    conditions: Mapping[str, Condition],
    limits: Sequence[Linear],
) -> None:
    """Check that some point satisfies all limits, and that they leave room for the real parameters.

    Raises:
        InvalidInput: No point satisfies the limits, or they leave too little room; the message names these limits.
    """
    margin = Program(parameters, conditions, limits).margin()
    if margin is not None and margin >= _LEAST_MARGIN:
        return
    culprits = _culprits(parameters, conditions, limits, has_points=margin is not None)
    text = in_words(culprits)
    if margin is not None:
        verb = "leave"
        if len(culprits) == 1:
            verb = "leaves"
        raise InvalidInput(
            f"{text} {verb} real parameters no room (less than {_LEAST_MARGIN:g} of their ranges): leave one of them "
            "out of the space, and compute it from the others in the objective."
        )
    if len(culprits) > 1:
        raise InvalidInput(
            f"{text} contradict each other: no point within the bounds satisfies all."
        )
    low, high = _extremes(culprits[0], parameters, conditions)
    raise InvalidInput(
        f"no point satisfies {text}: within the bounds the sum is from {low:g} to {high:g}."
    )


def _culprits(
    parameters: Mapping[str, Parameter],
    conditions: Mapping[str, Condition],
    limits: Sequence[Linear],
    has_points: bool,
) -> list[Linear]:
    """Return a minimal set of limits that no point satisfies, or that leave too little room.

    Args:
        parameters: The parameters of the space by name.
        conditions: The conditions of the space.
        limits: All limits; together they contradict each other, or leave too little room.
        has_points: Whether the second is the case: some points satisfy them, with too little room.
    """
    culprits = list(limits)
    for limit in limits:
        others = [other for other in culprits if other is not limit]
        if not others:
            continue
        margin = Program(parameters, conditions, others).margin()
        if margin is None or (has_points and margin < _LEAST_MARGIN):
            culprits = others
    return culprits


def _extremes(
    limit: Linear, parameters: Mapping[str, Parameter], conditions: Mapping[str, Condition]
) -> tuple[float, float]:
    """Return the smallest and the largest sum within the bounds; a parameter that is not active adds 0."""
    low = 0.0
    high = 0.0
    for name, weight in limit.weights.items():
        terms = [weight * value for value in parameters[name].ends]
        if name in conditions:
            terms.append(0.0)
        low += min(terms)
        high += max(terms)
    return low, high
