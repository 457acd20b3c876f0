"""``kbo journal``."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kbo._base.lazy import Lazy
from kbo._base.terminal import printable
from kbo.errors import InvalidInput, JournalError

if TYPE_CHECKING:
    from kbo.optimize import table
    from kbo.optimize.run import journal as journals
    from kbo.optimize.run import trials as run_trials
    from kbo.optimize.run.events import Contents
    from kbo.optimize.run.trials import Trials
    from kbo.report import record
else:
    journals = Lazy("kbo.optimize.run.journal")
    table = Lazy("kbo.optimize.table")
    run_trials = Lazy("kbo.optimize.run.trials")
    record = Lazy("kbo.report.record")

journal: typer.Typer = typer.Typer(
    no_args_is_help=True, help="Check, show, repair or export the journal of a run."
)

File = Annotated[Path, typer.Argument(help="A journal (.jsonl).")]


def _read(path: Path) -> tuple[Contents, Trials, str]:
    """Return what a journal holds, its trials up to the first line that is damaged or does not fit, and that line."""
    found = journals.examine(path)
    with record.naming(path):
        trials = run_trials.Trials(record.space_of(found.header))
    return found, trials, trials.add_all(found.events) or found.damage


def _whole(path: Path) -> tuple[Contents, Trials]:
    found, trials, damage = _read(path)
    if damage:
        raise JournalError(
            f"{path} is damaged: {damage}. Save what comes before with `kbo journal repair {path} NEW`."
        )
    return found, trials


@journal.command()
def check(path: File) -> None:
    """Say whether a journal is whole; the exit code is 1 if it is not."""
    found, trials = _whole(path)
    counts = Counter(trial.status for trial in trials.all)
    shown = ", ".join(
        f"{counts[status]} {status}" for status in ("complete", "failed", "pruned", "pending")
    )
    typer.echo(f"{path} is whole: {len(trials.all)} trials, {shown}")
    if found.unfinished:
        typer.echo("An unfinished last line follows, of a run that was killed; it will be removed.")


@journal.command()
def show(path: File) -> None:
    """Show the trials of a journal as a table."""
    trials = _whole(path)[1].all
    measured = any(trial.measured for trial in trials)
    columns = ["trial", "status", "value", "seconds", "parameters"]
    if measured:
        columns.append("measured")
    shown = Table(*columns, "failure")
    for trial in trials:
        cells = [str(trial.number), trial.status, _number(trial.value), _number(trial.seconds)]
        cells.append(table.format_params(trial.params))
        if measured:
            cells.append(table.format_params(trial.measured))
        cells.append(trial.failure or "")
        shown.add_row(*(Text(printable(cell), overflow="fold") for cell in cells))
    Console().print(shown)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


@journal.command()
def repair(
    path: File, new: Annotated[Path, typer.Argument(help="The file to write; it must not exist.")]
) -> None:
    """Write the lines before the first damaged one to a new journal."""
    found, trials, damage = _read(path)
    if new.exists():
        raise InvalidInput(f"{new} exists, and repair overwrites nothing: choose another file.")
    journals.write(new, found.header, found.events[: trials.n_events])
    typer.echo(f"{new} has {len(trials.all)} trials ({trials.n_events} events)")
    typer.echo(f"left out: all from {damage}" if damage else "nothing was damaged")


@journal.command()
def export(
    path: File,
    to: Annotated[
        Path | None,
        typer.Option("--to", help="A .csv, .json or .parquet file, by default CSV on the screen."),
    ] = None,
) -> None:
    """Write the trials of a journal as a table."""
    trials = _whole(path)[1].all
    if to is None:
        typer.echo(table.text(trials), nl=False)
    else:
        typer.echo(f"{len(trials)} trials in {table.write(trials, to)}")
