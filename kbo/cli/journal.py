"""``kbo journal``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kbo._base.lazy import Lazy
from kbo._base.terminal import printable
from kbo.errors import InvalidInput

if TYPE_CHECKING:
    from kbo.optimize import Trial, table
    from kbo.optimize.run import journal as journals
    from kbo.optimize.strategies import explanation as explanations
    from kbo.report import record
else:
    journals = Lazy("kbo.optimize.run.journal")
    explanations = Lazy("kbo.optimize.strategies.explanation")
    table = Lazy("kbo.optimize.table")
    record = Lazy("kbo.report.record")

journal: typer.Typer = typer.Typer(
    no_args_is_help=True, help="Check, show, repair or export the journal of a run."
)

File = Annotated[Path, typer.Argument(help="A journal (.jsonl).")]


@journal.command()
def check(path: File) -> None:
    """Say whether a journal is whole; the exit code is 1 if it is not."""
    contents = record.read_journal(path).whole()
    counts = Counter(trial.status for trial in contents.trials)
    statuses = ("complete", "failed", "pruned", "pending")
    shown = ", ".join(f"{counts[status]} {status}" for status in statuses)
    typer.echo(f"{path} is whole: {len(contents.trials)} trials, {shown}")
    if contents.unfinished:
        typer.echo("An unfinished last line follows, of a run that was killed; it will be removed.")


@journal.command()
def show(
    path: File,
    trial: Annotated[
        int | None, typer.Option("--trial", help="One trial alone, and why it was chosen.")
    ] = None,
) -> None:
    """Show the trials of a journal as a table."""
    trials = record.read_journal(path).whole().trials
    if trial is not None:
        _show_one(trials, trial)
        return
    has_measurements = any(trial.measured for trial in trials)
    columns = ["trial", "status", "value", "seconds", "parameters"]
    if has_measurements:
        columns.append("measured")
    shown = Table(*columns, "failure")
    for row in trials:
        cells = [str(row.number), row.status, _number(row.value), _number(row.seconds)]
        cells.append(table.format_params(row.params))
        if has_measurements:
            cells.append(table.format_params(row.measured))
        cells.append(row.failure or "")
        shown.add_row(*(Text(printable(cell), overflow="fold") for cell in cells))
    Console().print(shown)


def _show_one(trials: Sequence[Trial], number: int) -> None:
    """Print one trial, and why it was chosen.

    Raises:
        InvalidInput: There is no such trial.
    """
    if not 0 <= number < len(trials):
        raise InvalidInput(f"there is no trial {number}: the journal has {len(trials)}, from 0.")
    trial = trials[number]
    typer.echo(f"trial {number}: {trial.status} {_number(trial.value)}".rstrip())
    typer.echo(printable(table.format_params(trial.params)))
    explanation = explanations.explanation_of(trial.proposal)
    if explanation is None:
        typer.echo("its parameters were given, or the journal was written before version 0.25")
    else:
        typer.echo(printable(str(explanation)))


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.6g}"


@journal.command()
def repair(
    path: File, new: Annotated[Path, typer.Argument(help="The file to write; it must not exist.")]
) -> None:
    """Write the lines before the first damaged one to a new journal."""
    contents = record.read_journal(path)
    if new.exists():
        raise InvalidInput(f"{new} exists, and repair overwrites nothing: choose another file.")
    journals.write(new, contents.header, contents.events)
    typer.echo(f"{new} has {len(contents.trials)} trials ({len(contents.events)} events)")
    if contents.damage:
        typer.echo(f"left out: all from {contents.damage}")
    else:
        typer.echo("nothing was damaged")


@journal.command()
def export(
    path: File,
    to: Annotated[
        Path | None,
        typer.Option("--to", help="A .csv, .json or .parquet file, by default CSV on the screen."),
    ] = None,
) -> None:
    """Write the trials of a journal as a table."""
    trials = record.read_journal(path).whole().trials
    if to is None:
        typer.echo(table.text(trials), nl=False)
    else:
        typer.echo(f"{len(trials)} trials in {table.write(trials, to)}")
