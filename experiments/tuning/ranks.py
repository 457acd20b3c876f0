"""Standings of tuners over the problems of a suite: mean ranks, medians, CPU time, and targets reached.

The rows are those of ``experiments.tuning.comparison.run``, with ``problem``, ``name`` and ``seed``. ``score`` is the
column that is compared; smaller scores are better.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from experiments.output import tables
from experiments.papers.experiment import Frame

DRAWS = 2000
"""Number of draws of the bootstrap."""

TARGETS = 10.0 ** np.linspace(2, -8, 51)
"""The target regrets of COCO."""


def mean_ranks(scores: Frame, draws: int = DRAWS) -> Frame:
    """Return the mean rank of every tuner, with the 95% interval of a bootstrap over the problems.

    A rank is one plus the number of better tuners; an equal tuner counts one half. The mean is taken for each pair of
    tuners over their common runs, so a tuner with fewer runs does not reduce the runs of the others. The bootstrap
    keeps the runs of a problem together, since its instances are similar.

    Args:
        scores: A column for every tuner, by (problem, seed); NaN if there is no run.
        draws: Number of draws of the bootstrap.

    Returns:
        ``rank``, ``low`` and ``high`` of every tuner.
    """
    mine = scores.to_numpy()[:, :, None]
    other = scores.to_numpy()[:, None, :]
    both_ran = ~np.isnan(mine) & ~np.isnan(other)
    lost = np.where(both_ran, (mine > other) + 0.5 * (mine == other), 0.0)
    problem, names = pd.factorize(scores.index.get_level_values("problem"))
    n_problems = len(names)
    rng = np.random.default_rng(0)
    drawn = rng.multinomial(n_problems, np.full(n_problems, 1 / n_problems), draws)
    weights = np.vstack([np.ones(n_problems), drawn])[:, problem]
    with np.errstate(invalid="ignore"):
        shares = np.tensordot(weights, lost, 1) / np.tensordot(weights, both_ran.astype(float), 1)
    n_tuners = scores.shape[1]
    shares[:, range(n_tuners), range(n_tuners)] = (
        0.5  # the tuner itself, for which one half is subtracted below
    )
    rank = 0.5 + n_tuners * np.nanmean(shares, -1)  # the first row without the bootstrap
    low, high = np.quantile(rank, [0.025, 0.975], axis=0)
    return pd.DataFrame({"rank": rank[0], "low": low, "high": high}, index=scores.columns)


def rank_words(standing: Frame) -> Any:
    """Return the result of ``mean_ranks`` as text by tuner, "rank [low, high]"."""

    def words(tuner: Any) -> str:
        return f"{tuner['rank']:.2f} [{tuner['low']:.2f}, {tuner['high']:.2f}]"

    return standing.apply(words, axis=1)


def scores_at(rows: Frame, score: str) -> Iterator[tuple[int, Frame]]:
    """Yield every checkpoint with its scores by (problem, seed), a column for every tuner, in the order of the rows."""
    for trials, part in rows.dropna(subset="value").groupby("trials"):
        table = part.pivot(index=["problem", "seed"], columns="name", values=score)
        table = table[part["name"].unique()]
        yield int(trials), table.reindex(part["problem"].unique(), level="problem")


def ranks(rows: Frame, score: str) -> Frame:
    """Return mean ranks with intervals as text: a line for every tuner, a column for every checkpoint."""
    columns = {trials: rank_words(mean_ranks(table)) for trials, table in scores_at(rows, score)}
    return pd.DataFrame(columns)


def medians(rows: Frame, score: str) -> Frame:
    """Return median scores over all runs: a line for every tuner, a column for every checkpoint."""
    return pd.DataFrame({trials: table.median() for trials, table in scores_at(rows, score)})


def regret_ratios(rows: Frame) -> Frame:
    """Return the median ratio between the regret of the recommended point and that of the best visited point.

    The share of runs with a ratio of at most 1 is in brackets. There is a line for every tuner, and a column for every
    checkpoint.
    """

    def words(ratios: Any) -> str:
        return f"{ratios.median():.3g} ({(ratios.dropna() <= 1).mean():.0%})"

    ratios = (rows["regret"] / rows["visited_regret"]).fillna(1.0)  # 0 / 0
    tables_at = scores_at(rows.assign(ratio=ratios), "ratio")
    return pd.DataFrame({trials: table.apply(words) for trials, table in tables_at})


def cpu_seconds(rows: Frame) -> Frame:
    """Return mean CPU seconds of a run up to every checkpoint, and the number of runs."""
    columns: dict[Any, Any] = {}
    for trials, table in scores_at(rows, "cpu_seconds"):
        columns[trials] = table.mean()
    columns["runs"] = rows.groupby("name", sort=False)["cell"].nunique()
    return pd.DataFrame(columns)


def not_first(rows: Frame, score: str, name: str = "kbo") -> Frame:
    """Return the problems on which another tuner has a lower mean rank than ``name``: the first, and both medians."""
    words: dict[str, dict[int, str]] = {}
    for trials, table in scores_at(rows, score):
        for problem, part in table.groupby(level="problem", sort=False):
            rank = mean_ranks(part, 0)["rank"]
            first = rank.idxmin()
            if not rank[first] < rank[name]:
                continue
            median = part.median()
            words.setdefault(problem, {})[trials] = (
                f"{first} {median[first]:.2g} ({name} {median[name]:.2g})"
            )
    return pd.DataFrame(words).T.fillna(tables.NONE).sort_index(axis=1)


def targets_reached(rows: Frame) -> Frame:
    """Return the share of targets that are reached after each number of trials, over all runs, as COCO's ECDF.

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
    """Return rows for a picture of the scores at the checkpoints.

    Args:
        rows: The rows of runs.
        scores: By the title of a panel, the column that it shows.
    """
    judged: Any = rows.dropna(subset="value").rename(columns={"name": "method", "trials": "round"})
    parts = [judged.assign(panel=title, score=judged[score]) for title, score in scores.items()]
    return pd.concat(parts, ignore_index=True)
