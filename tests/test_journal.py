"""Journals refuse what is damaged or not theirs, and never execute anything."""

import csv
import json
import os
import random
import re
import shutil
import zlib
from pathlib import Path

import pytest
from gpytorch.kernels import MaternKernel

import kbo
from kbo.cli.app import app
from kbo.optimize.evaluated import known_results
from kbo.optimize.run.events import LONGEST_LINE, parse
from kbo.optimize.run.journal import Journal
from kbo.report.record import Record
from tests.commands import CliRunner

SPACE = {"x": (0.0, 1.0), "k": kbo.Int(0, 3)}


def begun(path=None):
    return kbo.Optimizer(SPACE, journal=path, method="random")


def run(path=None):
    optimizer = begun(path)
    for i in range(5):
        optimizer.tell(optimizer.ask(), i / 7)
    return optimizer


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "j"
    run(path).close()
    return path.read_bytes()


# Damage


def test_no_changed_byte_passes_unnoticed(text):
    rng = random.Random(0)
    events = parse(text).events
    for place in range(len(text)):
        changed = bytes([text[place] ^ rng.randrange(1, 256)])
        found = parse(text[:place] + changed + text[place + 1 :])
        assert found.damage or (found.unfinished and place == len(text) - 1)
        assert found.events == events[: len(found.events)]


def test_no_removed_repeated_or_exchanged_line_passes_unnoticed(text):
    lines = text.splitlines(keepends=True)
    for i in range(1, len(lines) - 1):
        before, line, following, after = lines[:i], lines[i], lines[i + 1], lines[i + 2 :]
        for middle in ([following], [line, line, following], [following, line]):
            assert parse(b"".join([*before, *middle, *after])).damage


def test_a_truncated_last_line_is_dropped_with_a_warning_and_its_trial_runs_again(tmp_path, text):
    path = tmp_path / "j"
    path.write_bytes(text[:-15])
    with pytest.warns(UserWarning, match="unfinished last line"):
        optimizer = begun(path)
    optimizer.tell(optimizer.ask(), 4 / 7)
    optimizer.close()
    trials = begun(path).trials  # nothing of that line is left
    whole = run().trials
    assert [(t.params, t.value) for t in trials] == [(t.params, t.value) for t in whole]
    assert [trial.starts for trial in trials] == [1, 1, 1, 1, 2]


def unchecked(text):
    """Return a journal as kbo 0.8 wrote it, without checksums."""
    entries = [json.loads(line) for line in text.splitlines()]
    for entry in entries:
        del entry["sum"]
    entries[0]["format"] = "kbo-journal-1"
    return "".join(json.dumps(entry) + "\n" for entry in entries).encode()


def test_a_journal_of_kbo_0_8_is_refused_with_the_version_that_reads_it(tmp_path, text):
    path = tmp_path / "j"
    path.write_bytes(unchecked(text))
    for read in (begun, Record.of, lambda path: known_results(path, kbo.Space(SPACE), False)):
        with pytest.raises(kbo.KboError, match=r"kbo 0\.22 is the last version"):
            read(path)
    assert "kbo 0.22 is the last version to read" in str(command("check", path).exception)
    assert path.read_bytes() == unchecked(text)


def appended(text, body):
    """Return a journal with one more line, whose checksum fits."""
    checksum = zlib.crc32(body, parse(text).checksum)
    return text + b'%b,"sum":"%08x"}\n' % (body[:-1], checksum)


