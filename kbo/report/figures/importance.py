"""Importance of parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kbo._base.drawing import BLUE, GREY
from kbo._base.surroundings import fixed
from kbo.optimize.insight.importance import LEVEL, Importance
from kbo.report.figures.axes import shortened


@fixed
def draw_importance(axes: Any, entries: Sequence[Importance]) -> None:
    """Draw total and first-order indices with their intervals, the first entry at the top.

    Args:
        axes: Where to draw.
        entries: From ``importance``.
    """
    totals = [entry.total for entry in entries]
    firsts = [entry.first for entry in entries]
    _draw_bars(axes, totals, shift=-0.18, color=GREY, label="total")
    label = f"alone; lines: {LEVEL:.0%} of draws"
    _draw_bars(axes, firsts, shift=0.18, color=BLUE, label=label)
    names = [shortened(entry.name, 24) for entry in entries]
    axes.set_yticks(range(len(names)), names)
    axes.set(xlim=(0, 1), ylim=(len(names) - 0.5, -0.5), xlabel="part of the variance of the model")


def _draw_bars(
    axes: Any, intervals: Sequence[tuple[float, float, float]], shift: float, **style: Any
) -> None:
    """Draw a bar for each lower bound, value and upper bound, beside its row."""
    for row, (lower, value, upper) in enumerate(intervals):
        place = row + shift
        axes.barh(place, value, 0.34, alpha=0.75, **style)
        style.pop("label", None)  # one entry in the legend
        ends = [[value - lower], [upper - value]]
        axes.errorbar(value, place, xerr=ends, fmt="none", ecolor="black", elinewidth=1, capsize=2)
