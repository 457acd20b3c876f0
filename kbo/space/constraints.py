"""Constraints on parameters that are known before anything is evaluated: limits on weighted sums, and functions."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import torch
from torch import Tensor

from kbo._base import checks
from kbo._base.surroundings import callers
from kbo.errors import InvalidInput
from kbo.space.parameters import FLOAT32, Float, Int, Parameter

Rule = Callable[[Any], bool]
"""A function of params that returns whether they may be used."""

_ROUNDING = 4 * sys.float_info.epsilon
"""Part of the size of a sum by which it may exceed a limit: 0.1 + 0.2 <= 0.3 is satisfied."""


@dataclass(frozen=True)
class Linear:
    """A limit on a weighted sum of parameters, in their own units, also on a logarithmic scale or in steps.

    Parameters are numbers; True and False count as 1 and 0. Where a parameter is not active it adds nothing.

    Args:
        weights: The weight of each parameter, by name (by index where the bounds are a list).
        upper: The sum is at most this.
        lower: The sum is at least this.

    Raises:
        InvalidInput: No weights, one that is 0 or no finite number, no limit, or limits that are reversed.

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
        weights = {
            key: checks.number(f"the weight of {key!r}", weight)
            for key, weight in self.weights.items()
        }
        if idle := [key for key, weight in weights.items() if not weight]:
            raise InvalidInput(
                f"the weights of {idle} are 0: leave these parameters out of kbo.Linear."
            )
        object.__setattr__(self, "weights", weights)
        for name in ("upper", "lower"):
            object.__setattr__(
                self,
                name,
                checks.maybe(checks.number, f"{name} of kbo.Linear", getattr(self, name)),
            )
        if self.upper is None and self.lower is None:
            raise InvalidInput(f"kbo.Linear({weights}) has no limit: give upper=, lower= or both.")
        if self.ends[0] > self.ends[1]:
            raise InvalidInput(
                f"kbo.Linear: lower = {self.lower:g} is above upper = {self.upper:g}: exchange them."
            )

    @property
    def ends(self) -> tuple[float, float]:
        """The lower and the upper limit; infinite where there is none."""
        return (
            -math.inf if self.lower is None else self.lower,
            math.inf if self.upper is None else self.upper,
        )

    def __str__(self) -> str:
        def term(weight: float, key: Any) -> str:
            return f"{'-' if weight < 0 else '+'} {'' if abs(weight) == 1 else f'{_digits(abs(weight))} '}{key}"

        text = " ".join(term(weight, key) for key, weight in self.weights.items()).removeprefix(
            "+ "
        )
        if self.lower is None or self.upper is None:
            return (
                f"{text} >= {_digits(self.ends[0])}"
                if self.upper is None
                else f"{text} <= {_digits(self.upper)}"
            )
        if self.lower == self.upper:
            return f"{text} = {_digits(self.upper)}"
        return f"{_digits(self.lower)} <= {text} <= {_digits(self.upper)}"

    def named(self, names: Sequence[str], indexed: bool) -> Linear:
        """The same limit by names; keys may be indices too if ``indexed``.

        Raises:
            InvalidInput: A parameter that does not exist.
        """
        found = {}
        for key, weight in self.weights.items():
            name = names[key] if indexed and key in range(len(names)) else key
            if name not in names:
                known = list(range(len(names))) if indexed else list(names)
                raise InvalidInput(
                    f"{self}: there is no parameter {checks.shown(key)}; the parameters are {known}."
                )
            found[name] = weight
        return Linear(found, upper=self.upper, lower=self.lower)

    def describe(self) -> dict[str, Any]:
        """The limit as plain JSON values."""
        limits = {
            name: value for name in ("upper", "lower") if (value := getattr(self, name)) is not None
        }
        return {"kind": "Linear", "weights": dict(self.weights), **limits}

    def check(self, parameters: Mapping[str, Parameter]) -> None:
        """Check that the parameters are numbers, and that a limit from both sides leaves room for real ones.

        Raises:
            InvalidInput: They are not, or it does not.
        """
        for name in self.weights:
            if not all(isinstance(value, (int, float)) for value in limits_of(parameters[name])):
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
    """Limits on the numbers of a space, for many points at once.

    Args:
        linear: The limits, by names.
        parameters: All parameters of the space by name.

    Attributes:
        columns: The parameters in some limit, by their positions.
        unordered: The least and the largest option of those whose options do not increase.
    """

    def __init__(self, linear: Sequence[Linear], parameters: Mapping[str, Parameter]) -> None:
        weights = [[limit.weights.get(name, 0.0) for name in parameters] for limit in linear]
        self._weights: Tensor = torch.tensor(weights, dtype=torch.float64).reshape(
            -1, len(parameters)
        )
        used = self._weights.any(0).tolist()
        self.columns: dict[int, Parameter] = {
            i: p for i, p in enumerate(parameters.values()) if used[i]
        }
        sizes = torch.zeros(len(parameters), dtype=torch.float64)
        moved = torch.zeros_like(
            sizes
        )  # by how much a number may change on its way to the unit interval and back
        self.unordered: dict[int, tuple[float, float]] = {}
        for i, p in self.columns.items():
            values = limits_of(p)
            sizes[i] = max(map(abs, values))
            moved[i] = sizes[i]
            if isinstance(p, Float) and p.log:
                moved[i] *= 1 + math.log(p.high / p.low)
            if list(values) != sorted(values):
                self.unordered[i] = float(min(values)), float(max(values))
        low, high = (
            torch.tensor([limit.ends for limit in linear], dtype=torch.float64).reshape(-1, 2).T
        )
        rounding = _ROUNDING * (
            self._weights.abs() @ sizes + torch.where(high.isinf(), low, high).abs()
        )
        self._low, self._high = low - rounding, high + rounding
        self._moved = _ROUNDING * (self._weights.abs() @ moved)

    def hold(self, numbers: Tensor, given: bool = False) -> Tensor:
        """Whether each limit holds, [n L].

        Args:
            numbers: The numbers [n P], 0 where a parameter is in no limit.
            given: Whether they are not kbo's choice, so that they may have been rounded to float32.
        """
        terms = numbers.unsqueeze(-2) * self._weights
        sums = terms.sum(-1)  # by rows, unlike a matrix product
        low, high = self._low, self._high
        if given:
            rounding = FLOAT32 * terms.abs().sum(-1)
            low = low - rounding
            high = high + rounding
        return (low <= sums) & (sums <= high)

    def may_hold(self, low: Tensor, high: Tensor) -> Tensor:
        """Whether all limits may hold, [n], for numbers between two ends [n P] each, and those rounded into them."""
        ends = torch.stack([low, high]).unsqueeze(-2) * self._weights
        least = ends.amin(0).sum(-1) - self._moved
        most = ends.amax(0).sum(-1) + self._moved
        return ((self._low <= most) & (least <= self._high)).all(-1)


