"""The points of a space with the largest upper or lower confidence bound, with or without limits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from kbo._base.linalg import safe_sqrt
from kbo.confidence import Limit
from kbo.optimize.constraints.feasibility import feasible_first, lower_slack, upper_slack
from kbo.optimize.search.search import MOST_POINTS, Search
from kbo.optimize.surrogates.surrogate import Bound


class LargestUpper(NamedTuple):
    """The largest upper bound over a space, for optimality gaps.

    Attributes:
        value: The bound [], in units of the posterior; minus infinity if no point possibly keeps the limits.
        point: The point [P] of the unit cube where a search has found it; None if the bound was computed at every
            point.
    """

    value: Tensor
    point: Tensor | None


def argmax_upper(bound: Bound, search: Search, limits: Sequence[Limit] = ()) -> Tensor:
    """Return a point [P] of the unit cube with nearly the largest upper bound; among choices, with the largest.

    With ``limits``, only points that possibly keep all of them count. If there is none, the point nearest to keeping
    them is returned.
    """
    confidence = bound.confidence
    posterior = bound.posterior
    if not limits:
        return search.argmax_point(
            lambda features: quick_upper(bound, features),
            lambda features: confidence.argmax_upper(posterior, features)[0],
        )

    def score(features: Tensor) -> Tensor:
        return feasible_first(quick_upper(bound, features), upper_slack(limits, features))

    def best_row(features: Tensor) -> int:
        upper = confidence.upper(posterior, features)
        return int(feasible_first(upper, upper_slack(limits, features)).argmax())

    return search.argmax_point(score, best_row)


def quick_upper(bound: Bound, features: Tensor) -> Tensor:
    """Return the score [n] of a search at features [n D]: a quick upper bound, or the deviation if it is infinite."""
    if bound.confidence.finite_on(bound.posterior):
        return bound.confidence.quick_interval(bound.posterior, features)[1]
    return safe_sqrt(bound.posterior.predict(features)[1])


def argmax_lower(bound: Bound, search: Search, limits: Sequence[Limit] = ()) -> Tensor:
    """Return a point [P] of the unit cube with nearly the largest lower bound; among choices, with the largest.

    With ``limits``, only points that are certain to keep all of them count. If there is none, the point nearest to that
    is returned.
    """
    confidence = bound.confidence
    posterior = bound.posterior

    def lower(features: Tensor) -> Tensor:
        return confidence.lower(posterior, features)

    if limits:
        return search.argmax_point(
            lambda features: feasible_first(lower(features), lower_slack(limits, features))
        )
    if search.subspace.choices is None:
        return search.argmax_point(lower)
    return search.argmax_point(
        lower, lambda features: confidence.argmax_lower(posterior, features)[0]
    )


def largest_upper(bound: Bound, search: Search, limits: Sequence[Limit] = ()) -> LargestUpper:
    """Return the largest upper bound over the space; with ``limits``, over the points that possibly keep them."""
    points = search.space.points(MOST_POINTS)
    if points is None:
        point = argmax_upper(bound, search, limits)
        features = search.space.features(point.unsqueeze(0))
        return LargestUpper(bound.confidence.upper(bound.posterior, features)[0], point)
    features = search.space.features(points)
    if limits:
        features = features[upper_slack(limits, features) >= 0]
    largest = -math.inf
    if len(features):
        largest = bound.confidence.argmax_upper(bound.posterior, features)[1]
    return LargestUpper(torch.tensor(largest, dtype=torch.float64), None)
