"""The points of the first trials of a run: the argument ``try_first`` of ``minimize``."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from kbo._base import checks
from kbo.errors import InvalidInput
from kbo.optimize.run.trials import Trial
from kbo.optimize.search.subspace import Subspace
from kbo.space import Space


def first_points(try_first: Any, space: Space) -> list[dict[str, Any]]:
    """Return the context or the choices with which the trial of each point to try first begins.

    Args:
        try_first: A list of parameters, which may be incomplete dicts by name (by index where the bounds are a list).
        space: The search space.

    Raises:
        InvalidInput: Not such a list, or an entry does not fit the space.
    """
    if isinstance(try_first, (str, Mapping)) or not isinstance(try_first, Sequence):
        raise InvalidInput(
            f"try_first must be a list of dicts of parameters, got {checks.shown(try_first)}."
        )
    points = []
    for number, params in enumerate(try_first):
        with checks.inside(f"try_first[{number}]"):
            points.append(_point(params, space))
    return points


def _point(params: Any, space: Space) -> dict[str, Any]:
    """Return the arguments of ``Subspace`` for some parameters: one choice if they are complete, else a context.

    Raises:
        InvalidInput: The parameters do not fit the space.
    """
    try:
        point: dict[str, Any] = {"choices": [space.canonical(params)]}
    except InvalidInput:
        if not isinstance(params, Mapping):
            raise
        _check_names(params, space)
        if len(params) >= len(space.parameters):
            raise
        _check_values(params, space)
        point = {"context": params}
    Subspace(space, **point)  # raises unless it fits
    return point


def _check_names(params: Mapping[Any, Any], space: Space) -> None:
    """Raise InvalidInput if a name among the parameters is not in the space."""
    if not space.named:
        return
    names = [*space.parameters, *space.constants]
    for name in params:
        if name in names:
            continue
        advice = f"the parameters are {names}."
        near = difflib.get_close_matches(str(name), names, n=1, cutoff=0.3)
        if near:
            advice = f"did you mean {near[0]!r}? The parameters are {names}."
        raise InvalidInput(f"there is no parameter {checks.shown(name)}: {advice}")


def _check_values(params: Mapping[Any, Any], space: Space) -> None:
    """Raise InvalidInput if a parameter, by name or by index, does not have the value that is given."""
    names: dict[Any, str] = {name: name for name in space.parameters}
    if not space.named:
        names = dict(enumerate(space.parameters))
    for label, value in params.items():
        if label in names:
            with checks.inside(f"parameter {label!r}"):
                space.plain(names[label], value)


def remaining(
    points: Sequence[dict[str, Any]], space: Space, trials: Sequence[Trial]
) -> list[dict[str, Any]]:
    """Return the points to try first at which no trial has begun."""
    begun = [trial.params for trial in trials if trial.asked]
    left = []
    for point in points:
        subspace = Subspace(space, **point)
        for number, params in enumerate(begun):
            if subspace.accepts(params):
                del begun[number]
                break
        else:
            left.append(point)
    return left
