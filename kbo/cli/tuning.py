"""``kbo tune``."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import itertools
import json
import math
import os
import sys
import sysconfig
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from tqdm import tqdm

import kbo
from kbo._base.files import check_file, reading
from kbo._base.lazy import Lazy
from kbo.cli import options
from kbo.cli.options import Address, Device, Engine, Out, Quiet, Verbose
from kbo.errors import AnotherProblem, InvalidInput

if TYPE_CHECKING:
    from kbo.cli import examples
    from kbo.optimize import Result, Trial, table
    from kbo.optimize import constraint as constraint_module
    from kbo.optimize import known as known_module
    from kbo.optimize import result as results
    from kbo.optimize.evaluated import Known
    from kbo.optimize.settings import setting as settings
    from kbo.report.figures import history as figures
    from kbo.workers import call
else:
    examples = Lazy("kbo.cli.examples")
    settings = Lazy("kbo.optimize.settings.setting")
    table = Lazy("kbo.optimize.table")
    constraint_module = Lazy("kbo.optimize.constraint")
    known_module = Lazy("kbo.optimize.evaluated")
    results = Lazy("kbo.optimize.result")
    figures = Lazy("kbo.report.figures.history")
    call = Lazy("kbo.workers.call")

_WORKERS = (
    "Trials at a time, each in a process; 0 for one per CPU. 1 is in this process, where --timeout cannot interrupt "
    "compiled code."
)


class _Target(NamedTuple):
    """The names of a script; ``defaults`` are values of parameters that earlier trials lack."""

    name: str
    objective: Any
    bounds: Any
    constraints: Sequence[Any] = ()
    defaults: Mapping[str, Any] = {}
    setting: Any = None


def load(target: str) -> _Target:
    """Return an example of kbo, or what a script defines.

    Raises:
        InvalidInput: There is neither, or the script cannot be loaded or used.
    """
    if target in examples.EXAMPLES:
        return _Target(target, *examples.EXAMPLES[target])
    path = Path(target)
    if path.suffix != ".py" or not os.path.isfile(path):
        known = ", ".join(examples.EXAMPLES)
        raise InvalidInput(
            f"{target!r} is neither an example ({known}) nor a Python file that exists."
        )
    if found := _module_named(path.stem):
        raise InvalidInput(
            f"{path} has the name of a module of {found}, which kbo and its workers need: rename it."
        )
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    sys.path.insert(_after_standard_library(), str(path.parent.resolve()))
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise InvalidInput(
            f"{path} failed while it was loaded: {type(error).__name__}: {error}{call.place(error)}"
        ) from error
    missing = [name for name in ("bounds", "objective") if not hasattr(module, name)]
    if missing:
        raise InvalidInput(f"{path} must define {' and '.join(missing)}; see `kbo tune --help`.")
    names = "objective", "bounds", "constraints", "defaults", "setting"
    given = {name: getattr(module, name) for name in names if hasattr(module, name)}
    if not isinstance(given.get("setting", kbo.Practical()), settings.Setting):
        raise InvalidInput(
            f"{path}: setting is to be kbo.Certified(...), kbo.Safe(...) or kbo.Practical(...); rename it."
        )
    if not isinstance(given.get("defaults", {}), Mapping):
        raise InvalidInput(f"{path}: defaults must be a dict of values by the names of parameters.")
    if not isinstance(given.get("constraints", []), (list, tuple)):
        raise InvalidInput(
            f'{path}: constraints must be a list, for example [kbo.Constraint("memory", upper=8)].'
        )
    return _Target(path.stem, **given)


def _module_named(name: str) -> str:
    """Return what has a module of this name, Python or an installed package; an empty text if nothing has."""
    if name == "kbo" or name in sys.stdlib_module_names:
        return "kbo or Python"
    installed = [
        folder for folder in sys.path if folder.endswith(("site-packages", "dist-packages"))
    ]
    spec = importlib.machinery.PathFinder.find_spec(name, installed)
    return "" if spec is None or spec.origin is None else spec.origin


def _after_standard_library() -> int:
    """Return the position in ``sys.path`` after the standard library, and before installed packages."""
    library = sysconfig.get_path("stdlib")
    own = [
        i
        for i, folder in enumerate(sys.path)
        if folder in (library, os.path.join(library, "lib-dynload"))
    ]
    return max(own, default=-1) + 1


def tune(
    target: Annotated[str, typer.Argument(help=options.TARGETS)] = "digits",
    trials: Annotated[
        int | None,
        typer.Option(
            "--trials",
            "-n",
            help="Trials in all, those in the journal included.",
            show_default="40",
        ),
    ] = None,
    method: Annotated[
        str | None, typer.Option("--method", "-m", help=options.BOX_METHODS, show_default="ucb")
    ] = None,
    maximize: Annotated[bool, typer.Option("--maximize", help="Larger values are better.")] = False,
    value_range: Annotated[
        tuple[float, float] | None,
        typer.Option(
            help="Least and largest possible value, such as 0 1 for an error rate.",
            show_default="any",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the choices of kbo.")] = 0,
    noise_std: Annotated[
        float | None,
        typer.Option(
            help="Standard deviation of the noise, if it is known; 0 for none.",
            show_default="estimated",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers", "-j", min=0, help=_WORKERS, show_default="1; with --timeout one process"
        ),
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(help="Seconds after which a trial is ended and has failed.")
    ] = None,
    time_budget: Annotated[
        float | None,
        typer.Option(help="Seconds after which no trial begins; --trials is optional then."),
    ] = None,
    end_running: Annotated[
        bool,
        typer.Option(
            "--end-running", help="End the trials that run at the end of the time budget."
        ),
    ] = False,
    constraint: Annotated[
        list[str] | None,
        typer.Option(
            help='Limit on a quantity that the objective measures, such as "memory<=8"; repeatable.'
        ),
    ] = None,
    stop_at_gap: Annotated[
        float | None,
        typer.Option(
            help="Stop when the bounds allow the optimum to be at most this much better than the recommendation, as "
            "far as a search finds."
        ),
    ] = None,
    stop_when: Annotated[
        float | None,
        typer.Option(
            help="Stop when 20 more trials are expected to improve the value by no more than this."
        ),
    ] = None,
    prune: Annotated[
        str | None, typer.Option(help=options.PRUNERS, show_default="none is stopped")
    ] = None,
    evaluated: Annotated[
        Path | None,
        typer.Option(
            help="Known results: a table (.csv) with a column for each parameter and value, or a journal."
        ),
    ] = None,
    try_first: Annotated[
        Path | None,
        typer.Option(
            help="Parameters of the first trials, all or some of them: a list of dicts (.json)."
        ),
    ] = None,
    confirm: Annotated[
        int,
        typer.Option(
            help="New evaluations at the end, at most, that find the best of a few trials; 0 for none."
        ),
    ] = 0,
    journal: Annotated[
        Path | None, typer.Option(help="Path of the journal; by default OUT/tune-TARGET.jsonl.")
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Rename an existing journal and start a new one.")
    ] = False,
    allow_change: Annotated[
        bool,
        typer.Option(
            "--allow-change",
            help="After a change of bounds or options: like --fresh, with the earlier results as far as they fit.",
        ),
    ] = False,
    engine: Engine = "processes",
    address: Address = None,
    resources: Annotated[
        str | None,
        typer.Option(help="With --engine ray: those of a trial, for example cpu=2,gpu=0.5."),
    ] = None,
    device: Device = "cpu",
    live: Annotated[
        bool,
        typer.Option(
            "--live", help="Serve the page of the run, on this machine only, while it goes on."
        ),
    ] = False,
    live_port: Annotated[int, typer.Option(help="Port of --live; 0 takes a free one.")] = 0,
    out: Out = Path("kbo-runs"),
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Tune a noisy objective, trial by trial, into a journal that survives a crash.

    Your script needs two names:

        bounds = {"lr": kbo.Float(1e-4, 1e-1, log=True), "layers": kbo.Int(1, 3), "act": ["relu", "tanh"]}

        def objective(params): ...; return validation_error

    For constraints it returns (validation_error, {"memory": 7.2}) or {"objective": ..., "memory": ...}; see
    --constraint, or define `constraints = [kbo.Constraint("memory", upper=8)]` beside bounds.

    After a change of bounds, --allow-change takes over earlier results; `defaults = {"dropout": 0.0}` beside bounds has
    the values of new parameters in them.

    `setting = kbo.Certified(...)` beside bounds gives what certified bounds assume, or a list of hypotheses; by default
    everything is estimated.

    A second argument, objective(params, trial), can trial.report(value, step=step) and ask trial.should_stop(), for
    --prune.

    Then:  kbo tune script.py --trials 60
    """
    options.apply_verbosity(quiet, verbose)
    name, objective, bounds, constraints, defaults, setting = load(target)
    if noise_std is not None and setting is not None:
        raise InvalidInput(
            f"--noise-std is for scripts without a setting of their own, and {target} defines one."
        )
    constraints = [*constraints, *map(options.constraint, constraint or ())]
    path = journal or out / f"tune-{name}.jsonl"
    if fresh and path.exists():
        path.replace(_aside(path))
    elif path.exists() and not quiet:
        typer.echo(f"continuing {path}; --fresh starts a new one", err=True)
    chosen = options.engine_of(engine, address, workers, resources)
    run = partial(
        kbo.maximize if maximize else kbo.minimize,
        objective,
        bounds,
        40 if trials is None and time_budget is None else trials,
        setting=kbo.Practical(noise_std=noise_std) if setting is None else setting,
        method=method,
        constraints=constraints,
        value_range=value_range,
        seed=seed,
        journal=path,
        workers=chosen,
        timeout=timeout,
        time_budget=time_budget,
        end_running=end_running,
        stop_at_gap=stop_at_gap,
        stop_when=stop_when,
        pruner=prune,
        evaluated=evaluated,
        try_first=() if try_first is None else _json("--try-first", try_first),
        progress=not quiet,
        on_trial=_called(name, verbose, live or live_port > 0, live_port),
        device=device,
    )
    try:
        result = run()
    except AnotherProblem as error:
        if not allow_change and not (
            sys.stdin.isatty() and typer.confirm(f"{error}\nDo that now?")
        ):
            raise
        known = _taken_over(path, evaluated, bounds, constraints, maximize, defaults)
        aside = _aside(path)
        path.replace(aside)
        typer.echo(
            f"took over {len(known.results)} results of {aside}; --trials does not count them",
            err=True,
        )
        result = run(evaluated=known.results)
        result = replace(result, left_out=(*known.left_out, *result.left_out))
    if result.stopped.startswith("interrupted"):
        typer.echo(f"{result}\nThe same command continues from here.")
        raise typer.Exit(130)
    typer.echo(result)
    picture = path.with_suffix(".png")
    best = next(
        (t.number for t in result.trials if t.value is not None and t.params == result.params), None
    )
    of_trace = {
        "constraints": result.optimizer.constraints,
        "maximize": maximize,
        "recommended": best,
    }
    figures.trace(result.trials, picture, title=f"kbo tune {name}", **of_trace)
    typer.echo(f"picture        {picture}")
    if confirm and result.exact:
        typer.echo("confirmation   there is nothing to confirm: the objective has no noise")
    elif confirm:
        _confirmed(
            result, objective, path, confirm, workers=chosen, timeout=timeout, progress=not quiet
        )


