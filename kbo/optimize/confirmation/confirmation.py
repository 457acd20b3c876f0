"""``confirm``: the best of a few parameters, by new evaluations alone: no kernel, no norm, no noise level.

Each evaluation goes to the best candidate so far or to its strongest rival, whichever has fewer evaluations (LUCB,
Kalyanakrishnan et al. 2012).
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
from kbo._base.isolation import isolated
from kbo._base.terminal import Bar, rounded_up, significant
from kbo.errors import InvalidInput, JournalError, TooManyFailures
from kbo.optimize.confirmation.race import Finalist, Race
from kbo.optimize.constraints.constraint import Constraint
from kbo.optimize.run.outcome import OBJECTIVE
from kbo.optimize.run.run import Run
from kbo.optimize.run.table import by_name, format_params
from kbo.optimize.run.trials import Trial, measurements
from kbo.space import Choice, Params, Space
from kbo.workers.choice import Workers, engine_of
from kbo.workers.engine import YEAR, Session

_MOST_FAILURES = 5
"""Failures in a row that end a confirmation."""


@dataclass(frozen=True)
class Confirmation:
    """The outcome of new evaluations of a few candidates (docs/theory/confirm.md).

    Attributes:
        best: The candidate with the best median, or with ``value_range`` the best mean; None before each has a value.
        within: The largest lead over ``best`` that the median (with ``value_range`` the mean) of another candidate can
            have, with probability ``1 - delta``. Infinite while no bound is known, and if there is an objection.
        confirmed: Whether ``within`` is at most the tolerance. It is about the objective alone, and not about limits.
        objection: The reason why no statement can be made of these values; empty if one can.
        finalists: The candidates, as given.
        tolerance, delta, maximize: As given.
        value_range: As given; with one the statement is about means, and else about medians.
        evaluations: The number of new evaluations.
        selected: The number of evaluations whose noise may have decided that they have no value, or their value: failed
            ones, and lost ones that were started again.
        stopped: The reason why no more evaluations were made.
        constraints: The limits of the run whose trials are the candidates; none for candidates that a caller lists.
            ``statement`` says in how many new evaluations their measurements, which have noise, break them.
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
    constraints: Sequence[Constraint] = ()

    def __str__(self) -> str:
        return _text(self)

    @property
    def statement(self) -> str:
        """The answer, in one line, and what it rests on, a line for each fact."""
        return "\n".join([_answer(self), *_about_values(self), *_about_limits(self)])


class _Evaluations:
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
        self.race: Race = Race(len(candidates), maximize, delta, self.run.value_range)
        self._candidates: Mapping[str, Params] = candidates
        self._finalists: dict[str, Finalist] = {}  # after the first ``_n_events`` events of the run
        self._n_events: int = -1

    def begin(self) -> Trial:
        """Begin an evaluation: one that an earlier process abandoned, or that of the next candidate."""
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
            return list(self._finalists.values())
        for name, measured in self._measured().items():
            finalist = self._finalists.get(name)
            if finalist is None or len(finalist.values) != len(measured):
                values = [measurement[OBJECTIVE] for measurement in measured]
                lower, upper = self.race.bounds(values)
                params = self._candidates[name]
                self._finalists[name] = Finalist(name, params, values, lower, upper, measured)
        self._n_events = self.run.trials.n_events
        return list(self._finalists.values())

    def _measured(self) -> dict[str, list[dict[str, float]]]:
        """Return values with other measurements of each candidate, by their starts, up to the first that is missing."""
        measured: dict[str, list[dict[str, float]]] = {name: [] for name in self._candidates}
        waiting = set()  # candidates whose later values may have come first because of their noise
        for trial in self.run.trials.all:
            name = _name(trial)
            if trial.status == "pending":
                waiting.add(name)
            elif trial.value is not None and name not in waiting:
                measured[name].append(measurements(trial, OBJECTIVE))
        return measured

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
        n_evaluations = Counter(map(_name, self.run.trials.all))
        names = self.race.worth_evaluating(self.finalists())
        return min(names, key=n_evaluations.__getitem__)

    def outcome(self, tolerance: float, stopped: str) -> Confirmation:
        """Return the confirmation by the values so far."""
        finalists = self.finalists()
        best, _, within = self.race.standing(finalists)
        objection = ""
        if math.isfinite(within):
            objection = self.race.objection(finalists)
        if objection:
            within = math.inf
        trials = self.run.trials.all
        return Confirmation(
            best=best,
            within=within,
            confirmed=within <= tolerance,
            objection=objection,
            finalists=finalists,
            tolerance=tolerance,
            delta=self.race.delta,
            maximize=self.race.maximize,
            value_range=self.race.value_range,
            evaluations=sum(trial.value is not None for trial in trials),
            selected=sum(map(_is_selected, trials)),
            stopped=stopped,
        )


