"""The application ``kbo`` with its commands: tune, confirm, ask, audit, report, tell and journal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import kbo
from kbo._base.extras import require

require("the command line", "cli", "typer")

import typer

from kbo._base.lazy import Lazy
from kbo.cli.ask import ask
from kbo.cli.journal import journal
from kbo.cli.options import Journal
from kbo.cli.script import load
from kbo.cli.tell import tell
from kbo.cli.tune import confirm, tune
from kbo.errors import InvalidInput

if TYPE_CHECKING:
    from kbo.report import audit as audits
else:
    audits = Lazy("kbo.report.audit")

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


_SCRIPT = "For a certified run: the script with its `setting`, since the journal lacks the kernels."
_HISTORY = "Storage of Optuna (URL or .db), JSON of Ax, table (.csv), or journal of kbo (.jsonl)."
_VALUES = "Column of a table with the values."


def report(
    run: Journal,
    page: Annotated[
        Path | None, typer.Option("--to", help="The .html file; by default beside the journal.")
    ] = None,
    script: Annotated[str | None, typer.Option(help=_SCRIPT)] = None,
) -> None:
    """Write the results of a run and the assumptions of its bounds as one HTML page.

    Example:  kbo report kbo-runs/tune-train.jsonl --script train.py
    """
    if run.suffix in audits.FOREIGN:
        raise InvalidInput(
            f"{run} is no journal of kbo: see `kbo audit {run} --to {run.with_suffix('.html')}`."
        )
    if run.suffix == ".py":
        raise InvalidInput(
            f"{run} is a script: give the journal of its run, {Path('kbo-runs') / f'tune-{run.stem}.jsonl'}."
        )
    certified: dict[str, Any] = {}
    if script is not None:
        target = load(script)
        if target.kernel is not None:
            certified = {"kernel": target.kernel, "constraints": target.limits}
    typer.echo(f"page     {kbo.report.write(run, page, **certified)}")


def audit(
    history: Annotated[str, typer.Argument(metavar="HISTORY", help=_HISTORY)],
    study: Annotated[
        str | None, typer.Option(help="Name of the study, if there are several.")
    ] = None,
    target: Annotated[
        str | None, typer.Option(help=_VALUES, show_default="value, objective, loss ...")
    ] = None,
    maximize: Annotated[
        bool, typer.Option("--maximize", help="Larger values of a table are better.")
    ] = False,
    page: Annotated[
        Path | None, typer.Option("--to", help="Also write a page to this .html file.")
    ] = None,
) -> None:
    """Estimate which trial of a history is likely the best, with which certainty, and whether more are worth it.

    Example:  kbo audit sqlite:///studies.db --study resnet
    """
    estimates = kbo.audit(history, study=study, target=target, maximize=maximize)
    typer.echo(estimates)
    if page is not None:
        typer.echo(f"page           {estimates.write(page)}")


app.command()(tune)
app.command()(confirm)
app.command()(ask)
app.command()(audit)
app.command()(report)
app.command(context_settings={"ignore_unknown_options": True})(tell)  # a value may be negative
app.add_typer(journal, name="journal")
