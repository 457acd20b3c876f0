"""The command line, run as a person runs it."""

import logging
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kbo import recipes
from kbo.__main__ import main
from kbo.cli.tuning import _aside
from kbo.problems import BANDITS, TUNING

SCRIPT = """
import kbo
bounds = {"x": kbo.Float(0.1, 10.0, log=True), "kind": ["good", "bad"]}
def objective(params):
    if params["kind"] == "bad" and params["x"] > 5:
        raise ValueError("diverged")
    return (params["x"] - 1) ** 2 + (params["kind"] == "bad")
"""


def kbo(*arguments, cwd, code=0):
    done = subprocess.run(
        [sys.executable, "-m", "kbo", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "120"},
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


def test_tune_a_script_then_continue_and_plot(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    done = kbo("tune", "train.py", "-n", "20", cwd=tmp_path)
    assert "kind=good" in done.stdout
    assert "again" in done.stdout
    assert "practical, not certified" in done.stdout
    assert (tmp_path / "kbo-runs/tune-train.png").read_bytes().startswith(b"\x89PNG")
    more = kbo("tune", "train.py", "-n", "22", "-v", cwd=tmp_path)
    assert "continuing" in more.stderr
    assert more.stdout.count("kind=") == 3  # two trials and the recommendation
    kbo("plot", "kbo-runs/tune-train.jsonl", "--to", "again.png", cwd=tmp_path)
    assert (tmp_path / "again.png").exists()


STEPWISE = """
bounds = {"x": (0.0, 1.0), "layers": [1, 2, 3]}

def objective(params, trial):
    for step in range(1, 6):
        loss = (params["x"] - 0.3) ** 2 + params["layers"] + 1 / step
        trial.report(step, loss)
        if trial.should_stop():
            break
    return loss
"""


def test_tune_prunes_and_begins_with_known_results_and_points_to_try(tmp_path):
    (tmp_path / "script.py").write_text(STEPWISE)
    (tmp_path / "known.csv").write_text("x,layers,value\n0.25,1,1.45\n0.5,7,9.0\n")
    (tmp_path / "first.json").write_text('[{"layers": 3}, {"x": 0.75, "layers": 2}]')
    given = ("--prune", "curves", "--evaluated", "known.csv", "--try-first", "first.json")
    done = kbo("tune", "script.py", "-n", "12", *given, "-q", "--again", "0", cwd=tmp_path)
    assert "stopped early, 1 known result; the budget of 12 trials is used" in done.stdout
    shown = kbo("journal", "show", "kbo-runs/tune-script.jsonl", cwd=tmp_path).stdout
    assert "13 trials" in kbo("journal", "check", "kbo-runs/tune-script.jsonl", cwd=tmp_path).stdout
    first, second, third = [line for line in shown.splitlines() if "layers" in line][:3]
    assert ("1.45" in first, "layers=3" in second, "x=0.75" in third) == (True, True, True)
    assert "--try-first: cannot read" in kbo(
        "tune", "script.py", "--try-first", "known.csv", cwd=tmp_path, code=1
    ).stderr.replace("\n", " ")


def test_fresh_sets_the_old_journal_aside(tmp_path):
    kbo("tune", "branin", "-n", "3", "-q", cwd=tmp_path)
    fresh = kbo("tune", "branin", "-n", "8", "-q", "--fresh", "--noise-std", "0", cwd=tmp_path)
    assert "none, as given" in fresh.stdout
    assert len(list((tmp_path / "kbo-runs").glob("*.jsonl"))) == 2


def test_fresh_sets_every_old_journal_aside_also_in_one_second(tmp_path, monkeypatch):
    monkeypatch.setattr(time, "strftime", lambda form: "now")
    path = tmp_path / "j.jsonl"
    for content in "abc":
        path.write_text(content)
        path.replace(_aside(path))
    assert {found.read_text() for found in tmp_path.iterdir()} == set("abc")


def test_run_compares_methods_in_a_table_and_a_picture(tmp_path):
    arguments = ["run", "rkhs-fixed", "-T", "30", "-j", "1", "-m", "dmm-ucb"]
    done = kbo(*arguments, "-m", "random", "-K", "2", "-q", cwd=tmp_path)
    assert "dmm-ucb" in done.stdout
    assert "no bound" in done.stdout
    assert done.stderr == ""
    (parquet,) = (tmp_path / "kbo-runs").glob("*.parquet")
    cells = parquet.with_suffix("")
    kbo("plot", str(parquet), "--to", "r.png", cwd=tmp_path)
    kbo("plot", str(cells), "--to", "c.png", cwd=tmp_path)
    drawn, compared = (path.read_bytes()[:24] for path in (tmp_path / "r.png", parquet.with_suffix(".png")))
    assert drawn == compared  # type and size: one panel, whatever arms were chosen
    assert (tmp_path / "c.png").exists()
    before = {path: path.stat().st_mtime_ns for path in cells.glob("*.parquet")}
    more = kbo(*arguments, "-K", "3", "-v", cwd=tmp_path)  # a seed more, a method less
    assert more.stderr.count("done ") == 1
    assert "random" not in more.stdout
    after = {path: path.stat().st_mtime_ns for path in cells.glob("*.parquet")}
    assert len(after) == 5
    assert before.items() <= after.items()


@pytest.mark.thorough
def test_run_plays_contextual_problems_with_sketches(tmp_path):
    arguments = ["run", "chessboard", "-m", "ek-ucb", "-m", "random", "-T", "20", "-K", "1", "-j", "1", "-q"]
    done = kbo(*arguments, "--ridge", "10", "--multiplier", "0.1", "--first", "2", cwd=tmp_path)
    assert "anchors" in done.stdout
    assert "ek-ucb: a bound without a guarantee" in done.stdout
    assert "nominal" in done.stdout
    (parquet,) = (tmp_path / "kbo-runs").glob("run-chessboard-T20*-first2-ridge10-multiplier0.1.parquet")
    kbo("plot", str(parquet), "--to", "c.png", cwd=tmp_path)
    assert (tmp_path / "c.png").exists()


def test_reproduce_says_what_there_is_and_repeats_it(tmp_path):
    assert "--table 1" in kbo("reproduce", "mixture", cwd=tmp_path).stdout
    done = kbo("reproduce", "mixture", "--table", "1", "--quick", "-q", cwd=tmp_path)
    assert "130 ± 46" in done.stdout
    assert done.stderr == ""
    assert (tmp_path / "kbo-runs/mixture-quick/table1.md").exists()
    kbo("plot", "kbo-runs/mixture-quick/cells", cwd=tmp_path)
    assert (tmp_path / "kbo-runs/mixture-quick/cells-plot.png").exists()


@pytest.mark.thorough
def test_the_digits_network_is_tuned(tmp_path):
    done = kbo("tune", "-n", "3", "-q", "--again", "1", cwd=tmp_path)
    assert "learning_rate=" in done.stdout


@pytest.fixture
def command(tmp_path, monkeypatch, capsys, caplog):
    """A function that runs a command in this process, which saves the import of PyTorch."""

    def run(*arguments, code):
        monkeypatch.setattr(sys, "argv", ["kbo", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == code
        return capsys.readouterr()

    monkeypatch.chdir(tmp_path)
    caplog.set_level(logging.WARNING, "kbo")  # puts the level back that commands set
    return run


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["tune", "nothing"], "neither a problem"),
        (["tune", "branin", "-m", "dmm"], "did you mean 'dmm-ucb'"),
        (["tune", "branin", "-n", "0"], "n_trials"),
        (["tune", "branin", "--journal", "/proc/x/j.jsonl"], "cannot write"),
        (["run", "chess"], "problem must be one of"),
        (["run", "chessboard", "--dim", "3"], "has no option 'dim'"),
        (["run", "rkhs", "-m", "igp-ucb", "--ridge", "1"], "a ridge of its own"),
        (["run", "rkhs", "--kernel", "cubic"], "kernel must be one of"),
        (["run", "-o", "/proc/x", "-T", "2", "-K", "1", "-q"], "cannot create"),
        (["reproduce", "mixtures"], "Did you mean 'mixture'"),
        (["reproduce", "mixture", "--table", "3"], "no table 3"),
        (["reproduce", "mixture", "--study", "nothing"], "no study nothing"),
        (["plot", "missing.jsonl"], "cannot read"),
        (["plot", "missing.parquet"], "no file"),
    ],
)
def test_errors_are_one_line_and_exit_code_one(command, arguments, says):
    said = command(*arguments, code=1).err
    assert says in said
    assert said.startswith("error: ")


def test_a_script_that_lacks_something_is_told_what(tmp_path):
    Path(tmp_path / "empty.py").write_text("bounds = {}")
    assert "objective" in kbo("tune", "empty.py", cwd=tmp_path, code=1).stderr


def test_wrong_usage_is_exit_code_two(tmp_path):
    kbo("tune", "--nonsense", cwd=tmp_path, code=2)


@pytest.mark.parametrize("name", ["reproduce", "plot", "report", "bench"])
def test_help_shows_the_usage(command, name):
    assert "Usage" in command(name, "--help", code=0).out


@pytest.mark.parametrize(
    ("name", "listed"), [("tune", (*TUNING, "dmm-ucb", "random")), ("run", (*BANDITS, *recipes.names()))]
)
def test_help_lists_the_names_of_methods_and_problems(command, monkeypatch, name, listed):
    monkeypatch.setenv("COLUMNS", "4000")
    shown = command(name, "--help", code=0).out
    assert "methods}" not in shown
    assert "problems}" not in shown
    assert all(one in shown for one in listed)


def test_help_is_shown_without_importing_torch():
    code = "import sys, kbo.__main__ as m; sys.argv = ['kbo', '-h']\ntry: m.main()\nfinally: print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Usage" in done.stdout
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "kbo.cli" in loaded
    assert not {"torch", "gpytorch", "numpy", "scipy", "pandas", "matplotlib"} & loaded
