"""Tables of experiments: measured values beside published ones, for a terminal and as Markdown."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

Published = Mapping[tuple[str, str], tuple[float, float]]
"""(problem, method) -> mean and standard deviation in print."""

NONE = "-"


def summary(rows: pd.DataFrame, published: Published | None = None) -> pd.DataFrame:
    """Mean and spread over the seeds of the last round of every run, beside the published values.

    Args:
        rows: Tidy rows with ``problem``, ``method``, ``seed``, ``round``, ``cumulative``, ``cpu_seconds``.
        published: The values of the paper, if any.

    Returns:
        A line for every problem and method, in the order of ``rows``: ``mean``, ``sd`` (of a sample, NaN for one seed),
        ``runs``, ``cpu_seconds`` a run, ``m`` anchors on average where rows have them, ``published_mean``,
        ``published_sd`` (NaN where there are none).
    """
    last = rows.loc[rows.groupby(["problem", "method", "seed"], sort=False)["round"].idxmax()]
    last = last.assign(m=last.get("m", math.nan))
    columns = {
        "mean": ("cumulative", "mean"),
        "sd": ("cumulative", "std"),
        "runs": ("cumulative", "count"),
    }
    columns |= {"cpu_seconds": ("cpu_seconds", "mean"), "m": ("m", "mean")}
    table = last.groupby(["problem", "method"], sort=False).agg(**columns)
    in_print = [(published or {}).get(pair, (math.nan, math.nan)) for pair in table.index]
    table["published_mean"], table["published_sd"] = zip(*in_print, strict=True)
    return table.reset_index()


def final(rows: pd.DataFrame, published: Published | None = None) -> pd.DataFrame:
    """The summary in words: a line for every problem and method, without columns that have no values."""
    table: Any = summary(rows, published).set_index(["problem", "method"])
    shown = table.assign(
        regret=list(map(spread, table["mean"], table["sd"])),
        published=list(map(printed, table["published_mean"], table["published_sd"])),
        anchors=[f"{m:.0f}" if m == m else NONE for m in table["m"]],
    )
    shown = shown[["regret", "published", "anchors", "runs", "cpu_seconds"]].rename(
        columns={"cpu_seconds": "CPU s a run"}
    )
    return shown.loc[:, (shown != NONE).any()]


def crossed(table: pd.DataFrame) -> pd.DataFrame:
    """The summary with problems across and methods down, "measured (published)" in every cell."""
    cells = [
        f"{spread(mean, sd)} ({printed(*published)})"
        for mean, sd, *published in table[
            ["mean", "sd", "published_mean", "published_sd"]
        ].to_numpy()
    ]
    across = (
        table.assign(cell=cells)
        .pivot(index="method", columns="problem", values="cell")
        .fillna(NONE)
    )
    return across.loc[table["method"].unique(), table["problem"].unique()]


def text(table: pd.DataFrame) -> str:
    """A table for a terminal; numbers with four digits."""
    return table.to_string(sparsify=False, float_format="{:.4g}".format, na_rep=NONE)


def markdown(table: pd.DataFrame) -> str:
    """A table of Markdown, its index included."""
    plain = table.reset_index().map(
        lambda cell: f"{cell:.4g}" if isinstance(cell, float) else str(cell)
    )
    lines = [plain.columns.astype(str), ["---"] * len(plain.columns), *plain.to_numpy()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def spread(mean: float, sd: float) -> str:
    """Mean ± standard deviation, with one digit after the point below 100."""
    digits = 1 if abs(mean) < 100 else 0
    return f"{mean:.{digits}f}" + ("" if math.isnan(sd) else f" ± {sd:.{digits}f}")


def printed(mean: float, sd: float) -> str:
    """Published mean ± standard deviation, with the digits in print."""
    return NONE if math.isnan(mean) else f"{mean:g} ± {sd:g}"


def with_error(values: pd.Series) -> str:
    """Mean ± standard error, of which a single value has none."""
    return f"{values.mean():.3g}" + ("" if len(values.dropna()) < 2 else f" ± {values.sem():.2g}")
