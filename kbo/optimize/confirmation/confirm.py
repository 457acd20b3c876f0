"""``confirm``: the best of a few parameters by new evaluations alone, without a kernel, a norm or a noise level.

Each evaluation goes to the best candidate so far or to its strongest rival, whichever has fewer evaluations (LUCB,
Kalyanakrishnan et al. 2012).
"""

from __future__ import annotations

import contextlib
import copy
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kbo._base import checks
from kbo._base.isolation import isolated
from kbo._base.terminal import Bar, rounded_up, significant
from kbo.errors import InvalidInput, JournalError, TooManyFailures
from kbo.optimize.confirmation.confirmation import Confirmation
from kbo.optimize.confirmation.race import Race
from kbo.optimize.run.trials import Trial
from kbo.space import Params
from kbo.workers.call import YEAR, Session
from kbo.workers.processes import Workers, engine_of

_MOST_FAILURES = 5
"""Number of failures in a row that end a confirmation."""


@isolated
def confirm(
    objective: Callable[..., Any],
    candidates: Sequence[Params] | Mapping[str, Params],
    budget: int,
    *,
    tolerance: float,
    delta: float = 0.05,
    maximize: bool = False,
    value_range: tuple[float, float] | None = None,
    journal: str | os.PathLike[str] | None = None,
    workers: Workers = None,
    timeout: float | None = None,
    progress: bool = False,
) -> Confirmation:
    """Evaluate a few candidates again and again until it is known which is the best, or nearly the best.

    Only these new evaluations count, so the candidates may have been chosen by earlier, noisy values. The only
    assumption is that the evaluations of a candidate are independent. So the statement is about medians: half of the
    evaluations of a candidate are better than its median. A rare divergence does not move a median; the statement says
    how frequent an unseen one may be. With ``value_range`` the statement is about means, and every divergence counts.
    Values that repeat, such as 0 and 1, need a range; without one there is no statement. Each candidate needs at least
    eight to ten evaluations, also without noise, and more for a smaller delta.

    Args:
        objective: As for ``minimize``, called with the parameters of a candidate. Only its value decides; other
            measurements are kept in ``Finalist.measured``.
        candidates: The parameters of two or more candidates: a list, or a dict by name.
        budget: The largest number of evaluations, including those in the journal.
        tolerance: Stop when no candidate can be better by more than this, in units of the objective.
        delta: Probability, at most, that the statement is wrong.
        maximize: Whether larger values are better.
        value_range: The least and the largest possible value; a value outside is an error. An objective without a
            largest value can return ``min(value, largest)``.
        journal: Path of a crash-safe journal; the same call continues from it.
        workers: As for ``minimize``.
        timeout: Seconds after which an evaluation is ended and recorded as failed.
        progress: Whether to show a progress bar.

    Returns:
        The confirmation; also after Ctrl-C.

    Raises:
        InvalidInput: An argument that cannot be used, or a value outside ``value_range``.
        JournalError: The journal cannot be used, or has other candidates.
        TooManyFailures: Five evaluations failed in a row.

    Example:
        >>> print(kbo.confirm(train, [{"lr": 0.01}, {"lr": 0.03}], 60, tolerance=0.005))
    """
    checks.function("objective", objective)
    by_candidate = _named(candidates)
    budget = checks.whole("budget", budget, 1)
    tolerance = checks.positive("tolerance", tolerance)
    delta = checks.probability("delta", delta)
    maximize = checks.flag("maximize", maximize)
    progress = checks.flag("progress", progress)
    timeout = checks.maybe(checks.positive, "timeout", timeout, YEAR)
    value_range = _range_of(value_range)
    race = Race(by_candidate, maximize, delta, value_range, journal)
    run = race.run
    stopped = "interrupted before its end"
    try:
        engine = engine_of(workers, timeout)
        n_before = run.trials.n_asked_ended
        options = {"desc": "confirm", "unit": "evaluation", "disable": not progress}
        with (
            contextlib.suppress(KeyboardInterrupt),
            engine.session(objective, timeout, _on_report) as session,
            Bar(total=budget, initial=n_before, **options) as bar,
        ):
            run.open_session(n_trials=budget, timeout=timeout)
            run.fail_lost()
            stopped = _evaluate(race, session, bar, budget, tolerance)
    finally:
        with contextlib.suppress(JournalError):
            run.release()
        run.close()
    return race.outcome(tolerance, stopped)


