"""The search of the space after the trials of a run, from the best ones, and the random numbers of a run.

What proposes trials, what proves a gap and what computes statistics begin here, so that all of them search the same
space from the same points. The seed of the run and the number of a trial alone decide the random numbers.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kbo.optimize.quantities.quantities import Quantities
from kbo.optimize.search.search import Search
from kbo.optimize.search.subspace import Subspace


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


def search_after_trials(
    quantities: Quantities, seed: int, subspace: Subspace | None = None
) -> Search:
    """Return a search from the best trials so far, with random numbers that depend on how many trials have ended.

    Args:
        quantities: The quantities of the run.
        seed: The seed of the run.
        subspace: The part of the space; by default the whole.
    """
    if subspace is None:
        subspace = Subspace(quantities.space)
    return search_from_best(quantities, seed, subspace, len(quantities.trials.finished))


def _starts(quantities: Quantities, subspace: Subspace) -> Tensor:
    """Return the points [s P] of the best trials; if the subspace has a box, in the box, if there are any."""
    if subspace.boxed:
        complete = quantities.allowed(quantities.trials.complete)
        is_inside = subspace.in_box(quantities.units_of(complete)).tolist()
        inside = [trial for trial, kept in zip(complete, is_inside, strict=True) if kept]
        if inside:
            return quantities.units_of(quantities.best_of(inside))
    return quantities.units_of(quantities.leading())
