"""Trials in a table with a row for each trial, a DataFrame or a CSV file, for ``kbo.audit``."""

from __future__ import annotations

import io
import math
import numbers
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from kbo._base import checks
from kbo._base.extras import require
from kbo._base.files import reading
from kbo._base.terminal import counted
from kbo.errors import InvalidInput
from kbo.optimize import Optimizer
from kbo.optimize.run.outcome import SEM
from kbo.optimize.run.table import COLUMNS, option, parsed, read_csv
from kbo.report.record import ImportedTrials
from kbo.space import Float, Int, Space
from kbo.space.parameters import Parameter
from kbo.space.table import columns_of, parameter_of

require("a history in a table", "cli", "pandas")

import pandas as pd

_TABLE = "Give a table with a column for each parameter and one of values."

_VALUE_COLUMNS = ("value", "objective", "target", "loss", "score")
"""Names of the column of values, in order of preference, if no name is given."""

_ERROR_COLUMNS = ("measured.sem", "user_attrs_sem", SEM)
"""Names of the column of standard errors."""

_PREFIXES = ("params.", "params_")
"""Prefixes of parameter columns in tables of kbo and of Optuna. In other tables all columns may be parameters."""

_COMPLETE = ("complete", "completed", "finished", "success", "succeeded")
"""Entries of the column "status" or "state" in rows with a value."""

_BOOKKEEPING = {*COLUMNS, "state", "datetime_start", "datetime_complete", "duration"}
"""Columns of tables of kbo and Optuna that are neither parameters nor measurements."""

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


def trials_in_file(path: Path, target: str | None, maximize: bool, bounds: Any) -> ImportedTrials:
    """Return the trials in a CSV file; arguments and errors as for ``trials_of_table``."""
    columns, lines = read_csv(path, _TABLE)
    _check_distinct(columns, path.name)
    rows = [[cells.get(column, "") for column in columns] for _, cells in lines]
    with reading(path, "a table (CSV)", _TABLE):
        text = pd.DataFrame(rows, columns=columns).to_csv(index=False)
        table = pd.read_csv(io.StringIO(text), engine="python", skip_blank_lines=False)
    places = [f"line {line}" for line, _ in lines]
    return trials_of_table(table, path.name, target, maximize, bounds, places)


def trials_of_table(
    table: Any,
    source: str,
    target: str | None,
    maximize: bool,
    bounds: Any,
    places: Sequence[str] | None = None,
) -> ImportedTrials:
    """Return the trials in the rows of a DataFrame that have a value and all parameters.

    Args:
        table: The DataFrame.
        source: The name of the table.
        target: The column of values; None for one of the usual names.
        maximize: Whether larger values are better.
        bounds: The search space; None for the ranges of the rows.
        places: The name of each row in messages; None for "row" and its position from 0.

    Raises:
        InvalidInput: The table lacks a column, or most entries of a column of parameters are numbers and others are
            not.
    """
    table = table.rename(columns=str).reset_index(drop=True)
    if places is None:
        places = [f"row {position}" for position in range(len(table))]
    space = None
    if bounds is not None:
        space = Space(bounds)
    columns = _columns_of(table, source, target, space)
    rows = table[list(columns.parameters)].rename(columns=columns.parameters)
    if space is None:
        _check_numbers(rows, source, places)
    left_out = _incomplete(table, rows, columns.values)
    rows = rows.drop(index=list(left_out))
    if space is None:
        space = Space(_ranges(rows, source))
    missing = [name for name in space.parameters if name not in rows]
    if missing:
        raise InvalidInput(f"{source} has no column {', '.join(missing)}.")

    optimizer = Optimizer(space, maximize=maximize)
    names = _add_rows(optimizer, table, rows, columns, left_out)
    for name in rows:
        if name not in space.parameters:
            columns.unused[name] = "it has one value"
    remark = _remark(columns, left_out, places)
    if bounds is None:
        remark += _about_ranges(space)
    return ImportedTrials(source, "the table", optimizer, names, remark, inferred=bounds is None)


def _remark(columns: _Columns, left_out: Mapping[int, str], places: Sequence[str]) -> str:
    """Return a text on rows and columns of a table that are not used.

    Args:
        columns: The columns of the table.
        left_out: The reason for each row that is left out, by the position of the row.
        places: The name of each row of the table.
    """
    remark = ""
    if left_out:
        first = min(left_out)
        reason = left_out[first].removesuffix(".")
        rows = counted(len(left_out), "row")
        remark += f", {rows} left out (the first is {places[first]}: {reason})"
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


def _add_rows(
    optimizer: Optimizer, table: Any, rows: Any, columns: _Columns, left_out: dict[int, str]
) -> list[Any]:
    """Add rows to an optimiser as trials, and return the trials' names; refused rows are added to ``left_out``."""
    space = optimizer.space
    names = []
    for index, row in zip(rows.index, rows.to_dict("records"), strict=True):
        error = math.nan
        if columns.errors is not None:
            error = table[columns.errors][index]
        params: Any = {name: _value_in(row[name], p) for name, p in space.parameters.items()}
        if not space.named:
            params = list(params.values())
        try:
            optimizer.run.add(
                params, (_number_in(table[columns.values][index]), {SEM: _number_in(error)})
            )
        except InvalidInput as refusal:
            left_out[index] = str(refusal)
            continue
        name = index
        if "number" in table:
            name = table["number"][index]
        names.append(name)
    return names


