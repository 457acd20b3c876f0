"""Tables with a row for each trial."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from kbo._base import checks
from kbo._base.extras import require
from kbo._base.files import reading
from kbo.errors import InvalidInput
from kbo.optimize import Optimizer
from kbo.optimize.run.outcome import SEM
from kbo.optimize.table import COLUMNS
from kbo.report.histories.history import History
from kbo.space import Float, Int, Space
from kbo.space.table import columns_of, parameter_of

require("a history in a table", "cli", "pandas")

import pandas as pd

_TARGETS = ("value", "objective", "target", "loss", "score")
"""Names of the column of values, if none is given."""

_ERRORS = ("measured.sem", "user_attrs_sem", SEM)
"""Names of the column of standard errors."""

_PREFIXES = ("params.", "params_")
"""Prefixes of parameter columns in tables of kbo and of Optuna; in others all columns are parameters."""

_COMPLETE = ("complete", "completed", "finished", "success", "succeeded")
"""States of rows with a value, in a column "status" or "state"."""

_COURSE = {*COLUMNS, "state", "datetime_start", "datetime_complete", "duration"}
"""Columns of tables of kbo and Optuna that are neither parameters nor measurements."""

_LONGEST_LINE = 1_000_000
"""Largest number of characters of the first line of a table."""

_LEAST_COUNTED = 5
"""Number of rows from which on a column that counts them is no parameter."""

_LOGARITHMIC = 100.0
"""Ratio of the largest to the least positive number from which on a scale may be logarithmic."""

_SKEWED = 0.2
"""Part of the range in which half of the numbers of a logarithmic scale are."""


def of_table_file(path: Path, target: str | None, maximize: bool, bounds: Any) -> History:
    """Return the trials of a CSV file; arguments as for ``of_table``."""
    advice = "Give a table with a column for each parameter and one of values."
    with reading(path, "a table (CSV), text in UTF-8", advice):
        table = pd.read_csv(path, sep=_separator(path), engine="python")
    return of_table(table, path.name, target, maximize, bounds)


def _separator(path: Path) -> str:
    """Return the separator of columns: the candidate that is most frequent in the first line.

    pandas would guess it in a time that grows with the square of the length of that line.
    """
    with open(path, encoding="utf-8-sig") as file:
        first = file.readline(_LONGEST_LINE + 1)
    if len(first) > _LONGEST_LINE:
        raise ValueError(f"its first line has more than {_LONGEST_LINE} characters")
    counts = {separator: first.count(separator) for separator in ",;\t|"}
    separator = max(counts, key=counts.__getitem__)
    if counts[separator]:
        return separator
    return " " if " " in first.strip() else ","


def of_table(table: Any, source: str, target: str | None, maximize: bool, bounds: Any) -> History:
    """Return the rows of a DataFrame that have a value and all parameters.

    Args:
        table: The DataFrame.
        source: Its name.
        target: The column of values; None for one of the usual names.
        maximize: Whether larger values are better.
        bounds: The search space; None for the ranges of the rows.
    """
    table = table.rename(columns=str).reset_index(drop=True)
    names = list(table.columns)
    if len(set(names)) < len(names):
        raise InvalidInput(f"{source} has several columns of one name: {checks.shown(names)}.")
    target = _target(names, source) if target is None else checks.one_of("target", target, names)
    given = () if bounds is None else Space(bounds).parameters
    errors = next((name for name in _ERRORS if name in names and name not in given), None)
    not_parameters = (target, errors, "number", "status", "state")
    others = [name for name in names if name not in not_parameters]
    prefixed = _prefixed(names)
    numbered = []  # columns that count the rows
    if bounds is None and not prefixed:
        numbered = [name for name in others if _counts(table[name].tolist())]
    columns = prefixed or {name: name for name in others if name not in numbered}
    if bounds is not None:
        columns = {column: name for column, name in columns.items() if name in given}
    rows = table[list(columns)].rename(columns=columns)
    left_out = _incomplete(table, rows, target)
    rows = rows.drop(index=list(left_out))
    space = Space(_ranges(rows, source) if bounds is None else bounds)
    if missing := [name for name in space.parameters if name not in rows]:
        raise InvalidInput(f"{source} has no column {', '.join(missing)}.")
    optimizer = Optimizer(space, maximize=maximize)
    numbers = []
    for index, row in zip(rows.index, rows.to_dict("records"), strict=True):
        params = {name: row[name] for name in space.parameters}
        error = math.nan if errors is None else table[errors][index]
        try:
            optimizer.run.add(
                params if space.named else list(params.values()),
                (table[target][index], {SEM: error}),
            )
        except InvalidInput as refusal:
            left_out[index] = str(refusal)
            continue
        numbers.append(table["number"][index] if "number" in names else index)
    used = {*columns, *numbered}
    unused = [name for name in others if name not in used and not _is_bookkeeping(name)]
    remark = _rows_left_out(left_out)
    remark += _columns_left_out(
        {
            "no parameter, since it counts the rows": numbered,
            "no parameter, since it has one value": [n for n in rows if n not in space.parameters],
            "left out, since they are no parameters": unused,
        }
    )
    if errors is not None:
        remark += f"; standard errors are in the column {errors}"
    if bounds is None:
        remark += _inferred_ranges(space)
    return History(source, "the table", optimizer, numbers, remark, inferred=bounds is None)


def _target(names: Sequence[str], source: str) -> str:
    """Return the column of values, by the usual names."""
    for name in _TARGETS:
        if name in names:
            return name
    raise InvalidInput(
        f"{source} has the columns {', '.join(names)}: name that of the values (target=, --target)."
    )


def _prefixed(names: Sequence[str]) -> dict[str, str]:
    """Return the parameters of columns with a prefix for parameters, by the columns."""
    found = {}
    for name in names:
        for prefix in _PREFIXES:
            if name.startswith(prefix):
                found[name] = name.removeprefix(prefix)
    return found


def _incomplete(table: Any, parameters: Any, target: str) -> dict[int, str]:
    """Return the reasons why rows have no value or not all parameters, by their positions.

    Args:
        table: The table.
        parameters: Its columns of parameters.
        target: The name of its column of values.
    """
    found: dict[int, str] = {}
    for name in ("status", "state"):
        if name in table:
            for index, state in table[name].items():
                if str(state).lower() not in _COMPLETE:
                    found.setdefault(index, f"its {name} is {state}")
    for index in table.index[table[target].isna()]:
        found.setdefault(index, "it has no value")
    for name in parameters:
        for index in table.index[parameters[name].isna()]:
            found.setdefault(index, f"it has no {name}")
    return found


def _rows_left_out(reasons: Mapping[int, str]) -> str:
    """Return a remark on rows that are left out, with the reason of the first one."""
    if not reasons:
        return ""
    first = min(reasons)
    reason = reasons[first].removesuffix(".")
    return f", {len(reasons)} rows left out (the first is row {first}: {reason})"


def _columns_left_out(columns: Mapping[str, Sequence[str]]) -> str:
    """Return a remark on columns that are left out, by the reasons."""
    remark = ""
    for reason, names in columns.items():
        if names:
            remark += f"; {reason}: {', '.join(names)}"
    return remark


def _inferred_ranges(space: Space) -> str:
    """Return a remark on the ranges of a space that are those of the trials."""
    logarithmic = [name for name, p in space.parameters.items() if getattr(p, "log", False)]
    remark = "; ranges are those of the trials"
    if logarithmic:
        remark += f", logarithmic for {', '.join(logarithmic)}"
    return remark


def _is_bookkeeping(column: str) -> bool:
    """Return whether a column of a table of kbo or Optuna describes the course of its trials."""
    return column in _COURSE or column.startswith("system_attrs_")


def _counts(values: Sequence[Any]) -> bool:
    """Return whether the values of a column count the rows of a table."""
    if len(values) < _LEAST_COUNTED or any(type(value) is not int for value in values):
        return False
    return list(values) == list(range(values[0], values[0] + len(values)))


def _ranges(rows: Any, source: str) -> Mapping[str, Any]:
    """Return the parameters of the columns of a table, constant ones left out."""
    if rows.empty:
        raise InvalidInput(f"{source}: no row has a value and all of {', '.join(rows.columns)}.")
    found = {}
    for name, values in columns_of(rows).items():
        if len(set(values)) < 2:
            continue
        parameter = parameter_of(name, values)
        if isinstance(parameter, (Float, Int)):
            log = _is_logarithmic(values)
            parameter = type(parameter)(min(values), max(values), log=log)
        found[name] = parameter
    if not found:
        raise InvalidInput(f"{source}: no column has two values, so there are no parameters.")
    return found


def _is_logarithmic(values: Sequence[Any]) -> bool:
    """Return whether numbers are on a logarithmic scale: positive, far apart, and skewed."""
    low = float(min(values))
    middle = float(median(values))
    high = float(max(values))
    if low <= 0 or high < _LOGARITHMIC * low:
        return False
    return middle - low < _SKEWED * (high - low)
