"""``minimize`` and ``maximize``: the whole loop, with parallel trials and limits of time.

Nothing is lost when a trial fails, a worker dies, or this process is interrupted or killed.
"""

from __future__ import annotations

import contextlib
import copy
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kbo._base import checks
from kbo._base.isolation import isolated
from kbo._base.settings import preserved
from kbo._base.terminal import Bar
from kbo.bandit import methods
from kbo.errors import InvalidInput, JournalError, TooManyFailures
from kbo.optimize.callbacks import Callbacks, OnTrial
from kbo.optimize.constraints.constraint import measured_only
from kbo.optimize.evaluated import first_points, known_results, remaining
from kbo.optimize.insight.expected_gain import N_MORE
from kbo.optimize.objectives.hypervolume import EXACT, hypervolume, non_dominated
from kbo.optimize.objectives.objective import objectives_of, targets_of
from kbo.optimize.optimizer import Optimizer
from kbo.optimize.pruning import Pruner, Pruning, resolve
from kbo.optimize.result import PROOF, Result, result_of
from kbo.optimize.run.outcome import with_condition
from kbo.optimize.run.trials import Trial
from kbo.optimize.search.search import MOST_POINTS
from kbo.optimize.settings.setting import Setting
from kbo.space import Bounds, Space
from kbo.workers.call import takes_trial
from kbo.workers.choice import Workers, engine_of
from kbo.workers.engine import YEAR, Engine, Session

if TYPE_CHECKING:
    import optuna
    import torch

_ASK_EVERY = 5
"""Number of trials after which the slow reasons to stop are examined again."""

