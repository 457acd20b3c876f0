"""Trials as a table: rows, a pandas DataFrame, and files. ``given_table`` reads tables."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbo._base import checks
from kbo._base.extras import require
from kbo._base.files import replacing
from kbo._base.lazy import Lazy
from kbo._base.terminal import printable
from kbo.errors import InvalidInput
from kbo.optimize.run.outcome import OBJECTIVE
from kbo.optimize.run.trials import Trial, measurements
from kbo.space import Float, Int, Params
from kbo.space.parameters import Parameter

if TYPE_CHECKING:
    import pandas as pd
else:
    pd = Lazy("pandas")

FORMS = (".csv", ".json", ".parquet")
"""Kinds of files, by suffix."""

COLUMNS: tuple[str, ...] = (
    "number",
    "status",
    "value",
    "seconds",
    "started",
    "finished",
    "failure",
)
"""Columns besides parameters and measurements."""


FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""Characters with which a formula begins in a spreadsheet, or which a spreadsheet ignores before one."""


def by_name(params: Params) -> dict[str, Any]:
    """Return parameters as a dict by name; those of a list are named x0, x1, and so on."""
    if isinstance(params, dict):
        return params
    return {f"x{i}": value for i, value in enumerate(params)}


def shown(params: Params) -> dict[str, str]:
    """Return parameters as texts by name; numbers have four digits."""
    texts = {}
    for name, value in by_name(params).items():
        texts[name] = str(value)
        if isinstance(value, float):
            texts[name] = f"{value:.4g}"
    return texts


def format_params(params: Params) -> str:
    """Return parameters on one line; numbers have four digits."""
    return printable("  ".join(f"{name}={value}" for name, value in shown(params).items()))


def heading(main: str) -> str:
    """Return the name of the column of values: "value", or the name of the first of several objectives."""
    if main == OBJECTIVE:
        return "value"
    return main


def _columns(main: str) -> list[str]:
    """Return the columns that are neither parameters nor measurements; with several objectives there is no "value"."""
    return [name for name in COLUMNS if name != "value" or main == OBJECTIVE]


def rows(trials: Iterable[Trial], main: str = OBJECTIVE) -> list[dict[str, Any]]:
    """Return a dict for each trial by the names of the columns, with times in UTC; unknown values are None.

    The columns of parameters are "params.<name>", those of measurements besides the value "measured.<name>".

    Args:
        trials: The trials.
        main: The name of the value of a trial; with several objectives its column is that of a measurement.
    """
    columns = _columns(main)
    table = []
    for trial in trials:
        row = {name: getattr(trial, name) for name in columns}
        row["started"] = _time(trial.started)
        row["finished"] = _time(trial.finished)
        measured = trial.measured
        if main != OBJECTIVE:
            measured = measurements(trial, main)
        for name, value in measured.items():
            row[f"measured.{name}"] = value
        for name, value in by_name(trial.params).items():
            row[f"params.{name}"] = value
        table.append(row)
    return table


def frame(trials: Iterable[Trial], main: str = OBJECTIVE) -> pd.DataFrame:
    """Return the rows of trials as a DataFrame; arguments as for ``rows``.

    Unknown numbers are NaN and unknown times NaT. Parameters with values of several kinds, or without a value in some
    trials, are columns of Python objects.

    Raises:
        MissingExtra: pandas is not installed.
    """
    require("a table of trials", "cli", "pandas")
    table = rows(trials, main)
    names = dict.fromkeys(_columns(main))
    for row in table:
        names |= row
    columns = {}
    for name in names:
        column = pd.Series([row.get(name) for row in table], dtype=object)
        if name == "number":
            column = column.astype("int64")
        elif name in ("value", "seconds") or name.startswith("measured."):
            column = column.astype("float64")
        elif name in ("started", "finished"):
            column = column.astype("datetime64[ms, UTC]")
        elif not column.isna().any():
            column = column.infer_objects()
        columns[name] = column
    return pd.DataFrame(columns)


