"""The search for the parameters of one trial, with failed and pending trials taken into account.

Proposals, gaps and statistics all begin with the same search from the best trials, so they search the same space from
the same points. The random numbers depend on the seed of the run and the number of a trial alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from kbo.bandit import methods
from kbo.confidence import Limit
from kbo.optimize.objectives.hypervolume import non_dominated
from kbo.optimize.objectives.objective import targets_of
from kbo.optimize.quantities.quantities import Quantities
from kbo.optimize.quantities.recommendation import recommended_params
from kbo.optimize.search.options import only_failed
from kbo.optimize.search.search import Search, SearchedFront
from kbo.optimize.search.subspace import Subspace
from kbo.optimize.surrogates.surrogate import Bound, Surrogate
from kbo.space import Params

_MANY_TRIALS = 500
"""Number of completed trials from which on the practical setting scores half as many points in a search: each score is
expensive, and the starts are good."""

_SPACING = 0.099
"""Distance in ranges up to which points are next to each other: under noise a trial says little next to a running one.
All values of a range with 10 steps may be evaluated at once."""

_BELOW = 0.1
"""Distance of the default reference below the least targets of a front, in extents of the front."""

_LEAST_EXTENT = 2.0
"""Least extent of a front above the reference, in standard deviations of the targets."""


def generator_of(seed: int, number: int) -> torch.Generator:
    """Return a source of randomness that depends only on the seed of a run and a number."""
    return torch.Generator().manual_seed((1_000_003 * seed + number) % 2**63)


def search_from_best(
    quantities: Quantities, seed: int, subspace: Subspace, number: int, effort: float = 1.0
) -> Search:
    """Return a search from the best trials so far.

    Args:
        quantities: The quantities of the run.
        seed: The seed of the run.
        subspace: The part of the space.
        number: The number of the trial, which decides the random numbers.
        effort: Factor of the usual number of scored points.
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


def search_after_trials(
    quantities: Quantities, seed: int, subspace: Subspace | None = None
) -> Search:
    """Return a search from the best trials so far; its random numbers depend on how many trials have ended.

    Args:
        quantities: The quantities of the run.
        seed: The seed of the run.
        subspace: The part of the space; by default the whole space.
    """
    if subspace is None:
        subspace = Subspace(quantities.space)
    return search_from_best(quantities, seed, subspace, len(quantities.trials.finished))


def _starts(quantities: Quantities, subspace: Subspace) -> Tensor:
    """Return the points [s P] of the best trials; if the subspace has a box, only those in it, if there are any."""
    if subspace.boxed:
        complete = quantities.allowed(quantities.trials.complete)
        is_inside = subspace.in_box(quantities.units_of(complete)).tolist()
        inside = [trial for trial, kept in zip(complete, is_inside, strict=True) if kept]
        if inside:
            return quantities.units_of(quantities.best_of(inside))
    return quantities.units_of(quantities.leading())


def search_for_trial(
    quantities: Quantities, seed: int, subspace: Subspace, number: int, pending: Sequence[Params]
) -> Search:
    """Return the search for the parameters of a trial, with surrogates and bounds.

    ``pending`` are parameters that are being evaluated, besides those of the pending trials.

    Raises:
        RefutedAssumptions: In the certified setting, no function satisfies the assumptions.
    """
    space = quantities.space
    pending_units = space.units(pending)
    running = torch.cat([quantities.running(), space.features(pending_units)])
    counting = [trial for trial in quantities.trials.all if trial.removed is None]
    tried = torch.cat([quantities.units_of(counting), pending_units])
    has_bounds = methods.get(quantities.problem.method).has_bounds
    surrogate = None
    if has_bounds:
        surrogate = quantities.surrogate()
    search = search_from_best(quantities, seed, subspace, number, _effort(quantities))
    search = replace(
        search, seed=seed, tried=tried, recommend=partial(recommended_params, quantities)
    )
    search = _with_avoided(search, quantities, running)
    if surrogate is None:
        search = replace(search, failing=_failing(quantities))
    else:
        search = _with_surrogates(search, quantities, surrogate, running)
    if surrogate is not None or quantities.safe_points is not None:
        search = replace(search, limits=_limits(quantities, number, running))
    repeats_nothing = search.is_noiseless
    if has_bounds and surrogate is None:  # it is not known yet whether there is noise
        repeats_nothing = space.table is not None
    if repeats_nothing:
        return search.untried()
    return search


