"""Journals survive kills, refuse what is not theirs, and never execute anything."""

import csv
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from gpytorch.kernels import MaternKernel

import kbo
from kbo.cli import app
from kbo.optimize.journal import Journal
from tests.commands import CliRunner

SCRIPT = """
import sys, time, kbo
def objective(params):
    with open(sys.argv[2], "a") as file:
        file.write(repr(params) + "\\n")
    time.sleep(0.01)
    return (params["x"] - 0.3) ** 2 + params["k"] * 0.1
kbo.minimize(objective, {"x": (0.0, 1.0), "k": kbo.Int(0, 3)}, 40, journal=sys.argv[1], seed=7)
print("finished")
"""


def trials(path):
    lines = [json.loads(line) for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")][1:]
    asked = [(e["number"], e["params"]) for e in lines if e["event"] == "ask"]
    told = [(e["number"], e["value"]) for e in lines if e["event"] == "tell"]
    return asked, told


@pytest.mark.parametrize("most", [4, pytest.param(20, marks=pytest.mark.slow)])
def test_kills_at_random_moments_lose_nothing_repeat_nothing_and_continue_the_same(tmp_path, most):
    def launch(name):
        command = [sys.executable, "-c", SCRIPT, str(tmp_path / name), str(tmp_path / f"{name}.calls")]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    undisturbed = launch("undisturbed")
    rng, told, kills = random.Random(0), [], 0
    path = tmp_path / "killed"
    while kills < most:
        process = launch("killed")
        before = time.monotonic()
        while process.poll() is None and len(trials(path)[1] if path.exists() else []) <= len(told):
            time.sleep(0.002)  # until the run has made progress
            assert time.monotonic() - before < 300  # a first import of PyTorch's CUDA build on a busy machine
        time.sleep(rng.uniform(0, 0.05))
        process.kill()
        finished = process.wait() == 0
        now = trials(path)[1]
        assert now[: len(told)] == told, "a trial was lost or changed"
        told = now
        if finished:
            break
        kills += 1
    process = launch("killed")
    assert b"finished" in process.communicate()[0]
    assert b"finished" in undisturbed.communicate()[0]
    assert trials(path) == trials(tmp_path / "undisturbed"), "another continuation"
    _, told = trials(path)
    assert [n for n, _ in told] == list(range(40)), "a trial ran twice or not at all"
    assert kills >= most // 2
    calls = (tmp_path / "killed.calls").read_text().splitlines()
    assert len(calls) <= 40 + kills + 1, "more than the running trial was evaluated again"


def run(path, n=6, **options):
    return kbo.minimize(lambda x: x[0], [(0, 1)], n, journal=path, **options)


def test_a_truncated_last_line_is_dropped_with_a_warning_and_its_trial_runs_again(tmp_path):
    path = tmp_path / "run.jsonl"
    whole = run(path)
    path.write_bytes(path.read_bytes()[:-15])
    with pytest.warns(UserWarning, match="unfinished last line"):
        again = run(path)
    assert [t.params for t in again.trials] == [t.params for t in whole.trials]
    assert [t.params for t in run(path).trials] == [t.params for t in whole.trials]  # nothing of that line is left


def test_damage_in_the_middle_is_an_error_that_names_the_line(tmp_path):
    path = tmp_path / "run.jsonl"
    run(path)
    lines = path.read_text().splitlines()
    lines[4] = lines[4][:10]
    path.write_text("\n".join(lines) + "\n")
    before = path.read_bytes()
    with pytest.raises(kbo.JournalError, match="line 5"):
        run(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("options", "says"),
    [({"seed": 1}, "seed"), ({"method": "amm-ucb"}, "method"), ({"setting": kbo.Practical(delta=0.2)}, "delta")],
)
def test_a_journal_of_other_settings_is_refused_and_left_alone(tmp_path, options, says):
    path = tmp_path / "run.jsonl"
    run(path)
    before = path.read_bytes()
    with pytest.raises(kbo.JournalError, match=f"another problem.*{says}"):
        run(path, **options)
    assert path.read_bytes() == before


WIDE = {f"a_parameter_with_a_long_name_{i}": (0.0, 1.0) for i in range(9)} | {"kind": ["a", "b"]}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"kind": ["a", "c"]}, "(space kind options: ['a', 'b'] in the journal, ['a', 'c'] in this run)"),
        (
            {"a_parameter_with_a_long_name_8": (0.0, 2.0)},
            "(space a_parameter_with_a_long_name_8 high: 1.0 in the journal, 2.0 in this run)",
        ),
        ({"new": kbo.Int(1, 2)}, "(space new: only in this run: {'name': 'new', 'kind': 'Int', 'low': 1, 'high': 2"),
        ({"kind": None}, "(space kind: only in the journal: {'name': 'kind', 'kind': 'Choice', 'options'"),
        ({"kind": kbo.Int(0, 1)}, "space kind kind: 'Choice' in the journal, 'Int' in this run"),
    ],
)
def test_a_journal_of_another_space_is_refused_with_the_parameter_that_differs(tmp_path, change, says):
    kbo.Optimizer(WIDE, journal=tmp_path / "j").close()
    other = {name: spec for name, spec in {**WIDE, **change}.items() if spec is not None}
    with pytest.raises(kbo.JournalError, match=re.escape(says)):
        kbo.Optimizer(other, journal=tmp_path / "j")
    saved = kbo.Optimizer(WIDE)
    saved.save(tmp_path / "saved")
    with pytest.raises(kbo.JournalError, match=re.escape(says)):
        kbo.Optimizer(other).load(tmp_path / "saved")


