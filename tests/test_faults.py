"""Runs survive interrupts, threads, forks, lost trials and damaged journals."""

import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import threading

import pytest
from gpytorch.kernels import MaternKernel

import kbo
from kbo import Optimizer
from kbo.errors import JournalError
from kbo.optimize import journal
from kbo.optimize.events import LONGEST_LINE, parse
from kbo.optimize.trials import Trials
from kbo.space import Space

SPACE = {"x": (0.0, 1.0), "k": kbo.Int(0, 3)}
CERTIFIED = kbo.Certified(MaternKernel(nu=2.5).double(), noise_std=0.1, norm_bound=3.0)


PACKAGE = os.path.join(os.path.dirname(kbo.__file__), "")


def objective(params):
    return (params["x"] - 0.3) ** 2 + 0.1 * params["k"]


def run(path, n=5, **options):
    optimizer = kbo.Optimizer(SPACE, journal=path, **options)
    for _ in range(n):
        params = optimizer.ask()
        optimizer.tell(params, objective(params))
    return optimizer


def on_disk(path):
    return Trials.of(Space(SPACE), journal.read(path)[1], path).all


def unchecked(path):
    """Turn a journal into one of kbo 0.8, without checksums."""
    header, *events = [json.loads(text) for text in path.read_text().splitlines()]
    for entry in (header, *events):
        del entry["sum"]
    header["format"] = "kbo-journal-1"
    path = path.with_name("unchecked")
    path.write_text("".join(json.dumps(entry) + "\n" for entry in (header, *events)))
    return path


# Damaged files


@pytest.fixture
def text(tmp_path):
    run(tmp_path / "j").close()
    return (tmp_path / "j").read_bytes()


def test_no_changed_byte_passes_unnoticed(text):
    rng, whole = random.Random(0), parse(text)
    for place in range(len(text)):
        found = parse(text[:place] + bytes([text[place] ^ rng.randrange(1, 256)]) + text[place + 1 :])
        assert found.damage or (found.unfinished and place == len(text) - 1)
        assert found.events == whole.events[: len(found.events)]


def test_no_removed_repeated_or_exchanged_line_passes_unnoticed(text):
    lines = text.splitlines(keepends=True)
    for i in range(1, len(lines) - 1):
        assert parse(b"".join(lines[:i] + lines[i + 1 :])).damage
        assert parse(b"".join(lines[: i + 1] + lines[i:])).damage
        assert parse(b"".join([*lines[:i], lines[i + 1], lines[i], *lines[i + 2 :]])).damage


@pytest.mark.parametrize(
    "event",
    [
        b'{"event":"tell","number":5,"value":NaN}',
        b'{"event":"tell","number":5,"value":Infinity}',
        b'{"event":"tell","number":5,"value":1e400}',
        b'{"event":"tell","number":5,"value":"1"}',
        b'{"event":"tell","number":5,"value":true}',
        b'{"event":"tell","number":5,"value":null}',
        b'{"event":"tell","number":5.0,"value":1}',
        b'{"event":"tell","number":-1,"value":1}',
        b'{"event":"tell","number":1' + b"0" * 400 + b',"value":1}',
        b'{"event":"tell","number":5,"value":1,"seconds":-1}',
        b'{"event":"tell","number":5,"value":1,"time":1e99}',
        b'{"event":"tell","number":5,"value":1,"more":1}',
        b'{"event":"fail","number":5,"reason":1}',
        b'{"event":"fail","number":5}',
        b'{"event":"ask","number":6,"params":null}',
        b'{"event":"ask","number":6,"params":{"x":"0.01","k":1}}',
        b'{"event":"ask","number":6,"params":{"x":0.5,"k":1.5}}',
        b'{"event":"ask","number":6,"params":{"x":0.5}}',
        b'{"event":"ask","number":6,"params":' + b'{"x":' * 5000 + b"1" + b"}" * 5001,
        b"[" * 100_000,
        b'{"event":"dance","number":5}',
        b'{"number":5}',
        b"5",
        b"\xff\xfe",
    ],
)
def test_a_line_that_kbo_would_not_write_is_refused_with_its_number_and_little_of_it(tmp_path, text, event):
    optimizer = run(tmp_path / "run")
    optimizer.expect({"x": 0.5, "k": 1})
    path = unchecked(tmp_path / "run")
    path.write_bytes(before := path.read_bytes() + event + b"\n")
    with pytest.raises(kbo.JournalError, match="line 13") as caught:
        kbo.Optimizer(SPACE, journal=path)
    assert len(str(caught.value)) < 800
    assert path.read_bytes() == before


def test_a_journal_without_checksums_goes_on_without_them_and_the_same(tmp_path):
    run(tmp_path / "run").close()
    path = unchecked(tmp_path / "run")
    optimizer = run(path, 1)
    assert optimizer.trials == run(None, 6).trials
    assert b'"sum"' not in path.read_bytes()


