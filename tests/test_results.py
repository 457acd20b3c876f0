"""Results as tables, and in notebooks."""

import pickle
import random
from datetime import UTC, datetime

import pandas as pd
import pytest

import kbo
from kbo.cli.app import app
from kbo.errors import InvalidInput
from kbo.report import summary
from tests.commands import CliRunner

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
    assert (frame["finished"] >= frame["started"]).all()
    assert frame["params.n"].dtype == "int64"


def export(result, path):
    return CliRunner().invoke(app, ["journal", "export", result.journal, "--to", str(path)])


def test_files_have_the_rows_of_the_frame(result, tmp_path):
    frame = result.to_frame()
    csv = pd.read_csv(result.to_csv(tmp_path / "run.txt"))
    assert list(csv["value"].dropna()) == list(frame["value"].dropna())
    parquet = pd.read_parquet(result.to_parquet(tmp_path / "run.parquet"))
    assert list(parquet["finished"]) == list(frame["finished"])
    assert list(parquet["params.kind"]) == list(map(str, frame["params.kind"]))
    assert list(parquet["params.depth"].dropna()) == [3] * (frame["params.depth"] == 3).sum()
    same = tmp_path / "same.parquet"
    assert f"12 trials in {same}" in export(result, same).stdout
    assert pd.read_parquet(same).equals(parquet)
    with pytest.raises(InvalidInput, match=r"cannot write .*Choose a writable place"):
        result.to_csv(tmp_path / "none" / "run.csv")
    refused = export(result, tmp_path / "run.xlsx")
    assert "written to .csv, .json, .parquet files, got" in str(refused.exception)


def test_a_copy_of_a_result_is_complete(result):
    other = pickle.loads(pickle.dumps(result))
    assert other == result
    assert other.optimizer.interval(result.params) == result.optimizer.interval(result.params)
    assert other.optimizer.suggest() == result.optimizer.suggest()


def test_a_notebook_shows_a_table_of_the_printed_lines(result):
    shown = result._repr_html_()
    assert shown.count("<tr>") == len(str(result).splitlines())
    assert "&lt;i&gt;diverged" in shown
    assert not any(markup in shown for markup in ("<i>", "src=", "href=", "<b>"))
    assert len(shown) < 10_000


@pytest.mark.parametrize(("n_trials", "noise"), [(1, 0.0), (4, 0.3), (9, 0.3)])
@pytest.mark.parametrize("constraints", [[], [kbo.Constraint("m", upper=0.5)]])
def test_a_summary_has_at_most_eight_lines_and_the_details_follow_on_request(
    n_trials, noise, constraints
):
    rng = random.Random(0)

    def objective(params):
        if params["x"] > 0.9:
            raise ValueError("diverged")
        value = (params["x"] - 0.3) ** 2 + noise * rng.gauss(0, 1)
        return (value, {"m": params["x"]}) if constraints else value

    bounds = {"x": (0.0, 1.0), "c": ["a", "b"]}
    result = kbo.minimize(objective, bounds, n_trials, constraints=constraints)
    lines = result.summary().splitlines()
    full = result.summary(full=True)
    assert str(result) == result.summary()
    assert len(lines) <= 8
    assert lines[0].startswith(f"Trials    {n_trials} trial")
    assert "nan" not in full
    assert full.startswith("Trials")
    assert result.guarantee in full
    assert result.optimizer.summary().splitlines()[1:4] == lines[1:4]


def test_a_narrow_terminal_has_the_rest_of_a_sentence_below_its_beginning():
    lines = [("Best", "a " * 60), ("More?", "b")]
    text = summary.text(lines, 80)
    assert all(len(row) <= 80 for row in text.splitlines())
    assert text.splitlines()[1].startswith("       a")
    assert text.splitlines()[-1] == "More?  b"
