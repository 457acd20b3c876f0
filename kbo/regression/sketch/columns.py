"""Moments of a sketched posterior at fixed points, updated row by row, for ``FixedPoints``.

Notation as in nystrom.py. The features z(P) [m A] of the points change only with the dictionary. At
the posterior's own ridge, an observation changes the quadratic form ``z'M^-1 z`` by the square of
one product (``InverseRoot``). So an update of mean and variance of A points costs O(m A) instead of
O(m^2 A).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kbo._base.linalg import GrowingTensor
from kbo.regression.all_ridges import AllRidges
from kbo.regression.numerics import clamped
from kbo.regression.posterior import Columns
from kbo.regression.sketch.dtc import dtc_variance, residual_noise


class SketchColumns(Columns):
    """Mean and variance of a ``NystromRidge`` at fixed points, [A]; m A numbers of memory."""

    def __init__(self, state: Any, points: Tensor) -> None:
        super().__init__(state, points)
        self._X: Tensor = points.double()
        self._prior: Tensor = state.prior_variance(points).double()
        self._features: GrowingTensor = GrowingTensor(self._X.new_empty(0, len(points)))
        self._residual: Tensor = self._prior
        self._layout: int | None = None  # layout of the sketch when the features were computed
        self._form: Tensor = torch.zeros_like(self._prior)  # z'M^-1 z
        self._generation: int | None = None  # generation of the root when the form was computed
        self._n_events: int = 0

    def predict(self, ridge: float) -> tuple[Tensor, Tensor]:
        """Return mean and variance [A].

        It costs O(m A) per new observation at the posterior's own ridge, else O(m^2 A).
        """
        self._catch_up()
        posterior = self.state.at(ridge)
        z = self._features.value
        form = self._form.clamp_min(0)
        if ridge != self.state.ridge:
            form = (posterior.root.S.mT @ z).square().sum(0)
        mean = posterior.weights @ z
        variance = dtc_variance(self._residual, form, ridge)
        variance = clamped(variance, self._prior, ridge, self.state.trace)
        return mean.to(self.points.dtype), variance.to(self.points.dtype)

    def across(self) -> AllRidges:
        self._catch_up()
        return self.state.at_features(self._features.value, self._prior.unsqueeze(-1))

    @torch.no_grad()
    def draw(self, ridge: float, count: int, generator: torch.Generator | None) -> Tensor:
        """Return joint draws [count A], less their mean, from the features."""
        self._catch_up()
        weights = self.state.at(ridge).weight_draws(count, generator)
        normal = residual_noise(self.points, count, generator)
        draws = weights.mT @ self._features.value + self._residual.sqrt() * normal
        return draws.to(self.points.dtype)

    @torch.no_grad()
    def _catch_up(self) -> None:
        """Update the features if the dictionary has changed, then the moments by new observations."""
        sketch = self.state.sketch
        if self._layout != sketch.layout:
            z = sketch.features(self._X)
            self._features = GrowingTensor(z)
            self._residual = (self._prior - z.square().sum(0)).clamp_min(0)
            self._layout = sketch.layout
            self._generation = None
        for j in range(self._features.n, sketch.m):
            coordinate = sketch.features.next_coordinate(j, self._X, self._features.value)
            self._features.append(coordinate.unsqueeze(0))
            self._residual = (self._residual - coordinate.square()).clamp_min(0)
        self._follow_root()

    def _follow_root(self) -> None:
        """Update ``z'M^-1 z`` [A], or compute it again where that is less work."""
        root = self.state.sketch.root
        z = self._features.value
        if self._generation != root.generation or len(root.events) - self._n_events > len(z):
            self._form = (root.S.mT @ z).square().sum(0)
            self._generation = root.generation
            self._n_events = len(root.events)
        for factor, vector in root.events[self._n_events :]:
            self._form = self._form.add((vector @ z[: len(vector)]).square(), alpha=factor)
        self._n_events = len(root.events)
