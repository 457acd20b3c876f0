"""Search spaces: named parameters, and their encoding as points that a kernel can compare.

Values of the parameters have three forms. ``params`` is the argument of the objective: a dict, or a list of floats if
the bounds were a list. ``unit`` is a point of the cube [0, 1]^P, one coordinate per parameter, in which the search
takes place. ``features`` [D] is the input of the kernel: numbers scaled to [0, 1] after rounding integers, choices as
one-hot columns of length 1/sqrt(2), so that two choices are at distance 1. Equal params have equal features.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from kbo.errors import InvalidInput

Params = dict[str, Any] | list[float]
Bounds = Mapping[str, Any] | Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Float:
    """A real number between ``low`` and ``high``, on a logarithmic scale if ``log``."""

    low: float
    high: float
    log: bool = False

    columns = 1

    def value(self, u: float) -> float:
        """The number at unit coordinate u; the ends are met exactly."""
        if u <= 0 or u >= 1:
            return float(self.low if u <= 0 else self.high)
        x = self.low * (self.high / self.low) ** u if self.log else self.low + u * (self.high - self.low)
        return min(max(x, self.low), self.high)

    def unit(self, value: Any) -> float:
        """The unit coordinate of a number."""
        number = float(value)
        if not self.low <= number <= self.high:
            raise InvalidInput(f"{number:g} is outside [{self.low:g}, {self.high:g}].")
        if self.log:
            return math.log(number / self.low) / math.log(self.high / self.low)
        return (number - self.low) / (self.high - self.low)

    def plain(self, value: Any) -> float:
        """The value as a Python float."""
        return float(value)

    def features(self, u: Tensor) -> Tensor:
        """Columns [n 1] for unit coordinates u [n]."""
        return u.unsqueeze(-1)


@dataclass(frozen=True)
class Int:
    """A whole number from ``low`` to ``high``, both included, on a logarithmic scale if ``log``."""

    low: int
    high: int
    log: bool = False

    columns = 1

    def value(self, u: float) -> int:
        """The number whose cell contains unit coordinate u."""
        a, b = self._edges()
        x = a + u * (b - a)
        return min(max(round(math.exp(x) if self.log else x), self.low), self.high)

    def unit(self, value: Any) -> float:
        """The unit coordinate of a number."""
        if value != int(value) or not self.low <= value <= self.high:
            raise InvalidInput(f"{value!r} is not a whole number from {self.low} to {self.high}.")
        a, b = self._edges()
        return ((math.log(value) if self.log else value) - a) / (b - a)

    def plain(self, value: Any) -> int:
        """The value as a Python int."""
        return int(value)

    def features(self, u: Tensor) -> Tensor:
        """Columns [n 1], equal for coordinates of the same whole number."""
        a, b = self._edges()
        x = a + u * (b - a)
        value = (x.exp() if self.log else x).round().clamp(self.low, self.high)
        low, high = (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)
        return (((value.log() if self.log else value) - low) / (high - low)).unsqueeze(-1)

    @property
    def options(self) -> range:
        """All values."""
        return range(self.low, self.high + 1)

    def _edges(self) -> tuple[float, float]:
        """The range of x such that every whole number has a cell of its own."""
        a, b = self.low - 0.5, self.high + 0.5
        return (math.log(a), math.log(b)) if self.log else (a, b)


@dataclass(frozen=True)
class Choice:
    """One of several options without an order; options are numbers, strings, booleans or None."""

    options: tuple

    def __init__(self, options: Sequence) -> None:
        object.__setattr__(self, "options", tuple(options))

    @property
    def columns(self) -> int:
        """One column per option."""
        return len(self.options)

    def value(self, u: float) -> Any:
        """The option whose cell contains unit coordinate u."""
        return self.options[min(int(u * len(self.options)), len(self.options) - 1)]

    def unit(self, value: Any) -> float:
        """The middle of the option's cell."""
        if value not in self.options:
            raise InvalidInput(f"{value!r} is not one of {list(self.options)}.")
        return (self.options.index(value) + 0.5) / len(self.options)

    def plain(self, value: Any) -> Any:
        """The option that equals the value."""
        return self.options[self.options.index(value)]

    def features(self, u: Tensor) -> Tensor:
        """One-hot columns [n k]."""
        index = (u * len(self.options)).long().clamp(0, len(self.options) - 1)
        return torch.nn.functional.one_hot(index, len(self.options)).to(u) / math.sqrt(2)


Parameter = Float | Int | Choice


