"""The figure of the importance of parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kbo._base.isolation import isolated
from kbo._base.plotting import BLUE, GREY
from kbo.optimize.insight.credible_sets import Effect
from kbo.optimize.insight.importance import LEVEL
from kbo.report.figures.axes import shortened


@isolated
def draw_importance(axes: Any, entries: Sequence[Effect]) -> None:
    """Draw the share of each parameter in the variation, with its interval, the first entry at the top.

    Args:
        axes: The axes to draw on.
        entries: The result of ``importance``, or the effects of ``Result.answers``.
    """
    for row, entry in enumerate(entries):
        share = entry.share
        color = BLUE if entry.visible else GREY
        axes.barh(row, share.value, 0.6, alpha=0.75, color=color)
        ends = [[share.value - share.lower], [share.upper - share.value]]
        axes.errorbar(
            share.value, row, xerr=ends, fmt="none", ecolor="black", elinewidth=1, capsize=2
        )
    names = [shortened(entry.name, 24) for entry in entries]
    axes.set_yticks(range(len(names)), names)
    label = f"share of the variation; lines: with {LEVEL:.0%}"
    axes.set(xlim=(0, 1), ylim=(len(names) - 0.5, -0.5), xlabel=label)
