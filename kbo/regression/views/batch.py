"""A batch of points chosen before any is observed: means stay, variances follow the choices.

This is the rule of GP-BUCB (Desautels et al. 2014). On an exact posterior it equals
``Hypothetical`` without targets. On a sketch it does not: this view updates the sketch itself, from
which BBKB decides when a batch ends. It costs one update per choice; ``Hypothetical`` solves for
all choices at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from kbo._base import checks
from kbo._base.stateful import delegated_to
from kbo.regression.all_ridges import AllRidges, Moments
from kbo.regression.posterior import Posterior, PosteriorAt
from kbo.regression.provenance import Provenance
from kbo.regression.sampling import Function
from kbo.regression.views.fixed_points import FixedPoints
from kbo.regression.views.view import View, ViewAt


class BatchView(View):
    """A posterior while a batch of points is chosen from a finite set, before any is observed.

    Means and ``log_det`` are those of ``state``. Variances are those of a frozen fork that has
    observed the choices so far, with any targets, because variances do not depend on them.

    Args:
        state: The posterior of the observed data.
        points: The points [A d] among which the batch is chosen.

    Attributes:
        after: The frozen fork, which has observed the choices.
        chosen: Number of points chosen so far.
    """

    def __init__(self, state: Posterior, points: Tensor) -> None:
        super().__init__(state)
        self.after: FixedPoints = FixedPoints(state.fork_frozen(), points)
        self.chosen: int = 0

    needs_refresh: bool = delegated_to("after.needs_refresh")
    fork_frozen: Any = delegated_to("after.fork_frozen")
    observed: Posterior = delegated_to("state.observed")

    @property
    def provenance(self) -> Provenance:
        """The provenance of the state; hypothetical once points were chosen."""
        provenance = self.state.provenance
        return replace(provenance, hypothetical=self.chosen > 0 or provenance.hypothetical)

    @torch.no_grad()
    def observe(self, index: int) -> None:
        """Add a choice, row ``index`` of the points, to the variances."""
        points = self.after.points
        index = checks.whole("index", index, 0, len(points) - 1)
        chosen = points[index : index + 1]
        self.after.note(hypothetical=True)
        self.after.update(chosen, chosen.new_zeros(1))
        self.chosen += 1
        self.changed()

    def at(self, ridge: float | None = None) -> PosteriorAt:
        inner = self.state.at(ridge)
        return _BatchAt(self, inner, self.after.at(inner.ridge))

    def across(self, X: Tensor | None = None) -> AllRidges:
        return _BatchRidges(self.state.across(X), self.after.across(X))


class _BatchAt(ViewAt):
    """Means of the observed data, variances after the choices, at one ridge."""

    def __init__(self, view: Posterior, inner: PosteriorAt, after: PosteriorAt) -> None:
        super().__init__(view, inner)
        self.after = after

    covariance: Any = delegated_to("after.covariance")

    def predict(self, X: Tensor) -> tuple[Tensor, Tensor]:
        mean, _ = self.inner.predict(X)
        _, variance = self.after.predict(X)
        return mean, variance

    def factored(self, X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, _ = self.inner.predict(X)
        _, U, V = self.after.factored(X)
        return mean, U, V

    def compute_draws(self, X: Tensor, count: int, generator: torch.Generator | None) -> Tensor:
        return self.after.draw(X, count, generator)

    def compute_drawn_function(self, like: Tensor, generator: torch.Generator | None) -> Function:
        return self.after.draw_function(like, generator)


class _BatchRidges(AllRidges):
    """Means and numbers of the observed data, covariance after the choices, at any ridges."""

    def __init__(self, inner: AllRidges, after: AllRidges) -> None:
        self.inner = inner
        self.after = after

    log_det: Any = delegated_to("inner.log_det")
    quad: Any = delegated_to("inner.quad")
    rss: Any = delegated_to("inner.rss")

    def at(self, ridges: Tensor) -> Moments:
        return self.inner.at(ridges)._replace(covariance=self.after.at(ridges).covariance)

    def grid(self, ridges: Sequence[float]) -> Moments:
        return self.inner.grid(ridges)._replace(covariance=self.after.grid(ridges).covariance)

    def select(self, groups: Tensor) -> AllRidges:
        return _BatchRidges(self.inner.select(groups), self.after.select(groups))
