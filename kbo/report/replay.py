"""Replay of a run: the bounds after every trial, and the range expected of each value before it was observed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpytorch.kernels import Kernel

from kbo._base.surroundings import fixed
from kbo.confidence import NoiseLevel
from kbo.errors import KboError
from kbo.optimize import Optimizer
from kbo.optimize.run.events import Event, Fail, Prune, Tell
from kbo.report.record import Record, Run
from kbo.space import Params

MOST_MOMENTS, MOST_GAPS = 120, 16
"""Moments of a longer run, and those with the optimality gap, which takes a search over the space."""

# Values from which a run has fewer moments, since one costs the cube of their number, and the least number then.
_SHORT, _LEAST_MOMENTS = 600, 20

MOST_FITTED = 500
"""Values up to which a run of the practical setting is replayed: each of its fits costs the cube of their number."""

NOISE_MARGIN = 2.0
"""Noise levels by which a value may miss the interval of the function and still be in its expected range."""


@dataclass(frozen=True)
class Moment:
    """State of a run after a trial; values are in units of the objective.

    Attributes:
        finished: Trials finished by then, failed ones included.
        trial: Number of the trial whose value was observed last.
        value: Its value.
        expected: The interval of the function there before the value was observed, widened by ``NOISE_MARGIN`` noise
            levels; None while there was no bound.
        best: The best value observed.
        recommended: Number of the trial that was recommended.
        lower, mean, upper: The interval of the function at the recommended trial; None while there is no bound.
        gap: The optimality gap where it was computed; see ``Optimizer.gap``.
        noise_std, norm_bound: The noise level and the norm bound, if the setting or the method has one.
        ridge: The regulariser of the posterior, in units of the kernel.
        anchors: Size of the dictionary of a sketched posterior.
        noise_lower, noise_upper: Bounds of the noise level, for methods that bound it online.
        trouble: Why there are no bounds although there were data enough, in words; for example a contradiction.
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
    noise_std: float | None = None
    norm_bound: float | None = None
    ridge: float | None = None
    anchors: int | None = None
    noise_lower: float | None = None
    noise_upper: float | None = None
    trouble: str = ""

    @property
    def width(self) -> float | None:
        """Width of the interval of the recommended trial."""
        return None if self.lower is None or self.upper is None else self.upper - self.lower

    @property
    def missed(self) -> bool | None:
        """Whether the value was outside its expected range; None if there was none."""
        return (
            None
            if self.expected is None
            else not self.expected[0] <= self.value <= self.expected[1]
        )