def _value_in(entry: Any, parameter: Parameter) -> Any:
    """Return the value of a parameter for an entry. A number can be text, if its column also has other texts."""
    if isinstance(entry, str) and entry not in parameter.options:
        return option(entry, parameter)
    return entry


def _number_in(entry: Any) -> Any:
    """Return the number in a text; any other entry is returned unchanged."""
    if isinstance(entry, str):
        return parsed(entry)
    return entry


def _check_numbers(rows: Any, source: str, places: Sequence[str]) -> None:
    """Check that no column of parameters has numbers and a few other entries: these may be typing mistakes.

    Args:
        rows: The columns of parameters.
        source: The name of the table.
        places: The name of each row.

    Raises:
        InvalidInput: Most entries of a column are numbers, and an entry is not.
    """
    for name, column in rows.items():
        entries = column.dropna()
        others = [index for index, entry in entries.items() if not _is_number(_number_in(entry))]
        n_numbers = len(entries) - len(others)
        if others and n_numbers >= _MOST_ARE_NUMBERS * len(entries):
            first = others[0]
            raise InvalidInput(
                f"{source}, column {name}: {n_numbers} of {len(entries)} entries are numbers, and "
                f"{checks.shown(entries[first])} in {places[first]} is not: correct it, or leave the row out. For a "
                "choice of numbers and texts give kbo.audit its bounds."
            )


def _is_number(entry: Any) -> bool:
    """Return whether an entry is a number, and no boolean."""
    return isinstance(entry, numbers.Real) and not isinstance(entry, bool)


def _check_distinct(names: Sequence[str], source: str) -> None:
    """Raise InvalidInput if two columns have the same name."""
    if len(set(names)) < len(names):
        raise InvalidInput(f"{source} has several columns of one name: {checks.shown(names)}.")


def _columns_of(table: Any, source: str, target: str | None, space: Space | None) -> _Columns:
    """Return the columns of a table by role. Without a search space, a column that counts rows is no parameter."""
    names = list(table.columns)
    _check_distinct(names, source)
    values = target
    if values is None:
        values = _value_column(names, source)
    checks.one_of("target", values, names)
    errors = _error_column(names, space)
    roles = (values, errors, "number", "status", "state")
    others = [name for name in names if name not in roles]

    unused = {}
    parameters = _prefixed(names)
    if not parameters:
        for name in others:
            if space is None and _counts_rows(table[name].tolist()):
                unused[name] = "it counts the rows"
            else:
                parameters[name] = name
    if space is not None:
        parameters = {
            column: name for column, name in parameters.items() if name in space.parameters
        }
    for name in others:
        if name not in parameters and not _is_bookkeeping(name):
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


def _prefixed(names: Sequence[str]) -> dict[str, str]:
    """Return the names of the parameters, by column, of the columns with a prefix for parameters."""
    parameters = {}
    for name in names:
        for prefix in _PREFIXES:
            if name.startswith(prefix):
                parameters[name] = name.removeprefix(prefix)
    return parameters


def _incomplete(table: Any, parameters: Any, values: str) -> dict[int, str]:
    """Return, by position, the reason why a row has no value or lacks a parameter.

    Args:
        table: The table.
        parameters: The columns of parameters.
        values: The name of the column of values.
    """
    reasons: dict[int, str] = {}
    for name in ("status", "state"):
        if name in table:
            for index, state in table[name].items():
                if str(state).lower() not in _COMPLETE:
                    reasons.setdefault(index, f"its {name} is {state}")
    for index in table.index[table[values].isna()]:
        reasons.setdefault(index, "it has no value")
    for name in parameters:
        for index in table.index[parameters[name].isna()]:
            reasons.setdefault(index, f"it has no {name}")
    return reasons


def _is_bookkeeping(column: str) -> bool:
    """Return whether a column of a table of kbo or Optuna is neither parameter nor measurement, such as a time."""
    return column in _BOOKKEEPING or column.startswith("system_attrs_")


def _counts_rows(values: Sequence[Any]) -> bool:
    """Return whether the values of a column count the rows of a table."""
    if len(values) < _LEAST_COUNTED or any(type(value) is not int for value in values):
        return False
    return list(values) == list(range(values[0], values[0] + len(values)))


def _ranges(rows: Any, source: str) -> Mapping[str, Any]:
    """Return the parameter of each column of a table; columns with one value are left out."""
    if rows.empty:
        raise InvalidInput(f"{source}: no row has a value and all of {', '.join(rows.columns)}.")
    parameters = {}
    for name, values in columns_of(rows).items():
        if len(set(values)) < 2:
            continue
        parameter = parameter_of(name, values)
        if isinstance(parameter, (Float, Int)):
            log = _is_logarithmic(values)
            parameter = type(parameter)(min(values), max(values), log=log)
        parameters[name] = parameter
    if not parameters:
        raise InvalidInput(f"{source}: no column has two values, so there are no parameters.")
    return parameters


def _is_logarithmic(values: Sequence[Any]) -> bool:
    """Return whether numbers suit a logarithmic scale: they are positive, far apart, and skewed."""
    low = float(min(values))
    middle = float(median(values))
    high = float(max(values))
    if low <= 0 or high < _LOGARITHMIC * low:
        return False
    return middle - low < _SKEWED * (high - low)
