"""Search spaces: named parameters, and their encoding as points that a kernel can compare.

Values of the parameters have three forms. ``params`` is the argument of the objective: a dict, or a list of floats if
the bounds were a list. ``unit`` is a point of the cube [0, 1]^P, one coordinate per parameter, in which the search
takes place. ``features`` [D] is the input of the kernel: numbers scaled to [0, 1] after rounding integers, choices as
one-hot columns of length 1/sqrt(2), so that two choices are at distance 1. Equal params have equal features.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from kbo import checks
from kbo.errors import InvalidInput

Params = dict[str, Any] | list[float]
Bounds = Mapping[str, Any] | Sequence[tuple[float, float]]

_LARGEST = {False: 2**50, True: 2**44}
"""Whole numbers up to which each has a coordinate of its own in float64, on a linear and on a logarithmic scale."""

_MOST_COLUMNS = 3000
"""Columns of the kernel's input up to which a proposal takes seconds."""


@dataclass(frozen=True)
class Float:
    """A real number between ``low`` and ``high``, on a logarithmic scale if ``log``.

    Raises:
        InvalidInput: Bounds that are no numbers, not finite, reversed, equal, not above 0 on a logarithmic scale, or
            too far apart for float64.
    """

    low: float
    high: float
    log: bool = False

    columns = 1

    def __post_init__(self) -> None:
        _check_range(self, checks.number("low", self.low), checks.number("high", self.high))
        width = math.log(self.high / self.low) if self.log else self.high - self.low
        if not 0 < width < math.inf:
            raise InvalidInput(
                f"{self} is a range that float64 cannot divide: give bounds of other sizes, or on a logarithmic scale "
                "the bounds of the exponent, and convert in the objective."
            )

    def value(self, u: float) -> float:
        """The number at unit coordinate u; the ends are met exactly."""
        if u <= 0 or u >= 1:
            return self.low if u <= 0 else self.high
        x = self.low * (self.high / self.low) ** u if self.log else self.low + u * (self.high - self.low)
        return min(max(x, self.low), self.high)

    def unit(self, value: Any) -> float:
        """The unit coordinate of a number."""
        number = self.plain(value)
        if self.log:
            return math.log(number / self.low) / math.log(self.high / self.low)
        return (number - self.low) / (self.high - self.low)

    def plain(self, value: Any) -> float:
        """The value as a Python float; InvalidInput if it is none of this range."""
        return _inside(self, value)

    def features(self, u: Tensor) -> Tensor:
        """Columns [n 1] for unit coordinates u [n]."""
        return u.unsqueeze(-1)


