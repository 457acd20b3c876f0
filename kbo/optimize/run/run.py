"""A run: the trials, their events, and the journal. It knows nothing of models."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from kbo._base import checks
from kbo.errors import AnotherProblem, AnotherSpace, InvalidInput, JournalError
from kbo.optimize.run.events import (
    LONGEST_REASON,
    Again,
    Ask,
    Change,
    Correct,
    Event,
    Fail,
    Header,
    Prune,
    Release,
    Remove,
    Report,
    SessionStart,
    Tell,
    TrialEvent,
    header_of,
    shortened,
    unfit,
)
from kbo.optimize.run.guard import Guard, guarded
from kbo.optimize.run.journal import Journal, differences, write
from kbo.optimize.run.journal_file import read_whole
from kbo.optimize.run.outcome import OBJECTIVE, outcome_of
from kbo.optimize.run.trials import Trial, Trials
from kbo.space import Params, Space
from kbo.workers.call import CallOutcome

log: logging.Logger = logging.getLogger("kbo")

MOST_STARTS = 2
"""Number of lost starts after which a trial has failed, since it may be what ends its process."""

_LOST = (
    f"lost: started {MOST_STARTS} times, and each time the process ended before its value was known"
)


class Run:
    """The trials of a run, which are evaluated elsewhere and reported here.

    Every event is written to the journal before it changes the trials, so the trials can always be computed from the
    record. A trial that has not ended is pending. A pending trial is running if it was begun or resumed here. Otherwise
    it is abandoned: its process ended, or the call that began it did not return. Several threads may share a run.

    Args:
        space: The search space.
        header: The description of the problem, in plain JSON values. A journal of another problem is refused.
        journal: Path of the journal; None keeps the run in memory.
        needed: Names of the measurements without which a trial has failed.
        value_range: The least and the largest possible value of the objective; None if they are not declared.
        allow_change: Whether the journal may have another space. The caller then replaces that space by ``change``.
        describe: Returns the description of the problem in another space; a journal may have begun in one.
        main: The name of the value among the measurements of a trial.

    Attributes:
        first_space: The search space before the first event.
        header: The description of the problem, as the first line of a journal holds it.
        needed, value_range, main: See the arguments.
        guard: The lock of the run, for objects whose methods use it.

    Raises:
        JournalError: The journal cannot be written, is damaged, or belongs to another problem.

    Example:
        >>> run = Run(Space({"x": (0.0, 1.0)}), {"about": "an example"}, "run.jsonl")
        >>> trial = run.begin({"x": 0.5})
        >>> run.complete(trial, 0.25)
    """

    def __init__(
        self,
        space: Space,
        header: Mapping[str, Any],
        journal: str | os.PathLike[str] | None = None,
        needed: Iterable[str] = (),
        value_range: tuple[float, float] | None = None,
        allow_change: bool = False,
        describe: Callable[[Space], Mapping[str, Any]] | None = None,
        main: str = OBJECTIVE,
    ) -> None:
        allow_change = checks.flag("allow_change", allow_change)
        self._space = space
        self.first_space: Space = space
        self._spaces = [space]  # with constraint functions, which a journal cannot hold
        self.value_range: tuple[float, float] | None = checks.maybe(
            checks.interval, "value_range", value_range
        )
        self.header: Header = header_of(header)
        self.guard: Guard = Guard(self._rebuild)
        self.needed: list[str] = list(needed)
        self.main: str = main
        self._epoch = time.time() - time.monotonic()
        self._warned_of: set[str] = set()  # names of measurements that were not kept
        self._journal: Journal | None = None
        events: list[Event] = []
        if journal is not None:
            self._journal = Journal(checks.path("journal", journal), self.header)
        try:
            if self._journal is not None:
                check = partial(self._check_problem, self._journal.path, describe, allow_change)
                events = self._journal.recover(check)
            self._start(events)
        except BaseException:
            self.close()
            raise

    # What happened

    @property
    @guarded
    def space(self) -> Space:
        """The search space after the events."""
        return self._space

    @property
    @guarded
    def trials(self) -> Trials:
        """The trials."""
        return self._trials

    @property
    @guarded
    def events(self) -> list[Event]:
        """The events so far, oldest first."""
        return list(self._events)

    @property
    def path(self) -> str | None:
        """The path of the journal; None without one."""
        if self._journal is None:
            return None
        return str(self._journal.path)

    @guarded
    def abandoned(self) -> list[Trial]:
        """Return the abandoned trials: pending, but evaluated by nobody, in the order of their starts."""
        pending = self._trials.pending.values()
        return [trial for trial in pending if trial.number not in self._running]

    # Trials begin

    @guarded
    def begin(self, params: Params, proposal: Mapping[str, str | float] | None = None) -> Trial:
        """Begin a trial with parameters, and return it: it is pending and running.

        Args:
            params: The parameters.
            proposal: The reason why they were chosen, in plain JSON values.

        Raises:
            InvalidInput: Parameters outside the space.
        """
        trial = self._begin(params, proposal=proposal)
        self._running.add(trial.number)
        return trial

    @guarded
    def resume(self, trial: Trial) -> Trial:
        """Let an abandoned trial run, and return it.

        This counts as another start of the trial only if it was running before.
        """
        if trial.number in self._lost:
            self._record(Again(number=trial.number))
            self._lost.discard(trial.number)
        self._running.add(trial.number)
        return trial

    @guarded
    def abandon(self, trials: Iterable[Trial]) -> None:
        """Mark trials as abandoned that were begun or resumed, but never reached their evaluation."""
        self._running.difference_update(trial.number for trial in trials)

    @guarded
    def lose(self, trial: Trial, reason: str) -> Trial:
        """Record that the worker of a trial died. The trial is abandoned; after its second lost start it has failed."""
        if _may_end_its_process(trial):
            reason = checks.text("reason", reason)
            return self._fail(
                trial.number, f"{reason}; the trial was started {MOST_STARTS} times", None, {}
            )
        self._running.discard(trial.number)
        self._lost.add(trial.number)
        return trial

    @guarded
    def release(self) -> None:
        """Record that the run ended while trials were running: they are abandoned, and their starts do not count."""
        for number in list(self._trials.pending):
            if number not in self._lost:
                self._record(Release(number=number))
                self._running.discard(number)
                self._lost.add(number)

    @guarded
    def fail_lost(self) -> None:
        """Let the abandoned trials fail that were started twice and lost each time."""
        for trial in self.abandoned():
            if trial.number in self._lost and _may_end_its_process(trial):
                self._fail(trial.number, _LOST, None, {})
                log.warning("trial %d failed: %s", trial.number, trial.failure)

    # Trials end

    @guarded
    def complete(
        self, params: Trial | int | Params, value: Any, seconds: float | None = None
    ) -> Trial:
        """Record the value of a trial; arguments and errors as for ``Optimizer.tell``."""
        seconds = checks.maybe(checks.non_negative, "seconds", seconds)
        number = self._number_of(params)
        outcome = outcome_of(value, self.needed, self.value_range, main=self.main)
        if outcome.value is None or outcome.failure:
            measured = outcome.measured
            if outcome.value is not None:
                measured = {self.main: outcome.value, **measured}
            trial = self._fail(number, outcome.failure, seconds, measured)
            log.warning("trial %d failed: %s", number, trial.failure)
            return trial
        self._warn_of(outcome.unusable, number)
        return self._record(
            Tell(number=number, value=outcome.value, measured=outcome.measured, seconds=seconds)
        )

    def outcome(self, value: Any) -> tuple[float, dict[str, float]]:
        """Return the value and the other measurements of a result, as they are recorded.

        Raises:
            InvalidInput: The value is incomplete or not finite.
        """
        expected = "value must be a finite number, got"
        outcome = outcome_of(value, self.needed, self.value_range, expected, self.main)
        if outcome.value is None or outcome.failure:
            raise InvalidInput(f"{outcome.failure}.")
        return outcome.value, outcome.measured

    @guarded
    def add(self, params: Params, value: Any) -> Trial:
        """Record a known result as a new trial, also if a trial with these parameters is pending.

        Raises:
            InvalidInput: Parameters outside the space, or a value that is incomplete or not finite.
        """
        number, measured = self.outcome(value)
        trial = self._begin(params, asked=False)
        return self._record(Tell(number=trial.number, value=number, measured=measured))

    @guarded
    def fail(
        self,
        params: Trial | int | Params,
        reason: str,
        seconds: float | None = None,
        measured: Mapping[str, float] | None = None,
    ) -> Trial:
        """Record that a trial failed; arguments as for ``Optimizer.fail``."""
        reason = checks.text("reason", reason)
        seconds = checks.maybe(checks.non_negative, "seconds", seconds)
        measured = _checked(measured)
        return self._fail(self._number_of(params), reason, seconds, measured)

    @guarded
    def prune(
        self,
        params: Trial | int | Params,
        seconds: float | None = None,
        measured: Mapping[str, float] | None = None,
    ) -> Trial:
        """Record that a trial was stopped early; arguments as for ``Optimizer.prune``."""
        seconds = checks.maybe(checks.non_negative, "seconds", seconds)
        measured = _checked(measured)
        return self._record(
            Prune(number=self._number_of(params), measured=measured, seconds=seconds)
        )

    @guarded
    def end(self, outcome: CallOutcome) -> Trial:
        """Record the end of a worker's call and return its trial; a trial that must be started again is pending."""
        trial = self._trials.all[outcome.number]
        if trial.status == "removed":
            log.warning("trial %d was removed while it ran: its result is left out", trial.number)
            return trial
        if outcome.died:
            self.lose(trial, outcome.failure or "")
        elif outcome.stopped:
            measured = outcome_of(outcome.value, ()).measured
            return self.prune(trial, outcome.seconds, measured)
        elif outcome.failure is None:
            return self.complete(trial, outcome.value, outcome.seconds)
        else:
            self.fail(trial, outcome.failure, outcome.seconds)
        if trial.failure is None:
            log.warning("trial %d is started again: %s", trial.number, outcome.failure)
            return trial
        log.warning("trial %d failed: %s", trial.number, trial.failure)
        if outcome.trace:
            log.info("where it failed:\n%s", outcome.trace)
        return trial

    # Corrections, changes of the space

    @guarded
    def correct(self, trial: Trial | int, value: Any) -> Trial:
        """Record another result of a trial that has ended; arguments and errors as for ``Optimizer.correct``."""
        ended = self._trials.ended(trial)
        number, measured = self.outcome(value)
        return self._record(Correct(number=ended.number, value=number, measured=measured))

    @guarded
    def remove(self, trial: Trial | int, reason: str) -> Trial:
        """Record that a trial does not count; arguments and errors as for ``Optimizer.remove``."""
        known = self._trials.known(trial)
        if known.status == "removed":
            raise InvalidInput(f"trial {known.number} is removed already.")
        reason = shortened(checks.text("reason", reason), LONGEST_REASON)
        return self._record(Remove(number=known.number, reason=reason))

    @guarded
    def change(
        self, space: Space, was: Mapping[str, Any] | None = None, same_scale: bool = False
    ) -> None:
        """Record that the space changes; errors as for ``Optimizer.change``.

        Args:
            space: The new space.
            was: Values of new parameters for the trials so far, by name.
            same_scale: Whether numbers keep the scale on which the kernel compared them.
        """
        space.replacing(self.space, same_scale)  # raises if it cannot
        values = {}
        for name, value in (was or {}).items():
            if name not in space.parameters:
                raise InvalidInput(
                    f"was: there is no parameter {checks.shown(name)}; the parameters are {list(space.parameters)}."
                )
            with checks.inside(f"was: parameter {name!r}"):
                values[name] = checks.plain(value)
                space.parameters[name].columns_of(values[name])
        self._spaces.append(space)
        self._log(
            Change(space=space.describe(), was=values, same_scale=same_scale, time=self._now())
        )

    # Reports, sessions

    @guarded
    def report(self, params: Trial | int | Params, value: float, *, step: int) -> Trial:
        """Record a report of a running trial; arguments and errors as for ``Optimizer.report``."""
        step = checks.whole("step", step, 0)
        value = checks.number("value", value)
        number = self._number_of(params)
        return self._record(Report(number=number, step=step, value=value))

    @guarded
    def open_session(self, **limits: Any) -> float:
        """Record that a loop begins, with its budgets, and return the seconds that earlier sessions have taken."""
        seconds = self._trials.seconds
        self._epoch = time.time() - time.monotonic()
        self._log(SessionStart(time=self._now(), **limits))
        return seconds

    # The record

    @guarded
    def follow(self, event: Event) -> None:
        """Record an event of another run of this problem.

        Raises:
            InvalidInput: The event cannot follow the earlier ones.
        """
        self._log(event)

    @guarded
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the whole run as a journal; ``path`` is replaced in one step."""
        write(checks.path("path", path), self.header, self._events)

    @guarded
    def load(self, path: Path) -> None:
        """Replace the run by that of another journal, which is left as it is.

        Raises:
            JournalError: Not a journal, damaged, or of another problem; the run is left as it was.
        """
        if self._journal is not None:
            raise JournalError(
                "this optimiser writes a journal already: pass journal=path to a new one instead."
            )
        contents = read_whole(path)
        different = differences(contents.header, self.header)
        if different:
            raise JournalError(f"{path} belongs to another problem:{_in_lines(different)}")
        self._start(contents.events)

    @guarded
    def restore(self, events: list[Event], space: Space) -> None:
        """Replace the run in memory by the run of some events, which end in the given space."""
        self._spaces.append(space)
        self._start(events)

    @guarded
    def close(self) -> None:
        """Release the journal; the trials can still be read."""
        if self._journal is not None:
            self._journal.close()

    def _check_problem(
        self,
        path: Path,
        describe: Callable[[Space], Mapping[str, Any]] | None,
        allow_change: bool,
        header: Header,
        events: Iterable[Event],
    ) -> None:
        """Check that a journal belongs to this problem, and begin in its first space.

        Raises:
            AnotherProblem: The journal belongs to another problem; ``AnotherSpace`` if only the space differs.
        """
        recorded = _at_end(header, events)
        expected = self.header
        different = differences(recorded, expected)
        other = different  # what differs besides the space
        if describe is not None and "space" in header:
            if header["space"] != expected["space"]:
                self._begin_in(header, describe)
            same = {"space": expected["space"], "named": expected["named"]}
            expected = {**self.header, **same}
            different = differences(recorded, expected)
            other = differences(recorded, {**expected, "space": recorded["space"]})
        if not different or (allow_change and not other):
            return
        message = (
            f"the journal {path} belongs to another problem:{_in_lines(different)}\n"
            "Continue it with the same arguments, or"
        )
        advice = (
            "A new one can begin with the results of this one, as far as they fit: "
            f"evaluated={str(path)!r}, or --evaluated {path}."
        )
        if other:
            raise AnotherProblem(f"{message} start a new one with another path. {advice}")
        raise AnotherSpace(
            f"{message} go on with its trials in the new space by allow_change=True (or --allow-change), with the "
            f"values that new parameters had so far in was={{...}} (`kbo ask`: --was name=value). {advice}",
            _in_lines(different),
        )

    def _begin_in(self, header: Header, describe: Callable[[Space], Mapping[str, Any]]) -> None:
        """Begin in the space that the header of a journal describes."""
        space: Any = header["space"]
        self.first_space = Space.from_description(space, bool(header.get("named"))).on(
            self.space.device
        )
        try:
            self.header = header_of(describe(self.first_space))
        except InvalidInput as error:
            raise AnotherProblem(
                f"the journal begins in a space to which this problem does not belong: {error} Start a new one with "
                "another path."
            ) from error

    def _start(self, events: list[Event]) -> None:
        """Continue the run of some events; none of its trials is running here."""
        self._events = events
        self._n_events_before = len(events)
        self._running: set[int] = set()  # numbers of trials that were begun or resumed here
        self._trials = self._computed()
        self._lost = set(self._trials.pending)  # trials that were running before, and are not now

    def _rebuild(self) -> None:
        """Compute the trials from the record again, after an interrupt."""
        if self._journal is not None:
            self._events = self._journal.continued(self._events)
        self._trials = self._computed()
        for event in self._events[self._n_events_before :]:
            if isinstance(event, Again):
                self._lost.discard(event.number)
            elif isinstance(event, Release):
                self._lost.add(event.number)

    def _computed(self) -> Trials:
        """Return the trials that the events describe, and set the space to that after the events."""
        name = "the run"
        if self._journal is not None:
            name = self._journal.path
        trials = Trials.of(self.first_space, self._events, name)
        self._space = trials.space.on(self.first_space.device)
        for space in self._spaces:
            if trials.space.changed and space.describe() == self._space.describe():
                self._space = space.compares_as(trials.space)
        trials.space = self._space
        return trials

    def _record(self, event: TrialEvent) -> Trial:
        """Record an event at this time, and return its trial."""
        event.time = self._now()
        self._log(event)
        return self._trials.all[event.number]

    def _log(self, event: Event) -> None:
        """Write an event to disk, then apply it to the trials: so memory is never ahead of the disk."""
        if self._journal is not None:
            self._journal.append(event)
        self._events.append(event)
        if isinstance(event, Correct | Remove | Change):  # they change earlier results
            self._trials = self._computed()
        else:
            self._trials.add(event)

    def _begin(
        self,
        params: Params,
        asked: bool = True,
        proposal: Mapping[str, str | float] | None = None,
    ) -> Trial:
        """Record that a trial begins, and return it; arguments as for ``Ask``."""
        params = self.space.canonical(params)
        return self._record(
            Ask(
                number=len(self._trials.all),
                params=params,
                asked=asked,
                proposal=dict(proposal or {}),
            )
        )

    def _fail(
        self, number: int, reason: str, seconds: float | None, measured: dict[str, float]
    ) -> Trial:
        """Record that a trial failed, with its reason shortened, and return it."""
        reason = shortened(reason, LONGEST_REASON)
        return self._record(Fail(number=number, reason=reason, measured=measured, seconds=seconds))

    def _number_of(self, params: Trial | int | Params) -> int:
        """Return the number of a trial, or of the pending trial with these parameters; if there is none, of a new one.

        Of several such pending trials it is the one that was started last. Certified bounds wait for the one that was
        started first, and its value comes last; so nobody can select values by the order of the reports.
        """
        if isinstance(params, Trial | int):
            return self._trials.unfinished(params).number
        carried = self.space.carried(params)
        for trial in reversed(self._trials.pending.values()):
            begun = self._trials.begun[trial.number]  # before a change of the space
            if trial.params == carried or (self.space.changed and begun == params):
                return trial.number
        return self._begin(params, asked=False).number

    def _warn_of(self, unusable: Mapping[str, Any], number: int) -> None:
        """Warn that measurements of a trial are no finite numbers, once for each name."""
        for name, entry in unusable.items():
            if name not in self._warned_of:
                self._warned_of.add(name)
                log.warning(
                    "the measurement %r of trial %d is not kept, since it is no finite number: %s",
                    name,
                    number,
                    checks.shown(entry),
                )

    def _now(self) -> float:
        """Return the time in seconds since 1970, by a monotonic clock within one session."""
        return round(self._epoch + time.monotonic(), 3)


def _at_end(header: Header, events: Iterable[Event]) -> Header:
    """Return a header with the space after the last of some events."""
    latest = dict(header)
    for event in events:
        if isinstance(event, Change):
            latest["space"] = event.space  # pyright: ignore[reportArgumentType]
    return latest


def _in_lines(texts: Sequence[str]) -> str:
    """Return one indented line for each text."""
    return "".join(f"\n  {text}" for text in texts)


def _may_end_its_process(trial: Trial) -> bool:
    """Return whether a trial, if it is lost now, was lost so often that it may be what ends its process."""
    return trial.starts - trial.released >= MOST_STARTS


def _checked(measured: Mapping[str, float] | None) -> dict[str, float]:
    """Return the measurements that a user reports as floats, by name.

    Raises:
        InvalidInput: One of them is no finite number, or a journal cannot hold them.
    """
    numbers = {}
    for name, value in (measured or {}).items():
        numbers[name] = checks.number(f"measured {name!r}", value)
    if numbers and (reason := unfit(numbers)):
        raise InvalidInput(f"measured: {reason}")
    return numbers
