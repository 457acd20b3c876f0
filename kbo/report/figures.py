"""Pictures of a tuning run, each drawn on given axes; ``picture`` makes a figure with axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kbo.errors import InvalidInput
from kbo.experiments.draw.canvas import (
    BLUE,
    GREEN,
    GREY,
    LARGEST,
    RED,
    blank,
    dot_size,
    dress,
    legend_below,
    logarithmic,
    plain_numbers,
)
from kbo.experiments.draw.lines import draw_trace
from kbo.optimize import Optimizer, Trial
from kbo.report.replay import Moment
from kbo.space import Choice, Float, Params

VALUE = "value of the objective"
FINISHED = "trials finished"
_FAR = 10  # interquartile ranges from the quartiles beyond which values are left outside of a picture
_WIDE = 20  # largest over smallest value from which a logarithmic scale shows more
_STEPS = {"drawstyle": "steps-post", "lw": 1.6}
_NO_BOUND = "there is no bound to draw: too few evaluations, or a method without one."


_POINTS = 161  # points of a slice along a number; fewer where there are fewer whole numbers


def picture(xlabel: str = "", ylabel: str = "") -> tuple[Any, Any]:
    """Return a small figure, readable on a telephone, and its axes."""
    figure = blank(4.4, 3.2)
    axes = figure.add_subplot()
    dress(axes, "", xlabel, ylabel)
    return figure, axes


def finish(figure: Any) -> Any:
    """Return the figure with a legend below, if anything in it has a label."""
    if any(axes.get_legend_handles_labels()[0] for axes in figure.axes):
        legend_below(figure, columns=2)
    return figure


def draw_values(axes: Any, trials: Sequence[Trial], *, maximize: bool = False, recommended: int | None = None) -> None:
    """Draw observed values against trials, the best so far, failures, and the recommended trial.

    Values far from all others are left outside the frame, as far as the best and the recommended one allow.

    Args:
        axes: Where to draw.
        trials: The trials of a run.
        maximize: Whether larger is better.
        recommended: Number of the recommended trial.
    """
    draw_trace(axes, trials, maximize=maximize, recommended=recommended)
    values = [trial.value for trial in trials if trial.value is not None]
    if axes.get_yscale() == "log":
        plain_numbers(axes.yaxis)
    elif values:
        chosen = [trial.value for trial in trials if trial.number == recommended and trial.value is not None]
        _frame(axes, values, [*chosen, max(values) if maximize else min(values)])
    _whole_numbers(axes)
    axes.set(xlabel="trial", ylabel=VALUE)


def draw_recommended(axes: Any, moments: Sequence[Moment]) -> None:
    """Draw the interval of the setting that was recommended after each trial, and the best observed value.

    Args:
        axes: Where to draw.
        moments: From ``history``.
    """
    bounded = _bounded(moments)
    x = [m.finished for m in bounded]
    lower, upper = ([float(getattr(m, name)) for m in bounded] for name in ("lower", "upper"))
    axes.fill_between(x, lower, upper, color=BLUE, alpha=0.2, lw=0, step="post", label="interval")
    _line(axes, bounded, "mean", **_STEPS, color=BLUE, label="posterior mean")
    best = _line(axes, moments, "best", **_STEPS | {"lw": 1.4}, color=GREY, ls="--", label="best observed")
    late = len(bounded) // 4
    _frame(axes, [], best[len(moments) // 4 :] + lower[late:] + upper[late:])
    _whole_numbers(axes)
    axes.set(xlabel=FINISHED, ylabel=VALUE)


def draw_width(axes: Any, moments: Sequence[Moment]) -> None:
    """Draw the width of the interval of the recommended setting, and the optimality gap where it was computed."""
    widths = _line(axes, _bounded(moments), "width", color=BLUE, lw=1.6, label="width of the interval")
    gaps = _line(axes, moments, "gap", color=RED, lw=1.2, marker="o", ms=3.5, label="optimality gap")
    _scale(axes, widths + gaps)
    axes.set(xlabel=FINISHED, ylabel="in units of the objective")


def draw_quantity(axes: Any, moments: Sequence[Moment], quantity: str) -> None:
    """Draw a number in the bounds against the trials finished.

    Args:
        axes: Where to draw.
        moments: From ``history``.
        quantity: "noise_std", the noise level; "noise_bounds", its bounds where a method bounds it online;
            "norm_bound"; "ridge"; "anchors", the number of points of a dictionary.

    Raises:
        InvalidInput: There is no such quantity.
    """
    if quantity not in _QUANTITIES:
        raise InvalidInput(f"unknown quantity {quantity!r}; use one of {', '.join(_QUANTITIES)}.")
    label, lines = _QUANTITIES[quantity]
    values = [y for name, style in lines.items() for y in _line(axes, moments, name, above=0, **_STEPS, **style)]
    _scale(axes, [0.0, *values] if quantity == "anchors" else values)  # the scale of a count starts at zero
    axes.set(xlabel=FINISHED, ylabel=label)


_NOISE = "noise level, units of the objective"
# Quantity -> label of the axis, and the style of the line of each attribute of ``Moment``.
_QUANTITIES: dict[str, tuple[str, dict[str, dict[str, Any]]]] = {
    "noise_std": (_NOISE, {"noise_std": {"color": BLUE}}),
    "noise_bounds": (
        _NOISE,
        {
            "noise_upper": {"color": RED, "label": "upper bound (used)"},
            "noise_lower": {"color": GREEN, "ls": "--", "label": "lower bound"},
        },
    ),
    "norm_bound": ("norm bound, units of the objective", {"norm_bound": {"color": BLUE}}),
    "ridge": ("ridge, units of the kernel", {"ridge": {"color": BLUE}}),
    "anchors": ("points of the dictionary", {"anchors": {"color": BLUE}}),
}


def draw_miscoverage(axes: Any, moments: Sequence[Moment]) -> None:
    """Draw the range expected of every value before it was observed, and the value.

    Raises:
        InvalidInput: There was no bound before any value.
    """
    awaited = [m for m in moments if m.expected is not None]
    if not awaited:
        raise InvalidInput("there is no range to draw: no value had a bound before it was observed.")
    lower, upper = zip(*(m.expected for m in awaited if m.expected), strict=True)
    x = [m.finished for m in awaited]
    width = max(0.6, min(4.0, 160 / len(x)))
    axes.vlines(x, lower, upper, color=BLUE, alpha=0.35, lw=width, label="expected before")
    inside, outside = ([(m.finished, m.value) for m in awaited if m.missed is missed] for missed in (False, True))
    if inside:
        axes.scatter(*zip(*inside, strict=True), color="black", s=9, label="observed", zorder=3)
    if outside:
        axes.scatter(*zip(*outside, strict=True), color=RED, marker="x", s=36, label="observed, outside", zorder=3)
    late = len(awaited) // 4
    _frame(axes, [], [*(m.value for m in awaited[late:]), *lower[late:], *upper[late:]])
    _whole_numbers(axes)
    axes.set(xlabel=FINISHED, ylabel=VALUE)


@dataclass(frozen=True)
class Slice:
    """Bounds along a parameter, in units of the objective.

    Attributes:
        values: Values of the parameter: increasing numbers, or options.
        lower, mean, upper: The interval at each.
        options: Whether the values are options without an order.
        log: Whether they are on a logarithmic scale.
        whole: Whether the parameter is the only one, so that the slice is the whole function.
    """

    values: list[Any]
    lower: list[float]
    mean: list[float]
    upper: list[float]
    options: bool
    log: bool
    whole: bool


def slice_of(optimizer: Optimizer, parameter: str, at: Params | None = None) -> Slice:
    """Return the bounds along a parameter.

    Args:
        optimizer: The optimiser after the run.
        parameter: Name of the parameter; "x0", "x1", ... where the bounds are a list.
        at: Values of the other parameters; by default those of the recommended setting.

    Raises:
        InvalidInput: There is no such parameter, or no bound yet.
        RefutedAssumptions: In the certified setting, no function satisfies the assumptions.
    """
    space = optimizer.space
    if parameter not in space.parameters:
        raise InvalidInput(f"there is no parameter {parameter!r}; the parameters are {list(space.parameters)}.")
    best = optimizer.recommended()
    if best is None or optimizer.interval(best.params) is None:
        raise InvalidInput(_NO_BOUND)
    centre = space.unit(best.params if at is None else at)
    position, described = list(space.parameters).index(parameter), space.parameters[parameter]
    known, unordered = () if isinstance(described, Float) else described.options, isinstance(described, Choice)
    if not known or (len(known) > _POINTS and not unordered):
        units = torch.linspace(0, 1, _POINTS, dtype=centre.dtype)
    else:
        units = torch.tensor([described.unit(value) for value in known], dtype=centre.dtype)
    points = centre.repeat(len(units), 1)
    points[:, position] = units
    belief = optimizer.belief()
    assert belief is not None
    bounds = belief.interval(space.features(points))
    if not optimizer.maximize:  # the belief is about the objective times -1
        bounds = tuple(-bound for bound in reversed(bounds))
    log = not isinstance(described, Choice) and described.log
    values = [described.value(u) for u in units.tolist()]
    return Slice(values, *(bound.tolist() for bound in bounds), unordered, log, whole=space.dimension == 1)


def draw_band(axes: Any, optimizer: Optimizer, parameter: str, at: Params | None = None) -> None:
    """Draw the bounds along one parameter, the others at the recommended setting, and the trials.

    Args:
        axes: Where to draw.
        optimizer: The optimiser after the run.
        parameter: Name of the parameter; "x0", "x1", ... where the bounds are a list.
        at: Other values of the other parameters.

    Raises:
        InvalidInput: There is no such parameter, or no bound yet.
    """
    found = slice_of(optimizer, parameter, at)
    place = list(range(len(found.values))) if found.options else found.values
    if found.options or len(place) < 12:
        below = [m - low for m, low in zip(found.mean, found.lower, strict=True)]
        above = [high - m for m, high in zip(found.mean, found.upper, strict=True)]
        style = {"fmt": "s", "ms": 5, "color": BLUE, "capsize": 5, "lw": 1.6}
        axes.errorbar(place, found.mean, [below, above], label="mean, interval", **style)
    else:
        axes.fill_between(place, found.lower, found.upper, color=BLUE, alpha=0.2, lw=0, label="interval")
        axes.plot(place, found.mean, color=BLUE, lw=1.6, label="posterior mean")
    key = parameter if optimizer.space.named else list(optimizer.space.parameters).index(parameter)
    settings = [trial.params[key] for trial in optimizer.completed()]  # pyright: ignore[reportArgumentType]
    x = [found.values.index(value) if found.options else value for value in settings]
    y = [trial.value or 0.0 for trial in optimizer.completed()]
    label = "trials (noisy)" if found.whole else "trials, others differ"
    axes.scatter(x, y, s=dot_size(len(x)), color=GREY, alpha=0.8, lw=0, label=label, zorder=1.5)
    ring = optimizer.completed().index(optimizer.recommended())  # pyright: ignore[reportArgumentType]
    style = {"s": 80, "facecolors": "none", "edgecolors": RED, "lw": 1.6, "zorder": 4}
    axes.scatter(x[ring], y[ring], label="recommended", **style)
    _frame(axes, y, [*found.lower, *found.upper, y[ring]])
    _parameter_axis(axes, parameter, found)


def _parameter_axis(axes: Any, parameter: str, found: Slice) -> None:
    if found.options:
        names = [option if len(option := str(value)) <= 14 else f"{option[:13]}…" for value in found.values]
        axes.set_xticks(range(len(names)), names, rotation=0 if sum(map(len, names)) < 30 else 30)
        axes.set_xlim(-0.6, len(names) - 0.4)
    elif found.log:
        axes.set_xscale("log")
        plain_numbers(axes.xaxis)
    name = parameter if len(parameter) <= 40 else f"{parameter[:39]}…"
    axes.set(xlabel=f"{name} (logarithmic)" if found.log else name, ylabel=VALUE)
    axes.xaxis.label.set_parse_math(False)
    for tick in axes.get_xticklabels() if found.options else ():
        tick.set_parse_math(False)


def _line(axes: Any, moments: Sequence[Moment], name: str, above: float | None = None, **style: Any) -> list[float]:
    """Draw a quantity where it is known, and finite and above that if so wanted; return its values."""
    points = [(m.finished, y) for m in moments if (y := getattr(m, name)) is not None]
    if above is not None:
        points = [(x, y) for x, y in points if above < y < math.inf]
    if points:
        axes.plot(*zip(*points, strict=True), **style)
    return [y for _, y in points]


def _bounded(moments: Sequence[Moment]) -> list[Moment]:
    """Return the moments with bounds, at least one."""
    found = [m for m in moments if m.width is not None]
    if not found:
        raise InvalidInput(_NO_BOUND)
    return found


def _scale(axes: Any, values: Sequence[float]) -> None:
    """Set a logarithmic scale where values are positive and far apart, else a scale from zero."""
    if values and min(values) > 0 and max(values) > _WIDE * min(values):
        logarithmic(axes)
        plain_numbers(axes.yaxis)
    elif values and min(values) >= 0:
        axes.set_ylim(bottom=0)
    _whole_numbers(axes)


def _whole_numbers(axes: Any) -> None:
    """Set ticks at whole numbers only."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(nbins=7, integer=True))


def _frame(axes: Any, values: Sequence[float], needed: Sequence[float]) -> None:
    """Set limits that include what is needed and all values but those far from most, whose number is written."""
    ordered = sorted(values)
    low, high = (ordered[len(ordered) // 4], ordered[3 * len(ordered) // 4]) if ordered else (0.0, 0.0)
    reach = _FAR * (high - low)
    near = [v for v in ordered if low - reach <= v <= high + reach]
    shown = [v for v in (*near, *needed) if abs(v) <= LARGEST]
    if not shown or max(shown) == min(shown):
        return
    margin = 0.06 * (max(shown) - min(shown))
    bottom, top = min(shown) - margin, max(shown) + margin
    axes.set_ylim(bottom, top)
    outside = sum(not bottom <= v <= top for v in ordered)
    if outside:
        words = f"{outside} trial{'s' * (outside > 1)} outside the frame"
        axes.text(0.99, 0.98, words, transform=axes.transAxes, ha="right", va="top", fontsize=8, color=GREY)
