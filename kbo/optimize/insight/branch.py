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
from kbo.optimize.constrained import ConstraintBelief
from kbo.optimize.slacks import unit
from kbo.optimize.surrogates.surrogate import Bound
from kbo.regression import Posterior
from kbo.space import Choice, Space

_BATCH = 1000
"""Cells that are divided at once."""

_MOST_FIRST = 4096
"""Combinations of options of choices with which the search begins, at most."""

_TIGHT = 0.02
"""Part of the gap by which the proof may exceed what was found; then it ends."""

_WITNESSES = 64
"""Random points at which a proof is compared with the bounds there."""

_DEEPEST = 60
"""Divisions along each side around a point, at most."""

_ROUNDING = 1e-7
"""Part of the largest possible size of a function that rounding may move: the root of that of a kernel."""

NORM = "the norm bound leaves less there than the bounds of the method"
LIMIT = "the norm bound of a limit excludes points which its bounds of the method do not"
EXCLUDED = "the bounds of a limit exclude the point that was found"
"""Reasons why a proof leaves less than the bounds of the method at a point."""


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


class Ceiling:
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
        self._level, self._sign, self._unit = level, sign, unit
        self._parts: list[tuple[Confidence, Posterior, float, DenseKernel]] = []
        self.obstacle: str = "" if bounds else "there is no bound yet"
        self.size: float = 0.0
        for bound in bounds:
            confidence, posterior, norm_bound = bound.confidence, bound.posterior, bound.norm_bound
            kernel = None if posterior.kernel is None else freeze(posterior.kernel, posterior.like)
            if not norm_bound:
                self.obstacle = "the bounds of the method assume no norm"
            elif kernel is None or not kernel.constant or not kernel.monotone:
                self.obstacle = "the kernel is not made of RBF and Matern kernels"
            elif not confidence.finite_on(posterior):
                self.obstacle = "the bounds are not finite yet"
            else:
                self._parts.append((confidence, posterior, norm_bound, kernel))
                self.size = max(self.size, norm_bound * math.sqrt(kernel.constant) / unit)

    def __call__(self, X: Tensor, differences: Tensor) -> tuple[Tensor, Tensor]:
        """Return the bounds [n] at points X [n D], and those over cells with these centres; see ``_spans``."""
        found = []
        for confidence, posterior, norm_bound, kernel in self._parts:
            side = confidence.upper if self._sign > 0 else confidence.lower
            most = (
                norm_bound * math.sqrt(float(kernel.constant or 0.0)) * (1 + 1e-12)
            )  # |g| <= B sqrt(k(x, x))
            at = (self._sign * decided(side(posterior, X), "bound").cpu()).clamp_max(most)
            found.append(
                torch.stack(
                    [at, (at + norm_bound * _distance(kernel, differences)).clamp_max(most)]
                )
            )
        at, over = (torch.stack(found).amax(0) - self._level) / self._unit
        return at, over

    def change(self, differences: Tensor) -> Tensor:
        """Return by how much the function changes at most [n] where columns differ by at most so much [n D]."""
        changes = [
            norm_bound * _distance(kernel, differences) for *_, norm_bound, kernel in self._parts
        ]
        return torch.stack(changes).amax(0) / self._unit


def slacks(limited: Sequence[ConstraintBelief], space: Space) -> list[Ceiling]:
    """Return the upper bounds of the slacks of limits, of those that have one over cells."""
    X = space.features(torch.full((1, space.dimension), 0.5, dtype=torch.float64))
    found = [
        Ceiling(one.belief.bounds, one.level, unit=float(unit(one.belief.posterior, X)))
        for one in limited
    ]
    return [one for one in found if not one.obstacle]


def kept_everywhere(
    limited: Sequence[ConstraintBelief],
    space: Space,
    evaluations: int,
    counted: Callable[[int], object],
) -> bool:
    """Return whether it is proved that every point of the space keeps all limits; arguments as ``largest_proved``."""
    for one in limited:
        above = Ceiling(one.belief.bounds, -one.level, -1)
        proof = largest_proved([above], space, evaluations, until=0.0, counted=counted)
        if proof is None or proof.largest > 0:
            return False
    return True


class Proof(NamedTuple):
    """An upper bound of the largest value of a function, and the best point that was examined.

    Attributes:
        largest: An upper bound of it.
        found: The largest upper bound at a point that was examined.
        unit: That point [P] of the unit cube.
        reason: Where the bounds of the method allow more than ``largest`` at some point, the reason why it cannot be
            so large there.
    """

    largest: float
    found: float
    unit: Tensor
    reason: str = ""


