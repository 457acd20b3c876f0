"""The command line, as a person uses it."""

import time
from types import SimpleNamespace

import pytest
import torch
from botorch.test_functions import Branin

from kbo.cli import examples
from kbo.cli.examples import EXAMPLES
from tests.commands import kbo
from tests.processes import python

SCRIPT = """
import kbo
bounds = {"x": kbo.Float(0.1, 10.0, log=True), "kind": ["good", "bad"]}
def objective(params):
    if params["kind"] == "bad" and params["x"] > 5:
        raise ValueError("diverged")
    return (params["x"] - 1) ** 2 + (params["kind"] == "bad")
"""


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")


@pytest.fixture
def write(tmp_path):
    def write(**texts):
        for name, text in texts.items():
            (tmp_path / f"{name}.py").write_text(text)

    return write


def test_tune_a_script_then_continue_and_report(tmp_path, write):
    write(train=SCRIPT)
    done = python("-m", "kbo", "tune", "train.py", "-n", "9")
    assert "kind=good" in done.stdout
    assert "the other lines are estimates" in done.stdout
    assert (tmp_path / "kbo-runs/tune-train.png").read_bytes().startswith(b"\x89PNG")
    more = kbo("tune", "train.py", "-n", "11", "-v")
    assert "continuing" in more.stderr
    assert more.stdout.count("kind=") == 3  # two trials and the recommendation
    kbo("report", "kbo-runs/tune-train.jsonl", "--to", "page.html")
    assert (tmp_path / "page.html").exists()


CERTIFIED = """
import kbo

bounds = {"x": (0.0, 1.0)}
setting = kbo.Certified(kbo.hypotheses(0.1, 1.0))
noise = iter([0.03, -0.05, 0.08, -0.02, 0.06, -0.07, 0.01] * 20)

def objective(params):
    return params["x"] ** 2 + next(noise)
"""
LIMITED = """
constraints = [kbo.Constraint("m", upper=3.0, kernel=kbo.hypotheses(0.1, 4.0))]

def objective(params):
    return params["x"] ** 2 + next(noise), {"m": next(noise)}
"""


def test_a_script_may_have_a_setting_with_hypotheses(write):
    write(known=CERTIFIED, older=CERTIFIED + "setting = 'fast'\n")
    done = kbo("tune", "known.py", "-n", "4", "-q")
    assert "hypotheses are right" in done.stdout
    assert "yes: the interval holds" in done.stdout
    kbo("tune", "known.py", "-n", "6", "-q")
    confirmed = kbo("confirm", "known.py", "-n", "12", "--tolerance", "2", "-q")
    assert "confirmation   " in confirmed.stdout
    assert "older.py: setting is to be" in kbo("tune", "older.py", code=1).stderr
    refused = kbo("tune", "known.py", "--noise-std", "0.1", code=1).stderr
    assert "noise-std is for scripts" in refused


def test_a_page_of_constraints_with_hypotheses_needs_their_script(tmp_path, write):
    write(limited=CERTIFIED + LIMITED)
    kbo("tune", "limited.py", "-n", "4", "-q")
    for options, words in (
        ((), "--script SCRIPT"),
        (("--script", "limited.py"), "Certified: the interval holds"),
    ):
        kbo("report", "kbo-runs/tune-limited.jsonl", *options, "--to", "page.html")
        assert words in (tmp_path / "page.html").read_text()
    # confirm takes numbers
    write(limited=CERTIFIED + LIMITED.replace(', {"m": next(noise)}', ""))
    assert "confirmation   " in kbo("confirm", "limited.py", "-n", "12", "-q").stdout


STEPWISE = """
bounds = {"x": (0.0, 1.0), "layers": [1, 2, 3]}

def objective(params, trial):
    for step in range(1, 6):
        loss = (params["x"] - 0.3) ** 2 + params["layers"] + 1 / step
        trial.report(loss, step=step)
        if trial.should_stop():
            break
    return loss
"""


def test_tune_prunes_and_begins_with_known_results_and_points_to_try(tmp_path, write):
    write(script=STEPWISE)
    (tmp_path / "known.csv").write_text("x,layers,value\n0.25,1,1.45\n0.5,7,9.0\n")
    (tmp_path / "first.json").write_text('[{"layers": 3}, {"x": 0.75, "layers": 2}]')
    given = ("--prune", "curves", "--evaluated", "known.csv", "--try-first", "first.json")
    done = kbo("tune", "script.py", "-n", "12", *given, "-q").stdout
    assert "13 trials, of which 1 known result, 2 stopped early; the budget of 12 trials" in done
    shown = kbo("journal", "show", "kbo-runs/tune-script.jsonl").stdout
    assert "13 trials" in kbo("journal", "check", "kbo-runs/tune-script.jsonl").stdout
    columns, first, second, third = (line.split() for line in shown.splitlines()[:4])
    assert columns[:3] == ["trial", "status", "value"]
    assert "1.45" in first
    assert second[columns.index("layers")] == "3"
    assert third[columns.index("x")] == "0.75"
    refused = kbo("tune", "script.py", "--try-first", "known.csv", code=1).stderr
    assert "known.csv is not a list of parameters in JSON" in refused


CHANGED = """
bounds = {"x": (0.0, 2.0), "layers": [1, 2, 3, 4], "dropout": (0.0, 0.5)}
def objective(params):
    return (params["x"] - 0.3) ** 2 + params["layers"] + params["dropout"]
"""


