"""Standings of tuners over a suite, and `python -m experiments.tuning`."""

import math

import numpy as np
import pandas as pd
import pytest

from experiments.tuning import ranks, suites
from experiments.tuning.suite_run import experiment
from experiments.tuning.tuners import seeds_of
from kbo.errors import InvalidInput, MissingExtra
from tests import commands
from tests.parts import once


def scores(*rows, names="abc"):
    return pd.DataFrame(
        [row[2:] for row in rows],
        columns=list(names),
        index=pd.MultiIndex.from_tuples([row[:2] for row in rows], names=["problem", "seed"]),
        dtype=float,
    )


def test_mean_ranks_by_hand():
    table = scores(("f", 1, 1, 2, 3), ("f", 2, 2, 1, 3), ("g", 1, 1, 1, 1), ("g", 2, 5, 6, 4))
    found = ranks.mean_ranks(table)
    assert found["rank"].tolist() == [(1 + 2 + 2 + 2) / 4, (2 + 1 + 2 + 3) / 4, (3 + 3 + 2 + 1) / 4]
    # A draw has f twice, f and g, or g twice.
    assert found[["low", "high"]].to_numpy().tolist() == [[1.5, 2.0], [1.5, 2.5], [1.5, 3.0]]
    assert ranks.mean_ranks(table[["a"]])["rank"].tolist() == [1]


def test_a_tuner_with_few_runs_takes_none_from_the_others():
    table = scores(
        ("f", 1, 1, 2, 0),
        ("f", 2, 1, 2, math.nan),
        ("f", 3, 2, 1, math.nan),
        ("f", 4, 1, 2, math.nan),
    )
    a, b, c = ranks.mean_ranks(table)["rank"]
    assert (a, b, c) == pytest.approx((1 + 1 / 4 + 1, 1 + 3 / 4 + 1, 1))


def rows(*runs):
    """Rows of runs (problem, name, seed, {trials: (regret, visited)}), judged where there is a regret."""
    return pd.DataFrame(
        {
            "cell": f"{problem}{name}{seed}",
            **{"problem": problem, "name": name, "seed": seed, "trials": trials},
            **{
                "value": regret,
                "regret": regret,
                "visited_regret": visited,
                "cpu_seconds": float(trials),
            },
        }
        for problem, name, seed, found in runs
        for trials, (regret, visited) in found.items()
    )


TWO = rows(
    ("f10", "kbo", 1, {1: (math.nan, 200.0), 3: (4.0, 1.0), 5: (1.0, 1.0)}),
    ("f10", "tpe", 1, {2: (math.nan, 1e-9), 3: (1.0, 1e-9), 5: (2.0, 1e-9)}),
    ("f9", "kbo", 1, {3: (0.0, 0.0), 5: (0.0, 0.0)}),
    ("f9", "tpe", 1, {3: (3.0, 3.0), 5: (3.0, 3.0)}),
)


def test_tables_are_of_the_checkpoints():
    assert ranks.ranks(TWO, "regret").loc["kbo"].tolist() == [
        "1.50 [1.00, 2.00]",
        "1.00 [1.00, 1.00]",
    ]
    assert ranks.medians(TWO, "regret").to_dict("list") == {3: [2.0, 2.0], 5: [0.5, 2.5]}
    assert ranks.regret_ratios(TWO).loc["kbo"].tolist() == ["2.5 (50%)", "1 (100%)"]
    assert ranks.cpu_seconds(TWO).to_dict("list") == {3: [3.0, 3.0], 5: [5.0, 5.0], "runs": [2, 2]}
    assert ranks.not_first(TWO, "regret").to_dict("index") == {"f10": {3: "tpe 1 (kbo 4)"}}


def test_targets_reached_are_cocos():
    """51 of them, 10^2 to 10^-8: 200 reaches none, 1 reaches 11, 1e-9 and 0 reach all."""
    table = ranks.targets_reached(TWO).pivot(index="round", columns="method", values="share")
    kbo = [0.0, 0.0, (11 + 51) / 102, (11 + 51) / 102, (11 + 51) / 102]
    reach = np.sum(ranks.TARGETS >= 3.0)
    assert table["kbo"].tolist() == pytest.approx(kbo)
    assert table["tpe"].tolist() == pytest.approx([0, 51 / 102, *[(51 + reach) / 102] * 3])


@pytest.mark.parametrize("suite", once(["bbob", "hpo"]))
def test_compare_prints_standings_and_finds_finished_runs(suite, tmp_path, monkeypatch):
    kept = {name: suites.half_of(name, "held-out")[:2] for name in ("bbob", "hpo")}
    monkeypatch.setattr(suites, "half_of", lambda suite, half, dim, noise: kept[suite])
    arguments = [
        "--suite",
        suite,
        "--half",
        "held-out",
        "-n",
        "16",
        "-K",
        "1",
        "--tuners",
        "kbo,random",
    ]
    arguments += ["-j", "1", "-q", "--out", tmp_path]
    texts = [commands.experiment("tuning", *arguments).stdout for _ in range(2)]
    assert texts[0] == texts[1]  # CPU seconds too: the runs were not done again
    for expected in (
        "mean rank of the recommended point",
        "kbo",
        "random",
        "15",
        "16",
        "where kbo is not first",
    ):
        assert expected in texts[0]
    assert ("best visited" in texts[0]) == (suite == "bbob")
    words = "bbob-d5-gauss" if suite == "bbob" else "hpo"
    stored = pd.read_csv(tmp_path / "compare" / f"{words}-held-out-T16.csv").dropna(subset="value")
    assert len(stored) == 2 * 2 * 2
    pictures = {
        path.name.removeprefix(f"{words}-held-out-T16-")
        for path in (tmp_path / "compare").glob("*.png")
    }
    assert pictures == {"curves.png", *["ecdf.png"] * (suite == "bbob")}


def test_expensive_tuners_do_fewer_runs_and_what_cannot_run_is_named_before_anything_runs(
    monkeypatch,
):
    assert [seeds_of("ax", trials, 10) for trials in (25, 50, 199, 200, 1000)] == [10, 3, 3, 1, 0]
    assert (seeds_of("ax", 50, 2), seeds_of("kbo", 1000, 10)) == (2, 10)
    with pytest.raises(InvalidInput, match=r"tuners must be one of .*'kbo'.* got 'kob'"):
        experiment("bbob", "held-out", ["kob"], 50, 3)
    monkeypatch.setattr("kbo._base.extras.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"cocoex: pip install 'kbo\[experiments\]'"):
        experiment("bbob", "development", ["kbo"], 5, 1)
