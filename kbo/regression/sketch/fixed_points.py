"""Fixed points whose posterior follows a sketch, observation by observation."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kbo._base.linalg import GrowingTensor
from kbo.regression.all_ridges import AllRidges
from kbo.regression.numerics import clamped
from kbo.regression.posterior import Followed
from kbo.regression.sketch.dtc import dtc_variance, residual_noise


class FollowedSketch(Followed):
    """Answers for fixed points that follow a sketched posterior.

    The features of the points change only when the dictionary does. At the state's ridge, one
    observation changes ``z'M^-1 z`` by the square of one product (see ``inverse_root.py``),
    so mean and variance of A points follow it in O(m A) instead of O(m^2 A). That is m A numbers
    of memory.
    """

    state: Any  # a NystromRidge, which makes this

    def __init__(self, state: Any, points: Tensor) -> None:
        super().__init__(state, points)
        self.wide: Tensor = points.double()
        self.prior: Tensor = state.prior_variance(points).double()
        self.layout: int = 0
        self.generation: int = 0

    def predict(self, ridge: float) -> tuple[Tensor, Tensor]:
        """At the state's own ridge in O(m A) per new observation, else in O(m^2 A)."""
        self._catch_up()
        answers, z = self.state.at(ridge), self.features.value
        own = ridge == self.state.ridge
        form = self.form.clamp_min(0) if own else (answers.root.S.mT @ z).square().sum(0)
        mean = answers.weights @ z
        variance = dtc_variance(self.residual, form, ridge)
        variance = clamped(variance, self.prior, ridge, self.state.sketch.trace)
        return mean.to(self.points.dtype), variance.to(self.points.dtype)

    def across(self) -> AllRidges:
        self._catch_up()
        return self.state.at_features(self.features.value, self.prior.unsqueeze(-1))

    @torch.no_grad()
    def draw(self, ridge: float, count: int, generator: torch.Generator | None) -> Tensor:
        """Return joint draws [count A] less their mean, from the features."""
        self._catch_up()
        weights = self.state.at(ridge).weight_draws(count, generator)
        normal = residual_noise(self.points, count, generator)
        return (
            (weights.mT @ self.features.value)
            .addcmul_(self.residual.sqrt(), normal)
            .to(self.points.dtype)
        )

    @torch.no_grad()
    def _catch_up(self) -> None:
        """Follow the state's dictionary, then its observations."""
        sketch, root = self.state.sketch, self.state.sketch.root
        if self.layout != sketch.layout:
            self.features: GrowingTensor = GrowingTensor(sketch.features(self.wide))
            self.residual: Tensor = (self.prior - self.features.value.square().sum(0)).clamp_min(0)
            self.layout, self.generation = sketch.layout, 0
        for j in range(self.features.n, sketch.m):
            coordinate = sketch.features.next_coordinate(j, self.wide, self.features.value)
            self.features.append(coordinate.unsqueeze(0))
            self.residual = (self.residual - coordinate.square()).clamp_min(0)
        if self.generation != root.generation or len(root.events) - self.followed > sketch.m:
            self.form: Tensor = (root.S.mT @ self.features.value).square().sum(0)
            self.generation, self.followed = root.generation, len(root.events)
        for factor, vector in root.events[self.followed :]:
            self.form = self.form.add(
                (vector @ self.features.value[: len(vector)]).square(), alpha=factor
            )
        self.followed: int = len(root.events)
