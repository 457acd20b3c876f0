"""The importance of the parameters of a run, and its figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kbo._base.isolation import isolated
from kbo._base.plotting import BLUE, GREY
from kbo.errors import InvalidInput
from kbo.optimize.insight.credible_sets import Effect
from kbo.optimize.insight.importance import LEVEL
from kbo.optimize.insight.importance import importance as importance_of
from kbo.report.figures.axes import shortened
from kbo.report.record import Record, Run


@isolated
def importance(run: Run) -> list[Effect]:
    """Return the share of each parameter in the variation of the model, the largest share first.

    Args:
        run: The run.

    Raises:
        InvalidInput: There is no model yet.
        RefutedAssumptions: In the certified setting, no function satisfies the assumptions.
    """
    optimizer = Record.of(run).reopened()
    surrogate = optimizer.insight.report_surrogate()
    if surrogate is None:
        raise InvalidInput("there is no importance: too few evaluations for a model.")
    return importance_of(optimizer.space, surrogate)


@isolated
def draw_importance(axes: Any, entries: Sequence[Effect]) -> None:
    """Draw the share of each parameter in the variation, with its interval, the first entry at the top.

    Args:
        axes: The axes to draw on.
        entries: The result of ``importance``, or the effects of ``Result.answers``.
    """
    for row, entry in enumerate(entries):
        share = entry.share
        color = GREY
        if entry.visible:
            color = BLUE
        axes.barh(row, share.value, 0.6, alpha=0.75, color=color)
        ends = [[share.value - share.lower], [share.upper - share.value]]
        axes.errorbar(
            share.value, row, xerr=ends, fmt="none", ecolor="black", elinewidth=1, capsize=2
        )
    names = [shortened(entry.name, 24) for entry in entries]
    axes.set_yticks(range(len(names)), names)
    label = f"share of the variation; lines: with {LEVEL:.0%}"
    axes.set(xlim=(0, 1), ylim=(len(names) - 0.5, -0.5), xlabel=label)
