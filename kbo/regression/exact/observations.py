"""The data of an exact regression: locations with counts, so that repeated points cost nothing.

n observations are kept as m <= n rows (location, count c, mean target). A row stands for
observations of equal location; several rows may have the same location. An observation of weight w
counts w times: its noise variance is 1/w of that of weight 1. Observations at one location differ
only by noise, so with ``C = diag(c)`` and ``A = K_m + ridge C^-1``

    (K_n + ridge I)^-1  acts like  A^-1 on the mean targets ybar,
    ln det(I + K_n / ridge) = ln det A - sum ln(ridge / c),
    y'(I + K_n / ridge)^-1 y = within + ridge * ybar'A^-1 ybar,
    |y - mean|^2 = within + ridge^2 sum_r (A^-1 ybar)_r^2 / c_r,
    Tr K_n (K_n + ridge I)^-1 = sum_r 1 - (ridge / c_r) [A^-1]_rr,

where ``within`` is the weighted sum of squares of the targets around the mean of their row. On the
left K_n and y are ``W^1/2 K W^1/2`` and ``W^1/2 y`` (docs/theory/observations.md).

A repeat first enters as a new row. Once a third of the rows are repeats, all rows of equal location
are merged, and the factor of the distinct rows is computed again. This costs O(m^2) per
observation, amortised.
"""

from __future__ import annotations

import bisect
import itertools

import torch
from torch import Tensor

from kbo._base.checks import Location, OnHost
from kbo._base.linalg import GrowingTensor
from kbo._base.stateful import Stateful, fresh_version

_FEWEST_REPEATS_TO_MERGE = 32
"""Number of repeated rows up to which rows are never merged."""


class Observations(Stateful):
    """The observations, grouped into rows of equal location with counts and mean targets.

    Two rows may have the same location, because a repeat first enters as a new row.

    Args:
        X: Points with the dtype, device and columns of the data.
        y: Targets with the dtype and device of the data.

    Attributes:
        within: Sum of squares of the targets around the mean of their row, [].
        weight_range: Smallest and largest weight of an observation, and 1.
        n: Number of observations.
        rows: Number of rows m.
        repeats: Number of observations at an earlier location, and how many of these have its last
            value too.
        blocks: Row numbers at which an update ended. Factors are extended block by block, so that a
            copy that is extended later has the same rounding errors.
        layout: A version that changes when rows change other than by appending. Results from the
            rows of another layout are invalid.
    """

    def __init__(self, X: Tensor, y: Tensor) -> None:
        self.within: Tensor = y.new_zeros(())
        self.n: int = 0
        self.weight_range: tuple[float, float] = (1.0, 1.0)
        self.repeats: tuple[int, int] = (0, 0)
        self._last_targets: dict[Location, float] = {}
        self._repeated_rows = 0
        self._replace_rows(X[:0], y[:0], y[:0])

    @property
    def X(self) -> Tensor:
        """Location of each row, [m d]."""
        return self._X.value

    @property
    def y(self) -> Tensor:
        """Mean target of each row, [m]."""
        return self._y.value

    @property
    def counts(self) -> Tensor:
        """Sum of the weights of each row, [m]."""
        return self._counts.value

    def blocks_after(self, row: int) -> list[tuple[int, int]]:
        """Return the blocks (start, stop) that begin at ``row`` or later; a block begins at ``row``."""
        if row == self.rows:
            return []
        stops = self.blocks[bisect.bisect_right(self.blocks, row) :]
        return list(itertools.pairwise([row, *stops]))

    def append(self, X: Tensor, y: Tensor, weights: Tensor | None, host: OnHost) -> None:
        """Add points X [r d], targets y [r] and weights [r] (None for ones), also given on the host."""
        self.n += len(X)
        if weights is None:
            weights = torch.ones_like(y)
        if host.weights is not None:
            smallest, largest = self.weight_range
            self.weight_range = min(smallest, *host.weights), max(largest, *host.weights)
        X, counts, y, within, locations = merge(X, weights, y, host.locations)
        if within is not None:
            self.within = self.within + within
        self._repeated_rows += sum(location in self._last_targets for location in locations)
        self._count_repeats(host)
        self._X.append(X)
        self._counts.append(counts)
        self._y.append(y)
        self.rows += len(X)
        self.blocks.append(self.rows)
        if self._repeated_rows > max(_FEWEST_REPEATS_TO_MERGE, len(self._last_targets) // 2):
            self._merge_all()

    def _count_repeats(self, host: OnHost) -> None:
        """Count the new observations in ``repeats``."""
        n_repeats, n_equal = self.repeats
        for location, target in zip(host.locations, host.targets, strict=True):
            last_target = self._last_targets.get(location)
            if last_target is not None:
                n_repeats += 1
                n_equal += last_target == target
            self._last_targets[location] = target
        self.repeats = n_repeats, n_equal

    def _merge_all(self) -> None:
        """Merge all rows of equal location."""
        locations = list(map(tuple, self.X.tolist()))
        X, counts, y, within, _ = merge(self.X, self.counts, self.y, locations)
        if within is not None:
            self.within = self.within + within
        self._repeated_rows = 0
        self._replace_rows(X, counts, y)

    def _replace_rows(self, X: Tensor, counts: Tensor, y: Tensor) -> None:
        """Make these the rows, as one block."""
        self._X = GrowingTensor(X)
        self._counts = GrowingTensor(counts)
        self._y = GrowingTensor(y)
        self.rows: int = len(X)
        self.blocks: list[int] = [len(X)] if len(X) else []
        self.layout: int = fresh_version()


def merge(
    X: Tensor, counts: Tensor, y: Tensor, locations: list[Location]
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, list[Location]]:
    """Return rows in which equal locations are merged, in order of first appearance.

    Args:
        X: Locations [r d].
        counts: Their counts [r].
        y: Their mean targets [r].
        locations: X as tuples.

    Returns:
        Locations, counts and mean targets of the merged rows; the sum of squares of the targets
        around their mean, [] (None if nothing was merged); and the locations as tuples.
    """
    numbers: dict[Location, int] = {}  # of the merged rows
    row_numbers: list[int] = []
    first_rows: list[int] = []
    for row, location in enumerate(locations):
        if location not in numbers:
            numbers[location] = len(numbers)
            first_rows.append(row)
        row_numbers.append(numbers[location])
    distinct = list(numbers)
    if len(distinct) == len(locations):
        return X, counts, y, None, distinct
    index = torch.tensor(row_numbers, device=X.device)
    total = counts.new_zeros(len(distinct)).index_add_(0, index, counts)
    mean = y.new_zeros(len(distinct)).index_add_(0, index, counts * y) / total
    within = (counts * (y - mean[index]) ** 2).sum()
    return X[torch.tensor(first_rows, device=X.device)], total, mean, within, distinct
