"""The proved bonus over a chain of covers (docs/theory/gaussian.md, "Chaining").

On paper                                                             | in code
``(std(x) + 2 eps_c - eps_m) v_c + sum of eps_(i-1) w_i over i > c`` | a line of ``proved_cuts``
``std(x) v``, the set itself                                         | its last line
``w_i``, ``v_c``: widths of differences and of centres               | ``exact_tail(contal(...))``
``v``, the width of the set                                          | ``exact_tail(srinivas(...))``
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from kbo.confidence.chaining.bonus import Bonus, contal
from kbo.confidence.gaussian import exact_tail, srinivas


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
