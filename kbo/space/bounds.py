"""Parameters and conditions from the bounds that a user writes: a dict, a list of pairs, or dicts and ``When``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, NamedTuple

from kbo._base import checks
from kbo.errors import InvalidInput
from kbo.space.parameters import Choice, Fixed, Float, Int, Parameter
from kbo.space.table import Frame

_RANGE = re.compile(r"\s*-?[\d.]+\s*(-|\u2013|to|\.\.)\s*-?[\d.]+\s*")
"""A text that looks like a range, such as "20-90"."""


@dataclass(frozen=True)
class When:
    """Parameters that are active only if their parent is active and has one of certain values.

    The parent may be any parameter with finitely many values. It may be conditional itself.

    Args:
        parent: Name of the parent.
        values: One value of the parent, or a list of values.
        parameters: A dict from name to parameter, as in ``Space``.

    Raises:
        InvalidInput: The name of the parent is no text, there is no value, or the parameters are no dict.

    Example:
        >>> space = [{"optimizer": ["sgd", "adam"]}, kbo.When("optimizer", "sgd", {"momentum": kbo.Float(0, 1)})]
    """

    parent: str
    values: Any
    parameters: Mapping[str, Any]

    def __post_init__(self) -> None:
        checks.text("parent", self.parent)
        values = (self.values,)
        if isinstance(self.values, (list, tuple)):
            values = tuple(self.values)
        if not values:
            raise InvalidInput(
                f"values of {self.parent!r} are empty: give one at which the parameters are active."
            )
        if not isinstance(self.parameters, Mapping) or not self.parameters:
            raise InvalidInput(
                f"parameters must be a dict of at least one, got {checks.shown(self.parameters)}."
            )
        object.__setattr__(self, "values", values)


class Condition(NamedTuple):
    """The parent of a conditional parameter, and the values of the parent at which the parameter is active."""

    parent: str
    values: tuple[Any, ...]


Bounds = (
    Mapping[str, Any] | Sequence[tuple[float, float]] | Sequence[Mapping[str, Any] | When] | Frame
)


class ParsedBounds(NamedTuple):
    """Parameters and conditions of bounds.

    Attributes:
        named: Whether params are dicts; otherwise they are lists.
        parameters: The parameters by name.
        conditions: The condition of each conditional parameter, by its name.
    """

    named: bool
    parameters: dict[str, Parameter]
    conditions: dict[str, Condition]


def parsed_bounds(bounds: Any) -> ParsedBounds:
    """Return parameters and conditions of bounds.

    Raises:
        InvalidInput: The bounds have another form. A parameter cannot be used, or its name is no text or is used twice.
            The parent of a condition does not exist, is a real number, or lacks a value of the condition.
    """
    is_dict = isinstance(bounds, Mapping)
    is_list = isinstance(bounds, Sequence) and not isinstance(bounds, (str, bytes))
    if not is_dict and not is_list:
        raise InvalidInput(
            "bounds must be a dict of parameters, a list of pairs (low, high), a list of dicts and kbo.When, or a "
            f"DataFrame of candidates, got {checks.shown(bounds)}."
        )
    is_list_of_dicts = is_list and any(isinstance(entry, (Mapping, When)) for entry in bounds)
    named = is_dict or is_list_of_dicts
    groups: Any = bounds if is_list_of_dicts else [bounds]
    parameters: dict[str, Parameter] = {}
    conditions: dict[str, Condition] = {}
    for name, spec, condition in _entries(groups):
        with checks.inside(f"bounds: parameter {checks.shown(name)}"):
            if checks.text("the name", name) in parameters:
                raise InvalidInput(
                    "there are two of this name; one may be active for several values of its parent."
                )
            parameters[name] = _parameter(spec) if named else _real_parameter(spec)
        if condition is not None:
            conditions[name] = condition
    return ParsedBounds(named, parameters, _plain_conditions(conditions, parameters))


def _entries(groups: Sequence[Any]) -> Iterator[tuple[Any, Any, Condition | None]]:
    """Yield name, specification and condition of each parameter.

    Args:
        groups: Dicts of parameters, ``When``, or a list of pairs, whose parameters are called x0, x1, and so on.
    """
    for group in groups:
        condition = None
        specs = group
        if isinstance(group, When):
            condition = Condition(group.parent, group.values)
            specs = group.parameters
        elif not isinstance(group, Mapping):
            specs = {f"x{i}": pair for i, pair in enumerate(group)}
        for name, spec in specs.items():
            yield name, spec, condition


def _real_parameter(pair: Any) -> Parameter:
    """Return the real parameter of a pair in a list of bounds."""
    parameter = pair
    if isinstance(pair, tuple) and len(pair) == 2:
        parameter = Float(*pair)
    if not isinstance(parameter, Float) or parameter.options:
        raise InvalidInput(
            f"bounds given as a list must be pairs (low, high), got {checks.shown(pair)}: use a dict for other "
            "parameters."
        )
    return parameter


def _parameter(spec: Any) -> Parameter:
    """Return the parameter of one entry in a dict of bounds.

    Raises:
        InvalidInput: The entry has no meaning, or could mean several parameters.
    """
    if isinstance(spec, Parameter):
        return spec
    is_pair = isinstance(spec, (list, tuple)) and len(spec) == 2
    if is_pair and all(_is(end, Real) for end in spec):
        return _range(spec)
    if isinstance(spec, list):
        return Choice(spec)
    if spec is bool:
        return Choice([False, True])
    if isinstance(spec, str) and _RANGE.fullmatch(spec):
        raise InvalidInput(
            f"{spec!r} is a text with one value, and looks like a range: give its ends, (low, high), in a file "
            f"{{kind: Float, low: LOW, high: HIGH}}; if it is one value, kbo.Fixed({spec!r})."
        )
    if spec is None or isinstance(checks.plain(spec), (str, bool, Real)):
        return Fixed(spec)
    raise InvalidInput(
        "expected kbo.Float, kbo.Int, kbo.Choice, kbo.Ordinal, a range (low, high) of two numbers, a list of options "
        f"(of an array, .tolist()), bool or a single value, got {checks.shown(spec)}. A kbo.When stands beside the "
        "dict: [{...}, kbo.When(parent, value, {...})]."
    )


def _range(pair: Any) -> Parameter:
    """Return the range of a pair of numbers: an ``Int`` if both ends are integers, otherwise a ``Float``.

    Raises:
        InvalidInput: The pair could be a choice, too: it is a list, or has two neighbouring whole numbers.
    """
    low, high = pair
    is_whole = _is(low, Integral) and _is(high, Integral)
    if isinstance(pair, list) or (is_whole and high - low == 1):
        raise InvalidInput(
            f"{pair} could be a range or a choice: write kbo.Float({low}, {high}) for real numbers between, kbo.Int "
            f"for whole ones, or kbo.Choice({[low, high]}) for one of the two; in a file {{kind: Float, low: {low}, "
            f"high: {high}}}, {{kind: Int, ...}} or {{kind: Choice, options: {[low, high]}}}."
        )
    if is_whole:
        return Int(low, high)
    return Float(low, high)


def _is(value: Any, kind: type) -> bool:
    """Return whether a value is a number of a kind. True and False are not numbers here."""
    return isinstance(value, kind) and not isinstance(value, bool)


def _plain_conditions(
    conditions: Mapping[str, Condition], parameters: Mapping[str, Parameter]
) -> dict[str, Condition]:
    """Return conditions by name, with their values in the form that the parents have in params.

    Raises:
        InvalidInput: A parent does not exist, is a real number, or lacks a value of its condition.
    """
    plain = {}
    for name, (parent, values) in conditions.items():
        with checks.inside(f"bounds: the condition of parameter {name!r}"):
            parameter = parameters[checks.one_of("the parent", parent, parameters)]
            if not parameter.options:
                raise InvalidInput(
                    f"the parent {parent!r} must have finitely many values: give it a step."
                )
            plain[name] = Condition(parent, tuple(map(parameter.plain, values)))
    return plain


def parents_first(names: list[str], conditions: Mapping[str, Condition]) -> list[str]:
    """Return the names of parameters in an order in which each comes after its parent.

    Raises:
        InvalidInput: Conditions depend on each other.
    """
    ordered = [name for name in names if name not in conditions]
    left = [name for name in names if name in conditions]
    while left:
        ready = [name for name in left if conditions[name].parent in ordered]
        if not ready:
            raise InvalidInput(
                f"bounds: the conditions of the parameters {left} depend on each other."
            )
        ordered += ready
        left = [name for name in left if name not in ready]
    return ordered
