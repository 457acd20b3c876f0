"""The bonus that a chaining bound adds to the mean: Algorithm 1, and the proved one.

On paper: Contal, Malherbe & Vayatis (2015), Algorithm 1             | in code
``H_i = eps_i sqrt(2 ln((|T_i| + 1) i^2 t^2 pi^4 / (36 delta)))``    | ``heights``, ``contal``
the sum of ``H_i`` over ``eps_i < std(x)``                           | ``Steps``

The proved bonus (docs/theory/gaussian.md, "Chaining")               | in code
``(std(x) + 2 eps_c - eps_m) v_c + sum of eps_(i-1) w_i over i > c`` | a line of ``proved_cuts``
``std(x) v``, the set itself                                         | its last line
``w_i``, ``v_c``: widths of differences and of centres               | ``exact_tail(contal(...))``
``v``, the width of the set                                          | ``exact_tail(srinivas(...))``
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from kbo.confidence.gaussian import exact_tail, srinivas

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


@dataclass(frozen=True)
class Cuts(Bonus):
    """The bonus of a chain that is cut at the best level: the least of several straight lines.

    A chain of covers leads from a point to centres at coarser and coarser levels. If it is cut at
    level c, the bonus is the sum of the bounds of the differences below c, and of the bound at the
    centre. This sum is a straight line ``intercept + slope * std`` in the standard deviation of the
    point. All lines hold at once.

    Args:
        intercepts: The value of each line at std = 0, at least 0, in units of the targets.
        slopes: The slope of each line, at least 0: the width for the level where it is cut.
    """

    intercepts: Sequence[float]
    slopes: Sequence[float]

    def __call__(self, std: Tensor) -> Tensor:
        """Return the bonus [...] at standard deviations [...], in units of the targets."""
        slopes = std.new_tensor(self.slopes)
        lines = std.new_tensor(self.intercepts) + slopes * std.unsqueeze(-1)  # [... levels + 1]
        return lines.amin(-1)


def proved_cuts(
    sizes: Sequence[int], radii: Sequence[float], n_points: int, t: int, delta: float
) -> Cuts:
    """Return the proved bonus: a line for each level at which a chain may be cut, and one more line.

    The last line is the union bound over all points of the set, without a chain.

    Args:
        sizes: Number of centres ``|T_i|`` of each level.
        radii: Radius ``eps_i`` of each level, rounding included.
        n_points: Number of points of the set.
        t: The round, at least 1.
        delta: Probability that the bounds may fail; nine tenths of it are for the last line, a
            tenth is for the chain.
    """
    set_delta = 0.9 * delta
    chain_delta = 0.1 * delta
    n_levels = len(sizes)

    # A point of level i + 1 has a parent within the radius of level i; the last level is the set.
    differences = [
        radii[i - 1] * exact_tail(contal(size, i + 1, t, chain_delta))
        for i, size in enumerate([*sizes[1:], n_points], start=1)
    ]
    intercepts: list[float] = []
    slopes: list[float] = []
    for c, size in enumerate(sizes):
        # Level 1 has no differences, so its share of delta is divided among the cuts.
        width = exact_tail(contal(size - 1, 1, t, chain_delta / n_levels))
        distance = sum(radii[c:])  # of a point to its centre of this level, 2 eps_c - eps_m
        intercepts.append(width * distance + sum(differences[c:]))
        slopes.append(width)
    intercepts.append(0.0)
    slopes.append(exact_tail(srinivas(n_points, t, set_delta)))
    return Cuts(intercepts, slopes)
