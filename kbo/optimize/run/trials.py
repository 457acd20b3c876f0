"""The trials of a run: parameters with their values or failures, computed from the events."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kbo._base import checks
from kbo._base.terminal import printable
from kbo.errors import InvalidInput, JournalError
from kbo.optimize.run.events import (
    Again,
    Ask,
    Change,
    Correct,
    Event,
    Fail,
    Prune,
    Release,
    Remove,
    Report,
    SessionStart,
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
    "corrected or removed by hand",
)
"""Ways in which the noise of a trial may decide which values are observed."""


@dataclass(slots=True)
class Trial:
    """One evaluation of the objective: pending until its value or failure is reported.

    Attributes:
        number: Position in the order in which trials were begun, from 0.
        params: The arguments of the objective; after a change of the space, in the form of the new one.
        value: The value of the objective; None while pending or if it failed.
        measured: The other measured quantities, by name; "sem" is the standard error of the value.
        seconds: The duration, if known.
        failure: The reason of a failure; None without one.
        starts: The number of starts: more than one if the trial was lost or interrupted.
        released: How often the run ended while the trial was running; these starts were not lost.
        asked: Whether ``ask`` began it, before its value was known.
        pruned: Whether it was stopped early; then it has no value.
        removed: The reason why it is left out; None if it counts.
        reported: The value that was reported before it was corrected or removed; None without one.
        corrected: Whether its result was corrected.
        reports: The reports of its last start: steps with their values, in the order of the reports.
        proposal: The reason why its parameters were chosen, as its event holds it.
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
    removed: str | None = None
    reported: float | None = None
    corrected: bool = False
    reports: list[tuple[int, float]] = field(default_factory=list)
    proposal: dict[str, str | float] = field(default_factory=dict, compare=False)
    started: float | None = field(default=None, compare=False)
    finished: float | None = field(default=None, compare=False)

    @property
    def status(self) -> str:
        """One of "pending", "complete", "failed", "pruned" and "removed"."""
        if self.removed is not None:
            return "removed"
        if self.failure is not None:
            return "failed"
        if self.pruned:
            return "pruned"
        if self.value is not None:
            return "complete"
        return "pending"

    @property
    def sem(self) -> float | None:
        """The standard error of the value; None if none was reported."""
        return self.measured.get(SEM)

    def measurement(self, name: str) -> float | None:
        """Return the value of a measured quantity, "objective" or another one; None without one."""
        if name == OBJECTIVE:
            return self.value
        return self.measured.get(name)

    @property
    def selected(self) -> list[str]:
        """Those of ``WAYS`` in which the noise may have decided whether the trial has a value, or which one."""
        failed, stopped, lost, not_asked, by_hand = WAYS
        ways = []
        if self.failure is not None:
            ways.append(failed)
        if self.pruned:
            ways.append(stopped)
        if self.starts > 1:
            ways.append(lost)
        if not self.asked:
            ways.append(not_asked)
        if self.corrected or self.removed is not None:
            ways.append(by_hand)
        return ways


def number_of(trial: Trial | int) -> int:
    """Return the number of a trial, which may be given by its number."""
    if isinstance(trial, Trial):
        return trial.number
    return checks.whole("trial", trial, 0)


