"""A posterior that remembers its answer for a fixed set of points.

Finite action sets are scored again after every observation. A row of the factor turns into a row of
``W = L^-1 k(X, points)`` by one product, so mean and variance of A points follow a new observation in
O(n A) instead of O(n^2 A):

    w = (k(x_new, points) - l'W) / l_nn,   mean += z_new w,   variance -= w^2.

For every ridge at once, the points' coordinates in the eigenbasis are remembered as long as the basis is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from kbo.errors import InvalidInput
from kbo.linalg import GrowingTensor
from kbo.regression.exact.observations import Observations
from kbo.regression.exact.state import KernelRidge
from kbo.regression.posterior import Ridge, View, as_ridges, floored
from kbo.regression.resolvent import SpectralPath
from kbo.regression.ridge_path import RidgePath

if TYPE_CHECKING:
    from kbo.regression.exact.all_ridges import Eigenbasis
    from kbo.regression.sketch.state import NystromRidge

MOST_JOINT = 2048
"""Points whose joint covariance is decomposed or remembered."""

_MOST_RIDGES = 4
"""Ridges given as numbers that are remembered; the least recently used one is dropped and would be recomputed."""


class TrackedPoints(View):
    """Another posterior, and fixed points [A d] at which it is asked again and again."""

    def __init__(self, state: KernelRidge | NystromRidge, points: Tensor) -> None:
        super().__init__(state)
        state.check(points)
        if points.ndim != 2:
            raise InvalidInput(f"points must have shape [A d], got {tuple(points.shape)}.")
        self.points = points
        self._prior = state.prior_variance(points)

    def _tracks(self, X: Tensor) -> bool:
        """Whether X is the tracked tensor [A d]."""
        same = X.shape == self.points.shape and X.stride() == self.points.stride()
        return same and X.data_ptr() == self.points.data_ptr()

    def _groups(self, X: Tensor) -> bool:
        """Whether X is the tracked tensor as A groups of one, [A 1 d]."""
        return X.ndim == 3 and X.shape[-2] == 1 and self._tracks(X.squeeze(-2))


class Tracked(TrackedPoints):
    """The same posterior as ``state``, with O(n A) answers for the points it tracks.

    ``predict(tracked.points)`` is answered from memory and catches up with whatever the state has
    learned since; every other question goes to the state. Their joint covariance costs O(n A^2) for up to
    ``MOST_JOINT`` points. Memory: n A numbers for each of the last few ridges given as a number, and n A for all ridges
    given as lists. For sketched posteriors see ``TrackedSketch``, or let ``track`` choose.

    Args:
        state: The posterior to follow; keep updating it, or call ``update`` here.
        points: The fixed points [A d].
    """

    def __init__(self, state: KernelRidge, points: Tensor) -> None:
        if not isinstance(state, KernelRidge):
            raise InvalidInput(
                f"Tracked follows a kbo.KernelRidge, got {type(state).__name__}: use kbo.regression.track."
            )
        super().__init__(state, points)
        self.state: KernelRidge = state
        self._memory: dict[float, _Memory] = {}
        self._coordinates: _Coordinates | None = None
        self._joint_prior: Tensor | None = None

    def predict(self, X: Tensor | None = None, ridge: Ridge = None) -> tuple[Tensor, Tensor]:
        """Mean and variance at the tracked points (X omitted, or ``points`` itself), else as the state."""
        if X is not None and not self._tracks(X):
            return self.state.predict(X, ridge)
        ridges, single = as_ridges(self.ridge if ridge is None else ridge)
        if single:
            memory = self._current(ridges[0])
            return memory.mean.clone(), memory.variance.clone()
        moments = self.ridge_path(self.points.unsqueeze(-2)).grid(self.points.new_tensor(ridges))
        return moments.mean.squeeze(-1), moments.covariance[..., 0, 0]

    def ridge_path(self, X: Tensor) -> RidgePath:
        """The path of the tracked points, [A 1 d], from memory; of any others from the state."""
        if self.state.data is None or not self._groups(X):
            return self.state.ridge_path(X)
        return self._path()

    def covariance(self, X: Tensor, Z: Tensor, ridge: Ridge = None) -> Tensor:
        """Joint covariance of the tracked points (``points`` twice) from memory; of any others from the state."""
        if self.state.data is None or len(self.points) > MOST_JOINT or not (self._tracks(X) and self._tracks(Z)):
            return self.state.covariance(X, Z, ridge)
        return self._joint(*as_ridges(self.ridge if ridge is None else ridge))

    @torch.no_grad()
    def _joint(self, ridges: list[float], single: bool) -> Tensor:
        if self._joint_prior is None:
            self._joint_prior = self.state.prior(self.points, self.points)
        if single:
            roots = [self._current(ridges[0]).W.value]
        else:
            basis, p, border = self._in_basis()
            roots = [torch.cat(basis.whiten(p, border, p.new_tensor(r))) for r in ridges]
        out = [self._joint_prior - W.mT @ W for W in roots]
        return out[0] if single else torch.stack(out)

    @torch.no_grad()
    def _path(self) -> SpectralPath:
        prior = self._prior.unsqueeze(-1)
        return SpectralPath(*self._in_basis(), prior.unsqueeze(-1), prior, self.state.trace)

    def _in_basis(self) -> tuple[Eigenbasis, Tensor, Tensor]:
        """The eigenbasis, and the tracked points in it and at its border."""
        basis = self.state.eigenbasis()
        memory = self._coordinates
        if memory is None or memory.vectors is not basis.vectors:
            p, border = basis.coordinates(self.state.prior(basis.data.X, self.points))
            memory = self._coordinates = _Coordinates(basis.vectors, p, GrowingTensor(border))
        start = len(memory.p) + memory.border.n
        new = self.state.prior(basis.data.X[start:], self.points)
        memory.border.append(basis.data.counts[start:].sqrt().unsqueeze(-1) * new)
        return basis, memory.p, memory.border.value

    @torch.no_grad()
    def _current(self, ridge: float) -> _Memory:
        data = self.state.data
        epoch = data.epoch if data else 0
        memory = self._memory.pop(ridge, None)
        if memory is None or memory.data is not data or memory.epoch != epoch:
            memory = _Memory(data, epoch, self._prior)
        self._memory[ridge] = memory  # at the end of the dict: the most recently used
        if len(self._memory) > _MOST_RIDGES:
            del self._memory[next(iter(self._memory))]
        if data is None:
            return memory
        factor = self.state.factor(ridge)
        for start, stop in data.blocks_after(memory.W.n):
            left, corner = factor.cholesky.rows(start, stop)
            rest = self.state.prior(data.X[start:stop], self.points) - left @ memory.W.value
            w = torch.linalg.solve_triangular(corner, rest, upper=False)
            memory.W.append(w)
            memory.mean = memory.mean + factor.z.value[start:stop] @ w
            memory.exact_variance = memory.exact_variance - w.square().sum(0)
            memory.variance = floored(memory.exact_variance, self._prior, ridge, self.state.trace)
        return memory


class _Memory:
    """W, mean and variance of the tracked points for one ridge."""

    def __init__(self, data: Observations | None, epoch: int, prior: Tensor) -> None:
        self.data, self.epoch = data, epoch
        self.W = GrowingTensor(prior.new_empty(0, len(prior)))
        self.mean = torch.zeros_like(prior)
        self.exact_variance = prior.clone()
        self.variance = prior.clone()


class _Coordinates:
    """The tracked points in the eigenbasis: p [n0 A], and at its border [b A]."""

    def __init__(self, vectors: Tensor, p: Tensor, border: GrowingTensor) -> None:
        self.vectors, self.p, self.border = vectors, p, border
