"""Learning curves: what trials reported while they ran."""

from __future__ import annotations

from typing import Any

from kbo._base.drawing import BLUE, ORANGE, RED
from kbo._base.surroundings import fixed
from kbo.report.figures.axes import VALUE, frame, whole_numbers
from kbo.report.record import Record, Run


@fixed
def draw_curves(axes: Any, run: Run) -> None:
    """Draw the reports of trials against steps, with a cross at the end of those that were stopped early.

    Args:
        axes: Where to draw.
        run: The run.
    """
    record = Record.of(run)
    chosen, values = record.recommended(), []
    seen = set()
    for trial in record.trials:
        if not trial.reports:
            continue
        steps, reported = zip(*sorted(trial.reports), strict=True)
        kind = (
            "recommended"
            if trial == chosen
            else "stopped early"
            if trial.status == "pruned"
            else "other trials"
        )
        style = {
            "recommended": (RED, 2.0, 1.0),
            "stopped early": (ORANGE, 0.9, 0.7),
            "other trials": (BLUE, 0.9, 0.6),
        }
        color, width, alpha = style[kind]
        label = {} if kind in seen else {"label": kind}
        end = {"marker": "x", "markevery": [-1], "ms": 4} if kind == "stopped early" else {}
        axes.plot(
            steps,
            reported,
            color=color,
            lw=width,
            alpha=alpha,
            zorder=3 if trial == chosen else 2,
            **label,
            **end,
        )
        seen.add(kind)
        values += reported
    frame(axes, values, [])
    whole_numbers(axes.xaxis)
    axes.set(xlabel="step", ylabel=f"reported {VALUE}")
