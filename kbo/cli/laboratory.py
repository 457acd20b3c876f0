"""``kbo ask`` and ``kbo tell``: a run whose trials are evaluated by people, over days."""

from __future__ import annotations

import contextlib
import csv
import io
import shutil
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from typer import Option

import kbo
from kbo._base.lazy import Lazy
from kbo._base.terminal import printable
from kbo.cli import options
from kbo.errors import AnotherSpace, InvalidInput

if TYPE_CHECKING:
    from kbo._base import checks, files
    from kbo.optimize import Optimizer, Trial, evaluated, table
    from kbo.optimize import result as results
    from kbo.optimize.run import outcome
    from kbo.optimize.run import run as runs
    from kbo.optimize.run.run import Run
    from kbo.report import record, summary
    from kbo.report.record import JournalFile
else:
    checks = Lazy("kbo._base.checks")
    files = Lazy("kbo._base.files")
    evaluated = Lazy("kbo.optimize.evaluated")
    table = Lazy("kbo.optimize.table")
    results = Lazy("kbo.optimize.result")
    outcome = Lazy("kbo.optimize.run.outcome")
    runs = Lazy("kbo.optimize.run.run")
    record = Lazy("kbo.report.record")
    summary = Lazy("kbo.report.summary")

_SPACE = "Parameters (.yaml or .json): needed at the first call, later only where they change."
_RESULTS = (
    "A number of a trial and its value, such as 17 0.83 memory=7.2 sem=0.02, or a table (.csv)."
)
_CHANGE = "Go on in another space, with the earlier trials as far as they have a place in it."
_WAS = "With --allow-change: a value that a new parameter had so far, such as temperature=20; repeatable."
_TO = "Write the new trials (with -n 0 all pending ones) to a table (.csv) to fill in, for `kbo tell`."
_FAILED = "The experiment failed, for this reason; in place of the value."
_AGAIN = "Another measurement at the parameters of a trial that has ended: a new trial."

_TABLE = (
    "Give a table with the columns trial and value, as `kbo ask --to` writes it, separated by commas; for failed "
    "experiments a column failed with the reason."
)
_RESERVED = ("trial", "value", "failed")
_SAME = 1e-3
"""Part of a range by which a parameter in a table may be rounded."""

Journal = Annotated[
    Path, typer.Argument(metavar="JOURNAL", help="The journal of the run (.jsonl).")
]


# Ask


def ask(
    journal: Journal,
    count: Annotated[
        int,
        Option("--count", "-n", min=0, help="New trials; with 0 only the pending ones are shown."),
    ] = 1,
    space: Annotated[Path | None, Option(help=_SPACE)] = None,
    maximize: Annotated[bool, Option("--maximize", help="Larger values are better.")] = False,
    noise_std: Annotated[float | None, Option(help=options.NOISE, show_default="estimated")] = None,
    seed: Annotated[
        int | None, Option(help="Seed of the choices of kbo.", show_default="0")
    ] = None,
    constraint: Annotated[list[str] | None, Option(help=options.LIMIT)] = None,
    evaluated: Annotated[Path | None, Option(help=options.KNOWN)] = None,
    allow_change: Annotated[bool, Option("--allow-change", help=_CHANGE)] = False,
    was: Annotated[list[str] | None, Option(help=_WAS)] = None,
    to: Annotated[Path | None, Option("--to", help=_TO)] = None,
) -> None:
    """Choose the next experiments of a run that people carry out, and show those without a result.

    The first call needs the parameters, and says what is to be found; later calls read all of it from the journal:

        kbo ask lab.jsonl -n 5 --space space.yaml --maximize

        kbo ask lab.jsonl -n 5

    Trials that are pending are not proposed again: tell their results whenever they come.

    Then:  kbo tell lab.jsonl 0 0.83
    """
    if to is not None and to.exists():
        raise InvalidInput(f"{to} exists, and may have results in it: choose another file.")
    given: dict[str, Any] = {}
    if maximize:
        given["maximize"] = True
    if noise_std is not None:
        given["noise_std"] = noise_std
    if seed is not None:
        given["seed"] = seed
    if constraint:
        given["constraints"] = [options.constraint(text).describe() for text in constraint]
    if journal.exists() and journal.stat().st_size:
        optimizer = _reopened(journal, given, space, evaluated, allow_change, was or ())
    else:
        optimizer = _begun(journal, given, space, evaluated)
    with contextlib.closing(optimizer):
        earlier = list(optimizer.run.trials.pending.values())
        begun = []
        for _ in range(count):
            params, explanation = optimizer.proposal()
            begun.append(optimizer.run.begin(params, explanation.record()))
            optimizer.run.release()  # a person has it: this process ends before the value comes
    shown = begun or earlier
    if shown:
        typer.echo(_aligned([_row(trial) for trial in shown]))
    if not count and not earlier:
        typer.echo("no trial is pending")
    elif earlier:
        typer.echo(_waiting(earlier))
    if to is not None:
        _write(to, shown, optimizer)
        typer.echo(f"wrote {to}: fill in the values, then `kbo tell {journal} {to}`")


