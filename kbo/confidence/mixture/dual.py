"""The exact bound over the confidence set of a martingale mixture, a minimum over the ridge.

With ``C = (R + B sqrt|E|)^2`` and ``R^2(a) = C + a B^2 - quad(a)`` every ridge a bounds f over the set F,

    h(a; x) = mean(x; a) + sqrt(R^2(a) / a) sqrt(variance(x; a)) >= max over F of f(x)    (Flynn & Reeb 2024, eq. 13),

and the least of them is the maximum (Thm 4.4, strong duality). h has a single valley in a: the Lagrange dual
g(eta_1, eta_2) of the maximisation is jointly convex and ``h(a) = min over s > 0 of g(s, s a)``, so a sublevel set of
h is the image of a convex set under ``(eta_1, eta_2) -> eta_2 / eta_1``, an interval. A bracketed search over ln a
is therefore exact, and wherever it stops, h is a valid bound.

If F is empty, ``R^2(a) < 0`` on an interval of ridges, where the infimum over s is minus infinity, and so is h here.
Every sublevel set contains that interval, so h falls towards it from both sides: the search runs into it.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kbo._base.devices import on_host
from kbo._base.linalg import safe_sqrt
from kbo.confidence.mixture.line_search import minimise, minimise_one
from kbo.regression import AllRidges, Moments

_ON_HOST = 8
"""Points up to which the minimum of h is searched on the host, one point after the other."""

_REFINED = 8
"""Points that are refined in search of the largest lower bound."""

_TOGETHER = 32
"""Points up to which h at one ridge is computed on the host."""

_COARSE = 1e-3
"""Tolerance in ln a of the search at one point: its bound is then off by about the square."""

_TIE = 1e-7
"""Relative difference below which two bounds count as equal."""


class Dual:
    """h over some points, on one or both sides.

    Args:
        all_ridges: The posterior at any ridge, with G groups of one point each.
        signs: 1 bounds f from above; -1 bounds -f from above.
        squared_width: Maps quad and ridges, tensors or numbers, to ``R^2(a) / a``, negative where F is empty.
        limits: Increasing ridges, numbers, among which every search begins; the outer ones are its limits.
        start: Some of them, at which h is read before the search.

    Attributes:
        coarse: h at these ridges, [r SG], the points once for each of S signs.
    """

    def __init__(
        self,
        all_ridges: AllRidges,
        signs: Sequence[int],
        squared_width: Callable[[Any, Any], Any],
        limits: Sequence[float],
        start: Sequence[float],
    ) -> None:
        self.squared_width: Callable[[Any, Any], Any] = squared_width
        self.log_limits: list[float] = list(map(math.log, limits))
        self.log_start: list[float] = list(map(math.log, start))
        with torch.no_grad():
            moments = all_ridges.grid(start)
        each, ridges = (
            torch.arange(moments.mean.shape[1], device=moments.mean.device),
            moments.mean.new_tensor(start),
        )
        self.all_ridges: AllRidges = (
            all_ridges if len(signs) == 1 else all_ridges.select(each.repeat(len(signs)))
        )
        self.signs: Tensor = moments.mean.new_tensor(signs).repeat_interleave(len(each))
        self.host_signs: np.ndarray = np.repeat(signs, len(each))
        values = [self._h_or_minus_infinity(moments, ridges.unsqueeze(-1), sign) for sign in signs]
        self.coarse: Tensor = torch.cat(values, -1)

    def _h(self, moments: Moments, ridges: Tensor, signs: Tensor | int) -> tuple[Tensor, Tensor]:
        """Return h, and whether the ridge proves that F is empty."""
        square = self.squared_width(moments.quad, ridges)
        width = square.clamp_min(0).sqrt().to(moments.mean)
        return signs * moments.mean[..., 0] + width * safe_sqrt(
            moments.covariance[..., 0, 0]
        ), square < 0

    def _h_or_minus_infinity(self, moments: Moments, ridges: Tensor, signs: Tensor | int) -> Tensor:
        """Return h as the search sees it, minus infinity where F is empty."""
        h, empty = self._h(moments, ridges, signs)
        return h.masked_fill(empty, -math.inf)

    def _h_of(self, all_ridges: AllRidges, signs: Tensor) -> Callable[[Tensor], Tensor]:
        """Return h of points as a function of their log ridges."""
        return lambda t: self._h_or_minus_infinity(all_ridges.at(ridges := t.exp()), ridges, signs)

    def value(self) -> tuple[Tensor, Tensor]:
        """Return the minima [SG], and whether some ridge proves that F is empty, [].

        The minima are differentiable in the points at the minimising ridges (envelope theorem).
        """
        ridges, minima = (
            self._minimise_few() if 0 < len(self.signs) <= _ON_HOST else self._minimise_all()
        )
        return self._h(self.all_ridges.at(ridges), ridges, self.signs)[0], minima.isneginf().any()

    @torch.no_grad()
    def _minimise_all(self) -> tuple[Tensor, Tensor]:
        """Return the minimising ridges and the minima [SG], all points together."""
        h, grid = self._h_of(self.all_ridges, self.signs), self.coarse.new_tensor(self.log_start)
        t, minima = minimise(
            h,
            lambda rows: self._h_of(self.all_ridges.select(rows), self.signs[rows]),
            grid,
            self.coarse,
        )
        return t.exp(), minima

    def _minimise_few(self) -> tuple[Tensor, Tensor]:
        """Return the same for a few points: one after the other, on the host."""
        h, where = (
            cache(self._h_on_host(range(len(self.host_signs)))),
            self.coarse.argmin(0).tolist(),
        )
        found = [
            self._minimise_one(lambda t, row=row: h(t)[row], self.log_start[j])
            for row, j in enumerate(where)
        ]
        t, minima = self.signs.new_tensor(np.array(found)).unbind(-1)
        return t.exp(), minima

    def _h_on_host(self, rows: Sequence[int]) -> Callable[[float], np.ndarray]:
        """Return h of a few points as a function of one log ridge, on the host: ``_h`` without gradients."""
        moments_at, signs = self.all_ridges.on_host(rows), self.host_signs[list(rows)]

        def h(t: float) -> np.ndarray:
            means, variances, quad = moments_at(ridge := math.exp(t))
            square = self.squared_width(quad, ridge)
            return (
                np.full(len(means), -math.inf)
                if square < 0
                else signs * means + np.sqrt(square * variances)
            )

        return h

    def _h_on_device(self, rows: np.ndarray, t: float) -> np.ndarray:
        """Return h of many points at one log ridge, which their device computes."""
        index, ridge = torch.from_numpy(rows).to(self.coarse.device), math.exp(t)
        h = self._h_or_minus_infinity(
            self.all_ridges.select(index).grid([ridge]),
            self.coarse.new_tensor([ridge]),
            self.signs[index],
        )
        return on_host(h)[0][0]

    def _h_of_one(self, row: int) -> Callable[[float], float]:
        """Return h of one point as a function of its log ridge, in plain numbers."""
        h = self._h_on_host([row])
        return lambda t: float(h(t)[0])

    def _minimise_one(
        self,
        h: Callable[[float], float],
        start: float,
        tolerance: float = 1e-4,
        enough: float = -math.inf,
    ) -> tuple[float, float]:
        """Return the log ridge that minimises h of one point and the minimum, or one where h is low enough."""
        begin = bisect_left(self.log_limits, start, hi=len(self.log_limits) - 1)
        return minimise_one(h, self.log_limits, begin, tolerance, enough)

    @torch.no_grad()
    def argmax_upper(self) -> tuple[int, float]:
        """Return the point with the largest minimum, and that minimum, refining few points.

        Every ridge bounds every point, so the first ridges bound all of them, and the ridge of a refined point lowers
        the bounds of the others too. Once nothing is above the best refined point, no other minimum can be larger.
        Minima that differ by less than a ten-millionth count as equal; the value is never below any of them. It is
        minus infinity if F is empty, and NaN where h is.
        """
        least_on_grid, ridge_of = self.coarse.min(0)
        bounds, where = on_host(least_on_grid, ridge_of.to(least_on_grid))
        best, value, least, known = -1, -math.inf, -math.inf, [*self.log_start]
        while bounds[row := int(bounds.argmax())] > least:
            t, bounds[row] = self._minimise_one(
                self._h_of_one(row), known[int(where[row])], tolerance=_COARSE, enough=value
            )
            if bounds[row] > value:
                best, value, least = row, bounds[row], bounds[row] + _TIE * abs(bounds[row])
            known.append(t)
            if len(rivals := np.flatnonzero(bounds > least)):
                h = (
                    self._h_on_host(rivals.tolist())(t)
                    if len(rivals) <= _TOGETHER
                    else self._h_on_device(rivals, t)
                )
                where[rivals[h < bounds[rivals]]] = len(known) - 1
                bounds[rivals] = np.minimum(bounds[rivals], h)  # NaN stays, and ends the search
        return best, float(bounds[row])

    @torch.no_grad()
    def argmax_lower(self) -> tuple[int, float]:
        """Return a point with nearly the smallest minimum, and that minimum: the best of the few smallest on the grid.

        For lower bounds (sign -1). The very smallest minimum would need a search at every point; the value is a valid
        bound of the point that is returned.
        """
        bounds, where = self.coarse.min(0)
        few = bounds.topk(min(_REFINED, len(bounds)), largest=False).indices.sort().values
        found = zip(*torch.stack([few, where[few]]).tolist(), strict=True)
        values = [
            (self._minimise_one(self._h_of_one(row), self.log_start[j])[1], row) for row, j in found
        ]
        value, row = min(values)
        return row, value
