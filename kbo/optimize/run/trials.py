"""Trials: parameters that were evaluated, with their values or failures."""

from __future__ import annotations

import bisect
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any

from kbo._base.terminal import printable
from kbo.errors import InvalidInput, JournalError
from kbo.optimize.constraint import Constraint
from kbo.optimize.run.events import (
    Again,
    Ask,
    Event,
    Fail,
    Prune,
    Release,
    Report,
    Session,
    Tell,
    shortened,
)
from kbo.optimize.run.outcome import OBJECTIVE, SEM
from kbo.space import Params, Space

WAYS = (
    "failed",
    "stopped early",
    "lost and started again",
    "with a value at parameters that ask did not return",
)
"""Ways in which the noise of a trial may decide which values there are."""


@dataclass(slots=True)
class Trial:
    """One evaluation: pending until its value or failure is reported.

    Attributes:
        number: Position in the order in which trials were begun, from 0.
        params: The arguments of the objective.
        value: The value of the objective; None while pending or if it failed.
        measured: The other quantities that it has measured, by name, "sem" the standard error of the value; of one
            without a value, those that came.
        seconds: The duration, if known.
        failure: The reason of a failure; None without one.
        starts: How often it was started: more than once if it was lost or interrupted.
        released: How often the run ended while it was running; these starts were not lost.
        asked: Whether it was started before its value was known.
        pruned: Whether it was stopped early; then it has no value.
        reports: Steps and the values reported at them, in the order of the reports of its last start.
        proposal: The reason why it was chosen, as its event has it.
        started, finished: Times of its last start and its end in seconds since 1970, if known.
    """

    number: int
    params: Params
    value: float | None = None
    measured: dict[str, float] = field(default_factory=dict)
    seconds: float | None = None
    failure: str | None = None
    starts: int = 1
    released: int = 0
    asked: bool = True
    pruned: bool = False
    reports: list[tuple[int, float]] = field(default_factory=list)
    proposal: dict[str, str | float] = field(default_factory=dict, compare=False)
    started: float | None = field(default=None, compare=False)
    finished: float | None = field(default=None, compare=False)

    @property
    def status(self) -> str:
        """One of "pending", "complete", "failed" and "pruned"."""
        if self.failure is not None:
            return "failed"
        if self.pruned:
            return "pruned"
        return "pending" if self.value is None else "complete"

    @property
    def selected(self) -> list[str]:
        """Those of ``WAYS`` in which the noise may have decided whether it has a value, or which one."""
        return list(
            compress(WAYS, (self.failure is not None, self.pruned, self.starts > 1, not self.asked))
        )


