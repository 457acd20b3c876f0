"""The ranges of the parameters of a study, which may differ from trial to trial.

A model of the trials needs one range of each parameter that contains them all: their union. The next trial may have
another one, which is not known before it is asked for.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from numbers import Real
from typing import Any, NamedTuple

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import FrozenTrial

from kbo.errors import InvalidInput

_RECENT = 5
"""The latest trials with a parameter, whose ranges say what that of the next trial is."""

_FAR = 1.0
"""Widths of a range by which a value may be outside of it and still widen it; others would make the rest of the range a
point."""

_ON_GRID = 1e-8
"""Steps by which a value may be off its grid, as in Optuna."""


class Ranges(NamedTuple):
    """The ranges of the parameters of a study by name.

    Attributes:
        whole: Those that contain the ranges of all trials, sorted by name; none of a single value.
        expected: Those that contain the ranges of the latest trials with the parameter.
        settled: The names of parameters whose range was the same in all of these.
        first: The number of the first trial with each parameter, and its range there.
        left_out: The parameters that no range contains, with the reason.
        far: Of some parameters the number of a trial and its value, so far outside of all ranges that the trial cannot
            be used.
    """

    whole: dict[str, BaseDistribution]
    expected: dict[str, BaseDistribution]
    settled: set[str]
    first: dict[str, tuple[int, BaseDistribution]]
    left_out: dict[str, str]
    far: dict[str, tuple[int, Any]]


def ranges_of(
    trials: Sequence[FrozenTrial],
    today: Mapping[str, BaseDistribution] | None = None,
    given: Mapping[str, Any] | None = None,
    widened: bool = True,
) -> Ranges:
    """Return the ranges of the parameters that at least one finished trial has.

    Args:
        trials: Finished and running trials, in the order of their numbers.
        today: More ranges that the union has to contain: those of the trial that is begun.
        given: Values that were chosen for that trial elsewhere.
        widened: Whether values outside of the ranges of their trials widen the union.
    """
    seen: dict[str, _Seen] = {}
    for trial in trials:
        is_finished = trial.state.is_finished()
        for name, d in trial.distributions.items():
            if name not in seen:
                seen[name] = _Seen(trial.number, d)
            seen[name].add(trial.number, d, trial.params[name], is_finished)
    whole: dict[str, BaseDistribution] = {}
    left_out: dict[str, str] = {}
    far: dict[str, tuple[int, Any]] = {}
    for name in sorted(name for name, one in seen.items() if one.is_finished):
        try:
            whole[name] = union([*seen[name].distinct, *_named(today, name)])
        except InvalidInput as error:
            left_out[name] = str(error)
            continue
        if widened:
            values = [value for _, value in seen[name].outside]
            whole[name] = _widened(whole[name], [*values, *_named(given, name)])
        outside = (one for one in seen[name].outside if not contains(whole[name], one[1]))
        far.update((name, one) for one in itertools.islice(outside, 1))
    whole = {name: d for name, d in whole.items() if not d.single()}
    expected = {name: union(seen[name].recent) for name in whole}
    settled = {name for name in whole if all(_equal(d, expected[name]) for d in seen[name].recent)}
    first = {name: seen[name].first for name in whole}
    return Ranges(whole, expected, settled, first, left_out, far)


class _Seen:
    """The ranges of one parameter in the trials so far, and its values outside of them."""

    def __init__(self, number: int, d: BaseDistribution) -> None:
        self.first: tuple[int, BaseDistribution] = (number, d)
        self.distinct: list[BaseDistribution] = [d]
        self.recent: deque[BaseDistribution] = deque(maxlen=_RECENT)
        self.outside: list[tuple[int, Any]] = []
        self.is_finished: bool = False

    def add(self, number: int, d: BaseDistribution, value: Any, is_finished: bool) -> None:
        """Take note of the range and the value in a trial."""
        self.recent.append(d)
        self.is_finished |= is_finished
        latest = self.distinct[-1]
        if not _equal(d, latest):
            self.distinct.append(d)
        if not contains(d, value):
            self.outside.append((number, value))


def _equal(first: BaseDistribution, second: BaseDistribution) -> bool:
    """Return whether two distributions are equal, which Optuna's own comparison takes ten times as long to find."""
    if first.__class__ is second.__class__ and first.__dict__ == second.__dict__:
        return True
    return first == second


