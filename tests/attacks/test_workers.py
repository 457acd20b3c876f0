"""Attacks on workers: what objectives leave behind, what they print, how they end."""

import importlib
import io
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import kbo
from kbo.cli import tuning
from kbo.errors import TooManyFailures
from kbo.workers import processes
from kbo.workers.call import Outcome
from kbo.workers.here import Here

BOX = [(0.0, 1.0)] * 2
SETTINGS = {
    "gradient mode": (torch.is_grad_enabled, lambda: torch.set_grad_enabled(False)),
    "inference mode": (torch.is_inference_mode_enabled, lambda: _infer(True)),
    "default dtype": (torch.get_default_dtype, lambda: torch.set_default_dtype(torch.float16)),
    "default device": (torch.get_default_device, lambda: torch.set_default_device("meta")),
    "threads": (torch.get_num_threads, lambda: torch.set_num_threads(torch.get_num_threads() + 1)),
    "errors of numpy": (np.geterr, lambda: np.seterr(all="raise")),
}
ENDS = {"returns": lambda: None, "raises": lambda: 1 / 0, "is interrupted": lambda: _interrupt()}


def _interrupt():
    raise KeyboardInterrupt


_guards = []


def _infer(mode):
    _guards.append(torch.inference_mode(mode))
    _guards[-1].__enter__()


def bowl(x):
    return (x[0] - 0.3) ** 2 + (x[1] - 0.6) ** 2


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("setting", SETTINGS)
def test_settings_that_an_objective_leaves_behind_are_restored(setting, end):
    read, change = SETTINGS[setting]

    def objective(x):
        change()
        ENDS[end]()
        return bowl(x)

    before = read()
    kept = []
    try:
        try:
            result = kbo.minimize(objective, BOX, 7, max_failures=9, on_trial=lambda *_: kept.append(read() == before))
        except TooManyFailures as failed:
            result = failed
        after = read()
    finally:
        _reset()
    expected = {"returns": "complete", "raises": "failed", "is interrupted": "pending"}[end]
    assert {trial.status for trial in result.trials} == {expected}
    assert all(kept)
    assert after == before


def _reset():
    """Undo what a test may have left, so that only this one fails."""
    _infer(False)
    torch.set_grad_enabled(True)
    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)
    torch.set_num_threads(THREADS)
    np.seterr(**ERRORS)


THREADS, ERRORS = torch.get_num_threads(), np.geterr()


def test_settings_that_threads_leave_behind_are_restored_at_the_end():
    def objective(x):
        torch.set_default_dtype(torch.float64)
        return bowl(x)

    try:
        kbo.minimize(objective, BOX, 3, workers=kbo.Threads(2))
        assert torch.get_default_dtype() == torch.float32
    finally:
        _reset()


def interrupted_in(name, call):
    """Interrupt a call before the first line of PyTorch's functions of a name; return whether it was."""

    def trace(frame, event, arg):
        code = frame.f_code
        if code.co_name != name or not code.co_filename.endswith("grad_mode.py"):
            return None
        sys.settrace(None)
        raise KeyboardInterrupt

    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
    return False


@pytest.mark.parametrize("engine", ["optimizer", Here()])
def test_an_interrupt_inside_no_grad_leaves_gradients_on(engine):
    def objective(x):
        with torch.no_grad():
            return bowl(x)

    optimizer = kbo.Optimizer(BOX)
    for _ in range(6):
        params = optimizer.ask()
        optimizer.tell(params, bowl(params))
    run = optimizer.ask if engine == "optimizer" else lambda: kbo.minimize(objective, BOX, 1, workers=engine)
    try:
        interrupted = interrupted_in("__exit__", run)
        assert interrupted or engine != "optimizer"  # minimize itself ends with what it has
        assert torch.is_grad_enabled()
    finally:
        _reset()


def quiet(number, step, value):
    return False


ENDING = """
import atexit, os, sys
import kbo

files = []

def objective(x):
    if not files:
        files.append(open(f"{sys.argv[1]}/file-{os.getpid()}", "w"))
        atexit.register(lambda: open(f"{sys.argv[1]}/exit-{os.getpid()}", "w").close())
    print("a line", flush=False)
    files[0].write("a line")
    return x[0]

kbo.minimize(objective, [(0.0, 1.0)], 6, workers=2, setting=kbo.Practical(n_initial=20))
"""


