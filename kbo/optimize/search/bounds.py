"""Points with the largest bounds, and the optimality gap over a space."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from kbo._base.linalg import safe_sqrt
from kbo.confidence import Confidence, Limit
from kbo.optimize.search.search import MOST_POINTS, Search
from kbo.optimize.slacks import feasible_first, least_certain, least_possible
from kbo.regression import Posterior


class SpaceGap(NamedTuple):
    """The optimality gap over a space.

    Attributes:
        value: The optimum is at most this much better than the recommendation, if the bounds hold.
        exact: Whether every point of the space was evaluated; False after a search from many starts.
        proved: Whether it is certified, and a bound of the whole space, not only what a search has found.
        found: The gap that a search has found with the bounds of the method.
        scope: The points that were compared, in words.
        final: Whether these points stay the same: in the safe setting others may become certain to be safe.
        reason: Why nothing is proved; of a proved gap that is smaller than ``found``, the bound that excludes more than
            the bounds of the method, and why (docs/theory/boxes.md). Otherwise empty.
    """

    value: float
    exact: bool
    scope: str
    final: bool = True
    proved: bool = False
    found: float = 0.0
    reason: str = ""


class Largest(NamedTuple):
    """The largest upper bound of a space.

    Attributes:
        value: The bound [].
        exact: Whether every point was evaluated, not only a search made.
        unit: The point [P] of the unit cube that a search has found; None if every point was evaluated.
    """

    value: Tensor
    exact: bool
    unit: Tensor | None


NOT_ASKED = "no proof was asked for: pass evaluations="
"""Reason why nothing is proved, where nobody asked for it."""


def whichever_holds(gaps: Sequence[SpaceGap], scope: str, uncertified: str) -> SpaceGap:
    """Return the largest of the gaps by the bounds of several hypotheses, of which one is true.

    Args:
        gaps: The gap by each, all exact or none.
        scope: The points that they are about, in words.
        uncertified: The reason why the bounds have no guarantee; empty if they have one.
    """
    widest = max(gaps, key=lambda gap: gap.found)
    if widest.exact:
        return SpaceGap(
            widest.found,
            True,
            scope,
            proved=not uncertified,
            found=widest.found,
            reason=uncertified,
        )
    unproved = uncertified or next((gap.reason for gap in gaps if not gap.proved), "")
    if unproved:
        shown = "" if unproved == NOT_ASKED else f"; not proved: {unproved}"
        return SpaceGap(
            widest.found,
            False,
            f"by a search from many starts{shown}",
            found=widest.found,
            reason=unproved,
        )
    value = max(gap.value for gap in gaps)
    shown = f"; {widest.found:.4g} was found"
    reason = ""
    if value < widest.found:
        reason = f"{widest.reason} (docs/theory/boxes.md)"
        shown += f", but {reason}"
    return SpaceGap(
        value, False, f"{scope}, proved{shown}", proved=True, found=widest.found, reason=reason
    )


def argmax_upper(
    confidence: Confidence, posterior: Posterior, search: Search, limits: Sequence[Limit] = ()
) -> Tensor:
    """Return a point [P] of the unit cube whose upper bound is nearly the largest; among choices, exactly.

    With ``limits``, of the points that possibly keep all of them; if there is none, the one that is nearest to it.
    """
    if limits:

        def score(features: Tensor) -> Tensor:
            return feasible_first(
                quick_upper(confidence, posterior, features), least_possible(limits, features)
            )

        def row(features: Tensor) -> int:
            upper = confidence.upper(posterior, features)
            return int(feasible_first(upper, least_possible(limits, features)).argmax())

        return search.argmax_point(score, row)
    return search.argmax_point(
        lambda features: quick_upper(confidence, posterior, features),
        lambda features: confidence.argmax_upper(posterior, features)[0],
    )


def quick_upper(confidence: Confidence, posterior: Posterior, features: Tensor) -> Tensor:
    """Return a score [n] of features [n D] to search with: an upper bound, or, while none is finite, the deviation."""
    if confidence.finite_on(posterior):
        return confidence.quick_interval(posterior, features)[1]
    return safe_sqrt(posterior.predict(features)[1])


def argmax_lower(
    confidence: Confidence, posterior: Posterior, search: Search, limits: Sequence[Limit] = ()
) -> Tensor:
    """Return a point [P] of the unit cube whose lower bound is nearly the largest; among choices, exactly.

    With ``limits``, of the points that are certain to keep all of them; if there is none, the one nearest to that.
    """

    def score(features: Tensor) -> Tensor:
        return feasible_first(
            confidence.lower(posterior, features), least_certain(limits, features)
        )

    if limits:
        return search.argmax_point(score)

    def row(features: Tensor) -> int:
        return confidence.argmax_lower(posterior, features)[0]

    listed = search.subspace.choices is not None
    return search.argmax_point(
        lambda features: confidence.lower(posterior, features), row if listed else None
    )


def largest_upper(
    confidence: Confidence, posterior: Posterior, search: Search, limits: Sequence[Limit] = ()
) -> Largest:
    """Return the largest upper bound of the space; with ``limits`` that of the points which possibly keep them."""
    points = search.space.points(MOST_POINTS)
    if points is not None:
        features = search.space.features(points)
        if limits:
            features = features[least_possible(limits, features) >= 0]
        largest = confidence.argmax_upper(posterior, features)[1] if len(features) else -math.inf
        return Largest(torch.tensor(largest, dtype=torch.float64), True, None)
    point = argmax_upper(confidence, posterior, search, limits)
    upper = confidence.upper(posterior, search.space.features(point.unsqueeze(0)))[0]
    return Largest(upper, False, point)
