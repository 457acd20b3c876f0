"""Results that are known before a run begins, and points to try first."""

from __future__ import annotations

import contextlib
import difflib
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kbo._base import checks
from kbo.errors import InvalidInput, JournalError
from kbo.optimize.objectives.objective import Objective, main_of, recorded_objectives
from kbo.optimize.run.events import Ask, Change, Correct, Fail, Prune, Remove, Tell
from kbo.optimize.run.journal import read
from kbo.optimize.run.outcome import OBJECTIVE, SEM, Returned, outcome_of
from kbo.optimize.run.table import COLUMNS, heading, option, parsed, read_csv
from kbo.optimize.run.trials import Trial
from kbo.optimize.search.subspace import Subspace
from kbo.space import Params, Space

log: logging.Logger = logging.getLogger("kbo")

_EXAMPLES = 3
"""Results that are named of those that are left out."""

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


_NARROW_LATER = (
    " To learn from results outside of the ranges, give ranges that contain them first, with the results, and the "
    "narrower ones afterwards as a change of the space."
)

Row = tuple[str, Any, Any]
"""Place of a result in its source, its parameters, and the value that the objective would return."""


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
    objectives: Sequence[Objective] = (),
    was: Mapping[str, Any] | None = None,
) -> Known:
    """Return parameters, values and other measurements that are known, and what was left out.

    Results that are no points of the space or lack a measurement are left out. A warning says so, as of trials without
    a value and of columns that are no parameters.

    Args:
        evaluated: None; a DataFrame with a column for each parameter ("x0", "x1", ... where the bounds are a list) and
            "value", one for each measurement, and "sem" for standard errors, if there are any, or as by
            ``Result.to_frame``; the path of such a table as CSV; or the path of a journal. A parameter that is called
            "value" has the column "params.value", and so have all others then. Other columns are left out. Each of
            several objectives has a column of its name, or "measured.<name>", in place of "value".
        space: The search space.
        maximize: Whether larger values are better, which a journal must agree with.
        needed: Names of the measurements that constraints are about.
        value_range: The least and the largest possible value, if they are declared.
        objectives: Several objectives, which a journal must have, too.
        was: Values of parameters in the results that lack them, by name.

    Raises:
        InvalidInput: None of these, a file that cannot be read, or none of the results can be used.
    """
    if evaluated is None:
        return Known([], [])
    left_out: list[str] = []
    source = ""
    value = heading(main_of(objectives))
    needed = [*needed, *(objective.name for objective in objectives[1:])]
    if isinstance(evaluated, (str, os.PathLike)):
        path = checks.path("evaluated", evaluated)
        source = f" of {evaluated}"
        if path.suffix == ".csv":
            rows = _of_table(_of_csv(path, space, value), space, needed, left_out, value)
        else:
            rows = _completed(path, maximize, objectives, left_out)
    else:
        rows = _of_table(_of_frame(evaluated), space, needed, left_out, value)
    values = checks.instance("was", {} if was is None else was, Mapping)
    completed = []
    for place, given, returned in rows:
        params = given
        if isinstance(given, dict):
            params = {**values, **given}
        completed.append((place, params, returned))
    return _usable(completed, left_out, space, needed, value_range, value, source)


def _usable(
    rows: Sequence[Row],
    left_out: Sequence[str],
    space: Space,
    needed: Sequence[str],
    value_range: tuple[float, float] | None,
    value: str,
    source: str = "",
) -> Known:
    """Return the results among rows that are points of a space and have the measurements that constraints need.

    Args:
        rows: The rows.
        left_out: Sentences about what was left out before; a warning names each of them as well.
        space: The search space.
        needed: Names of the measurements that constraints are about.
        value_range: The least and the largest possible value, if they are declared.
        value: The name of the value.
        source: The origin of the rows, for the error message.

    Raises:
        InvalidInput: None of the rows can be used.
    """
    results: list[tuple[Params, Returned]] = []
    left_out = list(left_out)
    measurements = [name for name in needed if name != OBJECTIVE]
    got = f"{value} must be a finite number, got"
    unusable: list[str] = []
    advice = ""
    violating: list[str] = []
    for place, given, returned in rows:
        try:
            outcome = outcome_of(returned, measurements, value_range, got)
            if outcome.failure:
                raise InvalidInput(f"{outcome.failure}.")
            params = space.canonical(given)
        except InvalidInput as error:
            unusable.append(f"{place}: {error}")
            if _has_place(space, given):
                advice = _NARROW_LATER
            continue
        results.append((params, outcome.returned))
        violated = space.violated(params)
        if violated:
            violating.append(f"{place}: {', '.join(violated)}.")
    if unusable and not results:
        raise InvalidInput(
            f"evaluated: none of the {len(rows)} results{source} can be used. {_examples(unusable)}{advice}"
        )
    if unusable:
        left_out.append(
            f"{len(unusable)} of {len(rows)} known results. {_examples(unusable)}{advice}"
        )
    if violating:
        left_out.append(
            f"{len(violating)} of {len(rows)} known results of what may be recommended, since they violate "
            f"constraints. {_examples(violating)}"
        )
    for reason in left_out:
        log.warning("left out %s", reason)
    return Known(results, left_out)