def test_workers_print_every_line_and_end_normally(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-c", ENDING, str(tmp_path)]
    output = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    assert output.count("a line\n") == 6
    assert "".join(path.read_text() for path in tmp_path.glob("file-*")) == "a line" * 6
    assert len(list(tmp_path.glob("exit-*"))) == len(list(tmp_path.glob("file-*")))


def test_a_worker_that_does_not_end_is_killed(monkeypatch):
    monkeypatch.setattr(processes, "_LEAVING", 0.1)

    def objective(x):
        threading.Thread(target=threading.Event().wait).start()  # which the end of Python waits for
        return float(os.getpid())

    (trial,) = kbo.minimize(objective, BOX, 1, workers=kbo.Processes(1)).trials
    with pytest.raises(ProcessLookupError):
        os.kill(int(trial.value), 0)


def test_a_value_that_came_in_time_counts_when_it_is_read_late(tmp_path):
    timeout = 1.0

    def objective(x, trial):
        for step in range(5):
            trial.report(step, 0.0)
        (tmp_path / "done").touch()
        return 7.0

    def busy(number, step, value):
        while not (tmp_path / "done").exists():
            time.sleep(0.01)
        if step == 0:
            time.sleep(2 * timeout)
        return False

    with kbo.Processes(1).session(objective, timeout, busy) as session:
        session.start(0, [])
        (outcome,) = session.wait()
    assert (outcome.value, outcome.failure) == (7.0, None)


def test_a_trial_that_never_stops_reporting_is_ended():
    def objective(x, trial):
        while True:
            trial.report(0, 1.0)

    with kbo.Processes(1).session(objective, 0.3, quiet) as session:
        session.start(0, [])
        (outcome,) = session.wait(60.0)
    assert outcome.failure.startswith("TimeoutError: no value after 0.3 s")


def test_a_limit_of_time_covers_the_loading_of_the_objective(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "LOADING", 0.5)
    (tmp_path / "hangs.py").write_text(
        "import os, time\nif os.getppid() == PARENT: time.sleep(600)\ndef objective(x): return 1.0\n".replace(
            "PARENT", str(os.getpid())
        )
    )
    monkeypatch.syspath_prepend(tmp_path)
    objective = importlib.import_module("hangs").objective
    with kbo.Processes(1).session(objective, 0.1, quiet) as session:
        session.start(0, [])
        (outcome,) = session.wait(60.0)
    assert outcome.failure == "TimeoutError: the objective was not loaded after 0.5 s; its process was ended"


class Unspeakable(Exception):
    """An exception without text."""

    def __str__(self):
        raise self.raised("no text")


class Annotated(Exception):
    """An exception without notes."""

    @property
    def __notes__(self):
        raise self.raised("no notes")


@pytest.mark.parametrize("raised", [ValueError, SystemExit, KeyboardInterrupt])
@pytest.mark.parametrize("error", [Unspeakable, Annotated])
def test_an_exception_that_cannot_be_shown_fails_its_trial(error, raised):
    def objective(x):
        broken = error()
        broken.raised = raised
        raise broken

    with kbo.Threads(1).session(objective, None, quiet) as session:
        session.start(0, [])
        (outcome,) = session.wait(20.0) or [Outcome(0, failure="it hangs")]
    assert outcome.failure.startswith(error.__name__)


SPY = "open(__file__ + '.imported', 'w').close()\n"
PROBLEM = """
import kbo
{imports}
bounds = [(0.0, 1.0)]
def objective(x): return x[0]
if __name__ == "__main__":
    print(*[trial.failure for trial in kbo.minimize(objective, bounds, 2, workers=2).trials])
"""


def test_workers_import_nothing_from_the_current_folder(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
    for name in ("queue", "pickle", "kbo", "torch"):
        (here / f"{name}.py").write_text(SPY)
    (there / "script.py").write_text(PROBLEM.format(imports=""))
    found = subprocess.run([sys.executable, there / "script.py"], cwd=here, capture_output=True, text=True, check=True)
    assert found.stdout == "None None\n"
    assert not list(here.glob("*.imported"))


@pytest.mark.parametrize("workers", ["1", "2"])
def test_modules_beside_a_script_do_not_replace_those_of_python(tmp_path, workers):
    (tmp_path / "queue.py").write_text(SPY)
    (tmp_path / "helper_of_script.py").write_text("answer = 42\n")
    (tmp_path / "script.py").write_text(PROBLEM.format(imports="from helper_of_script import answer"))
    tune = [sys.executable, "-m", "kbo", "tune", tmp_path / "script.py", "-n", "2", "-j", workers, "--out", tmp_path]
    found = subprocess.run([*tune, "--again", "1"], cwd="/", capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    assert not list(tmp_path.glob("*.imported"))


@pytest.mark.parametrize("name", ["random", "queue", "kbo", "torch", "time"])
def test_a_script_with_the_name_of_a_module_that_kbo_needs_is_refused(name, tmp_path):
    script = tmp_path / f"{name}.py"
    script.write_text(PROBLEM.format(imports=""))
    with pytest.raises(kbo.InvalidInput, match=rf"{name}\.py has the name of a module of .*: rename it"):
        tuning._load(str(script))
    assert getattr(sys.modules.get(name), "__file__", None) != str(script)


def test_a_script_is_loaded_again_from_another_folder(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "script.py").write_text(PROBLEM.format(imports=f"folder = {folder!r}"))
        tuning._load(str(tmp_path / folder / "script.py"))
        assert sys.modules["script"].folder == folder


FORKING = """
import os, signal, sys, time
import kbo

def objective(x, trial):
    if trial.number == 1:
        open(sys.argv[1], "w").write(str(os.getpid()))
        time.sleep(600)
    return x[0]

def fork(trial, result):
    if os.fork() == 0:
        os.setsid()
        sys.stdin.read()  # until the test ends
        os._exit(0)

kbo.minimize(objective, [(0.0, 1.0)], 3, workers=kbo.Processes(1), on_trial=fork)
"""


def test_workers_end_with_a_process_that_is_killed_after_it_has_forked(tmp_path):
    command = [sys.executable, "-c", FORKING, str(tmp_path / "pid")]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        _until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
        process.kill()
        process.wait()
        _until(lambda: not _lives(int((tmp_path / "pid").read_text())))


def _until(condition):
    end = time.monotonic() + 60.0
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def _lives(pid):
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.parametrize("engine", [Here(), kbo.Threads(1), kbo.Processes(1)], ids=repr)
@pytest.mark.parametrize("end", ["returns", "raises"])
def test_an_objective_that_forks_and_returns_twice_has_one_outcome(engine, end, tmp_path):
    def objective(x, trial):
        child = os.fork()
        if child:
            os.waitpid(child, 0)
        else:
            ENDS[end]()
        return bowl(x)

    result = kbo.minimize(objective, BOX, 3, workers=engine)
    assert [trial.value for trial in result.trials] == [bowl(trial.params) for trial in result.trials]


def test_a_clock_that_is_set_during_a_run_uses_up_no_time_budget(tmp_path, monkeypatch):
    run = {"time_budget": 1800.0, "journal": tmp_path / "run.jsonl"}
    with monkeypatch.context() as patch:
        later = time.time() + 3600.0
        kbo.minimize(bowl, BOX, 2, **run, on_trial=lambda *_: patch.setattr(time, "time", lambda: later))
    result = kbo.minimize(bowl, BOX, 4, **run)
    assert len(result.trials) == 4


@pytest.mark.parametrize("stream", [None, "closed"])
def test_progress_without_a_stream_for_it_is_not_shown(stream, monkeypatch):
    if stream == "closed":
        stream = io.StringIO()
        stream.close()
    monkeypatch.setattr(sys, "stderr", stream)
    result = kbo.minimize(bowl, BOX, 2, progress=True)
    assert [trial.status for trial in result.trials] == ["complete"] * 2


def test_a_client_that_leaves_a_live_page_is_no_news(capsys):
    with kbo.report.Live(quiet=True) as live:
        _, _, port = live.address.rstrip("/").rpartition(":")
        client = socket.create_connection(("127.0.0.1", int(port)))
        client.sendall(b"GET / HT")
        _until(lambda: _serving())
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()  # with a reset
        _until(lambda: not _serving())
    assert capsys.readouterr().err == ""


def _serving():
    return [thread for thread in threading.enumerate() if "process_request" in thread.name]


def test_a_worker_that_is_killed_before_its_next_trial_begins_costs_no_trial():
    with kbo.Processes(1).session(lambda x: os.getpid(), None, quiet) as session:
        session.start(0, [])
        (before,) = session.wait()
        os.kill(before.value, signal.SIGSTOP)
        session.start(1, [])
        os.kill(before.value, signal.SIGKILL)
        (after,) = session.wait(60.0)
    assert after.failure is None
    assert after.value != before.value
