"""Results that are known before a run begins, and points to try first."""

from __future__ import annotations

import csv
import logging
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kbo import checks
from kbo.errors import InvalidInput, JournalError
from kbo.files import check_file, reading
from kbo.optimize.constraint import OBJECTIVE, SEM, Outcome, Returned, outcome_of
from kbo.optimize.events import Ask, Tell
from kbo.optimize.journal import read
from kbo.optimize.search.region import Region
from kbo.optimize.table import COLUMNS, option, parsed
from kbo.optimize.trials import Trial
from kbo.space import Params, Space
from kbo.space.parameters import Parameter

log: logging.Logger = logging.getLogger("kbo")

_GOT = "value must be a finite number, got"
_VALUE, _OWN, _OTHER = "value", "params.", "measured."
_TABLE = "Give a table with a column for each parameter and a column 'value'."
_EXPECTED = (
    "evaluated must be a DataFrame with a column 'value', a list of dicts with an entry 'value', a list of pairs "
    "(params, value), or the path of a journal (.jsonl) or table (.csv)"
)


def known_results(
    evaluated: Any,
    space: Space,
    maximize: bool,
    needed: Sequence[str] = (),
    value_range: tuple[float, float] | None = None,
) -> list[tuple[Params, Returned]]:
    """Return parameters, values and other measurements that are known.

    Those that are no points of the space or lack a measurement are left out, with a warning.

    Args:
        evaluated: None; a DataFrame with a column for each parameter ("x0", "x1", ... where the bounds are a list) and
            "value", one for each measurement, and "sem" for standard errors, if there are any, or as by
            ``Result.to_frame``; a list of dicts with such entries; a list of pairs (params, value), where value is what
            an objective returns; or the path of a journal or of a CSV table. Other columns of a table are ignored, with
            a warning.
        space: The search space.
        maximize: Whether larger values are better, which a journal must agree with.
        needed: Names of the measurements that constraints are about.
        value_range: The least and the largest possible value, if they are declared.

    Raises:
        InvalidInput: None of these, a file that cannot be read, or none of the results can be used.
    """
    found: list[tuple[Params, Returned]] = []
    left_out: list[str] = []
    if evaluated is None:
        return found
    others = [name for name in needed if name != OBJECTIVE]
    for place, params, returned in _rows(evaluated, space, maximize, needed):
        try:
            outcome = outcome_of(returned, others, value_range, _GOT)
            if outcome.failure:
                raise InvalidInput(f"{outcome.failure}.")
            found.append((space.canonical(params), outcome.returned))
        except InvalidInput as error:
            left_out.append(f"{place}: {error}")
    if left_out:
        shown = " ".join(left_out[:3]) + f" And {len(left_out) - 3} more." * (len(left_out) > 3)
        if not found:
            source = f" of {evaluated}" if isinstance(evaluated, (str, os.PathLike)) else ""
            raise InvalidInput(f"evaluated: none of the {len(left_out)} results{source} can be used. {shown}")
        log.warning("left out %d of %d known results. %s", len(left_out), len(left_out) + len(found), shown)
    return found


def _rows(evaluated: Any, space: Space, maximize: bool, needed: Sequence[str]) -> Iterator[tuple[str, Any, Any]]:
    """Yield the place of each result, its parameters, and what the objective would return."""
    if isinstance(evaluated, (str, os.PathLike)):
        path = checks.path("evaluated", evaluated)
        if path.suffix != ".csv":
            yield from completed(path, maximize)
            return
        yield from _of_table(*_csv(path, space), space, needed, f"the table {path}")
        return
    if hasattr(evaluated, "columns") and hasattr(evaluated, "to_dict"):  # a DataFrame, of a library that is optional
        rows = [
            (f"row {number}", {key: entry for key, entry in row.items() if not _missing(entry)})
            for number, row in enumerate(evaluated.to_dict("records"))
        ]
        yield from _of_table(list(evaluated.columns), rows, space, needed)
        return
    if isinstance(evaluated, Mapping) or not isinstance(evaluated, Sequence):
        raise InvalidInput(f"{_EXPECTED}, got {checks.shown(evaluated)}.")
    for number, row in enumerate(evaluated):
        if isinstance(row, Mapping):
            names = {key: name for key in row if (name := _measurement(key, space, needed)) is not None}
            measured = {name: row[key] for key, name in names.items()}
            params: Any = {key: row[key] for key in row if key != _VALUE and key not in names}
            if not space.named and set(params) == set(space.parameters):
                params = [params[name] for name in space.parameters]
            yield f"row {number}", params, (row.get(_VALUE), measured)
        elif isinstance(row, (tuple, list)) and len(row) == 2:
            yield f"row {number}", *row
        else:
            raise InvalidInput(f"{_EXPECTED}; row {number} is {checks.shown(row)}.")


