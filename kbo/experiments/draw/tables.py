"""Tables of regret: what was measured beside what was published."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

Published = Mapping[tuple[str, str], tuple[float, float]]
"""(problem, method) -> mean and standard deviation in print."""

NONE = "-"


def summary(rows: pd.DataFrame, published: Published) -> pd.DataFrame:
    """The last round of every run, as mean and spread over the seeds, beside the published figures.

    Args:
        rows: Tidy rows with ``problem``, ``method``, ``seed``, ``round``, ``cumulative``, ``cpu_seconds``.
        published: What the paper has.

    Returns:
        A line for every problem and method, in the order of ``rows``: ``mean``, ``sd`` (of a sample, NaN for one seed),
        ``runs``, ``cpu_seconds`` a run, ``m`` anchors on average where rows have them, ``published_mean``,
        ``published_sd`` (NaN where there are none).
    """
    last = rows.loc[rows.groupby(["problem", "method", "seed"], sort=False)["round"].idxmax()]
    groups = last.groupby(["problem", "method"], sort=False)
    table = groups["cumulative"].agg(mean="mean", sd="std", runs="count").reset_index()
    table["cpu_seconds"] = groups["cpu_seconds"].mean().to_numpy()
    table["m"] = groups["m"].mean().to_numpy() if "m" in last else math.nan
    print_ = [published.get(pair, (math.nan, math.nan)) for pair in zip(table["problem"], table["method"], strict=True)]
    table["published_mean"], table["published_sd"] = zip(*print_, strict=True)
    return table


def text(table: pd.DataFrame) -> str:
    """The summary for a terminal, a line for every problem and method."""
    lines: list[tuple[str, ...]] = [("problem", "method", "regret", "published", "anchors", "runs", "CPU s a run")]
    lines += [
        (
            row.problem,
            row.method,
            spread(row.mean, row.sd),
            printed(row.published_mean, row.published_sd),
            count(row.m),
            str(row.runs),
            f"{row.cpu_seconds:.1f}",
        )
        for row in typed(table)
    ]
    unused = {i for i, column in ((3, "published_mean"), (4, "m")) if bool(table[column].isna().all())}
    return aligned([tuple(cell for i, cell in enumerate(line) if i not in unused) for line in lines])


def aligned(lines: Sequence[tuple[str, ...]]) -> str:
    """Cells in columns, with a blank line wherever the first cell changes."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    shown, before = [], ""
    for line in lines:
        shown += [""] if shown and line[0] != before else []
        cells = (
            cell.rjust(w) if i > 1 else cell.ljust(w) for i, (cell, w) in enumerate(zip(line, widths, strict=True))
        )
        shown.append("  ".join(cells).rstrip())
        before = line[0]
    return "\n".join(shown)


def markdown(table: pd.DataFrame) -> str:
    """The summary as a Markdown table: problems across, methods down, "measured (published)" in every cell."""
    problems, methods = table["problem"].unique(), table["method"].unique()
    found = {(row.problem, row.method): row for row in typed(table)}

    def cell(problem: str, method: str) -> str:
        row = found.get((problem, method))
        if row is None:
            return NONE
        return f"{spread(row.mean, row.sd)} ({printed(row.published_mean, row.published_sd)})"

    lines = [["", *problems], ["---"] * (1 + len(problems))]
    lines += [[method, *(cell(problem, method) for problem in problems)] for method in methods]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def ruled(lines: Sequence[tuple[str, ...]]) -> str:
    """Cells as a Markdown table; the first line is its heading."""
    heading, *others = lines
    return "\n".join(f"| {' | '.join(line)} |" for line in (heading, ["---"] * len(heading), *others))


def spread(mean: float, sd: float) -> str:
    """Mean ± standard deviation, with one digit after the point below 100."""
    if math.isnan(mean):
        return NONE
    digits = 1 if abs(mean) < 100 else 0
    return f"{mean:.{digits}f}" + ("" if math.isnan(sd) else f" ± {sd:.{digits}f}")


def count(mean: float) -> str:
    """A mean of whole numbers."""
    return NONE if math.isnan(mean) else f"{mean:.0f}"


def printed(mean: float, sd: float) -> str:
    """The same for published figures, as they are printed."""
    return NONE if math.isnan(mean) else f"{mean:g} ± {sd:g}"


def typed(table: pd.DataFrame) -> list:
    """The lines of a summary, with a field for every column."""
    return list(table.itertuples(index=False))
