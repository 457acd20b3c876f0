"""The problem that a surrogate is fitted for: the method of a run, the space, and a range of values."""

from __future__ import annotations

import math
from typing import NamedTuple

from kbo.space import Space

ANY = (-math.inf, math.inf)
"""The span of a quantity without a declared range."""


class SearchProblem(NamedTuple):
    """The method and the search space of a run, and the range of one quantity.

    Attributes:
        method: A name of ``kbo.bandit.names()``.
        n_trials: The planned number of trials, for methods that need it.
        space: The search space.
        span: The least and the largest possible value of the quantity, larger ones better.
    """

    method: str
    n_trials: int | None
    space: Space
    span: tuple[float, float] = ANY
