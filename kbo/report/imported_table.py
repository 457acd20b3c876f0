"""Trials in a table with a row for each trial, a DataFrame or a CSV file, for ``kbo.audit``."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from kbo._base import checks
from kbo._base.terminal import counted
from kbo.errors import InvalidInput
from kbo.optimize import Optimizer
from kbo.optimize.run.given_table import (
    GivenTable,
    is_bookkeeping,
    prefixed_parameters,
    read_csv,
    table_of_frame,
    unfinished_status,
)
from kbo.optimize.run.outcome import SEM
from kbo.optimize.run.table import number_in
from kbo.report.record import ImportedTrials
from kbo.space import Float, Int, Space
from kbo.space.table import parameter_of

_TABLE = "Give a table with a column for each parameter and one of values."

_VALUE_COLUMNS = ("value", "objective", "target", "loss", "score")
"""Names of the column of values, in order of preference, if no name is given."""

_ERROR_COLUMNS = ("measured.sem", "user_attrs_sem", SEM)
"""Names of the column of standard errors."""

_MISSING = {"NA", "<NA>", "#N/A", "N/A", "n/a", "NaN", "nan", "-nan", "NULL", "null", "None"}
"""Cells of CSV files that other programs write where an entry is missing."""

_MOST_ARE_NUMBERS = 0.75
"""If a column has at least this share of numbers, all entries must be numbers."""

_LEAST_COUNTED = 5
"""In a table of at least this number of rows, a column that counts the rows is no parameter."""

_LOGARITHMIC = 100.0
"""A scale may be logarithmic if the ratio of the largest to the smallest number is at least this."""

_SKEWED = 0.2
"""A scale may be logarithmic if half of the numbers are in this share of the range, from its lower end."""


class _Columns(NamedTuple):
    """The columns of a table.

    Attributes:
        values: The column of values.
        errors: The column of standard errors; None if there is none.
        parameters: The name of the parameter, by its column.
        unused: The reason why another column is not used, by its name.
    """

    values: str
    errors: str | None
    parameters: dict[str, str]
    unused: dict[str, str]


def trials_of_table(
    history: Any, target: str | None, maximize: bool, bounds: Any
) -> ImportedTrials:
    """Return the trials in the rows of a table that have a value and all parameters.

    Args:
        history: The path of a CSV file, or a DataFrame.
        target: The column of values; None for one of the usual names.
        maximize: Whether larger values are better.
        bounds: The search space; None for the ranges of the rows.

    Raises:
        InvalidInput: The table lacks a column, or most entries of a column of parameters are numbers and others are
            not.
    """
    table = _table_of(history)
    space = None
    if bounds is not None:
        space = Space(bounds)
    columns = _columns_of(table, target, space)
    if space is None:
        _check_numbers(table, columns)
    left_out: dict[int, str] = {}
    complete: dict[int, Mapping[str, Any]] = {}
    for position, (_, entries) in enumerate(table.rows):
        reason = _obstacle(entries, columns)
        if reason:
            left_out[position] = reason
        else:
            complete[position] = entries
    if space is None:
        space = _space_of(list(complete.values()), columns, table.name)
    missing = [name for name in space.parameters if name not in columns.parameters.values()]
    if missing:
        raise InvalidInput(f"{table.name} has no column {', '.join(missing)}.")

    optimizer = Optimizer(space, maximize=maximize)
    names = []
    for position, entries in complete.items():
        try:
            _add(optimizer, table, entries, columns)
        except InvalidInput as refusal:
            left_out[position] = str(refusal)
            continue
        names.append(number_in(entries.get("number", position)))
    for name in columns.parameters.values():
        if name not in space.parameters:
            columns.unused[name] = "it has one value"
    remark = _remark(table, columns, left_out)
    if bounds is None:
        remark += _about_ranges(space)
    return ImportedTrials(
        table.name, "the table", optimizer, names, remark, inferred=bounds is None
    )


def _table_of(history: Any) -> GivenTable:
    """Return the table in a CSV file or a DataFrame; columns have texts as names."""
    if not isinstance(history, Path):
        return table_of_frame(history.rename(columns=str))._replace(name="table")
    table = read_csv(history, _TABLE)
    rows = []
    for place, cells in table.rows:
        entries = {column: cell for column, cell in cells.items() if cell not in _MISSING}
        rows.append((place, entries))
    return table._replace(name=history.name, rows=rows)


def _remark(table: GivenTable, columns: _Columns, left_out: Mapping[int, str]) -> str:
    """Return a text on rows and columns of a table that are not used.

    Args:
        table: The table.
        columns: Its columns.
        left_out: The reason for each row that is left out, by its position.
    """
    remark = ""
    if left_out:
        first = min(left_out)
        place, _ = table.rows[first]
        reason = left_out[first].removesuffix(".")
        rows = counted(len(left_out), "row")
        remark += f", {rows} left out (the first is {place}: {reason})"
    if columns.unused:
        unused = [f"{name} ({reason})" for name, reason in columns.unused.items()]
        remark += f"; columns that are not used: {', '.join(unused)}"
    if columns.errors is not None:
        remark += f"; standard errors are in the column {columns.errors}"
    return remark


def _about_ranges(space: Space) -> str:
    """Return the statement that the ranges of a space are those of the trials, and which are logarithmic."""
    logarithmic = [name for name, parameter in space.parameters.items() if parameter.log]
    if not logarithmic:
        return "; ranges are those of the trials"
    return f"; ranges are those of the trials, logarithmic for {', '.join(logarithmic)}"


def _add(
    optimizer: Optimizer, table: GivenTable, entries: Mapping[Any, Any], columns: _Columns
) -> None:
    """Add a row to an optimiser as a trial.

    Raises:
        InvalidInput: The row is outside the search space, or its value is no finite number.
    """
    space = optimizer.space
    by_name = {}
    for column, name in columns.parameters.items():
        if name in space.parameters:
            by_name[name] = table.value(entries[column], space.parameters[name])
    params: Any = {name: by_name[name] for name in space.parameters}
    if not space.named:
        params = list(params.values())
    measured = {SEM: number_in(entries.get(columns.errors))}
    optimizer.run.add(params, (number_in(entries[columns.values]), measured))


def _check_numbers(table: GivenTable, columns: _Columns) -> None:
    """Check that no column of parameters has numbers and a few other entries: these may be typing mistakes.

    Raises:
        InvalidInput: Most entries of a column are numbers, and an entry is not.
    """
    for column, name in columns.parameters.items():
        others = []
        n_entries = 0
        for place, entries in table.rows:
            if column in entries:
                n_entries += 1
                if not _is_number(number_in(entries[column])):
                    others.append((place, entries[column]))
        n_numbers = n_entries - len(others)
        if others and n_numbers >= _MOST_ARE_NUMBERS * n_entries:
            place, entry = others[0]
            raise InvalidInput(
                f"{table.name}, column {name}: {n_numbers} of {n_entries} entries are numbers, and "
                f"{checks.shown(entry)} in {place} is not: correct it, or leave the row out. For a choice of numbers "
                "and texts give kbo.audit its bounds."
            )


def _is_number(entry: Any) -> bool:
    """Return whether an entry is a number, and no boolean."""
    return isinstance(entry, numbers.Real) and not isinstance(entry, bool)


def _columns_of(table: GivenTable, target: str | None, space: Space | None) -> _Columns:
    """Return the columns of a table by role. Without a search space, a column that counts rows is no parameter."""
    names = table.columns
    values = target
    if values is None:
        values = _value_column(names, table.name)
    checks.one_of("target", values, names)
    errors = _error_column(names, space)
    roles = (values, errors, "number", "status", "state")
    others = [name for name in names if name not in roles]

    unused = {}
    parameters = prefixed_parameters(names)
    if not parameters:
        for name in others:
            if space is None and _counts_rows(table, name):
                unused[name] = "it counts the rows"
            else:
                parameters[name] = name
    if space is not None:
        parameters = {
            column: name for column, name in parameters.items() if name in space.parameters
        }
    for name in others:
        if name not in parameters and not is_bookkeeping(name):
            unused.setdefault(name, "it is no parameter")
    return _Columns(values, errors, parameters, unused)


def _value_column(names: Sequence[str], source: str) -> str:
    """Return the column of values, by the usual names.

    Raises:
        InvalidInput: No column has one of the usual names.
    """
    for name in _VALUE_COLUMNS:
        if name in names:
            return name
    raise InvalidInput(
        f"{source} has the columns {checks.shown(names)}: name that of the values (target=, --target)."
    )


def _error_column(names: Sequence[str], space: Space | None) -> str | None:
    """Return the column of standard errors, by the usual names, unless a parameter has this name; otherwise None."""
    for name in _ERROR_COLUMNS:
        if name in names and (space is None or name not in space.parameters):
            return name
    return None


def _obstacle(entries: Mapping[str, Any], columns: _Columns) -> str:
    """Return the reason why a row has no value or lacks a parameter; empty if it has all."""
    status = unfinished_status(entries)
    if status:
        return f"its status is {status}"
    if columns.values not in entries:
        return "it has no value"
    for column, name in columns.parameters.items():
        if column not in entries:
            return f"it has no {name}"
    return ""


def _counts_rows(table: GivenTable, column: str) -> bool:
    """Return whether the entries of a column count the rows of a table."""
    counts = [number_in(entries.get(column)) for _, entries in table.rows]
    if len(counts) < _LEAST_COUNTED or any(type(count) is not int for count in counts):
        return False
    return counts == list(range(counts[0], counts[0] + len(counts)))


def _space_of(rows: Sequence[Mapping[str, Any]], columns: _Columns, source: str) -> Space:
    """Return the space of the ranges of complete rows; columns with one value are left out."""
    if not rows:
        names = ", ".join(columns.parameters.values())
        raise InvalidInput(f"{source}: no row has a value and all of {names}.")
    parameters = {}
    for column, name in columns.parameters.items():
        values = [number_in(entries[column]) for entries in rows]
        if len(set(values)) < 2:
            continue
        parameter = parameter_of(name, values)
        if isinstance(parameter, (Float, Int)):
            log = _is_logarithmic(values)
            parameter = type(parameter)(min(values), max(values), log=log)
        parameters[name] = parameter
    if not parameters:
        raise InvalidInput(f"{source}: no column has two values, so there are no parameters.")
    return Space(parameters)


def _is_logarithmic(values: Sequence[Any]) -> bool:
    """Return whether numbers suit a logarithmic scale: they are positive, far apart, and skewed."""
    low = float(min(values))
    middle = float(median(values))
    high = float(max(values))
    if low <= 0 or high < _LOGARITHMIC * low:
        return False
    return middle - low < _SKEWED * (high - low)
