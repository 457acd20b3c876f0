"""A run by hand over days, in the shell: ask, tell, correct, remove, another space."""

import csv
import html
import itertools
import random
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from gpytorch.kernels import MaternKernel

import kbo as library
from kbo.optimize.result import result_of
from kbo.optimize.run.journal_file import read_journal
from kbo.report.record import Record
from tests.commands import kbo

SPACE = """
temperature: {kind: Float, low: 20, high: 90}
solvent: [water, ethanol]
"""
WIDER = SPACE.replace("high: 90", "high: 120")
STIRRED = WIDER + "stirring: {kind: Int, low: 100, high: 900}\n"
TABLE = "trial,temperature,solvent,value,failed,sem\n0,,,0.83,,\n"


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "space.yaml").write_text(SPACE)
    (tmp_path / "wider.yaml").write_text(WIDER)


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


def remove(*numbers, because=("--reason", "wrong bottle")):
    return kbo("journal", "remove", "lab.jsonl", *numbers, *because).stdout


def show(*arguments):
    return kbo("journal", "show", "lab.jsonl", *arguments).stdout


def trials():
    """The trials in the journal."""
    return read_journal("lab.jsonl").whole().trials.all


def statuses() -> list[str]:
    return [trial.status for trial in trials()]


def results(*numbers: int):
    return [(trials()[number].value, trials()[number].measured) for number in numbers]


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
    fill_in("b.csv", notes={}, value={0: "0.83", 2: "0.5"}, failed={1: "spilled, sorry"})
    told = tell("b.csv")
    assert "columns that are not used: notes" in told.stderr
    assert "trial 0: 0.83\ntrial 1 failed: spilled, sorry\ntrial 2: 0.5\n" in told.stdout
    assert "Best      temperature=" in told.stdout
    assert told.stdout.rstrip().endswith(": 3, 4")
    fill_in("b.csv", value={3: "0.6"})  # the other rows are recorded already
    assert tell("b.csv").stdout.startswith("trial 3: 0.6\n\n")
    assert statuses() == ["complete", "failed", "complete", "complete", "pending"]
    correct("1=0.4", "0=0.8")
    remove(2)
    assert "no result that is not recorded" in tell("b.csv").stdout


def test_new_trials_begin_although_others_are_pending_which_are_shown_with_their_age(
    begun, monkeypatch
):
    optimizer = library.Optimizer(library.Space.load("space.yaml"), maximize=True)
    ask("-n", 2)
    assert [trial.params for trial in trials()] == optimizer.ask(6)
    assert {trial.starts - trial.released for trial in trials()} == {0}  # none was lost
    now = time.time()
    monkeypatch.setattr("time.time", lambda: now + 3 * 86400)
    assert "pending for 3 days: 0, 1, 2, 3, 4, 5" in ask("-n", 0, "--to", "pending.csv").stdout
    with open("pending.csv") as file:
        assert [row["trial"] for row in csv.DictReader(file)] == list("012345")
    removed = remove(*range(6))
    assert "trial 4 is removed: wrong bottle\ntrial 5 is removed: wrong bottle\n" in removed
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
    tell("b.csv", "--as-done")
    assert (trials()[0].status, trials()[2].params["temperature"]) == ("removed", 21.5)
    assert "no result that is not recorded" in tell("b.csv").stdout
    tell(1, 0.8, "temperature=50", "--again", "--as-done")
    assert statuses() == ["removed", "complete", "complete", "complete"]
    assert trials()[3].params["temperature"] == 50


