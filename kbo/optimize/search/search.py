"""``Search``: what is known before a trial, and the maximisation of a score over the space."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from kbo._base import checks
from kbo.confidence import Confidence, Limit
from kbo.errors import InvalidInput
from kbo.optimize.search.subspace import Subspace
from kbo.optimize.surrogates.surrogate import Bound, Surrogate
from kbo.space import Params, Space

Score = Callable[[Tensor], Tensor]
"""Returns values [n] at features [n D], larger ones better."""

N_BEST = 8
"""Number of the best points from which a round of the local search starts."""

N_RANDOM = 1024
"""Number of random points with which a search over the whole space begins."""

MOST_POINTS = 10_000
"""Largest number of points of a finite space whose points are all scored."""

_N_CHILDREN = 32
"""Number of points near each of the best ones in every round of the local search."""

_STEPS = (0.2, 0.1, 0.03, 0.01, 0.003, 0.001)
"""Standard deviation of the steps in each round, in widths of the cube."""

_JUMP_PROBABILITY = 0.1
"""Probability with which a coordinate that moves is drawn from its whole range."""

_N_ROUNDS = 15
"""Number of rounds of a search in a box, by the cross-entropy method."""

_N_CLOUD = 128
"""Number of points of each such round."""

_N_ELITE = 16
"""Number of the best points of a round, which give the covariance of the next round."""


@dataclass(frozen=True, eq=False)
class SearchedFront:
    """The front of several objectives: the trials within all limits that no other dominates.

    Attributes:
        units: Points [f P] of the trials in the unit cube.
        targets: Posterior means [f m] of the objectives at the trials, larger ones better.
        reference: The targets [m] above which a point counts in the hypervolume.
        scale: The extent [m] of the front above the reference, at least 2.
    """

    units: Tensor
    targets: Tensor
    reference: Tensor
    scale: Tensor


@dataclass(frozen=True, eq=False)
class Search:
    """The search for the parameters of one trial: strategies get it, and maximise scores with it.

    Attributes:
        space: The search space, which maps points to features.
        subspace: The part of the space that is searched.
        starts: The points [s P] of the best trials, the best one first.
        number: The number of the trial, from 0.
        generator: Source of randomness of the trial.
        effort: Factor of the usual number of scored points.
        seed: The seed of the run.
        tried: The points [n P] of all trials so far, and of those that are being evaluated.
        avoided: The features [n D] of points that are being evaluated. They are proposed again only if there are no
            other points.
        failing: Options of choices that have only failed, each with the name of its choice. Empty once there is a
            surrogate, which accounts for failures.
        spacing: Points up to this distance from an avoided one are avoided as well. The distance is the largest
            difference of a feature, as a share of its range.
        surrogate: The surrogate of the objective; None while there are too few trials.
        bound: The confidence whose upper bound is the acquisition function, with its posterior. In it pending trials
            are observed at the mean, and failed ones at the worst value. None while there is no surrogate.
        others: The surrogates of the other objectives, if there are several.
        bounds: Such bounds of all objectives, in their order.
        front: The front of several objectives so far; None with one objective, and while there is no front.
        limits: The limits on measured quantities, with such bounds; those without a surrogate are left out.
        recommend: Returns the parameters of the recommended trial; None if there is none.
    """

    space: Space
    subspace: Subspace
    starts: Tensor
    number: int
    generator: torch.Generator
    effort: float = 1.0
    seed: int = 0
    tried: Tensor = field(default_factory=lambda: torch.empty(0))
    avoided: Tensor = field(default_factory=lambda: torch.empty(0))
    failing: Sequence[tuple[str, Any]] = ()
    spacing: float = 0.0
    surrogate: Surrogate | None = None
    bound: Bound | None = None
    others: Sequence[Surrogate] = ()
    bounds: Sequence[Bound] = ()
    front: SearchedFront | None = None
    limits: Sequence[Limit] = ()
    recommend: Callable[[], Params | None] = lambda: None

    @property
    def best(self) -> Params | None:
        """The parameters of the recommended trial; None without one, and if they are outside the subspace."""
        params = self.recommend()
        if params is None or not self.subspace.accepts(params):
            return None
        return params

    @property
    def confidence(self) -> Confidence | None:
        """The confidence of the objective whose upper bound the trial maximises; None while there is no surrogate."""
        if self.bound is None:
            return None
        return self.bound.confidence

    @property
    def is_noiseless(self) -> bool:
        """Whether the values of all objectives are known to have no noise."""
        if self.surrogate is None or not self.surrogate.noiseless:
            return False
        return all(other.noiseless for other in self.others)

    def params(self, point: Tensor) -> Params:
        """Return the parameters at a point [P] of the unit cube."""
        return self.subspace.params(point)

    def random(self) -> Params:
        """Draw parameters at random from the subspace."""
        return self.params(self.subspace.sample(self.generator))

    def untried(self) -> Search:
        """Return the search over the untried points of a small finite space.

        It is the same search if the space is not small and finite, if a context or choices are given, or if no point is
        left.
        """
        if self.subspace.partial:
            return self
        points = self.space.points(MOST_POINTS)
        if points is None:
            return self
        if self.subspace.boxed:
            points = points[self.subspace.in_box(points)]
        tried = set(map(tuple, self.tried.tolist()))
        untried = [point for point in points.tolist() if tuple(point) not in tried]
        if not untried:
            return self
        return replace(self, subspace=self.subspace.among(points.new_tensor(untried)))

    def argmax(self, score: Score) -> Params:
        """Return parameters that nearly maximise a score; see ``argmax_point``."""
        return self.params(self.argmax_point(score))

    @torch.no_grad()
    def argmax_point(self, score: Score, best_row: Callable[[Tensor], int] | None = None) -> Tensor:
        """Return a point [P] of the unit cube that nearly maximises a score; among choices, exactly.

        Random points are scored first; then a local search improves the best of them by steps at shrinking scales,
        which finds continuous coordinates to about 1e-3. Every scored point is one that the objective can be given, so
        integers and choices need no relaxation.

        Args:
            score: Returns the scores [n] of features [n D].
            best_row: Chooses the final row of features [n D] by a more expensive rule; by default the largest score
                decides.

        Raises:
            InvalidInput: The score is no tensor [n], or has a NaN.
        """
        if self.subspace.choices is not None:
            return self._argmax_choice(self.subspace.choices, score, best_row)
        random = self.subspace.draw(int(self.effort * N_RANDOM), self.generator)
        starts = self.subspace.moved_inside(self.starts)
        starts = starts[self.space.satisfies(starts)]
        points = torch.cat([random, starts])
        scores = self._scores(score, points)
        for step in _STEPS:
            best = scores.topk(min(N_BEST, len(scores))).indices
            points = points[best]
            scores = scores[best]
            children = self._children(points, random, step)
            points = torch.cat([points, children])
            scores = torch.cat([scores, self._scores(score, children)])
        is_avoided = self._is_avoided(self.space.features(points))
        if is_avoided.all():
            return self._avoiding_less().argmax_point(score, best_row)
        if best_row is not None:
            points = points[~is_avoided]
            return points[best_row(self.space.features(points))]
        return points[int(scores.argmax())]

    def _argmax_choice(
        self, choices: Tensor, score: Score, best_row: Callable[[Tensor], int] | None
    ) -> Tensor:
        """Return the best of the points [A P] that are not avoided; other arguments as for ``argmax_point``."""
        is_avoided = self._is_avoided(self.space.features(choices))
        if is_avoided.all():
            return self._avoiding_less().argmax_point(score, best_row)
        choices = choices[~is_avoided]
        if best_row is not None:
            return choices[best_row(self.space.features(choices))]
        return choices[int(self._scores(score, choices).argmax())]

    def _children(self, points: Tensor, random: Tensor, step: float) -> Tensor:
        """Draw points [n P] near the points [b P], for one round of the local search.

        Each child moves in about two coordinates, at least in one; in some of them it jumps to a random value. Under
        constraints on parameters half of the children move along the difference of two ``random`` points, since the
        allowed part of the space may be narrow.

        Args:
            points: The points from which the children move.
            random: Random points [m P] that satisfy the constraints.
            step: The standard deviation of a step, in widths of the box.
        """
        generator = self.generator
        dtype = points.dtype
        free = self.subspace.fixed.isnan()
        n_free = int(free.sum())
        low = self.subspace.low[free]
        high = self.subspace.high[free]
        width = high - low
        parents = points.repeat_interleave(int(self.effort * _N_CHILDREN), 0)
        origin = parents[:, free]
        n = len(origin)
        shape = origin.shape
        moves = torch.rand(shape, generator=generator, dtype=dtype) < 2 / n_free
        always = torch.randint(n_free, (n,), generator=generator)
        moves[torch.arange(n), always] = True
        steps = step * torch.randn(shape, generator=generator, dtype=dtype) * width
        moved = torch.where(moves, (origin + steps).clamp(low, high), origin)
        jumps = moves & (torch.rand(shape, generator=generator, dtype=dtype) < _JUMP_PROBABILITY)
        anywhere = low + width * torch.rand(shape, generator=generator, dtype=dtype)
        children = parents.masked_scatter(free, torch.where(jumps, anywhere, moved))
        if self.subspace.constrained:
            first, second = torch.randint(len(random), (2, n), generator=generator)
            along = (parents + 2 * step * (random[first] - random[second])).clamp(0, 1)
            children[::2] = along[::2]
            children = self.subspace.projected(parents, children)
        return children

    @torch.no_grad()
    def argmax_point_near(self, score: Score, radius: float) -> Tensor:
        """Return a point [P] that nearly maximises a score in the box of half width ``radius`` around the best trial.

        By the cross-entropy method (Rubinstein 1999): each round draws normal steps with the covariance of the best
        steps of the round before. So it follows a narrow valley in any direction without a gradient.
        """
        subspace = self.subspace
        generator = self.generator
        centre = subspace.moved_inside(self.starts[0])
        P = len(centre)
        low = (centre - radius).clamp_min(subspace.low)
        high = (centre + radius).clamp_max(subspace.high)

        def scores(points: Tensor) -> Tensor:
            return self._scores(score, subspace.moved_inside(points))

        random, shape = self._in_box(centre, low, high, radius)
        points = torch.cat([centre.unsqueeze(0), random])
        values = scores(points)
        best = points[values.argmax()]
        largest = values.max()
        root = radius / 3 * torch.linalg.cholesky(shape)
        for _ in range(_N_ROUNDS):
            steps = torch.randn(_N_CLOUD, P, generator=generator, dtype=centre.dtype) @ root.mT
            cloud = (best + steps).clamp(low, high)
            cloud = subspace.projected(best.expand(_N_CLOUD, -1), cloud)
            values = scores(cloud)
            elite = cloud[values.topk(_N_ELITE).indices]
            covariance = (elite - best).mT @ (elite - best) / _N_ELITE
            variance = covariance.diagonal().mean()
            root = torch.linalg.cholesky(covariance + (1e-3 * variance + 1e-18) * shape)
            if values.max() > largest:
                best = elite[0]
                largest = values.max()
        return subspace.moved_inside(best)

    def _in_box(
        self, centre: Tensor, low: Tensor, high: Tensor, radius: float
    ) -> tuple[Tensor, Tensor]:
        """Draw points [n P] of a box, and return the covariance [P P] of steps in it, up to a factor.

        It is the identity; under constraints on parameters, the second moment of the allowed steps.
        """
        n = int(self.effort * N_RANDOM)
        generator = self.generator
        dtype = centre.dtype
        identity = torch.eye(len(centre), dtype=dtype)
        if not self.subspace.constrained:
            uniform = torch.rand(n, len(centre), generator=generator, dtype=dtype)
            return low + (high - low) * uniform, identity
        steps = self.subspace.draw(n, generator) - centre
        shape = steps.mT @ steps / steps.square().mean() / n + 1e-9 * identity
        steps = steps * (radius / steps.abs().amax(-1, keepdim=True)).clamp_max(1)
        fractions = torch.rand(n, 1, generator=generator, dtype=dtype)
        points = self.subspace.projected(centre.expand(n, -1), centre + steps * fractions)
        return points, shape

    def is_free(self, point: Tensor) -> bool:
        """Return whether a point [P] is neither avoided nor next to an avoided one."""
        return not self._is_avoided(self.space.features(point.unsqueeze(0))).any()

    def _is_avoided(self, features: Tensor) -> Tensor:
        """Return whether points with features [n D] are avoided, or next to an avoided one, [n]."""
        is_avoided = torch.zeros(len(features), dtype=torch.bool)
        for running in self.avoided:
            is_avoided |= ((features - running).abs().amax(-1) <= self.spacing).cpu()
        return is_avoided

    def _avoiding_less(self) -> Search:
        """Return the search without spacing around avoided points; if there is no spacing, without avoided points."""
        if self.spacing:
            return replace(self, spacing=0.0)
        return replace(self, avoided=self.avoided[:0])

    def _scores(self, score: Score, points: Tensor) -> Tensor:
        """Return the scores [n] of points [n P] of the unit cube, on the CPU; -inf where a point is avoided.

        Raises:
            InvalidInput: The score is no tensor [n], or has a NaN.
        """
        features = self.space.features(points)
        values: Any = score(features)
        expected = f"a score must be a tensor [n] without NaN for features [n D], n = {len(points)}"
        if not isinstance(values, Tensor):
            raise InvalidInput(f"{expected}, got {checks.shown(values)}.")
        if values.shape != points.shape[:1] or bool(values.isnan().any()):
            raise InvalidInput(f"{expected}, got one of shape {tuple(values.shape)}.")
        return values.cpu().masked_fill(self._is_avoided(features), -math.inf)
