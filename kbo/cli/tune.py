"""``kbo tune`` and ``kbo confirm``: the parameters of a script are optimised, and its best trials evaluated again."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from tqdm import tqdm
from typer import Option

import kbo
from kbo._base.files import check_file, reading
from kbo._base.lazy import Lazy
from kbo.cli import options
from kbo.cli.options import Address, Device, Engine, Out, Quiet, Verbose
from kbo.cli.script import Script, load
from kbo.errors import AnotherProblem, InvalidInput

if TYPE_CHECKING:
    from kbo.optimize import Result, Trial
    from kbo.optimize import result as results
    from kbo.optimize.constraints import constraint as constraint_module
    from kbo.optimize.run import table
    from kbo.optimize.settings.setting import Setting
    from kbo.report import summary
else:
    constraint_module = Lazy("kbo.optimize.constraints.constraint")
    results = Lazy("kbo.optimize.result")
    table = Lazy("kbo.optimize.run.table")
    summary = Lazy("kbo.report.summary")

_TRIALS = "Number of all trials, including those in the journal."
_WORKERS = (
    "Number of trials at the same time, each in its own process; 0 for one per CPU. With 1 they run in this process, "
    "where --timeout cannot interrupt compiled code."
)
_METHOD = "Method of the search, such as random, or dmm-ucb by a paper; the message to a wrong name has all."
_PRUNE = (
    "Stop bad trials early, by the values that they report: curves, median, hyperband or wilcoxon."
)
_BUDGET = "Seconds after which no new trial begins; --trials is then optional."
_END = "End running trials at the end of the time budget."
_STOP = "Stop when 20 more trials are expected to improve the value by no more than this."
_FIRST = "Parameters to try first, all or some for each trial: a list of dicts (.json)."
_CONFIRM = "Largest number of evaluations at the end, to find the best of a few trials; 0 for none."
_LIVE = "Serve the page of the run while it goes on, on this machine only."

_DEFAULT_TRIALS = 40


def tune(
    target: Annotated[str, typer.Argument(metavar="TARGET", help=options.TARGETS)] = "digits",
    trials: Annotated[
        int | None, Option("--trials", "-n", help=_TRIALS, show_default=str(_DEFAULT_TRIALS))
    ] = None,
    method: Annotated[str | None, Option(help=_METHOD, show_default="ucb")] = None,
    maximize: options.Maximize = False,
    value_range: options.ValueRange = None,
    seed: options.Seed = None,
    noise_std: options.NoiseStd = None,
    workers: Annotated[
        int | None,
        Option(
            "--workers", "-j", min=0, help=_WORKERS, show_default="1; with --timeout one process"
        ),
    ] = None,
    timeout: Annotated[
        float | None,
        Option(help="Time limit of a trial in seconds; after it, the trial has failed."),
    ] = None,
    time_budget: Annotated[float | None, Option(help=_BUDGET)] = None,
    end_running: Annotated[bool, Option("--end-running", help=_END)] = False,
    constraint: options.Constraints = None,
    stop_when: Annotated[float | None, Option(help=_STOP)] = None,
    prune: Annotated[str | None, Option(help=_PRUNE, show_default="none is stopped")] = None,
    evaluated: options.Evaluated = None,
    try_first: Annotated[Path | None, Option(help=_FIRST)] = None,
    confirm: Annotated[int, Option(help=_CONFIRM)] = 0,
    journal: Annotated[
        Path | None, Option(help="Path of the journal; by default OUT/tune-TARGET.jsonl.")
    ] = None,
    fresh: Annotated[
        bool, Option("--fresh", help="Rename an existing journal and start a new one.")
    ] = False,
    allow_change: options.AllowChange = False,
    engine: Engine = "processes",
    address: Address = None,
    resources: Annotated[
        str | None,
        Option(
            help="With --engine ray: the resources of a trial, for example cpu=2,gpu=0.5.",
            show_default="cpu=1",
        ),
    ] = None,
    device: Device = "cpu",
    live: Annotated[bool, Option("--live", help=_LIVE)] = False,
    out: Out = Path("kbo-runs"),
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Tune the parameters of a noisy objective. Each trial is saved in a journal, so a crash loses nothing.

    Your script defines two names:

        bounds = {"lr": kbo.Float(1e-4, 1e-1, log=True), "layers": kbo.Int(1, 3), "act": ["relu", "tanh"]}

        def objective(params): ...; return validation_error

    Constraints: the objective returns (validation_error, {"memory": 7.2}) or {"objective": ..., "memory": ...}. Give
    the limits by --constraint, or define `constraints = [kbo.Constraint("memory", upper=8)]` beside bounds.

    Changed bounds: --allow-change continues with the earlier trials; --trials counts them too. If there are new
    parameters, define their values in the earlier trials beside bounds, `was = {"dropout": 0.0}`.

    Several objectives: the objective returns a dict. Define `objectives = ["error", kbo.Maximize("throughput")]` beside
    bounds. You can also define values that are just not acceptable, `reference = {"error": 0.3, "throughput": 20}`.

    Certified bounds: define their assumptions beside bounds, `setting = kbo.Certified(...)`, with a kernel or a list of
    hypotheses. By default everything is estimated.

    Early stops by --prune: objective(params, trial) calls trial.report(value, step=step), and returns if
    trial.should_stop() is true.

    Then:  kbo tune script.py --trials 60
    """
    options.apply_verbosity(quiet, verbose)
    script = load(target)
    path = journal or out / f"tune-{script.name}.jsonl"
    if script.objectives and confirm:
        raise InvalidInput(
            "--confirm is for one objective: leave it out. The summary says how many trials are likely on the front."
        )
    if trials is None and time_budget is None:
        trials = _DEFAULT_TRIALS
    constraints = [*script.constraints, *_limits(constraint or (), script, target)]
    chosen_engine = options.engine_of(engine, address, workers, resources)
    run = partial(
        kbo.maximize if maximize else kbo.minimize,
        script.objective,
        script.bounds,
        trials,
        setting=_setting(script, target, noise_std),
        method=method,
        constraints=constraints,
        value_range=value_range,
        objectives=script.objectives,
        reference=script.reference if script.objectives else None,
        seed=seed or 0,
        journal=path,
        workers=chosen_engine,
        timeout=timeout,
        time_budget=time_budget,
        end_running=end_running,
        stop_when=stop_when,
        pruner=prune,
        evaluated=evaluated,
        try_first=parameters_in(try_first) if try_first is not None else (),
        progress=not quiet,
        on_trial=_callbacks(verbose, live, script.name),
        device=device,
    )
    _, on_parameters = constraint_module.measured_only(constraints)
    space = kbo.Space(script.bounds, on_parameters)
    renamed = contextlib.nullcontext()
    if fresh and path.exists():
        renamed = options.renamed(path)
    with renamed:
        result = options.in_changed_space(
            run,
            path,
            space,
            script.was,
            'was = {"NAME": VALUE} beside bounds',
            allow_change,
        )
    surer = f"`kbo confirm {target}` repeats the best ones"
    options.show_lines(summary.lines(result, surer, chooser=summary.chooser_of(path)))
    if result.stopped.startswith("interrupted"):
        typer.echo("The same command continues from here.")
        raise typer.Exit(130)
    if confirm and result.exact:
        typer.echo("confirmation   there is nothing to confirm: the objective has no noise")
    elif confirm:
        settings = {"workers": chosen_engine, "timeout": timeout, "progress": not quiet}
        _evaluate_again(result, script.objective, path, confirm, **settings)