_MOST_REASONS = 3
"""Number of reasons of failures that an error shows."""


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

    With a journal, a run that was killed continues when the same call is made again: no value that was recorded is
    lost or evaluated twice; only the trials that were running are evaluated again. With several workers a free one gets
    a new point at once, chosen for what is known and what the others evaluate; the same seed and the same order of
    completions give the same points.

    Args:
        objective: Called with a dict of parameters (a list of floats if ``bounds`` is a list), and with a
            ``kbo.RunningTrial`` too if it takes two arguments; returns a number, or with other measurements
            ``(number, {"memory": 7.2})`` or ``{"objective": number, "memory": 7.2}``. The measurement "sem" is the
            standard error of the number, for example of a mean over seeds.
        bounds: For example ``{"lr": Float(1e-4, 1e-1, log=True), "layers": Int(1, 3), "act": ["relu", "tanh"]}``, a
            list of pairs, conditional parameters or a table of candidates: see ``kbo.Space``.
        n_trials: Trials in all, failed ones and those in the journal included. Optional with ``time_budget``.
        setting: ``Practical()`` (default): kernel, noise and norm bound are estimated, the bounds have no guarantee.
            ``Certified(kernel, noise_std, norm_bound)``: the bounds hold if these are right. ``Safe(kernel, noise_std,
            norm_bound, start=[...])``: and no trial breaks a limit of ``constraints``.
        method: A name of ``kbo.bandit.names()``; by default "ucb" (practical setting) or "dmm-ucb" (certified).
        constraints: A list of limits on what the objective measures, ``kbo.Constraint("memory", upper=8.0)``, and on
            parameters: ``kbo.Linear({"a": 1, "b": 1}, upper=1)``, or functions that return whether given parameters are
            allowed.
        value_range: The least and the largest possible value, such as (0, 1) for an error rate: intervals stay inside,
            and other values are failures.
        objectives: Several quantities to optimise, which the objective returns in a dict: their names, or
            ``kbo.Minimize(name)`` and ``kbo.Maximize(name)``. The answer is then ``Result.front``.
        reference: With several objectives, values of some of them that are just not acceptable, by name.
        seed: Seed of every random choice.
        journal: Path of a crash-safe journal.
        allow_change: Whether ``bounds`` and constraints on parameters may differ from those of the journal: the run
            goes on in the new space with all earlier trials that have a place in it, also outside of the new ranges.
        was: The values that parameters had in the trials before, and in known results, that lack them, by name.
        workers: Number of trials at a time, each in a worker process; or ``kbo.Processes(...)``, ``kbo.Threads(...)``,
            ``kbo.workers.ray.Ray(...)``. With 1 everything stays in this process. By default 1, or with ``timeout`` one
            worker process.
        timeout: Seconds after which a trial is ended and recorded as failed, at most a year. A worker process is ended
            at once, with those that it started. Within this process (``workers=1``; Unix, main thread) it works like
            Ctrl-C: compiled code runs until it returns, and code that catches ``BaseException`` goes on.
        time_budget: Seconds after which no trial begins, those of earlier calls with this journal included.
        end_running: Whether trials that run at the end of the time budget are ended; otherwise they are waited for.
        max_failures: Failures in a row after which the run stops.
        stop_at_gap: Stop when the optimality gap is at most this, in units of the objective (with several objectives as
            a share of the front's extents, ``Front.extents``). In the certified setting
            the recommended parameters are then within this of the optimum with probability ``1 - delta``, which is
            proved for the whole space where that is possible (``Optimizer.gap``). In the practical setting it is a rule
            of thumb.
        stop_when: Stop when 20 more trials are expected to improve the value by no more than this, in units of the
            objective (``Result.answers``); asked every fifth trial. Only for the practical setting.
        pruner: Stops trials early by what they report with ``trial.report(value, step=step)``: "curves" or
            ``kbo.Curves(...)``; with Optuna installed "median", "hyperband", "wilcoxon", or one of its pruners.
        evaluated: Results that are known, which do not count in ``n_trials``: a DataFrame with a column for each
            parameter and "value", or the path of such a table as CSV or of another run's journal. Those that are no
            points of the space are left out, with a warning and a line of the result.
        try_first: Parameters of the first trials; those that are missing are chosen.
        progress: Show a progress bar with the best value so far.
        on_trial: A function, or a list of them, called in this process after every trial with the trial and the result
            so far. If one returns True or raises ``kbo.Stop``, the run ends. One that is a context manager too, like
            ``kbo.report.Live()``, is entered for the run.
        device: Where posteriors are, and points of a search are scored, such as "cuda"; the CPU by default. A journal
            may be continued on another one.

    Returns:
        The result; also after Ctrl-C, with ``stopped`` saying so. Trials that were running are ended then, and the same
        call starts them again.

    Raises:
        InvalidInput: An argument that cannot be used.
        JournalError: The journal cannot be used.
        TooManyFailures: ``max_failures`` trials failed in a row, or all trials failed.
        RefutedAssumptions: The data contradict the given assumptions (certified setting only).
        Exception: Any that ``on_trial`` raises.

    Every exception that ends a run has its ``trials``.
    """
    return _run(_Call(**locals(), maximize=False))  # the arguments are all that is local


def maximize(
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
    """Maximise a noisy, expensive function; arguments and result as ``minimize``."""
    return _run(_Call(**locals(), maximize=True))  # the arguments are all that is local


@dataclass(frozen=True)
class _Call:
    """The arguments of a call of ``minimize`` or ``maximize``."""

    objective: Callable[..., Any]
    bounds: Bounds | Space
    n_trials: int | None
    setting: Setting | None
    method: str | None
    constraints: Sequence[Any]
    value_range: tuple[float, float] | None
    objectives: Sequence[Any]
    reference: Any
    seed: int
    journal: str | os.PathLike[str] | None
    allow_change: bool
    was: Mapping[str, Any] | None
    workers: Workers
    timeout: float | None
    time_budget: float | None
    end_running: bool
    max_failures: int
    stop_at_gap: float | None
    stop_when: float | None
    pruner: Any
    evaluated: Any
    try_first: Sequence[Any]
    progress: bool
    on_trial: OnTrial | Sequence[OnTrial] | None
    device: str | torch.device | None
    maximize: bool

    def __post_init__(self) -> None:
        if self.n_trials is None and self.time_budget is None:
            raise InvalidInput("give n_trials, time_budget (seconds), or both.")
        checks.keep(
            self,
            n_trials=checks.maybe(checks.whole, "n_trials", self.n_trials, 1),
            timeout=checks.maybe(checks.positive, "timeout", self.timeout, YEAR),
            time_budget=checks.maybe(checks.positive, "time_budget", self.time_budget),
            end_running=checks.flag("end_running", self.end_running),
            max_failures=checks.whole("max_failures", self.max_failures, 1),
            stop_at_gap=checks.maybe(checks.positive, "stop_at_gap", self.stop_at_gap),
            stop_when=checks.maybe(checks.positive, "stop_when", self.stop_when),
            progress=checks.flag("progress", self.progress),
        )
        checks.function("objective", self.objective)
        self._check_reasons_to_stop()
        if self.objectives and (self.pruner is not None or self.stop_when):
            raise InvalidInput(
                "pruner (--prune) and stop_when (--stop-when) are for one objective: leave them out, or objectives."
            )
        if self.pruner is not None and resolve(self.pruner) and not takes_trial(self.objective):
            raise InvalidInput(
                "pruner needs an objective that takes two arguments, (params, trial), and reports."
            )

    @property
    def path(self) -> str | None:
        """The path of the journal; None without one."""
        if self.journal is None:
            return None
        return os.fspath(self.journal)

    def _check_reasons_to_stop(self) -> None:
        """Raise InvalidInput if method or setting have not the model that a reason to stop needs."""
        if self.method is not None and not methods.of_boxes(self.method).has_bounds:
            if self.stop_at_gap:
                raise InvalidInput(
                    f"method {self.method!r} has no bounds, so no gap at which it could stop."
                )
            if self.stop_when:
                raise InvalidInput(
                    f"method {self.method!r} has no model, so nothing is expected of more trials: stop_when."
                )
        if self.stop_when and getattr(self.setting, "certified", False):
            raise InvalidInput(
                "stop_when is for the practical setting: use stop_at_gap, which is guaranteed."
            )


@preserved()
@isolated
def _run(call: _Call) -> Result:
    """Run all trials, and return the result. All arguments are checked before the journal is opened."""
    engine = engine_of(call.workers, call.timeout)
    callbacks = Callbacks(call.on_trial)
    measured, on_parameters = measured_only(call.constraints)
    space = Space(call.bounds, on_parameters)
    names = [constraint.name for constraint in measured]
    objectives = objectives_of(call.objectives, call.maximize)
    known = known_results(
        call.evaluated, space, call.maximize, names, call.value_range, objectives, call.was
    )
    first = first_points(call.try_first, space)
    optimizer = Optimizer(
        space,
        setting=call.setting,
        method=call.method,
        maximize=call.maximize,
        n_trials=call.n_trials,
        constraints=measured,
        value_range=call.value_range,
        objectives=objectives,
        reference=call.reference,
        seed=call.seed,
        journal=call.journal,
        allow_change=call.allow_change,
        was=call.was,
        evaluated=known,
        device=call.device,
    )
    stopped = "interrupted before its end"
    try:
        with contextlib.suppress(KeyboardInterrupt), callbacks.opened():
            stopped = _Work(call, optimizer, engine, callbacks, first).run()
        left_out = list(known.left_out)
        not_begun = remaining(first, space, optimizer.trials)
        if not_begun:
            left_out.append(
                f"{len(not_begun)} of {len(first)} points of try_first, for which there was no trial"
            )
        return replace(result_of(optimizer, stopped, call.path), left_out=tuple(left_out))
    except BaseException as error:
        with contextlib.suppress(Exception):  # a journal that cannot be read again
            error.trials = list(optimizer.trials)  # pyright: ignore[reportAttributeAccessIssue]
        if call.path:
            error.add_note(f"The trials so far are in {call.path}.")
        raise
    finally:
        optimizer.close()


class _Work:
    """The trials of a run.

    Args:
        call: The arguments of the run.
        optimizer: The optimiser.
        engine: The workers.
        on_trial: The functions that are called after each trial.
        first: The ``first_points``.
    """

    def __init__(
        self,
        call: _Call,
        optimizer: Optimizer,
        engine: Engine,
        on_trial: Callbacks,
        first: Sequence[dict[str, Any]],
    ) -> None:
        self._call = call
        self._optimizer = optimizer
        self._engine = engine
        self._on_trial = on_trial
        self._first = first
        self._run = optimizer.run
        self._pruning: Pruning | None = None
        if call.pruner is not None:
            self._pruning = Pruning(call.pruner, optimizer.run.first_space, optimizer.maximize)
        self._error_of_report: Exception | None = None
        self._n_failed_in_a_row = 0
        self._n_before = self._run.trials.n_finished  # trials that the journal had
        self._n_points = math.inf
        points = optimizer.space.points(MOST_POINTS)
        if points is not None:
            self._n_points = len(points)
        self._end = math.inf  # of the time budget

    def run(self) -> str:
        """Run trials until there is a reason to stop, and return it; trials that still run are released."""
        call = self._call
        try:
            with self._engine.session(call.objective, call.timeout, self._on_report) as session:
                seconds_before = self._run.open_session(
                    n_trials=call.n_trials,
                    time_budget=call.time_budget,
                    timeout=call.timeout,
                    workers=repr(self._engine),
                )
                if call.time_budget is not None:
                    self._end = time.monotonic() + call.time_budget - seconds_before
                return self._until_stopped(session)
        finally:
            with contextlib.suppress(JournalError):  # which has been raised already
                self._run.release()

    def _on_report(self, number: int, value: float, step: int) -> bool:
        """Record a report of a running trial, and return True if the trial is to be stopped."""
        try:
            self._run.report(self._run.trials.all[number], value, step=step)
            if self._pruning is None:
                return False
            events = self._run.events_from(self._pruning.n_events)
            return self._pruning.should_stop(number, events)
        except Exception as error:  # an objective in this process would take it for its own
            self._error_of_report = self._error_of_report or error
            raise

    def _until_stopped(self, session: Session) -> str:
        """Run trials until there is a reason to stop, and return it."""
        self._run.fail_lost()
        n_trials = self._call.n_trials
        options = {"disable": not self._call.progress, "desc": "kbo", "unit": "trial"}
        with Bar(total=n_trials, initial=self._n_before, **options) as bar:
            reason = self._reason_to_stop()
            while not reason:
                self._begin_trials(session)
                self._show(bar, session)
                if not session.running:
                    return self._checked(self._used_up(session))
                seconds = None
                if self._call.end_running and self._end < math.inf:
                    seconds = self._seconds_left()
                outcomes = session.wait(seconds)
                if self._error_of_report is not None:
                    raise self._error_of_report
                if not outcomes:
                    return self._checked(self._used_up(session))
                # All are recorded before a callback may raise.
                trials = [self._run.end(outcome) for outcome in outcomes]
                for trial in trials:
                    if trial.status == "pending":  # it is started again
                        continue
                    bar.update()
                    self._show(bar, session)
                    reason = self._after(trial) or reason
        return reason

    def _seconds_left(self) -> float:
        """Return the seconds that are left of the time budget."""
        return max(self._end - time.monotonic(), 0.0)

    def _begin_trials(self, session: Session) -> None:
        """Begin as many trials as may run."""
        while len(session.running) < session.capacity and not self._used_up(session):
            point: dict[str, Any] = {}
            if self._first:
                left = remaining(self._first, self._optimizer.space, self._run.trials.all)
                point = next(iter(left), {})
            trial = self._optimizer.begin(**point)
            session.start(trial.number, copy.copy(trial.params))

    def _used_up(self, session: Session) -> str:
        """Return the reason why no further trial begins, or an empty text."""
        n_finished = self._run.trials.n_finished
        if n_finished >= self._n_points and self._optimizer.insight.exhausted():
            return "every point has been evaluated, and the objective has no noise"
        n_trials = self._call.n_trials
        if n_trials is not None and n_finished + len(session.running) >= n_trials:
            reason = f"the budget of {n_trials} trials is used"
            if self._n_before >= n_trials:
                reason = f"the budget is {n_trials} trials in all, and the journal had {self._n_before}: none was added"
            elif self._n_before:
                reason = f"{reason}, {self._n_before} of them were in the journal"
            return reason
        if time.monotonic() >= self._end:
            return f"the time budget of {self._call.time_budget:g} s is used"
        return ""

    def _checked(self, reason: str) -> str:
        """Return a reason why no further trial begins.

        Raises:
            TooManyFailures: All trials failed.
        """
        trials = self._run.trials
        failures = [trial.failure for trial in trials.failed if trial.failure]
        if failures and len(failures) == trials.n_finished and not trials.complete:
            conditions = self._optimizer.space.conditions
            explained = [
                with_condition(failure, conditions) for failure in failures[:_MOST_REASONS]
            ]
            reasons = "; ".join(dict.fromkeys(explained))
            raise TooManyFailures(
                f"all {len(failures)} trials failed, the first with: {reasons}. {self._after_failures()}"
            )
        return reason

    def _reason_to_stop(self) -> str:
        """Return the reason to stop that the values of the trials give, or an empty text."""
        n_finished = self._run.trials.n_finished
        is_slow_allowed = n_finished % _ASK_EVERY == 0
        infeasible = self._optimizer.insight.infeasible(PROOF if is_slow_allowed else PROOF // 10)
        if infeasible is not None:
            return str(infeasible)
        reason = ""
        if n_finished and is_slow_allowed:
            reason = self._little_to_gain()
        return reason or self._gap_reached(is_slow_allowed)

    def _little_to_gain(self) -> str:
        """Return a reason to stop if more trials are expected to gain no more than ``stop_when``, or an empty text."""
        if self._call.stop_when is None:
            return ""
        answers = self._optimizer.insight.answers(effects=False)
        if answers is None or answers.more.value > self._call.stop_when:
            return ""
        return f"{N_MORE} more trials are expected to improve the value by {answers.more.value:.2g}"

    def _gap_reached(self, is_slow_allowed: bool) -> str:
        """Return a reason to stop if the optimality gap is at most ``stop_at_gap``, or an empty text."""
        goal = self._call.stop_at_gap
        if goal is None:
            return ""
        gap = self._optimizer.gap()
        if gap is None or not gap.final:
            return ""
        if gap.value <= goal:
            gap = self._optimizer.gap(PROOF, goal) or gap
        elif is_slow_allowed:
            gap = self._optimizer.gap(PROOF // 10, goal) or gap
        if gap.value > goal:
            return ""
        return f"the optimality gap {gap.value:.4g} is at most {goal:g}"

    def _after(self, trial: Trial) -> str:
        """Take note of the end of a trial, and return a reason to stop the run, or an empty text.

        Raises:
            TooManyFailures: ``max_failures`` trials failed in a row.
        """
        if trial.status == "failed":
            self._n_failed_in_a_row += 1
        else:
            self._n_failed_in_a_row = 0
        reason = ""
        if self._on_trial:
            result = result_of(self._optimizer, "", self._call.path, evaluations=0)
            reason = self._on_trial(trial, result)
        reason = reason or self._reason_to_stop()
        if self._n_failed_in_a_row >= self._call.max_failures and not reason:
            failures = "1 trial"
            if self._n_failed_in_a_row > 1:
                failures = f"{self._n_failed_in_a_row} trials in a row"
            last = with_condition(trial.failure or "", self._optimizer.space.conditions)
            raise TooManyFailures(
                f"{failures} failed, the last with: {last}. {self._after_failures()}"
            )
        return reason

    def _after_failures(self) -> str:
        """Return the advice after too many failures."""
        advice = "Correct the objective or its bounds"
        if self._call.path is None:
            return f"{advice}."
        return (
            f"{advice}. The failed trials stay in {self._call.path}: they count in n_trials (--trials), and the search "
            "avoids their parameters. So after a fault that has nothing to do with the parameters begin with a new "
            "journal (kbo tune --fresh renames the old one); otherwise the same call continues."
        )

    def _show(self, bar: Bar, session: Session) -> None:
        """Show the best value or the hypervolume, the number of running trials and the time that is left."""
        if bar.disable:
            return
        shown: dict[str, Any] = {}
        completed = self._optimizer.insight.within_limits()
        values = [t.value for t in completed if t.value is not None]
        if self._optimizer.objectives:
            shown |= self._front_so_far(completed)
        elif values:
            best = max(values) if self._optimizer.maximize else min(values)
            shown["best"] = f"{best:.4g}"
        if session.capacity > 1:
            shown["running"] = len(session.running)
        if self._end < math.inf:
            shown["left"] = f"{self._seconds_left():.0f} s"
        bar.set_postfix(shown)

    def _front_so_far(self, completed: Sequence[Trial]) -> dict[str, Any]:
        """Return the number of trials on the observed front, and its hypervolume if the reference is given."""
        objectives = self._optimizer.objectives
        given = self._optimizer.reference
        targets = targets_of(completed, objectives)
        front = targets[non_dominated(targets)]
        shown: dict[str, Any] = {"front": len(front)}
        if len(given) == len(objectives) <= EXACT:
            reference = [objective.sign * given[objective.name] for objective in objectives]
            shown["volume"] = f"{float(hypervolume(front, targets.new_tensor(reference))):.4g}"
        return shown