@fixed
def history(
    run: Run,
    kernel: Kernel | None = None,
    *,
    most: int | None = None,
    most_gaps: int | None = None,
) -> list[Moment]:
    """Replay a run and return its state after its trials, in the order in which their values were observed.

    Args:
        run: The run.
        kernel: The kernel of a journal in the certified setting.
        most: Of more completed trials, so many have a moment, evenly spaced, the last among them; by default
            ``MOST_MOMENTS``, and fewer of very long runs.
        most_gaps: Moments for which the optimality gap is computed; by default at most ``MOST_GAPS``.

    Returns:
        The moments. In the practical setting those after more than ``MOST_FITTED`` values are left out, except the
        last.

    Raises:
        JournalError: The journal cannot be read, or was made with another kernel.
        InvalidInput: The run cannot be replayed; the message says why.
    """
    record = Record.of(run, kernel)
    optimizer, better = record.blank(), max if record.maximize else min
    observed = [event.number for event in record.events if isinstance(event, Tell)]
    replayed = observed if optimizer.setting.certified else observed[:MOST_FITTED]
    if most is None:
        most = max(
            _LEAST_MOMENTS, round(MOST_MOMENTS * min(1.0, (_SHORT / max(len(replayed), 1)) ** 2))
        )
    watched = _spaced(replayed, most)
    with_gap = _spaced(
        watched, max(1, min(MOST_GAPS, most // 3)) if most_gaps is None else most_gaps
    )
    moments: list[Moment] = []
    finished, best, trouble = 0, None, ""
    for event in record.events:
        if len(moments) == len(watched):
            break
        if isinstance(event, Fail | Prune):
            finished += 1
        if not isinstance(event, Tell):
            optimizer.run.follow(event)
            continue
        number, value = event.number, event.value
        finished += 1
        expected, bounds = None, {}
        if number in watched and not trouble:
            expected, trouble = _expected(optimizer, record.trials[number].params)
        optimizer.run.follow(event)
        best = value if best is None else better(best, value)
        if number not in watched:
            continue
        if not trouble:
            bounds, trouble = _bounds(optimizer, number in with_gap)
        moments.append(Moment(finished, number, value, expected, best, **bounds, trouble=trouble))
    if len(replayed) == len(observed) and moments and not trouble:
        moments[-1] = _at_the_end(record, moments[-1])
    if len(replayed) < len(
        observed
    ):  # the moment after the last value, from the optimiser of the run itself
        last, known = record.trials[observed[-1]], record.best()
        assert record.optimizer is not None
        assert known is not None
        bounds, trouble = _bounds(record.optimizer, with_gap=True)
        finished = sum(trial.status != "pending" for trial in record.trials)
        values = (last.value or 0.0, None, known.value or 0.0)
        moments.append(Moment(finished, last.number, *values, **bounds, trouble=trouble))
    return moments


def _at_the_end(record: Record, last: Moment) -> Moment:
    """Return the moment after the last value with what trials without a value have changed after it."""
    later = any(isinstance(event, Fail | Prune) for event in _after_values(record.events))
    if not later or record.optimizer is None:
        return last
    finished = sum(trial.status != "pending" for trial in record.trials)
    bounds, trouble = _bounds(record.optimizer, last.gap is not None)
    return replace(last, finished=finished, **bounds, trouble=trouble)


def _after_values(events: Sequence[Event]) -> list[Event]:
    """Return the events after the last value."""
    position = max(i for i, event in enumerate(events) if isinstance(event, Tell))
    return list(events[position + 1 :])


def miscoverage(moments: Sequence[Moment]) -> tuple[int, int]:
    """Return how many values were outside their expected range, and how many had one."""
    found = [moment.missed for moment in moments if moment.missed is not None]
    return sum(found), len(found)


def _expected(optimizer: Optimizer, params: Params) -> tuple[tuple[float, float] | None, str]:
    """Return the range of the next value, and why there is none although there should be, in words."""
    try:
        interval = optimizer.interval(params)
    except KboError as error:
        return None, str(error)
    belief = optimizer.description()
    if interval is None or belief is None:
        return None, ""
    margin = NOISE_MARGIN * belief.assumptions()["noise_std"]
    return (interval[0] - margin, interval[2] + margin), ""


def _bounds(optimizer: Optimizer, with_gap: bool) -> tuple[dict[str, Any], str]:
    """Return the recommended trial, its bounds and the numbers in them, and why there are none, in words."""
    try:
        best = optimizer.recommended()
        if best is None:
            return {}, ""
        found: dict[str, Any] = {"recommended": best.number}
        interval = optimizer.interval(best.params)
        if interval is None:
            return found, ""
        found |= zip(("lower", "mean", "upper"), interval, strict=True)
        if with_gap and (gap := optimizer.gap()) is not None:
            found["gap"] = gap.value
        return found | _numbers(optimizer), ""
    except KboError as error:
        return {}, str(error)


def _numbers(optimizer: Optimizer) -> dict[str, Any]:
    """Return the numbers in the bounds, which are those of the description."""
    belief = optimizer.description()
    if belief is None:
        return {}
    numbers, state = belief.assumptions(), belief.posterior
    found = {name: numbers.get(name) for name in ("noise_std", "norm_bound")}
    found |= {
        "ridge": state.ridge,
        "anchors": None if state.anchors is None else len(state.anchors),
    }
    if isinstance(state.schedule, NoiseLevel):
        found |= {"noise_lower": state.schedule.lower, "noise_upper": state.schedule.upper}
    return found


def _spaced(items: list[int], most: int) -> list[int]:
    """Return at most so many of the items, evenly spaced, the last among them."""
    if len(items) <= most:
        return items
    return [items[round((i + 1) * len(items) / most) - 1] for i in range(most)]
