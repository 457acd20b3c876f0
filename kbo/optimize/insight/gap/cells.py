"""The cells of branch and bound: boxes that cover a space, and upper bounds of a function over them.

A cell has a range of each parameter: a range of unit coordinates, or of positions if the parameter has options. The
bound over a cell comes from a bound at its centre and the norm bound.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from kbo.confidence.base import not_nan
from kbo.errors import Contradiction
from kbo.kernels import DenseKernel, freeze
from kbo.optimize.constraints.feasibility import ConstraintSurrogate, slack_unit
from kbo.optimize.surrogates.surrogate import Bound
from kbo.space import Choice, Space


@dataclass(frozen=True)
class Cells:
    """Boxes of a space, each with a range of every parameter.

    Attributes:
        space: The space.
        low, high: The ends [n P] of the ranges; they are equal where one option is left.
        bound: Upper bounds [n] of a function in the cells.
    """

    space: Space
    low: Tensor
    high: Tensor
    bound: Tensor

    @classmethod
    def covering(cls, space: Space) -> Cells:
        """Return cells that cover a space, one for each combination of options of choices, with infinite bounds."""
        positions = []
        widths = []
        for parameter in space.parameters.values():
            if isinstance(parameter, Choice):
                positions.append(range(len(parameter.options)))
                widths.append(0.0)
                continue
            positions.append(range(1))
            if parameter.options:
                widths.append(len(parameter.options) - 1.0)
            else:
                widths.append(1.0)
        low = torch.tensor(list(itertools.product(*positions)), dtype=torch.float64)
        high = low + torch.tensor(widths, dtype=torch.float64)
        return cls(space, low, high, torch.full((len(low),), math.inf, dtype=torch.float64))

    def __len__(self) -> int:
        return len(self.bound)

    def __getitem__(self, rows: Tensor) -> Cells:
        return Cells(self.space, self.low[rows], self.high[rows], self.bound[rows])

    def joined(self, others: Cells) -> Cells:
        """Return these cells and other cells, in one object."""
        return Cells(
            self.space,
            torch.cat([self.low, others.low]),
            torch.cat([self.high, others.high]),
            torch.cat([self.bound, others.bound]),
        )

    def corners(self) -> tuple[Tensor, Tensor]:
        """Return the unit coordinates [n P] of the low ends and of the high ends."""
        return unit_coordinates(self.space, self.low), unit_coordinates(self.space, self.high)

    def spans(self) -> tuple[Tensor, Tensor]:
        """Return the centres [n P] in the unit cube, and the largest differences [n D] of features to the centres."""
        centres = unit_coordinates(self.space, self._middles())
        features = self.space.features(centres)
        low, high = self.corners()
        to_low = (self.space.features(low) - features).abs()
        to_high = (self.space.features(high) - features).abs()
        return centres, torch.maximum(to_low, to_high)

    def halves(self, change: Callable[[Tensor], Tensor]) -> Cells:
        """Return the halves of the cells; each cell is divided along the side where a function may change most.

        Args:
            change: Returns the largest change [n] of the function for differences [n D] of the features.
        """
        _, differences = self.spans()
        changes = []
        start = 0
        for parameter in self.space.compared.values():
            columns = slice(start, start + parameter.columns)
            along_side = torch.zeros_like(differences)
            along_side[:, columns] = differences[:, columns]
            changes.append(change(along_side))
            start += parameter.columns
        largest = torch.stack(changes, 1).masked_fill(self.low == self.high, -1.0)
        is_divided = torch.nn.functional.one_hot(largest.argmax(1), largest.shape[1]).bool()
        middle = self._middles()
        next_place = middle + _has_options(self.space).double()  # the option after the middle one
        high = torch.where(is_divided, middle, self.high)
        low = torch.where(is_divided, next_place, self.low)
        below = Cells(self.space, self.low, high, self.bound)
        above = Cells(self.space, low, self.high, self.bound)
        return below.joined(above)

    def around(self, points: Tensor) -> Cells:
        """Return for each point [n P] of the unit cube the first cell that contains it.

        Raises:
            Contradiction: No cell contains a point.
        """
        places = points.clone()
        for i, parameter in enumerate(self.space.parameters.values()):
            if parameter.options:
                places[:, i] = parameter.index(points[:, i])
        places = places.unsqueeze(1)
        is_inside = ((self.low <= places) & (places <= self.high)).all(2)
        is_covered = is_inside.any(1)
        if not bool(is_covered.all()):
            outside = self.space.params(points[~is_covered][0])
            raise Contradiction(
                f"no cell of a proof contains {outside}. This is a fault of kbo: report it."
            )
        return self[is_inside.long().argmax(1)]

    def _middles(self) -> Tensor:
        """Return the middles [n P] of the ranges; for options, the middle position, rounded down."""
        middle = (self.low + self.high) / 2
        return torch.where(_has_options(self.space), middle.floor(), middle)


def unit_coordinates(space: Space, places: Tensor) -> Tensor:
    """Return the unit coordinates [n P] of places; a position among options becomes the middle of its range."""
    units = places.clone()
    for i, parameter in enumerate(space.parameters.values()):
        if parameter.options:
            units[:, i] = parameter.middles(places[:, i])
    return units


def _has_options(space: Space) -> Tensor:
    """Return whether each parameter has options, [P]."""
    return torch.tensor([bool(parameter.options) for parameter in space.parameters.values()])


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
                hypothesis = _Hypothesis(bound, bound.norm_bound, kernel, kernel.constant)
                self._hypotheses.append(hypothesis)
                self.size = max(self.size, hypothesis.largest / unit)

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
        constant: The prior variance ``k(x, x)``, which is the same everywhere.
    """

    bound: Bound
    norm_bound: float
    kernel: DenseKernel
    constant: float

    @property
    def largest(self) -> float:
        """The largest absolute value that the assumptions allow, ``B sqrt(k(x, x))``."""
        return self.norm_bound * math.sqrt(self.constant)

    def change(self, differences: Tensor) -> Tensor:
        """Return the largest ``B |x - z|_k`` [n] for differences [n D] of the features, rounded up."""
        k_xz = self.kernel(torch.zeros_like(differences[:1]), differences)[0]
        squared = 2 * (self.constant - k_xz).clamp_min(0.0)
        rounding = 16 * torch.finfo(torch.float64).eps * self.constant
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
