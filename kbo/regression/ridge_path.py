"""The posterior at fixed points as a function of the ridge.

A bound that is a minimum over all ridges asks for the same points again and again, each point at a ridge of its own.
A path does what does not depend on the ridge once, so that every further question is cheap.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from kbo.regression.posterior import Posterior


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


class RidgePath(ABC):
    """The posterior of B groups of g points each, at any ridge; differentiable in the points."""

    @abstractmethod
    def at(self, ridges: Tensor) -> Moments:
        """Moments with every group at its own ridge, ridges [B]."""

    @abstractmethod
    def grid(self, ridges: Tensor) -> Moments:
        """Moments with a leading axis r, all groups at each of the ridges [r]; quad is [r 1]."""

    @abstractmethod
    def select(self, groups: Tensor) -> RidgePath:
        """The path of some of the groups, given by their numbers."""


class AskedPath(RidgePath):
    """The path of any state, one ridge at a time: right for every posterior, fast for none."""

    def __init__(self, state: Posterior, X: Tensor) -> None:
        self.state, self.X = state, X

    def at(self, ridges: Tensor) -> Moments:  # noqa: D102
        means, covariances = [], []
        for X, ridge in zip(self.X, ridges.tolist(), strict=True):
            means.append(self.state.predict(X, ridge)[0])
            covariances.append(self.state.covariance(X, X, ridge))
        return Moments(torch.stack(means), torch.stack(covariances), self.state.quad(ridges.tolist()))

    def grid(self, ridges: Tensor) -> Moments:  # noqa: D102
        values = ridges.tolist()
        mean = torch.stack([self.state.predict(self.X, ridge)[0] for ridge in values])
        covariance = torch.stack([self.state.covariance(self.X, self.X, ridge) for ridge in values])
        return Moments(mean, covariance, self.state.quad(values).unsqueeze(-1))

    def select(self, groups: Tensor) -> AskedPath:  # noqa: D102
        return AskedPath(self.state, self.X[groups])


class CastPath(RidgePath):
    """A path that computes in another dtype than it is asked and answers in.

    Args:
        path: The path behind.
        dtype: Of ridges and moments.
    """

    def __init__(self, path: RidgePath, dtype: torch.dtype) -> None:
        self.path, self.dtype = path, dtype

    def at(self, ridges: Tensor) -> Moments:  # noqa: D102
        return Moments(*(moment.to(self.dtype) for moment in self.path.at(ridges.double())))

    def grid(self, ridges: Tensor) -> Moments:  # noqa: D102
        return Moments(*(moment.to(self.dtype) for moment in self.path.grid(ridges.double())))

    def select(self, groups: Tensor) -> CastPath:  # noqa: D102
        return CastPath(self.path.select(groups), self.dtype)
