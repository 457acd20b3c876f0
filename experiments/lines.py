"""Pictures of lines: the trace of a tuning run, quantities against rounds, bounds of a function, time per step."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from experiments.styles import styles_of
from kbo._base.drawing import GREY, legend_below, logarithmic, panels, plain_numbers

if TYPE_CHECKING:
    import pandas as pd

Interval = tuple[Tensor, Tensor]
"""Lower and upper bound, [g] each."""

BANDS = {
    "range": "mean over seeds, band: least to most",
    "error": "mean over seeds, band: its standard error",
    "two errors": "mean over seeds, band: two standard errors of it to either side",
    "quartiles": "median over seeds, band: quartiles",
    "deciles": "median over seeds, band: 10% to 90%",
    "median": "median over seeds",
    "mean": "mean over seeds",
}
"""Kinds of centre lines and bands, and their captions."""

_QUANTILES = {"quartiles": (0.25, 0.75), "deciles": (0.1, 0.9), "median": (0.5, 0.5)}
_ERRORS = {"error": 1, "two errors": 2, "mean": 0}


def centre_and_band(values: Any, band: str) -> tuple[pd.Series, pd.Series, pd.Series]:
    """Centre, lower and upper edge [positions] of grouped values, for one of ``BANDS``."""
    if band == "range":
        return values.mean(), values.min(), values.max()
    if band in _QUANTILES:
        low, high = _QUANTILES[band]
        return values.median(), values.quantile(low), values.quantile(high)
    mean = values.mean()
    margin = _ERRORS[band] * values.sem()
    return mean, mean - margin, mean + margin


def curves(
    axes: Any,
    rows: pd.DataFrame,
    styles: Mapping[str, dict[str, Any]],
    value: str = "cumulative",
    band: str = "range",
    *,
    by: str = "round",
    x: str | None = None,
    least: float | None = None,
    **look: Any,
) -> dict[str, float]:
    """Draw one line with a band for every method, and return the last value of each line.

    Args:
        axes: Where to draw.
        rows: Tidy rows with ``method`` and the columns below; those without a value are left out.
        styles: Line style of every method.
        value: Column of the quantity.
        band: One of ``BANDS``.
        by: Column of the positions at which values are summarised.
        x: Column whose mean at every position is drawn instead of the position, with a dot at the end of the line.
        least: Lower edges are clamped to it.
        look: Further properties of the lines.
    """
    ends = {}
    for method, group in rows.dropna(subset=value).groupby("method", sort=False):
        groups = group.groupby(by)
        style = styles[str(method)]
        centre, low, high = centre_and_band(groups[value], band)
        order = 2.0
        if style["ls"] != "-":
            order = 2.2  # dashes are above a line that they follow
        options = {"lw": 1.6, "label": method, "zorder": order, **style}
        if x is not None:
            dot = {"marker": "o", "ms": 5, "markevery": [-1]}
            axes.plot(groups[x].mean(), centre, **(options | dot | look))
        else:
            axes.plot(centre.index, centre, **(options | look))
            if band not in ("mean", "median"):
                low = low.clip(lower=least)
                axes.fill_between(centre.index, low, high, color=style["color"], alpha=0.15, lw=0)
        ends[str(method)] = float(centre.iloc[-1])
    return ends


def against_rounds(
    rows: pd.DataFrame,
    path: str | os.PathLike[str],
    *,
    title: str,
    panel: str = "",
    values: Sequence[str] = ("cumulative",),
    ylabel: str = "cumulative regret",
    band: str = "error",
    x: str | None = None,
    xlabel: str = "round",
    log: str | None = "y",
    ends: bool = False,
    level: tuple[str, float] | None = None,
    least: float | None = None,
    note: str = "",
) -> None:
    """Draw quantities against rounds for every method, in one panel or in several with common axes.

    Args:
        rows: Tidy rows with ``method``, ``seed``, ``round`` and the quantities; missing ones are left out.
        path: Where the PNG goes.
        title: Title of the picture.
        panel: Column with the title of the panel of every row, if there are several; more than three panels are drawn
            in two rows, column by column.
        values: Columns of the quantities; all have the line of their method.
        ylabel: Label of the vertical axis.
        band: One of ``BANDS``.
        x: Column that is drawn horizontally, if not the round.
        xlabel: Label of the horizontal axis.
        log: Axes with a logarithmic scale: "", "x", "y" or "xy"; None for "y" if the lines end far apart.
        ends: Show the last values in the legend.
        level: Name and height of a horizontal line; not with ``ends``.
        least: Smallest value that is shown.
        note: A remark for the caption.
    """
    if panel:
        parts = {str(name): part for name, part in rows.groupby(panel, sort=False)}
    else:
        parts = {title: rows}
    down = 1 if len(parts) <= 3 else 2
    figure, grid = panels(list(parts), xlabel, ylabel, title if panel else "", down)
    styles = styles_of(list(map(str, rows["method"].unique())))
    legend: dict[str, Any] | None = None
    for axes, part in zip(grid, parts.values(), strict=True):
        last_values = curves(axes, part, styles, values[0], band, x=x, least=least)
        for value in values[1:]:
            curves(axes, part, styles, value, band, x=x, least=least, label=None)
        if ends:
            legend = _named_by_ends(axes, last_values)
        if log is None:
            log = "y" if _is_wide(last_values) else ""
        if level is not None:
            name, height = level
            axes.axhline(height, color=GREY, lw=1.2, ls=":", label=name)
    _scales(grid[0], log or "", least)
    columns = 3 if len(parts) == 1 else 2 * math.ceil(len(parts) / down)
    legend_below(figure, f"{note}\n{BANDS[band]}".strip(), columns, legend)
    figure.savefig(path, dpi=150)


regret: Callable[..., None] = partial(
    against_rounds, band="range", log=None, ends=True, note="in brackets: the mean at the end"
)
"""Draw cumulative regret against rounds in one panel, with the range over the seeds."""


def time_per_step(
    rows: pd.DataFrame, path: str | os.PathLike[str], *, title: str, log: str = "y"
) -> None:
    """Draw CPU time per step against rounds: median over seeds for every method.

    Averages over many rounds are drawn, since a posterior may do in one step what saves work in the next ones: over
    a twentieth of the run, or, where ``log`` has "x", from one round to another that is about a quarter further.

    Args:
        rows: Tidy rows with ``method``, ``seed``, ``round`` and ``cpu_seconds`` so far.
        path: Where the PNG goes.
        title: Title of the picture.
        log: Axes with a logarithmic scale, "y" or "xy".
    """
    import pandas as pd

    parts = []
    for method, group in rows.groupby("method", sort=False):
        runs = group.pivot_table(index="round", columns="seed", values="cpu_seconds")
        runs = _thinned(runs, "x" in log)
        steps = 1000 * runs.diff().div(runs.index.to_series().diff(), axis=0).iloc[1:]
        tidy = steps.melt(ignore_index=False, value_name="ms").reset_index()
        parts.append(tidy.assign(method=method))
    against_rounds(
        pd.concat(parts, ignore_index=True),
        path,
        title=title,
        values=["ms"],
        ylabel="CPU time per step in ms",
        band="median",
        log=log,
        note="averages over many rounds",
    )


def _thinned(runs: pd.DataFrame, logarithmically: bool) -> pd.DataFrame:
    """The CPU time [rounds seeds] at some rounds: evenly on a logarithmic scale, or at every twentieth of the run."""
    if not logarithmically:
        runs.loc[0] = 0.0
        return runs.sort_index().iloc[:: max(1, (len(runs) - 1) // 20)]
    rounds = runs.index.to_numpy()
    count = 2 + int(4 * np.log(rounds[-1] / rounds[0]))
    wanted = np.geomspace(rounds[0], rounds[-1], count)
    nearest = np.abs(rounds[:, None] - wanted).argmin(0)
    return runs.iloc[np.unique(nearest)]


def draw_bounds(
    axes: Any,
    x: Tensor,
    truth: Tensor,
    data: Interval,
    intervals: Mapping[str, Interval],
    shade: float = 0.0,
) -> None:
    """Draw a function of one variable, noisy data and bounds by several methods; arguments as for ``bounds``."""
    styles = styles_of(list(intervals))
    for name, (lower, upper) in intervals.items():
        style = styles[name]
        axes.fill_between(x, lower, upper, color=style["color"], alpha=shade, lw=0)
        axes.plot(x, lower, lw=1.4, label=name, **style)
        axes.plot(x, upper, lw=1.4, **style)
    dash = "-"
    if shade:
        dash = "-."
    axes.plot(x, truth, color="#009e73", lw=1.8, ls=dash, label="true function")
    axes.scatter(*data, s=10, color=GREY, marker="x", lw=0.9, label="observations", zorder=0.5)


def bounds(
    x: Tensor,
    truth: Tensor,
    parts: Mapping[str, tuple[Interval, Mapping[str, Interval]]],
    path: str | os.PathLike[str],
    *,
    title: str,
    note: str | None = None,
    shade: float = 0.0,
) -> None:
    """Draw lower and upper bounds of a function of one variable by several methods, in panels.

    Args:
        x: Where the function is drawn, [g].
        truth: The function there, [g].
        parts: Title of a panel -> (inputs [n], noisy values [n]) and, by method, lower and upper bound [g].
        path: Where the PNG goes.
        title: Title of the picture.
        note: Caption.
        shade: Opacity of the space between the bounds.
    """
    figure, grid = panels(list(parts), "x", "f(x)", title)
    for axes, (data, intervals) in zip(grid, parts.values(), strict=True):
        draw_bounds(axes, x, truth, data, intervals, shade)
    legend_below(figure, note, 3)
    figure.savefig(path, dpi=150)


def _is_wide(last_values: Mapping[str, float]) -> bool:
    """Whether lines end so far apart that a logarithmic scale is needed."""
    least = min(last_values.values())
    most = max(last_values.values())
    return least > 0 and most > 20 * least


def _named_by_ends(axes: Any, last_values: Mapping[str, float]) -> dict[str, Any]:
    """The lines, by the name of the method with the last value in brackets."""
    lines, names = axes.get_legend_handles_labels()
    words = [f"{name}  ({last_values[name]:.0f})" for name in names]
    return dict(zip(words, lines, strict=True))


def _scales(axes: Any, log: str, least: float | None) -> None:
    """Set logarithmic scales, and the smallest value that is shown."""
    if "x" in log:
        axes.set_xscale("log")
        plain_numbers(axes.xaxis)
    if "y" in log:
        logarithmic(axes)
        plain_numbers(axes.yaxis)
    if least is not None:
        axes.set_ylim(bottom=least)
