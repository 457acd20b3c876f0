"""``kbo report`` and ``kbo audit``: the page of a run, and estimates from trials of other tools."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

import kbo
from kbo._base.lazy import Lazy
from kbo.cli.script import load
from kbo.errors import InvalidInput

if TYPE_CHECKING:
    from kbo.report import audit as audits
else:
    audits = Lazy("kbo.report.audit")

_SCRIPT = "For a certified run: the script with its `setting`, since the journal lacks the kernels."
_HISTORY = "Storage of Optuna (URL or .db), JSON of Ax, table (.csv), or journal of kbo (.jsonl)."
_VALUES = "Column of a table with the values."


def report(
    run: Annotated[Path, typer.Argument(metavar="JOURNAL", help="The journal of a run (.jsonl).")],
    page: Annotated[
        Path | None, Option("--to", help="The .html file; by default beside the journal.")
    ] = None,
    script: Annotated[str | None, Option(help=_SCRIPT)] = None,
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
    study: Annotated[str | None, Option(help="Name of the study, if there are several.")] = None,
    target: Annotated[
        str | None, Option(help=_VALUES, show_default="value, objective, loss ...")
    ] = None,
    maximize: Annotated[
        bool, Option("--maximize", help="Larger values of a table are better.")
    ] = False,
    page: Annotated[
        Path | None, Option("--to", help="Also write a page to this .html file.")
    ] = None,
) -> None:
    """Estimate which trial of a history is likely the best, with which certainty, and whether more are worth it.

    Example:  kbo audit sqlite:///studies.db --study resnet
    """
    estimates = kbo.audit(history, study=study, target=target, maximize=maximize)
    typer.echo(estimates)
    if page is not None:
        typer.echo(f"page           {estimates.write(page)}")
