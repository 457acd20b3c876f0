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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from kbo.confidence import Confidence
from kbo.confidence.base import decided
from kbo.errors import Contradiction
from kbo.kernels import DenseKernel, freeze
from kbo.optimize.feasibility import ConstraintSurrogate
from kbo.optimize.slacks import slack_unit
from kbo.optimize.surrogates.surrogate import Bound
from kbo.regression import Posterior
from kbo.space import Choice, Space
from kbo.space.parameters import Parameter

_BATCH = 1000
"""Cells that are divided at once."""

_MOST_FIRST = 4096
"""Combinations of options of choices with which the search begins, at most."""

_TIGHT = 0.02
"""Part of the gap by which the proved bound may exceed the found one; then the proof ends."""

_N_RANDOM = 64
"""Random points at which a proof is compared with the bounds there."""

_DEEPEST = 60
"""Divisions along each side around a point, at most."""

_ROUNDING = 1e-7
"""Part of the largest possible size of a function that rounding may move: the root of that of a kernel."""

NORM = "the norm bound leaves less there than the bounds of the method"
LIMIT = "the norm bound of a limit excludes points which its bounds of the method do not"
EXCLUDED = "the bounds of a limit exclude the point that was found"
"""Reasons why a proof leaves less than the bounds of the method at a point."""


class CellBound:
    """Upper bounds of ``(sign g - level) / unit`` at points and over cells, where g is the function of a bound.

    Args:
        bounds: The bounds of g, of which one holds: one for each hypothesis.
        level, sign, unit: The numbers.

    Attributes:
        obstacle: The reason why there is no bound over cells; empty where there is one: of a norm, with kernels that
            are made of RBF and Matern kernels.
        size: The largest possible absolute value of the function, in the unit.
    """

    def __init__(
        self, bounds: Sequence[Bound], level: float = 0.0, sign: int = 1, unit: float = 1.0
    ) -> None:
        self._level = level
        self._sign = sign
        self._unit = unit
        self._parts: list[_Part] = []
        self.obstacle: str = "" if bounds else "there is no bound yet"
        self.size: float = 0.0
        for bound in bounds:
            posterior = bound.posterior
            kernel = None if posterior.kernel is None else freeze(posterior.kernel, posterior.like)
            if not bound.norm_bound:
                self.obstacle = "the bounds of the method assume no norm"
            elif kernel is None or not kernel.constant or not kernel.monotone:
                self.obstacle = "the kernel is not made of RBF and Matern kernels"
            elif not bound.confidence.finite_on(posterior):
                self.obstacle = "the bounds are not finite yet"
            else:
                largest = bound.norm_bound * math.sqrt(kernel.constant)  # |g| <= B sqrt(k(x, x))
                part = _Part(bound.confidence, posterior, bound.norm_bound, kernel, largest)
                self._parts.append(part)
                self.size = max(self.size, largest / unit)

    def __call__(self, X: Tensor, differences: Tensor) -> tuple[Tensor, Tensor]:
        """Return the bounds [n] at points X [n D], and those over cells with these centres; see ``_spans``."""
        at_points = []
        over_cells = []
        for confidence, posterior, norm_bound, kernel, largest in self._parts:
            if self._sign > 0:
                bound = confidence.upper(posterior, X)
            else:
                bound = -confidence.lower(posterior, X)
            at_point = decided(bound, "bound").cpu().clamp_max(largest * (1 + 1e-12))
            over_cell = at_point + norm_bound * _distance(kernel, differences)
            at_points.append(at_point)
            over_cells.append(over_cell.clamp_max(largest * (1 + 1e-12)))
        return self._scaled(at_points), self._scaled(over_cells)

    def _scaled(self, bounds: list[Tensor]) -> Tensor:
        return (torch.stack(bounds).amax(0) - self._level) / self._unit

    def change(self, differences: Tensor) -> Tensor:
        """Return the largest change [n] of the function where columns differ by at most so much [n D]."""
        changes = [part.norm_bound * _distance(part.kernel, differences) for part in self._parts]
        return torch.stack(changes).amax(0) / self._unit


class _Part(NamedTuple):
    """The bound of one hypothesis, and the largest absolute value that its norm allows."""

    confidence: Confidence
    posterior: Posterior
    norm_bound: float
    kernel: DenseKernel
    largest: float


def slack_bounds(surrogates: Sequence[ConstraintSurrogate], space: Space) -> list[CellBound]:
    """Return the upper bounds of the slacks of constraints, of those that have one over cells."""
    X = space.features(torch.full((1, space.dimension), 0.5, dtype=torch.float64))
    found = []
    for entry in surrogates:
        unit = float(slack_unit(entry.surrogate.posterior, X))
        bound = CellBound(entry.surrogate.bounds, entry.level, unit=unit)
        if not bound.obstacle:
            found.append(bound)
    return found


