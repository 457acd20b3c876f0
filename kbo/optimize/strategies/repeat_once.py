"""One repetition of the recommended trial, to find out whether the values have noise."""

from __future__ import annotations

from dataclasses import dataclass

from kbo.optimize.search.search import Search
from kbo.optimize.strategies.strategy import Strategy
from kbo.space import Params


@dataclass(frozen=True)
class RepeatOnce(Strategy):
    """Repeat the recommended parameters once, while it is not known whether the values have noise.

    Equal values mean that the objective has no noise. The strategy does not apply where a context or choices are given.
    """

    def propose(self, search: Search) -> Params | None:
        if search.surrogate is None or search.surrogate.noiseless is not None:
            return None
        if search.subspace.partial:
            return None
        is_repeated = len(search.tried.unique(dim=0)) < len(search.tried)
        if is_repeated:
            return None
        return search.best

    def describe(self) -> str:
        return "repetition of the recommended trial, which shows whether there is noise"
