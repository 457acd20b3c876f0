"""Options of conditional spaces that have had too few trials for a model of their own parameters."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from kbo.space import Choice, Space

_N_MORE = 3
"""Trials of an option beyond the number of its own parameters, from which on the model is believed about it."""


def hardly_tried(space: Space, tried: Tensor) -> list[tuple[str, Any]]:
    """Return the options with parameters of their own that have had too few trials.

    Its own are the parameters that are active only with the option. Too few are fewer than their number plus 3.

    Args:
        space: The search space.
        tried: Points [n P] of the trials.

    Returns:
        The name of the parent and the option, for each of these.
    """
    columns = {name: column for column, name in enumerate(space.parameters)}
    found = []
    for name in dict.fromkeys(condition.parent for condition in space.conditions.values()):
        parent = space.parameters[name]
        if not isinstance(parent, Choice):  # the options of an order tell about each other
            continue
        is_active = space.is_active(name, tried)
        indices = parent.index(tried[is_active, columns[name]])
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
