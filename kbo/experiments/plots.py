"""Pictures: the trace of a tuning run, the regret of bandits, bounds of a function, time per step."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from kbo.optimize import Trial

if TYPE_CHECKING:
    import pandas as pd

_BLUE, _GREY, _RED = "#2a6f97", "#9aa5b1", "#c1121f"

# A method looks the same in every picture: colours of Okabe and Ito, which colour-blind readers can tell apart.
_STYLES = {
    "cmm-ucb": ("#d55e00", "-"),
    "dmm-ucb": ("#0072b2", "--"),
    "amm-ucb": ("#009e73", "-"),
    "ay-gp-ucb": ("#cc79a7", "-"),
    "igp-ucb": ("#e69f00", "-."),
    "gp-ucb": ("#56b4e9", "-"),
    "random": ("#7f7f7f", ":"),
}
_OTHERS = ("#000000", "#56b4e9", "#f0e442", "#8c564b")


def _figure(width: float, height: float) -> Any:
    # The object interface: a library must not choose the window system of the program it runs in.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _dress(axes: Any, title: str, xlabel: str, ylabel: str) -> None:
    axes.set(xlabel=xlabel, ylabel=ylabel)
    axes.set_title(title, loc="left", fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)


def _axes(title: str, xlabel: str, ylabel: str) -> tuple[Any, Any]:
    figure = _figure(7.5, 4.5)
    axes = figure.add_subplot()
    _dress(axes, title, xlabel, ylabel)
    return figure, axes


def _logarithmic(axes: Any) -> None:
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")


def _styles(methods: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Line styles of methods; unknown ones take colours in turn."""
    others = iter(_OTHERS * len(methods))
    chosen = {name: _STYLES.get(name) or (next(others), "-") for name in methods}
    return {name: {"color": colour, "ls": dashes} for name, (colour, dashes) in chosen.items()}


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
    figure, axes = _axes(title, "trial", "value of the objective")
    done = [(t.number, t.value) for t in trials if t.value is not None]
    if done:
        numbers, values = zip(*done, strict=True)
        axes.scatter(numbers, values, s=18, color=_GREY, label="observed (noisy)", zorder=2)
        best, running = (max if maximize else min), []
        for value in values:
            running.append(value if not running else best(running[-1], value))
        axes.step(numbers, running, where="post", color=_BLUE, lw=1.6, label="best observed", zorder=3)
        low, high = min(values), max(values)
        if low > 0 and high / low > 20:
            _logarithmic(axes)
    failures = [t.number for t in trials if t.failure is not None]
    if failures:
        top = axes.get_ylim()[1]
        axes.scatter(failures, [top] * len(failures), marker="x", color=_RED, label="failed", clip_on=False)
    chosen = next((t for t in trials if t.number == recommended and t.value is not None), None)
    if chosen is not None:
        axes.scatter([chosen.number], [chosen.value], s=90, facecolors="none", edgecolors=_RED, lw=1.6, zorder=4)
        axes.annotate(
            "recommended", (chosen.number, chosen.value), xytext=(6, 8), textcoords="offset points", color=_RED
        )
    if again:
        end = max(t.number for t in trials) + 1.5
        axes.scatter([end] * len(again), again, marker="_", s=120, color=_RED, label="recommended, evaluated again")
    if axes.get_legend_handles_labels()[0]:
        figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    figure.savefig(path, dpi=150)


def regret(rows: pd.DataFrame, path: str | os.PathLike, *, title: str) -> None:
    """Cumulative regret against rounds: mean and range over seeds for every method.

    Args:
        rows: Tidy rows with ``method``, ``seed``, ``round``, ``cumulative``.
        path: Where the PNG goes.
        title: Title of the picture.
    """
    figure, axes = _axes(title, "round", "cumulative regret")
    ends = _regret_curves(axes, rows, _styles(list(rows["method"].unique())))
    if min(ends.values()) > 0 and max(ends.values()) > 20 * min(ends.values()):
        _logarithmic(axes)
    lines, names = axes.get_legend_handles_labels()
    labels = [f"{name}  ({ends[name]:.0f})" for name in names]
    title = "mean over seeds (its end), band: least to most"
    figure.legend(
        lines, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=9, title=title, title_fontsize=9
    )
    figure.savefig(path, dpi=150)


