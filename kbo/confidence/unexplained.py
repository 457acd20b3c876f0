"""Values that are further from every function of a norm than the noise is (docs/theory/noise.md).

On paper                                                                | in code
``min over f of |y - f|^2 + a |f|^2 = quad(a)``, against the energy     | ``norm_by_energy``
the norm bound is below the least norm that the energy allows           | ``unexplained``

Unlike the radius of a martingale mixture, which grows with the misfit of its own predictions, the
energy of the noise notices a kernel that is too smooth for the data.
"""

from __future__ import annotations

import torch

from kbo.confidence.base import Confidence
from kbo.confidence.energy import averaged
from kbo.confidence.mixture.least_norm import least_norm
from kbo.regression import Posterior

ENERGY = 0.1
"""Probability that ``unexplained`` refuses true assumptions, in units of delta."""


def unexplained(confidence: Confidence, state: Posterior) -> bool:
    """Return True if the data are further from every function of the norm than the noise is.

    docs/theory/noise.md has the proof. True assumptions are refused with probability at most
    ``ENERGY * delta``, besides the probability delta that the bounds fail. False for bounds that do
    not assume both a noise level and a norm.

    Args:
        confidence: The bounds.
        state: The posterior.
    """
    norm_bound = confidence.norm_bound
    if norm_bound is None or confidence.noise_std is None:
        return False
    return norm_by_energy(state, confidence.noise_std, ENERGY * confidence.delta) > norm_bound


@torch.no_grad()
def norm_by_energy(state: Posterior, noise_std: float, alpha: float) -> float:
    """Return the least norm of a function whose residuals are no larger than the noise, or 0.

    docs/theory/noise.md has the proof.

    The energy ``|xi|^2`` of sub-Gaussian noise is below that of ``kbo.confidence.energy`` for all n
    at once, with probability ``1 - alpha``, and a function of a smaller norm leaves more.

    Args:
        state: As for ``norm_lower_bound``.
        noise_std: As there.
        alpha: Probability that the function has a smaller norm, ever.

    Returns:
        The norm, in units of the targets over sqrt(kernel).
    """
    if not state.n:
        return 0.0
    _, most_energy = averaged(state.n, alpha, strict=False)
    square = noise_std**2 * most_energy
    error = state.error
    return least_norm(state, square, error.norm(), [noise_std**2], error.rounding)
