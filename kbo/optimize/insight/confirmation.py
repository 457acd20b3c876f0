"""``confirm``: the best of a few parameters, by new evaluations alone: no kernel, no norm, no noise level.

Each candidate has a confidence sequence of its median, or with a declared range of its mean. They hold for all numbers
of values, however it is decided who is evaluated next and when to stop. Evaluated is the candidate that is best so far
or its strongest rival, whichever has fewer evaluations (LUCB, Kalyanakrishnan et al. 2012).
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

from kbo._base import checks
from kbo._base.surroundings import fixed
from kbo._base.terminal import Bar, rounded_up
from kbo.confidence.repeated.mean import bounded_mean
from kbo.confidence.repeated.median import median, median_bounds
from kbo.errors import InvalidInput, JournalError, TooManyFailures
from kbo.optimize.run.outcome import OBJECTIVE
from kbo.optimize.run.run import Run
from kbo.optimize.run.trials import Trial
from kbo.optimize.table import by_name, format_params
from kbo.space import Choice, Params, Space
from kbo.workers.choice import Workers, engine_of
from kbo.workers.engine import YEAR, Session

_MOST_FAILURES = 5
"""Failures in a row that end a confirmation."""

_REPEATED = 0.5
"""Share of the values of a candidate that one value makes up from which on a median says too little of them."""


@dataclass(frozen=True)
class Finalist:
    """A candidate of a confirmation.

    Attributes:
        name: Its name.
        params: Its parameters.
        values: Its new values, in the order of their starts, up to the first that has not come.
        lower, upper: Confidence bounds of their median, or with ``value_range`` of their mean; infinite for few values.
    """

    name: str
    params: Params
    values: Sequence[float]
    lower: float
    upper: float

    @property
    def mean(self) -> float | None:
        """The mean of the values; None without any."""
        if not self.values:
            return None
        return math.fsum(value / len(self.values) for value in self.values)

    @property
    def median(self) -> float | None:
        """The median of the values; None without any."""
        if not self.values:
            return None
        return median(self.values)

    @property
    def repeated(self) -> tuple[float, int] | None:
        """The most frequent value and its count, if it is half of the values or more and not all; else None."""
        if not self.values:
            return None
        ((value, count),) = Counter(self.values).most_common(1)
        if 1 < count < len(self.values) and count >= _REPEATED * len(self.values):
            return value, count
        return None


@dataclass(frozen=True)
class Confirmation:
    """The outcome of new evaluations of a few candidates (docs/theory/confirm.md).

    Attributes:
        best: The candidate with the best median, or with ``value_range`` the best mean; None before each has a value.
        within: The largest lead that the median (with ``value_range`` the mean) of another candidate can have, with
            probability ``1 - delta``; infinite while that is not known, and if there is an objection.
        confirmed: Whether that is at most the tolerance.
        objection: The reason why no statement can be made of these values; empty if one can.
        finalists: The candidates, as given.
        tolerance, delta, maximize: As given.
        value_range: As given; with one the statement is about means, and else about medians.
        evaluations: The number of new evaluations.
        selected: The number of evaluations whose noise may have decided that they have no value, or their value: failed
            ones, and lost ones that were started again.
        stopped: The reason why no more evaluations were made.
    """

    best: Finalist | None
    within: float
    confirmed: bool
    objection: str
    finalists: Sequence[Finalist]
    tolerance: float
    delta: float
    maximize: bool
    value_range: tuple[float, float] | None
    evaluations: int
    selected: int
    stopped: str

    def __str__(self) -> str:
        return _text(self)

    @property
    def statement(self) -> str:
        """The statement about the best candidate, in words."""
        return _statement(self)


@dataclass(frozen=True)
class _Race:
    """The comparison of candidates by their values alone.

    Attributes:
        n_candidates: The number of candidates.
        maximize: Whether larger values are better.
        delta: Probability that the statement is wrong, at most.
        value_range: The least and the largest possible value; without one medians are compared, else means.
    """

    n_candidates: int
    maximize: bool
    delta: float
    value_range: tuple[float, float] | None

    def bounds(self, values: Sequence[float]) -> tuple[float, float]:
        """Return the lower and the upper bound of the median of values [n], or with a range of their mean.

        A statement about medians is wrong only if the bound on the good side fails for the candidate that is truly the
        best, or the one on the bad side for one of the others (docs/theory/confirm.md, "The statement").
        """
        if self.value_range is not None:
            return bounded_mean(values, self.delta / self.n_candidates, *self.value_range)
        good_side = self.delta / 2
        bad_side = self.delta / (2 * (self.n_candidates - 1))
        if self.maximize:
            return median_bounds(values, bad_side, good_side)
        return median_bounds(values, good_side, bad_side)

    def compared(
        self, finalists: Sequence[Finalist]
    ) -> tuple[Finalist | None, Finalist | None, float]:
        """Return the best candidate so far, its strongest rival, and the largest possible lead of the rival."""
        if any(not finalist.values for finalist in finalists):
            return None, None, math.inf
        best = max(finalists, key=self._estimate)
        others = [finalist for finalist in finalists if finalist is not best]
        rival = max(others, key=self._good_bound)
        within = max(self._good_bound(rival) - self._bad_bound(best), 0.0)
        return best, rival, within

    def worth_evaluating(self, finalists: Sequence[Finalist]) -> list[str]:
        """Return the names of the candidates that need evaluations most."""
        best, rival, within = self.compared(finalists)
        if best is None or rival is None:
            return [finalist.name for finalist in finalists if not finalist.values]
        if math.isfinite(within):
            return [best.name, rival.name]
        unbounded = [f.name for f in finalists if math.isinf(self._good_bound(f))]
        if math.isinf(self._bad_bound(best)):
            unbounded.append(best.name)
        return unbounded or [best.name, rival.name]  # finite bounds whose difference is not

    def objection(self, finalists: Sequence[Finalist]) -> str:
        """Return the reason why the values allow no statement; an empty text if they do."""
        if self.value_range is not None:
            return ""
        for finalist in finalists:
            if finalist.repeated is None:
                continue
            value, count = finalist.repeated
            return (
                f"{count} of {len(finalist.values)} values of {finalist.name} are {value:.6g}, and medians of "
                "values that repeat hide differences; give value_range, the least and the largest possible value "
                "(with another journal), then the statement is about means"
            )
        return ""

    def _estimate(self, finalist: Finalist) -> float:
        """Return the median of a candidate with values, or with a range the mean; larger is better."""
        estimate = finalist.median if self.value_range is None else finalist.mean
        assert estimate is not None
        if self.maximize:
            return estimate
        return -estimate

    def _good_bound(self, finalist: Finalist) -> float:
        """Return the bound of a candidate on the good side; larger is better."""
        if self.maximize:
            return finalist.upper
        return -finalist.lower

    def _bad_bound(self, finalist: Finalist) -> float:
        """Return the bound of a candidate on the bad side; larger is better."""
        if self.maximize:
            return finalist.lower
        return -finalist.upper


class _Confirming:
    """The evaluations of a confirmation: a run whose trials have one parameter, the name of the candidate."""

    def __init__(
        self,
        candidates: Mapping[str, Params],
        maximize: bool,
        delta: float,
        value_range: tuple[float, float] | None,
        journal: str | os.PathLike[str] | None,
    ) -> None:
        space = Space({"candidate": Choice(list(candidates))})
        header = _header(space, candidates, maximize, value_range)
        self.run: Run = Run(space, header, journal, value_range=value_range)
        self.race: _Race = _Race(len(candidates), maximize, delta, self.run.value_range)
        self._candidates: Mapping[str, Params] = candidates
        self._n_events: int = -1
        self._finalists: list[Finalist] = []

    def begin(self) -> Trial:
        """Begin an evaluation, first the abandoned ones."""
        abandoned = self.run.abandoned()
        if abandoned:
            return self.run.resume(abandoned[0])
        return self.run.begin({"candidate": self._next()})

    def params_of(self, trial: Trial) -> Params:
        """Return the parameters that a trial evaluates."""
        return copy.copy(self._candidates[_name(trial)])

    def finalists(self) -> list[Finalist]:
        """Return the candidates with their values and bounds."""
        if self._n_events == self.run.trials.n_events:
            return self._finalists
        before = {finalist.name: finalist for finalist in self._finalists}
        self._finalists = []
        for name, values in self._values().items():
            finalist = before.get(name)
            if finalist is None or len(finalist.values) != len(values):
                lower, upper = self.race.bounds(values)
                finalist = Finalist(name, self._candidates[name], values, lower, upper)
            self._finalists.append(finalist)
        self._n_events = self.run.trials.n_events
        return self._finalists

    def _values(self) -> dict[str, list[float]]:
        """Return the values of each candidate, in the order of their starts, up to the first that has not come."""
        values: dict[str, list[float]] = {name: [] for name in self._candidates}
        waiting = set()  # candidates whose later values may have come first because of their noise
        for trial in self.run.trials.all:
            name = _name(trial)
            if trial.status == "pending":
                waiting.add(name)
            elif trial.value is not None and name not in waiting:
                values[name].append(trial.value)
        return values

    def check_range(self) -> None:
        """Raise InvalidInput if a value was outside the declared range, on which the statement would rest."""
        for trial in self.run.trials.failed:
            if OBJECTIVE in trial.measured:
                raise InvalidInput(
                    f"value_range is {self.run.value_range}, and a value was {trial.measured[OBJECTIVE]:.6g}: give the "
                    "range of all possible values, with another journal."
                )

    def _next(self) -> str:
        """Return the name of the candidate that is evaluated next: the one with the fewest evaluations so far."""
        started = Counter(map(_name, self.run.trials.all))
        return min(self.race.worth_evaluating(self.finalists()), key=started.__getitem__)


def _header(
    space: Space,
    candidates: Mapping[str, Params],
    maximize: bool,
    value_range: tuple[float, float] | None,
) -> dict[str, Any]:
    """Return the description of a confirmation."""
    entries = [{"name": name, "params": by_name(params)} for name, params in candidates.items()]
    header = {
        "setting": "confirm",
        "space": space.describe(),
        "named": True,
        "candidates": entries,
        "maximize": maximize,
    }
    if value_range is not None:
        header["value_range"] = list(value_range)
    return header


def _name(trial: Trial) -> str:
    return by_name(trial.params)["candidate"]


@fixed
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
    model is assumed: evaluations of a candidate are independent, and nothing else is known of them. So the statement is
    about medians: half of the evaluations of a candidate are better than its median. A rare divergence does not move a
    median; the statement says how frequent one may be that has not been seen. With ``value_range`` the statement is
    about means, and every divergence counts. Values that repeat, such as 0 and 1, need a range: without one no
    statement is made of them. Eight to ten evaluations of each candidate are the least that says anything, more for a
    smaller delta; also without noise.

    Args:
        objective: As for ``minimize``: called with the parameters of a candidate; only its value counts.
        candidates: Two or more parameters, a list or a dict by name.
        budget: The largest number of evaluations, those in the journal included.
        tolerance: Stop when no candidate can be better by more than this, in units of the objective.
        delta: Probability that the statement is wrong, at most.
        maximize: Whether larger values are better.
        value_range: The least and the largest possible value; another value is an error. An objective that has no
            largest value can return ``min(value, largest)``.
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
    by_candidate = _named(candidates)
    checks.whole("budget", budget, 1)
    checks.positive("tolerance", tolerance)
    checks.probability("delta", delta)
    checks.flag("maximize", maximize)
    checks.flag("progress", progress)
    checks.maybe(checks.positive, "timeout", timeout, YEAR)
    if value_range is not None:
        low, high = checks.interval("value_range", value_range)
        if not math.isfinite(high - low):
            raise InvalidInput(
                f"value_range must have a finite width, got {checks.shown(value_range)}."
            )
    confirming = _Confirming(by_candidate, maximize, delta, value_range, journal)
    run = confirming.run
    stopped = "interrupted before its end"
    try:
        engine = engine_of(workers, timeout)
        with (
            contextlib.suppress(KeyboardInterrupt),
            engine.session(objective, timeout, lambda number, value, step: False) as session,
            Bar(
                total=budget,
                initial=run.trials.n_finished,
                desc="confirm",
                unit="evaluation",
                disable=not progress,
            ) as bar,
        ):
            run.open_session(n_trials=budget, timeout=timeout)
            run.fail_lost()
            stopped = _evaluate(confirming, session, bar, budget, tolerance, journal)
    finally:
        with contextlib.suppress(JournalError):
            run.release()
        run.close()
    finalists = confirming.finalists()
    best, _, within = confirming.race.compared(finalists)
    objection = ""
    if math.isfinite(within):
        objection = confirming.race.objection(finalists)
    if objection:
        within = math.inf
    return Confirmation(
        best=best,
        within=within,
        confirmed=within <= tolerance,
        objection=objection,
        finalists=finalists,
        tolerance=tolerance,
        delta=delta,
        maximize=maximize,
        value_range=run.value_range,
        evaluations=sum(trial.value is not None for trial in run.trials.all),
        selected=sum(map(_is_selected, run.trials.all)),
        stopped=stopped,
    )


def _is_selected(trial: Trial) -> bool:
    """Return True if the noise of an evaluation may have decided that it has no value, or its value."""
    return trial.failure is not None or trial.pruned or trial.starts > 1


def _evaluate(
    confirming: _Confirming, session: Session, bar: Bar, budget: int, tolerance: float, journal: Any
) -> str:
    """Make evaluations until enough is known or the budget is used, and return the reason to stop, in words.

    Raises:
        InvalidInput: A value outside the declared range.
        TooManyFailures: Five evaluations failed in a row.
    """
    in_a_row = 0
    while True:
        confirming.check_range()
        finalists = confirming.finalists()
        _, _, within = confirming.race.compared(finalists)
        if math.isfinite(within) and confirming.race.objection(finalists):
            return "it stops here, as values repeat"
        if within <= tolerance:
            return f"that is enough for the tolerance {tolerance:.2g}"
        while (
            len(session.running) < session.capacity
            and confirming.run.trials.n_finished + len(session.running) < budget
        ):
            trial = confirming.begin()
            session.start(trial.number, confirming.params_of(trial))
        if not session.running:
            return f"the budget of {budget} evaluations is used, and the tolerance {tolerance:.2g} not reached"
        for outcome in session.wait():
            trial = confirming.run.end(outcome)
            confirming.check_range()
            bar.update(trial.status != "pending")
            if trial.status != "failed":
                in_a_row = 0
                continue
            in_a_row += 1
            if in_a_row >= _MOST_FAILURES:
                raise TooManyFailures(_after_failures(in_a_row, trial, journal))


def _after_failures(in_a_row: int, trial: Trial, journal: Any) -> str:
    text = f"{in_a_row} evaluations failed in a row, the last with: {trial.failure}. Correct the objective."
    if journal is not None:
        text += f" The failed evaluations stay in {journal} and count in the budget."
    return text


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


def _text(confirmation: Confirmation) -> str:
    """Return the statement, the reason why it ended, and a line for each candidate."""
    width = max(len(finalist.name) for finalist in confirmation.finalists)
    lines = [
        f"{finalist.name:{width}}  {_described(finalist, confirmation)}"
        for finalist in confirmation.finalists
    ]
    return "\n".join([f"{confirmation.statement}; {confirmation.stopped}", *lines])


def _described(finalist: Finalist, confirmation: Confirmation) -> str:
    """Return estimate, bounds and number of evaluations of a candidate, and its parameters."""
    estimate = finalist.median if confirmation.value_range is None else finalist.mean
    text = "no value"
    if estimate is not None:
        text = f"{estimate:.4g}"
    if math.isfinite(finalist.lower) or math.isfinite(finalist.upper):
        text += f"  [{finalist.lower:.4g}, {finalist.upper:.4g}]"
    n = len(finalist.values)
    count = "1 evaluation" if n == 1 else f"{n} evaluations"
    return f"{text}, {count}: {format_params(finalist.params)}"


def _statement(confirmation: Confirmation) -> str:
    """Return the statement about the best candidate, with its assumptions and limits."""
    n = confirmation.evaluations
    best = confirmation.best
    within = confirmation.within
    if confirmation.objection:
        return f"no statement can be made after {n} evaluations: {confirmation.objection}"
    if best is None or not math.isfinite(within):
        return f"not known yet after {n} evaluations: each candidate needs more"
    n_candidates = len(confirmation.finalists)
    text = f"{best.name} is within {rounded_up(within, 2)} of the best of these {n_candidates}"
    text += f", with {100 * (1 - confirmation.delta):.4g}%"
    text += ", if evaluations of a candidate are independent"
    if confirmation.selected:
        text += f", and losing {confirmation.selected} of them did not depend on their values"
    if confirmation.value_range is not None:
        return f"{text}; this is about their means; {n} evaluations"
    text += "; this is about their medians, which half of the evaluations exceed"
    text += (
        f"; {_on_unseen(best, confirmation.delta / n_candidates)}"  # values decide which is best
    )
    text += _on_means(confirmation, best)
    return f"{text}; {n} evaluations"


def _on_unseen(best: Finalist, delta: float) -> str:
    """Return the share of evaluations of the best candidate that may be of a kind not seen so far, in words."""
    n = len(best.values)
    share = math.ceil(100 * -math.expm1(math.log(delta) / n))
    return f"its {n} evaluations need not show what happens in less than {share}% of them, such as a divergence"


def _on_means(confirmation: Confirmation, best: Finalist) -> str:
    """Return a warning if the mean of another candidate is better by more than the medians allow; else empty."""
    sign = 1 if confirmation.maximize else -1
    other = max(confirmation.finalists, key=lambda finalist: sign * (finalist.mean or 0.0))
    gain = sign * ((other.mean or 0.0) - (best.mean or 0.0))
    if gain <= max(confirmation.within, confirmation.tolerance):
        return ""
    return f"; but by the mean {other.name} is better by {gain:.2g} so far: where means count, give value_range"
