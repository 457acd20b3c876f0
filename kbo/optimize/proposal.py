"""The next point: from a design that fills the space, or the argmax of an acquisition over numbers and choices."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.quasirandom import SobolEngine

from kbo import checks
from kbo.confidence import Confidence, Limit
from kbo.confidence.base import decided
from kbo.errors import InvalidInput
from kbo.linalg import safe_sqrt
from kbo.optimize.context import Restriction
from kbo.regression import Posterior
from kbo.space import Space

KEPT = 8
"""Best points that a step of the local search goes on from."""

_RANDOM_POINTS, _CHILDREN = 1024, 32
"""Points of a whole search: at random first, and in every round for each of those it goes on from."""

_BELOW = -1e300
"""Score of points that break a limit for certain: below that of any other, and in the order of their violation."""

_STEPS = (0.2, 0.1, 0.03, 0.01, 0.003, 0.001)

_ROUNDS, _CLOUD, _ELITE = 15, 128, 16
"""Rounds of a local search, points of each, and the best of them, which shape the next round."""

_LEAST_IMPROVEMENT = 0.01
"""Standard deviations of the targets; smaller improvements, as near a point that is known, do not count."""

_LEAST_STD = 1e-9
"""Standard deviation of a quantity that is known."""

MOST_POINTS = 10_000
"""Points of a finite space that are all evaluated."""


class SpaceGap(NamedTuple):
    """The optimality gap over a space.

    Attributes:
        value: The optimum is at most this much better than the recommendation, if the bounds hold.
        exact: Whether every point of the space was evaluated; False after a search from many starts.
        scope: The points that were compared, in words.
        final: Whether these points stay the same: in the safe setting others may become certain to be safe.
    """

    value: float
    exact: bool
    scope: str
    final: bool = True


@dataclass(frozen=True)
class Search:
    """A search over a part of a space.

    Attributes:
        space: Maps points to features.
        restriction: The part of the space that is searched.
        starts: Promising points [s P], the best one first.
        number: The number of the trial.
        generator: Source of randomness.
        effort: Part of the points of a whole search that are scored.
    """

    space: Space
    restriction: Restriction
    starts: Tensor
    number: int
    generator: torch.Generator
    effort: float = 1.0

    def unvisited(self, visited: Tensor) -> Search:
        """Return the search over the points of a small finite space that are not among the ``visited`` ones [n P].

        The same search if the space is not small and finite, if a context or choices are given, or if no point is left.
        """
        points = None if self.restriction.partial else self.space.points(MOST_POINTS)
        if points is None:
            return self
        seen = set(map(tuple, visited.tolist()))
        left = [point for point in points.tolist() if tuple(point) not in seen]
        return replace(self, restriction=self.restriction.among(points.new_tensor(left))) if left else self

    @torch.no_grad()
    def argmax(self, score: Callable[[Tensor], Tensor], row: Callable[[Tensor], int] | None = None) -> Tensor:
        """Return a point [P] of the unit cube that nearly maximises ``score``; among choices, exactly.

        Random points first, then local search. Every point that is scored is one that the objective can be given, so
        integers and choices need no relaxation, and repeated steps at shrinking scales find continuous coordinates to
        about 1e-3.

        Args:
            score: Values [n] at features [n D]; InvalidInput for anything else, or NaN.
            row: The best row of features [n D], by a more expensive rule; by default that of the largest score.
        """
        features, choices, generator = self.space.features, self.restriction.choices, self.generator
        if choices is not None:
            return choices[row(features(choices)) if row else int(self._scores(score, choices).argmax())]
        restriction = self.restriction
        free = restriction.fixed.isnan()
        P = int(free.sum())
        random = restriction.draw(int(self.effort * _RANDOM_POINTS), generator)
        starts = restriction.place(self.starts)
        points = torch.cat([random, starts[restriction.satisfies(starts)]])
        values = self._scores(score, points)
        for step in _STEPS:
            best = values.topk(min(KEPT, len(values))).indices
            points, values = points[best], values[best]
            parents = points.repeat_interleave(int(self.effort * _CHILDREN), 0)
            children = parents[:, free]
            # Each child moves in about two coordinates, one at least, and sometimes jumps in one of them.
            moves = torch.rand(children.shape, generator=generator, dtype=torch.float64) < 2 / P
            moves[torch.arange(len(children)), torch.randint(P, (len(children),), generator=generator)] = True
            noise = torch.randn(children.shape, generator=generator, dtype=torch.float64)
            children = torch.where(moves, (children + step * noise).clamp(0, 1), children)
            jumps = moves & (torch.rand(children.shape, generator=generator, dtype=torch.float64) < 0.1)
            elsewhere = torch.rand(children.shape, generator=generator, dtype=torch.float64)
            children = parents.masked_scatter(free, torch.where(jumps, elsewhere, children))
            if restriction.constrained:  # and half of them along a difference of two others, if that part is narrow
                i, j = torch.randint(len(random), (2, len(children)), generator=generator)
                along = (parents + 2 * step * (random[i] - random[j])).clamp(0, 1)
                children[::2] = along[::2]
                children = restriction.inward(parents, children)
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
        x, generator = self.starts[0], self.generator
        P, dtype = len(x), x.dtype
        low, high = (x - radius).clamp_min(0), (x + radius).clamp_max(1)
        place, inward = self.restriction.place, self.restriction.inward

        def scores(points: Tensor) -> Tensor:
            return self._scores(score, place(points))

        n, shape = int(self.effort * _RANDOM_POINTS), torch.eye(P, dtype=dtype)
        if self.restriction.constrained:
            steps = self.restriction.draw(n, generator) - x
            shape = steps.mT @ steps / steps.square().mean() / n + 1e-9 * shape
            steps = steps * (radius / steps.abs().amax(-1, keepdim=True)).clamp_max(1)
            random = inward(x.expand(n, -1), x + steps * torch.rand(n, 1, generator=generator, dtype=dtype))
        else:
            random = low + (high - low) * torch.rand(n, P, generator=generator, dtype=dtype)
        points = torch.cat([x.unsqueeze(0), random])
        values = scores(points)
        x, best = points[values.argmax()], values.max()
        root = radius / 3 * torch.linalg.cholesky(shape)
        for _ in range(_ROUNDS):
            cloud = (x + torch.randn(_CLOUD, P, generator=generator, dtype=dtype) @ root.mT).clamp(low, high)
            cloud = inward(x.expand(_CLOUD, -1), cloud)
            values = scores(cloud)
            elite = cloud[values.topk(_ELITE).indices]
            covariance = (elite - x).mT @ (elite - x) / _ELITE
            spread = covariance.diagonal().mean()
            root = torch.linalg.cholesky(covariance + (1e-3 * spread + 1e-18) * shape)
            if values.max() > best:
                x, best = elite[0], values.max()
        return self.restriction.place(x)

    def _scores(self, score: Callable[[Tensor], Tensor], points: Tensor) -> Tensor:
        """Return the scores [n] of points [n P] of the unit cube."""
        values: Any = score(self.space.features(points))
        values = values.cpu() if isinstance(values, Tensor) else values  # where the points are
        if not isinstance(values, Tensor) or values.shape != points.shape[:1] or bool(values.isnan().any()):
            shown = f"shape {tuple(values.shape)}" if isinstance(values, Tensor) else checks.shown(values)
            raise InvalidInput(
                f"a score must be a tensor [n] without NaN for features [n D], got {shown} for n = {len(points)}."
            )
        return values


def filling(
    restriction: Restriction, number: int, seed: int, generator: torch.Generator, *, centre_first: bool
) -> Tensor:
    """Return point [P] ``number`` of a space-filling design with the context in place; a random one of the choices.

    With ``centre_first`` number 0 is the centre, which is nearest to all others; in many dimensions the rest is close
    to the boundary.
    """
    if restriction.choices is not None:
        return restriction.sample(generator)
    P = len(restriction.fixed)
    if restriction.constrained:
        return _filling_part(restriction, number - centre_first, seed, generator)
    if centre_first and number == 0:
        return restriction.place(torch.full((P,), 0.5, dtype=torch.float64))
    sobol = SobolEngine(P, scramble=True, seed=seed)
    return restriction.place(sobol.fast_forward(number - centre_first).draw(1, dtype=torch.float64)[0])


def _filling_part(restriction: Restriction, number: int, seed: int, generator: torch.Generator) -> Tensor:
    """Return a point [P] as ``filling`` does, of those that satisfy constraints; -1 is the number of the centre."""
    if number < 0:
        points = restriction.draw(_RANDOM_POINTS, generator)
        return points[(points - points.mean(0)).norm(dim=-1).argmin()]
    sobol = SobolEngine(len(restriction.fixed), scramble=True, seed=seed).draw(_RANDOM_POINTS, dtype=torch.float64)
    points = restriction.place(sobol)
    points = points[restriction.satisfies(points)]
    return points[number] if number < len(points) else restriction.sample(generator)


def argmax_upper(confidence: Confidence, posterior: Posterior, search: Search, limits: Sequence[Limit] = ()) -> Tensor:
    """Return a point [P] of the unit cube whose upper bound is nearly the largest; among choices, exactly.

    With ``limits``, of the points that possibly keep all of them; if there is none, the one that is nearest to it.
    """
    if limits:

        def score(features: Tensor) -> Tensor:
            return feasible_first(_quick_upper(confidence, posterior, features), least_possible(limits, features))

        def row(features: Tensor) -> int:
            upper = confidence.upper(posterior, features)
            return int(feasible_first(upper, least_possible(limits, features)).argmax())

        return search.argmax(score, row)
    return search.argmax(
        lambda features: _quick_upper(confidence, posterior, features),
        lambda features: confidence.argmax_upper(posterior, features)[0],
    )


def _quick_upper(confidence: Confidence, posterior: Posterior, features: Tensor) -> Tensor:
    """Return a score [n] of features [n D] to search with: an upper bound, or, while none is finite, the deviation."""
    if confidence.finite_on(posterior):
        return confidence.quick_interval(posterior, features)[1]
    return safe_sqrt(posterior.predict(features)[1])


def feasible_first(score: Tensor, slack: Tensor) -> Tensor:
    """Return the scores [n], and where the slack [n] is negative scores below all others, in the order of the slack."""
    decided(score, "score")
    return torch.where(slack >= 0, score, _BELOW * (1 - slack.clamp_max(0)))


def least_possible(limits: Sequence[Limit], X: Tensor) -> Tensor:
    """Return the least possible slack [...] at features X [... D], each in the ``unit`` of its quantity."""
    return _least([limit.possible(X) for limit in limits], limits, X)


def least_certain(limits: Sequence[Limit], X: Tensor) -> Tensor:
    """Return the least certain slack [...] at features X [... D], in the same units."""
    return _least([limit.certain(X) for limit in limits], limits, X)


def _least(slacks: Sequence[Tensor], limits: Sequence[Limit], X: Tensor) -> Tensor:
    scaled = [slack / unit(limit.state, X) for slack, limit in zip(slacks, limits, strict=True)]
    return decided(torch.stack(scaled).amin(0), "slack of a limit")


def unit(state: Posterior, X: Tensor) -> Tensor:
    """Return the unit [] in which slacks of a quantity are compared: the prior standard deviation, the largest found.

    That of single points would not do: it is 0 where the kernel knows the value. 1 if it is 0 everywhere.

    Args:
        state: The posterior of the quantity.
        X: Features [... D], of which the number D is used.
    """
    largest = state.prior_variance(_probes(X.shape[-1]).to(X)).amax().sqrt()
    return largest.masked_fill(largest == 0, 1.0)


@cache
def _probes(columns: int) -> Tensor:
    """Return some points [16 columns] of the unit cube."""
    return torch.rand(16, columns, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def argmax_probable(confidence: Confidence, posterior: Posterior, search: Search, limits: Sequence[Limit]) -> Tensor:
    """Return a point [P] with nearly the largest upper bound plus log-probability that all lower limits are kept.

    The unit of the targets is the prior standard deviation, and one of it weighs as much as a factor e in probability;
    certain constraints change nothing. While all starts are more likely to break a limit than not, the probability
    alone counts.
    """

    def probability(features: Tensor) -> Tensor:
        return log_probability(limits, features)

    if bool((probability(search.space.features(search.starts)) < math.log(0.5)).all()):
        return search.argmax(probability)
    return search.argmax(lambda features: _quick_upper(confidence, posterior, features) + probability(features))


def log_probability(limits: Sequence[Limit], X: Tensor) -> Tensor:
    """Return the logarithm of the probability [...] that all lower limits are kept at X [... d], by the posteriors."""
    total = X.new_zeros(X.shape[:-1])
    for limit in limits:
        mean, variance = limit.state.predict(X)
        assert limit.lower is not None
        total = total + torch.special.log_ndtr((mean - limit.lower) / variance.sqrt().clamp_min(_LEAST_STD))
    return total


def argmax_lower(confidence: Confidence, posterior: Posterior, search: Search, limits: Sequence[Limit] = ()) -> Tensor:
    """Return a point [P] of the unit cube whose lower bound is nearly the largest; among choices, exactly.

    With ``limits``, of the points that are certain to keep all of them; if there is none, the one nearest to that.
    """

    def score(features: Tensor) -> Tensor:
        return feasible_first(confidence.lower(posterior, features), least_certain(limits, features))

    if limits:
        return search.argmax(score)

    def row(features: Tensor) -> int:
        return confidence.argmax_lower(posterior, features)[0]

    listed = search.restriction.choices is not None
    return search.argmax(lambda features: confidence.lower(posterior, features), row if listed else None)


@torch.no_grad()
def argmax_improvement(posterior: Posterior, search: Search) -> Tensor:
    """Return a point [P] of the unit cube with nearly the largest expected improvement on the mean of the best start.

    Its logarithm is maximised (Ament et al. 2023), for which points with next to no improvement differ too.
    """
    best = posterior.predict(search.space.features(search.starts[:1]))[0] + _LEAST_IMPROVEMENT

    def score(features: Tensor) -> Tensor:
        mean, variance = posterior.predict(features)
        std = variance.sqrt().clamp_min(_LEAST_STD)
        z = (mean - best) / std
        above = 1 + z * math.sqrt(math.pi / 2) * torch.special.erfcx(-z / math.sqrt(2))  # over the density at z
        return (
            torch.where(z < 5, above.clamp_min(1e-30).log() - z.square() / 2, (math.sqrt(2 * math.pi) * z).log())
            + std.log()
        )

    return search.argmax(score)


@torch.no_grad()
def argmax_draw(confidence: Confidence, posterior: Posterior, search: Search) -> Tensor:
    """Return a point [P] of the unit cube at which a draw as wide as the confidence is nearly the largest."""
    starts = search.space.features(search.starts)
    path = posterior.at(confidence.ridge(posterior)).draw_function(starts, search.generator)
    return search.argmax(lambda features: confidence.inflated(posterior, features, path(features)))


def largest_upper(
    confidence: Confidence, posterior: Posterior, search: Search, limits: Sequence[Limit] = ()
) -> tuple[Tensor, bool]:
    """Return the largest upper bound [] of the space, and whether every point was evaluated, not only a search made.

    With ``limits`` that of the points which possibly keep them.
    """
    points = search.space.points(MOST_POINTS)
    if points is not None:
        features = search.space.features(points)
        if limits:
            features = features[least_possible(limits, features) >= 0]
        largest = confidence.argmax_upper(posterior, features)[1] if len(features) else -math.inf
        return torch.tensor(largest, dtype=torch.float64), True
    point = argmax_upper(confidence, posterior, search, limits)
    return confidence.upper(posterior, search.space.features(point.unsqueeze(0)))[0], False
