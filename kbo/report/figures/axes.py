"""Figures, and the looks of their axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.text import Text
from matplotlib.ticker import MaxNLocator

from kbo._base.drawing import GREY, LARGEST, blank, dress, legend_below, logarithmic, plain_numbers
from kbo.errors import InvalidInput
from kbo.report.replay import Moment

VALUE = "value of the objective"
NO_BOUND = "there is no bound to draw: too few evaluations, or a method without one."

STEPS = {"drawstyle": "steps-post", "lw": 1.6}
"""Style of quantities that change with trials."""

_FAR = (
    10  # interquartile ranges from the quartiles beyond which values are left outside of a figure
)
_WIDE = 20  # largest over smallest value from which a logarithmic scale shows more


def picture(xlabel: str = "", ylabel: str = "", height: float = 3.2) -> tuple[Any, Any]:
    """Return a small figure, readable on a telephone, and its axes; the height is in inches."""
    figure = blank(4.4, height)
    axes = figure.add_subplot()
    dress(axes, "", xlabel, ylabel)
    return figure, axes


def finish(figure: Any) -> Any:
    """Return the figure with a legend below, if anything in it has a label, and all text as it is written."""
    if any(axes.get_legend_handles_labels()[0] for axes in figure.axes):
        legend_below(figure, columns=2)
    for text in figure.findobj(Text):
        text.set_parse_math(False)  # names come from the run: a dollar is a dollar
    return figure


def shortened(text: str, most: int) -> str:
    """Return a text with at most so many characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def line(
    axes: Any, moments: Sequence[Moment], name: str, above: float | None = None, **style: Any
) -> list[float]:
    """Draw a quantity where it is known, and finite and above that if so wanted; return its values."""
    points = [(m.finished, y) for m in moments if (y := getattr(m, name)) is not None]
    if above is not None:
        points = [(x, y) for x, y in points if above < y < math.inf]
    if points:
        axes.plot(*zip(*points, strict=True), **style)
    return [y for _, y in points]


def bounded(moments: Sequence[Moment]) -> list[Moment]:
    """Return the moments with bounds, at least one."""
    found = [m for m in moments if m.width is not None]
    if not found:
        raise InvalidInput(NO_BOUND)
    return found


def scale(axes: Any, values: Sequence[float]) -> None:
    """Set a logarithmic scale where values are positive and far apart, else a scale from zero."""
    if values and min(values) > 0 and max(values) > _WIDE * min(values):
        logarithmic(axes)
        plain_numbers(axes.yaxis)
    elif values and min(values) >= 0:
        axes.set_ylim(bottom=0)
    whole_numbers(axes.xaxis)


def whole_numbers(axis: Any) -> None:
    """Set the ticks of an axis at whole numbers only."""
    axis.set_major_locator(MaxNLocator(nbins=7, integer=True))


def frame(
    axes: Any, values: Sequence[float], needed: Sequence[float], wide: Sequence[float] = ()
) -> None:
    """Set limits that include what is needed and all values but those far from most, whose number is written.

    Args:
        axes: Where to draw.
        values: Values of trials.
        needed: Heights that are inside in any case.
        wide: Ends of intervals, which are inside as far as the rest then keeps a third of the axis.
    """
    ordered = sorted(values)
    low, high = (
        (ordered[len(ordered) // 4], ordered[3 * len(ordered) // 4]) if ordered else (0.0, 0.0)
    )
    reach = _FAR * (high - low)
    near = [v for v in ordered if low - reach <= v <= high + reach]
    shown = [v for v in (*near, *needed) if abs(v) <= LARGEST]
    if not shown or max(shown) == min(shown) == max(wide, default=min(shown)):
        return
    low, high = min(shown), max(shown)
    span = high - low or math.inf
    bottom, top = (
        min(low, max(low - span, min(wide, default=low))),
        max(high, min(high + span, max(wide, default=high))),
    )
    margin = 0.06 * (top - bottom)
    axes.set_ylim(bottom - margin, top + margin)
    outside = sum(not bottom - margin <= v <= top + margin for v in ordered)
    if outside:
        axes.set_title(
            f"{outside} trial{'s' * (outside > 1)} outside the frame",
            loc="right",
            fontsize=8,
            color=GREY,
        )
