"""Results that are known before a run begins, and points to try first."""

from __future__ import annotations

import csv
import logging
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kbo._base import checks
from kbo._base.files import check_file, reading
from kbo.errors import InvalidInput, JournalError
from kbo.optimize.run.events import Ask, Fail, Prune, Tell
from kbo.optimize.run.journal import read
from kbo.optimize.run.outcome import OBJECTIVE, SEM, Outcome, Returned, outcome_of
from kbo.optimize.run.trials import Trial
from kbo.optimize.search.subspace import Subspace
from kbo.optimize.table import COLUMNS, option, parsed
from kbo.space import Params, Space
from kbo.space.parameters import Parameter

log: logging.Logger = logging.getLogger("kbo")

_EXAMPLES = 3
"""Results that are named of those that are left out."""

_GOT = "value must be a finite number, got"
_VALUE, _OWN, _OTHER = "value", "params.", "measured."
_TABLE = "Give a table with a column for each parameter and a column 'value'."
_EXPECTED = (
    "evaluated must be a DataFrame with a column 'value', a list of dicts with an entry 'value', a list of pairs "
    "(params, value), or the path of a journal (.jsonl) or table (.csv)"
)


class Known(NamedTuple):
    """Known results.

    Attributes:
        results: Parameters, with the value and other measurements.
        left_out: Sentences about what was given and is not used, one for each reason, with numbers and examples.
    """

    results: list[tuple[Params, Returned]]
    left_out: list[str]


def known_results(
    evaluated: Any,
    space: Space,
    maximize: bool,
    needed: Sequence[str] = (),
    value_range: tuple[float, float] | None = None,
) -> Known:
    """Return parameters, values and other measurements that are known, and what was left out.

    Results that are no points of the space or lack a measurement are left out. A warning says so, as of trials without
    a value and of columns that are no parameters.

    Args:
        evaluated: None; a DataFrame with a column for each parameter ("x0", "x1", ... where the bounds are a list) and
            "value", one for each measurement, and "sem" for standard errors, if there are any, or as by
            ``Result.to_frame``; a list of dicts with such entries; a list of pairs (params, value), where value is what
            an objective returns; or the path of a journal or of a CSV table. A parameter that is called "value" is
            "params.value" in a table and in dicts, and so are all others then. Other columns of a table are left out.
        space: The search space.
        maximize: Whether larger values are better, which a journal must agree with.
        needed: Names of the measurements that constraints are about.
        value_range: The least and the largest possible value, if they are declared.

    Raises:
        InvalidInput: None of these, a file that cannot be read, or none of the results can be used.
    """
    results: list[tuple[Params, Returned]] = []
    left_out: list[str] = []
    if evaluated is None:
        return Known(results, left_out)
    others = [name for name in needed if name != OBJECTIVE]
    unusable: list[str] = []
    violating: list[str] = []
    for place, params, returned in _rows(evaluated, space, maximize, needed, left_out):
        try:
            outcome = outcome_of(returned, others, value_range, _GOT)
            if outcome.failure:
                raise InvalidInput(f"{outcome.failure}.")
            results.append((space.canonical(params), outcome.returned))
        except InvalidInput as error:
            unusable.append(f"{place}: {error}")
            continue
        violated = space.violated(results[-1][0])
        if violated:
            violating.append(f"{place}: {', '.join(violated)}.")
    n_rows = len(results) + len(unusable)
    if unusable and not results:
        source = f" of {evaluated}" if isinstance(evaluated, (str, os.PathLike)) else ""
        raise InvalidInput(
            f"evaluated: none of the {n_rows} results{source} can be used. {_examples(unusable)}"
        )
    if unusable:
        left_out.append(f"{len(unusable)} of {n_rows} known results. {_examples(unusable)}")
    if violating:
        left_out.append(
            f"{len(violating)} of {n_rows} known results of what may be recommended, since they violate constraints. "
            f"{_examples(violating)}"
        )
    for reason in left_out:
        log.warning("left out %s", reason)
    return Known(results, left_out)


def _examples(entries: Sequence[str]) -> str:
    """Return the first three entries in one text, and the number of the others."""
    shown = " ".join(entries[:_EXAMPLES])
    if len(entries) > _EXAMPLES:
        shown += f" And {len(entries) - _EXAMPLES} more."
    return shown


