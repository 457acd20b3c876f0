"""A posterior that is evaluated at the same points after every observation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from kbo._base import checks
from kbo._base.stateful import delegated_to
from kbo.errors import InvalidInput
from kbo.regression.all_ridges import AllRidges, Moments
from kbo.regression.posterior import Columns, Posterior, PosteriorAt, Provenance
from kbo.regression.sampling import Function
from kbo.regression.views.view import View, ViewAt


class FixedPoints(View):
    """A posterior that is cheap at fixed points, such as the arms of a bandit problem.

    Mean and variance at these points are updated row by row, in O(n A) for an exact posterior and
    O(m A) for a sketch (``Posterior.columns``), from which a sketch also draws. All else is computed
    by the posterior. The points are copied, and recognised by their values.

    Args:
        state: The posterior. Update it, or this view.
        points: The fixed points [A d].

    Raises:
        InvalidInput: Points of another shape.
    """

    def __init__(self, state: Posterior, points: Tensor) -> None:
        super().__init__(state)
        state.check(points, "points")
        checks.points("points", points)
        if points.ndim != 2:
            raise InvalidInput(f"points must have shape [A d], got {tuple(points.shape)}.")
        self._points = points.detach().clone()
        self._columns: Columns | None = state.columns(self._points)

    version: int = delegated_to("state.version")
    columns: Any = delegated_to("state.columns")
    fork_frozen: Any = delegated_to("state.fork_frozen")

    @property
    def points(self) -> Tensor:
        """A copy of the fixed points [A d]."""
        return self._points.clone()

    def columns_at(self, X: Tensor) -> Columns | None:
        """Return mean, variance and draws at X [A d], updated row by row.

        None if X are not the fixed points, or there are no data.
        """
        points = self._points
        if self._columns is None or not self.n:
            return None
        if X.shape != points.shape or X.dtype != points.dtype or X.device != points.device:
            return None
        if X.requires_grad or not torch.equal(X, points):
            return None
        return self._columns

    @property
    def observed(self) -> Posterior:
        """The posterior of the observed data alone: this view if no data are hypothetical."""
        return self.state.observed if self.provenance.hypothetical else self

    def at(self, ridge: float | None = None) -> PosteriorAt:
        return _FixedPointsAt(self, self.state.at(ridge))

    def across(self, X: Tensor | None = None) -> AllRidges:
        if X is not None and X.ndim == 3 and X.shape[-2] == 1:
            columns = self.columns_at(X.squeeze(-2))
            if columns is not None:
                return columns.across()
        return self.state.across(X)


class _FixedPointsAt(ViewAt):
    """The posterior at one ridge; at the fixed points, moments and draws from ``columns``."""

    state: FixedPoints

    def predict(self, X: Tensor) -> tuple[Tensor, Tensor]:
        columns = self.state.columns_at(X)
        if columns is None:
            return self.inner.predict(X)
        return columns.predict(self.ridge)

    def compute_draws(self, X: Tensor, count: int, generator: torch.Generator | None) -> Tensor:
        columns = self.state.columns_at(X)
        if columns is None:
            return self.inner.draw(X, count, generator)
        return columns.draw(self.ridge, count, generator)


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
