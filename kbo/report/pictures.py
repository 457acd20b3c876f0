"""Pictures of a tuning run, each on axes that the caller has; ``picture`` makes some."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from kbo.errors import InvalidInput
from kbo.experiments.draw.canvas import (
    BLUE,
    GREEN,
    GREY,
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
from kbo.report.slices import Slice, slice_of
from kbo.space import Params

VALUE = "value of the objective"
FINISHED = "trials finished"
_FAR = 10
"""Interquartile ranges from the quartiles beyond which values are left outside of a picture."""

_WIDE = 20
"""Largest over smallest value from which a logarithmic scale shows more."""


def picture(xlabel: str = "", ylabel: str = "") -> tuple[Any, Any]:
    """A small figure, readable on a telephone, and its axes."""
    figure = blank(4.4, 3.2)
    axes = figure.add_subplot()
    dress(axes, "", xlabel, ylabel)
    return figure, axes


def finish(figure: Any) -> Any:
    """The figure with a legend below, where anything has a name."""
    if any(axes.get_legend_handles_labels()[0] for axes in figure.axes):
        legend_below(figure, columns=2)
    return figure


def draw_values(axes: Any, trials: Sequence[Trial], *, maximize: bool = False, recommended: int | None = None) -> None:
    """Observed values against trials, the best so far, failures, and the recommended trial.

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
    """The interval of the setting that was recommended after each trial, and the best observed value.

    Args:
        axes: Where to draw.
        moments: From ``history``.
    """
    bounded = _bounded(moments)
    x = [m.finished for m in bounded]
    lower, mean, upper = ([float(getattr(m, name)) for m in bounded] for name in ("lower", "mean", "upper"))
    axes.fill_between(x, lower, upper, color=BLUE, alpha=0.2, lw=0, step="post", label="interval")
    axes.step(x, mean, where="post", color=BLUE, lw=1.6, label="posterior mean")
    best = [(m.finished, m.best) for m in moments]
    axes.step(*zip(*best, strict=True), where="post", color=GREY, lw=1.4, ls="--", label="best observed")
    late = len(bounded) // 4
    _frame(axes, [], [m.best for m in moments[len(moments) // 4 :]] + lower[late:] + upper[late:])
    _whole_numbers(axes)
    axes.set(xlabel=FINISHED, ylabel=VALUE)


def draw_width(axes: Any, moments: Sequence[Moment]) -> None:
    """Width of the interval of the recommended setting, and the optimality gap where it was computed."""
    widths = [(m.finished, m.width or 0.0) for m in _bounded(moments)]
    gaps = [(m.finished, m.gap) for m in moments if m.gap is not None]
    axes.plot(*zip(*widths, strict=True), color=BLUE, lw=1.6, label="width of the interval")
    if gaps:
        axes.plot(*zip(*gaps, strict=True), color=RED, lw=1.2, marker="o", ms=3.5, label="optimality gap")
    _scale(axes, [y for _, y in (*widths, *gaps)])
    axes.set(xlabel=FINISHED, ylabel="in units of the objective")


def draw_noise(axes: Any, moments: Sequence[Moment]) -> None:
    """The noise level that the bounds rest on; where it is bounded online, both bounds, as soon as they say something.

    Args:
        axes: Where to draw.
        moments: From ``history``.
    """
    if any(m.noise_upper is not None for m in moments):
        upper = _line(axes, moments, "noise_upper", "upper bound (used)", color=RED)
        lower = _line(axes, moments, "noise_lower", "lower bound", color=GREEN, ls="--")
        _scale(axes, [*upper, *lower])
    else:
        _scale(axes, _line(axes, moments, "noise_std"))
    axes.set(xlabel=FINISHED, ylabel="noise level, units of the objective")


def draw_norm(axes: Any, moments: Sequence[Moment]) -> None:
    """The norm bound that the bounds rest on."""
    _scale(axes, _line(axes, moments, "norm_bound"))
    axes.set(xlabel=FINISHED, ylabel="norm bound, units of the objective")


def draw_ridge(axes: Any, moments: Sequence[Moment]) -> None:
    """The regulariser of the posterior."""
    _scale(axes, _line(axes, moments, "ridge"))
    axes.set(xlabel=FINISHED, ylabel="ridge, units of the kernel")


def draw_dictionary(axes: Any, moments: Sequence[Moment]) -> None:
    """The number of points through which a sketched posterior sees the data."""
    _line(axes, moments, "anchors")
    axes.set_ylim(bottom=0)
    _whole_numbers(axes)
    axes.set(xlabel=FINISHED, ylabel="points of the dictionary")


def draw_surprises(axes: Any, moments: Sequence[Moment]) -> None:
    """What was expected of every value before it was told, and the value."""
    awaited = [(m.finished, m.value, m.expected, m.surprising) for m in moments if m.expected is not None]
    if not awaited:
        raise InvalidInput("nothing was expected of any value: there was no bound before.")
    x = [finished for finished, _, _, _ in awaited]
    axes.vlines(x, *zip(*(range_ for _, _, range_, _ in awaited), strict=True), color=BLUE, alpha=0.35,
                lw=max(0.6, min(4.0, 160 / len(x))), label="expected before")  # fmt: skip
    for wanted, label, style in (
        (False, "observed", {"color": "black", "marker": "o", "s": 9}),
        (True, "observed, a surprise", {"color": RED, "marker": "x", "s": 36}),
    ):
        found = [(finished, value) for finished, value, _, surprising in awaited if surprising is wanted]
        if found:
            axes.scatter(*zip(*found, strict=True), label=label, zorder=3, **style)
    late = awaited[len(awaited) // 4 :]
    _frame(axes, [], [y for _, value, range_, _ in late for y in (value, *(range_ or ()))])
    _whole_numbers(axes)
    axes.set(xlabel=FINISHED, ylabel=VALUE)


def draw_band(axes: Any, optimizer: Optimizer, parameter: str, at: Params | None = None) -> None:
    """The bounds along one parameter, the others at the recommended setting, and the trials.

    Args:
        axes: Where to draw.
        optimizer: What is known.
        parameter: Name of the parameter; "x0", "x1", ... where the bounds are a list.
        at: Where the other parameters are instead.

    Raises:
        InvalidInput: There is no such parameter, or no bound yet.
    """
    found = slice_of(optimizer, parameter, at)
    place = list(range(len(found.values))) if found.options else found.values
    if found.options or len(place) < 12:
        margins = [[m - low for m, low in zip(found.mean, found.lower, strict=True)],
                   [high - m for m, high in zip(found.mean, found.upper, strict=True)]]  # fmt: skip
        axes.errorbar(place, found.mean, margins, fmt="s", ms=5, color=BLUE, capsize=5, lw=1.6, label="mean, interval")
    else:
        axes.fill_between(place, found.lower, found.upper, color=BLUE, alpha=0.2, lw=0, label="interval")
        axes.plot(place, found.mean, color=BLUE, lw=1.6, label="posterior mean")
    best = optimizer.recommended()
    key = parameter if optimizer.space.named else list(optimizer.space.parameters).index(parameter)
    shown = [(t, t.params[key], t.value) for t in optimizer.completed() if t.value is not None]  # pyright: ignore[reportArgumentType]
    x = [found.values.index(value) if found.options else value for _, value, _ in shown]
    label = "trials (noisy)" if found.whole else "trials, others differ"
    axes.scatter(
        x, [y for _, _, y in shown], s=dot_size(len(shown)), color=GREY, alpha=0.8, lw=0, label=label, zorder=1.5
    )
    ring = [(p, y) for p, (t, _, y) in zip(x, shown, strict=True) if best is not None and t.number == best.number]
    axes.scatter(*zip(*ring, strict=True), s=80, facecolors="none", edgecolors=RED, lw=1.6, label="recommended",
                 zorder=4)  # fmt: skip
    _frame(axes, [y for _, _, y in shown], [*found.lower, *found.upper, *(y for _, y in ring)])
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


def _line(axes: Any, moments: Sequence[Moment], what: str, label: str = "", **style: Any) -> list[float]:
    """A quantity against the trials finished, where it is finite and above zero; its values."""
    points = [(m.finished, getattr(m, what)) for m in moments if getattr(m, what) is not None]
    points = [(x, y) for x, y in points if math.isfinite(y) and y > 0]
    if points:
        axes.step(*zip(*points, strict=True), where="post", lw=1.6, label=label, **({"color": BLUE} | style))
    return [y for _, y in points]


def _bounded(moments: Sequence[Moment]) -> list[Moment]:
    """The moments at which there were bounds, at least one."""
    found = [m for m in moments if m.width is not None]
    if not found:
        raise InvalidInput("there is no bound to draw: too few evaluations, or a method without one.")
    return found


def _scale(axes: Any, values: Sequence[float]) -> None:
    """A logarithmic scale where values are positive and far apart, one from zero where they are not."""
    if values and min(values) > 0 and max(values) > _WIDE * min(values):
        logarithmic(axes)
        plain_numbers(axes.yaxis)
    elif values and min(values) >= 0:
        axes.set_ylim(bottom=0)
    _whole_numbers(axes)


def _whole_numbers(axes: Any) -> None:
    """Trials are counted in whole numbers."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(nbins=7, integer=True))


def _frame(axes: Any, values: Sequence[float], needed: Sequence[float]) -> None:
    """Limits upwards that show what is needed and all values but those very far from most, which are counted."""
    ordered = sorted(values)
    low, high = (ordered[len(ordered) // 4], ordered[3 * len(ordered) // 4]) if ordered else (0.0, 0.0)
    reach = _FAR * (high - low)
    near = [v for v in ordered if low - reach <= v <= high + reach]
    shown = [v for v in (*near, *needed) if math.isfinite(v)]
    if not shown or max(shown) == min(shown):
        return
    margin = 0.06 * (max(shown) - min(shown))
    bottom, top = min(shown) - margin, max(shown) + margin
    axes.set_ylim(bottom, top)
    outside = sum(not bottom <= v <= top for v in ordered)
    if outside:
        words = f"{outside} trial{'s' * (outside > 1)} outside the frame"
        axes.text(0.99, 0.98, words, transform=axes.transAxes, ha="right", va="top", fontsize=8, color=GREY)
