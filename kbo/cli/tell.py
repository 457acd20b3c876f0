"""``kbo tell``: results of experiments that people have carried out, from the shell or a table."""

from __future__ import annotations

import contextlib
import difflib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from typer import Option

from kbo._base.lazy import Lazy
from kbo._base.terminal import printable
from kbo.cli import options
from kbo.cli.by_hand import (
    column_of,
    measurement_columns,
    result_text,
    run_of,
    show_known,
    trial_in,
    value_column,
)
from kbo.errors import InvalidInput

if TYPE_CHECKING:
    from kbo._base import checks
    from kbo.optimize import Trial
    from kbo.optimize.run import given_table, outcome, table
    from kbo.optimize.run import run as runs
else:
    checks = Lazy("kbo._base.checks")
    given_table = Lazy("kbo.optimize.run.given_table")
    outcome = Lazy("kbo.optimize.run.outcome")
    table = Lazy("kbo.optimize.run.table")

_RESULT = "A trial and its value, such as 17 0.83, or a table (.csv)."
_FAILED = "The reason why these settings do not work; in place of a value."
_AGAIN = "Another measurement at the parameters of a trial that has ended: a new trial."
_AS_DONE = (
    "The experiment used other settings, which you give: a new trial replaces the proposed one."
)
_TABLE = (
    "Give a table with the columns trial and {value}, as `kbo ask --to` writes it; a column "
    "failed has the reasons of failures. Results of experiments that were not asked for are known results: `kbo ask "
    "{path} -n 0 --evaluated TABLE`."
)

_MOST_REFUSED = 5
"""Wrong rows of a table that are named; of more it says how many there are."""

_LIKE_A_PARAMETER = 0.8
"""Similarity of names, by ``difflib``, from which on a measurement is taken for a mistyped parameter."""

_ROUNDING = 1e-3
"""Relative difference between numbers of table and trial that counts as rounding by a spreadsheet."""


def tell(
    journal: options.Journal,
    result: Annotated[list[str], typer.Argument(metavar="TRIAL VALUE | TABLE", help=_RESULT)],
    failed: Annotated[str | None, Option(help=_FAILED)] = None,
    again: Annotated[bool, Option("--again", help=_AGAIN)] = False,
    as_done: Annotated[bool, Option("--as-done", help=_AS_DONE)] = False,
) -> None:
    """Record results of experiments that `kbo ask` has proposed, and show the summary.

    One value, and if you have them, other measurements and the standard error of the value (sem):

        kbo tell lab.jsonl 17 0.83 memory=7.2 sem=0.02

    Several objectives:

        kbo tell lab.jsonl 17 yield=0.83 cost=12

    An experiment that cannot be done with these settings. kbo will avoid them. (After an accident use `kbo journal
    remove`: it leaves the trial out.)

        kbo tell lab.jsonl 17 --failed "nothing dissolved"

    An experiment that was carried out at 61 degrees, although 60 degrees were proposed:

        kbo tell lab.jsonl 17 0.83 temperature=61 --as-done

    A table with the columns trial and value, and columns such as measured.memory for other measurements. Rows without
    a value stay pending. If a row is wrong, nothing of the table is recorded:

        kbo tell lab.jsonl batch.csv

    `kbo journal correct` replaces a wrong result, and `kbo journal remove` leaves it out.
    """
    first, *others = result
    if Path(first).suffix in (".xlsx", ".xls", ".ods"):
        raise InvalidInput(f"save the table {first} as CSV, separated by commas, and give that.")
    is_table = first.endswith(".csv")
    if is_table and (others or again or failed is not None):
        raise InvalidInput(f"give {first} alone: its columns have values and failures.")
    with contextlib.closing(run_of(journal)) as run:
        if is_table:
            reports = _reports_in_table(Path(first), run, as_done)
        else:
            reports = [_typed_report(first, others, failed, run, again, as_done)]
        if not reports:
            typer.echo(f"{first} has no result that is not recorded already")
        for report in reports:
            typer.echo(printable(_recorded(report, run, again)))
    show_known(journal)


