"""Thompson sampling."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kbo.optimize.search.search import Search
from kbo.optimize.strategies.strategy import Strategy
from kbo.space import Params


@dataclass(frozen=True)
class ThompsonSampling(Strategy):
    """The maximum of a function drawn from the posterior, as wide as the confidence of the method.

    Not with limits on measured quantities.
    """

    @torch.no_grad()
    def propose(self, search: Search) -> Params | None:
        if search.bound is None or search.limits:
            return None
        confidence = search.bound.confidence
        posterior = search.bound.posterior
        starts = search.space.features(search.starts)
        posterior_at = posterior.at(confidence.ridge(posterior))
        path = posterior_at.draw_function(starts, search.generator)
        return search.argmax(lambda X: confidence.inflated(posterior, X, path(X)))

    def describe(self) -> str:
        return "Thompson sampling"
