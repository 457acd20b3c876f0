"""The known results that a run can learn from, of a table or of another journal."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kbo._base import checks
from kbo.errors import InvalidInput, JournalError
from kbo.optimize.evaluated.table import GivenResults, Row, examples, results_of_table
from kbo.optimize.objectives.objective import Objective, main_of, recorded_objectives
from kbo.optimize.run.journal_file import read_whole
from kbo.optimize.run.outcome import OBJECTIVE, Outcome, Returned, outcome_of
from kbo.optimize.run.table import heading
from kbo.optimize.run.trials import Trial, measurements
from kbo.space import Params, Space

log: logging.Logger = logging.getLogger("kbo")

_NARROW_LATER = (
    " To learn from results outside of the ranges, give ranges that contain them first, with the results, and the "
    "narrower ones afterwards as a change of the space."
)


class KnownResults(NamedTuple):
    """Known results that a run can learn from.

    Attributes:
        results: Pairs of parameters and what the objective returned: the value and other measurements.
        left_out: Sentences about entries that are not used, one for each reason, with their number and examples.
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
) -> KnownResults:
    """Return the known results that fit a space, and warn of the others, once for each reason.

    Left out are results outside the space, results that lack a measurement, trials without a value, and columns that
    are no parameters.

    Args:
        evaluated: None, a DataFrame, the path of such a table as CSV, or the path of a journal. The table has a column
            for each parameter ("x0", "x1", ... where the bounds are a list), for the "value", for each measurement and,
            if there are standard errors, for "sem"; or it is one of ``Result.to_frame``, or of
            ``trials_dataframe`` of Optuna. If a parameter is called "value", all parameters have columns
            "params.<name>". Several objectives have columns "<name>" or
            "measured.<name>" in place of "value". Other columns are left out.
        space: The search space.
        maximize: Whether larger values are better; a journal must agree.
        needed: Names of the measurements without which a trial has failed.
        value_range: The least and the largest possible value, if they are declared.
        objectives: Several objectives, or none; a journal must have the same.
        was: By name, values of parameters for results that lack these.

    Raises:
        InvalidInput: An argument of another kind, a file that cannot be read, or no result that can be used.
    """
    if evaluated is None:
        return KnownResults([], [])
    values = checks.instance("was", {} if was is None else was, Mapping)
    value = heading(main_of(objectives))
    source = ""
    if isinstance(evaluated, (str, os.PathLike)):
        source = f" of {evaluated}"
        evaluated = checks.path("evaluated", evaluated)
    if isinstance(evaluated, Path) and evaluated.suffix != ".csv":
        given = results_of_journal(evaluated, maximize, objectives)
    else:
        given = results_of_table(evaluated, space, needed, value)
    rows = []
    for row in given.rows:
        if isinstance(row.params, dict):
            row = row._replace(params={**values, **row.params})
        rows.append(row)
    usable = _usable(rows, space, needed, value_range, value, source)
    left_out = [*given.left_out, *usable.left_out]
    for reason in left_out:
        log.warning("left out %s", reason)
    return KnownResults(usable.results, left_out)


def _usable(
    rows: Sequence[Row],
    space: Space,
    needed: Sequence[str],
    value_range: tuple[float, float] | None,
    value: str,
    source: str,
) -> KnownResults:
    """Return the results from a source that are in a space and have the needed measurements.

    Raises:
        InvalidInput: None of the rows can be used.
    """
    results: list[tuple[Params, Returned]] = []
    unusable: list[str] = []
    violating: list[str] = []
    advice = ""
    for row in rows:
        try:
            outcome = _outcome(row, needed, value_range, value)
            params = space.canonical(row.params)
        except InvalidInput as error:
            unusable.append(f"{row.place}: {error}")
            if _has_place(space, row.params):
                advice = _NARROW_LATER
            continue
        results.append((params, outcome.returned))
        violated = space.violated(params)
        if violated:
            violating.append(f"{row.place}: {', '.join(violated)}.")
    left_out = []
    if unusable:
        reasons = f"{examples(unusable)}{advice}"
        if not results:
            raise InvalidInput(
                f"evaluated: none of the {len(rows)} results{source} can be used. {reasons}"
            )
        left_out.append(f"{len(unusable)} of {len(rows)} known results. {reasons}")
    if violating:
        left_out.append(
            f"{len(violating)} of {len(rows)} known results of what may be recommended, since they violate "
            f"constraints. {examples(violating)}"
        )
    return KnownResults(results, left_out)