def _header(
    space: Space,
    candidates: Mapping[str, Params],
    maximize: bool,
    value_range: tuple[float, float] | None,
) -> dict[str, Any]:
    """Return the description of a confirmation, for the first line of its journal."""
    entries = []
    for name, params in candidates.items():
        entries.append({"name": name, "params": by_name(params)})
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
    """Return the name of the candidate that a trial evaluates."""
    return by_name(trial.params)["candidate"]


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
    """Evaluate a few parameters again and again until it is known which is the best, or nearly so.

    Only these new evaluations count, so it does no harm that the candidates were chosen by earlier, noisy values. No
    model is assumed: the evaluations of a candidate are independent, and nothing else is known of them. So the
    statement is about medians: half of the evaluations of a candidate are better than its median. A rare divergence
    does not move a median; the statement says how frequent one may be that has not been seen. With ``value_range`` the
    statement is about means, and every divergence counts. Values that repeat, such as 0 and 1, need a range: without
    one no statement is made of them. Each candidate needs at least eight to ten evaluations, also without noise, and
    more for a smaller delta.

    Args:
        objective: As for ``minimize``: called with the parameters of a candidate. Only its value decides which is best;
            other measurements are kept in ``Finalist.measured``.
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
    budget = checks.whole("budget", budget, 1)
    tolerance = checks.positive("tolerance", tolerance)
    delta = checks.probability("delta", delta)
    maximize = checks.flag("maximize", maximize)
    progress = checks.flag("progress", progress)
    timeout = checks.maybe(checks.positive, "timeout", timeout, YEAR)
    value_range = _range_of(value_range)
    evaluations = _Evaluations(by_candidate, maximize, delta, value_range, journal)
    run = evaluations.run
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
            stopped = _evaluate(evaluations, session, bar, budget, tolerance)
    finally:
        with contextlib.suppress(JournalError):
            run.release()
        run.close()
    return evaluations.outcome(tolerance, stopped)


def _range_of(value_range: Any) -> tuple[float, float] | None:
    """Return a declared range as two numbers; None if none is declared.

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
    """Return False: no evaluation is stopped early."""
    return False


def _is_selected(trial: Trial) -> bool:
    """Return True if the noise of an evaluation may have decided that it has no value, or its value."""
    return trial.failure is not None or trial.pruned or trial.starts > 1


def _evaluate(
    evaluations: _Evaluations, session: Session, bar: Bar, budget: int, tolerance: float
) -> str:
    """Make evaluations until enough is known or the budget is used, and return the reason to stop, in words.

    Raises:
        InvalidInput: A value outside the declared range.
        TooManyFailures: Five evaluations failed in a row.
    """
    race = evaluations.race
    run = evaluations.run
    n_failures = 0  # in a row
    while True:
        evaluations.check_range()
        finalists = evaluations.finalists()
        within = race.standing(finalists).within
        if math.isfinite(within) and race.objection(finalists):
            return "values repeat"
        if within <= tolerance:
            return f"that is enough for the tolerance {tolerance:.2g}"
        n_left = budget - run.trials.n_asked_ended
        while len(session.running) < min(session.capacity, n_left):
            trial = evaluations.begin()
            session.start(trial.number, evaluations.params_of(trial))
        if not session.running:
            reason = f"the budget of {budget} evaluations is used, and the tolerance {tolerance:.2g} not reached"
            return f"{reason}: {_advice(evaluations, tolerance)}"
        for outcome in session.wait():
            trial = run.end(outcome)
            evaluations.check_range()
            bar.update(trial.status != "pending")
            n_failures = n_failures + 1 if trial.status == "failed" else 0
            if n_failures >= _MOST_FAILURES:
                raise TooManyFailures(_too_many_failures(n_failures, trial, run.path))