@pytest.mark.parametrize(
    "event",
    [
        b'"event":"tell","number":5,"value":NaN',
        b'"event":"tell","number":5,"value":1e400',
        b'"event":"tell","number":5,"value":"1"',
        b'"event":"tell","number":5,"value":true',
        b'"event":"tell","number":5.0,"value":1',
        b'"event":"tell","number":0,"value":1',  # which has one
        b'"event":"tell","number":99,"value":1',
        b'"event":"tell","number":1' + b"0" * 400 + b',"value":1',
        b'"event":"tell","number":5,"value":1,"seconds":-1',
        b'"event":"tell","number":5,"value":1,"time":1e99',
        b'"event":"tell","number":5,"value":1,"more":1',
        b'"event":"fail","number":5',
        b'"event":"ask","number":6,"params":null',
        b'"event":"ask","number":6,"params":{"x":0.5,"k":1.5}',
        b'"event":"ask","number":6,"params":{"x":0.5}',
        b'"event":"ask","number":6,"params":{"x":5.0,"k":1}',
        b'"event":"ask","number":6,"params":' + b'{"x":' * 5000 + b"1" + b"}" * 5000,
        b'"event":"dance","number":5',
        b'"\xff\xfe":1',
    ],
)
def test_a_line_that_kbo_would_not_write_is_refused_with_its_number_and_little_of_it(
    tmp_path, text, event
):
    path = tmp_path / "j"
    whole = appended(text, b'{"event":"ask","number":5,"params":{"x":0.5,"k":1}}')
    refused = appended(whole, b"{" + event + b"}")
    path.write_bytes(refused)
    with pytest.raises(kbo.JournalError, match="line 13") as caught:
        begun(path)
    assert len(str(caught.value)) < 800
    assert path.read_bytes() == refused
    path.write_bytes(whole)
    assert len(begun(path).trials) == 6  # the error, which still exists, keeps no lock


@pytest.mark.parametrize(
    "content",
    [b"hello\n", b'{"a": 1}\n', b"[1]\n", b"one line without an end", b"x" * (LONGEST_LINE + 1)],
)
def test_a_file_that_is_no_journal_is_refused_and_left_alone(tmp_path, content):
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(kbo.JournalError, match="not a kbo journal"):
        begun(path)
    assert path.read_bytes() == content


def test_what_a_kill_leaves_of_the_first_line_is_written_again(tmp_path, text):
    (tmp_path / "j").write_bytes(text[:1])
    assert run(tmp_path / "j").trials == run().trials


def test_what_cannot_be_written_is_a_clear_error_and_nothing_is_left(tmp_path):
    optimizer = kbo.Optimizer({"x": ["a" * LONGEST_LINE, "b"]})
    optimizer.tell({"x": "b"}, 1.0)
    with pytest.raises(kbo.InvalidInput, match="at most 1000000 bytes"):
        optimizer.save(tmp_path / "saved")
    with pytest.raises(kbo.JournalError, match="cannot write the journal"):
        run("/proc/nowhere/run.jsonl")
    (tmp_path / "folder").mkdir()
    with pytest.raises(kbo.JournalError, match="cannot write"):
        run().save(tmp_path / "folder")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


# Other problems, writers and versions

SMOOTH, ROUGH = (
    {"setting": kbo.Certified(MaternKernel(nu=nu), noise_std=0.1, norm_bound=3.0)}
    for nu in (2.5, 1.5)
)
LONG = "a_parameter_with_a_long_name_"
WIDE = {f"{LONG}{i}": (0.0, 1.0) for i in range(9)} | {"kind": ["a", "b"]}


def wide(**changes):
    return {"bounds": WIDE | changes}


@pytest.mark.parametrize(
    ("options", "others", "says"),
    [
        ({}, {"seed": 1}, "seed: 0 in the journal, 1 in this run"),
        ({}, {"method": "amm-ucb"}, "method"),
        ({}, {"setting": kbo.Practical(delta=0.2)}, "delta"),
        ({"method": "igp-ucb", "n_trials": 3}, {"method": "igp-ucb", "n_trials": 6}, "n_trials"),
        (SMOOTH, ROUGH, "kernel"),
        (
            {},
            wide(kind=["a", "c"]),
            "(space kind options: ['a', 'b'] in the journal, ['a', 'c'] in",
        ),
        (
            {},
            wide(**{f"{LONG}8": (0.0, 2.0)}),
            f"(space {LONG}8 high: 1.0 in the journal, 2.0 in this run",
        ),
        (
            {},
            wide(new=kbo.Int(1, 2)),
            "(space new: only in this run: {'name': 'new', 'kind': 'Int'",
        ),
        ({}, wide(kind=kbo.Int(0, 1)), "space kind kind: 'Choice' in the journal, 'Int' in this"),
        (
            {"bounds": {"x": bool, "y": bool}},
            {"bounds": {"y": bool, "x": bool}},
            "in the order ['x', 'y'] in the jo",
        ),
    ],
)
def test_a_journal_of_another_problem_is_refused_with_what_differs(tmp_path, options, others, says):
    path = tmp_path / "j"
    options = {"bounds": WIDE, **options}
    others = {"bounds": WIDE, **others}
    kbo.Optimizer(**options, journal=path).close()
    before = path.read_bytes()
    kbo.Optimizer(**options, journal=path).close()
    for refused in (
        lambda: kbo.Optimizer(**others, journal=path),
        lambda: kbo.Optimizer(**others).load(path),
    ):
        with pytest.raises(kbo.JournalError, match=f"another problem.*{re.escape(says)}"):
            refused()
    assert path.read_bytes() == before


