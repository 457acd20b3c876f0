"""The outcome of a trial: the value and the other measurements that its objective returned, or why it has failed."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from kbo._base import checks
from kbo.optimize.run.events import unfit
from kbo.space import Condition
from kbo.space.parameters import onto_range

OBJECTIVE = "objective"
"""The name of the value of the objective among measurements."""

SEM = "sem"
"""The name of the standard error of that value among measurements."""

_LARGEST_ERROR = 1e100
"""Largest standard error; squares of larger ones would overflow."""

_NO_MEASUREMENT = "there is no measurement of"
"""First words of the reason of a failure where a needed measurement is missing."""

_NO_ENTRY = object()
"""Stands for the value of a dict of measurements without one."""

Returned = float | tuple[float, dict[str, float]] | None
"""A value, or a value with other measurements by name."""


class Outcome(NamedTuple):
    """The value and the measurements of a trial, and the reason if it has failed.

    Attributes:
        value: The value of the objective; None without one.
        measured: The other measurements that are finite numbers, by name.
        failure: The reason why the trial has failed; empty without a failure.
        unusable: Of a trial without a failure: measurements that are no finite numbers, by name.
    """

    value: float | None
    measured: dict[str, float]
    failure: str
    unusable: Mapping[str, Any] = {}

    @property
    def returned(self) -> Returned:
        """Value and measurements, in the form in which an objective returns them."""
        if self.value is None or not self.measured:
            return self.value
        return self.value, self.measured


def outcome_of(
    returned: Any,
    needed: Iterable[str],
    value_range: tuple[float, float] | None = None,
    got: str = "the objective returned",
    main: str = OBJECTIVE,
) -> Outcome:
    """Return the outcome of a trial whose objective has returned.

    Args:
        returned: A number, a pair of a number and a dict of measurements, or a dict of measurements with "objective".
            The measurement "sem" is the standard error of the value.
        needed: Names of the measurements without which the trial has failed. Others may come as well.
        value_range: The least and the largest possible value, if they are declared. A value that is outside by rounding
            only is moved to the end.
        got: The first words of the reason of a failure.
        main: The name of the value in a dict: "objective", or the first of several objectives.
    """
    value, others = _value_and_others(returned, main)
    if main != OBJECTIVE and not isinstance(returned, Mapping) and not _is_pair(returned):
        names = [main, *needed]
        return Outcome(None, {}, f"{got} {checks.shown(returned)} instead of a dict with {names}")
    if main != OBJECTIVE and main in others:
        return Outcome(None, {}, f"{got} {checks.shown(returned)} with two values of {main!r}")
    number = _number(value)
    measured = _numbers(others)
    if measured and (reason := unfit(measured)):
        recordable = {name: measured[name] for name in needed if name in measured}
        return Outcome(number, recordable, f"the measurements cannot be recorded: {reason}")
    if value is _NO_ENTRY:
        reason = f"{got} {checks.shown(returned)} {_without_entry(main)}"
        return Outcome(None, measured, reason)
    if number is None:
        return Outcome(None, measured, f"{got} {_not_a_number(value)}")
    if SEM in others and not _is_standard_error(others[SEM], measured.get(SEM)):
        measured.pop(SEM, None)
        shown = checks.shown(others[SEM])
        reason = f"{got} the standard error {SEM!r} = {shown}: return a number of at least 0"
        return Outcome(number, measured, reason)
    if value_range is not None:
        inside = onto_range(number, *value_range)
        if inside is None:
            reason = f"{got} {number:.6g}, which is outside the value_range {value_range}"
            return Outcome(number, measured, reason)
        number = inside
    if reason := _missing(needed, others, measured):
        return Outcome(number, measured, reason)
    unusable = {
        name: entry for name, entry in others.items() if name not in measured and name != SEM
    }
    return Outcome(number, measured, "", unusable)


def _value_and_others(returned: Any, main: str) -> tuple[Any, dict[str, Any]]:
    """Return the value and, by name, the other measurements that an objective has returned, unchecked.

    The value is ``_NO_ENTRY`` where a dict lacks it.
    """
    if isinstance(returned, Mapping):
        others = {str(name): entry for name, entry in returned.items()}
        return others.pop(main, _NO_ENTRY), others
    if _is_pair(returned):
        value, others = returned
        return value, {str(name): entry for name, entry in others.items()}
    return returned, {}


def _is_pair(returned: Any) -> bool:
    """Return whether an objective has returned a value and a dict of measurements."""
    if not isinstance(returned, (tuple, list)) or len(returned) != 2:
        return False
    return isinstance(returned[1], Mapping)


def _is_standard_error(entry: Any, number: float | None) -> bool:
    """Return whether an entry is a standard error, or says that there is none: None, or NaN (of a single value)."""
    if entry is None or (isinstance(entry, float) and math.isnan(entry)):
        return True
    return number is not None and 0 <= number <= _LARGEST_ERROR


def _missing(
    needed: Iterable[str], others: Mapping[str, Any], measured: Mapping[str, float]
) -> str:
    """Return the reason why a trial lacks a needed measurement; an empty text if it has all."""
    for name in needed:
        if name in measured:
            continue
        if name in others:
            return f"the measurement of {name!r} is {_not_a_number(others[name])}"
        if others:
            return f"{_NO_MEASUREMENT} {name!r}; it came with {sorted(others)}"
        return f"{_NO_MEASUREMENT} {name!r}; return it in a dict beside the others"
    return ""


def lacks_name(failure: str, main: str) -> bool:
    """Return whether a trial has failed because its objective returned nothing under a needed name.

    Args:
        failure: The reason of the failure.
        main: The name of the value in a dict.
    """
    return failure.startswith(_NO_MEASUREMENT) or failure.endswith(_without_entry(main))


def _without_entry(main: str) -> str:
    """Return the last words of the reason of a failure, where a dict lacks the value."""
    return f"without an entry {main!r}"


def _numbers(others: Mapping[str, Any]) -> dict[str, float]:
    """Return the entries that are finite numbers."""
    numbers = {}
    for name, entry in others.items():
        number = _number(entry)
        if number is not None:
            numbers[name] = number
    return numbers


def _number(value: Any) -> float | None:
    """Return a finite number as a float, and None for anything else."""
    if value is None:
        return None
    try:
        number = checks.real(value)
    except Exception:  # a conversion of the caller may raise anything
        return None
    if not math.isfinite(number):
        return None
    return number


def _not_a_number(value: Any) -> str:
    """Return the description of a value that is no finite number."""
    shown = checks.shown(value)
    if value is None:
        return shown
    try:
        is_infinite = not math.isfinite(checks.real(value))
    except Exception:  # as above
        is_infinite = False
    if is_infinite:
        return shown
    if _is_several_numbers(value):
        advice = "for several objectives pass objectives=[...], their names, and return a dict"
        return f"{shown} instead of a number: {advice}"
    return f"{shown} instead of a number"


def _is_several_numbers(value: Any) -> bool:
    if not isinstance(value, (tuple, list)) or len(value) < 2:
        return False
    return all(_number(entry) is not None for entry in value)


def with_condition(failure: str, conditions: Mapping[str, Condition]) -> str:
    """Return the reason of a failure. If the objective read an inactive parameter, it says when this is active."""
    found = re.match(r"KeyError: '(.+?)'", failure)
    if found is None or found[1] not in conditions:
        return failure
    parent, values = conditions[found[1]]
    return f"{failure}; {found[1]} exists only for {parent} = {' or '.join(map(str, values))}"
