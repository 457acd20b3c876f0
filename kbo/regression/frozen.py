"""A batch of points chosen before any of them is observed: means frozen, variances following the choices."""

from __future__ import annotations

import torch
from torch import Tensor

from kbo.errors import InvalidInput
from kbo.regression.base import Regression, Ridge, View, as_ridges
from kbo.regression.exact import KernelRidge
from kbo.regression.hypothetical import Hypothetical
from kbo.regression.path import RidgePath
from kbo.regression.sketched import NystromRidge
from kbo.regression.tracked import TrackedPoints
from kbo.regression.tracked_sketch import track


class FrozenMean(View):
    """``state`` after imagined observations at some of the points, with its means and widths as they are.

    Observing the mean itself leaves the mean where it is, so at the state's ridge a copy of the state follows the
    choices at the price of an update each; at other ridges a ``Hypothetical`` answers.

    Args:
        state: The posterior of the real data.
        points: The points [A d] among which the batch is chosen.
    """

    def __init__(self, state: Regression, points: Tensor) -> None:
        super().__init__(state)
        real = state.state if isinstance(state, TrackedPoints) else state
        if not isinstance(real, (KernelRidge, NystromRidge)):
            raise InvalidInput(f"batches are chosen under a KernelRidge or a NystromRidge, got {type(real).__name__}.")
        self._fork = real.fork()
        self._fork.check(points)
        self._dictionary = self._fork.hold() if isinstance(self._fork, NystromRidge) else None
        self._follower = track(self._fork, points)
        self.points, self.chosen = points, []
        self._mean = state.predict(points)[0]

    @property
    def due(self) -> bool:
        """Whether the dictionary wants to be drawn anew."""
        return self._dictionary is not None and self._dictionary.due

    @torch.no_grad()
    def imagine(self, index: int) -> None:
        """From here on that row of the points counts as observed."""
        self.chosen.append(index)
        self._fork.update(self.points[index : index + 1], self._mean[index : index + 1])

    def predict(self, X: Tensor, ridge: Ridge = None) -> tuple[Tensor, Tensor]:  # noqa: D102
        ridges, single = as_ridges(self.ridge if ridge is None else ridge)
        if X is self.points and single and ridges[0] == self.ridge:
            return self._mean, self._follower.predict(X)[1]
        return self._view().predict(X, ridge)

    def ridge_path(self, X: Tensor) -> RidgePath:  # noqa: D102
        return self._view().ridge_path(X)

    def covariance(self, X: Tensor, Z: Tensor, ridge: Ridge = None) -> Tensor:  # noqa: D102
        return self._view().covariance(X, Z, ridge)

    def _view(self) -> Regression:
        return Hypothetical(self.state, self.points[self.chosen]) if self.chosen else self.state
