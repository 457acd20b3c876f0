"""Upper confidence bounds as acquisition function (GP-UCB, Srinivas et al. 2010)."""

from __future__ import annotations

from dataclasses import dataclass

from kbo.confidence import Confidence
from kbo.optimize.search.bounds import argmax_upper
from kbo.optimize.search.search import Search
from kbo.optimize.strategies.strategy import Strategy
from kbo.space import Params


@dataclass(frozen=True)
class UpperBoundPoint(Strategy):
    """Maximise the upper confidence bound of the method over the points that possibly keep all limits.

    With limits this is CONFIG (Xu et al. 2023, Alg. 1).
    """

    def propose(self, search: Search) -> Params | None:
        if search.bound is None:
            return None
        return search.params(argmax_upper(search.bound, search, search.limits))

    def confidence(self, search: Search) -> Confidence | None:
        return search.confidence

    def describe(self) -> str:
        return "best optimistic bound (upper confidence bound)"