def _rows(
    evaluated: Any, space: Space, maximize: bool, needed: Sequence[str], left_out: list[str]
) -> Iterator[tuple[str, Any, Any]]:
    """Yield the place of each result, its parameters, and what the objective would return.

    What is no result is added to ``left_out``.
    """
    if isinstance(evaluated, (str, os.PathLike)):
        path = checks.path("evaluated", evaluated)
        if path.suffix != ".csv":
            yield from completed(path, maximize, left_out)
            return
        yield from _of_table(*_csv(path, space), space, needed, left_out, f"the table {path}")
        return
    if hasattr(evaluated, "columns") and hasattr(
        evaluated, "to_dict"
    ):  # a DataFrame, of a library that is optional
        columns = list(evaluated.columns)
        if len(set(columns)) < len(columns):
            raise InvalidInput(
                f"evaluated: the table has several columns of one name: {checks.shown(columns)}."
            )
        rows = [
            (f"row {number}", {key: entry for key, entry in row.items() if not _missing(entry)})
            for number, row in enumerate(evaluated.to_dict("records"))
        ]
        yield from _of_table(columns, rows, space, needed, left_out)
        return
    if isinstance(evaluated, Mapping) or not isinstance(evaluated, Sequence):
        raise InvalidInput(f"{_EXPECTED}, got {checks.shown(evaluated)}.")
    for number, row in enumerate(evaluated):
        if isinstance(row, Mapping):
            yield f"row {number}", *_of_dict(row, space, needed)
        elif isinstance(row, (tuple, list)) and len(row) == 2:
            yield f"row {number}", *row
        else:
            raise InvalidInput(f"{_EXPECTED}; row {number} is {checks.shown(row)}.")


def _measurement(key: Any, space: Space, needed: Sequence[str]) -> str | None:
    """Return the name of the measurement that an entry of a row holds: "measured.<name>", "sem", or a needed name."""
    if key in (SEM, *needed) and key not in space.parameters and key != _VALUE:
        return key
    return (
        str(key).removeprefix(_OTHER)
        if str(key).startswith(_OTHER) and key not in space.parameters
        else None
    )


def _prefixed(keys: Iterable[Any], space: Space) -> bool:
    """Return whether the parameters of a table or dict are its entries "params.<name>", as by ``Result.to_frame``.

    Raises:
        InvalidInput: They are not, and a parameter has the name of the entry of the values.
    """
    if any(str(key).startswith(_OWN) and key not in space.parameters for key in keys):
        return True
    if _VALUE in space.parameters and _VALUE not in space.constants:
        raise InvalidInput(
            f"evaluated: {_VALUE!r} is a parameter, and the name of the values of the objective: write all parameters "
            f"as '{_OWN}<name>', such as '{_OWN}{_VALUE}', or give pairs (params, value)."
        )
    return False


def _of_dict(row: Mapping[Any, Any], space: Space, needed: Sequence[str]) -> tuple[Any, Any]:
    """Return the parameters in an entry of a list of dicts, and what the objective would return."""
    prefixed = _prefixed(row, space)
    measured: dict[str, Any] = {}
    params: Any = {}
    for key, entry in row.items():
        name = _measurement(key, space, needed)
        if name is not None:
            measured[name] = entry
        elif key != _VALUE:
            params[str(key).removeprefix(_OWN) if prefixed else key] = entry
    if not space.named and set(params) == set(space.parameters):
        params = [params[name] for name in space.parameters]
    return params, (row.get(_VALUE), measured)


