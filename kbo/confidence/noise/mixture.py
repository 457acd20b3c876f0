"""Bounds of the noise level from a martingale mixture (Flynn & Reeb 2024), averaged over ridges.

Notation: sigma is the noise level, xi the t noises, C = norm_bound, a the ridge, E the error of a
sketch (zero if exact), and R^2 the squared radius of the mixture at noise level sigma.

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
from kbo.confidence.noise.level import NoiseLevel
from kbo.regression import Posterior

_N_RIDGES = 12
_RATIO = 4.0
"""Number of the ridges of the mixture and their ratio: seven decades."""


class MixtureNoiseBounds(NoiseLevel):
    """The tightest bounds of an unknown noise level, from a martingale mixture.

    The mixture is averaged over the ridges ``largest_ridge / 4^j``. The best of these is the ridge;
    ``largest_ridge`` is 1 by default. The tightest bounds, by far where there are many effective
    dimensions: a finite upper bound, which needs no norm bound, comes after some 50 observations of
    a smooth function on a line and some 100 in two dimensions. They are also the first to be wrong
    where the noise is not as assumed, and evaluate twelve ridges after every observation, which on
    a sketch of m points takes O(m^3): choose a dictionary that stays small, ``GreedyDictionary``
    for example.

    Args:
        norm_bound, delta, upper, lower, largest_ridge: As for ``NoiseLevel``.
        strict: What is assumed of the noise. True: it is strictly sub-Gaussian. False, the default:
            in addition, it has no more mass near zero than Gaussian noise, as is true of Gaussian,
            Rademacher and uniform noise. The stronger assumption gives tighter bounds for the first
            few hundred observations.

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
        """Ridges of the mixture, decreasing: the largest, and all above the kernel's precision."""
        ridges = [self.largest_ridge / _RATIO**j for j in range(_N_RIDGES)]
        return ridges[:1] + [ridge for ridge in ridges[1:] if ridge >= self._floor]

    @property
    def least_ridge_used(self) -> float:
        return self.mixture_ridges[-1]

    @property
    def mixture_delta(self) -> float:
        """Probability that the mixture over these ridges may fail.

        Ridges that are left out keep their share.
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
            log_dets[i] += state.error.log_det(ridge)  # at most that of the exact kernel matrix

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
        """Return the level above which ``R^2`` falls short of ``least sigma^2``, or inf."""
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
