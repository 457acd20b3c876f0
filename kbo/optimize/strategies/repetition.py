"""Repetition of the recommended trial, to find out whether the values have noise."""

from __future__ import annotations

from dataclasses import dataclass

from kbo.optimize.search.search import Search
from kbo.optimize.strategies.strategy import Strategy
from kbo.space import Params


@dataclass(frozen=True)
class Repetition(Strategy):
    """Repeat the recommended parameters, while it is not known whether the values have noise.

    Equal values mean that the objective has no noise. One repetition is enough, unless values at different parameters
    are equal too, such as accuracies on few cases: see ``Surrogate.repetitions_needed``. The strategy does not apply
    where a context or choices are given.
    """

    def propose(self, search: Search) -> Params | None:
        if search.surrogate is None or search.surrogate.noiseless is not None:
            return None
        if search.subspace.partial:
            return None
        n_repeated = len(search.tried) - len(search.tried.unique(dim=0))
        if n_repeated >= search.surrogate.repetitions_needed:
            return None
        return search.best

    def describe(self) -> str:
        return "repetition of the recommended trial, which shows whether there is noise"
