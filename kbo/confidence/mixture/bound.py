"""Martingale-mixture confidence sequences of Flynn & Reeb (2024), arXiv:2403.12732.

Notation: sigma = noise_std, B = norm_bound, c = scale, a0 = sigma^2 / c.

On paper                                                           | in code
``R^2 = quad(a0) + sigma^2 log_det(a0) + 2 sigma^2 ln(1/delta)``   | ``radius.squared_radius``     (eq. 8)
``F = {f : |f(x_1..n) - y| <= R, ||f|| <= B}``                     | contains f* w.p. 1 - delta     (Lemma 4.2)
``R^2(a) = (R + B sqrt|E|)^2 + a B^2 - quad(a)``                   | ``_squared_width`` is R^2(a)/a (Cor. 4.3)
``h(a; x) = mean(x; a) + sqrt(R^2(a) / a) sqrt(variance(x; a))``   | every a bounds max f(x) over F (eq. 13)
AMM: h at one a;  DMM: min of h over a grid;  CMM: over all a > 0  | ``kind``

All bounds hold for all n and all x at once. ``R^2(a) < 0`` says that F is empty. E is the error of an approximate
kernel matrix (the state's residual), zero for exact states: every f in F fits the approximate features to within
``R + B sqrt|E|``, so the bounds stay valid whatever the approximation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from kbo._base import checks
from kbo._base.linalg import safe_sqrt
from kbo.confidence import rounding
from kbo.confidence.base import SubGaussian, checked_state, in_batches, one_set
from kbo.confidence.mixture.dual import Dual
from kbo.confidence.mixture.radius import (
    TOO_LARGE,
    Scale,
    averaged,
    averaged_radius,
    checked_scale,
    costs,
    mixture_ridges,
    norm_lower_bound,
    refuted,
    ridge_range,
    search_grid,
    starts,
)
from kbo.errors import InvalidInput
from kbo.regression import Posterior, Rounding
from kbo.regression.numerics import as_ridges
from kbo.regression.provenance import Number

KINDS = ("amm", "dmm", "cmm")


class _Read(NamedTuple):
    """Numbers of a posterior.

    Attributes:
        C: The squared radius, rounded up.
        rounded: The error of rounding at any ridge.
        widths: ``sqrt(R^2(a) / a)`` at the ridges of the confidence.
        grid: The ridges of a search: its limits, and those between them where it may begin.
    """

    C: float
    rounded: Rounding
    widths: list[float]
    grid: list[float]


class MartingaleMixture(SubGaussian):
    """AMM, DMM and CMM bounds; on an exact state tighter than ``SelfNormalized`` at equal ridge (Thm 6.3).

    "cmm" is the exact maximum over F (Thm 4.4), the tightest bound that the set of functions allows, at about the
    cost of "dmm": see ``dual.py``.

    Args:
        noise_std, norm_bound, delta: As for ``SelfNormalized``.
        kind: "amm" (one ridge), "dmm" (best of a grid of ridges) or "cmm" (best of all ridges).
        scale: Covariance scale c > 0 of the mixture, a0 = noise_std^2 / scale; or several, over which the martingale is
            averaged, for example ``MIXED_SCALES``: nearly as tight as the best of them, which need not be known.
        ridges: The ridges of "amm" and "dmm", in units of the kernel; by default a0 for "amm" and 0.1, 0.3, 1, 3, 10
            times a0 for "dmm". With several scales that of the middle one for "amm", and those of all for "dmm". Any
            fixed choice is valid.

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
        self._known: tuple[int, _Read] | None = None
        self.scale: Scale = checked_scale(scale)
        self._mixture_ridges = mixture_ridges(self.noise_std, self.scale)
        self.kind: str = checks.one_of("kind", kind, KINDS)
        if kind == "cmm" and ridges is not None:
            raise InvalidInput(
                'kind="cmm" takes the best of all ridges: do not pass ridges, or use kind="dmm".'
            )
        own = self._mixture_ridges
        default = own[len(own) // 2 :][:1] if kind == "amm" else starts(own)
        self.ridges: tuple[float, ...] = tuple(
            default if ridges is None else as_ridges(ridges, "ridges")
        )
        if kind == "amm" and len(self.ridges) != 1:
            raise InvalidInput(
                f'ridges must be a single one for kind="amm", got {len(self.ridges)}.'
            )

    @property
    def mixture_ridge(self) -> float:
        """``a0 = noise_std^2 / scale``, the least one of several."""
        return self._mixture_ridges[0]

    def _least_ridge(self, state: Posterior) -> float:
        """Return the least of the ridges and a0; the search of "cmm" goes below it only as far as rounding allows."""
        return min(self.mixture_ridge, *self.ridges)

    def interval(self, state: Posterior, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return the largest lower and the smallest upper bound over the ridges.

        Raises:
            RefutedAssumptions: The set of functions with norm at most ``norm_bound`` that fit the data is empty.
        """
        (lower, upper), empty = self._bounds(state, X, (-1, 1))
        crossed = lower - upper > 1e-6 * (lower.abs() + upper.abs())
        if bool(torch.stack([crossed.any(), *empty]).any()):
            self._refuse_if_refuted(state)
            # Crossing is a contradiction only for observed data, since hypothetical points shrink variances without
            # evidence, and only where rounding is small.
            doubtful = state.provenance.hypothetical or rounding.objections(
                state, self._least_ridge(state)
            )
            if bool(crossed.any()) and not doubtful:
                self._refuted(
                    "lower and upper bound cross", n=state.n, crossing=float((lower - upper).max())
                )
        return lower, upper

    def upper(self, state: Posterior, X: Tensor) -> Tensor:
        return self._side(state, X, 1)

    def lower(self, state: Posterior, X: Tensor) -> Tensor:
        return self._side(state, X, -1)

    def quick_interval(self, state: Posterior, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return the bounds at the ridges of the grid: for "cmm" those of "dmm"."""
        mean, margin = self._candidates(state, in_batches(state, X))
        return (mean - margin).amax(0), (mean + margin).amin(0)

    def argmax_upper(self, state: Posterior, X: Tensor) -> tuple[int, float]:
        if self.kind != "cmm":
            return super().argmax_upper(state, X)
        row, value = self._dual(state, one_set(state, X), (1,), self.ridges).argmax_upper()
        return (row, value) if math.isfinite(value) else super().argmax_upper(state, X)

    def argmax_lower(self, state: Posterior, X: Tensor) -> tuple[int, float]:
        if self.kind != "cmm":
            return super().argmax_lower(state, X)
        row, value = self._dual(state, one_set(state, X), (-1,)).argmax_lower()
        return (row, -value) if math.isfinite(value) else super().argmax_lower(state, X)

    def _side(self, state: Posterior, X: Tensor, sign: int) -> Tensor:
        (bound,), empty = self._bounds(state, X, (sign,))
        if any(empty):
            self._refuse_if_refuted(state)
        return bound

    def _bounds(
        self, state: Posterior, X: Tensor, signs: Sequence[int]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Return upper (sign 1) or lower (sign -1) bounds [...], and for a search whether a ridge proves F empty."""
        X = in_batches(state, X)
        if self.kind == "cmm":
            values, empty = self._dual(state, X, signs).value()
            sides = values.reshape(len(signs), *X.shape[:-1])
            return [sign * side for sign, side in zip(signs, sides, strict=True)], [empty]
        mean, margin = self._candidates(state, X)
        return [
            (mean + margin).amin(0) if sign > 0 else (mean - margin).amax(0) for sign in signs
        ], []

    def _candidates(self, state: Posterior, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean and ``sqrt(R^2(a) / a) sqrt(variance)`` for every ridge a, [r ...] each."""
        widths = self._read(state).widths
        if self.kind == "amm":  # one ridge, for which the state has a factor
            moments = [state.at(ridge).predict(X) for ridge in self.ridges]
            mean, variance = map(torch.stack, zip(*moments, strict=True))
        else:
            moments = state.across(checks.shaped("X", X).unsqueeze(-2)).grid(self.ridges)
            mean, variance = (part.reshape(len(self.ridges), *X.shape[:-1]) for part in moments[:2])
        return mean, mean.new_tensor(widths).reshape(-1, *[1] * (mean.ndim - 1)) * safe_sqrt(
            variance
        )

    def _dual(
        self,
        state: Posterior,
        X: Tensor,
        signs: Sequence[int],
        ridges: Sequence[float] | None = None,
    ) -> Dual:
        """Return the dual over the points of X [... d], read at these ridges first; None for all of the grid.

        A search for the best of many points reads a few ridges first, and leaves out the points that cannot be it.
        """
        flat = X if checks.shaped("X", X).ndim > 1 else X.unsqueeze(0)
        read = self._read(state)
        squared_width = partial(self._squared_width, read.C, read.rounded)
        start = read.grid if ridges is None else ridges
        return Dual(state.across(flat.unsqueeze(-2)), signs, squared_width, read.grid, start)

    def _read(self, state: Posterior) -> _Read:
        """Return what the bounds need of the posterior alone, read from its device once after every change.

        Raises:
            RefutedAssumptions: ``R^2(a)`` is negative for one of the ridges, by more than rounding, so F is empty.
        """
        known, state = self._known, checked_state(state)
        if known is None or known[0] != state.version:
            ridges = [
                *self.ridges,
                *(ridge for ridge in self._mixture_ridges if ridge not in self.ridges),
            ]
            many = self.kind != "amm" or len(self._mixture_ridges) > 1
            quads, values = costs(state, self.noise_std, self.delta, ridges, many=many)
            error, cost = state.error, dict(zip(ridges, values, strict=True))
            C = self._widened(
                averaged([cost[ridge] for ridge in self._mixture_ridges], self.noise_std),
                error.norm(),
            )
            rounded, e = error.rounding, rounding.accounted(error.rounding, self.mixture_ridge)
            C *= rounding.radius_factor(e, error.terms, self.delta)
            squares = [
                self._squared_width(C, rounded, *pair)
                for pair in zip(quads[: len(self.ridges)], self.ridges, strict=True)
            ]
            if min(squares) < 0:
                self._refuse_if_refuted(state)
            low, high = ridge_range(state, self.mixture_ridge)
            low = max(low, min(rounding.least_ridge(rounded), self.ridges[0]))
            high = max(high, 1e12 * C / self.norm_bound**2)
            widths = [math.sqrt(max(square, 0.0)) for square in squares]
            self._known = known = (
                state.version,
                _Read(C, rounded, widths, search_grid(self.ridges, low, high)),
            )
        return known[1]

    def widened_squared_radius(self, state: Posterior) -> float:
        """Return ``(R + B sqrt|E|)^2``: the squared radius of F, widened by the error of an approximate state."""
        many = self.kind != "amm"
        square = averaged_radius(state, self.noise_std, self.delta, self._mixture_ridges, many=many)
        return self._widened(square, state.error.norm())

    def _widened(self, square: float, error: float) -> float:
        return (math.sqrt(square) + self.norm_bound * math.sqrt(error)) ** 2

    def _squared_width(self, C: float, rounded: Rounding, quad: Number, ridges: Number) -> Number:
        """Return ``R^2(a) / a``, with what rounding may do to mean and variance; negative where F is empty.

        Args:
            C: The squared radius, rounded up.
            rounded: The error of rounding.
            quad: ``quad`` at the ridges.
            ridges: The ridges a.
        """
        # With S = C + a B^2, (1 + 10 e) (S (1 + 5 e) - quad) / a is at least the square of the widened width
        # (docs/theory/rounding.md).
        e = rounding.accounted(rounded, ridges)
        slack = (C + self.norm_bound**2 * ridges) * (1 + 5 * e) - quad
        return slack * (1 + 10 * e) / ridges

    def _refuse_if_refuted(self, state: Posterior) -> None:
        """Raise RefutedAssumptions if F is empty by more than rounding."""
        if (
            least := norm_lower_bound(state, self.noise_std, self.delta, self.scale)
        ) > self.norm_bound:
            self._refuted(TOO_LARGE, n=state.n, norm_at_least=least)

    def _refuted(self, reason: str, **figures: float) -> None:
        raise refuted(reason, self.noise_std, self.norm_bound, self.delta, **figures)
