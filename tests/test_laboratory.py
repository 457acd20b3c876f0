"""A run by hand over days, in the shell: ask, tell, correct, remove, another space."""

import csv
import json
import random
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from gpytorch.kernels import MaternKernel

import kbo as library
from kbo.optimize.settings.practical import default_strategies
from kbo.report import record
from tests.commands import kbo
from tests.processes import environment

SPACE = """
temperature: {kind: Float, low: 20, high: 90}
solvent: [water, ethanol]
"""
WIDER = SPACE.replace("high: 90", "high: 120")
STIRRED = WIDER + "stirring: {kind: Int, low: 100, high: 900}\n"


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "space.yaml").write_text(SPACE)
    (tmp_path / "wider.yaml").write_text(WIDER)
    (tmp_path / "stirred.yaml").write_text(STIRRED)


@pytest.fixture
def begun():
    """A run with four pending trials."""
    ask_in_space("-n", 4, "--maximize")


def ask(*arguments, code=0):
    return kbo("ask", "lab.jsonl", *arguments, code=code)


def ask_in_space(*arguments, code=0):
    return ask("--space", "space.yaml", *arguments, code=code)


def tell(*arguments, code=0):
    return kbo("tell", "lab.jsonl", *arguments, code=code)


def correct(*arguments, code=0):
    return kbo("journal", "correct", "lab.jsonl", *arguments, code=code)


def remove(number):
    return kbo("journal", "remove", "lab.jsonl", number, "--reason", "wrong bottle").stdout


def show(*arguments):
    return kbo("journal", "show", "lab.jsonl", *arguments).stdout


def trials():
    """The trials in the journal."""
    return record.read_journal("lab.jsonl").whole().trials


def statuses() -> list[str]:
    return [trial.status for trial in trials()]


def fill_in(path: str, **columns: dict[int, str]) -> None:
    """Write cells of a table, by column and number of the trial."""
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        for column, cells in columns.items():
            row[column] = cells.get(int(row["trial"]), row.get(column, ""))
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def test_a_batch_goes_through_a_table_that_is_filled_in_over_days():
    first = ask_in_space("-n", 5, "--maximize", "--to", "b.csv")
    assert "larger values are better" in first.stderr
    assert first.stdout.split()[:3] == ["trial", "temperature", "solvent"]
    assert "kbo tell lab.jsonl b.csv" in first.stdout
    fill_in("b.csv", value={0: "0.83", 2: "0.5"}, failed={1: "spilled, sorry"})
    told = tell("b.csv").stdout
    assert "trial 0: 0.83\ntrial 1 failed: spilled, sorry\ntrial 2: 0.5\n" in told
    assert "Best      temperature=" in told
    assert told.rstrip().endswith(": 3, 4")
    fill_in("b.csv", value={3: "0.6"})  # the other rows are recorded already
    again = tell("b.csv").stdout
    assert again.startswith("trial 3: 0.6\n\n")
    assert "no result that is not recorded" in tell("b.csv").stdout
    assert statuses() == ["complete", "failed", "complete", "complete", "pending"]
    correct("1=0.4", "0=0.8")
    remove(2)
    assert "no result that is not recorded" in tell("b.csv").stdout


def test_new_trials_begin_although_others_are_pending_and_a_resumed_run_gives_the_same(begun):
    parameters = library.Space.load("space.yaml")
    optimizer = library.Optimizer(parameters, maximize=True)
    expected = optimizer.ask(6)
    done = ask("-n", 2)
    assert [trial.params for trial in trials()] == expected
    assert done.stdout.splitlines()[-1].endswith(": 0, 1, 2, 3")
    assert {trial.starts - trial.released for trial in trials()} == {0}  # none was lost


def test_pending_trials_are_shown_with_their_age(begun, monkeypatch):
    now = time.time()
    monkeypatch.setattr("time.time", lambda: now + 3 * 86400)
    done = ask("-n", 0, "--to", "pending.csv")
    assert "pending for 3 days: 0, 1, 2, 3" in done.stdout
    assert done.stdout.count("ethanol") + done.stdout.count("water") == 4
    with open("pending.csv") as file:
        assert [row["trial"] for row in csv.DictReader(file)] == ["0", "1", "2", "3"]
    for number in range(4):
        remove(number)
    assert ask("-n", 0).stdout == "no trial is pending\n"


