"""Random search, for methods without bounds."""

from __future__ import annotations

from dataclasses import dataclass

from kbo.optimize.search.search import Search
from kbo.optimize.strategies.strategy import Strategy
from kbo.space import Params


@dataclass(frozen=True)
class RandomPoint(Strategy):
    """Random parameters, uniform in the unit cube of the space."""

    def propose(self, search: Search) -> Params:
        return search.random()

    def describe(self) -> str:
        return "random"
