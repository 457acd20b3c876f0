"""The observed locations of a sketch: a row for each distinct one, with features and counts."""

from __future__ import annotations

import torch
from torch import Tensor

from kbo._base.checks import Location
from kbo._base.linalg import GrowingTensor
from kbo._base.stateful import Stateful
from kbo.regression.sketch.features import Features


class Rows(Stateful):
    """Distinct locations in order of first appearance; repeats are counts.

    Args:
        like: A tensor [0 d] of the dtype and device of the locations.
        features: The features of the dictionary.
        keeps_features: Whether the features of the rows are stored. If not, they are computed when
            needed, which is rare while the dictionary never changes.

    Attributes:
        n: Number of rows.
        latest: The latest target of each row.
        latest_row: The row of the latest observation.
        order: The row of every observation in order of arrival; after ``merge``, every row once,
            then the rows of later observations.
        weights: The weight of each entry of ``order``.
    """

    def __init__(self, like: Tensor, features: Features, keeps_features: bool) -> None:
        self._basis = features
        self._keeps_features = keeps_features
        self._X = GrowingTensor(like.new_empty(0, like.shape[-1]))
        self._numbers = GrowingTensor(like.new_empty(0, 5))
        self._features = GrowingTensor(like.new_empty(0, features.m))
        self._index: dict[Location, int] = {}
        self.latest: list[float] = []
        self.latest_row: int = -1
        self.order: list[int] = []
        self.weights: list[float] = []

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self._index)

    @property
    def m(self) -> int:
        """Number of features."""
        return self._basis.m

    @property
    def X(self) -> Tensor:
        """Locations, [n d]."""
        return self._X.value

    @property
    def numbers(self) -> Tensor:
        """Residual, prior, spread, count and sum of each row, [n 5]."""
        return self._numbers.value

    @property
    def features(self) -> Tensor:
        """``B'``, the features of the rows, [n m]."""
        if self._keeps_features:
            return self._features.value
        return self.features_of(slice(None))

    @property
    def residual(self) -> Tensor:
        """``k(x, x) - |z(x)|^2 >= 0``, [n]."""
        return self.numbers[:, 0]

    @property
    def prior(self) -> Tensor:
        """``k(x, x)``, [n]."""
        return self.numbers[:, 1]

    @property
    def spread(self) -> Tensor:
        """Factor by which features multiply rounding errors of the dictionary, [n] (``error.py``)."""
        return self.numbers[:, 2]

    @property
    def counts(self) -> Tensor:
        """Sum of the weights of the observations of each row, [n]."""
        return self.numbers[:, 3]

    @property
    def sums(self) -> Tensor:
        """Sum of the weighted targets of each row, [n]."""
        return self.numbers[:, 4]

    def features_of(self, row_numbers: list[int] | slice) -> Tensor:
        """Return the features of some rows, [r m]."""
        if self._keeps_features:
            return self.features[row_numbers]
        features = self._basis
        return features.solve(features.columns(self.X[row_numbers])).mT

    def find(self, location: Location) -> int | None:
        """Return the row at a location; None if there is none."""
        return self._index.get(location)

    def extend(
        self,
        X: Tensor,
        features: Tensor,
        locations: list[Location],
        targets: list[float],
        weights: list[float],
    ) -> tuple[int, int]:
        """Add observations.

        Args:
            X: Locations [r d]; the caller may change them later.
            features: Their features, [r m].
            locations: The locations on the host.
            targets: Targets.
            weights: Weights.

        Returns:
            The number of observations at earlier locations, and how many of these have exactly the
            latest target there.
        """
        new: list[int] = []  # observations at new locations
        n_equal = 0
        for i, location in enumerate(locations):
            row = self._index.get(location)
            if row is None:
                row = len(self._index)
                self._index[location] = row
                self.latest.append(targets[i])
                new.append(i)
            else:
                n_equal += self.latest[row] == targets[i]
                self.latest[row] = targets[i]
            self.order.append(row)
            self.weights.append(weights[i])
        self.latest_row = self.order[-1]
        if new:
            self._append(X[new], features[new])
        row_numbers = torch.tensor(self.order[-len(locations) :], device=X.device)
        counts = X.new_tensor(weights)
        sums = counts * X.new_tensor(targets)
        self._numbers.value[:, 3:].index_add_(0, row_numbers, torch.stack([counts, sums], -1))
        return len(X) - len(new), n_equal

    def _append(self, X: Tensor, features: Tensor) -> None:
        """Add rows [r d] with features [r m], without observations."""
        explained = self._explained(X, features)
        self._X.append(X)
        self._numbers.append(torch.cat([explained, explained.new_zeros(len(X), 2)], -1))
        if self._keeps_features:
            self._features.append(features)

    def _explained(self, X: Tensor, features: Tensor) -> Tensor:
        """Return residual, prior and spread, [r 3], of locations X [r d] with features [r m]."""
        residual, prior = self._basis.residual(X, features.mT)
        return torch.stack([residual, prior, self._basis.spread(features.mT)], -1)

    def add_feature(self, coordinate: Tensor, row_norm: Tensor) -> None:
        """Add a coordinate [n] to the features; ``row_norm`` [] is the norm of its row of ``L^-1``."""
        self._features.grow(0, 1)
        self._features.value[:, -1] = coordinate
        numbers = self._numbers.value
        numbers[:, 0] = (numbers[:, 0] - coordinate.square()).clamp_min(0)
        numbers[:, 2] += coordinate.abs() * row_norm

    def set_features(self, features: Features) -> None:
        """Replace the features by those of another dictionary, O(n m^2)."""
        X = self.X
        z = features.solve(features.columns(X)).mT.contiguous()  # [n m]
        self._basis = features
        if self._keeps_features:
            self._features = GrowingTensor(z)
        if self.n:
            self._numbers.value[:, :3] = self._explained(X, z)
        self.merge()

    def merge(self) -> None:
        """Forget the order of the observations: ``order`` has every row once, with its count."""
        self.weights = self.counts.tolist()
        self.order = list(range(self.n))
