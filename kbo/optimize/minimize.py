"""``minimize`` and ``maximize``: whole runs, with parallel trials and limits of time.

Nothing is lost when a trial fails, a worker dies, or this process is interrupted or killed.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ParamSpec

from kbo._base import checks
from kbo._base.arguments import naming_arguments
from kbo._base.isolation import isolated
from kbo._base.program_state import preserved
from kbo.errors import InvalidInput
from kbo.optimize.constraints.constraint import measured_only
from kbo.optimize.evaluated.first_points import first_points, remaining
from kbo.optimize.loop.callbacks import Callbacks, OnTrial
from kbo.optimize.loop.loop import Loop
from kbo.optimize.loop.pruning import Pruner, pruner_of
from kbo.optimize.loop.stopping import Stopping
from kbo.optimize.optimizer import Optimizer
from kbo.optimize.result import Result, result_of
from kbo.optimize.settings.choice import resolve
from kbo.optimize.settings.setting import Setting
from kbo.space import Bounds, Space
from kbo.workers.call import YEAR, takes_trial
from kbo.workers.processes import Workers, engine_of

if TYPE_CHECKING:
    import optuna
    import torch

P = ParamSpec("P")


@naming_arguments
def minimize(
    objective: Callable[..., Any],
    bounds: Bounds | Space,
    n_trials: int | None = None,
    *,
    setting: Setting | None = None,
    method: str | None = None,
    constraints: Sequence[Any] = (),
    value_range: tuple[float, float] | None = None,
    objectives: Sequence[Any] = (),
    reference: Any = None,
    seed: int = 0,
    journal: str | os.PathLike[str] | None = None,
    allow_change: bool = False,
    was: Mapping[str, Any] | None = None,
    workers: Workers = None,
    timeout: float | None = None,
    time_budget: float | None = None,
    end_running: bool = False,
    max_failures: int = 5,
    stop_at_gap: float | None = None,
    stop_when: float | None = None,
    pruner: str | Pruner | optuna.pruners.BasePruner | None = None,
    evaluated: Any = None,
    try_first: Sequence[Any] = (),
    progress: bool = False,
    on_trial: OnTrial | Sequence[OnTrial] | None = None,
    device: str | torch.device | None = None,
) -> Result:
    """Minimise a noisy, expensive function.

    With a journal, the same call continues a run that was killed. No recorded value is lost or evaluated twice; only
    the trials that were running are evaluated again. A free worker gets a new point at once, chosen from the values so
    far and from the points that the other workers evaluate. The same seed and the same order of completions give the
    same points.

    Args:
        objective: A function of a dict of parameters (of a list of floats if ``bounds`` is a list). If it takes two
            arguments, the second is a ``kbo.RunningTrial``. It returns a number; with other measurements ``(number,
            {"memory": 7.2})`` or ``{"objective": number, "memory": 7.2}``. The measurement "sem" is the standard error
            of the number, for example of a mean over seeds.
        bounds: For example ``{"lr": Float(1e-4, 1e-1, log=True), "layers": Int(1, 3), "act": ["relu", "tanh"]}``, a
            list of pairs, conditional parameters or a table of candidates: see ``kbo.Space``.
        n_trials: Number of trials in all, including failed ones and those in the journal. If all trials of earlier
            calls failed, as after a mistake in the objective, these do not count. Optional with ``time_budget``.
        setting: ``Practical()`` (default): kernel, noise and norm bound are estimated, so the bounds have no guarantee.
            ``Certified(kernel, noise_std, norm_bound)``: the bounds hold if these are right. ``Safe(kernel, noise_std,
            norm_bound, start=[...])``: in addition, no trial breaks a limit of ``constraints``.
        method: A name of ``kbo.bandit.names()``; by default "ucb" (practical setting), "dmm-ucb" (certified), or
            "cmm-ucb" (safe).
        constraints: A list of limits on what the objective measures, ``kbo.Constraint("memory", upper=8.0)``, and on
            parameters: ``kbo.Linear({"a": 1, "b": 1}, upper=1)``, or functions that return whether given parameters are
            allowed.
        value_range: The least and the largest possible value, such as (0, 1) for an error rate. Intervals stay inside;
            a trial with a value outside has failed.
        objectives: Several quantities to optimise, which the objective returns in a dict: their names, or
            ``kbo.Minimize(name)`` and ``kbo.Maximize(name)``. The answer is then ``Result.front``.
        reference: With several objectives: by name, values of some of them that are just not acceptable. Only better
            ones count in the hypervolume.
        seed: Seed of every random choice.
        journal: Path of a crash-safe journal.
        allow_change: Whether ``bounds`` and constraints on parameters may differ from those of the journal. If they do,
            the run goes on in the new space with all earlier trials that have a place in it, also outside of the new
            ranges.
        was: Values of parameters, by name, for earlier trials and known results that do not have these parameters.
        workers: Number of parallel trials, each in a worker process; or ``kbo.Processes(...)``, ``kbo.Threads(...)``,
            ``kbo.workers.ray.Ray(...)``. With 1 everything stays in this process. By default 1, or with ``timeout`` one
            worker process.
        timeout: Seconds after which a trial is ended and recorded as failed, at most a year. A worker process is ended
            at once, with those that it started. Within this process (``workers=1``; Unix, main thread) it works like
            Ctrl-C: compiled code runs until it returns, and code that catches ``BaseException`` goes on.
        time_budget: Seconds after which no new trial begins. The seconds of earlier calls with this journal count.
        end_running: Whether the end of the time budget ends the running trials; by default the run waits for them.
        max_failures: Number of failures in a row after which the run stops. One is enough if its result lacks the name
            of a constraint or objective and no trial has a value yet.
        stop_at_gap: Stop when the optimality gap is at most this, in units of the objective; with several objectives as
            a share of the front's extents (``Front.extents``). In the certified setting the recommended parameters are
            then within this gap of the optimum with probability ``1 - delta``. Where possible, this is proved for the
            whole space (``Optimizer.gap``). In the practical setting it is a rule of thumb.
        stop_when: Stop when 20 more trials are expected to improve the value by no more than this, in units of the
            objective (``Result.answers``); checked after every fifth trial. Only for the practical setting.
        pruner: Stops trials early by what they report with ``trial.report(value, step=step)``: "curves" or
            ``kbo.Curves(...)``; with Optuna installed "median", "hyperband", "wilcoxon", or one of its pruners.
        evaluated: Known results, which do not count in ``n_trials``: a DataFrame with a column for each parameter and
            "value", the path of such a table as CSV, or the path of another run's journal. Results outside the space
            are left out, with a warning and a line in the result.
        try_first: Parameters of the first trials. Parameters that an entry leaves out are chosen by the search.
        progress: Show a progress bar with the best value so far.
        on_trial: A function, or a list of them, called in this process after every trial with the trial and the result
            so far. If one returns True or raises ``kbo.Stop``, the run ends. A function that is also a context manager,
            like ``kbo.report.Live()``, is entered for the run.
        device: The device of posteriors and of searches, such as "cuda"; by default the CPU. A journal may be continued
            on another device.

    Returns:
        The result. Ctrl-C ends the running trials, and the result is returned with the reason in ``stopped``; the same
        call starts these trials again.

    Raises:
        InvalidInput: An argument that cannot be used.
        JournalError: The journal cannot be used.
        TooManyFailures: ``max_failures`` trials failed in a row, or all trials failed.
        RefutedAssumptions: The data contradict the given assumptions (certified setting only).
        Exception: Any that ``on_trial`` raises.

    Every exception that ends a run has the attribute ``trials``.
    """
    return _run(**locals(), maximize=False)


def _maximizing(minimize: Callable[P, Result]) -> Callable[P, Result]:
    """Return ``maximize``. Its arguments are those of ``minimize``, also for ``help``, editors and type checkers."""
    signature = inspect.signature(minimize)

    @functools.wraps(minimize)
    def maximize(*arguments: P.args, **options: P.kwargs) -> Result:
        call = signature.bind(*arguments, **options)
        call.apply_defaults()
        return _run(**call.arguments, maximize=True)

    maximize.__name__ = "maximize"
    maximize.__qualname__ = "maximize"
    maximize.__doc__ = "Maximise a noisy, expensive function; arguments and result as ``minimize``."
    return naming_arguments(maximize)


maximize = _maximizing(minimize)


@preserved()
@isolated
def _run(
    *,
    objective: Callable[..., Any],
    bounds: Bounds | Space,
    n_trials: int | None,
    setting: Setting | None,
    method: str | None,
    constraints: Sequence[Any],
    workers: Workers,
    timeout: float | None,
    time_budget: float | None,
    end_running: bool,
    max_failures: int,
    stop_at_gap: float | None,
    stop_when: float | None,
    pruner: Any,
    try_first: Sequence[Any],
    progress: bool,
    on_trial: OnTrial | Sequence[OnTrial] | None,
    **of_optimizer: Any,
) -> Result:
    """Run all trials and return the result; all arguments are checked before the journal is opened.

    Arguments as for ``minimize``; ``of_optimizer`` are those that only ``Optimizer`` needs.
    """
    checks.function("objective", objective)
    timeout = checks.maybe(checks.positive, "timeout", timeout, YEAR)
    progress = checks.flag("progress", progress)
    engine = engine_of(workers, timeout)
    stopping = Stopping(n_trials, time_budget, end_running, max_failures, stop_at_gap, stop_when)
    setting, method = resolve(setting, method, stopping.n_trials)
    stopping.check_possible(setting, method)
    if (pruner is not None or stopping.stop_when) and of_optimizer["objectives"]:
        raise InvalidInput(
            "pruner (--prune) and stop_when (--stop-when) are for one objective: leave them out, or objectives."
        )
    pruner = _checked_pruner(pruner, objective)
    callbacks = Callbacks(on_trial)
    measured, on_parameters = measured_only(constraints)
    space = Space(bounds, on_parameters)
    points = first_points(try_first, space)
    optimizer = Optimizer(
        space,
        setting=setting,
        method=method,
        n_trials=stopping.n_trials,
        constraints=measured,
        **of_optimizer,
    )
    stopped = "interrupted before its end"
    try:
        with contextlib.suppress(KeyboardInterrupt), callbacks.opened():
            loop = Loop(optimizer, stopping, points, callbacks, pruner, progress)
            stopped = loop.run(objective, engine, timeout)
        result = result_of(optimizer, stopped, optimizer.run.path)
        return replace(result, left_out=_left_out(optimizer, points, space))
    except BaseException as error:
        with contextlib.suppress(Exception):  # a journal that cannot be read again
            error.trials = list(optimizer.trials)  # pyright: ignore[reportAttributeAccessIssue]
        if optimizer.run.path:
            error.add_note(f"The trials so far are in {optimizer.run.path}.")
        raise
    finally:
        optimizer.close()


def _checked_pruner(pruner: Any, objective: Callable[..., Any]) -> Pruner | None:
    """Return the pruner that the argument ``pruner`` means; None without one.

    Raises:
        InvalidInput: There is no such pruner, or the objective has no second argument to report with.
    """
    if pruner is None:
        return None
    meant = pruner_of(pruner)
    if not takes_trial(objective):
        raise InvalidInput(
            "pruner needs an objective that takes two arguments, (params, trial), and reports."
        )
    return meant


def _left_out(
    optimizer: Optimizer, points: Sequence[dict[str, Any]], space: Space
) -> tuple[str, ...]:
    """Return sentences about known results and points to try first that were not used."""
    left_out = list(optimizer.left_out)
    not_begun = remaining(points, space, optimizer.trials)
    if not_begun:
        left_out.append(
            f"{len(not_begun)} of {len(points)} points of try_first, for which there was no trial"
        )
    return tuple(left_out)
