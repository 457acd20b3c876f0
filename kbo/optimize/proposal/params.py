"""The parameters of the next trial, by the strategies of a run, and the best ones by pessimistic bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from kbo.optimize.constraints.feasibility import limits
from kbo.optimize.constraints.safe_points import SafePoints
from kbo.optimize.proposal.trial_search import search_after_trials, search_for_trial
from kbo.optimize.quantities.quantities import Quantities
from kbo.optimize.search.bounds import argmax_lower
from kbo.optimize.search.search import Search
from kbo.optimize.search.subspace import Subspace
from kbo.optimize.strategies.explanation import Explanation, explained
from kbo.optimize.strategies.safe_exploration import SafeExploration, certainly_safe
from kbo.optimize.strategies.strategy import Strategy, propose
from kbo.space import Params


def next_params(
    quantities: Quantities,
    seed: int,
    subspace: Subspace,
    number: int,
    pending: Sequence[Params] = (),
) -> tuple[Params, Explanation]:
    """Return the parameters of a trial, and the explanation of this choice.

    Args:
        quantities: The quantities of the run.
        seed: The seed of the run.
        subspace: The part of the space to choose from.
        number: The number of the trial.
        pending: Parameters that are being evaluated, besides those of the pending trials.

    Raises:
        RefutedAssumptions: In the certified setting, no function satisfies the assumptions.
    """
    search = search_for_trial(quantities, seed, subspace, number, pending)
    proposal = propose(_strategies(quantities), search)
    leading = quantities.leading()
    best = None
    if leading and not subspace.partial:
        best = leading[0].value
    return proposal.params, explained(proposal, search, quantities.sign, best)


def _strategies(quantities: Quantities) -> Sequence[Strategy]:
    """Return the strategies that propose the next trial, tried in order."""
    if quantities.safe_points is None:
        return quantities.setting.strategies_for(quantities.problem.method)
    return [SafeExploration(quantities.safe_points)]


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
