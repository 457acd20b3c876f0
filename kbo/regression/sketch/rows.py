"""The observations of a sketch: distinct locations with counts, and what the dictionary says about each."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kbo.linalg import GrowingTensor
from kbo.stateful import Stateful, passed_on


def _column(i: int) -> Any:
    """Return the attribute of a class that is a column of ``_numbers``."""
    return property(lambda rows: rows._numbers.value[:, i])


class Rows(Stateful):
    """Distinct locations in order of first appearance; repeats are counts.

    Attributes:
        n: Number of rows.
        X: Locations, [n d].
        features: ``B'``, the features of the rows, [n m].
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
        self._X = GrowingTensor(like.new_empty(0, like.shape[-1]))
        self._features = GrowingTensor(like.new_empty(0, 0))
        self._numbers = GrowingTensor(like.new_empty(0, 5))
        self._row: dict[tuple[float, ...], int] = {}
        self.newest: int = -1
        self.order: list[int] = []
        self.weights: list[float] = []

    n: int = passed_on("_X.n")
    X: Tensor = passed_on("_X.value")
    features: Tensor = passed_on("_features.value")
    residual: Tensor = _column(0)
    prior: Tensor = _column(1)
    spread: Tensor = _column(2)
    counts: Tensor = _column(3)
    sums: Tensor = _column(4)

    def find(self, x: Tensor) -> int | None:
        """The row at the location x [1 d]; None if there is none."""
        return self._row.get(tuple(x[0].tolist()))

    def repeat(self, row: int, y: float, weight: float) -> None:
        """One more observation y at a row."""
        self._numbers.value[row, 3:] += self._numbers.value.new_tensor([weight, weight * y])
        self._arrived([row], [weight])

    def append(
        self, x: Tensor, features: Tensor, residual: float, prior: float, spread: float, y: float, weight: float
    ) -> None:
        """A new row for x [1 d] with its features [m], target and weight."""
        row = self.n
        self._row[tuple(x[0].tolist())] = row
        self._X.append(x)
        self._numbers.append(x.new_tensor([[residual, prior, spread, weight, weight * y]]))
        self._features.grow(1, 0)
        self._features.value[row] = features
        self._arrived([row], [weight])

    def extend(
        self,
        X: Tensor,
        features: Tensor,
        residual: Tensor,
        prior: Tensor,
        spread: Tensor,
        y: Tensor,
        weights: Tensor,
    ) -> None:
        """Many observations at once: X [r d], features [r m], residual, prior, spread, targets and weights [r]."""
        old, first, rows = self.n, [], []
        for i, location in enumerate(map(tuple, X.tolist())):
            row = self._row.setdefault(location, old + len(first))
            if row == old + len(first):
                first.append(i)
            rows.append(row)
        new = torch.tensor(first, dtype=torch.long, device=X.device)
        self._X.append(X[new])
        self._features.grow(len(first), 0)
        self._features.value[old:] = features[new]
        zero = torch.zeros_like(residual)
        self._numbers.append(torch.stack([residual, prior, spread, zero, zero], -1)[new])
        index = torch.tensor(rows, device=X.device)
        self._numbers.value[:, 3:].index_add_(0, index, torch.stack([weights, weights * y], -1))
        self._arrived(rows, weights.tolist())

    def add_feature(self, coordinate: Tensor, row_norm: float) -> None:
        """One more coordinate [n] of the features, whose row of ``L^-1`` has that norm."""
        self._features.grow(0, 1)
        self._features.value[:, -1] = coordinate
        self._numbers.value[:, 0] = (self.residual - coordinate.square()).clamp_min(0)
        self._numbers.value[:, 2] += coordinate.abs() * row_norm

    def set_features(self, features: Tensor, row_norms: Tensor) -> None:
        """Other features [n m] for all rows, and the norms [m] of the rows of ``L^-1``."""
        self._features = GrowingTensor(features)
        self._numbers.value[:, 0] = (self.prior - features.square().sum(1)).clamp_min(0)
        self._numbers.value[:, 2] = features.abs() @ row_norms
        self.order, self.weights = list(range(self.n)), self.counts.tolist()

    def _arrived(self, rows: list[int], weights: list[float]) -> None:
        self.newest = rows[-1]
        self.order += rows
        self.weights += weights

    def restored(self) -> None:  # noqa: D102
        self._row = {location: row for row, location in enumerate(map(tuple, self.X.tolist()))}
        self.newest = self.order[-1] if self.order else -1
