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
    rows = range(len(entries))
    for name, shift, color, label in (
        ("total", -0.18, GREY, "total"),
        ("first", 0.18, BLUE, f"alone; lines: {LEVEL:.0%} of draws"),
    ):
        lower, value, upper = zip(*(getattr(entry, name) for entry in entries), strict=True)
        ends = [
            [v - low for v, low in zip(value, lower, strict=True)],
            [u - v for u, v in zip(upper, value, strict=True)],
        ]
        place = [row + shift for row in rows]
        axes.barh(place, value, 0.34, color=color, alpha=0.75, label=label)
        axes.errorbar(value, place, xerr=ends, fmt="none", ecolor="black", elinewidth=1, capsize=2)
    axes.set_yticks(rows, [shortened(entry.name, 24) for entry in entries])
    axes.set(
        xlim=(0, 1), ylim=(len(entries) - 0.5, -0.5), xlabel="part of the variance of the model"
    )
