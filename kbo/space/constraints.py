"""Constraints on parameters, known before any evaluation: limits on weighted sums, and functions of params."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import torch
from torch import Tensor

from kbo._base import checks
from kbo._base.isolation import as_caller
from kbo.errors import InvalidInput
from kbo.space.parameters import FLOAT32, Parameter

Rule = Callable[[Any], bool]
"""A function of params that returns whether they may be used."""

_ROUNDING = 4 * sys.float_info.epsilon
"""Relative rounding by which a sum may exceed its limit. So 0.1 + 0.2 <= 0.3 is satisfied."""

_CONVERSION = 1e-12
"""Largest relative change of a number on its way to the unit interval and back, on the longest logarithmic scale."""


@dataclass(frozen=True)
class Linear:
    """A limit on a weighted sum of parameters: lower <= sum of weight * value <= upper.

    The values are in the units of the parameters, also on a logarithmic scale. They must be numbers; True and False
    count as 1 and 0. A parameter that is not active adds nothing.

    Args:
        weights: The weight of each parameter, by name (by index if the bounds are a list).
        upper: The largest sum that is allowed.
        lower: The smallest sum that is allowed.

    Raises:
        InvalidInput: There are no weights or no limits, a weight is 0 or no finite number, or ``lower > upper``.

    Example:
        >>> space = kbo.Space({"a": (0.0, 1.0), "b": (0.0, 1.0)}, constraints=[kbo.Linear({"a": 1, "b": 1}, upper=1)])
    """

    weights: Mapping[Any, float]
    _: KW_ONLY
    upper: float | None = None
    lower: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.weights, Mapping) or not self.weights:
            raise InvalidInput(
                f"weights of kbo.Linear must be a dict from parameter to weight, got {checks.shown(self.weights)}."
            )
        weights = {}
        for key, weight in self.weights.items():
            weights[key] = checks.number(f"the weight of {key!r}", weight)
        idle = [key for key, weight in weights.items() if not weight]
        if idle:
            raise InvalidInput(
                f"the weights of {idle} are 0: leave these parameters out of kbo.Linear."
            )
        upper = checks.maybe(checks.number, "upper of kbo.Linear", self.upper)
        lower = checks.maybe(checks.number, "lower of kbo.Linear", self.lower)
        if upper is None and lower is None:
            raise InvalidInput(f"kbo.Linear({weights}) has no limit: give upper=, lower= or both.")
        if upper is not None and lower is not None and lower > upper:
            raise InvalidInput(
                f"kbo.Linear: lower = {lower:g} is above upper = {upper:g}: exchange them."
            )
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "upper", upper)
        object.__setattr__(self, "lower", lower)

    @property
    def ends(self) -> tuple[float, float]:
        """The lower and the upper limit; a missing one is infinite."""
        lower, upper = self.lower, self.upper
        if lower is None:
            lower = -math.inf
        if upper is None:
            upper = math.inf
        return lower, upper

    def __str__(self) -> str:
        terms = []
        for key, weight in self.weights.items():
            sign = "+"
            if weight < 0:
                sign = "-"
            size = abs(weight)
            if size == 1:
                terms.append(f"{sign} {key}")
            else:
                terms.append(f"{sign} {_digits(size)} {key}")
        total = " ".join(terms).removeprefix("+ ")
        if self.upper is None:
            return f"{total} >= {_digits(self.ends[0])}"
        if self.lower is None:
            return f"{total} <= {_digits(self.upper)}"
        if self.lower == self.upper:
            return f"{total} = {_digits(self.upper)}"
        return f"{_digits(self.lower)} <= {total} <= {_digits(self.upper)}"

    def named(self, names: Sequence[str], indexed: bool) -> Linear:
        """Return the same limit with the names of parameters as keys; if ``indexed``, keys may be indices before.

        Raises:
            InvalidInput: A parameter does not exist.
        """
        weights = {}
        for key, weight in self.weights.items():
            name = key
            if indexed and key in range(len(names)):
                name = names[key]
            if name not in names:
                keys = list(range(len(names))) if indexed else list(names)
                raise InvalidInput(
                    f"{self}: there is no parameter {checks.shown(key)}; the parameters are {keys}."
                )
            weights[name] = weight
        return Linear(weights, upper=self.upper, lower=self.lower)

    def describe(self) -> dict[str, Any]:
        """Return the limit as plain JSON values, the arguments by name."""
        entries: dict[str, Any] = {"kind": "Linear", "weights": dict(self.weights)}
        if self.upper is not None:
            entries["upper"] = self.upper
        if self.lower is not None:
            entries["lower"] = self.lower
        return entries

    def check(self, parameters: Mapping[str, Parameter]) -> None:
        """Check that the parameters are numbers, and that a real one has room: lower = upper would leave none.

        Raises:
            InvalidInput: A parameter has other values, or a real one has no room.
        """
        for name in self.weights:
            if not all(isinstance(value, (int, float)) for value in parameters[name].ends):
                raise InvalidInput(
                    f"{self}: {name!r} has values that are no numbers: leave it out, or write the constraint as a "
                    "function of params."
                )
        real = [name for name in self.weights if not parameters[name].options]
        if self.lower is not None and self.lower == self.upper and real:
            name = repr(real[-1])
            raise InvalidInput(
                f"{self}, with lower = upper, leaves no room for {name}: leave {name} out of the space, and compute it "
                "from the others in the objective."
            )


class Limits:
    """L linear constraints, checked at many points at once.

    A sum may exceed a limit by rounding: low - rounding <= weights @ numbers <= high + rounding. Here rounding is
    ``_ROUNDING`` times the size of the terms and of the limit.

    Args:
        linear: The L constraints, with names as keys.
        parameters: All parameters of the space by name.

    Attributes:
        columns: By position in the space, the parameters that are in some constraint.
    """

    def __init__(self, linear: Sequence[Linear], parameters: Mapping[str, Parameter]) -> None:
        self._weights: Tensor = torch.zeros(len(linear), len(parameters), dtype=torch.float64)
        ends = torch.zeros(len(linear), 2, dtype=torch.float64)
        for row, limit in enumerate(linear):
            ends[row] = torch.tensor(limit.ends, dtype=torch.float64)
            for column, name in enumerate(parameters):
                self._weights[row, column] = limit.weights.get(name, 0.0)
        used = self._weights.any(0).tolist()
        self.columns: dict[int, Parameter] = {
            i: p for i, p in enumerate(parameters.values()) if used[i]
        }

        sizes = torch.zeros(len(parameters), dtype=torch.float64)
        for i, p in self.columns.items():
            sizes[i] = max(map(abs, p.ends))
        low, high = ends.T
        largest = torch.where(high.isinf(), low, high).abs()
        largest_sums = self._weights.abs() @ sizes
        rounding = _ROUNDING * (largest_sums + largest)
        self._low: Tensor = low - rounding
        self._high: Tensor = high + rounding
        self._conversion_error: Tensor = _CONVERSION * largest_sums

    def numbers(self, units: Tensor) -> Tensor:
        """Return the values [n P] of parameters at points [n P] of the unit cube; 0 if one is in no constraint."""
        numbers = torch.zeros_like(units)
        for i, p in self.columns.items():
            numbers[:, i] = p.numbers(units[:, i])
        return numbers

    def hold(self, numbers: Tensor, is_rounded: bool = False) -> Tensor:
        """Return whether each constraint holds, [n L].

        Args:
            numbers: The values of the parameters [n P], 0 if a parameter is in no constraint.
            is_rounded: Whether float32 may have rounded the values, as values that kbo has not chosen.
        """
        terms = numbers.unsqueeze(-2) * self._weights
        sums = terms.sum(-1)  # by rows, unlike a matrix product
        low = self._low
        high = self._high
        if is_rounded:
            rounding = FLOAT32 * terms.abs().sum(-1)
            low = low - rounding
            high = high + rounding
        return (low <= sums) & (sums <= high)

    def may_hold(self, low: Tensor, high: Tensor) -> Tensor:
        """Return whether each of n boxes may have points at which all constraints hold, [n].

        A box has none if the largest sum in it is below the lower limit, or the smallest sum is above the upper limit.

        Args:
            low: The lower corners of the boxes, [n P] in the unit cube.
            high: The upper corners, [n P].
        """
        least = self.numbers(low)
        most = self.numbers(high)
        for i, p in self.columns.items():
            if list(p.ends) != sorted(
                p.ends
            ):  # not in order: an option between two others may be larger than both
                within = low[:, i] < high[:, i]
                least[within, i] = float(min(p.ends))
                most[within, i] = float(max(p.ends))
        corners = torch.stack([least, most]).unsqueeze(-2) * self._weights
        least_sums = corners.amin(0).sum(-1) - self._conversion_error
        most_sums = corners.amax(0).sum(-1) + self._conversion_error
        return ((self._low <= most_sums) & (least_sums <= self._high)).all(-1)


def _digits(number: float) -> str:
    """Return a number as the shortest of two texts from which the same number can be read."""
    short = f"{number:g}"
    if float(short) == number:
        return short
    return repr(number)


def checked(constraints: Any) -> tuple[Linear | Rule, ...]:
    """Return constraints on parameters as a tuple without duplicates.

    Raises:
        InvalidInput: The constraints are no list, or one is neither a ``Linear`` nor a function with a name.
    """
    if isinstance(constraints, (str, Mapping)) or not isinstance(constraints, Sequence):
        raise InvalidInput(f"constraints must be a list, got {checks.shown(constraints)}.")
    distinct = []
    for position, constraint in enumerate(constraints):
        if not isinstance(constraint, Linear):
            _check_rule(f"constraints[{position}]", constraint)
        if constraint not in distinct:
            distinct.append(constraint)
    return tuple(distinct)


def _check_rule(place: str, rule: Any) -> None:
    """Check that a constraint is a function with a name."""
    with checks.inside(
        "a constraint on parameters is a kbo.Linear or a function, one on a measurement a kbo.Constraint"
    ):
        if isinstance(rule, type):
            raise InvalidInput(f"{place} is the class {rule.__name__}: call it.")
        checks.named_function(place, rule)


def name_of(constraint: Linear | Rule) -> str:
    """Return the name of a constraint in messages and files."""
    if isinstance(constraint, Linear):
        return str(constraint)
    return checks.name_of(constraint)


def in_words(constraints: Sequence[Linear | Rule]) -> str:
    """Return the names of constraints for a message, joined by "and"."""
    return " and ".join(repr(name_of(constraint)) for constraint in constraints)


def permits(rule: Rule, params: Any) -> bool:
    """Return whether a constraint that is a function permits params.

    Raises:
        InvalidInput: The function raises an exception, or returns no bool.
    """
    try:
        with as_caller():
            verdict = rule(params)
    except Exception as error:
        raise InvalidInput(
            f"the constraint {name_of(rule)} raised {type(error).__name__}: {checks.shown(str(error))} for "
            f"{checks.shown(params)}: let it return False where params cannot be used."
        ) from error
    if isinstance(verdict, bool):
        return verdict
    with checks.inside(f"the constraint {name_of(rule)}, for {checks.shown(params)}"):
        return checks.flag("its answer", verdict)