@torch.no_grad()
def largest_proved(
    ceilings: Sequence[Ceiling],
    space: Space,
    evaluations: int,
    *,
    lower: float = 0.0,
    goal: float = 0.0,
    until: float = math.inf,
    within: Sequence[Ceiling] = (),
    witnesses: Tensor | None = None,
    counted: Callable[[int], object] = lambda n: None,
) -> Proof | None:
    """Return an upper bound of the largest value over a space of the least of some functions.

    Args:
        ceilings: Upper bounds of the functions.
        space: The space; functions among its constraints are not asked, which can only make the bound larger.
        evaluations: Points at which bounds may be computed, at most, besides the first ones, one for each combination
            of options of choices, and those of the comparison.
        lower: What the result is compared with.
        goal: The difference to that which is small enough.
        until: Value that ends the search once an upper bound reaches it: what was to be proved is not.
        within: Upper bounds of slacks. Points at which one is negative do not count.
        witnesses: Points [m P] of the space, in the unit cube, at which the result is compared with the bounds of the
            method, besides some random ones.
        counted: Called with numbers of points as they are examined.

    Returns:
        The bound; None where there is no proof: see ``obstacle``.

    Raises:
        Contradiction: The bounds at a point allow more than the result, and no norm bound accounts for it.
    """
    if obstacle(ceilings, space):
        return None
    found = _branch_and_bound(ceilings, space, evaluations, lower, goal, until, within, counted)
    if found.found >= until:  # nothing is proved
        return found
    points = _witnesses(space)
    if witnesses is not None:
        points = torch.cat([witnesses, points])
    return found._replace(reason=_reason(ceilings, space, within, points, found.largest))


def obstacle(ceilings: Sequence[Ceiling], space: Space) -> str:
    """Return the reason why nothing can be proved over a space; an empty text if something can."""
    if not ceilings:
        return "no bound is known"
    if space.conditions:
        return "the space has conditional parameters"
    if math.prod(_choices(space)) > _MOST_FIRST:
        return f"the choices have more than {_MOST_FIRST} combinations of options"
    return next((one.obstacle for one in ceilings if one.obstacle), "")


def _choices(space: Space) -> list[int]:
    """Return the number of options of each choice, and 1 for other parameters."""
    return [len(p.options) if isinstance(p, Choice) else 1 for p in space.parameters.values()]


def _branch_and_bound(
    ceilings: Sequence[Ceiling],
    space: Space,
    evaluations: int,
    lower: float,
    goal: float,
    until: float,
    within: Sequence[Ceiling],
    counted: Callable[[int], object],
) -> Proof:
    """Return the proof, not compared with anything; arguments as for ``largest_proved``."""
    new = cells = _first(space, _choices(space))
    best = Proof(math.inf, -math.inf, _units(space, new.low[:1])[0])
    settled = -math.inf
    used = 0
    while True:
        centres, differences = _spans(space, new)
        X = space.features(centres)
        at, over = (
            torch.stack(parts).amin(0)
            for parts in zip(*(one(X, differences) for one in ceilings), strict=True)
        )
        for kept_at, kept_over in (one(X, differences) for one in within):
            at, over = (
                at.masked_fill(kept_at < 0, -math.inf),
                over.masked_fill(kept_over < 0, -math.inf),
            )
        at = at.masked_fill(~space.may_satisfy(centres, centres), -math.inf)
        ends = (_units(space, side) for side in (new.low, new.high))
        over = over.masked_fill(~space.may_satisfy(*ends), -math.inf)
        if (most := _largest(at)) > best.found:
            best = best._replace(found=most, unit=centres[int(at.argmax())])
        counted(len(at))
        new, used = _Cells(new.low, new.high, torch.minimum(new.bound, over)), used + len(at)
        cells = new if used == len(at) else _joined(cells, new)
        done = (cells.bound <= lower + goal) | (cells.low == cells.high).all(1)
        settled = max(settled, _largest(cells.bound[done]))
        cells = cells[~done]
        top, left = _largest(cells.bound), (evaluations - used) // 2
        close = top - best.found <= _TIGHT * max(best.found - lower, 0.0)
        if top <= settled or close or best.found >= until or left < 1:
            return best._replace(largest=max(top, settled))
        largest = cells.bound.topk(min(_BATCH, left, len(cells.bound))).indices
        rest = torch.ones(len(cells.bound), dtype=torch.bool).index_fill(0, largest, False)
        new, cells = _halves(space, [*ceilings, *within], cells[largest]), cells[rest]


def _largest(values: Tensor) -> float:
    return float(values.max()) if len(values) else -math.inf


def _joined(first: _Cells, second: _Cells) -> _Cells:
    pairs = zip(
        (first.low, first.high, first.bound), (second.low, second.high, second.bound), strict=True
    )
    return _Cells(*(torch.cat(pair) for pair in pairs))


def _first(space: Space, choices: list[int]) -> _Cells:
    """Return the whole space, one cell for each combination of options of choices."""
    listed = torch.tensor(list(itertools.product(*map(range, choices))), dtype=torch.float64)
    last = [
        0.0 if isinstance(p, Choice) else len(p.options) - 1.0 if p.options else 1.0
        for p in space.parameters.values()
    ]
    return _Cells(
        listed,
        listed + torch.tensor(last, dtype=torch.float64),
        torch.full((len(listed),), math.inf, dtype=torch.float64),
    )


