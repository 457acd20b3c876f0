"""The application ``kbo`` with its commands: tune, confirm, ask, audit, report, tell and journal."""

from __future__ import annotations

from typing import Annotated

import kbo
from kbo._base.extras import require

require("the command line", "cli", "typer")

import typer

from kbo.cli.ask import ask
from kbo.cli.confirm import confirm
from kbo.cli.journal import journal
from kbo.cli.options import CommandWithNames
from kbo.cli.tell import CommandWithFailure, tell
from kbo.cli.tune import tune
from kbo.cli.views import audit, report

app: typer.Typer = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""Bayesian optimisation with guarantees.

    Start with `kbo tune`. It tunes a small neural network in a minute or two. The same command tunes your own script.
    You may press Ctrl-C or kill it at any time: the same command then continues where it stopped.

    `kbo ask` and `kbo tell` are for experiments that people carry out.

    Exit codes: 0 done, 1 an error that the message explains (also if the output could not be written), 2 wrong usage,
    130 interrupted.""",
)


@app.callback(invoke_without_command=True)
def _top(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    if version:
        typer.echo(f"kbo {kbo.__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


app.command(cls=CommandWithNames)(tune)
app.command(cls=CommandWithNames)(confirm)
app.command()(ask)
app.command()(audit)
app.command()(report)
app.command(cls=CommandWithFailure, context_settings={"ignore_unknown_options": True})(
    tell
)  # a value may be negative
app.add_typer(journal, name="journal")