class Trials:
    """The trials that events describe.

    Args:
        space: The search space.

    Attributes:
        all: In the order of their starts.
        pending: Those without value and failure, by number.
        finished: The others in the order of their ends.
        complete, failed, pruned: Those with a value, those that failed and those that were stopped early, in the order
            of their starts.
        seconds: The time that sessions have taken, from their beginning to their last event.
        n_finished: The number of trials that ``ask`` began and that have ended.
        n_events: The number of events so far.
    """

    def __init__(self, space: Space) -> None:
        self._space = space
        self.all: list[Trial] = []
        self.pending: dict[int, Trial] = {}
        self.finished: list[Trial] = []
        self.complete: list[Trial] = []
        self.failed: list[Trial] = []
        self.pruned: list[Trial] = []
        self.seconds: float = 0.0
        self._session: float | None = None  # the time of its last event
        self.n_finished: int = 0
        self.n_events: int = 0

    @classmethod
    def of(cls, space: Space, events: Iterable[Event], path: str | os.PathLike[str]) -> Trials:
        """Return the trials that the events of a journal describe.

        Raises:
            JournalError: An event that cannot follow those before it.
        """
        trials = cls(space)
        if damage := trials.add_all(events):
            raise JournalError(
                f"{path} has an event that does not fit: {damage}. It was not written by such a run."
            )
        return trials

    def add_all(self, events: Iterable[Event]) -> str:
        """Apply the events of a journal up to the first that does not fit; say which and why, empty if all do."""
        for event in events:
            try:
                self.add(event)
            except InvalidInput as error:
                return f"line {self.n_events + 2} ({shortened(str(error), 200)})"  # the first line is the header
        return ""

    def add(self, event: Event) -> None:
        """Apply an event.

        Raises:
            InvalidInput: An event that cannot follow those before it; nothing was changed.
        """
        match event:
            case Session():
                self._session = event.time
            case Ask():
                self._begin(event)
            case Again():
                trial = self.unfinished(event.number)
                trial.starts, trial.started = trial.starts + 1, event.time
                trial.reports = []
            case Release():
                self.unfinished(event.number).released += 1
            case Report():
                self.unfinished(event.number).reports.append((event.step, event.value))
            case Tell():
                trial = self.unfinished(event.number)
                trial.value, trial.measured = event.value, event.measured
                self._finish(trial, event, self.complete)
            case Fail():
                trial = self.unfinished(event.number)
                trial.failure, trial.measured = printable(event.reason), event.measured
                self._finish(trial, event, self.failed)
            case Prune():
                trial = self.unfinished(event.number)
                trial.pruned, trial.measured = True, event.measured
                self._finish(trial, event, self.pruned)
        if self._session is not None and event.time is not None:
            self.seconds += max(event.time - self._session, 0.0)
            self._session = event.time
        self.n_events += 1

    def _begin(self, event: Ask) -> None:
        if event.number != len(self.all):
            raise InvalidInput(
                f"trial {event.number} begins where trial {len(self.all)} is expected"
            )
        params = self._space.canonical(event.params)
        if params != event.params:
            raise InvalidInput(
                f"the parameters {event.params} are not {params}, as they would have been written"
            )
        event.params = params  # of which there is one in memory then
        trial = Trial(
            event.number,
            params,
            asked=event.asked,
            proposal=event.proposal,
            started=event.time,
        )
        self.all.append(trial)
        self.pending[event.number] = trial

    def unfinished(self, number: int) -> Trial:
        """Return a pending trial by its number.

        Raises:
            InvalidInput: There is none, or it has ended.
        """
        if number not in self.pending:
            status = self.all[number].status if number < len(self.all) else "unknown"
            raise InvalidInput(f"trial {number} is {status}: nothing more can be reported about it")
        return self.pending[number]

    def _finish(self, trial: Trial, event: Tell | Fail | Prune, others: list[Trial]) -> None:
        trial.seconds, trial.finished = event.seconds, event.time
        self.n_finished += trial.asked
        del self.pending[trial.number]
        self.finished.append(trial)
        bisect.insort(others, trial, key=lambda other: other.number)


def repetitions(trials: Iterable[Trial]) -> dict[int, int]:
    """Return the numbers of trials with the parameters of an earlier one, with the numbers of the first such ones."""
    first: dict[str, int] = {}
    found = {trial.number: first.setdefault(repr(trial.params), trial.number) for trial in trials}
    return {again: number for again, number in found.items() if again != number}


def out_of_order(starts: Iterable[Any]) -> int:
    """Return how many trials ended after ones that were begun later.

    Args:
        starts: The moments of their starts, in the order of their ends; those that run are the last.
    """
    latest, count = None, 0
    for start in starts:
        count += latest is not None and start < latest
        latest = start if latest is None else max(latest, start)
    return count


def in_words(ways: Mapping[str, int]) -> list[str]:
    """Return ways in which trials went wrong, with their numbers, in words; those without a trial are left out."""
    return [f"trials {way}: {count}" for way, count in ways.items() if count]


def quantity(trial: Trial, constraint: Constraint) -> float | None:
    """Return what a trial has measured of the quantity of a constraint; None if it has not."""
    return trial.value if constraint.name == OBJECTIVE else trial.measured.get(constraint.name)


def error_of(trial: Trial, name: str = OBJECTIVE) -> float | None:
    """Return the standard error that came with what a trial has measured of a quantity; None without one."""
    return trial.measured.get(SEM) if name == OBJECTIVE else None


def violations(trial: Trial, constraints: Sequence[Constraint]) -> int:
    """Return how many limits the measurements of a trial break."""
    count = 0
    for constraint in constraints:
        value = quantity(trial, constraint)
        count += value is None or not constraint.kept_by(value)
    return count
