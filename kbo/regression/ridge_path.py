"""The posterior at fixed points as a function of the ridge.

A bound that is a minimum over all ridges evaluates the same points again and again, each point at a ridge of its own.
A path does what does not depend on the ridge once, so that every further ridge is cheap.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor


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
        """Return the moments with every group at its own ridge, ridges [B]."""

    @abstractmethod
    def grid(self, ridges: Tensor) -> Moments:
        """Return the moments with a leading axis r, all groups at each of the ridges [r]; quad is [r 1]."""

    @abstractmethod
    def select(self, groups: Tensor) -> RidgePath:
        """Return the path of some of the groups, given by their numbers."""

    def few(self, groups: Sequence[int]) -> Callable[[float], tuple[list[tuple[float, float]], float]]:
        """Return (mean, variance) of some groups of one point, and quad, as a function of one ridge for all of them.

        In plain numbers: for few points a ridge is cheaper on the host.
        """
        path = self.select(torch.tensor(groups))

        def at(ridge: float) -> tuple[list[tuple[float, float]], float]:
            mean, covariance, quad = path.at(torch.tensor([ridge] * len(groups), dtype=torch.float64))
            found = torch.stack([mean[:, 0], covariance[:, 0, 0], quad.expand(len(mean))])
            means, variances, quads = found.tolist()
            return list(zip(means, variances, strict=True)), quads[0]

        return at
