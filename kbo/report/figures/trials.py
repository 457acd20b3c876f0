"""Figures of the trials by number: values, measurements, and learning curves."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from typing import Any

from kbo._base.isolation import isolated
from kbo._base.plotting import (
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
from kbo.optimize import Constraint, Trial
from kbo.optimize.constraints.constraint import violations
from kbo.report.figures.axes import VALUE, frame, whole_numbers
from kbo.report.record import Record, Run
from kbo.report.replay import Moment

_WIDE = 20
"""A scale is logarithmic if the ratio of the largest to the smallest value is above this."""


@isolated
def draw_history(axes: Any, run: Run, moments: Sequence[Moment] = ()) -> None:
    """Draw values, the best so far, trials without a value, and after each trial the interval at the recommendation.

    Outliers are left outside the frame, except the best value and the value of the recommended trial.

    Args:
        axes: The axes to draw on.
        run: The run.
        moments: The states of the run, from ``history``; without them there are no intervals.
    """
    record = Record.of(run)
    recommended = record.recommended()
    number = None
    if recommended is not None:
        number = recommended.number
    draw_trace(
        axes,
        record.trials,
        maximize=record.maximize,
        recommended=number,
        constraints=record.constraints,
    )
    bounded = [m for m in moments if m.lower is not None and m.upper is not None]
    lower: Any = [moment.lower for moment in bounded]
    upper: Any = [moment.upper for moment in bounded]
    if bounded:
        numbers = [moment.finished - 1 for moment in bounded]  # trials are numbered from 0
        style = {"color": BLUE, "alpha": 0.2, "lw": 0, "step": "post"}
        axes.fill_between(numbers, lower, upper, label="interval, recommended", **style)
    late = len(bounded) // 4  # the first intervals are wide
    _limit_values(axes, record, [*lower[late:], *upper[late:]])
    whole_numbers(axes.xaxis)
    axes.set(xlabel="trial", ylabel=VALUE)


def _limit_values(axes: Any, record: Record, interval_ends: Sequence[float]) -> None:
    """Set the limits of the y axis: around all values on a logarithmic scale, otherwise without outliers."""
    values = [trial.value for trial in record.trials if trial.value is not None]
    if axes.get_yscale() == "log":
        axes.set_ylim(min(values) / 1.3, 1.3 * min(max(values), LARGEST))
        plain_numbers(axes.yaxis)
    elif values:
        shown = [trial for trial in (record.best(), record.recommended()) if trial is not None]
        needed = [trial.value or 0.0 for trial in shown]
        frame(axes, values, needed, interval_ends)


@isolated
def trace(
    trials: Sequence[Trial], path: str | os.PathLike[str], *, title: str, **options: Any
) -> None:
    """Draw the trials of a run into a PNG file; ``options`` are further arguments of ``draw_trace``."""
    figure, (axes,) = panels([title], "trial", VALUE)
    draw_trace(axes, trials, **options)
    whole_numbers(axes.xaxis)
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
    """Draw values against trials, the best so far, trials without a value, and the recommended trial.

    With constraints, only trials whose measurements keep all limits count for the best so far.

    Args:
        axes: The axes to draw on; the caller sets labels and legend.
        trials: The trials of a run.
        maximize: Whether larger values are better.
        recommended: The number of the recommended trial.
        constraints: Limits on measured quantities.
    """
    feasible: dict[int, float] = {}
    infeasible: dict[int, float] = {}
    for trial in trials:
        if trial.value is None:
            continue
        value = min(max(trial.value, -LARGEST), LARGEST)
        if violations(trial, constraints):
            infeasible[trial.number] = value
        else:
            feasible[trial.number] = value
    values = feasible | infeasible
    size = dot_size(len(values))
    _draw_dots(axes, feasible, s=size, color=GREY, label="observed (noisy)")
    if feasible:
        last = max(trial.number for trial in trials if trial.status != "pending")
        _draw_best_so_far(axes, feasible, last, maximize)
    _draw_dots(axes, infeasible, s=size, color=ORANGE, label="breaks a limit")
    if values and min(values.values()) > 0 and max(values.values()) / min(values.values()) > _WIDE:
        logarithmic(axes)
    for status, color in (("failed", RED), ("pruned", ORANGE)):
        numbers = [trial.number for trial in trials if trial.status == status]
        if numbers:
            _draw_crosses(axes, numbers, color=color, label=status)
    if recommended in values:
        axes.scatter([recommended], [values[recommended]], label="recommended", **RING)


def _draw_dots(axes: Any, values: dict[int, float], **style: Any) -> None:
    """Draw values as dots, by the numbers of their trials."""
    if values:
        axes.scatter(list(values), list(values.values()), lw=0, zorder=2, **style)


def _draw_best_so_far(axes: Any, values: dict[int, float], last: int, maximize: bool) -> None:
    """Draw the best value so far as a step function, up to the trial ``last``."""
    pick = min
    if maximize:
        pick = max
    best = list(itertools.accumulate(values.values(), pick))
    style = {"where": "post", "color": BLUE, "lw": 1.6, "zorder": 3}
    axes.step([*values, last], [*best, best[-1]], label="best observed", **style)


def _draw_crosses(axes: Any, numbers: Sequence[int], **style: Any) -> None:
    """Draw a cross at the upper edge of the axes for each trial without a value."""
    axes.update_datalim([(number, 0.0) for number in numbers], updatey=False)
    upper_edge = [1.0] * len(numbers)
    transform = axes.get_xaxis_transform()
    axes.scatter(numbers, upper_edge, marker="x", s=24, clip_on=False, transform=transform, **style)


@isolated
def draw_limit(axes: Any, run: Run, constraint: Constraint) -> None:
    """Draw the measurements of a quantity and its limit; measurements beyond the limit have another colour.

    Args:
        axes: The axes to draw on.
        run: The run.
        constraint: The limit.
    """
    record = Record.of(run)
    limit = constraint.sign * constraint.limit
    within: dict[int, float] = {}
    beyond: dict[int, float] = {}
    for trial in record.trials:
        value = trial.measurement(constraint.name)
        if value is None:
            continue
        if constraint.kept_by(value):
            within[trial.number] = value
        else:
            beyond[trial.number] = value
    values = within | beyond
    size = dot_size(len(values))
    _draw_dots(axes, within, s=size, color=GREY, label="within the limit")
    _draw_dots(axes, beyond, s=size, color=ORANGE, label="beyond it")
    recommended = record.recommended()
    if recommended is not None and recommended.number in values:
        number = recommended.number
        axes.scatter([number], [values[number]], label="recommended", **RING)
    axes.axhline(limit, color=RED, lw=1.2, label=f"limit {limit:g}")
    frame(axes, list(values.values()), [limit])
    whole_numbers(axes.xaxis)
    axes.set(xlabel="trial", ylabel=constraint.name)


@isolated
def draw_curves(axes: Any, run: Run) -> None:
    """Draw the learning curves of the trials, with a cross at the end of a trial that was stopped early.

    Args:
        axes: The axes to draw on.
        run: The run.
    """
    record = Record.of(run)
    recommended = record.recommended()
    values: list[float] = []
    labels: set[str] = set()
    for trial in record.trials:
        if not trial.reports:
            continue
        label, style = _curve_style(trial, is_recommended=trial == recommended)
        if label not in labels:  # one entry in the legend
            style["label"] = label
        labels.add(label)
        reports = sorted(trial.reports)
        reported = [value for _, value in reports]
        axes.plot([step for step, _ in reports], reported, **style)
        values += reported
    frame(axes, values, [])
    whole_numbers(axes.xaxis)
    axes.set(xlabel="step", ylabel=f"reported {VALUE}")


def _curve_style(trial: Trial, is_recommended: bool) -> tuple[str, dict[str, Any]]:
    """Return the label and the style of a trial's curve."""
    if is_recommended:
        return "recommended", {"color": RED, "lw": 2.0, "zorder": 3}
    if trial.status == "pruned":
        cross = {"marker": "x", "markevery": [-1], "ms": 4}
        return "stopped early", {"color": ORANGE, "lw": 0.9, "alpha": 0.7, **cross}
    return "other trials", {"color": BLUE, "lw": 0.9, "alpha": 0.6}
