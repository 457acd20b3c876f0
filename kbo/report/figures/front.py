"""Figures for several objectives: the front, and the hypervolume over the trials."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from kbo._base.isolation import isolated
from kbo._base.plotting import BLUE, GREY, LARGEST, RED, RING, dot_size
from kbo.optimize import Trial
from kbo.optimize.insight.comparison import Estimate
from kbo.optimize.insight.front import Front
from kbo.optimize.objectives.hypervolume import volumes_so_far
from kbo.optimize.objectives.objective import Objective, main_of, targets_of
from kbo.optimize.run.trials import measurements
from kbo.report.figures.axes import frame, whole_numbers
from kbo.report.record import Record, Run


@isolated
def draw_front(axes: Any, run: Run, front: Front, first: Objective, second: Objective) -> None:
    """Draw the front in two objectives, with intervals, the observed values of other trials and the reference.

    Args:
        axes: The axes to draw on.
        run: The run.
        front: The front of the run.
        first: The horizontal objective.
        second: The vertical objective.
    """
    record = Record.of(run)
    numbers = {point.trial.number for point in front.points}
    others = [trial for trial in record.with_status("complete") if trial.number not in numbers]
    x = _coordinates(first, front, others)
    y = _coordinates(second, front, others)
    for direction, axis in (("x", x), ("y", y)):
        frame(axes, axis.observed, [*axis.means, axis.reference], axis.ends, direction)
    if len(front.objectives) == 2:
        _draw_border(axes, x, y)
    dots = {"s": dot_size(len(others)), "color": GREY, "lw": 0, "label": "other trials"}
    axes.scatter(x.observed, y.observed, **dots)
    bars: dict[str, Any] = {"fmt": "o", "ms": 3.5, "color": BLUE, "elinewidth": 1, "zorder": 3}
    axes.errorbar(x.means, y.means, y.errors, x.errors, label="front, intervals", **bars)
    axes.scatter(x.balanced, y.balanced, label="balanced", **RING)
    cross = {"marker": "+", "s": 70, "color": RED, "lw": 1.4, "label": "reference"}
    axes.scatter(x.reference, y.reference, **cross)
    axes.set(xlabel=str(first), ylabel=str(second))


class _Coordinates(NamedTuple):
    """The values of one objective, for one axis of the figure.

    Attributes:
        sign: 1 if larger values are better, else -1.
        observed: The observed values of trials that are not on the front.
        intervals: The interval of each point of the front.
        reference: The value of the reference.
        balanced: The mean at the balanced point.
    """

    sign: float
    observed: list[float]
    intervals: list[Estimate]
    reference: float
    balanced: float

    @property
    def means(self) -> list[float]:
        """The mean at each point of the front."""
        return [interval.value for interval in self.intervals]

    @property
    def errors(self) -> list[list[float]]:
        """The distances of the lower bounds and of the upper bounds from the means, for error bars."""
        below = [interval.value - interval.lower for interval in self.intervals]
        above = [interval.upper - interval.value for interval in self.intervals]
        return [below, above]

    @property
    def ends(self) -> list[float]:
        """The ends of the intervals."""
        return [end for interval in self.intervals for end in (interval.lower, interval.upper)]


def _coordinates(objective: Objective, front: Front, others: Sequence[Trial]) -> _Coordinates:
    """Return the values of an objective on the front, and the observed values of ``others``."""
    name = objective.name
    main = main_of(front.objectives)
    observed = [measurements(trial, main)[name] for trial in others]
    return _Coordinates(
        sign=objective.sign,
        observed=[min(max(value, -LARGEST), LARGEST) for value in observed],
        intervals=[point.values[name] for point in front.points],
        reference=front.reference[name],
        balanced=front.balanced.values[name].value,
    )


def _draw_border(axes: Any, x: _Coordinates, y: _Coordinates) -> None:
    """Draw the border of the region that the front of two objectives dominates, up to the reference."""
    ahead = []
    for x_mean, y_mean in zip(x.means, y.means, strict=True):
        if x.sign * (x_mean - x.reference) > 0 and y.sign * (y_mean - y.reference) > 0:
            ahead.append((x_mean, y_mean))
    if not ahead:
        return
    xs, ys = zip(*ahead, strict=True)
    border_x = [xs[0], *xs, x.reference]
    border_y = [y.reference, *ys, ys[-1]]
    axes.step(border_x, border_y, where="post", color=BLUE, lw=1.2, alpha=0.7)


@isolated
def draw_volume(axes: Any, run: Run, front: Front) -> None:
    """Draw the hypervolume of the observed values after each trial.

    Args:
        axes: The axes to draw on.
        run: The run.
        front: The front of the run, with the reference of the hypervolume.
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