def _taken_over(
    path: Path,
    evaluated: Path | None,
    bounds: Any,
    constraints: Sequence[Any],
    maximize: bool,
    defaults: Mapping[str, Any],
) -> Known:
    """Return the results of a journal that are points of another space, with defaults for parameters that they lack.

    Those that are ``evaluated`` besides follow them.

    Raises:
        InvalidInput: None is.
    """
    measured, others = constraint_module.measured_only(constraints)
    left_out: list[str] = []
    found = [
        (params if isinstance(params, list) else {**defaults, **params}, returned)
        for _, params, returned in known_module.completed(path, maximize, left_out)
    ]
    given = kbo.Space(bounds, others), maximize, [one.name for one in measured]
    try:
        known = known_module.known_results(found, *given)
    except InvalidInput as error:
        raise InvalidInput(
            f"{path}: {error} The script can define defaults = {{...}}, values of parameters that earlier trials lack; "
            "--fresh starts without them."
        ) from error
    others = known_module.known_results(evaluated, *given)
    results = [*known.results, *(one for one in others.results if one not in known.results)]
    return known_module.Known(results, [*left_out, *known.left_out, *others.left_out])


def _json(option: str, path: Path) -> Any:
    """Return the content of a JSON file that an option names."""
    advice = f'{option} takes a file such as [{{"lr": 0.01}}].'
    check_file(path, advice)
    with reading(path, "a list of parameters in JSON", advice):
        return json.loads(path.read_bytes())


