"""``kbo ask``: the next experiments of a run that people carry out."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

import kbo
from kbo._base.lazy import Lazy
from kbo._base.terminal import printable
from kbo.cli import options
from kbo.cli.by_hand import (
    column_of,
    pending_text,
    show_summary,
    table_of,
)
from kbo.errors import InvalidInput

if TYPE_CHECKING:
    from kbo.optimize import Optimizer, Trial
    from kbo.optimize import result as results
    from kbo.optimize.run import journal_file, table
    from kbo.report import header as headers
    from kbo.report import summary
else:
    table = Lazy("kbo.optimize.run.table")
    results = Lazy("kbo.optimize.result")
    headers = Lazy("kbo.report.header")
    journal_file = Lazy("kbo.optimize.run.journal_file")
    summary = Lazy("kbo.report.summary")

_COUNT = "Number of new trials. 0 shows the pending trials and the summary."
_SPACE = "File of the parameters (.yaml or .json); needed at the first call, and to change them."
_WAS = "Value of a parameter in trials or known results that lack it, such as temperature=20; repeatable."
_TO = "Write the new trials (with -n 0 the pending ones) to a table (.csv) for `kbo tell`."
_OBJECTIVE = "One of several objectives, such as cost or yield=maximize; repeatable."


def ask(
    journal: options.Journal,
    count: Annotated[int, Option("-n", min=0, help=_COUNT)] = 1,
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
    """Propose the next experiments of a run that people carry out, and show the experiments without a result.

    The first call needs the parameters and the objective. Later calls read both from the journal:

        kbo ask lab.jsonl -n 5 --space space.yaml --maximize

        kbo ask lab.jsonl -n 5

    Pending trials are not proposed again. You can tell their results at any time and in any order.

    Then:  kbo tell lab.jsonl 0 0.83
    """
    if to is not None and to.exists():
        raise InvalidInput(f"{to} exists, and may have results in it: choose another file.")
    header = _header_of(maximize, noise_std, seed, value_range, constraint or (), objective or ())
    optimizer = _run_of(journal, header, space, evaluated, was or (), allow_change)
    if not optimizer.trials:
        typer.echo(f"a new run in {journal}: {_direction(optimizer)}", err=True)
    with contextlib.closing(optimizer):
        pending = list(optimizer.run.trials.pending.values())
        new = _new_trials(optimizer, count)
    batch = table_of(new or pending, optimizer)
    if len(batch):
        columns = ["trial", *map(column_of, optimizer.space.parameters)]
        typer.echo(printable(batch[columns].map(_shown_cell).to_string(index=False)))
    if pending or not count:
        typer.echo(pending_text(pending))
    if not count and optimizer.completed():
        typer.echo()
        show_summary(optimizer, journal)
    if to is not None:
        table.save(batch.to_csv(index=False).encode(), to)
        typer.echo(f"fill in {to}, then `kbo tell {journal} {to}`")


# The run


def _header_of(
    maximize: bool,
    noise_std: float | None,
    seed: int | None,
    value_range: tuple[float, float] | None,
    constraints: Sequence[str],
    objectives: Sequence[str],
) -> dict[str, Any]:
    """Return the entries of a journal's header that options give. An option that is not used gives no entry."""
    header: dict[str, Any] = {}
    if maximize:
        header["maximize"] = True
    if noise_std is not None:
        header["noise_std"] = noise_std
    if value_range is not None:
        header["value_range"] = list(value_range)
    if seed is not None:
        header["seed"] = seed
    if constraints:
        header["constraints"] = [options.constraint(text).describe() for text in constraints]
    if objectives:
        header["objectives"] = [options.objective(text, maximize).describe() for text in objectives]
    return header