def test_the_last_digits_of_a_table_may_be_lost_and_other_parameters_are_refused():
    ask_in_space("-n", 2, "--to", "b.csv")
    exact = trials()[1].params["temperature"]
    fill_in("b.csv", value={1: "0.7"}, temperature={1: f"{exact:.4g}"})
    tell("b.csv")
    assert trials()[1].params["temperature"] == exact
    fill_in("b.csv", value={0: "0.7"}, temperature={0: "21.5"})
    refused = tell("b.csv", code=1).stderr
    assert "line 2 of b.csv: trial 0 was proposed with temperature=55" in refused
    assert "add --as-done" in refused
    told = tell("b.csv", "--as-done").stdout
    assert "trial 2, at those of trial 0 but temperature=21.5: 0.7" in told
    assert (trials()[0].status, trials()[2].params["temperature"]) == ("removed", 21.5)
    before = len(trials())
    assert "no result that is not recorded" in tell("b.csv").stdout
    tell(1, 0.8, "temperature=50", "--again", "--as-done")
    assert len(trials()) == before + 1
    assert (trials()[1].status, trials()[-1].params["temperature"]) == ("complete", 50)


REFUSED_ROWS = [
    ("9,,,0.5,,", "there is no trial 9"),
    ("x,,,0.5,,", "expected the number of a trial, got 'x'"),
    (",,,0.5,,", "expected the number of a trial, got ''"),
    ('1,,,"0,5",,', "value must be a finite number, with a point as 0.5, got '0,5'"),
    ("1,,,nan,,", "value must be a finite number"),
    ("1,,,0.5,spilled,", "either a value of trial 1"),
    ("1,,,0.5,,-1", "standard error 'sem' = -1"),
    ("1,,,0.5,,much", "sem must be a finite number"),
    ("0,,,0.5,,", "an earlier line has a result of trial 0"),
    ("1,,tea,0.5,,", "solvent="),
    ("1,0.5", "line 3 of r.csv has 2 fields"),
]
REFUSED_TABLES = [
    ("trial;value\n0;1\n", "separated by semicolons"),
    ("trial,value,value\n0,1,2\n", "separated by commas"),
    ("", "the columns []"),
]
REFUSED_RESULTS = [
    (["0"], "either a value of trial 0"),
    (["0", "1", "--failed", "x"], "either a value of trial 0"),
    (["0", "--failed", "x", "--again"], "either a value of trial 0"),
    (["0", "1", "--agian"], "other measurements such as memory=7.2, got '--agian'"),
    (["0", "1", "memory=7", "memory=8"], "'memory' is given twice"),
    (["0", "inf"], "value must be a finite number"),
    (["0", "1", "--again"], "leave out --again"),
    (["0", "1", "temperature=-3"], "told with temperature=-3"),
    (["r.csv", "--again"], "give r.csv alone"),
    (["r.csv", "0.5"], "give r.csv alone"),
]
REFUSED_CORRECTIONS = [
    (["2=1", "1=2"], "trial 1 is pending"),
    (["2=1", "9=2"], "there is no trial 9"),
    (["2=1", "2=2"], "'2' is given twice"),
    (["2=nan"], "value must be a finite number"),
    (["2"], "a trial and its value, as 11=95, got '2'"),
    (["2=1", "3=1", "--measured", "memory=7"], "--measured is for one trial"),
]


def test_wrong_results_and_corrections_are_refused_and_change_nothing(begun, tmp_path):
    tell(2, 1)
    tell(3, 1)
    before = (tmp_path / "lab.jsonl").read_bytes()
    for row, says in REFUSED_ROWS:
        header = "trial,temperature,solvent,value,failed,sem\n0,,,0.83,,"
        (tmp_path / "r.csv").write_text(f"{header}\n{row}\n")
        refused = tell("r.csv", code=1).stderr
        assert says in refused
        assert "line 3 of r.csv" in refused
    for content, says in REFUSED_TABLES:
        (tmp_path / "r.csv").write_text(content)
        assert says in tell("r.csv", code=1).stderr
    for arguments, says in REFUSED_RESULTS:
        assert says in tell(*arguments, code=1).stderr
    for arguments, says in REFUSED_CORRECTIONS:
        assert says in correct(*arguments, code=1).stderr
    assert (tmp_path / "lab.jsonl").read_bytes() == before


