"""Replay of a run: the bounds after every trial, and the range expected of each value before it was observed."""

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
"""Number of moments of a longer run."""

MOST_GAPS = 16
"""Number of moments with the optimality gap, which takes a search over the space."""

MOST_FITTED = 500
"""Values up to which a run of the practical setting is replayed: each of its fits costs the cube of their number."""

NOISE_MARGIN = 2.0
"""Noise levels by which a value may miss the interval of the function and still be in its expected range."""

_SHORT = 600
"""Number of values from which a run has fewer moments, since one costs the cube of their number."""

_LEAST_MOMENTS = 20
"""Least number of moments of such a run."""


@dataclass(frozen=True)
class Moment:
    """State of a run after a trial; values are in units of the objective.

    Attributes:
        finished: Trials finished by then, failed ones included.
        trial: Number of the trial whose value was observed last.
        value: Its value.
        expected: The interval of the function there before the value was observed, widened at each end by
            ``NOISE_MARGIN`` noise levels there; None while there was no bound.
        best: The best value observed.
        recommended: Number of the trial that was recommended.
        lower, mean, upper: The interval of the function at the recommended trial; None while there is no bound.
        gap: The optimality gap where it was computed; see ``Optimizer.gap``.
        trouble: The reason why there are no bounds although there were data enough, for example a contradiction.
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
        """Width of the interval of the recommended trial."""
        if self.lower is None or self.upper is None:
            return None
        return self.upper - self.lower

    @property
    def missed(self) -> bool | None:
        """Whether the value was outside its expected range; None if there was none."""
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
    """Replay a run and return its state after its trials, in the order in which their values were observed.

    Corrected results are replayed as if they had come at once, and removed ones never come.

    Args:
        run: The run.
        kernel: The kernel of a journal in the certified setting.
        most: Number of completed trials that have a moment in a longer run, evenly spaced, the last among them; by
            default ``MOST_MOMENTS``, and fewer of very long runs.
        most_gaps: Moments for which the optimality gap is computed; by default at most ``MOST_GAPS``.

    Returns:
        The moments. In the practical setting those after more than ``MOST_FITTED`` values are left out, except the
        last.

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
    """Return the events of a run in which every trial ended with its final result."""
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
    """Return the event that gives a trial its final result, of a corrected or a removed one."""
    if trial.value is None:
        return Remove(number=trial.number, reason=trial.removed or "", time=time)
    return Tell(number=trial.number, value=trial.value, measured=trial.measured, time=time)


def _replay(record: Record, watched: Sequence[int], with_gap: Sequence[int]) -> list[Moment]:
    """Return the moments after the values of some trials.

    Args:
        record: The run.
        watched: The numbers of the trials, in the order of their values.
        with_gap: The numbers of the trials after which the optimality gap is computed.
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
    """Return the moment after the last value with the bounds after the trials without a value that followed it."""
    last_kind = None
    for event in record.events:
        if isinstance(event, Tell | Fail | Prune | Remove | Change):
            last_kind = type(event)
    if last_kind is Tell or record.optimizer is None:
        return moment
    bounds, trouble = _bounds(record.optimizer, moment.gap is not None)
    return replace(moment, finished=_finished(record), **bounds, trouble=trouble)


def _end_of_long_run(record: Record, number: int) -> Moment:
    """Return the moment after the last value, of a trial with this number, of a run that is not replayed to its end."""
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
    """Return the number of values outside their expected range, and the number of values that had one."""
    missed = [moment.missed for moment in moments if moment.missed is not None]
    return sum(missed), len(missed)


def _expected_range(optimizer: Optimizer, params: Params) -> tuple[tuple[float, float] | None, str]:
    """Return the range of the next value, and the reason why there is none although there should be."""
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
    """Return the recommended trial and its bounds as arguments of ``Moment``, and the reason why there are none."""
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
    """Return at most so many of the numbers, evenly spaced, the last among them."""
    if len(numbers) <= most:
        return numbers
    spacing = len(numbers) / most
    return [numbers[round((i + 1) * spacing) - 1] for i in range(most)]
