"""Standings of tuners over a suite, and `python -m experiments.tuning`."""

import math

import pandas as pd
import pytest

from experiments.tuning import ranks, suites
from tests import commands
from tests.parts import once


def scores(**problems):
    """Return a table with a row for each problem and seed, and a column for each tuner."""
    return pd.DataFrame(
        {(name, seed): row for name, rows in problems.items() for seed, row in enumerate(rows)},
        index=["a", "b", "c"],
        dtype=float,
    ).T.rename_axis(["problem", "seed"])


def test_mean_ranks_by_hand():
    table = scores(f=[[1, 2, 3], [2, 1, 3]], g=[[1, 1, 1], [5, 6, 4]])
    found = ranks.mean_ranks(table)
    assert found["rank"].tolist() == [(1 + 2 + 2 + 2) / 4, (2 + 1 + 2 + 3) / 4, (3 + 3 + 2 + 1) / 4]
    # A draw has f twice, f and g, or g twice.
    assert found[["low", "high"]].to_numpy().tolist() == [[1.5, 2.0], [1.5, 2.5], [1.5, 3.0]]


def test_a_tuner_with_few_runs_takes_none_from_the_others():
    table = scores(f=[[1, 2, 0], [1, 2, math.nan], [2, 1, math.nan], [1, 2, math.nan]])
    a, b, c = ranks.mean_ranks(table)["rank"]
    assert (a, b, c) == pytest.approx((1 + 1 / 4 + 1, 1 + 3 / 4 + 1, 1))


TWO = pd.DataFrame(
    [
        ("f10", "kbo", 1, math.nan, 200.0),
        ("f10", "kbo", 3, 4.0, 1.0),
        ("f10", "kbo", 5, 1.0, 1.0),
        ("f10", "tpe", 2, math.nan, 1e-9),
        ("f10", "tpe", 3, 1.0, 1e-9),
        ("f10", "tpe", 5, 2.0, 1e-9),
        ("f9", "kbo", 3, 0.0, 0.0),
        ("f9", "kbo", 5, 0.0, 0.0),
        ("f9", "tpe", 3, 3.0, 3.0),
        ("f9", "tpe", 5, 3.0, 3.0),
    ],
    columns=["problem", "name", "trials", "regret", "visited_regret"],
)
"""Rows of four runs, judged where there is a regret."""
TWO = TWO.assign(cell=TWO["problem"] + TWO["name"], seed=1, value=TWO["regret"])


def test_tables_are_of_the_checkpoints():
    shown = ranks.ranks(TWO, "regret")
    assert shown.loc["kbo"].tolist() == ["1.50 [1.00, 2.00]", "1.00 [1.00, 1.00]"]
    assert ranks.medians(TWO, "regret").to_dict("list") == {3: [2.0, 2.0], 5: [0.5, 2.5]}
    assert ranks.regret_ratios(TWO).loc["kbo"].tolist() == ["2.5 (50%)", "1 (100%)"]
    assert ranks.not_first(TWO, "regret").to_dict("index") == {"f10": {3: "tpe 1 (kbo 4)"}}


@pytest.mark.parametrize("suite", once(["bbob", "hpo"]))
def test_compare_prints_standings_and_finds_finished_runs(suite, tmp_path, monkeypatch):
    kept = suites.half_of(suite, "held-out")[:2]
    monkeypatch.setattr(suites, "half_of", lambda suite, half, dim, noise: kept)
    arguments = f"--suite {suite} --half held-out -n 7 -K 1 --tuners kbo,random -j 1 -q --out"
    text = commands.experiment("tuning", *arguments.split(), tmp_path).stdout
    again = commands.experiment("tuning", *arguments.split(), tmp_path).stdout
    assert text == again  # CPU seconds too: the runs were not done again
    assert "mean rank of the recommended point" in text
    (table,) = (tmp_path / "compare").glob("*-held-out-T7.csv")
    assert len(pd.read_csv(table).dropna(subset="value")) == 2 * 2
