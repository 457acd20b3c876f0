"""Exploration bonuses as functions of the posterior standard deviation alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

_ROUNDING = 8
"""Units in the last place that a standard deviation may be off."""


class Bonus(ABC):
    """A non-decreasing function of the standard deviation."""

    @abstractmethod
    def __call__(self, std: Tensor) -> Tensor:
        """The bonus [...] at standard deviations [...]."""

    def majorant(self, std: Tensor) -> Tensor:
        """A continuous bonus that is nowhere smaller, to search with."""
        return self(std)


class Steps(Bonus):
    """The sum of the heights of all steps below the standard deviation.

    Args:
        edges: Where the steps are, decreasing and above zero; a step is below a standard deviation that is larger.
        heights: Not negative.
    """

    def __init__(self, edges: Sequence[float], heights: Sequence[float]) -> None:
        self.edges, self.heights = list(edges), list(heights)
        self._knots = [0.0, *reversed(self.edges)]
        self._values = [0.0]
        for height in reversed(self.heights):
            self._values.append(self._values[-1] + height)

    def __repr__(self) -> str:
        return f"Steps(edges={self.edges}, heights={self.heights})"

    def __call__(self, std: Tensor) -> Tensor:  # noqa: D102
        return std.new_tensor(self._values)[self._below(std)]

    def majorant(self, std: Tensor) -> Tensor:
        """Straight lines through the upper corners of the steps, the last one going on."""
        knots, values = std.new_tensor(self._knots), std.new_tensor(self._values)
        slopes = values.diff() / knots.diff()
        piece = self._below(std).clamp(0, len(slopes) - 1)
        return values[piece] + slopes[piece] * (std - knots[piece])

    def _below(self, std: Tensor) -> Tensor:
        """How many edges are below, by more than rounding: where nothing is known the deviation is the first edge."""
        edges = std.new_tensor(self._knots[1:]) * (1 + _ROUNDING * torch.finfo(std.dtype).eps)
        return torch.searchsorted(edges, std.detach().contiguous())


class Cuts(Bonus):
    """The least of straight lines ``intercept + slope * std``.

    Args:
        intercepts: Not negative.
        slopes: Not negative.
    """

    def __init__(self, intercepts: Sequence[float], slopes: Sequence[float]) -> None:
        self.intercepts, self.slopes = list(intercepts), list(slopes)

    def __repr__(self) -> str:
        return f"Cuts(intercepts={self.intercepts}, slopes={self.slopes})"

    def __call__(self, std: Tensor) -> Tensor:  # noqa: D102
        lines = std.new_tensor(self.intercepts) + std.new_tensor(self.slopes) * std.unsqueeze(-1)
        return lines.amin(-1)
