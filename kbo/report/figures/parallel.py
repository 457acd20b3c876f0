"""Parallel coordinates: every trial a line through its parameters."""

from __future__ import annotations

from typing import Any

import torch
from matplotlib.collections import LineCollection

from kbo._base.drawing import BLUE, GREY, RED
from kbo._base.surroundings import fixed
from kbo.report.figures.axes import shortened
from kbo.report.record import Record, Run
from kbo.space import Float, Int, Parameter

BEST = 0.2
"""Part of the trials that are drawn as the best ones."""

_MOST_LINES = 400


@fixed
def draw_parallel(axes: Any, run: Run) -> None:
    """Draw a line for each trial with a value, through a row for each parameter and one for the value at the bottom.

    The rows run from the lower to the upper bound of a parameter, and from the best to the worst value by rank. Of
    long runs the trials with the best values are drawn.

    Args:
        axes: Where to draw.
        run: The run.
    """
    record = Record.of(run)
    space, chosen = record.space, record.recommended()
    trials = sorted(record.with_status("complete"), key=record.rank)[:_MOST_LINES]
    units = space.units([trial.params for trial in trials])
    units = units.where(space.active(units), torch.nan)  # lines are interrupted there
    varied = {name: p for name, p in space.parameters.items() if p.columns}
    units = units[:, [name in varied for name in space.parameters]].tolist()
    last = max(1, len(trials) - 1)
    lines = [
        [(x, row) for row, x in enumerate([*unit, rank / last])] for rank, unit in enumerate(units)
    ]
    best = max(1, round(BEST * len(trials)))
    groups = {
        "other trials": (lines[best:], {"colors": GREY, "lw": 0.8, "alpha": 0.35}),
        f"best {BEST:.0%}": (lines[:best], {"colors": BLUE, "lw": 1.1, "alpha": 0.8}),
        "recommended": (
            [lines[trials.index(chosen)]] if chosen in trials else [],
            {"colors": RED, "lw": 2.0},
        ),
    }
    for label, (group, style) in groups.items():
        if group:
            axes.add_collection(LineCollection(group, label=label, **style))
    names = [f"{shortened(name, 24)}\n{_range(p)}" for name, p in varied.items()]
    ends = " to ".join(f"{trials[i].value:.4g}" for i in (0, -1))
    axes.set_yticks(range(len(names) + 1), [*names, f"rank of the value\n{ends}"], fontsize=8)
    axes.set(
        xlim=(-0.02, 1.02),
        ylim=(len(names) + 0.3, -0.3),
        xlabel="lower to upper bound, options in their order",
    )
    axes.set_xticks([])


def _range(parameter: Parameter) -> str:
    if isinstance(parameter, (Float, Int)):
        return f"{parameter.low:g} to {parameter.high:g}" + ", log" * parameter.log
    return shortened(", ".join(map(str, parameter.options)), 24)
