"""The command line, as a person uses it."""

import time
from types import SimpleNamespace

import pytest
import torch
from botorch.test_functions import Branin

from kbo.cli import examples
from kbo.cli.examples import EXAMPLES
from tests.commands import kbo

SCRIPT = """
import kbo
bounds = {"x": kbo.Float(0.1, 10.0, log=True), "kind": ["good", "bad"]}
def objective(params):
    if params["kind"] == "bad" and params["x"] > 5:
        raise ValueError("diverged")
    return (params["x"] - 1) ** 2 + (params["kind"] == "bad")
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    return tmp_path


def test_tune_a_script_then_continue(folder):
    (folder / "train.py").write_text(SCRIPT)
    done = kbo("tune", "train.py", "-n", "8", "--noise-std", "0")
    assert "kind=good" in done.stdout
    assert "the objective has no noise" in done.stdout
    assert "a new run in kbo-runs/tune-train.jsonl" in done.stderr
    refused = kbo("tune", "train.py", "-n", "10", "--noise-std", "0", "--method", "none", code=1)
    assert "continuing" not in refused.stderr
    more = kbo("tune", "train.py", "-n", "10", "--noise-std", "0", "-v")
    assert "continuing kbo-runs/tune-train.jsonl, which has trials (8)" in more.stderr
    assert more.stdout.count("kind=") == 3  # two trials and the recommendation


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


def test_a_script_may_have_a_setting_with_hypotheses(folder):
    (folder / "known.py").write_text(CERTIFIED)
    done = kbo("tune", "known.py", "-n", "4", "-q")
    assert "yes: the interval holds" in done.stdout
    confirmed = kbo("confirm", "known.py", "--budget", "12", "--tolerance", "2", "-q")
    assert "confirmation  " in confirmed.stdout
    refused = kbo("tune", "known.py", "--noise-std", "0.1", code=1).stderr
    assert "noise-std is for scripts" in refused


def test_a_page_of_constraints_with_hypotheses_needs_their_script(folder):
    (folder / "limited.py").write_text(CERTIFIED + LIMITED)
    kbo("tune", "limited.py", "-n", "2", "-q")
    for options, words in (
        ((), "--script SCRIPT"),
        (("--script", "limited.py"), "Certified: the interval holds"),
    ):
        kbo("report", "kbo-runs/tune-limited.jsonl", *options, "--to", "page.html")
        assert words in (folder / "page.html").read_text()


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


def test_tune_prunes_and_begins_with_known_results_and_points_to_try(folder):
    (folder / "script.py").write_text(STEPWISE)
    (folder / "known.csv").write_text("x,layers,value\n0.25,1,1.45\n0.5,7,9.0\n")
    (folder / "first.json").write_text('[{"layers": 3}, {"x": 0.75, "layers": 2}]')
    given = ("--prune", "curves", "--evaluated", "known.csv", "--try-first", "first.json")
    done = kbo("tune", "script.py", "-n", "12", *given, "-q").stdout
    assert "13 trials, of which 1 known result, 2 stopped early; the budget of 12 trials" in done
    shown = kbo("journal", "show", "kbo-runs/tune-script.jsonl").stdout
    assert "13 trials" in kbo("journal", "check", "kbo-runs/tune-script.jsonl").stdout
    columns, first, second, third = (line.split() for line in shown.splitlines()[:4])
    assert "1.45" in first
    assert second[columns.index("params.layers")] == "3"
    assert third[columns.index("params.x")] == "0.75"


CHANGED = """
bounds = {"x": (0.0, 2.0), "layers": [1, 2, 3, 4], "dropout": (0.0, 0.5)}
def objective(params):
    return (params["x"] - 0.3) ** 2 + params["layers"] + params["dropout"]
