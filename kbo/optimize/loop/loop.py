"""The loop of ``minimize``, with its progress bar: trials begin and end until there is a reason to stop.

Decisions by the clock are made here only; all others are functions of the recorded events.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from kbo._base.terminal import Bar, announce
from kbo.errors import JournalError
from kbo.optimize.evaluated.first_points import remaining
from kbo.optimize.loop.callbacks import Callbacks
from kbo.optimize.loop.pruning import Pruner, Pruning
from kbo.optimize.loop.stopping import Stopping, check_not_all_failed, failed_in_a_row, is_hopeless
from kbo.optimize.objectives.hypervolume import EXACT, hypervolume, non_dominated
from kbo.optimize.objectives.objective import targets_of
from kbo.optimize.optimizer import Optimizer
from kbo.optimize.result import result_of
from kbo.optimize.run.run import Run
from kbo.optimize.run.trials import Trial
from kbo.optimize.search.search import MOST_POINTS
from kbo.workers.call import CallOutcome, Engine, Session

log: logging.Logger = logging.getLogger("kbo")


class Loop:
    """The loop over the trials of a run.

    Args:
        optimizer: The optimiser, which chooses parameters and records events.
        stopping: The budgets, and the reasons to stop earlier.
        first_points: The points to try first, from ``kbo.optimize.evaluated.first_points.first_points``.
        callbacks: The functions that are called after each trial.
        pruner: Stops trials early by their reports; None without early stopping.
        progress: Whether a progress bar is shown.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        stopping: Stopping,
        first_points: Sequence[dict[str, Any]],
        callbacks: Callbacks,
        pruner: Pruner | None,
        progress: bool,
    ) -> None:
        self._optimizer = optimizer
        self._run = optimizer.run
        self._stopping = stopping
        self._first_points = first_points
        self._callbacks = callbacks
        self._progress = progress
        self._pruning: Pruning | None = None
        if pruner is not None:
            self._pruning = Pruning(pruner, self._run.first_space, optimizer.maximize)
        self._error_of_report: Exception | None = None
        self._n_failed_in_a_row = 0
        self._n_before = 0  # trials that count and had ended before
        self._n_points = math.inf  # of a finite space
        points = optimizer.space.points(MOST_POINTS)
        if points is not None:
            self._n_points = len(points)
        self._end = math.inf  # of the time budget, by ``time.monotonic``

    def run(self, objective: Callable[..., Any], engine: Engine, timeout: float | None) -> str:
        """Run trials until there is a reason to stop, and return the reason; trials that still run are released.

        Args:
            objective: The objective function.
            engine: The workers that call it.
            timeout: Seconds after which a call has failed; None without a limit.
        """
        stopping = self._stopping
        try:
            with engine.session(objective, timeout, self._on_report) as session:
                seconds_before = self._run.open_session(
                    n_trials=stopping.n_trials,
                    time_budget=stopping.time_budget,
                    timeout=timeout,
                    workers=repr(engine),
                )
                self._n_before = self._n_ended()
                trials = self._run.trials
                if trials.n_in_vain and trials.all_failed:
                    log.warning(
                        "the %d trials of earlier calls failed, so they do not count in n_trials (--trials)",
                        trials.n_in_vain,
                    )
                if stopping.time_budget is not None:
                    self._end = time.monotonic() + stopping.time_budget - seconds_before
                return self._until_stopped(session)
        finally:
            with contextlib.suppress(JournalError):  # it has been raised already
                self._run.release()

    def _on_report(self, number: int, value: float, step: int) -> bool:
        """Record a report of a running trial, and return True if the trial is to be stopped."""
        try:
            self._run.report(self._run.trials.all[number], value, step=step)
            if self._pruning is None:
                return False
            events = self._run.events_from(self._pruning.n_events)
            return self._pruning.should_stop(number, events)
        except Exception as error:  # the objective may catch it, so it is raised again later
            self._error_of_report = self._error_of_report or error
            raise

    def _n_ended(self) -> int:
        """Return the number of ended trials that count in ``n_trials``."""
        return self._run.trials.n_asked_ended - self._run.trials.n_in_vain

    def _until_stopped(self, session: Session) -> str:
        """Run trials until there is a reason to stop, and return it."""
        self._run.fail_lost()
        place = place_of(self._run)
        if place and self._progress:
            announce(place)
        options = {"disable": not self._progress, "desc": "kbo", "unit": "trial"}
        with Bar(total=self._stopping.n_trials, initial=self._n_before, **options) as bar:
            reason = self._stopping.by_results(self._optimizer)
            while not reason:
                self._begin_trials(session)
                self._show(bar, session)
                outcomes: list[CallOutcome] = []
                if session.running:
                    outcomes = session.wait(self._longest_wait())
                if self._error_of_report is not None:
                    raise self._error_of_report
                if not outcomes:  # no trial may begin, and none runs or may run on
                    check_not_all_failed(self._optimizer)
                    return self._used_up(session)
                # All are recorded before a callback may raise.
                trials = [self._run.end(outcome) for outcome in outcomes]
                for trial in trials:
                    if trial.status == "pending":  # it is started again
                        continue
                    bar.update()
                    self._show(bar, session)
                    reason = self._after(trial) or reason
        return reason

    def _begin_trials(self, session: Session) -> None:
        """Begin as many trials as may run, starting with those at the points to try first."""
        while len(session.running) < session.capacity and not self._used_up(session):
            point: dict[str, Any] = {}
            if self._first_points:
                left = remaining(self._first_points, self._optimizer.space, self._run.trials.all)
                point = next(iter(left), {})
            trial = self._optimizer.begin(**point)
            session.start(trial.number, copy.copy(trial.params))

    def _used_up(self, session: Session) -> str:
        """Return the reason why no further trial begins, or an empty text."""
        n_ended = self._n_ended()
        if n_ended >= self._n_points and self._optimizer.insight.exhausted():
            return "every point has been evaluated, and the objective has no noise"
        return self._stopping.budget_used(
            n_ended, len(session.running), self._n_before, self._seconds_left()
        )

    def _after(self, trial: Trial) -> str:
        """Count the failures, call the callbacks, and return a reason to stop the run, or an empty text.

        Raises:
            TooManyFailures: ``max_failures`` trials failed in a row, or results lack a needed name.
        """
        if trial.status == "failed":
            self._n_failed_in_a_row += 1
        else:
            self._n_failed_in_a_row = 0
        reason = ""
        if self._callbacks:
            result = result_of(self._optimizer, "", self._run.path, evaluations=0)
            reason = self._callbacks(trial, result)
        reason = reason or self._stopping.by_results(self._optimizer)
        too_many = self._n_failed_in_a_row >= self._stopping.max_failures
        if (too_many or is_hopeless(self._optimizer, trial)) and not reason:
            raise failed_in_a_row(self._optimizer, self._n_failed_in_a_row, trial)
        return reason

    # Time, and what the progress bar shows

    def _seconds_left(self) -> float:
        """Return the seconds that are left of the time budget."""
        return max(self._end - time.monotonic(), 0.0)

    def _longest_wait(self) -> float | None:
        """Return the seconds after which running trials are ended; None if the run waits for them."""
        if self._stopping.end_running and self._end < math.inf:
            return self._seconds_left()
        return None

    def _show(self, bar: Bar, session: Session) -> None:
        """Show the best value or the front, the number of running trials and the time left."""
        if bar.disable:
            return
        texts = best_so_far(self._optimizer)
        if session.capacity > 1:
            texts["running"] = str(len(session.running))
        if self._end < math.inf:
            texts["left"] = f"{self._seconds_left():.0f} s"
        bar.set_postfix(texts)


