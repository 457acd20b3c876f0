"""Assumptions of theorems that the data of a posterior do not meet, and errors of its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kbo.kernels import measured_error
from kbo.regression.numerics import algebra_error


@dataclass(frozen=True)
class Provenance:
    """Assumptions of theorems that were given up: a confidence compares them with those that its own theorem needs.

    Attributes:
        hypothetical: Whether some observations are hypothetical: then no bound is a theorem.
        weighted: Whether an observation has another weight than 1.
        ridge_moved: Whether the ridge was, or may have been, moved after data had come.
        unit_variance: The noise variance of an observation of weight 1, if variances were given; None if not.
        repeats: How many observations repeated a location, and how many of these exactly its last value; zero if not
            counted.
        caveats: Other reasons why no theorem covers bounds on these data, in words.
    """

    hypothetical: bool = False
    weighted: bool = False
    ridge_moved: bool = False
    unit_variance: float | None = None
    repeats: tuple[int, int] = (0, 0)
    caveats: tuple[str, ...] = ()


class Error:
    """Errors of a posterior's answers from an approximation of the kernel matrix, ``E = K - K~ >= 0``, and rounding.

    Without an approximation, E = 0, as here; a posterior that has one overrides what differs.

    Args:
        state: The posterior.

    Attributes:
        least_ridge: The least ridge at which log-determinants and variances keep their digits.
        of_quad: Bound of the rounding of ``quad`` and ``rss``, in squared units of y; zero for sums of squares.
    """

    least_ridge: float = 0.0
    of_quad: float = 0.0

    def __init__(self, state: Any) -> None:
        self.state = state

    @property
    def residuals(self) -> Tensor:
        """The diagonal of E over distinct locations, each times the weight of its observations, [m]; empty if E = 0."""
        return self.state.like.new_zeros(0)

    @property
    def trace(self) -> Tensor:
        """``Tr E``, []."""
        return self.residuals.sum()

    def norm(self) -> Tensor:
        """Return an upper bound of the operator norm of E, []."""
        return self.state.like.new_zeros(())

    def log_det(self, ridge: float | Sequence[float]) -> Tensor:
        """Return an upper bound of ``ln det(I + E / ridge)``, never above ``Tr E / ridge``; [] or [r].

        Hadamard's inequality, after the repeats of a location are merged (docs/theory/sketch.md).
        """
        residuals = self.residuals
        if not residuals.shape[0]:
            return residuals.new_zeros((len(ridge),) if isinstance(ridge, Sequence) else ())
        at = torch.as_tensor(ridge, dtype=residuals.dtype, device=residuals.device)
        return (residuals / at.unsqueeze(-1)).log1p().sum(-1)

    @property
    def terms(self) -> int:
        """Terms of the longest sum of a step of the algebra, in which rounding piles up."""
        return self.state.n

    def rounding(self, ridge: float | Tensor) -> Tensor:
        """Return e, which bounds what rounding in float64 does to the answers at a ridge, [] or the shape of ridge.

        ``e = 4 (t + 1) u (t + 1 + Tr K / ridge)`` with t = ``terms`` and ``u = 2^-53``. As long as e is small, variance
        and ``quad`` are within e times themselves of their values in exact arithmetic, the mean is within
        ``e sqrt(variance quad / ridge)`` and ``log_det`` within ``sqrt(t + 1) e``; see docs/theory/rounding.md.
        """
        return algebra_error(self.terms, self.state.trace, ridge)

    def of_kernel(self) -> float:
        """Return the error of the kernel, relative to ``k(x, x)``, that is assumed because its formula is unknown."""
        kernel, locations = getattr(self.state, "kernel", None), self.state.locations
        if kernel is None or locations is None or not len(locations[0]):
            return 0.0
        return measured_error(kernel, few(locations[0]))


_FEW = 16
"""Points of each kind at which kernels are compared."""


def few(points: Tensor) -> Tensor:
    """Return up to ``_FEW`` of some points [n d], evenly spaced in their order."""
    return points[:: -(-len(points) // _FEW) or 1]