def test_columns_that_are_not_used_are_named(begun, tmp_path):
    (tmp_path / "r.csv").write_text("trial,value,notes\n0,1,fine\n")
    assert "columns that are not used: notes" in tell("r.csv").stderr


def test_a_value_may_be_negative_and_come_with_other_measurements(begun):
    told = tell(0, "-8.3e-2", "memory=7.2", "sem=0.02").stdout
    assert "trial 0: -0.083  memory=7.2  sem=0.02" in told
    assert (trials()[0].value, trials()[0].measured) == (-0.083, {"memory": 7.2, "sem": 0.02})


def test_a_trial_that_has_ended_gets_another_measurement_or_a_correction(begun):
    tell(1, 9500)
    refused = tell(1, 96, code=1).stderr
    assert "kbo tell lab.jsonl 1 VALUE --again" in refused
    assert "kbo journal correct lab.jsonl 1=VALUE" in refused
    again = tell(1, 96, "--again").stdout
    assert "trial 4, at the parameters of trial 1: 96" in again
    assert "Trials    5 trials, of which 1 repetition, 3 pending" in again
    assert trials()[4].params == trials()[1].params
    assert "trial 1: 95 (was 9500)" in correct("1=95").stdout
    assert (trials()[1].value, trials()[1].reported) == (95, 9500)


def test_a_correction_keeps_other_measurements_unless_they_are_given(begun):
    tell(0, 1, "memory=7.2", "sem=0.1")
    correct("0=-2")
    assert (trials()[0].value, trials()[0].measured) == (-2, {"memory": 7.2, "sem": 0.1})
    correct("0=2", "--measured", "memory=8")
    assert trials()[0].measured == {"memory": 8, "sem": 0.1}


def test_the_journal_shows_what_was_reported_before():
    ask_in_space("-n", 3)
    tell(0, 9500)
    tell(1, 0.5)
    correct("0=95")
    removed = remove(1)
    assert removed.startswith("trial 1 is removed: wrong bottle\n\nTrials ")
    shown = show().splitlines()
    assert "reported" in shown[0]
    assert all(text in shown[1] for text in ("complete", " 95 ", "9500", "corrected"))
    assert all(text in shown[2] for text in ("removed", " 0.5 ", "removed: wrong bottle"))
    history = show("--trial", 0)
    events = [line[18:] for line in history.splitlines()[-3:]]
    assert events == ["begun", "reported 9500", "corrected to 95"]
    history = show("--trial", 1)
    assert history.endswith("removed: wrong bottle\n")
    checked = kbo("journal", "check", "lab.jsonl").stdout
    assert "3 trials, 1 complete, 0 failed, 0 pruned, 1 pending, 1 removed; 10 events" in checked


def test_another_space_is_refused_or_goes_on_with_the_trials(begun):
    tell(0, 0.7)
    refused = ask("--space", "wider.yaml", code=1).stderr
    assert "temperature high: 90.0 in the journal, 120.0 in this run" in refused
    assert "--allow-change" in refused
    ask("-n", 30, "--space", "wider.yaml", "--allow-change")
    assert max(trial.params["temperature"] for trial in trials()) > 95
    shown = show()
    assert (
        "before trial 4 the space has changed: space temperature high: 90.0 before, 120.0 after"
        in shown
    )
    ask()  # the space is that of the journal
    assert statuses() == ["complete"] + ["pending"] * 34
    assert "Best      temperature=" in tell(5, 0.9).stdout