def test_a_second_writer_is_refused(tmp_path):
    first = Journal(tmp_path / "j", {"a": 1})
    with pytest.raises(kbo.JournalError, match="in use"):
        Journal(tmp_path / "j", {"a": 1})
    first.close()
    Journal(tmp_path / "j", {"a": 1}).close()


def test_every_tell_is_on_disk_before_the_next_ask(tmp_path):
    path = tmp_path / "j"
    seen = []

    def objective(x):
        seen.append(path.read_text().count('"tell"'))
        return x[0]

    kbo.minimize(objective, [(0, 1)], 5, journal=path)
    assert seen == list(range(5))


def test_nothing_is_written_about_a_trial_that_has_ended(tmp_path):
    optimizer = begun(tmp_path / "j")
    trial = optimizer.begin()
    optimizer.tell(trial, 1.0)
    for late in (
        lambda: optimizer.tell(trial, 2.0),
        lambda: optimizer.fail(trial, "late"),
        lambda: optimizer.report(trial, 2.0, step=3),
        lambda: optimizer.prune(trial),
    ):
        with pytest.raises(kbo.InvalidInput, match="trial 0 is complete"):
            late()
    optimizer.close()
    assert begun(tmp_path / "j").trials == [trial]


@pytest.mark.parametrize("version", ["0.11", "0.14"])
def test_journals_of_earlier_versions_continue_with_their_pending_trial(tmp_path, version):
    """Values, a failure, conditions, reports and a pruned trial; in 0.14 measurements too."""
    folder = Path(__file__).parent / "journals"
    path = shutil.copy(folder / f"journal-{version}.0-events.jsonl", tmp_path)
    space = [
        {"rate": kbo.Float(1e-4, 1e-1, log=True), "n": kbo.Int(1, 8), "kind": ["a", "b"]},
        kbo.When("kind", "b", {"depth": kbo.Int(2, 6)}),
    ]
    limits = [kbo.Constraint("memory", upper=8.0)] if version == "0.14" else []
    setting = kbo.Practical(n_initial=4)
    optimizer = kbo.Optimizer(space, setting=setting, seed=7, journal=path, constraints=limits)
    ends = ["complete"] * 3 + ["failed", "complete", "pruned"] + ["complete"] * 3
    assert [trial.status for trial in optimizer.trials] == [*ends, "pending"]
    assert optimizer.ask() == optimizer.trials[-1].params


# Commands


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

    points = [trial.params for trial in optimizer.trials]
    rows = list(csv.DictReader(command("export", path).stdout.splitlines()))
    assert [row["value"] for row in rows] == ["1.0", "2.0", ""]
    assert [row["params.kind"] for row in rows] == [point["kind"] for point in points]
    for name in ("out.json", "out.csv"):  # an older file is replaced in one step, not written over
        to, link = tmp_path / name, tmp_path / f"old {name}"
        to.write_text("older")
        os.link(to, link)
        assert command("export", path, "--to", to).exit_code == 0
        assert link.read_text() == "older" != to.read_text()
    rows = json.loads((tmp_path / "out.json").read_text())
    assert [row["params.x"] for row in rows] == [point["x"] for point in points]

    path.write_bytes(path.read_bytes().replace(b'"value":2.0', b'"value":3.0'))
    damaged = command("check", path)
    assert damaged.exit_code == 1
    assert "line 5 is damaged (its checksum does not fit)" in str(damaged.exception)
    assert "2 trials (3 events)" in command("repair", path, new).stdout
    assert command("check", new).exit_code == 0
    again = command("repair", path, new)
    assert again.exit_code == 1
    assert "overwrites nothing" in str(again.exception)
