"""A test of the norm bound: does any function of that norm fit the data as well as noise allows?

On paper                                                                | in code
``min over f of |y - f|^2 + a |f|^2 = quad(a)``, against the energy     | ``norm_by_energy``
the norm bound is below the least norm that the energy allows           | ``unexplained``

It notices a kernel that is too smooth for the data. The radius of a martingale mixture does not,
because it grows with the misfit of its own predictions. docs/theory/noise.md has the proof.
"""

from __future__ import annotations

import torch

from kbo.confidence.base import Confidence
from kbo.confidence.energy import averaged
from kbo.confidence.mixture.least_norm import least_norm
from kbo.regression import Posterior

ENERGY = 0.1
"""Probability that ``unexplained`` rejects true assumptions, in units of delta."""


def unexplained(confidence: Confidence, state: Posterior) -> bool:
    """Return True if every function of the assumed norm has larger residuals than noise allows.

    True assumptions are rejected with probability at most ``ENERGY * delta``, in addition to the
    probability delta that the bounds fail. The result is False for bounds that do not assume both a
    noise level and a norm.
    """
    norm_bound = confidence.norm_bound
    if norm_bound is None or confidence.noise_std is None:
        return False
    return norm_by_energy(state, confidence.noise_std, ENERGY * confidence.delta) > norm_bound


@torch.no_grad()
def norm_by_energy(state: Posterior, noise_std: float, alpha: float) -> float:
    """Return the least norm of a function whose residuals are no larger than the noise, or 0.

    With probability ``1 - alpha``, for all n at once, the energy ``|xi|^2`` of sub-Gaussian noise
    is below the bound of ``kbo.confidence.energy``. Functions of a smaller norm have larger
    residuals.

    Args:
        state: The posterior, in float64.
        noise_std: Sub-Gaussian constant of the noise, in units of the targets.
        alpha: Probability that the norm of the function is smaller than the result at any time.

    Returns:
        The norm, in units of the targets over sqrt(kernel).
    """
    if not state.n:
        return 0.0
    _, most_energy = averaged(state.n, alpha, strict=False)
    square = noise_std**2 * most_energy
    error = state.error
    return least_norm(state, square, error.norm(), [noise_std**2], error.rounding)
