"""The budgets of a run, the reasons to stop before these are used, and the errors after too many failures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kbo._base import checks
from kbo._base.terminal import counted
from kbo.bandit import methods
from kbo.errors import InvalidInput, TooManyFailures
from kbo.optimize.insight.expected_gain import N_MORE
from kbo.optimize.optimizer import Optimizer
from kbo.optimize.result import PROOF
from kbo.optimize.run.outcome import lacks_name, with_condition
from kbo.optimize.run.trials import Trial
from kbo.optimize.settings.setting import Setting

_ASK_EVERY = 5
"""Number of trials between two checks of the slow reasons to stop."""

_MOST_REASONS = 3
"""Number of reasons of failures that an error names."""


@dataclass(frozen=True)
class Stopping:
    """The budgets of a run, and the reasons to stop before these are used; arguments as for ``kbo.minimize``.

    A reason is a text, which is empty as long as the run goes on.

    Raises:
        InvalidInput: A number out of its range, or neither a number of trials nor a time budget.
    """

    n_trials: int | None
    time_budget: float | None
    end_running: bool
    max_failures: int
    stop_at_gap: float | None
    stop_when: float | None

    def __post_init__(self) -> None:
        if self.n_trials is None and self.time_budget is None:
            raise InvalidInput("give n_trials, time_budget (seconds), or both.")
        checks.keep(
            self,
            n_trials=checks.maybe(checks.whole, "n_trials", self.n_trials, 1),
            time_budget=checks.maybe(checks.positive, "time_budget", self.time_budget),
            end_running=checks.flag("end_running", self.end_running),
            max_failures=checks.whole("max_failures", self.max_failures, 1),
            stop_at_gap=checks.maybe(checks.positive, "stop_at_gap", self.stop_at_gap),
            stop_when=checks.maybe(checks.positive, "stop_when", self.stop_when),
        )

    def check_possible(self, setting: Setting, method: str) -> None:
        """Raise InvalidInput if a reason to stop needs a model or bounds that setting and method do not have."""
        has_bounds = methods.get(method).has_bounds
        if self.stop_at_gap and not has_bounds:
            raise InvalidInput(
                f"method {method!r} has no bounds, so no gap at which it could stop."
            )
        if self.stop_when and not has_bounds:
            raise InvalidInput(
                f"method {method!r} has no model, so nothing is expected of more trials: stop_when."
            )
        if self.stop_when and setting.certified:
            raise InvalidInput(
                "stop_when is for the practical setting: use stop_at_gap, which is guaranteed."
            )

    def budget_used(self, n_ended: int, n_running: int, n_before: int, seconds_left: float) -> str:
        """Return the reason why no further trial begins (trials or time are used), or an empty text.

        Args:
            n_ended: Number of ended trials, with those of the journal.
            n_running: Number of running trials.
            n_before: Number of such trials that the journal had before this call.
            seconds_left: Seconds that are left of the time budget.
        """
        if self.n_trials is not None and n_ended + n_running >= self.n_trials:
            budget = counted(self.n_trials, "trial")
            if n_before >= self.n_trials:
                return (
                    f"the budget is {budget} in all, and the journal had {n_before}: none was added"
                )
            reason = f"the budget of {budget} is used"
            if n_before:
                reason += f", {n_before} of them ended in earlier sessions"
            return reason
        if self.time_budget is not None and seconds_left <= 0:
            return f"the time budget of {self.time_budget:g} s is used"
        return ""

    def by_results(self, optimizer: Optimizer) -> str:
        """Return the reason to stop by the values of the trials, or an empty text."""
        n_asked_ended = optimizer.run.trials.n_asked_ended
        is_slow_allowed = n_asked_ended % _ASK_EVERY == 0
        infeasible = optimizer.insight.infeasible(PROOF if is_slow_allowed else PROOF // 10)
        if infeasible is not None:
            return str(infeasible)
        reason = ""
        if n_asked_ended and is_slow_allowed:
            reason = self._little_to_gain(optimizer)
        return reason or self._gap_reached(optimizer, is_slow_allowed)

    def _little_to_gain(self, optimizer: Optimizer) -> str:
        """Return a reason to stop if more trials are expected to gain no more than ``stop_when``."""
        if self.stop_when is None:
            return ""
        answers = optimizer.insight.answers(effects=False)
        if answers is None or answers.gain.value > self.stop_when:
            return ""
        return f"{N_MORE} more trials are expected to improve the value by {answers.gain.value:.2g}"

    def _gap_reached(self, optimizer: Optimizer, is_slow_allowed: bool) -> str:
        """Return a reason to stop if the optimality gap is at most ``stop_at_gap``.

        A proof is tried if a search finds a gap that is small enough. When slow reasons are checked, a shorter proof is
        tried otherwise, since a proved gap can be smaller than one that was found.
        """
        goal = self.stop_at_gap
        if goal is None:
            return ""
        gap = optimizer.gap()
        if gap is None or not gap.final:
            return ""
        if gap.value <= goal:
            gap = optimizer.gap(PROOF, goal) or gap
        elif is_slow_allowed:
            gap = optimizer.gap(PROOF // 10, goal) or gap
        if gap.value > goal:
            return ""
        return f"the optimality gap {gap.value:.4g} is at most {goal:g}"


def check_not_all_failed(optimizer: Optimizer) -> None:
    """Raise TooManyFailures if all trials of a run that has ended have failed."""
    trials = optimizer.run.trials
    if not trials.failed or trials.complete or not trials.all_failed:
        return
    failed = f"all {len(trials.failed)} trials failed, the first"
    if len(trials.failed) == 1:
        failed = "the only trial failed"
    raise _error(optimizer, failed, trials.failed[:_MOST_REASONS])


def failed_in_a_row(optimizer: Optimizer, n_trials: int, last: Trial) -> TooManyFailures:
    """Return the error that ends a run after ``n_trials`` failures in a row.

    Args:
        optimizer: The optimiser of the run.
        n_trials: The number of trials that failed.
        last: The last one of them.
    """
    failed = f"{n_trials} trials in a row failed, the last"
    if is_hopeless(optimizer, last):
        failed = f"trial {last.number} failed, as every other one would,"
    elif n_trials == 1:
        failed = f"trial {last.number} failed, and max_failures is 1: it ended"
    return _error(optimizer, failed, [last])


def is_hopeless(optimizer: Optimizer, last: Trial) -> bool:
    """Return whether all trials will fail as this one did: no trial has a value, and its result lacks a needed name."""
    if optimizer.run.trials.complete:
        return False
    return lacks_name(last.failure or "", optimizer.run.main)


def _error(optimizer: Optimizer, failed: str, trials: Sequence[Trial]) -> TooManyFailures:
    """Return the error of failed trials, with their different reasons and advice.

    Args:
        optimizer: The optimiser of the run.
        failed: The first words.
        trials: The trials whose reasons are shown.
    """
    failures = [trial.failure or "" for trial in trials]
    reasons = [with_condition(failure, optimizer.space.conditions) for failure in failures]
    advice = "Correct the objective or its bounds"
    if lacks_name(failures[0], optimizer.run.main):
        advice = "Correct the name in constraints or objectives, or what the objective returns"
    text = f"{failed} with: {'; '.join(dict.fromkeys(reasons))}. {advice}"
    path = optimizer.run.path
    if path is None:
        return TooManyFailures(f"{text}.")
    if optimizer.run.trials.all_failed:
        return TooManyFailures(
            f"{text}, and begin a new journal (kbo tune --fresh renames the old one). In {path} the search would avoid "
            "the parameters of the failed trials, which do not count in n_trials (--trials) of the next call."
        )
    return TooManyFailures(
        f"{text}, and start the same call again. The failed trials stay in {path} and count in n_trials (--trials), "
        "and the search avoids their parameters, except those of trials that `kbo journal remove` removes."
    )
