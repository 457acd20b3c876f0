"""Several objectives: the front, and the hypervolume over the trials."""

from __future__ import annotations

from typing import Any

from kbo._base.isolation import isolated
from kbo._base.plotting import BLUE, GREY, LARGEST, RED, RING, dot_size
from kbo.optimize.insight.front import Front
from kbo.optimize.objectives.hypervolume import volumes_so_far
from kbo.optimize.objectives.objective import Objective, main_of, targets_of
from kbo.optimize.run.trials import measurements
from kbo.report.figures.axes import frame, whole_numbers
from kbo.report.record import Record, Run


@isolated
def draw_front(axes: Any, run: Run, front: Front, first: Objective, second: Objective) -> None:
    """Draw two objectives: the front with its intervals, the observed values of other trials, and the reference.

    Args:
        axes: Where to draw.
        run: The run.
        front: Its front.
        first: The horizontal objective.
        second: The vertical objective.
    """
    record = Record.of(run)
    numbers = {point.trial.number for point in front.points}
    others = [trial for trial in record.with_status("complete") if trial.number not in numbers]
    observed = []
    means = []
    errors = []
    for direction, objective in (("x", first), ("y", second)):
        name = objective.name
        of_others = [measurements(trial, main_of(front.objectives))[name] for trial in others]
        observed.append([min(max(value, -LARGEST), LARGEST) for value in of_others])
        intervals = [point.values[name] for point in front.points]
        means.append([interval.mean for interval in intervals])
        below = [interval.mean - interval.lower for interval in intervals]
        above = [interval.upper - interval.mean for interval in intervals]
        errors.append([below, above])
        ends = [end for interval in intervals for end in (interval.lower, interval.upper)]
        frame(axes, observed[-1], [*means[-1], front.reference[name]], ends, direction)
    corner_x = front.reference[first.name]
    corner_y = front.reference[second.name]
    ahead = []
    for x, y in zip(*means, strict=True):
        if first.sign * (x - corner_x) > 0 and second.sign * (y - corner_y) > 0:
            ahead.append((x, y))
    if ahead and len(front.objectives) == 2:  # the border of what the front dominates
        x, y = zip(*ahead, strict=True)
        border_x = [x[0], *x, corner_x]
        border_y = [corner_y, *y, y[-1]]
        axes.step(border_x, border_y, where="post", color=BLUE, lw=1.2, alpha=0.7)
    axes.scatter(*observed, s=dot_size(len(others)), color=GREY, lw=0, label="other trials")
    style: dict[str, Any] = {"fmt": "o", "ms": 3.5, "color": BLUE, "elinewidth": 1, "zorder": 3}
    axes.errorbar(*means, errors[1], errors[0], label="front, intervals", **style)
    place = [front.balanced.values[objective.name].mean for objective in (first, second)]
    axes.scatter(*place, label="balanced", **RING)
    axes.scatter(corner_x, corner_y, marker="+", s=70, color=RED, lw=1.4, label="reference")
    axes.set(xlabel=str(first), ylabel=str(second))


@isolated
def draw_volume(axes: Any, run: Run, front: Front) -> None:
    """Draw the hypervolume of the observed values so far against trials.

    Args:
        axes: Where to draw.
        run: The run.
        front: Its front, which has the reference.
    """
    record = Record.of(run)
    complete = [trial for trial in record.with_status("complete") if record.rank(trial)[0] == 0]
    targets = targets_of(complete, front.objectives)
    reference = [o.sign * front.reference[o.name] for o in front.objectives]
    volumes = volumes_so_far(targets, targets.new_tensor(reference))
    numbers = [trial.number for trial in complete]
    axes.step(numbers, volumes, where="post", color=BLUE, lw=1.6)
    whole_numbers(axes.xaxis)
    axes.set(xlabel="trial", ylabel="hypervolume (observed)")
