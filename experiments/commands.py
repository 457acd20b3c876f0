"""Parts that several commands of the experiments use: options, the folder of the results, and messages."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from experiments.sweep.cells import Cell
from experiments.sweep.runner import CellsFailed, sweep
from kbo.__main__ import run as run_command
from kbo._base import checks
from kbo.cli import options
from kbo.cli.options import Address, Device, Engine, Out, Quiet, Verbose, engine_of
from kbo.errors import InvalidInput

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "Address",
    "Device",
    "Engine",
    "Out",
    "Quiet",
    "Verbose",
    "Workers",
    "apply_verbosity",
    "engine_of",
    "folder",
    "names_in",
    "run",
    "shown",
    "sweep_and_report",
]

Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        "-j",
        min=1,
        help="Processes at a time; by default one per CPU. 1 works in this process.",
    ),
]


def run(function: Callable[..., None]) -> None:
    """Run a function as the command of this process, with its arguments as options.

    Args:
        function: The function, with the annotations of typer; its docstring is the help.
    """
    app = typer.Typer(
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.command()(function)
    run_command(app)


def apply_verbosity(quiet: bool, verbose: bool) -> None:
    """Set the levels of the logs of kbo and of the experiments from --quiet and --verbose."""
    options.apply_verbosity(quiet, verbose)
    logging.getLogger("experiments").setLevel(logging.getLogger("kbo").level)


def names_in(option: str, text: str, known: Iterable[str]) -> list[str]:
    """Return the names in the text of an option, which separates them by commas.

    Raises:
        InvalidInput: A name is unknown.
    """
    known = list(known)
    return [checks.one_of(option, name, known) for name in text.split(",")]


def folder(path: Path) -> Path:
    """Create a folder if it does not exist, and return its path.

    Raises:
        InvalidInput: The folder cannot be created.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(
            f"cannot create the folder {path}: {error.strerror}. Choose another with --out."
        ) from error
    return path


def sweep_and_report(
    cells: Iterable[Cell],
    path: Path,
    report: Callable[[pd.DataFrame], str],
    *,
    workers: int | None,
    quiet: bool,
) -> None:
    """Do the cells that are not done yet, and print a report on the rows of all cells.

    Args:
        cells: The cells.
        path: The folder of finished cells.
        report: A function of the rows that returns the text to print.
        workers: Number of processes at the same time.
        quiet: Whether no progress bar is shown.

    Raises:
        CellsFailed: Some cells failed; the report of the others is printed.
    """
    with shown():
        found = sweep(cells, folder(path), workers=workers, progress=not quiet)
        typer.echo(found.checked(report(found.rows)))


@contextlib.contextmanager
def shown() -> Iterator[None]:
    """Print the results of the finished cells even if other cells failed or Ctrl-C ended the work."""
    try:
        yield
    except CellsFailed as error:
        typer.echo(error.text)
        raise
    except KeyboardInterrupt:
        typer.echo(
            "interrupted: finished runs are kept, and the same command continues from here.",
            err=True,
        )
        raise typer.Exit(130) from None
