"""The acquisition function of several objectives: upper confidence bounds of the hypervolume."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from kbo.optimize.constraints.slacks import log_probability
from kbo.optimize.objectives.hypervolume import directions, improvement, scalarized
from kbo.optimize.search.bounds import quick_upper
from kbo.optimize.search.search import N_BEST, Search
from kbo.optimize.strategies.strategy import Strategy
from kbo.space import Params

_N_DIRECTIONS = 128
"""Number of random directions over which the hypervolume is averaged."""


@dataclass(frozen=True)
class HypervolumeUpperBound(Strategy):
    """Maximise the growth of the hypervolume, as if every objective reached its upper confidence bound.

    Every second trial maximises the scalarisation in one random direction instead (Zhang and Golovin 2020, Alg. 1). The
    strategy applies only with several objectives, and once there is a front.

    Under limits the log-probability to keep them is added to the score. The score in one direction is a difference of
    targets, divided by the extent of the front. The score of the volume is the mean growth of such a difference to the
    power m, the number of objectives. So, unlike in ``FeasibleUpperBound``, the unit of the score is not the prior
    standard deviation, and the probability is never maximised alone.
    """

    def propose(self, search: Search) -> Params | None:
        front = search.front
        if front is None:
            return None
        generator = search.generator
        m = len(search.bounds)
        starts = torch.randperm(len(front.units), generator=generator)[:N_BEST]
        search = replace(search, starts=front.units[starts])
        n_directions = _N_DIRECTIONS
        if search.number % 2:
            n_directions = 1
        weights = directions(n_directions, m, generator) * front.scale

        def score(features: Tensor) -> Tensor:
            bounds = [quick_upper(bound, features) for bound in search.bounds]
            targets = torch.stack(bounds, -1).cpu()
            if n_directions == 1:
                worth = scalarized(targets, front.reference, weights).squeeze(-1)
            else:
                worth = improvement(targets, front.targets, front.reference, weights)
            return worth + log_probability(search.limits, features).cpu()

        return search.argmax(score)

    def describe(self) -> str:
        return "largest possible growth of the front (hypervolume of upper confidence bounds)"