def _range_of(value_range: Any) -> tuple[float, float] | None:
    """Return the checked argument ``value_range`` as two numbers; None if it is None.

    Raises:
        InvalidInput: It is no interval of finite width.
    """
    if value_range is None:
        return None
    low, high = checks.interval("value_range", value_range)
    if not math.isfinite(high - low):
        raise InvalidInput(
            f"value_range must have a finite width, got {checks.shown(value_range)}."
        )
    return low, high


def _on_report(number: int, value: float, step: int) -> bool:
    """Ignore a report and return False: no evaluation is stopped early."""
    return False


def _evaluate(race: Race, session: Session, bar: Bar, budget: int, tolerance: float) -> str:
    """Evaluate until enough is known or the budget is used, and return the reason to stop, in words.

    Raises:
        InvalidInput: A value outside the declared range.
        TooManyFailures: Five evaluations failed in a row.
    """
    run = race.run
    n_failures = 0  # in a row
    while True:
        race.check_range()
        largest_lead = race.standing().largest_lead
        if math.isfinite(largest_lead) and race.objection():
            return "values repeat"
        if largest_lead <= tolerance:
            return f"that is enough for the tolerance {tolerance:.2g}"
        n_left = budget - run.trials.n_asked_ended
        while len(session.running) < min(session.capacity, n_left):
            trial = race.begin()
            session.start(trial.number, race.params_of(trial))
        if not session.running:
            reason = f"the budget of {budget} evaluations is used, and the tolerance {tolerance:.2g} not reached"
            return f"{reason}: {_advice(race, tolerance)}"
        for outcome in session.wait():
            trial = run.end(outcome)
            race.check_range()
            bar.update(trial.status != "pending")
            n_failures = n_failures + 1 if trial.status == "failed" else 0
            if n_failures >= _MOST_FAILURES:
                raise TooManyFailures(_too_many_failures(n_failures, trial, run.path))


def _advice(race: Race, tolerance: float) -> str:
    """Return the budget or the tolerance that would lead to a statement, in words."""
    n_more = race.more_needed(tolerance)
    if n_more is None or race.objection():
        return "give a larger budget (--budget, or kbo tune --confirm)"
    n_needed = race.run.trials.n_asked_ended + n_more
    reached = rounded_up(race.standing().largest_lead, 2)
    return (
        f"give a budget of about {significant(n_needed, 2)} (--budget, or kbo tune --confirm), or a tolerance of "
        f"{reached} (--tolerance)"
    )


def _too_many_failures(n: int, last: Trial, journal: str | None) -> str:
    """Return the message after n evaluations that failed in a row."""
    text = f"{n} evaluations failed in a row, the last with: {last.failure}. Correct the objective."
    if journal is not None:
        text += f" The failed evaluations stay in {journal} and count in the budget."
    return text


def _named(candidates: Any) -> dict[str, Params]:
    """Return the candidates by name; those of a list are named "candidate 0" and so on.

    Raises:
        InvalidInput: Fewer than two candidates, or an entry that is no parameters.
    """
    named = candidates
    if isinstance(candidates, (list, tuple)):
        named = {f"candidate {i}": params for i, params in enumerate(candidates)}
    if not isinstance(named, Mapping) or len(named) < 2:
        raise InvalidInput(
            f"candidates must be a list, or a dict by name, of two or more parameters, got {checks.shown(candidates)}."
        )
    for name, params in named.items():
        if not isinstance(params, (dict, list)) or not isinstance(name, str):
            raise InvalidInput(
                f"candidates: {checks.shown(name)} must be a dict or a list of parameters, got {checks.shown(params)}."
            )
    return {name: copy.copy(params) for name, params in named.items()}
