"""A batch of points chosen before any of them is observed: means frozen, variances following the choices."""

from __future__ import annotations

import torch
from torch import Tensor

from kbo.errors import InvalidInput
from kbo.regression.exact.state import KernelRidge
from kbo.regression.posterior import Posterior, Ridge, View
from kbo.regression.ridge_path import Moments, RidgePath
from kbo.regression.sketch.state import NystromRidge
from kbo.regression.views.adaptive_ridge import AdaptiveRidge
from kbo.regression.views.tracked import TrackedPoints
from kbo.regression.views.tracked_sketch import track


class BatchView(View):
    """``state`` after imagined observations at some of the points: means and widths as they are, variances as then.

    Variances do not depend on targets, so a copy of the state that observes the choices has them, at the price of an
    update each. The copy of a sketch goes on with its dictionary.

    Args:
        state: The posterior of the real data.
        points: The points [A d] among which the batch is chosen.
    """

    def __init__(self, state: Posterior, points: Tensor) -> None:
        super().__init__(state)
        real = state.base if isinstance(state, AdaptiveRidge) else state
        real = real.state if isinstance(real, TrackedPoints) else real
        if not isinstance(real, (KernelRidge, NystromRidge)):
            raise InvalidInput(f"batches are chosen under a KernelRidge or a NystromRidge, got {type(real).__name__}.")
        fork = real.fork()
        fork.check(points)
        self._dictionary = fork.hold() if isinstance(fork, NystromRidge) else None
        self._after = track(fork, points)
        self.points = points

    @property
    def due(self) -> bool:
        """Whether the dictionary wants to be drawn anew."""
        return self._dictionary is not None and self._dictionary.due

    @torch.no_grad()
    def imagine(self, index: int) -> None:
        """From here on that row of the points counts as observed."""
        self.imagined = True
        chosen = self.points[index : index + 1]
        self._after.update(chosen, chosen.new_zeros(1))

    def predict(self, X: Tensor, ridge: Ridge = None) -> tuple[Tensor, Tensor]:  # noqa: D102
        return self.state.predict(X, ridge)[0], self._after.predict(X, ridge)[1]

    def ridge_path(self, X: Tensor) -> RidgePath:  # noqa: D102
        return _FrozenPath(self.state.ridge_path(X), self._after.ridge_path(X))

    def covariance(self, X: Tensor, Z: Tensor, ridge: Ridge = None) -> Tensor:  # noqa: D102
        return self._after.covariance(X, Z, ridge)


class _FrozenPath(RidgePath):
    """Mean and ``quad`` of one path, covariance of another."""

    def __init__(self, real: RidgePath, after: RidgePath) -> None:
        self.real, self.after = real, after

    def at(self, ridges: Tensor) -> Moments:
        return self.real.at(ridges)._replace(covariance=self.after.at(ridges).covariance)

    def grid(self, ridges: Tensor) -> Moments:
        return self.real.grid(ridges)._replace(covariance=self.after.grid(ridges).covariance)

    def select(self, groups: Tensor) -> _FrozenPath:
        return _FrozenPath(self.real.select(groups), self.after.select(groups))