class _Report(NamedTuple):
    """The result of an experiment.

    Attributes:
        trial: The trial in the journal.
        value: The value; None after a failure.
        measured: Other measurements by name.
        failure: The reason of a failure; None if there is a value.
        changed: By name, the settings of the experiment that differ from the trial.
    """

    trial: Trial
    value: float | None
    measured: dict[str, float]
    failure: str | None
    changed: dict[str, Any]


# A result in the shell


def _typed_report(
    trial_number: str,
    words: Sequence[str],
    failure: str | None,
    run: runs.Run,
    again: bool,
    as_done: bool,
) -> _Report:
    """Return the result in the arguments of the command.

    Args:
        trial_number: The number of the trial, as text.
        words: The value without a name, if it is given so, and NAME=NUMBER for measurements and settings.
        failure: The reason of a failure.
        run: The run.
        again: Whether the result is another measurement at the parameters of a trial that has ended.
        as_done: Whether the experiment may have used other settings than the trial.

    Raises:
        InvalidInput: The result cannot be recorded.
    """
    cells, measured = _cells_in_words(words, run)
    if failure is not None:
        cells["failed"] = failure
    _check_names(cells, measured, run)
    trial = run.trials.known(trial_in(trial_number))
    if again and failure is not None:
        raise InvalidInput(_refusal_of_result(trial, run))
    report = _report(trial, cells, measured, run, as_done)
    is_replacement = as_done and bool(report.changed) and trial.status == "complete"
    if again == (trial.status == "pending") and not is_replacement:
        raise InvalidInput(_refusal_of_status(trial, run))
    if as_done and not report.changed:
        names = ", ".join(run.space.parameters)
        raise InvalidInput(
            f"--as-done: none of the settings differs from those of trial {trial.number}. Give the one that does, such "
            f"as {next(iter(run.space.parameters))}=VALUE; the parameters are {names}."
        )
    return report


def _cells_in_words(words: Sequence[str], run: runs.Run) -> tuple[dict[str, str], dict[str, str]]:
    """Return the value and settings by column, and other measurements by name, as texts.

    Raises:
        InvalidInput: A word after the first is not NAME=NUMBER.
    """
    cells = {}
    named = list(words)
    if named and "=" not in named[0]:
        cells["value"] = named.pop(0)
    measured = options.assignments(named, "other measurements such as memory=7.2")
    settings = run.space.parameters.keys() - {run.main, *run.needed}
    for name in measured.keys() & settings:
        cells[column_of(name)] = measured.pop(name)
    if "value" not in cells and run.main != outcome.OBJECTIVE and run.main in measured:
        cells["value"] = measured.pop(run.main)
    return cells, measured


def _check_names(cells: Mapping[str, str], measured: Mapping[str, str], run: runs.Run) -> None:
    """Check that no unknown measurement has nearly the name of a missing one or of a parameter.

    Args:
        cells: The value or failure, and settings, by column.
        measured: Other measurements by name.
        run: The run.

    Raises:
        InvalidInput: One has.
    """
    missing = []
    if "failed" not in cells:
        missing = [name for name in run.needed if name not in measured]
        if "value" not in cells and run.main != outcome.OBJECTIVE:
            missing.append(run.main)
    for name in measured:
        if name in (run.main, *run.needed):
            continue
        near = difflib.get_close_matches(name, missing, n=1)
        if near:
            raise InvalidInput(
                f"unknown measurement {name!r}: did you mean {near[0]!r}, which is missing?"
            )
        near = difflib.get_close_matches(name, run.space.parameters, 1, _LIKE_A_PARAMETER)
        if near:
            raise InvalidInput(
                f"unknown measurement {name!r}: did you mean {near[0]}? It is a parameter: for an experiment that was "
                f"carried out with another value of it, give {near[0]}={measured[name]} --as-done. Report a "
                f"measurement with this name in a table (.csv), in the column measured.{name}."
            )


# Results in a table


