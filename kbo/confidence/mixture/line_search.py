"""Bracketed one-dimensional minimisation of many quasiconvex functions at once."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

_GOLDEN = (3 - math.sqrt(5)) / 2
_MOST_STEPS = 60
_NEAR = 0.05
"""Bracket within which the vertex of a parabola is accepted."""


def minimise(
    f: Callable[[Tensor], Tensor], t: Tensor, values: Tensor, low: float, high: float, tolerance: float = 1e-4
) -> tuple[Tensor, Tensor]:
    """Minimise B functions with one valley each over [low, high].

    A grid of known values gives each function a bracket, which is widened where its lowest value lies at an end of
    the grid. Then parabolas through the bracket's three points, or golden sections where a parabola does not halve
    its steps (Brent 1973, Ch. 5). The result is one of the points that were evaluated, so an upper bound stays one.

    Args:
        f: Maps arguments [B] to values [B], function by function.
        t: Increasing grid [r] within [low, high], r >= 2.
        values: The functions on the grid, [r B].
        low: Least argument.
        high: Largest argument.
        tolerance: Step at which the search stops; near a minimum the value is off by its square.

    Returns:
        Arguments [B] and values [B].
    """
    b, fb, (a, fa), (c, fc) = _bracket(f, t, values, low, high)
    before = last = c - a
    active = torch.ones_like(b, dtype=torch.bool)  # a finished function stays as it is: results are row by row
    for _ in range(_MOST_STEPS):
        vertex = _parabola(a, b, c, fa, fb, fc)
        trusted = (b + vertex > a) & (b + vertex < c) & (2 * vertex.abs() < before)
        wide = torch.where(c - b > b - a, c - b, a - b)
        # A vertex at b may be a coincidence while one side of the bracket is far away; then that side is tried.
        settled = trusted & (vertex.abs() <= tolerance)
        active = active & ~((settled & (wide.abs() <= _NEAR)) | (c - a <= tolerance))
        if not bool(active.any()):
            break
        probe = wide.sign() * torch.minimum(wide.abs() / 2, wide.new_tensor(_NEAR))
        step = torch.where(settled, probe, torch.where(trusted, vertex, _GOLDEN * wide))
        before, last = last, step.abs()
        u = torch.where(active, b + step, b)
        fu = f(u)
        better, right = active & (fu < fb), step > 0
        # The point that is not the lowest becomes the end of the bracket on its side.
        end, f_end = torch.where(better, b, u), torch.where(better, fb, fu)
        outer, inner = active & (right != better), active & (right == better)
        c, fc = torch.where(outer, end, c), torch.where(outer, f_end, fc)
        a, fa = torch.where(inner, end, a), torch.where(inner, f_end, fa)
        b, fb = torch.where(better, u, b), torch.where(better, fu, fb)
    return b, fb


def _bracket(f, t: Tensor, values: Tensor, low: float, high: float):
    """Return b, f(b) and the points (a, f(a)), (c, f(c)) around it: a <= b <= c, f(b) lowest."""
    last = len(t) - 1
    j = values.argmin(0)
    direction = torch.where(j == 0, -1, 1)
    (b, fb), (behind, f_behind), (ahead, f_ahead) = (
        (t[k], values.gather(0, k.unsqueeze(0))[0]) for k in (j, j - direction, (j + direction).clamp(0, last))
    )
    open_, stride = (j == 0) | (j == last), math.log(10)
    while bool(open_.any()):
        u = torch.where(open_, (b + direction * stride).clamp(low, high), b)
        fu = f(u)
        lower = open_ & (fu < fb)
        behind, f_behind = torch.where(lower, b, behind), torch.where(lower, fb, f_behind)
        ahead, f_ahead = torch.where(open_, u, ahead), torch.where(open_, fu, f_ahead)
        b, fb = torch.where(lower, u, b), torch.where(lower, fu, fb)
        open_ = lower & (low < u) & (u < high)
        stride *= 2
    down = direction < 0
    a, fa = torch.where(down, ahead, behind), torch.where(down, f_ahead, f_behind)
    c, fc = torch.where(down, behind, ahead), torch.where(down, f_behind, f_ahead)
    return b, fb, (a, fa), (c, fc)


def _parabola(a: Tensor, b: Tensor, c: Tensor, fa: Tensor, fb: Tensor, fc: Tensor) -> Tensor:
    """Return the step from b to the vertex of the parabola through three points; not finite if they lie on a line."""
    left, right = (b - a) * (fb - fc), (b - c) * (fb - fa)
    return -0.5 * ((b - a) * left - (b - c) * right) / (left - right)
