"""Replay of a run: the bounds at the recommended trial after earlier trials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from kbo._base.isolation import isolated
from kbo.errors import KboError
from kbo.optimize import Optimizer, Trial
from kbo.optimize.run.events import Correct, Event, Fail, Prune, Remove, Tell
from kbo.report.record import Record, Run

MOST_MOMENTS = 120
"""Largest number of moments of a run with few values."""

MOST_FITTED = 500
"""Number of values up to which a run in the practical setting is replayed: a fit costs the cube of their number."""

_SHORT = 600
"""A run with more values has fewer moments, since a moment costs the cube of their number."""

_LEAST_MOMENTS = 20
"""Smallest limit on the number of moments of such a run."""


@dataclass(frozen=True)
class Moment:
    """The state of a run after a trial; values are in units of the objective.

    Attributes:
        finished: The number of trials that have ended, also failed ones.
        trial: The number of the trial whose value was observed last.
        value: The value of this trial.
        recommended: The number of the recommended trial.
        lower, mean, upper: The interval of the function at the recommended trial; None if there is no bound.
        trouble: The reason why there is no bound although there were enough data, for example a contradiction.
    """

    finished: int
    trial: int
    value: float
    recommended: int | None = None
    lower: float | None = None
    mean: float | None = None
    upper: float | None = None
    trouble: str = ""


@isolated
def history(run: Run) -> list[Moment]:
    """Replay a run, and return its states after completed trials, in the order in which their values were observed.

    A corrected value is replayed as if it had been reported at first. A removed value is left out.

    Args:
        run: The run.

    Returns:
        The moments, evenly spaced; the last one is the end of the run. In the practical setting, other moments after
        more than ``MOST_FITTED`` values are left out.

    Raises:
        JournalError: The journal cannot be read, or was made with another kernel.
        InvalidInput: The run cannot be replayed; the message says why.
    """
    record = Record.of(run)
    record = replace(record, events=_with_final_results(record))
    observed = [event.number for event in record.events if isinstance(event, Tell)]
    if not observed:
        return []
    replayed = observed
    if not record.reopened().setting.certified:
        replayed = observed[:MOST_FITTED]
    share = min(1.0, (_SHORT / len(replayed)) ** 2)
    most = max(_LEAST_MOMENTS, round(MOST_MOMENTS * share))
    watched = [number for number in _spaced(replayed, most) if number != observed[-1]]
    return [*_replay(record, watched), _moment_at_end(record, observed[-1])]


def _with_final_results(record: Record) -> list[Event]:
    """Return the events of a run, changed so that each trial ends at first with its final result."""
    changed = {
        trial.number for trial in record.trials if trial.corrected or trial.removed is not None
    }
    events: list[Event] = []
    ended: set[int] = set()
    for event in record.events:
        is_result = isinstance(event, Tell | Fail | Prune | Correct | Remove)
        if not is_result or event.number not in changed:
            events.append(event)
        elif event.number not in ended:
            ended.add(event.number)
            events.append(_final_result(record.trials[event.number], event.time))
    return events


def _final_result(trial: Trial, time: float | None) -> Tell | Remove:
    """Return the event with the final result of a corrected or removed trial."""
    if trial.value is None:
        return Remove(number=trial.number, reason=trial.removed or "", time=time)
    return Tell(number=trial.number, value=trial.value, measured=trial.measured, time=time)


def _replay(record: Record, watched: Sequence[int]) -> list[Moment]:
    """Return the moments after the values of the watched trials, whose numbers are in the order of their values."""
    optimizer = record.blank()
    moments: list[Moment] = []
    finished = 0
    trouble = ""
    for event in record.events:
        if len(moments) == len(watched):
            break
        optimizer.run.follow(event)
        finished += isinstance(event, Tell | Fail | Prune | Remove)
        if not isinstance(event, Tell) or event.number not in watched:
            continue
        bounds = {}
        if not trouble:
            bounds, trouble = _bounds(optimizer)
        moments.append(Moment(finished, event.number, event.value, **bounds, trouble=trouble))
    return moments


def _moment_at_end(record: Record, number: int) -> Moment:
    """Return the moment at the end of the run, after the trial with the last value and trials without a value."""
    bounds, trouble = _bounds(record.reopened())
    finished = len(record.trials) - len(record.with_status("pending"))
    value = record.trials[number].value or 0.0
    return Moment(finished, number, value, **bounds, trouble=trouble)


def _bounds(optimizer: Optimizer) -> tuple[dict[str, Any], str]:
    """Return the recommended trial and its bounds, as arguments of ``Moment``, and the reason if an error occurs."""
    try:
        best = optimizer.recommended()
        if best is None:
            return {}, ""
        interval = optimizer.interval(best.params)
    except KboError as error:
        return {}, str(error)
    bounds: dict[str, Any] = {"recommended": best.number}
    if interval is not None:
        bounds["lower"], bounds["mean"], bounds["upper"] = interval
    return bounds, ""


def _spaced(numbers: Sequence[int], most: int) -> Sequence[int]:
    """Return at most ``most`` of the numbers, evenly spaced, with the last one."""
    if len(numbers) <= most:
        return numbers
    spacing = len(numbers) / most
    return [numbers[round((i + 1) * spacing) - 1] for i in range(most)]