def _reports_in_table(path: Path, run: runs.Run, as_done: bool) -> list[_Report]:
    """Return the results in a table that are not recorded yet.

    Args:
        path: The table.
        run: The run.
        as_done: Whether the experiments may have used other settings than the trials.

    Raises:
        InvalidInput: The table cannot be read, or rows are wrong; the first ones are named.
    """
    value = value_column(run)
    advice = _TABLE.format(value=value, path=run.path)
    given = given_table.read_csv(path, advice)
    if not {"trial", value} <= {*given.columns}:
        raise InvalidInput(f"{path} has the columns {checks.shown(given.columns)}. {advice}")
    measurements = measurement_columns(given.columns, run)
    reports: dict[int, _Report] = {}
    refusals = []
    for place, entries in given.rows:
        if value not in entries and "failed" not in entries:
            continue
        measured = {name: entries[key] for key, name in measurements.items() if key in entries}
        cells = {column: cell for column, cell in entries.items() if column != "value"}
        if value in entries:
            cells["value"] = entries[value]
        try:
            report = _report_in_row(cells, measured, run, as_done)
        except InvalidInput as error:
            refusals.append(f"{place} of {path}: {error}")
            continue
        number = report.trial.number
        if number in reports:
            refusals.append(
                f"{place} of {path}: an earlier line has a result of trial {number}, too: leave one out, and "
                "report another measurement at the same parameters with --again."
            )
        reports[number] = report
    if len(refusals) > _MOST_REFUSED:
        n_more = len(refusals) - _MOST_REFUSED
        refusals[_MOST_REFUSED:] = [f"Wrong lines of {path} that are not shown: {n_more}."]
    if refusals:
        raise InvalidInput("\n".join(refusals))
    return [report for report in reports.values() if report.trial.status == "pending"]


def _report_in_row(
    cells: Mapping[str, str], measured: Mapping[str, str], run: runs.Run, as_done: bool
) -> _Report:
    """Return the result in a row of a table, which may have been recorded before.

    Args:
        cells: The number of the trial, its value or failure, and settings, as text by column.
        measured: Other measurements as text by name.
        run: The run.
        as_done: Whether the experiment may have used other settings than the trial.

    Raises:
        InvalidInput: The row is wrong, or its trial has another result.
    """
    trial = run.trials.known(trial_in(cells.get("trial", "")))
    may_differ = as_done or trial.removed is not None
    report = _report(trial, cells, measured, run, may_differ)
    if trial.status != "pending" and not _is_recorded(report, run):
        raise InvalidInput(_refusal_of_status(trial, run))
    return report


def _is_recorded(report: _Report, run: runs.Run) -> bool:
    """Return whether the journal has a result already, or had it before a correction or removal."""
    trial = report.trial
    is_recorded = report.value == trial.value and report.failure == trial.failure
    if report.value is not None and run.main != outcome.OBJECTIVE:
        is_recorded &= all(report.measured[name] == trial.measured.get(name) for name in run.needed)
    if trial.corrected or trial.removed is not None:
        return is_recorded or bool(report.changed) or report.value == trial.reported
    return is_recorded


# Any result


def _report(
    trial: Trial,
    cells: Mapping[str, str],
    measured: Mapping[str, str],
    run: runs.Run,
    may_differ: bool,
) -> _Report:
    """Return the result of a trial from texts.

    Args:
        trial: The trial.
        cells: Its value or failure, and settings, as text by column.
        measured: Other measurements as text by name.
        run: The run.
        may_differ: Whether settings may differ from those of the trial.

    Raises:
        InvalidInput: A text cannot be read, there is not exactly one of value and failure, a measurement is missing, or
            a setting differs.
    """
    numbers = {name: options.number_in(name, text) for name, text in measured.items()}
    failure = cells.get("failed")
    if ("value" in cells) == (failure is not None):
        raise InvalidInput(_refusal_of_result(trial, run))
    value = None
    if failure is None:
        value = options.number_in("value", cells["value"])
        missing = [name for name in run.needed if name not in numbers]
        if missing:
            raise InvalidInput(
                f"trial {trial.number} lacks the measurement of {missing[0]!r}: add {missing[0]}=NUMBER, or in a table "
                f"the column measured.{missing[0]}."
            )
        value, numbers = run.outcome((value, numbers))
    changed = _changed_settings(trial, cells, run, may_differ)
    return _Report(trial, value, numbers, failure, changed)


