"""Effects of the parameters: importance, and credible sets of the values that may be as good as the recommended one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kbo.optimize.feasibility import ConstraintSurrogate, probably_feasible
from kbo.optimize.insight import importance
from kbo.optimize.insight.comparison import N_DRAWS
from kbo.optimize.surrogates.surrogate import Surrogate
from kbo.optimize.table import by_name
from kbo.space import Choice, Params, Space
from kbo.space.parameters import Parameter

_N_VALUES = 33
"""Values of a number that are compared with the recommended one."""

_VISIBLE_SHARE = 0.05
_VISIBLE_PROBABILITY = 0.975
"""A parameter has a visible effect if its share of the variance is at least that, and one of its values is worse than
the recommended one with that probability."""

_PROBABILITY = 0.8
"""Probability with which a value is as good, or an edge the best side."""

_EDGE = 0.02
"""Part of a range that counts as its edge."""


@dataclass(frozen=True)
class Effect:
    """The effect of a parameter.

    Attributes:
        name: The parameter.
        share: Its share of the variance of the model over the space, interactions included: the total index (Sobol
            2001).
        visible: Whether it is at least 5%, and a value is worse than the recommended one with a probability of 97.5%.
        good: Its values, the others unchanged, at which the objective is within the tolerance of that at the
            recommended ones with a probability of 80%: the ends of a range, or options. None where it is not active.
        ranged: Whether ``good`` is a range.
        all: Whether these are all values.
        edge: "lower" or "upper" where the recommended value is at that bound and better ones may lie beyond it.
        interval: The 90% interval of the share by draws of the model; None without draws.
    """

    name: str
    share: float
    visible: bool
    good: tuple[Any, ...]
    ranged: bool
    all: bool
    edge: str
    interval: tuple[float, float] | None = None

    def __str__(self) -> str:
        if self.all:
            return f"any {self.name}"
        values = [_shown(value) for value in dict.fromkeys(self.good)]
        if self.ranged:
            return f"{self.name} {' to '.join(values)}"
        return f"{self.name} {' or '.join(values)}"


@dataclass(frozen=True)
class CredibleSet:
    """The values of a parameter that may be as good as the recommended one, the other parameters unchanged.

    Attributes:
        probability_worse: The probability that its worst value is worse than the recommended one.
        good, all, edge: As of ``Effect``.
    """

    probability_worse: float = 1.0
    good: tuple[Any, ...] = ()
    all: bool = False
    edge: str = ""


def effects(
    space: Space,
    surrogate: Surrogate,
    constraints: Sequence[ConstraintSurrogate],
    best: Params,
    tolerance: float,
    generator: torch.Generator,
    intervals: bool,
) -> list[Effect]:
    """Return the effects of the parameters, the one with the largest share first.

    Args:
        space: The search space.
        surrogate: The surrogate of its objective, larger values better.
        constraints: The constraints with their surrogates.
        best: The recommended parameters.
        tolerance: The loss that counts as none.
        generator: Source of randomness.
        intervals: Whether the shares have intervals, which take most of the time.
    """
    n_draws = importance.N_DRAWS if intervals else 0
    no_visible_effect = "effects" in surrogate.account()
    active = by_name(best)
    found = []
    for entry in importance.importance(space, surrogate, n_draws):
        lower, share, upper = entry.total
        parameter = space.parameters[entry.name]
        values = CredibleSet()
        if entry.name in active:
            units, points = _along(space, best, entry.name)
            draws = surrogate.draws(space.features(points), N_DRAWS, generator)
            assert draws is not None
            feasible = probably_feasible(space, constraints, points[1:])
            values = credible_set(parameter, units, draws.cpu(), feasible, tolerance)
        visible = share >= _VISIBLE_SHARE and values.probability_worse >= _VISIBLE_PROBABILITY
        visible = visible and not no_visible_effect
        effect = Effect(
            name=entry.name,
            share=share,
            visible=visible,
            good=values.good,
            ranged=not isinstance(parameter, Choice),
            all=values.all,
            edge=values.edge if visible else "",
            interval=(lower, upper),
        )
        found.append(effect)
    return found


def _along(space: Space, best: Params, name: str) -> tuple[Tensor, Tensor]:
    """Return unit coordinates [1 + v] of values of a parameter, the recommended one first, and points with them.

    The points [1 + v, P] are the recommended one, and it with each of the values.
    """
    parameter = space.parameters[name]
    options = parameter.options
    recommended = space.unit(best)
    column = torch.tensor([list(space.parameters).index(name)])
    if options and (len(options) <= _N_VALUES or isinstance(parameter, Choice)):
        grid = parameter.middles(torch.arange(len(options)))
    else:
        grid = torch.linspace(0, 1, _N_VALUES, dtype=torch.float64)
    points = recommended.repeat(len(grid), 1).index_copy_(1, column, grid.unsqueeze(1))
    units = torch.cat([recommended[column], grid])
    return units, torch.cat([recommended.unsqueeze(0), points])


def credible_set(
    parameter: Parameter, units: Tensor, values: Tensor, feasible: Tensor, tolerance: float
) -> CredibleSet:
    """Return the credible set of one parameter, the other parameters held at the recommendation.

    Args:
        parameter: The parameter.
        units: Unit coordinates [1 + v] of its values, the recommended one first.
        values: Draws of the objective [s, 1 + v] with these.
        feasible: Whether each of its values [v] keeps all constraints with a probability of a half.
        tolerance: The loss that counts as none.
    """
    at_recommended = values[:, :1]
    at_values = values[:, 1:]
    probability_worse = float((at_values < at_recommended).double().mean(0).max())
    probability_good = (at_values >= at_recommended - tolerance).double().mean(0)
    is_good = (probability_good >= _PROBABILITY) & feasible
    recommended = units[0]
    grid = units[1:]
    nearest = int((grid - recommended).abs().argmin())
    is_good[nearest] = True
    if isinstance(parameter, Choice):
        rows = is_good.nonzero().flatten().tolist()
        options = tuple(parameter.options[row] for row in rows)
        return CredibleSet(probability_worse, options, bool(is_good.all()))
    first = nearest - _run_length(is_good[: nearest + 1].flip(0)) + 1
    last = nearest + _run_length(is_good[nearest:]) - 1
    low = min(float(grid[first]), float(recommended))
    high = max(float(grid[last]), float(recommended))
    good = (parameter.value(low), parameter.value(high))
    is_all = first == 0 and last == len(grid) - 1
    edge = _edge(parameter, float(recommended), nearest, values)
    return CredibleSet(probability_worse, good, is_all, edge)


def _run_length(is_good: Tensor) -> int:
    """Return the number of values [v] at the beginning that are good without a gap."""
    return int(is_good.long().cumprod(0).sum())


def _edge(parameter: Parameter, recommended: float, nearest: int, values: Tensor) -> str:
    """Return "lower" or "upper" if the recommended value is at that bound and better than values farther inside.

    Args:
        parameter: The parameter, a range or an order.
        recommended: The unit coordinate of its recommended value.
        nearest: The row of the value next to it.
        values: Draws of the objective [s, 1 + v].
    """
    last = values.shape[1] - 2
    if parameter.options:
        at_lower = nearest == 0
        at_upper = nearest == last
    else:
        at_lower = recommended <= _EDGE
        at_upper = recommended >= 1 - _EDGE
    step = max(1, last // 10)
    if at_lower:
        edge = "lower"
        inside = step
    elif at_upper:
        edge = "upper"
        inside = last - step
    else:
        return ""
    probability_better = float((values[:, 0] > values[:, 1 + inside]).double().mean())
    if probability_better < _PROBABILITY:
        return ""
    return edge


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)
