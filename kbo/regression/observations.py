"""The data of a regression: locations with counts, so that repeated points cost nothing.

n observations are kept as m <= n rows (location, count c, mean target), any grouping of observations by
equal location. An observation of weight w, whose noise variance is 1/w of the others', counts w times. Observations
at one location differ only by noise, so with ``C = diag(c)``

    (K_n + ridge I)^-1  acts like  (K_m + ridge C^-1)^-1 on the group means,
    ln det(I + K_n / ridge) = ln det(K_m + ridge C^-1) - sum ln(ridge / c),
    y'(I + K_n / ridge)^-1 y = within + ridge * ybar'(K_m + ridge C^-1)^-1 ybar,
    |y - mean|^2 = within + ridge^2 sum_r (A^-1 ybar)_r^2 / c_r,    with A = K_m + ridge C^-1,
    Tr K_n (K_n + ridge I)^-1 = sum_r 1 - (ridge / c_r) [A^-1]_rr,

where ``within`` is the weighted sum of squares of the targets around their group means, and K_n and y on the left are
``W^1/2 K W^1/2`` and ``W^1/2 y`` (docs/theory/weights.md). A repeat first enters as a
row of its own; once the repeats make up a third of the rows they are folded into the counts, which costs
one refactorisation of the distinct rows: O(m^2) per observation, amortised.
"""

from __future__ import annotations

import bisect
import itertools

import torch
from torch import Tensor

from kbo._base.checks import OnHost
from kbo._base.linalg import GrowingTensor
from kbo._base.stateful import Stateful, fresh_version, passed_on

_FEWEST_REPEATS_TO_FOLD = 32


class Observations(Stateful):
    """Rows of distinct or repeated locations with counts and mean targets.

    Attributes:
        X: Locations [m d].
        counts: Sum of the weights per row [m].
        y: Mean target per row [m].
        within: Sum of squares of the targets around their row's mean, [].
        weight_range: Least and largest weight of an observation, and 1.
        n: Number of observations.
        rows: Number of rows m.
        trace: Sum of ``w k(x, x)`` over the observations, which the posterior keeps.
        largest: Largest ``k(x, x)``, likewise.
        kernel_error: Error of the kernel at the locations, likewise; see ``DenseKernel.error``.
        repeats: How many observations repeated a location, and how many of these the value there.
        blocks: Row numbers at which an update ended: replaying the updates block by block repeats every
            rounding, so a resumed run continues exactly.
        layout: A version that changes whenever rows change other than by appending: what was derived from the rows of
            another layout is void.
    """

    saved: tuple[str, ...] = (
        "_X",
        "_y",
        "_counts",
        "within",
        "n",
        "blocks",
        "weight_range",
        "repeats",
    )

    def __init__(self, X: Tensor, y: Tensor) -> None:
        self._X = GrowingTensor(X[:0])
        self._y = GrowingTensor(y[:0])
        self._counts = GrowingTensor(y[:0])
        self.within: Tensor = y.new_zeros(())
        self._one: Tensor = y.new_ones(())
        self.n: int = 0
        self.rows: int = 0
        self.weight_range: tuple[float, float] = (1.0, 1.0)
        self.trace: float = 0.0
        self.largest: float = 0.0
        self.kernel_error: float = 0.0
        self.repeats: tuple[int, int] = (0, 0)
        self.blocks: list[int] = []
        self.layout: int = fresh_version()
        self._seen: dict[tuple[float, ...], float] = {}  # with the latest target
        self._repeats = 0

    X: Tensor = passed_on("_X.value")
    y: Tensor = passed_on("_y.value")
    counts: Tensor = passed_on("_counts.value")

    @property
    def uniform(self) -> bool:
        """Whether every row counts once."""
        return self.n == self.rows and self.weight_range == (1.0, 1.0)

    def blocks_after(self, row: int) -> list[tuple[int, int]]:
        """The blocks (start, stop) that begin at ``row`` or later, ``row`` being the end of a block."""
        if row == self.rows:
            return []
        stops = [row, *self.blocks[bisect.bisect_right(self.blocks, row) :]]
        return list(itertools.pairwise(stops))

    def append(self, X: Tensor, y: Tensor, weights: Tensor | None, host: OnHost) -> None:
        """Add observations X [r d], y [r] of these weights [r], ones if None; ``host`` has them as plain numbers."""
        self.n += X.shape[0]
        if weights is None:
            weights = self._one.expand(y.shape)
        if host.weights is not None:
            least, most = self.weight_range
            self.weight_range = min(least, *host.weights), max(most, *host.weights)
        X, counts, y, within, locations = merge(X, weights, y, host.places)
        if within is not None:
            self.within = self.within + within
        self._repeats += sum(location in self._seen for location in locations)
        for location, target in zip(host.places, host.targets, strict=True):
            if (before := self._seen.get(location)) is not None:
                self.repeats = self.repeats[0] + 1, self.repeats[1] + (before == target)
            self._seen[location] = target
        self._X.append(X)
        self._counts.append(counts)
        self._y.append(y)
        self.rows += len(X)
        self.blocks.append(self.rows)
        if self._repeats > max(_FEWEST_REPEATS_TO_FOLD, len(self._seen) // 2):
            self._fold()

    def _fold(self) -> None:
        X, counts, y, within, _ = merge(
            self.X, self.counts, self.y, list(map(tuple, self.X.tolist()))
        )
        if within is not None:
            self.within = self.within + within
        self._X, self._counts, self._y = GrowingTensor(X), GrowingTensor(counts), GrowingTensor(y)
        self.rows = len(X)
        self.blocks = [self.rows]
        self.layout = fresh_version()
        self._repeats = 0

    def _restored(self) -> None:
        self.rows = len(self.X)
        self._seen = dict(zip(map(tuple, self.X.tolist()), self.y.tolist(), strict=True))
        self._repeats = self.rows - len(self._seen)
        self.layout = fresh_version()


def merge(
    X: Tensor, counts: Tensor, y: Tensor, places: list[tuple[float, ...]]
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, list[tuple[float, ...]]]:
    """Merge rows of equal location, in order of first appearance; ``places`` are the locations as tuples.

    Returns their locations, counts and mean targets, the sum of squares that merging moved from between rows to within
    rows (None if nothing was merged), and the locations as tuples.
    """
    number: dict[tuple[float, ...], int] = {}
    group, first = [], []
    for row, location in enumerate(places):
        if location not in number:
            number[location] = len(number)
            first.append(row)
        group.append(number[location])
    locations = list(number)
    if len(locations) == len(group):
        return X, counts, y, None, locations
    index = torch.tensor(group, device=X.device)
    total = counts.new_zeros(len(locations)).index_add_(0, index, counts)
    mean = y.new_zeros(len(locations)).index_add_(0, index, counts * y) / total
    within = (counts * (y - mean[index]) ** 2).sum()
    return X[torch.tensor(first, device=X.device)], total, mean, within, locations
