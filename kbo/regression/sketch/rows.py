"""The observations of a sketch: distinct locations with counts, and what the dictionary says about each."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor

from kbo._base.linalg import GrowingTensor
from kbo._base.stateful import Stateful, passed_on
from kbo.regression.sketch.features import Features, Place

_LISTED = 512
"""Observations that are listed at most."""


def _buffer(name: str) -> Any:
    """Return the attribute of a class that is one of ``_buffers``, with all observations."""
    return property(lambda rows: rows.flushed()[name])


def _column(i: int) -> Any:
    """Return the attribute of a class that is a column of ``_numbers``."""
    return property(lambda rows: rows._numbers.value[:, i])


class Rows(Stateful):
    """Distinct locations in order of first appearance; repeats are counts.

    Observations are listed, and written together when something about them is read.

    Args:
        like: A tensor [0 d] of the dtype and device of the locations.
        basis: The features of the anchors.

    Attributes:
        n: Number of rows.
        m: Number of features.
        X: Locations, [n d].
        features: ``B'``, the features of the rows, [n m].
        numbers: The five numbers that follow, [n 5].
        residual: ``k(x, x) - |z(x)|^2 >= 0``, [n].
        prior: ``k(x, x)``, [n].
        spread: Factor by which the features of a row multiply rounding in the dictionary, [n]; see ``error.py``.
        counts: Sum of the weights of the observations per row, [n].
        sums: Sum of weighted targets per row, [n].
        latest: The latest target of each row.
        latest_row: The row of the latest observation.
        order: The row of every observation in the order of arrival; before it, after ``merge``, all rows once.
        weights: How many observations each entry of ``order`` stands for.
    """

    saved: tuple[str, ...] = ("_X", "_features", "_numbers", "order", "weights")

    def __init__(self, like: Tensor, basis: Features) -> None:
        widths = {"X": like.shape[-1], "features": basis.m, "numbers": 5}
        self._buffers = {
            name: GrowingTensor(like.new_empty(0, width)) for name, width in widths.items()
        }
        self._basis = basis
        self._new: list[
            tuple[Tensor, Tensor]
        ] = []  # locations and features of rows that are still to be written
        self._targets: list[
            float
        ] = []  # weighted, of the latest observations, which are still to be counted
        self._row: dict[Place, int] = {}
        self.latest: list[float] = []
        self.latest_row: int = -1
        self.order: list[int] = []
        self.weights: list[float] = []

    _X: GrowingTensor = _buffer("X")
    _features: GrowingTensor = _buffer("features")
    _numbers: GrowingTensor = _buffer("numbers")
    m: int = passed_on("_basis.m")
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

    def flushed(self) -> dict[str, GrowingTensor]:
        """The buffers, after what came since they were last read was written there together."""
        buffers = self._buffers
        if self._new:
            X, features = (torch.cat(parts) for parts in zip(*self._new, strict=True))
            numbers = self._missed(X, features)
            buffers["X"].append(X)
            self._keep(features)
            buffers["numbers"].append(torch.cat([numbers, numbers.new_zeros(len(X), 2)], -1))
            self._new = []
        if self._targets:
            which, weights = (part[-len(self._targets) :] for part in (self.order, self.weights))
            numbers = buffers["numbers"].value[:, 3:]
            counted = numbers.new_tensor([weights, self._targets]).mT
            numbers.index_add_(0, torch.tensor(which, device=numbers.device), counted)
            self._targets = []
        return buffers

    def _missed(self, X: Tensor, features: Tensor) -> Tensor:
        """Residual, prior and spread [r 3] of locations X [r d] with features [r m]."""
        return torch.stack(
            [*self._basis.residual(X, features.mT), self._basis.spread(features.mT)], -1
        )

    def _keep(self, features: Tensor) -> None:
        self._buffers["features"].append(features)

    def features_of(self, which: list[int] | slice) -> Tensor:
        """Features of some rows, [r m]."""
        return self.features[which]

    def find(self, place: Place) -> int | None:
        """The row at a location; None if there is none."""
        return self._row.get(place)

    def extend(
        self,
        X: Tensor,
        features: Tensor,
        places: list[Place],
        targets: list[float],
        weights: list[float],
    ) -> tuple[int, int]:
        """Add observations; return how many repeat a location, and how many of these exactly its latest target.

        Args:
            X: Locations [r d]; the caller may change them later.
            features: Their features, [r m].
            places: The locations on the host.
            targets: Targets.
            weights: Weights.
        """
        old, first, equal = self.n, [], 0
        for i, place in enumerate(places):
            row = self._row.setdefault(place, old + len(first))
            if row == old + len(first):
                first.append(i)
                self.latest.append(targets[i])
            elif self.latest[row] == targets[i]:
                equal += 1
            else:
                self.latest[row] = targets[i]
            self.order.append(row)
        if len(first) == len(X):
            self._new.append((X.clone(), features))
        elif first:
            self._new.append((X[first], features[first]))
        self.weights += weights
        self._targets += map(operator.mul, weights, targets)
        self.latest_row = self.order[-1]
        if len(self._targets) > _LISTED:
            self.flushed()
        return len(X) - len(first), equal

    def add_feature(self, coordinate: Tensor, row_norm: Tensor) -> None:
        """One more coordinate [n] of the features, whose row of ``L^-1`` has that norm []."""
        self._features.grow(0, 1)
        self.features[:, -1] = coordinate
        self.numbers[:, 0] = (self.residual - coordinate.square()).clamp_min(0)
        self.numbers[:, 2] += coordinate.abs() * row_norm

    def set_features(self, basis: Features) -> None:
        """Features of other anchors for all rows."""
        X, buffers = self.X, self._buffers
        self._basis, features = basis, basis.solve(X)
        buffers["features"] = GrowingTensor(features.mT.contiguous())
        if self.n:
            buffers["numbers"].value[:, :3] = self._missed(X, features.mT)
        self.merge()

    def merge(self) -> None:
        """Let ``order`` have all rows once."""
        self.order, self.weights = list(range(self.n)), self.counts.tolist()

    def _restored(self) -> None:
        self._row = {location: row for row, location in enumerate(map(tuple, self.X.tolist()))}
        self.latest = (self.sums / self.counts).tolist()
        self.latest_row = self.order[-1] if self.order else -1


class LeanRows(Rows):
    """The same under anchors that stay, without features: where some are needed, they are computed again."""

    def _keep(self, features: Tensor) -> None:
        pass

    def features_of(self, which: list[int] | slice) -> Tensor:
        return self._basis.solve(self.X[which]).mT
