"""Noise bounds as in Durand, Maillard & Pineau (2018): the ridge is ``upper^2 / C^2`` after every observation.

On paper                                                        | in code
``C_t = ln(e/delta) (1 + c_t / ln(1/delta))`` (Theorem 3)       | ``_printed_deviation``
Theorem 3, case 2, with ``least = t - 2 sqrt(t C_t)``           | ``_at_most_printed``
D at ``lower^2 / C^2``, the smallest possible ridge (Thm 2)     | ``_deviation_ridge_and_delta``

``kbo.confidence.NoiseBounds`` uses the same event without slack, at ridges of a grid.
"""

from __future__ import annotations

import math

from kbo.confidence import NoiseBounds
from kbo.confidence.noise_residuals import RegressionFit
from kbo.errors import InvalidInput
from kbo.regression import Posterior

_LEAST_DELTA = 1.6e-7
"""The smallest probability of an event for which C_t of the paper is large enough at all times."""


class DurandNoiseBounds(NoiseBounds):
    """The noise bounds of the paper, with its printed constants or without slack; they need an initial upper bound.

    Args:
        norm_bound, delta, upper, lower: As for ``NoiseBounds``; with a lower bound of 0 they learn little.
        printed: Whether the printed constants are used.

    Raises:
        InvalidInput: There is no upper bound, or delta is too small for the printed proof.
    """

    def __init__(
        self, norm_bound: float, delta: float, upper: float, lower: float = 0.0, *, printed: bool
    ) -> None:
        self.printed = printed
        super().__init__(norm_bound, delta, upper, lower)
        if not math.isfinite(self.upper):
            raise InvalidInput(
                "these noise bounds need an upper bound of the noise level to begin with: pass upper."
            )
        if printed and self.event_delta < _LEAST_DELTA:
            least = 3 * _LEAST_DELTA
            raise InvalidInput(
                f"the printed bounds are proved for delta of at least {least:.2g}, got {delta:g}."
            )

    def _raise_floor(self, state: Posterior) -> None:
        if self.n == 0:  # the event belongs to one ridge, which must not depend on the data
            self._floor = max(self._floor, state.error.least_ridge)

    def _ridge(self) -> float:
        return max((self.upper / self.norm_bound) ** 2, self._floor)

    def _deviation_ridge_and_delta(self) -> tuple[float, float]:
        least = max((self.lower / self.norm_bound) ** 2, self._floor)
        return min(least, self.ridge), self.event_delta  # never above the ridge of the fit

    # The ridge changes with every observation, so no Cholesky factor can grow.

    def _log_det(self, state: Posterior, ridge: float) -> float:
        return float(state.across().log_det([ridge])[0])

    def _rss(self, state: Posterior, ridge: float) -> float:
        return float(state.across().rss([ridge])[0])

    def _learn(self, state: Posterior) -> None:
        if not self.printed:
            super()._learn(state)
            return
        t = state.n
        C_t = _printed_deviation(t, self.event_delta)
        fit = self._raise_lower(state, t * (1 + math.sqrt(2 * C_t / t)) ** 2)
        self._upper = min(self.upper, _at_most_printed(fit, self.deviation(state), C_t))
        self.ridge: float = self._ridge()


def _printed_deviation(t: int, delta: float) -> float:
    """C_t of Theorem 3, with the c_t that the proof needs: the printed c_t is infinite at t = 1."""
    c_t = math.log(math.pi**2 * (1 + math.log(t)) ** 2 / 6)
    return math.log(math.e / delta) * (1 + c_t / math.log(1 / delta))


def _at_most_printed(fit: RegressionFit, D: float, C_t: float) -> float:
    """The upper bound on the noise level by case 2 of Theorem 3, with the printed constants; infinite for few data."""
    alpha = 1 - math.sqrt(C_t / fit.t) - math.sqrt((C_t + 2 * D) / fit.t)
    if alpha <= 0:
        return math.inf
    half = fit.cross(D) / (2 * fit.t)
    return (math.sqrt(math.sqrt(fit.rss / fit.t) * alpha + half) + math.sqrt(half)) ** 2 / alpha**2
