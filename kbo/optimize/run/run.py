"""A run: its trials, what happens to them, and the journal that it can be computed from."""

from __future__ import annotations

import logging
import os
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Never

from kbo._base import checks
from kbo._base.surroundings import fixed
from kbo.errors import InvalidInput, JournalError
from kbo.optimize.constraint import Constraint
from kbo.optimize.run.events import (
    LONGEST_REASON,
    Again,
    Ask,
    Event,
    Fail,
    Header,
    Prune,
    Release,
    Report,
    Session,
    Tell,
    TrialEvent,
    header_of,
    shortened,
    unfit,
)
from kbo.optimize.run.guarded import Guarded, guarded
from kbo.optimize.run.journal import Journal, differences, read, write
from kbo.optimize.run.outcome import OBJECTIVE, Outcome, outcome_of
from kbo.optimize.run.trials import Trial, Trials, violations
from kbo.space import Params, Space
from kbo.workers import call
from kbo.workers.call import check_step_by_name

log: logging.Logger = logging.getLogger("kbo")

MOST_STARTS = 2
"""Starts of a trial whose process ended; then it is failed, since it may be what ends the process."""

_LOST = (
    f"lost: started {MOST_STARTS} times, and each time the process ended before its value was known"
)


class Run(Guarded):
    """Trials that are begun elsewhere and reported here.

    Args:
        space: The search space.
        journal: Path of the journal; None keeps the run in memory.
        constraints: Limits on what every trial measures.
        value_range: The least and the largest possible value of the objective; None if they are not known.

    Raises:
        JournalError: The journal cannot be written, is damaged, or belongs to another problem.
    """

    def __init__(
        self,
        space: Space,
        journal: str | os.PathLike[str] | None,
        constraints: Sequence[Constraint] = (),
        value_range: tuple[float, float] | None = None,
    ) -> None:
        super().__init__()
        self.space: Space = space
        self.constraints: tuple[Constraint, ...] = tuple(constraints)
        self.value_range: tuple[float, float] | None = checks.maybe(
            checks.interval, "value_range", value_range
        )
        self._epoch = time.time() - time.monotonic()
        self._unusable: set[str] = set()  # names of measurements of which a warning was given
        self._measures: list[str] = [c.name for c in self.constraints if c.name != OBJECTIVE]
        self._journal = (
            None if journal is None else Journal(checks.path("journal", journal), self._header())
        )
        try:
            self._open([] if self._journal is None else self._journal.recover())
        except BaseException:
            self.close()
            raise

    @abstractmethod
    def _header(self) -> dict[str, Any]:
        """Return the description of the problem."""

    @property
    @guarded
    def trials(self) -> list[Trial]:
        """Every trial, in the order of their starts."""
        return self._trials.all

    @property
    @guarded
    def n_finished(self) -> int:
        """The number of trials that were begun here and have a value, failed or were stopped early."""
        return self._trials.n_finished

    @property
    @fixed
    def header(self) -> Header:
        """The description of the problem, as in the first line of a journal."""
        return header_of(self._header())

    @property
    @guarded
    def events(self) -> list[Event]:
        """The events so far, oldest first."""
        return list(self._events)

    @guarded
    def events_from(self, number: int) -> list[Event]:
        """Return the events from a number on, oldest first."""
        return self._events[number:]

    @guarded
    def completed(self) -> list[Trial]:
        """Return the trials with a value."""
        return list(self._trials.complete)

    @guarded
    def within_limits(self) -> list[Trial]:
        """Return the trials with a value whose parameters and measurements keep all constraints."""
        allowed = self._allowed(self._trials.complete)
        return [trial for trial in allowed if not violations(trial, self.constraints)]

    def _allowed(self, trials: list[Trial]) -> list[Trial]:
        """Return the trials whose parameters satisfy the constraints of the space."""
        if not self.space.constraints:
            return trials
        fresh = self._trials.all[len(self._permitted) :]
        self._permitted += [not self.space.violated(trial.params) for trial in fresh]
        return [trial for trial in trials if self._permitted[trial.number]]

    @guarded
    def failed(self) -> list[Trial]:
        """Return the trials that failed."""
        return list(self._trials.failed)

    @guarded
    def pruned(self) -> list[Trial]:
        """Return the trials that were stopped early."""
        return list(self._trials.pruned)

    @guarded
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the whole run as a journal, replacing ``path`` in one step."""
        write(checks.path("path", path), self._header(), self._events)

    def load(self, path: str | os.PathLike[str] | None = None) -> None:
        """Replace the run by a saved one of the same problem.

        Raises:
            InvalidInput: It is called on the class.
            JournalError: Not a journal, damaged, or of another problem; the run is left as it was.
        """
        if not isinstance(self, Run):
            raise InvalidInput(
                "load is a method of an optimiser, not of the class, since a journal has no kernels and no functions: "
                "Optimizer(bounds, ...).load(path) with the arguments of the run, or Optimizer(bounds, ..., "
                "journal=path), which continues the journal."
            )
        self._load(checks.path("path", path))

    @guarded
    def _load(self, path: Path) -> None:
        if self._journal is not None:
            raise JournalError(
                "this optimiser writes a journal already: pass journal=path to a new one instead."
            )
        header, events = read(path)
        different = differences(header, self.header)
        if different:
            raise JournalError(f"{path} belongs to another problem ({different}).")
        Trials.of(self.space, events, path)
        self._open(events)

    @guarded
    def close(self) -> None:
        """Release the journal; what is known can still be read."""
        if self._journal is not None:
            self._journal.close()

    @guarded
    def expect(self, params: Params) -> Trial:
        """Record that parameters are being evaluated, whoever chose them: a new pending trial."""
        trial = self._expect(params)
        self._running.add(trial.number)
        return trial

    def _expect(
        self, params: Params, asked: bool = True, proposal: Mapping[str, str | float] | None = None
    ) -> Trial:
        event = Ask(
            number=len(self._trials.all),
            params=self.space.canonical(params),
            asked=asked,
            proposal=dict(proposal or {}),
            time=self._now(),
        )
        return self._record(event)

    @guarded
    def tell(self, params: Trial | Params, value: Any, seconds: float | None = None) -> Trial:
        """Report the value at parameters returned by ``ask`` or ``begin``, a trial itself, or at any other parameters.

        With other measurements the value is ``(value, {"memory": 7.2})`` or ``{"objective": value, "memory": 7.2}``,
        and with its standard error ``(value, {"sem": 0.02})``.
        None, NaN, infinite values and what is no real number (text, booleans, complex numbers) are recorded as failures
        and never reach the model, and so are values outside ``value_range`` and missing measurements of constraints;
        those that came are kept. A warning on the log says why the trial failed, and which measurements were not kept.

        Raises:
            InvalidInput: A trial that has ended, parameters outside the space, or seconds that are no finite number of
                at least 0.
        """
        seconds = checks.maybe(checks.non_negative, "seconds", seconds)
        number = self._number_of(params)
        found = outcome_of(value, self._measures, self.value_range)
        if found.value is None or found.failure:
            own = {} if found.value is None else {OBJECTIVE: found.value}
            trial = self._fail(number, found.failure, seconds, {**own, **found.measured})
            log.warning("trial %d failed: %s", number, trial.failure)
            return trial
        self._warn_of_unusable(number, found)
        return self._record(
            Tell(
                number=number,
                value=found.value,
                measured=found.measured,
                seconds=seconds,
                time=self._now(),
            )
        )

    def _warn_of_unusable(self, number: int, outcome: Outcome) -> None:
        """Warn of measurements that are no finite numbers, of each name once."""
        for name, entry in outcome.unusable.items():
            if name not in self._unusable:
                self._unusable.add(name)
                log.warning(
                    "the measurement %r of trial %d is not kept, since it is no finite number: %s",
                    name,
                    number,
                    checks.shown(entry),
                )

    @guarded
    def add(self, params: Params, value: Any) -> Trial:
        """Record a result that is known as a trial of its own, also if one with these parameters is pending.

        Raises:
            InvalidInput: Parameters outside the space, or a value as for ``tell`` that is not finite or incomplete.
        """
        found = outcome_of(
            value, self._measures, self.value_range, "value must be a finite number, got"
        )
        if found.value is None or found.failure:
            raise InvalidInput(f"{found.failure}.")
        number = self._expect(params, asked=False).number
        return self._record(
            Tell(number=number, value=found.value, measured=found.measured, time=self._now())
        )

    @guarded
    def fail(
        self,
        params: Trial | Params,
        reason: str,
        seconds: float | None = None,
        measured: Mapping[str, float] | None = None,
    ) -> Trial:
        """Report that the evaluation of a trial, or at these parameters, failed, with the reason as text.

        What was ``measured`` of the quantities of constraints before it failed counts.
        """
        reason = checks.text("reason", reason)
        seconds = checks.maybe(checks.non_negative, "seconds", seconds)
        return self._fail(self._number_of(params), reason, seconds, _measurements(measured))

    def _fail(
        self,
        number: int,
        reason: str,
        seconds: float | None,
        measured: Mapping[str, float] | None = None,
    ) -> Trial:
        reason = shortened(reason, LONGEST_REASON)
        return self._record(
            Fail(
                number=number,
                reason=reason,
                measured=dict(measured or {}),
                seconds=seconds,
                time=self._now(),
            )
        )

    @guarded
    def report(
        self, params: Trial | Params, value: float, *others: Never, step: int | None = None
    ) -> Trial:
        """Record what a running trial reports at a step, for example the validation error after an epoch.

        Args:
            params: The trial or its parameters.
            value: The value, a finite number.
            others: None: the step is given by name only.
            step: The step, a whole number of at least 0; needed.

        Raises:
            InvalidInput: A trial that has ended, a step that is not given by name or no such number, or a value that is
                not finite.
        """
        check_step_by_name("optimizer.report(trial, value, step=step)", others, step)
        step = checks.whole("step", step, 0)
        value = checks.number("value", value)
        return self._record(
            Report(number=self._number_of(params), step=step, value=value, time=self._now())
        )

    @guarded
    def prune(
        self,
        params: Trial | Params,
        seconds: float | None = None,
        measured: Mapping[str, float] | None = None,
    ) -> Trial:
        """Record that a trial was stopped early because of what it reported: it has no value.

        What was ``measured`` of other quantities counts.
        """
        seconds, found = (
            checks.maybe(checks.non_negative, "seconds", seconds),
            _measurements(measured),
        )
        return self._record(
            Prune(number=self._number_of(params), measured=found, seconds=seconds, time=self._now())
        )

    @guarded
    def lose(self, trial: Trial, reason: str) -> Trial:
        """Record that the worker of a trial died; ``begin`` starts it again, and the second time it is failed."""
        if trial.starts - trial.released >= MOST_STARTS:
            return self._fail(
                trial.number,
                f"{checks.text('reason', reason)}; the trial was started {MOST_STARTS} times",
                None,
            )
        self._running.discard(trial.number)
        self._lost.add(trial.number)
        return trial

    @guarded
    def release(self) -> None:
        """Record that the run ended while trials were running: the next run starts them again, and none was lost."""
        for number in [number for number in self._trials.pending if number not in self._lost]:
            self._record(Release(number=number, time=self._now()))
            self._running.discard(number)
            self._lost.add(number)

    @guarded
    def open_session(self, **limits: Any) -> float:
        """Record that a loop begins, with its limits; return the seconds that those before it have taken."""
        before, self._epoch = self._trials.seconds, time.time() - time.monotonic()
        self._log(Session(time=self._now(), **limits))
        return before

    @guarded
    def fail_lost(self) -> list[Trial]:
        """Fail the pending trials that were started twice and lost each time: they may be what ends the process.

        ``ask`` does so too.
        """
        return self._fail_lost()

    def _fail_lost(self) -> list[Trial]:
        idle = self._idle(self._running)
        lost = [t for t in idle if t.number in self._lost and t.starts - t.released >= MOST_STARTS]
        failed = [
            self._record(Fail(number=trial.number, reason=_LOST, time=self._now()))
            for trial in lost
        ]
        for trial in failed:
            log.warning("trial %d failed: %s", trial.number, trial.failure)
        return failed

    def _idle(self, running: set[int]) -> list[Trial]:
        """Return the pending trials that are not running: nobody will report their values."""
        return [trial for trial in self._trials.pending.values() if trial.number not in running]

    def _number_of(self, params: Trial | Params) -> int:
        """Return the number of a trial, or of the pending one with these parameters; of a new one if there is none.

        Of several the one that was started last: then the first one, for which reported bounds wait, reports when all
        have, and nobody can choose which of their values comes first.
        """
        if isinstance(params, Trial):
            return self._trials.unfinished(params.number).number
        params = self.space.canonical(params)
        for trial in reversed(self._trials.pending.values()):
            if trial.params == params:
                return trial.number
        return self._expect(params, asked=False).number

    def _again(self, trial: Trial) -> None:
        """Start a trial that is on record, if nobody has here: otherwise the call that began it did not return."""
        if trial.number in self._lost:
            self._record(Again(number=trial.number, time=self._now()))
            self._lost.discard(trial.number)

    def _record(self, event: TrialEvent) -> Trial:
        """Write an event to disk, then apply it: the disk is never behind, and memory can be computed from it."""
        self._log(event)
        return self._trials.all[event.number]

    def _log(self, event: Event) -> None:
        if self._journal is not None:
            self._journal.append(event)
        self._events.append(event)
        self._trials.add(event)

    @guarded
    def follow(self, event: Event) -> None:
        """Apply an event of a run of the same problem, which is after those that are known.

        Raises:
            JournalError: It does not fit them.
        """
        self._log(event)

    def _open(self, events: list[Event]) -> None:
        """Continue a run of which these events are known."""
        self._events, self._n_known = events, len(events)
        self._running: set[int] = set()  # trials that were handed out here
        self._compute()
        self._lost = set(
            self._trials.pending
        )  # trials that were handed out before, and not again here

    def _rebuild(self) -> None:
        if self._journal is not None:
            self._events = self._journal.continued(self._events)
        self._compute()
        for event in self._events[self._n_known :]:
            if isinstance(event, Again):
                self._lost.discard(event.number)
            elif isinstance(event, Release):
                self._lost.add(event.number)

    def _compute(self) -> None:
        """Compute the trials from the events."""
        self._permitted: list[
            bool
        ] = []  # of which trials the parameters satisfy the constraints of the space
        self._trials = Trials.of(
            self.space, self._events, "the run" if self._journal is None else self._journal.path
        )

    def _now(self) -> float:
        """Return the time in seconds since 1970, by a clock that nobody sets while a loop runs."""
        return round(self._epoch + time.monotonic(), 3)


def _measurements(given: Mapping[str, float] | None) -> dict[str, float]:
    """Return given measurements, checked."""
    found = {
        name: checks.number(f"measured {name!r}", value) for name, value in (given or {}).items()
    }
    if found and (reason := unfit(found)):
        raise InvalidInput(f"measured: {reason}")
    return found


def recorded(run: Run, outcome: call.Outcome) -> Trial:
    """Record the end of a call in a run, and return its trial, which is pending if it is started again."""
    trial = run.trials[outcome.number]
    if outcome.died:
        run.lose(trial, outcome.failure or "")
        if trial.failure is None:
            log.warning("trial %d is started again: %s", trial.number, outcome.failure)
            return trial
    elif outcome.stopped:
        return run.prune(trial, outcome.seconds, outcome_of(outcome.value, ()).measured)
    elif outcome.failure is None:
        return run.tell(trial, outcome.value, outcome.seconds)
    else:
        run.fail(trial, outcome.failure, outcome.seconds)
    if trial.failure is not None:
        log.warning("trial %d failed: %s", trial.number, trial.failure)
        if outcome.trace:
            log.info("where it failed:\n%s", outcome.trace)
    return trial
