"""Proposers of the next point: functions that are tried in order, each with its condition.

A setting lists those that it uses (``Setting.proposers``). Each returns parameters, or None where it does not apply.
Without noise, parameters that have been evaluated are then replaced by random ones (``Optimizer._next``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kbo._base.quasirandom import sobol
from kbo.confidence import FixedWidth, Limit
from kbo.optimize.constraints.feasibility import LEAST_STD, log_probability
from kbo.optimize.run.trials import Trial
from kbo.optimize.search.bounds import argmax_upper, quick_upper
from kbo.optimize.search.search import RANDOM_POINTS, Search
from kbo.optimize.search.subspace import Subspace
from kbo.optimize.strategies.exploration import Exploration
from kbo.optimize.strategies.trust_region import trust_radius
from kbo.optimize.surrogates.surrogate import Bound, Problem, Surrogate
from kbo.regression import Posterior
from kbo.space import Params

_LEAST_IMPROVEMENT = 0.01
"""Standard deviations of the targets; smaller improvements, as near a point that is known, do not count."""

_NARROW = FixedWidth(0.25)
"""The bound of the search near the best trial: nearly the mean, and lower near pending points."""


@dataclass(frozen=True)
class Step:
    """Everything that the choice of the next point depends on.

    Attributes:
        setting: The setting; anything with what proposers of its own need.
        problem: Method and space.
        has_bounds: Whether the method has bounds.
        draws: Whether it draws functions.
        seed: The seed of the run.
        search: The part of the space, with promising points and the randomness of this trial; in a small finite space
            without noise, or in a table, without the points that were tried.
        tried: Points [n P] of the unit cube of trials, and of those that are pending besides.
        belief: That of the objective; None while there is none.
        bound: The bound that the point maximises, with the posterior from which it is chosen: pending points count as
            observed at the mean, failed trials as observed at the worst value; None while there is no belief.
        limits: The limits on measured quantities of which there is a belief, with such bounds.
        exploration: The points that are certain to be safe; None unless they are explored.
        recommend: Returns the recommended trial.
    """

    setting: Any
    problem: Problem
    has_bounds: bool
    draws: bool
    seed: int
    search: Search
    tried: Tensor
    belief: Surrogate | None
    bound: Bound | None
    limits: Sequence[Limit]
    exploration: Exploration | None
    recommend: Callable[[], Trial | None]

    def known(self) -> tuple[Surrogate, Bound]:
        """Return the belief and the bound of this trial, after the initial design."""
        assert self.belief is not None
        assert self.bound is not None
        return self.belief, self.bound

    def params(self, point: Tensor) -> Params:
        """Return the parameters at a point [P] of the unit cube."""
        return self.search.region.params(point)


def repetition(step: Step) -> Params | None:
    """Return the recommended parameters, once, while it is not known whether the values have noise."""
    if step.search.region.partial or step.belief is None or step.belief.exact is not None:
        return None
    if len(step.tried.unique(dim=0)) < len(step.tried):  # some are being repeated, or have been
        return None
    best = step.recommend()
    if best is None or not step.search.region.accepts(best.params):
        return None
    return best.params


def at_random(step: Step) -> Params | None:
    """Return random parameters if the method has no bounds."""
    return (
        None if step.has_bounds else step.params(step.search.region.sample(step.search.generator))
    )


def safe_exploration(step: Step) -> Params | None:
    """Return parameters that are certain to keep all limits, those about which least is known."""
    assert step.exploration is not None
    states = [limit.state for limit in step.limits]
    if step.bound is not None:
        states.append(step.bound.posterior)
    return step.params(step.exploration.propose(step.belief, states, step.search, step.tried))


def initial_design(step: Step) -> Params | None:
    """Return a point of a design that fills the space, until there is a belief.

    Where kernel and noise are estimated its first point is the centre, which is nearest to all others; in many
    dimensions the rest is close to the boundary.
    """
    if step.belief is not None:
        return None
    search, centre_first = step.search, not step.setting.certified
    return step.params(
        _design_point(search.region, search.number - centre_first, step.seed, search.generator)
    )


def _design_point(region: Subspace, number: int, seed: int, generator: torch.Generator) -> Tensor:
    """Return point [P] of a space-filling design, the centre for -1; a random one of the choices."""
    if region.choices is not None:
        return region.sample(generator)
    P = len(region.fixed)
    if not region.constrained:
        if number < 0:
            return region.spread(torch.full((P,), 0.5, dtype=torch.float64))
        return region.spread(sobol(1, P, seed, number)[0])
    if number < 0:
        points = region.draw(RANDOM_POINTS, generator)
        return points[(points - points.mean(0)).norm(dim=-1).argmin()]
    points = region.place(sobol(RANDOM_POINTS, P, seed))
    points = points[region.satisfies(points)]
    return points[number] if number < len(points) else region.sample(generator)


def by_probability(step: Step) -> Params | None:
    """Return, under estimated limits, a point with nearly the largest upper bound plus log-probability to keep them.

    The unit of the targets is the prior standard deviation, and one of it weighs as much as a factor e in probability;
    certain constraints change nothing. While all promising points are more likely to break a limit than not, the
    probability alone counts.
    """
    if not step.limits:
        return None
    bound, search, limits = step.known()[1], step.search, step.limits

    def probability(features: Tensor) -> Tensor:
        return log_probability(limits, features)

    if bool((probability(search.space.features(search.starts)) < math.log(0.5)).all()):
        return step.params(search.argmax(probability))
    return step.params(
        search.argmax(lambda X: quick_upper(bound.confidence, bound.posterior, X) + probability(X))
    )


def searches_near(setting: Any, problem: Problem) -> bool:
    """Return whether values without noise are searched near the best trial, or for the expected improvement."""
    return problem.method == setting.default_method and problem.space.continuous


def by_own_search(step: Step) -> Params | None:
    """Return what the ``search`` of a subclass of ``kbo.Practical`` returns."""
    if not step.setting.overrides("search"):
        return None
    bound = step.known()[1]
    return step.params(step.setting.search(bound.confidence, bound.posterior, step.search))


def improvement(step: Step) -> Params | None:
    """Return, without noise and with conditional parameters, a point with nearly the largest expected improvement.

    It is the improvement on the mean of the best trial. Its logarithm is maximised (Ament et al. 2023), for which
    points with next to no improvement differ too.
    """
    belief, bound = step.known()
    posterior, search = bound.posterior, step.search
    conditional = bool(step.problem.space.conditions) and searches_near(step.setting, step.problem)
    if not (belief.exact and conditional) or search.region.partial:
        return None
    with torch.no_grad():
        best = posterior.predict(search.space.features(search.starts[:1]))[0] + _LEAST_IMPROVEMENT
        return step.params(search.argmax(lambda X: log_improvement(posterior, best, X)))


def log_improvement(posterior: Posterior, best: Tensor, X: Tensor) -> Tensor:
    """Return the logarithm of the expected improvement [n] on a value at features X [n D], up to a constant."""
    mean, variance = posterior.predict(X)
    std = variance.sqrt().clamp_min(LEAST_STD)
    z = (mean - best) / std
    above = 1 + z * math.sqrt(math.pi / 2) * torch.special.erfcx(
        -z / math.sqrt(2)
    )  # over the density at z
    small, large = above.clamp_min(1e-30).log() - z.square() / 2, (math.sqrt(2 * math.pi) * z).log()
    return torch.where(z < 5, small, large) + std.log()


def near_the_best(step: Step) -> Params | None:
    """Return, without noise, every second time a point near the best trial."""
    belief, bound = step.known()
    posterior, search = bound.posterior, step.search
    if not (belief.exact and searches_near(step.setting, step.problem)) or search.region.partial:
        return None
    if search.number % 2 == 0:
        return None
    return step.params(
        search.argmax_near(lambda X: _NARROW.upper(posterior, X), trust_radius(belief.values))
    )


def by_draw(step: Step) -> Params | None:
    """Return, for methods that draw functions, a point at which a draw as wide as the confidence is nearly largest."""
    if not step.draws or step.limits:
        return None
    bound, search = step.known()[1], step.search
    confidence, posterior = bound.confidence, bound.posterior
    starts = search.space.features(search.starts)
    with torch.no_grad():
        path = posterior.at(confidence.ridge(posterior)).draw_function(starts, search.generator)
        return step.params(search.argmax(lambda X: confidence.inflated(posterior, X, path(X))))


def by_upper_bound(step: Step) -> Params | None:
    """Return a point with nearly the largest upper bound, among those that possibly keep all limits."""
    bound = step.known()[1]
    return step.params(argmax_upper(bound.confidence, bound.posterior, step.search, step.limits))