def _has_place(space: Space, given: Any) -> bool:
    """Return whether a model of a space can learn from parameters, also outside of its ranges."""
    with contextlib.suppress(InvalidInput):
        return space.carried(given) is not None
    return False


def _examples(entries: Sequence[str]) -> str:
    """Return the first three entries in one text, and the number of the others."""
    shown = " ".join(entries[:_EXAMPLES])
    if len(entries) > _EXAMPLES:
        shown += f" And {len(entries) - _EXAMPLES} more."
    return shown


class _Table(NamedTuple):
    """A table as it was given.

    Attributes:
        name: Its name in messages.
        columns: The names of its columns.
        rows: The place of each row, and its entries by column, without missing ones.
    """

    name: str
    columns: Sequence[Any]
    rows: Iterable[tuple[str, dict[Any, Any]]]


def _of_frame(frame: Any) -> _Table:
    """Return the table in a DataFrame."""
    if not hasattr(frame, "to_dict") or not hasattr(frame, "columns"):
        raise InvalidInput(f"{_EXPECTED}, got {checks.shown(frame)}. {_CONVERSION}.")
    return _Table("the table", list(frame.columns), _rows_of(frame))


def _rows_of(frame: Any) -> Iterator[tuple[str, dict[Any, Any]]]:
    """Yield the place of each row of a DataFrame, and its entries by column."""
    for number, row in enumerate(frame.to_dict("records")):
        entries = {column: entry for column, entry in row.items() if not _is_missing(entry)}
        yield f"row {number}", entries


def _is_missing(entry: Any) -> bool:
    """Return True if an entry of a DataFrame stands for none."""
    try:
        return entry is None or bool(entry != entry)
    except TypeError:  # of pandas.NA
        return True


def _of_csv(path: Path, space: Space, value: str) -> _Table:
    """Return the table in a CSV file, with the entries of parameters as values of the space."""
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
    return _Table(f"the table {path}", columns, rows)


class _Columns(NamedTuple):
    """The columns of a table.

    Attributes:
        of_trials: Whether the table is as by ``Result.to_frame``, with parameters in columns "params.<name>".
        value: The column of the values.
        parameters: The name of the parameter in each column of one.
        measured: The name of the measurement in each column of one.
    """

    of_trials: bool
    value: str
    parameters: dict[Any, str]
    measured: dict[Any, str]


def _columns_of(
    table: _Table, space: Space, needed: Sequence[str], left_out: list[str], value: str
) -> _Columns:
    """Return the columns of a table; a sentence about those that are not used is added to ``left_out``."""
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
    of_trials = _has_prefixes(table.columns, space, value)
    prefix = _PARAMS if of_trials else ""
    names = {f"{prefix}{name}": name for name in space.parameters}
    for name in space.parameters:
        own = f"{prefix}{name}"
        if own in table.columns:
            continue
        for column in table.columns:  # such as "Temperature"
            if str(column).lower() == own.lower():
                names[column] = name
    columns = _Columns(of_trials, value, {}, {})
    unused = []
    for column in table.columns:
        is_course = column in COLUMNS and f"{_MEASURED}{column}" in table.columns
        if column == value or is_course:
            continue
        measurement = measurement_in(column, space, needed)
        if column in names:
            columns.parameters[column] = names[column]
        elif measurement in columns.measured.values():
            raise InvalidInput(
                f"evaluated: {table.name} has several columns for the measurement {measurement!r}: keep one."
            )
        elif measurement is not None:
            columns.measured[column] = measurement
        elif not of_trials or column not in COLUMNS:
            unused.append(column)
    if unused:
        left_out.append(
            f"the columns {checks.shown(unused, 400)} of evaluated, which are no parameters"
        )
    return columns


