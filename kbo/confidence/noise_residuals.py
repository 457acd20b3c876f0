"""Bounds of the noise level from the residuals of one fit: Durand et al. (2018), Theorem 3.

Notation: sigma is the noise level, xi are the t noises, C = norm_bound, ``lam`` is the ridge, E is
the error of a sketch (zero if exact), ``rss = |y - f_lam(x_1..t)|^2``, and D is an upper bound of
``|Phi xi|^2 / sigma^2`` in the norm of ``(G + lam)^-1``.

On paper                                            | in code
``D = 2 ln(1/delta) + ln det(I + K / lam)``         | ``NoiseBounds.deviation`` (Theorem 2)
``sqrt(rss) <= |xi| + C sqrt(b)``, ``b`` below      | ``at_least``
``b = max over l >= 0 of lam^2 (l + |E|) / (l + lam)^2`` | ``RegressionFit.squared_bias``
``|xi|^2 - 2 sigma^2 D - 2 sigma X <= rss``         | ``at_most`` (Theorem 3)
``X = C sqrt(lam D)``, more on a sketch             | ``RegressionFit.cross``
energy ``|xi|^2`` against ``t sigma^2``             | ``energy.stitched``

All hold for all t at once; docs/theory/noise.md has the proofs.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from kbo.confidence.energy import stitched
from kbo.confidence.noise_level import NoiseLevel
from kbo.regression import Posterior


class RegressionFit(NamedTuple):
    """The numbers of a regression at one ridge.

    Attributes:
        t: Number of observations.
        rss: Residual sum of squares, in squared units of the targets.
        ridge: The ridge, in units of the kernel.
        norm_bound: Bound of the norm of the function.
        error: Operator norm of the error of a sketch; 0 if the posterior is exact.
        most: Upper bound of ``|xi|^2 / sigma^2`` from ``energy.py``.
    """

    t: int
    rss: float
    ridge: float
    norm_bound: float
    error: float
    most: float

    def squared_bias(self) -> float:
        """Return the largest squared residuals ``|f(X) - fit|^2`` of a noiseless f of norm 1.

        On an exact posterior it is ``lam / 4``, reached if an eigenvalue of K is ``lam``.
        """
        lam = self.ridge
        if self.error <= lam / 2:
            return lam**2 / (4 * (lam - self.error))
        return self.error

    def cross(self, D: float) -> float:
        """Return X, the cross term of noise and function in the residuals, in units of sigma."""
        missed = 0.0
        if self.error > 0:
            fitted = math.sqrt(self.ridge + self.error) + math.sqrt(32 / 27 * self.error)
            missed = min(D * fitted**2, self.most * self.error)
        return self.norm_bound * math.sqrt(self.ridge * D + missed)


def at_least(fit: RegressionFit) -> float:
    """Return a lower bound of the noise level (Theorem 3); negative if C explains all residuals."""
    explained = fit.norm_bound * math.sqrt(fit.squared_bias() / fit.t)
    return (math.sqrt(fit.rss / fit.t) - explained) / math.sqrt(fit.most / fit.t)


def at_most(fit: RegressionFit, D: float, least: float) -> float:
    """Return an upper bound of the noise level (Theorem 3); inf if there is none.

    It is the root sigma of ``least sigma^2 - 2 sigma^2 D - 2 sigma X = rss``, where ``least`` is a
    lower bound of ``|xi|^2 / sigma^2``.
    """
    a = (least - 2 * D) / fit.t
    if a <= 0:
        return math.inf
    b = 2 * fit.cross(D) / fit.t
    return (b + math.sqrt(b * b + 4 * a * fit.rss / fit.t)) / (2 * a)


class NoiseBounds(NoiseLevel):
    """Bounds of an unknown noise level, from the residuals of one fit.

    Durand et al. (2018), Theorem 3, without slack.

    The ridge is the least ``largest_ridge / 2^j`` above ``upper^2 / C^2``. By default
    ``largest_ridge`` is ``upper^2 / C^2`` for a given upper bound, else 1. No prior bounds of the
    level are needed. Without them, the first finite upper bound comes after about 150 observations
    of a smooth function on a line, and after many hundreds in two dimensions, because it contains
    twice the information gain. The bound of ``MixtureNoiseBounds`` contains it once. The printed
    form, which is wider, is in the experiment of the paper.

    Args:
        norm_bound, delta, upper, lower, largest_ridge: As for ``NoiseLevel``.

    Raises:
        InvalidInput: A number out of its range.
    """

    def _default_largest_ridge(self) -> float:
        if math.isfinite(self.upper):
            return self.upper**2 / self.norm_bound**2
        return 1.0

    def deviation(self, state: Posterior) -> float:
        """Return D, an upper bound of ``|Phi xi|^2 / sigma^2`` in the norm of ``(G + lam)^-1``.

        Durand et al. (2018), Theorem 2, at a ridge of the grid; each ridge has a share of delta.
        """
        ridge, delta = self._deviation_ridge_and_delta()
        log_det = 0.0
        if state.n:
            # The exact log_det is at most that of the sketch plus that of its error.
            log_det = self._log_det(state, ridge) + state.error.log_det(ridge)
        return 2 * math.log(1 / delta) + log_det

    def _log_det(self, state: Posterior, ridge: float) -> float:
        return float(state.at(ridge).log_det())

    def _rss(self, state: Posterior, ridge: float) -> float:
        return float(state.at(ridge).rss())

    def _learn(self, state: Posterior) -> None:
        """Update lower bound, upper bound and ridge, in the order of Durand et al. (2018), Sec. 6.3."""
        least, most = stitched(state.n, self.event_delta)
        fit = self._raise_lower(state, most)
        self._upper = min(self.upper, at_most(fit, self.deviation(state), least))
        self.ridge: float = self._ridge()

    def _raise_lower(self, state: Posterior, most: float) -> RegressionFit:
        """Raise the lower bound if the data allow, and return the fit with residuals rounded up.

        ``most`` is an upper bound of ``|xi|^2 / sigma^2``.
        """
        rss = self._rss(state, self.ridge)
        rounded = state.error.of_quad
        numbers = self.ridge, self.norm_bound, state.error.norm(), most
        low = RegressionFit(state.n, max(rss - rounded, 0), *numbers)
        self._lower = max(self.lower, at_least(low))
        return RegressionFit(state.n, rss + rounded, *numbers)

    def _ridge(self) -> float:
        """Return the smallest ridge of the grid above ``upper^2 / C^2``."""
        # A larger ridge is valid too, so rounding may limit it from below.
        wanted = max((self.upper / self.norm_bound) ** 2, self._floor)
        ridge = self.largest_ridge
        while ridge / 2 >= wanted > 0:
            ridge /= 2
        return ridge

    def _deviation_ridge_and_delta(self) -> tuple[float, float]:
        """Return the ridge at which D is computed, and the probability that D may fail there."""
        j = round(math.log2(self.largest_ridge / self.ridge))
        return self.ridge, 6 * self.event_delta / (math.pi * (j + 1)) ** 2

    @property
    def least_ridge_used(self) -> float:
        return self._deviation_ridge_and_delta()[0]
