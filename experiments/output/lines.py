"""Pictures of lines: quantities against rounds, bounds of a function, time per step."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from experiments.output.styles import styles_of
from kbo._base.plotting import (
    GREY,
    legend_below,
    logarithmic,
    panels,
    plain_numbers,
)

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
    """Centre, lower and upper edge of grouped values, for a kind of ``BANDS``."""
    if band == "range":
        return values.mean(), values.min(), values.max()
    if band in _QUANTILES:
        low, high = _QUANTILES[band]
        return values.median(), values.quantile(low), values.quantile(high)
    mean, margin = values.mean(), _ERRORS[band] * values.sem()
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
        axes: The axes to draw on.
        rows: Tidy rows with ``method`` and the columns below; rows without a value are left out.
        styles: Line style of every method.
        value: Column of the quantity.
        band: A kind of ``BANDS``.
        by: Column of the positions at which values are summarised.
        x: Column whose mean at each position is drawn in place of the position; the line then ends with a dot.
        least: Smallest height of lower edges.
        look: Further properties of the lines.
    """
    ends = {}
    for method, group in rows.dropna(subset=value).groupby("method", sort=False):
        groups, style = group.groupby(by), styles[str(method)]
        centre, low, high = centre_and_band(groups[value], band)
        at = centre.index if x is None else groups[x].mean()
        dot = {} if x is None else {"marker": "o", "ms": 5, "markevery": [-1]}
        order = {"zorder": 2 if style["ls"] == "-" else 2.2}  # dashes above a line that they follow
        axes.plot(at, centre, **({"lw": 1.6, "label": method} | style | dot | order | look))
        if x is None and band not in ("mean", "median"):
            axes.fill_between(
                at, low.clip(lower=least), high, color=style["color"], alpha=0.15, lw=0
            )
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
        rows: Tidy rows with ``method``, ``seed``, ``round`` and the quantities; missing values are left out.
        path: The path of the PNG.
        title: Title of the picture.
        panel: Column with the title of each row's panel, if there are several panels; more than three are drawn in two
            rows, column by column.
        values: Columns of the quantities; each is drawn with the line of its method.
        ylabel: Label of the vertical axis.
        band: A kind of ``BANDS``.
        x: Column for the horizontal axis, if it is not the round.
        xlabel: Label of the horizontal axis.
        log: Axes with a logarithmic scale: "", "x", "y" or "xy"; None for "y" if the lines end far apart.
        ends: Whether the legend shows the last values.
        level: Name and height of a horizontal line.
        least: Smallest value that is shown.
        note: A remark for the caption.
    """
    parts = (
        {str(name): part for name, part in rows.groupby(panel, sort=False)}
        if panel
        else {title: rows}
    )
    down = 1 if len(parts) <= 3 else 2
    figure, grid = panels(list(parts), xlabel, ylabel, title if panel else "", down)
    styles, legend = _styles(rows), None
    for axes, part in zip(grid, parts.values(), strict=True):
        for i, value in enumerate(values):
            hidden: dict[str, Any] = {"label": None} if i else {}
            last = curves(axes, part, styles, value, band, x=x, least=least, **hidden)
            legend = _named_by_ends(axes, last) if ends and not i else legend
            log = "y" * _is_wide(last) if log is None else log
        if level is not None:
            line = axes.axhline(level[1], color=GREY, lw=1.2, ls=":", label=level[0])
            legend = legend and {**legend, level[0]: line}
    _scales(grid[0], log or "", least)
    columns = 3 if len(parts) == 1 else 2 * -(-len(parts) // down)
    legend_below(figure, f"{note}\n{BANDS[band]}".strip(), columns, legend)
    figure.savefig(path, dpi=150)


regret: Callable[..., None] = partial(
    against_rounds, band="range", log=None, ends=True, note="in brackets: the mean at the end"
)
"""Draw cumulative regret against rounds in one panel, with the range over the seeds."""


def time_per_step(
    rows: pd.DataFrame, path: str | os.PathLike[str], *, title: str, log: str = "y"
) -> None:
    """Draw CPU time per step against rounds: the median over seeds for every method.

    A posterior may work more in one step to save work in the next ones, so averages over many rounds are drawn: over a
    twentieth of the run, or, if ``log`` has "x", between rounds whose ratio is about 1.25.

    Args:
        rows: Tidy rows with ``method``, ``seed``, ``round`` and ``cpu_seconds`` so far.
        path: The path of the PNG.
        title: Title of the picture.
        log: Axes with a logarithmic scale, "y" or "xy".
    """
    import pandas as pd

    parts = []
    for method, group in rows.groupby("method", sort=False):
        runs = group.pivot_table(index="round", columns="seed", values="cpu_seconds")
        if "x" in log:
            rounds = runs.index.to_numpy()
            wanted = np.geomspace(
                rounds[0], rounds[-1], 2 + int(4 * np.log(rounds[-1] / rounds[0]))
            )
            runs = runs.iloc[np.unique(np.abs(rounds[:, None] - wanted).argmin(0))]
        else:
            runs.loc[0] = 0.0
            runs = runs.sort_index().iloc[:: max(1, (len(runs) - 1) // 20)]
        steps = 1000 * runs.diff().div(runs.index.to_series().diff(), axis=0).iloc[1:]
        parts.append(
            steps.melt(ignore_index=False, value_name="ms").reset_index().assign(method=method)
        )
    note, ylabel = "averages over many rounds", "CPU time per step in ms"
    steps = pd.concat(parts, ignore_index=True)
    against_rounds(
        steps, path, title=title, values=["ms"], ylabel=ylabel, band="median", log=log, note=note
    )


def draw_bounds(
    axes: Any,
    x: Tensor,
    truth: Tensor,
    data: Interval,
    intervals: Mapping[str, Interval],
    shade: float = 0.0,
) -> None:
    """Draw a function of one variable, noisy data and bounds by several methods; arguments as for ``bounds``."""
    for (name, (lower, upper)), style in zip(
        intervals.items(), styles_of(list(intervals)).values(), strict=True
    ):
        axes.fill_between(x, lower, upper, color=style["color"], alpha=shade, lw=0)
        for bound, label in ((lower, name), (upper, None)):
            axes.plot(x, bound, lw=1.4, label=label, **style)
    axes.plot(x, truth, color="#009e73", lw=1.8, ls="-." if shade else "-", label="true function")
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
        x: The points at which the function is drawn, [g].
        truth: The values of the function at x, [g].
        parts: By the title of a panel: inputs [n] and noisy values [n], and by method lower and upper bound [g].
        path: The path of the PNG.
        title: Title of the picture.
        note: Caption.
        shade: Opacity of the space between the bounds.
    """
    figure, grid = panels(list(parts), "x", "f(x)", title)
    for axes, (data, intervals) in zip(grid, parts.values(), strict=True):
        draw_bounds(axes, x, truth, data, intervals, shade)
    legend_below(figure, note, 3)
    figure.savefig(path, dpi=150)


def _styles(rows: pd.DataFrame) -> dict[str, dict[str, Any]]:
    return styles_of(list(map(str, rows["method"].unique())))


def _is_wide(ends: Mapping[str, float]) -> bool:
    return min(ends.values()) > 0 and max(ends.values()) > 20 * min(ends.values())


def _named_by_ends(axes: Any, ends: Mapping[str, float]) -> dict[str, Any]:
    lines, names = axes.get_legend_handles_labels()
    return {f"{name}  ({ends[name]:.0f})": line for name, line in zip(names, lines, strict=True)}


def _scales(axes: Any, log: str, least: float | None) -> None:
    if "x" in log:
        axes.set_xscale("log")
        plain_numbers(axes.xaxis)
    if "y" in log:
        logarithmic(axes)
        plain_numbers(axes.yaxis)
    if least is not None:
        axes.set_ylim(bottom=least)