def _aside(path: Path) -> Path:
    """Return a path that does not exist, with the time in its name."""
    name = place = f"{path.stem}-{time.strftime('%Y%m%d-%H%M%S')}"
    numbers = itertools.count(2)
    while path.with_name(place + path.suffix).exists():
        place = f"{name}-{next(numbers)}"
    return path.with_name(place + path.suffix)


def confirm(
    target: Annotated[str, typer.Argument(help=options.TARGETS)],
    budget: Annotated[
        int, typer.Option("--budget", "-n", help="New evaluations at most, earlier ones included.")
    ] = 80,
    tolerance: Annotated[
        float | None,
        typer.Option(help="Loss that counts as none.", show_default="5% of what was gained"),
    ] = None,
    delta: Annotated[
        float, typer.Option(help="Probability that the statement is wrong, at most.")
    ] = 0.05,
    value_range: Annotated[
        tuple[float, float] | None,
        typer.Option(
            help="Least and largest possible value: the statement is about means.",
            show_default="as tuned",
        ),
    ] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", "-j", min=1, help="Evaluations at a time.")
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(help="Seconds after which an evaluation has failed.")
    ] = None,
    journal: Annotated[
        Path | None, typer.Option(help="Journal of `kbo tune`; by default OUT/tune-TARGET.jsonl.")
    ] = None,
    out: Out = Path("kbo-runs"),
    quiet: Quiet = False,
) -> None:
    """Evaluate the best trials of a finished `kbo tune` again, until it is known which is the best, or nearly so.

    Only the new evaluations count, and no model is assumed: that the noise of a trial was favourable does no harm.
    Without a range of values the statement is about medians. It takes eight to ten evaluations of each of up to five
    trials, or more.

    Then:  kbo confirm script.py --budget 80
    """
    options.apply_verbosity(quiet, verbose=False)
    name, objective, _, constraints, _, setting = load(target)
    path = journal or out / f"tune-{name}.jsonl"
    measured, _ = constraint_module.measured_only(constraints)
    record = kbo.report.Record.of(path, getattr(setting, "kernel", None), measured)
    result = results.result_of(record.reopened(), "", str(path))
    given: dict[str, Any] = {"workers": workers, "timeout": timeout, "progress": not quiet}
    if value_range is not None:
        given["value_range"] = value_range
    _confirmed(result, objective, path, budget, tolerance=tolerance, delta=delta, **given)


