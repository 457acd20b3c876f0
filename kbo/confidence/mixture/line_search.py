"""Bracketed one-dimensional minimisation of quasiconvex functions: of many at once, or of one on the host."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import TypeVar

import torch
from torch import Tensor

_GOLDEN = (3 - math.sqrt(5)) / 2
_MOST_STEPS = 60
_NEAR = 0.05
"""Bracket within which the vertex of a parabola is accepted."""

_TOGETHER = 6
"""Steps between two tests of which functions are finished; each waits for the device."""

Values = Callable[[Tensor], Tensor]
Number = TypeVar("Number", float, Tensor)


def minimise(
    f: Values,
    select: Callable[[Tensor], Values],
    t: Tensor,
    values: Tensor,
    tolerance: float = 1e-4,
) -> tuple[Tensor, Tensor]:
    """Minimise B functions with one valley each between the ends of a grid.

    The grid of known values gives each function a bracket. Then parabolas through the bracket's three points, or golden
    sections where a parabola does not halve its steps (Brent 1973, Ch. 5). The result is one of the points that were
    evaluated, so an upper bound stays one. A function that reaches minus infinity is finished; NaN is never lowest.

    Args:
        f: Maps arguments [B] to values [B], function by function.
        select: Maps numbers of functions [b] to f of these alone, which maps [b] to [b].
        t: Increasing grid [r], r >= 2.
        values: The functions on the grid, [r B].
        tolerance: Step at which the search stops; near a minimum the value is off by its square.

    Returns:
        Arguments [B] and values [B].
    """
    j = values.argmin(0)
    (a, fa), (b, fb), (c, fc) = (
        (t[k], values.gather(0, k.unsqueeze(0))[0])
        for k in ((j - 1).clamp_min(0), j, (j + 1).clamp_max(len(t) - 1))
    )
    before = last = c - a
    active, numbers = torch.ones_like(b, dtype=torch.bool), torch.arange(len(b), device=b.device)
    found = torch.stack([b, fb])
    for step in range(_MOST_STEPS):
        up, down = _parabola(a, b, c, fa, fb, fc)
        vertex = up / down
        trusted = (b + vertex > a) & (b + vertex < c) & (2 * vertex.abs() < before)
        wide = torch.where(c - b > b - a, c - b, a - b)
        # A vertex at b may be a coincidence while one side of the bracket is far away; then that side is tried.
        settled = trusted & (vertex.abs() <= tolerance)
        finished = (settled & (wide.abs() <= _NEAR)) | (c - a <= tolerance) | fb.isneginf()
        active = active & ~finished  # a finished function stays as it is: results are row by row
        if step and step % _TOGETHER == 0:
            found[:, numbers] = torch.stack([b, fb])
            left = active.nonzero().squeeze(-1)
            if len(left) < len(numbers):
                numbers = numbers[left]
                kept = (a, b, c, fa, fb, fc, before, last, vertex, wide)
                a, b, c, fa, fb, fc, before, last, vertex, wide = torch.stack(kept)[:, left]
                trusted, settled, active = torch.stack([trusted, settled, active])[:, left]
                f = select(numbers)
        if not len(numbers):
            break
        probe = wide.sign() * (wide.abs() / 2).clamp_max(_NEAR)
        move = torch.where(settled, probe, torch.where(trusted, vertex, _GOLDEN * wide))
        before, last = last, move.abs()
        u = torch.where(active, b + move, b)
        fu = f(u)
        better, right = active & (fu < fb), move > 0
        # The point that is not the lowest becomes the end of the bracket on its side.
        end, f_end = torch.where(better, b, u), torch.where(better, fb, fu)
        outer, inner = active & (right != better), active & (right == better)
        c, fc = torch.where(outer, end, c), torch.where(outer, f_end, fc)
        a, fa = torch.where(inner, end, a), torch.where(inner, f_end, fa)
        b, fb = torch.where(better, u, b), torch.where(better, fu, fb)
    found[:, numbers] = torch.stack([b, fb])
    return found[0], found[1]


def minimise_one(
    f: Callable[[float], float],
    t: Sequence[float],
    j: int,
    tolerance: float = 1e-4,
    enough: float = -math.inf,
) -> tuple[float, float]:
    """Minimise one such function in plain numbers; the bracket is found by a walk down the grid.

    Args:
        f: The function.
        t: Increasing grid, two arguments at least.
        j: The argument of the grid at which the walk begins.
        tolerance: Step at which the search stops.
        enough: Value at which the search stops.

    Returns:
        Argument and value.
    """
    on_grid, last = cache(lambda k: f(t[k])), len(t) - 1
    while on_grid(j) > enough:
        if j > 0 and on_grid(j - 1) < on_grid(j):
            j -= 1
        elif j < last and on_grid(j + 1) < on_grid(j):
            j += 1
        else:
            break
    b, fb = t[j], on_grid(j)
    if not fb > enough:
        return b, fb
    (a, fa), (c, fc) = ((t[k], on_grid(k)) for k in (max(j - 1, 0), min(j + 1, last)))
    before = move = c - a
    for _ in range(_MOST_STEPS):
        up, down = _parabola(a, b, c, fa, fb, fc)
        vertex = up / down if down else math.nan
        trusted = a < b + vertex < c and 2 * abs(vertex) < before
        wide = c - b if c - b > b - a else a - b
        settled = trusted and abs(vertex) <= tolerance
        if (settled and abs(wide) <= _NEAR) or c - a <= tolerance or fb <= enough:
            break
        probe = math.copysign(min(abs(wide) / 2, _NEAR), wide)
        before, move = abs(move), probe if settled else vertex if trusted else _GOLDEN * wide
        u, fu = b + move, f(b + move)
        if better := fu < fb:
            b, fb, u, fu = u, fu, b, fb
        if (move > 0) == better:
            a, fa = u, fu
        else:
            c, fc = u, fu
    return b, fb


def _parabola(
    a: Number, b: Number, c: Number, fa: Number, fb: Number, fc: Number
) -> tuple[Number, Number]:
    """Return the step from b to the vertex of the parabola through three points as a quotient; 0 below if a line."""
    left, right = (b - a) * (fb - fc), (b - c) * (fb - fa)
    return -0.5 * ((b - a) * left - (b - c) * right), left - right
