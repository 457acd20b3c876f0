"""``confirm``: the best of a few parameters, by new evaluations alone: no kernel, no norm, no noise level.

Each candidate has a confidence sequence of its mean at level delta / K, so all K hold at once, for all numbers of
values, with probability 1 - delta, however it is decided who is evaluated next and when to stop. Evaluated is the one
with the best mean or its strongest rival, whichever has fewer evaluations (LUCB, Kalyanakrishnan et al. 2012).
"""

from __future__ import annotations

import contextlib
import copy
import math
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kbo import checks
from kbo.confidence.mean import bounded_mean, gaussian_mean
from kbo.errors import InvalidInput, JournalError, TooManyFailures
from kbo.optimize.constraint import OBJECTIVE
from kbo.optimize.run import Run, recorded
from kbo.optimize.table import by_name, format_params
from kbo.optimize.trials import Trial
from kbo.space import Choice, Params, Space
from kbo.terminal import Bar, rounded_up
from kbo.workers.choice import Workers, engine_of
from kbo.workers.engine import Session
from kbo.workers.time_limit import YEAR

_MOST_FAILURES = 5
"""Failures in a row that end a confirmation."""


@dataclass(frozen=True)
class Finalist:
    """A candidate of a confirmation.

    Attributes:
        name: Its name.
        params: Its parameters.
        values: Its new values, in the order of their starts, up to the first that has not come.
        lower, upper: Confidence bounds of their mean; infinite for few values.
    """

    name: str
    params: Params
    values: Sequence[float]
    lower: float
    upper: float

    @property
    def mean(self) -> float | None:
        """The mean of the values; None without any."""
        return math.fsum(one / len(self.values) for one in self.values) if self.values else None


@dataclass(frozen=True)
class Confirmation:
    """The outcome of new evaluations of a few candidates (docs/theory/confirm.md).

    Attributes:
        best: The candidate with the best mean; None before each has a value.
        within: By how much another candidate can be better than it, at most, with probability ``1 - delta``; infinite
            while that is not known.
        confirmed: Whether that is at most the tolerance.
        finalists: The candidates, as given.
        tolerance, delta: As given.
        value_range: As given; with one the statement assumes no distribution of the values.
        evaluations: The number of new evaluations.
        selected: The number of evaluations whose noise may have decided that they have no value, or which one: failed
            ones, and those that were lost and started again.
        stopped: Why no more evaluations were made.
    """

    best: Finalist | None
    within: float
    confirmed: bool
    finalists: Sequence[Finalist]
    tolerance: float
    delta: float
    value_range: tuple[float, float] | None
    evaluations: int
    selected: int
    stopped: str

    def __str__(self) -> str:
        width = max(len(one.name) for one in self.finalists)
        lines = [f"{one.name:{width}}  {_told(one)}" for one in self.finalists]
        return "\n".join([f"{self.statement}; {self.stopped}", *lines])

    @property
    def statement(self) -> str:
        """The knowledge about the best candidate, in words."""
        if self.best is None or not math.isfinite(self.within):
            return f"not known yet after {self.evaluations} evaluations: each candidate needs more"
        sure = f"{100 * (1 - self.delta):.4g}%"
        noise = "" if self.value_range else " and Gaussian with a variance of their own"
        harmless = f", and losing {self.selected} of them did not depend on their values" if self.selected else ""
        return (
            f"{self.best.name} is within {rounded_up(self.within, 2)} of the best of these {len(self.finalists)}, with "
            f"{sure}, if evaluations of a candidate are independent{noise}{harmless}; "
            f"{self.evaluations} evaluations"
        )


def _told(one: Finalist) -> str:
    bounds = f"  [{one.lower:.4g}, {one.upper:.4g}]" if math.isfinite(one.lower) else ""
    value = "no value" if one.mean is None else f"{one.mean:.4g}{bounds}"
    return f"{value}, {len(one.values)} evaluation{'s' * (len(one.values) != 1)}: {format_params(one.params)}"