def _confirmed(result: Result, objective: Any, path: Path, budget: int, **given: Any) -> None:
    """Evaluate the best trials of a run again, into a journal beside its own, and print what that says."""
    beside = path.with_name(f"{path.stem}-confirm.jsonl")
    try:
        found = result.confirm(objective, budget, journal=beside, **given)
    except AnotherProblem:
        beside.replace(aside := _aside(beside))
        typer.echo(f"other trials are to be confirmed now: renamed {beside} to {aside}", err=True)
        found = result.confirm(objective, budget, journal=beside, **given)
    typer.echo(f"confirmation   {found}")
    if (
        found.best is not None
        and math.isfinite(found.within)
        and found.best.params != result.params
    ):
        typer.echo(f"now the best   {found.best.name}: {table.format_params(found.best.params)}")
    typer.echo(f"journal        {beside}")


def _called(name: str, verbose: bool, live: bool, port: int) -> list[Any]:
    """Return the functions that are called after trials."""
    called: list[Any] = []
    if verbose:
        called.append(_report_trial)
    if live:
        called.append(kbo.report.Live(port, title=name))
    return called


def _report_trial(trial: Trial, result: Result) -> None:
    failed = f"failed: {trial.failure}" if trial.failure else "stopped early"
    outcome = failed if trial.value is None else f"{trial.value:.5g}"
    measured = f"  ({table.format_params(trial.measured)})" if trial.measured else ""
    tqdm.write(f"{trial.number:4d}  {outcome:12s}  {table.format_params(trial.params)}{measured}")
