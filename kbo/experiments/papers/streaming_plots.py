"""Pictures of unknown noise: quantities against rounds, and envelopes of a function."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from kbo.experiments.draw.canvas import legend_below, logarithmic, one_panel, plain_numbers, several_panels, styles_of

if TYPE_CHECKING:
    import pandas as pd

_STYLES = {
    "kernel-ucb-adaptive, paper": ("#e69f00", "-"),
    "kernel-ts-adaptive, paper": ("#e69f00", "-"),
    "kernel-ucb-adaptive, tight": ("#56b4e9", "--"),
    "paper": ("#e69f00", "-"),
    "paper, fixed ridge": ("#cc79a7", "-."),
    "paper, fixed ridge and gain": ("#cc79a7", ":"),
    "tight": ("#56b4e9", "--"),
    "tight+grid": ("#0072b2", "-"),
    "mixture": ("#d55e00", "-"),
    "Theorem 1": ("#0072b2", "-"),
    "Lemma 3": ("#d55e00", "--"),
}
"""A form of the noise bounds looks the same in every picture."""

_FIRST, _LAST = 0.1, 0.9
BAND = f"median over seeds, band: {_FIRST:.0%} to {_LAST:.0%}"
"""What curves and bands are."""


def style_of(method: str) -> dict[str, Any]:
    """The line of a method or form."""
    if method not in _STYLES:
        return styles_of([method])[method]
    colour, dashes = _STYLES[method]
    return {"color": colour, "ls": dashes}


def curves(
    rows: pd.DataFrame,
    values: Sequence[str],
    path: str | os.PathLike,
    *,
    title: str,
    ylabel: str,
    note: str = "",
    truth: tuple[str, float] | None = None,
    ends: bool = False,
    log: bool = True,
) -> None:
    """Quantities against rounds: median over seeds and a band for every method.

    Args:
        rows: Tidy rows with ``method``, ``seed``, ``round`` and the quantities.
        values: The columns; all have the line of their method.
        path: Where the PNG goes.
        title: Title of the picture.
        ylabel: What the quantities are.
        note: What to know besides, for the caption.
        truth: Name and height of a horizontal line.
        ends: Show the last medians in the legend.
        log: A logarithmic scale.
    """
    figure, axes = one_panel(title, "round", ylabel)
    if log:
        logarithmic(axes)
    _draw(axes, rows, values, ends)
    if truth is not None:
        axes.axhline(truth[1], color="#7f7f7f", lw=1.2, ls=":", label=truth[0])
    if log:
        plain_numbers(axes.yaxis)
    legend_below(figure, _caption(note), 3)
    figure.savefig(path, dpi=150)


def regret_panels(panels: Mapping[str, pd.DataFrame], path: str | os.PathLike, *, title: str, note: str) -> None:
    """Cumulative regret against rounds in panels with common axes.

    Args:
        panels: Title of a panel -> tidy rows with ``method``, ``seed``, ``round``, ``cumulative``.
        path: Where the PNG goes.
        title: Title of the picture.
        note: What to know besides, for the caption.
    """
    figure, grid = several_panels(list(panels), "round", "cumulative regret", title)
    for axes, rows in zip(grid, panels.values(), strict=True):
        _draw(axes, rows, ["cumulative"], ends=False)
    legend_below(figure, _caption(note))
    figure.savefig(path, dpi=150)


def envelopes(
    x: Tensor,
    truth: Tensor,
    panels: Mapping[str, tuple[tuple[Tensor, Tensor], Mapping[str, tuple[Tensor, Tensor]]]],
    path: str | os.PathLike,
    *,
    title: str,
    note: str,
) -> None:
    """A function of one variable, noisy data and bounds by several methods, in panels.

    Args:
        x: Where the function is drawn, [g].
        truth: The function there, [g].
        panels: Title of a panel -> (inputs [n], noisy values [n]) and, by method, lower and upper bound [g].
        path: Where the PNG goes.
        title: Title of the picture.
        note: What to know besides, for the caption.
    """
    figure, grid = several_panels(list(panels), "x", "f(x)", title)
    for axes, (data, bounds) in zip(grid, panels.values(), strict=True):
        for name, interval in bounds.items():
            for bound, label in zip(interval, (name, None), strict=True):
                axes.plot(x, bound, lw=1.4, label=label, **style_of(name))
        axes.plot(x, truth, color="#009e73", lw=2.0, label="true function")
        axes.scatter(*data, s=10, color="#7f7f7f", marker="x", lw=0.9, label="observations", zorder=0.5)
    legend_below(figure, note, 3)
    figure.savefig(path, dpi=150)


def _caption(note: str) -> str:
    return f"{note}\n{BAND}" if note else BAND


def _draw(axes: Any, rows: pd.DataFrame, values: Sequence[str], ends: bool) -> None:
    """Median and band of every quantity of every method; only the first quantity is in the legend."""
    for method, group in rows.groupby("method", sort=False):
        style = style_of(str(method))
        for value in values:
            low, middle, high = (group.groupby("round")[value].quantile(q) for q in (_FIRST, 0.5, _LAST))
            label = None if value != values[0] else f"{method}  ({middle.iloc[-1]:.0f})" if ends else method
            axes.plot(middle.index, middle, lw=1.6, label=label, **style)
            axes.fill_between(middle.index, low, high, color=style["color"], alpha=0.15, lw=0)
