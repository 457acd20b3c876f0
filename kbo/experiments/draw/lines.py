"""Pictures: the trace of a tuning run, the regret of bandits, bounds of a function, time per step."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from kbo.experiments.draw.canvas import (
    BLUE,
    GREY,
    RED,
    dot_size,
    legend_below,
    logarithmic,
    one_panel,
    plain_numbers,
    several_panels,
    styles_of,
)
from kbo.optimize import Trial

if TYPE_CHECKING:
    import pandas as pd


def trace(
    trials: Sequence[Trial],
    path: str | os.PathLike,
    *,
    title: str,
    maximize: bool = False,
    recommended: int | None = None,
    again: Sequence[float] = (),
) -> None:
    """Values against trials, the best so far, the failures, and the recommended trial with its re-evaluations.

    Args:
        trials: The trials of a run.
        path: Where the PNG goes.
        title: Title of the picture.
        maximize: Whether larger is better.
        recommended: Number of the recommended trial.
        again: Values of the recommended parameters when evaluated again.
    """
    figure, axes = one_panel(title, "trial", "value of the objective")
    draw_trace(axes, trials, maximize=maximize, recommended=recommended, again=again)
    if axes.get_legend_handles_labels()[0]:
        legend_below(figure)
    figure.savefig(path, dpi=150)


def draw_trace(
    axes: Any,
    trials: Sequence[Trial],
    *,
    maximize: bool = False,
    recommended: int | None = None,
    again: Sequence[float] = (),
) -> None:
    """What ``trace`` shows, on given axes and without their labels and legend; arguments as there."""
    done = [(t.number, t.value) for t in trials if t.value is not None]
    if done:
        numbers, values = zip(*done, strict=True)
        axes.scatter(numbers, values, s=dot_size(len(done)), lw=0, color=GREY, label="observed (noisy)", zorder=2)
        best, running = (max if maximize else min), []
        for value in values:
            running.append(value if not running else best(running[-1], value))
        axes.step(numbers, running, where="post", color=BLUE, lw=1.6, label="best observed", zorder=3)
        low, high = min(values), max(values)
        if low > 0 and high / low > 20:
            logarithmic(axes)
    failures = [t.number for t in trials if t.failure is not None]
    if failures:
        top = axes.get_ylim()[1]
        axes.scatter(failures, [top] * len(failures), marker="x", color=RED, label="failed", clip_on=False)
    chosen = next((t for t in trials if t.number == recommended and t.value is not None), None)
    if chosen is not None:
        axes.scatter([chosen.number], [chosen.value], s=90, facecolors="none", edgecolors=RED, lw=1.6, zorder=4)
        axes.annotate(
            "recommended",
            (chosen.number, chosen.value),
            xytext=(6, 8),
            textcoords="offset points",
            color=RED,
            bbox={"facecolor": "white", "alpha": 0.7, "lw": 0, "pad": 1},
            zorder=4,
        )
    if again:
        end = max(t.number for t in trials) + 1.5
        axes.scatter([end] * len(again), again, marker="_", s=120, color=RED, label="recommended, evaluated again")


def regret(rows: pd.DataFrame, path: str | os.PathLike, *, title: str) -> None:
    """Cumulative regret against rounds: mean and range over seeds for every method.

    Args:
        rows: Tidy rows with ``method``, ``seed``, ``round``, ``cumulative``.
        path: Where the PNG goes.
        title: Title of the picture.
    """
    figure, axes = one_panel(title, "round", "cumulative regret")
    named = draw_regret(axes, rows)
    legend_below(figure, "mean over seeds (its end), band: least to most", 3, named)
    figure.savefig(path, dpi=150)


def draw_regret(axes: Any, rows: pd.DataFrame) -> dict[str, Any]:
    """What ``regret`` shows, on given axes: the line of every method by its name and last mean, for a legend."""
    ends = curves(axes, rows, styles_of(list(rows["method"].unique())))
    if min(ends.values()) > 0 and max(ends.values()) > 20 * min(ends.values()):
        logarithmic(axes)
    lines, names = axes.get_legend_handles_labels()
    return {f"{name}  ({ends[name]:.0f})": line for name, line in zip(names, lines, strict=True)}


def regret_grid(
    panels: Mapping[str, pd.DataFrame],
    path: str | os.PathLike,
    *,
    title: str,
    value: str = "cumulative",
    ylabel: str = "cumulative regret",
) -> None:
    """Cumulative regret in panels with common axes, on a logarithmic scale: mean over seeds and its standard error.

    Args:
        panels: Title of a panel -> tidy rows with ``method``, ``seed``, ``round`` and the quantity. More than three
            are drawn in two rows, column by column.
        path: Where the PNG goes.
        title: Title of the picture.
        value: The column of the quantity.
        ylabel: What the quantity is.
    """
    down = 1 if len(panels) <= 3 else 2
    figure, grid = several_panels(list(panels), "round", ylabel, title, down)
    styles = styles_of(list(dict.fromkeys(name for rows in panels.values() for name in rows["method"])))
    for axes, rows in zip(grid, panels.values(), strict=True):
        logarithmic(axes)
        curves(axes, rows, styles, value, error=True)
    plain_numbers(grid[0].yaxis)
    legend_below(figure, "mean over seeds, band: its standard error", 2 * -(-len(panels) // down))
    figure.savefig(path, dpi=150)


def curves(
    axes: Any, rows: pd.DataFrame, styles: Mapping[str, dict[str, Any]], value: str = "cumulative", error: bool = False
) -> dict[str, float]:
    """Draw the mean with the range, or its standard error, for every method; the last mean of each."""
    ends = {}
    for method, group in rows.groupby("method", sort=False):
        by_round = group.groupby("round")[value].agg(["mean", "min", "max", "sem"])
        style = styles[str(method)]
        axes.plot(by_round.index, by_round["mean"], lw=1.6, label=method, **style)
        low, high = by_round["min"], by_round["max"]
        if error:
            low, high = by_round["mean"] - by_round["sem"], by_round["mean"] + by_round["sem"]
        axes.fill_between(by_round.index, low, high, color=style["color"], alpha=0.15, lw=0)
        ends[str(method)] = float(by_round.iloc[-1]["mean"])
    return ends


def time_per_step(rows: pd.DataFrame, path: str | os.PathLike, *, title: str) -> None:
    """CPU time per step against rounds on a logarithmic scale: median over seeds for every method.

    Args:
        rows: Tidy rows with ``method``, ``seed``, ``round`` and ``cpu_seconds`` so far. Averages over a
            twentieth of the run are drawn, since a posterior may do in one step what saves work in the next ones.
        path: Where the PNG goes.
        title: Title of the picture.
    """
    figure, axes = one_panel(title, "round", "CPU time per step in ms")
    logarithmic(axes)
    styles = styles_of(list(rows["method"].unique()))
    for method, group in rows.groupby("method", sort=False):
        runs = group.pivot_table(index="round", columns="seed", values="cpu_seconds")
        runs.loc[0] = 0.0
        runs = runs.sort_index().iloc[:: max(1, (len(runs) - 1) // 20)]
        steps = runs.diff().div(runs.index.to_series().diff(), axis=0).iloc[1:]
        axes.plot(steps.index, 1000 * steps.median(axis=1), lw=1.4, label=method, **styles[str(method)])
    legend_below(figure, "average over a twentieth of the run, median over seeds", 6)
    figure.savefig(path, dpi=150)


def medians(rows: pd.DataFrame, value: str, path: str | os.PathLike, *, title: str, ylabel: str) -> None:
    """A quantity against rounds on a logarithmic scale: median and quartiles over seeds for every method.

    Args:
        rows: Tidy rows with ``method``, ``round`` and the quantity.
        value: Its column.
        path: Where the PNG goes.
        title: Title of the picture.
        ylabel: What the quantity is.
    """
    figure, axes = one_panel(title, "round", ylabel)
    logarithmic(axes)
    styles = styles_of(list(rows["method"].unique()))
    for method, group in rows.groupby("method", sort=False):
        low, middle, high = (group.groupby("round")[value].quantile(q) for q in (0.25, 0.5, 0.75))
        style = styles[str(method)]
        axes.plot(middle.index, middle, lw=1.6, label=method, **style)
        axes.fill_between(middle.index, low, high, color=style["color"], alpha=0.15, lw=0)
    plain_numbers(axes.yaxis)
    legend_below(figure, "median over problems, band: quartiles")
    figure.savefig(path, dpi=150)


def bounds(
    x: Tensor,
    truth: Tensor,
    data: tuple[Tensor, Tensor],
    intervals: Mapping[str, tuple[Tensor, Tensor]],
    path: str | os.PathLike,
    *,
    title: str,
) -> None:
    """Lower and upper bounds of a function of one variable, by several methods.

    Args:
        x: Where the function is drawn, [m].
        truth: The function there, [m].
        data: Inputs [n] and noisy values [n].
        intervals: Method -> lower and upper bound, [m] each.
        path: Where the PNG goes.
        title: Title of the picture.
    """
    figure, axes = one_panel(title, "x", "f(x)")
    for (name, interval), style in zip(intervals.items(), styles_of(list(intervals)).values(), strict=True):
        for bound, label in zip(interval, (name, None), strict=True):
            axes.plot(x, bound, lw=1.4, label=label, **style)
    axes.plot(x, truth, color="black", lw=1.6, label="true function")
    axes.scatter(*data, s=16, color="black", marker="x", lw=1.2, label="observations", zorder=3)
    legend_below(figure, columns=6)
    figure.savefig(path, dpi=150)
