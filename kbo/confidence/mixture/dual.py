"""The exact bound over the confidence set of a martingale mixture: one valley in the ridge.

With ``C = (R + B sqrt|E|)^2`` and ``R^2(a) = C + a B^2 - quad(a)`` every ridge a bounds f over the set F,

    h(a; x) = mean(x; a) + sqrt(R^2(a) / a) sqrt(variance(x; a)) >= max over F of f(x)    (Flynn & Reeb 2024, eq. 13),

and the least of them is the maximum (Thm 4.4, strong duality). h has a single valley in a: the Lagrange dual
g(eta_1, eta_2) of the maximisation is jointly convex and ``h(a) = min over s > 0 of g(s, s a)``, so a sublevel set of
h is the image of a convex set under ``(eta_1, eta_2) -> eta_2 / eta_1``, an interval. A bracketed search over ln a
is therefore exact, and wherever it stops, h is a valid bound.

If F is empty, ``R^2(a) < 0`` on an interval of ridges, where the infimum over s is minus infinity. Every sublevel set
contains that interval, so h falls towards it from both sides: the search runs into it and ``width`` raises.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from kbo.confidence.mixture.line_search import minimise
from kbo.linalg import safe_sqrt
from kbo.regression import Moments, RidgePath

_FEW = 8
"""Points that are refined in search of the smallest minimum."""

_ENOUGH = 1e-3
"""Tolerance in ln a of the search at one point: its bound is then off by about the square."""

_TIE = 1e-7
"""Relative difference below which two bounds count as equal."""


class Dual:
    """h over the points of a path.

    Args:
        path: The posterior of B single points as a function of the ridge.
        sign: 1 bounds f from above; -1 bounds -f from above.
        width: Maps quad and ridges to ``sqrt(R^2(a) / a)``, or raises if it has no root.
        start: Increasing ridges at which every search begins, at least two.
        low: Least ridge of a search.
        high: Largest ridge of a search.
    """

    def __init__(
        self,
        path: RidgePath,
        sign: int,
        width: Callable[[Tensor, Tensor], Tensor],
        start: Tensor,
        low: float,
        high: float,
    ) -> None:
        self.path = path
        self.sign = sign
        self.width = width
        self.low: float = math.log(low)
        self.high: float = math.log(high)
        self.start: Tensor = start.log()
        self.coarse: Tensor = self._h(path.grid(start), start.unsqueeze(-1))

    def at(self, log_ridges: Tensor, path: RidgePath | None = None) -> Tensor:
        """Return ``h`` [B] with every point at its own ridge."""
        ridges = log_ridges.exp()
        return self._h((path or self.path).at(ridges), ridges)

    def _h(self, moments: Moments, ridges: Tensor) -> Tensor:
        width = self.width(moments.quad, ridges)
        return self.sign * moments.mean[..., 0] + width.to(moments.mean) * safe_sqrt(moments.covariance[..., 0, 0])

    @torch.no_grad()
    def minimise(self) -> tuple[Tensor, Tensor]:
        """Return the log ridges [B] that minimise h, and the minima [B]."""
        return minimise(self.at, self.start, self.coarse.detach(), self.low, self.high)

    def value(self) -> Tensor:
        """Return the minima [B], differentiable in the points at the minimising ridge (envelope theorem)."""
        return self.at(self.minimise()[0])

    @torch.no_grad()
    def argmax_upper(self) -> tuple[int, float]:
        """Return the point with the largest minimum, and that minimum, refining as few points as possible.

        Every ridge bounds every point, so the coarse grid bounds all of them, and the ridge of a refined point lowers
        the bounds of the others too. Once nothing is above the best refined point, no other minimum can be larger.
        Minima that differ by less than a ten-millionth count as equal; the value is never below any of them.
        """
        bounds, best = self.coarse.amin(0), -1
        while True:
            first = int(bounds.argmax())
            if best >= 0 and bounds[first] <= bounds[best] + _TIE * bounds[best].abs():
                return best, float(bounds[first])
            alone = torch.tensor([first], device=bounds.device)
            h = partial(self.at, path=self.path.select(alone))
            t, _ = minimise(h, self.start, self.coarse[:, alone], self.low, self.high, _ENOUGH)
            ridge = t.exp()
            bounds = torch.minimum(bounds, self._h(self.path.grid(ridge), ridge.unsqueeze(-1))[0])
            if best < 0 or bounds[first] > bounds[best]:
                best = first

    @torch.no_grad()
    def argmax_lower(self) -> tuple[int, float]:
        """Return a point with nearly the smallest minimum, and that minimum: the best of the few smallest on the grid.

        For lower bounds (sign -1). The very smallest minimum would need a search at every point; the value is a valid
        bound of the point that is returned.
        """
        bounds = self.coarse.amin(0)
        few = bounds.topk(min(_FEW, len(bounds)), largest=False).indices.sort().values
        h = partial(self.at, path=self.path.select(few))
        _, values = minimise(h, self.start, self.coarse[:, few], self.low, self.high)
        best = int(values.argmin())
        return int(few[best]), float(values[best])