def _effort(quantities: Quantities) -> float:
    """Return the factor of the usual number of points that the search for the next trial scores."""
    if len(quantities.trials.complete) >= _MANY_TRIALS and not quantities.setting.certified:
        return 0.5
    return 1.0


def _with_avoided(search: Search, quantities: Quantities, running: Tensor) -> Search:
    """Return a search that avoids the points that are being evaluated, with features [n D], and those next to them.

    In the certified setting no point is avoided, since a repetition may be the most useful trial. Without noise the
    points next to them are not avoided.
    """
    avoided = running
    if quantities.setting.certified:
        avoided = running[:0]
    spacing = _SPACING
    if quantities.noiseless():
        spacing = 0.0
    return replace(search, avoided=avoided, spacing=spacing)


def _failing(quantities: Quantities) -> list[tuple[str, Any]]:
    """Return the options that have only failed, to avoid them until there is a surrogate, which knows of failures."""
    trials = quantities.trials
    if not trials.failed:
        return []
    failed = quantities.units_of(trials.failed)
    succeeded = quantities.units_of(trials.complete + trials.pruned)
    return only_failed(quantities.space, failed, succeeded)


def _with_surrogates(
    search: Search, quantities: Quantities, surrogate: Surrogate, running: Tensor
) -> Search:
    """Return a search with the surrogates and bounds of all objectives, and the front of several.

    The points that are being evaluated, with features [n D], count as observed at the mean.
    """
    surrogates = list(quantities.surrogates().values()) or [surrogate]
    bounds = []
    for position, of_objective in enumerate(surrogates):
        bound = of_objective.bound(search.number)
        bound = _with_failed(quantities, position, of_objective, bound)
        bounds.append(_with_pending(bound, running))
    return replace(
        search,
        surrogate=surrogate,
        others=surrogates[1:],
        bound=bounds[0],
        bounds=bounds,
        front=_front(quantities),
    )


def _limits(quantities: Quantities, number: int, running: Tensor) -> list[Limit]:
    """Return the limits on measured quantities, with the bounds that trial ``number`` searches with.

    The points that are being evaluated, with features [n D], count as observed at the mean.
    """
    limits = []
    for limited in quantities.limits():
        bound = _with_pending(limited.surrogate.bound(number), running)
        limits.append(Limit(bound.posterior, bound.confidence, lower=limited.level))
    return limits


def _worst(quantities: Quantities) -> list[float]:
    """Return the worst observed value of each objective, larger ones better."""
    complete = quantities.trials.complete
    if quantities.objectives:
        return targets_of(complete, quantities.objectives).amin(0).tolist()
    return [min(map(quantities.signed, complete))]


def _front(quantities: Quantities) -> SearchedFront | None:
    """Return the front of several objectives so far.

    None with one objective, while there are no surrogates, and while no trial keeps the limits.

    The reference is the user's. For other objectives it is a tenth of the front's extent below the least target of the
    front, and at least two standard deviations of the targets below the largest. Points beyond the reference have no
    worth, so with a closer one the search would stay in one part of the front.
    """
    if not quantities.others:
        return None
    trials = quantities.within_limits()
    if not trials:
        return None
    surrogates = quantities.surrogates()
    if not surrogates:
        return None
    features = quantities.features(trials)
    means = [s.posterior.predict(features)[0].cpu() for s in surrogates.values()]
    targets = torch.stack(means, -1)
    on_front = non_dominated(targets)
    targets = targets[on_front]
    largest = targets.amax(0)
    extent = largest - targets.amin(0)
    reference = largest - ((1 + _BELOW) * extent).clamp_min(_LEAST_EXTENT)
    for row, objective in enumerate(quantities.objectives):
        if objective.name in quantities.reference:
            value = objective.sign * quantities.reference[objective.name]
            reference[row] = surrogates[objective.name].transform.target(value)
    scale = (largest - reference).clamp_min(_LEAST_EXTENT)
    return SearchedFront(quantities.units_of(trials)[on_front], targets, reference, scale)


def _with_failed(
    quantities: Quantities, position: int, surrogate: Surrogate, bound: Bound
) -> Bound:
    """Return the bound of the objective at a position, as if its worst value had been observed in failed trials.

    The data say nothing against failed trials, so the search would return to them otherwise. Pruned trials without a
    predicted value count as failed.
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
    """Return a bound for the search, as if the mean had been observed at the features [n D] of running trials."""
    if not len(running):
        return bound
    return bound.given(running)