def test_a_line_that_is_too_long_is_refused_before_anything_is_written(tmp_path):
    optimizer = kbo.Optimizer({"x": ["a" * LONGEST_LINE, "b"]})
    optimizer.tell({"x": "b"}, 1.0)
    with pytest.raises(kbo.InvalidInput, match="at most 1000000 bytes"):
        optimizer.save(tmp_path / "saved")
    assert not list(tmp_path.iterdir())
    (tmp_path / "j").write_bytes(b"x" * (LONGEST_LINE + 1))
    with pytest.raises(kbo.JournalError, match=r"not a kbo journal.*line 1 .* more than 1000000 bytes"):
        kbo.Optimizer(SPACE, journal=tmp_path / "j")


# Interrupts


def interrupted_at(k, call, *args, **options):
    """Interrupt a call before its k-th line of kbo's code; return whether it was."""
    left = [k]

    def trace(frame, event, arg):
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        if event == "line":
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        call(*args, **options)
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
    return False


@pytest.mark.keeps("file ", "an interrupt between opening a file and its `with` leaves it to the garbage collector")
@pytest.mark.parametrize(
    ("what", "step", "setting"),
    [
        *[(what, 1, kbo.Practical(n_initial=20)) for what in ("ask", "tell", "fail", "save")],  # no fit: fast
        *[(what, 61, setting) for what in ("ask", "recommended") for setting in (None, CERTIFIED)],
    ],
)
def test_an_interrupt_at_any_line_leaves_memory_and_disk_equal_and_changes_nothing_later(tmp_path, what, step, setting):
    path, k, interrupted = tmp_path / "j", 1, True
    undisturbed = run(None, 9, setting=setting)
    run(tmp_path / "begun", 8, setting=setting).close()
    while interrupted:
        shutil.copy(tmp_path / "begun", path)
        optimizer = kbo.Optimizer(SPACE, journal=path, setting=setting)
        params = optimizer.ask() if what in ("tell", "fail") else None
        arguments = {"tell": (params, 1.0), "fail": (params, "a reason"), "save": (tmp_path / "saved",)}.get(what, ())
        interrupted = interrupted_at(k, getattr(optimizer, what), *arguments)
        assert elsewhere(optimizer.recommended) in optimizer.trials
        assert optimizer.trials == on_disk(path)
        if what in ("ask", "recommended", "save"):
            optimizer.ask()
            assert optimizer.trials[8].params == undisturbed.trials[8].params
        assert not list(tmp_path.glob(".*.tmp"))
        optimizer.close()
        k += step
    assert k > 5 * step


def elsewhere(call):
    """Return the result of a call in another thread, which must not wait for a lock that was never released."""
    found = []
    thread = threading.Thread(target=lambda: found.append(call()))
    thread.start()
    thread.join(20)
    return found[0]


def test_an_interrupt_in_the_middle_of_a_write_is_undone_or_done(tmp_path, monkeypatch):
    for written in (0, 10, None):
        path = tmp_path / str(written)
        optimizer = kbo.Optimizer(SPACE, journal=path)
        params, fsync = optimizer.ask(), os.fsync

        whole = path.stat().st_size

        def interrupt(file, written=written, path=path, whole=whole):
            os.truncate(path, path.stat().st_size if written is None else whole + written)
            raise KeyboardInterrupt

        monkeypatch.setattr(os, "fsync", interrupt)
        with pytest.raises(KeyboardInterrupt):
            optimizer.tell(params, 1.0)
        monkeypatch.setattr(os, "fsync", fsync)
        assert elsewhere(optimizer.belief) is None
        assert optimizer.trials == on_disk(path)
        assert optimizer.trials[0].status == ("complete" if written is None else "pending")


# Threads, forks, and files that are gone


def test_threads_may_share_an_optimizer(tmp_path):
    optimizer = kbo.Optimizer(SPACE, journal=tmp_path / "j")

    def work():
        for _ in range(10):
            params = optimizer.ask()
            optimizer.tell(params, objective(params))
            optimizer.recommended()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(optimizer.completed()) == 40
    assert optimizer.trials == on_disk(tmp_path / "j")


FORKED = """
import os, sys, kbo
optimizer = kbo.Optimizer([(0, 1)], journal=sys.argv[1])
x = optimizer.ask()
if os.fork() == 0:
    try:
        optimizer.tell(x, 1.0)
    except kbo.JournalError as error:
        print(error, flush=True)
    os.setsid()
    sys.stdin.read()
    os._exit(0)
os._exit(0)
"""