def _measurement(key: Any, space: Space, needed: Sequence[str]) -> str | None:
    """Return the name of the measurement that an entry of a row holds: "measured.<name>", "sem", or a needed name."""
    if key in (SEM, *needed) and key not in space.parameters and key != _VALUE:
        return key
    return str(key).removeprefix(_OTHER) if str(key).startswith(_OTHER) and key not in space.parameters else None


def _of_table(
    columns: Sequence[Any],
    rows: Iterable[tuple[str, Mapping[Any, Any]]],
    space: Space,
    needed: Sequence[str],
    source: str = "the table",
) -> Iterator[tuple[str, Any, Any]]:
    """Yield the place of each result in a table, its parameters, and what the objective would return.

    Args:
        columns: The names of the columns. If some are "params.<name>", the other ones are no parameters.
        rows: The place of each row, and its entries by column without those that are missing.
        space: The search space.
        needed: Names of the measurements that constraints are about.
        source: The table, in words.
    """
    if _VALUE not in columns:
        raise InvalidInput(f"{_EXPECTED}; {source} has the columns {checks.shown(list(columns))}.")
    trials = any(str(column).startswith(_OWN) for column in columns)  # as by Result.to_frame
    named = {f"{_OWN * trials}{name}": name for name in space.parameters}
    named = {column: named[column] for column in columns if column in named and (trials or column != _VALUE)}
    others = [column for column in columns if column not in named and column != _VALUE]
    measured = {column: name for column in others if (name := _measurement(column, space, needed)) is not None}
    ignored = [column for column in others if column not in measured and not (trials and column in COLUMNS)]
    if ignored:
        log.warning("evaluated: ignored the columns %s, which are no parameters", checks.shown(ignored, 400))
    for place, row in rows:
        if trials and row.get("status", "complete") != "complete":
            continue
        params: Any = _with_none({name: row[column] for column, name in named.items() if column in row}, space)
        if not space.named and len(params) == space.dimension:
            params = [params[name] for name in space.parameters]
        found = {name: row[column] for column, name in measured.items() if column in row}
        yield place, params, (row.get(_VALUE), found)


def _optional(parameter: Parameter) -> bool:
    """Return whether None is one of the options; a range of numbers is not searched for it."""
    return isinstance(parameter.options, tuple) and None in parameter.options


def _missing(entry: Any) -> bool:
    """Return whether an entry of a DataFrame stands for none."""
    try:
        return entry is None or bool(entry != entry)
    except TypeError:  # of pandas.NA
        return True


def _with_none(params: dict[str, Any], space: Space) -> dict[str, Any]:
    """Return parameters with None for active ones that lack a value and can have it."""
    missing = {name: None for name, p in space.parameters.items() if name not in params and _optional(p)}
    try:
        plain = {name: space.parameters[name].plain(value) for name, value in params.items()}
    except InvalidInput:  # of which the result is refused
        return params
    active = space.active_names(missing | space.constants | plain)
    return params | {name: None for name in missing if name in active}


