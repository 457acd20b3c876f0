"""The cells of branch and bound: boxes that cover a space, their centres, and their halves.

A cell has a range of each parameter: a range of unit coordinates, or of positions if the parameter has options.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from kbo.errors import Contradiction
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