def _witnesses(space: Space) -> Tensor:
    """Return random points [n P] that satisfy the constraints, where random ones do, as ``Space.units`` has them."""
    generator = torch.Generator().manual_seed(0)
    units = torch.rand(_WITNESSES, space.dimension, generator=generator, dtype=torch.float64)
    units = space.units([space.params(unit) for unit in units])
    return units[space.satisfies(units)]


def _reason(
    ceilings: Sequence[Ceiling],
    space: Space,
    within: Sequence[Ceiling],
    points: Tensor,
    largest: float,
) -> str:
    """Return the reason why the functions are at most ``largest`` at the first of some points.

    The space is divided again around each point x, into the cells of the proof that contain it. By the norm bound a
    function is at most ``U(z) + B |x - z|_k`` at x for the centre z of each. The bounds of the proof and the
    differences of features in its cells have no part in this, so a fault of these shows.

    Args:
        ceilings: As for ``largest_proved``.
        space: The search space.
        within: As for ``largest_proved``.
        points: Points [n P] of the space, in the unit cube.
        largest: The bound that is proved.

    Returns:
        ``EXCLUDED``, ``LIMIT`` or ``NORM``; an empty text without points.

    Raises:
        Contradiction: There is no reason at one of the points.
    """
    if not len(points):
        return ""
    reasons = [""] * len(points)
    left = torch.arange(len(points))
    cells = _around(_first(space, _choices(space)), space, points)
    centres = points
    for depth in range(1 + _DEEPEST * space.dimension):
        X = space.features(centres)
        differences = (space.features(points[left]) - X).abs()
        at_most = largest + _ROUNDING * max(one.size for one in ceilings)
        side = min(depth, 1)  # first the bounds at the points themselves
        bounded = torch.stack([one(X, differences)[side] for one in ceilings]).amin(0) <= at_most
        excluded = torch.zeros_like(bounded)
        for one in within:
            excluded |= one(X, differences)[side] < _ROUNDING * one.size
        for row in (bounded | excluded).nonzero().flatten().tolist():
            by_limit = LIMIT if depth else EXCLUDED
            reasons[int(left[row])] = NORM if bool(bounded[row]) else by_limit
        open_ = ~(bounded | excluded)
        left = left[open_]
        if not len(left):
            return reasons[0]
        cells = cells[open_]
        if depth:
            cells = _around(_halves(space, [*ceilings, *within], cells), space, points[left])
        centres = _spans(space, cells)[0]
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
    columns = [
        p.index(points[:, i]) if p.options else points[:, i]
        for i, p in enumerate(space.parameters.values())
    ]
    places = torch.stack(columns, 1).unsqueeze(1)
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
    for i, p in enumerate(space.parameters.values()):
        if p.options:
            units[:, i] = p.middles(places[:, i])
    return units


def _middles(space: Space, cells: _Cells) -> Tensor:
    """Return the middles [n P] of the ranges, of options the position that is not above it."""
    middle = (cells.low + cells.high) / 2
    of_options = torch.tensor([bool(p.options) for p in space.parameters.values()])
    return torch.where(of_options, middle.floor(), middle)


def _spans(space: Space, cells: _Cells) -> tuple[Tensor, Tensor]:
    """Return the centres [n P] in the unit cube, and the largest differences to their features [n D]."""
    centres = _units(space, _middles(space, cells))
    features = space.features(centres)
    ends = [
        (space.features(_units(space, side)) - features).abs() for side in (cells.low, cells.high)
    ]
    return centres, torch.maximum(*ends)


def _distance(kernel: DenseKernel, differences: Tensor) -> Tensor:
    """Return the largest ``|x - z|_k`` [n] of points whose columns differ by at most so much [n D], rounded up."""
    assert kernel.constant is not None  # as of every monotone kernel
    fallen = kernel.constant - kernel(torch.zeros_like(differences[:1]), differences)[0]
    return (
        (2 * fallen.clamp_min(0.0) + 16 * torch.finfo(torch.float64).eps * kernel.constant)
        .sqrt()
        .cpu()
    )


def _halves(space: Space, ceilings: Sequence[Ceiling], cells: _Cells) -> _Cells:
    """Return the halves of cells, each divided along the side where a function may change most."""
    _, differences = _spans(space, cells)
    sides, start = [], 0
    for p in space.parameters.values():
        alone = torch.zeros_like(differences)
        alone[:, start : start + p.columns] = differences[:, start : start + p.columns]
        sides.append(torch.stack([one.change(alone) for one in ceilings]).amax(0))
        start += p.columns
    lengths = torch.stack(sides, 1).masked_fill(cells.low == cells.high, -1.0)
    along = torch.nn.functional.one_hot(lengths.argmax(1), lengths.shape[1]).bool()
    middle = _middles(space, cells)
    of_options = torch.tensor(
        [1.0 if p.options else 0.0 for p in space.parameters.values()], dtype=torch.float64
    )
    below = _Cells(cells.low, torch.where(along, middle, cells.high), cells.bound)
    above = _Cells(torch.where(along, middle + of_options, cells.low), cells.high, cells.bound)
    return _joined(below, above)