def _named(entries: Mapping[str, Any] | None, name: str) -> list[Any]:
    """Return the entry of a name as a list, which is empty if there is none."""
    if entries is None or name not in entries:
        return []
    return [entries[name]]


def union(distributions: Iterable[BaseDistribution]) -> BaseDistribution:
    """Return the distribution that contains some, which are in the order of their trials.

    Of numbers it goes from the lowest to the highest one, on the scale of the last one, with the steps that all of them
    have in common: of whole numbers the greatest common divisor, of real ones the step if it is the same on one grid,
    and none otherwise. Whole and real numbers make real ones.

    Raises:
        InvalidInput: Choices that differ, or choices and numbers.
    """
    distinct: list[BaseDistribution] = []
    for d in distributions:
        if not distinct or not _equal(d, distinct[-1]):
            distinct.append(d)
    if len(distinct) == 1:
        return distinct[0]
    numbers: list[Any] = [
        d for d in distinct if isinstance(d, (FloatDistribution, IntDistribution))
    ]
    if len(numbers) < len(distinct):
        if all(d == distinct[0] for d in distinct):
            return distinct[0]
        raise InvalidInput(
            f"its choices differ from trial to trial: {distinct[0]} and {distinct[-1]}."
        )
    low = min(d.low for d in numbers)
    high = max(d.high for d in numbers)
    log = numbers[-1].log and low > 0
    if all(isinstance(d, IntDistribution) for d in numbers):
        return IntDistribution(low, high, log=log, step=1 if log else _whole_step(numbers, low))
    return FloatDistribution(low, high, log=log, step=None if log else _real_step(numbers, low))


def _whole_step(distributions: Sequence[Any], low: int) -> int:
    """Return the greatest step from the lowest value on which all whole numbers of some distributions lie."""
    steps = [d.step for d in distributions if not d.single()]
    return math.gcd(*steps, *(d.low - low for d in distributions)) or 1


def _real_step(distributions: Sequence[Any], low: float) -> float | None:
    """Return the step of some distributions if they all have the same one, on one grid from the lowest value."""
    steps = {d.step for d in distributions if not d.single()}
    if len(steps) != 1:
        return None
    (step,) = steps
    if step is None:
        return None
    ends = [end for d in distributions for end in (d.low, d.high)]
    on_grid = all((Decimal(str(end)) - Decimal(str(low))) % Decimal(str(step)) == 0 for end in ends)
    return step if on_grid else None


def contains(d: Any, value: Any) -> bool:
    """Return whether a distribution contains a value that a trial has; of choices it always does."""
    if isinstance(d, CategoricalDistribution):
        return True
    if type(value) is not float and not isinstance(value, Real):
        return False
    if not d.low <= value <= d.high:
        return False
    if d.step is None or d.log:
        return True
    steps = (value - d.low) / d.step
    return abs(steps - round(steps)) < _ON_GRID


def nearest(d: Any, value: float) -> float:
    """Return the value of a distribution of numbers that is nearest to a number."""
    value = min(max(value, d.low), d.high)
    if d.step is not None and not d.log:
        value = min(d.low + round((value - d.low) / d.step) * d.step, d.high)
    return round(value) if isinstance(d, IntDistribution) else float(value)


def _widened(d: BaseDistribution, values: Iterable[Any]) -> BaseDistribution:
    """Return a distribution that contains values outside of one, those that are not too far away."""
    found = d
    for value in values:
        if not contains(found, value) and _distance(d, value) <= _FAR:
            found = union([_single(d, value), found])
    return found


def _distance(d: Any, value: Any) -> float:
    """Return the distance of a number outside of a range, in widths of the range on its own scale."""
    if not isinstance(value, Real) or not math.isfinite(value) or (d.log and value <= 0):
        return math.inf
    low, high, number = float(d.low), float(d.high), float(value)
    if d.log:
        low, high, number = math.log(low), math.log(high), math.log(number)
    excess = max(low - number, number - high)
    if excess <= 0:
        return 0.0
    return excess / (high - low) if high > low else math.inf


def _single(d: Any, value: float) -> BaseDistribution:
    """Return the distribution of one number, whole only if that of a parameter and the number are."""
    if isinstance(d, IntDistribution) and value == int(value):
        return IntDistribution(int(value), int(value), log=d.log)
    return FloatDistribution(value, value, log=d.log)
