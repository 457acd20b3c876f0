"""Parameters, and the three forms of their values: as users write them, in [0, 1], and as columns for a kernel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from kbo._base import checks
from kbo._base.arguments import naming_arguments
from kbo.errors import InvalidInput

_LARGEST = 2**50
_LARGEST_LOG = 2**44
"""Largest whole number of an ``Int`` on a linear and on a logarithmic scale.

Up to there each number has its own unit coordinate in float64."""

_COARSE = 2.0**-40
"""A ``Float`` is coarse if neighbouring numbers of float64 differ by more than this share of its range."""

_ON_GRID = 1e-6
"""Part of a step by which the end of a range may be off its grid: other libraries add up steps in floating point."""

FLOAT32 = 2.0**-20
"""Relative rounding that values from outside may have: 8 units in the last place of float32, as of exp(log(x))."""

_DISTINCT = 0.01
"""Largest part of the distance between two values of a parameter that can count as rounding."""


class Parameter:
    """One parameter of a space; the methods here are for finitely many options with equal cells in [0, 1].

    The options lie side by side on a line: the option at position p takes the places from p to p + 1. ``coordinate``
    maps places to unit coordinates, and ``place`` maps them back. All other methods use these two. A subclass with
    another scale overrides both.

    A subclass needs ``options`` only. A subclass without options needs ``units``, ``values``, ``plain`` and
    ``features``.

    Attributes:
        columns: Number of feature columns.
        is_range: Whether the values are numbers between two ends, as for ``Float`` and ``Int``.
        log: Whether the scale of a ``Float`` or an ``Int`` is logarithmic.
        options: All values, in order; empty for a real number.
        ends: The smallest and the largest value of a range; otherwise all values.
    """

    columns: int = 1
    is_range: bool = False
    log: bool = False
    options: Sequence[Any]

    @property
    def ends(self) -> Sequence[Any]:
        return self.options

    def coordinate(self, place: Tensor) -> Tensor:
        """Return the unit coordinates [n] of places [n] on the line.

        The cell of the option at position p reaches from place p to place p + 1, with its middle at p + 1/2.
        """
        return place.double() / len(self.options)

    def place(self, u: Tensor) -> Tensor:
        """Return the places [n] at unit coordinates u [n], the inverse of ``coordinate``."""
        return u * len(self.options)

    def index(self, u: Tensor) -> Tensor:
        """Return the positions [n] of the options at unit coordinates u [n]."""
        return self.place(u).floor().long().clamp(0, len(self.options) - 1)

    def middles(self, positions: Tensor) -> Tensor:
        """Return the unit coordinates [n] of the middles of the cells of options at positions [n]."""
        return self.coordinate(positions.double() + 0.5)

    def units(self, values: Sequence[Any]) -> Tensor:
        """Return the unit coordinates [n] of plain values; an option has the middle of its cell."""
        return self.middles(torch.tensor([self._position(value) for value in values]))

    def unit(self, value: Any) -> float:
        """Return the unit coordinate of a value.

        Raises:
            InvalidInput: The parameter does not have the value.
        """
        return float(self.units([self.plain(value)])[0])

    def values(self, u: Tensor) -> list[Any]:
        """Return the values at unit coordinates u [n]."""
        positions, rows = self.index(u).unique(return_inverse=True)
        distinct = [self.options[position] for position in positions.tolist()]
        return [distinct[row] for row in rows.tolist()]

    def value(self, u: float) -> Any:
        """Return the value at unit coordinate u."""
        return self.values(torch.tensor([u], dtype=torch.float64))[0]

    def plain(self, value: Any) -> Any:
        """Return the value as a plain Python value, without rounding errors.

        Raises:
            InvalidInput: The parameter does not have the value.
        """
        return self.options[self._position(value)]

    def numbers(self, u: Tensor) -> Tensor:
        """Return the values [n] at unit coordinates u [n], if they are numbers."""
        return torch.tensor(self.values(u), dtype=u.dtype)

    def features(self, u: Tensor) -> Tensor:
        """Return the feature columns [n columns] at unit coordinates u [n]. Equal values have equal features."""
        return (self.index(u).to(u) / (len(self.options) - 1)).unsqueeze(-1)

    def columns_of(self, value: Any) -> list[float]:
        """Return the feature columns of one value. Values of earlier trials may be outside of the range.

        Raises:
            InvalidInput: The value has no place on the scale or among the options of the parameter.
        """
        return self.features(self.units([self.plain(value)]))[0].tolist()

    def comparable(self, former: Parameter, same_scale: bool = False) -> Parameter:
        """Return a parameter whose feature columns have a place for values of this parameter and of a former one.

        Numbers outside of a range have a place on its scale. Each former option has its own column.

        Args:
            former: The parameter whose columns compared the values before.
            same_scale: Whether numbers keep the former scale; otherwise they get the scale of the new range.
        """
        if former.is_range:  # on whose scale options have no place
            return self
        return _with_former_options(self, former)

    def labels(self, name: str) -> list[str]:
        """Return the names of the feature columns, given the name of the parameter."""
        return [name] * self.columns

    def describe(self) -> dict[str, Any]:
        """Return the parameter as plain JSON values.

        A step is included only if it differs from the default: journals of kbo 0.11 have no step.
        """
        entries: dict[str, Any] = {"kind": type(self).__name__}
        parameter: Any = self  # every subclass is a dataclass
        for field in fields(parameter):
            value = getattr(self, field.name)
            if field.name == "step" and value == field.default:
                continue
            if isinstance(value, tuple):
                value = list(value)
            entries[field.name] = value
        return entries

    def _position(self, value: Any) -> int:
        """Return the position of a value among the options.

        Raises:
            InvalidInput: The value is no option.
        """
        try:
            return self.options.index(value)
        except Exception as error:  # no option, or a value that cannot be compared
            position = nearest(self.options, value)
            if position is not None:
                return position
            options = checks.shown(list(self.options))
            raise InvalidInput(f"{checks.shown(value)} is not one of {options}.") from error


class _Range(Parameter):
    """Numbers from ``low`` to ``high``: the common part of ``Float`` and ``Int``."""

    is_range = True

    low: float
    high: float
    step: float | None

    @property
    def ends(self) -> Sequence[Any]:
        return self.low, self.high

    def columns_of(self, value: Any) -> list[float]:
        number = _real(value)
        if self.log and number > 0:
            return [math.log(number / self.low) / math.log(self.high / self.low)]
        if self.log or not math.isfinite(number):
            raise InvalidInput(f"{checks.shown(value)} has no place on the scale of {self}.")
        return [(number - self.low) / (self.high - self.low)]

    def comparable(self, former: Parameter, same_scale: bool = False) -> Parameter:
        if former.is_range and same_scale and self.log == former.log:
            return former
        return self

    def _set_range(self, low: float, high: float) -> None:
        """Set the bounds and the scale, after a check that the bounds are in order and suit the scale."""
        if low > high:
            raise InvalidInput(
                f"the bounds low = {low} and high = {high} are reversed: write ({high}, {low})."
            )
        if low == high:
            raise InvalidInput(
                f"the bounds low = {low} and high = {high} are empty: write kbo.Fixed({low})."
            )
        log = checks.flag("log", self.log)
        if log and low <= 0:
            raise InvalidInput(f"a logarithmic scale needs low > 0, got {low}.")
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)
        object.__setattr__(self, "log", log)

    def _check_steps(self, step: float) -> None:
        """Check that the scale is linear, and that the range is a whole number of steps."""
        if self.log:
            raise InvalidInput(
                "a logarithmic scale has no step: leave out one of log and step, or list the values in "
                "kbo.Ordinal([...])."
            )
        width = self.high - self.low
        steps = width / step
        if not 1 - _ON_GRID < steps < _LARGEST:
            raise InvalidInput(
                f"step = {step:g} must be at most high - low = {width:g} and not 2**50 times less."
            )
        if abs(steps - round(steps)) > _ON_GRID:
            below = self.low + math.floor(steps) * step
            above = self.low + math.ceil(steps) * step
            raise InvalidInput(
                f"high = {self.high:g} is not low = {self.low:g} plus a multiple of step = {step:g}: write "
                f"{below:.12g} or {above:.12g}."
            )

    def _steps_to(self, value: Any, step: float, size: float) -> int:
        """Return the number of steps from ``low`` to a value.

        Args:
            value: The value.
            step: The step.
            size: Size of the numbers that are rounded; it decides which difference counts as rounding.

        Raises:
            InvalidInput: The value is outside of the range, or between two steps.
        """
        number = _real(value)
        steps = (number - self.low) / step
        position = -1
        if math.isfinite(steps):
            position = round(steps)
        is_close = abs(steps - position) * step <= _rounding(size, step)
        if is_close and 0 <= position < len(self.options):
            return position
        if not self.low <= number <= self.high:
            raise self._refusal(value)
        expected = f"{self.low:g} plus steps of {step:g}"
        if step == 1:
            expected = f"a whole number from {self.low:g} to {self.high:g}"
        raise InvalidInput(f"expected {expected}, got {checks.shown(value)}.")

    def _refusal(self, value: Any) -> InvalidInput:
        """Return the exception for a value that is outside of the range."""
        return InvalidInput(
            f"expected a number in [{self.low:g}, {self.high:g}], got {checks.shown(value)}."
        )


@dataclass(frozen=True)
class Float(_Range):
    """A real number from ``low`` to ``high``: on a logarithmic scale if ``log``, in steps from ``low`` if ``step``.

    Raises:
        InvalidInput: The bounds are no finite numbers, reversed, equal, too far apart for float64, or not a whole
            number of steps apart. On a logarithmic scale: a bound is not above 0, the bounds nearly agree, or there is
            a step.
    """

    low: float
    high: float
    log: bool = False
    step: float | None = None

    def __post_init__(self) -> None:
        self._set_range(checks.number("low", self.low), checks.number("high", self.high))
        if not 0 < self._width < math.inf:
            raise InvalidInput(
                f"{self} is a range that float64 cannot divide: give bounds of other sizes, or on a logarithmic scale "
                "the bounds of the exponent, and convert in the objective."
            )
        if self.log and self._is_coarse:
            raise InvalidInput(
                f"{self} is too narrow for a logarithmic scale, which differs from a linear one by less "
                "than a thousandth: leave out log."
            )
        if self.step is not None:
            object.__setattr__(self, "step", checks.positive("step", self.step))
            self._check_steps(self.step)
            self._check_digits(self.step)

    def _check_digits(self, step: float) -> None:
        """Check that the values of a range with a step differ in their first 15 digits."""
        largest = max(abs(self.low), abs(self.high))
        resolution = 10 ** (math.ceil(math.log10(largest)) - 15)
        if resolution > _ON_GRID * step:
            raise InvalidInput(
                f"step = {step:g} is below the resolution of values up to {largest:g}, which have 15 digits: give a "
                f"step of at least {largest * 1e-8:.0e}, or search over an offset, and convert in the objective."
            )

    @property
    def options(self) -> Sequence[float]:
        if self.step is None:
            return ()
        return _Steps(self.low, self.high, self.step)

    def units(self, values: Sequence[Any]) -> Tensor:
        if self.step is not None:
            return super().units(values)
        if self.log:
            coordinates = [math.log(value / self.low) / self._width for value in values]
            return torch.tensor(coordinates, dtype=torch.float64)
        return (torch.tensor(values, dtype=torch.float64) - self.low) / self._width

    def values(self, u: Tensor) -> list[float]:
        if self.step is not None:
            return super().values(u)
        if self.log:  # the last digit of torch's power depends on the other numbers beside one
            ratio = self.high / self.low
            numbers = torch.tensor([self.low * ratio**x for x in u.tolist()], dtype=u.dtype)
        else:
            numbers = self.low + u * self._width
        # the ends are met exactly
        return numbers.clamp(self.low, self.high).masked_fill(u >= 1, self.high).tolist()

    def plain(self, value: Any) -> float:
        if self.step is not None:
            return super().plain(value)
        number = onto_range(_real(value), self.low, self.high, self.log)
        if number is None:
            raise self._refusal(value)
        return number

    def features(self, u: Tensor) -> Tensor:
        if self.step is not None:
            return super().features(u)
        if self._is_coarse:
            u = (self.numbers(u) - self.low) / (self.high - self.low)
        return u.unsqueeze(-1)

    @property
    def _width(self) -> float:
        """Length of the range; on a logarithmic scale the length in natural logarithms."""
        if self.log:
            return math.log(self.high / self.low)
        return self.high - self.low

    @property
    def _is_coarse(self) -> bool:
        """Whether float64 has few numbers in the range.

        Points between two neighbouring numbers become equal params. They must have equal features, so the features are
        then computed from the rounded numbers.
        """
        return math.ulp(max(abs(self.low), abs(self.high))) > _COARSE * (self.high - self.low)

    def _position(self, value: Any) -> int:
        return self._steps_to(value, self.step or 0.0, max(abs(self.low), abs(self.high)))


Float.__init__ = naming_arguments(Float.__init__)


@dataclass(frozen=True)
class Int(_Range):
    """A whole number from ``low`` to ``high``, both included: on a logarithmic scale if ``log``, in steps of ``step``.

    Raises:
        InvalidInput: The bounds are no whole numbers, reversed, equal, above 2**50 in size (2**44 on a logarithmic
            scale), or not a whole number of steps apart. On a logarithmic scale: a bound is not above 0, or the step is
            not 1.
    """

    low: int
    high: int
    log: bool = False
    step: int = 1

    def __post_init__(self) -> None:
        low = checks.number("low", self.low)
        high = checks.number("high", self.high)
        if low % 1 or high % 1:
            raise InvalidInput(
                f"low and high of an Int must be whole numbers, got ({self.low}, {self.high})."
            )
        largest = _LARGEST
        if checks.flag("log", self.log):
            largest = _LARGEST_LOG
        if max(-low, high) > largest:
            raise InvalidInput(
                f"{self} has whole numbers above 2**{largest.bit_length() - 1} in size, which float64 cannot all tell "
                "apart: search over an offset or a multiple, and convert in the objective."
            )
        self._set_range(int(low), int(high))
        object.__setattr__(self, "step", checks.whole("step", self.step, 1))
        if self.step > 1:
            self._check_steps(self.step)

    @property
    def options(self) -> Sequence[int]:
        return range(self.low, self.high + 1, self.step)

    def coordinate(self, place: Tensor) -> Tensor:
        if not self.log:
            return super().coordinate(place)
        start, end = self._logarithms()
        return (((self.low - 0.5) + place.double()).log() - start) / (end - start)

    def place(self, u: Tensor) -> Tensor:
        if not self.log:
            return super().place(u)
        start, end = self._logarithms()
        return (start + u * (end - start)).exp() - (self.low - 0.5)

    def features(self, u: Tensor) -> Tensor:
        if not self.log:
            return super().features(u)
        low = math.log(self.low)
        return ((self.numbers(u).log() - low) / (math.log(self.high) - low)).unsqueeze(-1)

    def _logarithms(self) -> tuple[float, float]:
        """Return the logarithms of the ends of the line: low - 1/2 and high + 1/2."""
        return math.log(self.low - 0.5), math.log(self.high + 0.5)

    def _position(self, value: Any) -> int:
        return self._steps_to(value, self.step, max(abs(_real(value)), 1.0))


Int.__init__ = naming_arguments(Int.__init__)


@dataclass(frozen=True)
class _Listed(Parameter):
    """One of several options in a list: the common part of ``Choice`` and ``Ordinal``."""

    options: Sequence[Any]

    def __post_init__(self) -> None:
        options = self.options
        is_listed = isinstance(options, Sequence) or getattr(options, "ndim", 0) == 1
        if not is_listed or isinstance(options, (str, bytes, bytearray)):
            raise InvalidInput(f"options must be a list, got {checks.shown(options)}.")
        plain = tuple(map(_option, options))
        if len(set(plain)) < max(2, len(plain)):
            raise InvalidInput(
                f"at least two different options are needed, got {checks.shown(plain)}; kbo.Fixed(value) for one value."
            )
        object.__setattr__(self, "options", plain)


class Choice(_Listed):
    """One of several options without an order; options are numbers, strings, booleans or None.

    Each option has its own feature column, so the kernel sees the same distance between any two.

    Raises:
        InvalidInput: There are fewer than two different options, or an option is of another kind.
    """

    @property
    def columns(self) -> int:
        """One column per option."""
        return len(self.options)

    def features(self, u: Tensor) -> Tensor:
        """Return the one-hot columns [n k] of length 1/sqrt(2), so that two options are at distance 1."""
        return torch.nn.functional.one_hot(self.index(u), len(self.options)).to(u) / math.sqrt(2)

    def labels(self, name: str) -> list[str]:
        return [f"{name} = {option}" for option in self.options]


class Ordinal(_Listed):
    """One of several options in order, for example 16, 32, 64, 128; options are of the kinds of a ``Choice``.

    The kernel compares positions in the list: neighbouring options are equally far apart.

    Raises:
        InvalidInput: There are fewer than two different options, or an option is of another kind.
    """


@dataclass(frozen=True)
class Fixed(Parameter):
    """One fixed value that the objective gets: a number, string, boolean or None. The kernel does not see it."""

    constant: Any

    columns = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "constant", _option(self.constant, "constant"))

    @property
    def options(self) -> Sequence[Any]:
        return (self.constant,)

    def comparable(self, former: Parameter, same_scale: bool = False) -> Parameter:
        if former.is_range and math.isfinite(_real(self.constant)):  # a place on its scale
            return former
        return super().comparable(former, same_scale)

    def features(self, u: Tensor) -> Tensor:
        """Return no columns, [n 0]."""
        return u.new_empty(len(u), 0)


@dataclass(frozen=True)
class _Steps(Sequence[float]):
    """The values of a range with a step, as a sequence that computes each value when it is read."""

    low: float
    high: float
    step: float

    def __len__(self) -> int:
        return round((self.high - self.low) / self.step) + 1

    def __getitem__(self, index: Any) -> Any:
        position = range(len(self))[index]
        if position == 0:
            return self.low
        if position == len(self) - 1:
            return self.high
        # 15 digits: 0.3 and not 0.30000000000000004
        return float(f"{self.low + position * self.step:.15g}")


def _with_former_options(new: Parameter, former: Parameter) -> Parameter:
    """Return a parameter whose columns have a place for the new and the former options.

    The former parameter is taken if it has all new options and is of the same class (for an ``Ordinal``: with the
    options in the same order), or the new one is ``Fixed``. Otherwise the new parameter is taken if it is an
    ``Ordinal`` or has all former options. Otherwise the result is a ``Choice`` of all options.
    """
    kept = [option for option in former.options if option in new.options]
    has_columns = former.columns > 0 and len(kept) == len(new.options)
    if has_columns and (isinstance(new, Fixed) or type(new) is type(former)):
        in_order = kept == list(new.options)
        if in_order or not isinstance(new, Ordinal):
            return former
    options = [*new.options, *(option for option in former.options if option not in kept)]
    if isinstance(new, Ordinal) or len(options) == len(new.options):
        return new
    return Choice(options)


def _option(value: Any, name: str = "an option") -> Any:
    """Return an option as a plain Python value, which a journal can keep.

    Raises:
        InvalidInput: The option is no finite number, text, boolean or None.
    """
    plain = checks.plain(value)
    if plain is None or isinstance(plain, bool):
        return plain
    if isinstance(plain, (int, float)):
        checks.number(name, plain)
        return plain
    if isinstance(plain, str):
        return checks.text(name, plain)
    raise InvalidInput(
        f"{name} must be a number, text, a boolean or None, got {checks.shown(value)}."
    )


def nearest(options: Sequence[Any], value: Any) -> int | None:
    """Return the position of the option that equals a number up to rounding; None if there is no such option."""
    number = _real(value)
    distances = []
    for position, option in enumerate(options):
        if isinstance(option, (int, float)) and not isinstance(option, bool):
            distances.append((abs(option - number), position))
    if not distances:
        return None
    distances.sort()
    distance, position = distances[0]
    spacing = math.inf
    if len(distances) > 1:
        spacing = distances[1][0]
    if distance <= _rounding(options[position], spacing):
        return position
    return None


def _rounding(size: float, spacing: float) -> float:
    """Return the largest difference that counts as rounding, in units of the values.

    Args:
        size: The size of the values that are rounded.
        spacing: The distance between different values, or the width of their range.
    """
    return min(FLOAT32 * abs(size), _DISTINCT * spacing)


def _real(value: Any) -> float:
    """Return a value as a float; NaN if it is no real number."""
    try:
        return checks.real(value)
    except Exception:  # whatever a conversion of the caller's own raises
        return math.nan


def onto_range(number: float, low: float, high: float, log: bool = False) -> float | None:
    """Return a number that is in a range, or the bound if rounding has moved it outside; otherwise None."""
    if low <= number <= high:
        return number
    bound = high
    if number < low:
        bound = low
    size = max(abs(low), abs(high))
    if log:
        size = bound
    if abs(number - bound) <= _rounding(size, high - low):
        return bound
    return None