def _digits(number: float) -> str:
    """A number in a text from which it can be read again."""
    return short if float(short := f"{number:g}") == number else repr(number)


def limits_of(parameter: Parameter) -> Sequence[Any]:
    """The values of a parameter, or only its ends where these are numbers between two."""
    return (
        (parameter.low, parameter.high)
        if isinstance(parameter, (Float, Int))
        else parameter.options
    )


def checked(constraints: Any) -> tuple[Linear | Rule, ...]:
    """Constraints on parameters as a tuple, each once.

    Raises:
        InvalidInput: They are no list, or one is neither a ``Linear`` nor a function with a name.
    """
    if isinstance(constraints, (str, Mapping)) or not isinstance(constraints, Sequence):
        raise InvalidInput(f"constraints must be a list, got {checks.shown(constraints)}.")
    for position, constraint in enumerate(constraints):
        if not isinstance(constraint, Linear):
            with checks.inside(
                "a constraint on parameters is a kbo.Linear or a function, one on a measurement a kbo.Constraint"
            ):
                if isinstance(constraint, type):
                    raise InvalidInput(
                        f"constraints[{position}] is the class {constraint.__name__}: call it."
                    )
                checks.named_function(f"constraints[{position}]", constraint)
    return tuple(
        constraint for i, constraint in enumerate(constraints) if constraint not in constraints[:i]
    )


def name_of(constraint: Linear | Rule) -> str:
    """The name of a constraint in messages and files."""
    return str(constraint) if isinstance(constraint, Linear) else checks.name_of(constraint)


def in_words(constraints: Sequence[Linear | Rule]) -> str:
    """The names of constraints in a message."""
    return " and ".join(repr(name_of(constraint)) for constraint in constraints)


def permits(rule: Rule, params: Any) -> bool:
    """Whether a function says that params may be used.

    Raises:
        InvalidInput: It raises an exception, or returns no bool.
    """
    try:
        with callers():
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
