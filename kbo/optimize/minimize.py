"""``minimize`` and ``maximize``: the whole loop, with parallel trials and limits of time.

Nothing is lost when a trial fails, a worker dies, or this process is interrupted or killed.
"""

from __future__ import annotations

import contextlib
import copy
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kbo._base import checks
from kbo._base.settings import preserved
from kbo._base.surroundings import fixed
from kbo._base.terminal import Bar
from kbo.bandit import methods
from kbo.errors import InvalidInput, JournalError, TooManyFailures
from kbo.optimize.callbacks import Callbacks, OnTrial
from kbo.optimize.constraint import measured_only
from kbo.optimize.evaluated import first_points, known_results, remaining, unrecorded
from kbo.optimize.insight.expected_gain import N_MORE
from kbo.optimize.optimizer import Optimizer
from kbo.optimize.pruning import Pruner, Pruning, resolve
from kbo.optimize.result import PROOF, Result, result_of
from kbo.optimize.run.run import recorded
from kbo.optimize.run.trials import Trial
from kbo.optimize.search.search import MOST_POINTS
from kbo.optimize.surrogates.setting import Setting
from kbo.space import Bounds, Params, Space
from kbo.workers.call import takes_trial
from kbo.workers.choice import Workers, engine_of
from kbo.workers.engine import YEAR, Engine, Session

if TYPE_CHECKING:
    import optuna
    import torch

_ASKED = 5
"""Trials between two questions whether to stop."""

_SHOWN = 3
"""Reasons of failures that an error shows."""


