"""Upper bounds under limits that are estimated."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from kbo.confidence import Confidence
from kbo.optimize.constraints.slacks import log_probability
from kbo.optimize.search.bounds import quick_upper
from kbo.optimize.search.search import Search
from kbo.optimize.strategies.strategy import Strategy
from kbo.space import Params


@dataclass(frozen=True)
class FeasibleUpperBound(Strategy):
    """The largest upper bound plus log-probability to keep all limits; only with limits on measured quantities.

    The unit of the targets is the prior standard deviation, and one of it weighs as much as a factor e in probability;
    certain limits change nothing. While all promising points are more likely to break a limit than not, the probability
    alone counts.
    """

    def propose(self, search: Search) -> Params | None:
        if search.bound is None or not search.limits:
            return None
        bound = search.bound

        def probability(features: Tensor) -> Tensor:
            return log_probability(search.limits, features)

        def score(features: Tensor) -> Tensor:
            upper = quick_upper(bound.confidence, bound.posterior, features)
            return upper + probability(features)

        promising = search.space.features(search.starts)
        all_unlikely = bool((probability(promising) < math.log(0.5)).all())
        if all_unlikely:
            return search.argmax(probability)
        return search.argmax(score)

    def confidence(self, search: Search) -> Confidence | None:
        if search.bound is None:
            return None
        return search.bound.confidence

    def describe(self) -> str:
        return "upper confidence bound plus log-probability to keep all limits"
