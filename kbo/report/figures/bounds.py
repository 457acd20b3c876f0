"""Bounds over the run: their widths, and the values outside of their expected ranges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kbo._base.isolation import isolated
from kbo._base.plotting import BLUE, RED, logarithmic, plain_numbers
from kbo.errors import InvalidInput
from kbo.report.figures.axes import NO_BOUND, VALUE, frame, whole_numbers
from kbo.report.replay import Moment

_FINISHED = "trials finished"

_WIDE = 20
"""A scale is logarithmic if the ratio of the largest to the smallest value is above this."""


@isolated
def draw_width(axes: Any, moments: Sequence[Moment]) -> None:
    """Draw the width of the interval at the recommended trial, and the optimality gap, if it was computed.

    Args:
        axes: The axes to draw on.
        moments: The states of the run, from ``history``.

    Raises:
        InvalidInput: There was no bound.
    """
    widths = {moment.finished: moment.width for moment in moments if moment.width is not None}
    gaps = {moment.finished: moment.gap for moment in moments if moment.gap is not None}
    if not widths:
        raise InvalidInput(NO_BOUND)
    axes.plot(
        list(widths), list(widths.values()), color=BLUE, lw=1.6, label="width of the interval"
    )
    if gaps:
        style = {"color": RED, "lw": 1.2, "marker": "o", "ms": 3.5}
        axes.plot(list(gaps), list(gaps.values()), label="optimality gap", **style)
    heights = [*widths.values(), *gaps.values()]
    if min(heights) > 0 and max(heights) > _WIDE * min(heights):
        logarithmic(axes)
        plain_numbers(axes.yaxis)
    elif min(heights) >= 0:
        axes.set_ylim(bottom=0)
    whole_numbers(axes.xaxis)
    axes.set(xlabel=_FINISHED, ylabel="in units of the objective")


@isolated
def draw_miscoverage(axes: Any, moments: Sequence[Moment]) -> None:
    """Draw the expected range of each value, computed before the value was observed, and the value.

    Args:
        axes: The axes to draw on.
        moments: The states of the run, from ``history``.

    Raises:
        InvalidInput: There was no bound before any value.
    """
    expected = [moment for moment in moments if moment.expected is not None]
    if not expected:
        raise InvalidInput(
            "there is no range to draw: no value had a bound before it was observed."
        )
    finished = [moment.finished for moment in expected]
    lower_ends, upper_ends = zip(*(moment.expected for moment in expected), strict=True)
    bars = {"color": BLUE, "alpha": 0.35, "lw": max(0.6, min(4.0, 160 / len(expected)))}
    axes.vlines(finished, lower_ends, upper_ends, label="expected before", **bars)
    inside = [moment for moment in expected if not moment.missed]
    outside = [moment for moment in expected if moment.missed]
    _draw_values(axes, inside, label="observed", color="black", s=9)
    _draw_values(axes, outside, label="observed, outside", color=RED, marker="x", s=36)
    late = len(expected) // 4  # the first bounds are wide
    values = [moment.value for moment in expected[late:]]
    frame(axes, [], [*values, *lower_ends[late:], *upper_ends[late:]])
    whole_numbers(axes.xaxis)
    axes.set(xlabel=_FINISHED, ylabel=VALUE)


def _draw_values(axes: Any, moments: Sequence[Moment], **style: Any) -> None:
    """Draw the observed values of moments as dots."""
    if moments:
        finished = [moment.finished for moment in moments]
        values = [moment.value for moment in moments]
        axes.scatter(finished, values, zorder=3, **style)
