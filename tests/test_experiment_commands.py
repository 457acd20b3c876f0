"""The commands of the experiments, as a person uses them."""

import pandas as pd
import pytest

from experiments import changes, insight
from experiments.papers import catalogue
from experiments.problems import BANDITS, BBOB
from kbo import bandit
from tests.commands import experiment


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")


def stored(folder):
    return {path: path.stat().st_mtime_ns for path in folder.glob("*.parquet")}


def test_run_compares_methods_in_a_table_and_a_picture(tmp_path, caplog):
    arguments = ["rkhs-fixed", "-T", "10", "-j", "1", "-m", "dmm-ucb"]
    done = experiment("bandits", *arguments, "-m", "random", "-K", "2", "-q")
    assert "dmm-ucb" in done.stdout
    assert "no bound" in done.stdout
    assert done.stderr == ""
    (parquet,) = (tmp_path / "kbo-runs").glob("*.parquet")
    cells = parquet.with_suffix("")
    experiment("bandits.redraw", parquet, "--to", "r.png")
    experiment("bandits.redraw", cells, "--to", "c.png")
    drawn, again = (path.read_bytes()[:24] for path in (tmp_path / "r.png", tmp_path / "c.png"))
    assert drawn == again == parquet.with_suffix(".png").read_bytes()[:24]  # type and size
    before = stored(cells)
    more = experiment("bandits", *arguments, "-K", "3", "-v")  # a seed more, a method less
    assert caplog.text.count("done ") == 1
    assert "random" not in more.stdout
    assert len(stored(cells)) == 5
    assert before.items() <= stored(cells).items()


def test_run_plays_contextual_problems_with_sketches(tmp_path):
    play = ["chessboard", "-m", "ek-ucb", "-m", "random", "-T", "20", "-K", "1", "-j", "1", "-q"]
    options = ["--ridge", "10", "--multiplier", "0.1", "--first", "2"]
    done = experiment("bandits", *play, *options)
    assert "anchors" in done.stdout
    assert "ek-ucb: a bound without a guarantee" in done.stdout
    assert "nominal" in done.stdout
    name = "run-chessboard-T20*-first2-ridge10-multiplier0.1.parquet"
    assert list((tmp_path / "kbo-runs").glob(name))


@pytest.mark.parametrize(
    ("module", "arguments", "says"),
    [
        ("bandits", ["chess"], "problem must be one of"),
        ("bandits", ["chessboard", "--dim", "3"], "has no option 'dim'"),
        ("bandits", ["rkhs", "-m", "igp-ucb", "--ridge", "1"], "no use for ridge"),
        ("bandits", ["rkhs", "--kernel", "cubic"], "kernel must be one of"),
        ("bandits", ["-o", "/proc/x", "-T", "2", "-K", "1", "-q"], "cannot create"),
        ("bandits.redraw", ["missing.parquet"], "no file"),
        ("bandits.redraw", ["rows.parquet", "--to", "picture.pdf"], "must be a .png file"),
        ("papers.mixture", ["--table", "3"], "no table 3"),
        ("papers.mixture", ["--study", "validty"], "Did you mean 'validity'"),
        ("tuning", ["--suite", "nothing"], "suite"),
    ],
)
def test_errors_are_one_line_and_exit_code_one(module, arguments, says):
    said = experiment(module, *arguments, code=1).stderr
    assert says in said
    assert said.startswith("error: ")


def test_help_lists_the_names_and_wrong_usage_is_exit_code_two(monkeypatch):
    monkeypatch.setenv("COLUMNS", "4000")
    listed = {
        "bandits": (*BANDITS, *bandit.names()),
        "tuning": ("bbob", "held-out", "kbo, ", "gauss"),
    }
    for module in ("bandits", "bandits.redraw", "tuning", "bench", "papers.mixture"):
        shown = experiment(module, "--help").stdout
        assert "Usage" in shown
        assert all(name in shown for name in listed.get(module, ()))
    experiment("bench", "--nonsense", code=2)


def test_a_paper_lists_its_experiments_and_repeats_one(tmp_path):
    for module in catalogue.PAPERS.values():
        assert (
            "--table 1" in experiment(module.removeprefix("experiments.")).stdout
            or "chaining" in module
        )
    done = experiment("papers.chaining", "--figure", "1", "--quick", "-j", "1", "-q")
    assert "picture  " in done.stdout
    assert list((tmp_path / "kbo-runs/chaining-quick").glob("figure1*.png"))


def test_the_statistics_of_a_run_are_compared_with_the_truth():
    pytest.importorskip("cocoex")
    rows = insight.measure(function=5, dim=2, noise="none", trials=8, seed=0)
    assert len(rows) == 2
    assert all(row["range"] and row["value"] for row in rows)
    assert sum(row["true share"] for row in rows) == pytest.approx(1)
    table = insight.summary(pd.DataFrame(rows))
    assert table.loc["the true value is in its interval (90%)", "none"] == "100% of 1"


def test_runs_whose_space_changes_are_compared_with_others():
    pytest.importorskip("cocoex")
    pytest.importorskip("optuna")
    rows = []
    for method in ("change", "tpe", "random"):
        case = dict(scenario="added", function=1, dim=3, noise="none", seed=1, method=method)
        rows += [{**case, **row} for row in changes.measure(**case)]
    table = pd.DataFrame(rows)
    ranks = changes.summary(table)
    assert ranks.loc[("added", "none"), "change"] == "1.00 (1.00 to 1.00)"
    better = changes.comparison(table)
    assert better.loc[("added", "all"), "random"] == "100% (100% to 100%), 0.00"


@pytest.mark.parametrize(
    ("scenario", "outside"), [("widened", ["x0", "x1"]), ("added", ["x0"]), ("narrowed", [])]
)
def test_the_optimum_is_outside_of_the_first_space_of_a_scenario(scenario, outside):
    pytest.importorskip("cocoex")
    problem = BBOB(3, 3, 1)
    change = changes.SCENARIOS[scenario](problem, 0)
    first = change.first | {name: (value, value) for name, value in change.was.items()}
    optimum = dict(zip(change.final, problem.solution, strict=True))
    assert [
        name for name, (low, high) in first.items() if not low <= optimum[name] <= high
    ] == outside
    assert sorted(first) == sorted(change.final)