REFUSED_TABLES = {
    TABLE + "9,,,0.5,,": "line 3 of r.csv: there is no trial 9",
    TABLE + '1,,,"0,5",,': "value must be a finite number, with a point as 0.5, got '0,5'",
    TABLE + "1,,,0.5,spilled,": "either a value of trial 1",
    TABLE + "1,,tea,0.5,,": "solvent=",
    "trial;value\n0;7.5,5\n": "value must be a finite number",
}
REFUSED_RESULTS = {
    ("0",): "either a value of trial 0",
    ("0", "1", "--agian"): "other measurements such as memory=7.2, got '--agian'",
    ("0", "1", "--again"): "leave out --again",
    ("0", "1", "temperature=-3"): "told with temperature=-3",
    ("0", "1", "temp=61", "--as-done"): "none of the settings differs from those of trial 0",
    ("0", "1", "temprature=61"): "did you mean temperature? It is a parameter",
    ("0", "temprature=61", "--failed", "too hot"): "give temperature=61 --as-done",
}
REFUSED_CORRECTIONS = {
    ("2=1", "1=2"): "trial 1 is pending",
    ("2=1", "2=2"): "'2' is given twice",
    ("2",): "TRIAL=VALUE, where 11=95 gives trial 11 the value 95, got '2'",
}


def test_wrong_results_and_corrections_are_refused_and_change_nothing(begun, tmp_path):
    tell(2, 1)
    tell(3, 1)
    before = (tmp_path / "lab.jsonl").read_bytes()
    for content, says in REFUSED_TABLES.items():
        (tmp_path / "r.csv").write_text(content)
        assert says in tell("r.csv", code=1).stderr
    for arguments, says in REFUSED_RESULTS.items():
        assert says in tell(*arguments, code=1).stderr
    for arguments, says in REFUSED_CORRECTIONS.items():
        assert says in correct(*arguments, code=1).stderr
    assert (tmp_path / "lab.jsonl").read_bytes() == before


def test_the_wrong_rows_of_a_table_are_named_together(begun):
    rows = [f"{number},{number}\n" for number in (0, *range(10, 16))]
    Path("r.csv").write_text(f"trial,value\n{''.join(rows)}1,much\n")
    refused = tell("r.csv", code=1).stderr
    for line in range(3, 8):
        assert f"line {line} of r.csv: there is no trial {line + 7}" in refused
    assert "line 8" not in refused
    assert "\nWrong lines of r.csv that are not shown: 2." in refused
    assert statuses() == ["pending"] * 4


def test_a_trial_that_has_ended_gets_another_measurement_or_a_correction(begun):
    told = tell(0, "-8.3e-2", "memory=7.2", "sem=0.02").stdout
    assert "trial 0: -0.083, measured memory=7.2  sem=0.02" in told
    correct("0=-2")
    assert results(0) == [(-2, {"memory": 7.2, "sem": 0.02})]
    correct("0=2", "--measured", "memory=8")
    assert results(0) == [(2, {"memory": 8, "sem": 0.02})]
    tell(1, 9500)
    refused = tell(1, 96, code=1).stderr
    assert "kbo tell lab.jsonl 1 VALUE --again" in refused
    assert "kbo journal correct lab.jsonl 1=VALUE" in refused
    again = tell(1, 96, "--again").stdout
    assert "Trials    5 trials, of which 1 repetition, 2 pending" in again
    assert trials()[4].params == trials()[1].params
    assert "trial 1: 95 (was 9500)" in correct("1=95").stdout
    assert (trials()[1].value, trials()[1].reported) == (95, 9500)


def test_the_journal_shows_what_was_reported_before():
    ask_in_space("-n", 3)
    tell(0, 9500)
    tell(1, 0.5)
    correct("0=95")
    assert remove(1).startswith("trial 1 is removed: wrong bottle\n\nTrials ")
    shown = show().splitlines()
    assert all(text in shown[1] for text in ("complete", " 95 ", "9500", "corrected"))
    assert all(text in shown[2] for text in ("removed", " 0.5 ", "removed: wrong bottle"))
    history = show("--trial", 0)
    events = [line[18:] for line in history.splitlines()[-3:]]
    assert events == ["begun", "reported 9500", "corrected to 95"]
    checked = kbo("journal", "check", "lab.jsonl").stdout
    assert "3 trials, of which 1 pending, 1 removed; 10 events" in checked