class Trials:
    """The trials that the events of a run describe.

    After a change of the space, trials without a place in the new one are only in ``all`` and ``misplaced``.

    Args:
        space: The search space before the first event.

    Attributes:
        space: The search space after the events.
        all: All trials, in the order of their starts.
        begun: The parameters with which the trials were begun, each in the space of that time.
        extended: The same parameters, with the values that later changes of the space gave to new parameters.
        seconds: The seconds that the sessions have taken, each from its beginning to its last event.
        n_events: The number of events so far.
        n_in_vain: The number of trials before the last session that began when all of them had failed, as after a fault
            of the objective.
    """

    def __init__(self, space: Space) -> None:
        self.space: Space = space
        self.all: list[Trial] = []
        self.begun: list[Params] = []
        self.extended: list[Params] = []
        self._ended: list[Trial] = []  # in the order of their ends
        self._without_place: set[int] = set()
        self.seconds: float = 0.0
        self._last_event: float | None = None  # the time of the last event of a session
        self.n_events: int = 0
        self.n_in_vain: int = 0

    @property
    def pending(self) -> dict[int, Trial]:
        """The trials that have not ended, by number."""
        return {trial.number: trial for trial in self.all if trial.status == "pending"}

    @property
    def finished(self) -> list[Trial]:
        """The trials that have ended, in the order of their ends."""
        return self._with_place(self._ended)

    @property
    def complete(self) -> list[Trial]:
        """The trials that have a value, in the order of their starts."""
        return self._with_status("complete")

    @property
    def failed(self) -> list[Trial]:
        """The trials that failed, in the order of their starts."""
        return self._with_status("failed")

    @property
    def pruned(self) -> list[Trial]:
        """The trials that were stopped early, in the order of their starts."""
        return self._with_status("pruned")

    @property
    def misplaced(self) -> list[Trial]:
        """The trials without a place in the space, in the order of their starts."""
        return [self.all[number] for number in sorted(self._without_place)]

    @property
    def n_asked_ended(self) -> int:
        """The number of trials that ``ask`` began and that have ended."""
        return sum(trial.asked for trial in self._ended)

    @property
    def all_failed(self) -> bool:
        """Whether no trial that ``ask`` began has ended in another way than by a failure."""
        return all(trial.status == "failed" for trial in self._ended if trial.asked)

    def _with_place(self, trials: Iterable[Trial]) -> list[Trial]:
        """Return the trials that have a place in the space."""
        return [trial for trial in trials if trial.number not in self._without_place]

    def _with_status(self, status: str) -> list[Trial]:
        """Return the trials of a status that have a place in the space, in the order of their starts."""
        return self._with_place(trial for trial in self.all if trial.status == status)

    @classmethod
    def of(cls, space: Space, events: Iterable[Event], path: str | os.PathLike[str]) -> Trials:
        """Return the trials that the events of the journal ``path`` describe.

        Raises:
            JournalError: An event that cannot follow the earlier ones.
        """
        trials = cls(space)
        if damage := trials.add_all(events):
            raise JournalError(
                f"{path} has an event that does not fit: {damage}. It was not written by such a run."
            )
        return trials

    def add_all(self, events: Iterable[Event]) -> str:
        """Apply the events of a journal. Return the line of the first that does not fit, with the reason, or ""."""
        for event in events:
            try:
                self.add(event)
            except InvalidInput as error:
                line = self.n_events + 2  # the first line is the header
                return f"line {line} ({shortened(str(error), 200)})"
        return ""

    def add(self, event: Event) -> None:
        """Apply an event.

        Raises:
            InvalidInput: The event cannot follow the earlier ones; nothing was changed.
        """
        match event:
            case SessionStart():
                self._last_event = event.time
                if self.all_failed:
                    self.n_in_vain = self.n_asked_ended
            case Change():
                self._change(event)
            case Correct():
                self._correct(event)
            case Remove():
                self._remove(event)
            case Ask():
                self._begin(event)
            case Again():
                trial = self.unfinished(event.number)
                trial.starts += 1
                trial.started = event.time
                trial.reports = []
            case Release():
                self.unfinished(event.number).released += 1
            case Report():
                self.unfinished(event.number).reports.append((event.step, event.value))
            case Tell():
                trial = self.unfinished(event.number)
                trial.value = event.value
                self._finish(trial, event)
            case Fail():
                trial = self.unfinished(event.number)
                trial.failure = printable(event.reason)
                self._finish(trial, event)
            case Prune():
                trial = self.unfinished(event.number)
                trial.pruned = True
                self._finish(trial, event)
        if self._last_event is not None and event.time is not None:
            if not _is_by_hand(event):
                self.seconds += max(event.time - self._last_event, 0.0)
            self._last_event = event.time
        self.n_events += 1

    def _begin(self, event: Ask) -> None:
        """Begin a trial.

        Raises:
            InvalidInput: Its number is not the next one, or its parameters are not in the form in which they are
                written.
        """
        if event.number != len(self.all):
            raise InvalidInput(
                f"trial {event.number} begins where trial {len(self.all)} is expected"
            )
        params = self.space.canonical(event.params)
        if params != event.params:
            raise InvalidInput(
                f"the parameters {event.params} are not {params}, as they would have been written"
            )
        event.params = params  # so that memory holds them once
        trial = Trial(
            event.number,
            params,
            asked=event.asked,
            proposal=event.proposal,
            started=event.time,
        )
        self.all.append(trial)
        self.begun.append(params)
        self.extended.append(params)

    def _change(self, event: Change) -> None:
        """Carry the trials over to another space."""
        space = Space.from_description(event.space, self.space.named)
        self.space = space.replacing(self.space, event.same_scale)
        for number, params in enumerate(self.extended):
            if isinstance(params, dict):
                self.extended[number] = {**event.was, **params}
        self._without_place = set()
        for trial, params in zip(self.all, self.extended, strict=True):
            carried = self.space.carried(params)
            if carried is None:
                self._without_place.add(trial.number)
            else:
                trial.params = carried

    def _correct(self, event: Correct) -> None:
        """Replace the result of a trial that has ended."""
        trial = self.ended(event.number)
        self._withdraw(trial)
        trial.corrected = True
        trial.removed = None
        trial.value = event.value
        trial.measured = event.measured

    def _remove(self, event: Remove) -> None:
        """Leave a trial out, whether or not it has ended."""
        trial = self.known(event.number)
        if trial.status == "removed":
            raise InvalidInput(f"trial {event.number} is removed already")
        if trial.status == "pending":
            self._ended.append(trial)
        self._withdraw(trial)
        trial.removed = printable(event.reason)

    def _withdraw(self, trial: Trial) -> None:
        """Withdraw the result of a trial; its first value is kept as ``reported``."""
        if trial.reported is None:
            trial.reported = trial.value
        trial.value = None
        trial.measured = {}
        trial.failure = None
        trial.pruned = False

    def known(self, number: int) -> Trial:
        """Return a trial by its number.

        Raises:
            InvalidInput: There is none.
        """
        if not 0 <= number < len(self.all):
            raise InvalidInput(
                f"there is no trial {number}: the run has {len(self.all)} trials, from 0."
            )
        return self.all[number]

    def ended(self, number: int) -> Trial:
        """Return a trial that has ended.

        Raises:
            InvalidInput: There is no trial of this number, or it is pending.
        """
        trial = self.known(number)
        if trial.status == "pending":
            raise InvalidInput(f"trial {number} is pending: report its value with tell.")
        return trial

    def unfinished(self, number: int) -> Trial:
        """Return a pending trial by its number.

        Raises:
            InvalidInput: There is none, or it has ended.
        """
        status = "unknown"
        if number < len(self.all):
            status = self.all[number].status
        if status != "pending":
            raise InvalidInput(
                f"trial {number} is {status}: nothing more can be reported about it. Report another measurement by its "
                "parameters, or replace the result by correct"
            )
        return self.all[number]

    def _finish(self, trial: Trial, event: Tell | Fail | Prune) -> None:
        """End a trial."""
        trial.measured = event.measured
        trial.seconds = event.seconds
        trial.finished = event.time
        self._ended.append(trial)


