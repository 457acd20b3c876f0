"""Pictures of sketched posteriors: regret against time, starved variances, dictionaries, the time of long streams."""

from __future__ import annotations

import os
from collections.abc import Mapping

import numpy as np
import pandas as pd
from torch import Tensor

from kbo.experiments.draw.canvas import legend_below, logarithmic, one_panel, plain_numbers, several_panels, styles_of

Band = tuple[Tensor, Tensor]


def regret_against_time(rows: pd.DataFrame, path: str | os.PathLike, *, title: str) -> None:
    """Mean cumulative regret against mean CPU time so far, a point for every round, for every method.

    Args:
        rows: Tidy rows with ``method``, ``round``, ``cumulative``, ``cpu_seconds``.
        path: Where the PNG goes.
        title: Title of the picture.
    """
    figure, axes = one_panel(title, "CPU seconds so far", "cumulative regret")
    axes.set_xscale("log")
    styles = styles_of(list(rows["method"].unique()))
    for method, group in rows.groupby("method", sort=False):
        means = pd.pivot_table(group, index="round", values=["cpu_seconds", "cumulative"])
        style = styles[str(method)]
        axes.plot(means["cpu_seconds"], means["cumulative"], lw=1.6, label=method, **style)
        axes.plot(*means.iloc[-1], marker="o", ms=5, color=style["color"])
    plain_numbers(axes.xaxis)
    legend_below(figure, f"means over seeds at the same round; dot: round {rows['round'].max()}", 5)
    figure.savefig(path, dpi=150)


def long_time_per_step(rows: pd.DataFrame, path: str | os.PathLike, *, title: str) -> None:
    """CPU time per step against rounds, both on logarithmic scales: median over seeds for every method.

    Args:
        rows: Tidy rows with ``method``, ``seed``, ``round`` and ``cpu_seconds`` so far. Averages from one round to the
            next one drawn are shown, each about a quarter further than the one before.
        path: Where the PNG goes.
        title: Title of the picture.
    """
    figure, axes = one_panel(title, "round", "CPU time per step in ms")
    logarithmic(axes)
    axes.set_xscale("log")
    styles = styles_of(list(rows["method"].unique()))
    for method, group in rows.groupby("method", sort=False):
        runs = group.pivot_table(index="round", columns="seed", values="cpu_seconds")
        rounds = runs.index.to_numpy()
        wanted = np.geomspace(rounds[0], rounds[-1], 2 + int(4 * np.log(rounds[-1] / rounds[0])))
        runs = runs.iloc[np.unique(np.abs(rounds[:, None] - wanted).argmin(0))]
        steps = runs.diff().div(runs.index.to_series().diff(), axis=0).iloc[1:]
        axes.plot(steps.index, 1000 * steps.median(axis=1), lw=1.6, label=method, **styles[str(method)])
    plain_numbers(axes.xaxis, axes.yaxis)
    legend_below(figure, "average since the round before, median over seeds", 6)
    figure.savefig(path, dpi=150)


def sizes(panels: Mapping[str, pd.DataFrame], path: str | os.PathLike, *, title: str) -> None:
    """Dictionary size against rounds beside the effective dimension, in panels: means over seeds.

    Args:
        panels: Title of a panel -> tidy rows with ``method``, ``round``, ``m`` and ``dimension``, which is drawn for
            the first method.
        path: Where the PNG goes.
        title: Title of the picture.
    """
    figure, grid = several_panels(list(panels), "round", "number of anchors, dimension", title)
    styles = styles_of(list(dict.fromkeys(name for rows in panels.values() for name in rows["method"])))
    for axes, rows in zip(grid, panels.values(), strict=True):
        logarithmic(axes)
        for method, group in rows.groupby("method", sort=False):
            means = pd.pivot_table(group, index="round", values="m")["m"]
            axes.plot(means.index, means, lw=1.6, label=method, **styles[str(method)])
        played = pd.DataFrame(rows[rows["method"] == rows["method"].iloc[0]])
        first = pd.pivot_table(played, index="round", values="dimension")
        axes.plot(first.index, first, lw=2.4, color="#7f7f7f", alpha=0.7, label="effective dimension")
    plain_numbers(grid[0].yaxis)
    legend_below(figure, "means over seeds", 6)
    figure.savefig(path, dpi=150)


def starvation(
    x: Tensor,
    truth: Tensor,
    panels: Mapping[str, tuple[tuple[Tensor, Tensor], Mapping[str, Band]]],
    path: str | os.PathLike,
    *,
    title: str,
) -> None:
    """Mean +- 3 standard deviations of several posteriors of a function of one variable, in panels.

    Args:
        x: Where the function is drawn, [g].
        truth: The function there, [g].
        panels: Title of a panel -> (inputs [n], noisy values [n]) and, by posterior, mean [g] and deviation [g].
        path: Where the PNG goes.
        title: Title of the picture.
    """
    figure, grid = several_panels(list(panels), "x", "f(x)", title)
    styles = (("#000000", "-", 0.1), ("#56b4e9", "--", 0.25), ("#d55e00", "-", 0.35))
    for axes, (data, posteriors) in zip(grid, panels.values(), strict=True):
        for (name, (mean, deviation)), (colour, dashes, alpha) in zip(posteriors.items(), styles, strict=False):
            low, high = mean - 3 * deviation, mean + 3 * deviation
            axes.fill_between(x, low, high, color=colour, alpha=alpha, lw=0)
            for edge, label in ((low, name), (high, None)):
                axes.plot(x, edge, color=colour, ls=dashes, lw=1.3, label=label)
        axes.plot(x, truth, color="#009e73", lw=1.6, ls="--", label="true function")
        axes.scatter(*data, s=10, color="#7f7f7f", marker="x", lw=0.9, label="observations", zorder=0.5)
    legend_below(figure, "mean ± 3 standard deviations", 5)
    figure.savefig(path, dpi=150)
