"""Fixed points at which a posterior is evaluated again after every observation."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kbo._base import checks
from kbo._base.stateful import passed_on
from kbo.errors import InvalidInput
from kbo.regression.all_ridges import AllRidges
from kbo.regression.posterior import Followed, Posterior, PosteriorAt, Ridge
from kbo.regression.views.view import View, ViewAt


class Tracked(View):
    """The same posterior as ``state``, cheap at the points it tracks: finite action sets are scored after every step.

    ``predict()``, or ``predict(X)`` for X equal to the points, is answered from what is kept of earlier answers, O(n A)
    per new observation for an exact state and O(m A) for a sketch; all else by the state. The points are copied, so
    they are recognised by their values.

    Args:
        state: The posterior to follow; keep updating it, or call ``update`` here.
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
        self.followed: Followed = state.follow(self._points)

    version: int = passed_on("state.version")
    follow: Any = passed_on("state.follow")

    @property
    def points(self) -> Tensor:
        """A copy of the fixed points [A d]."""
        return self._points.clone()

    def tracks(self, X: Tensor) -> bool:
        """Return whether X are the tracked points [A d]."""
        points = self._points
        if X is points:
            return True
        same = X.shape == points.shape and X.dtype == points.dtype and X.device == points.device
        return same and not X.requires_grad and torch.equal(X, points)

    def predict(self, X: Tensor | None = None, ridge: Ridge = None) -> tuple[Tensor, Tensor]:
        """Return mean and variance at the tracked points (X omitted, or equal to ``points``), else as the state."""
        return super().predict(self._points if X is None else X, ridge)

    def at(self, ridge: float | None = None) -> PosteriorAt:
        return _TrackedAt(self, self.state.at(ridge))

    def across(self, X: Tensor | None = None) -> AllRidges:
        alone = X is not None and X.ndim == 3 and X.shape[-2] == 1 and self.tracks(X.squeeze(-2))
        return self.followed.across() if alone else self.state.across(X)


class _TrackedAt(ViewAt):
    state: Tracked

    def predict(self, X: Tensor) -> tuple[Tensor, Tensor]:
        return (
            self.state.followed.predict(self.ridge)
            if self.state.tracks(X)
            else self.inner.predict(X)
        )

    def covariance(self, X: Tensor, Z: Tensor) -> Tensor:
        both = self.state.tracks(X) and (Z is X or self.state.tracks(Z))
        return self.state.followed.covariance(self.ridge) if both else self.inner.covariance(X, Z)

    def _draw(self, X: Tensor, count: int, generator: torch.Generator | None) -> Tensor:
        if self.state.tracks(X):
            return self.state.followed.draw(self.ridge, count, generator)
        return super()._draw(X, count, generator)