def _is_by_hand(event: Event) -> bool:
    """Return whether an event may come between two sessions, so that the time before it is no part of the run."""
    is_known_result = isinstance(event, Ask) and not event.asked
    return is_known_result or isinstance(event, Correct | Remove | Change)


def repetitions(trials: Iterable[Trial]) -> dict[int, int]:
    """Return for each trial that repeats an earlier one, by its number, the number of the first with its parameters."""
    first: dict[str, int] = {}
    repeated = {}
    for trial in trials:
        number = first.setdefault(repr(trial.params), trial.number)
        if number != trial.number:
            repeated[trial.number] = number
    return repeated


def out_of_order(starts: Iterable[Any]) -> int:
    """Return the number of trials that ended after a trial that began later.

    Args:
        starts: The times of their starts, in the order of their ends; running trials come last.
    """
    latest = None
    count = 0
    for start in starts:
        if latest is None or start > latest:
            latest = start
        elif start < latest:
            count += 1
    return count


def in_words(ways: Mapping[str, int]) -> list[str]:
    """Return a text with the number of trials for each of the ``WAYS`` that has any."""
    return [f"trials {way}: {count}" for way, count in ways.items() if count]


def measurements(trial: Trial, main: str) -> dict[str, float]:
    """Return all measurements of a trial by name: its value, if it has one, under the name ``main``, and the others."""
    if trial.value is None:
        return dict(trial.measured)
    named = {main: trial.value, **trial.measured}
    named[main] = trial.value
    return named
