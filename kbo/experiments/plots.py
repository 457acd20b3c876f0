"""Pictures of runs: the trace of a tuning run and the regret of bandits."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kbo.optimize import Trial

if TYPE_CHECKING:
    import pandas as pd

_BLUE, _GREY, _RED = "#2a6f97", "#9aa5b1", "#c1121f"


def _axes(title: str, xlabel: str, ylabel: str) -> tuple[Any, Any]:
    # The object interface: a library must not choose the window system of the program it runs in.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set(xlabel=xlabel, ylabel=ylabel)
    axes.set_title(title, loc="left", fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    return figure, axes


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
            axes.set_yscale("log")
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
    end = {}
    for method, group in rows.groupby("method", sort=False):
        by_round = group.groupby("round")["cumulative"].agg(["mean", "min", "max"])
        end[method] = float(by_round.iloc[-1]["mean"])
        (line,) = axes.plot(by_round.index, by_round["mean"], lw=1.6, label=f"{method}  ({end[method]:.0f})")
        axes.fill_between(by_round.index, by_round["min"], by_round["max"], color=line.get_color(), alpha=0.15, lw=0)
    if min(end.values()) > 0 and max(end.values()) > 20 * min(end.values()):
        axes.set_yscale("log")
    title = "mean over seeds (its end), band: least to most"
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=9, title=title, title_fontsize=9)
    figure.savefig(path, dpi=150)