def _changed_settings(
    trial: Trial, cells: Mapping[str, str], run: runs.Run, may_differ: bool
) -> dict[str, Any]:
    """Return by name the settings in cells that differ from a trial; arguments and errors as for ``_report``."""
    changed = {}
    for name, proposed in table.by_name(trial.params).items():
        cell = cells.get(column_of(name), str(proposed))
        is_same = cell in (str(proposed), table.cell(proposed))
        if is_same or _is_rounded(table.number_in(cell), proposed):
            continue
        changed[name] = table.number_in(cell)
        if name in run.space.parameters:
            changed[name] = table.option(cell, run.space.parameters[name])
        if not may_differ:
            raise InvalidInput(
                f"trial {trial.number} was proposed with {name}={proposed}, and is told with {name}={cell}. If the "
                "experiment was carried out with that, add --as-done: the result is a new trial in place of it."
            )
    return changed


def _is_rounded(number: Any, proposed: Any) -> bool:
    """Return whether a number in a table equals the number of the trial up to rounding."""
    if not isinstance(number, float | int) or not isinstance(proposed, float | int):
        return False
    return math.isclose(number, proposed, rel_tol=_ROUNDING)


def _refusal_of_result(trial: Trial, run: runs.Run) -> str:
    """Return the message for a result with both or neither of value and failure, or for ``--again --failed``."""
    return (
        f"expected either a value of trial {trial.number}, as `kbo tell {run.path} {trial.number} "
        f"{_example(run, '0.83')}`, or the reason of a failure, by --failed or in the column failed; not both."
    )


def _refusal_of_status(trial: Trial, run: runs.Run) -> str:
    """Return the message for a first result of an ended trial, or for another measurement of a pending trial."""
    number = trial.number
    if trial.status == "pending":
        return f"trial {number} is pending, so this is its first value: leave out --again."
    status = trial.status
    if trial.value is not None:
        status += f", with the value {trial.value:.6g}"
    return (
        f"trial {number} is {status}. Report another measurement at the same parameters by `kbo tell {run.path} "
        f"{number} {_example(run, 'VALUE')} --again`, or replace the result by `kbo journal correct {run.path} "
        f"{number}=VALUE`."
    )


def _example(run: runs.Run, value: str) -> str:
    """Return a value as arguments of ``kbo tell``, for messages."""
    if run.main == outcome.OBJECTIVE:
        return value
    return " ".join(f"{name}={value}" for name in (run.main, *run.needed))


def _recorded(report: _Report, run: runs.Run, again: bool) -> str:
    """Record a result, and return it as text.

    Another measurement is a new trial. So is a result at changed settings, and then the proposed trial is removed.

    Args:
        report: The result.
        run: The run.
        again: Whether the result is another measurement at the parameters of a trial that has ended.
    """
    trial = report.trial
    if report.failure is not None:
        trial = run.fail(trial, report.failure, measured=report.measured)
        return f"trial {trial.number} failed: {trial.failure}"
    assert report.value is not None
    returned = (report.value, report.measured)
    changed = report.changed
    if not again and not changed:
        trial = run.complete(trial, returned)
        return f"trial {trial.number}: {result_text(*returned)}"
    params: Any = {**table.by_name(trial.params), **changed}
    if not run.space.named:
        params = list(params.values())
    number = run.add(params, returned).number
    origin = f"at the parameters of trial {trial.number}"
    if changed:
        origin = f"at those of trial {trial.number} but {table.format_params(changed)}"
    if changed and not again:
        run.remove(trial, f"carried out with {table.format_params(changed)}, as trial {number}")
    return f"trial {number}, {origin}: {result_text(*returned)}"