def test_parameters_in_another_order_are_another_space(tmp_path):
    kbo.Optimizer({"x": (0.0, 1.0), "y": (0.0, 1.0)}, journal=tmp_path / "j").close()
    with pytest.raises(kbo.JournalError, match=r"space: in the order \['x', 'y'\] in the journal, \['y', 'x'\]"):
        kbo.Optimizer({"y": (0.0, 1.0), "x": (0.0, 1.0)}, journal=tmp_path / "j")


@pytest.mark.parametrize("content", ["hello\n", '{"a": 1}\n', "[1]\n", "\x80\x04\x95\n"])
def test_a_file_that_is_no_journal_is_refused_and_left_alone(tmp_path, content):
    path = tmp_path / "notes.txt"
    path.write_text(content)
    with pytest.raises(kbo.JournalError):
        run(path)
    assert path.read_text() == content


@pytest.mark.parametrize(
    "event",
    [
        {"event": "tell", "number": 99, "value": 1.0},
        {"event": "tell", "number": 0, "value": 1.0},
        {"event": "ask", "number": 6, "params": [5.0]},
        {"event": "dance", "number": 0},
        {"number": 1},
    ],
)
def test_events_that_do_not_fit_are_refused(tmp_path, event):
    path = tmp_path / "run.jsonl"
    run(path)
    with path.open("a") as file:
        file.write(json.dumps(event) + "\n")
    with pytest.raises(kbo.JournalError, match="does not fit"):
        run(path, 8)


def test_nothing_is_written_about_a_trial_that_has_ended(tmp_path):
    optimizer = kbo.Optimizer([(0.0, 1.0)], journal=tmp_path / "run.jsonl")
    trial = optimizer.begin()
    optimizer.tell(trial, 1.0)
    for late in (
        lambda: optimizer.tell(trial, 2.0),
        lambda: optimizer.fail(trial, "late"),
        lambda: optimizer.report(trial, 3, 2.0),
        lambda: optimizer.prune(trial),
    ):
        with pytest.raises(kbo.InvalidInput, match="trial 0 is complete"):
            late()
    optimizer.close()
    assert kbo.Optimizer([(0.0, 1.0)], journal=tmp_path / "run.jsonl").trials == [trial]


