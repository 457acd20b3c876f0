"""Replay of a run: the bounds after each trial, and the expected range of each value before it was observed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpytorch.kernels import Kernel

from kbo._base.isolation import isolated
from kbo.errors import KboError
from kbo.optimize import Optimizer, Trial
from kbo.optimize.run.events import Change, Correct, Event, Fail, Prune, Remove, Tell
from kbo.report.record import Record, Run
from kbo.space import Params

MOST_MOMENTS = 120
"""Largest default number of moments."""

MOST_GAPS = 16
"""Largest default number of moments with the optimality gap, since each gap takes a search over the space."""

MOST_FITTED = 500
"""Number of values up to which a run in the practical setting is replayed: a fit costs the cube of their number."""

NOISE_MARGIN = 2.0
"""Number of noise levels by which the expected range of a value is wider than the interval of the function."""

_SHORT = 600
"""A run with more values has fewer moments, since a moment costs the cube of their number."""

_LEAST_MOMENTS = 20
"""Smallest default limit on the number of moments of such a run."""


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
        gap: The optimality gap, if it was computed; see ``Optimizer.gap``.
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
    gap: float | None = None
    trouble: str = ""

    @property
    def width(self) -> float | None:
        """Width of the interval at the recommended trial; None if there is no bound."""
        if self.lower is None or self.upper is None:
            return None
        return self.upper - self.lower

    @property
    def missed(self) -> bool | None:
        """Whether the value was outside its expected range; None if there was no such range."""
        if self.expected is None:
            return None
        lower, upper = self.expected
        return not lower <= self.value <= upper


@isolated
def history(
    run: Run,
    kernel: Kernel | None = None,
    *,
    most: int | None = None,
    most_gaps: int | None = None,
) -> list[Moment]:
    """Replay a run, and return its states after completed trials, in the order in which their values were observed.

    A corrected value is replayed as if it had been reported at first. A removed value is left out.

    Args:
        run: The run.
        kernel: The kernel of a journal in the certified setting.
        most: The largest number of moments. In a longer run the moments are evenly spaced, up to the last value. By
            default ``MOST_MOMENTS``, and fewer for very long runs.
        most_gaps: The largest number of moments with the optimality gap; by default at most ``MOST_GAPS``.

    Returns:
        The moments. In the practical setting, moments after more than ``MOST_FITTED`` values are left out, except the
        last one.

    Raises:
        JournalError: The journal cannot be read, or was made with another kernel.
        InvalidInput: The run cannot be replayed; the message says why.
    """
    record = Record.of(run, kernel)
    record = replace(record, events=_with_final_results(record))
    observed = [event.number for event in record.events if isinstance(event, Tell)]
    replayed = observed
    if not record.reopened().setting.certified:
        replayed = observed[:MOST_FITTED]
    if most is None:
        share = min(1.0, (_SHORT / max(len(replayed), 1)) ** 2)
        most = max(_LEAST_MOMENTS, round(MOST_MOMENTS * share))
    if most_gaps is None:
        most_gaps = max(1, min(MOST_GAPS, most // 3))
    watched = _spaced(replayed, most)
    moments = _replay(record, watched, _spaced(watched, most_gaps))
    if len(replayed) < len(observed):
        moments.append(_end_of_long_run(record, observed[-1]))
    elif moments and not moments[-1].trouble:
        moments[-1] = _at_end(record, moments[-1])
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


def _replay(record: Record, watched: Sequence[int], with_gap: Sequence[int]) -> list[Moment]:
    """Return the moments after the values of the watched trials.

    Args:
        record: The run.
        watched: The numbers of the watched trials, in the order of their values.
        with_gap: The numbers of watched trials after which the optimality gap is computed.
    """
    optimizer = record.blank()
    best_of = max if record.maximize else min
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
            bounds, trouble = _bounds(optimizer, event.number in with_gap)
        finished = len(values) + n_without_value
        best = best_of(values)
        moments.append(
            Moment(finished, event.number, event.value, expected, best, **bounds, trouble=trouble)
        )
    return moments


def _at_end(record: Record, moment: Moment) -> Moment:
    """Return the last moment, with the bounds at the end of the run: trials without a value may have followed it."""
    last_kind = None
    for event in record.events:
        if isinstance(event, Tell | Fail | Prune | Remove | Change):
            last_kind = type(event)
    if last_kind is Tell or record.optimizer is None:
        return moment
    bounds, trouble = _bounds(record.optimizer, moment.gap is not None)
    return replace(moment, finished=_finished(record), **bounds, trouble=trouble)


def _end_of_long_run(record: Record, number: int) -> Moment:
    """Return the last moment of a run that is not replayed to its end; ``number`` is the trial with the last value."""
    bounds, trouble = _bounds(record.reopened(), with_gap=True)
    value = record.trials[number].value or 0.0
    best = value
    best_trial = record.best()
    if best_trial is not None:
        best = best_trial.value or 0.0
    return Moment(_finished(record), number, value, None, best, **bounds, trouble=trouble)


def _finished(record: Record) -> int:
    """Return the number of trials that have ended."""
    return len(record.trials) - len(record.with_status("pending"))


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


def _bounds(optimizer: Optimizer, with_gap: bool) -> tuple[dict[str, Any], str]:
    """Return the recommended trial and its bounds, as arguments of ``Moment``, and the reason if an error occurs."""
    try:
        best = optimizer.recommended()
        if best is None:
            return {}, ""
        bounds: dict[str, Any] = {"recommended": best.number}
        interval = optimizer.interval(best.params)
        if interval is None:
            return bounds, ""
        bounds["lower"], bounds["mean"], bounds["upper"] = interval
        if with_gap:
            gap = optimizer.gap()
            if gap is not None:
                bounds["gap"] = gap.value
        return bounds, ""
    except KboError as error:
        return {}, str(error)


def _spaced(numbers: Sequence[int], most: int) -> Sequence[int]:
    """Return at most ``most`` of the numbers, evenly spaced, with the last one."""
    if len(numbers) <= most:
        return numbers
    spacing = len(numbers) / most
    return [numbers[round((i + 1) * spacing) - 1] for i in range(most)]