@dataclass(frozen=True)
class Int:
    """A whole number from ``low`` to ``high``, both included, on a logarithmic scale if ``log``.

    Raises:
        InvalidInput: Bounds that are no whole numbers, reversed, equal, not above 0 on a logarithmic scale, or above
            2**50 in size (2**44 on a logarithmic scale).
    """

    low: int
    high: int
    log: bool = False

    columns = 1

    def __post_init__(self) -> None:
        low, high = checks.number("low", self.low), checks.number("high", self.high)
        if low % 1 or high % 1:
            raise InvalidInput(f"low and high of an Int must be whole numbers, got ({self.low}, {self.high}).")
        if max(-low, high) > (most := _LARGEST[checks.flag("log", self.log)]):
            raise InvalidInput(
                f"{self} has whole numbers above 2**{most.bit_length() - 1} in size, which float64 cannot all tell "
                "apart: search over an offset or a multiple, and convert in the objective."
            )
        _check_range(self, int(low), int(high))

    def value(self, u: float) -> int:
        """The number whose cell contains unit coordinate u."""
        a, b = self._edges()
        x = a + u * (b - a)
        return min(max(round(math.exp(x) if self.log else x), self.low), self.high)

    def unit(self, value: Any) -> float:
        """The unit coordinate of a number."""
        number, (a, b) = self.plain(value), self._edges()
        return ((math.log(number) if self.log else number) - a) / (b - a)

    def plain(self, value: Any) -> int:
        """The value as a Python int; InvalidInput if it is none of this range."""
        number = _inside(self, value)
        if number % 1:
            raise InvalidInput(f"expected a whole number from {self.low} to {self.high}, got {checks.shown(value)}.")
        return int(number)

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
    """One of several options without an order; options are numbers, strings, booleans or None.

    Raises:
        InvalidInput: Fewer than two different options, or options of other kinds.
    """

    options: tuple[Any, ...]

    def __init__(self, options: Sequence[Any]) -> None:
        listed = isinstance(options, Sequence) or getattr(options, "ndim", 0) == 1
        if not listed or isinstance(options, (str, bytes, bytearray)):
            raise InvalidInput(f"options must be a list, got {checks.shown(options)}.")
        object.__setattr__(self, "options", tuple(map(_option, options)))
        if len(set(self.options)) < max(2, len(self.options)):
            raise InvalidInput(f"a choice needs at least two different options, got {checks.shown(self.options)}.")

    @property
    def columns(self) -> int:
        """One column per option."""
        return len(self.options)

    def value(self, u: float) -> Any:
        """The option whose cell contains unit coordinate u."""
        return self.options[min(int(u * len(self.options)), len(self.options) - 1)]

    def unit(self, value: Any) -> float:
        """The middle of the option's cell."""
        return (self._index(value) + 0.5) / len(self.options)

    def plain(self, value: Any) -> Any:
        """The option that equals the value; InvalidInput if none does."""
        return self.options[self._index(value)]

    def _index(self, value: Any) -> int:
        try:
            return self.options.index(value)
        except Exception as error:  # no option, or a value that cannot be compared
            options = checks.shown(list(self.options))
            raise InvalidInput(f"{checks.shown(value)} is not one of {options}.") from error

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
        if not isinstance(bounds, (Mapping, Sequence)) or isinstance(bounds, (str, bytes)):
            raise InvalidInput(
                f"bounds must be a dict of parameters or a list of pairs (low, high), got {checks.shown(bounds)}."
            )
        self.named: bool = isinstance(bounds, Mapping)
        entries = bounds.items() if isinstance(bounds, Mapping) else ((f"x{i}", pair) for i, pair in enumerate(bounds))
        self.parameters: dict[str, Parameter] = {}
        for name, spec in entries:
            with checks.inside(f"bounds: parameter {checks.shown(name)}"):
                self.parameters[checks.text("the name", name)] = _parameter(spec)
        if not self.parameters:
            raise InvalidInput(
                "bounds are empty: give at least one parameter, for example {'lr': kbo.Float(1e-4, 1e-1, log=True)}."
            )
        if not self.named and not all(isinstance(p, Float) for p in self.parameters.values()):
            raise InvalidInput("bounds given as a list must be pairs (low, high); use a dict for other parameters.")
        if self.columns > _MOST_COLUMNS:
            widest = max(self.parameters, key=lambda name: self.parameters[name].columns)
            raise InvalidInput(
                f"bounds: parameter {widest!r}: the space has {self.columns} columns, one for a number and one for "
                f"each option of a choice, and can have {_MOST_COLUMNS}. Give fewer options, or number them: "
                "kbo.Int(0, n - 1)."
            )

    @property
    def dimension(self) -> int:
        """Number of parameters P."""
        return len(self.parameters)

    @property
    def columns(self) -> int:
        """Number of feature columns D."""
        return sum(p.columns for p in self.parameters.values())

    @property
    def continuous(self) -> bool:
        """Whether some parameter is a real number, so that there are infinitely many params."""
        return any(isinstance(p, Float) for p in self.parameters.values())

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
        return self.units([params])[0]

    def units(self, many: Sequence[Any]) -> Tensor:
        """The points [n P] of the unit cube of a list of parameters; see ``unit``."""
        coordinates = [self._converted(params, lambda p, value: p.unit(value)) for params in many]
        return torch.tensor(coordinates, dtype=torch.float64).reshape(len(many), self.dimension)

    def canonical(self, params: Any) -> Params:
        """A new dict or list of given parameters, with plain Python values.

        Raises:
            InvalidInput: A parameter is missing, unknown or outside its bounds.
        """
        return self._named(self._converted(params, lambda p, value: p.plain(value)))

    def _converted(self, params: Any, convert: Callable[[Parameter, Any], Any]) -> list[Any]:
        """The values of given parameters after a conversion of each, in order."""
        values, found = self._values(params), []
        for (name, parameter), value in zip(self.parameters.items(), values, strict=True):
            try:
                found.append(convert(parameter, value))
            except InvalidInput as error:
                raise InvalidInput(f"parameter {name!r}: {error}") from error
        return found

    def _values(self, params: Any) -> list[Any]:
        """The values of given parameters, in order, unchecked."""
        keys = list(self.parameters) if self.named else list(range(self.dimension))
        try:
            text = isinstance(params, (str, bytes, bytearray))
            if isinstance(params, Mapping) == self.named and len(params) == len(keys) and not text:
                return [params[key] for key in keys]
        except Exception:  # of whatever is no dict or list
            pass
        raise InvalidInput(
            f"params must have the parameters {checks.shown(list(self.parameters))}, got {checks.shown(params)}."
        )

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
    if isinstance(spec, list) and len(spec) == 2 and all(isinstance(v, Real) and not isinstance(v, bool) for v in spec):
        raise InvalidInput(
            f"{spec} could be a range or a choice: write ({spec[0]}, {spec[1]}) for real numbers between, "
            f"kbo.Int({spec[0]}, {spec[1]}) for whole ones, or kbo.Choice({spec}) for one of the two."
        )
    if isinstance(spec, list):
        return Choice(spec)
    if isinstance(spec, tuple) and len(spec) == 2:
        return Float(*spec)
    if not isinstance(spec, Parameter):
        raise InvalidInput(
            f"expected kbo.Float, kbo.Int, kbo.Choice, (low, high) or a list of options, got {checks.shown(spec)}."
        )
    return spec


def _option(value: Any) -> Any:
    """An option of a choice as a Python value that a journal can keep."""
    plain = checks.plain(value)
    if isinstance(plain, (int, float)) and not isinstance(plain, bool):
        checks.number("an option", plain)
    elif isinstance(plain, str):
        checks.text("an option", plain)
    elif plain is not None and not isinstance(plain, bool):
        raise InvalidInput(f"options must be numbers, strings, booleans or None, got {checks.shown(value)}.")
    return plain


def _check_range(spec: Float | Int, low: float, high: float) -> None:
    """Check finite bounds and the scale, and keep them as Python values."""
    if low >= high:
        mend = f"reversed: write ({high}, {low})" if low > high else "empty: fix the value in the objective instead"
        raise InvalidInput(f"the bounds low = {low} and high = {high} are {mend}.")
    if checks.flag("log", spec.log) and low <= 0:
        raise InvalidInput(f"a logarithmic scale needs low > 0, got {low}.")
    for name, value in {"low": low, "high": high, "log": bool(spec.log)}.items():
        object.__setattr__(spec, name, value)


def _inside(spec: Float | Int, value: Any) -> float:
    """The value as a float, if it is a number within the bounds."""
    try:
        number = checks.real(value)
    except Exception:  # whatever a conversion of the caller's own raises
        number = math.nan
    if not spec.low <= number <= spec.high:
        raise InvalidInput(f"expected a number in [{spec.low:g}, {spec.high:g}], got {checks.shown(value)}.")
    return number
