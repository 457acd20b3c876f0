"""A proved upper bound of the largest value over a space, by branch and bound.

Every f with norm at most B satisfies ``|f(x) - f(z)| <= B |x - z|_k``, |x - z|_k^2 = k(x,x) - 2 k(x,z) + k(z,z). So
for a cell C with centre z, and r the largest ``|x - z|_k`` of its points,

    max over C of f  <=  upper(z) + B r

if upper is a bound of f. The cells with the largest such bounds are divided along their longest sides, until the work
is enough; at any time the largest bound of a cell is one of f (docs/theory/boxes.md).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from kbo.confidence.base import decided
from kbo.kernels import DenseKernel, freeze
from kbo.optimize.belief import Bound
from kbo.space import Choice, Space

_BATCH = 1000
"""Cells that are divided at once."""

_MOST_FIRST = 4096
"""Combinations of options of choices with which the search begins, at most."""

_TIGHT = 0.02
"""Part of the gap by which the proof may exceed what was found; then it ends."""


@dataclass(frozen=True)
class _Cells:
    """Boxes of the space: a range of each parameter, of unit coordinates or of positions among its options.

    Attributes:
        low, high: Their ends [n P]; equal for an option.
        bound: Upper bounds of the function there [n].
    """

    low: Tensor
    high: Tensor
    bound: Tensor

    def __getitem__(self, rows: Tensor) -> _Cells:
        return _Cells(self.low[rows], self.high[rows], self.bound[rows])


def largest_proved(bound: Bound, space: Space, lower: float, goal: float, evaluations: int) -> float | None:
    """Return an upper bound of the largest value over a space.

    Args:
        bound: An upper bound of the function.
        space: The space; constraints on its parameters are not used, which can only make the bound larger.
        lower: What the result is compared with, a value that is certainly reached.
        goal: The difference to that which is small enough.
        evaluations: Points at which bounds may be computed, at most, besides the first ones: one for each combination
            of options of choices.

    Returns:
        The bound; None where there is no proof: for conditional parameters, kernels that are not made of RBF and Matern
        kernels, bounds that assume no norm, or too many combinations of options.
    """
    confidence, posterior, norm_bound = bound
    kernel = None if posterior.kernel is None else freeze(posterior.kernel, posterior.like)
    choices = [len(p.options) if isinstance(p, Choice) else 1 for p in space.parameters.values()]
    if kernel is None or kernel.constant is None or not kernel.monotone or norm_bound is None or space.conditions:
        return None
    if math.prod(choices) > _MOST_FIRST or not confidence.finite_on(posterior):
        return None
    cells, settled, found, used = _first(space, choices), -math.inf, -math.inf, 0
    new = cells
    with torch.no_grad():
        while True:
            centres, differences = _spans(space, new)
            upper = decided(confidence.upper(posterior, space.features(centres)), "bound").cpu()
            bounds = torch.minimum(new.bound, upper + norm_bound * _distance(kernel, differences).cpu())
            bounds = bounds.clamp_max(norm_bound * math.sqrt(kernel.constant) * (1 + 1e-12))  # |f| <= B sqrt(k(x, x))
            new, used, found = _Cells(new.low, new.high, bounds), used + len(upper), max(found, _largest(upper))
            cells = new if used == len(upper) else _joined(cells, new)
            done = (cells.bound <= lower + goal) | (cells.low == cells.high).all(1)
            settled = max(settled, _largest(cells.bound[done]))
            cells = cells[~done]
            top, left = _largest(cells.bound), (evaluations - used) // 2
            if top <= settled or top - found <= _TIGHT * max(found - lower, 0.0) or left < 1:
                return max(top, settled)
            largest = cells.bound.topk(min(_BATCH, left, len(cells.bound))).indices
            rest = torch.ones(len(cells.bound), dtype=torch.bool).index_fill(0, largest, False)
            new, cells = _halves(space, kernel, cells[largest]), cells[rest]


def _largest(values: Tensor) -> float:
    return float(values.max()) if len(values) else -math.inf


def _joined(first: _Cells, second: _Cells) -> _Cells:
    pairs = zip((first.low, first.high, first.bound), (second.low, second.high, second.bound), strict=True)
    return _Cells(*(torch.cat(pair) for pair in pairs))


def _first(space: Space, choices: list[int]) -> _Cells:
    """Return the whole space, one cell for each combination of options of choices."""
    listed = torch.tensor(list(itertools.product(*map(range, choices))), dtype=torch.float64)
    last = [
        0.0 if isinstance(p, Choice) else len(p.options) - 1.0 if p.options else 1.0 for p in space.parameters.values()
    ]
    return _Cells(listed, listed + torch.tensor(last), torch.full((len(listed),), math.inf, dtype=torch.float64))


def _units(space: Space, places: Tensor) -> Tensor:
    """Return the unit coordinates [n P] of places: of options the middles of their cells."""
    columns = [
        (places[:, i] + 0.5) / len(p.options) if p.options else places[:, i]
        for i, p in enumerate(space.parameters.values())
    ]
    return torch.stack(columns, 1)


def _middles(space: Space, cells: _Cells) -> Tensor:
    """Return the middles [n P] of the ranges, of options the position that is not above it."""
    middle = (cells.low + cells.high) / 2
    of_options = torch.tensor([bool(p.options) for p in space.parameters.values()])
    return torch.where(of_options, middle.floor(), middle)


def _spans(space: Space, cells: _Cells) -> tuple[Tensor, Tensor]:
    """Return the centres [n P] in the unit cube, and the largest differences to their features [n D]."""
    centres = _units(space, _middles(space, cells))
    features = space.features(centres)
    ends = [(space.features(_units(space, side)) - features).abs() for side in (cells.low, cells.high)]
    return centres, torch.maximum(*ends)


def _distance(kernel: DenseKernel, differences: Tensor) -> Tensor:
    """Return the largest ``|x - z|_k`` [n] of points whose columns differ by at most so much [n D], rounded up."""
    assert kernel.constant is not None  # as of every monotone kernel
    fallen = kernel.constant - kernel(torch.zeros_like(differences[:1]), differences)[0]
    return (2 * fallen.clamp_min(0.0) + 16 * torch.finfo(torch.float64).eps * kernel.constant).sqrt()


def _halves(space: Space, kernel: DenseKernel, cells: _Cells) -> _Cells:
    """Return the halves of cells, each divided along the side that is longest for the kernel."""
    _, differences = _spans(space, cells)
    sides, start = [], 0
    for p in space.parameters.values():
        alone = torch.zeros_like(differences)
        alone[:, start : start + p.columns] = differences[:, start : start + p.columns]
        sides.append(_distance(kernel, alone).cpu())
        start += p.columns
    lengths = torch.stack(sides, 1).masked_fill(cells.low == cells.high, -1.0)
    along = torch.nn.functional.one_hot(lengths.argmax(1), lengths.shape[1]).bool()
    middle = _middles(space, cells)
    of_options = torch.tensor([1.0 if p.options else 0.0 for p in space.parameters.values()])
    below = _Cells(cells.low, torch.where(along, middle, cells.high), cells.bound)
    above = _Cells(torch.where(along, middle + of_options, cells.low), cells.high, cells.bound)
    return _joined(below, above)
