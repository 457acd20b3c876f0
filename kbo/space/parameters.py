"""Parameters: values as people write them, as coordinates in [0, 1], and as columns for a kernel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from kbo._base import checks
from kbo.errors import InvalidInput

_LARGEST = {False: 2**50, True: 2**44}
"""Whole numbers up to which each has a coordinate of its own in float64, on a linear and on a logarithmic scale."""

_ROUNDED = 2.0**-40
"""Parts of a range: numbers that float64 stores further apart than that have features of their own, as rounded."""

_ON_GRID = 1e-6
"""Steps by which the end of a range may be off its grid: other libraries add up steps in floating point."""

FLOAT32 = 2.0**-20
"""Relative rounding that given values may have: eight units in the last place of float32, as exp(log(x)) in float32."""

_DISTINCT = 0.01
"""Part of the distance between two values of a parameter that never counts as rounding."""


class Parameter:
    """A parameter of a space. The methods here are those of finitely many options with equal cells of [0, 1].

    The options lie side by side on a line: the option at position p has the places from p to p + 1. ``coordinate`` maps
    the line to the unit interval and ``place`` maps it back; everything else follows from these two. A subclass with
    another scale defines both, and nothing outside this class computes either. A real number has its unit coordinate as
    its place.

    A subclass needs ``options`` only, and where it has none, every method.

    Attributes:
        columns: Number of feature columns.
        log: Whether the scale of a ``Float`` or an ``Int`` is logarithmic.
        options: All values, in order; empty for a real number.
    """

    columns: int = 1
    log: bool = False
    options: Sequence[Any]

    def coordinate(self, place: Tensor) -> Tensor:
        """Unit coordinates [n] of places [n]: ends of the cell of option p at p and p + 1, its middle at p + 1/2."""
        return place.double() / len(self.options)

    def place(self, u: Tensor) -> Tensor:
        """Places [n] at unit coordinates u [n], the inverse of ``coordinate``."""
        return u * len(self.options)

    def index(self, u: Tensor) -> Tensor:
        """The positions [n] among the options at unit coordinates u [n]."""
        return self.place(u).floor().long().clamp(0, len(self.options) - 1)

    def middles(self, positions: Tensor) -> Tensor:
        """Unit coordinates [n] of the options at positions [n], the middles of their cells; inverse of ``index``."""
        return self.coordinate(positions.double() + 0.5)

    def units(self, values: Sequence[Any]) -> Tensor:
        """Unit coordinates [n] of values, the middles of their cells; InvalidInput for a value of no option."""
        return self.middles(
            torch.tensor([self._position(value) for value in values], dtype=torch.float64)
        )

    def unit(self, value: Any) -> float:
        """The unit coordinate of a value, the middle of its cell."""
        return float(self.units([value])[0])

    def value(self, u: float) -> Any:
        """The value at unit coordinate u."""
        return self.options[int(self.index(torch.tensor(u, dtype=torch.float64)))]

    def plain(self, value: Any) -> Any:
        """The value as a plain Python value; InvalidInput if the parameter does not have it."""
        return self.options[self._position(value)]

    def numbers(self, u: Tensor) -> Tensor:
        """The values [n] at unit coordinates u [n], if they are numbers: exactly those of ``value``."""
        positions, rows = self.index(u).unique(return_inverse=True)
        numbers = [float(self.options[position]) for position in positions.tolist()]
        return torch.tensor(numbers, dtype=u.dtype)[rows]

    def features(self, u: Tensor) -> Tensor:
        """Columns [n columns] for unit coordinates u [n], equal for coordinates of the same value."""
        return (self.index(u).to(u) / (len(self.options) - 1)).unsqueeze(-1)

    def describe(self) -> dict[str, Any]:
        """The parameter as plain JSON values; the step, which journals of kbo 0.11 do not have, only if it is set."""
        entries: dict[str, Any] = {"kind": type(self).__name__}
        parameter: Any = self  # every subclass is a dataclass
        for field in fields(parameter):
            value = getattr(parameter, field.name)
            if field.name == "step" and value == field.default:
                continue
            entries[field.name] = list(value) if isinstance(value, tuple) else value
        return entries

    def _position(self, value: Any) -> int:
        """The position of a value among the options."""
        try:
            return self.options.index(value)
        except Exception as error:  # no option, or a value that cannot be compared
            position = nearest(self.options, value)
            if position is not None:
                return position
            options = checks.shown(list(self.options))
            raise InvalidInput(f"{checks.shown(value)} is not one of {options}.") from error


@dataclass(frozen=True)
class Float(Parameter):
    """A real number between ``low`` and ``high``: on a logarithmic scale if ``log``, in steps from ``low`` if ``step``.

    Raises:
        InvalidInput: Bounds that are no numbers, not finite, reversed, equal, not above 0 on a logarithmic scale, too
            far apart for float64, or not a whole number of steps apart; a step on a logarithmic scale; bounds of a
            logarithmic scale that nearly agree.
    """

    low: float
    high: float
    log: bool = False
    step: float | None = None

    def __post_init__(self) -> None:
        _check_range(self, checks.number("low", self.low), checks.number("high", self.high))
        width = math.log(self.high / self.low) if self.log else self.high - self.low
        if not 0 < width < math.inf:
            raise InvalidInput(
                f"{self} is a range that float64 cannot divide: give bounds of other sizes, or on a logarithmic scale "
                "the bounds of the exponent, and convert in the objective."
            )
        if self.log and self._rounded:
            raise InvalidInput(
                f"{self} is too narrow for a logarithmic scale, which differs from a linear one by less "
                "than a thousandth: leave out log."
            )
        if self.step is not None:
            object.__setattr__(self, "step", checks.positive("step", self.step))
            _check_steps(self, self.step)

    @property
    def options(self) -> Sequence[float]:
        return () if self.step is None else _Steps(self.low, self.high, self.step)

    def coordinate(self, place: Tensor) -> Tensor:
        return place if self.step is None else super().coordinate(place)

    def place(self, u: Tensor) -> Tensor:
        return u if self.step is None else super().place(u)

    def units(self, values: Sequence[Any]) -> Tensor:
        if self.step is not None:
            return super().units(values)
        numbers = [self.plain(value) for value in values]
        if self.log:
            whole = math.log(self.high / self.low)
            return torch.tensor(
                [math.log(number / self.low) / whole for number in numbers], dtype=torch.float64
            )
        return (torch.tensor(numbers, dtype=torch.float64) - self.low) / (self.high - self.low)

    def value(self, u: float) -> float:
        """The number at unit coordinate u; the ends are met exactly."""
        if self.step is not None:
            return super().value(u)
        if u <= 0 or u >= 1:
            return self.low if u <= 0 else self.high
        x = (
            self.low * (self.high / self.low) ** u
            if self.log
            else self.low + u * (self.high - self.low)
        )
        return min(max(x, self.low), self.high)

    def plain(self, value: Any) -> float:
        return _inside(self, value) if self.step is None else super().plain(value)

    def numbers(self, u: Tensor) -> Tensor:
        if self.step is not None:
            return super().numbers(u)
        if self.log:  # torch has another power than Python, which differs in the last digit
            return torch.tensor([self.value(x) for x in u.tolist()], dtype=u.dtype)
        numbers = (self.low + u * (self.high - self.low)).clamp(self.low, self.high)
        return numbers.masked_fill(u >= 1, self.high)

    def features(self, u: Tensor) -> Tensor:
        if self.step is not None:
            return super().features(u)
        if self._rounded:  # of the numbers that the objective gets, not of those between them
            u = (self.numbers(u) - self.low) / (self.high - self.low)
        return u.unsqueeze(-1)

    @cached_property
    def _rounded(self) -> bool:
        """Whether neighbouring numbers of float64 are so far apart that points between them must not count as such."""
        return math.ulp(max(abs(self.low), abs(self.high))) > _ROUNDED * (self.high - self.low)

    def _position(self, value: Any) -> int:
        return _steps_to(self, value, self.step or 0.0)


@dataclass(frozen=True)
class Int(Parameter):
    """A whole number from ``low`` to ``high``, both included: on a logarithmic scale if ``log``, in steps of ``step``.

    Raises:
        InvalidInput: Bounds that are no whole numbers, reversed, equal, not above 0 on a logarithmic scale, above
            2**50 in size (2**44 on a logarithmic scale), or not a whole number of steps apart; steps on a logarithmic
            scale.
    """

    low: int
    high: int
    log: bool = False
    step: int = 1

    def __post_init__(self) -> None:
        low, high = checks.number("low", self.low), checks.number("high", self.high)
        if low % 1 or high % 1:
            raise InvalidInput(
                f"low and high of an Int must be whole numbers, got ({self.low}, {self.high})."
            )
        if max(-low, high) > (most := _LARGEST[checks.flag("log", self.log)]):
            raise InvalidInput(
                f"{self} has whole numbers above 2**{most.bit_length() - 1} in size, which float64 cannot all tell "
                "apart: search over an offset or a multiple, and convert in the objective."
            )
        _check_range(self, int(low), int(high))
        object.__setattr__(self, "step", checks.whole("step", self.step, 1))
        if self.step > 1:
            _check_steps(self, self.step)

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

    def numbers(self, u: Tensor) -> Tensor:
        return self.low + self.step * self.index(u).to(u)

    def features(self, u: Tensor) -> Tensor:
        if not self.log:
            return super().features(u)
        value, low, high = (self.low + self.index(u)).to(u), math.log(self.low), math.log(self.high)
        return ((value.log() - low) / (high - low)).unsqueeze(-1)

    def _logarithms(self) -> tuple[float, float]:
        """The logarithms of the ends of the line, half a number below the lowest and above the largest."""
        return math.log(self.low - 0.5), math.log(self.high + 0.5)

    def _position(self, value: Any) -> int:
        return _steps_to(self, value, self.step)


@dataclass(frozen=True)
class Choice(Parameter):
    """One of several options without an order; options are numbers, strings, booleans or None.

    Each has a column of its own, so that any two are at the same distance for the kernel.

    Raises:
        InvalidInput: Fewer than two different options, or options of other kinds.
    """

    options: tuple[Any, ...]

    def __init__(self, options: Sequence[Any]) -> None:
        object.__setattr__(self, "options", _listed(options))

    @property
    def columns(self) -> int:
        """One column per option."""
        return len(self.options)

    def features(self, u: Tensor) -> Tensor:
        """One-hot columns [n k]."""
        return torch.nn.functional.one_hot(self.index(u), len(self.options)).to(u) / math.sqrt(2)


@dataclass(frozen=True)
class Ordinal(Parameter):
    """One of several options in the order given, for example 16, 32, 64, 128; options are as those of a ``Choice``.

    The kernel compares their positions in the list, which count as equally far apart.

    Raises:
        InvalidInput: Fewer than two different options, or options of other kinds.
    """

    options: tuple[Any, ...]

    def __init__(self, options: Sequence[Any]) -> None:
        object.__setattr__(self, "options", _listed(options))


@dataclass(frozen=True)
class Fixed(Parameter):
    """One value, a number, string, boolean or None, which the objective gets with the others; the kernel ignores it."""

    constant: Any

    columns = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "constant", _option(self.constant, "constant"))

    @property
    def options(self) -> Sequence[Any]:
        return (self.constant,)

    def features(self, u: Tensor) -> Tensor:
        """No columns, [n 0]."""
        return u.new_empty(len(u), 0)


@dataclass(frozen=True)
class _Steps(Sequence[float]):
    """The numbers of a range with a step, computed when they are read."""

    low: float
    high: float
    step: float

    def __len__(self) -> int:
        return round((self.high - self.low) / self.step) + 1

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(len(self))[index]]
        i = range(len(self))[index]
        if i == 0:
            return self.low
        # 15 digits: 0.3 and not 0.30000000000000004
        return self.high if i == len(self) - 1 else float(f"{self.low + i * self.step:.15g}")


def _listed(options: Any) -> tuple[Any, ...]:
    """At least two different options as Python values."""
    listed = isinstance(options, Sequence) or getattr(options, "ndim", 0) == 1
    if not listed or isinstance(options, (str, bytes, bytearray)):
        raise InvalidInput(f"options must be a list, got {checks.shown(options)}.")
    found = tuple(map(_option, options))
    if len(set(found)) < max(2, len(found)):
        raise InvalidInput(
            f"at least two different options are needed, got {checks.shown(found)}; kbo.Fixed(value) for one value."
        )
    return found


def _option(value: Any, name: str = "an option") -> Any:
    """An option as a Python value that a journal can keep."""
    plain = checks.plain(value)
    if isinstance(plain, (int, float)) and not isinstance(plain, bool):
        checks.number(name, plain)
    elif isinstance(plain, str):
        checks.text(name, plain)
    elif plain is not None and not isinstance(plain, bool):
        raise InvalidInput(
            f"{name} must be a number, text, a boolean or None, got {checks.shown(value)}."
        )
    return plain


def _check_range(spec: Float | Int, low: float, high: float) -> None:
    """Check finite bounds and the scale, and keep them as Python values."""
    if low >= high:
        mend = (
            f"reversed: write ({high}, {low})" if low > high else f"empty: write kbo.Fixed({low})"
        )
        raise InvalidInput(f"the bounds low = {low} and high = {high} are {mend}.")
    if checks.flag("log", spec.log) and low <= 0:
        raise InvalidInput(f"a logarithmic scale needs low > 0, got {low}.")
    for name, value in {"low": low, "high": high, "log": bool(spec.log)}.items():
        object.__setattr__(spec, name, value)


def _check_steps(spec: Float | Int, step: float) -> None:
    """Check that a range is a whole number of steps, on a linear scale."""
    if spec.log:
        raise InvalidInput(
            "a logarithmic scale has no step: leave out one of log and step, or list the values in kbo.Ordinal([...])."
        )
    steps = (spec.high - spec.low) / step
    if not 1 - _ON_GRID < steps < _LARGEST[False]:
        raise InvalidInput(
            f"step = {step:g} must be at most high - low = {spec.high - spec.low:g} and not 2**50 times less."
        )
    largest = max(abs(spec.low), abs(spec.high))
    if isinstance(spec, Float) and 10 ** (math.ceil(math.log10(largest)) - 15) > _ON_GRID * step:
        raise InvalidInput(
            f"step = {step:g} is below the resolution of values up to {largest:g}, which have 15 digits: give a step "
            f"of at least {largest * 1e-8:.0e}, or search over an offset, and convert in the objective."
        )
    if abs(steps - round(steps)) > _ON_GRID:
        below, above = (spec.low + count * step for count in (math.floor(steps), math.ceil(steps)))
        raise InvalidInput(
            f"high = {spec.high:g} is not low = {spec.low:g} plus a multiple of step = {step:g}: write {below:.12g} or "
            f"{above:.12g}."
        )


def nearest(options: Sequence[Any], value: Any) -> int | None:
    """Return the position of the option that a number is except for rounding; None if it is none of them."""
    number = _real(value)
    distances = []
    for position, option in enumerate(options):
        if isinstance(option, (int, float)) and not isinstance(option, bool):
            distances.append((abs(option - number), position))
    if not distances:
        return None
    distances.sort()
    distance, position = distances[0]
    spacing = distances[1][0] if len(distances) > 1 else math.inf
    return position if distance <= _rounding(options[position], spacing) else None


def _rounding(size: float, spacing: float) -> float:
    """Return the largest difference that counts as rounding, in units of the values.

    Args:
        size: A value of the size of those that are rounded.
        spacing: The distance between different values, or the width of their range.
    """
    return min(FLOAT32 * abs(size), _DISTINCT * spacing)


def _real(value: Any) -> float:
    """Return the value as a float; NaN if it is no real number."""
    try:
        return checks.real(value)
    except Exception:  # whatever a conversion of the caller's own raises
        return math.nan


def onto_range(number: float, low: float, high: float, log: bool = False) -> float | None:
    """Return a number of a range; one that rounding has moved outside is set onto the bound, others give None."""
    if low <= number <= high:
        return number
    bound = low if number < low else high
    size = bound if log else max(abs(low), abs(high))
    return bound if abs(number - bound) <= _rounding(size, high - low) else None


def _inside(spec: Float, value: Any) -> float:
    """Return the value as a float within the bounds."""
    number = onto_range(_real(value), spec.low, spec.high, spec.log)
    if number is None:
        raise InvalidInput(
            f"expected a number in [{spec.low:g}, {spec.high:g}], got {checks.shown(value)}."
        )
    return number


def _steps_to(spec: Float | Int, value: Any, step: float) -> int:
    """Return the number of steps from low to a value, which may be off its place by rounding."""
    number = _real(value)
    steps = (number - spec.low) / step
    position = round(steps) if math.isfinite(steps) else -1
    size = max(abs(spec.low), abs(spec.high)) if isinstance(spec, Float) else max(abs(number), 1.0)
    close = abs(steps - position) * step <= _rounding(size, step)
    if close and 0 <= position < len(spec.options):
        return position
    if not spec.low <= number <= spec.high:
        raise InvalidInput(
            f"expected a number in [{spec.low:g}, {spec.high:g}], got {checks.shown(value)}."
        )
    kind = f"{spec.low:g} plus steps of {step:g}"
    if step == 1:
        kind = f"a whole number from {spec.low:g} to {spec.high:g}"
    raise InvalidInput(f"expected {kind}, got {checks.shown(value)}.")