def _begun(path: Path, given: dict[str, Any], space: Path | None, known: Path | None) -> Optimizer:
    """Return the optimiser of a new run; arguments as for ``_reopened``."""
    if space is None:
        raise InvalidInput(
            f"there is no journal {path}. A new run needs its parameters, --space space.yaml, with lines such as "
            "`temperature: {kind: Float, low: 20, high: 90}`."
        )
    header = {"method": kbo.Practical.default_method, "maximize": False, "seed": 0, **given}
    parameters = kbo.Space.load(space)
    optimizer = record.optimizer_of(header, space=parameters, journal=path, evaluated=known)
    wanted = "smaller values are better; --maximize is for the contrary"
    if optimizer.maximize:
        wanted = "larger values are better"
    typer.echo(f"a new run in {path}: {wanted}", err=True)
    return optimizer


def _reopened(
    path: Path,
    given: dict[str, Any],
    space: Path | None,
    known: Path | None,
    allow_change: bool,
    was: Sequence[str],
) -> Optimizer:
    """Return the optimiser of a journal, which it goes on writing.

    Args:
        path: The journal.
        given: Entries of its header by options, which must be those of the journal.
        space: The file of another space.
        known: Known results.
        allow_change: Whether the space may change without being asked.
        was: The values that new parameters had so far, as text.
    """
    contents = record.read_journal(path).whole()
    if obstacle := _obstacle(contents):
        raise InvalidInput(
            f"{path} cannot be continued in the shell: {obstacle}. Continue it in Python by the script that began it, "
            f"or kbo.Optimizer(..., journal={str(path)!r}) with its arguments; `kbo tell` records results."
        )
    parameters = contents.space
    if space is not None:
        parameters = kbo.Space.load(space)
    elif was:
        raise InvalidInput("--was is for parameters that are new in a space: add --space.")
    header = {**contents.header, **given}
    reopen = partial(record.optimizer_of, header, space=parameters, journal=path, evaluated=known)
    try:
        return reopen()
    except AnotherSpace as error:
        if not allow_change and not options.agrees_to_change(error, path):
            raise
    values = {}
    for name, text in options.assignments(was, "--was temperature=20").items():
        values[name] = text
        if name in parameters.parameters:
            values[name] = table.option(text, parameters.parameters[name])
    options.check_new_parameters(path, parameters, values, "--was NAME=VALUE")
    optimizer = reopen(allow_change=True, was=values)
    typer.echo(
        f"the space of {path} has changed; its trials so far are data in the new one", err=True
    )
    if misplaced := optimizer.run.trials.misplaced:
        numbers = ", ".join(str(trial.number) for trial in misplaced)
        typer.echo(f"without a place in it, so nothing is learned from them: {numbers}", err=True)
    return optimizer


def _obstacle(contents: JournalFile) -> str:
    """Return the reason why a journal alone does not determine the next trial; empty if it does."""
    header = contents.header
    if header.get("setting") == "confirm":
        return "it has the evaluations of a confirmation"
    if header.get("setting") == "certified":
        return "the run is certified, and the journal has only a fingerprint of its kernel"
    if "class" in header:
        return f"the setting is a class of your own, {header['class']}"
    if "strategies" in header:
        return "the strategies are your own, and the journal has only their descriptions"
    functions = [
        entry["name"] for entry in contents.space.describe() if entry["kind"] == "function"
    ]
    if functions:
        return (
            f"the constraint {functions[0]} is a function, of which the journal has only the name"
        )
    return ""


