"""Options of choices that have had too few trials for a model of their parameters, or whose trials all failed."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from kbo.space import Choice, Space

_N_MORE = 3
"""Number of trials that a model of an option needs, besides one for each of its own parameters."""

_FEWEST_FAILURES = 2
"""Number of failures of an option, without a success, that suggest that the option is their reason."""


def hardly_tried(space: Space, tried: Tensor) -> list[tuple[str, Any]]:
    """Return the options that have had too few trials for a model of their own parameters.

    An option's own parameters are active only with it. Too few are fewer trials than the number of these parameters
    plus 3.

    Args:
        space: The search space.
        tried: Points [n P] of the trials.

    Returns:
        The name of the choice and the option, for each of these options.
    """
    too_few = []
    for name in dict.fromkeys(condition.parent for condition in space.conditions.values()):
        parent = space.parameters[name]
        if not isinstance(parent, Choice):  # the options of an order tell about each other
            continue
        indices = option_indices(space, name, tried)
        for index, option in enumerate(parent.options):
            n_trials = int((indices == index).sum())
            n_parameters = _n_parameters_of(space, name, option)
            if n_parameters and n_trials < n_parameters + _N_MORE:
                too_few.append((name, option))
    return too_few


def _n_parameters_of(space: Space, parent: str, option: Any) -> int:
    """Return the number of parameters that are active only with an option of a choice."""
    conditions = space.conditions.values()
    return sum(c.parent == parent and c.values == (option,) for c in conditions)


def only_failed(space: Space, failed: Tensor, succeeded: Tensor) -> list[tuple[str, Any]]:
    """Return the options whose trials, at least two, have all failed while other options of the choice succeeded.

    Args:
        space: The search space.
        failed: Points [n P] of the trials that failed.
        succeeded: Points [m P] of the trials that have a value or were stopped early.

    Returns:
        The name of the choice and the option, for each of these options.
    """
    failing = []
    for name, parameter in space.parameters.items():
        if not isinstance(parameter, Choice):
            continue
        of_failed = option_indices(space, name, failed).tolist()
        of_succeeded = option_indices(space, name, succeeded).tolist()
        if not of_succeeded:
            continue
        for index, option in enumerate(parameter.options):
            if of_failed.count(index) >= _FEWEST_FAILURES and index not in of_succeeded:
                failing.append((name, option))
    return failing


def option_indices(space: Space, name: str, units: Tensor) -> Tensor:
    """Return the position of the option of a choice, at those of the points [n P] where the choice is active."""
    column = list(space.parameters).index(name)
    is_active = space.is_active(name, units)
    return space.parameters[name].index(units[is_active, column])
