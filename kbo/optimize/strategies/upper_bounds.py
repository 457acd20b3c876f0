"""The strategies that maximise upper confidence bounds, or a draw in their place (Thompson sampling)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from kbo.confidence import Confidence
from kbo.optimize.constraints.feasibility import log_probability
from kbo.optimize.objectives.hypervolume import directions, improvement, scalarized
from kbo.optimize.search.bounds import argmax_upper, quick_upper
from kbo.optimize.search.search import N_BEST, Search
from kbo.optimize.search.subspace import Subspace
from kbo.optimize.strategies.strategy import Strategy
from kbo.space import Params
from kbo.space.parameters import Parameter

_N_DIRECTIONS = 128
"""Number of random directions over which the hypervolume is averaged."""

_PLACES = torch.tensor([0.125, 0.375, 0.625, 0.875], dtype=torch.float64)
"""Unit coordinates of the values to try: the middles of the quarters of a range."""

_FEW = 3
"""Largest number of different values of a parameter with which a further one is tried."""


@dataclass(frozen=True)
class UpperBoundPoint(Strategy):
    """Maximise the upper confidence bound of the method over the points that possibly keep all limits.

    It is GP-UCB (Srinivas et al. 2010); with limits it is CONFIG (Xu et al. 2023, Alg. 1).
    """

    def propose(self, search: Search) -> Params | None:
        if search.bound is None:
            return None
        return search.params(argmax_upper(search.bound, search, search.limits))

    def confidence(self, search: Search) -> Confidence | None:
        return search.confidence

    def describe(self) -> str:
        return "best optimistic bound (upper confidence bound)"


@dataclass(frozen=True)
class ThompsonPoint(Strategy):
    """Maximise a draw from the posterior, whose deviations are scaled to the width of the method's interval.

        argmax_x centre(x) + half_width(x) g(x) / deviation(x)

    g is a draw from the posterior, less its mean. Centre and half width are those of the interval of the method. If the
    half width is ``width * deviation``, this is GP-TS (Chowdhury & Gopalan 2017, Alg. 2). The strategy does not apply
    with limits on measured quantities.
    """

    @torch.no_grad()
    def propose(self, search: Search) -> Params | None:
        if search.bound is None or search.limits:
            return None
        confidence = search.bound.confidence
        posterior = search.bound.posterior
        starts = search.space.features(search.starts)
        posterior_at = posterior.at(confidence.ridge(posterior))
        path = posterior_at.draw_function(starts, search.generator)
        return search.argmax(lambda X: confidence.inflated(posterior, X, path(X)))

    def describe(self) -> str:
        return "Thompson sampling"


@dataclass(frozen=True)
class FeasibleUpperBound(Strategy):
    """Maximise the upper bound plus the log-probability to keep all limits; only with limits on measured quantities.

        argmax_x upper(x) + sum_i log P(limit i is kept at x)

    The probabilities are those of the posteriors (Gelbart, Snoek & Adams 2014; docs/theory/constraints.md).
    The bound is in prior standard deviations, so one of these weighs as much as a factor e of the probability. Limits
    that are certain to be kept change nothing. While each of the best trials probably breaks a limit, the probability
    alone is maximised.
    """

    def propose(self, search: Search) -> Params | None:
        if search.bound is None or not search.limits:
            return None
        bound = search.bound

        def probability(features: Tensor) -> Tensor:
            return log_probability(search.limits, features)

        def score(features: Tensor) -> Tensor:
            return quick_upper(bound, features) + probability(features)

        best_trials = search.space.features(search.starts)
        if bool((probability(best_trials) < math.log(0.5)).all()):
            return search.argmax(probability)
        return search.argmax(score)

    def confidence(self, search: Search) -> Confidence | None:
        return search.confidence

    def describe(self) -> str:
        return "upper confidence bound plus log-probability to keep all limits"


@dataclass(frozen=True)
class HypervolumeUpperBound(Strategy):
    """Maximise the growth of the hypervolume, as if every objective reached its upper confidence bound.

    Every second trial maximises the scalarisation in one random direction instead (Zhang and Golovin 2020, Alg. 1). The
    strategy applies only with several objectives, and once there is a front.

    Under limits the log-probability to keep them is added to the score. The score in one direction is a difference of
    targets, divided by the extent of the front. The score of the volume is the mean growth of such a difference to the
    power m, the number of objectives. So, unlike in ``FeasibleUpperBound``, the unit of the score is not the prior
    standard deviation, and the probability is never maximised alone.
    """

    def propose(self, search: Search) -> Params | None:
        front = search.front
        if front is None:
            return None
        generator = search.generator
        m = len(search.bounds)
        starts = torch.randperm(len(front.units), generator=generator)[:N_BEST]
        search = replace(search, starts=front.units[starts])
        n_directions = _N_DIRECTIONS
        if search.number % 2:
            n_directions = 1
        weights = directions(n_directions, m, generator) * front.scale

        def score(features: Tensor) -> Tensor:
            bounds = [quick_upper(bound, features) for bound in search.bounds]
            targets = torch.stack(bounds, -1).cpu()
            if n_directions == 1:
                worth = scalarized(targets, front.reference, weights).squeeze(-1)
            else:
                worth = improvement(targets, front.targets, front.reference, weights)
            return worth + log_probability(search.limits, features).cpu()

        return search.argmax(score)

    def describe(self) -> str:
        return "largest possible growth of the front (hypervolume of upper confidence bounds)"


@dataclass(frozen=True)
class NewParameter(Strategy):
    """Maximise the upper bound at a new value of an added parameter, far from its values so far (at most three).

    The results so far say nothing about a parameter that a change of the space added. If trials run one after the
    other, the upper bound alone leads to new values of it. But parallel trials, chosen before any of them has a result,
    would get similar values. So this strategy applies only while other trials are being evaluated. It does not apply
    under constraints on parameters, or in a part of the space.
    """

    def propose(self, search: Search) -> Params | None:
        subspace = search.subspace
        if search.bound is None or not search.space.added or not len(search.avoided):
            return None
        if not len(search.tried):
            return None
        if subspace.partial or subspace.boxed or subspace.constrained:
            return None
        n_free = int(subspace.fixed.isnan().sum())
        if n_free == 1 or subspace.choices is not None:
            return None
        for column, (name, parameter) in enumerate(search.space.parameters.items()):
            if name not in search.space.added:
                continue
            value = _next_value(parameter, search.tried[:, column])
            if value is None:
                continue
            context = {name if search.space.named else column: value}
            search_there = replace(search, subspace=Subspace(search.space, context))
            for strategy in (HypervolumeUpperBound(), FeasibleUpperBound(), UpperBoundPoint()):
                params = strategy.propose(search_there)
                if params is not None:
                    return params
        return None

    def confidence(self, search: Search) -> Confidence | None:
        return search.confidence

    def describe(self) -> str:
        return "best optimistic bound at a new value of a parameter that was added"


def _next_value(parameter: Parameter, tried: Tensor) -> Any:
    """Return the value farthest from those tried [n], in unit coordinates; None if over three, or all, were tried."""
    values = parameter.values(_PLACES)
    distances = (parameter.units(values).unsqueeze(-1) - tried).abs().amin(-1)
    farthest = int(distances.argmax())
    if len(tried.unique()) > _FEW or distances[farthest] == 0:
        return None
    return values[farthest]
