"""Timeline of trials that ran at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from kbo._base.drawing import BLUE, ORANGE, RED
from kbo._base.surroundings import fixed
from kbo.optimize import Trial
from kbo.report.record import Record, Run

_COLOURS = {"complete": BLUE, "failed": RED, "pruned": ORANGE}
_UNITS = {"hours": 3600.0, "minutes": 60.0, "seconds": 1.0}


class Piece(NamedTuple):
    """A trial in a timeline.

    Attributes:
        lane: The row.
        start, seconds: Its beginning and duration, without the times in which no trial ran.
        trial: The trial.
    """

    lane: int
    start: float
    seconds: float
    trial: Trial


def lanes(trials: Sequence[Trial]) -> list[Piece]:
    """Return the finished trials with known times in rows, so that those of a row do not overlap.

    Which worker ran a trial is not recorded: a trial takes the first row that is free.
    """
    known = [
        (trial.started, trial.finished, trial)
        for trial in trials
        if trial.started is not None
        and trial.finished is not None
        and trial.finished >= trial.started
    ]
    free: list[float] = []
    found, idle, until = [], 0.0, 0.0
    for start, end, trial in sorted(known, key=lambda entry: entry[:2]):
        idle, until = idle + max(0.0, start - until), max(until, end)
        lane = next((i for i, moment in enumerate(free) if moment <= start), len(free))
        free[lane : lane + 1] = [end]
        found.append(Piece(lane, start - idle, end - start, trial))
    return found


@fixed
def draw_timeline(axes: Any, run: Run) -> None:
    """Draw the finished trials as bars in as many rows as ran at a time; times in which none ran are left out.

    Args:
        axes: Where to draw.
        run: The run.
    """
    pieces = lanes(Record.of(run).trials)
    end = max((piece.start + piece.seconds for piece in pieces), default=0.0)
    unit = next((name for name, seconds in _UNITS.items() if end >= 2 * seconds), "seconds")
    for status, color in _COLOURS.items():
        bars = [piece for piece in pieces if piece.trial.status == status]
        if bars:
            starts, widths = (
                [getattr(p, name) / _UNITS[unit] for p in bars] for name in ("start", "seconds")
            )
            style = {"color": color, "ec": "white", "lw": 0.6, "label": status}
            axes.barh([piece.lane for piece in bars], widths, 0.8, starts, **style)
    rows = 1 + max((piece.lane for piece in pieces), default=0)
    axes.set_yticks(range(rows), range(1, rows + 1))
    axes.set(
        xlabel=f"{unit} with a running trial", ylabel="trials at a time", ylim=(rows - 0.4, -0.6)
    )
