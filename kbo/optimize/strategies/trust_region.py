"""The box of the local search, around the best evaluation (as in TuRBO, Eriksson et al. 2019)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from operator import sub

from kbo.optimize.surrogates.surrogate import Evaluation

START, LARGEST, LEAST = 0.2, 0.5, 1e-6
"""Half widths of the box, in units of the features: at first, at most, and at least, below which it starts again."""

GROWTH, SHRINKAGE = 1.5, 0.6
"""Factors of the half width after a better evaluation in the box, and after a worse one."""


def trust_radius(values: Iterable[Evaluation]) -> float:
    """Return the half width of the box after evaluations without noise; predicted values are left out.

    A better evaluation outside the box moves it there and restores its size.
    """
    radius, centre, best = START, None, -math.inf
    for _, features, y, _, _, predicted in values:
        assert y is not None
        if predicted:
            continue
        inside = centre is not None and max(map(abs, map(sub, features, centre))) <= radius
        if y > best:
            centre, best = features, y
            radius = min(GROWTH * radius, LARGEST) if inside else max(radius, START)
        elif inside:
            radius *= SHRINKAGE
        if radius < LEAST:
            radius = START
    return radius
