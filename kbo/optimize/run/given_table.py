"""Tables with a row for each trial, as users give them: a CSV file or a DataFrame."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kbo._base import checks
from kbo._base.files import check_file, reading
from kbo.errors import InvalidInput
from kbo.optimize.run.outcome import SEM
from kbo.optimize.run.table import COLUMNS, option
from kbo.space import Space
from kbo.space.parameters import Parameter

MEASURED = "measured."
"""Prefix of the columns of measurements."""

_PARAMETERS = ("params.", "params_")
"""Prefixes of the columns of parameters in tables of kbo and of Optuna."""

_BOOKKEEPING = {*COLUMNS, "state", "datetime_start", "datetime_complete", "duration"}
"""Columns of tables of kbo and of Optuna that are neither parameters nor measurements."""

_COMPLETE = ("complete", "completed", "finished", "success", "succeeded")
"""Entries of the column "status" or "state" in rows with a value."""


class GivenTable(NamedTuple):
    """A table with a row for each trial.

    Attributes:
        name: Its name in messages.
        columns: The names of its columns, which differ from each other.
        rows: For each row its place, such as "line 3", and its entries by column, without missing ones.
        is_text: Whether all entries are texts, since the table is a CSV file.
    """

    name: str
    columns: Sequence[Any]
    rows: Sequence[tuple[str, dict[Any, Any]]]
    is_text: bool

    def value(self, entry: Any, parameter: Parameter) -> Any:
        """Return the value of a parameter for an entry; the entry itself if it holds no such value."""
        if isinstance(entry, str) and (self.is_text or entry not in parameter.options):
            return option(entry, parameter)
        return entry


def read_csv(path: Path, advice: str) -> GivenTable:
    """Return the table in a CSV file. Empty cells are missing, and the place of a row is its line.

    The separator is whichever of comma, semicolon and tab is most frequent in the first line. If it is no comma,
    numbers may have a decimal comma, as in 0,5.

    Args:
        path: The file.
        advice: A sentence for the errors about the content that the file should have.

    Raises:
        InvalidInput: The file cannot be read, two columns have the same name, or a line has another number of fields
            than the first one.
    """
    check_file(path, advice)
    with (
        reading(path, "a table (CSV), text in UTF-8", advice),
        open(path, encoding="utf-8-sig", newline="") as file,
    ):
        first_line = file.readline()
        separator = max(",;\t", key=first_line.count)
        file.seek(0)
        reader = csv.reader(file, strict=True, delimiter=separator)
        lines = [(reader.line_num, cells) for cells in reader if cells]
    columns = lines[0][1] if lines else []
    name = f"the table {path}"
    _check_distinct(columns, name)
    rows = []
    for line, cells in lines[1:]:
        if len(cells) != len(columns):
            raise InvalidInput(
                f"line {line} of {path} has {len(cells)} fields and the first line has {len(columns)}: "
                "correct it, and put fields with a comma in quotes."
            )
        if separator != ",":
            cells = [_with_point(cell) for cell in cells]
        entries = {column: cell for column, cell in zip(columns, cells, strict=True) if cell}
        rows.append((f"line {line}", entries))
    return GivenTable(name, columns, rows, is_text=True)


def _with_point(cell: str) -> str:
    """Return a cell, with a point in place of the comma if it is a number with a comma."""
    if re.fullmatch(r"[-+]?\d*,\d+(e[-+]?\d+)?", cell.strip(), re.IGNORECASE):
        return cell.strip().replace(",", ".")
    return cell


def table_of_frame(frame: Any) -> GivenTable:
    """Return the table in a DataFrame. The place of a row is its position, from 0.

    Raises:
        InvalidInput: Two columns have the same name.
    """
    columns = list(frame.columns)
    _check_distinct(columns, "the table")
    rows = []
    for position, row in enumerate(frame.to_dict("records")):
        entries = {column: entry for column, entry in row.items() if not _is_missing(entry)}
        rows.append((f"row {position}", entries))
    return GivenTable("the table", columns, rows, is_text=False)


def _check_distinct(columns: Sequence[Any], name: str) -> None:
    """Raise InvalidInput if two columns have the same name."""
    if len(set(columns)) < len(columns):
        raise InvalidInput(
            f"{name} has several columns of one name: {checks.shown(columns)}. Keep one, or rename the others."
        )


def _is_missing(entry: Any) -> bool:
    """Return True if an entry of a DataFrame is missing: None, NaN or NA."""
    try:
        return entry is None or bool(entry != entry)
    except TypeError:  # pandas.NA has no truth value
        return True
    except ValueError:  # an array
        return False


# Columns


def prefixed_parameters(columns: Sequence[Any]) -> dict[Any, str]:
    """Return, by column, the names of the parameters in columns with a prefix, as kbo and Optuna write them."""
    names = {}
    for column in columns:
        for prefix in _PARAMETERS:
            if str(column).startswith(prefix):
                names[column] = str(column).removeprefix(prefix)
    return names


def measurement_in(column: Any, space: Space, needed: Sequence[str]) -> str | None:
    """Return the name of the measurement in a column ("measured.<name>", "sem" or a needed name); None without one."""
    if column in space.parameters:
        return None
    if column == SEM or column in needed:
        return column
    if str(column).startswith(MEASURED):
        return str(column).removeprefix(MEASURED)
    return None


def is_bookkeeping(column: Any) -> bool:
    """Return whether a column of a table of kbo or Optuna is neither parameter nor measurement, such as a time."""
    return column in _BOOKKEEPING or str(column).startswith("system_attrs_")


# Rows


def unfinished_status(entries: Mapping[Any, Any]) -> str:
    """Return the entry of a row in the column "status" or "state" if it says that there is no value; otherwise ""."""
    for column in ("status", "state"):
        status = str(entries.get(column, "complete"))
        if status.lower() not in _COMPLETE:
            return status
    return ""
