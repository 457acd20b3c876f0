"""The exact maximum over the confidence set, CMM: Flynn & Reeb (2024), Theorem 4.4 and Theorem 4.5.

Every ridge a gives an upper bound ``h(a; x)`` of f(x) over F (eq. 13, ``confidence_set.py``). The
least of them is the maximum (strong duality). h has no local minimum besides the global one. Proof:
the Lagrange dual g(eta_1, eta_2) of the maximisation is jointly convex, and ``h(a) = min over s > 0
of g(s, s a)``. So every sublevel set of h is the image of a convex set under ``(eta_1, eta_2) ->
eta_2 / eta_1``, an interval. Therefore a bracketed search over ln a finds the minimum; and wherever
it stops, h is a valid bound.

If F is empty, ``R^2(a) < 0`` on an interval of ridges. There the infimum over s is minus infinity,
and h is set to minus infinity. Every sublevel set contains this interval, so h falls towards it
from both sides, and the search finds it.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from kbo._base.devices import on_host
from kbo._base.linalg import safe_sqrt
from kbo.confidence.confidence_set import ConfidenceSet, h
from kbo.confidence.ridge_search import (
    Bracket,
    bracket_by_walk,
    brackets_on_grid,
    minimise,
    minimise_one,
)
from kbo.regression import AllRidges, Moments

_ON_HOST = 8
"""Number of points up to which h is computed on the host, one ridge after the other."""

_REFINED = 8
"""Number of points whose exact lower bound is computed to find nearly the largest one."""

_COARSE = 1e-3
"""Tolerance in ln a of the search for the best point; the error of its bound is about the square."""

_TIE = 1e-7
"""Relative difference below which two bounds count as equal."""


class ExactBound:
    """The minimum of h over the ridge at some points.

    Args:
        F: The confidence set.
        posterior: The posterior at any ridge, with G groups of one point each.
        sign: 1 bounds f from above; -1 bounds -f from above.
        grid: Increasing ridges between which every search begins; the outer ones are its limits.
        start: The ridges of the grid at which h is computed before the search.

    Attributes:
        at_start: h at the ridges ``start``, [r G].
    """

    def __init__(
        self,
        F: ConfidenceSet,
        posterior: AllRidges,
        sign: int,
        grid: Sequence[float],
        start: Sequence[float],
    ) -> None:
        self.F: ConfidenceSet = F
        self.posterior: AllRidges = posterior
        self.sign: int = sign
        self.log_grid: list[float] = list(map(math.log, grid))
        self.log_start: list[float] = list(map(math.log, start))
        with torch.no_grad():
            moments = posterior.grid(start)
        ridges = moments.mean.new_tensor(start).unsqueeze(-1)
        self.at_start: Tensor = self._h_or_minus_infinity(moments, ridges)

    def minimum(self) -> tuple[Tensor, bool]:
        """Return the minima [G], and True if a ridge proves that F is empty.

        The minima are differentiable in the points, at the minimising ridges (envelope theorem).
        """
        log_ridges, minima = self._minimised()
        ridges = log_ridges.exp()
        bounds, _ = self._h(self.posterior.at(ridges), ridges)
        return bounds, bool(minima.isneginf().any())

    @torch.no_grad()
    def argmax_upper(self) -> tuple[int, float]:
        """Return the point with the largest minimum, and that minimum.

        Only few points are searched. h at any ridge is an upper bound of the minimum at every
        point. So h at ``start`` bounds all minima, and the minimising ridge of one point lowers the
        bounds of the others too. The search ends when no bound exceeds the largest minimum so far.
        Minima that differ by less than a ten-millionth count as equal, and the value returned is
        never below any of them. It is minus infinity if F is empty, and NaN if h is NaN.
        """
        lowest, position = self.at_start.min(0)
        bounds, ridge_of = on_host(lowest, position.to(lowest))  # [G], the best ridge so far
        log_ridges = list(self.log_start)
        best = -1
        largest = -math.inf
        beaten = -math.inf  # a point with a bound up to this cannot be better than the best one
        while True:
            row = int(bounds.argmax())
            if not bounds[row] > beaten:
                return best, float(bounds[row])
            start = log_ridges[int(ridge_of[row])]
            log_ridge, bounds[row] = self._refined(row, start)
            if bounds[row] > largest:
                best = row
                largest = bounds[row]
                beaten = largest + _TIE * abs(largest)
            log_ridges.append(log_ridge)
            rivals = np.flatnonzero(bounds > beaten)
            if len(rivals):
                rival_bounds = self._h_at(rivals, math.exp(log_ridge))
                ridge_of[rivals[rival_bounds < bounds[rivals]]] = len(log_ridges) - 1
                bounds[rivals] = np.minimum(bounds[rivals], rival_bounds)  # NaN ends the search

    @torch.no_grad()
    def argmax_lower(self) -> tuple[int, float]:
        """Return a point with nearly the smallest minimum, and that minimum, for lower bounds (sign -1).

        It is the best of the few points with the smallest h at ``start``. The smallest minimum of
        all would need a search at every point. The value is a valid bound at the returned point.
        """
        lowest = self.at_start.amin(0)
        smallest = lowest.topk(min(_REFINED, len(lowest)), largest=False).indices
        rows = smallest.sort().values
        _, minima = self._minimised_on_host(rows)
        best = int(minima.argmin())
        return int(rows[best]), float(minima[best])

    @torch.no_grad()
    def _minimised(self) -> tuple[Tensor, Tensor]:
        """Return the minimising log ridges and the minima, [G] each."""
        n_points = self.at_start.shape[1]
        if 0 < n_points <= _ON_HOST:
            return self._minimised_on_host(torch.arange(n_points, device=self.at_start.device))
        grid = self.at_start.new_tensor(self.log_start)
        return minimise(self._h_on_device, brackets_on_grid(grid, self.at_start))

    def _minimised_on_host(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the minimising log ridges and the minima of few points, one after the other."""
        grid = self.at_start.new_tensor(self.log_start)
        brackets = brackets_on_grid(grid, self.at_start[:, rows])
        h_at = self._h_on_host(rows.tolist())
        ridges_and_minima = []
        for i, bracket in enumerate(torch.stack(brackets, -1).tolist()):
            ridges_and_minima.append(minimise_one(partial(h_at, i=i), Bracket(*bracket)))
        log_ridges, minima = self.at_start.new_tensor(ridges_and_minima).unbind(-1)
        return log_ridges, minima

    def _refined(self, row: int, start: float) -> tuple[float, float]:
        """Return the minimising log ridge of one point, and the minimum."""
        h_at = self._h_on_host([row])
        position = bisect_left(self.log_grid, start, hi=len(self.log_grid) - 1)
        bracket = bracket_by_walk(h_at, self.log_grid, position)
        return minimise_one(h_at, bracket, _COARSE)

    def _h_on_host(self, rows: Sequence[int]) -> Callable[..., float]:
        """Return h as a function of one log ridge and of the position among few points."""
        moments_at = self.posterior.on_host(rows)

        def h_at(t: float, i: int = 0) -> float:
            ridge = math.exp(t)
            mean, variance, quad = moments_at(ridge)
            squared_width = self.F.squared_width(quad, ridge)
            if squared_width < 0:
                return -math.inf
            return h(self.sign * float(mean[i]), math.sqrt(variance[i]), squared_width)

        return h_at

    def _h_on_device(self, log_ridges: Tensor) -> Tensor:
        """Return h of all points at their log ridges, [G] each."""
        ridges = log_ridges.exp()
        return self._h_or_minus_infinity(self.posterior.at(ridges), ridges)

    def _h_at(self, rows: np.ndarray, ridge: float) -> np.ndarray:
        """Return h of points [b] at one ridge."""
        index = torch.from_numpy(rows).to(self.at_start.device)
        moments = self.posterior.select(index).grid([ridge])
        ridges = self.at_start.new_tensor([ridge])
        return on_host(self._h_or_minus_infinity(moments, ridges))[0][0]

    def _h_or_minus_infinity(self, moments: Moments, ridges: Tensor) -> Tensor:
        """Return h, minus infinity where a ridge proves that F is empty."""
        bounds, is_empty = self._h(moments, ridges)
        return bounds.masked_fill(is_empty, -math.inf)

    def _h(self, moments: Moments, ridges: Tensor) -> tuple[Tensor, Tensor]:
        """Return h, and True where a ridge proves that F is empty."""
        deviation = safe_sqrt(moments.covariance[..., 0, 0])
        squared_width = self.F.squared_width(moments.quad, ridges).to(deviation)
        bounds = h(self.sign * moments.mean[..., 0], deviation, squared_width.clamp_min(0))
        return bounds, squared_width < 0