def test_another_space_is_refused_or_goes_on_with_the_trials(begun, monkeypatch):
    tell(0, 0.7)
    change = "temperature high: 90.0 in the journal, 120.0 in this run"
    refused = ask("--space", "wider.yaml", code=1).stderr
    assert change in refused
    assert "--allow-change" in refused
    ask("-n", 30, "--space", "wider.yaml", "--allow-change")
    assert max(trial.params["temperature"] for trial in trials()) > 95
    assert "space temperature high: 90.0 before, 120.0 after" in show()
    ask()  # the space is that of the journal
    assert statuses() == ["complete"] + ["pending"] * 34
    refused = ask("--seed", "3", "--allow-change", code=1).stderr
    assert "seed: 0 in the journal, 3 in this run" in refused
    assert "--allow-change" not in refused
    asked = []
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("typer.confirm", lambda text: asked.append(text) or len(asked) > 1)
    ask_in_space(code=1)
    assert "temperature high: 120.0 in the journal, 90.0 in this run" in asked[0]
    ask_in_space()
    assert "90.0 after" in show()


@pytest.mark.parametrize(
    ("changed", "was"),
    [
        (SPACE.replace("[water, ethanol]", "[water, ether]"), []),
        (STIRRED, ["--was", "stirring=300"]),
    ],
    ids=["option", "new parameter"],
)
def test_results_are_recorded_after_every_kind_of_change(begun, tmp_path, changed, was):
    tell(0, 9500)
    tell(1, 0.4)
    (tmp_path / "changed.yaml").write_text(changed)
    change = ("-n", 2, "--space", "changed.yaml", "--allow-change", "--to", "b.csv")
    if was:
        assert "--was stirring=VALUE" in ask(*change, code=1).stderr
    ask(*change, *was)
    fill_in("b.csv", value={4: "0.6"})
    tell("b.csv")
    tell(2, 0.7)  # asked for before the change
    assert "Trials    " in correct("0=0.95").stdout
    assert remove(1, because=()).startswith("trial 1 is removed: no reason given\n")
    ask()
    assert [trial.value for trial in trials()] == [0.95, None, 0.7, None, 0.6, None, None]
    assert ("stirring=300" in show()) == bool(was)


def test_several_objectives_and_limits_are_told_by_name_or_in_a_table():
    several = (
        "--objective",
        "cost",
        "--objective",
        "failed=maximize",
        "--constraint",
        "failed<=0.9",
    )
    done = ask_in_space("-n", 4, *several, "--to", "b.csv")
    assert "cost (smaller is better), failed (larger is better" in done.stderr
    assert "trial 0: 3, measured failed=0.5" in tell(0, "cost=3", "failed=0.5").stdout
    fill_in("b.csv", cost={0: "3", 1: "4"}, **{"measured.failed": {0: "0.5", 1: "0.7", 2: "0.6"}})
    told = tell("b.csv").stdout
    assert told.startswith("trial 1: 4, measured failed=0.7\n\n")
    assert told.rstrip().endswith(": 2, 3")  # trial 2 lacks the first objective
    fill_in("b.csv", **{"measured.failed": {0: "0.55"}})  # a changed result is not left out
    wrong = {
        ("b.csv",): "line 2 of b.csv: trial 0 is complete",
        (2, "cost=3"): "lacks the measurement of 'failed'",
        (2, "cost=3", "faild=.8"): "unknown measurement 'faild': did you mean 'failed'",
        (2, "cots=3", "failed=.8"): "unknown measurement 'cots': did you mean 'cost'",
        (2, 3, "cost=4", "failed=1"): "two values of 'cost'",
    }
    for arguments, says in wrong.items():
        assert says in tell(*arguments, code=1).stderr
    correct("0=2", "--measured", "failed=0.55")
    assert results(0, 1) == [(2, {"failed": 0.55}), (4, {"failed": 0.7})]


def test_a_new_run_needs_a_space_and_a_table_is_not_overwritten(tmp_path):
    assert "--space space.yaml" in ask(code=1).stderr
    (tmp_path / "b.csv").write_text("")
    assert "b.csv exists" in ask_in_space("--to", "b.csv", code=1).stderr
    assert not (tmp_path / "lab.jsonl").exists()
    for command in (tell, correct):
        assert "there is no journal" in command("0=1", code=1).stderr
    (tmp_path / "lab.jsonl").write_text("")  # killed before its first line
    ask_in_space()