def _outcome(
    row: Row, needed: Sequence[str], value_range: tuple[float, float] | None, value: str
) -> Outcome:
    """Return the outcome of a result: its value and measurements.

    Raises:
        InvalidInput: A trial with this result would have failed.
    """
    measurements = [name for name in needed if name != OBJECTIVE]
    got = f"{value} must be a finite number, got"
    outcome = outcome_of(row.returned, measurements, value_range, got)
    if outcome.failure:
        raise InvalidInput(f"{outcome.failure}.")
    return outcome


def _has_place(space: Space, params: Any) -> bool:
    """Return whether parameters have features in a space, also outside of its ranges, so that models can use them."""
    with contextlib.suppress(InvalidInput):
        return space.carried(params) is not None
    return False


def unrecorded(
    results: Sequence[tuple[Params, Returned]], trials: Sequence[Trial]
) -> list[tuple[Params, Returned]]:
    """Return the known results that no trial holds yet, as its result or as what it reported before a correction.

    These are all results in a new run, and none of those that the journal of a continued run has already.
    """
    by_result: dict[str, list[Trial]] = {}
    for trial in trials:
        for value in {trial.reported, trial.value}:
            by_result.setdefault(repr((trial.params, value)), []).append(trial)
    recorded: set[int] = set()  # numbers of the trials that are among the results
    unrecorded_results = []
    for params, returned in results:
        outcome = outcome_of(returned, ())
        candidates = by_result.get(repr((params, outcome.value)), [])
        candidates = [trial for trial in candidates if trial.number not in recorded]
        before = [trial for trial in candidates if trial.reported == outcome.value]
        same = [trial for trial in candidates if trial.measured == outcome.measured]
        same.sort(key=lambda trial: trial.corrected)
        if before or same:
            recorded.add([*before, *same][0].number)
        else:
            unrecorded_results.append((params, returned))
    return unrecorded_results


def results_of_journal(path: Path, maximize: bool, objectives: Sequence[Objective]) -> GivenResults:
    """Return the completed trials of a journal of any space, and a sentence about the other trials.

    Args:
        path: The journal.
        maximize: Whether larger values are better.
        objectives: Several objectives; none if there is one.

    Raises:
        InvalidInput: The journal cannot be read, or is of a run with other objectives.
    """
    try:
        contents = read_whole(path)
    except JournalError as error:
        raise InvalidInput(f"evaluated: {error}") from error
    header = contents.header
    recorded = recorded_objectives(header)
    if _directions(recorded) != _directions(objectives):
        texts = ", ".join(map(str, recorded)) or "one objective"
        raise InvalidInput(f"evaluated: {path} is of a run with other objectives: {texts}.")
    if not objectives and header.get("maximize") != maximize:
        raise InvalidInput(
            f"evaluated: {path} is of a run that {'minimises' if maximize else 'maximises'}."
        )
    rows = []
    unfinished = []
    for trial, params in zip(contents.trials.all, contents.trials.extended, strict=True):
        if trial.value is None:
            unfinished.append(f"Trial {trial.number}: {trial.status}.")
            continue
        measured = measurements(trial, main_of(recorded))
        value = measured.pop(main_of(objectives))
        rows.append(Row(f"trial {trial.number}", params, (value, measured)))
    left_out = []
    if unfinished:
        left_out.append(
            f"{len(unfinished)} trials of {path}, which have no value. {examples(unfinished)}"
        )
    return GivenResults(rows, left_out)


def _directions(objectives: Sequence[Objective]) -> dict[str, bool]:
    """Return whether each of several objectives is maximised, by its name."""
    return {objective.name: objective.maximize for objective in objectives}
