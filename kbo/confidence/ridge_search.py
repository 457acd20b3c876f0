"""Minimisation over the ridge: grids of ridges, and Brent's method for one local minimum.

The argument of all minimised functions is the logarithm of the ridge.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from kbo.regression import Posterior

Number = TypeVar("Number", float, Tensor)

_GOLDEN = (3 - math.sqrt(5)) / 2
_MOST_STEPS = 60
_TOLERANCE = 1e-4
"""Step in ln ridge at which a search stops; the error of the value is about its square."""

_SHORT = 0.05
"""Largest length of both sides of a bracket at which the vertex of a parabola is accepted."""

_PROBE = 0.04
"""Length of a step that tests a longer side."""

_TEST_EVERY = 6
"""Number of steps between two tests of which functions are finished; a test waits for the device."""

DMM_GRID = (0.1, 0.3, 1.0, 3.0, 10.0)
"""Multiples of a0 over which DMM minimises: Flynn & Reeb (2024), Sec. 7."""


def dmm_ridges(mixture_ridges: Sequence[float]) -> list[float]:
    """Return the default ridges of DMM: those of the mixture, or a grid around a single one."""
    if len(mixture_ridges) > 1:
        return list(mixture_ridges)
    return [multiple * mixture_ridges[0] for multiple in DMM_GRID]


def ridge_range(state: Posterior, a0: float) -> tuple[float, float]:
    """Return the least and the largest ridge of a search around a0.

    Below the least ridge ``K + a I`` is singular up to rounding. Above the largest ridge the data
    have no effect.
    """
    precision = 10 * max(state.n, 1) * state.error.least_ridge
    low = min(precision, 0.1 * a0)
    if low == 0:
        low = 1e-10 * a0
    return low, 1e12 * max(state.trace, a0)


def search_grid(ridges: Sequence[float], low: float, high: float) -> list[float]:
    """Return increasing ridges between which a search begins, from low to high.

    They are the given ridges, their geometric means, and ridges beyond them with growing steps.
    """
    grid = list(ridges)
    for a, b in pairwise(ridges):
        grid.append(math.sqrt(a * b))
    for j in range(10):
        step = 3.0 ** (1.5**j - 0.5)
        grid += [ridges[0] / step, ridges[-1] * step]
    return [low, *sorted([ridge for ridge in grid if low < ridge < high]), high]


class Bracket(NamedTuple, Generic[Number]):
    """Three arguments ``a <= b <= c`` and the values of a function there, the lowest at b.

    The fields are numbers for one function, and tensors [B] for B functions.
    """

    a: Number
    b: Number
    c: Number
    fa: Number
    fb: Number
    fc: Number


def minimise_one(
    f: Callable[[float], float], bracket: Bracket[float], tolerance: float = _TOLERANCE
) -> tuple[float, float]:
    """Minimise one function within its bracket.

    The result is one of the evaluated arguments, so the value of an upper bound is an upper bound.
    The search ends if the function is minus infinity or NaN.

    Args:
        f: The function.
        bracket: Arguments and values between which the minimum lies.
        tolerance: Step at which the search stops; the error of the value is about its square.

    Returns:
        Argument and value.
    """
    a, b, c, fa, fb, fc = bracket
    step_before = c - a
    step = c - a
    for _ in range(_MOST_STEPS):
        bracket = Bracket(a, b, c, fa, fb, fc)
        move, is_finished = _brent(bracket, step_before, tolerance, _where)
        if is_finished or math.isnan(fb):
            break
        step_before = step
        step = abs(move)
        u = b + move
        fu = f(u)
        is_lower = fu < fb
        if is_lower:
            u, b = b, u
            fu, fb = fb, fu
        if (move > 0) == is_lower:  # the higher of the two points is the new end on its side
            a = u
            fa = fu
        else:
            c = u
            fc = fu
    return b, fb


def minimise(f: Callable[[Tensor], Tensor], bracket: Bracket[Tensor]) -> tuple[Tensor, Tensor]:
    """Minimise B functions, each within its bracket, as ``minimise_one`` does.

    The search of a function ends at minus infinity; NaN never counts as lowest.

    Args:
        f: The functions, as one map from arguments [B] to values [B].
        bracket: Arguments and values between which the minima lie, [B] each.

    Returns:
        Arguments [B] and values [B].
    """
    a, b, c, fa, fb, fc = bracket
    step_before = c - a
    step = c - a
    is_active = torch.ones_like(b, dtype=torch.bool)
    for count in range(_MOST_STEPS):
        bracket = Bracket(a, b, c, fa, fb, fc)
        move, is_finished = _brent(bracket, step_before, _TOLERANCE, torch.where)
        is_active = is_active & ~is_finished
        if count % _TEST_EVERY == 0 and not bool(is_active.any()):
            break
        step_before = step
        step = move.abs()
        u = torch.where(is_active, b + move, b)
        fu = f(u)
        is_lower = is_active & (fu < fb)
        end = torch.where(is_lower, b, u)  # the higher of the two points
        f_end = torch.where(is_lower, fb, fu)
        is_new_a = is_active & ((move > 0) == is_lower)
        is_new_c = is_active & ((move > 0) != is_lower)
        a = torch.where(is_new_a, end, a)
        fa = torch.where(is_new_a, f_end, fa)
        c = torch.where(is_new_c, end, c)
        fc = torch.where(is_new_c, f_end, fc)
        b = torch.where(is_lower, u, b)
        fb = torch.where(is_lower, fu, fb)
    return b, fb


def _brent(
    bracket: Bracket[Number],
    step_before: Number,
    tolerance: float,
    where: Callable[[Any, Any, Any], Any],
) -> tuple[Number, Any]:
    """Return the next step from b, and True where the minimum is found: Brent (1973), Ch. 5.

    The step goes to the vertex of the parabola through the three points. If this is more than half
    of the step before the last, it is a golden-section step instead.

    Args:
        bracket: Arguments and values.
        step_before: Length of the step before the last.
        tolerance: Step at which the search stops.
        where: ``torch.where`` for tensors, a conditional expression for numbers.
    """
    a, b, c, fa, fb, fc = bracket
    left = (b - a) * (fb - fc)
    right = (b - c) * (fb - fa)
    curvature = left - right
    vertex = -0.5 * ((b - a) * left - (b - c) * right) / where(curvature == 0, math.nan, curvature)
    is_trusted = (b + vertex > a) & (b + vertex < c) & (2 * abs(vertex) < step_before)
    longer_side = where(c - b > b - a, c - b, a - b)
    # While one side of the bracket is long, a vertex at b may be a coincidence: test that side.
    is_settled = is_trusted & (abs(vertex) <= tolerance)
    is_found = (
        (is_settled & (abs(longer_side) <= _SHORT)) | (c - a <= tolerance) | (fb == -math.inf)
    )
    probe = where(longer_side > 0, _PROBE, -_PROBE)
    section = where(is_trusted, vertex, _GOLDEN * longer_side)
    return where(is_settled, probe, section), is_found


def _where(condition: bool, if_true: float, if_false: float) -> float:
    """Return one of two numbers, as ``torch.where``."""
    return if_true if condition else if_false


def bracket_by_walk(
    f: Callable[[float], float], grid: Sequence[float], start: int
) -> Bracket[float]:
    """Return the bracket around the first local minimum on a walk down a grid.

    Args:
        f: The function.
        grid: Increasing arguments, at least two.
        start: Position in the grid where the walk begins.
    """
    values = {start: f(grid[start])}
    lowest = start
    while True:
        for position in (lowest - 1, lowest + 1):
            if 0 <= position < len(grid) and position not in values:
                values[position] = f(grid[position])
        if values.get(lowest - 1, math.inf) < values[lowest]:
            lowest -= 1
        elif values.get(lowest + 1, math.inf) < values[lowest]:
            lowest += 1
        else:
            break
    left = max(lowest - 1, 0)
    right = min(lowest + 1, len(grid) - 1)
    positions = [left, lowest, right]
    return Bracket(*[grid[i] for i in positions], *[values[i] for i in positions])


def brackets_on_grid(grid: Tensor, values: Tensor) -> Bracket[Tensor]:
    """Return the brackets [B] of the lowest values [r B] of functions on an increasing grid [r]."""
    lowest = values.argmin(0)
    left = (lowest - 1).clamp_min(0)
    right = (lowest + 1).clamp_max(len(grid) - 1)
    positions = torch.stack([left, lowest, right])
    return Bracket(*grid[positions], *values.gather(0, positions))
