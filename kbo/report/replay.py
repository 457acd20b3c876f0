"""Replay of a run: the bounds after each trial, and the expected range of each value before it was observed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpytorch.kernels import Kernel

from kbo._base.isolation import isolated
from kbo.errors import KboError
from kbo.optimize import Optimizer, Trial
from kbo.optimize.run.events import Correct, Event, Fail, Prune, Remove, Tell
from kbo.report.record import Record, Run
from kbo.space import Params

MOST_MOMENTS = 120
"""Largest number of moments of a run with few values."""

MOST_FITTED = 500
"""Number of values up to which a run in the practical setting is replayed: a fit costs the cube of their number."""

NOISE_MARGIN = 2.0
"""Number of noise levels by which the expected range of a value is wider than the interval of the function."""

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
        expected: The range expected of this value before it was observed: the interval of the function at the trial,
            widened by ``NOISE_MARGIN`` noise levels there. None if there was no bound.
        best: The best observed value.
        recommended: The number of the recommended trial.
        lower, mean, upper: The interval of the function at the recommended trial; None if there is no bound.
        trouble: The reason why there is no bound although there were enough data, for example a contradiction.
    """

    finished: int
    trial: int
    value: float
    expected: tuple[float, float] | None
    best: float
    recommended: int | None = None
    lower: float | None = None
    mean: float | None = None
    upper: float | None = None
    trouble: str = ""

    @property
    def missed(self) -> bool | None:
        """Whether the value was outside its expected range; None if there was no such range."""
        if self.expected is None:
            return None
        lower, upper = self.expected
        return not lower <= self.value <= upper


@isolated
def history(run: Run, kernel: Kernel | None = None) -> list[Moment]:
    """Replay a run, and return its states after completed trials, in the order in which their values were observed.

    A corrected value is replayed as if it had been reported at first. A removed value is left out.

    Args:
        run: The run.
        kernel: The kernel of a journal in the certified setting.

    Returns:
        The moments, evenly spaced; the last one is the end of the run. In the practical setting, other moments after
        more than ``MOST_FITTED`` values are left out.

    Raises:
        JournalError: The journal cannot be read, or was made with another kernel.
        InvalidInput: The run cannot be replayed; the message says why.
    """
    record = Record.of(run, kernel)
    record = replace(record, events=_with_final_results(record))
    observed = [event.number for event in record.events if isinstance(event, Tell)]
    if not observed:
        return []
    replayed = observed
    if not record.reopened().setting.certified:
        replayed = observed[:MOST_FITTED]
    share = min(1.0, (_SHORT / len(replayed)) ** 2)
    most = max(_LEAST_MOMENTS, round(MOST_MOMENTS * share))
    moments = _replay(record, _spaced(replayed, most))
    expected = None
    if len(replayed) == len(observed):
        expected = moments.pop().expected
    moments.append(_at_end(record, observed[-1], expected))
    return moments


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
    best_of = min
    if record.maximize:
        best_of = max
    moments: list[Moment] = []
    values: list[float] = []
    n_without_value = 0
    trouble = ""
    for event in record.events:
        if len(moments) == len(watched):
            break
        n_without_value += isinstance(event, Fail | Prune | Remove)
        if not isinstance(event, Tell):
            optimizer.run.follow(event)
            continue
        is_watched = event.number in watched
        expected = None
        if is_watched and not trouble:
            expected, trouble = _expected_range(optimizer, optimizer.trials[event.number].params)
        optimizer.run.follow(event)
        values.append(event.value)
        if not is_watched:
            continue
        bounds = {}
        if not trouble:
            bounds, trouble = _bounds(optimizer)
        finished = len(values) + n_without_value
        best = best_of(values)
        moments.append(
            Moment(finished, event.number, event.value, expected, best, **bounds, trouble=trouble)
        )
    return moments


def _at_end(record: Record, number: int, expected: tuple[float, float] | None) -> Moment:
    """Return the moment at the end of the run: trials without a value may have followed the last value.

    Args:
        record: The run.
        number: The number of the trial with the last value.
        expected: The expected range of this value, if it is known.
    """
    bounds, trouble = _bounds(record.reopened())
    complete = record.with_status("complete")
    values = [trial.value for trial in complete if trial.value is not None]
    best = min(values)
    if record.maximize:
        best = max(values)
    finished = len(record.trials) - len(record.with_status("pending"))
    value = record.trials[number].value or 0.0
    return Moment(finished, number, value, expected, best, **bounds, trouble=trouble)


def miscoverage(moments: Sequence[Moment]) -> tuple[int, int]:
    """Return the number of values outside their expected ranges, and the number of values with such a range."""
    missed = [moment.missed for moment in moments if moment.missed is not None]
    return sum(missed), len(missed)


def _expected_range(optimizer: Optimizer, params: Params) -> tuple[tuple[float, float] | None, str]:
    """Return the expected range of the next value, and the reason if an error prevents it, otherwise an empty text."""
    if not optimizer.space.contains(params):  # the space has changed since the trial began
        return None, ""
    try:
        interval = optimizer.interval(params)
    except KboError as error:
        return None, str(error)
    surrogate = optimizer.insight.report_surrogate()
    if interval is None or surrogate is None:
        return None, ""
    lower, _, upper = interval
    sign = optimizer.insight.quantities.sign
    below = NOISE_MARGIN * surrogate.noise_std_at(sign * lower)
    above = NOISE_MARGIN * surrogate.noise_std_at(sign * upper)
    return (lower - below, upper + above), ""


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
