"""The martingale-mixture bounds AMM, DMM and CMM: Flynn & Reeb (2024), arXiv:2403.12732.

``confidence_set.py`` has the confidence set F, its radius R and the bound ``h(a; x) >= f(x)`` for all
f in F. AMM is h at one ridge a, DMM the least h of a grid of ridges, and CMM the least h of all
ridges, which is the maximum over F (Thm 4.4, Thm 4.5; ``ExactBound``). F is empty if B is below the
least norm that fits (``norm_lower_bound``).

All bounds hold for all n and all x at once, with probability 1 - delta.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from kbo._base import checks
from kbo._base.linalg import safe_sqrt
from kbo.confidence import rounding
from kbo.confidence.base import checked_candidates, checked_state
from kbo.confidence.confidence_set import (
    ConfidenceSet,
    Scale,
    checked_scale,
    confidence_set,
    fits_at,
    h,
    mixture_ridges,
    radius_of,
    widened_squared_radius,
)
from kbo.confidence.exact import ExactBound
from kbo.confidence.least_norm import TOO_LARGE, norm_lower_bound, refuted
from kbo.confidence.ridge_search import dmm_ridges, ridge_range, search_grid
from kbo.confidence.self_normalized import SubGaussian
from kbo.errors import InvalidInput
from kbo.regression import AllRidges, Posterior
from kbo.regression.numerics import as_ridges

KINDS = ("amm", "dmm", "cmm")


class _Numbers(NamedTuple):
    """The numbers of a posterior that the bounds at all points share.

    Attributes:
        F: The confidence set.
        squared_widths: ``R^2(a) / a`` at the r ridges of the confidence, at least 0, [r].
        grid: Increasing ridges from which an exact search starts; the outer ones are its limits.
    """

    F: ConfidenceSet
    squared_widths: Tensor
    grid: list[float]


class MartingaleMixture(SubGaussian):
    """Tight bounds for functions of known norm and noise of known level: AMM, DMM or CMM.

    Flynn & Reeb (2024). The proof averages ("mixes") martingales. "cmm" is the exact maximum over F
    (Theorem 4.4), the tightest bound for this set of functions, at about the cost of "dmm". On an
    exact posterior whose ridge is ``a0 = noise_std^2 / scale``, "amm" at this ridge is tighter than
    ``SelfNormalized`` (Theorem 6.3). At other ridges it may be wider.

    Args:
        noise_std, norm_bound, delta: As for ``SelfNormalized``.
        kind: "amm" (one ridge), "dmm" (best of a grid of ridges) or "cmm" (best of all ridges).
        scale: Covariance scale c > 0 of the mixture, with a0 = noise_std^2 / c. With several
            scales, for example ``MIXED_SCALES``, the martingales are averaged: the bound is nearly
            as tight as with the best of them.
        ridges: The ridges of "amm" and "dmm", in units of the kernel. By default a0 for "amm", and
            0.1, 0.3, 1, 3, 10 times a0 for "dmm"; with several scales the middle a0 for "amm", and
            every a0 for "dmm". Any fixed choice is valid.

    Raises:
        InvalidInput: A number out of its range, or an unknown kind.
    """

    covers: frozenset[str] = frozenset({"sketch", "weights", "moved ridge"})

    def __init__(
        self,
        noise_std: float,
        norm_bound: float,
        delta: float,
        kind: str = "cmm",
        scale: Scale = 1.0,
        ridges: Sequence[float] | None = None,
    ) -> None:
        super().__init__(noise_std, norm_bound, delta)
        self.scale: Scale = checked_scale(scale)
        self.kind: str = checks.one_of("kind", kind, KINDS)
        self._mixture_ridges = mixture_ridges(self.noise_std, self.scale)
        self._cached: tuple[int, _Numbers] | None = None  # version of the posterior, its numbers
        self.ridges: tuple[float, ...] = _checked_ridges(kind, ridges, self._mixture_ridges)

    @property
    def mixture_ridge(self) -> float:
        """``a0 = noise_std^2 / scale``; with several scales the least a0."""
        return self._mixture_ridges[0]

    def interval(self, state: Posterior, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return the largest lower and the smallest upper bound over the ridges, [...] each.

        Raises:
            RefutedAssumptions: No function of norm at most ``norm_bound`` fits the data.
        """
        lower, upper = self._bounds(state, X, (-1, 1))
        has_crossed = lower - upper > 1e-6 * (lower.abs() + upper.abs())
        if bool(has_crossed.any()):
            self._refuse_crossing(state, float((lower - upper).max()))
        return lower, upper

    def upper(self, state: Posterior, X: Tensor) -> Tensor:
        return self._bounds(state, X, (1,))[0]

    def lower(self, state: Posterior, X: Tensor) -> Tensor:
        return self._bounds(state, X, (-1,))[0]

    def quick_interval(self, state: Posterior, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return the bounds [...] from ``ridges`` alone, which for "cmm" are the "dmm" bounds."""
        lower, upper = self._bounds_on_grid(state, in_batches(state, X), (-1, 1))
        return lower, upper

    def argmax_upper(self, state: Posterior, X: Tensor) -> tuple[int, float]:
        if self.kind == "cmm":
            posterior = state.across(checked_candidates(state, X).unsqueeze(-2))
            row, upper = self._exact(state, posterior, 1, self.ridges).argmax_upper()
            if math.isfinite(upper):
                return row, upper
        return super().argmax_upper(state, X)

    def argmax_lower(self, state: Posterior, X: Tensor) -> tuple[int, float]:
        """Return a row of X [A d] with the largest lower bound (for "cmm" nearly), and its bound."""
        if self.kind == "cmm":
            posterior = state.across(checked_candidates(state, X).unsqueeze(-2))
            row, negative_lower = self._exact(state, posterior, -1).argmax_lower()
            if math.isfinite(negative_lower):
                return row, -negative_lower
        return super().argmax_lower(state, X)

    def widened_squared_radius(self, state: Posterior) -> float:
        """Return the squared radius of F, widened by the error of an approximate state."""
        fits = fits_at(state, self._mixture_ridges, spectral=self.kind != "amm")
        square = radius_of(fits, self.noise_std, self.delta)
        return widened_squared_radius(square, self.norm_bound, state.error.norm())

    def _bounds(self, state: Posterior, X: Tensor, signs: Sequence[int]) -> list[Tensor]:
        """Return upper (sign 1) and lower (sign -1) bounds [...] at X [... d]."""
        X = in_batches(state, X)
        if self.kind != "cmm":
            return self._bounds_on_grid(state, X, signs)
        posterior = state.across(X.unsqueeze(-2))
        bounds = []
        for sign in signs:
            minima, is_empty = self._exact(state, posterior, sign).minimum()
            if is_empty:
                self._refuse_if_refuted(state)
            bounds.append(sign * minima.reshape(X.shape[:-1]))
        return bounds

    def _bounds_on_grid(self, state: Posterior, X: Tensor, signs: Sequence[int]) -> list[Tensor]:
        """Return upper (sign 1) and lower (sign -1) bounds [...], the best of ``ridges``."""
        numbers = self._numbers(state)
        if self.kind == "amm":
            mean, variance = state.at(self.ridges[0]).predict(X)
            mean = mean.unsqueeze(0)
            variance = variance.unsqueeze(0)
        else:
            moments = state.across(X.unsqueeze(-2)).grid(self.ridges)
            mean = moments.mean.reshape(len(self.ridges), *X.shape[:-1])
            variance = moments.covariance.reshape(mean.shape)
        deviation = safe_sqrt(variance)  # [r ...], like the mean
        squared_width = numbers.squared_widths.to(mean).reshape(-1, *[1] * (mean.ndim - 1))
        return [sign * h(sign * mean, deviation, squared_width).amin(0) for sign in signs]

    def _exact(
        self,
        state: Posterior,
        posterior: AllRidges,
        sign: int,
        start: Sequence[float] | None = None,
    ) -> ExactBound:
        """Return the exact bound at the points of a posterior.

        h is first computed at the ridges ``start``, by default all of the grid. A search for the
        best of many points starts with few ridges, which exclude most points.
        """
        numbers = self._numbers(state)
        return ExactBound(numbers.F, posterior, sign, numbers.grid, start or numbers.grid)

    def _numbers(self, state: Posterior) -> _Numbers:
        """Return the shared numbers of the posterior, read from its device once after every change.

        Raises:
            RefutedAssumptions: F is empty: ``R^2(a)`` is negative at a ridge, by more than
                rounding.
        """
        if self._cached is None or self._cached[0] != state.version:
            self._cached = (state.version, self._computed_numbers(state))
        return self._cached[1]

    def _computed_numbers(self, state: Posterior) -> _Numbers:
        """Return the numbers of the posterior; errors as for ``_numbers``."""
        ridges = list(dict.fromkeys([*self.ridges, *self._mixture_ridges]))
        spectral = self.kind != "amm" or len(self._mixture_ridges) > 1
        fits = dict(zip(ridges, fits_at(state, ridges, spectral), strict=True))
        of_mixture = [fits[ridge] for ridge in self._mixture_ridges]
        square = radius_of(of_mixture, self.noise_std, self.delta)
        F = confidence_set(state, square, self.norm_bound, self.delta, self.mixture_ridge)
        quads = _host_tensor([fits[ridge].quad for ridge in self.ridges])
        squared_widths = F.squared_width(quads, _host_tensor(self.ridges))
        if bool((squared_widths < 0).any()):
            self._refuse_if_refuted(state)
        low, high = ridge_range(state, self.mixture_ridge)
        low = max(low, min(rounding.least_ridge(F.rounding), self.ridges[0]))
        high = max(high, 1e12 * F.squared_radius / self.norm_bound**2)
        grid = search_grid(self.ridges, low, high)
        return _Numbers(F, squared_widths.clamp_min(0), grid)

    def _least_norm(self, state: Posterior) -> float:
        return norm_lower_bound(state, self.noise_std, self.delta, self.scale)

    def least_ridge_on(self, state: Posterior) -> float:
        """Return the least of the ridges and a0; "cmm" searches below it only as rounding allows."""
        return min(self.mixture_ridge, *self.ridges)

    def _refuse_crossing(self, state: Posterior, crossing: float) -> None:
        """Raise RefutedAssumptions for a lower bound above an upper bound, if it proves anything."""
        self._refuse_if_refuted(state)
        # It proves nothing with hypothetical points, which are no evidence, or with large rounding.
        if state.provenance.hypothetical or rounding.objections(state, self.least_ridge_on(state)):
            return
        self._refuted("lower and upper bound cross", n=state.n, crossing=crossing)

    def _refuse_if_refuted(self, state: Posterior) -> None:
        """Raise RefutedAssumptions if F is empty by more than rounding."""
        least_norm = self._least_norm(state)
        if least_norm > self.norm_bound:
            self._refuted(TOO_LARGE, n=state.n, norm_at_least=least_norm)

    def _refuted(self, reason: str, **figures: float) -> None:
        raise refuted(reason, self.noise_std, self.norm_bound, self.delta, **figures)


def in_batches(state: Posterior, X: Tensor) -> Tensor:
    """Return points X [... q d], expanded to the batch shape of the posterior."""
    checks.shaped("X", X)
    if not checked_state(state).batch_shape:
        return X
    shapes = {"X": X.shape[:-2], "the posterior": state.batch_shape}
    return X.expand(*checks.batch_shape(**shapes), *X.shape[-2:])


def _checked_ridges(
    kind: str, ridges: Sequence[float] | None, a0s: Sequence[float]
) -> tuple[float, ...]:
    """Return the ridges at which a bound of this kind is computed.

    Args:
        kind: One of ``KINDS``.
        ridges: The given ridges, or None.
        a0s: The ridges of the mixture, increasing, on which the default depends.

    Raises:
        InvalidInput: A ridge is out of its range, or the kind takes none, or one alone.
    """
    if ridges is None and kind == "amm":
        return (a0s[len(a0s) // 2],)
    if ridges is None:
        return tuple(dmm_ridges(a0s))
    if kind == "cmm":
        raise InvalidInput(
            'kind="cmm" takes the best of all ridges: do not pass ridges, or use kind="dmm".'
        )
    checked = as_ridges(ridges)
    if kind == "amm" and len(checked) != 1:
        raise InvalidInput(f'ridges must be a single one for kind="amm", got {len(checked)}.')
    return tuple(checked)


def _host_tensor(numbers: Sequence[float]) -> Tensor:
    """Return numbers [r] as a tensor on the host, where the search over ridges runs."""
    return torch.tensor(numbers, dtype=torch.float64, device="cpu")
