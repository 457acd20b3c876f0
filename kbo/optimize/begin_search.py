"""Searches of the space after the trials of a run: from the best ones, considering failed and pending ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from kbo.bandit import methods
from kbo.confidence import Limit
from kbo.optimize.objectives.hypervolume import non_dominated
from kbo.optimize.objectives.objective import targets_of
from kbo.optimize.quantities import Quantities
from kbo.optimize.search.options import only_failed
from kbo.optimize.search.search import Search, SearchedFront
from kbo.optimize.search.subspace import Subspace
from kbo.optimize.surrogates.surrogate import Bound, Surrogate
from kbo.space import Params

MANY = 500
"""Completed trials from which on the practical setting scores half as many points in the search for the next one: each
is expensive, and the starts are good."""

_SPACING = 0.099
"""Distance in ranges up to which trials with noise are next to each other; next to one that is being evaluated another
one says little. Of a range with 10 steps all may be evaluated at once."""


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
    failing = []
    if surrogate is None and trials.failed:
        failed = quantities.units_of(trials.failed)
        succeeded = quantities.units_of(trials.complete + trials.pruned)
        failing = only_failed(quantities.space, failed, succeeded)
    bounds = []
    others = []
    if surrogate is not None:
        of_objectives = list(quantities.surrogates().values()) or [surrogate]
        others = of_objectives[1:]
        for position, of_objective in enumerate(of_objectives):
            bound = _with_failed(quantities, position, of_objective, of_objective.bound(number))
            bounds.append(_with_pending(bound, running))
    limits = []
    if surrogate is not None or quantities.exploration is not None:
        for limited in quantities.limits():
            own = _with_pending(limited.surrogate.bound(number), running)
            limits.append(Limit(own.posterior, own.confidence, lower=limited.level))
    avoided = running
    spacing = _SPACING
    if quantities.setting.certified:  # where to repeat a point may be worth most
        avoided = running[:0]
    if quantities.noiseless():
        spacing = 0.0
    search = replace(
        search,
        seed=seed,
        tried=tried,
        avoided=avoided,
        failing=failing,
        spacing=spacing,
        surrogate=surrogate,
        bound=next(iter(bounds), None),
        others=others,
        bounds=bounds,
        front=_front(quantities),
        limits=limits,
        recommend=quantities.recommended_params,
    )
    repeats_nothing = search.is_noiseless
    if has_bounds and surrogate is None:
        repeats_nothing = quantities.space.table is not None
    if repeats_nothing:
        return search.untried()
    return search


def _worst(quantities: Quantities) -> list[float]:
    """Return the worst value so far of each objective, larger ones better."""
    complete = quantities.trials.complete
    if quantities.objectives:
        return targets_of(complete, quantities.objectives).amin(0).tolist()
    return [min(map(quantities.signed, complete))]


def _front(quantities: Quantities) -> SearchedFront | None:
    """Return the front of several objectives so far; None while there are no surrogates, or with one objective.

    The reference is that of the user; where there is none, a tenth of the front's extent below its least targets, and
    at least two standard deviations of the targets below the largest. Otherwise the search would not leave one part
    of the front: points beyond the reference count nothing.
    """
    if not quantities.others:
        return None
    trials = quantities.within_limits()
    if not trials:
        return None
    targets = quantities.targets(trials)
    if targets is None:
        return None
    on_front = non_dominated(targets)
    targets = targets[on_front]
    largest = targets.amax(0)
    extent = largest - targets.amin(0)
    reference = largest - ((1 + _BELOW) * extent).clamp_min(_LEAST_EXTENT)
    surrogates = quantities.surrogates()
    for row, objective in enumerate(quantities.objectives):
        if objective.name in quantities.reference:
            value = objective.sign * quantities.reference[objective.name]
            reference[row] = surrogates[objective.name].transform.target(value)
    scale = (largest - reference).clamp_min(_LEAST_EXTENT)
    return SearchedFront(quantities.units_of(trials)[on_front], targets, reference, scale)


_BELOW = 0.1
"""Distance of the default reference below the least targets of a front, in its extents."""

_LEAST_EXTENT = 2.0
"""Extent above the reference, at least, in standard deviations of the targets."""


def _starts(quantities: Quantities, subspace: Subspace) -> Tensor:
    """Return the points [s P] of the best trials; if the subspace has a box, in the box, if there are any."""
    if subspace.boxed:
        complete = quantities.allowed(quantities.trials.complete)
        is_inside = subspace.in_box(quantities.units_of(complete)).tolist()
        inside = [trial for trial, kept in zip(complete, is_inside, strict=True) if kept]
        if inside:
            return quantities.units_of(quantities.best_of(inside))
    return quantities.units_of(quantities.leading())


def _with_failed(
    quantities: Quantities, position: int, surrogate: Surrogate, bound: Bound
) -> Bound:
    """Return a bound of the objective at a position, with failed trials observed at its worst value so far.

    Otherwise the search would return to them: the data say nothing against them. Pruned trials of whose value nothing
    is predicted count as failed ones.
    """
    trials = quantities.trials
    if not trials.failed and not trials.pruned:
        return bound
    predicted = {evaluation.number for evaluation in surrogate.values if evaluation.predicted}
    unpredicted = [trial for trial in trials.pruned if trial.number not in predicted]
    without_value = trials.failed + unpredicted
    if not without_value:
        return bound
    X = quantities.features(without_value)
    target = surrogate.transform.target(_worst(quantities)[position])
    return bound.given(X, X.new_full((len(X),), target))


def _with_pending(bound: Bound, running: Tensor) -> Bound:
    """Return a bound to search with, with running trials, at features [n D], observed at the mean."""
    if not len(running):
        return bound
    return bound.given(running)
