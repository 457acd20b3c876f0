"""The region of the local search, a box around the best observation (as in TuRBO, Eriksson et al. 2019)."""

from __future__ import annotations

import math

from torch import Tensor

START, LARGEST, LEAST = 0.2, 0.5, 1e-6
"""Half widths of the box, in units of the features: at first, at most, and at least, below which it starts again."""

GROWTH, SHRINKAGE = 1.5, 0.6
"""Factors of the half width after a better observation in the box, and after a worse one."""


class Region:
    """A box that follows observations without noise.

    Attributes:
        radius: Its half width.
    """

    def __init__(self) -> None:
        self.radius: float = START
        self._centre: Tensor | None = None
        self._best = -math.inf

    def observe(self, features: Tensor, y: float) -> None:
        """Add an observation, features [1 D]. A better one outside the box moves it there and restores its size."""
        inside = self._centre is not None and bool(((features - self._centre).abs() <= self.radius).all())
        if y > self._best:
            self._centre, self._best = features, y
            self.radius = min(GROWTH * self.radius, LARGEST) if inside else max(self.radius, START)
        elif inside:
            self.radius *= SHRINKAGE
        if self.radius < LEAST:
            self.radius = START
