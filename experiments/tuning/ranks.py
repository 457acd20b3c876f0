"""Standings of tuners over the problems of a suite: mean ranks, medians, CPU time, and targets reached.

Rows are those of ``experiments.tuning.comparison.run``, with ``problem``, ``name`` and ``seed``; ``score`` is the
column that is compared, and smaller is better.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from experiments import tables
from experiments.papers.experiment import Frame

DRAWS = 2000
"""Draws of the bootstrap."""

TARGETS = 10.0 ** np.linspace(2, -8, 51)
"""Regrets that COCO counts."""


def mean_ranks(scores: Frame, draws: int = DRAWS) -> Frame:
    """Mean rank of every tuner, with the 95% interval of a bootstrap over the problems.

    A rank is one plus the number of tuners that are better (half of those that are equal), and its mean is taken pair
    by pair over the runs that both did: a tuner with fewer runs takes no runs from the others. The runs of a problem
    stay together in the bootstrap, since its instances are alike.

    Args:
        scores: A column for every tuner, by (problem, seed); NaN where it did not run.
        draws: Draws of the bootstrap.

    Returns:
        ``rank``, ``low`` and ``high`` of every tuner.
    """
    mine, other = scores.to_numpy()[:, :, None], scores.to_numpy()[:, None, :]
    met = ~np.isnan(mine) & ~np.isnan(other)
    lost = np.where(met, (mine > other) + 0.5 * (mine == other), 0.0)
    problem, names = pd.factorize(scores.index.get_level_values("problem"))
    one_hot = np.eye(len(names))[problem]
    drawn = np.random.default_rng(0).multinomial(
        len(names), np.full(len(names), 1 / len(names)), draws
    )
    weights = np.vstack([np.ones(len(names)), drawn]) @ one_hot.T
    with np.errstate(invalid="ignore"):
        shares = np.tensordot(weights, lost, 1) / np.tensordot(weights, met.astype(float), 1)
    count = scores.shape[1]
    shares[:, range(count), range(count)] = 0.5  # itself, which the half takes away again
    found = 0.5 + count * np.nanmean(shares, -1)
    low, high = np.quantile(found, [0.025, 0.975], axis=0)
    return pd.DataFrame({"rank": found[0], "low": low, "high": high}, index=scores.columns)


def scores_at(rows: Frame, score: str) -> Iterator[tuple[int, Frame]]:
    """Every checkpoint, and its scores by (problem, seed), a column for every tuner in the order of the rows."""
    for trials, part in rows.dropna(subset="value").groupby("trials"):
        table = part.pivot(index=["problem", "seed"], columns="name", values=score)
        yield (
            int(trials),
            table[part["name"].unique()].reindex(part["problem"].unique(), level="problem"),
        )


def ranks(rows: Frame, score: str) -> Frame:
    """Mean ranks and their intervals in words: a line for every tuner, a column for every checkpoint."""

    def words(at: Any) -> str:
        return f"{at['rank']:.2f} [{at['low']:.2f}, {at['high']:.2f}]"

    return pd.DataFrame(
        {trials: mean_ranks(table).apply(words, axis=1) for trials, table in scores_at(rows, score)}
    )


def medians(rows: Frame, score: str) -> Frame:
    """Median scores over all runs: a line for every tuner, a column for every checkpoint."""
    return pd.DataFrame({trials: table.median() for trials, table in scores_at(rows, score)})


def regret_ratios(rows: Frame) -> Frame:
    """Median ratio of the regret of the recommended to that of the best visited point, and the share where it is 1."""

    def words(at: Any) -> str:
        return f"{at.median():.3g} ({(at.dropna() <= 1).mean():.0%})"

    ratios = (rows["regret"] / rows["visited_regret"]).fillna(1.0)  # 0 / 0
    return pd.DataFrame(
        {
            trials: table.apply(words)
            for trials, table in scores_at(rows.assign(ratio=ratios), "ratio")
        }
    )


def cpu_seconds(rows: Frame) -> Frame:
    """Mean CPU seconds of a run up to every checkpoint, and the number of runs."""
    runs = {"runs": rows.groupby("name", sort=False)["cell"].nunique()}
    return pd.DataFrame(
        {trials: table.mean() for trials, table in scores_at(rows, "cpu_seconds")} | runs
    )


def not_first(rows: Frame, score: str, name: str = "kbo") -> Frame:
    """Problems on which another tuner has a lower mean rank than ``name``: that one, and the medians of the two."""
    found: dict[str, dict[int, str]] = {}
    for trials, table in scores_at(rows, score):
        for problem, part in table.groupby(level="problem", sort=False):
            order = mean_ranks(part, 0)["rank"]
            if (first := order.idxmin()) != name and order[first] < order[name]:
                medians = part.median()
                found.setdefault(problem, {})[trials] = (
                    f"{first} {medians[first]:.2g} ({name} {medians[name]:.2g})"
                )
    return pd.DataFrame(found).T.fillna(tables.NONE).sort_index(axis=1)


def targets_reached(rows: Frame) -> Frame:
    """Share of the targets that the trials up to each one have reached, over all runs; as COCO's ECDF.

    Returns:
        ``method``, ``round`` (the number of trials) and ``share``.
    """
    parts = []
    for name, part in rows.groupby("name", sort=False):
        best = part.pivot(index="trials", columns=["problem", "seed"], values="visited_regret")
        best = best.reindex(range(1, int(best.index.max()) + 1)).ffill()
        share = (best.to_numpy()[..., None] <= TARGETS).mean((1, 2))
        parts.append(pd.DataFrame({"method": name, "round": best.index, "share": share, "seed": 0}))
    return pd.concat(parts, ignore_index=True)


def curves(rows: Frame, scores: dict[str, str]) -> Frame:
    """Rows for a picture of the scores, by the title of its panel, at the checkpoints."""
    judged: Any = rows.dropna(subset="value").rename(columns={"name": "method", "trials": "round"})
    parts = [judged.assign(panel=title, score=judged[score]) for title, score in scores.items()]
    return pd.concat(parts, ignore_index=True)
