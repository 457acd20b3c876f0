"""Empty figures, and limits and texts of their axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.text import Text
from matplotlib.ticker import MaxNLocator

from kbo._base.plotting import GREY, LARGEST, blank, dress, legend_below

VALUE = "value of the objective"
NO_BOUND = "there is no bound to draw: too few evaluations, or a method without one."

_FAR = 10
"""Values farther from the quartiles than this number of interquartile ranges are left outside of a figure."""


def picture(xlabel: str = "", ylabel: str = "", height: float = 3.2) -> tuple[Any, Any]:
    """Return a small figure, which a telephone can show, and its axes. The height is in inches."""
    figure = blank(4.4, height)
    axes = figure.add_subplot()
    dress(axes, "", xlabel, ylabel)
    return figure, axes


def finish(figure: Any) -> Any:
    """Return the figure after adding a legend, if it has labels, and switching off formulas in its texts."""
    for axes in figure.axes:
        if axes.get_legend_handles_labels()[0]:
            legend_below(figure, columns=2)
            break
    for text in figure.findobj(Text):
        text.set_parse_math(False)  # names come from the run, and may contain a dollar
    return figure


def shortened(text: str, most: int) -> str:
    """Return a text shortened to at most ``most`` characters."""
    if len(text) <= most:
        return text
    return f"{text[: most - 1]}…"


def whole_numbers(axis: Any) -> None:
    """Set the ticks of an axis at whole numbers only."""
    axis.set_major_locator(MaxNLocator(nbins=7, integer=True))


def frame(
    axes: Any,
    values: Sequence[float],
    needed: Sequence[float],
    interval_ends: Sequence[float] = (),
    direction: str = "y",
) -> None:
    """Set the limits of an axis so that outliers are left out, and write the number of trials outside.

    Args:
        axes: The axes to draw on.
        values: Values of trials.
        needed: Values that must be inside.
        interval_ends: Ends of intervals. They extend the limits, but the range of the other values keeps at least a
            third of the axis.
        direction: "x" or "y".
    """
    inside = [*_without_outliers(values), *needed]
    inside = [height for height in inside if abs(height) <= LARGEST]
    if not inside:
        return
    low = min(inside)
    high = max(inside)
    lowest = min([low, *interval_ends])
    highest = max([high, *interval_ends])
    if lowest == highest:
        return
    span = high - low
    if span == 0:
        span = math.inf
    bottom = max(low - span, lowest)
    top = min(high + span, highest)
    margin = 0.06 * (top - bottom)
    bottom -= margin
    top += margin
    axes.set(**{f"{direction}lim": (bottom, top)})
    n_outside = sum(not bottom <= value <= top for value in values)
    if n_outside == 0:
        return
    title = f"{n_outside} trials outside the frame"
    if n_outside == 1:
        title = "1 trial outside the frame"
    axes.set_title(title, loc="right", fontsize=8, color=GREY)


def _without_outliers(values: Sequence[float]) -> list[float]:
    """Return the values that are at most ``_FAR`` interquartile ranges outside of the quartiles."""
    if not values:
        return []
    ordered = sorted(values)
    lower_quartile = ordered[len(ordered) // 4]
    upper_quartile = ordered[3 * len(ordered) // 4]
    reach = _FAR * (upper_quartile - lower_quartile)
    return [value for value in values if lower_quartile - reach <= value <= upper_quartile + reach]
