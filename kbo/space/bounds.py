"""Parameters from the bounds that a user writes: a dict, a list of pairs, or a list of dicts and ``When``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, NamedTuple

from kbo._base import checks
from kbo.errors import InvalidInput
from kbo.space.conditions import Condition, When, plain_conditions
from kbo.space.parameters import Choice, Fixed, Float, Int, Parameter
from kbo.space.table import Frame

_RANGE = re.compile(r"\s*-?[\d.]+\s*(-|\u2013|to|\.\.)\s*-?[\d.]+\s*")
"""A text that looks like a range, such as "20-90"."""

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
    return ParsedBounds(named, parameters, plain_conditions(conditions, parameters))


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
    if isinstance(spec, tuple) and is_pair and not _has_text(spec):
        return Float(*spec)  # takes ends that are tensors, and refuses all others
    is_single = spec is None or isinstance(checks.plain(spec), (str, bool, Real))
    if is_single and not _looks_like_range(spec):
        return Fixed(spec)
    raise _refusal(spec)


def _range(pair: Any) -> Parameter:
    """Return the range of a pair of numbers: an ``Int`` if both ends are integers, otherwise a ``Float``.

    Raises:
        InvalidInput: The pair could be a choice, too: it is a list, or has two neighbouring whole numbers.
    """
    low, high = pair
    is_whole = _is(low, Integral) and _is(high, Integral)
    if isinstance(pair, list) or (is_whole and high - low == 1):
        whole = ""
        if is_whole:
            whole = f", kbo.Int({low}, {high}) for whole ones"
        raise InvalidInput(
            f"{pair} could be a range or a choice: write ({float(low)}, {float(high)}) for real numbers "
            f"between{whole}, or kbo.Choice({[low, high]}) for one of the two."
        )
    if is_whole:
        return Int(low, high)
    return Float(low, high)


def _refusal(spec: Any) -> InvalidInput:
    """Return the exception for an entry that is no parameter; its message says what to write instead."""
    if isinstance(spec, tuple) and _has_text(spec):
        return InvalidInput(
            f"a tuple is a range of numbers: write options as a list, {list(spec)}."
        )
    if isinstance(spec, When):
        return InvalidInput(
            "kbo.When stands beside a dict, not in it: [{...}, kbo.When(parent, value, {...})]."
        )
    if _looks_like_range(spec):
        return InvalidInput(
            f"{spec!r} is a text with one value, and looks like a range: give its ends, (low, high), in a file "
            f"{{kind: Float, low: LOW, high: HIGH}}; if it is one value, kbo.Fixed({spec!r})."
        )
    advice = ""
    if hasattr(spec, "tolist"):  # arrays of NumPy, tensors, columns of pandas
        advice = " For a list of its values write .tolist()."
    return InvalidInput(
        "expected kbo.Float, kbo.Int, kbo.Choice, kbo.Ordinal, (low, high), a list of options, bool or a single "
        f"value, got {checks.shown(spec)}.{advice}"
    )


def _has_text(values: tuple[Any, ...]) -> bool:
    """Return whether one of several values is a text."""
    return any(isinstance(value, str) for value in values)


def _looks_like_range(spec: Any) -> bool:
    """Return whether an entry is a text such as "20-90"."""
    return isinstance(spec, str) and _RANGE.fullmatch(spec) is not None


def _is(value: Any, kind: type) -> bool:
    """Return whether a value is a number of a kind. True and False are not numbers here."""
    return isinstance(value, kind) and not isinstance(value, bool)
