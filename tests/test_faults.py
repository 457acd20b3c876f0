"""Runs survive kills, interrupts, threads, forks and lost trials, and notice what others do to their journals."""

import itertools
import os
import shutil
import signal
import sys
import threading

import pytest
from gpytorch.kernels import MaternKernel

import kbo
from kbo.errors import JournalError
from kbo.optimize.quantities.quantities import Quantities
from kbo.optimize.run import journal
from kbo.optimize.run.journal_file import read_whole
from tests.faults import interrupted
from tests.processes import PATIENCE, python

SPACE = {"x": (0.0, 1.0), "k": kbo.Int(0, 3)}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.jsonl"


def objective(params):
    return (params["x"] - 0.3) ** 2 + 0.1 * params["k"]


def begun(path=None, **options):
    return kbo.Optimizer(SPACE, journal=path, **{"method": "random", **options})


def run(path=None, n=5, **options):
    optimizer = begun(path, **options)
    for _ in range(n):
        params = optimizer.ask()
        optimizer.tell(params, objective(params))
    return optimizer


def on_disk(path):
    return read_whole(path).trials.all


def in_thread(call):
    """Return the result of a call in another thread, which must not wait for a lock that was never released."""
    results = []
    thread = threading.Thread(target=lambda: results.append(call()))
    thread.start()
    thread.join(PATIENCE)
    return results[0]


# Kills

SCRIPT = """
import os, signal, sys, threading
import kbo

def objective(params):
    with open(sys.argv[2], "a") as file:
        print(params, file=file)
    if len(open(sys.argv[2]).readlines()) == 11:
        print([thread.name for thread in threading.enumerate()], kbo.report.write.__name__, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return (params["x"] - 0.3) ** 2 + 0.1 * params["k"]

kbo.minimize(objective, {"x": (0.0, 1.0), "k": kbo.Int(0, 3)}, 14, journal=sys.argv[1], seed=7)
"""


def test_a_run_that_was_killed_loses_nothing_repeats_nothing_and_continues_the_same(tmp_path, path):
    calls = tmp_path / "calls"
    killed = python("-c", SCRIPT, path, calls, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    # A run without a bar has no thread, and reports need no import.
    assert killed.stdout == "['MainThread'] write\n"
    again = []
    kept = kbo.minimize(
        lambda params: again.append(params) or objective(params), SPACE, 14, journal=path, seed=7
    )
    undisturbed = kbo.minimize(objective, SPACE, 14, seed=7)
    for trial, twin in zip(kept.trials, undisturbed.trials, strict=True):
        assert (trial.params, trial.value) == (twin.params, twin.value)
    assert [trial.starts for trial in kept.trials] == [1] * 10 + [2] + [1] * 3
    evaluated = [str(trial.params) for trial in kept.trials]
    assert [*map(str, again)] == evaluated[10:]
    assert calls.read_text().splitlines() == evaluated[:11]


def test_a_trial_that_was_lost_twice_is_failed_and_the_run_goes_on(path):
    for _ in range(2):
        optimizer = begun(path)
        optimizer.ask()
        optimizer.close()  # as a kill leaves it
    result = kbo.minimize(objective, SPACE, 3, journal=path, method="random")
    assert [trial.status for trial in result.trials] == ["failed", "complete", "complete"]
    lost = result.trials[0]
    assert lost.failure.startswith("lost: started 2 times, and each time the process ended")
    assert lost.starts == 2


def test_a_pending_trial_whose_value_arrives_after_the_restart_is_not_returned_again(path):
    first = begun(path)
    params = first.ask()
    first.close()
    second = begun(path)
    second.tell(params, 1.0)
    assert second.ask() != params


def test_an_objective_that_exits_has_failed():
    result = kbo.minimize(
        lambda x: sys.exit("no") if x[0] > 0.5 else x[0], [(0, 1)], 4, max_failures=4
    )
    failures = [trial.failure for trial in result.trials if trial.failure]
    assert failures[0].startswith("SystemExit: no (test_faults.py")


# Interrupts

FAST = kbo.Practical(n_initial=20)  # no fit
CERTIFIED = kbo.Certified(MaternKernel(nu=2.5).double(), noise_std=0.1, norm_bound=3.0)
CALLS = {
    "ask": lambda optimizer, params: optimizer.ask(),
    "tell": lambda optimizer, params: optimizer.tell(params, 1.0),
    "fail": lambda optimizer, params: optimizer.fail(params, "a reason"),
    "save": lambda optimizer, params: optimizer.save("saved"),
    "recommended": lambda optimizer, params: optimizer.recommended(),
}
EVERYWHERE = [
    *((call, 1, FAST) for call in ("ask", "tell", "fail", "save")),
    *((call, 61, setting) for call in ("ask", "recommended") for setting in (None, CERTIFIED)),
]


@pytest.mark.keeps(
    "file ", "an interrupt between opening a file and its `with` leaves it to the garbage collector"
)
@pytest.mark.parametrize(
    ("call", "step", "setting"),
    [("tell", 11, FAST), *(pytest.param(*case, marks=pytest.mark.faults) for case in EVERYWHERE)],
)
def test_an_interrupt_at_any_line_leaves_memory_and_disk_equal_and_changes_nothing_later(
    tmp_path, path, monkeypatch, call, step, setting
):
    monkeypatch.chdir(tmp_path)
    options = {"setting": setting, "method": None}
    undisturbed = run(n=9, **options)
    run("begun", 8, **options).close()
    is_over = False
    for line in itertools.count(1, step):
        shutil.copy("begun", path)
        optimizer = begun(path, **options)
        params = optimizer.ask() if call in ("tell", "fail") else None
        try:
            interrupted(line, lambda given=(optimizer, params): CALLS[call](*given))
            is_over = True
        except KeyboardInterrupt:
            pass
        assert in_thread(optimizer.recommended) in optimizer.trials
        assert optimizer.trials == on_disk(path)
        if params is None:
            optimizer.ask()
            assert optimizer.trials[8].params == undisturbed.trials[8].params
        assert not list(tmp_path.glob(".*.tmp"))
        optimizer.close()
        if is_over:
            break
    assert line > 5 * step


@pytest.mark.filterwarnings("ignore:dropped an unfinished last line")
@pytest.mark.parametrize(("full", "written"), [(False, 0), (False, 10), (False, None), (True, 10)])
def test_a_write_that_is_interrupted_or_fails_is_undone_or_done(path, monkeypatch, full, written):
    optimizer = begun(path)
    params = optimizer.ask()
    size = path.stat().st_size

    def sync(file):
        if written is not None:
            os.truncate(path, size + written)
        raise OSError(28, "No space left on device") if full else KeyboardInterrupt

    error = JournalError if full else KeyboardInterrupt
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", sync)
        with pytest.raises(error, match="No space left" if full else None):
            optimizer.tell(params, 1.0)
    assert in_thread(lambda: optimizer.trials) == on_disk(path)
    assert optimizer.trials[0].status == ("complete" if written is None else "pending")
    assert written is None or optimizer.tell(params, 1.0).value == 1.0


def test_what_is_read_after_an_interrupt_is_what_is_on_disk(path, monkeypatch):
    optimizer = begun(path)
    params = optimizer.ask()
    append = journal.Journal.append

    def then_interrupt(self, event):
        append(self, event)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(journal.Journal, "append", then_interrupt)
        with pytest.raises(KeyboardInterrupt):
            optimizer.tell(params, 1.0)
    assert [trial.value for trial in optimizer.trials] == [1.0]


def test_a_journal_that_was_emptied_leaves_what_is_known_after_an_interrupt(tmp_path, monkeypatch):
    optimizer = run(tmp_path / "j", 3)
    (tmp_path / "j").write_bytes(b"")

    def interrupt(self):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Quantities, "bounded", interrupt)
        with pytest.raises(KeyboardInterrupt):
            optimizer.recommended()
    assert len(optimizer.trials) == 3
    with pytest.raises(JournalError, match="changed by another program"):
        optimizer.ask()
    optimizer.save(tmp_path / "saved")
    assert len(begun(tmp_path / "saved").completed()) == 3