def test_a_place_that_cannot_be_written_is_a_clear_error():
    with pytest.raises(kbo.JournalError, match="cannot write the journal"):
        run("/proc/nowhere/run.jsonl")


def test_a_second_writer_is_refused(tmp_path):
    first = Journal(tmp_path / "j", {"a": 1})
    with pytest.raises(kbo.JournalError, match="in use"):
        Journal(tmp_path / "j", {"a": 1})
    first.close()
    Journal(tmp_path / "j", {"a": 1}).close()


def test_every_tell_is_on_disk_before_the_next_ask(tmp_path):
    path, seen = tmp_path / "run.jsonl", []

    def objective(x):
        seen.append(len(trials(path)[1]))
        return x[0]

    kbo.minimize(objective, [(0, 1)], 10, journal=path)
    assert seen == list(range(10))


def test_sigterm_like_kill_of_the_command_line_resumes(tmp_path):
    command = [
        sys.executable,
        "-m",
        "kbo",
        "tune",
        "branin",
        "-q",
        "-n",
        "30",
        "--journal",
        str(tmp_path / "b.jsonl"),
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    while not (tmp_path / "b.jsonl").exists() or len(trials(tmp_path / "b.jsonl")[1]) < 3:
        time.sleep(0.01)
        assert process.poll() is None or len(trials(tmp_path / "b.jsonl")[1]) == 30
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert subprocess.run(command, capture_output=True, check=True).stdout.count(b"30 trials") >= 1
    assert [n for n, _ in trials(tmp_path / "b.jsonl")[1]] == list(range(30))


@pytest.mark.parametrize("content", ["one line without an end", "a\nb\nprecious", "{"])
def test_a_foreign_file_without_a_final_newline_is_left_alone(tmp_path, content):
    path = tmp_path / "notes.txt"
    path.write_text(content)
    if content == "{":  # what a kill in the middle of writing our first line leaves behind
        assert len(run(path).trials) == 6
        return
    with pytest.raises(kbo.JournalError, match="not a kbo journal"):
        run(path)
    assert path.read_text() == content


def test_a_write_that_fails_leaves_a_journal_that_can_be_continued(tmp_path):
    import resource

    path = tmp_path / "run.jsonl"
    optimizer = kbo.Optimizer([(0, 1)], journal=path)
    x = optimizer.ask()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 10, hard))
        with pytest.raises(kbo.JournalError, match="cannot write"):
            optimizer.tell(x, 1.0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, previous)
    optimizer.tell(x, 1.0)
    optimizer.close()
    assert trials(path) == ([(0, x)], [(0, 1.0)])
    assert kbo.Optimizer([(0, 1)], journal=path).trials[0].value == 1.0


def test_an_error_while_opening_releases_the_journal(tmp_path):
    path = tmp_path / "run.jsonl"
    run(path)
    good = path.read_text()
    path.write_text(good + '{"event": "dance", "number": 0}\n')
    with pytest.raises(kbo.JournalError, match="does not fit") as kept:
        run(path, 8)
    path.write_text(good)
    assert len(run(path, 8).trials) == 8
    assert kept


def test_a_pending_trial_whose_value_arrives_after_the_restart_is_not_returned_again(tmp_path):
    first = kbo.Optimizer([(0, 1)], journal=tmp_path / "j")
    x = first.ask()
    first.close()
    second = kbo.Optimizer([(0, 1)], journal=tmp_path / "j")
    second.tell(x, 1.0)
    assert second.ask() != x


def test_a_horizon_chosen_after_seeing_data_is_refused(tmp_path):
    run(tmp_path / "j", 3, method="igp-ucb")
    with pytest.raises(kbo.JournalError, match="n_trials"):
        run(tmp_path / "j", 6, method="igp-ucb")