def place_of(run: Run) -> str:
    """Return the path of the journal of a run and whether it is new, as text; empty without a journal."""
    if run.path is None:
        return ""
    n_trials = sum(trial.asked for trial in run.trials.all)  # without known results
    if n_trials == 0:
        return f"a new run in {run.path}"
    count = str(n_trials)
    n_unfinished = n_trials - run.trials.n_asked_ended
    if n_unfinished:
        count += f", {n_unfinished} without a result"
    return f"continuing {run.path}, which has trials ({count}); another path (or --fresh) starts a new run"


def best_so_far(optimizer: Optimizer) -> dict[str, str]:
    """Return the best observed value of the trials within the limits, as text; for several objectives their front."""
    completed = optimizer.insight.within_limits()
    if optimizer.objectives:
        return _front_so_far(optimizer, completed)
    values = [trial.value for trial in completed if trial.value is not None]
    if not values:
        return {}
    best = max(values) if optimizer.maximize else min(values)
    return {"best": f"{best:.4g}"}


def _front_so_far(optimizer: Optimizer, completed: Sequence[Trial]) -> dict[str, str]:
    """Return the number of trials on the observed front, and its hypervolume if all reference values are given."""
    objectives = optimizer.objectives
    targets = targets_of(completed, objectives)
    front = targets[non_dominated(targets)]
    texts = {"front": str(len(front))}
    if len(optimizer.reference) == len(objectives) <= EXACT:
        reference = [
            objective.sign * optimizer.reference[objective.name] for objective in objectives
        ]
        texts["volume"] = f"{float(hypervolume(front, targets.new_tensor(reference))):.4g}"
    return texts
