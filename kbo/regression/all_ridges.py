"""A posterior at any ridge: its numbers, and its moments at groups of points.

A bound that is a minimum over all ridges evaluates the same points again and again, each point at a ridge of its own.
What does not depend on the ridge is computed once, so that every further ridge is cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from kbo._base.stateful import passed_on
from kbo.errors import InvalidInput

InNumbers = Callable[[float], tuple[np.ndarray, np.ndarray, float]]
"""Mean [q], variance [q] and quad at a ridge."""


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

    By default one ridge at a time: right for every posterior, fast for none.

    Args:
        state: The posterior.
        X: Groups of g points [... g d], numbered in order of their flattened batch shape [B]; None for no points.
    """

    def __init__(self, state: Any, X: Tensor | None = None) -> None:
        self.state: Any = state
        own = (
            None if X is None else X.reshape(-1, *X.shape[-2:]).clone()
        )  # the caller may change theirs
        self.X: Tensor | None = own

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
        return self._stacked(zip(self._groups, ridges.tolist(), strict=True))

    def grid(self, ridges: Sequence[float]) -> Moments:
        """Return the moments with a leading axis r, all groups at each of the ridges; quad is [r 1]."""
        moments = self._stacked((self._groups, ridge) for ridge in ridges)
        return moments._replace(quad=moments.quad.unsqueeze(-1))

    def select(self, groups: Tensor) -> AllRidges:
        """Return the same for some of the groups, given by their numbers."""
        return AllRidges(self.state, self._groups[groups])

    def in_numbers(self, groups: Sequence[int]) -> InNumbers:
        """Return mean and variance [q] of some groups of one point, and quad, as a function of one ridge for all.

        On the host, where for few points, or none, a ridge is cheaper.
        """
        some = self.select(torch.tensor(groups, dtype=torch.long, device="cpu")) if groups else self

        def at(ridge: float) -> tuple[np.ndarray, np.ndarray, float]:
            if not groups:
                return np.empty(0), np.empty(0), float(some.quad([ridge]))
            mean, covariance, quad = some.at(
                torch.tensor([ridge] * len(groups), dtype=torch.float64, device="cpu")
            )
            found = torch.stack([mean[:, 0], covariance[:, 0, 0], quad.expand(len(mean))]).double()
            means, variances, quads = found.detach().cpu().numpy()
            return means, variances, float(quads[0])

        return at

    @property
    def _groups(self) -> Tensor:
        if self.X is None:
            raise InvalidInput(
                "there are no points, only the numbers of the data: pass some, across(X)."
            )
        return self.X

    def _stacked(self, cases: Iterable[tuple[Tensor, float]]) -> Moments:
        """Return the moments of groups at a ridge, one case after the other."""
        return Moments(
            *map(torch.stack, zip(*(self._moments(X, ridge) for X, ridge in cases), strict=True))
        )

    def _moments(self, X: Tensor, ridge: float) -> Moments:
        answers = self.state.at(ridge)
        return Moments(answers.predict(X)[0], answers.covariance(X, X), answers.quad().to(X))


class InChunks(AllRidges):
    """Many groups of points without gradients, whose moments on a grid are computed a part after the other.

    Args:
        state: The posterior.
        X: Groups [... g d].
        make: Returns groups [B g d] at any ridge, all at once.
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
        mean, covariance = (torch.cat(part, 1) for part in list(zip(*parts, strict=True))[:2])
        return Moments(mean, covariance, parts[0].quad)

    @cached_property
    def whole(self) -> AllRidges:
        """All groups at once, made when a search over the ridges of all of them first needs it."""
        return self.make(self._groups)

    def select(self, groups: Tensor) -> AllRidges:
        return (
            self.whole.select(groups) if "whole" in vars(self) else self.make(self._groups[groups])
        )

    def in_numbers(self, groups: Sequence[int]) -> InNumbers:
        return self.select(torch.tensor(groups, dtype=torch.long, device="cpu")).in_numbers(
            range(len(groups))
        )

    at: Any = passed_on("whole.at")
    log_det: Any = passed_on("whole.log_det")
    quad: Any = passed_on("whole.quad")
    rss: Any = passed_on("whole.rss")
