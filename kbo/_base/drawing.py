"""Parts that all pictures share: empty figures, and the look of axes and legends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kbo._base.extras import require

require("drawing", "cli", "matplotlib")

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

BLUE, RED, GREEN, GREY, ORANGE = "#0072b2", "#d55e00", "#009e73", "#7f7f7f", "#e69f00"
"""Colours in pictures of one run: the fit, highlights, a second line, the data, trials that were stopped early."""
RING: dict[str, Any] = {"s": 90, "facecolors": "none", "edgecolors": RED, "lw": 1.6, "zorder": 4}
"""Style of the mark of the recommended trial."""
LARGEST = 1e300
"""Size of a value in a picture: matplotlib's margins around larger ones overflow."""


def blank(width: float, height: float) -> Any:
    """An empty figure, in inches."""
    # The object interface: a library must not choose the window system of the program it runs in.
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def dress(axes: Any, title: str, xlabel: str, ylabel: str) -> None:
    """Title, labels and a faint grid."""
    axes.set(xlabel=xlabel, ylabel=ylabel)
    axes.set_title(title, loc="left", fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)


def panels(
    titles: Sequence[str], xlabel: str, ylabel: str, title: str = "", down: int = 1
) -> tuple[Any, list[Any]]:
    """A figure of panels with common axes, column by column, and their axes; a single panel is larger."""
    across = -(-len(titles) // down)
    figure = blank(7.5, 4.5) if len(titles) == 1 else blank(1.2 + 3.4 * across, 1.2 + 2.9 * down)
    grid = figure.subplots(down, across, sharex=True, sharey=True, squeeze=False)
    for position, axes in enumerate(grid.T.flat):
        dress(axes, titles[position] if position < len(titles) else "", "", "")
        axes.set_visible(position < len(titles))
    for axes in grid[-1]:
        axes.set_xlabel(xlabel)
    for axes in grid[:, 0]:
        axes.set_ylabel(ylabel)
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    return figure, list(grid.T.flat)[: len(titles)]


def dot_size(count: int) -> float:
    """Size of ``count`` scattered dots at which single dots stay visible."""
    return max(3.0, min(18.0, 3000 / max(count, 1)))


def logarithmic(axes: Any) -> None:
    """A logarithmic scale upwards, with plain numbers."""
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")


def plain_numbers(*logarithmic_axes: Any) -> None:
    """Labels at 1, 2 and 5 where a logarithmic axis spans less than two decades; at most five where it spans many."""
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
    """One legend of all axes, or of the lines by name, under the figure; ``note`` explains curves and bands."""
    if lines is None:
        found = (
            pair
            for axes in figure.axes
            for pair in zip(*axes.get_legend_handles_labels(), strict=True)
        )
        lines = {name: line for line, name in found}
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
