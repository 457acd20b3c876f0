"""Bounds of the noise level from a martingale mixture (Flynn & Reeb 2024), averaged over ridges.

Notation: sigma is the noise level, xi are the t noises, C = norm_bound, a is the ridge, E is the
error of a sketch (zero if exact), and R^2 is the squared radius of the mixture at level sigma.

On paper                                                     | in code
``|xi|^2 <= R^2`` and ``least sigma^2 <= |xi|^2``            | ``_upper_bound``
``quad(a) - a C^2 <= |xi|^2`` and ``|xi|^2 <= most sigma^2`` | ``_lower_bound``
energy ``|xi|^2`` against ``t sigma^2``: least, most         | ``energy.averaged``

All hold for all t at once; docs/theory/mixtures.md and docs/theory/noise.md have the proofs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from kbo._base import checks
from kbo.confidence.energy import averaged, crossing
from kbo.confidence.noise_level import NoiseLevel
from kbo.regression import Posterior

_N_RIDGES = 12
_RATIO = 4.0
"""Number of ridges in the mixture, and ratio of neighbours: they span nearly seven decades."""


class MixtureNoiseBounds(NoiseLevel):
    """The tightest bounds of an unknown noise level, from a martingale mixture.

    The mixture averages over the ridges ``largest_ridge / 4^j``, and the best of them becomes the
    ridge. ``largest_ridge`` is 1 by default. These bounds are far tighter than ``NoiseBounds`` if
    there are many effective dimensions: a finite upper bound, which needs no norm bound, comes after
    about 50 observations of a smooth function on a line, and about 100 in two dimensions. But they
    are the first to be wrong if the noise is not as assumed. They evaluate twelve ridges after every
    observation, which takes O(m^3) on a sketch of m points; so choose a small dictionary, such as
    ``GreedyDictionary``.

    Args:
        norm_bound, delta, upper, lower, largest_ridge: As for ``NoiseLevel``.
        strict: The assumption on the noise. True: it is strictly sub-Gaussian. False, the default
            and a stronger assumption: it also has no more mass near zero than Gaussian noise. This
            is true of Gaussian, Rademacher and uniform noise, and gives tighter bounds for the
            first few hundred observations.

    Raises:
        InvalidInput: A number out of its range.
    """

    def __init__(
        self,
        norm_bound: float,
        delta: float,
        upper: float | None = None,
        lower: float = 0.0,
        largest_ridge: float | None = None,
        *,
        strict: bool = False,
    ) -> None:
        self.strict: bool = checks.flag("strict", strict)
        super().__init__(norm_bound, delta, upper, lower, largest_ridge)
        self.description["strict"] = self.strict

    @property
    def small_ball(self) -> str:
        if self.strict:
            return ""
        return (
            ", and has no more mass near zero than Gaussian noise "
            "(E exp(-g noise^2 / level^2) <= (1 + 2 g)^(-1/2) for g <= 2)"
        )

    @property
    def mixture_ridges(self) -> list[float]:
        """Ridges of the mixture, decreasing: the largest, and those at which rounding is small."""
        ridges = [self.largest_ridge / _RATIO**j for j in range(_N_RIDGES)]
        return ridges[:1] + [ridge for ridge in ridges[1:] if ridge >= self._floor]

    @property
    def least_ridge_used(self) -> float:
        return self.mixture_ridges[-1]

    @property
    def mixture_delta(self) -> float:
        """Probability that the mixture over these ridges may fail.

        Ridges that are left out keep their share of delta.
        """
        return self.event_delta * len(self.mixture_ridges) / _N_RIDGES

    def _learn(self, state: Posterior) -> None:
        """Update both bounds and the ridge on the event of the confidence set."""
        ridges = self.mixture_ridges
        if ridges[0] < self._floor:
            return
        least, most = averaged(state.n, self.event_delta, self.strict)
        across = state.across()
        quads, log_dets = torch.stack([across.quad(ridges), across.log_det(ridges)]).tolist()
        for i, ridge in enumerate(ridges):
            log_dets[i] += state.error.log_det(ridge)  # an upper bound of the exact log_det

        self._upper = min(self.upper, self._upper_bound(state, quads, log_dets, least))
        for ridge, quad in zip(ridges, quads, strict=True):
            self._lower = max(self.lower, self._lower_bound(state, ridge, quad, most))
        if math.isfinite(self.upper):
            squared_radii = [
                quad + self.upper**2 * log_det
                for quad, log_det in zip(quads, log_dets, strict=True)
            ]
            self.ridge: float = ridges[squared_radii.index(min(squared_radii))]

    def _upper_bound(
        self, state: Posterior, quads: Sequence[float], log_dets: Sequence[float], least: float
    ) -> float:
        """Return the noise level above which ``R^2`` is below ``least sigma^2``, or inf."""
        # R^2 < least sigma^2 exactly where the precision 1 / (2 sigma^2) is below this crossing.
        rates = [max(quad + state.error.of_quad, 1e-300) for quad in quads]
        logs = [-log_det / 2 for log_det in log_dets]
        precision = crossing(rates, logs, math.log(1 / self.mixture_delta) - least / 2)
        if precision <= 0:
            return math.inf
        return math.sqrt(0.5 / precision)

    def _lower_bound(self, state: Posterior, ridge: float, quad: float, most: float) -> float:
        """Return a lower bound of the noise level; negative if the norm bound explains the data."""
        unexplained = max(quad - state.error.of_quad - ridge * self.norm_bound**2, 0)
        noise_norm = math.sqrt(unexplained) - self.norm_bound * math.sqrt(state.error.norm())
        return noise_norm / math.sqrt(most)
