"""A posterior that is evaluated at the same points after every observation."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kbo._base import checks
from kbo._base.stateful import delegated_to
from kbo.errors import InvalidInput
from kbo.regression.all_ridges import AllRidges
from kbo.regression.posterior import Columns, Posterior, PosteriorAt
from kbo.regression.views.view import View, ViewAt


class FixedPoints(View):
    """A posterior that is cheap at fixed points, such as the arms of a bandit problem.

    Mean, variance and draws at these points are updated row by row, in O(n A) for an exact posterior
    and O(m A) for a sketch (``Posterior.columns``). All else is computed by the posterior. The
    points are copied, and recognised by their values.

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
        """Return mean and variance at X [A d], updated row by row.

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