def _advice(evaluations: _Evaluations, tolerance: float) -> str:
    """Return the budget and the tolerance with which a statement would be reached, in words."""
    race = evaluations.race
    finalists = evaluations.finalists()
    n_more = race.more_needed(finalists, tolerance)
    if n_more is None or race.objection(finalists):
        return "give a larger budget (-n)"
    n_needed = evaluations.run.trials.n_asked_ended + n_more
    reached = rounded_up(race.standing(finalists).within, 2)
    return f"give a budget of about {significant(n_needed, 2)} (-n), or a tolerance of {reached} (--tolerance)"


def _too_many_failures(n: int, last: Trial, journal: str | None) -> str:
    """Return the message after n evaluations that failed in a row."""
    text = f"{n} evaluations failed in a row, the last with: {last.failure}. Correct the objective."
    if journal is not None:
        text += f" The failed evaluations stay in {journal} and count in the budget."
    return text


def _named(candidates: Any) -> dict[str, Params]:
    """Return the candidates by name; those of a list are "candidate 0" and so on.

    Raises:
        InvalidInput: Fewer than two, or no parameters.
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


def _text(confirmation: Confirmation) -> str:
    """Return the statement, the reason why it ended, and a line for each candidate."""
    n = confirmation.evaluations
    width = max(len(finalist.name) for finalist in confirmation.finalists)
    lines = [confirmation.statement, f"It ended after {n} evaluations: {confirmation.stopped}."]
    lines.extend(
        f"{finalist.name:{width}}  {_described(finalist, confirmation)}"
        for finalist in confirmation.finalists
    )
    return "\n".join(lines)


def _described(finalist: Finalist, confirmation: Confirmation) -> str:
    """Return estimate, bounds and number of evaluations of a candidate, and its parameters."""
    estimate = finalist.mean
    if confirmation.value_range is None:
        estimate = finalist.median
    text = "no value"
    if estimate is not None:
        text = f"{estimate:.4g}{_bounds(finalist)}"
    n = len(finalist.values)
    plural = "" if n == 1 else "s"
    return f"{text}, {n} evaluation{plural}: {format_params(finalist.params)}"


def _bounds(finalist: Finalist) -> str:
    """Return the finite bounds of a candidate, in words; empty without one."""
    has_lower = math.isfinite(finalist.lower)
    has_upper = math.isfinite(finalist.upper)
    if has_lower and has_upper:
        return f"  [{finalist.lower:.4g}, {finalist.upper:.4g}]"
    if has_lower:
        return f" (at least {finalist.lower:.4g})"
    if has_upper:
        return f" (at most {finalist.upper:.4g})"
    return ""


def _answer(confirmation: Confirmation) -> str:
    """Return which candidate is the best, with the limits that it broke, or that it is not decided, in one line."""
    best = confirmation.best
    if confirmation.objection:
        return "Not decided: these values allow no statement."
    if best is None or not math.isfinite(confirmation.within):
        return "Not decided: each candidate needs more evaluations."
    if not confirmation.confirmed:
        *others, last = [best.name, *_rivals(confirmation, best)]
        return f"Not decided between {', '.join(others)} and {last}."
    broken = _broken(best, confirmation.constraints)
    if broken:
        return f"Now the best: {best.name}, but it breaks {broken} new evaluations."
    return f"Now the best: {best.name}."


def _rivals(confirmation: Confirmation, best: Finalist) -> list[str]:
    """Return the names of the candidates that may be better than the best one by more than the tolerance."""
    names = []
    for finalist in confirmation.finalists:
        lead = best.upper - finalist.lower
        if confirmation.maximize:
            lead = finalist.upper - best.lower
        if finalist is not best and lead > confirmation.tolerance:
            names.append(finalist.name)
    return names


def _about_values(confirmation: Confirmation) -> list[str]:
    """Return what the values say about the best candidate, with its assumptions and limits, a line for each fact."""
    best = confirmation.best
    if confirmation.objection:
        return [f"{confirmation.objection}."]
    if best is None or not math.isfinite(confirmation.within):
        return []
    n_candidates = len(confirmation.finalists)
    estimate = "mean" if confirmation.value_range is not None else "median"
    within = rounded_up(confirmation.within, 2)
    sure = f"{100 * (1 - confirmation.delta):.4g}%"
    lines = [
        f"The {estimate} of {best.name} is within {within} of the best of these {n_candidates}, with {sure} "
        "probability."
    ]
    assumption = "This assumes that the evaluations of a candidate are independent"
    if confirmation.selected:
        assumption += (
            f", and that losing {confirmation.selected} of them did not depend on their values"
        )
    lines.append(f"{assumption}.")
    if confirmation.value_range is not None:
        return lines
    # The values decide which candidate is the best, so delta is divided among the candidates.
    lines.append(_on_unseen(best, confirmation.delta / n_candidates))
    lines.extend(_on_means(confirmation, best))
    return lines


def _on_unseen(best: Finalist, delta: float) -> str:
    """Return the share of evaluations of the best candidate that may be of a kind not seen so far, in words.

    A kind with probability p is missing in n independent evaluations with probability (1 - p)^n, which is at most delta
    for ``p >= 1 - delta^(1/n)``.
    """
    n = len(best.values)
    share = math.ceil(100 * -math.expm1(math.log(delta) / n))
    return (
        f"The {n} evaluations of {best.name} may not have shown rare results, such as a divergence: up to {share}% of "
        "its evaluations may be of a kind not seen."
    )


def _on_means(confirmation: Confirmation, best: Finalist) -> list[str]:
    """Return a warning if the mean of another candidate is better by more than the medians allow; else no line."""
    sign = 1 if confirmation.maximize else -1
    other = max(confirmation.finalists, key=lambda finalist: sign * (finalist.mean or 0.0))
    gain = sign * ((other.mean or 0.0) - (best.mean or 0.0))
    if gain <= max(confirmation.within, confirmation.tolerance):
        return []
    return [
        f"But by the mean {other.name} is better by {gain:.2g} so far: where means count, give value_range."
    ]


def _about_limits(confirmation: Confirmation) -> list[str]:
    """Return which candidates break limits in new evaluations, beyond what ``_answer`` says, and what is unmeasured."""
    limits = " and ".join(map(str, confirmation.constraints))
    n_values = sum(len(finalist.values) for finalist in confirmation.finalists)
    if not limits or not n_values:
        return []
    lines = []
    all_kept = True
    for finalist in confirmation.finalists:
        broken = _broken(finalist, confirmation.constraints)
        is_answer = confirmation.confirmed and finalist is confirmation.best
        if broken:
            all_kept = False
        if broken and not is_answer:
            lines.append(f"{finalist.name} breaks {broken} new evaluations.")
        n = len(finalist.values)
        for constraint in confirmation.constraints:
            n_missing = n - len(_measured(finalist, constraint))
            if n_missing:
                all_kept = False
                lines.append(
                    f"{finalist.name} has no measurement of {constraint.name} in {n_missing} of {n} new evaluations."
                )
    if all_kept:
        lines.append(f"All {n_values} new evaluations keep {limits}.")
    return lines


def _broken(finalist: Finalist, constraints: Sequence[Constraint]) -> str:
    """Return the limits that new evaluations of a candidate break, each with their number; empty if none is broken."""
    n = len(finalist.values)
    counts = []
    for constraint in constraints:
        n_broken = sum(not constraint.kept_by(value) for value in _measured(finalist, constraint))
        if n_broken:
            counts.append(f"{constraint} in {n_broken} of {n}")
    return " and ".join(counts)


def _measured(finalist: Finalist, constraint: Constraint) -> list[float]:
    """Return the measurements of the quantity of a constraint in the evaluations of a candidate that have one."""
    name = constraint.name
    return [measured[name] for measured in finalist.measured if name in measured]
