"""``kbo ask`` and ``kbo tell``: a run whose trials are evaluated by people, over days."""

from __future__ import annotations

import contextlib
import math
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
    import pandas as pd

    from kbo._base import checks
    from kbo.optimize import Optimizer, Trial
    from kbo.optimize import result as results
    from kbo.optimize.evaluated import table as evaluated
    from kbo.optimize.run import outcome, table
    from kbo.optimize.run import run as runs
    from kbo.report import record, summary
else:
    pd = Lazy("pandas")
    checks = Lazy("kbo._base.checks")
    evaluated = Lazy("kbo.optimize.evaluated.table")
    table = Lazy("kbo.optimize.run.table")
    results = Lazy("kbo.optimize.result")
    outcome = Lazy("kbo.optimize.run.outcome")
    runs = Lazy("kbo.optimize.run.run")
    record = Lazy("kbo.report.record")
    summary = Lazy("kbo.report.summary")

_COUNT = "New trials; 0 only shows the pending ones, and what is known."
_SPACE = "Parameters (.yaml or .json), at the first call and where they change."
_WAS = "The value that a parameter had so far, where trials or known results lack it, as temperature=20; repeatable."
_TO = "Write the new trials, with -n 0 the pending ones, to a table (.csv), for `kbo tell`."
_OBJECTIVE = "One of several objectives, such as cost or yield=maximize; repeatable."
_RESULT = "A trial and its value, such as 17 0.83, or a table (.csv)."
_FAILED = "These settings do not work, for this reason; in place of a value."
_AGAIN = "Another measurement at the parameters of a trial that has ended: a new trial."
_AS_DONE = (
    "The experiment was carried out with other settings, which are given: a new trial in place."
)
_TABLE = (
    "Give a table with the columns trial and {value}, as `kbo ask --to` writes it; a column "
    "failed has the reasons of failures. Results of experiments that were not asked for are known results: `kbo ask "
    "{path} -n 0 --evaluated TABLE`."
)

_LEFT_OUT = (
    "trials that differ in it alone count as repetitions. To keep them apart, give it one value: "
    "`{name}: VALUE`."
)
_RESERVED = ("trial", "value", "failed")
_ROUNDED = 1e-3
"""Relative rounding of parameters in a table that was edited."""

Journal = Annotated[
    Path, typer.Argument(metavar="JOURNAL", help="The journal of the run (.jsonl).")
]


