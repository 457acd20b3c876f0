"""Pictures of chaining: exploration terms over a posterior, simple regret against rounds, and sizes of sets."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor

from kbo.experiments.draw.canvas import (
    blank,
    dress,
    legend_below,
    logarithmic,
    plain_numbers,
    several_panels,
    styles_of,
)

if TYPE_CHECKING:
    import pandas as pd

_MEAN, _ERRORS = "mean over seeds", ": two standard errors of it to either side"

_LEAST = 1e-3
"""Simple regret that a logarithmic scale still shows."""


def illustration(
    x: Tensor,
    posterior: tuple[Tensor, Tensor, Tensor],
    data: tuple[Tensor, Tensor],
    terms: Mapping[str, Tensor],
    path: str | os.PathLike,
    *,
    noise: float,
    delta: float,
) -> None:
    """A posterior on a line, and below it exploration terms with their least value subtracted.

    Args:
        x: The points, [g].
        posterior: Mean, standard deviation and the function there, [g] each.
        data: Inputs [n] and noisy values [n].
        terms: "method, remark" -> exploration term [g].
        path: Where the PNG goes.
        noise: Standard deviation of the noise.
        delta: Probability that the bounds may fail.
    """
    figure = blank(7.5, 6.6)
    above, below = figure.subplots(2, 1, sharex=True)
    dress(above, f"posterior of a draw of a Gaussian process, lengthscale 1, noise {noise:g}", "", "f(x)")
    dress(below, f"exploration terms at delta = {delta:g}", "x", "term minus its minimum")
    mean, std, truth = posterior
    above.fill_between(x, mean - std, mean + std, color="#7f7f7f", alpha=0.25, lw=0, label="mean ± std")
    above.plot(x, mean, color="#000000", lw=1.6, label="mean")
    above.plot(x, truth, color="#009e73", lw=1.6, ls="--", label="true function")
    above.scatter(*data, s=28, color="#000000", marker="x", lw=1.4, label="observations", zorder=3)
    above.legend(ncols=2, frameon=False, fontsize=9)
    for name, term in terms.items():
        method = name.partition(",")[0]
        below.plot(x, term - term.min(), label=name, **_line(method))
    lines, names = below.get_legend_handles_labels()
    note = "every term minus its own minimum: only differences between points matter for the choice"
    legend_below(figure, note, 2, dict(zip(names, lines, strict=True)))
    figure.savefig(path, dpi=150)


def simple_regret(panels: Mapping[str, pd.DataFrame], path: str | os.PathLike, *, title: str) -> None:
    """Simple regret against rounds in panels with common axes.

    Args:
        panels: Title of a panel -> tidy rows with ``method``, ``seed``, ``round``, ``best``.
        path: Where the PNG goes.
        title: Title of the picture.
    """
    figure, grid = several_panels(list(panels), "round", "simple regret", title)
    for axes, rows in zip(grid, panels.values(), strict=True):
        for method in rows["method"].unique():
            style = _line(method)
            table = rows[rows["method"] == method].pivot_table(index="round", columns="seed", values="best")
            middle, margin = table.mean(axis=1), 2 * table.sem(axis=1)
            axes.plot(table.index, middle, label=method, **style)
            low = (middle - margin).clip(lower=_LEAST)
            axes.fill_between(table.index, low, middle + margin, color=style["color"], alpha=0.15, lw=0)
    logarithmic(grid[0])
    grid[0].set_ylim(bottom=_LEAST)
    legend_below(figure, f"{_MEAN}, band{_ERRORS}; below {_LEAST:g} not shown")
    figure.savefig(path, dpi=150)


def sizes(table: pd.DataFrame, path: str | os.PathLike, *, title: str, rounds: int) -> None:
    """Simple regret and time against the number of points.

    Args:
        table: A line for every ``method`` and ``points`` with ``best``, ``error`` of it (NaN for one seed) and
            ``seconds`` a round.
        path: Where the PNG goes.
        title: Title of the picture.
        rounds: Rounds that were played.
    """
    figure = blank(9.0, 4.4)
    left, right = figure.subplots(1, 2)
    dress(left, f"simple regret after {rounds} rounds", "number of points", "simple regret")
    dress(right, "time", "number of points", "CPU seconds a round")
    for i, (method, part) in enumerate(table.groupby("method", sort=False)):
        style = _line(str(method)) | {"marker": "o", "ms": 4}
        beside = 1.07 ** (i - 1) * part["points"]  # bars do not hide each other
        left.errorbar(beside, part["best"], 2 * part["error"].fillna(0), capsize=3, **style)
        right.plot(part["points"], part["seconds"], label=method, **style)
    for axes in (left, right):
        axes.set_xscale("log")
    left.set_ylim(bottom=0)
    logarithmic(right)
    plain_numbers(right.yaxis)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    seeds = ", ".join(map(str, table.drop_duplicates("points")["seeds"]))
    legend_below(figure, f"{_MEAN}, bars{_ERRORS}; {seeds} seeds from left to right")
    figure.savefig(path, dpi=150)


def _line(method: str) -> dict[str, Any]:
    """The line of a method; dashes lie above a line that they follow."""
    style = styles_of([method])[method]
    return {**style, "lw": 1.6, "zorder": 2.5 if style["ls"] == "-" else 2.7}
