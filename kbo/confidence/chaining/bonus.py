"""The bonus that a chaining bound adds to the mean: Contal, Malherbe & Vayatis (2015), Algorithm 1.

On paper                                                          | in code
``H_i = eps_i sqrt(2 ln((|T_i| + 1) i^2 t^2 pi^4 / (36 delta)))`` | ``heights``, ``contal``
the sum of ``H_i`` over ``eps_i < std(x)``                        | ``Steps``
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

_ROUNDING = 8
"""Rounding error of a standard deviation, in units in the last place."""


class Bonus(ABC):
    """A non-decreasing function of the standard deviation."""

    @abstractmethod
    def __call__(self, std: Tensor) -> Tensor:
        """Return the bonus [...] at standard deviations [...]."""

    def majorant(self, std: Tensor) -> Tensor:
        """Return a continuous upper bound [...] of the bonus, for searches by gradients."""
        return self(std)


@dataclass(frozen=True)
class Steps(Bonus):
    """The sum of the heights of all steps below the standard deviation.

    Args:
        edges: Positions of the steps, decreasing and above zero, in units of the targets.
        heights: Heights of the steps, at least 0.
    """

    edges: Sequence[float]
    heights: Sequence[float]

    def __call__(self, std: Tensor) -> Tensor:
        return self._sums(std)[self._n_below(std)]

    def majorant(self, std: Tensor) -> Tensor:
        """Return the value [...] of straight lines through the upper corners of the steps.

        The last line has no end.
        """
        corners = std.new_tensor([0.0, *reversed(self.edges)])
        sums = self._sums(std)
        slopes = sums.diff() / corners.diff()
        line = self._n_below(std).clamp_max(len(slopes) - 1)
        return sums[line] + slopes[line] * (std - corners[line])

    def _sums(self, std: Tensor) -> Tensor:
        """Return the sum of the heights of the lowest j steps, j = 0 .. m, [m + 1]."""
        return std.new_tensor(list(accumulate(reversed(self.heights), initial=0.0)))

    def _n_below(self, std: Tensor) -> Tensor:
        """Return the number [...] of edges below the standard deviation by more than rounding."""
        # Without data the standard deviation equals the largest edge.
        rounding = 1 + _ROUNDING * torch.finfo(std.dtype).eps
        edges = std.new_tensor(list(reversed(self.edges))) * rounding
        return torch.searchsorted(edges, std.detach().contiguous())


def heights(sizes: Sequence[int], radii: Sequence[float], t: int, delta: float) -> list[float]:
    """Return the heights ``H_i`` of the steps of levels i = 1, 2, .. in round t.

    Args:
        sizes: Number of centres ``|T_i|`` of each level.
        radii: Radius ``eps_i`` of each level.
        t: The round, at least 1.
        delta: Probability that the bounds may fail.
    """
    levels = enumerate(zip(sizes, radii, strict=True), start=1)
    return [radius * contal(size, i, t, delta) for i, (size, radius) in levels]


def contal(size: int, level: int, t: int, delta: float) -> float:
    """Return ``sqrt(2 ln((size + 1) level^2 t^2 pi^4 / (36 delta)))``, the width of a level.

    Contal, Malherbe & Vayatis (2015), Algorithm 1, for a level of ``size`` centres, with the ``36
    delta`` that a union over levels and rounds needs.
    """
    return math.sqrt(2 * math.log((size + 1) * level**2 * t**2 * math.pi**4 / (36 * delta)))