def text(trials: Iterable[Trial], main: str = OBJECTIVE) -> str:
    """Return the rows of trials as CSV; arguments as for ``rows``.

    Texts among the parameters are written as in JSON, in quotation marks, if they would read as a number, a boolean,
    None or a formula, or have line ends. So are reasons of failures.
    """
    table = frame(trials, main)
    for name in table:
        has_texts = any(isinstance(value, str) for value in table[name])
        if has_texts and (name == "failure" or str(name).startswith("params.")):
            table[name] = pd.Series(map(cell, table[name]), dtype=object)
    return table.to_csv(index=False)


def cell(value: Any) -> str:
    """Return the text of a value in CSV; no spreadsheet takes a text for a formula."""
    if value is None:
        return ""
    if not isinstance(value, str):
        return str(value)
    is_number = _is_text_of(int, value) or _is_text_of(float, value)
    is_literal = is_number or value in ("", "True", "False")
    if is_literal or value.startswith(('"', *FORMULA)) or not value.isprintable():
        return json.dumps(value, ensure_ascii=False)
    return value


def _is_text_of(kind: type, text: str) -> bool:
    """Return True if a text is the way in which a number of a kind is written."""
    try:
        return str(kind(text)) == text
    except ValueError:
        return False


def option(written: str, parameter: Parameter) -> Any:
    """Return the value of a parameter that a cell of CSV holds; the text itself if it holds none."""
    if isinstance(parameter, (Float, Int)):
        return number_in(written)
    options = [value for value in parameter.options if cell(value) == written]
    if not options:
        options = [value for value in parameter.options if _is_nearly(value, written)]
    if len(options) == 1:
        return options[0]
    return written


def _is_nearly(value: Any, cell: str) -> bool:
    """Return True if a cell holds a value as other programs write it, such as 1.0 for 1 and TRUE for True."""
    if value in (cell, number_in(cell)):
        return True
    return not isinstance(value, str) and str(value).lower() == cell.lower()


def number_in(entry: Any) -> Any:
    """Return the number in a text, whole if it is written so; any other entry is returned unchanged."""
    if not isinstance(entry, str):
        return entry
    if re.fullmatch(r"[-+]?[0-9]{1,15}", entry.strip()):
        return int(entry)
    try:
        return float(entry)
    except ValueError:
        return entry


def write(
    trials: Sequence[Trial],
    path: str | os.PathLike[str],
    form: str | None = None,
    main: str = OBJECTIVE,
) -> Path:
    """Write the rows of trials to a file, which is replaced in one step.

    Args:
        trials: The trials.
        path: The file.
        form: One of ``FORMS``; by default the suffix of the path. In Parquet, parameters with values of several kinds
            are text.
        main: As for ``rows``.

    Raises:
        InvalidInput: Another kind of file, or one that cannot be written.
        MissingExtra: pandas or, for Parquet, pyarrow is not installed.
    """
    target = checks.path("path", path)
    form = form or target.suffix
    if form not in FORMS:
        raise InvalidInput(
            f"trials are written to {', '.join(FORMS)} files, got {target}: give it such a name."
        )
    save(_content(trials, form, main), target)
    return target


def save(content: bytes, target: Path) -> None:
    """Write a file, which is replaced in one step.

    Raises:
        InvalidInput: The file cannot be written.
    """
    try:
        with replacing(target) as file:
            file.write(content)
    except OSError as error:
        raise InvalidInput(
            f"cannot write {target}: {error.strerror}. Choose a writable place."
        ) from error


def _content(trials: Sequence[Trial], form: str, main: str) -> bytes:
    """Return the content of a file with the rows of trials, in one of ``FORMS``."""
    if form == ".json":
        table_rows = rows(trials, main)
        return json.dumps(table_rows, indent=1, default=datetime.isoformat).encode()
    if form == ".csv":
        return text(trials, main).encode()
    require("a Parquet file", "cli", "pyarrow")
    table = frame(trials, main)
    for name in table:
        column = table[name]
        kinds = {type(value) for value in column if value is not None}
        if column.dtype == object and len(kinds) > 1:
            table[name] = column.map(str, na_action="ignore")
    return table.to_parquet(index=False)


def _time(seconds: float | None) -> datetime | None:
    """Return the time of a number of seconds since 1970, in UTC."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC)