# Tell


def tell(
    journal: Journal,
    result: Annotated[list[str], typer.Argument(metavar="TRIAL VALUE... | TABLE", help=_RESULTS)],
    failed: Annotated[str | None, Option("--failed", help=_FAILED)] = None,
    again: Annotated[bool, Option("--again", help=_AGAIN)] = False,
) -> None:
    """Record results of experiments that `kbo ask` has chosen, and say what is known by now.

    One value, with other measurements and the standard error of the value (sem) if there are any:

        kbo tell lab.jsonl 17 0.83 memory=7.2 sem=0.02

    An experiment that failed:

        kbo tell lab.jsonl 17 --failed "the sample was spilled"

    A table with the columns trial and value, and for other measurements columns such as measured.memory. Rows without
    a value are still pending. If a row is wrong, nothing of the table is recorded:

        kbo tell lab.jsonl batch.csv

    A wrong result is replaced by `kbo journal correct`, or taken back by `kbo journal remove`.
    """
    with contextlib.closing(opened(journal)) as run:
        first, *others = result
        if first.endswith(".csv"):
            if others or again or failed is not None:
                raise InvalidInput(f"give {first} alone: its columns have values and failures.")
            reports = _in_table(Path(first), run)
        else:
            reports = [_given(first, others, failed, again, run)]
        for report in reports:
            typer.echo(_recorded(report, again, run))
        pending = list(run.trials.pending.values())
    if not reports:
        typer.echo(f"{first} has no result that is not recorded already")
    typer.echo(f"\n{_summary(journal)}\n")
    if pending:
        typer.echo(_waiting(pending))
    else:
        typer.echo("no trial is pending")


def opened(path: Path) -> Run:
    """Return the run in a journal, to which events are appended; of whatever setting, since it needs no model.

    Raises:
        InvalidInput: The journal has the evaluations of a confirmation.
        JournalError: It cannot be read, is damaged, or is in use.
    """
    contents = record.read_journal(path).whole()
    header = contents.header
    if header.get("setting") == "confirm":
        raise InvalidInput(
            f"{path} has the evaluations of a confirmation, whose statement does not hold if results are changed by "
            "hand: confirm again, with another journal."
        )
    latest = {**header, "space": contents.space.describe()}
    return runs.Run(contents.space, latest, path, _needed(header), header.get("value_range"))


def _needed(header: Mapping[str, Any]) -> list[str]:
    """Return the names of the measurements that the constraints of a run are about."""
    names = [constraint.name for constraint in record.constraints_of(header)]
    return [name for name in names if name != outcome.OBJECTIVE]


class _Report(NamedTuple):
    """The result of a trial: a value with other measurements, or the reason of a failure."""

    trial: Trial
    value: float | None
    measured: dict[str, float]
    failure: str | None


def _given(number: str, texts: Sequence[str], failed: str | None, again: bool, run: Run) -> _Report:
    """Return the result in the arguments of a command.

    Raises:
        InvalidInput: They have none, or it cannot be recorded.
    """
    trial = run.trials.known(trial_in(number))
    value = None
    if again and failed is not None:
        raise InvalidInput("--again is for another value: leave out --failed.")
    if failed is None:
        if not texts or "=" in texts[0]:
            raise InvalidInput(
                f"give the value of trial {number}, `kbo tell {run.path} {number} 0.83`, or --failed with a reason."
            )
        value = number_in("value", texts[0])
        texts = texts[1:]
    example = "other measurements such as memory=7.2"
    measured = {}
    for name, text in options.assignments(texts, example).items():
        measured[name] = number_in(name, text)
    if again and trial.status == "pending":
        raise InvalidInput(
            f"trial {number} is pending, so this is its first value: leave out --again."
        )
    if not again and trial.status != "pending":
        raise InvalidInput(_of_ended(trial, run))
    return _checked(_Report(trial, value, measured, failed), run)