@pytest.mark.parametrize(
    ("changed", "was"),
    [
        (SPACE.replace("[water, ethanol]", "[water, ether]"), []),
        (SPACE.replace("[water, ethanol]", "water"), []),
        (SPACE.replace("low: 20", "low: 60"), []),
        (SPACE.replace("high: 90", "high: 90, step: 7"), []),
        (STIRRED, ["--was", "stirring=300"]),
        ("temperature: {kind: Float, low: 20, high: 90}", []),
    ],
    ids=["option", "fixed", "narrower", "step", "new parameter", "left out"],
)
def test_results_are_recorded_after_every_kind_of_change(begun, tmp_path, changed, was):
    tell(0, 9500)
    tell(1, 0.4)
    (tmp_path / "changed.yaml").write_text(changed)
    change = ("ask", "lab.jsonl", "-n", 2, "--space", "changed.yaml", "--allow-change", *was)
    kbo(*change, "--to", "b.csv")
    fill_in("b.csv", value={4: "0.6"})
    tell("b.csv")
    tell(2, 0.7)  # asked for before the change
    assert "Trials    " in correct("0=0.95").stdout
    removed = remove(1)
    pending = [line.split(": ")[1] for line in removed.splitlines() if "pending for" in line]
    assert ", ".join(pending) == "3, 5"
    ask()
    assert [trial.value for trial in trials()] == [0.95, None, 0.7, None, 0.6, None, None]
    assert statuses()[1] == "removed"


def test_a_new_parameter_needs_the_value_that_it_had_so_far(begun, tmp_path):
    before = (tmp_path / "lab.jsonl").read_bytes()
    change = ("ask", "lab.jsonl", "--space", "stirred.yaml", "--allow-change")
    assert "--was stirring=VALUE" in kbo(*change, code=1).stderr
    assert (
        "no parameter 'speed'"
        in kbo(*change, "--was", "speed=3", "--was", "stirring=3", code=1).stderr
    )
    assert (tmp_path / "lab.jsonl").read_bytes() == before
    kbo(*change, "--was", "stirring=300")
    assert [trial.params["stirring"] for trial in trials()[:4]] == [300] * 4
    assert "earlier trials without a value of it had stirring=300" in show()


def test_a_terminal_is_asked_before_the_space_changes(begun, monkeypatch):
    asked = []
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("typer.confirm", lambda text: asked.append(text) or len(asked) > 1)
    ask("--space", "wider.yaml", code=1)
    assert "temperature high: 90.0 in the journal, 120.0 in this run" in asked[0]
    ask("--space", "wider.yaml")
    assert "120.0 after" in show()


@pytest.mark.parametrize(
    ("option", "different"),
    [
        (["--maximize"], "maximize: False in the journal, True in this run"),
        (["--seed", "3"], "seed: 0 in the journal, 3 in this run"),
        (["--noise-std", "0.1"], "noise_std"),
        (["--constraint", "memory<=9"], "constraints"),
    ],
)
def test_options_of_another_run_are_refused_by_name(option, different):
    ask("--space", "space.yaml")
    refused = ask(*option, "--allow-change", code=1).stderr
    assert different in refused
    assert "--allow-change" not in refused


def test_a_constraint_needs_its_measurement():
    ask_in_space("--constraint", "memory<=8", "--to", "b.csv")
    assert "add memory=NUMBER" in tell(0, 1, code=1).stderr
    assert statuses() == ["pending"]
    fill_in("b.csv", value={0: "1"}, **{"measured.memory": {0: "7.5"}})
    told = tell("b.csv").stdout
    assert "memory 7.5 (memory <= 8)" in told


SEVERAL = ("--objective", "cost", "--objective", "yield=maximize", "--constraint", "yield<=0.9")


