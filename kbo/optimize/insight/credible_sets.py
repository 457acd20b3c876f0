"""Credible sets: the values of a parameter that may be optimal, and those as good as the recommended value."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR
from typing import Any

import torch
from torch import Tensor

from kbo._base.terminal import significant
from kbo.optimize.insight.comparison import Estimate
from kbo.optimize.insight.optima import DrawnObjective, Optima
from kbo.optimize.run.table import by_name
from kbo.space import Choice, Int, Ordinal, Params, Space
from kbo.space.parameters import Parameter

CREDIBILITY = 0.9
"""Probability with which a credible set contains the value of the optimum."""

_NEARLY_ALL = 0.8
"""Share of the range from which on a credible set rules out nothing; without data it has nine tenths of the range."""

_N_STEPS = 64
"""Number of steps in the range of a number, at which the objective is compared with the recommended value."""

_FEWEST_STEPS = 2
"""Number of steps on each side of the recommended value that must be as good before a good range is reported."""

_PROBABILITY = 0.8
"""Least probability of a statement that one value is as good as, or better than, another one."""

_EDGE = 0.02
"""Share of the range of a parameter that counts as its edge."""

_NATURAL_BOUNDS = (0, 1)
"""Lower bounds of whole numbers below which there is nothing, as of a number of layers."""


@dataclass(frozen=True)
class CredibleSet:
    """A credible set: values of a parameter, which are a range or some options.

    Attributes:
        values: The two ends of the range, or the options.
        ranged: Whether it is a range.
        has_all: Whether the set has all values of the parameter, or is a credible range over at least 80% of them.
    """

    values: tuple[Any, ...]
    ranged: bool
    has_all: bool

    def __str__(self) -> str:
        if not self.ranged:
            return " or ".join(map(str, self.values))
        low, high = self.values
        if not isinstance(low, float) or not isinstance(high, float):
            return str(low) if low == high else f"{low} to {high}"
        if low == high:
            return f"{low:.4g}"
        n_equal_digits = math.floor(math.log10(max(abs(low), abs(high)) / (high - low)))
        # At most four, with which parameters are shown: then the recommended value is inside as it is shown, too.
        digits = min(2 + max(0, n_equal_digits), 4)
        return (
            f"{significant(low, digits, ROUND_FLOOR)} to {significant(high, digits, ROUND_CEILING)}"
        )


@dataclass(frozen=True)
class Effect:
    """The effect of a parameter on the objective, by the model.

    Attributes:
        name: The name of the parameter.
        share: The expected share of the parameter in the variance of the objective over the space (Shapley effect),
            with a 90% interval. The shares of all parameters add up to 1; all are 0 if the objective does not vary.
        visible: Whether an effect is visible: the interval is above 2%, and the mean of the draws of the objective has
            at least a fifth of their variance. Without noise the second condition is only that the values vary.
        negligible: Whether the interval is below 10%. A parameter that is neither visible nor negligible has not been
            tried enough.
        range: The values of the parameter that may be optimal: the smallest set that contains its value at the optimum
            with a probability of 90%, extended to the recommended value. The other parameters vary with the optimum.
            None if the parameter is not active in the recommended parameters, or in no optimum.
        good: The values that are as good as the recommended one, while the other parameters stay as recommended: with a
            probability of 80% the loss is at most the tolerance. None if the parameter is not active, or if no value
            next to the recommended one is known to be as good.
        edge: "lower" or "upper" if the recommended value is at that end of the range, and better values may be beyond
            it; otherwise empty.
    """

    name: str
    share: Estimate
    visible: bool
    negligible: bool
    range: CredibleSet | None = None
    good: CredibleSet | None = None
    edge: str = ""

    def __str__(self) -> str:
        share = f"{self.share.value:.0%} of the variation [{self.share.lower:.0%}, {self.share.upper:.0%}]"
        if self.range is None:
            return f"{self.name}: {share}"
        return f"{self.name}: {share}, best at {self.range} with {CREDIBILITY:.0%}"


def open_choices(effects: Sequence[Effect]) -> list[str]:
    """Return the names of the choices with a visible effect in which several options may be the best."""
    names = []
    for effect in effects:
        if effect.range is None or effect.range.ranged or not effect.visible:
            continue
        if len(effect.range.values) > 1:
            names.append(effect.name)
    return names


def with_sets(
    effect: Effect, objective: DrawnObjective, optima: Optima, best: Params, tolerance: float
) -> Effect:
    """Return the effect with range, good values and edge, if the parameter is active in the recommended parameters.

    Args:
        effect: The share of the parameter.
        objective: Draws of the objective.
        optima: The optima of the draws.
        best: The recommended parameters.
        tolerance: The loss that does not matter.
    """
    if effect.name not in by_name(best):
        return effect
    space = objective.space
    parameter = space.parameters[effect.name]
    column = list(space.parameters).index(effect.name)
    is_active = space.is_active(effect.name, optima.units)
    points, row = _along(space, best, effect.name)
    units = points[:, column]
    credible = credible_set(parameter, optima.units[is_active, column], units[row])
    values = objective.values(points)
    loss = values[:, row : row + 1] - values
    good = good_values(parameter, units, row, loss, objective.is_feasible(points), tolerance)
    edge = ""
    if effect.visible or (credible is not None and not credible.has_all):
        edge = _edge(parameter, units, row, loss)
    return replace(effect, range=credible, good=good, edge=edge)


def credible_set(parameter: Parameter, optima: Tensor, recommended: Tensor) -> CredibleSet | None:
    """Return the smallest set of values that holds 90% of the optima of draws and the recommended value.

    It is the shortest range, extended to the recommended value, or the fewest options. None without optima.

    Args:
        parameter: The parameter.
        optima: Unit coordinates [s] of the optima.
        recommended: The unit coordinate [] of the recommended value.
    """
    s = len(optima)
    if not s:
        return None
    n_inside = math.ceil(CREDIBILITY * s)
    if isinstance(parameter, Choice):
        counts = torch.bincount(parameter.index(optima), minlength=len(parameter.options))
        order = counts.argsort(descending=True, stable=True)
        n_options = int((counts[order].cumsum(0) < n_inside).sum()) + 1
        rows = sorted({*order[:n_options].tolist(), int(parameter.index(recommended))})
        options = tuple(parameter.options[row] for row in rows)
        return CredibleSet(options, False, len(options) == len(parameter.options))
    ordered = optima.sort().values
    low, high = _shortest(ordered, n_inside)
    low = min(low, float(recommended))
    high = max(high, float(recommended))
    shortest = _range(parameter, low, high)
    if high - low >= _NEARLY_ALL:
        return replace(shortest, has_all=True)
    return shortest


def _shortest(ordered: Tensor, n_inside: int) -> tuple[float, float]:
    """Return the shortest range that holds ``n_inside`` of ascending numbers [s]; of equal ones the middle one."""
    widths = ordered[n_inside - 1 :] - ordered[: len(ordered) - n_inside + 1]
    shortest = (widths <= widths.min() + 1e-9).nonzero().flatten()
    first = int(shortest[len(shortest) // 2])
    return float(ordered[first]), float(ordered[first + n_inside - 1])


def _range(parameter: Parameter, low: float, high: float) -> CredibleSet:
    """Return the set of all values between two unit coordinates."""
    values = (parameter.value(low), parameter.value(high))
    everything = (parameter.value(0.0), parameter.value(1.0))
    return CredibleSet(values, True, values == everything)


def _along(space: Space, best: Params, name: str) -> tuple[Tensor, int]:
    """Return the recommended point with other values of a parameter, [v P], and the row of the recommended value.

    The values ascend: all options, or the range in steps from the recommended value, with both ends.
    """
    parameter = space.parameters[name]
    options = parameter.options
    recommended = space.unit(best)
    column = list(space.parameters).index(name)
    unit = recommended[column]
    if options and (len(options) <= _N_STEPS or isinstance(parameter, Choice)):
        grid = parameter.middles(torch.arange(len(options)))
    else:
        steps = torch.arange(-_N_STEPS, _N_STEPS + 1, dtype=torch.float64) / _N_STEPS
        grid = (unit + steps).clamp(0, 1).unique()
    points = recommended.repeat(len(grid), 1)
    points[:, column] = grid
    return points, int((grid - unit).abs().argmin())


def good_values(
    parameter: Parameter,
    units: Tensor,
    row: int,
    loss: Tensor,
    feasible: Tensor,
    tolerance: float,
) -> CredibleSet | None:
    """Return the values that are as good as the recommended one, while the other parameters stay as recommended.

    They are options, or a range around the recommended value. None if no value next to it is known to be as good.

    Args:
        parameter: The parameter.
        units: Unit coordinates [v] of its values, ascending.
        row: The row of the recommended value.
        loss: Draws [s v] of the objective at the recommended value less those at each value.
        feasible: Whether each of these values keeps each constraint with a probability of at least 1/2, [v].
        tolerance: The loss that does not matter.
    """
    probability_good = (loss <= tolerance).double().mean(0)
    is_good = (probability_good >= _PROBABILITY) & feasible
    is_good[row] = True
    if isinstance(parameter, Choice):
        rows = is_good.nonzero().flatten().tolist()
        options = tuple(parameter.options[row] for row in rows)
        return CredibleSet(options, False, bool(is_good.all()))
    below = _run_length(is_good[: row + 1].flip(0)) - 1
    above = _run_length(is_good[row:]) - 1
    first = row - below
    last = row + above
    if parameter.options:
        is_known = below + above >= 1
    else:
        is_known_below = below >= _FEWEST_STEPS or first == 0
        is_known_above = above >= _FEWEST_STEPS or last == len(units) - 1
        is_known = is_known_below and is_known_above
    if not is_known:
        return None
    return _range(parameter, float(units[first]), float(units[last]))


def _run_length(is_good: Tensor) -> int:
    """Return the number of good values before the first bad one, of values [v]."""
    return int(is_good.long().cumprod(0).sum())


def _edge(parameter: Parameter, units: Tensor, row: int, loss: Tensor) -> str:
    """Return "lower" or "upper" if the recommended value is at that end of the range, and better than one inside.

    "Better" needs a probability of 80%. Otherwise empty, as for choices and orders without numbers, which have no ends,
    and at the lower end of a whole number from 0 or 1 on, such as a number of layers, since nothing is below.
    Arguments as for ``good_values``.
    """
    if isinstance(parameter, Choice):
        return ""
    if isinstance(parameter, Ordinal) and not isinstance(parameter.options[0], int | float):
        return ""
    recommended = float(units[row])
    last = len(units) - 1
    step = max(1, last // 10)
    if row == 0 or recommended <= _EDGE:
        edge = "lower"
        inside = step
        if isinstance(parameter, Int) and parameter.low in _NATURAL_BOUNDS:
            return ""
    elif row == last or recommended >= 1 - _EDGE:
        edge = "upper"
        inside = last - step
    else:
        return ""
    probability_better = float((loss[:, inside] > 0).double().mean())
    if probability_better < _PROBABILITY:
        return ""
    return edge
