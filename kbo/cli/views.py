"""``kbo plot``, ``kbo report``, ``kbo audit`` and ``kbo bench``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from kbo.cli.options import JOURNAL, Device, Run
from kbo.errors import InvalidInput


def plot(
    path: Run,
    picture: Annotated[Path | None, typer.Option("--to", help="The PNG; by default beside the input.")] = None,
) -> None:
    """Draw a stored run again."""
    target = picture or path.with_name(f"{path.name if path.is_dir() else path.stem}-plot.png")
    if target.suffix != ".png":
        raise InvalidInput(f"the picture must be a .png file, got {target}: change --to.")
    try:
        if path.suffix == ".parquet" or path.is_dir():
            from kbo.experiments.compare import redraw

            redraw(path, target)
        else:
            from kbo.report.figures.history import trace
            from kbo.report.record import Record

            record = Record.of(path)
            trace(record.trials, target, title=path.stem, maximize=record.maximize)
    except (OSError, KeyError) as error:  # pyarrow's errors of damaged files are OSErrors
        raise InvalidInput(f"cannot draw {path} to {target}: {error}") from error
    typer.echo(f"picture  {target}")


def report(
    run: Annotated[Path, typer.Argument(help=JOURNAL)],
    page: Annotated[Path | None, typer.Option("--to", help="The .html file; by default beside the input.")] = None,
    script: Annotated[
        str | None, typer.Option(help="Script of a certified run, with its `setting`: the journal lacks the kernels.")
    ] = None,
) -> None:
    """Write the results of a run and the assumptions of its bounds as one HTML page.

    Example:  kbo report kbo-runs/tune-train.jsonl --script train.py
    """
    from kbo.cli.tuning import load
    from kbo.histories import FOREIGN
    from kbo.optimize.constraint import measured_only
    from kbo.report import write

    if run.suffix == ".parquet" or run.is_dir():
        raise InvalidInput(
            f"{run} has rows of `kbo run`, and a page is made of a journal: draw it with `kbo plot {run}`."
        )
    if run.suffix in FOREIGN:
        raise InvalidInput(f"{run} is no journal of kbo: see `kbo audit {run} --to {run.with_suffix('.html')}`.")
    given: dict[str, Any] = {}
    if script is not None:
        target = load(script)
        kernel = getattr(target.setting, "kernel", None)
        given = {"kernel": kernel, "constraints": measured_only(target.constraints)[0]} if kernel is not None else {}
    typer.echo(f"page     {write(run, page, **given)}")


def audit(
    history: Annotated[
        str,
        typer.Argument(help="Storage of Optuna (URL or .db), JSON of Ax, table (.csv), or journal of kbo (.jsonl)."),
    ],
    study: Annotated[str | None, typer.Option(help="Study in a storage, if there are several.")] = None,
    target: Annotated[
        str | None, typer.Option(help="Column of the values of a table.", show_default="value, objective, loss ...")
    ] = None,
    maximize: Annotated[bool, typer.Option("--maximize", help="Larger values of a table are better.")] = False,
    page: Annotated[Path | None, typer.Option("--to", help="An .html file to write a page to as well.")] = None,
) -> None:
    """Say which trial of a history is likely the best, how sure that is, and whether more trials are worth it.

    Example:  kbo audit sqlite:///studies.db --study resnet
    """
    import kbo

    found = kbo.audit(history, study=study, target=target, maximize=maximize)
    typer.echo(found)
    if page is not None:
        typer.echo(f"page           {found.write(page)}")


def bench(
    device: Device = "cpu",
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes, to see that it works.")] = False,
) -> None:
    """Measure speed as ratios, against straight-line code, BoTorch and half the size, in one process."""
    from kbo import devices
    from kbo.experiments.bench import race, suite

    results = suite.run(device, quick)
    typer.echo(f"{race.table(results)}\n{race.machine(devices.device('device', device))}")