def test_a_kernel_of_other_smoothness_is_another_problem(tmp_path):
    for nu, refused in ((2.5, False), (1.5, True)):
        setting = kbo.Certified(MaternKernel(nu=nu), noise_std=0.1, norm_bound=3.0)
        if refused:
            with pytest.raises(kbo.JournalError, match="kernel"):
                run(tmp_path / "j", 4, setting=setting)
        else:
            run(tmp_path / "j", 4, setting=setting)


@pytest.mark.parametrize("name", ["practical", "certified"])
def test_a_journal_of_version_0_6_continues(tmp_path, name):
    """Journals written by kbo 0.6.0 with a pending trial at the end; in the certified setting as it did there."""
    path = shutil.copy(Path(__file__).parent / "journals" / f"journal-0.6.0-{name}.jsonl", tmp_path)
    kernel = MaternKernel(nu=2.5).double().initialize(lengthscale=0.5)
    certified = kbo.Certified(kernel, noise_std=0.1, norm_bound=20.0)
    setting = certified if name == "certified" else kbo.Practical(n_initial=4)
    space = {"rate": kbo.Float(1e-4, 1e-1, log=True), "n": kbo.Int(1, 8), "kind": ["a", "b"]}
    optimizer = kbo.Optimizer(space, setting=setting, seed=7, journal=path)
    pending = {"rate": 0.1, "n": 1, "kind": "a"} if name == "certified" else {"rate": 0.0001, "n": 1, "kind": "a"}
    assert optimizer.ask() == pending
    optimizer.tell(pending, 0.2)
    if name == "certified":
        assert optimizer.suggest() == {"rate": 0.1, "n": 8, "kind": "b"}
        bounds = -0.695275217582751, 0.2050747259570198, 1.0963125540309795
        assert optimizer.interval(pending) == pytest.approx(bounds, rel=1e-9)


def command(*arguments):
    return CliRunner().invoke(app, ["journal", *map(str, arguments)])


def test_the_commands_check_show_repair_and_export(tmp_path):
    path, new = tmp_path / "j", tmp_path / "new"
    optimizer = kbo.Optimizer({"x": (0.0, 1.0), "kind": ["a", "b"]}, journal=path, method="random")
    for value in (1.0, 2.0):
        optimizer.tell(optimizer.ask(), value)
    optimizer.fail(optimizer.ask(), "\x1b[31mdiverged")
    optimizer.close()
    whole = command("check", path)
    assert whole.exit_code == 0
    assert "is whole: 3 trials, 2 complete, 1 failed, 0 pruned, 0 pending" in whole.stdout
    shown = command("show", path).stdout
    assert "diverged" in shown
    assert "\x1b[31m" not in shown

    rows = list(csv.DictReader(command("export", path).stdout.splitlines()))
    assert [row["value"] for row in rows] == ["1.0", "2.0", ""]
    assert {row["params.kind"] for row in rows} <= {"a", "b"}
    assert command("export", path, "--to", tmp_path / "out.json").exit_code == 0
    found = json.loads((tmp_path / "out.json").read_text())
    assert [row["params.x"] for row in found] == [trial.params["x"] for trial in optimizer.trials]
    for name in ("out.json", "out.csv"):  # an older file is replaced in one step, not written over
        (tmp_path / name).write_text("older")
        os.link(tmp_path / name, tmp_path / f"old {name}")
        assert command("export", path, "--to", tmp_path / name).exit_code == 0
        assert (tmp_path / f"old {name}").read_text() == "older" != (tmp_path / name).read_text()

    path.write_bytes(path.read_bytes().replace(b'"value":2.0', b'"value":3.0'))
    damaged = command("check", path)
    assert damaged.exit_code == 1
    assert "line 5 is damaged (its checksum does not fit)" in str(damaged.exception)
    assert "2 trials (3 events)" in command("repair", path, new).stdout
    assert command("check", new).exit_code == 0
    again = command("repair", path, new)
    assert again.exit_code == 1
    assert "overwrites nothing" in str(again.exception)