def test_a_trial_that_ask_began_but_did_not_return_was_not_lost(path, monkeypatch):
    optimizer = begun(path)
    begin = kbo.Optimizer._begin
    calls = itertools.count(1)

    def fails(*arguments):
        if next(calls) == 2:
            raise JournalError("disk full")
        return begin(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(kbo.Optimizer, "_begin", fails)
        with pytest.raises(JournalError):
            optimizer.ask(2)
    assert optimizer.ask() == optimizer.trials[0].params
    assert optimizer.trials[0].starts == 1


# Threads, forks, and files that others change


def test_threads_may_share_an_optimizer(path):
    optimizer = begun(path)

    def work():
        for _ in range(5):
            params = optimizer.ask()
            optimizer.tell(params, objective(params))
            optimizer.recommended()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(optimizer.completed()) == 20
    assert optimizer.trials == on_disk(path)


def test_a_forked_child_neither_writes_nor_keeps_the_lock(path):
    optimizer = begun(path)
    params = optimizer.ask()
    said, say = os.pipe()
    end, live = os.pipe()
    if not (child := os.fork()):
        try:
            os.close(live)
            optimizer.tell(params, 1.0)
        except JournalError as error:
            os.write(say, str(error).encode())
            os.read(end, 1)  # it lives until the test has seen enough
        finally:
            os._exit(0)
    try:
        os.close(say)
        assert b"was forked from the one that writes it" in os.read(said, 1000)
        optimizer.close()
        assert [trial.status for trial in begun(path).trials] == ["pending"]
    finally:
        for pipe in (live, said, end):
            os.close(pipe)
        os.waitpid(child, 0)


@pytest.mark.parametrize("change", ["deleted", "replaced", "appended"])
def test_what_others_do_to_a_journal_is_noticed_and_what_is_known_can_be_saved(path, change):
    optimizer = run(path)
    if change == "appended":
        path.open("ab").write(b"hello\n")
    else:
        os.replace(path, path.with_name("elsewhere"))
    if change == "replaced":
        begun(path).close()
    message = r"(deleted or replaced while it was open|changed).*optimizer.save\(path"
    for _ in range(2):
        with pytest.raises(JournalError, match=message):
            optimizer.ask()
        optimizer.save(path)
    assert on_disk(path) == optimizer.trials == run().trials


def test_a_closed_journal_can_be_read_and_says_so_when_it_should_be_written(path):
    optimizer = run(path)
    optimizer.close()
    for call in (optimizer.ask, lambda: optimizer.tell({"x": 0.5, "k": 1}, 1.0)):
        with pytest.raises(JournalError, match="is closed: open it again"):
            call()
    assert optimizer.recommended().value is not None
