"""The strategies for objectives without noise: a box around the best trial, and expected improvement."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from kbo.confidence import FixedWidth
from kbo.optimize.constraints.feasibility import LEAST_STD
from kbo.optimize.search.search import Search
from kbo.optimize.strategies.strategy import Strategy
from kbo.optimize.surrogates.evaluation import Evaluation
from kbo.regression import Posterior
from kbo.space import Params

FIRST_RADIUS = 0.2
"""Half width of the first box, in units of the features."""

_LARGEST_RADIUS = 0.5
"""Largest half width."""

_LEAST_RADIUS = 1e-6
"""Least half width. A smaller box gets the half width of the first box again."""

GROWTH = 1.5
"""Factor of the half width after a better evaluation in the box."""

SHRINKAGE = 0.6
"""Factor of the half width after a worse evaluation in the box."""

_LEAST_IMPROVEMENT = 0.01
"""Least improvement that counts, in standard deviations of the targets: near known points it is smaller."""

_LARGE_Z = 5.0
"""Standard deviations from which on the expected improvement is practically the difference of the means."""


@dataclass(frozen=True)
class TrustRegion(Strategy):
    """Maximise the upper bound in a box around the best trial (as in TuRBO, Eriksson et al. 2019).

    The box grows after a better trial in it and shrinks after a worse one. The strategy applies only without noise, in
    spaces with a real parameter, and not where a context or choices are given.

    Args:
        width: Standard deviations above the mean. A small width gives nearly the mean, but a lower bound near pending
            points.
    """

    width: float = 0.25

    def propose(self, search: Search) -> Params | None:
        if search.surrogate is None or search.bound is None or not search.is_noiseless:
            return None
        if not search.space.continuous or search.subspace.partial:
            return None
        posterior = search.bound.posterior
        confidence = self.confidence(search)

        def upper(features: Tensor) -> Tensor:
            return confidence.upper(posterior, features)

        radius = trust_radius(search.surrogate.values)
        return search.params(search.argmax_point_near(upper, radius))

    def confidence(self, search: Search) -> FixedWidth:
        return FixedWidth(self.width)

    def describe(self) -> str:
        return f"mean plus {self.width:g} standard deviations, in a box around the best trial"


def trust_radius(values: Iterable[Evaluation]) -> float:
    """Return the half width of the box after evaluations without noise, in unit coordinates; predictions do not count.

    A better evaluation outside the box moves the box there and restores its size.
    """
    radius = FIRST_RADIUS
    centre = None
    best = -math.inf
    for evaluation in values:
        if evaluation.predicted:
            continue
        features = evaluation.features
        y = evaluation.value
        assert y is not None
        is_inside = centre is not None and _distance(features, centre) <= radius
        if y > best:
            best = y
            centre = features
            if is_inside:
                radius = min(GROWTH * radius, _LARGEST_RADIUS)
            else:
                radius = max(radius, FIRST_RADIUS)
        elif is_inside:
            radius *= SHRINKAGE
        if radius < _LEAST_RADIUS:
            radius = FIRST_RADIUS
    return radius


def _distance(features: tuple[float, ...], centre: tuple[float, ...]) -> float:
    """Return the largest difference of two rows of features in a column."""
    return max(abs(a - b) for a, b in zip(features, centre, strict=True))


@dataclass(frozen=True)
class ExpectedImprovement(Strategy):
    """Maximise the expected improvement on the best trial.

    An improvement is counted from the posterior mean of the best trial plus 0.01 standard deviations of the targets.
    The strategy applies only without noise, in spaces with conditions and a real parameter, and not where a context or
    choices are given. In such spaces it leaves a well-known branch for another one. Its logarithm is maximised, which
    differs also between points with almost no improvement (Ament et al. 2023).
    """

    @torch.no_grad()
    def propose(self, search: Search) -> Params | None:
        if search.bound is None or not search.is_noiseless:
            return None
        if not search.space.conditions or not search.space.continuous or search.subspace.partial:
            return None
        posterior = search.bound.posterior
        mean, _ = posterior.predict(search.space.features(search.starts[:1]))
        best = mean[0] + _LEAST_IMPROVEMENT
        return search.argmax(lambda X: log_improvement(posterior, best, X))

    def describe(self) -> str:
        return "expected improvement"


def log_improvement(posterior: Posterior, best: Tensor, X: Tensor) -> Tensor:
    """Return the logarithm [n] of the expected improvement on the value ``best`` at features X [n D], up to a constant.

    With ``z = (mean - best) / std`` it is ``log(std (phi(z) + z Phi(z)))`` (Ament et al. 2023, Section 4.1).
    """
    mean, variance = posterior.predict(X)
    std = variance.sqrt().clamp_min(LEAST_STD)
    z = (mean - best) / std
    # Each branch at arguments where it is finite: otherwise ``where`` has a NaN gradient (0 times infinity).
    below = z.clamp_max(_LARGE_Z)
    above = z.clamp_min(_LARGE_Z)
    over_density = 1 + below * math.sqrt(math.pi / 2) * torch.special.erfcx(-below / math.sqrt(2))
    small_z = over_density.clamp_min(1e-30).log() - below.square() / 2
    large_z = (math.sqrt(2 * math.pi) * above).log()  # the density is negligible
    return torch.where(z < _LARGE_Z, small_z, large_z) + std.log()
