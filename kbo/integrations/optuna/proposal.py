"""The next parameters of a trial, some of whose ranges may still be unknown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.trial import FrozenTrial
from torch import Tensor

from kbo.integrations.optuna.ranges import nearest
from kbo.integrations.optuna.space import SearchSpace
from kbo.optimize import Optimizer
from kbo.space import Params

_POINTS = 1024
"""Number of points to choose from if ranges are unknown."""

_WIDTH = 0.2
"""Width of the box around a trial, in the unit cube, from which points near it are drawn."""


class Request(NamedTuple):
    """A trial that needs parameters.

    Attributes:
        number: The number of the trial, which decides the random numbers.
        fixed: The values of parameters that are already fixed.
        ranges: The ranges of the parameters in this trial; an unknown range is the expected one.
        unknown: The names of parameters whose ranges in this trial are unknown.
    """

    number: int
    fixed: Mapping[str, Any]
    ranges: Mapping[str, BaseDistribution]
    unknown: Sequence[str]


def propose(
    optimizer: Optimizer,
    search_space: SearchSpace,
    request: Request,
    pending: Mapping[int, Params],
    trials: Sequence[FrozenTrial],
) -> tuple[dict[str, Any], str]:
    """Return the next parameters, for Optuna, and the explanation of the choice; it is empty if all were fixed.

    Args:
        optimizer: The optimiser after the finished trials.
        search_space: The space of the optimiser.
        request: The trial.
        pending: The parameters that other trials evaluate, in the space of kbo, by the numbers of the trials.
        trials: The finished trials.
    """
    context = search_space.inside({**_single_values(request.ranges), **request.fixed})
    for name in search_space.dropped:
        context.setdefault(name, search_space.defaults[name])
    active = search_space.space.active_names(context)
    if all(name in context for name in active):
        return search_space.decode({name: context[name] for name in active}), ""
    ranges = _narrower_ranges(search_space, request, context)
    unknown = [name for name in request.unknown if name not in context]
    points = None
    if unknown:
        points = _likely_points(search_space, trials, unknown, request.number)
    values: Any
    values, explanation = optimizer.proposal(
        request.number,
        context=context,
        pending=[pending[number] for number in sorted(pending)],
        within={name: (d.low, d.high) for name, d in ranges.items()},
        among=points,
    )
    params = search_space.decode(values)
    for name, d in ranges.items():
        if name in params:
            params[name] = nearest(d, params[name])
    return params, str(explanation)


def _single_values(ranges: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of numeric parameters whose range is a single value."""
    values: dict[str, Any] = {}
    for name, d in ranges.items():
        if not isinstance(d, CategoricalDistribution) and d.single():
            values[name] = d.low
    return values


def _narrower_ranges(
    search_space: SearchSpace, request: Request, context: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the ranges in a trial that differ from the ranges of the model; fixed parameters are left out."""
    ranges: dict[str, Any] = {}
    for name, whole in search_space.distributions.items():
        d = request.ranges.get(name, whole)
        if name not in context and d != whole:
            ranges[name] = d
    return ranges


def _likely_points(
    search_space: SearchSpace, trials: Sequence[FrozenTrial], unknown: Sequence[str], number: int
) -> Tensor | None:
    """Return points [A P] of the unit cube in which the parameters with unknown ranges have likely values.

    A range may depend on other parameters, and only the objective knows how. So each point takes the ranges of the
    trial whose other parameters are nearest. Half of the points are near trials. In a range, a quarter of the values
    are at each end, since the best value is often there. None if no trial has all of these parameters.

    Args:
        search_space: The space.
        trials: The finished trials.
        unknown: The parameters whose ranges are unknown.
        number: The number of the trial, which decides the random numbers.
    """
    with_ranges: list[FrozenTrial] = []
    values: list[dict[str, Any]] = []
    for trial in trials:
        complete = search_space.complete(trial.params)
        if complete is not None and all(name in trial.distributions for name in unknown):
            with_ranges.append(trial)
            values.append(complete)
    if not with_ranges:
        return None
    space = search_space.space
    units = space.units(values)
    generator = torch.Generator().manual_seed(number)
    points = _uniform(generator, _POINTS, space.dimension)
    centres = units[torch.randint(len(units), (_POINTS // 2,), generator=generator)]
    steps = _WIDTH * (_uniform(generator, *centres.shape) - 0.5)
    points[::2] = (centres + steps).clamp(0, 1)
    known = [i for i, name in enumerate(space.parameters) if name not in unknown]
    if known:
        nearest_trial = torch.cdist(points[:, known], units[:, known], 1).argmin(-1)
    else:
        nearest_trial = torch.randint(len(units), (_POINTS,), generator=generator)
    for i, name in enumerate(space.parameters):
        if name in unknown:
            ends = _ends(search_space, with_ranges, name)[nearest_trial]
            lower, upper = ends.unbind(-1)
            share = (2 * _uniform(generator, _POINTS) - 0.5).clamp(0, 1)
            points[:, i] = lower + (upper - lower) * share
    return points


def _uniform(generator: torch.Generator, *shape: int) -> Tensor:
    """Return uniform random numbers from 0 to 1."""
    return torch.rand(*shape, generator=generator, dtype=torch.float64)


def _ends(search_space: SearchSpace, trials: Sequence[FrozenTrial], name: str) -> Tensor:
    """Return the lower and the upper end of a parameter's range in each trial, as unit coordinates [n 2]."""
    parameter = search_space.space.parameters[name]
    ends: list[list[float]] = []
    for trial in trials:
        d: Any = trial.distributions[name]
        ends.append([parameter.unit(d.low), parameter.unit(d.high)])
    return torch.tensor(ends, dtype=torch.float64)
