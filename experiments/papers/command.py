"""The command of every paper, ``python -m experiments.papers.NAME``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from experiments import commands
from experiments.commands import Address, Engine, Out, Quiet, Verbose, Workers
from experiments.papers import catalogue


def command_of(name: str) -> Callable[..., None]:
    """Return the function that is the command of a paper.

    The paper is imported under its name in the catalogue. A module that runs as ``__main__`` would not do: cells name
    their functions by module.

    Args:
        name: Name of the paper in ``catalogue.PAPERS``.
    """
    paper = catalogue.paper(name)

    def reproduce(
        table: Annotated[
            int | None, typer.Option("--table", "-t", help="Number of a table.")
        ] = None,
        figure: Annotated[
            int | None, typer.Option("--figure", "-f", help="Number of a figure.")
        ] = None,
        study: Annotated[
            str | None, typer.Option("--study", help="Name of a study beyond the paper.")
        ] = None,
        quick: Annotated[
            bool, typer.Option("--quick", help="Tiny sizes, in a folder of their own.")
        ] = False,
        workers: Workers = None,
        engine: Engine = "processes",
        address: Address = None,
        out: Out = Path("kbo-runs"),
        quiet: Quiet = False,
        verbose: Verbose = False,
    ) -> None:
        """Repeat an experiment of the paper; without --table, --figure or --study, list them.

        Finished runs are kept: the same command continues after Ctrl-C, and experiments of a paper share their runs.
        """
        commands.apply_verbosity(quiet, verbose)
        wanted = {"table": table, "figure": figure, "study": study}
        experiments = [
            paper.experiment(kind, number) for kind, number in wanted.items() if number is not None
        ]
        if not experiments:
            typer.echo(paper.contents())
        processes = commands.engine_of(engine, address, workers)
        results = out / name
        if quick:
            results = out / f"{name}-quick"
        for experiment in experiments:
            with commands.shown():
                typer.echo(experiment(commands.folder(results), quick, processes, not quiet))

    return reproduce


def main(name: str) -> None:
    """Run the command of the paper with a name."""
    commands.run(command_of(name))