def _has_prefixes(columns: Sequence[Any], space: Space, value: str) -> bool:
    """Return True if the columns of parameters are "params.<name>", as by ``Result.to_frame``.

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
    """Return the name of the measurement in a column: "measured.<name>", "sem", or a needed name."""
    if column in space.parameters:
        return None
    if column == SEM or column in needed:
        return column
    if str(column).startswith(_MEASURED):
        return str(column).removeprefix(_MEASURED)
    return None


def _of_table(
    table: _Table, space: Space, needed: Sequence[str], left_out: list[str], value: str
) -> Iterator[Row]:
    """Yield the rows of a table that have a value; sentences about the others are added to ``left_out``."""
    columns = _columns_of(table, space, needed, left_out, value)
    unfinished: list[str] = []
    for place, entries in table.rows:
        status = str(entries.get("status", "complete")).lower()
        if columns.of_trials and status != "complete":
            unfinished.append(f"{place}: {status}.")
            continue
        params: Any = _with_none(_selected(entries, columns.parameters), space)
        if not space.named and len(params) == space.dimension:
            params = [params[name] for name in space.parameters]
        yield place, params, (entries.get(columns.value), _selected(entries, columns.measured))
    if unfinished:
        left_out.append(
            f"{len(unfinished)} trials of evaluated, which have no value. {_examples(unfinished)}"
        )


def _selected(entries: Mapping[Any, Any], names: Mapping[Any, str]) -> dict[str, Any]:
    """Return the entries of some columns by the names of these."""
    return {name: entries[column] for column, name in names.items() if column in entries}


def _with_none(params: dict[str, Any], space: Space) -> dict[str, Any]:
    """Return parameters with None for active ones that lack a value and have the option None."""
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


def _completed(
    path: Path, maximize: bool, objectives: Sequence[Objective], left_out: list[str]
) -> Iterator[Row]:
    """Yield the completed trials of a journal, of whatever space; others are counted in a text in ``left_out``.

    Corrected ones have their last value, and parameters that came later the value that they had before.
    """
    try:
        header, events = read(path)
    except JournalError as error:
        raise InvalidInput(f"evaluated: {error}") from error
    recorded = recorded_objectives(header)
    if _directions(recorded) != _directions(objectives):
        texts = ", ".join(map(str, recorded)) or "one objective"
        raise InvalidInput(f"evaluated: {path} is of a run with other objectives: {texts}.")
    if not objectives and header.get("maximize") != maximize:
        raise InvalidInput(
            f"evaluated: {path} is of a run that {'minimises' if maximize else 'maximises'}."
        )
    params: dict[int, Params] = {}
    returned = {}  # by number
    unfinished = {}  # status by number
    for event in events:
        if isinstance(event, Ask):
            params[event.number] = event.params
            unfinished[event.number] = "pending"
        elif isinstance(event, Change):
            for number, earlier in params.items():
                if isinstance(earlier, dict):
                    params[number] = {**event.was, **earlier}
        elif isinstance(event, Fail):
            unfinished[event.number] = "failed"
        elif isinstance(event, Prune):
            unfinished[event.number] = "stopped early"
        elif isinstance(event, Remove):
            unfinished[event.number] = "removed"
            returned.pop(event.number, None)
        elif isinstance(event, Tell | Correct):
            unfinished.pop(event.number, None)
            returned[event.number] = (event.value, event.measured)
    for number, (value, measured) in returned.items():
        if recorded:  # perhaps in another order
            measured = {main_of(recorded): value, **measured}
            value = measured.pop(main_of(objectives))
        yield f"trial {number}", params[number], (value, measured)
    if unfinished:
        trials = [f"Trial {number}: {status}." for number, status in unfinished.items()]
        left_out.append(
            f"{len(unfinished)} trials of {path}, which have no value. {_examples(trials)}"
        )


def _directions(objectives: Sequence[Objective]) -> dict[str, bool]:
    """Return whether each of several objectives is maximised, by its name."""
    return {objective.name: objective.maximize for objective in objectives}


def unrecorded(
    results: Sequence[tuple[Params, Returned]], trials: Sequence[Trial]
) -> list[tuple[Params, Returned]]:
    """Return the known results that are not among the trials yet, as they are or as they were before a correction.

    Before a run is continued, these are all; and none are those of its own journal.
    """
    by_result: dict[str, list[Trial]] = {}
    for trial in trials:
        for value in {trial.reported, trial.value}:
            by_result.setdefault(repr((trial.params, value)), []).append(trial)
    known: set[int] = set()  # numbers of the trials that are among the results
    unrecorded_results = []
    for params, returned in results:
        outcome = outcome_of(returned, ())
        alike = by_result.get(repr((params, outcome.value)), [])
        alike = [trial for trial in alike if trial.number not in known]
        before = [trial for trial in alike if trial.reported == outcome.value]
        same = [trial for trial in alike if trial.measured == outcome.measured]
        same.sort(key=lambda trial: trial.corrected)
        if before or same:
            known.add([*before, *same][0].number)
        else:
            unrecorded_results.append((params, returned))
    return unrecorded_results


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
        _check_names(params, space)
        point = {"context": params}
    Subspace(space, **point)  # raises unless it fits
    return point


def _check_names(params: Mapping[Any, Any], space: Space) -> None:
    """Raise InvalidInput if parameters by name have one that the space lacks."""
    if not space.named:
        return
    known = [*space.parameters, *space.constants]
    for name in params:
        if name in known:
            continue
        question = ""
        near = difflib.get_close_matches(str(name), known, n=1, cutoff=0.3)
        if near:
            question = f" did you mean {near[0]!r}?"
        raise InvalidInput(
            f"there is no parameter {checks.shown(name)}:{question} The parameters are {known}."
        )


def remaining(
    points: Sequence[dict[str, Any]], space: Space, trials: Sequence[Trial]
) -> list[dict[str, Any]]:
    """Return those of ``first_points`` that no trial has begun with."""
    begun = [trial.params for trial in trials if trial.asked]
    left = []
    for point in points:
        subspace = Subspace(space, **point)
        for number, params in enumerate(begun):
            if subspace.accepts(params):
                del begun[number]
                break
        else:
            left.append(point)
    return left
