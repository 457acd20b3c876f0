"""Tables of experiments: measured values beside published values, for a terminal and as Markdown."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

Published = Mapping[tuple[str, str], tuple[float, float]]
"""(problem, method) -> mean and standard deviation in print."""

NONE = "-"
"""The cell of a table that has no value."""


def summary(rows: pd.DataFrame, published: Published | None = None) -> pd.DataFrame:
    """Mean and spread over the seeds of the last round of every run, beside the published values.

    Args:
        rows: Tidy rows with ``problem``, ``method``, ``seed``, ``round``, ``cumulative``, ``cpu_seconds``.
        published: The values of the paper, if any.

    Returns:
        A line for every problem and method, in the order of ``rows``: ``mean``, ``sd`` (of a sample, NaN for one seed),
        ``runs``, ``cpu_seconds`` per run, the mean number ``m`` of anchors (if rows have it), ``published_mean`` and
        ``published_sd`` (NaN if not published).
    """
    last = rows.loc[rows.groupby(["problem", "method", "seed"], sort=False)["round"].idxmax()]
    last = last.assign(m=last.get("m", math.nan))
    table = last.groupby(["problem", "method"], sort=False).agg(
        mean=("cumulative", "mean"),
        sd=("cumulative", "std"),
        runs=("cumulative", "count"),
        cpu_seconds=("cpu_seconds", "mean"),
        m=("m", "mean"),
    )
    published = published or {}
    in_print = [published.get(pair, (math.nan, math.nan)) for pair in table.index]
    table["published_mean"] = [mean for mean, _ in in_print]
    table["published_sd"] = [sd for _, sd in in_print]
    return table.reset_index()


def final(rows: pd.DataFrame, published: Published | None = None) -> pd.DataFrame:
    """The summary as text: a line for every problem and method, without empty columns."""
    table: Any = summary(rows, published).set_index(["problem", "method"])
    words = table.assign(
        regret=list(map(spread, table["mean"], table["sd"])),
        published=list(map(printed, table["published_mean"], table["published_sd"])),
        anchors=list(map(_whole, table["m"])),
    )
    words = words[["regret", "published", "anchors", "runs", "cpu_seconds"]]
    words = words.rename(columns={"cpu_seconds": "CPU s a run"})
    return words.loc[:, (words != NONE).any()]


def crossed(table: pd.DataFrame) -> pd.DataFrame:
    """The summary with problems across and methods down, "measured (published)" in every cell."""
    measured = list(map(spread, table["mean"], table["sd"]))
    published = list(map(printed, table["published_mean"], table["published_sd"]))
    cells = [f"{ours} ({theirs})" for ours, theirs in zip(measured, published, strict=True)]
    across = table.assign(cell=cells).pivot(index="method", columns="problem", values="cell")
    return across.fillna(NONE).loc[table["method"].unique(), table["problem"].unique()]


def text(table: pd.DataFrame) -> str:
    """A table for a terminal; numbers with four digits."""
    return table.to_string(sparsify=False, float_format="{:.4g}".format, na_rep=NONE)


def markdown(table: pd.DataFrame) -> str:
    """A table of Markdown, its index included; numbers with four digits."""
    plain = table.reset_index().map(_plain)
    lines = [plain.columns.astype(str), ["---"] * len(plain.columns), *plain.to_numpy()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _plain(cell: Any) -> str:
    """The text of a cell."""
    if isinstance(cell, float):
        return f"{cell:.4g}"
    return str(cell)


def _whole(number: float) -> str:
    """A number rounded to a whole number, as text."""
    if math.isnan(number):
        return NONE
    return f"{number:.0f}"


def spread(mean: float, sd: float) -> str:
    """Mean ± standard deviation, with one decimal below 100; a standard deviation of NaN is left out."""
    digits = 0
    if abs(mean) < 100:
        digits = 1
    if math.isnan(sd):
        return f"{mean:.{digits}f}"
    return f"{mean:.{digits}f} ± {sd:.{digits}f}"


def printed(mean: float, sd: float) -> str:
    """Published mean ± standard deviation, with the published digits."""
    if math.isnan(mean):
        return NONE
    return f"{mean:g} ± {sd:g}"


def with_error(values: pd.Series) -> str:
    """Mean ± standard error; only the mean if there is a single value."""
    mean = f"{values.mean():.3g}"
    if values.count() < 2:
        return mean
    return f"{mean} ± {values.sem():.2g}"
