"""Options of choices that have had too few trials for a model of their own parameters, or whose trials all failed."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from kbo.space import Choice, Space

_N_MORE = 3
"""Trials of an option beyond the number of its own parameters, from which on the model is believed about it."""

_FEWEST_FAILURES = 2
"""Failed trials of an option from which on it may be the reason of the failures."""


def hardly_tried(space: Space, tried: Tensor) -> list[tuple[str, Any]]:
    """Return the options with parameters of their own that have had too few trials.

    Its own are the parameters that are active only with the option. Too few are fewer than their number plus 3.

    Args:
        space: The search space.
        tried: Points [n P] of the trials.

    Returns:
        The name of the parent and the option, for each of these.
    """
    found = []
    for name in dict.fromkeys(condition.parent for condition in space.conditions.values()):
        parent = space.parameters[name]
        if not isinstance(parent, Choice):  # the options of an order tell about each other
            continue
        indices = option_indices(space, name, tried)
        for index, option in enumerate(parent.options):
            n_trials = int((indices == index).sum())
            n_own = _n_own(space, name, option)
            if n_own and n_trials < n_own + _N_MORE:
                found.append((name, option))
    return found


def _n_own(space: Space, parent: str, option: Any) -> int:
    """Return the number of parameters that are active only where a parent has an option."""
    conditions = space.conditions.values()
    return sum(c.parent == parent and c.values == (option,) for c in conditions)


def only_failed(space: Space, failed: Tensor, succeeded: Tensor) -> list[tuple[str, Any]]:
    """Return the options all of whose trials failed, at least two, while trials of another option succeeded.

    Args:
        space: The search space.
        failed: Points [n P] of the trials that failed.
        succeeded: Points [m P] of those with a value, or stopped early.

    Returns:
        The name of the choice and the option, for each of these.
    """
    found = []
    for name, parameter in space.parameters.items():
        if not isinstance(parameter, Choice):
            continue
        of_failed = option_indices(space, name, failed).tolist()
        of_succeeded = option_indices(space, name, succeeded).tolist()
        if not of_succeeded:
            continue
        for index, option in enumerate(parameter.options):
            if of_failed.count(index) >= _FEWEST_FAILURES and index not in of_succeeded:
                found.append((name, option))
    return found


def option_indices(space: Space, name: str, units: Tensor) -> Tensor:
    """Return the positions among the options of a choice at those points [n P] where it is active."""
    column = list(space.parameters).index(name)
    is_active = space.is_active(name, units)
    return space.parameters[name].index(units[is_active, column])
