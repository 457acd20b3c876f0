"""The commands of the experiments, as a person uses them."""

import pandas as pd
import pytest

from experiments import changes, insight
from experiments.papers import catalogue
from experiments.problems import BANDITS
from kbo import bandit
from tests.commands import experiment


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "4000")


def test_run_compares_methods_in_a_table_and_a_picture(tmp_path, caplog):
    arguments = "rkhs-fixed -T 10 -j 1 -m dmm-ucb"
    done = experiment("bandits", *arguments.split(), "-m", "random", "-K", "2", "-q")
    assert "no bound" in done.stdout
    assert done.stderr == ""
    (parquet,) = (tmp_path / "kbo-runs").glob("*.parquet")
    experiment("bandits.redraw", parquet.with_suffix(""), "--to", "r.png")
    drawn = (tmp_path / "r.png").read_bytes()
    assert drawn[:24] == parquet.with_suffix(".png").read_bytes()[:24]  # type and size
    more = experiment("bandits", *arguments.split(), "-K", "3", "-v")  # a seed more, a method less
    assert caplog.text.count("done ") == 1
    assert "random" not in more.stdout


def test_errors_are_one_line_and_exit_code_one():
    for command, says in [
        ("bandits chess", "problem must be one of"),
        ("bandits rkhs -m igp-ucb --ridge 1", "no use for ridge"),
        ("bandits -o /proc/x -T 2 -K 1 -q", "cannot create"),
        ("bandits.redraw missing.parquet", "no file"),
        ("papers.mixture --study validty", "Did you mean 'validity'"),
        ("tuning --suite nothing", "suite"),
        ("tuning.fronts --tuners kbo,nsga", "tuners must be one of"),
    ]:
        said = experiment(*command.split(), code=1).stderr
        assert says in said
        assert said.startswith("error: ")


def test_help_lists_the_names_and_papers_their_experiments():
    listed = {
        "bandits": (*BANDITS, *bandit.names()),
        "tuning": ("bbob", "held-out", "kbo, ", "gauss"),
    }
    for module in ("bandits", "bandits.redraw", "tuning", "bench", "papers.mixture"):
        shown = experiment(module, "--help").stdout
        assert "Usage" in shown
        assert all(name in shown for name in listed.get(module, ()))
    for module in catalogue.PAPERS.values():
        shown = experiment(module.removeprefix("experiments.")).stdout
        assert "--table 1" in shown or "chaining" in module


@pytest.mark.thorough
def test_probabilities_to_be_on_a_front_are_compared_with_the_truth():
    done = experiment("tuning.front_statistics", "-n", "10", "--only", "zdt1-d5", "-j", "1", "-q")
    assert "noise 0.5: probability to be on the front" in done.stdout


def test_the_statistics_of_a_run_are_compared_with_the_truth():
    rows = insight.measure(function=5, dim=2, noise="none", trials=8, seed=0)
    assert all(row["range"] and row["value"] for row in rows)
    assert sum(row["true share"] for row in rows) == pytest.approx(1)
    table = insight.summary(pd.DataFrame(rows))
    assert table.loc["the true value is in its interval (90%)", "none"] == "100% of 1"


def test_runs_whose_space_changes_are_compared_with_others():
    rows = []
    for method in ("change", "random"):
        case = dict(scenario="added", function=1, dim=3, noise="none", seed=1, method=method)
        rows += [{**case, **row} for row in changes.measure(**case)]
    table = pd.DataFrame(rows)
    ranks = changes.summary(table)
    assert ranks.loc[("added", "none"), "change"] == "1.00 (1.00 to 1.00)"
    better = changes.comparison(table)
    assert better.loc[("added", "all"), "random"] == "100% (100% to 100%), 0.00"
