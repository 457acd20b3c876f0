"""Results as tables, and in notebooks."""

import random
from datetime import UTC, datetime

import pandas as pd
import pytest

import kbo
from kbo.errors import InvalidInput
from tests.commands import kbo as kbo_command

SPACE = {
    "x": (0.0, 1.0),
    "depth": kbo.Choice([3, None]),
    "kind": kbo.Choice([1, "<b>"]),
    "n": kbo.Int(1, 9),
}


def objective(params):
    if params["n"] > 7:
        raise ValueError("<i>diverged</i>")
    return params["x"]


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    journal = tmp_path_factory.mktemp("run") / "run.jsonl"
    return kbo.minimize(objective, SPACE, 12, method="random", journal=journal)


def test_the_frame_has_a_row_for_each_trial(result):
    frame = result.to_frame()
    assert list(frame) == [
        *("number", "status", "value", "seconds", "started", "finished", "failure"),
        *(f"params.{name}" for name in SPACE),
    ]
    for row, trial in zip(frame.to_dict("records"), result.trials, strict=True):
        assert (row["number"], row["status"]) == (trial.number, trial.status)
        assert {name: row[f"params.{name}"] for name in SPACE} == trial.params
        assert row["failure"] == trial.failure
        assert row["started"] == datetime.fromtimestamp(trial.started, UTC)
        assert row["value"] == trial.value or trial.value is None
    n_failed = sum(trial.status == "failed" for trial in result.trials)
    assert frame["value"].isna().sum() == n_failed > 0


def test_files_have_the_rows_of_the_frame(result, tmp_path):
    frame = result.to_frame()
    csv = pd.read_csv(result.to_csv(tmp_path / "run.txt"))
    assert list(csv["value"].dropna()) == list(frame["value"].dropna())
    parquet = pd.read_parquet(result.to_parquet(tmp_path / "run.parquet"))
    assert list(parquet["finished"]) == list(frame["finished"])
    assert list(parquet["params.kind"]) == list(map(str, frame["params.kind"]))
    assert list(parquet["params.depth"].dropna()) == [3] * (frame["params.depth"] == 3).sum()
    with pytest.raises(InvalidInput, match=r"cannot write .*Choose a writable place"):
        result.to_csv(tmp_path / "none" / "run.csv")
    export = ("journal", "export", result.journal, "--to")
    kbo_command(*export, tmp_path / "same.parquet")
    assert pd.read_parquet(tmp_path / "same.parquet").equals(parquet)
    refused = kbo_command(*export, "run.xlsx", code=1).stderr
    assert "written to .csv, .json, .parquet files" in refused


def test_a_notebook_shows_a_table_of_the_printed_lines(result):
    shown = result._repr_html_()
    assert shown.count("<tr>") == len(str(result).splitlines())
    assert "&lt;i&gt;diverged" in shown
    assert not any(markup in shown for markup in ("<i>", "src=", "href=", "<b>"))


@pytest.mark.parametrize("n_trials", [1, 7])
def test_a_summary_has_at_most_nine_lines_and_the_details_follow_on_request(n_trials):
    rng = random.Random(0)

    def objective(params):
        if params["x"] > 0.9:
            raise ValueError("diverged")
        return (params["x"] - 0.3) ** 2 + 0.3 * rng.gauss(0, 1), {"m": params["x"]}

    limit = kbo.Constraint("m", upper=0.5)
    result = kbo.minimize(objective, {"x": (0.0, 1.0)}, n_trials, constraints=[limit])
    lines = str(result).splitlines()
    assert len(lines) <= 9
    assert n_trials == 1 or any(
        line.startswith("Limits?   kept with probability") for line in lines
    )
    assert lines[0].startswith(f"Trials    {n_trials} trial")
    full = result.summary(full=True)
    assert "nan" not in full
    assert result.guarantee in full
    assert result.optimizer.summary().splitlines()[1:4] == lines[1:4]
