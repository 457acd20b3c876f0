"""The interface ``across()``: the numbers of a posterior, and moments of points, at any ridge.

A bound that is a minimum over all ridges evaluates the same points again and again, each point at a
ridge of its own. Work that does not depend on the ridge is done once, so every further ridge is
cheap.
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
    """The posterior of groups of points, and the fit of the data, at some ridge.

    Attributes:
        mean: [... g].
        covariance: [... g g].
        quad: ``y'(I + K / ridge)^-1 y`` at the same ridge; broadcasts with [...].
    """

    mean: Tensor
    covariance: Tensor
    quad: Tensor


class AllRidges:
    """A posterior at any ridges, valid until it changes; moments are differentiable in the points.

    By default one ridge after the other: right for every posterior, fast for none.

    Args:
        state: The posterior.
        X: Groups of g points [... g d], numbered in order of their flattened batch shape [B]; None
            for no points.
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
        pairs = zip(self._groups, ridges.tolist(), strict=True)
        return _stacked([self._moments(X, ridge) for X, ridge in pairs])

    def grid(self, ridges: Sequence[float]) -> Moments:
        """Return the moments of all groups at each of the ridges, [r ...]; quad is [r 1]."""
        moments = _stacked([self._moments(self._groups, ridge) for ridge in ridges])
        return moments._replace(quad=moments.quad.unsqueeze(-1))

    def select(self, groups: Tensor) -> AllRidges:
        """Return the posterior at some of the groups, given by their numbers."""
        return AllRidges(self.state, self._groups[groups])

    def tensors_on_cpu(self, groups: Sequence[int]) -> MomentsOnHost:
        """Return mean and variance [q] of groups of one point, and quad, by the ridge.

        For few points, or none, arithmetic on the host is faster than the calls of PyTorch for it.
        """
        if not groups:
            return lambda ridge: (np.empty(0), np.empty(0), float(self.quad([ridge])))
        some = self.select(torch.tensor(groups, dtype=torch.long, device="cpu"))

        def at(ridge: float) -> tuple[np.ndarray, np.ndarray, float]:
            ridges = torch.full((len(groups),), ridge, dtype=torch.float64, device="cpu")
            moments = some.at(ridges)
            mean = moments.mean[:, 0].detach().double().cpu().numpy()
            variance = moments.covariance[:, 0, 0].detach().double().cpu().numpy()
            return mean, variance, float(moments.quad[0])

        return at

    @property
    def _groups(self) -> Tensor:
        if self.X is None:
            raise InvalidInput(
                "there are no points, only the numbers of the data: pass some, across(X)."
            )
        return self.X

    def _moments(self, X: Tensor, ridge: float) -> Moments:
        at = self.state.at(ridge)
        return Moments(at.predict(X)[0], at.covariance(X, X), at.quad().to(X))


class InChunks(AllRidges):
    """Many groups of points without gradients, whose moments are computed part by part.

    Args:
        state: The posterior.
        X: Groups [... g d].
        make: Returns the posterior at groups [B g d], all at once.
        size: Groups of a part.
    """

    def __init__(
        self, state: Any, X: Tensor, make: Callable[[Tensor], AllRidges], size: int
    ) -> None:
        super().__init__(state, X)
        self.make: Callable[[Tensor], AllRidges] = make
        self.size: int = size

    def grid(self, ridges: Sequence[float]) -> Moments:
        parts = [self.make(X).grid(ridges) for X in self._groups.split(self.size)]
        mean = torch.cat([part.mean for part in parts], 1)
        covariance = torch.cat([part.covariance for part in parts], 1)
        return Moments(mean, covariance, parts[0].quad)

    @cached_property
    def whole(self) -> AllRidges:
        """All groups at once, for a search over the ridges of all of them."""
        return self.make(self._groups)

    def select(self, groups: Tensor) -> AllRidges:
        if "whole" in vars(self):
            return self.whole.select(groups)
        return self.make(self._groups[groups])

    def tensors_on_cpu(self, groups: Sequence[int]) -> MomentsOnHost:
        some = self.select(torch.tensor(groups, dtype=torch.long, device="cpu"))
        return some.tensors_on_cpu(range(len(groups)))

    at: Any = delegated_to("whole.at")
    log_det: Any = delegated_to("whole.log_det")
    quad: Any = delegated_to("whole.quad")
    rss: Any = delegated_to("whole.rss")


def _stacked(moments: Sequence[Moments]) -> Moments:
    """Return moments with a new leading axis."""
    return Moments(
        mean=torch.stack([one.mean for one in moments]),
        covariance=torch.stack([one.covariance for one in moments]),
        quad=torch.stack([one.quad for one in moments]),
    )
