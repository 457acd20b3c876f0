"""Runs by hand, for ``kbo ask``, ``kbo tell`` and ``kbo journal``: their journals, summaries and results."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from kbo._base.lazy import Lazy
from kbo._base.terminal import printable
from kbo.cli import options
from kbo.errors import InvalidInput

if TYPE_CHECKING:
    import pandas as pd

    from kbo.optimize import Optimizer, Trial
    from kbo.optimize import result as results
    from kbo.optimize.run import given_table, journal_file, table
    from kbo.optimize.run import run as runs
    from kbo.report import advice, record, summary
    from kbo.report import header as headers
else:
    pd = Lazy("pandas")
    given_table = Lazy("kbo.optimize.run.given_table")
    table = Lazy("kbo.optimize.run.table")
    results = Lazy("kbo.optimize.result")
    runs = Lazy("kbo.optimize.run.run")
    advice = Lazy("kbo.report.advice")
    headers = Lazy("kbo.report.header")
    journal_file = Lazy("kbo.optimize.run.journal_file")
    record = Lazy("kbo.report.record")
    summary = Lazy("kbo.report.summary")

_RESERVED = ("trial", "value", "failed")
"""Columns of a table of results that no parameter can have."""


# Runs


def run_of(path: Path) -> runs.Run:
    """Return the run of a journal, to record results. The setting does not matter, since no model is fitted.

    Raises:
        InvalidInput: The journal has the evaluations of a confirmation.
        JournalError: The journal cannot be read, is damaged, or is in use.
    """
    contents = journal_file.read_journal(path).whole()
    header = contents.header
    space = contents.trials.space
    if header.get("setting") == "confirm":
        raise InvalidInput(
            f"{path} has the evaluations of a confirmation, whose results no person may choose: confirm again, with "
            "another journal."
        )
    value_range: Any = header.get("value_range")
    return runs.Run(
        space,
        {**header, "space": space.describe()},
        path,
        headers.needed_by(header),
        value_range,
        describe=lambda first: header,
        main=headers.main_in(header),
    )


def show_known(journal: Path) -> None:
    """Print the summary of a run from its journal, and its pending trials."""
    run = record.Record.of(journal)
    typer.echo()
    if run.optimizer is None:
        typer.echo(f"no summary: {run.obstacle}")
    else:
        show_summary(run.optimizer, journal)
    typer.echo(pending_text(run.with_status("pending")))


def show_summary(optimizer: Optimizer, journal: Path) -> None:
    """Print the summary of the run so far."""
    result = results.result_of(optimizer, "", str(journal))
    surer = f"measure the best ones again (`kbo tell {journal} TRIAL VALUE --again`)"
    options.show_lines(summary.lines(result, surer, chooser=summary.chooser_of(journal)))


def pending_text(trials: Iterable[Trial]) -> str:
    """Return the numbers of pending trials as text, with a line for each age."""
    groups: dict[str, list[str]] = {}
    for trial in trials:
        age = "pending"
        if trial.started is not None:
            seconds = time.time() - trial.started
            age = "pending for less than 2 minutes"
            if seconds >= 120:
                age = f"pending for {advice.duration(seconds)}"
        groups.setdefault(age, []).append(str(trial.number))
    lines = [f"{age}: {', '.join(numbers)}" for age, numbers in groups.items()]
    return "\n".join(lines) or "no trial is pending"


# Tables of results


def column_of(name: str) -> str:
    """Return the column of a parameter in a table of results.

    It has a prefix if the name belongs to another column, or if a spreadsheet would read it as a formula.
    """
    if name in _RESERVED or name.startswith(table.FORMULA):
        return f"params.{name}"
    return name


def value_column(run: runs.Run) -> str:
    """Return the column of the value in a table of results: "value", or the name of the first of several objectives.

    It has a prefix if the name belongs to another column, or if a spreadsheet would read it as a formula.
    """
    is_taken = run.main in ("trial", "failed", *run.space.parameters)
    if is_taken or run.main.startswith(table.FORMULA):
        return f"measured.{run.main}"
    return table.heading(run.main)


def table_of(trials: Iterable[Trial], optimizer: Optimizer) -> pd.DataFrame:
    """Return a table of trials in which the user fills in the results."""
    run = optimizer.run
    columns = ["trial", *map(column_of, run.space.parameters), value_column(run)]
    columns += [f"measured.{name}" for name in run.needed]
    rows = []
    for trial in trials:
        row: dict[str, Any] = {"trial": trial.number}
        for name, value in table.by_name(trial.params).items():
            row[column_of(name)] = table.cell(value) if isinstance(value, str) else value
        rows.append(row)
    return pd.DataFrame(rows, columns=[*columns, "failed"], dtype=object)


def measurement_columns(columns: Sequence[str], run: runs.Run) -> dict[str, str]:
    """Return the names of the measurements besides the value, by column.

    Unused columns are named on standard error: they are neither measurements nor columns of ``kbo ask --to``.
    """
    expected = {"trial", "failed", value_column(run)}
    settings = {column_of(name) for name in run.space.parameters}
    names = {}
    unused = []
    for column in columns:
        if column in expected:
            continue
        name = given_table.measurement_in(column, run.space, run.needed)
        if name is not None:
            names[column] = name
        elif column not in settings:
            unused.append(column)
    if unused:
        typer.echo(printable(f"columns that are not used: {', '.join(unused)}"), err=True)
    return names


# Results as text


def result_text(value: float, measured: Mapping[str, float]) -> str:
    """Return a value and other measurements as text."""
    if not measured:
        return f"{value:.6g}"
    return f"{value:.6g}, measured {table.format_params(dict(measured))}"


def trial_in(text: str) -> int:
    """Return the number of a trial from a text.

    Raises:
        InvalidInput: The text is no whole number.
    """
    if not text.isdecimal():
        raise InvalidInput(f"expected the number of a trial, such as 17, got {text!r}.")
    return int(text)
