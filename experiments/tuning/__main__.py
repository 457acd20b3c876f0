"""``python -m experiments.tuning``: kbo and other tuners on a suite of problems."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from experiments import commands
from experiments.commands import Address, Engine, Out, Quiet, Verbose, Workers
from experiments.problems.bbob import DIMENSIONS, NOISES
from experiments.tuning import suites
from experiments.tuning.suite_run import experiment
from experiments.tuning.tuners import TUNERS

_SUITES = f"{', '.join(suites.SUITES)}."
_HALVES = f"Half of the problems: {', '.join(suites.HALVES)}."
_DIMENSIONS = f"Dimension of functions: {', '.join(map(str, DIMENSIONS))}."
_NOISES = f"Noise of functions: {', '.join(NOISES)}."
_TUNERS = f"Of {', '.join(TUNERS)}; with commas between."


def compare(
    suite: Annotated[str, typer.Option(help=_SUITES)] = "bbob",
    half: Annotated[str, typer.Option(help=_HALVES)] = "development",
    dim: Annotated[int | None, typer.Option(help=_DIMENSIONS, show_default="5")] = None,
    noise: Annotated[str | None, typer.Option(help=_NOISES, show_default="gauss")] = None,
    trials: Annotated[int, typer.Option("--trials", "-n", min=1, help="Trials of a run.")] = 50,
    instances: Annotated[
        int, typer.Option("--instances", "-K", min=1, help="Runs on each problem.")
    ] = 3,
    tuners: Annotated[str, typer.Option(help=_TUNERS)] = "kbo,tpe,gpsampler,random",
    workers: Workers = None,
    engine: Engine = "processes",
    address: Address = None,
    out: Out = Path("kbo-runs"),
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Compare kbo with other tuners on a suite of problems.

    Finished runs are kept: the same command continues after Ctrl-C, and with more tuners or instances only these are
    run.

    If the code of kbo has changed, its runs are repeated.

    Example:  python -m experiments.tuning --suite bbob --dim 5 --noise gauss --trials 50 --tuners kbo,tpe,gpsampler
    """
    commands.apply_verbosity(quiet, verbose)
    compared = experiment(suite, half, tuners.split(","), trials, instances, dim=dim, noise=noise)
    processes = commands.engine_of(engine, address, workers)
    with commands.shown():
        typer.echo(compared(commands.folder(out / "compare"), False, processes, not quiet))


def main() -> None:
    """Run the command."""
    commands.run(compare)


if __name__ == "__main__":
    main()
