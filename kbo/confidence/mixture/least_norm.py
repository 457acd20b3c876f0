"""The least norm of a function that fits the data, a lower confidence bound of the norm of f.

On paper                                                          | in code
``B_low^2 = max over a of (quad(a) - R^2) / a`` (Cor. 4.3, E = 0) | ``norm_lower_bound``
``(R + B sqrt|E|)^2 + a B^2 = quad(a)``, solved for B             | ``least_norm``

R does not contain the norm bound, so the event on which the bounds of a martingale mixture hold
says how large the norm must be: the set F(B) of Flynn & Reeb (2024), Lemma 4.2, is empty exactly
when B is below ``norm_lower_bound``.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence

import torch

from kbo._base import checks
from kbo.confidence import rounding
from kbo.confidence.mixture.confidence_set import EXACT
from kbo.confidence.mixture.radius import Fit, Scale, fits_at, mixture_ridges, radius_of
from kbo.confidence.mixture.ridge_search import (
    bracket_by_walk,
    dmm_ridges,
    minimise_one,
    ridge_range,
    search_grid,
)
from kbo.errors import RefutedAssumptions
from kbo.regression import Posterior, Rounding
from kbo.regression.numerics import as_ridges

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
    """Return ``B_low``, the least norm that fits, in units of the targets over sqrt(kernel).

    With probability 1 - delta, for all n at once and on the same event as the mixture bounds, the
    function has at least this norm. It is the largest B at which
    ``(R + B sqrt|E|)^2 + a B^2 = quad(a)`` for some ridge a, or 0.

    Args:
        state: The posterior, in float64: rounding in float32 is not accounted for.
        noise_std: Sub-Gaussian constant of the noise, in units of the targets.
        delta: Probability that the bound may fail, ever.
        scale: Covariance scale of the mixture, or several.
        ridges: Take the maximum over these ridges only, which gives a smaller, still valid bound;
            by default over all of them: concave over affine, the ratio has a single peak, which one
            search finds.
        rounded_down: Lower the bound by what rounding may have done, and read it at no ridge where
            that is not small (docs/theory/rounding.md); without, it is no bound.

    Raises:
        NotPositiveDefinite: The data show that the function is no kernel, so no norm is defined.
    """
    checks.instance("state", state, Posterior)
    delta = checks.probability("delta", delta)
    if rounded_down:
        state.error.refuse_no_kernel()
    own_ridges = mixture_ridges(noise_std, scale)
    rounded = state.error.rounding if rounded_down else EXACT
    floor = rounding.least_ridge(rounded)
    if math.isinf(floor):
        return 0.0
    # Ridges below the floor are read there: quad(a) and log_det(a) - n ln(1/a) grow with a.
    read_at = [max(ridge, floor) for ridge in own_ridges]
    fits = []
    for ridge, fit in zip(own_ridges, fits_at(state, read_at, spectral=True), strict=True):
        lost = state.n * math.log(max(ridge, floor) / ridge)
        fits.append(Fit(fit.quad, fit.log_det + lost))
    square = radius_of(fits, noise_std, delta)
    e = rounding.accounted(rounded, read_at[0])
    factor = rounding.radius_factor(e, state.error.terms, delta)
    error = factor * state.error.norm()
    return least_norm(state, factor * square, error, own_ridges, rounded, ridges)


def least_norm(
    state: Posterior,
    square: float,
    error: float,
    start: Sequence[float],
    rounded: Rounding,
    ridges: Sequence[float] | None = None,
) -> float:
    """Return the largest B at which ``(R + B sqrt|E|)^2 + a B^2 = quad(a)`` for some ridge a, or 0.

    Args:
        state: The posterior.
        square: ``R^2``.
        error: ``|E|``.
        start: Ridges around which the search over a begins, increasing.
        rounded: Errors that rounding may have made.
        ridges: The only ridges; by default all.
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
        norms = [norm_at(max(ridge, floor)) for ridge in as_ridges(ridges, "ridges")]
        return max(0.0, *norms)
    low, high = ridge_range(state, start[0])
    grid = search_grid(dmm_ridges(start), max(low, floor), max(high, floor))
    log_grid = [math.log(ridge) for ridge in grid]
    position = bisect_left(grid, start[0])

    def negative_norm(t: float) -> float:
        return -norm_at(math.exp(t))

    bracket = bracket_by_walk(negative_norm, log_grid, position)
    _, lowest = minimise_one(negative_norm, bracket)
    return max(0.0, -lowest)


def refuse_if_refuted(
    state: Posterior, noise_std: float, norm_bound: float, delta: float, scale: Scale = 1.0
) -> None:
    """Raise RefutedAssumptions if no function of norm at most ``norm_bound`` fits the data."""
    norm_bound = checks.positive("norm_bound", norm_bound)
    least = norm_lower_bound(state, noise_std, delta, scale)
    if least > norm_bound:
        raise refuted(TOO_LARGE, noise_std, norm_bound, delta, n=state.n, norm_at_least=least)


def refuted(
    reason: str, noise_std: float, norm_bound: float, delta: float, **figures: float
) -> RefutedAssumptions:
    """Return the exception of an empty confidence set."""
    return RefutedAssumptions(
        f"The data refute the assumptions: {reason}. Raise norm_bound or noise_std, or change the "
        f"kernel; if they are right, this happens with probability at most delta = {delta:g}",
        norm_bound=norm_bound,
        noise_std=noise_std,
        **figures,
    )
