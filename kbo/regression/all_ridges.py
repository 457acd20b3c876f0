"""The numbers of a posterior, and mean and covariance of points, at many ridges: ``across()``.

A bound that is a minimum over all ridges evaluates the same points again and again, each point at
its own ridge. Work that does not depend on the ridge is done once, so each further ridge is cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from kbo._base.stateful import delegated_to
from kbo.errors import InvalidInput

MomentsOnHost = Callable[[float], tuple[np.ndarray, np.ndarray, float]]
"""Mean [q], variance [q] and quad as a function of the ridge."""


class Moments(NamedTuple):
    """Mean and covariance of groups of points, and the fit of the data, at some ridge.

    Attributes:
        mean: [... g].
        covariance: [... g g].
        quad: ``y'(I + K / ridge)^-1 y`` at the same ridge; broadcasts with [...].
    """

    mean: Tensor
    covariance: Tensor
    quad: Tensor


class AllRidges:
    """The numbers of a posterior at many ridges, and its mean and covariance at fixed points.

    ``state.across(X)`` returns it, for bounds that minimise over ridges. It is valid until the
    posterior changes, and differentiable in the points. This class computes one ridge after the
    other: that works for every posterior, but is slow. A subclass computes them together.

    Args:
        state: The posterior.
        X: Groups of g points [... g d]; None for no points. Groups are numbered in the order of
            the flattened batch shape [B].
    """

    def __init__(self, state: Any, X: Tensor | None = None) -> None:
        self.state: Any = state
        if X is not None:
            X = X.reshape(-1, *X.shape[-2:]).clone()  # the caller may write into theirs
        self.X: Tensor | None = X

    def log_det(self, ridges: Sequence[float]) -> Tensor:
        """Return ``ln det(I + K / ridge)`` [r] for r ridges."""
        return torch.stack([self.state.at(ridge).log_det() for ridge in ridges])

    def quad(self, ridges: Sequence[float]) -> Tensor:
        """Return ``y'(I + K / ridge)^-1 y`` [r]."""
        return torch.stack([self.state.at(ridge).quad() for ridge in ridges])

    def rss(self, ridges: Sequence[float]) -> Tensor:
        """Return ``|y - mean(X)|^2`` [r]."""
        return torch.stack([self.state.at(ridge).rss() for ridge in ridges])

    def at(self, ridges: Tensor) -> Moments:
        """Return the moments with every group at its own ridge, ridges [B]."""
        groups_and_ridges = zip(self._groups, ridges.tolist(), strict=True)
        return _stacked([self._moments(X, ridge) for X, ridge in groups_and_ridges])

    def grid(self, ridges: Sequence[float]) -> Moments:
        """Return the moments of all groups at each of the ridges, [r ...]; quad is [r 1]."""
        moments = _stacked([self._moments(self._groups, ridge) for ridge in ridges])
        return moments._replace(quad=moments.quad.unsqueeze(-1))

    def select(self, groups: Tensor) -> AllRidges:
        """Return the posterior at some of the groups, given by their numbers."""
        return AllRidges(self.state, self._groups[groups])

    def on_host(self, groups: Sequence[int]) -> MomentsOnHost:
        """Return mean and variance [q] of groups of one point, and quad, as a function of the ridge.

        It computes on the host, which is faster for few points than calls of PyTorch.
        """
        if not groups:
            return lambda ridge: (np.empty(0), np.empty(0), float(self.quad([ridge])))
        selected = self.select(torch.tensor(groups, dtype=torch.long, device="cpu"))

        def at(ridge: float) -> tuple[np.ndarray, np.ndarray, float]:
            ridges = torch.full((len(groups),), ridge, dtype=torch.float64, device="cpu")
            moments = selected.at(ridges)
            mean = moments.mean[:, 0].detach().double().cpu().numpy()
            variance = moments.covariance[:, 0, 0].detach().double().cpu().numpy()
            return mean, variance, float(moments.quad[0])

        return at

    @property
    def _groups(self) -> Tensor:
        """The groups of points, [B g d]."""
        if self.X is None:
            raise InvalidInput(
                "there are no points, only the numbers of the data: pass some, across(X)."
            )
        return self.X

    def _moments(self, X: Tensor, ridge: float) -> Moments:
        """Return the moments at groups X [... g d] and one ridge."""
        posterior = self.state.at(ridge)
        mean, _ = posterior.predict(X)
        return Moments(mean, posterior.covariance(X, X), posterior.quad().to(X))


class InChunks(AllRidges):
    """Many groups of points without gradients, whose moments on a grid are computed in chunks.

    Args:
        state: The posterior.
        X: Groups [... g d].
        at_points: Returns the posterior at groups [B g d], all at once.
        size: Number of groups in a chunk.
    """

    def __init__(
        self, state: Any, X: Tensor, at_points: Callable[[Tensor], AllRidges], size: int
    ) -> None:
        super().__init__(state, X)
        self.at_points: Callable[[Tensor], AllRidges] = at_points
        self.size: int = size

    def grid(self, ridges: Sequence[float]) -> Moments:
        n_groups, size, _ = self._groups.shape
        # Allocated in one piece: results of chunks between freed temporaries would fragment the heap.
        mean = self._groups.new_empty(len(ridges), n_groups, size)
        covariance = self._groups.new_empty(len(ridges), n_groups, size, size)
        quad = self._groups.new_empty(len(ridges), 1)
        for start in range(0, n_groups, self.size):
            chunk = slice(start, start + self.size)
            moments = self.at_points(self._groups[chunk]).grid(ridges)
            mean[:, chunk] = moments.mean
            covariance[:, chunk] = moments.covariance
            quad[:] = moments.quad
        return Moments(mean, covariance, quad)

    @cached_property
    def all_groups(self) -> AllRidges:
        """All groups at once, for a search over the ridges of all of them."""
        return self.at_points(self._groups)

    def select(self, groups: Tensor) -> AllRidges:
        if "all_groups" in vars(self):
            return self.all_groups.select(groups)
        return self.at_points(self._groups[groups])

    def on_host(self, groups: Sequence[int]) -> MomentsOnHost:
        selected = self.select(torch.tensor(groups, dtype=torch.long, device="cpu"))
        return selected.on_host(range(len(groups)))

    at: Any = delegated_to("all_groups.at")
    log_det: Any = delegated_to("all_groups.log_det")
    quad: Any = delegated_to("all_groups.quad")
    rss: Any = delegated_to("all_groups.rss")


def _stacked(moments: Sequence[Moments]) -> Moments:
    """Return moments of equal shapes as one, with a new leading axis."""
    means, covariances, quads = zip(*moments, strict=True)
    return Moments(torch.stack(means), torch.stack(covariances), torch.stack(quads))
