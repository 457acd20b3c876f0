"""Known results from a table: a DataFrame, or a CSV file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kbo._base import checks
from kbo.errors import InvalidInput
from kbo.optimize.run.outcome import SEM
from kbo.optimize.run.table import COLUMNS, option, parsed, read_csv
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
_PARAMS = "params."
_MEASURED = "measured."
_TABLE = "Give a table with a column for each parameter and a column 'value', or one for each of several objectives."
_EXPECTED = (
    "evaluated must be a DataFrame with a column for each parameter and a column 'value', or one for each of several "
    "objectives, or the path of such a table (.csv) or of a journal (.jsonl)"
)
_CONVERSION = (
    "A list of dicts becomes a table by pandas.DataFrame(rows), a list of pairs by "
    "pandas.DataFrame([{**params, 'value': value} for params, value in pairs]), and a study of Optuna by "
    "study.trials_dataframe(), with its columns renamed"
)


class _Table(NamedTuple):
    """A table of known results.

    Attributes:
        name: Its name in messages.
        columns: The names of its columns.
        rows: For each row its place, such as "line 3", and its entries by column, without missing ones.
    """

    name: str
    columns: Sequence[Any]
    rows: Sequence[tuple[str, dict[Any, Any]]]


def results_of_frame(frame: Any, space: Space, needed: Sequence[str], value: str) -> GivenResults:
    """Return the results in a DataFrame; other arguments as for ``results_of_csv``."""
    if not hasattr(frame, "to_dict") or not hasattr(frame, "columns"):
        raise InvalidInput(f"{_EXPECTED}, got {checks.shown(frame)}. {_CONVERSION}.")
    rows = []
    for number, row in enumerate(frame.to_dict("records")):
        entries = {column: entry for column, entry in row.items() if not _is_missing(entry)}
        rows.append((f"row {number}", entries))
    return _results(_Table("the table", list(frame.columns), rows), space, needed, value)


def results_of_csv(path: Path, space: Space, needed: Sequence[str], value: str) -> GivenResults:
    """Return the results in a CSV file; cells of parameters become values of the space.

    Args:
        path: The file.
        space: The search space.
        needed: Names of the measurements without which a trial has failed.
        value: The name of the column of values, such as "value".

    Raises:
        InvalidInput: The file cannot be read, or a needed column is missing or ambiguous.
    """
    with checks.inside("evaluated"):
        columns, lines = read_csv(path, _TABLE)
    parameters = {}
    for name, parameter in space.parameters.items():
        parameters[f"{_PARAMS}{name}"] = parameter
        if name != value:
            parameters[name] = parameter
    rows = []
    for line, cells in lines:
        entries = {}
        for column, cell in cells.items():
            if column in parameters:
                entries[column] = option(cell, parameters[column])
            else:
                entries[column] = parsed(cell)
        rows.append((f"line {line}", entries))
    return _results(_Table(f"the table {path}", columns, rows), space, needed, value)


def _is_missing(entry: Any) -> bool:
    """Return True if an entry of a DataFrame is missing: None, NaN or NA."""
    try:
        return entry is None or bool(entry != entry)
    except TypeError:  # pandas.NA has no truth value
        return True


def _results(table: _Table, space: Space, needed: Sequence[str], value: str) -> GivenResults:
    """Return the completed trials in a table, and sentences about other rows and about unused columns."""
    columns = _columns_of(table, space, needed, value)
    rows = []
    unfinished: list[str] = []
    for place, entries in table.rows:
        status = str(entries.get("status", "complete")).lower()
        if columns.of_trials and status != "complete":
            unfinished.append(f"{place}: {status}.")
            continue
        params: Any = _with_none(_by_name(entries, columns.parameters), space)
        if not space.named and len(params) == space.dimension:
            params = [params[name] for name in space.parameters]
        measured = _by_name(entries, columns.measured)
        rows.append(Row(place, params, (entries.get(columns.value), measured)))
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
        of_trials: Whether the table is one of ``Result.to_frame``, with parameters in columns "params.<name>".
        value: The column of the values.
        parameters: The name of the parameter in each column that holds one.
        measured: The name of the measurement in each column that holds one.
        unused: The other columns, without those that ``Result.to_frame`` writes.
    """

    of_trials: bool
    value: str
    parameters: dict[Any, str]
    measured: dict[Any, str]
    unused: list[Any]


def _columns_of(table: _Table, space: Space, needed: Sequence[str], value: str) -> _Columns:
    """Return the columns of a table; arguments and errors as for ``results_of_csv``."""
    value = _value_column(table, value)
    of_trials = _has_prefixes(table.columns, space, value)
    parameters = _parameter_columns(table.columns, space, _PARAMS if of_trials else "")
    columns = _Columns(of_trials, value, {}, {}, [])
    for column in table.columns:
        # With a measurement called "seconds" there are the columns "seconds" and "measured.seconds".
        is_of_trial = column in COLUMNS and f"{_MEASURED}{column}" in table.columns
        if column == value or is_of_trial:
            continue
        measurement = measurement_in(column, space, needed)
        if column in parameters:
            columns.parameters[column] = parameters[column]
        elif measurement in columns.measured.values():
            raise InvalidInput(
                f"evaluated: {table.name} has several columns for the measurement {measurement!r}: keep one."
            )
        elif measurement is not None:
            columns.measured[column] = measurement
        elif not of_trials or column not in COLUMNS:
            columns.unused.append(column)
    return columns


def _value_column(table: _Table, value: str) -> str:
    """Return the column of the values: "<value>" or "measured.<value>", where ``value`` is the name of the value.

    Raises:
        InvalidInput: There is no such column, or several columns have the same name.
    """
    with_prefix = f"{_MEASURED}{value}"
    if with_prefix in table.columns and not (value == _VALUE and value in table.columns):
        value = with_prefix
    if len(set(table.columns)) < len(table.columns):
        raise InvalidInput(
            f"evaluated: {table.name} has several columns of one name: {checks.shown(table.columns)}."
        )
    if value not in table.columns:
        raise InvalidInput(
            f"{_EXPECTED}; {table.name} has the columns {checks.shown(table.columns)}. Rename the one with the results "
            f"to {value!r}."
        )
    return value


def _parameter_columns(columns: Sequence[Any], space: Space, prefix: str) -> dict[Any, str]:
    """Return the name of the parameter in each column that may hold one; upper and lower case may differ."""
    names = {f"{prefix}{name}": name for name in space.parameters}
    for name in space.parameters:
        expected = f"{prefix}{name}"
        if expected in columns:
            continue
        for column in columns:
            if str(column).lower() == expected.lower():
                names[column] = name
    return names


def _has_prefixes(columns: Sequence[Any], space: Space, value: str) -> bool:
    """Return True if the parameters are in columns "params.<name>", as those of ``Result.to_frame`` are.

    Raises:
        InvalidInput: They are not, and a parameter has the name of the column of the values.
    """
    for column in columns:
        if str(column).startswith(_PARAMS) and column not in space.parameters:
            return True
    if value in space.parameters and value not in space.constants:
        raise InvalidInput(
            f"evaluated: {value!r} is a parameter, and the name of the values of the objective: write all parameters "
            f"as '{_PARAMS}<name>', such as '{_PARAMS}{value}'."
        )
    return False


def measurement_in(column: Any, space: Space, needed: Sequence[str]) -> str | None:
    """Return the name of the measurement in a column ("measured.<name>", "sem" or a needed name); None without one."""
    if column in space.parameters:
        return None
    if column == SEM or column in needed:
        return column
    if str(column).startswith(_MEASURED):
        return str(column).removeprefix(_MEASURED)
    return None
