"""``kbo journal``: journals are checked, shown, corrected, repaired and exported."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kbo._base.lazy import Lazy
from kbo._base.terminal import printable
from kbo.cli import options
from kbo.cli.by_hand import result_text, run_of, show_known, trial_in
from kbo.errors import InvalidInput

if TYPE_CHECKING:
    import pandas as pd

    from kbo.optimize import Trial
    from kbo.optimize.run import events, journal_file, table
    from kbo.optimize.run import journal as journals
    from kbo.optimize.run.events import Event
    from kbo.optimize.run.journal_file import JournalFile
    from kbo.optimize.strategies import explanation as explanations
    from kbo.report import header as headers
    from kbo.report import summary
else:
    events = Lazy("kbo.optimize.run.events")
    journals = Lazy("kbo.optimize.run.journal")
    explanations = Lazy("kbo.optimize.strategies.explanation")
    table = Lazy("kbo.optimize.run.table")
    pd = Lazy("pandas")
    headers = Lazy("kbo.report.header")
    journal_file = Lazy("kbo.optimize.run.journal_file")
    summary = Lazy("kbo.report.summary")

journal: typer.Typer = typer.Typer(
    no_args_is_help=True, help="Check, show, correct, repair or export the journal of a run."
)

_CORRECTION = "TRIAL=VALUE, where 11=95 gives trial 11 the value 95"

_LONGEST = 60
"""Largest number of characters of a text in a table on the screen."""

_OCCURRENCES = {
    "Ask": "begun",
    "Again": "started again",
    "Tell": "reported",
    "Fail": "failed",
    "Prune": "stopped early",
    "Correct": "corrected to",
    "Remove": "removed",
}
"""Words for the events of a trial, by the class of the event."""


@journal.command()
def check(path: options.Journal) -> None:
    """Check that a journal is not damaged; the exit code is 1 if it is."""
    contents = journal_file.read_journal(path).whole()
    counts = summary.trial_counts(contents.trials.all, contents.trials.space)
    typer.echo(printable(f"{path} is whole: {counts}; {len(contents.events)} events"))
    if contents.unfinished:
        typer.echo("An unfinished last line follows, of a run that was killed; it will be removed.")


@journal.command()
def show(
    path: options.Journal,
    trial: Annotated[
        int | None,
        typer.Option("--trial", help="Show one trial: why it was chosen, and what was reported."),
    ] = None,
) -> None:
    """Show the trials of a journal as a table, and the changes of its space."""
    contents = journal_file.read_journal(path).whole()
    if trial is not None:
        _show_trial(contents, trial)
        return
    if not contents.trials.all:
        typer.echo("no trials")
        return
    typer.echo(printable(_table(contents)))
    for line in _changes_of_space(contents):
        typer.echo(printable(line))


def _table(contents: JournalFile) -> str:
    """Return the trials as a table, without columns that are empty."""
    trials = contents.trials.all
    shown = table.frame(trials, headers.main_in(contents.header)).drop(
        columns=["started", "finished", "failure"]
    )
    shown["reported"] = [trial.reported for trial in trials]
    shown["remark"] = [" ".join(_remark(trial).split()) or None for trial in trials]
    shown = shown.dropna(axis="columns", how="all").astype(object)
    with pd.option_context("display.max_colwidth", _LONGEST):
        return shown.map(_cell).to_string(index=False)


def _cell(value: Any) -> str:
    """Return a value as text, a number with six digits; empty if there is none."""
    if pd.isna(value):
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)


def _remark(trial: Trial) -> str:
    """Return the reason why a trial has no value, or "corrected"; otherwise an empty text."""
    if trial.removed is not None:
        return f"removed: {trial.removed}"
    if trial.corrected:
        return "corrected"
    return trial.failure or ""


def _changes_of_space(contents: JournalFile) -> list[str]:
    """Return lines about each change of the space: the next trial at that time, and the differences."""
    lines = []
    n_trials = 0
    space = contents.header["space"]
    for event in contents.events:
        if isinstance(event, events.Ask):
            n_trials = event.number + 1
        if not isinstance(event, events.Change):
            continue
        differences = journals.differences(
            {"space": space}, {"space": event.space}, ("before", "after")
        )
        lines.append(f"{_date(event)}before trial {n_trials} the space has changed:")
        lines += [f"  {difference}" for difference in differences]
        if event.was:
            lines.append(
                f"  earlier trials without a value of it had {table.format_params(event.was)}"
            )
        space = event.space
    return lines


def _date(event: Event) -> str:
    """Return the local time of an event and two spaces; empty if the journal has no time."""
    if event.time is None:
        return ""
    return time.strftime("%Y-%m-%d %H:%M  ", time.localtime(event.time))


def _history_of_trial(number: int, all_events: Sequence[Event]) -> list[str]:
    """Return a line for each event that begins or ends a trial, or changes its result."""
    lines = []
    for event in all_events:
        occurrence = _OCCURRENCES.get(type(event).__name__)
        if occurrence is None or getattr(event, "number", None) != number:
            continue
        if isinstance(event, events.Tell | events.Correct):
            occurrence += f" {result_text(event.value, event.measured)}"
        elif isinstance(event, events.Fail | events.Remove):
            occurrence += f": {event.reason}"
        lines.append(f"{_date(event)}{occurrence}")
    return lines


def _show_trial(contents: JournalFile, number: int) -> None:
    """Print one trial, the reason why it was chosen, and its events.

    Raises:
        InvalidInput: There is no such trial.
    """
    n_trials = len(contents.trials.all)
    if not 0 <= number < n_trials:
        raise InvalidInput(f"there is no trial {number}: the journal has {n_trials}, from 0.")
    trial = contents.trials.all[number]
    typer.echo(f"trial {number}: {trial.status} {_cell(trial.value)}".rstrip())
    typer.echo(printable(table.format_params(trial.params)))
    explanation = explanations.explanation_of(trial.proposal)
    if explanation is None:
        typer.echo("its parameters were given")
    else:
        typer.echo(printable(str(explanation)))
    for line in _history_of_trial(number, contents.events):
        typer.echo(printable(line))


@journal.command()
def correct(
    path: options.Journal,
    values: Annotated[
        list[str],
        typer.Argument(
            metavar="TRIAL=VALUE...",
            help="Trials and their new values: 11=95 gives trial 11 the value 95. With several objectives it is the "
            "value of the first one.",
        ),
    ],
    measured: Annotated[
        list[str] | None,
        typer.Option("--measured", help="Another measurement, such as memory=7.2; repeatable."),
    ] = None,
) -> None:
    """Replace results of trials that have ended. The journal also keeps the earlier results.

    Example:  kbo journal correct lab.jsonl 11=95
    """
    with contextlib.closing(run_of(path)) as run:
        measurements = {}
        for name, text in options.assignments(measured or (), "--measured memory=7.2").items():
            measurements[name] = options.number_in(name, text)
        corrections = []
        for number, text in options.assignments(values, _CORRECTION).items():
            trial = run.trials.ended(trial_in(number))
            returned = (options.number_in("value", text), {**trial.measured, **measurements})
            run.outcome(returned)
            corrections.append((trial, returned))
        if measurements and len(corrections) > 1:
            raise InvalidInput("--measured is for one trial: correct the others by themselves.")
        for trial, returned in corrections:
            before = _cell(trial.value) or trial.status
            run.correct(trial, returned)
            typer.echo(f"trial {trial.number}: {result_text(*returned)} (was {before})")
    show_known(path)


@journal.command()
def remove(
    path: options.Journal,
    numbers: Annotated[
        list[int], typer.Argument(metavar="TRIAL...", help="The numbers of the trials.")
    ],
    reason: Annotated[
        str, typer.Option("--reason", help="Why the trials do not count.")
    ] = "no reason given",
) -> None:
    """Leave out trials: kbo does not use their results any more. `kbo journal correct` brings a trial back.

    Example:  kbo journal remove lab.jsonl 11 --reason "the pump had stopped"
    """
    with contextlib.closing(run_of(path)) as run:
        for number in numbers:
            if run.trials.known(number).removed is not None:
                raise InvalidInput(f"trial {number} is removed already.")
        for number in dict.fromkeys(numbers):
            removed = run.remove(number, reason)
            typer.echo(printable(f"trial {number} is removed: {removed.removed}"))
    show_known(path)


@journal.command()
def repair(
    path: options.Journal,
    new: Annotated[
        Path, typer.Argument(metavar="NEW", help="The file to write; it must not exist.")
    ],
) -> None:
    """Write all lines before the first damaged line to a new journal."""
    contents = journal_file.read_journal(path)
    if new.exists():
        raise InvalidInput(f"{new} exists, and repair overwrites nothing: choose another file.")
    journals.write(new, contents.header, contents.events)
    typer.echo(f"{new} has {len(contents.trials.all)} trials ({len(contents.events)} events)")
    if contents.damage:
        typer.echo(f"left out: all from {contents.damage}")
    else:
        typer.echo("nothing was damaged")


@journal.command()
def export(
    path: options.Journal,
    to: Annotated[
        Path | None,
        typer.Option("--to", help="A .csv, .json or .parquet file; by default CSV on the screen."),
    ] = None,
) -> None:
    """Write the trials of a journal as a table."""
    contents = journal_file.read_journal(path).whole()
    trials = contents.trials.all
    if to is None:
        typer.echo(table.text(trials, headers.main_in(contents.header)), nl=False)
    else:
        written = table.write(trials, to, main=headers.main_in(contents.header))
        typer.echo(f"{len(trials)} trials in {written}")
