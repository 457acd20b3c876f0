"""Journals refuse what is damaged or not theirs, and never execute anything."""

import csv
import json
import os
import random
import re
import zlib

import pytest
from gpytorch.kernels import MaternKernel

import kbo
from kbo.optimize.run.events import LONGEST_LINE, parse
from kbo.optimize.run.journal import Journal
from kbo.report.record import Record
from tests import commands

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


def test_a_journal_of_kbo_0_8_is_refused_with_the_version_that_reads_it(tmp_path, text):
    path = tmp_path / "j"
    old = re.sub(rb',"sum":"[0-9a-f]+"', b"", text).replace(b"kbo-journal-2", b"kbo-journal-1")
    path.write_bytes(old)
    for read in (begun, Record.of):
        with pytest.raises(kbo.KboError, match=r"kbo 0\.22 is the last version"):
            read(path)
    assert path.read_bytes() == old


def test_a_journal_of_a_later_format_is_refused_with_what_to_do(tmp_path):
    path = tmp_path / "j"
    later = (
        b'{"format":"kbo-journal-3","space":{"of":[[[1]]]},"sum":"0000000000000000"}\n{"new":1}\n'
    )
    path.write_bytes(later)
    for read in (begun, Record.of):
        with pytest.raises(
            kbo.JournalError, match=r"kbo-journal-3 of a later version.*upgrade kbo"
        ):
            read(path)
    assert "upgrade kbo" in command("check", path, code=1).stderr
    assert path.read_bytes() == later


def appended(text, body):
    """Return a journal with one more line, whose checksum fits."""
    checksum = zlib.crc32(body, parse(text).checksum)
    return text + b'%b,"sum":"%08x"}\n' % (body[:-1], checksum)


@pytest.mark.parametrize(
    "event",
    [
        b'"event":"tell","number":5,"value":NaN',
        b'"event":"tell","number":0,"value":1',  # which has one
        b'"event":"tell","number":1' + b"0" * 400 + b',"value":1',
        b'"event":"tell","number":5,"value":1,"time":1e99',
        b'"event":"ask","number":6,"params":{"x":5.0,"k":1}',
        b'"event":"ask","number":6,"params":' + b'{"x":' * 5000 + b"1" + b"}" * 5000,
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


def test_a_file_that_is_no_journal_is_refused_and_left_alone(tmp_path, text):
    path = tmp_path / "notes.txt"
    for content in (b"hello\n", b'{"a": 1}\n', b"no end", b"x" * (LONGEST_LINE + 1)):
        path.write_bytes(content)
        with pytest.raises(kbo.JournalError, match="not a kbo journal"):
            begun(path)
        assert path.read_bytes() == content
    path.write_bytes(text[:1])  # what a kill leaves of the first line
    assert run(path).trials == run().trials


def test_what_cannot_be_written_is_a_clear_error_and_nothing_is_left(tmp_path):
    optimizer = kbo.Optimizer({"x": ["a" * LONGEST_LINE, "b"]})
    optimizer.tell({"x": "b"}, 1.0)
    with pytest.raises(kbo.InvalidInput, match="at most 1000000 bytes"):
        optimizer.save(tmp_path / "saved")
    with pytest.raises(kbo.JournalError, match="cannot write the journal"):
        run("/proc/nowhere/run.jsonl")
    assert list(tmp_path.iterdir()) == []


# Other problems, writers and versions

KINDS = {"x": (0.0, 1.0), "kind": ["a", "b"]}


def matern(nu):
    return {"setting": kbo.Certified(MaternKernel(nu=nu), noise_std=0.1, norm_bound=3.0)}


@pytest.mark.parametrize(
    ("options", "others", "says"),
    [
        ({}, {"seed": 1}, "seed: 0 in the journal, 1 in this run"),
        (matern(2.5), matern(1.5), "kernel"),
        ({}, {"bounds": {**KINDS, "kind": ["a", "c"]}}, "space kind options: ['a', 'b'] in the"),
        (
            {},
            {"bounds": {**KINDS, "new": kbo.Int(1, 2)}},
            "\n  space new: only in this run: {'name'",
        ),
        ({}, {"bounds": dict(reversed(KINDS.items()))}, "in the order ['x', 'kind'] in the jo"),
    ],
)
def test_a_journal_of_another_problem_is_refused_with_what_differs(tmp_path, options, others, says):
    path = tmp_path / "j"
    options = {"bounds": KINDS, **options}
    others = {"bounds": KINDS, **others}
    kbo.Optimizer(**options, journal=path).close()
    before = path.read_bytes()
    for refused in (
        lambda: kbo.Optimizer(**others, journal=path),
        lambda: kbo.Optimizer(**others).run.load(path),
    ):
        with pytest.raises(kbo.JournalError, match=f"(?s)another problem.*{re.escape(says)}"):
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

    kbo.minimize(objective, [(0, 1)], 5, journal=path, method="random")
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


# Commands


def command(*arguments, code=0):
    return commands.kbo("journal", *arguments, code=code)


def test_the_commands_check_show_repair_and_export(tmp_path):
    path, new = tmp_path / "j", tmp_path / "new"
    optimizer = kbo.Optimizer(KINDS, journal=path, method="random")
    for value in (1.0, 2.0):
        optimizer.tell(optimizer.ask(), value)
    optimizer.fail(optimizer.ask(), "\x1b[31mdiverged")
    optimizer.close()
    whole = command("check", path).stdout
    assert "is whole: 3 trials, 2 complete, 1 failed, 0 pruned, 0 pending" in whole
    shown = command("show", path).stdout
    assert "diverged" in shown
    assert "\x1b[31m" not in shown

    rows = list(csv.DictReader(command("export", path).stdout.splitlines()))
    assert [row["value"] for row in rows] == ["1.0", "2.0", ""]
    to, link = tmp_path / "out.json", tmp_path / "link.json"
    to.write_text("older")
    os.link(to, link)
    command("export", path, "--to", to)
    assert link.read_text() == "older"  # replaced in one step, not written over
    points = [trial.params for trial in optimizer.trials]
    assert [row["params.x"] for row in json.loads(to.read_text())] == [p["x"] for p in points]

    path.write_bytes(path.read_bytes().replace(b'"value":2.0', b'"value":3.0'))
    damaged = command("check", path, code=1).stderr
    assert "line 5 is damaged (its checksum does not fit)" in damaged
    assert "2 trials (3 events)" in command("repair", path, new).stdout
    command("check", new)
    assert "overwrites nothing" in command("repair", path, new, code=1).stderr