def _csv(path: Path, space: Space) -> tuple[list[str], list[tuple[str, dict[str, Any]]]]:
    """Return the columns of a CSV file, and the place and the entries of each row, read as the space's parameters."""
    with checks.inside("evaluated"):
        check_file(path, _TABLE)
        with (
            reading(path, "a table (CSV), text in UTF-8", _TABLE),
            open(path, encoding="utf-8-sig", newline="") as file,
        ):
            reader = csv.reader(file, strict=True)
            lines = [(reader.line_num, cells) for cells in reader if cells]
    columns = lines[0][1] if lines else []
    if len(set(columns)) < len(columns):
        raise InvalidInput(f"evaluated: {path} has several columns of one name: {checks.shown(columns)}.")
    for line, cells in lines:
        if len(cells) != len(columns):
            raise InvalidInput(
                f"evaluated: line {line} of {path} has {len(cells)} fields and the first line has {len(columns)}: "
                "correct it, and put fields with a comma in quotes."
            )
    parameters = {f"{start}{name}": p for name, p in space.parameters.items() for start in ("", _OWN)}
    rows = []
    for line, cells in lines[1:]:
        row = {
            column: option(cell, parameters[column]) if column in parameters and column != _VALUE else parsed(cell)
            for column, cell in zip(columns, cells, strict=True)
            if cell  # none for None and for what is missing
        }
        rows.append((f"line {line}", row))
    return columns, rows


def completed(path: Path, maximize: bool) -> Iterator[tuple[str, Any, Any]]:
    """Yield the completed trials of a journal, of whatever space."""
    try:
        header, events = read(path)
    except JournalError as error:
        raise InvalidInput(f"evaluated: {error}") from error
    if header.get("maximize") != maximize:
        raise InvalidInput(f"evaluated: {path} is of a run that {'minimises' if maximize else 'maximises'}.")
    params = {event.number: event.params for event in events if isinstance(event, Ask)}
    for event in events:
        if isinstance(event, Tell):
            yield f"trial {event.number}", params[event.number], (event.value, event.measured)


def unrecorded(results: Sequence[tuple[Params, Returned]], trials: Sequence[Trial]) -> list[tuple[Params, Returned]]:
    """Return the known results that are not among the trials yet.

    Before a run is continued, these are all; and none are those of its own journal.
    """
    recorded = Counter(repr((trial.params, Outcome(trial.value, trial.measured, "").returned)) for trial in trials)
    fresh = []
    for result in results:
        key = repr(result)
        if recorded[key]:
            recorded[key] -= 1
        else:
            fresh.append(result)
    return fresh


def first_points(try_first: Any, space: Space) -> list[dict[str, Any]]:
    """Return for each of the points to try first the context or choices with which its trial begins.

    Args:
        try_first: A list of parameters, or of dicts with some of them (by index where the bounds are a list).
        space: The search space.

    Raises:
        InvalidInput: It is none, or an entry does not fit the space.
    """
    if isinstance(try_first, (str, Mapping)) or not isinstance(try_first, Sequence):
        raise InvalidInput(f"try_first must be a list of dicts of parameters, got {checks.shown(try_first)}.")
    points = []
    for number, params in enumerate(try_first):
        with checks.inside(f"try_first[{number}]"):
            points.append(_point(params, space))
    return points


def _point(params: Any, space: Space) -> dict[str, Any]:
    try:
        point: dict[str, Any] = {"choices": [space.canonical(params)]}
    except InvalidInput:
        if not isinstance(params, Mapping):
            raise
        point = {"context": params}
    Region(space, **point)  # raises unless it fits
    return point


def remaining(points: Sequence[dict[str, Any]], space: Space, trials: Sequence[Trial]) -> list[dict[str, Any]]:
    """Return those of ``first_points`` that no trial has begun with."""
    begun, left = [trial.params for trial in trials if trial.asked], []
    for point in points:
        fits = Region(space, **point).accepts
        found = next((number for number, params in enumerate(begun) if fits(params)), None)
        if found is None:
            left.append(point)
        else:
            del begun[found]
    return left
