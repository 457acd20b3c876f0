"""Quantities in the bounds, over the run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kbo._base.drawing import BLUE, GREEN, RED
from kbo._base.surroundings import fixed
from kbo.errors import InvalidInput
from kbo.report.figures.axes import STEPS, VALUE, bounded, frame, line, scale, whole_numbers
from kbo.report.replay import Moment

FINISHED = "trials finished"


@fixed
def draw_width(axes: Any, moments: Sequence[Moment]) -> None:
    """Draw the width of the interval of the recommended setting, and the optimality gap where it was computed."""
    widths = line(
        axes, bounded(moments), "width", color=BLUE, lw=1.6, label="width of the interval"
    )
    gaps = line(axes, moments, "gap", color=RED, lw=1.2, marker="o", ms=3.5, label="optimality gap")
    scale(axes, widths + gaps)
    axes.set(xlabel=FINISHED, ylabel="in units of the objective")


@fixed
def draw_quantity(axes: Any, moments: Sequence[Moment], quantity: str) -> None:
    """Draw a number in the bounds against the trials finished.

    Args:
        axes: Where to draw.
        moments: From ``history``.
        quantity: "noise_std", the noise level; "noise_bounds", its bounds where a method bounds it online;
            "norm_bound"; "ridge"; "anchors", the number of points of a dictionary.

    Raises:
        InvalidInput: There is no such quantity.
    """
    if quantity not in _QUANTITIES:
        raise InvalidInput(f"unknown quantity {quantity!r}; use one of {', '.join(_QUANTITIES)}.")
    label, lines = _QUANTITIES[quantity]
    values = [
        y
        for name, style in lines.items()
        for y in line(axes, moments, name, above=0, **STEPS, **style)
    ]
    scale(
        axes, [0.0, *values] if quantity == "anchors" else values
    )  # the scale of a count starts at zero
    axes.set(xlabel=FINISHED, ylabel=label)


_NOISE = "noise level, units of the objective"
# Quantity -> label of the axis, and the style of the line of each attribute of ``Moment``.
_QUANTITIES: dict[str, tuple[str, dict[str, dict[str, Any]]]] = {
    "noise_std": (_NOISE, {"noise_std": {"color": BLUE}}),
    "noise_bounds": (
        _NOISE,
        {
            "noise_upper": {"color": RED, "label": "upper bound (used)"},
            "noise_lower": {"color": GREEN, "ls": "--", "label": "lower bound"},
        },
    ),
    "norm_bound": ("norm bound, units of the objective", {"norm_bound": {"color": BLUE}}),
    "ridge": ("ridge, units of the kernel", {"ridge": {"color": BLUE}}),
    "anchors": ("points of the dictionary", {"anchors": {"color": BLUE}}),
}


@fixed
def draw_miscoverage(axes: Any, moments: Sequence[Moment]) -> None:
    """Draw the range expected of every value before it was observed, and the value.

    Raises:
        InvalidInput: There was no bound before any value.
    """
    awaited = [m for m in moments if m.expected is not None]
    if not awaited:
        raise InvalidInput(
            "there is no range to draw: no value had a bound before it was observed."
        )
    lower, upper = zip(*(m.expected for m in awaited if m.expected), strict=True)
    x = [m.finished for m in awaited]
    width = max(0.6, min(4.0, 160 / len(x)))
    axes.vlines(x, lower, upper, color=BLUE, alpha=0.35, lw=width, label="expected before")
    inside, outside = (
        [(m.finished, m.value) for m in awaited if m.missed is missed] for missed in (False, True)
    )
    if inside:
        axes.scatter(*zip(*inside, strict=True), color="black", s=9, label="observed", zorder=3)
    if outside:
        axes.scatter(
            *zip(*outside, strict=True),
            color=RED,
            marker="x",
            s=36,
            label="observed, outside",
            zorder=3,
        )
    late = len(awaited) // 4
    frame(axes, [], [*(m.value for m in awaited[late:]), *lower[late:], *upper[late:]])
    whole_numbers(axes.xaxis)
    axes.set(xlabel=FINISHED, ylabel=VALUE)
