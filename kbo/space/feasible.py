"""Uniform random points that satisfy the constraints of a space and have given coordinates (a context).

The search takes its random candidates from here. If at least one of 16 uniform points satisfies the constraints, the
other points are rejected. Otherwise points walk by hit-and-run (Smith 1984), from corners of the linear constraints:
each moves to a uniform point of a random line through it. Shrinkage (Neal 2003) finds that point: it only asks whether
a point is inside the set. Half of the lines are parallel to differences of other points, which follow a set that is
narrow in some direction (ter Braak & Vrugt 2008).
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from kbo.errors import InvalidInput
from kbo.space.constraints import in_words
from kbo.space.parameters import Fixed
from kbo.space.program import Program
from kbo.space.space import Space

_N_UNIFORM = 1024
"""Number of uniform points for the estimate of the share of points that satisfy the constraints."""

_N_MORE = 9 * 1024
"""Number of further uniform points if functions refuse too many of the first ones."""

_RARE = 1 / 16
"""Points walk if a smaller share of the uniform points satisfies the constraints."""

_FEW = 16
"""Number of uniform points inside the constraints that suffice as starts of the walks."""

_N_WALKING = 512
"""Number of points that walk."""

_MOVES_FROM_CORNERS = 96
_MOVES_FROM_ONE_POINT = 48
_MOVES_FROM_UNIFORM = 12
"""Number of moves after which the points count as uniform, by their start."""

_MOVES_OF_A_COPY = 2
"""Number of moves of a point that is drawn from those that have walked."""

_N_SHORTER = 64
"""Number of times that the segment of a move is shortened before the point stays."""

_N_HALVED = 10
"""Number of times that a move of a search is halved before the point stays."""

_MOST_POINTS = 10_000
"""Largest number of points of a finite space that are listed instead of drawn."""


class Feasible:
    """The points that satisfy the constraints of a space and have the fixed coordinates, for random draws.

    Args:
        space: The space.
        fixed: The fixed coordinates [P], NaN where a coordinate is free.
        known: Known points [n P]. If no other start is found, points walk from the first known point that satisfies the
            constraints.
    """

    def __init__(self, space: Space, fixed: Tensor, known: Tensor) -> None:
        coordinates = tuple((i, u) for i, u in enumerate(fixed.tolist()) if u == u)
        self._space = space
        self._section = _section(space, coordinates)
        self._known = known

    def draw(self, n: int, generator: torch.Generator) -> Tensor:
        """Draw n points [n P].

        Raises:
            InvalidInput: No point that satisfies the constraints was found.
        """
        section = self._section
        if section.share:
            return self._draw_by_rejection(n, generator)
        pool = section.pool
        if not len(pool):
            pool = self._pool_from_known()
        points = pool[torch.randint(len(pool), (n,), generator=generator)]
        if not section.is_listed:
            for _ in range(_MOVES_OF_A_COPY):
                points = section.moved(points, pool, generator, width=4)
        return points

    def _draw_by_rejection(self, n: int, generator: torch.Generator) -> Tensor:
        """Draw n points [n P]: uniform points, of which those that violate a constraint are rejected."""
        section = self._section
        accepted = torch.empty(0, self._space.dimension, dtype=torch.float64)
        while len(accepted) < n:
            n_drawn = int((n - len(accepted)) / section.share) + 8
            accepted = torch.cat([accepted, section.uniform(n_drawn, generator)])
        return accepted[:n]

    def _pool_from_known(self) -> Tensor:
        """Return points [n P] that have walked from the first known point that satisfies the constraints.

        Raises:
            InvalidInput: No known point satisfies them.
        """
        starts = self._section.place(self._known)
        starts = starts[self._space.satisfies(starts)]
        if not len(starts):
            raise InvalidInput(
                f"no point {self._section} among thousands of random ones satisfies "
                f"{in_words(self._space.constraints)}: loosen the constraints, or give a point that satisfies them as "
                "the first one, try_first=[...]."
            )
        return _walked_from(self._section, tuple(starts[0].tolist()))

    def projected(self, points: Tensor, others: Tensor) -> Tensor:
        """Return points [n P] near ``others`` that satisfy the constraints.

        A point that violates a constraint is moved halfway to its partner in ``points``, at most ``_N_HALVED`` times.
        If that does not suffice, its partner takes its place.

        Args:
            points: Points [n P] that satisfy the constraints.
            others: Points [n P], each with its partner in the same row of ``points``.
        """
        projected = others.clone()
        outside = torch.arange(len(others))
        for _ in range(_N_HALVED):
            outside = outside[~self._space.satisfies(projected[outside])]
            if not len(outside):
                return projected
            projected[outside] = (points[outside] + projected[outside]) / 2
        outside = outside[~self._space.satisfies(projected[outside])]
        projected[outside] = points[outside]
        return projected


class _Section:
    """The points of a space that have the fixed coordinates, and the way in which they are drawn.

    Args:
        space: The space.
        coordinates: Position and value of each fixed coordinate.

    Attributes:
        share: Share of the uniform points that satisfy the constraints; 0 if they are rare.
        pool: Points [n P] that satisfy the constraints, to draw from if they are rare.
        is_listed: Whether the pool is the list of all such points; otherwise its points have walked.

    Raises:
        InvalidInput: No point satisfies the linear constraints, or in a finite space all constraints.
    """

    def __init__(self, space: Space, coordinates: tuple[tuple[int, float], ...]) -> None:
        self._space = space
        self._coordinates = coordinates
        self._fixed = torch.full((space.dimension,), torch.nan, dtype=torch.float64)
        for i, u in coordinates:
            self._fixed[i] = u
        self._is_free = self._fixed.isnan()
        self.share = 0.0
        self.is_listed = False
        generator = torch.Generator().manual_seed(0)
        self.pool: Tensor = self.uniform(_N_UNIFORM, generator)
        if len(self.pool) >= _RARE * _N_UNIFORM:
            self.share = len(self.pool) / _N_UNIFORM
            return
        listed = space.points(_MOST_POINTS)
        if listed is not None:
            self.pool = self._agreeing(listed)
            self.is_listed = True
            return
        n_moves = _MOVES_FROM_UNIFORM
        if len(self.pool) < _FEW and space.linear:
            n_moves = _MOVES_FROM_CORNERS
            self.pool = torch.cat([self.pool, self._between_corners(generator)])
        elif len(self.pool) < _FEW:
            self.pool = torch.cat([self.pool, self.uniform(_N_MORE, generator)])
        self.pool = self.walked(self.pool, n_moves, generator)

    def __str__(self) -> str:
        names = list(self._space.parameters)
        fixed = [
            repr(names[i]) for i, _ in self._coordinates if names[i] not in self._space.constants
        ]
        if fixed:
            return f"with {', '.join(fixed)} as given"
        return "of the space"

    def place(self, points: Tensor) -> Tensor:
        """Return points [n P] with the fixed coordinates put in."""
        return torch.where(self._is_free, points, self._fixed)

    def uniform(self, n: int, generator: torch.Generator) -> Tensor:
        """Return the points [k P] among n uniform ones that satisfy the constraints."""
        points = self.place(_uniform(n, self._space.dimension, generator))
        return points[self._space.satisfies(points)]

    def _agreeing(self, listed: Tensor) -> Tensor:
        """Return the points [k P] with the fixed coordinates among all points [n P] of a finite space."""
        features = self._space.features(listed)
        agrees = (features == self._space.features(self.place(listed))).all(-1).cpu()
        if not bool(agrees.any()):
            raise InvalidInput(f"no point {self} satisfies {in_words(self._space.constraints)}.")
        return listed[agrees]

    def _between_corners(self, generator: torch.Generator) -> Tensor:
        """Return points [k P] that satisfy all constraints: corners of the linear ones and mixtures of the corners."""
        space = self._space
        parameters = dict(space.parameters)
        for i, u in self._coordinates:
            name = list(parameters)[i]
            parameters[name] = Fixed(parameters[name].value(u))
        program = Program(parameters, space.conditions, space.linear)
        corners = torch.from_numpy(program.corners(2 * space.dimension + 2, generator))
        if not len(corners):
            raise InvalidInput(f"no point {self} satisfies {in_words(space.linear)}.")
        weights = torch.empty(_N_UNIFORM, len(corners), dtype=torch.float64)
        weights.exponential_(generator=generator)
        mixtures = weights / weights.sum(-1, keepdim=True) @ corners
        points = self.place(program.units(torch.cat([corners, mixtures]).numpy()))
        anywhere = _uniform(*points.shape, generator)
        points = torch.where(points.isnan(), anywhere, points)
        return points[space.satisfies(points)]

    def walked(self, starts: Tensor, n_moves: int, generator: torch.Generator) -> Tensor:
        """Return points [n P] that have walked from starts [k P]; no points if there are no starts."""
        if not len(starts):
            return starts
        points = starts[torch.randint(len(starts), (_N_WALKING,), generator=generator)]
        for _ in range(n_moves):
            points = self.moved(points, points, generator)
        return points

    def moved(
        self, points: Tensor, pool: Tensor, generator: torch.Generator, width: float | None = None
    ) -> Tensor:
        """Return points [n P] after one move of hit-and-run.

        A candidate is drawn uniformly from a segment of a line through the point. If it violates a constraint, the
        segment ends there from now on, and the next candidate is drawn from the shorter segment (shrinkage).

        Args:
            points: Points [n P] that satisfy the constraints.
            pool: Points [k P] whose differences are directions.
            generator: Source of the random numbers.
            width: Length of the segment, in lengths of the direction; the point is at a random place of it. By default
                the segment is the whole line in the cube.
        """
        n = len(points)
        if width is None:
            direction = self._directions(n, pool, 1.0, generator)
            is_still = direction == 0
            ends = torch.stack([-points / direction, (1 - points) / direction])
            low = ends.amin(0).masked_fill(is_still, -1e9).amax(-1)
            high = ends.amax(0).masked_fill(is_still, 1e9).amin(-1)
        else:
            direction = self._directions(n, pool, pool.std(0), generator)
            high = width * _uniform(n, 1, generator).squeeze(-1)
            low = high - width

        moved = points.clone()
        left = torch.arange(n)  # the rows that have not moved yet
        for _ in range(_N_SHORTER):
            share = _uniform(len(left), 1, generator).squeeze(-1)
            step = low[left] + (high - low)[left] * share
            candidates = points[left] + step.unsqueeze(-1) * direction[left]
            inside = ((candidates >= 0) & (candidates <= 1)).all(-1)
            inside[inside.clone()] = self._space.satisfies(candidates[inside])
            moved[left[inside]] = candidates[inside]
            left = left[~inside]
            step = step[~inside]
            if not len(left):
                break
            low[left] = torch.where(step < 0, step, low[left])
            high[left] = torch.where(step < 0, high[left], step)
        return moved

    def _directions(
        self, n: int, pool: Tensor, scale: Tensor | float, generator: torch.Generator
    ) -> Tensor:
        """Return n directions [n P], zero in the fixed coordinates.

        Half of them are differences of points of the pool [k P]. The others are normal numbers, times the scale, in two
        coordinates on average.
        """
        P = self._space.dimension
        first, second = torch.randint(len(pool), (2, n), generator=generator)
        differences = pool[first] - pool[second]
        anywhere = torch.randn(n, P, generator=generator, dtype=torch.float64)
        anywhere *= scale * (_uniform(n, P, generator) < 2 / P)
        is_difference = _uniform(n, 1, generator) < 0.5
        return torch.where(is_difference, differences, anywhere) * self._is_free


def _uniform(n: int, P: int, generator: torch.Generator) -> Tensor:
    """Return uniform numbers [n P] from 0 to 1."""
    return torch.rand(n, P, generator=generator, dtype=torch.float64)


_section = lru_cache(maxsize=8)(_Section)


@lru_cache(maxsize=8)
def _walked_from(section: _Section, start: tuple[float, ...]) -> Tensor:
    """Return points [n P] that have walked from one point [P] that satisfies the constraints."""
    generator = torch.Generator().manual_seed(0)
    starts = torch.tensor([start], dtype=torch.float64)
    return section.walked(starts, _MOVES_FROM_ONE_POINT, generator)