def _run_of(
    path: Path,
    header: Mapping[str, Any],
    space_file: Path | None,
    evaluated: Path | None,
    was: Sequence[str],
    allow_change: bool,
) -> Optimizer:
    """Return an optimiser that continues a journal, or begins it.

    Args:
        path: The journal.
        header: The entries of a header that options give; they must agree with a journal that has begun.
        space_file: The file of the search space; None for the space of the journal.
        evaluated: The file of known results.
        was: Values of parameters that earlier trials or known results lack, as NAME=VALUE.
        allow_change: Whether the space may change without asking the user.

    Raises:
        InvalidInput: There is no space, trials cannot be chosen from the journal alone, or an option cannot be used.
        JournalError: The journal is damaged or in use, or the options do not agree with it.
    """
    contents = None
    if path.exists() and path.stat().st_size:
        contents = journal_file.read_journal(path).whole()
    if space_file is not None:
        space = kbo.Space.load(space_file)
    elif contents is not None:
        space = contents.trials.space
    else:
        raise InvalidInput(
            f"there is no journal {path}. A new run needs its parameters, --space space.yaml, with lines such as "
            "`temperature: {kind: Float, low: 20, high: 90}`."
        )
    values = _former_values(was, space)
    given = {"space": space, "journal": path, "evaluated": evaluated, "was": values}
    if contents is None:
        return headers.optimizer_of({**_new_header(header), **header}, **given)
    obstacle = _obstacle_to_choosing(contents)
    if obstacle:
        raise InvalidInput(
            f"{path} cannot be continued in the shell: {obstacle}. Continue it by the script that began it, or by "
            f"kbo.Optimizer(..., journal={str(path)!r}) with its arguments; `kbo tell` records results."
        )
    reopen = partial(headers.optimizer_of, {**contents.header, **header}, **given)
    optimizer = options.in_changed_space(
        reopen, path, space, values, "--was NAME=VALUE", allow_change
    )
    for name in contents.trials.space.parameters:
        if name not in optimizer.space.parameters:
            typer.echo(
                f"{name} is left out from here on: trials that differ in it alone count as repetitions. To keep them "
                f"apart, give it one value: `{name}: VALUE`.",
                err=True,
            )
    return optimizer


def _new_header(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of the header of a new run that no option gives."""
    header = {"method": kbo.Practical.default_method, "maximize": False, "seed": 0}
    if "noise_std" not in given:
        header["noisy"] = True  # all measurements have noise; equal ones may be rounded
    return header


def _obstacle_to_choosing(contents: journal_file.JournalFile) -> str:
    """Return the reason why trials cannot be chosen from a journal alone; empty if they can."""
    header = contents.header
    if header.get("setting") == "confirm":
        return "it has the evaluations of a confirmation"
    if header.get("setting") == "certified":
        return "the run is certified, and the journal has only a fingerprint of its kernel"
    if "class" in header or "strategies" in header:
        return "the setting is your own, and the journal has only its name"
    for entry in contents.trials.space.describe():
        if entry["kind"] == "function":
            return (
                f"the constraint {entry['name']} is a function, and the journal has only its name"
            )
    return ""


def _former_values(texts: Sequence[str], space: kbo.Space) -> dict[str, Any]:
    """Return the values of --was by name.

    Raises:
        InvalidInput: A text is not NAME=VALUE, or the space has no such parameter or value.
    """
    values = {}
    for name, text in options.assignments(texts, "--was temperature=20").items():
        if name not in space.parameters:
            names = ", ".join(space.parameters)
            raise InvalidInput(f"--was: the space has no parameter {name!r}, only {names}.")
        values[name] = table.option(text, space.parameters[name])
    return values


def _direction(optimizer: Optimizer) -> str:
    """Return the direction of each objective, as text."""
    if optimizer.objectives:
        return ", ".join(map(str, optimizer.objectives))
    if optimizer.maximize:
        return "larger values are better"
    return "smaller values are better"


# The trials


def _new_trials(optimizer: Optimizer, count: int) -> list[Trial]:
    """Choose and begin new trials, and return them.

    If a value is doubtful, it is named, and a copy of the run without this value chooses the trials.
    """
    if count == 0:
        return []
    outlier, settled = results.without_doubt(optimizer)
    if outlier is not None and settled is not optimizer:
        question = summary.in_question(outlier, range(len(optimizer.trials)))
        typer.echo(f"{question} It is left out until then.", err=True)
    trials = []
    for _ in range(count):
        params, explanation = settled.proposal()
        if settled is not optimizer:
            settled.run.begin(params)
        trials.append(optimizer.run.begin(params, explanation.record()))
        optimizer.run.release()  # this process ends before the value comes
    return trials


def _shown_cell(value: Any) -> str:
    """Return the value of a parameter as text for the screen; empty if there is no value."""
    if isinstance(value, float):
        return f"{value:.6g}".replace("nan", "")
    return str(value)
