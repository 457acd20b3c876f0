"""Trials as a table: rows, a pandas DataFrame, and files."""

from __future__ import annotations

import json
import os
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
from kbo.optimize.run.trials import Trial
from kbo.space import Float, Int, Params
from kbo.space.parameters import Parameter

if TYPE_CHECKING:
    import pandas as pd
else:
    pd = Lazy("pandas")

FORMS = (".csv", ".json", ".parquet")
"""Kinds of files, by the ends of their names."""

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


def by_name(params: Params) -> dict[str, Any]:
    """Return parameters by name; those of a list are x0, x1, and so on."""
    return (
        params if isinstance(params, dict) else {f"x{i}": value for i, value in enumerate(params)}
    )


def shown(params: Params) -> dict[str, str]:
    """Return parameters as text by name, numbers with four digits."""
    return {
        name: f"{value:.4g}" if isinstance(value, float) else str(value)
        for name, value in by_name(params).items()
    }


def format_params(params: Params) -> str:
    """Format parameters on one line, numbers with four digits."""
    return printable("  ".join(f"{name}={value}" for name, value in shown(params).items()))


def rows(trials: Iterable[Trial]) -> list[dict[str, Any]]:
    """Return a dict for each trial, with times in UTC; unknown values are None.

    Parameters are "params.<name>", and measurements besides the value "measured.<name>".
    """
    return [
        {name: getattr(trial, name) for name in COLUMNS}
        | {"started": _time(trial.started), "finished": _time(trial.finished)}
        | {f"measured.{name}": value for name, value in trial.measured.items()}
        | {f"params.{name}": value for name, value in by_name(trial.params).items()}
        for trial in trials
    ]


def frame(trials: Iterable[Trial]) -> pd.DataFrame:
    """Return the rows of trials as a DataFrame.

    Unknown numbers are NaN and unknown times NaT. Parameters with values of several kinds, or without a value in some
    trials, are columns of Python objects.

    Raises:
        MissingExtra: pandas is not installed.
    """
    require("a table of trials", "cli", "pandas")
    found = rows(trials)
    names = dict.fromkeys((*COLUMNS, *(name for row in found for name in row)))
    values = {name: pd.Series([row.get(name) for row in found], dtype=object) for name in names}
    kinds = {"number": "int64", "value": "float64", "seconds": "float64"}
    kinds |= {name: "float64" for name in names if name.startswith("measured.")}
    kinds |= dict.fromkeys(("started", "finished"), "datetime64[ms, UTC]")
    for name, column in values.items():
        if name in kinds:
            values[name] = column.astype(kinds[name])
        elif not column.isna().any():
            values[name] = column.infer_objects()
    return pd.DataFrame(values)


def text(trials: Iterable[Trial]) -> str:
    """Return the rows of trials as CSV.

    Texts among the parameters that would read as a number, a boolean or None, and those with line ends, are written as
    in JSON, in quotation marks.
    """
    found = frame(trials)
    for name in found:
        if str(name).startswith("params.") and any(isinstance(value, str) for value in found[name]):
            found[name] = pd.Series(map(_cell, found[name]), dtype=object)
    return found.to_csv(index=False)


def _cell(value: Any) -> str:
    """Return the text of a parameter's value in CSV."""
    if not isinstance(value, str):
        return "" if value is None else str(value)
    if (
        value in ("", "True", "False")
        or _is(int, value)
        or _is(float, value)
        or value.startswith('"')
        or not value.isprintable()
    ):
        return json.dumps(value, ensure_ascii=False)
    return value


def _is(kind: type, text: str) -> bool:
    """Return whether a number of a kind is written as a text."""
    try:
        return str(kind(text)) == text
    except ValueError:
        return False


def option(cell: str, parameter: Parameter) -> Any:
    """Return the value of a parameter in a cell of CSV; the text itself if it has no such value."""
    if isinstance(parameter, (Float, Int)):
        return parsed(cell)
    options = list(parameter.options)
    exact = [value for value in options if _cell(value) == cell]
    found = exact or [
        value for value in options if value in (cell, parsed(cell)) or _alike(value, cell)
    ]
    return found[0] if len(found) == 1 else cell


def _alike(value: Any, cell: str) -> bool:
    return not isinstance(value, str) and str(value).lower() == cell.lower()


def parsed(cell: str) -> Any:
    """Return the number in a cell of CSV; the text itself if there is none."""
    try:
        return float(cell)
    except ValueError:
        return cell


def write(trials: Sequence[Trial], path: str | os.PathLike[str], form: str | None = None) -> Path:
    """Write the rows of trials to a file, replacing it in one step.

    Args:
        trials: The trials.
        path: The file.
        form: One of ``FORMS``; by default the end of the name of the file. In Parquet, parameters with values of
            several kinds are text.

    Raises:
        InvalidInput: Another kind of file, or one that cannot be written.
        MissingExtra: pandas or, for Parquet, pyarrow is not installed.
    """
    target = checks.path("path", path)
    if (form or target.suffix) not in FORMS:
        raise InvalidInput(
            f"trials are written to {', '.join(FORMS)} files, got {target}: give it such a name."
        )
    content = _content(trials, form or target.suffix)
    try:
        with replacing(target) as file:
            file.write(content)
    except OSError as error:
        raise InvalidInput(
            f"cannot write {target}: {error.strerror}. Choose a writable place."
        ) from error
    return target


def _content(trials: Sequence[Trial], form: str) -> bytes:
    if form == ".json":
        return json.dumps(rows(trials), indent=1, default=datetime.isoformat).encode()
    if form == ".csv":
        return text(trials).encode()
    require("a Parquet file", "cli", "pyarrow")
    table = frame(trials)
    for name in table:
        if (
            len({type(value) for value in table[name] if value is not None}) > 1
            and table[name].dtype == object
        ):
            table[name] = table[name].map(str, na_action="ignore")
    return table.to_parquet(index=False)


def _time(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
