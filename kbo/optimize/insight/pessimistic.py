"""Points that are best, or certain to be safe, by pessimistic bounds: no trial need have been there."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from kbo.optimize.constraints.feasibility import limits
from kbo.optimize.quantities import Quantities
from kbo.optimize.search.bounds import argmax_lower
from kbo.optimize.search.search import Search
from kbo.optimize.strategies.safe_exploration import Exploration
from kbo.space import Params


def best_params(quantities: Quantities, search: Search) -> Params | None:
    """Return the parameters with nearly the largest lower bound of a search; None while there is no bound.

    Where the setting explores safely, they are among the points that are certain to keep all limits.

    Args:
        quantities: The quantities of a run with one objective.
        search: A search of the space or of a part of it.
    """
    bounded = quantities.bounded()
    if bounded is None:
        return None
    surrogate, _ = bounded
    latest = surrogate.latest
    assert latest is not None
    subspace = search.subspace
    if quantities.exploration is not None:
        units = safe_units(quantities, quantities.exploration, search)
        search = replace(search, subspace=subspace.among(units))
    limited = limits(quantities.limits())
    return subspace.params(argmax_lower(latest.confidence, latest.posterior, search, limited))


def safe_units(quantities: Quantities, exploration: Exploration, search: Search) -> Tensor:
    """Return points [n P] of the unit cube that are certain to keep all limits, of a part of the space.

    Args:
        quantities: The quantities of a run, which have learned from all its trials.
        exploration: Their exploration.
        search: A search of that part.
    """
    tried = quantities.units_of(quantities.trials.all)
    units, _ = exploration.safe(search, tried)
    return units
