"""The observations of a sketch: distinct locations with counts, and what the dictionary says about each."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kbo.linalg import GrowingTensor
from kbo.stateful import Stateful, passed_on

Place = tuple[float, ...]
"""A location on the host."""


def _buffer(name: str) -> Any:
    """Return the attribute of a class that is one of ``_buffers``, with all rows."""
    return property(lambda rows: rows._written()[name])


def _column(i: int) -> Any:
    """Return the attribute of a class that is a column of ``_numbers``."""
    return property(lambda rows: rows._numbers.value[:, i])


class Rows(Stateful):
    """Distinct locations in order of first appearance; repeats are counts.

    Attributes:
        n: Number of rows.
        X: Locations, [n d].
        features: ``B'``, the features of the rows, [n m].
        numbers: The five numbers that follow, [n 5].
        residual: ``k(x, x) - |z(x)|^2 >= 0``, [n].
        prior: ``k(x, x)``, [n].
        spread: Factor by which the features of a row multiply rounding in the dictionary, [n]; see ``error.py``.
        counts: Sum of the weights of the observations per row, [n].
        sums: Sum of weighted targets per row, [n].
        newest: The row of the latest observation.
        order: The row of every observation in the order of arrival; before it, after ``set_features``, all rows once.
        weights: How many observations each entry of ``order`` stands for.
    """

    saved: tuple[str, ...] = ("_X", "_features", "_numbers", "order", "weights")

    def __init__(self, like: Tensor) -> None:
        widths = {"X": like.shape[-1], "features": 0, "numbers": 5}
        self._buffers = {name: GrowingTensor(like.new_empty(0, width)) for name, width in widths.items()}
        self._new: list[tuple[Tensor, ...]] = []
        self._row: dict[Place, int] = {}
        self.newest: int = -1
        self.order: list[int] = []
        self.weights: list[float] = []

    _X: GrowingTensor = _buffer("X")
    _features: GrowingTensor = _buffer("features")
    _numbers: GrowingTensor = _buffer("numbers")
    X: Tensor = passed_on("_X.value")
    features: Tensor = passed_on("_features.value")
    numbers: Tensor = passed_on("_numbers.value")
    residual: Tensor = _column(0)
    prior: Tensor = _column(1)
    spread: Tensor = _column(2)
    counts: Tensor = _column(3)
    sums: Tensor = _column(4)

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self._row)

    def _written(self) -> dict[str, GrowingTensor]:
        """The buffers, after the rows that came since they were last read were copied there together."""
        if self._new:
            for buffer, rows in zip(self._buffers.values(), zip(*self._new, strict=True), strict=True):
                buffer.append(torch.stack(rows).flatten(1))
            self._new = []
        return self._buffers

    def find(self, place: Place) -> int | None:
        """The row at a location; None if there is none."""
        return self._row.get(place)

    def append(self, x: Tensor, features: Tensor, numbers: Tensor, place: Place, weight: float) -> int:
        """A new row, which is returned, for one observation at x [1 d], with its features [m] and its numbers [5]."""
        row = self._row[place] = self.n
        self._new.append((x.clone(), features, numbers))  # the caller may change theirs
        self._arrived([row], [weight])
        return row

    def repeat(self, row: int, y: float, weight: float) -> None:
        """One more observation y at a row."""
        self.numbers[row, 3].add_(weight)
        self.numbers[row, 4].add_(weight * y)
        self._arrived([row], [weight])

    def extend(
        self,
        X: Tensor,
        features: Tensor,
        numbers: Tensor,
        y: Tensor,
        weights: Tensor,
        places: list[Place],
        each: list[float],
    ) -> None:
        """Many observations at once.

        Args:
            X: Locations [r d].
            features: Their features, [r m].
            numbers: Residual, prior and spread of each, [r 3].
            y: Targets [r].
            weights: Weights [r].
            places: The locations on the host.
            each: The weights on the host.
        """
        old, first, index = self.n, [], []
        for i, place in enumerate(places):
            row = self._row.setdefault(place, old + len(first))
            if row == old + len(first):
                first.append(i)
            index.append(row)
        new = torch.tensor(first, dtype=torch.long, device=X.device)
        self._X.append(X[new])
        self._features.grow(len(first), 0)
        self.features[old:] = features[new]
        self._numbers.grow(len(first))
        self.numbers[old:, :3] = numbers[new]
        rows = torch.tensor(index, device=X.device)
        self.numbers[:, 3:].index_add_(0, rows, torch.stack([weights, weights * y], -1))
        self._arrived(index, each)

    def add_feature(self, coordinate: Tensor, row_norm: Tensor) -> None:
        """One more coordinate [n] of the features, whose row of ``L^-1`` has that norm []."""
        self._features.grow(0, 1)
        self.features[:, -1] = coordinate
        self.numbers[:, 0] = (self.residual - coordinate.square()).clamp_min(0)
        self.numbers[:, 2] += coordinate.abs() * row_norm

    def set_features(self, features: Tensor, row_norms: Tensor) -> None:
        """Other features [n m] for all rows, and the norms [m] of the rows of ``L^-1``."""
        self._written()["features"] = GrowingTensor(features)
        self.numbers[:, 0] = (self.prior - features.square().sum(1)).clamp_min(0)
        self.numbers[:, 2] = features.abs() @ row_norms
        self.order, self.weights = list(range(self.n)), self.counts.tolist()

    def _arrived(self, rows: list[int], weights: list[float]) -> None:
        self.newest = rows[-1]
        self.order += rows
        self.weights += weights

    def restored(self) -> None:  # noqa: D102
        self._row = {location: row for row, location in enumerate(map(tuple, self.X.tolist()))}
        self.newest = self.order[-1] if self.order else -1