def confirm(
    target: Annotated[str, typer.Argument(metavar="TARGET", help=options.TARGETS)],
    budget: Annotated[
        int, Option(help="Most new evaluations, those of earlier calls included.")
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
    _evaluate_again(result, script.objective, path, budget, **settings)


# The arguments of the run


def _setting(script: Script, target: str, noise_std: float | None) -> Setting:
    """Return the setting of a script, or else the practical setting with --noise-std."""
    if script.setting is None:
        return kbo.Practical(noise_std=noise_std)
    if noise_std is not None:
        raise InvalidInput(
            f"--noise-std is for scripts without a setting of their own, and {target} defines one."
        )
    return script.setting


def _limits(texts: Sequence[str], script: Script, target: str) -> list[kbo.Constraint]:
    """Return the limits of --constraint.

    Raises:
        InvalidInput: The script has a limit on the same quantity.
    """
    names = [limit.name for limit in script.limits]
    limits = [options.constraint(text) for text in texts]
    for limit in limits:
        if limit.name in names:
            raise InvalidInput(
                f"--constraint {limit.name}: {target} has a constraint on {limit.name} already, in its list "
                "`constraints`: change that one, or leave this one out."
            )
    return limits


def parameters_in(path: Path) -> Any:
    """Return the content of the JSON file of --try-first."""
    advice = '--try-first takes a file such as [{"lr": 0.01}].'
    check_file(path, advice)
    with reading(path, "a list of parameters in JSON", advice):
        return json.loads(path.read_bytes())


def _callbacks(verbose: bool, live: bool, title: str) -> list[Any]:
    """Return the functions to call after each trial: they print a line (--verbose), and serve the page (--live)."""
    callbacks: list[Any] = []
    if verbose:
        callbacks.append(_print_trial)
    if live:
        callbacks.append(kbo.report.Live(title=title))
    return callbacks


def _print_trial(trial: Trial, result: Result) -> None:
    """Print a trial that has ended."""
    outcome = "stopped early"
    if trial.failure:
        outcome = f"failed: {trial.failure}"
    elif trial.value is not None:
        outcome = f"{trial.value:.5g}"
    line = f"{trial.number:4d}  {outcome:12s}  {table.format_params(trial.params)}"
    if trial.measured:
        line += f"  ({table.format_params(trial.measured)})"
    tqdm.write(line)


# The result


def _evaluate_again(
    result: Result, objective: Any, path: Path, budget: int, **settings: Any
) -> None:
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