def test_several_objectives_are_told_by_name_or_in_a_table(tmp_path):
    done = ask_in_space("-n", 4, *SEVERAL, "--to", "b.csv")
    assert "a new run in lab.jsonl: cost (smaller is better), yield (larger is bett" in done.stderr
    with open("b.csv") as file:
        expected = ["trial", "temperature", "solvent", "cost", "measured.yield", "failed"]
        assert next(csv.reader(file)) == expected
    assert "trial 0: 3  yield=0.5" in tell(0, "cost=3", "yield=0.5").stdout
    fill_in("b.csv", cost={0: "3", 1: "4"}, **{"measured.yield": {0: "0.5", 1: "0.7", 2: "0.6"}})
    told = tell("b.csv").stdout
    assert told.startswith("trial 1: 4  yield=0.7\n\n")
    assert told.rstrip().endswith(": 2, 3")  # trial 2 lacks the first objective
    found = [(trial.value, trial.measured) for trial in trials()[:2]]
    assert found == [(3, {"yield": 0.5}), (4, {"yield": 0.7})]
    ask(*SEVERAL)
    before = (tmp_path / "lab.jsonl").read_bytes()
    fill_in("b.csv", **{"measured.yield": {0: "0.55"}})  # a changed result is not left out silently
    wrong = {
        ("b.csv",): "line 2 of b.csv: trial 0 is complete",
        (2, "cost=3"): "lacks the measurement of 'yield'",
        (2, "yield=3"): "`kbo tell lab.jsonl 2 cost=0.83 yield=0.83`",
        (2, 3, "cost=4", "yield=1"): "two values of 'cost'",
        (0, "cost=3", "yield=1"): "0 cost=VALUE yield=VALUE --again`",
    }
    for arguments, says in wrong.items():
        assert says in tell(*arguments, code=1).stderr
    (tmp_path / "r.csv").write_text("trial,value,yield\n2,3,0.5\n")
    assert "columns trial and cost" in tell("r.csv", code=1).stderr
    refused = ask("--objective", "yield=larger", code=1).stderr
    assert "--objective must look like cost, or cost=minimize or yield=maximize" in refused
    assert (tmp_path / "lab.jsonl").read_bytes() == before
    correct("0=2", "--measured", "yield=0.55")
    assert (trials()[0].value, trials()[0].measured) == (2, {"yield": 0.55})


@pytest.mark.parametrize(
    ("names", "columns"),
    [
        (["value", "cost"], ["value", "measured.cost"]),
        (["trial", "value"], ["measured.trial", "measured.value"]),
        (["temperature", "failed"], ["measured.temperature", "measured.failed"]),
        (["seconds", "number"], ["seconds", "measured.number"]),
    ],
)
def test_objectives_may_have_the_name_of_another_column(names, columns):
    given = [argument for name in names for argument in ("--objective", name)]
    ask_in_space(*given, "--to", "b.csv")
    fill_in("b.csv", **{columns[0]: {0: "2"}, columns[1]: {0: "3"}})
    tell("b.csv")
    assert (trials()[0].value, trials()[0].measured) == (2, {names[1]: 3})


def test_a_new_run_needs_a_space_and_a_table_is_not_overwritten(tmp_path):
    assert "--space space.yaml" in ask(code=1).stderr
    (tmp_path / "b.csv").write_text("")
    assert "b.csv exists" in ask_in_space("--to", "b.csv", code=1).stderr
    assert not (tmp_path / "lab.jsonl").exists()
    for command in (["tell", "lab.jsonl", 0, 1], ["journal", "correct", "lab.jsonl", "0=1"]):
        assert "cannot read the journal" in kbo(*command, code=1).stderr


def allowed(params):
    return params["x"] < 0.9


RUNS_OF_PYTHON = {
    "certified": (
        {"setting": library.Certified(MaternKernel(nu=2.5).double(), 0.1, 1.0)},
        "fingerprint of its kernel",
    ),
    "constraint": ({"constraints": [allowed]}, "allowed is a function"),
    "strategies": (
        {"setting": library.Practical(strategies=default_strategies())},
        "the setting is your own",
    ),
}


@pytest.mark.parametrize("name", RUNS_OF_PYTHON)
def test_a_run_that_only_python_can_continue_takes_results_all_the_same(name):
    arguments, reason = RUNS_OF_PYTHON[name]
    optimizer = library.Optimizer({"x": (0.0, 1.0)}, journal="lab.jsonl", **arguments)
    optimizer.ask()
    locked = tell(0, 0.5, code=1).stderr
    assert "is in use" in locked
    optimizer.close()
    refused = ask(code=1).stderr
    assert reason in refused
    assert "kbo.Optimizer(..., journal='lab.jsonl')" in refused
    told = tell(0, 0.5).stdout
    assert "no summary: " in told
    assert reason in told
    correct("0=0.6")
    reopened = library.Optimizer({"x": (0.0, 1.0)}, journal="lab.jsonl", **arguments)
    assert reopened.trials[0].value == 0.6


