"""Bounds of the noise level from the residuals of one fit: Durand et al. (2018), Theorem 3, also on a sketch.

Notation: sigma is the noise level, xi the t noises, C = norm_bound, ``lam`` the ridge of the fit, E the error of a
sketch, ``rss = |y - f_lam(x_1..t)|^2``, and D is at least ``|Phi xi|^2 / sigma^2`` in the norm of ``(G + lam)^-1``.

On paper                                                                | in code
``sqrt(rss) <= |xi| + C sqrt(max(lam / 2, |E|))``                       | ``at_least``
``|xi|^2 - 2 sigma^2 D - 2 sigma X <= rss``                             | ``at_most``
``X = C sqrt(lam D)``, more on a sketch                                 | ``Fit.cross``

docs/papers.md has the proofs.
"""

from __future__ import annotations

import math
from typing import NamedTuple


class Fit(NamedTuple):
    """The numbers of a fit.

    Attributes:
        t: Observations.
        rss: Residual sum of squares.
        ridge: Of the fit.
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

    def cross(self, D: float) -> float:
        """Return X, the cross term of noise and function in the residuals, in units of sigma."""
        missed = 0.0
        if self.error > 0:
            seen = math.sqrt(self.ridge + self.error) + math.sqrt(32 / 27 * self.error)
            missed = min(D * seen**2, self.most * self.error)
        return self.norm_bound * math.sqrt(self.ridge * D + missed)


def at_least(fit: Fit) -> float:
    """Return a lower bound of the noise level (Theorem 3); negative where the norm bound explains all residuals."""
    explained = fit.norm_bound * math.sqrt(max(fit.ridge / 2, fit.error) / fit.t)
    return (math.sqrt(fit.rss / fit.t) - explained) / math.sqrt(fit.most / fit.t)


def at_most(fit: Fit, D: float, least: float) -> float:
    """Return the root sigma of ``least sigma^2 - 2 sigma^2 D - 2 sigma X = rss`` (Theorem 3); inf if there is none.

    Args:
        fit: The fit.
        D: The deviation.
        least: Lower bound of ``|xi|^2 / sigma^2``.
    """
    a, b = (least - 2 * D) / fit.t, 2 * fit.cross(D) / fit.t
    return (b + math.sqrt(b * b + 4 * a * fit.rss / fit.t)) / (2 * a) if a > 0 else math.inf
