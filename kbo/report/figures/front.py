"""Several objectives: the front, its settings, and the hypervolume over the trials."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from kbo._base.drawing import BLUE, GREY, LARGEST, RED, RING, dot_size
from kbo._base.surroundings import fixed
from kbo.optimize.hypervolume import volumes_so_far
from kbo.optimize.insight.front import Front
from kbo.optimize.objective import Objective, targets_of
from kbo.optimize.table import by_name
from kbo.report.figures.axes import limits_of, shortened, whole_numbers
from kbo.report.record import Record, Run

_MOST_AXES = 10
"""Parallel axes in a figure: all objectives, and the first parameters."""

_LONGEST = 14
"""Characters of a name below a parallel axis."""


@fixed
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
    names = [objective.name for objective in record.objectives]
    columns = [names.index(first.name), names.index(second.name)]
    numbers = {point.trial.number for point in front.points}
    others = [trial for trial in record.with_status("complete") if trial.number not in numbers]
    signs = torch.tensor([first.sign, second.sign], dtype=torch.float64)
    observed = signs * targets_of(others, record.objectives)[:, columns]
    dominated = observed.clamp(-LARGEST, LARGEST).T.tolist()
    axes.scatter(*dominated, s=dot_size(len(others)), color=GREY, lw=0, label="other trials")

    x = [point.values[first.name] for point in front.points]
    y = [point.values[second.name] for point in front.points]
    x_means = [value.mean for value in x]
    y_means = [value.mean for value in y]
    corner = (front.reference[first.name], front.reference[second.name])
    if len(names) == 2:
        steps = _steps(first, second, list(zip(x_means, y_means, strict=True)), corner)
        axes.plot(*zip(*steps, strict=True), color=BLUE, lw=1.2, alpha=0.7)
    x_ends = [[v.mean - v.lower for v in x], [v.upper - v.mean for v in x]]
    y_ends = [[v.mean - v.lower for v in y], [v.upper - v.mean for v in y]]
    style: dict[str, Any] = {"fmt": "o", "ms": 3.5, "color": BLUE, "elinewidth": 1, "zorder": 3}
    axes.errorbar(x_means, y_means, y_ends, x_ends, label="front, intervals", **style)
    for point in front.points:
        if point.trial.number == front.balanced:
            place = (point.values[first.name].mean, point.values[second.name].mean)
            axes.scatter(*place, label="balanced", **RING)
    axes.scatter(*corner, marker="+", s=70, color=RED, lw=1.4, label="reference")

    x_limits = limits_of(dominated[0], [*x_means, corner[0]], _ends(x))
    y_limits = limits_of(dominated[1], [*y_means, corner[1]], _ends(y))
    if x_limits is not None:
        axes.set_xlim(*x_limits)
    if y_limits is not None:
        axes.set_ylim(*y_limits)
    axes.set(xlabel=str(first), ylabel=str(second))


def _ends(intervals: Sequence[tuple[float, float, float]]) -> list[float]:
    """Return both ends of all intervals."""
    ends = []
    for lower, _, upper in intervals:
        ends += [lower, upper]
    return ends


def _steps(
    first: Objective,
    second: Objective,
    points: Sequence[tuple[float, float]],
    corner: tuple[float, float],
) -> list[tuple[float, float]]:
    """Return the corners of the border of what points dominate, from the reference to the reference.

    Points that are no better than the reference in both objectives are left out.

    Args:
        first: The horizontal objective.
        second: The vertical objective.
        points: The points of a front.
        corner: The reference.
    """
    kept = []
    for point in points:
        ahead_x = first.sign * (point[0] - corner[0])
        ahead_y = second.sign * (point[1] - corner[1])
        if ahead_x > 0 and ahead_y > 0:
            kept.append(point)
    kept.sort(key=lambda point: -first.sign * point[0])  # best in the first objective first
    steps = []
    height = corner[1]
    for x, y in kept:
        steps += [(x, height), (x, y)]
        height = y
    return [*steps, (corner[0], height)]


@fixed
def draw_parallel(axes: Any, run: Run, front: Front) -> None:
    """Draw the parameters and the objectives of each setting of a front on parallel axes.

    Args:
        axes: Where to draw.
        run: The run.
        front: Its front.
    """
    record = Record.of(run)
    space = record.space
    varying = [name for name, parameter in space.parameters.items() if parameter.columns]
    chosen = varying[: max(_MOST_AXES - len(front.objectives), 0)]
    lines = {point.trial.number: [] for point in front.points}
    tops = []
    bottoms = []
    for name in chosen:
        parameter = space.parameters[name]
        low = parameter.unit(parameter.value(0.0))  # options have their middles
        high = parameter.unit(parameter.value(1.0))
        for point in front.points:
            params = by_name(point.trial.params)
            height = float("nan")  # of a parameter that is not active
            if name in params:
                height = (parameter.unit(params[name]) - low) / (high - low)
            lines[point.trial.number].append(height)
        bottoms.append(parameter.value(0.0))
        tops.append(parameter.value(1.0))
    for objective in front.objectives:
        means = [objective.sign * point.values[objective.name].mean for point in front.points]
        extent = (max(means) - min(means)) or 1.0
        for point, mean in zip(front.points, means, strict=True):
            lines[point.trial.number].append((mean - min(means)) / extent)
        bottoms.append(objective.sign * min(means))
        tops.append(objective.sign * max(means))
    for number, heights in lines.items():
        style: dict[str, Any] = {"color": BLUE, "lw": 0.9, "alpha": 0.6}
        if number == front.balanced:
            style = {"color": RED, "lw": 2.0, "zorder": 3, "label": "balanced"}
        axes.plot(heights, marker=".", **style)
    places = range(len(tops))
    names = [shortened(name, _LONGEST) for name in chosen]
    names += [shortened(objective.name, _LONGEST) for objective in front.objectives]
    for place, bottom, top in zip(places, bottoms, tops, strict=True):
        axes.axvline(place, color=GREY, lw=0.8, zorder=0)
        axes.text(place, -0.04, _number(bottom), ha="center", va="top", fontsize=8)
        axes.text(place, 1.04, _number(top), ha="center", va="bottom", fontsize=8)
    axes.axvline(len(chosen) - 0.5, color=GREY, lw=0.8, ls=":")
    axes.set_xticks(list(places), names, rotation=30, ha="right")
    axes.set(ylim=(-0.15, 1.15), xlim=(-0.5, len(tops) - 0.5), yticks=[])
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)


def _number(end: Any) -> str:
    """Return the end of a parallel axis as text."""
    if isinstance(end, float):
        return f"{end:.3g}"
    return shortened(str(end), _LONGEST // 2)


@fixed
def draw_volume(axes: Any, run: Run, front: Front) -> None:
    """Draw the hypervolume of the observed values so far against trials.

    Args:
        axes: Where to draw.
        run: The run.
        front: Its front, which has the reference.
    """
    record = Record.of(run)
    complete = record.within_limits()
    targets = targets_of(complete, front.objectives)
    signs = [objective.sign for objective in front.objectives]
    reference = targets.new_tensor(signs) * targets.new_tensor(list(front.reference.values()))
    numbers = [trial.number for trial in complete]
    volumes = volumes_so_far(targets, reference)
    axes.step(numbers, volumes, where="post", color=BLUE, lw=1.6)
    whole_numbers(axes.xaxis)
    axes.set(xlabel="trial", ylabel="hypervolume (observed)")
