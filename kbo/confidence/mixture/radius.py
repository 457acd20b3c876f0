"""The radius of a martingale mixture, and the lower bound of the norm that follows from it.

R does not contain the norm bound, so the same event on which the bounds hold says how large the norm must be: the set
F(B) is empty exactly when B is below ``norm_lower_bound``.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch

from kbo._base import checks
from kbo.confidence import rounding
from kbo.confidence.energy import averaged as averaged_energy
from kbo.confidence.mixture.line_search import minimise_one
from kbo.errors import InvalidInput, RefutedAssumptions
from kbo.regression import Posterior, Rounding
from kbo.regression.numerics import as_ridges

DMM_GRID = (0.1, 0.3, 1.0, 3.0, 10.0)
"""Multiples of a0 over which DMM minimises (Flynn & Reeb 2024, Sec. 7), and at which exact searches begin."""

ENERGY = 0.1
"""Probability, in units of delta, that true assumptions are refused because of the energy of the noise."""

TOO_LARGE = "a function that fits the data must have a larger norm"


MIXED_SCALES = tuple(4.0**j for j in range(-3, 5))
"""Scales of which no single one is much better than their average (docs/validity.md)."""

Scale = float | Sequence[float]
"""The covariance scale c of a mixture, or several that are averaged."""


def checked_scale(scale: Scale) -> Scale:
    """Return one or several scales as numbers.

    Raises:
        InvalidInput: There is none, or one is not a finite number above zero.
    """
    if not isinstance(scale, Sequence) or isinstance(scale, (str, bytes, bytearray)):
        return checks.positive("scale", scale)  # pyright: ignore[reportArgumentType]
    if not scale:
        raise InvalidInput(
            "scale must be a number above zero or a sequence of at least one, got none."
        )
    return tuple(checks.positive("scale", c) for c in scale)


def mixture_ridges(noise_std: float, scale: Scale) -> list[float]:
    """Return ``a = sigma^2 / c`` for every scale c, increasing."""
    noise_std, scale = checks.positive("noise_std", noise_std), checked_scale(scale)
    return sorted(noise_std**2 / c for c in (scale if isinstance(scale, Sequence) else [scale]))


def starts(ridges: Sequence[float]) -> list[float]:
    """Return the ridges of DMM, where searches over all ridges begin too: those of the mixture, or around the one."""
    return list(ridges) if len(ridges) > 1 else [g * ridges[0] for g in DMM_GRID]


def squared_radius(
    state: Posterior, noise_std: float, delta: float, scale: Scale = 1.0, *, many: bool = False
) -> float:
    """Return ``R^2 = quad(a0) + sigma^2 log_det(a0) + 2 sigma^2 ln(1/delta)`` with ``a0 = sigma^2 / scale``.

    Flynn & Reeb (2024), eq. 8; with several scales ``averaged_radius`` over their ridges.

    Args:
        state: The posterior.
        noise_std: Sub-Gaussian constant of the noise, in units of the targets.
        delta: Probability that the bounds may fail.
        scale: Covariance scale c of the mixture, or several.
        many: Whether other ridges are needed too, so that ``a0`` is best answered with them, from ``across()``.
    """
    checks.instance("state", state, Posterior)
    checks.flag("many", many)
    checks.probability("delta", delta)
    return averaged_radius(state, noise_std, delta, mixture_ridges(noise_std, scale), many=many)


def averaged_radius(
    state: Posterior,
    noise_std: float,
    delta: float,
    ridges: Sequence[float],
    *,
    many: bool = False,
    floor: float = 0.0,
) -> float:
    """Return ``R^2``, ``averaged`` over fixed ridges; arguments as for ``squared_radius``.

    For ridges below ``floor`` an upper bound is read there: ``quad(a)`` grows with a, ``log_det(a) - n ln(1/a)`` too.
    """
    above = [max(ridge, floor) for ridge in ridges]
    found = costs(state, noise_std, delta, above, many=many or len(above) > 1)[1]
    missing = [state.n * math.log(b / a) for a, b in zip(ridges, above, strict=True)]
    return averaged(
        [cost + noise_std**2 * gain for cost, gain in zip(found, missing, strict=True)], noise_std
    )


def costs(
    state: Posterior, noise_std: float, delta: float, ridges: Sequence[float], *, many: bool
) -> tuple[list[float], list[float]]:
    """Return ``quad(a)`` and ``quad(a) + s log_det(a) + 2 s ln(1/delta)`` with s = noise_std^2, [r] each.

    For the residual ``E = K - K~ >= 0`` of an approximate state the latter is an upper bound of its exact value:
    ``quad`` only grows, and ``det(I + A + E')`` is at most ``det(I + A) det(I + E')``.
    """
    answers: Any = state.across() if many else state  # which has a factor for one ridge
    found, s = torch.stack([answers.quad(ridges), answers.log_det(ridges)]).tolist(), noise_std**2
    rows, error = zip(*found, ridges, strict=True), state.error
    return found[0], [
        quad + s * (gain + error.log_det(a) + 2 * math.log(1 / delta)) for quad, gain, a in rows
    ]


def averaged(costs: Sequence[float], noise_std: float) -> float:
    """Return ``R^2 = -2 s ln mean_a exp(-cost(a) / (2 s))`` with s = noise_std^2.

    The mean over the ridges of the martingales of Flynn & Reeb (2024) is one too (docs/theory/mixtures.md): R^2 is at
    most ``2 s ln r`` above that of the best of r ridges.
    """
    s, best = (
        noise_std**2,
        min(costs),
    )  # the others are relative to it, which cannot underflow as a whole
    return best - 2 * s * math.log(
        sum(math.exp((best - cost) / (2 * s)) for cost in costs) / len(costs)
    )


def refuted(
    reason: str, noise_std: float, norm_bound: float, delta: float, **figures: float
) -> RefutedAssumptions:
    """Return the exception of an empty confidence set."""
    return RefutedAssumptions(
        f"The data refute the assumptions: {reason}. Raise norm_bound or noise_std, or change the kernel; if they "
        f"are right, this happens with probability at most delta = {delta:g}",
        norm_bound=norm_bound,
        noise_std=noise_std,
        **figures,
    )


def refuse_if_refuted(
    state: Posterior, noise_std: float, norm_bound: float, delta: float, scale: Scale = 1.0
) -> None:
    """Raise RefutedAssumptions if no function of norm at most ``norm_bound`` fits the data of ``state``."""
    checks.positive("norm_bound", norm_bound)
    if (least := norm_lower_bound(state, noise_std, delta, scale)) > norm_bound:
        raise refuted(TOO_LARGE, noise_std, norm_bound, delta, n=state.n, norm_at_least=least)


def ridge_range(state: Posterior, a0: float) -> tuple[float, float]:
    """Return the limits of a search around a0: from the precision of ``K + a I`` to where only the prior is left."""
    low = (
        min(10 * max(state.n, 1) * state.error.least_ridge, 0.1 * a0) or 1e-10 * a0
    )  # a least ridge of 0 is allowed
    return low, 1e12 * max(state.trace, a0)


def search_grid(ridges: Sequence[float], low: float, high: float) -> list[float]:
    """Return the limits of a search, these ridges and their geometric means, and wider and wider steps beyond them."""
    inner, steps = (
        [math.sqrt(a * b) for a, b in pairwise(ridges)],
        [3.0 ** (1.5**j - 0.5) for j in range(10)],
    )
    outer = [ridges[0] / step for step in steps] + [ridges[-1] * step for step in steps]
    return [
        low,
        *sorted([ridge for ridge in (*ridges, *inner, *outer) if low < ridge < high]),
        high,
    ]


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
    """Return ``B_low``, the largest B at which ``(R + B sqrt|E|)^2 + a B^2 = quad(a)`` for some ridge a, or 0.

    For an exact state (E = 0) that is ``sqrt(max over a of (quad(a) - R^2) / a, 0)``. With probability 1 - delta, for
    all n at once and on the same event as the mixture bounds, the function has at least this norm: for a smaller
    norm bound F is empty (Flynn & Reeb 2024, Lemma 4.2 and Cor. 4.3; R does not contain B).

    Args:
        state: The posterior, in float64: rounding in float32 is not accounted for.
        noise_std: Sub-Gaussian constant of the noise, in units of the targets.
        delta: Probability that the bound may fail, ever.
        scale: Covariance scale of the mixture, or several.
        ridges: Take the maximum over these ridges only, which gives a smaller, still valid bound; by default over
            all of them: concave over affine, the ratio has a single peak, which one search finds.
        rounded_down: Whether the bound is lowered by what rounding may have done, and read at no ridge where that is
            not small (docs/theory/rounding.md); without, it is no bound.
    """
    checks.instance("state", state, Posterior)
    checks.probability("delta", delta)
    own = mixture_ridges(noise_std, scale)
    rounded = state.error.rounding if rounded_down else Rounding(0.0, 0.0)
    if math.isinf(floor := rounding.least_ridge(rounded)):
        return 0.0
    factor = rounding.radius_factor(
        rounding.accounted(rounded, max(own[0], floor)), state.error.terms, delta
    )
    square = factor * averaged_radius(state, noise_std, delta, own, many=True, floor=floor)
    return _least_norm(state, square, factor * state.error.norm(), own, rounded, floor, ridges)


def unexplained(confidence: Any, state: Posterior) -> bool:
    """Return whether the values are further from every function of the norm than the noise is (docs/theory/noise.md).

    Of several hypotheses: of all. So a true one is never left out by this test, which has a probability of its own to
    be wrong, and the bounds hold as they are. False for bounds that do not assume both noise level and norm.

    Args:
        confidence: The bound.
        state: The posterior.
    """
    return all(
        isinstance(norm_bound := getattr(one, "norm_bound", None), float)
        and one.noise_std is not None
        and norm_by_energy(own, one.noise_std, ENERGY * one.delta) > norm_bound
        for one, own in confidence.hypotheses(state)
    )


@torch.no_grad()
def norm_by_energy(state: Posterior, noise_std: float, alpha: float) -> float:
    """Return the least norm of a function whose residuals are no larger than the noise, or 0 (docs/theory/noise.md).

    The energy ``|xi|^2`` of sub-Gaussian noise is below that of ``kbo.confidence.energy`` for all n at once, with
    probability ``1 - alpha``, and a function of a smaller norm leaves more. Unlike ``norm_lower_bound``, whose radius
    grows with the misfit of its own predictions, this notices a kernel that is too smooth for the data.

    Args:
        state: As for ``norm_lower_bound``.
        noise_std: As there.
        alpha: Probability that the function has a smaller norm, ever.

    Returns:
        The norm, in units of the targets over those of the root of the kernel.
    """
    rounded, own = state.error.rounding, [noise_std**2]
    if math.isinf(floor := rounding.least_ridge(rounded)) or not state.n:
        return 0.0
    square = noise_std**2 * averaged_energy(state.n, alpha, strict=False)[1]
    return _least_norm(state, square, state.error.norm(), own, rounded, floor)


def _least_norm(
    state: Posterior,
    square: float,
    error: float,
    own: Sequence[float],
    rounded: Rounding,
    floor: float,
    ridges: Sequence[float] | None = None,
) -> float:
    """Return the largest B at which ``(R + B sqrt|E|)^2 + a B^2 = quad(a)`` for some ridge a, or 0.

    Args:
        state: The posterior.
        square: ``R^2``.
        error: ``|E|``.
        own: Ridges around which the search over a begins.
        rounded: Errors that rounding may have made.
        floor: The least ridge that is read.
        ridges: As for ``norm_lower_bound``.
    """
    answers = state.across().in_numbers([])

    def least_norm(a: float) -> float:
        # (R + B sqrt|E|)^2 + a B^2 = quad(a) is a quadratic equation in B; negative where no B > 0 is refuted.
        e, (*_, quad) = rounding.accounted(rounded, a), answers(a)
        excess = quad * (1 - 2 * e) / (1 + e) - square
        if excess > 0:
            excess = math.sqrt(square * error + (a + error) * excess) - math.sqrt(square * error)
        return excess / (a + error)

    if ridges is not None:
        return max(0.0, *(least_norm(max(ridge, floor)) for ridge in as_ridges(ridges, "ridges")))
    low, high = (max(ridge, floor) for ridge in ridge_range(state, own[0]))
    grid = search_grid(starts(own), low, high)
    begin, start = bisect_left(grid, own[0]), [math.log(ridge) for ridge in grid]
    return max(0.0, -minimise_one(lambda t: -least_norm(math.exp(t)), start, begin)[1])
