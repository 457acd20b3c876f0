"""Options that several commands share, with their help texts, and functions that read them."""

from __future__ import annotations

import contextlib
import itertools
import logging
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

import kbo
from kbo._base.lazy import Lazy
from kbo.errors import AnotherSpace, InvalidInput

if TYPE_CHECKING:
    from kbo._base import checks
    from kbo.optimize.run import journal_file, table
    from kbo.report import summary
    from kbo.workers import ray
else:
    checks = Lazy("kbo._base.checks")
    table = Lazy("kbo.optimize.run.table")
    journal_file = Lazy("kbo.optimize.run.journal_file")
    summary = Lazy("kbo.report.summary")
    ray = Lazy("kbo.workers.ray")

TARGETS = "An example (digits, branin), or your script: a .py file that defines `bounds` and `objective(params)`."
_NOISE = "Standard deviation of the noise, if you know it; 0 if there is no noise."
_RANGE = "Smallest and largest possible value, such as 0 1 for an error rate."
_LIMIT = 'Limit on a measured quantity, such as "memory<=8"; repeatable.'
_KNOWN = "Known results: a table (.csv) with a column for each parameter and for the value, or a journal."
_CHANGE = "Continue in a changed space, with all earlier trials that have a place in it."
ADDRESS = "With --engine ray: HOST:PORT of a cluster's head, auto to find it, or local to start Ray on this machine."

Journal = Annotated[Path, typer.Argument(metavar="JOURNAL", help="The journal of a run (.jsonl).")]
Maximize = Annotated[bool, Option("--maximize", help="Larger values are better.")]
NoiseStd = Annotated[float | None, Option(help=_NOISE, show_default="estimated")]
ValueRange = Annotated[tuple[float, float] | None, Option(help=_RANGE, show_default="any")]
Seed = Annotated[int | None, Option(help="Seed of kbo's random numbers.", show_default="0")]
Constraints = Annotated[list[str] | None, Option(help=_LIMIT)]
Evaluated = Annotated[Path | None, Option(help=_KNOWN)]
AllowChange = Annotated[bool, Option("--allow-change", help=_CHANGE)]
Out = Annotated[Path, Option("--out", "-o", help="Folder for journals, tables and pictures.")]
Quiet = Annotated[bool, Option("--quiet", "-q", help="No progress bar, results only.")]
Verbose = Annotated[bool, Option("--verbose", "-v", help="Also a line for each trial or run.")]
Engine = Annotated[str, Option("--engine", help="What runs the trials: processes or ray.")]
Address = Annotated[
    str | None, Option("--address", help=ADDRESS, show_default="RAY_ADDRESS, or local")
]
Device = Annotated[str, Option(help="Device of the model: cpu, or an accelerator such as cuda.")]


def engine_of(
    name: str, address: str | None, workers: int | None, resources: str | None = None
) -> Any:
    """Return the argument ``workers`` of ``minimize`` for --engine, --address, --workers and --resources."""
    if name == "ray":
        amounts = {}
        example = "--resources cpu=2,gpu=0.5"
        for resource, text in assignments((resources or "cpu=1").split(","), example).items():
            amounts[resource] = number_in(resource, text)
        return ray.Ray(address, workers or None, resources=amounts)
    if name != "processes":
        raise InvalidInput(f"--engine must be processes or ray, got {name!r}.")
    for option, value in {"--address": address, "--resources": resources}.items():
        if value is not None:
            raise InvalidInput(f"{option} {value} is for a Ray cluster: add --engine ray.")
    if workers == 0:
        return kbo.Processes()
    return workers


def constraint(text: str) -> kbo.Constraint:
    """Return the constraint for a text of --constraint, for example "memory<=8"."""
    sign = "<="
    if ">=" in text:
        sign = ">="
    name, _, limit = text.partition(sign)
    try:
        number = float(limit)
        if not name.strip():
            raise ValueError("a constraint without a name")
    except ValueError as error:
        raise InvalidInput(
            f'--constraint must look like "memory<=8" or "accuracy>=0.9", got {text!r}.'
        ) from error
    if sign == "<=":
        return kbo.Constraint(name.strip(), upper=number)
    return kbo.Constraint(name.strip(), lower=number)


