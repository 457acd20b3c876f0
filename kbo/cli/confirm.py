"""``kbo confirm``: the best trials of a run are evaluated again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

import kbo
from kbo._base.lazy import Lazy
from kbo.cli import options
from kbo.cli.options import Out, Quiet
from kbo.cli.script import load
from kbo.errors import AnotherProblem

if TYPE_CHECKING:
    from kbo.optimize import Result
    from kbo.optimize import result as results
else:
    results = Lazy("kbo.optimize.result")


def confirm(
    target: Annotated[str, typer.Argument(metavar="TARGET", help=options.TARGETS)],
    budget: Annotated[
        int, Option("--budget", "-n", help="Most new evaluations, those of earlier calls included.")
    ] = 80,
    tolerance: Annotated[
        float | None,
        Option(
            help="Difference that counts as none, in units of the objective.",
            show_default="a quarter of the noise level at the best trial",
        ),
    ] = None,
    workers: Annotated[
        int | None, Option("--workers", "-j", min=1, help="Evaluations at the same time.")
    ] = None,
    timeout: Annotated[
        float | None,
        Option(help="Time limit of an evaluation in seconds; after it, it has failed."),
    ] = None,
    journal: Annotated[
        Path | None, Option(help="Journal of `kbo tune`; by default OUT/tune-TARGET.jsonl.")
    ] = None,
    out: Out = Path("kbo-runs"),
    quiet: Quiet = False,
) -> None:
    """Evaluate the best trials of a finished `kbo tune` again, until the best one is known up to the tolerance.

    Only the new evaluations count, and no model is assumed. So a trial that was lucky in its noise has no advantage.
    Without --value-range in the run, the statement is about medians. Each of up to five trials needs eight to ten
    evaluations, or more.

    Then:  kbo confirm script.py --budget 80
    """
    options.apply_verbosity(quiet, verbose=False)
    script = load(target)
    path = journal or out / f"tune-{script.name}.jsonl"
    optimizer = kbo.report.Record.of(path, script.kernel, script.limits).reopened()
    result = results.result_of(optimizer, "", str(path))
    settings = {
        "tolerance": tolerance,
        "workers": workers,
        "timeout": timeout,
        "progress": not quiet,
    }
    run(result, script.objective, path, budget, **settings)


def run(result: Result, objective: Any, path: Path, budget: int, **settings: Any) -> None:
    """Evaluate the best trials of a run again, and print which one is the best.

    The new evaluations have their own journal beside the journal of the run. If it belongs to other trials, it is
    renamed, and a new one begins.

    Args:
        result: The run.
        objective: The objective of the run.
        path: The journal of the run.
        budget: The largest number of new evaluations.
        settings: Further arguments of ``Result.confirm``.
    """
    journal = path.with_name(f"{path.stem}-confirm.jsonl")
    try:
        confirmed = result.confirm(objective, budget, journal=journal, **settings)
    except AnotherProblem:
        former = options.unused_path(journal)
        journal.replace(former)
        typer.echo(f"other trials are to be confirmed now: renamed {journal} to {former}", err=True)
        confirmed = result.confirm(objective, budget, journal=journal, **settings)
    answer, *facts = str(confirmed).splitlines()
    lines = [("confirmation", answer), *[("", fact) for fact in facts], ("journal", str(journal))]
    options.show_lines(lines)
