"""Known results from a table: a DataFrame, or a CSV file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kbo._base import checks
from kbo.errors import InvalidInput
from kbo.optimize.run.given_table import (
    MEASURED,
    GivenTable,
    is_bookkeeping,
    measurement_in,
    prefixed_parameters,
    read_csv,
    table_of_frame,
    unfinished_status,
)
from kbo.optimize.run.table import number_in
from kbo.space import Space

_EXAMPLES = 3
"""Number of results that a message names."""


class Row(NamedTuple):
    """A known result.

    Attributes:
        place: Its place in the source, such as "row 3".
        params: The parameters: a dict by name, or a list.
        returned: The value and the measurements, as an objective returns them.
    """

    place: str
    params: Any
    returned: Any


class GivenResults(NamedTuple):
    """The results of a table or of a journal.

    Attributes:
        rows: The results with a value.
        left_out: Sentences about the entries that were left out, one for each reason.
    """

    rows: list[Row]
    left_out: list[str]


def examples(entries: Sequence[str]) -> str:
    """Return a text with the first three entries, and the number of the others."""
    shown = " ".join(entries[:_EXAMPLES])
    if len(entries) > _EXAMPLES:
        shown += f" And {len(entries) - _EXAMPLES} more."
    return shown


_VALUE = "value"
_TABLE = "Give a table with a column for each parameter and a column 'value', or one for each of several objectives."
_EXPECTED = (
    "evaluated must be a DataFrame with a column for each parameter and a column 'value', or one for each of several "
    "objectives, or the path of such a table (.csv) or of a journal (.jsonl)"
)
_CONVERSION = (
    "A list of dicts becomes a table by pandas.DataFrame(rows), a list of pairs by "
    "pandas.DataFrame([{**params, 'value': value} for params, value in pairs]), and a study of Optuna by "
    "study.trials_dataframe()"
)


def results_of_table(given: Any, space: Space, needed: Sequence[str], value: str) -> GivenResults:
    """Return the completed trials in a table, and sentences about other rows and about unused columns.

    Args:
        given: A DataFrame, or the path of a CSV file.
        space: The search space.
        needed: Names of the measurements without which a trial has failed.
        value: The name of the column of values, such as "value".

    Raises:
        InvalidInput: The file cannot be read, or a needed column is missing or ambiguous.
    """
    is_frame = hasattr(given, "to_dict") and hasattr(given, "columns")
    if not is_frame and not isinstance(given, Path):
        raise InvalidInput(f"{_EXPECTED}, got {checks.shown(given)}. {_CONVERSION}.")
    with checks.inside("evaluated"):
        if is_frame:
            table = table_of_frame(given)
        else:
            table = read_csv(given, _TABLE)
    columns = _columns_of(table, space, needed, value)
    rows = []
    unfinished: list[str] = []
    for place, entries in table.rows:
        status = unfinished_status(entries)
        if columns.of_trials and status:
            unfinished.append(f"{place}: {status.lower()}.")
            continue
        given = {}
        for name, entry in _by_name(entries, columns.parameters).items():
            given[name] = table.value(entry, space.parameters[name])
        params: Any = _with_none(given, space)
        if not space.named and len(params) == space.dimension:
            params = [params[name] for name in space.parameters]
        measured = {}
        for name, entry in _by_name(entries, columns.measured).items():
            measured[name] = number_in(entry)
        rows.append(Row(place, params, (number_in(entries.get(columns.value)), measured)))
    left_out = []
    if columns.unused:
        left_out.append(
            f"the columns {checks.shown(columns.unused, 400)} of evaluated, which are no parameters"
        )
    if unfinished:
        left_out.append(
            f"{len(unfinished)} trials of evaluated, which have no value. {examples(unfinished)}"
        )
    return GivenResults(rows, left_out)


def _by_name(entries: Mapping[Any, Any], names: Mapping[Any, str]) -> dict[str, Any]:
    """Return the entries of some columns, by the names of the quantities in them."""
    return {name: entries[column] for column, name in names.items() if column in entries}


def _with_none(params: dict[str, Any], space: Space) -> dict[str, Any]:
    """Return parameters with None added where an active parameter has no value and has the option None."""
    missing = {}
    for name, parameter in space.parameters.items():
        options = parameter.options
        if name not in params and isinstance(options, tuple) and None in options:
            missing[name] = None
    try:
        plain = {name: space.plain(name, value) for name, value in params.items()}
    except InvalidInput:  # the result will be refused
        return params
    active = space.active_names(missing | space.constants | plain)
    return params | {name: None for name in missing if name in active}


# Columns


class _Columns(NamedTuple):
    """The columns of a table.

    Attributes:
        of_trials: Whether the table is one of ``Result.to_frame`` or of Optuna, with parameters in columns
            "params.<name>" or "params_<name>".
        value: The column of the values.
        parameters: The name of the parameter in each column that holds one.
        measured: The name of the measurement in each column that holds one.
        unused: The other columns, without those that these tables have for other purposes.
    """

    of_trials: bool
    value: str
    parameters: dict[Any, str]
    measured: dict[Any, str]
    unused: list[Any]


def _columns_of(table: GivenTable, space: Space, needed: Sequence[str], value: str) -> _Columns:
    """Return the columns of a table; arguments and errors as for ``results_of_table``."""
    value = _value_column(table, value)
    parameters = prefixed_parameters(table.columns)
    for name in space.parameters:
        parameters.pop(name, None)  # a parameter whose name begins as a prefix does
    of_trials = bool(parameters)
    if not of_trials:
        _check_value(value, space)
        parameters = {name: name for name in space.parameters}
    columns = _Columns(of_trials, value, {}, {}, [])
    for column in table.columns:
        # With a measurement called "seconds" there are the columns "seconds" and "measured.seconds".
        is_of_trial = is_bookkeeping(column) and f"{MEASURED}{column}" in table.columns
        if column == value or is_of_trial:
            continue
        measurement = measurement_in(column, space, needed)
        if parameters.get(column) in space.parameters:
            columns.parameters[column] = parameters[column]
        elif measurement in columns.measured.values():
            raise InvalidInput(
                f"evaluated: {table.name} has several columns for the measurement {measurement!r}: keep one."
            )
        elif measurement is not None:
            columns.measured[column] = measurement
        elif not of_trials or not is_bookkeeping(column):
            columns.unused.append(column)
    return columns


def _value_column(table: GivenTable, value: str) -> str:
    """Return the column of the values: "<value>" or "measured.<value>", where ``value`` is the name of the value.

    Raises:
        InvalidInput: There is no such column.
    """
    with_prefix = f"{MEASURED}{value}"
    if with_prefix in table.columns and not (value == _VALUE and value in table.columns):
        value = with_prefix
    if value not in table.columns:
        raise InvalidInput(
            f"{_EXPECTED}; {table.name} has the columns {checks.shown(table.columns)}. Rename the one with the results "
            f"to {value!r}."
        )
    return value


def _check_value(value: str, space: Space) -> None:
    """Raise InvalidInput if a parameter has the name of the column of the values, and columns have no prefixes."""
    if value in space.parameters and value not in space.constants:
        raise InvalidInput(
            f"evaluated: {value!r} is a parameter, and the name of the values of the objective: write all parameters "
            f"as 'params.<name>', such as 'params.{value}'."
        )
