"""``kbo run``, ``kbo compare`` and ``kbo reproduce``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from kbo.cli import options
from kbo.cli.options import Address, Engine, Out, Quiet, Verbose, Workers
from kbo.errors import InvalidInput


def run(
    problem: Annotated[str, typer.Argument(help=options.PROBLEMS)] = "rkhs",
    method: Annotated[list[str] | None, typer.Option("--method", "-m", help=options.METHODS)] = None,
    rounds: Annotated[int, typer.Option("--rounds", "-T", min=1, help="Rounds per run.")] = 300,
    seeds: Annotated[int, typer.Option("--seeds", "-K", min=1, help="Runs per method, on the same problems.")] = 3,
    kernel: Annotated[
        str | None, typer.Option(help="rkhs problems: rbf, matern52, matern32 or matern12.", show_default="rbf")
    ] = None,
    lengthscale: Annotated[
        float | None, typer.Option(help="Lengthscale of the kernel.", show_default="the problem's own, 0.5 for rkhs")
    ] = None,
    dim: Annotated[int | None, typer.Option(min=1, help="rkhs problems: dimension.", show_default="3")] = None,
    arms: Annotated[int | None, typer.Option(min=1, help="rkhs problems: arms per round.", show_default="100")] = None,
    delta: Annotated[float, typer.Option(help="Probability that the bounds may fail.")] = 0.01,
    ridge: Annotated[float | None, typer.Option(help=options.RIDGE, show_default="noise variance")] = None,
    multiplier: Annotated[
        float | None, typer.Option(help=options.MULTIPLIER, show_default="the method's bound")
    ] = None,
    first: Annotated[int | None, typer.Option(help=options.FIRST, show_default="no such round")] = None,
    noise_upper: Annotated[float | None, typer.Option(help=options.NOISE_UPPER, show_default="none")] = None,
    strict_noise: Annotated[bool, typer.Option("--strict-noise", help=options.STRICT_NOISE)] = False,
    workers: Workers = None,
    engine: Engine = "processes",
    address: Address = None,
    out: Out = Path("kbo-runs"),
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Run bandit algorithms on the same problems and compare their regret.

    Finished runs are kept: the same command continues after Ctrl-C, and more methods or seeds cost only themselves.

    Example:  kbo run rkhs -m dmm-ucb -m amm-ucb -m ay-gp-ucb -m igp-ucb -m random -T 1000 -K 3

    Example:  kbo run chessboard -m k-ucb -m ek-ucb -m bbkb --ridge 10 --multiplier 0.1 --first 2 -T 1000

    Example:  kbo run streaming -m kernel-ucb-adaptive -m dmm-ucb-adaptive -m kernel-ucb-fixed --noise-upper 1
    """
    options.apply_verbosity(quiet, verbose)
    from kbo.experiments.bandits import BanditMethod, BanditProblem
    from kbo.experiments.compare import compare

    settings = {"kernel": kernel, "lengthscale": lengthscale, "dim": dim, "n_arms": arms}
    given = {name: value for name, value in settings.items() if value is not None}
    chosen = BanditProblem(problem, given, rounds, delta, first=first, noise_upper=noise_upper)
    names = method or ["dmm-ucb", "amm-ucb", "ay-gp-ucb", "random"]
    methods = [
        BanditMethod(name, ridge=ridge, multiplier=multiplier, noise_bounds="strict" if strict_noise else None)
        for name in names
    ]
    processes = options.engine_of(engine, address, workers)
    with _experiment():
        typer.echo(compare(chosen, methods, seeds, _folder(out), workers=processes, progress=not quiet))


def compare(
    suite: Annotated[str, typer.Option(help="{suites}.")] = "bbob",
    half: Annotated[str, typer.Option(help="Half of the problems: {halves}.")] = "development",
    dim: Annotated[int | None, typer.Option(help="Dimension of functions: {dimensions}.", show_default="5")] = None,
    noise: Annotated[str | None, typer.Option(help="Noise of functions: {noises}.", show_default="gauss")] = None,
    trials: Annotated[int, typer.Option("--trials", "-n", min=1, help="Trials of a run.")] = 50,
    instances: Annotated[int, typer.Option("--instances", "-K", min=1, help="Runs on each problem.")] = 3,
    tuners: Annotated[str, typer.Option(help="Of {tuners}; with commas between.")] = "kbo,tpe,gpsampler,random",
    workers: Workers = None,
    engine: Engine = "processes",
    address: Address = None,
    out: Out = Path("kbo-runs"),
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Compare kbo with other tuners on a suite of problems.

    Finished runs are kept: the same command continues after Ctrl-C, and more tuners or instances cost only themselves.

    Runs of kbo are done again when its code has changed.

    Example:  kbo compare --suite bbob --dim 5 --noise gauss --trials 50 --tuners kbo,tpe,gpsampler
    """
    options.apply_verbosity(quiet, verbose)
    from kbo.experiments.tuning.suite_run import experiment

    compared = experiment(suite, half, tuners.split(","), trials, instances, dim=dim, noise=noise)
    processes = options.engine_of(engine, address, workers)
    with _experiment():
        typer.echo(compared(_folder(out / "compare"), False, processes, not quiet))


def reproduce(
    paper: Annotated[str, typer.Argument(help=options.PAPERS)],
    table: Annotated[int | None, typer.Option("--table", "-t", help="Number of a table.")] = None,
    figure: Annotated[int | None, typer.Option("--figure", "-f", help="Number of a figure.")] = None,
    study: Annotated[str | None, typer.Option("--study", help="Name of a study beyond the paper.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Tiny sizes, in a folder of their own.")] = False,
    workers: Workers = None,
    engine: Engine = "processes",
    address: Address = None,
    out: Out = Path("kbo-runs"),
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Repeat an experiment of a paper; without --table, --figure or --study, list them.

    Finished runs are kept: the same command continues after Ctrl-C, and experiments of a paper share their runs.

    Example:  kbo reproduce mixture --table 1
    """
    options.apply_verbosity(quiet, verbose)
    from kbo.experiments.papers import catalogue as papers

    chosen = papers.paper(paper)
    wanted = {"table": table, "figure": figure, "study": study}
    experiments = [chosen.experiment(kind, name) for kind, name in wanted.items() if name is not None]
    if not experiments:
        typer.echo(chosen.contents())
    processes = options.engine_of(engine, address, workers)
    for experiment in experiments:
        with _experiment():
            typer.echo(experiment(_folder(out / f"{paper}{'-quick' * quick}"), quick, processes, not quiet))


def _folder(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"cannot create the folder {path}: {error.strerror}. Choose another with --out.") from error
    return path


@contextlib.contextmanager
def _experiment() -> Iterator[None]:
    """Show the results of the finished cells even if others failed or Ctrl-C ended the work."""
    from kbo.experiments.sweep.runner import CellsFailed

    try:
        yield
    except CellsFailed as error:
        typer.echo(error.text)
        raise
    except KeyboardInterrupt:
        typer.echo("interrupted: finished runs are kept, and the same command continues from here.", err=True)
        raise typer.Exit(130) from None
