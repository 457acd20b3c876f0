"""Exploration bonuses as functions of the posterior standard deviation alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

_ROUNDING = 8
"""Units in the last place that a standard deviation may be off."""


class Bonus(ABC):
    """A non-decreasing function of the standard deviation."""

    @abstractmethod
    def __call__(self, std: Tensor) -> Tensor:
        """Return the bonus [...] at standard deviations [...]."""

    def majorant(self, std: Tensor) -> Tensor:
        """Return a continuous bonus [...] that is nowhere smaller, to search with."""
        return self(std)


@dataclass(frozen=True)
class Steps(Bonus):
    """The sum of the heights of all steps below the standard deviation.

    Args:
        edges: Positions of the steps, decreasing and above zero; a step is below a standard deviation that is larger.
        heights: Not negative.
    """

    edges: Sequence[float]
    heights: Sequence[float]

    def __call__(self, std: Tensor) -> Tensor:
        return self._values(std).take(self._below(std))

    def majorant(self, std: Tensor) -> Tensor:
        """Return straight lines through the upper corners of the steps; the last one has no end."""
        knots, values = std.new_tensor([0.0, *reversed(self.edges)]), self._values(std)
        slopes = values.diff() / knots.diff()
        piece = self._below(std).clamp(0, len(slopes) - 1)
        return values[piece] + slopes[piece] * (std - knots[piece])

    def _values(self, std: Tensor) -> Tensor:
        return std.new_tensor([*accumulate(reversed(self.heights), initial=0.0)])

    def _below(self, std: Tensor) -> Tensor:
        """Return the number of edges below by more than rounding: without data the deviation equals the first edge."""
        edges = std.new_tensor([*reversed(self.edges)]) * (1 + _ROUNDING * torch.finfo(std.dtype).eps)
        return torch.searchsorted(edges, std.detach().contiguous())


@dataclass(frozen=True)
class Cuts(Bonus):
    """The least of straight lines ``intercept + slope * std``.

    Args:
        intercepts: Not negative.
        slopes: Not negative.
    """

    intercepts: Sequence[float]
    slopes: Sequence[float]

    def __call__(self, std: Tensor) -> Tensor:
        lines = std.new_tensor(self.intercepts) + std.new_tensor(self.slopes) * std.unsqueeze(-1)
        return lines.amin(-1)
