"""The errors of runs that end because too many trials failed."""

from __future__ import annotations

from kbo.errors import TooManyFailures
from kbo.optimize.optimizer import Optimizer
from kbo.optimize.run.outcome import lacks_name, with_condition
from kbo.optimize.run.trials import Trial

_MOST_REASONS = 3
"""Number of reasons of failures that an error names."""


def check_not_all_failed(optimizer: Optimizer) -> None:
    """Raise TooManyFailures if all trials of a run that has ended have failed."""
    trials = optimizer.run.trials
    failures = [trial.failure for trial in trials.failed if trial.failure]
    if not failures or trials.complete or len(failures) < trials.n_asked_ended:
        return
    conditions = optimizer.space.conditions
    reasons = [with_condition(failure, conditions) for failure in failures[:_MOST_REASONS]]
    distinct = "; ".join(dict.fromkeys(reasons))
    failed = f"all {len(failures)} trials failed, the first"
    if len(failures) == 1:
        failed = "the only trial failed"
    raise TooManyFailures(f"{failed} with: {distinct}. {_advice(optimizer, failures[0])}")


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
    reason = with_condition(last.failure or "", optimizer.space.conditions)
    return TooManyFailures(f"{failed} with: {reason}. {_advice(optimizer, last.failure or '')}")


def is_hopeless(optimizer: Optimizer, last: Trial) -> bool:
    """Return whether all trials will fail as this one did: no trial has a value, and its result lacks a needed name."""
    if optimizer.run.trials.complete:
        return False
    return lacks_name(last.failure or "", optimizer.run.main)


def _advice(optimizer: Optimizer, failure: str) -> str:
    """Return the advice after too many failures, one of them for the given reason, in sentences."""
    advice = "Correct the objective or its bounds"
    if lacks_name(failure, optimizer.run.main):
        advice = "Correct the name in constraints or objectives, or what the objective returns"
    path = optimizer.run.path
    if path is None:
        return f"{advice}."
    return (
        f"{advice}. The failed trials stay in {path}: they count in n_trials (--trials), and the search avoids their "
        "parameters. So after a fault that has nothing to do with the parameters begin with a new journal (kbo tune "
        "--fresh renames the old one); otherwise the same call continues."
    )