def regret_grid(panels: Mapping[str, pd.DataFrame], path: str | os.PathLike, *, title: str) -> None:
    """Cumulative regret in panels with common axes, on a logarithmic scale: mean over seeds and its standard error.

    Args:
        panels: Title of a panel -> tidy rows with ``method``, ``seed``, ``round``, ``cumulative``. At most two rows of
            panels, column by column.
        path: Where the PNG goes.
        title: Title of the picture.
    """
    down = min(2, len(panels))
    across = -(-len(panels) // down)
    figure = _figure(1.2 + 3.4 * across, 1.2 + 2.9 * down)
    grid = figure.subplots(down, across, sharex=True, sharey=True, squeeze=False)
    methods = list(dict.fromkeys(name for rows in panels.values() for name in rows["method"]))
    styles = _styles(methods)
    for axes in grid.flat:
        axes.set_axis_off()
    for axes, (name, rows) in zip(grid.T.flat, panels.items(), strict=False):
        axes.set_axis_on()
        _dress(axes, name, "", "")
        _logarithmic(axes)
        _regret_curves(axes, rows, styles, error=True)
    for axes in grid[-1]:
        axes.set_xlabel("round")
    for axes in grid[:, 0]:
        axes.set_ylabel("cumulative regret")
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    found = (pair for axes in grid.flat for pair in zip(*axes.get_legend_handles_labels(), strict=True))
    names, lines = zip(*{name: line for line, name in found}.items(), strict=True)
    note = "mean over seeds, band: its standard error"
    legend = {
        "ncols": min(len(names), 2 * grid.shape[1]),
        "frameon": False,
        "fontsize": 9,
        "title": note,
        "title_fontsize": 9,
    }
    figure.legend(lines, names, loc="outside lower center", **legend)
    figure.savefig(path, dpi=150)


def _regret_curves(
    axes: Any, rows: pd.DataFrame, styles: Mapping[str, dict[str, Any]], error: bool = False
) -> dict[str, float]:
    """Draw the mean with the range, or its standard error, for every method; the last mean of each."""
    ends = {}
    for method, group in rows.groupby("method", sort=False):
        by_round = group.groupby("round")["cumulative"].agg(["mean", "min", "max", "sem"])
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
    figure, axes = _axes(title, "round", "CPU time per step in ms")
    _logarithmic(axes)
    styles = _styles(list(rows["method"].unique()))
    for method, group in rows.groupby("method", sort=False):
        runs = group.pivot_table(index="round", columns="seed", values="cpu_seconds")
        runs.loc[0] = 0.0
        runs = runs.sort_index().iloc[:: max(1, (len(runs) - 1) // 20)]
        steps = runs.diff().div(runs.index.to_series().diff(), axis=0).iloc[1:]
        axes.plot(steps.index, 1000 * steps.median(axis=1), lw=1.4, label=method, **styles[str(method)])
    figure.legend(
        loc="outside lower center",
        ncols=6,
        frameon=False,
        fontsize=9,
        title="average over a twentieth of the run, median over seeds",
        title_fontsize=9,
    )
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
    figure, axes = _axes(title, "round", ylabel)
    _logarithmic(axes)
    styles = _styles(list(rows["method"].unique()))
    for method, group in rows.groupby("method", sort=False):
        low, middle, high = (group.groupby("round")[value].quantile(q) for q in (0.25, 0.5, 0.75))
        style = styles[str(method)]
        axes.plot(middle.index, middle, lw=1.6, label=method, **style)
        axes.fill_between(middle.index, low, high, color=style["color"], alpha=0.15, lw=0)
    legend = "median over problems, band: quartiles"
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=9, title=legend, title_fontsize=9)
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
    figure, axes = _axes(title, "x", "f(x)")
    for (name, interval), style in zip(intervals.items(), _styles(list(intervals)).values(), strict=True):
        for bound, label in zip(interval, (name, None), strict=True):
            axes.plot(x, bound, lw=1.4, label=label, **style)
    axes.plot(x, truth, color="black", lw=1.6, label="true function")
    axes.scatter(*data, s=16, color="black", marker="x", lw=1.2, label="observations", zorder=3)
    figure.legend(loc="outside lower center", ncols=6, columnspacing=1.2, frameon=False, fontsize=9)
    figure.savefig(path, dpi=150)
