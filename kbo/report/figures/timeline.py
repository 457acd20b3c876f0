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
    spans = []
    for trial in trials:
        if trial.started is None or trial.finished is None:
            continue
        if trial.finished >= trial.started:
            spans.append((trial.started, trial.finished, trial))
    spans.sort(key=lambda span: span[:2])
    ends: list[float] = []  # of the last trial of each row
    pieces = []
    idle = 0.0
    latest_end = 0.0
    for start, end, trial in spans:
        idle += max(0.0, start - latest_end)
        latest_end = max(latest_end, end)
        lane = 0
        while lane < len(ends) and ends[lane] > start:
            lane += 1
        ends[lane : lane + 1] = [end]
        pieces.append(Piece(lane, start - idle, end - start, trial))
    return pieces


def row_count(pieces: Sequence[Piece]) -> int:
    """Return the number of rows of a timeline, at least 1."""
    return 1 + max((piece.lane for piece in pieces), default=0)


@fixed
def draw_timeline(axes: Any, run: Run) -> None:
    """Draw the finished trials as bars in as many rows as ran at a time; times in which none ran are left out.

    Args:
        axes: Where to draw.
        run: The run.
    """
    pieces = lanes(Record.of(run).trials)
    end = max((piece.start + piece.seconds for piece in pieces), default=0.0)
    unit = "seconds"
    for name, seconds in _UNITS.items():
        if end >= 2 * seconds:
            unit = name
            break
    for status, color in _COLOURS.items():
        bars = [piece for piece in pieces if piece.trial.status == status]
        if not bars:
            continue
        rows = [piece.lane for piece in bars]
        starts = [piece.start / _UNITS[unit] for piece in bars]
        widths = [piece.seconds / _UNITS[unit] for piece in bars]
        axes.barh(rows, widths, 0.8, starts, color=color, ec="white", lw=0.6, label=status)
    n_rows = row_count(pieces)
    axes.set_yticks(range(n_rows), range(1, n_rows + 1))
    axes.set(
        xlabel=f"{unit} with a running trial", ylabel="trials at a time", ylim=(n_rows - 0.4, -0.6)
    )
