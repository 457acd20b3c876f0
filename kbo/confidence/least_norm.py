"""The least norm of a function that fits the data, and a test of a norm bound.

On paper                                                              | in code
``B_low^2 = max over a of (quad(a) - R^2) / a`` (Cor. 4.3, E = 0)     | ``norm_lower_bound``
``(R + B sqrt|E|)^2 + a B^2 = quad(a)``, solved for B                 | ``least_norm``
``min over f of |y - f|^2 + a |f|^2 = quad(a)``, against the energy   | ``norm_by_energy``
the norm bound is below the least norm that the energy allows         | ``unexplained``

R does not depend on the norm bound. So the event on which the bounds of a martingale mixture hold
also bounds the norm from below: the set F(B) of Flynn & Reeb (2024), Lemma 4.2, is empty exactly
when B is below ``norm_lower_bound``.

``unexplained`` notices a kernel that is too smooth for the data. The radius of a martingale mixture
does not, because it grows with the misfit of its own predictions. docs/theory/noise.md has the proof.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from kbo._base import checks
from kbo.confidence import rounding
from kbo.confidence.base import Confidence
from kbo.confidence.confidence_set import EXACT, RidgeFit, Scale, fits_at, mixture_ridges, radius_of
from kbo.confidence.energy import averaged
from kbo.confidence.ridge_search import (
    dmm_ridges,
    minimise_near,
    ridge_range,
    search_grid,
)
from kbo.errors import RefutedAssumptions
from kbo.regression import Posterior, Rounding
from kbo.regression.numerics import as_ridges

ENERGY = 0.1
"""Probability that ``unexplained`` rejects true assumptions, in units of delta."""

TOO_LARGE = "a function that fits the data must have a larger norm"


@torch.no_grad()
def norm_lower_bound(
    state: Posterior,
    noise_std: float,
    delta: float,
    scale: Scale = 1.0,
    ridges: Sequence[float] | None = None,
    *,
    rounded_down: bool = True,
) -> float:
    """Return a lower confidence bound of the norm, in units of the targets over sqrt(kernel).

    It is ``B_low``, the least norm of a function that fits the data: the largest B at which ``(R +
    B sqrt|E|)^2 + a B^2 = quad(a)`` for some ridge a, or 0. With probability 1 - delta, for all n
    at once and on the same event as the mixture bounds, the function has at least this norm.

    Args:
        state: The posterior, in float64: rounding in float32 is not accounted for.
        noise_std: Sub-Gaussian constant of the noise, in units of the targets.
        delta: Probability that the bound fails at any time.
        scale: Covariance scale of the mixture, or several.
        ridges: Ridges of the maximum. Fewer ridges give a smaller bound, which is valid too. By
            default all ridges: the ratio is a concave over an affine function, so it has one local
            maximum, which one search finds.
        rounded_down: Whether to lower the bound for rounding, and to leave out ridges where
            rounding is not small (docs/theory/rounding.md). If False, it is no proved bound.

    Raises:
        NotPositiveDefinite: The data show that the function is no kernel, so no norm is defined.
    """
    checks.instance("state", state, Posterior)
    delta = checks.probability("delta", delta)
    if rounded_down:
        state.error.refuse_no_kernel()
    a0s = mixture_ridges(noise_std, scale)
    rounded = state.error.rounding if rounded_down else EXACT
    floor = rounding.least_ridge(rounded)
    if math.isinf(floor):
        return 0.0
    # For a ridge a below the floor b, the numbers at b give an upper bound of the radius:
    # quad(a) <= quad(b), and log_det(a) <= log_det(b) + n ln(b / a).
    read_at = [max(a0, floor) for a0 in a0s]
    fits = []
    for a0, ridge, fit in zip(a0s, read_at, fits_at(state, read_at, spectral=True), strict=True):
        increase = state.n * math.log(ridge / a0)
        fits.append(RidgeFit(fit.quad, fit.log_det + increase))
    square = radius_of(fits, noise_std, delta)
    e = rounding.accounted(rounded, read_at[0])
    factor = rounding.radius_factor(e, state.error.terms, delta)
    error = factor * state.error.norm()
    return least_norm(state, factor * square, error, a0s, rounded, ridges)


def least_norm(
    state: Posterior,
    square: float,
    error: float,
    start: Sequence[float],
    rounded: Rounding,
    ridges: Sequence[float] | None = None,
) -> float:
    """Return the largest B at which ``(R + B sqrt|E|)^2 + a B^2 = quad(a)`` for some ridge a, or 0.

    The root is ``B = (sqrt(R^2 |E| + (a + |E|) (quad(a) - R^2)) - R sqrt|E|) / (a + |E|)``.

    Args:
        state: The posterior.
        square: ``R^2``, in squared units of the targets.
        error: ``|E|``, in units of the kernel.
        start: Ridges around which the search over a begins, increasing.
        rounded: Rounding errors, by which the result is lowered.
        ridges: The ridges a; None for all.
    """
    floor = rounding.least_ridge(rounded)
    if math.isinf(floor):
        return 0.0
    numbers_at = state.across().on_host([])

    def norm_at(ridge: float) -> float:
        """Return the positive root B, or a negative number if there is none."""
        e = rounding.accounted(rounded, ridge)
        _, _, quad = numbers_at(ridge)
        excess = quad * (1 - 2 * e) / (1 + e) - square
        if excess <= 0:
            return excess / (ridge + error)
        root = math.sqrt(square * error + (ridge + error) * excess)
        return (root - math.sqrt(square * error)) / (ridge + error)

    if ridges is not None:
        norms = [norm_at(max(ridge, floor)) for ridge in as_ridges(ridges)]
        return max(0.0, *norms)
    low, high = ridge_range(state, start[0])
    grid = search_grid(dmm_ridges(start), max(low, floor), max(high, floor))
    log_grid = [math.log(ridge) for ridge in grid]
    # The norm has one local maximum, which is searched near the first ridge.
    _, negative_norm = minimise_near(lambda t: -norm_at(math.exp(t)), log_grid, math.log(start[0]))
    return max(0.0, -negative_norm)


def refuse_if_refuted(
    state: Posterior, noise_std: float, norm_bound: float, delta: float, scale: Scale = 1.0
) -> None:
    """Raise RefutedAssumptions if no function of norm at most ``norm_bound`` fits the data."""
    norm_bound = checks.positive("norm_bound", norm_bound)
    B_low = norm_lower_bound(state, noise_std, delta, scale)
    if B_low > norm_bound:
        raise refuted(TOO_LARGE, noise_std, norm_bound, delta, n=state.n, norm_at_least=B_low)


def refuted(
    reason: str, noise_std: float, norm_bound: float, delta: float, **figures: float
) -> RefutedAssumptions:
    """Return the exception for an empty confidence set."""
    return RefutedAssumptions(
        f"The data refute the assumptions: {reason}. Raise norm_bound or noise_std, or change the "
        f"kernel; if they are right, this happens with probability at most delta = {delta:g}",
        norm_bound=norm_bound,
        noise_std=noise_std,
        **figures,
    )


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
