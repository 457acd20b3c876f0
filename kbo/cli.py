"""The command line: kbo tune | run | reproduce | plot | report | bench."""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

try:
    import typer
except ImportError:  # pragma: no cover
    sys.exit("The command line needs extra packages: pip install 'kbo[cli]'")

import kbo
from kbo import cli_options
from kbo.cli_options import Address, Engine, Out, Quiet, Verbose, Workers
from kbo.errors import InvalidInput, KboError
from kbo.optimize import Result
from kbo.optimize.loop import format_params

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""Bayesian optimisation with guarantees.

    Start with `kbo tune`: it tunes a small neural network in about a minute, and the same command tunes your own
    script. Press Ctrl-C, or kill it, at any time: the same command goes on where it stopped.

    Exit codes: 0 done, 1 an error that the message explains, 2 wrong usage, 130 interrupted.""",
)


@app.callback(invoke_without_command=True)
def _top(
    context: typer.Context, version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False
) -> None:
    if version:
        typer.echo(f"kbo {kbo.__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def tune(
    target: Annotated[
        str,
        typer.Argument(
            help=cli_options.TARGETS,
        ),
    ] = "digits",
    trials: Annotated[int, typer.Option("--trials", "-n", help="Trials in all, those in the journal included.")] = 40,
    method: Annotated[
        str | None, typer.Option("--method", "-m", help=cli_options.BOX_METHODS, show_default="ucb")
    ] = None,
    maximize: Annotated[bool, typer.Option("--maximize", help="Larger values are better.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of the choices kbo makes.")] = 0,
    timeout: Annotated[float | None, typer.Option(help="Seconds after which a trial counts as failed.")] = None,
    stop_at_gap: Annotated[
        float | None,
        typer.Option(
            help="Stop when the bounds allow the optimum to be at most this much better than the recommendation, as "
            "far as a search finds."
        ),
    ] = None,
    again: Annotated[int, typer.Option(help="How often the recommended setting is evaluated again at the end.")] = 5,
    journal: Annotated[Path | None, typer.Option(help="The journal; by default OUT/tune-TARGET.jsonl.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Set an existing journal aside and start anew.")] = False,
    out: Out = Path("kbo-runs"),
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Tune a noisy objective, trial by trial, into a journal that survives a crash.

    Your script needs two names:

        bounds = {"lr": kbo.Float(1e-4, 1e-1, log=True), "layers": kbo.Int(1, 3), "act": ["relu", "tanh"]}

        def objective(params): ...; return validation_error

    Then:  kbo tune script.py --trials 60
    """
    _logging(quiet, verbose)
    from kbo.experiments.targets import target_of

    name, objective, bounds = target_of(target)
    path = journal or out / f"tune-{name}.jsonl"
    _continue_or_set_aside(path, fresh, quiet)
    result = (kbo.maximize if maximize else kbo.minimize)(
        objective,
        bounds,
        trials,
        method=method,
        seed=seed,
        journal=path,
        timeout=timeout,
        stop_at_gap=stop_at_gap,
        progress=not quiet,
        callback=_report_trial if verbose else None,
    )
    if result.stopped.startswith("interrupted"):
        typer.echo(f"{result}\nThe same command continues from here.")
        raise typer.Exit(130)
    typer.echo(result)
    values = _again(objective, result, again, timeout, quiet)
    picture = path.with_suffix(".png")
    _trace(result, picture, name, maximize, values)
    typer.echo(f"picture        {picture}")