def _in_table(path: Path, run: Run) -> list[_Report]:
    """Return the results in a table that are not recorded yet.

    Raises:
        InvalidInput: The table cannot be read, or one of its rows is wrong, which is named.
    """
    columns, lines = table.read_csv(path, _TABLE)
    if len(set(columns)) < len(columns) or not {"trial", "value"} <= set(columns):
        raise InvalidInput(f"{path} has the columns {checks.shown(columns)}. {_TABLE}")
    measurements = {}
    unused = []
    for column in columns:
        measurement = evaluated.measurement_in(column, run.space, _needed(run.header))
        if measurement is not None:
            measurements[column] = measurement
        elif column not in _RESERVED and column not in map(_column, run.space.parameters):
            unused.append(printable(column))
    if unused:
        typer.echo(f"columns of {path} that are not used: {', '.join(unused)}", err=True)
    reports: list[_Report] = []
    for line, cells in lines:
        with checks.inside(f"line {line} of {path}"):
            report = _in_row(cells, measurements, run)
            if report is None:
                continue
            number = report.trial.number
            if any(number == other.trial.number for other in reports):
                raise InvalidInput(
                    f"an earlier line has a result of trial {number}, too: leave one out. Another measurement at the "
                    f"same parameters is recorded by `kbo tell {run.path} {number} VALUE --again`."
                )
            reports.append(report)
    return reports


def _in_row(cells: Mapping[str, str], measurements: Mapping[str, str], run: Run) -> _Report | None:
    """Return the result in a row of a table; None if the row has none, or one that is recorded already.

    Args:
        cells: The cells by column, without empty ones.
        measurements: The name of the measurement in each column of one.
        run: The run.
    """
    failure = cells.get("failed")
    if "value" not in cells and failure is None:
        return None
    trial = run.trials.known(trial_in(cells.get("trial", "")))
    value = None
    if "value" in cells:
        value = number_in("value", cells["value"])
    if value is not None and failure is not None:
        raise InvalidInput(
            f"there are a value and a failure of trial {trial.number}: leave one out."
        )
    measured = {}
    for column, name in measurements.items():
        if column in cells:
            measured[name] = number_in(name, cells[column])
    _check_parameters(cells, trial, run)
    report = _checked(_Report(trial, value, measured, failure), run)
    if trial.status == "pending":
        return report
    is_same_failure = failure is not None and trial.failure == failure
    if is_same_failure or (value is not None and value in (trial.value, trial.reported)):
        return None
    raise InvalidInput(_of_ended(trial, run))


def _check_parameters(cells: Mapping[str, str], trial: Trial, run: Run) -> None:
    """Raise InvalidInput if a row of a table has other parameters than its trial, up to rounding."""
    for name, value in table.by_name(trial.params).items():
        cell = cells.get(_column(name))
        if cell is None or cell == str(value):
            continue
        scale = run.space.compared[name]
        try:
            columns = scale.columns_of(table.option(cell, run.space.parameters[name]))
        except InvalidInput:
            columns = []
        expected = scale.columns_of(value)
        if len(columns) == len(expected) and all(
            abs(a - b) <= _SAME for a, b in zip(columns, expected, strict=True)
        ):
            continue
        raise InvalidInput(
            f"trial {trial.number} has {name} = {value}, and the table {cell!r}. If the experiment was carried out "
            f"so, remove the trial, `kbo journal remove {run.path} {trial.number}`, and give the row as a known "
            f"result, `kbo ask {run.path} -n 0 --evaluated TABLE`."
        )


def _checked(report: _Report, run: Run) -> _Report:
    """Return a result that can be recorded, with its value as it is recorded.

    Raises:
        InvalidInput: It cannot be recorded.
    """
    if report.failure is not None:
        checks.text("the reason of a failure", report.failure)
        return report
    with checks.inside(f"trial {report.trial.number}"):
        found = run.outcome((report.value, report.measured))
    return report._replace(value=found.value)


def _recorded(report: _Report, again: bool, run: Run) -> str:
    """Record a result, and return what was recorded as text."""
    trial = report.trial
    returned = (report.value, report.measured)
    if report.failure is not None:
        trial = run.fail(trial, report.failure, measured=report.measured)
        return f"trial {trial.number} failed: {trial.failure}"
    place = ""
    if again:
        place = f", at the parameters of trial {trial.number}"
        trial = run.add(trial.params, returned)
    else:
        trial = run.complete(trial, returned)
    text = f"trial {trial.number}{place}: {trial.value:.6g}"
    if trial.measured:
        text += f"  ({table.format_params(trial.measured)})"
    return text


