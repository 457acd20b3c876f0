"""The best points and the safe points by pessimistic bounds, whether or not they were evaluated."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from kbo.optimize.constraints.feasibility import limits
from kbo.optimize.quantities.quantities import Quantities
from kbo.optimize.quantities.run_search import search_after_trials
from kbo.optimize.search.bounds import argmax_lower
from kbo.optimize.search.search import Search
from kbo.optimize.search.subspace import Subspace
from kbo.optimize.strategies.safe_exploration import SafePoints, certainly_safe
from kbo.space import Params


def best_params(quantities: Quantities, seed: int, subspace: Subspace) -> Params | None:
    """Return the parameters of a subspace with nearly the largest lower bound; None while there is no bound.

    Where the setting explores safely, they are among the points that are certain to keep all limits.

    Args:
        quantities: The quantities of a run with one objective.
        seed: The seed of the run.
        subspace: The part of the space.
    """
    surrogate = quantities.bounded()
    if surrogate is None:
        return None
    latest = surrogate.latest
    assert latest is not None
    search = search_after_trials(quantities, seed, subspace)
    if quantities.safe_points is not None:
        units = safe_units(quantities, quantities.safe_points, search)
        search = replace(search, subspace=subspace.among(units))
    limited = limits(quantities.limits())
    return subspace.params(argmax_lower(latest, search, limited))


def safe_units(quantities: Quantities, safe_points: SafePoints, search: Search) -> Tensor:
    """Return the points [n P] of the unit cube in a part of the space that are certain to keep all limits."""
    tried = quantities.units_of(quantities.trials.all)
    units, _ = certainly_safe(safe_points, search, tried)
    return units
