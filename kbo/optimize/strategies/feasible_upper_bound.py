"""Upper bounds under limits on measured quantities, in the practical setting.

    argmax_x upper(x) + sum_i log P(limit i is kept at x)

The probabilities are those of the posteriors (Gelbart, Snoek & Adams 2014; docs/theory/constraints.md).
"""

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
    """Maximise the upper bound plus the log-probability to keep all limits; only with limits on measured quantities.

    The bound is in prior standard deviations, so one of these weighs as much as a factor e of the probability. Limits
    that are certain to be kept change nothing. While each of the best trials probably breaks a limit, the probability
    alone is maximised.
    """

    def propose(self, search: Search) -> Params | None:
        if search.bound is None or not search.limits:
            return None
        bound = search.bound

        def probability(features: Tensor) -> Tensor:
            return log_probability(search.limits, features)

        def score(features: Tensor) -> Tensor:
            return quick_upper(bound, features) + probability(features)

        best_trials = search.space.features(search.starts)
        if bool((probability(best_trials) < math.log(0.5)).all()):
            return search.argmax(probability)
        return search.argmax(score)

    def confidence(self, search: Search) -> Confidence | None:
        return search.confidence

    def describe(self) -> str:
        return "upper confidence bound plus log-probability to keep all limits"
