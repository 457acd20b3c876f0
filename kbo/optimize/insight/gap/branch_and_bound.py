"""A proved upper bound of the largest value of a function over a space, by branch and bound.

Every f with norm at most B satisfies ``|f(x) - f(z)| <= B |x - z|_k``, |x - z|_k^2 = k(x,x) - 2 k(x,z) + k(z,z). So
for a cell C with centre z, and r the largest ``|x - z|_k`` of its points,

    max over C of f  <=  upper(z) + B r

if upper is an upper bound of f. If a score grows with each of several functions, it is at most the score of their
bounds. The cells with the largest bounds are divided, each along the side where the functions may change most. At any
time the largest bound of a cell is an upper bound of f, or of the score, over the space (docs/theory/gaps.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from kbo.errors import Contradiction
from kbo.optimize.constraints.feasibility import ConstraintSurrogate
from kbo.optimize.insight.gap.cells import CellBound, Cells
from kbo.space import Choice, Space

_BATCH = 1000
"""Largest number of cells that are divided at once."""

_MOST_FIRST = 4096
"""Largest number of combinations of options with which a search begins."""

_TIGHT = 0.02
"""Share of the gap: a proof ends when it exceeds the largest found value by no more than this."""

_N_RANDOM = 64
"""Number of random points at which a proof is compared with the bounds of the method."""

_DEEPEST = 60
"""Largest number of divisions along each side around a point."""

_ROUNDING = 1e-7
"""Largest rounding error of a function, as a share of its largest possible size: the root of that of a kernel."""


Score = Callable[[Tensor], Tensor]
"""A score [n] of values [n m] of m functions. It grows with each of them, at most by their largest change."""


def least(values: Tensor) -> Tensor:
    """Return the least [n] of values [n m] of m functions."""
    return values.amin(-1)


def kept_everywhere(
    surrogates: Sequence[ConstraintSurrogate],
    space: Space,
    evaluations: int,
) -> bool:
    """Return True if it is proved that all points of the space keep all limits; arguments as for ``bound_maximum``."""
    for entry in surrogates:
        violation = CellBound(entry.surrogate.bounds, -entry.level, -1)
        score = BoundedScore([violation], space)
        proof = bound_maximum(score, evaluations, until=0.0)
        if proof is None or proof.largest > 0:
            return False
    return True


class BoundedScore(NamedTuple):
    """The score whose largest value over a space is bounded, by upper bounds of the functions that it depends on.

    Attributes:
        functions: Upper bounds of the functions.
        space: The space. Constraints that are functions are not used, which can only make the bound larger.
        slacks: Upper bounds of slacks. Points where one of them is negative do not count.
        score: The score of values of the functions; by default the least value.
    """

    functions: Sequence[CellBound]
    space: Space
    slacks: Sequence[CellBound] = ()
    score: Score = least

    def scores(self, X: Tensor, differences: Tensor) -> tuple[Tensor, Tensor]:
        """Return upper bounds [n] of the score at centres of cells, and over the cells; arguments as ``CellBound``."""
        at_points = []
        over_cells = []
        for function in self.functions:
            at_point, over_cell = function(X, differences)
            at_points.append(at_point)
            over_cells.append(over_cell)
        return self.score(torch.stack(at_points, -1)), self.score(torch.stack(over_cells, -1))

    def change(self, differences: Tensor) -> Tensor:
        """Return the largest change [n] of a function or slack for differences [n D] of the features."""
        bounds = [*self.functions, *self.slacks]
        return torch.stack([bound.change(differences) for bound in bounds]).amax(0)

    def explains(
        self, X: Tensor, differences: Tensor, at_most: float, *, over_cells: bool
    ) -> Tensor:
        """Return whether, by the bounds, the score is at most a number or some slack is negative, [n].

        Args:
            X: Features [n D] of the centres of cells.
            differences: The largest differences [n D] of features to the centres in the cells.
            at_most: The number.
            over_cells: Whether this must hold over whole cells, or only at their centres.
        """
        side = int(over_cells)
        is_explained = self.scores(X, differences)[side] <= at_most
        for slack in self.slacks:
            is_explained |= slack(X, differences)[side] < _ROUNDING * slack.size
        return is_explained


class Proof(NamedTuple):
    """A proved upper bound of the largest value of a function over a space.

    Attributes:
        largest: The upper bound.
        found: The largest upper bound of the function at an examined point.
        point: That point [P] of the unit cube.
    """

    largest: float
    found: float
    point: Tensor


@torch.no_grad()
def bound_maximum(
    problem: BoundedScore,
    evaluations: int,
    *,
    lower: float = 0.0,
    goal: float = 0.0,
    until: float = math.inf,
    witnesses: Tensor | None = None,
) -> Proof | None:
    """Return a proved upper bound of the largest score over the points of a space at which no slack is negative.

    Args:
        problem: The score, its space and the slacks.
        evaluations: The largest number of points at which bounds are computed. The first points, one for each
            combination of options of choices, are always examined, and count. Those of the comparison with the bounds
            of the method do not count.
        lower: The value with which the result is compared.
        goal: The search ends when the result is at most this above ``lower``.
        until: The search ends when the upper bound at a point reaches this: then the statement cannot be proved.
        witnesses: Points [m P] of the unit cube, in the space, at which the result is compared with the bounds of the
            method; some random points are added.

    Returns:
        The bound; None where there is no proof: see ``obstacle``.

    Raises:
        Contradiction: The bounds at a point allow more than the result, and no norm bound is the reason.
    """
    if obstacle(problem.functions, problem.space):
        return None
    proof = _branch_and_bound(problem, evaluations, lower, goal, until)
    if proof.found >= until:  # nothing is proved
        return proof
    points = _random_points(problem.space)
    if witnesses is not None:
        points = torch.cat([witnesses, points])
    if len(points):
        _check(problem, points, proof.largest)
    return proof


def obstacle(functions: Sequence[CellBound], space: Space) -> str:
    """Return the reason why nothing can be proved over a space; an empty text if a proof is possible."""
    if not functions:
        return "no bound is known"
    if space.conditions:
        return "the space has conditional parameters"
    if _n_combinations(space) > _MOST_FIRST:
        return f"the choices have more than {_MOST_FIRST} combinations of options"
    for function in functions:
        if function.obstacle:
            return function.obstacle
    return ""


def _n_combinations(space: Space) -> int:
    """Return the number of combinations of the options of all choices."""
    choices = [p for p in space.parameters.values() if isinstance(p, Choice)]
    return math.prod(len(choice.options) for choice in choices)


def _branch_and_bound(
    problem: BoundedScore,
    evaluations: int,
    lower: float,
    goal: float,
    until: float,
) -> Proof:
    """Return the proof, without its check, by best-first branch and bound; arguments as for ``bound_maximum``."""
    new = Cells.covering(problem.space)
    cells = new[torch.zeros(len(new), dtype=torch.bool)]  # those that may be divided, none yet
    best = Proof(math.inf, -math.inf, new.corners()[0][0])
    settled = -math.inf  # the largest bound of the cells that are divided no further
    n_examined = 0
    while True:
        centres, at_centres, over_cells = _evaluated(problem, new)
        largest_at_centre = _largest(at_centres)
        if largest_at_centre > best.found:
            best = best._replace(found=largest_at_centre, point=centres[int(at_centres.argmax())])
        n_examined += len(new)
        new = replace(new, bound=torch.minimum(new.bound, over_cells))
        cells = cells.joined(new)
        is_done = (cells.bound <= lower + goal) | (cells.low == cells.high).all(1)
        settled = max(settled, _largest(cells.bound[is_done]))
        cells = cells[~is_done]
        largest = _largest(cells.bound)
        n_left = (evaluations - n_examined) // 2
        is_tight = largest - best.found <= _TIGHT * max(best.found - lower, 0.0)
        if largest <= settled or is_tight or best.found >= until or n_left < 1:
            return best._replace(largest=max(largest, settled))
        rows = cells.bound.topk(min(_BATCH, n_left, len(cells))).indices
        new = cells[rows].halves(problem.change)
        is_left = torch.ones(len(cells), dtype=torch.bool).index_fill(0, rows, False)
        cells = cells[is_left]


def _evaluated(problem: BoundedScore, cells: Cells) -> tuple[Tensor, Tensor, Tensor]:
    """Return the centres [n P] of cells, the bounds [n] of the score at them, and the bounds [n] over the cells.

    The bounds are -inf where a slack is negative, or a constraint of the space is broken.
    """
    centres, differences = cells.spans()
    X = problem.space.features(centres)
    at_centres, over_cells = problem.scores(X, differences)
    for slack in problem.slacks:
        slack_at_points, slack_over_cells = slack(X, differences)
        at_centres = at_centres.masked_fill(slack_at_points < 0, -math.inf)
        over_cells = over_cells.masked_fill(slack_over_cells < 0, -math.inf)
    satisfies = problem.space.may_satisfy
    at_centres = at_centres.masked_fill(~satisfies(centres, centres), -math.inf)
    over_cells = over_cells.masked_fill(~satisfies(*cells.corners()), -math.inf)
    return centres, at_centres, over_cells


def _largest(values: Tensor) -> float:
    """Return the largest of values [n]; minus infinity if there are none."""
    if not len(values):
        return -math.inf
    return float(values.max())


def _random_points(space: Space) -> Tensor:
    """Return the points [n P] of a fixed random sample that satisfy the constraints, rounded as the space rounds."""
    generator = torch.Generator().manual_seed(0)
    units = torch.rand(_N_RANDOM, space.dimension, generator=generator, dtype=torch.float64)
    units = space.units([space.params(unit) for unit in units])
    return units[space.satisfies(units)]


def _check(problem: BoundedScore, points: Tensor, largest: float) -> None:
    """Check that the score is at most ``largest`` at points [n P] of the space, in the unit cube.

    Where the bounds at a point allow more, the space is divided again around it, into smaller and smaller cells that
    contain it. By the norm bound a function at x is at most ``U(z) + B |x - z|_k``, where z is the centre of a cell.
    This check uses neither the bounds of the proof nor the differences of features in its cells, so it finds faults of
    these.

    Raises:
        Contradiction: The bounds at a point allow more, and no norm bound is the reason.
    """
    space = problem.space
    at_most = largest + _ROUNDING * max(function.size for function in problem.functions)
    features = space.features(points)
    same = torch.zeros_like(features)  # first the bounds at the points themselves
    is_open = ~problem.explains(features, same, at_most, over_cells=False)
    cells = Cells.covering(space).around(points)[is_open]
    points = points[is_open]
    for _ in range(_DEEPEST * space.dimension):
        if not len(points):
            return
        centres, _ = cells.spans()
        X = space.features(centres)
        differences = (space.features(points) - X).abs()
        is_open = ~problem.explains(X, differences, at_most, over_cells=True)
        points = points[is_open]
        cells = cells[is_open]
        if len(points):
            cells = cells.halves(problem.change).around(points)
    raise Contradiction(
        f"a proof says that a bounded quantity is at most {largest:.6g} on the whole space, and its bounds at "
        f"{space.params(points[0])} allow more, which no norm bound forbids. This is a fault of kbo: please "
        "report it with this message. gap() without evaluations does not use the proof."
    )