def minimize(
    objective: Callable[..., float],
    bounds: Bounds | Space,
    n_trials: int | None = None,
    *,
    setting: Setting | None = None,
    method: str | None = None,
    constraints: Sequence[Any] = (),
    value_range: tuple[float, float] | None = None,
    seed: int = 0,
    journal: str | os.PathLike[str] | None = None,
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
        seed: Seed of every random choice.
        journal: Path of a crash-safe journal.
        workers: Number of trials at a time, each in a worker process; or ``kbo.Processes(...)``, ``kbo.Threads(...)``,
            ``kbo.workers.ray.Ray(...)``. With 1 everything stays in this process. By default 1, or with ``timeout`` one
            worker process.
        timeout: Seconds after which a trial is ended and recorded as failed, at most a year. A worker process is ended
            at once, with those that it started. Within this process (``workers=1``; Unix, main thread) it works like
            Ctrl-C: compiled code runs until it returns, and code that catches ``BaseException`` goes on.
        time_budget: Seconds after which no trial begins, those of earlier calls with this journal included.
        end_running: Whether trials that run at the end of the time budget are ended; otherwise they are waited for.
        max_failures: Failures in a row after which the run stops.
        stop_at_gap: Stop when the optimality gap is at most this, in units of the objective. In the certified setting
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
    engine = engine_of(workers, timeout)
    budget = _Budget(
        n_trials, timeout, time_budget, end_running, max_failures, stop_at_gap, stop_when
    )
    callbacks = Callbacks(on_trial)
    loop = _Loop(
        objective, engine, budget, method, pruner, evaluated, try_first, progress, callbacks
    )
    options = {
        "setting": setting,
        "constraints": constraints,
        "value_range": value_range,
        "seed": seed,
    }
    return loop.run(bounds, **options, journal=journal, device=device, maximize=False)


def maximize(
    objective: Callable[..., float],
    bounds: Bounds | Space,
    n_trials: int | None = None,
    *,
    setting: Setting | None = None,
    method: str | None = None,
    constraints: Sequence[Any] = (),
    value_range: tuple[float, float] | None = None,
    seed: int = 0,
    journal: str | os.PathLike[str] | None = None,
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
    engine = engine_of(workers, timeout)
    budget = _Budget(
        n_trials, timeout, time_budget, end_running, max_failures, stop_at_gap, stop_when
    )
    callbacks = Callbacks(on_trial)
    loop = _Loop(
        objective, engine, budget, method, pruner, evaluated, try_first, progress, callbacks
    )
    options = {
        "setting": setting,
        "constraints": constraints,
        "value_range": value_range,
        "seed": seed,
    }
    return loop.run(bounds, **options, journal=journal, device=device, maximize=True)


@dataclass(frozen=True)
class _Budget:
    """Reasons to end a run or a trial; arguments of ``minimize``."""

    n_trials: int | None
    timeout: float | None
    time_budget: float | None
    end_running: bool
    max_failures: int
    stop_at_gap: float | None
    stop_when: float | None

    def __post_init__(self) -> None:
        if self.n_trials is None and self.time_budget is None:
            raise InvalidInput("give n_trials, time_budget (seconds), or both.")
        checks.maybe(checks.whole, "n_trials", self.n_trials, 1)
        checks.maybe(checks.positive, "timeout", self.timeout, YEAR)
        checks.maybe(checks.positive, "time_budget", self.time_budget)
        checks.flag("end_running", self.end_running)
        checks.whole("max_failures", self.max_failures, 1)
        checks.maybe(checks.positive, "stop_at_gap", self.stop_at_gap)
        checks.maybe(checks.positive, "stop_when", self.stop_when)


@dataclass(frozen=True)
class _Loop:
    """A run, with arguments that are checked before anything is opened."""

    objective: Callable[..., float]
    engine: Engine
    budget: _Budget
    method: str | None
    pruner: Any
    evaluated: Any
    try_first: Sequence[Any]
    progress: bool
    on_trial: Callbacks

    def __post_init__(self) -> None:
        checks.function("objective", self.objective)
        checks.flag("progress", self.progress)
        if (
            self.budget.stop_at_gap
            and self.method is not None
            and not methods.get(self.method).has_bounds
        ):
            raise InvalidInput(
                f"method {self.method!r} has no bounds, so no gap at which it could stop."
            )
        if (
            self.budget.stop_when
            and self.method is not None
            and not methods.get(self.method).has_bounds
        ):
            raise InvalidInput(
                f"method {self.method!r} has no model, so nothing is expected of more trials: stop_when."
            )
        if self.pruner is not None and resolve(self.pruner) and not takes_trial(self.objective):
            raise InvalidInput(
                "pruner needs an objective that takes two arguments, (params, trial), and reports."
            )

    @preserved()
    @fixed
    def run(
        self, bounds: Bounds | Space, *, journal: str | os.PathLike[str] | None, **options: Any
    ) -> Result:
        """Run all trials; ``options`` are those of the optimiser."""
        measured, parameters = measured_only(options["constraints"])
        space = Space(bounds, parameters)
        options["constraints"] = measured
        known = known_results(
            self.evaluated,
            space,
            options["maximize"],
            [c.name for c in measured],
            options["value_range"],
        )
        left_out = list(known.left_out)
        first = first_points(self.try_first, space)
        if self.budget.stop_when and getattr(options["setting"], "certified", False):
            raise InvalidInput(
                "stop_when is for the practical setting: use stop_at_gap, which is guaranteed."
            )
        optimizer = Optimizer(
            space, method=self.method, n_trials=self.budget.n_trials, journal=journal, **options
        )
        path = None if journal is None else os.fspath(journal)
        stopped = "interrupted before its end"
        try:
            with contextlib.suppress(KeyboardInterrupt), self.on_trial.opened():
                stopped = self._worked(optimizer, known.results, first, path)
            not_begun = remaining(first, space, optimizer.trials)
            if not_begun:
                left_out.append(
                    f"{len(not_begun)} of {len(first)} points of try_first, for which there was no trial"
                )
            return replace(result_of(optimizer, stopped, path), left_out=tuple(left_out))
        except BaseException as error:
            with contextlib.suppress(Exception):  # a journal that cannot be read again
                error.trials = list(optimizer.trials)  # pyright: ignore[reportAttributeAccessIssue]
            if path:
                error.add_note(f"The trials so far are in {path}.")
            raise
        finally:
            optimizer.close()

    def _worked(
        self,
        optimizer: Optimizer,
        known: Sequence[tuple[Params, Any]],
        first: Sequence[dict[str, Any]],
        path: str | None,
    ) -> str:
        """Run trials until there is a reason to stop, and return it; trials that are still running are released."""
        pruning = (
            None
            if self.pruner is None
            else Pruning(self.pruner, optimizer.space, optimizer.maximize)
        )
        trouble: list[Exception] = []

        def on_report(number: int, value: float, step: int) -> bool:
            try:
                optimizer.report(optimizer.trials[number], value, step=step)
                return pruning is not None and pruning.should_stop(
                    number, optimizer.events_from(pruning.n_events)
                )
            except Exception as error:  # which an objective in this process would take for its own
                trouble.append(error)
                raise

        try:
            with self.engine.session(self.objective, self.budget.timeout, on_report) as session:
                work = _Work(self, optimizer, session, first, path, trouble)
                for params, value in unrecorded(known, optimizer.trials):
                    optimizer.add(params, value)
                return work.until_stopped()
        finally:
            with contextlib.suppress(JournalError):  # which has been raised already
                optimizer.release()


class _Work:
    """The trials of a run in one session of workers."""

    def __init__(
        self,
        loop: _Loop,
        optimizer: Optimizer,
        session: Session,
        first: Sequence[dict[str, Any]],
        path: str | None,
        trouble: Sequence[Exception],
    ) -> None:
        self._loop, self._optimizer, self._session, self._first, self._path = (
            loop,
            optimizer,
            session,
            first,
            path,
        )
        self._trouble = trouble
        self._budget, self._in_a_row = loop.budget, 0
        budget = loop.budget
        self._known = optimizer.n_finished
        points = optimizer.space.points(MOST_POINTS)
        self._n_points = math.inf if points is None else len(points)
        before = optimizer.open_session(
            n_trials=budget.n_trials,
            time_budget=budget.time_budget,
            timeout=budget.timeout,
            workers=repr(loop.engine),
        )
        self._end = (
            math.inf
            if budget.time_budget is None
            else time.monotonic() + budget.time_budget - before
        )

    def until_stopped(self) -> str:
        """Run trials until there is a reason to stop, and return it."""
        self._optimizer.fail_lost()
        options = {"disable": not self._loop.progress, "desc": "kbo", "unit": "trial"}
        with Bar(total=self._budget.n_trials, initial=self._known, **options) as bar:
            reason = self._settled()
            while not reason:
                self._fill()
                self._show(bar)
                if not self._session.running:
                    return self._ended_by(self._used_up())
                left = max(self._end - time.monotonic(), 0.0)
                outcomes = self._session.wait(
                    left if self._budget.end_running and left < math.inf else None
                )
                if self._trouble:
                    raise self._trouble[0]
                if not outcomes:
                    return self._ended_by(self._used_up())
                ended = [
                    recorded(self._optimizer, outcome) for outcome in outcomes
                ]  # all, before a callback may raise
                for trial in ended:
                    reason = self._ended(trial, bar) or reason
        return reason

    def _fill(self) -> None:
        """Begin trials, as many as may run."""
        while len(self._session.running) < self._session.capacity and not self._used_up():
            first = (
                remaining(self._first, self._optimizer.space, self._optimizer.trials)
                if self._first
                else []
            )
            trial = self._optimizer.begin(**next(iter(first), {}))
            self._session.start(trial.number, copy.copy(trial.params))

    def _ended_by(self, reason: str) -> str:
        """Return the reason for which no further trial begins, if not all of them failed."""
        failures = [trial.failure for trial in self._optimizer.failed() if trial.failure]
        if (
            failures
            and len(failures) == self._optimizer.n_finished
            and not self._optimizer.completed()
        ):
            shown = "; ".join(dict.fromkeys(failures[:_SHOWN]))
            raise TooManyFailures(
                f"all {len(failures)} trials failed, the first with: {shown}. {self._after_failures()}"
            )
        return reason

    def _used_up(self) -> str:
        """Return why no further trial begins; an empty text if one may."""
        if self._optimizer.n_finished >= self._n_points and self._optimizer.exhausted():
            return "every point has been evaluated, and the objective has no noise"
        n_trials, optimizer = self._budget.n_trials, self._optimizer
        if n_trials is not None and optimizer.n_finished + len(self._session.running) >= n_trials:
            known = f", {self._known} of them were in the journal" if self._known else ""
            return f"the budget of {n_trials} trials is used{known}"
        if time.monotonic() >= self._end:
            return f"the time budget of {self._budget.time_budget:g} s is used"
        return ""

    def _settled(self) -> str:
        """Return what is known well enough to stop for, in words; an empty text if nothing is."""
        least, wanted, n = (
            self._budget.stop_when,
            self._budget.stop_at_gap,
            self._optimizer.n_finished,
        )
        infeasible = self._optimizer.infeasible(PROOF // 10 if n % _ASKED else PROOF)
        if infeasible is not None:
            return str(infeasible)
        found = (
            self._optimizer.answers(intervals=False)
            if least is not None and n and n % _ASKED == 0
            else None
        )
        if found is not None and least is not None and found.more.value <= least:
            return (
                f"{N_MORE} more trials are expected to improve the value by {found.more.value:.2g}"
            )
        if wanted is None or (gap := self._optimizer.gap()) is None or not gap.final:
            return ""
        if gap.value <= wanted or n % _ASKED == 0:
            gap = self._optimizer.gap(PROOF if gap.value <= wanted else PROOF // 10, wanted) or gap
        if gap.value > wanted:
            return ""
        return f"the optimality gap {gap.value:.4g} is at most {wanted:g}"

    def _ended(self, trial: Trial, bar: Bar) -> str:
        """Take note of the end of a trial; return a reason to stop the run, or an empty text."""
        if trial.status == "pending":  # it is started again
            return ""
        bar.update()
        self._show(bar)
        self._in_a_row = self._in_a_row + 1 if trial.status == "failed" else 0
        called = self._loop.on_trial
        reason = (
            called(trial, result_of(self._optimizer, "", self._path, evaluations=0))
            if called
            else ""
        )
        reason = reason or self._settled()
        if self._in_a_row >= self._budget.max_failures and not reason:
            failures = "1 trial" if self._in_a_row == 1 else f"{self._in_a_row} trials in a row"
            raise TooManyFailures(
                f"{failures} failed, the last with: {trial.failure}. {self._after_failures()}"
            )
        return reason

    def _after_failures(self) -> str:
        """Return the advice after too many failures, in words."""
        advice = "Correct the objective or its bounds"
        if self._path is None:
            return f"{advice}."
        return (
            f"{advice}. The failed trials stay in {self._path}: they count in n_trials (--trials), and the search "
            "avoids their parameters. So after a fault that has nothing to do with the parameters begin with a new "
            "journal (kbo tune --fresh renames the old one); otherwise the same call continues."
        )

    def _show(self, bar: Bar) -> None:
        if bar.disable:
            return
        values = [t.value for t in self._optimizer.within_limits() if t.value is not None]
        best = (
            {"best": f"{(max if self._optimizer.maximize else min)(values):.4g}"} if values else {}
        )
        running = {"running": len(self._session.running)} if self._session.capacity > 1 else {}
        left = (
            {"left": f"{max(self._end - time.monotonic(), 0.0):.0f} s"}
            if self._end < math.inf
            else {}
        )
        bar.set_postfix(best | running | left)