def _of_ended(trial: Trial, run: Run) -> str:
    """Return the refusal of another result of a trial that has ended, with what to do."""
    number = trial.number
    status = trial.status
    if trial.value is not None:
        status = f"{status}, with the value {trial.value:.6g}"
    elif trial.removed is not None:
        status = f"removed ({trial.removed})"
    elif trial.failure is not None:
        status = f"failed ({trial.failure})"
    return (
        f"trial {number} is {status}. Another measurement at the same parameters is recorded by `kbo tell {run.path} "
        f"{number} VALUE --again`, and the result replaced by `kbo journal correct {run.path} {number}=VALUE`."
    )


def trial_in(text: str) -> int:
    """Return the number of a trial in a text.

    Raises:
        InvalidInput: There is none.
    """
    if not text.isdecimal():
        raise InvalidInput(
            f"expected the number of a trial, got {text!r}. Trials have numbers from 0."
        )
    return int(text)


def number_in(name: str, text: str) -> float:
    """Return the number in a text.

    Raises:
        InvalidInput: It is no finite number.
    """
    return checks.number(name, table.parsed(text), "a finite number, with a point as 0.5")


# Tables


def _row(trial: Trial) -> dict[str, str]:
    """Return number and parameters of a trial as text by column."""
    row = {"trial": str(trial.number)}
    for name, value in table.by_name(trial.params).items():
        row[_column(name)] = str(value)
        if isinstance(value, float):
            row[_column(name)] = f"{value:.6g}"
    return row


def _column(name: str) -> str:
    """Return the column of a parameter in a table of results."""
    if name in _RESERVED:
        return f"params.{name}"
    return name


def _aligned(rows: Sequence[Mapping[str, str]]) -> str:
    """Return rows with their columns below each other, the names of these in the first line."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = [[printable(name) for name in names]]
    lines += [[printable(row.get(name, "")) for name in names] for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    texts = []
    for line in lines:
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        texts.append("  ".join(cells).rstrip())
    return "\n".join(texts)


def _waiting(trials: Iterable[Trial]) -> str:
    """Return the numbers of pending trials, and how long they have been pending."""
    groups: dict[str, list[str]] = {}
    for trial in trials:
        age = "pending"
        if trial.started is not None:
            age = f"pending for {summary.duration(max(time.time() - trial.started, 0.0))}"
        groups.setdefault(age, []).append(str(trial.number))
    return "\n".join(f"{age}: {', '.join(numbers)}" for age, numbers in groups.items())


def _write(path: Path, trials: Sequence[Trial], optimizer: Optimizer) -> None:
    """Write trials to a table with empty columns for their values and the measurements of constraints."""
    columns = ["trial", *map(_column, optimizer.space.parameters), "value"]
    columns += [f"measured.{name}" for name in _needed(optimizer.run.header)]
    columns.append("failed")
    text = io.StringIO()
    writer = csv.DictWriter(text, columns)
    writer.writeheader()
    for trial in trials:
        row: dict[str, Any] = {"trial": trial.number}
        for name, value in table.by_name(trial.params).items():
            row[_column(name)] = value
        writer.writerow(row)
    try:
        with files.replacing(path) as file:
            file.write(text.getvalue().encode())
    except OSError as error:
        raise InvalidInput(
            f"cannot write {path}: {error.strerror}. The trials have begun: `kbo ask JOURNAL -n 0 --to TABLE` writes "
            "them elsewhere."
        ) from error


def _summary(path: Path) -> str:
    """Return the summary of the run in a journal, or the reason why there is none."""
    obstacle = _obstacle(record.read_journal(path))
    if obstacle:
        return f"no summary: {obstacle}"
    optimizer = record.Record.of(path).reopened()
    result = results.result_of(optimizer, "", str(path))
    columns = None
    if sys.stdout.isatty():
        columns = shutil.get_terminal_size().columns
    return summary.text(summary.lines(result, "kbo.confirm"), columns)