class _Confirming(Run):
    """The evaluations of a confirmation: trials of which the only parameter is the position of the candidate."""

    def __init__(
        self,
        candidates: Mapping[str, Params],
        maximize: bool,
        delta: float,
        value_range: tuple[float, float] | None,
        journal: str | os.PathLike[str] | None,
    ) -> None:
        self._candidates, self._sign, self._delta = candidates, 1 if maximize else -1, delta
        self._found: tuple[int, list[Finalist]] = -1, []
        super().__init__(Space({"candidate": Choice(list(candidates))}), journal, (), value_range)

    def _header(self) -> dict[str, Any]:
        entries = [{"name": name, "params": by_name(params)} for name, params in self._candidates.items()]
        return {
            "setting": "confirm",
            "space": self.space.describe(),
            "named": True,
            "candidates": entries,
            "maximize": self._sign > 0,
            **({} if self.value_range is None else {"value_range": list(self.value_range)}),
        }

    def begin(self) -> Trial:
        """Begin an evaluation, first those that nobody makes any more."""
        if (trial := next(iter(self._idle(self._running)), None)) is None:
            trial = self._expect({"candidate": self._next()})
        else:
            self._again(trial)
        self._running.add(trial.number)
        return trial

    def params_of(self, trial: Trial) -> Params:
        """Return the parameters that a trial evaluates."""
        return copy.copy(self._candidates[_name(trial)])

    def finalists(self) -> list[Finalist]:
        """Return the candidates with their values and bounds."""
        if self._found[0] == self._trials.n_events:
            return self._found[1]
        before, alpha, found = {one.name: one for one in self._found[1]}, self._delta / len(self._candidates), []
        known: dict[str, list[float]] = {name: [] for name in self._candidates}
        waiting = set()  # candidates of which a value of a later trial may have come first because of its noise
        for trial in self._trials.all:
            if trial.status == "pending":
                waiting.add(_name(trial))
            elif trial.value is not None and _name(trial) not in waiting:
                known[_name(trial)].append(trial.value)
        for name, params in self._candidates.items():
            values = known[name]
            if name in before and len(before[name].values) == len(values):
                found.append(before[name])
                continue
            lower, upper = (
                gaussian_mean(values, alpha)
                if self.value_range is None
                else bounded_mean(values, alpha, *self.value_range)
            )
            found.append(Finalist(name, params, values, lower, upper))
        self._found = self._trials.n_events, found
        return found

    def check_range(self) -> None:
        """Raise InvalidInput if a value was outside the declared range, on which the statement would rest."""
        outside = [one.measured[OBJECTIVE] for one in self._trials.failed if OBJECTIVE in one.measured]
        if outside:
            raise InvalidInput(
                f"value_range is {self.value_range}, and a value was {outside[0]:.6g}: give the range of all possible "
                "values, with another journal."
            )

    def compared(self) -> tuple[Finalist | None, Finalist | None, float]:
        """Return the candidate with the best mean, its strongest rival, and by how much this can be better at most."""
        finalists = self.finalists()
        if any(one.mean is None for one in finalists):
            return None, None, math.inf
        best = max(finalists, key=lambda one: self._sign * (one.mean or 0.0))
        others = [one for one in finalists if one is not best]
        rival = max(others, key=lambda one: max(self._sign * one.lower, self._sign * one.upper))
        pessimistic = min(self._sign * best.lower, self._sign * best.upper)
        within = max(max(self._sign * rival.lower, self._sign * rival.upper) - pessimistic, 0.0)
        return best, rival, within

    def _next(self) -> str:
        """Return the name of the candidate that is evaluated next."""
        started = Counter(map(_name, self._trials.all))
        best, rival, within = self.compared()
        if best is None or rival is None or math.isinf(within):
            unknown = [one.name for one in self.finalists() if math.isinf(one.lower) or one.mean is None]
            return min(unknown, key=started.__getitem__)
        return min((best.name, rival.name), key=started.__getitem__)