def test_tune_goes_on_in_a_space_that_changed(tmp_path, monkeypatch, write):
    journal = tmp_path / "kbo-runs/tune-script.jsonl"

    def tune(n_trials, *options, code=0):
        return kbo("tune", "script.py", "-q", "-n", n_trials, *options, code=code)

    write(script=STEPWISE)
    tune(3)
    before = journal.read_bytes()
    for addition, options, words in (
        ("", (), "belongs to another problem"),
        ("", (), "--allow-change"),
        ("", ("--allow-change",), 'was = {"dropout": VALUE} beside bounds'),
        ('defaults = {"dropout": 0.1}', ("--allow-change",), "called `was`"),
    ):
        write(script=CHANGED + addition)
        assert words in tune(4, *options, code=1).stderr
    assert journal.read_bytes() == before
    write(script=CHANGED + 'was = {"dropout": 0.1}')
    used = tune(3, "--allow-change")
    assert "--trials counts the trials in kbo-runs/tune-script.jsonl too" in used.stderr
    assert "3 trials; the budget of 3 trials is used, 3 of them were in the journal" in used.stdout
    assert "5 trials" in tune(5).stdout
    assert kbo("journal", "show", journal).stdout.count(" 0.1\n") == 3
    write(script=STEPWISE)
    asked = []
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("typer.confirm", lambda text: asked.append(text) or len(asked) > 1)
    tune(6, code=1)
    assert "only in the journal: {'name': 'dropout'" in asked[0]
    assert "6 trials" in tune(6).stdout
    assert len(list((tmp_path / "kbo-runs").glob("*.jsonl"))) == 1


def test_fresh_sets_every_old_journal_aside_also_in_one_second(tmp_path, monkeypatch):
    monkeypatch.setattr(time, "strftime", lambda form: "now")
    for trials in (1, 2, 8):
        done = kbo("tune", "branin", "--fresh", "-q", "--noise-std", "0", "-n", trials)
    assert "the objective has no noise" in done.stdout
    journals = (tmp_path / "kbo-runs").glob("*.jsonl")
    assert sorted(path.read_text().count('"ask"') for path in journals) == [1, 2, 8]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["tune", "nothing"], "neither an example"),
        (["tune", "empty.py"], "must define objective"),
        (["tune", "branin", "-m", "dmm"], "did you mean 'dmm-ucb'"),
        (["tune", "branin", "-n", "0"], "n_trials"),
        (["tune", "branin", "--journal", "/proc/x/j.jsonl"], "cannot write"),
        (["report", "missing.jsonl"], "cannot read the journal"),
    ],
)
def test_errors_are_one_line_and_exit_code_one(arguments, says, write):
    write(empty="bounds = {}")
    said = kbo(*arguments, code=1).stderr
    assert says in said
    assert said.startswith("error: ")


def test_help_lists_the_names_and_wrong_usage_is_exit_code_two(monkeypatch):
    monkeypatch.setenv("COLUMNS", "4000")
    pages = [kbo(name, "--help").stdout for name in ("tune", "ask", "tell", "confirm", "report")]
    pages += [kbo(name, "--help").stdout for name in ("audit", "journal")]
    for page in pages:
        assert "Usage" in page
        assert "methods}" not in page
        assert "examples}" not in page
    assert all(name in pages[0] for name in (*EXAMPLES, "dmm-ucb", "random"))
    kbo("tune", "--nonsense", code=2)
    assert "No such command" in kbo("run", code=2).stderr


def test_help_is_shown_without_importing_torch():
    code = "import sys, kbo.__main__ as m; sys.argv = ['kbo', '-h']\ntry: m.main()\nfinally: print(*sys.modules)"
    done = python("-c", code)
    assert "Usage" in done.stdout
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "kbo.cli" in loaded
    assert not {"torch", "gpytorch", "numpy", "scipy", "pandas", "matplotlib"} & loaded


def point_of(space):
    return space.params(torch.full((space.dimension,), 0.1))


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_evaluated_with_noise_of_its_own(name, monkeypatch):
    # The error of digits is a count divided by 899: two evaluations are often equal, two splits never.
    monkeypatch.setattr(examples, "digits_error", lambda params, split, start: (split, start))
    objective, space = EXAMPLES[name]
    assert objective(point_of(space)) != objective(point_of(space))


def test_the_error_of_digits_depends_on_the_split_and_on_the_initial_weights():
    params = point_of(EXAMPLES["digits"][1])
    seeds = ((1, 1), (2, 1), (1, 2), (1, 1))
    *errors, again = [examples.digits_error(params, split, start) for split, start in seeds]
    assert len(set(errors)) == 3
    assert again == errors[0]


def test_the_example_of_a_function_is_the_one_of_botorch(monkeypatch):
    silent = SimpleNamespace(standard_normal=lambda: 0.0)
    monkeypatch.setattr(examples.np.random, "default_rng", lambda: silent)
    objective, space = EXAMPLES["branin"]
    known = Branin().double()
    assert space.pairs() == [tuple(pair) for pair in known.bounds.T.tolist()]
    for x in ([-3.0, 12.0], [9.42478, 2.475], [10.0, 0.0]):
        assert objective(x) == pytest.approx(float(known(torch.tensor(x, dtype=torch.float64))))
