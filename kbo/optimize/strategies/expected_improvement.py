"""Expected improvement, for objectives without noise in spaces with conditional parameters."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from kbo.optimize.constraints.slacks import LEAST_STD
from kbo.optimize.search.search import Search
from kbo.optimize.strategies.strategy import Strategy
from kbo.regression import Posterior
from kbo.space import Params

_LEAST_IMPROVEMENT = 0.01
"""Least improvement that counts, in standard deviations of the targets: near known points it is smaller."""

_LARGE_Z = 5.0
"""Standard deviations from which on the expected improvement is practically the difference of the means."""


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