def test_results_of_a_confirmation_are_not_chosen_by_hand():
    candidates = [{"x": 0.2}, {"x": 0.8}]
    library.confirm(lambda x: x["x"], candidates, 4, tolerance=0.1, journal="confirm.jsonl")
    refused = kbo("journal", "correct", "confirm.jsonl", "0=1", code=1).stderr
    assert "evaluations of a confirmation" in refused


KILLED = """
import os, sys, kbo
from kbo.__main__ import main
from kbo.optimize.run.run import Run
begin = Run.begin
def begin_two(self, *given):
    trial = begin(self, *given)
    if trial.number == 1:
        os.kill(os.getpid(), 9)
    return trial
Run.begin = begin_two
sys.argv = ["kbo", "ask", "lab.jsonl", "-n", "5", "--space", "space.yaml", "--to", "b.csv"]
main()
"""


def test_trials_of_a_command_that_was_killed_are_pending_and_shown(tmp_path):
    done = subprocess.run([sys.executable, "-c", KILLED], env=environment(), check=False)
    assert done.returncode == -signal.SIGKILL
    shown = ask("-n", 0, "--to", "b.csv").stdout
    assert len(shown.splitlines()) == 5  # their table, their age, and the file
    ask("-n", 1)
    tell(1, 0.5)
    assert statuses() == ["pending", "complete", "pending"]
    (tmp_path / "empty.jsonl").write_text("")  # killed before its first line
    kbo("ask", "empty.jsonl", "--space", "space.yaml")


def test_a_run_of_python_with_a_list_of_bounds_and_a_parameter_called_value_goes_on(tmp_path):
    library.Optimizer([(0.0, 1.0)] * 2, journal="list.jsonl").close()
    assert kbo("ask", "list.jsonl", "--to", "list.csv").stdout.split()[:3] == ["trial", "x0", "x1"]
    space = {
        "value": {"kind": "Float", "low": 0, "high": 1},
        "n": {"kind": "Int", "low": 1, "high": 9},
    }
    (tmp_path / "space.json").write_text(json.dumps(space))
    ask("--space", "space.json", "--to", "b.csv")
    fill_in("b.csv", value={0: "7"})
    tell("b.csv")
    assert (trials()[0].value, trials()[0].params["value"]) == (7, 0.5)


def test_a_known_journal_has_its_corrections(begun):
    for number, value in enumerate([1, 2, 9500]):
        tell(number, value)
    correct("2=95")
    remove(0)
    ask("--space", "stirred.yaml", "--allow-change", "--was", "stirring=300")
    space = library.Space.load("stirred.yaml")
    known = library.Optimizer(space, maximize=True, evaluated="lab.jsonl")
    found = [(trial.value, trial.params["stirring"]) for trial in known.trials]
    assert found == [(2, 300), (95, 300)]


def test_a_doubtful_value_is_left_out_of_the_choice_and_of_the_lines_until_it_is_settled():
    noise = random.Random(0)
    ask_in_space("-n", 15, "--maximize")
    for trial in trials():
        value = 90 - ((trial.params["temperature"] - 60) / 10) ** 2 + noise.gauss(0, 0.5)
        tell(trial.number, round(value, 1))
    correct("9=9.12")
    without = record.Record.of("lab.jsonl").reopened()
    without.remove(9, "in question")
    asked = ask("-n", 2)
    assert "trial 9 (9.12) is far from what the others predict" in asked.stderr
    assert [trial.params for trial in trials()[15:]] == without.ask(2)
    removed = kbo("journal", "remove", "lab.jsonl", 15, 16, "--reason", "not done").stdout
    assert removed.startswith("trial 15 is removed: not done\ntrial 16 is removed: not done\n")
    assert "The other lines leave it out\nBest " in removed
    correct("9=90")
    assert "is far from" not in ask("-n", 1).stderr
