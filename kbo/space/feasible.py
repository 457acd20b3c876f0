"""Points that satisfy the constraints of a space and a context, uniformly at random, also where they are rare.

Where at least one of 16 uniform points satisfies them, the others are rejected. Otherwise points walk by hit-and-run
(Smith 1984) from corners of the linear constraints: each moves to a uniform point of a line through it, found by
shrinkage (Neal 2003), which needs no more of a set than whether a point is inside. Half of the lines are parallel to
differences of other points, which follow a set that is narrow in some direction (ter Braak & Vrugt 2008).
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from kbo.errors import InvalidInput
from kbo.space.constraints import in_words
from kbo.space.program import Program
from kbo.space.space import Space

_TRIED, _MORE = 1024, 9 * 1024
"""Uniform points that show how rare others are, and further ones if constraints that are functions refuse these all."""

_RARE = 1 / 16
"""Part of the uniform points below which points walk."""

_POOL, _FROM_CORNERS, _FROM_UNIFORM, _AGAIN = 512, 96, 12, 2
"""Points that walk, their moves until they are uniform, from corners or one point and from few uniform points, and the
moves of a copy of one of them."""

_FEW = 16
"""Uniform points that are enough to start from."""

_SHRUNK, _HALVED = 64, 10
"""Times that a step of a walk is shortened, and a move of a search halved, before the point stays where it is."""

_MOST_POINTS = 10_000
"""Points of a finite space that are listed."""


class Feasible:
    """The points that satisfy the constraints of a space and have some given coordinates.

    Args:
        space: The space.
        fixed: Given coordinates [P], NaN where one is free.
        known: More points [n P]; if nothing else is found, points walk from those of them that satisfy the constraints.
    """

    def __init__(self, space: Space, fixed: Tensor, known: Tensor) -> None:
        self._space, self._fixed, self._known = space, fixed, known
        self._context = tuple(None if u != u else u for u in fixed.tolist())
        self._found = _found(space, self._context)

    def draw(self, n: int, generator: torch.Generator) -> Tensor:
        """Draw n points [n P].

        Raises:
            InvalidInput: No point that satisfies the constraints was found.
        """
        share, pool, walks = self._found
        if share >= _RARE:
            kept = torch.empty(0, len(self._fixed), dtype=torch.float64)
            while len(kept) < n:
                tried = _uniform(self._fixed, int((n - len(kept)) / share) + 8, generator)
                kept = torch.cat([kept, tried[self._space.satisfies(tried)]])
            return kept[:n]
        if not len(pool):
            known = torch.where(self._fixed.isnan(), self._known, self._fixed)
            known = known[self._space.satisfies(known)]
            pool = (
                _near(self._space, self._context, tuple(known[0].tolist())) if len(known) else pool
            )
        if not len(pool):
            raise InvalidInput(
                f"no point {_place(self._space, self._context)} among thousands of random ones satisfies "
                f"{in_words(self._space.constraints)}: loosen the constraints, or give a point that satisfies them as "
                "the first one, try_first=[...]."
            )
        points = pool[torch.randint(len(pool), (n,), generator=generator)]
        for _ in range(_AGAIN * walks):
            points = _moved(self._space, self._fixed, points, pool, generator, width=4)
        return points

    def projected(self, points: Tensor, others: Tensor) -> Tensor:
        """Return ``others`` [n P], those outside moved halfway to ``points`` [n P] inside, again and again."""
        found, outside = others.clone(), torch.arange(len(others))
        for _ in range(_HALVED):
            outside = outside[~self._space.satisfies(found[outside])]
            if not len(outside):
                return found
            found[outside] = (points[outside] + found[outside]) / 2
        outside = outside[~self._space.satisfies(found[outside])]
        found[outside] = points[outside]
        return found


def _fixed(context: tuple[float | None, ...]) -> Tensor:
    return torch.tensor([torch.nan if u is None else u for u in context], dtype=torch.float64)


def _place(space: Space, context: tuple[float | None, ...]) -> str:
    """The part of a space in messages."""
    entries = zip(space.parameters.items(), context, strict=True)
    names = [repr(name) for (name, p), u in entries if u is not None and p.columns]
    return f"with {', '.join(names)} as given" if names else "of the space"


def _uniform(fixed: Tensor, n: int, generator: torch.Generator) -> Tensor:
    points = torch.rand(n, len(fixed), generator=generator, dtype=torch.float64)
    return torch.where(fixed.isnan(), points, fixed)


class _Found(NamedTuple):
    """The part of the uniform points that satisfy the constraints; if it is small, points, which walk if not all."""

    share: float
    points: Tensor
    walk: bool


@lru_cache(maxsize=8)
def _found(space: Space, context: tuple[float | None, ...]) -> _Found:
    """Search for points in a context, given as coordinates [P] or None.

    Raises:
        InvalidInput: Nothing satisfies the linear constraints, or in a finite space all of them.
    """
    fixed = _fixed(context)
    given = {name: u for name, u in zip(space.parameters, context, strict=True) if u is not None}
    place = _place(space, context)
    generator = torch.Generator().manual_seed(0)
    tried = _uniform(fixed, _TRIED, generator)
    inside = tried[space.satisfies(tried)]
    if len(inside) >= _RARE * _TRIED:
        return _Found(len(inside) / _TRIED, inside, True)
    if (listed := space.points(_MOST_POINTS)) is not None:
        here = torch.where(fixed.isnan(), listed, fixed)
        listed = listed[(space.features(listed) == space.features(here)).all(-1).cpu()]
        if not len(listed):
            raise InvalidInput(f"no point {place} satisfies {in_words(space.constraints)}.")
        return _Found(0.0, listed, False)
    rounds = _FROM_UNIFORM
    if len(inside) < _FEW and space.linear:
        program, rounds = (
            Program(space.parameters, space.conditions, space.linear, given),
            _FROM_CORNERS,
        )
        corners = torch.from_numpy(program.corners(2 * space.dimension + 2, generator))
        if not len(corners):
            raise InvalidInput(f"no point {place} satisfies {in_words(space.linear)}.")
        weights = torch.empty(_TRIED, len(corners), dtype=torch.float64).exponential_(
            generator=generator
        )
        mixed = torch.cat([corners, weights / weights.sum(-1, keepdim=True) @ corners])
        units = torch.where(fixed.isnan(), program.units(mixed.numpy()), fixed)
        units = torch.where(
            units.isnan(), torch.rand(units.shape, generator=generator, dtype=units.dtype), units
        )
        inside = torch.cat([inside, units[space.satisfies(units)]])
    elif len(inside) < _FEW:
        tried = _uniform(fixed, _MORE, generator)
        inside = torch.cat([inside, tried[space.satisfies(tried)]])
    return _Found(0.0, _walked(space, fixed, inside, rounds, generator), True)


@lru_cache(maxsize=8)
def _near(space: Space, context: tuple[float | None, ...], start: tuple[float, ...]) -> Tensor:
    """Points [n P] after a walk from one that satisfies the constraints."""
    generator = torch.Generator().manual_seed(0)
    starts = torch.tensor([start], dtype=torch.float64)
    return _walked(space, _fixed(context), starts, _FROM_CORNERS // 2, generator)


def _walked(
    space: Space, fixed: Tensor, starts: Tensor, rounds: int, generator: torch.Generator
) -> Tensor:
    """Points after a walk from starts [n P]; none without a start."""
    if not len(starts):
        return starts
    pool = starts[torch.randint(len(starts), (_POOL,), generator=generator)]
    for _ in range(rounds):
        pool = _moved(space, fixed, pool, pool, generator)
    return pool


def _moved(
    space: Space,
    fixed: Tensor,
    points: Tensor,
    pool: Tensor,
    generator: torch.Generator,
    width: float | None = None,
) -> Tensor:
    """One step of hit-and-run from points [n P], along differences of a pool [k P] or in any direction.

    All of a line in the cube is searched, or a part of it with the point in a random place, ``width`` times as long as
    a difference.
    """
    n, P = points.shape

    def rand(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    i, j = torch.randint(len(pool), (2, n), generator=generator)
    anywhere = torch.randn(n, P, generator=generator, dtype=torch.float64) * (rand(n, P) < 2 / P)
    anywhere = anywhere if width is None else anywhere * pool.std(0)
    along = torch.where(rand(n, 1) < 0.5, pool[i] - pool[j], anywhere) * fixed.isnan()
    if width is None:
        ends, still = torch.stack([-points / along, (1 - points) / along]), along == 0
        low = ends.amin(0).masked_fill(still, -1e9).amax(-1)
        high = ends.amax(0).masked_fill(still, 1e9).amin(-1)
    else:
        high = width * rand(n)
        low = high - width
    found, left = points.clone(), torch.arange(n)
    for _ in range(_SHRUNK):
        t = low[left] + (high - low)[left] * rand(len(left))
        candidates = points[left] + t.unsqueeze(-1) * along[left]
        inside = ((candidates >= 0) & (candidates <= 1)).all(-1)
        inside[inside.clone()] = space.satisfies(candidates[inside])
        found[left[inside]] = candidates[inside]
        left, t = left[~inside], t[~inside]
        if not len(left):
            break
        low[left], high[left] = torch.where(t < 0, t, low[left]), torch.where(t < 0, high[left], t)
    return found