@app.command()
def run(
    problem: Annotated[str, typer.Argument(help=cli_options.PROBLEMS)] = "rkhs",
    method: Annotated[list[str] | None, typer.Option("--method", "-m", help=cli_options.METHODS)] = None,
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
    ridge: Annotated[float | None, typer.Option(help=cli_options.RIDGE, show_default="noise variance")] = None,
    multiplier: Annotated[
        float | None, typer.Option(help=cli_options.MULTIPLIER, show_default="the method's bound")
    ] = None,
    first: Annotated[int | None, typer.Option(help=cli_options.FIRST, show_default="no such round")] = None,
    noise_upper: Annotated[float | None, typer.Option(help=cli_options.NOISE_UPPER, show_default="none")] = None,
    workers: Workers = None,
    engine: Engine = "processes",
    address: Address = None,
    out: Out = Path("kbo-runs"),
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Play bandit algorithms on the same problems and compare their regret.

    Finished runs are kept: the same command goes on after Ctrl-C, and more methods or seeds cost only themselves.

    Example:  kbo run rkhs -m dmm-ucb -m amm-ucb -m ay-gp-ucb -m igp-ucb -m random -T 1000 -K 3

    Example:  kbo run chessboard -m k-ucb -m ek-ucb -m bbkb --ridge 10 --multiplier 0.1 --first 2 -T 1000

    Example:  kbo run streaming -m kernel-ucb-adaptive -m dmm-ucb-adaptive -m kernel-ucb-fixed --noise-upper 1
    """
    _logging(quiet, verbose)
    from kbo.experiments.compare import compare
    from kbo.experiments.games import Game, Player

    asked = {"kernel": kernel, "lengthscale": lengthscale, "dim": dim, "n_arms": arms}
    options = {name: value for name, value in asked.items() if value is not None}
    game = Game(problem, options, rounds, delta, first=first, noise_upper=noise_upper)
    methods = method or ["dmm-ucb", "amm-ucb", "ay-gp-ucb", "random"]
    players = [Player(name, ridge=ridge, multiplier=multiplier) for name in methods]
    who = _engine(engine, address, workers)
    with _experiment():
        typer.echo(compare(game, players, seeds, _folder(out), workers=who, progress=not quiet))


@app.command()
def reproduce(
    paper: Annotated[str, typer.Argument(help=cli_options.PAPERS)],
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
    """Repeat an experiment of a paper; without --table, --figure or --study, say which there are.

    Finished runs are kept: the same command goes on after Ctrl-C, and experiments of a paper share their runs.

    Example:  kbo reproduce mixture --table 1
    """
    _logging(quiet, verbose)
    from kbo.experiments import papers

    chosen = papers.paper(paper)
    asked = {"table": table, "figure": figure, "study": study}
    experiments = [chosen.experiment(what, name) for what, name in asked.items() if name is not None]
    if not experiments:
        typer.echo(chosen.contents())
    who = _engine(engine, address, workers)
    for experiment in experiments:
        with _experiment():
            typer.echo(experiment(_folder(out / f"{paper}{'-quick' * quick}"), quick, who, not quiet))


@app.command()
def plot(
    path: Annotated[
        Path, typer.Argument(help="A journal (.jsonl) of `kbo tune`, or rows of `kbo run` (.parquet, or the folder).")
    ],
    picture: Annotated[Path | None, typer.Option("--to", help="The PNG; by default beside the input.")] = None,
) -> None:
    """Draw a stored run again."""
    from kbo.experiments import plots

    target = picture or path.with_name(f"{path.name if path.is_dir() else path.stem}-plot.png")
    if target.suffix != ".png":
        raise InvalidInput(f"the picture must be a .png file, got {target}.")
    try:
        if path.suffix == ".parquet" or path.is_dir():
            from kbo.experiments.compare import redraw

            redraw(path, target)
        else:
            from kbo.optimize.journal import read
            from kbo.optimize.trials import trials_of

            header, events = read(path)
            plots.trace(trials_of(events), target, title=path.stem, maximize=bool(header.get("maximize")))
    except (OSError, KeyError) as error:  # pyarrow's errors of damaged files are OSErrors
        raise InvalidInput(f"cannot draw {path} to {target}: {error}") from error
    typer.echo(f"picture  {target}")


@app.command()
def report(
    run: Annotated[
        Path, typer.Argument(help="A journal (.jsonl) of `kbo tune`, or rows of `kbo run` (.parquet, or the folder).")
    ],
    page: Annotated[Path | None, typer.Option("--to", help="The .html file; by default beside the input.")] = None,
) -> None:
    """Write what a run did and what its bounds rest on as one HTML page.

    The journal of a certified run lacks its kernel; with it, the page has bounds: see kbo.report.write.
    """
    from kbo.report import write

    typer.echo(f"page     {write(run, page)}")


@app.command()
def bench(
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes, to see that it works.")] = False,
) -> None:
    """Measure speed as ratios against BoTorch, in one process, on the same work."""
    import torch

    from kbo.experiments import speed, timing

    if device not in ("cpu", "cuda") or (device == "cuda" and not torch.cuda.is_available()):
        raise InvalidInput(
            f"device {device!r} is not available here; use cpu{' or cuda' if torch.cuda.is_available() else ''}."
        )
    rows = speed.run(device=device, quick=quick)
    typer.echo(timing.table(rows))


def _again(objective: Any, result: Result, times: int, timeout: float | None, quiet: bool) -> list[float]:
    """Noisy values of the recommended parameters: an honest estimate, which the best observed value is not."""
    from statistics import mean, stdev

    from kbo.optimize.loop import evaluate_again

    values, failed = evaluate_again(objective, result, times, timeout, progress=not quiet)
    if values:
        spread = stdev(values) if len(values) > 1 else 0.0
        words = f", standard deviation of one of them {spread:.2g}" if spread else ""
        typer.echo(f"again          {mean(values):.4g} on average over {len(values)} new evaluations{words}")
        if result.lower is not None and result.upper is not None:
            margin = 3 * spread / len(values) ** 0.5 + result.upper - result.lower
            if not result.lower - margin <= mean(values) <= result.upper + margin:
                typer.echo(
                    "warning: that is far outside of the interval. Has the objective changed since the journal was "
                    "begun? --fresh starts anew.",
                    err=True,
                )
    if failed:
        typer.echo(f"again          {failed} new evaluations failed")
    return values


def _continue_or_set_aside(path: Path, fresh: bool, quiet: bool) -> None:
    """Say that a journal is continued, or keep it under another name."""
    if fresh and path.exists():
        path.replace(path.with_name(f"{path.stem}-{time.strftime('%Y%m%d-%H%M%S')}{path.suffix}"))
    elif path.exists() and not quiet:
        typer.echo(f"continuing {path}; --fresh starts anew", err=True)


def _trace(result: Result, picture: Path, name: str, maximize: bool, again: list[float]) -> None:
    from kbo.experiments import plots

    chosen = next((t.number for t in result.trials if t.value is not None and t.params == result.params), None)
    title = f"kbo tune {name}"
    plots.trace(result.trials, picture, title=title, maximize=maximize, recommended=chosen, again=again)


def _report_trial(optimizer: Any, trial: Any) -> None:
    from tqdm import tqdm

    outcome = f"failed: {trial.failure}" if trial.failure else f"{trial.value:.5g}"
    tqdm.write(f"{trial.number:4d}  {outcome:12s}  {format_params(trial.params)}")


def _engine(name: str, address: str | None, workers: int | None) -> Any:
    """What ``kbo.experiments.runner.sweep`` takes as ``workers``."""
    if name not in cli_options.ENGINES:
        raise InvalidInput(f"--engine must be {' or '.join(cli_options.ENGINES)}, got {name!r}.")
    if name == "processes":
        if address is not None:
            raise InvalidInput(f"--address {address} is for a Ray cluster: add --engine ray.")
        return workers
    try:
        from kbo.integrations.ray import Ray
    except ImportError as error:
        raise InvalidInput(str(error)) from error
    return Ray(address, workers)


def _folder(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"cannot create the folder {path}: {error.strerror}. Choose another with --out.") from error
    return path


@contextlib.contextmanager
def _experiment() -> Iterator[None]:
    """What was found is shown even if some cells failed or Ctrl-C ended the work."""
    from kbo.experiments.runner import CellsFailed

    try:
        yield
    except CellsFailed as error:
        typer.echo(error.text)
        raise
    except KeyboardInterrupt:
        typer.echo("interrupted: finished runs are kept, and the same command continues from here.", err=True)
        raise typer.Exit(130) from None


def _logging(quiet: bool, verbose: bool) -> None:
    level = logging.ERROR if quiet else logging.INFO if verbose else logging.WARNING
    logging.basicConfig(format="%(message)s")
    logging.getLogger("kbo").setLevel(level)


def main() -> None:
    """Entry point: errors that kbo explains are shown without a traceback."""
    try:
        app()
    except KboError as error:
        typer.echo(f"error: {error}", err=True)
        raise SystemExit(1) from error
    except KeyboardInterrupt:
        typer.echo("interrupted", err=True)
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