"""


def test_tune_goes_on_in_a_space_that_changed(folder, monkeypatch):
    script = folder / "script.py"
    journal = folder / "kbo-runs/tune-script.jsonl"

    def tune(n_trials, *options, code=0):
        return kbo("tune", "script.py", "-q", "-n", n_trials, *options, code=code)

    script.write_text(STEPWISE)
    tune(3)
    before = journal.read_bytes()
    script.write_text(CHANGED)
    assert "--allow-change" in tune(4, code=1).stderr
    assert 'was = {"dropout": VALUE}' in tune(4, "--allow-change", code=1).stderr
    assert journal.read_bytes() == before
    script.write_text(CHANGED + 'was = {"dropout": 0.1}')
    assert (
        "budget is 3 trials in all, and the journal had 3: none was added"
        in tune(3, "--allow-change").stdout
    )
    assert "5 trials" in tune(5).stdout
    assert kbo("journal", "show", journal).stdout.count(" 0.1\n") == 3
    script.write_text(STEPWISE)
    asked = []
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("typer.confirm", lambda text: asked.append(text) or len(asked) > 1)
    tune(6, code=1)
    assert "only in the journal: {'name': 'dropout'" in asked[0]
    assert "6 trials" in tune(6).stdout  # the second answer is yes


def test_fresh_sets_every_old_journal_aside_also_in_one_second(folder, monkeypatch):
    monkeypatch.setattr(time, "strftime", lambda form: "now")
    for trials in (1, 2, 3):
        kbo("tune", "branin", "--fresh", "-q", "-n", trials)
    journals = (folder / "kbo-runs").glob("*.jsonl")
    assert sorted(path.read_text().count('"ask"') for path in journals) == [1, 2, 3]


def test_a_wrong_argument_leaves_the_journal_where_it_is_also_with_fresh(folder):
    kbo("tune", "branin", "-q", "-n", 1)
    (journal,) = (folder / "kbo-runs").glob("*.jsonl")
    before = journal.read_text()
    for wrong in (
        ("--method", "foo"),
        ("--prune", "foo"),
        ("--noise-std", -1),
        ("--device", "foo"),
        ("--value-range", 3, 2),
        ("--evaluated", "foo.csv"),
        ("--stop-when", -1),
    ):
        kbo("tune", "branin", "--fresh", "-q", "-n", 1, *wrong, code=1)
        assert [path.read_text() for path in (folder / "kbo-runs").glob("*.jsonl")] == [before]
        assert journal.exists()


def test_errors_are_one_line_and_exit_code_one(folder):
    (folder / "empty.py").write_text("bounds = {}")
    (folder / "comma.py").write_text("bounds = {,}")
    for arguments, says in [
        ("tune comma.py", "SyntaxError: invalid syntax (comma.py, line 1)\n"),
        ("tune nothing", "neither an example"),
        ("tune empty", "Did you mean empty.py?"),
        ("confirm kbo-runs/tune-empty.jsonl", "Give the script of the run, not its journal"),
        ("tune empty.py", "empty.py does not define objective: a script must define bounds and"),
        ("tune branin --method dmm", "did you mean 'dmm-ucb'"),
        ("tune branin --try-first empty.py", "not a list of parameters in JSON"),
        ("report missing.jsonl", "there is no journal missing.jsonl: check the path"),
    ]:
        said = kbo(*arguments.split(), code=1).stderr
        assert said.startswith("error: ")
        assert says in said


def test_help_lists_the_names_and_wrong_usage_is_exit_code_two(monkeypatch):
    monkeypatch.setenv("COLUMNS", "4000")
    names = ("tune", "ask", "tell", "confirm", "report", "audit", "journal")
    pages = [kbo(name, "--help").stdout for name in names]
    for page in pages:
        assert "Usage" in page
    assert 'constraints = [kbo.Constraint("memory", upper=8)] beside bounds' in pages[0]
    assert all(name in pages[0] for name in (*EXAMPLES, "dmm-ucb", "random"))
    assert "No such command" in kbo("run", code=2).stderr


def inside(space):
    return space.params(torch.full((space.dimension,), 0.1))


def test_examples_have_noise_of_their_own_and_are_the_functions_that_they_say(monkeypatch):
    # The error of digits is a count divided by 899: two evaluations are often equal, two splits never.
    monkeypatch.setattr(examples, "digits_error", lambda params, split, start: (split, start))
    for objective, space in EXAMPLES.values():
        assert objective(inside(space)) != objective(inside(space))
    silent = SimpleNamespace(standard_normal=lambda: 0.0)
    monkeypatch.setattr(examples.np.random, "default_rng", lambda: silent)
    objective, space = EXAMPLES["branin"]
    known = Branin().double()
    assert space.pairs() == [tuple(pair) for pair in known.bounds.T.tolist()]
    for x in ([-3.0, 12.0], [10.0, 0.0]):
        assert objective(x) == pytest.approx(float(known(torch.tensor(x, dtype=torch.float64))))


def test_a_limit_in_the_script_and_in_the_shell_is_refused_with_both_places(folder):
    (folder / "limited.py").write_text(
        f'{SCRIPT}constraints = [kbo.Constraint("memory", upper=8)]\n'
    )
    refused = kbo("tune", "limited.py", "--constraint", "memory<=9", code=1).stderr
    assert "limited.py has a constraint on memory already, in its list `constraints`" in refused


def test_a_script_in_place_of_a_journal_is_refused_with_the_journal(folder):
    refused = kbo("report", "scripts/train.py", code=1).stderr
    assert "give the journal of its run, kbo-runs/tune-train.jsonl" in refused


def test_an_inactive_parameter_that_the_objective_reads_is_told_with_its_condition(folder):
    (folder / "script.py").write_text(
        'import kbo\nbounds = [{"k": ["a", "b"]}, kbo.When("k", "a", {"g": (0.0, 1.0)})]\n'
        'def objective(params):\n    return params["g"]\n'
    )
    assert "; g exists only for k = a)" in kbo("tune", "script.py", "-q", "-n", 4).stdout
