"""The search from the best trials of a run, and the random numbers of a run.

Proposals, gaps and statistics all begin with this search, so they search the same space from the same points. The
random numbers depend on the seed of the run and the number of a trial alone.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kbo.optimize.quantities.quantities import Quantities
from kbo.optimize.search.search import Search
from kbo.optimize.search.subspace import Subspace


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