def test_a_forked_child_neither_writes_nor_keeps_the_lock(tmp_path):
    command = [sys.executable, "-c", FORKED, str(tmp_path / "j")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert "was forked from the one that writes it" in process.stdout.readline()
        process.wait()  # the child lives on, the parent does not
        optimizer = kbo.Optimizer([(0, 1)], journal=tmp_path / "j")
        assert [trial.status for trial in optimizer.trials] == ["pending"]
        process.stdin.close()


@pytest.mark.parametrize("replaced", [True, False])
def test_a_journal_that_was_deleted_or_replaced_is_noticed_and_what_is_known_can_be_saved(tmp_path, replaced):
    path = tmp_path / "j"
    optimizer = run(path)
    os.replace(path, tmp_path / "elsewhere")
    if replaced:
        kbo.Optimizer(SPACE, journal=path).close()
    with pytest.raises(kbo.JournalError, match=r"deleted or replaced while it was open.*optimizer.save\(path\)"):
        optimizer.ask()
    optimizer.save(path)
    assert on_disk(path) == optimizer.trials == run(None).trials
    with pytest.raises(kbo.JournalError, match="replaced"):
        optimizer.ask()


def test_what_another_program_writes_is_noticed(tmp_path):
    optimizer = run(tmp_path / "j")
    with (tmp_path / "j").open("ab") as file:
        file.write(b"hello\n")
    for _ in range(2):
        with pytest.raises(kbo.JournalError, match="changed"):
            optimizer.ask()


def test_a_closed_journal_can_be_read_and_says_so_when_it_should_be_written(tmp_path):
    optimizer = run(tmp_path / "j")
    optimizer.close()
    for call in (optimizer.ask, lambda: optimizer.tell({"x": 0.5, "k": 1}, 1.0)):
        with pytest.raises(kbo.JournalError, match="is closed: open it again"):
            call()
    assert optimizer.recommended().value is not None


def test_a_save_that_fails_leaves_nothing_behind(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(kbo.JournalError, match="cannot write"):
        run(None).save(tmp_path / "folder")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


# Trials that end the process


def test_a_trial_that_was_lost_twice_is_failed_and_the_run_goes_on(tmp_path):
    code = "import sys, os, kbo; kbo.minimize(lambda x: os._exit(1), [(0, 1)], 3, journal=sys.argv[1])"
    for _ in range(2):
        assert subprocess.run([sys.executable, "-c", code, str(tmp_path / "j")]).returncode == 1
    result = kbo.minimize(lambda x: x[0], [(0, 1)], 3, journal=tmp_path / "j")
    assert [trial.status for trial in result.trials] == ["failed", "complete", "complete"]
    assert result.trials[0].failure.startswith("lost: started 2 times, and each time the process ended")
    assert result.trials[0].starts == 2


def test_an_objective_that_exits_has_failed():
    result = kbo.minimize(lambda x: sys.exit("no") if x[0] > 0.5 else x[0], [(0, 1)], 4, max_failures=4)
    assert any(trial.failure and trial.failure.startswith("SystemExit: no (test_faults.py") for trial in result.trials)


def test_what_is_read_after_an_interrupt_is_what_is_on_disk(tmp_path, monkeypatch):
    optimizer = Optimizer(SPACE, journal=tmp_path / "run.jsonl", method="random")
    params, append = optimizer.ask(), journal.Journal.append

    def then_interrupt(self, event):
        append(self, event)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(journal.Journal, "append", then_interrupt)
        with pytest.raises(KeyboardInterrupt):
            optimizer.tell(params, 1.0)
    assert [trial.value for trial in optimizer.trials] == [1.0]


def test_a_journal_that_was_emptied_leaves_what_is_known_after_an_interrupt(tmp_path, monkeypatch):
    path = tmp_path / "run.jsonl"
    optimizer = Optimizer(SPACE, journal=path, method="random")
    for _ in range(3):
        optimizer.tell(optimizer.ask(), 1.0)
    path.write_bytes(b"")
    with monkeypatch.context() as patch:
        patch.setattr(Optimizer, "_recommended", lambda self: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            optimizer.recommended()
    assert len(optimizer.trials) == 3
    with pytest.raises(JournalError, match="changed by another program"):
        optimizer.ask()
    optimizer.save(tmp_path / "saved.jsonl")
    assert len(Optimizer(SPACE, journal=tmp_path / "saved.jsonl", method="random").completed()) == 3


def test_a_trial_that_ask_began_but_did_not_return_was_not_lost(tmp_path, monkeypatch):
    optimizer = Optimizer(SPACE, journal=tmp_path / "run.jsonl", method="random")
    with monkeypatch.context() as patch:
        patch.setattr(Optimizer, "_begin", failing_at(2, Optimizer._begin))
        with pytest.raises(JournalError):
            optimizer.ask(2)
    assert optimizer.ask() == optimizer.trials[0].params
    assert optimizer.trials[0].starts == 1


def failing_at(call: int, method):
    calls = itertools.count(1)

    def fails(*arguments):
        if next(calls) == call:
            raise JournalError("disk full")
        return method(*arguments)

    return fails


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_an_objective_in_a_file_with_any_name_may_fail():
    names = {}
    exec("def objective(params): raise ValueError('no')", names)
    objective = names["objective"]
    objective.__code__ = objective.__code__.replace(co_filename="\udcff.py")
    with pytest.raises(kbo.TooManyFailures) as raised:
        kbo.minimize(objective, {"x": (0.0, 1.0)}, 1)
    (trial,) = raised.value.trials
    assert trial.status == "failed"
    assert trial.failure == r"ValueError: no (\udcff.py, line 1)"
