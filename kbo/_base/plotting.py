"""Empty figures, and the common style of axes and legends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kbo._base.extras import require

require("a picture", "cli", "matplotlib")

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

BLUE, RED, GREEN, GREY, ORANGE = "#0072b2", "#d55e00", "#009e73", "#7f7f7f", "#e69f00"
"""Colours in figures of one run: the fit, highlights, a second line, data, and trials that were stopped early."""

RING: dict[str, Any] = {"s": 90, "facecolors": "none", "edgecolors": RED, "lw": 1.6, "zorder": 4}
"""Style of the ring around the recommended trial."""

LARGEST = 1e300
"""Largest size of a value in a figure: with larger values, matplotlib's margins overflow."""


def blank(width: float, height: float) -> Any:
    """Return an empty figure; width and height are in inches."""
    # Not by pyplot, which would choose a window system: that is the choice of the program.
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def dress(axes: Any, title: str, xlabel: str, ylabel: str) -> None:
    """Set title and labels of axes, and draw a faint grid."""
    axes.set(xlabel=xlabel, ylabel=ylabel)
    axes.set_title(title, loc="left", fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)


def panels(
    titles: Sequence[str], xlabel: str, ylabel: str, title: str = "", n_rows: int = 1
) -> tuple[Any, list[Any]]:
    """Return a figure of panels with common scales, and the axes of the panels, column by column.

    A single panel is larger.
    """
    n_columns = -(-len(titles) // n_rows)
    if len(titles) == 1:
        figure = blank(7.5, 4.5)
    else:
        figure = blank(1.2 + 3.4 * n_columns, 1.2 + 2.9 * n_rows)
    grid = figure.subplots(n_rows, n_columns, sharex=True, sharey=True, squeeze=False)
    all_axes = list(grid.T.flat)
    for axes in all_axes:
        axes.set_visible(False)
    for axes, panel_title in zip(all_axes, titles, strict=False):
        dress(axes, panel_title, "", "")
        axes.set_visible(True)
    for axes in grid[-1]:
        axes.set_xlabel(xlabel)
    for axes in grid[:, 0]:
        axes.set_ylabel(ylabel)
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    return figure, all_axes[: len(titles)]


def dot_size(count: int) -> float:
    """Return a size for each of ``count`` scattered dots at which single dots stay visible."""
    return max(3.0, min(18.0, 3000 / max(count, 1)))


def logarithmic(axes: Any) -> None:
    """Set a logarithmic y scale, labelled with plain numbers."""
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")


def plain_numbers(*logarithmic_axes: Any) -> None:
    """Label logarithmic axes with plain numbers.

    An axis of less than two decades has ticks at 1, 2 and 5 of each. One of more than four decades has at most five.
    """
    for axis in logarithmic_axes:
        low, high = axis.get_view_interval()
        if high < 100 * low:
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        elif high > 1e4 * low:
            axis.set_major_locator(LogLocator(numticks=5))
        axis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axis.set_minor_formatter(NullFormatter())


def legend_below(
    figure: Any, note: str | None = None, columns: int = 4, lines: dict[str, Any] | None = None
) -> None:
    """Draw one legend under the figure.

    Args:
        figure: The figure.
        note: Explanation of curves and bands, above the legend.
        columns: Largest number of columns of the legend.
        lines: Lines by name; by default the labelled lines of all axes.
    """
    if lines is None:
        lines = {}
        for axes in figure.axes:
            handles, names = axes.get_legend_handles_labels()
            lines.update(zip(names, handles, strict=True))
    figure.legend(
        list(lines.values()),
        list(lines),
        loc="outside lower center",
        ncols=min(columns, max(1, len(lines))),
        frameon=False,
        fontsize=9,
        title=note,
        title_fontsize=9,
    )
