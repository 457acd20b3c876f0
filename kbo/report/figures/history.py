"""Values in the order of trials, with the interval of the recommended setting."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from typing import Any

from kbo._base.drawing import (
    BLUE,
    GREY,
    LARGEST,
    ORANGE,
    RED,
    RING,
    dot_size,
    legend_below,
    logarithmic,
    panels,
    plain_numbers,
)
from kbo._base.surroundings import fixed
from kbo.optimize import Constraint, Trial
from kbo.optimize.run.trials import violations
from kbo.report.figures.axes import VALUE, frame, whole_numbers
from kbo.report.record import Record, Run
from kbo.report.replay import Moment


@fixed
def draw_history(axes: Any, run: Run, moments: Sequence[Moment] = ()) -> None:
    """Draw values, the best so far, trials without a value, and the interval of the setting recommended at the time.

    Values far from all others are left outside the frame, as far as the best and the recommended one allow.

    Args:
        axes: Where to draw.
        run: The run.
        moments: From ``history``; without them there are no intervals.
    """
    record = Record.of(run)
    best, chosen = record.best(), record.recommended()
    draw_trace(
        axes,
        record.trials,
        maximize=record.maximize,
        recommended=chosen.number if chosen else None,
        constraints=record.constraints,
    )
    known = [m for m in moments if m.lower is not None and m.upper is not None]
    x, lower, upper = ([getattr(m, name) for m in known] for name in ("finished", "lower", "upper"))
    if known:
        place = [count - 1 for count in x]  # trials are numbered from 0
        axes.fill_between(
            place,
            lower,
            upper,
            color=BLUE,
            alpha=0.2,
            lw=0,
            step="post",
            label="interval, recommended",
        )
    values = [trial.value for trial in record.with_status("complete") if trial.value is not None]
    if axes.get_yscale() == "log":
        axes.set_ylim(min(values) / 1.3, 1.3 * min(max(values), LARGEST))
        plain_numbers(axes.yaxis)
    elif values:
        late = len(known) // 4
        needed = [
            trial.value for trial in (best, chosen) if trial is not None and trial.value is not None
        ]
        frame(axes, values, needed, [*lower[late:], *upper[late:]])
    whole_numbers(axes.xaxis)
    axes.set(xlabel="trial", ylabel=VALUE)


@fixed
def trace(
    trials: Sequence[Trial], path: str | os.PathLike[str], *, title: str, **of_trace: Any
) -> None:
    """Draw the PNG of a run; ``of_trace`` are the other arguments of ``draw_trace``."""
    figure, (axes,) = panels([title], "trial", "value of the objective")
    draw_trace(axes, trials, **of_trace)
    if axes.get_legend_handles_labels()[0]:
        legend_below(figure)
    figure.savefig(path, dpi=150)


def draw_trace(
    axes: Any,
    trials: Sequence[Trial],
    *,
    maximize: bool = False,
    recommended: int | None = None,
    constraints: Sequence[Constraint] = (),
) -> None:
    """Draw values against trials, the best so far, the failures, and the recommended trial.

    With constraints the best so far is that of the trials that keep all limits as measured.

    Args:
        axes: Where to draw; labels and legend are left to the caller.
        trials: The trials of a run.
        maximize: Whether larger is better.
        recommended: Number of the recommended trial.
        constraints: Limits on measured quantities.
    """
    done = [
        (t.number, min(max(t.value, -LARGEST), LARGEST), t) for t in trials if t.value is not None
    ]
    for beyond, color, label in (
        (False, GREY, "observed (noisy)"),
        (True, ORANGE, "breaks a limit"),
    ):
        part = [
            (number, value)
            for number, value, t in done
            if bool(violations(t, constraints)) == beyond
        ]
        if not part:
            continue
        numbers, values = zip(*part, strict=True)
        axes.scatter(
            numbers, values, s=dot_size(len(done)), lw=0, color=color, label=label, zorder=2
        )
        if not beyond:
            running = itertools.accumulate(values, max if maximize else min)
            best, last = list(running), max(t.number for t in trials if t.status != "pending")
            axes.step(
                [*numbers, last],
                [*best, best[-1]],
                where="post",
                color=BLUE,
                lw=1.6,
                label="best observed",
                zorder=3,
            )
    if done:
        low, high = min(value for _, value, _ in done), max(value for _, value, _ in done)
        if low > 0 and high / low > 20:
            logarithmic(axes)
    for status, color in (("failed", RED), ("pruned", ORANGE)):
        ended = [t.number for t in trials if t.status == status]
        if ended:  # at the top edge, whatever limits the axes are given
            axes.update_datalim([(number, 0.0) for number in ended], updatey=False)
            style = {
                "marker": "x",
                "s": 24,
                "color": color,
                "clip_on": False,
                "transform": axes.get_xaxis_transform(),
            }
            axes.scatter(ended, [1.0] * len(ended), label=status, **style)
    chosen = next((t for t in trials if t.number == recommended and t.value is not None), None)
    if chosen is not None:
        axes.scatter([chosen.number], [chosen.value], label="recommended", **RING)
