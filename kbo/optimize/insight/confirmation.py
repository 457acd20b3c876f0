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
        within: By how much the median (with ``value_range`` the mean) of another candidate can be better, at most, with
            probability ``1 - delta``; infinite while that is not known, and if there is an objection.
        confirmed: Whether that is at most the tolerance.
        objection: Why no statement can be made of these values, in words; empty if one can.
        finalists: The candidates, as given.
        tolerance, delta, maximize: As given.
        value_range: As given; with one the statement is about means, and else about medians.
        evaluations: The number of new evaluations.
        selected: The number of evaluations whose noise may have decided that they have no value, or which one: failed
            ones, and those that were lost and started again.
        stopped: Why no more evaluations were made.
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
        width = max(len(finalist.name) for finalist in self.finalists)
        lines = [
            f"{finalist.name:{width}}  {self._described(finalist)}" for finalist in self.finalists
        ]
        return "\n".join([f"{self.statement}; {self.stopped}", *lines])

    @property
    def statement(self) -> str:
        """The knowledge about the best candidate, in words."""
        if self.objection:
            return (
                f"no statement can be made after {self.evaluations} evaluations: {self.objection}"
            )
        if self.best is None or not math.isfinite(self.within):
            return f"not known yet after {self.evaluations} evaluations: each candidate needs more"
        claim = f"{self.best.name} is within {rounded_up(self.within, 2)} of the best of these {len(self.finalists)}"
        sure = f"{100 * (1 - self.delta):.4g}%"
        assumed = "if evaluations of a candidate are independent"
        if self.selected:
            assumed += f", and losing {self.selected} of them did not depend on their values"
        parts = [f"{claim}, with {sure}, {assumed}; this is about their {self._measure}"]
        if self.value_range is None:
            parts.append(self._unseen(self.best))
            parts += self._by_mean(self.best)
        parts.append(f"{self.evaluations} evaluations")
        return "; ".join(parts)

    @property
    def _measure(self) -> str:
        if self.value_range is None:
            return "medians, which half of the evaluations exceed"
        return "means"

    def _unseen(self, best: Finalist) -> str:
        """Return the share of evaluations of the best candidate that may be of a kind not seen so far, in words."""
        n = len(best.values)
        delta = self.delta / len(self.finalists)  # the values decide which of them is the best
        share = math.ceil(100 * -math.expm1(math.log(delta) / n))
        return f"its {n} evaluations need not show what happens in less than {share}% of them, such as a divergence"

    def _by_mean(self, best: Finalist) -> list[str]:
        """Return that the mean of another candidate is better by more than the medians allow, if it is."""
        sign = 1 if self.maximize else -1
        other = max(self.finalists, key=lambda finalist: sign * (finalist.mean or 0.0))
        gain = sign * ((other.mean or 0.0) - (best.mean or 0.0))
        if gain <= max(self.within, self.tolerance):
            return []
        return [
            f"but by the mean {other.name} is better by {gain:.2g} so far: where means count, give value_range"
        ]

    def _described(self, finalist: Finalist) -> str:
        """Return estimate, bounds and number of evaluations of a candidate, and its parameters."""
        estimate = finalist.median if self.value_range is None else finalist.mean
        value = "no value"
        if estimate is not None:
            value = f"{estimate:.4g}"
        if math.isfinite(finalist.lower) or math.isfinite(finalist.upper):
            value += f"  [{finalist.lower:.4g}, {finalist.upper:.4g}]"
        n = len(finalist.values)
        count = "1 evaluation" if n == 1 else f"{n} evaluations"
        return f"{value}, {count}: {format_params(finalist.params)}"


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
        self.value_range: tuple[float, float] | None = self.run.value_range
        self._candidates: Mapping[str, Params] = candidates
        self._sign: int = 1 if maximize else -1
        self._delta: float = delta
        self._found: tuple[int, list[Finalist]] = -1, []

    def begin(self) -> Trial:
        """Begin an evaluation, first the abandoned ones."""
        for trial in self.run.abandoned():
            return self.run.resume(trial)
        return self.run.begin({"candidate": self._next()})

    def params_of(self, trial: Trial) -> Params:
        """Return the parameters that a trial evaluates."""
        return copy.copy(self._candidates[_name(trial)])

    def finalists(self) -> list[Finalist]:
        """Return the candidates with their values and bounds."""
        n_events, before = self._found
        if n_events == self.run.trials.n_events:
            return before
        unchanged = {finalist.name: finalist for finalist in before}
        found = []
        for name, values in self._values().items():
            finalist = unchanged.get(name)
            if finalist is None or len(finalist.values) != len(values):
                lower, upper = self._bounds(values)
                finalist = Finalist(name, self._candidates[name], values, lower, upper)
            found.append(finalist)
        self._found = self.run.trials.n_events, found
        return found

    def _values(self) -> dict[str, list[float]]:
        """Return the values of each candidate, in the order of their starts, up to the first that has not come."""
        values: dict[str, list[float]] = {name: [] for name in self._candidates}
        waiting = (
            set()
        )  # candidates of which a value of a later trial may have come first because of its noise
        for trial in self.run.trials.all:
            if trial.status == "pending":
                waiting.add(_name(trial))
            elif trial.value is not None and _name(trial) not in waiting:
                values[_name(trial)].append(trial.value)
        return values

    def _bounds(self, values: Sequence[float]) -> tuple[float, float]:
        """Return the lower and the upper bound of the median of values [n], or with a range of their mean.

        A statement about medians is wrong only if the bound on the good side fails for the candidate that is truly the
        best, or the one on the bad side for one of the others (docs/theory/confirm.md, "The statement").
        """
        if self.value_range is not None:
            return bounded_mean(values, self._delta / len(self._candidates), *self.value_range)
        bad_side = self._delta / (2 * (len(self._candidates) - 1))
        good_side = self._delta / 2
        if self._sign > 0:
            return median_bounds(values, bad_side, good_side)
        return median_bounds(values, good_side, bad_side)

    def check_range(self) -> None:
        """Raise InvalidInput if a value was outside the declared range, on which the statement would rest."""
        outside = [
            one.measured[OBJECTIVE] for one in self.run.trials.failed if OBJECTIVE in one.measured
        ]
        if outside:
            raise InvalidInput(
                f"value_range is {self.value_range}, and a value was {outside[0]:.6g}: give the range of all possible "
                "values, with another journal."
            )

    def objection(self) -> str:
        """Return why the values allow no statement, in words; empty if they do."""
        if self.value_range is not None:
            return ""
        for finalist in self.finalists():
            repeated = finalist.repeated
            if repeated is not None:
                value, count = repeated
                return (
                    f"{count} of {len(finalist.values)} values of {finalist.name} are {value:.6g}, and medians of "
                    "values that repeat hide differences; give value_range, the least and the largest possible value "
                    "(with another journal), then the statement is about means"
                )
        return ""

    def compared(self) -> tuple[Finalist | None, Finalist | None, float]:
        """Return the best candidate so far, its strongest rival, and by how much this can be better at most."""
        finalists = self.finalists()
        if any(not finalist.values for finalist in finalists):
            return None, None, math.inf
        best = max(finalists, key=self._estimate)
        others = [finalist for finalist in finalists if finalist is not best]
        rival = max(others, key=self._optimistic)
        within = max(self._optimistic(rival) - self._pessimistic(best), 0.0)
        return best, rival, within

    def _estimate(self, finalist: Finalist) -> float:
        """Return the median of a candidate with values, or with a range the mean; larger is better."""
        estimate = finalist.median if self.value_range is None else finalist.mean
        assert estimate is not None
        return self._sign * estimate

    def _optimistic(self, finalist: Finalist) -> float:
        """Return the bound of a candidate on the good side; larger is better."""
        return max(self._sign * finalist.lower, self._sign * finalist.upper)

    def _pessimistic(self, finalist: Finalist) -> float:
        """Return the bound of a candidate on the bad side; larger is better."""
        return min(self._sign * finalist.lower, self._sign * finalist.upper)

    def _next(self) -> str:
        """Return the name of the candidate that is evaluated next."""
        started = Counter(map(_name, self.run.trials.all))
        best, rival, within = self.compared()
        if best is None or rival is None:
            names = [finalist.name for finalist in self.finalists() if not finalist.values]
        elif math.isinf(within):
            names = [
                finalist.name
                for finalist in self.finalists()
                if math.isinf(self._optimistic(finalist))
            ]
            if math.isinf(self._pessimistic(best)):
                names.append(best.name)
            if not names:  # finite bounds whose difference is not
                names = [best.name, rival.name]
        else:
            names = [best.name, rival.name]
        return min(names, key=started.__getitem__)


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
    named, budget = _named(candidates), checks.whole("budget", budget, 1)
    checks.positive("tolerance", tolerance)
    checks.probability("delta", delta)
    checks.flag("progress", progress)
    checks.maybe(checks.positive, "timeout", timeout, YEAR)
    if value_range is not None:
        low, high = checks.interval("value_range", value_range)
        if not math.isfinite(high - low):
            raise InvalidInput(
                f"value_range must have a finite width, got {checks.shown(value_range)}."
            )
    confirming = _Confirming(named, checks.flag("maximize", maximize), delta, value_range, journal)
    run = confirming.run
    stopped = "interrupted before its end"
    try:
        with (
            contextlib.suppress(KeyboardInterrupt),
            engine_of(workers, timeout).session(
                objective, timeout, lambda number, value, step: False
            ) as session,
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
            stopped = _evaluated(confirming, session, bar, budget, tolerance, journal)
    finally:
        with contextlib.suppress(JournalError):
            run.release()
        run.close()
    best, _, within = confirming.compared()
    objection = confirming.objection() if math.isfinite(within) else ""
    if objection:
        within = math.inf
    trials = run.trials.all
    return Confirmation(
        best=best,
        within=within,
        confirmed=within <= tolerance,
        objection=objection,
        finalists=confirming.finalists(),
        tolerance=tolerance,
        delta=delta,
        maximize=maximize,
        value_range=run.value_range,
        evaluations=sum(trial.value is not None for trial in trials),
        selected=sum(
            trial.failure is not None or trial.pruned or trial.starts > 1 for trial in trials
        ),
        stopped=stopped,
    )


def _evaluated(
    confirming: _Confirming, session: Session, bar: Bar, budget: int, tolerance: float, journal: Any
) -> str:
    """Make evaluations until enough is known or the budget is used, and return which in words."""
    in_a_row = 0
    while True:
        confirming.check_range()
        within = confirming.compared()[-1]
        if math.isfinite(within) and confirming.objection():
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
            in_a_row = in_a_row + 1 if trial.status == "failed" else 0
            if in_a_row >= _MOST_FAILURES:
                stay = (
                    ""
                    if journal is None
                    else f" The failed evaluations stay in {journal} and count in the budget."
                )
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
