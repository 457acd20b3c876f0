"""Bounds as people write them: a dict, a list of pairs, or a list of dicts and conditional parameters."""

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


class Meaning(NamedTuple):
    """The parameters that bounds mean.

    Attributes:
        named: Whether params are dicts.
        parameters: The parameters by name.
        conditions: The conditions by the names of the parameters that have one.
    """

    named: bool
    parameters: dict[str, Parameter]
    conditions: dict[str, Condition]


def meaning_of(bounds: Any) -> Meaning:
    """Return the parameters that bounds mean.

    Raises:
        InvalidInput: They are none, a parameter has no name, that of another one, or cannot be used, or a condition is
            on no parameter with finitely many values, or on a value that it does not have.
    """
    is_dict = isinstance(bounds, Mapping)
    is_list = isinstance(bounds, Sequence) and not isinstance(bounds, (str, bytes))
    if not is_dict and not is_list:
        raise InvalidInput(
            "bounds must be a dict of parameters, a list of pairs (low, high), a list of dicts and kbo.When, or a "
            f"DataFrame of candidates, got {checks.shown(bounds)}."
        )
    has_parts = is_list and any(isinstance(part, (Mapping, When)) for part in bounds)
    named = is_dict or has_parts
    parts: Any = [bounds]
    if has_parts:
        parts = bounds
    parameters: dict[str, Parameter] = {}
    conditions: dict[str, Condition] = {}
    for name, spec, condition in _entries(parts):
        with checks.inside(f"bounds: parameter {checks.shown(name)}"):
            if checks.text("the name", name) in parameters:
                raise InvalidInput(
                    "there are two of this name; one may be active for several values of its parent."
                )
            if named:
                parameters[name] = _parameter(spec)
            else:
                parameters[name] = _real(spec)
        if condition is not None:
            conditions[name] = condition
    return Meaning(named, parameters, plain_conditions(conditions, parameters))


def _entries(parts: Sequence[Any]) -> Iterator[tuple[Any, Any, Condition | None]]:
    """Yield names, parameters as given, and conditions, of the parts of a space."""
    for part in parts:
        condition = None
        entries = part
        if isinstance(part, When):
            condition = Condition(part.parent, part.values)
            entries = part.parameters
        elif not isinstance(part, Mapping):
            entries = {f"x{i}": pair for i, pair in enumerate(part)}
        for name, spec in entries.items():
            yield name, spec, condition


def _real(pair: Any) -> Parameter:
    """Return the parameter of a pair in a list of bounds."""
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
    """Return the parameter that is meant by an entry of a dict."""
    if isinstance(spec, Parameter):
        return spec
    if isinstance(spec, (list, tuple)) and len(spec) == 2 and all(_is(v, Real) for v in spec):
        return _of_pair(spec)
    if isinstance(spec, list):
        return Choice(spec)
    if isinstance(spec, tuple) and any(isinstance(entry, str) for entry in spec):
        raise InvalidInput(f"a tuple is a range of numbers: write options as a list, {list(spec)}.")
    if isinstance(spec, tuple) and len(spec) == 2:
        return Float(*spec)
    if spec is bool:
        return Choice([False, True])
    if isinstance(spec, When):
        raise InvalidInput(
            "kbo.When stands beside a dict, not in it: [{...}, kbo.When(parent, value, {...})]."
        )
    if isinstance(spec, str) and _RANGE.fullmatch(spec):
        raise InvalidInput(
            f"{spec!r} is a text with one value, and looks like a range: give its ends, (low, high), in a file "
            f"{{kind: Float, low: LOW, high: HIGH}}; if it is one value, kbo.Fixed({spec!r})."
        )
    if spec is None or isinstance(checks.plain(spec), (str, bool, Real)):
        return Fixed(spec)
    advice = ""
    if hasattr(spec, "tolist"):  # arrays of NumPy, tensors, columns of pandas
        advice = " For a list of its values write .tolist()."
    raise InvalidInput(
        "expected kbo.Float, kbo.Int, kbo.Choice, kbo.Ordinal, (low, high), a list of options, bool or a single "
        f"value, got {checks.shown(spec)}.{advice}"
    )


def _of_pair(pair: Any) -> Parameter:
    """Return the range of a pair of numbers; a list, and two neighbouring whole numbers, could be a choice as well."""
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


def _is(value: Any, kind: type) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)