def kept_everywhere(
    surrogates: Sequence[ConstraintSurrogate],
    space: Space,
    evaluations: int,
    counted: Callable[[int], object],
) -> bool:
    """Return True if it is proved that all points of the space keep all limits; arguments as for ``bound_maximum``."""
    for entry in surrogates:
        violation = CellBound(entry.surrogate.bounds, -entry.level, -1)
        proof = bound_maximum([violation], space, evaluations, until=0.0, counted=counted)
        if proof is None or proof.largest > 0:
            return False
    return True


class Proof(NamedTuple):
    """An upper bound of the largest value of a function, and the best point that was examined.

    Attributes:
        largest: An upper bound of it.
        found: The largest upper bound at a point that was examined.
        point: That point [P] of the unit cube.
        reason: Where the bounds of the method allow more than ``largest`` at some point, the reason why it cannot be
            so large there.
    """

    largest: float
    found: float
    point: Tensor
    reason: str = ""


@torch.no_grad()
def bound_maximum(
    functions: Sequence[CellBound],
    space: Space,
    evaluations: int,
    *,
    lower: float = 0.0,
    goal: float = 0.0,
    until: float = math.inf,
    slacks: Sequence[CellBound] = (),
    witnesses: Tensor | None = None,
    counted: Callable[[int], object] = lambda n: None,
) -> Proof | None:
    """Return an upper bound of the largest value over a space of the least of some functions.

    Args:
        functions: Upper bounds of the functions.
        space: The space; functions among its constraints are not called, which can only make the bound larger.
        evaluations: Points at which bounds may be computed, at most, besides the first ones, one for each combination
            of options of choices, and those of the comparison.
        lower: The value that the result is compared with.
        goal: The difference to that which is small enough.
        until: Value that ends the search once an upper bound reaches it: the statement to prove is wrong then, or
            cannot be proved.
        slacks: Upper bounds of slacks. Points at which one is negative do not count.
        witnesses: Points [m P] of the space, in the unit cube, at which the result is compared with the bounds of the
            method, besides some random ones.
        counted: Called with numbers of points as they are examined.

    Returns:
        The bound; None where there is no proof: see ``obstacle``.

    Raises:
        Contradiction: The bounds at a point allow more than the result, and no norm bound accounts for it.
    """
    if obstacle(functions, space):
        return None
    proof = _branch_and_bound(functions, space, evaluations, lower, goal, until, slacks, counted)
    if proof.found >= until:  # nothing is proved
        return proof
    points = _random_points(space)
    if witnesses is not None:
        points = torch.cat([witnesses, points])
    if not len(points):
        return proof
    return proof._replace(reason=_reason(functions, space, slacks, points, proof.largest))


def obstacle(functions: Sequence[CellBound], space: Space) -> str:
    """Return the reason why nothing can be proved over a space; an empty text if something can."""
    if not functions:
        return "no bound is known"
    if space.conditions:
        return "the space has conditional parameters"
    if math.prod(_n_options(space)) > _MOST_FIRST:
        return f"the choices have more than {_MOST_FIRST} combinations of options"
    for function in functions:
        if function.obstacle:
            return function.obstacle
    return ""


def _branch_and_bound(
    functions: Sequence[CellBound],
    space: Space,
    evaluations: int,
    lower: float,
    goal: float,
    until: float,
    slacks: Sequence[CellBound],
    counted: Callable[[int], object],
) -> Proof:
    """Return the proof before its comparison with the bounds of the method; arguments as for ``bound_maximum``."""
    new = _first(space)
    cells = new[torch.zeros(len(new.bound), dtype=torch.bool)]  # that may be divided
    best = Proof(math.inf, -math.inf, _units(space, new.low[:1])[0])
    settled = -math.inf  # the largest bound of the cells that are divided no further
    n_examined = 0
    while True:
        centres, at_centres, over_cells = _evaluated(functions, space, slacks, new)
        largest_at_centre = _largest(at_centres)
        if largest_at_centre > best.found:
            best = best._replace(found=largest_at_centre, point=centres[int(at_centres.argmax())])
        counted(len(at_centres))
        n_examined += len(at_centres)
        new = _Cells(new.low, new.high, torch.minimum(new.bound, over_cells))
        cells = _joined(cells, new)
        done = (cells.bound <= lower + goal) | (cells.low == cells.high).all(1)
        settled = max(settled, _largest(cells.bound[done]))
        cells = cells[~done]
        largest = _largest(cells.bound)
        n_left = (evaluations - n_examined) // 2
        is_tight = largest - best.found <= _TIGHT * max(best.found - lower, 0.0)
        if largest <= settled or is_tight or best.found >= until or n_left < 1:
            return best._replace(largest=max(largest, settled))
        rows = cells.bound.topk(min(_BATCH, n_left, len(cells.bound))).indices
        new = _halves(space, [*functions, *slacks], cells[rows])
        is_left = torch.ones(len(cells.bound), dtype=torch.bool).index_fill(0, rows, False)
        cells = cells[is_left]


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


