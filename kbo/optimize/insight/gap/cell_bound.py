"""Upper bounds of a function over cells, from a bound at their centres and the norm bound."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from kbo.confidence.base import not_nan
from kbo.kernels import DenseKernel, freeze
from kbo.optimize.constraints.feasibility import ConstraintSurrogate, slack_unit
from kbo.optimize.surrogates.surrogate import Bound
from kbo.space import Space


class CellBound:
    """Upper bounds of ``(sign g - level) / unit`` at points and over cells, where g is an uncertain function.

    Args:
        bounds: Confidence bounds of g, one for each hypothesis; at least one of them holds.
        level: The number that is subtracted from g or -g.
        sign: 1 for g, -1 for -g.
        unit: The number by which the difference is divided.

    Attributes:
        obstacle: The reason why there is no bound over cells; empty if there is one. There is one if the bounds assume
            a norm and the kernels are made of RBF and Matern kernels.
        size: The largest possible absolute value of g, divided by the unit.
    """

    def __init__(
        self, bounds: Sequence[Bound], level: float = 0.0, sign: int = 1, unit: float = 1.0
    ) -> None:
        self._level = level
        self._sign = sign
        self._unit = unit
        self._hypotheses: list[_Hypothesis] = []
        self.obstacle: str = ""
        self.size: float = 0.0
        if not bounds:
            self.obstacle = "there is no bound yet"
        for bound in bounds:
            posterior = bound.posterior
            kernel = None
            if posterior.kernel is not None:
                kernel = freeze(posterior.kernel, posterior.like)
            if not bound.norm_bound:
                self.obstacle = "the bounds of the method assume no norm"
            elif kernel is None or not kernel.constant or not kernel.monotone:
                self.obstacle = "the kernel is not made of RBF and Matern kernels"
            elif not bound.confidence.finite_on(posterior):
                self.obstacle = "the bounds are not finite yet"
            else:
                largest = bound.norm_bound * math.sqrt(kernel.constant)  # |g| <= B sqrt(k(x, x))
                self._hypotheses.append(_Hypothesis(bound, bound.norm_bound, kernel, largest))
                self.size = max(self.size, largest / unit)

    def __call__(self, X: Tensor, differences: Tensor) -> tuple[Tensor, Tensor]:
        """Return the bounds [n] at the centres of cells, and the bounds [n] over the cells.

        Args:
            X: Features [n D] of the centres.
            differences: The largest differences [n D] of features to the centres in the cells (``Cells.spans``).
        """
        at_points = []
        over_cells = []
        for hypothesis in self._hypotheses:
            confidence = hypothesis.bound.confidence
            posterior = hypothesis.bound.posterior
            if self._sign > 0:
                bound = confidence.upper(posterior, X)
            else:
                bound = -confidence.lower(posterior, X)
            largest = hypothesis.largest * (1 + 1e-12)
            at_point = not_nan(bound, "bound").cpu().clamp_max(largest)
            over_cell = at_point + hypothesis.change(differences)
            at_points.append(at_point)
            over_cells.append(over_cell.clamp_max(largest))
        return self._scaled(at_points), self._scaled(over_cells)

    def _scaled(self, bounds: list[Tensor]) -> Tensor:
        """Return the largest of the bounds [n] of ``sign g`` by the hypotheses, less the level, in the unit."""
        return (torch.stack(bounds).amax(0) - self._level) / self._unit

    def change(self, differences: Tensor) -> Tensor:
        """Return the largest change [n] of the function for differences [n D] of the features."""
        changes = [hypothesis.change(differences) for hypothesis in self._hypotheses]
        return torch.stack(changes).amax(0) / self._unit


class _Hypothesis(NamedTuple):
    """The assumptions about a function under one hypothesis.

    Attributes:
        bound: Its bound.
        norm_bound: The norm bound B.
        kernel: The kernel k.
        largest: The largest absolute value that the assumptions allow, ``B sqrt(k(x, x))``.
    """

    bound: Bound
    norm_bound: float
    kernel: DenseKernel
    largest: float

    def change(self, differences: Tensor) -> Tensor:
        """Return the largest ``B |x - z|_k`` [n] for differences [n D] of the features, rounded up."""
        constant = self.kernel.constant
        assert constant is not None  # as of every monotone kernel
        k_xz = self.kernel(torch.zeros_like(differences[:1]), differences)[0]
        squared = 2 * (constant - k_xz).clamp_min(0.0)
        rounding = 16 * torch.finfo(torch.float64).eps * constant
        return self.norm_bound * (squared + rounding).sqrt().cpu()


def slack_bounds(surrogates: Sequence[ConstraintSurrogate], space: Space) -> list[CellBound]:
    """Return upper bounds of slacks, for the constraints that have a bound over cells."""
    X = space.features(torch.full((1, space.dimension), 0.5, dtype=torch.float64))
    bounds = []
    for entry in surrogates:
        unit = float(slack_unit(entry.surrogate.posterior, X))
        bound = CellBound(entry.surrogate.bounds, entry.level, unit=unit)
        if not bound.obstacle:
            bounds.append(bound)
    return bounds