class Space:
    """The product of named parameters.

    Args:
        bounds: A dict from name to ``Float``, ``Int``, ``Choice``, a pair ``(low, high)`` (a real number) or a list
            of options (a choice); or a list of pairs, for objectives of a vector.

    Raises:
        InvalidInput: Bounds that are empty, reversed or not finite, each named.
    """

    def __init__(self, bounds: Bounds | Space) -> None:
        if isinstance(bounds, Space):
            self.named, self.parameters = bounds.named, dict(bounds.parameters)
            return
        if not isinstance(bounds, (Mapping, Sequence)) or isinstance(bounds, str):
            raise InvalidInput(f"bounds must be a dict of parameters or a list of pairs (low, high), got {bounds!r}.")
        self.named = isinstance(bounds, Mapping)
        entries = bounds.items() if isinstance(bounds, Mapping) else ((f"x{i}", pair) for i, pair in enumerate(bounds))
        self.parameters: dict[str, Parameter] = {}
        for name, spec in entries:
            try:
                self.parameters[str(name)] = _parameter(spec)
            except InvalidInput as error:
                raise InvalidInput(f"parameter {name!r}: {error}") from None
        if not self.parameters:
            raise InvalidInput(
                "bounds are empty: give at least one parameter, for example {'lr': kbo.Float(1e-4, 1e-1, log=True)}."
            )
        if not self.named and not all(isinstance(p, Float) for p in self.parameters.values()):
            raise InvalidInput("bounds given as a list must be pairs (low, high); use a dict for other parameters.")

    @property
    def dimension(self) -> int:
        """Number of parameters P."""
        return len(self.parameters)

    @property
    def columns(self) -> int:
        """Number of feature columns D."""
        return sum(p.columns for p in self.parameters.values())

    def points(self, most: int) -> Tensor | None:
        """One point [N P] of the unit cube for each of the possible params; None if there are more than ``most``."""
        discrete = [p for p in self.parameters.values() if not isinstance(p, Float)]
        if len(discrete) < self.dimension or math.prod(len(p.options) for p in discrete) > most:
            return None
        units = ([p.unit(value) for value in p.options] for p in discrete)
        return torch.tensor(list(itertools.product(*units)), dtype=torch.float64)

    def pairs(self) -> list[tuple[float, float]]:
        """The bounds of a list space."""
        return [(p.low, p.high) for p in self.parameters.values() if not isinstance(p, Choice)]

    def params(self, unit: Tensor) -> Params:
        """The argument of the objective at a point [P] of the unit cube."""
        return self._named([p.value(u) for p, u in zip(self.parameters.values(), unit.tolist(), strict=True)])

    def unit(self, params: Any) -> Tensor:
        """The point [P] of the unit cube of given parameters.

        Raises:
            InvalidInput: A parameter is missing, unknown or outside its bounds.
        """
        given = set(params) if isinstance(params, Mapping) else None
        if (given != set(self.parameters)) if self.named else (given is not None or len(params) != self.dimension):
            raise InvalidInput(f"expected the parameters {list(self.parameters)}, got {params!r}.")
        coordinates = []
        for i, (name, parameter) in enumerate(self.parameters.items()):
            key = name if self.named else i
            try:
                coordinates.append(parameter.unit(params[key]))
            except (KeyError, TypeError, ValueError, OverflowError) as error:
                raise InvalidInput(f"parameter {name!r}: {error}") from error
        return torch.tensor(coordinates, dtype=torch.float64)

    def canonical(self, params: Any) -> Params:
        """A new dict or list of given parameters, with plain Python values.

        Raises:
            InvalidInput: A parameter is missing, unknown or outside its bounds.
        """
        self.unit(params)
        keys = self.parameters if self.named else range(self.dimension)
        return self._named([p.plain(params[key]) for key, p in zip(keys, self.parameters.values(), strict=True)])

    def features(self, unit: Tensor) -> Tensor:
        """The input of the kernel, [n D], at points [n P] of the unit cube."""
        parts = [p.features(unit[:, i]) for i, p in enumerate(self.parameters.values())]
        return torch.cat(parts, -1)

    def _named(self, values: list[Any]) -> Params:
        return dict(zip(self.parameters, values, strict=True)) if self.named else values

    def describe(self) -> list[dict[str, Any]]:
        """The parameters as plain JSON values; equal descriptions are equal spaces."""
        described = []
        for name, p in self.parameters.items():
            fields = {key: list(v) if isinstance(v, tuple) else v for key, v in asdict(p).items()}
            described.append({"name": name, "kind": type(p).__name__, **fields})
        return described


def _parameter(spec: Any) -> Parameter:
    """The parameter that is meant by an entry of the bounds."""
    if isinstance(spec, list) and len(spec) == 2 and all(type(value) in (int, float) for value in spec):
        raise InvalidInput(
            f"{spec} could be a range or a choice: write ({spec[0]}, {spec[1]}) for real numbers between, "
            f"kbo.Int({spec[0]}, {spec[1]}) for whole ones, or kbo.Choice({spec}) for one of the two."
        )
    if isinstance(spec, list):
        spec = Choice(spec)
    elif isinstance(spec, tuple) and len(spec) == 2:
        spec = Float(*spec)
    if isinstance(spec, Choice):
        _check_options(spec.options)
    elif isinstance(spec, (Float, Int)):
        _check_range(spec)
    else:
        raise InvalidInput(f"expected kbo.Float, kbo.Int, kbo.Choice, (low, high) or a list of options, got {spec!r}.")
    return spec


def _check_options(options: tuple) -> None:
    if not all(o is None or isinstance(o, (str, int, float)) for o in options):
        raise InvalidInput("options must be numbers, strings, booleans or None.")
    if any(isinstance(o, float) and not math.isfinite(o) for o in options):
        raise InvalidInput(f"options must be finite, got {options}.")
    if len(set(options)) < max(2, len(options)):
        raise InvalidInput(f"a choice needs at least two different options, got {options}.")


def _check_range(spec: Float | Int) -> None:
    try:
        finite = math.isfinite(spec.low) and math.isfinite(spec.high)
    except TypeError as error:
        raise InvalidInput(f"bounds must be numbers, got {spec}.") from error
    if not finite:
        raise InvalidInput(f"bounds must be finite, got ({spec.low}, {spec.high}).")
    if spec.low >= spec.high:
        correct = f"reversed: write ({spec.high}, {spec.low})"
        hint = correct if spec.low > spec.high else "empty: fix the value in the objective instead"
        raise InvalidInput(f"bounds ({spec.low}, {spec.high}) are {hint}.")
    if spec.log and spec.low <= 0:
        raise InvalidInput(f"a logarithmic scale needs low > 0, got {spec.low}.")
    if isinstance(spec, Int) and (spec.low != int(spec.low) or spec.high != int(spec.high)):
        raise InvalidInput(f"bounds of an Int must be whole numbers, got ({spec.low}, {spec.high}).")