def _evaluated(
    functions: Sequence[CellBound], space: Space, slacks: Sequence[CellBound], cells: _Cells
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the centres [n P] of cells, the bounds [n] of the least function there, and those over the cells.

    The bounds are -inf where a slack is negative, or a constraint of the space is broken.
    """
    centres, differences = _spans(space, cells)
    X = space.features(centres)
    at_centres = torch.full((len(centres),), math.inf, dtype=torch.float64)
    over_cells = at_centres
    for function in functions:
        at_points, over_all = function(X, differences)
        at_centres = torch.minimum(at_centres, at_points)
        over_cells = torch.minimum(over_cells, over_all)
    for slack in slacks:
        slack_at_points, slack_over_cells = slack(X, differences)
        at_centres = at_centres.masked_fill(slack_at_points < 0, -math.inf)
        over_cells = over_cells.masked_fill(slack_over_cells < 0, -math.inf)
    at_centres = at_centres.masked_fill(~space.may_satisfy(centres, centres), -math.inf)
    low = _units(space, cells.low)
    high = _units(space, cells.high)
    over_cells = over_cells.masked_fill(~space.may_satisfy(low, high), -math.inf)
    return centres, at_centres, over_cells


def _largest(values: Tensor) -> float:
    if not len(values):
        return -math.inf
    return float(values.max())


def _joined(first: _Cells, second: _Cells) -> _Cells:
    return _Cells(
        torch.cat([first.low, second.low]),
        torch.cat([first.high, second.high]),
        torch.cat([first.bound, second.bound]),
    )


def _n_options(space: Space) -> list[int]:
    """Return the number of options of each choice, and 1 for other parameters."""
    return [len(p.options) if isinstance(p, Choice) else 1 for p in space.parameters.values()]


def _first(space: Space) -> _Cells:
    """Return the whole space, one cell for each combination of options of choices."""
    combinations = list(itertools.product(*map(range, _n_options(space))))
    low = torch.tensor(combinations, dtype=torch.float64)
    width = [_width(parameter) for parameter in space.parameters.values()]
    high = low + torch.tensor(width, dtype=torch.float64)
    return _Cells(low, high, torch.full((len(low),), math.inf, dtype=torch.float64))


def _width(parameter: Parameter) -> float:
    """Return the width of the range of a parameter in the first cells: 0 for an option of a choice."""
    if isinstance(parameter, Choice):
        return 0.0
    if parameter.options:
        return len(parameter.options) - 1.0
    return 1.0


def _random_points(space: Space) -> Tensor:
    """Return random points [n P] that satisfy the constraints, where random ones do, as ``Space.units`` has them."""
    generator = torch.Generator().manual_seed(0)
    units = torch.rand(_N_RANDOM, space.dimension, generator=generator, dtype=torch.float64)
    units = space.units([space.params(unit) for unit in units])
    return units[space.satisfies(units)]


def _reason(
    functions: Sequence[CellBound],
    space: Space,
    slacks: Sequence[CellBound],
    points: Tensor,
    largest: float,
) -> str:
    """Return the reason why the functions are at most ``largest`` at the first of some points.

    The space is divided again around each point x, into the cells of the proof that contain it. By the norm bound a
    function is at most ``U(z) + B |x - z|_k`` at x for the centre z of each. The bounds of the proof and the
    differences of features in its cells have no part in this, so a fault of these shows.

    Args:
        functions: As for ``bound_maximum``.
        space: The search space.
        slacks: As for ``bound_maximum``.
        points: Points [n P] of the space, in the unit cube, at least one.
        largest: The bound that is proved.

    Returns:
        ``EXCLUDED``, ``LIMIT`` or ``NORM``.

    Raises:
        Contradiction: There is no reason at one of the points.
    """
    reasons = [""] * len(points)
    left = torch.arange(len(points))
    at_most = largest + _ROUNDING * max(function.size for function in functions)
    cells = _around(_first(space), space, points)
    centres = points
    for depth in range(1 + _DEEPEST * space.dimension):
        X = space.features(centres)
        differences = (space.features(points[left]) - X).abs()
        side = min(depth, 1)  # first the bounds at the points themselves
        values = [function(X, differences)[side] for function in functions]
        bounded = torch.stack(values).amin(0) <= at_most
        excluded = torch.zeros_like(bounded)
        for slack in slacks:
            excluded |= slack(X, differences)[side] < _ROUNDING * slack.size
        for row in (bounded | excluded).nonzero().flatten().tolist():
            if bool(bounded[row]):
                reasons[int(left[row])] = NORM
            elif depth:
                reasons[int(left[row])] = LIMIT
            else:
                reasons[int(left[row])] = EXCLUDED
        is_open = ~(bounded | excluded)
        left = left[is_open]
        if not len(left):
            return reasons[0]
        cells = cells[is_open]
        if depth:
            halves = _halves(space, [*functions, *slacks], cells)
            cells = _around(halves, space, points[left])
        centres, _ = _spans(space, cells)
    raise Contradiction(
        f"a proof says that a bounded quantity is at most {largest:.6g} on the whole space, and its bounds at "
        f"{space.params(points[left[0]])} allow more, which no norm bound forbids. This is a fault of kbo: please "
        "report it with this message. gap() without evaluations does not use the proof."
    )


def _around(cells: _Cells, space: Space, points: Tensor) -> _Cells:
    """Return a cell for each of some points [n P] of the unit cube that contains it, the first of several.

    Raises:
        Contradiction: No cell contains a point.
    """
    places = points.clone()
    for i, parameter in enumerate(space.parameters.values()):
        if parameter.options:
            places[:, i] = parameter.index(points[:, i])
    places = places.unsqueeze(1)
    inside = ((cells.low <= places) & (places <= cells.high)).all(2)
    if not bool(inside.any(1).all()):
        outside = points[~inside.any(1)][0]
        raise Contradiction(
            f"no cell of a proof contains {space.params(outside)}. This is a fault of kbo: report it."
        )
    return cells[inside.long().argmax(1)]


def _units(space: Space, places: Tensor) -> Tensor:
    """Return the unit coordinates [n P] of places: of positions among options the middles of their cells."""
    units = places.clone()
    for i, parameter in enumerate(space.parameters.values()):
        if parameter.options:
            units[:, i] = parameter.middles(places[:, i])
    return units


def _middles(space: Space, cells: _Cells) -> Tensor:
    """Return the middles [n P] of the ranges, of options the position that is not above it."""
    middle = (cells.low + cells.high) / 2
    return torch.where(_has_options(space), middle.floor(), middle)


def _has_options(space: Space) -> Tensor:
    return torch.tensor([bool(parameter.options) for parameter in space.parameters.values()])


def _spans(space: Space, cells: _Cells) -> tuple[Tensor, Tensor]:
    """Return the centres [n P] in the unit cube, and the largest differences to their features [n D]."""
    centres = _units(space, _middles(space, cells))
    features = space.features(centres)
    to_low = (space.features(_units(space, cells.low)) - features).abs()
    to_high = (space.features(_units(space, cells.high)) - features).abs()
    return centres, torch.maximum(to_low, to_high)


def _distance(kernel: DenseKernel, differences: Tensor) -> Tensor:
    """Return the largest ``|x - z|_k`` [n] of points whose columns differ by at most so much [n D], rounded up."""
    assert kernel.constant is not None  # as of every monotone kernel
    k_xz = kernel(torch.zeros_like(differences[:1]), differences)[0]
    squared = 2 * (kernel.constant - k_xz).clamp_min(0.0)
    rounding = 16 * torch.finfo(torch.float64).eps * kernel.constant
    return (squared + rounding).sqrt().cpu()


def _halves(space: Space, functions: Sequence[CellBound], cells: _Cells) -> _Cells:
    """Return the halves of cells, each divided along the side where a function may change most."""
    _, differences = _spans(space, cells)
    changes = []
    start = 0
    for parameter in space.parameters.values():
        columns = slice(start, start + parameter.columns)
        along_side = torch.zeros_like(differences)
        along_side[:, columns] = differences[:, columns]
        largest = torch.stack([function.change(along_side) for function in functions]).amax(0)
        changes.append(largest)
        start += parameter.columns
    change = torch.stack(changes, 1).masked_fill(cells.low == cells.high, -1.0)
    is_divided = torch.nn.functional.one_hot(change.argmax(1), change.shape[1]).bool()
    middle = _middles(space, cells)
    next_place = middle + _has_options(space).double()  # the option after the middle one
    below = _Cells(cells.low, torch.where(is_divided, middle, cells.high), cells.bound)
    above = _Cells(torch.where(is_divided, next_place, cells.low), cells.high, cells.bound)
    return _joined(below, above)
