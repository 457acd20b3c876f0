"""The race of a few candidates: their evaluations and confidence bounds, and which one is evaluated next.

Each candidate has a confidence sequence of its median, or with a declared range of its mean. It holds for all numbers
of values at once, under any rule for the next candidate and for the stop (docs/theory/confirm.md).
"""

from __future__ import annotations

import copy
import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kbo.confidence.repeated import bounded_mean, median_bounds
from kbo.errors import InvalidInput
from kbo.optimize.confirmation.confirmation import Confirmation, Finalist
from kbo.optimize.run.outcome import OBJECTIVE
from kbo.optimize.run.run import Run
from kbo.optimize.run.table import by_name
from kbo.optimize.run.trials import Trial, measurements
from kbo.space import Choice, Params, Space


class Standing(NamedTuple):
    """The standing of a race, by the values so far.

    Attributes:
        best: The candidate with the best estimate; None before each candidate has a value.
        rival: The other candidate with the best bound on the good side; None before each has a value.
        largest_lead: The largest lead of the rival over the best one, if the bounds hold, at least 0; may be infinite.
    """

    best: Finalist | None
    rival: Finalist | None
    largest_lead: float


class Race:
    """A race of candidates: a run whose trials have one parameter, the name of the candidate.

    Args:
        candidates: The parameters of each candidate, by its name.
        maximize: Whether larger values are better.
        delta: Probability, at most, that the statement is wrong.
        value_range: The least and the largest possible value. With a range means are compared, without one medians.
        journal: Path of the journal; None without one.
    """

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
        self._maximize = maximize
        self._delta = delta
        self._candidates: Mapping[str, Params] = candidates
        self._finalists: dict[str, Finalist] = {}  # after the first ``_n_events`` events of the run
        self._n_events: int = -1

    def begin(self) -> Trial:
        """Begin an evaluation: first those that an earlier process abandoned, then that of the next candidate."""
        abandoned = self.run.abandoned()
        if abandoned:
            return self.run.resume(abandoned[0])
        n_evaluations = Counter(map(_name, self.run.trials.all))
        name = min(self._worth_evaluating(), key=n_evaluations.__getitem__)
        return self.run.begin({"candidate": name})

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
                lower, upper = self._bounds(values)
                params = self._candidates[name]
                self._finalists[name] = Finalist(name, params, values, lower, upper, measured)
        self._n_events = self.run.trials.n_events
        return list(self._finalists.values())

    def _measured(self) -> dict[str, list[dict[str, float]]]:
        """Return the measurements of each candidate's evaluations, in the order of starts, up to the first pending."""
        measured: dict[str, list[dict[str, float]]] = {name: [] for name in self._candidates}
        waiting = set()  # candidates whose later values may have come first because of their noise
        for trial in self.run.trials.all:
            name = _name(trial)
            if trial.status == "pending":
                waiting.add(name)
            elif trial.value is not None and name not in waiting:
                measured[name].append(measurements(trial, OBJECTIVE))
        return measured

    def _bounds(self, values: Sequence[float]) -> tuple[float, float]:
        """Return the lower and the upper bound of the median that values [n] have, or with a range of their mean.

        A statement about medians is wrong only if the optimistic bound of the truly best candidate fails, or the
        pessimistic bound of another one (docs/theory/confirm.md, "The statement").
        """
        n_candidates = len(self._candidates)
        if self.run.value_range is not None:
            return bounded_mean(values, self._delta / n_candidates, *self.run.value_range)
        good_side = self._delta / 2
        bad_side = self._delta / (2 * (n_candidates - 1))
        if self._maximize:
            return median_bounds(values, bad_side, good_side)
        return median_bounds(values, good_side, bad_side)

    def check_range(self) -> None:
        """Raise InvalidInput if a value was outside the declared range: the statement about means needs this range."""
        for trial in self.run.trials.failed:
            if OBJECTIVE in trial.measured:
                raise InvalidInput(
                    f"value_range is {self.run.value_range}, and a value was {trial.measured[OBJECTIVE]:.6g}: give the "
                    "range of all possible values, with another journal."
                )

    def standing(self) -> Standing:
        """Return the best candidate so far, its strongest rival, and the largest possible lead of the rival."""
        finalists = self.finalists()
        if any(not finalist.values for finalist in finalists):
            return Standing(None, None, math.inf)
        best = max(finalists, key=self._estimate)
        others = [finalist for finalist in finalists if finalist is not best]
        rival = max(others, key=self._good_bound)
        largest_lead = max(self._good_bound(rival) - self._bad_bound(best), 0.0)
        return Standing(best, rival, largest_lead)

    def _worth_evaluating(self) -> list[str]:
        """Return the names of the candidates that need evaluations most."""
        finalists = self.finalists()
        best, rival, largest_lead = self.standing()
        if best is None or rival is None:
            return [finalist.name for finalist in finalists if not finalist.values]
        if math.isfinite(largest_lead):
            return [best.name, rival.name]
        unbounded = [
            finalist.name for finalist in finalists if math.isinf(self._good_bound(finalist))
        ]
        if math.isinf(self._bad_bound(best)):
            unbounded.append(best.name)
        return unbounded or [best.name, rival.name]  # finite bounds, infinite difference

    def more_needed(self, tolerance: float) -> int | None:
        """Return roughly how many more evaluations are needed until no rival can lead by more than the tolerance.

        It is assumed that the estimates of the best candidate and its rival stay, and that the widths of their bounds
        shrink as 1 / sqrt(number of evaluations). None while a bound is infinite.
        """
        best, rival, largest_lead = self.standing()
        if best is None or rival is None or not math.isfinite(largest_lead):
            return None
        lead = max(self._estimate(best) - self._estimate(rival), 0.0)
        factor = ((largest_lead + lead) / (tolerance + lead)) ** 2
        n_of_both = len(best.values) + len(rival.values)
        return math.ceil(max(factor - 1, 0.0) * n_of_both)

    def objection(self) -> str:
        """Return the reason why the values allow no statement; an empty text if they allow one."""
        if self.run.value_range is not None:
            return ""
        for finalist in self.finalists():
            if finalist.repeated is None:
                continue
            value, count = finalist.repeated
            return (
                f"{count} of {len(finalist.values)} values of {finalist.name} are {value:.6g}, and medians of "
                "values that repeat hide differences; give value_range, the least and the largest possible value "
                "(with another journal), then the statement is about means"
            )
        return ""

    def outcome(self, tolerance: float, stopped: str) -> Confirmation:
        """Return the confirmation that follows from the values so far."""
        best, _, largest_lead = self.standing()
        objection = ""
        if math.isfinite(largest_lead):
            objection = self.objection()
        if objection:
            largest_lead = math.inf
        trials = self.run.trials.all
        return Confirmation(
            best=best,
            largest_lead=largest_lead,
            confirmed=largest_lead <= tolerance,
            objection=objection,
            finalists=self.finalists(),
            tolerance=tolerance,
            delta=self._delta,
            maximize=self._maximize,
            value_range=self.run.value_range,
            evaluations=sum(trial.value is not None for trial in trials),
            selected=sum(map(_is_selected, trials)),
            stopped=stopped,
        )

    def _estimate(self, finalist: Finalist) -> float:
        """Return the median of a candidate, or with a range the mean, with the sign for which larger is better."""
        estimate = finalist.mean
        if self.run.value_range is None:
            estimate = finalist.median
        assert estimate is not None
        if self._maximize:
            return estimate
        return -estimate

    def _good_bound(self, finalist: Finalist) -> float:
        """Return the optimistic bound of a candidate, with the sign for which larger is better."""
        if self._maximize:
            return finalist.upper
        return -finalist.lower

    def _bad_bound(self, finalist: Finalist) -> float:
        """Return the pessimistic bound of a candidate, with the sign for which larger is better."""
        if self._maximize:
            return finalist.lower
        return -finalist.upper


def _header(
    space: Space,
    candidates: Mapping[str, Params],
    maximize: bool,
    value_range: tuple[float, float] | None,
) -> dict[str, Any]:
    """Return the description of a confirmation for the first line of its journal."""
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


def _is_selected(trial: Trial) -> bool:
    """Return True if the noise of an evaluation may have decided whether it has a value, or which one."""
    return trial.failure is not None or trial.pruned or trial.starts > 1
