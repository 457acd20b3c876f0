"""A sketched posterior that remembers its answer for a fixed set of points.

The features of the points change only when the dictionary does. At the state's ridge, one observation changes
``z'M^-1 z`` by the square of one product (see ``inverse_root.py``), so mean and variance of A points follow it in
O(m A) instead of O(m^2 A).
"""

from __future__ import annotations

import torch
from torch import Tensor

from kbo.errors import InvalidInput
from kbo.linalg import GrowingTensor
from kbo.regression.exact.state import KernelRidge
from kbo.regression.posterior import Posterior, Ridge, as_ridges
from kbo.regression.ridge_path import CastPath, RidgePath
from kbo.regression.sketch.state import NystromRidge
from kbo.regression.views.adaptive_ridge import AdaptiveRidge
from kbo.regression.views.tracked import Tracked, TrackedPoints


class TrackedSketch(TrackedPoints):
    """The same posterior as ``state``, with O(m A) answers for the points it tracks; m A numbers of memory.

    Args:
        state: The posterior to follow; keep updating it, or call ``update`` here.
        points: The fixed points [A d].
    """

    def __init__(self, state: NystromRidge, points: Tensor) -> None:
        super().__init__(state, points)
        self.state: NystromRidge = state
        self._points, self._prior = points.double(), self._prior.double()
        self._epoch: object | None = None

    def predict(self, X: Tensor | None = None, ridge: Ridge = None) -> tuple[Tensor, Tensor]:
        """Mean and variance at the tracked points (X omitted, or ``points`` itself), else as the state."""
        if X is not None and not self._tracks(X):
            return self.state.predict(X, ridge)
        ridges, single = as_ridges(self.ridge if ridge is None else ridge)
        if not single or ridges[0] != self.ridge:
            moments = self.ridge_path(self.points.unsqueeze(-2)).grid(self._points.new_tensor(ridges))
            mean, variance = moments.mean.squeeze(-1), moments.covariance[..., 0, 0]
            return (mean[0], variance[0]) if single else (mean, variance)
        self._catch_up()
        mean = self.state.weights @ self._features.value
        variance = self._residual + self.ridge * self._form.clamp_min(0)
        return mean.to(self.points.dtype), self.state.floored(variance, self._prior).to(self.points.dtype)

    def ridge_path(self, X: Tensor) -> RidgePath:
        """The path of the tracked points, [A 1 d], from memory; of any others from the state."""
        if not self._groups(X):
            return self.state.ridge_path(X)
        self._catch_up()
        path = self.state.path_of(self._features.value, self._prior.unsqueeze(-1))
        return path if self.points.dtype == torch.float64 else CastPath(path, self.points.dtype)

    def features(self, X: Tensor) -> tuple[Tensor, Tensor] | None:
        """``z`` [m A] and ``k(x, x) - |z|^2`` [A] of the tracked points, in float64; None if X is not their tensor."""
        if not self._tracks(X):
            return None
        self._catch_up()
        return self._features.value, self._residual

    @torch.no_grad()
    def _catch_up(self) -> None:
        """Follow the state's dictionary, then its observations."""
        state, root = self.state, self.state.sketch.root
        if self._epoch is not state.sketch.epoch:
            self._features = GrowingTensor(state.features(self._points))
            self._residual = (self._prior - self._features.value.square().sum(0)).clamp_min(0)
            self._epoch, self._generation = state.sketch.epoch, None
        for j in range(self._features.n, state.m):
            coordinate = state.sketch.features.next_coordinate(j, self._points, self._features.value)
            self._features.append(coordinate.unsqueeze(0))
            self._residual = (self._residual - coordinate.square()).clamp_min(0)
        if self._generation is not root.generation or len(root.events) - self._followed > state.m:
            self._form = (root.S.mT @ self._features.value).square().sum(0)
            self._generation, self._followed = root.generation, len(root.events)
        for sign, vector in root.events[self._followed :]:
            self._form += sign * (vector @ self._features.value[: len(vector)]).square()
        self._followed = len(root.events)


def track(state: Posterior, points: Tensor) -> Tracked | TrackedSketch | AdaptiveRidge:
    """The same posterior as ``state``, cheap to ask for the fixed points [A d] after every observation.

    Raises:
        InvalidInput: Points of another shape, or a posterior that cannot be followed.
    """
    if isinstance(state, NystromRidge):
        return TrackedSketch(state, points)
    if isinstance(state, KernelRidge):
        return Tracked(state, points)
    if isinstance(state, AdaptiveRidge):
        return state.over(track(state.base, points))
    raise InvalidInput(f"a {type(state).__name__} cannot be followed; track a KernelRidge or a NystromRidge.")
