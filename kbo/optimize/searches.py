"""Searches of the space after the trials of a run: from the best ones, considering failed and pending ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from kbo.bandit import methods
from kbo.confidence import Limit
from kbo.optimize.quantities import Quantities
from kbo.optimize.search.search import Search
from kbo.optimize.search.subspace import Subspace
from kbo.optimize.surrogates.surrogate import Bound, Surrogate
from kbo.space import Params

MANY = 500
"""Completed trials from which on the practical setting scores half as many points in the search for the next one: each
is expensive, and the starts are good."""


def generator_of(seed: int, number: int) -> torch.Generator:
    """Return a source of randomness that depends on the seed of a run and a number alone."""
    return torch.Generator().manual_seed((1_000_003 * seed + number) % 2**63)


def search_from_best(
    quantities: Quantities, seed: int, subspace: Subspace, number: int, effort: float = 1.0
) -> Search:
    """Return a search from the best trials so far.

    Args:
        quantities: The quantities of the run.
        seed: The seed of the run.
        subspace: The part of the space.
        number: The number of the trial whose random numbers it has.
        effort: The share of the usual number of points that are scored.
    """
    space = quantities.space
    starts = _starts(quantities, subspace)
    generator = generator_of(seed, number)
    if space.constraints:
        subspace = subspace.knowing(quantities.units_of(quantities.trials.all))
        starts = starts[space.satisfies(starts)]  # known results may exceed a limit by rounding
    if not len(starts) and (space.constraints or space.changed):
        starts = subspace.sample(generator).unsqueeze(0)
    return Search(space, subspace, starts, number, generator, effort)


def search_for_trial(
    quantities: Quantities, seed: int, subspace: Subspace, number: int, pending: Sequence[Params]
) -> Search:
    """Return the search for the parameters of a trial, with the surrogates.

    Args:
        quantities: The quantities of the run.
        seed: The seed of the run.
        subspace: The part of the space.
        number: The number of the trial.
        pending: Parameters that are being evaluated, besides the pending trials.

    Raises:
        RefutedAssumptions: In the certified setting, no function satisfies the assumptions.
    """
    trials = quantities.trials
    pending_units = quantities.space.units(pending)
    running = torch.cat([quantities.running(), quantities.space.features(pending_units)])
    counting = [trial for trial in trials.all if trial.removed is None]
    tried = torch.cat([quantities.units_of(counting), pending_units])
    has_bounds = methods.get(quantities.problem.method).has_bounds
    surrogate = None
    if has_bounds:
        surrogate = quantities.surrogate()
    effort = 1.0
    if len(trials.complete) >= MANY and not quantities.setting.certified:
        effort = 0.5
    search = search_from_best(quantities, seed, subspace, number, effort)
    bound = None
    if surrogate is not None:
        bound = _with_failed(quantities, surrogate, surrogate.bound(number))
        bound = _with_pending(bound, running)
    limits = []
    if surrogate is not None or quantities.exploration is not None:
        for limited in quantities.limits():
            own = _with_pending(limited.surrogate.bound(number), running)
            limits.append(Limit(own.posterior, own.confidence, lower=limited.level))
    search = replace(
        search,
        seed=seed,
        tried=tried,
        n_running=len(running),
        surrogate=surrogate,
        bound=bound,
        limits=limits,
        recommend=quantities.recommended_params,
    )
    repeats_nothing = search.is_noiseless
    if has_bounds and surrogate is None:
        repeats_nothing = quantities.space.table is not None
    if repeats_nothing:
        return search.untried()
    return search


def _starts(quantities: Quantities, subspace: Subspace) -> Tensor:
    """Return the points [s P] of the best trials; if the subspace has a box, in the box, if there are any."""
    if subspace.boxed:
        complete = quantities.allowed(quantities.trials.complete)
        is_inside = subspace.in_box(quantities.units_of(complete)).tolist()
        inside = [trial for trial, kept in zip(complete, is_inside, strict=True) if kept]
        if inside:
            return quantities.units_of(quantities.best_of(inside))
    return quantities.units_of(quantities.leading())


def _with_failed(quantities: Quantities, surrogate: Surrogate, bound: Bound) -> Bound:
    """Return a bound of the objective to search with, with failed trials observed at the worst value so far.

    Otherwise the search would return to them: the data say nothing against them. Pruned trials of whose value nothing
    is predicted count as failed ones.
    """
    trials = quantities.trials
    predicted = {evaluation.number for evaluation in surrogate.values if evaluation.predicted}
    unpredicted = [trial for trial in trials.pruned if trial.number not in predicted]
    without_value = trials.failed + unpredicted
    if not without_value:
        return bound
    worst = surrogate.transform.target(min(map(quantities.signed, trials.complete)))
    X = quantities.features(without_value)
    return bound.given(X, X.new_full((len(X),), worst))


def _with_pending(bound: Bound, running: Tensor) -> Bound:
    """Return a bound to search with, with running trials, at features [n D], observed at the mean."""
    if not len(running):
        return bound
    return bound.given(running)
