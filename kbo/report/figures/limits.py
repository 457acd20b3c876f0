"""Measurements of a quantity that has a limit, in the order of trials."""

from __future__ import annotations

from typing import Any

from kbo._base.drawing import GREY, ORANGE, RED, RING, dot_size
from kbo._base.surroundings import fixed
from kbo.optimize import Constraint
from kbo.optimize.run.trials import quantity
from kbo.report.figures.axes import frame, whole_numbers
from kbo.report.record import Record, Run


@fixed
def draw_limit(axes: Any, run: Run, constraint: Constraint) -> None:
    """Draw what trials have measured of a quantity, the limit, and the side of it that is not allowed.

    Args:
        axes: Where to draw.
        run: The run.
        constraint: The constraint.
    """
    record = Record.of(run)
    limit, chosen = constraint.sign * constraint.limit, record.recommended()
    known = [(t, value) for t in record.trials if (value := quantity(t, constraint)) is not None]
    for kept, color, label in ((True, GREY, "within the limit"), (False, ORANGE, "beyond it")):
        part = [(t.number, value) for t, value in known if constraint.kept_by(value) == kept]
        if part:
            axes.scatter(
                *zip(*part, strict=True),
                s=dot_size(len(known)),
                lw=0,
                color=color,
                label=label,
                zorder=2,
            )
    at = next(
        (value for t, value in known if chosen is not None and t.number == chosen.number), None
    )
    if at is not None and chosen is not None:
        axes.scatter([chosen.number], [at], label="recommended", **RING)
    axes.axhline(limit, color=RED, lw=1.2, label=f"limit {limit:g}")
    frame(axes, [value for _, value in known], [limit])
    whole_numbers(axes.xaxis)
    axes.set(xlabel="trial", ylabel=constraint.name)
