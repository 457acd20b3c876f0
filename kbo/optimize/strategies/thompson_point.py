"""Thompson sampling: the next point maximises a function drawn from the posterior.

    argmax_x centre(x) + half_width(x) g(x) / deviation(x)

g is a draw from the posterior, less its mean. Centre and half width are those of the interval of the method. If the
half width is ``width * deviation``, this is GP-TS (Chowdhury & Gopalan 2017, Alg. 2).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kbo.optimize.search.search import Search
from kbo.optimize.strategies.strategy import Strategy
from kbo.space import Params


@dataclass(frozen=True)
class ThompsonPoint(Strategy):
    """Maximise a draw from the posterior, whose deviations are scaled to the width of the method's interval.

    The strategy does not apply with limits on measured quantities.
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
