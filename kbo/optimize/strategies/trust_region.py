"""Local search in a box around the best trial (as in TuRBO, Eriksson et al. 2019)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor

from kbo.confidence import FixedWidth
from kbo.optimize.search.search import Search
from kbo.optimize.strategies.strategy import Strategy
from kbo.optimize.surrogates.evaluation import Evaluation
from kbo.space import Params

START = 0.2
"""Half width of the first box, in units of the features."""

LARGEST = 0.5
"""Largest half width."""

LEAST = 1e-6
"""Least half width. A smaller box gets the half width of the first box again."""

GROWTH = 1.5
"""Factor of the half width after a better evaluation in the box."""

SHRINKAGE = 0.6
"""Factor of the half width after a worse evaluation in the box."""


@dataclass(frozen=True)
class TrustRegion(Strategy):
    """Maximise the upper bound in a box around the best trial.

    The box grows after a better trial in it and shrinks after a worse one. The strategy applies only without noise, in
    spaces with a real parameter, and not where a context or choices are given.

    Args:
        width: Standard deviations above the mean. A small width gives nearly the mean, but a lower bound near pending
            points.
    """

    width: float = 0.25

    def propose(self, search: Search) -> Params | None:
        if search.surrogate is None or search.bound is None or not search.is_noiseless:
            return None
        if not search.space.continuous or search.subspace.partial:
            return None
        posterior = search.bound.posterior
        confidence = self.confidence(search)

        def upper(features: Tensor) -> Tensor:
            return confidence.upper(posterior, features)

        radius = trust_radius(search.surrogate.values)
        return search.params(search.argmax_point_near(upper, radius))

    def confidence(self, search: Search) -> FixedWidth:
        return FixedWidth(self.width)

    def describe(self) -> str:
        return f"mean plus {self.width:g} standard deviations, in a box around the best trial"


def trust_radius(values: Iterable[Evaluation]) -> float:
    """Return the half width of the box after evaluations without noise, in unit coordinates; predictions do not count.

    A better evaluation outside the box moves the box there and restores its size.
    """
    radius = START
    centre = None
    best = -math.inf
    for evaluation in values:
        if evaluation.predicted:
            continue
        features = evaluation.features
        y = evaluation.value
        assert y is not None
        is_inside = centre is not None and _distance(features, centre) <= radius
        if y > best:
            best = y
            centre = features
            if is_inside:
                radius = min(GROWTH * radius, LARGEST)
            else:
                radius = max(radius, START)
        elif is_inside:
            radius *= SHRINKAGE
        if radius < LEAST:
            radius = START
    return radius


def _distance(features: tuple[float, ...], centre: tuple[float, ...]) -> float:
    """Return the largest difference of two rows of features in a column."""
    return max(abs(a - b) for a, b in zip(features, centre, strict=True))