def test_a_run_that_only_python_can_continue_takes_results_all_the_same():
    setting = library.Certified(MaternKernel(nu=2.5).double(), 0.1, 1.0)
    given = {"bounds": {"x": (0.0, 1.0)}, "setting": setting, "journal": "lab.jsonl"}
    optimizer = library.Optimizer(**given)
    optimizer.ask()
    assert "is in use" in tell(0, 0.5, code=1).stderr
    optimizer.close()
    refused = ask(code=1).stderr
    assert "fingerprint of its kernel" in refused
    assert "kbo.Optimizer(..., journal='lab.jsonl')" in refused
    assert "no summary: " in tell(0, 0.5).stdout
    correct("0=0.6")
    assert library.Optimizer(**given).trials[0].value == 0.6


def test_results_of_a_confirmation_are_not_chosen_by_hand():
    candidates = [{"x": 0.2}, {"x": 0.8}]
    library.confirm(lambda x: x["x"], candidates, 4, tolerance=0.1, journal="lab.jsonl")
    assert "evaluations of a confirmation" in correct("0=1", code=1).stderr


def test_a_spreadsheet_may_have_semicolons_and_commas_in_numbers(begun, tmp_path):
    text = "\ufefftrial;value;failed\n0;81,5;\n1;;too hot, or not\n2;7;\n"  # as Excel begins a file
    (tmp_path / "b.csv").write_text(text, "utf-8")
    tell("b.csv")
    assert [trial.value for trial in trials()[:3]] == [81.5, None, 7.0]
    assert trials()[1].failure == "too hot, or not"


def test_settings_may_be_told_after_the_result(begun):
    tell(0, 80)
    told = tell(0, 80, "temperature=61", "--as-done").stdout
    assert "trial 4, at those of trial 0 but temperature=61: 80" in told
    assert (trials()[0].status, trials()[4].params["temperature"]) == ("removed", 61)
    tell(1, 70)
    Path("late.csv").write_text(
        "trial,temperature,value\n1,61,75\n"
    )  # of a trial with another result
    assert "trial 1 is complete" in tell("late.csv", "--as-done", code=1).stderr


def test_experiments_of_the_first_batch_differ_by_a_tenth_of_a_range():
    ask_in_space("-n", 8)
    for i, j in itertools.combinations(range(8), 2):
        one, other = trials()[i].params, trials()[j].params
        distance = abs(one["temperature"] - other["temperature"])
        assert one["solvent"] != other["solvent"] or distance > 6.9


def test_a_doubtful_value_is_left_out_of_the_choice_and_of_the_lines():
    noise = random.Random(0)
    ask_in_space("-n", 15, "--maximize", "--to", "b.csv")
    values = {}
    for trial in trials():
        value = 90 - ((trial.params["temperature"] - 60) / 10) ** 2 + noise.gauss(0, 0.5)
        values[trial.number] = f"{value:.1f}"
    fill_in("b.csv", value={**values, 9: "9.12"})
    told = tell("b.csv").stdout
    assert "The other lines leave it out\nBest " in told
    without = Record.of("lab.jsonl").reopened()
    without.remove(9, "in question")
    result = result_of(Record.of("lab.jsonl").reopened(), "", None)
    assert (result.params, result.outlier.number) == (without.recommended().params, 9)
    assert result.answers.gain == without.insight.answers().gain
    value = next(line for line in told.splitlines() if line.startswith("Value"))
    audit = library.audit("lab.jsonl")
    assert value in str(audit)
    assert "The other lines leave it out" in str(audit)
    for run in ("lab.jsonl", result):
        page = html.unescape(library.report.write(run, "lab.html").read_text())
        assert value.removeprefix("Value").strip() in page
        assert "trial 9 (9.12) is far from what the others predict" in page
    asked = ask("-n", 1)
    assert "trial 9 (9.12) is far from what the others predict" in asked.stderr
    assert trials()[15].params == without.ask()