def ask(
    journal: Journal,
    count: Annotated[int, Option("--count", "-n", min=0, help=_COUNT)] = 1,
    space: Annotated[Path | None, Option(help=_SPACE)] = None,
    maximize: options.Maximize = False,
    noise_std: options.NoiseStd = None,
    seed: options.Seed = None,
    value_range: options.ValueRange = None,
    constraint: options.Constraints = None,
    objective: Annotated[list[str] | None, Option(help=_OBJECTIVE)] = None,
    evaluated: options.Evaluated = None,
    allow_change: options.AllowChange = False,
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
    if value_range is not None:
        given["value_range"] = list(value_range)
    if seed is not None:
        given["seed"] = seed
    if constraint:
        given["constraints"] = [options.constraint(text).describe() for text in constraint]
    if objective:
        chosen = [options.objective(text, maximize) for text in objective]
        given["objectives"] = [one.describe() for one in chosen]
    optimizer = _opened(journal, given, space, evaluated, allow_change, was or ())
    with contextlib.closing(optimizer):
        pending = list(optimizer.run.trials.pending.values())
        settled = optimizer
        if count:
            settled = _settled(optimizer)
        begun = []
        for _ in range(count):
            params, explanation = settled.proposal()
            if settled is not optimizer:
                settled.run.begin(params)
            begun.append(optimizer.run.begin(params, explanation.record()))
            optimizer.run.release()  # this process ends before the value comes
    batch = _batch(begun or pending, optimizer)
    if len(batch):
        parameters = ["trial", *map(_column, optimizer.space.parameters)]
        typer.echo(printable(batch[parameters].map(_cell).to_string(index=False)))
    if pending or not count:
        typer.echo(_waiting(pending))
    if not count and optimizer.completed():
        typer.echo()
        _show_summary(optimizer, journal)
    if to is not None:
        table.save(batch.to_csv(index=False).encode(), to)
        typer.echo(f"fill in {to}, then `kbo tell {journal} {to}`")


def _opened(
    path: Path,
    given: Mapping[str, Any],
    space: Path | None,
    known: Path | None,
    allow_change: bool,
    was: Sequence[str],
) -> Optimizer:
    """Return the optimiser of a journal, which it goes on writing, or begins.

    Args:
        path: The journal.
        given: Entries of its header by options, which must be those of a journal that exists.
        space: The file of the space; None for that of the journal.
        known: Known results.
        allow_change: Whether the space may change without a question.
        was: The values that new parameters had so far, as text.
    """
    header: dict[str, Any] = {"method": kbo.Practical.default_method, "maximize": False, "seed": 0}
    if "noise_std" not in given:
        header["noisy"] = True  # as all measurements; equal ones may be rounded
    parameters = None
    former: Iterable[str] = ()
    if path.exists() and path.stat().st_size:
        contents = record.read_journal(path).whole()
        if obstacle := _obstacle(contents):
            raise InvalidInput(
                f"{path} cannot be continued in the shell: {obstacle}. Continue it by the script that began it, or by "
                f"kbo.Optimizer(..., journal={str(path)!r}) with its arguments; `kbo tell` records results."
            )
        header = {**contents.header}
        parameters = contents.space
        former = contents.space.parameters
    if space is not None:
        parameters = kbo.Space.load(space)
    if parameters is None:
        raise InvalidInput(
            f"there is no journal {path}. A new run needs its parameters, --space space.yaml, with lines such as "
            "`temperature: {kind: Float, low: 20, high: 90}`."
        )
    values = {}
    for name, text in options.assignments(was, "--was temperature=20").items():
        if name not in parameters.parameters:
            names = ", ".join(parameters.parameters)
            raise InvalidInput(f"--was: the space has no parameter {name!r}, only {names}.")
        values[name] = table.option(text, parameters.parameters[name])
    reopen = partial(
        record.optimizer_of,
        {**header, **given},
        space=parameters,
        journal=path,
        evaluated=known,
        was=values,
    )
    try:
        optimizer = reopen()
    except AnotherSpace as error:
        if not allow_change and not options.agrees_to_change(error, path):
            raise
        options.check_new_parameters(path, parameters, values, "--was NAME=VALUE")
        optimizer = reopen(allow_change=True)
        for name in former:
            if name not in {*parameters.parameters, *parameters.constants}:
                typer.echo(
                    f"{name} is left out from here on: {_LEFT_OUT.format(name=name)}", err=True
                )
    if not optimizer.trials:
        better = "smaller values are better"
        if optimizer.objectives:
            better = ", ".join(map(str, optimizer.objectives))
        elif optimizer.maximize:
            better = "larger values are better"
        typer.echo(f"a new run in {path}: {better}", err=True)
    return optimizer


def _obstacle(contents: record.JournalFile) -> str:
    """Return the reason why a journal alone does not determine the next trial; empty if it does."""
    header = contents.header
    if header.get("setting") == "confirm":
        return "it has the evaluations of a confirmation"
    if header.get("setting") == "certified":
        return "the run is certified, and the journal has only a fingerprint of its kernel"
    if "class" in header or "strategies" in header:
        return "the setting is your own, and the journal has only its name"
    for entry in contents.space.describe():
        if entry["kind"] == "function":
            return (
                f"the constraint {entry['name']} is a function, and the journal has only its name"
            )
    return ""


def tell(
    journal: Journal,
    result: Annotated[list[str], typer.Argument(metavar="TRIAL VALUE | TABLE", help=_RESULT)],
    failed: Annotated[str | None, Option(help=_FAILED)] = None,
    again: Annotated[bool, Option("--again", help=_AGAIN)] = False,
    as_done: Annotated[bool, Option("--as-done", help=_AS_DONE)] = False,
) -> None:
    """Record results of experiments that `kbo ask` has chosen, and say what is known by now.

    One value, with other measurements and the standard error of the value (sem) if there are any:

        kbo tell lab.jsonl 17 0.83 memory=7.2 sem=0.02

    Several objectives:

        kbo tell lab.jsonl 17 yield=0.83 cost=12

    An experiment that cannot be done with these settings, so that they are avoided (after an accident, `kbo journal
    remove` leaves it out):

        kbo tell lab.jsonl 17 --failed "nothing dissolved"

    An experiment that was carried out at 61 degrees, not at the 60 that were proposed:

        kbo tell lab.jsonl 17 0.83 temperature=61 --as-done

    A table with the columns trial and value, and for other measurements columns such as measured.memory. Rows without
    a value are still pending. If a row is wrong, nothing of the table is recorded:

        kbo tell lab.jsonl batch.csv

    A wrong result is replaced by `kbo journal correct`, or left out by `kbo journal remove`.
    """
    first, *others = result
    if Path(first).suffix in (".xlsx", ".xls", ".ods"):
        raise InvalidInput(f"save the table {first} as CSV, separated by commas, and give that.")
    with contextlib.closing(run_of(journal)) as run:
        if first.endswith(".csv"):
            if others or again or failed is not None:
                raise InvalidInput(f"give {first} alone: its columns have values and failures.")
            reports = _in_table(Path(first), run, as_done)
        else:
            cells = {"trial": first}
            if others and "=" not in others[0]:
                cells["value"] = others.pop(0)
            if failed is not None:
                cells["failed"] = failed
            measured = options.assignments(others, "other measurements such as memory=7.2")
            parameters = run.space.parameters.keys() - {run.main, *run.needed}
            for name in measured.keys() & parameters:
                cells[_column(name)] = measured.pop(name)
            if "value" not in cells and run.main != outcome.OBJECTIVE and run.main in measured:
                cells["value"] = measured.pop(run.main)
            reports = [_report(cells, measured, run, again, as_done)]
        if not reports:
            typer.echo(f"{first} has no result that is not recorded already")
        for report in reports:
            typer.echo(printable(_recorded(report, run, again)))
    show_known(journal)


def show_known(journal: Path) -> None:
    """Print what is known after a result, and the pending trials."""
    contents = record.read_journal(journal)
    obstacle = _obstacle(contents)
    typer.echo()
    if obstacle:
        typer.echo(f"no summary: {obstacle}")
    else:
        _show_summary(record.Record.of(journal).reopened(), journal)
    typer.echo(_waiting(trial for trial in contents.trials if trial.status == "pending"))


def _settled(optimizer: Optimizer) -> Optimizer:
    """Return a copy of a run in memory without its doubtful value, which is named; the run if there is none."""
    outlier, settled = results.without_doubt(optimizer)
    if outlier is not None and settled is not optimizer:
        typer.echo(f"{summary.in_question(outlier)} It is left out until then.", err=True)
    return settled


def _show_summary(optimizer: Optimizer, journal: Path) -> None:
    """Print the summary of the run so far."""
    result = results.result_of(optimizer, "", str(journal))
    options.show_lines(summary.lines(result, f"`kbo tell {journal} TRIAL VALUE --again`"))


def run_of(path: Path) -> runs.Run:
    """Return the run in a journal, to which events are appended; of whatever setting, since it needs no model.

    Raises:
        InvalidInput: The journal has the evaluations of a confirmation.
        JournalError: It cannot be read, is damaged, or is in use.
    """
    contents = record.read_journal(path).whole()
    header = contents.header
    if header.get("setting") == "confirm":
        raise InvalidInput(
            f"{path} has the evaluations of a confirmation, whose results no person may choose: confirm again, with "
            "another journal."
        )
    latest = {**header, "space": contents.space.describe()}
    needed = record.needed_by(header)
    value_range: Any = header.get("value_range")
    return runs.Run(
        contents.space,
        latest,
        path,
        needed,
        value_range,
        describe=lambda first: header,
        main=contents.main,
    )


class _Report(NamedTuple):
    """The result of a trial: a value with other measurements, or the reason of a failure; and settings of its own."""

    trial: Trial
    value: float | None
    measured: dict[str, float]
    failure: str | None
    others: dict[str, Any]


def _in_table(path: Path, run: runs.Run, as_done: bool) -> list[_Report]:
    """Return the results in a table that are not recorded yet; ``as_done`` as for ``_report``.

    Raises:
        InvalidInput: The table cannot be read, or one of its rows is wrong, which is named.
    """
    value = _value_column(run)
    advice = _TABLE.format(value=value, path=run.path)
    columns, lines = table.read_csv(path, advice)
    if len({*columns}) < len(columns) or not {"trial", value} <= {*columns}:
        raise InvalidInput(f"{path} has the columns {checks.shown(columns)}. {advice}")
    names = {}
    unused = []
    for column in columns:
        if column in ("trial", value, "failed"):
            continue
        name = evaluated.measurement_in(column, run.space, record.needed_by(run.header))
        if name is not None:
            names[column] = name
        elif column not in map(_column, run.space.parameters):
            unused.append(column)
    if unused:
        typer.echo(printable(f"columns that are not used: {', '.join(unused)}"), err=True)
    reports = {}
    for line, entries in lines:
        if value not in entries and "failed" not in entries:
            continue
        measured = {name: entries[column] for column, name in names.items() if column in entries}
        cells = {column: cell for column, cell in entries.items() if column != "value"}
        if value in entries:
            cells["value"] = entries[value]
        with checks.inside(f"line {line} of {path}"):
            report = _report(cells, measured, run, as_done=as_done, is_row=True)
            if report.trial.number in reports:
                raise InvalidInput(
                    f"an earlier line has a result of trial {report.trial.number}, too: leave one out, and report "
                    "another measurement at the same parameters with --again."
                )
        reports[report.trial.number] = report
    return [report for report in reports.values() if report.trial.status == "pending"]


def _report(
    cells: Mapping[str, str],
    measured: Mapping[str, str],
    run: runs.Run,
    again: bool = False,
    as_done: bool = False,
    is_row: bool = False,
) -> _Report:
    """Return a result that can be recorded.

    Args:
        cells: The number of the trial, its value or failure, and parameters, as text by column.
        measured: Other measurements as text by name.
        run: The run.
        again: Whether it is another measurement at the parameters of a trial that has ended.
        as_done: Whether other settings than those of the trial are those of the experiment.
        is_row: Whether it is a row of a table, which may have been recorded before.

    Raises:
        InvalidInput: It cannot be recorded.
    """
    trial = run.trials.known(trial_in(cells.get("trial", "")))
    numbers = {name: number_in(name, text) for name, text in measured.items()}
    failure = cells.get("failed")
    has_one = ("value" in cells) != (failure is not None)
    if not has_one or (again and failure is not None):
        raise InvalidInput(
            f"expected either a value of trial {trial.number}, as `kbo tell {run.path} {trial.number} "
            f"{_result(run, '0.83')}`, or the reason of a failure, by --failed or in the column failed; not both."
        )
    value = None
    if failure is None:
        value = number_in("value", cells["value"])
        missing = [name for name in record.needed_by(run.header) if name not in numbers]
        if missing:
            raise InvalidInput(
                f"trial {trial.number} lacks the measurement of {missing[0]!r}: add {missing[0]}=NUMBER, or in a table "
                f"the column measured.{missing[0]}."
            )
        value, numbers = run.outcome((value, numbers))
    others = {}
    for name, chosen in table.by_name(trial.params).items():
        cell = cells.get(_column(name), str(chosen))
        if cell in (str(chosen), table.cell(chosen)) or _is_rounded(table.parsed(cell), chosen):
            continue
        others[name] = table.parsed(cell)
        if name in run.space.parameters:
            others[name] = table.option(cell, run.space.parameters[name])
        if not as_done and not (is_row and trial.removed is not None):
            raise InvalidInput(
                f"trial {trial.number} was proposed with {name}={chosen}, and is told with {name}={cell}. If the "
                "experiment was carried out with that, add --as-done: the result is a new trial in place of it."
            )
    is_recorded = value == trial.value and failure == trial.failure
    if value is not None and run.main != outcome.OBJECTIVE:
        is_recorded &= all(numbers[name] == trial.measured.get(name) for name in run.needed)
    if trial.corrected or trial.removed is not None:
        is_recorded = is_recorded or bool(others) or value == trial.reported
    is_replaced = as_done and bool(others) and trial.status == "complete" and not is_row
    if again == (trial.status == "pending") and not (is_replaced or (is_row and is_recorded)):
        raise InvalidInput(_misplaced(trial, run))
    if as_done and not others and not is_row:
        names = ", ".join(run.space.parameters)
        raise InvalidInput(
            f"--as-done: none of the settings differs from those of trial {trial.number}. Give the one that does, such "
            f"as {next(iter(run.space.parameters))}=VALUE; the parameters are {names}."
        )
    return _Report(trial, value, numbers, failure, others)


def _is_rounded(number: Any, chosen: Any) -> bool:
    """Return whether a number in a table is that of a trial, up to rounding."""
    both = (number, chosen)
    if not all(isinstance(entry, float | int) for entry in both):
        return False
    return math.isclose(*both, rel_tol=_ROUNDED)


def _misplaced(trial: Trial, run: runs.Run) -> str:
    """Return the refusal of a first result of a trial that has one, and of another one of a trial that has none."""
    number = trial.number
    if trial.status == "pending":
        return f"trial {number} is pending, so this is its first value: leave out --again."
    status = trial.status
    if trial.value is not None:
        status += f", with the value {trial.value:.6g}"
    return (
        f"trial {number} is {status}. Report another measurement at the same parameters by `kbo tell {run.path} "
        f"{number} {_result(run, 'VALUE')} --again`, or replace the result by `kbo journal correct {run.path} "
        f"{number}=VALUE`."
    )


def _recorded(report: _Report, run: runs.Run, again: bool) -> str:
    """Record a result, and return it as text."""
    trial = report.trial
    if report.failure is not None:
        trial = run.fail(trial, report.failure, measured=report.measured)
        return f"trial {trial.number} failed: {trial.failure}"
    assert report.value is not None
    returned = (report.value, report.measured)
    others = report.others
    if not again and not others:
        trial = run.complete(trial, returned)
        return f"trial {trial.number}: {result_text(*returned)}"
    params: Any = {**table.by_name(trial.params), **others}
    if not run.space.named:
        params = list(params.values())
    number = run.add(params, returned).number
    place = f"at the parameters of trial {trial.number}"
    if others:
        place = f"at those of trial {trial.number} but {table.format_params(others)}"
    if others and not again:
        run.remove(trial, f"carried out with {table.format_params(others)}, as trial {number}")
    return f"trial {number}, {place}: {result_text(*returned)}"


def result_text(value: float, measured: Mapping[str, float]) -> str:
    """Return a value and other measurements as text."""
    return f"{value:.6g}  {table.format_params(dict(measured))}".rstrip()


def trial_in(text: str) -> int:
    """Return the number of a trial in a text.

    Raises:
        InvalidInput: There is none.
    """
    if not text.isdecimal():
        raise InvalidInput(f"expected the number of a trial, got {text!r}.")
    return int(text)


def number_in(name: str, text: str) -> float:
    """Return the number in a text.

    Raises:
        InvalidInput: It is no finite number.
    """
    return checks.number(name, table.parsed(text), "a finite number, with a point as 0.5")


def _batch(trials: Iterable[Trial], optimizer: Optimizer) -> pd.DataFrame:
    """Return the table of trials to fill in."""
    run = optimizer.run
    columns = ["trial", *map(_column, run.space.parameters), _value_column(run)]
    columns += [f"measured.{name}" for name in run.needed]
    rows = []
    for trial in trials:
        params = table.by_name(trial.params)
        row: dict[str, Any] = {"trial": trial.number}
        for name, value in params.items():
            row[_column(name)] = table.cell(value) if isinstance(value, str) else value
        rows.append(row)
    return pd.DataFrame(rows, columns=[*columns, "failed"], dtype=object)


def _column(name: str) -> str:
    """Return the column of a parameter, which no spreadsheet takes for a formula."""
    if name in _RESERVED or name.startswith(table.FORMULA):
        return f"params.{name}"
    return name


def _value_column(run: runs.Run) -> str:
    """Return the column of the value: of several objectives the first one's name, or "measured.<name>".

    No spreadsheet takes it for a formula.
    """
    taken = run.main in ("trial", "failed", *run.space.parameters)
    if taken or run.main.startswith(table.FORMULA):
        return f"measured.{run.main}"
    return table.heading(run.main)


def _result(run: runs.Run, value: str) -> str:
    """Return an example of the result of a trial with a value, as arguments of ``kbo tell``."""
    if run.main == outcome.OBJECTIVE:
        return value
    return " ".join(f"{name}={value}" for name in (run.main, *run.needed))


def _cell(value: Any) -> str:
    """Return the text of a parameter's value; empty if it has none."""
    if isinstance(value, float):
        return f"{value:.6g}".replace("nan", "")
    return str(value)


def _waiting(trials: Iterable[Trial]) -> str:
    """Return the numbers of pending trials, and how long they have been pending."""
    groups: dict[str, list[str]] = {}
    for trial in trials:
        age = "pending"
        if trial.started is not None:
            seconds = time.time() - trial.started
            age = "pending for less than 2 minutes"
            if seconds >= 120:
                age = f"pending for {summary.duration(seconds)}"
        groups.setdefault(age, []).append(str(trial.number))
    lines = [f"{age}: {', '.join(numbers)}" for age, numbers in groups.items()]
    return "\n".join(lines) or "no trial is pending"