def _name(trial: Trial) -> str:
    return by_name(trial.params)["candidate"]


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
    """Evaluate a few parameters again and again until it is known which is the best, or nearly so.

    Only these new evaluations count, so nothing is lost by having chosen the candidates by earlier, noisy values. No
    model is assumed: evaluations of a candidate are independent and Gaussian, of unknown variance, another one for each
    candidate; with ``value_range`` they are independent and inside that range. Six or so evaluations of each are the
    least that says anything, more for a smaller delta; also without noise, since values that are rounded may be equal
    by chance.

    Args:
        objective: As for ``minimize``: called with the parameters of a candidate; only its value counts.
        candidates: Two or more parameters, a list or a dict by name.
        budget: The largest number of evaluations, those in the journal included.
        tolerance: Stop when no candidate can be better by more than this, in units of the objective.
        delta: Probability that the statement is wrong, at most.
        maximize: Whether larger values are better.
        value_range: The least and the largest possible value; another value is an error.
        journal: Path of a crash-safe journal, from which the same call continues.
        workers: As for ``minimize``.
        timeout: Seconds after which an evaluation is ended and has failed.
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
    named, budget = _named(candidates), checks.whole("budget", budget, 1)
    checks.positive("tolerance", tolerance)
    checks.probability("delta", delta)
    checks.flag("progress", progress)
    checks.maybe(checks.positive, "timeout", timeout, YEAR)
    if value_range is not None:
        low, high = checks.interval("value_range", value_range)
        if not math.isfinite(high - low):
            raise InvalidInput(f"value_range must have a finite width, got {checks.shown(value_range)}.")
    run = _Confirming(named, checks.flag("maximize", maximize), delta, value_range, journal)
    stopped = "interrupted before its end"
    try:
        with (
            contextlib.suppress(KeyboardInterrupt),
            engine_of(workers, timeout).session(objective, timeout, lambda number, value, step: False) as session,
            Bar(total=budget, initial=run.n_finished, desc="confirm", unit="evaluation", disable=not progress) as bar,
        ):
            run.open_session(n_trials=budget, timeout=timeout)
            run.fail_lost()
            stopped = _evaluated(run, session, bar, budget, tolerance, journal)
    finally:
        with contextlib.suppress(JournalError):
            run.release()
        run.close()
    (best, _, within), trials = run.compared(), run.trials
    return Confirmation(
        best=best,
        within=within,
        confirmed=within <= tolerance,
        finalists=run.finalists(),
        tolerance=tolerance,
        delta=delta,
        value_range=run.value_range,
        evaluations=sum(trial.value is not None for trial in trials),
        selected=sum(trial.failure is not None or trial.pruned or trial.starts > 1 for trial in trials),
        stopped=stopped,
    )


def _evaluated(run: _Confirming, session: Session, bar: Bar, budget: int, tolerance: float, journal: Any) -> str:
    """Make evaluations until enough is known or the budget is used, and return which in words."""
    in_a_row = 0
    while True:
        run.check_range()
        if run.compared()[-1] <= tolerance:
            return f"that is enough for the tolerance {tolerance:.2g}"
        while len(session.running) < session.capacity and run.n_finished + len(session.running) < budget:
            trial = run.begin()
            session.start(trial.number, run.params_of(trial))
        if not session.running:
            return f"the budget of {budget} evaluations is used, and the tolerance {tolerance:.2g} not reached"
        for outcome in session.wait():
            trial = recorded(run, outcome)
            run.check_range()
            bar.update(trial.status != "pending")
            in_a_row = in_a_row + 1 if trial.status == "failed" else 0
            if in_a_row >= _MOST_FAILURES:
                stay = "" if journal is None else f" The failed evaluations stay in {journal} and count in the budget."
                raise TooManyFailures(
                    f"{in_a_row} evaluations failed in a row, the last with: {trial.failure}. Correct the objective."
                    f"{stay}"
                )


def _named(candidates: Any) -> dict[str, Params]:
    """Return the candidates by name; those of a list are "candidate 0" and so on.

    Raises:
        InvalidInput: Fewer than two, or no parameters.
    """
    given = candidates
    if isinstance(given, (list, tuple)):
        given = {f"candidate {i}": params for i, params in enumerate(given)}
    if not isinstance(given, Mapping) or len(given) < 2:
        raise InvalidInput(
            f"candidates must be a list, or a dict by name, of two or more parameters, got {checks.shown(candidates)}."
        )
    for name, params in given.items():
        if not isinstance(params, (dict, list)) or not isinstance(name, str):
            raise InvalidInput(
                f"candidates: {checks.shown(name)} must be a dict or a list of parameters, got {checks.shown(params)}."
            )
    return {name: copy.copy(params) for name, params in given.items()}