def _of_table(
    columns: Sequence[Any],
    rows: Iterable[tuple[str, Mapping[Any, Any]]],
    space: Space,
    needed: Sequence[str],
    left_out: list[str],
    source: str = "the table",
) -> Iterator[tuple[str, Any, Any]]:
    """Yield the place of each result in a table, its parameters, and what the objective would return.

    Args:
        columns: The names of the columns. If some are "params.<name>", the other ones are no parameters.
        rows: The place of each row, and its entries by column without those that are missing.
        space: The search space.
        needed: Names of the measurements that constraints are about.
        left_out: What is no result is added here.
        source: The table, in words.
    """
    if _VALUE not in columns:
        raise InvalidInput(f"{_EXPECTED}; {source} has the columns {checks.shown(list(columns))}.")
    trials = _prefixed(columns, space)
    prefix = _OWN if trials else ""
    named = {f"{prefix}{name}": name for name in space.parameters}
    named = {column: named[column] for column in columns if column in named and column != _VALUE}
    others = [column for column in columns if column not in named and column != _VALUE]
    measured = {
        column: name
        for column in others
        if (name := _measurement(column, space, needed)) is not None
    }
    twice = [name for name, count in Counter(measured.values()).items() if count > 1]
    if twice:
        raise InvalidInput(
            f"evaluated: {source} has several columns for the measurement {twice[0]!r}: keep one."
        )
    ignored = [
        column for column in others if column not in measured and not (trials and column in COLUMNS)
    ]
    if ignored:
        left_out.append(
            f"the columns {checks.shown(ignored, 400)} of evaluated, which are no parameters"
        )
    without: list[str] = []
    for place, row in rows:
        status = str(row.get("status", "complete")).lower() if trials else "complete"
        if status != "complete":
            without.append(f"{place}: {status}.")
            continue
        params: Any = _with_none(
            {name: row[column] for column, name in named.items() if column in row}, space
        )
        if not space.named and len(params) == space.dimension:
            params = [params[name] for name in space.parameters]
        found = {name: row[column] for column, name in measured.items() if column in row}
        yield place, params, (row.get(_VALUE), found)
    if without:
        left_out.append(
            f"{len(without)} trials of evaluated, which have no value. {_examples(without)}"
        )


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
    missing = {
        name: None for name, p in space.parameters.items() if name not in params and _optional(p)
    }
    try:
        plain = {name: space.plain(name, value) for name, value in params.items()}
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
        raise InvalidInput(
            f"evaluated: {path} has several columns of one name: {checks.shown(columns)}."
        )
    for line, cells in lines:
        if len(cells) != len(columns):
            raise InvalidInput(
                f"evaluated: line {line} of {path} has {len(cells)} fields and the first line has {len(columns)}: "
                "correct it, and put fields with a comma in quotes."
            )
    parameters = {
        f"{start}{name}": p for name, p in space.parameters.items() for start in ("", _OWN)
    }
    rows = []
    for line, cells in lines[1:]:
        row = {
            column: option(cell, parameters[column])
            if column in parameters and column != _VALUE
            else parsed(cell)
            for column, cell in zip(columns, cells, strict=True)
            if cell  # none for None and for what is missing
        }
        rows.append((f"line {line}", row))
    return columns, rows


def completed(path: Path, maximize: bool, left_out: list[str]) -> Iterator[tuple[str, Any, Any]]:
    """Yield the completed trials of a journal, of whatever space; others are counted in a text in ``left_out``."""
    try:
        header, events = read(path)
    except JournalError as error:
        raise InvalidInput(f"evaluated: {error}") from error
    if header.get("maximize") != maximize:
        raise InvalidInput(
            f"evaluated: {path} is of a run that {'minimises' if maximize else 'maximises'}."
        )
    params = {}
    without = {}
    for event in events:
        if isinstance(event, Ask):
            params[event.number] = event.params
            without[event.number] = "pending"
        elif isinstance(event, Fail):
            without[event.number] = "failed"
        elif isinstance(event, Prune):
            without[event.number] = "stopped early"
        elif isinstance(event, Tell):
            del without[event.number]
            yield f"trial {event.number}", params[event.number], (event.value, event.measured)
    if without:
        reasons = [f"Trial {number}: {status}." for number, status in without.items()]
        left_out.append(
            f"{len(without)} trials of {path}, which have no value. {_examples(reasons)}"
        )


def unrecorded(
    results: Sequence[tuple[Params, Returned]], trials: Sequence[Trial]
) -> list[tuple[Params, Returned]]:
    """Return the known results that are not among the trials yet.

    Before a run is continued, these are all; and none are those of its own journal.
    """
    # A known result with the parameters and values of a trial is that trial.
    recorded = Counter(
        repr((trial.params, Outcome(trial.value, trial.measured, "").returned)) for trial in trials
    )
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
        raise InvalidInput(
            f"try_first must be a list of dicts of parameters, got {checks.shown(try_first)}."
        )
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
    Subspace(space, **point)  # raises unless it fits
    return point


def remaining(
    points: Sequence[dict[str, Any]], space: Space, trials: Sequence[Trial]
) -> list[dict[str, Any]]:
    """Return those of ``first_points`` that no trial has begun with."""
    begun, left = [trial.params for trial in trials if trial.asked], []
    for point in points:
        fits = Subspace(space, **point).accepts
        found = next((number for number, params in enumerate(begun) if fits(params)), None)
        if found is None:
            left.append(point)
        else:
            del begun[found]
    return left
