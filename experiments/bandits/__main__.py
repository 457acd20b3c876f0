"""``python -m experiments.bandits``: the regret of methods on bandit problems."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from experiments import commands
from experiments.bandits.compare import compare
from experiments.bandits.runs import BanditMethod, BanditProblem
from experiments.commands import Address, Engine, Out, Quiet, Verbose, Workers
from experiments.problems import BANDITS
from kbo import bandit

_PROBLEMS = (
    "rkhs (a function of known norm, fresh arms every round), rkhs-fixed (the same arms), streaming (a known norm, "
    "for methods that estimate the noise), or one of unknown norm: "
    f"{', '.join(name for name in BANDITS if name != 'streaming')}."
)
_METHODS = f"{', '.join(bandit.names())}; give it several times to compare."
_RIDGE = "Ridge of the posterior, for k-ucb, supk-ucb, ay-gp-ucb and the sketched methods; also the mu of ek-ucb."
_MULTIPLIER = "Choose by mean + MULTIPLIER sqrt(leverage) instead of the method's bound; that guarantees nothing."
_NOISE_UPPER = (
    'Upper bound of the noise level for methods without a given noise level: "...-fixed" use it, "...-adaptive" begin '
    "with it."
)
_STRICT_NOISE = '"dmm-ucb-adaptive", "cmm-ucb-adaptive": assume less of the noise, that it is strictly sub-Gaussian.'
_FIRST = "Index of an arm that is pulled in one uncounted round before the first."


def run(
    problem: Annotated[str, typer.Argument(help=_PROBLEMS)] = "rkhs",
    method: Annotated[list[str] | None, typer.Option("--method", "-m", help=_METHODS)] = None,
    rounds: Annotated[int, typer.Option("--rounds", "-T", min=1, help="Rounds per run.")] = 300,
    seeds: Annotated[
        int, typer.Option("--seeds", "-K", min=1, help="Runs per method, on the same problems.")
    ] = 3,
    kernel: Annotated[
        str | None,
        typer.Option(
            help="rkhs problems: rbf, matern52, matern32 or matern12.", show_default="rbf"
        ),
    ] = None,
    lengthscale: Annotated[
        float | None,
        typer.Option(
            help="Lengthscale of the kernel.", show_default="the problem's own, 0.5 for rkhs"
        ),
    ] = None,
    dim: Annotated[
        int | None, typer.Option(min=1, help="rkhs problems: dimension.", show_default="3")
    ] = None,
    arms: Annotated[
        int | None, typer.Option(min=1, help="rkhs problems: arms per round.", show_default="100")
    ] = None,
    delta: Annotated[float, typer.Option(help="Probability that the bounds may fail.")] = 0.01,
    ridge: Annotated[float | None, typer.Option(help=_RIDGE, show_default="noise variance")] = None,
    multiplier: Annotated[
        float | None, typer.Option(help=_MULTIPLIER, show_default="the method's bound")
    ] = None,
    first: Annotated[int | None, typer.Option(help=_FIRST, show_default="no such round")] = None,
    noise_upper: Annotated[
        float | None, typer.Option(help=_NOISE_UPPER, show_default="none")
    ] = None,
    strict_noise: Annotated[bool, typer.Option("--strict-noise", help=_STRICT_NOISE)] = False,
    workers: Workers = None,
    engine: Engine = "processes",
    address: Address = None,
    out: Out = Path("kbo-runs"),
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Run bandit algorithms on the same problems and compare their regret.

    Finished runs are kept: the same command continues after Ctrl-C, and with more methods or seeds only these are run.

    Example:  python -m experiments.bandits rkhs -m dmm-ucb -m amm-ucb -m ay-gp-ucb -m random -T 1000 -K 3

    Example:  python -m experiments.bandits chessboard -m k-ucb -m ek-ucb --ridge 10 --multiplier 0.1 --first 2 -T 1000

    Example:  python -m experiments.bandits streaming -m kernel-ucb-adaptive -m kernel-ucb-fixed --noise-upper 1
    """
    commands.apply_verbosity(quiet, verbose)
    options = {"kernel": kernel, "lengthscale": lengthscale, "dim": dim, "n_arms": arms}
    given = {name: value for name, value in options.items() if value is not None}
    chosen = BanditProblem(problem, given, rounds, delta, first=first, noise_upper=noise_upper)
    settings: dict[str, Any] = {"ridge": ridge, "multiplier": multiplier}
    if strict_noise:
        settings["noise_bounds"] = "strict"
    names = method or ["dmm-ucb", "amm-ucb", "ay-gp-ucb", "random"]
    methods = [BanditMethod(name, **settings) for name in names]
    processes = commands.engine_of(engine, address, workers)
    folder = commands.folder(out)
    with commands.shown():
        text = compare(chosen, methods, seeds, folder, workers=processes, progress=not quiet)
        typer.echo(text)


def main() -> None:
    """Run the command."""
    commands.run(run)


if __name__ == "__main__":
    main()
