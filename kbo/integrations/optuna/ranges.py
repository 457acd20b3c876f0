"""The ranges of the parameters of a study, which may differ from trial to trial.

A model needs one range of each parameter, which contains the ranges of all trials: their union. The range in the next
trial is unknown until the objective requests the parameter.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any, NamedTuple

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import FrozenTrial, TrialState

from kbo._base import checks
from kbo.errors import InvalidInput

_RECENT = 5
"""Number of latest trials with a parameter; the next range is expected to be the union of their ranges."""

_FAR = 1.0
"""A value outside a range widens it up to this distance, in widths of the range; a farther one would dwarf it."""

_ON_GRID = 1e-8
"""Part of a step by which a value may be off its grid, as in Optuna."""


class Ranges(NamedTuple):
    """The ranges of the parameters of a study, each by the name of the parameter.

    Attributes:
        whole: The union of the ranges in all trials, sorted by name; unions of a single value are left out.
        expected: The union of the ranges in the latest trials that have the parameter.
        latest: The range of each parameter with the same range in all of these latest trials, widened by near values
            that the user gave outside of all ranges.
        left_out: The reason why a parameter has no union.
        added: The number of the first trial with a parameter that earlier complete trials lack, and later ones have.
        dropped: The number of the last trial with a parameter that the latest trials lack.
    """

    whole: dict[str, BaseDistribution]
    expected: dict[str, BaseDistribution]
    latest: dict[str, BaseDistribution]
    left_out: dict[str, str]
    added: dict[str, int]
    dropped: dict[str, int]


def ranges_of(
    trials: Sequence[FrozenTrial],
    present: Mapping[str, BaseDistribution] | None = None,
    fixed: Mapping[str, Any] | None = None,
    was: Mapping[str, Any] | None = None,
    widened: bool = True,
) -> Ranges:
    """Return the ranges of the parameters that at least one finished trial has.

    Args:
        trials: Finished and running trials, in the order of their numbers.
        present: The known ranges of the trial that begins; the unions contain them.
        fixed: Values of parameters in that trial that this sampler does not choose.
        was: Values of parameters in trials that lack them; the unions contain them.
        widened: Whether values outside of the ranges of their trials widen the union.
    """
    added, dropped = _changes(trials)
    ranges = Ranges({}, {}, {}, {}, added, dropped)
    for name, history in sorted(_histories(trials).items()):
        if not history.is_finished:
            continue
        distributions = _distributions(name, history, present or {}, was or {})
        try:
            of_trials = union(distributions)
        except InvalidInput as error:
            ranges.left_out[name] = str(error)
            continue
        whole = of_trials
        if widened:
            values = list(history.outside)
            if fixed and name in fixed:
                values.append(fixed[name])
            whole = _widened(of_trials, values)
        if whole.single():
            continue
        ranges.whole[name] = whole
        ranges.expected[name] = union(history.recent)
        if all(d == ranges.expected[name] for d in history.recent):
            by_hand = [value for value in history.outside if not contains(of_trials, value)]
            ranges.latest[name] = _widened(ranges.expected[name], by_hand)
    return ranges


def _distributions(
    name: str,
    history: _History,
    present: Mapping[str, BaseDistribution],
    was: Mapping[str, Any],
) -> list[BaseDistribution]:
    """Return the ranges of a parameter in all trials, before them its value in trials that lack it, if known."""
    distributions = list(history.distinct)
    if name in present:
        distributions.append(present[name])
    if name in was and not isinstance(distributions[0], CategoricalDistribution):
        distributions.insert(0, _single_value(name, was, distributions[-1]))
    return distributions


def _single_value(name: str, was: Mapping[str, Any], d: Any) -> BaseDistribution:
    """Return the distribution of the single value of a parameter in trials that lack it.

    Raises:
        InvalidInput: The value is no finite number, or has no place on the scale of the parameter.
    """
    value = checks.number(f"was: {name!r}", was[name])
    if d.log and value <= 0:
        raise InvalidInput(
            f"was: {name} = {value:g} has no place on the logarithmic scale of {d}: give a value above 0, or leave it "
            "out."
        )
    return _single(d, value)


def _changes(trials: Sequence[FrozenTrial]) -> tuple[dict[str, int], dict[str, int]]:
    """Return by name the first trial with a parameter that was added, and the last with one that was dropped.

    Complete trials have such a parameter without gaps. A parameter that trials lack in between depends on others.
    """
    complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    rows: dict[str, list[int]] = {}
    for row, trial in enumerate(complete):
        for name in trial.params:
            rows.setdefault(name, []).append(row)
    added: dict[str, int] = {}
    dropped: dict[str, int] = {}
    for name, having in rows.items():
        first = having[0]
        last = having[-1]
        n_later = len(complete) - 1 - last
        if len(having) < last - first + 1:
            continue
        if first > 0 and n_later == 0:
            added[name] = complete[first].number
        elif n_later >= _RECENT:
            dropped[name] = complete[last].number
    return added, dropped


class _History:
    """The ranges of one parameter in the trials so far.

    Attributes:
        distinct: The ranges in the order of the trials, without repetitions of the range before.
        recent: The ranges in the latest trials with the parameter.
        outside: The values that are outside of the ranges of their trials.
        is_finished: Whether at least one of the trials has finished.
    """

    def __init__(self, d: BaseDistribution) -> None:
        self.distinct: list[BaseDistribution] = [d]
        self.recent: deque[BaseDistribution] = deque(maxlen=_RECENT)
        self.outside: list[Any] = []
        self.is_finished: bool = False


def _histories(trials: Sequence[FrozenTrial]) -> dict[str, _History]:
    """Return the history of each parameter by name."""
    histories: dict[str, _History] = {}
    for trial in trials:
        is_finished = trial.state.is_finished()
        for name, d in trial.distributions.items():
            if name not in histories:
                histories[name] = _History(d)
            history = histories[name]
            history.is_finished |= is_finished
            history.recent.append(d)
            if vars(d) != vars(history.distinct[-1]):  # ten times as fast as Optuna's comparison
                history.distinct.append(d)
            value = trial.params[name]
            if not contains(d, value):
                history.outside.append(value)
    return histories


def union(distributions: Iterable[BaseDistribution]) -> BaseDistribution:
    """Return the distribution that contains all given ones, which are in the order of their trials.

    For numbers it reaches from the lowest to the highest number, on the scale of the last distribution. It has the step
    of all ranges if they have the same, on one grid. Whole and real numbers together are real.

    Raises:
        InvalidInput: The choices differ, or there are choices and numbers.
    """
    numbers: list[Any] = list(distributions)
    first = numbers[0]
    if all(d == first for d in numbers):
        return first
    for d in numbers:
        if not isinstance(d, (FloatDistribution, IntDistribution)):
            raise InvalidInput(
                f"its choices differ from trial to trial: {first} and {numbers[-1]}."
            )
    low = min(d.low for d in numbers)
    high = max(d.high for d in numbers)
    log = numbers[-1].log and low > 0
    kind = FloatDistribution
    if all(isinstance(d, IntDistribution) for d in numbers):
        kind = IntDistribution
    if log:
        return kind(low, high, log=True)
    steps = {d.step for d in numbers if not d.single()}
    if len(steps) == 1 and None not in steps:
        step = steps.pop()
        if all(_on_grid(d.low, low, step) and _on_grid(d.high, low, step) for d in numbers):
            return kind(low, high, step=step)
    return kind(low, high)


def contains(d: Any, value: Any) -> bool:
    """Return whether a distribution contains the value of its trial; a choice always does."""
    if isinstance(d, CategoricalDistribution):
        return True
    if not isinstance(value, Real):
        return False
    if not d.low <= value <= d.high:
        return False
    return d.step is None or d.log or _on_grid(float(value), d.low, d.step)


def _on_grid(value: float, low: float, step: float) -> bool:
    """Return whether a number is ``low`` plus a whole number of steps, up to rounding."""
    steps = (value - low) / step
    return abs(steps - round(steps)) < _ON_GRID


def nearest(d: Any, value: float) -> float:
    """Return the value in a distribution of numbers that is nearest to a number."""
    value = min(max(value, d.low), d.high)
    if d.step is not None and not d.log:
        steps = round((value - d.low) / d.step)
        value = min(d.low + steps * d.step, d.high)
    if isinstance(d, IntDistribution):
        return round(value)
    return float(value)


def _widened(d: BaseDistribution, values: Iterable[Any]) -> BaseDistribution:
    """Return a distribution widened to contain values that are outside of it by at most ``_FAR`` widths."""
    wider = d
    for value in values:
        if not contains(wider, value) and _distance(d, value) <= _FAR:
            wider = union([_single(d, value), wider])
    return wider


def _distance(d: Any, value: Any) -> float:
    """Return the distance of a number from a range, in widths of the range on its own scale; 0 inside."""
    if not isinstance(value, Real) or not math.isfinite(value):
        return math.inf
    low = float(d.low)
    high = float(d.high)
    number = float(value)
    if d.log:
        if number <= 0:
            return math.inf
        low = math.log(low)
        high = math.log(high)
        number = math.log(number)
    excess = max(low - number, number - high, 0.0)
    if excess == 0:
        return 0.0
    if low == high:
        return math.inf
    return excess / (high - low)


def _single(d: Any, value: float) -> BaseDistribution:
    """Return the distribution of a single number: an IntDistribution if parameter and number are whole."""
    if isinstance(d, IntDistribution) and value == int(value):
        return IntDistribution(int(value), int(value), log=d.log)
    return FloatDistribution(value, value, log=d.log)
