"""A search over numbers and choices: every point that is scored is one that the objective can be given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from kbo._base import checks
from kbo.errors import InvalidInput
from kbo.optimize.search.subspace import Subspace
from kbo.space import Space

KEPT = 8
"""Best points that a step of the local search goes on from."""

RANDOM_POINTS, _CHILDREN = 1024, 32
"""Points of a whole search: at random first, and in every round for each of those it goes on from."""

_STEPS = (0.2, 0.1, 0.03, 0.01, 0.003, 0.001)

_ROUNDS, _CLOUD, _ELITE = 15, 128, 16
"""Rounds of a local search, points of each, and the best of them, which shape the next round."""

MOST_POINTS = 10_000
"""Points of a finite space that are all evaluated."""


@dataclass(frozen=True)
class Search:
    """A search over a part of a space.

    Attributes:
        space: Maps points to features.
        region: The part of the space that is searched.
        starts: Promising points [s P], the best one first.
        number: The number of the trial, from 0.
        generator: Source of randomness.
        effort: Part of the points of a whole search that are scored.
    """

    space: Space
    region: Subspace
    starts: Tensor
    number: int
    generator: torch.Generator
    effort: float = 1.0

    def unvisited(self, visited: Tensor) -> Search:
        """Return the search over the points of a small finite space that are not among the ``visited`` ones [n P].

        The same search if the space is not small and finite, if a context or choices are given, or if no point is left.
        """
        points = None if self.region.partial else self.space.points(MOST_POINTS)
        if points is None:
            return self
        points = points[self.region.in_box(points)] if self.region.boxed else points
        seen = set(map(tuple, visited.tolist()))
        left = [point for point in points.tolist() if tuple(point) not in seen]
        return replace(self, region=self.region.among(points.new_tensor(left))) if left else self

    @torch.no_grad()
    def argmax(
        self, score: Callable[[Tensor], Tensor], row: Callable[[Tensor], int] | None = None
    ) -> Tensor:
        """Return a point [P] of the unit cube that nearly maximises ``score``; among choices, exactly.

        Random points first, then local search. Every point that is scored is one that the objective can be given, so
        integers and choices need no relaxation, and repeated steps at shrinking scales find continuous coordinates to
        about 1e-3.

        Args:
            score: Values [n] at features [n D]; InvalidInput for anything else, or NaN.
            row: The best row of features [n D], by a more expensive rule; by default that of the largest score.
        """
        features, choices, generator = self.space.features, self.region.choices, self.generator
        if choices is not None:
            return choices[
                row(features(choices)) if row else int(self._scores(score, choices).argmax())
            ]
        region = self.region
        free = region.fixed.isnan()
        low, high = region.low[free], region.high[free]
        width = high - low
        P = int(free.sum())
        random = region.draw(int(self.effort * RANDOM_POINTS), generator)
        starts = region.place(self.starts)
        points = torch.cat([random, starts[region.satisfies(starts)]])
        values = self._scores(score, points)
        for step in _STEPS:
            best = values.topk(min(KEPT, len(values))).indices
            points, values = points[best], values[best]
            parents = points.repeat_interleave(int(self.effort * _CHILDREN), 0)
            children = parents[:, free]
            # Each child moves in about two coordinates, one at least, and sometimes jumps in one of them.
            moves = torch.rand(children.shape, generator=generator, dtype=torch.float64) < 2 / P
            moves[
                torch.arange(len(children)), torch.randint(P, (len(children),), generator=generator)
            ] = True
            noise = torch.randn(children.shape, generator=generator, dtype=torch.float64)
            children = torch.where(
                moves, (children + step * noise * width).clamp(low, high), children
            )
            jumps = moves & (
                torch.rand(children.shape, generator=generator, dtype=torch.float64) < 0.1
            )
            elsewhere = low + width * torch.rand(
                children.shape, generator=generator, dtype=torch.float64
            )
            children = parents.masked_scatter(free, torch.where(jumps, elsewhere, children))
            if (
                region.constrained
            ):  # and half of them along a difference of two others, if that part is narrow
                i, j = torch.randint(len(random), (2, len(children)), generator=generator)
                along = (parents + 2 * step * (random[i] - random[j])).clamp(0, 1)
                children[::2] = along[::2]
                children = region.projected(parents, children)
            points = torch.cat([points, children])
            values = torch.cat([values, self._scores(score, children)])
        return points[row(features(points)) if row else int(values.argmax())]

    @torch.no_grad()
    def argmax_near(self, score: Callable[[Tensor], Tensor], radius: float) -> Tensor:
        """Return a point [P] that nearly maximises ``score`` in the box of half width ``radius`` around the best start.

        The cross-entropy method (Rubinstein 1999): each round is normal, with the covariance of the best steps of the
        round before, so it follows a narrow valley in any direction without a gradient.

        Args:
            score: Values [n] at features [n D].
            radius: Half width of the box.
        """
        x, generator = self.region.place(self.starts[0]), self.generator
        P, dtype = len(x), x.dtype
        low, high = (
            (x - radius).clamp_min(self.region.low),
            (x + radius).clamp_max(self.region.high),
        )
        place, projected = self.region.place, self.region.projected

        def scores(points: Tensor) -> Tensor:
            return self._scores(score, place(points))

        n, shape = int(self.effort * RANDOM_POINTS), torch.eye(P, dtype=dtype)
        if self.region.constrained:
            steps = self.region.draw(n, generator) - x
            shape = steps.mT @ steps / steps.square().mean() / n + 1e-9 * shape
            steps = steps * (radius / steps.abs().amax(-1, keepdim=True)).clamp_max(1)
            random = projected(
                x.expand(n, -1), x + steps * torch.rand(n, 1, generator=generator, dtype=dtype)
            )
        else:
            random = low + (high - low) * torch.rand(n, P, generator=generator, dtype=dtype)
        points = torch.cat([x.unsqueeze(0), random])
        values = scores(points)
        x, best = points[values.argmax()], values.max()
        root = radius / 3 * torch.linalg.cholesky(shape)
        for _ in range(_ROUNDS):
            cloud = (x + torch.randn(_CLOUD, P, generator=generator, dtype=dtype) @ root.mT).clamp(
                low, high
            )
            cloud = projected(x.expand(_CLOUD, -1), cloud)
            values = scores(cloud)
            elite = cloud[values.topk(_ELITE).indices]
            covariance = (elite - x).mT @ (elite - x) / _ELITE
            spread = covariance.diagonal().mean()
            root = torch.linalg.cholesky(covariance + (1e-3 * spread + 1e-18) * shape)
            if values.max() > best:
                x, best = elite[0], values.max()
        return self.region.place(x)

    def _scores(self, score: Callable[[Tensor], Tensor], points: Tensor) -> Tensor:
        """Return the scores [n] of points [n P] of the unit cube."""
        values: Any = score(self.space.features(points))
        values = values.cpu() if isinstance(values, Tensor) else values  # where the points are
        if (
            not isinstance(values, Tensor)
            or values.shape != points.shape[:1]
            or bool(values.isnan().any())
        ):
            shown = (
                f"shape {tuple(values.shape)}"
                if isinstance(values, Tensor)
                else checks.shown(values)
            )
            raise InvalidInput(
                f"a score must be a tensor [n] without NaN for features [n D], got {shown} for n = {len(points)}."
            )
        return values