def objective(text: str, maximize: bool) -> kbo.Minimize | kbo.Maximize:
    """Return the objective for a text of --objective; ``maximize`` decides if the text has no direction."""
    name, _, direction = text.partition("=")
    kinds = {
        "minimize": kbo.Minimize,
        "maximize": kbo.Maximize,
        "": kbo.Maximize if maximize else kbo.Minimize,
    }
    if direction not in kinds:
        raise InvalidInput(
            f"--objective must look like cost, or cost=minimize or yield=maximize, got {text!r}."
        )
    return kinds[direction](name.strip())


def assignments(texts: Iterable[str], example: str) -> dict[str, str]:
    """Return the values in texts such as "memory=7.2" by name.

    Args:
        texts: The texts.
        example: The option or argument with an example, for the error message.

    Raises:
        InvalidInput: A text lacks a name or a value, or a name comes twice.
    """
    values: dict[str, str] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if not name.strip() or not value.strip():
            raise InvalidInput(f"expected {example}, got {text!r}.")
        if name.strip() in values:
            raise InvalidInput(f"{name.strip()!r} is given twice: leave one out.")
        values[name.strip()] = value.strip()
    return values


def number_in(name: str, text: str) -> float:
    """Return the number in a text; ``name`` is for the message.

    Raises:
        InvalidInput: The text is no finite number.
    """
    return checks.number(name, table.number_in(text), "a finite number, with a point as 0.5")


def show_lines(lines: summary.Lines) -> None:
    """Print the lines of a summary; in a terminal they are wrapped at its width."""
    columns = None
    if sys.stdout.isatty():
        columns = shutil.get_terminal_size().columns
    typer.echo(summary.text(lines, columns))


def in_changed_space(
    run: Callable[..., Any],
    path: Path,
    space: kbo.Space,
    was: Mapping[str, Any],
    example: str,
    allow_change: bool,
) -> Any:
    """Call a function that opens a journal, and return its value; if the space has changed, only if the user agrees.

    Args:
        run: The function; it takes ``allow_change`` and ``was`` as ``kbo.minimize`` does.
        path: The journal.
        space: The new space.
        was: The values of new parameters in earlier trials, by name.
        example: How a user gives such a value, with NAME for the name.
        allow_change: Whether the space may change without asking the user.

    Raises:
        AnotherSpace: The space has changed, and the user does not agree.
        InvalidInput: Earlier trials lack a value of a new parameter.
    """
    try:
        return run()
    except AnotherSpace as error:
        question = (
            f"The space is not that of {path}:{error.different}\nGo on with its trials there?"
        )
        agrees = allow_change or (sys.stdin.isatty() and typer.confirm(question))
        if not agrees:
            raise
    recorded = journal_file.read_journal(path).trials
    trials = recorded.all
    has_value = {*recorded.space.parameters, *was, *space.constants, *space.conditions}
    for name in space.parameters:
        n_lacking = sum(name not in table.by_name(trial.params) for trial in trials)
        if name not in has_value and n_lacking:
            raise InvalidInput(
                f"{n_lacking} of {len(trials)} trials in {path} have no value of {name!r}, so nothing could be learned "
                f"from them: give the value that it had then, {example.replace('NAME', name)}, or begin a new journal."
            )
    return run(allow_change=True, was=was)


def unused_path(path: Path) -> Path:
    """Return a path beside ``path`` at which there is no file, with the time in its name."""
    name = f"{path.stem}-{time.strftime('%Y%m%d-%H%M%S')}"
    unused = path.with_name(f"{name}{path.suffix}")
    for number in itertools.count(2):
        if not unused.exists():
            break
        unused = path.with_name(f"{name}-{number}{path.suffix}")
    return unused


@contextlib.contextmanager
def renamed(path: Path) -> Iterator[None]:
    """Rename a journal for a new one. If none has begun, because of a wrong argument, the name is restored."""
    former = unused_path(path)
    path.replace(former)
    try:
        typer.echo(f"renamed {path} to {former}", err=True)
        yield
    finally:
        if not path.exists():
            former.replace(path)
            typer.echo(f"renamed {former} back to {path}: no run has begun", err=True)


def apply_verbosity(quiet: bool, verbose: bool) -> None:
    """Set the level of kbo's log from --quiet and --verbose."""
    level = logging.WARNING
    if quiet:
        level = logging.ERROR
    elif verbose:
        level = logging.INFO
    logging.basicConfig(format="%(message)s")
    logging.getLogger("kbo").setLevel(level)
