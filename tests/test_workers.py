"""Parallel trials: engines, limits of time, deaths of workers, interrupts, and what objectives leave behind."""

import atexit
import contextlib
import importlib
import io
import itertools
import json
import os
import pickle
import re
import signal
import socket
import struct
import subprocess
import sys
import sysconfig
import threading
import time

import cloudpickle
import numpy as np
import pytest
import torch

import kbo
from experiments import problems
from kbo.cli.app import app
from kbo.cli.script import load
from kbo.workers import processes, remote
from kbo.workers.call import Outcome
from kbo.workers.choice import engine_of
from kbo.workers.engine import Engine, Session
from kbo.workers.in_process import InProcess
from tests.commands import CliRunner
from tests.processes import PATIENCE, runs, started, wait_until

BOX = [(0.0, 1.0)] * 2

# Workers import neither this file nor PyTorch.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def bowl(x):
    return (x[0] - 0.3) ** 2 + (x[1] - 0.6) ** 2


def statuses(result):
    return [trial.status for trial in result.trials]


def go_on(number, value, step):
    return False


def outcome_of(engine, objective, timeout=None, on_report=go_on, params=(), begun=lambda _: None):
    """Return the outcome of one call."""
    with engine.session(objective, timeout, on_report) as session:
        session.start(0, params)
        begun(session)
        (outcome,) = session.wait(PATIENCE)
    return outcome


@pytest.fixture(autouse=True)
def _slow_starts(monkeypatch):
    """A worker that needs long to start, on a busy machine, fails no trial with a limit of time."""
    monkeypatch.setattr(remote, "LOADING", PATIENCE)


class Clock:
    """What stands in for the module ``time``: a clock that tests move, and that the user sets to another time."""

    now, added, sleep = 0.0, 0.0, staticmethod(time.sleep)

    def monotonic(self):
        return self.now

    def time(self):
        return 1.7e9 + self.now + self.added


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    for module in ("kbo.optimize.minimize", "kbo.optimize.run.run", "kbo.workers.remote"):
        monkeypatch.setattr(importlib.import_module(module), "time", clock)
    return clock


# Engines


@pytest.mark.parametrize("engine", [InProcess(), kbo.Threads(2), kbo.Processes(2)], ids=repr)
def test_an_engine_evaluates_reports_and_stops(engine):
    class OnlyTheFifth:
        def should_stop(self, trial, trials, maximize):
            return trial.number == 4

    def objective(x, trial):
        for step in range(5):
            trial.report(x[0] + step, step=step)
            if trial.should_stop():
                raise KeyError("which does not count any more")
        if trial.number == 2:
            raise ValueError("no value here")
        if trial.number == 5:  # a copy of this process returns too
            if not (child := os.fork()):
                return -1.0
            os.waitpid(child, 0)
        return bowl(x)

    result = kbo.minimize(objective, BOX, 6, workers=engine, pruner=OnlyTheFifth())
    assert statuses(result) == ["complete"] * 2 + ["failed", "complete", "pruned", "complete"]
    assert "ValueError: no value here (test_workers.py" in result.trials[2].failure
    for trial in result.trials:
        steps = range(1 if trial.pruned else 5)
        assert trial.reports == [(step, trial.params[0] + step) for step in steps]
        assert trial.value in (None, bowl(trial.params))


@pytest.mark.parametrize("engine", [InProcess(), kbo.Processes(2)], ids=repr)
def test_an_error_of_the_pruner_ends_the_run_and_not_the_trial(engine):
    class Broken:
        def should_stop(self, trial, trials, maximize):
            raise ZeroDivisionError("of the pruner")

    def objective(x, trial):
        for step in range(3 if trial.number else 4):
            trial.report(x[0], step=step)
            trial.should_stop()
        return bowl(x)

    with pytest.raises(ZeroDivisionError, match="of the pruner"):
        kbo.minimize(objective, BOX, 8, workers=engine, pruner=Broken())


@pytest.mark.parametrize("engine", [InProcess(), kbo.Processes(1)], ids=repr)
def test_a_thread_that_reports_after_its_trial_is_refused(engine, tmp_path):
    following, refused = tmp_path / "next", tmp_path / "refused"

    def objective(x, trial):
        def late():
            wait_until(following.exists)
            try:
                trial.report(123.0, step=7)
            except kbo.InvalidInput as error:
                refused.write_text(str(error))

        if trial.number == 0:
            threading.Thread(target=late).start()
        else:
            following.touch()
            wait_until(lambda: refused.exists() and refused.read_text())
            trial.report(x[0], step=0)
        return bowl(x)

    result = kbo.minimize(objective, BOX, 2, workers=engine)
    ends = [(trial.status, trial.starts, len(trial.reports)) for trial in result.trials]
    assert ends == [("complete", 1, 0), ("complete", 1, 1)]
    assert refused.read_text().startswith("trial 0 has ended")


def test_one_worker_gives_the_points_of_this_process():
    here, there = (kbo.minimize(bowl, BOX, 8, workers=w) for w in (1, kbo.Processes(1)))
    assert [trial.params for trial in here.trials] == [trial.params for trial in there.trials]
    assert engine_of(1) == engine_of(None) == InProcess()
    assert engine_of(None, timeout=1.0) == kbo.Processes(1)


class InOrder(Engine, Session):
    """Two calls at a time, of which the one that began last ends first, or both at the same moment."""

    capacity, running = 2, {}

    def __init__(self, together):
        self.together = together

    @contextlib.contextmanager
    def session(self, function, timeout, on_report):
        self.function, self.running = function, {}
        yield self

    def start(self, number, params):
        self.running[number] = params

    def wait(self, seconds=None):
        ending = list(self.running) if self.together else [max(self.running)]
        return [Outcome(number, self.function(self.running.pop(number))) for number in ending]


def test_the_same_order_of_ends_gives_the_same_points_and_a_free_worker_gets_one_at_once():
    ended = []

    def note(trial, result):
        ended.append(trial.number)

    engine = InOrder(together=False)
    first, again = (kbo.minimize(bowl, BOX, 8, workers=engine, on_trial=note) for _ in range(2))
    assert [trial.params for trial in first.trials] == [trial.params for trial in again.trials]
    assert ended == [*range(1, 8), 0] * 2


def test_values_that_arrive_together_are_kept_if_the_run_is_interrupted_after_the_first():
    def interrupt(trial, result):
        raise KeyboardInterrupt

    result = kbo.minimize(bowl, BOX, 4, workers=InOrder(together=True), on_trial=interrupt)
    assert result.stopped.startswith("interrupted")
    assert statuses(result) == ["complete"] * 2


def test_on_trial_ends_a_run_by_its_answer_or_an_exception():
    def stop(trial, result):
        assert result.trials[trial.number] == trial
        if trial.number == 2:
            raise kbo.Stop("good enough")

    assert kbo.minimize(bowl, BOX, 9, on_trial=stop).stopped == "stopped by on_trial: good enough"
    early = kbo.minimize(bowl, BOX, 9, on_trial=lambda trial, result: trial.number == 3)
    assert (early.stopped, len(early.trials)) == ("stopped by on_trial", 4)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"workers": 2}, r"cannot be sent to worker processes .*workers=1"),
        ({"workers": kbo.Threads(2), "timeout": 1.0}, "timeout cannot end threads"),
        ({"workers": kbo.Processes}, r"write Processes\(\.\.\.\)"),
    ],
)
def test_what_an_engine_cannot_do_is_said_before_the_first_trial(options, says):
    lock = threading.Lock()
    with pytest.raises(kbo.InvalidInput, match=says):
        kbo.minimize(lambda x: lock.acquire(), BOX, 4, **options)


@pytest.mark.parametrize("make", [problems.branin, problems.GridBandit])
def test_copies_of_a_problem_draw_noise_of_their_own_unless_it_has_a_seed(make):
    for seed, different in ((None, 2), (3, 1)):
        problem = make(seed=seed)
        params = problem.space.params(torch.full((problem.space.dimension,), 0.5))
        values = {pickle.loads(cloudpickle.dumps(problem))(params) for _ in range(2)}
        assert len(values) == different


# Limits of time


def test_the_time_budget_counts_all_calls_and_not_a_clock_that_is_set(tmp_path, clock):
    options = {"journal": tmp_path / "run.jsonl", "method": "random"}

    def objective(x):
        clock.now += 30.0
        clock.added += 3600.0
        return bowl(x)

    for budget, n_trials in ((100.0, 4), (100.0, 4), (160.0, 6)):
        result = kbo.minimize(objective, BOX, time_budget=budget, **options)
        assert statuses(result) == ["complete"] * n_trials
        assert result.stopped == f"the time budget of {budget:.0f} s is used"
    with pytest.raises(kbo.InvalidInput, match="n_trials, time_budget"):
        kbo.minimize(objective, BOX)


@pytest.mark.parametrize(("engine", "running"), [(InProcess(), 1), (kbo.Processes(2), 2)], ids=repr)
def test_trials_that_are_ended_with_the_run_were_not_lost(engine, running, tmp_path, monkeypatch):
    # It stands still: a slow machine does not use up the time before a trial begins.
    for module in ("kbo.optimize.minimize", "kbo.optimize.run.run"):
        monkeypatch.setattr(importlib.import_module(module), "time", Clock())
    options = {"workers": engine, "journal": tmp_path / "run.jsonl"}
    ending = {"time_budget": 0.2, "end_running": True}
    for call in (1, 2):
        ended = kbo.minimize(lambda x: time.sleep(600), BOX, **ending, **options)
        counts = [(trial.status, trial.starts, trial.released) for trial in ended.trials]
        assert counts == [("pending", call, call)] * running
    assert statuses(kbo.minimize(bowl, BOX, 4, **options)) == ["complete"] * 4


def test_a_hanging_trial_is_ended_with_what_it_started(tmp_path):
    def objective(x):
        (tmp_path / str(subprocess.Popen(["sleep", "600"]).pid)).touch()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        pow(3, 10**9)  # compiled code that holds the interpreter's lock

    failure = outcome_of(kbo.Processes(1), objective, 0.5).failure
    assert failure == "TimeoutError: no value after 0.5 s; its process was ended"
    (path,) = tmp_path.iterdir()
    wait_until(lambda: not runs(int(path.name)))


def test_a_trial_that_never_stops_reporting_is_ended():
    def objective(x, trial):
        while True:
            trial.report(1.0, step=0)

    failure = outcome_of(kbo.Processes(1), objective, 0.3).failure
    assert failure.startswith("TimeoutError: no value after 0.3 s")


@pytest.mark.parametrize("read_late", ["the beginning", "the value"])
def test_what_happened_in_time_counts_when_it_is_read_late(read_late, clock):
    sessions = []

    def pass_time():
        wait_until(sessions[0].running[0].connection.poll)  # it has come
        clock.now += 2 * PATIENCE

    def begun(session):
        sessions.append(session)
        if read_late == "the beginning":
            pass_time()

    def late(number, value, step):
        pass_time()
        return False

    def objective(x, trial):
        if read_late == "the value":
            trial.report(0.0, step=0)
        return 7.0

    outcome = outcome_of(kbo.Processes(1), objective, 1.0, late, begun=begun)
    assert (outcome.value, outcome.failure) == (7.0, None)


class Read:
    """What calls a function of one argument where it is read."""

    def __init__(self, function, argument):
        self.call = function, (argument,)

    def __reduce__(self):
        return self.call


def test_a_limit_of_time_covers_the_loading_of_the_objective(monkeypatch):
    monkeypatch.setattr(remote, "LOADING", 0.5)
    failure = outcome_of(kbo.Processes(1), Read(time.sleep, 600.0), 0.1).failure
    assert failure == (
        "TimeoutError: the objective was not loaded after 0.5 s; its process was ended"
    )


# Deaths and ends of workers


def test_a_trial_whose_worker_dies_is_started_once_more(tmp_path, caplog):
    def objective(x, trial):
        (tmp_path / f"{trial.number} {os.getpid()}").touch()
        if trial.number == 0:
            os._exit(3)
        if trial.number == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return bowl(x)

    result = kbo.minimize(objective, BOX, 4, workers=kbo.Processes(2))
    assert statuses(result) == ["failed"] * 2 + ["complete"] * 2
    reasons = "ended itself with exit code 3", "ended by SIGKILL, perhaps because memory ran out"
    for trial, reason in zip(result.trials[:2], reasons, strict=True):
        assert len(list(tmp_path.glob(f"{trial.number} *"))) == trial.starts == 2
        assert re.search(f"{reason}.*; the trial was started 2 times", trial.failure)
        assert re.search(f"trial {trial.number} is started again: .*{reason}", caplog.text)


@pytest.mark.parametrize("is_seen", [True, False])
def test_a_worker_that_is_killed_while_it_is_idle_costs_no_trial(is_seen):
    with kbo.Processes(1).session(lambda x: os.getpid(), None, go_on) as session:
        session.start(0, [])
        (first,) = session.wait(PATIENCE)
        (worker,) = session._idle
        # Stopped first, so that it cannot begin the next trial.
        os.kill(first.value, signal.SIGSTOP)
        if is_seen:
            os.kill(first.value, signal.SIGKILL)
            os.waitid(os.P_PID, first.value, os.WEXITED | os.WNOWAIT)
            session.start(1, [])
        else:
            session.start(1, [])
            assert session.running[1] is worker
            os.kill(first.value, signal.SIGKILL)
        (second,) = session.wait(PATIENCE)
    assert second.failure is None
    assert second.value != first.value


def test_params_that_a_worker_cannot_read_end_it():
    assert outcome_of(kbo.Processes(1), bowl, params=Read(int, "no number")).died


def test_a_worker_may_be_replaced_after_each_trial():
    engine = kbo.Processes(1, trials_each=1)
    result = kbo.minimize(lambda x: float(os.getpid()), BOX, 3, workers=engine)
    assert len({trial.value for trial in result.trials}) == 3


def test_workers_print_every_line_and_end_normally(tmp_path, monkeypatch, capfd):
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    monkeypatch.setattr(processes, "_LEAVING", PATIENCE)
    files = []

    def objective(x):
        if not files:
            files.append((tmp_path / f"file-{os.getpid()}").open("w"))
            atexit.register((tmp_path / f"exit-{os.getpid()}").touch)
        print("a line", flush=False)
        files[0].write("a line")
        return x[0]

    kbo.minimize(objective, BOX, 6, workers=2, method="random")
    assert capfd.readouterr().out.count("a line\n") == 6
    written = [path.read_text() for path in tmp_path.glob("file-*")]
    assert "".join(written) == "a line" * 6
    assert len(list(tmp_path.glob("exit-*"))) == len(written)


def test_a_worker_that_does_not_end_is_killed(monkeypatch):
    monkeypatch.setattr(processes, "_LEAVING", 0.1)

    def objective(x):
        threading.Thread(target=threading.Event().wait).start()  # which the end of Python waits for
        return os.getpid()

    assert not runs(outcome_of(kbo.Processes(1), objective).value)


SCRIPT = """
import os, subprocess, sys, time
import kbo

def objective(x, trial):
    if trial.number < 3:
        return (x[0] - 0.3) ** 2
    child = subprocess.Popen(["sleep", "6000"], stdout=subprocess.DEVNULL)
    os.write(sys.stdout.fileno(), f"{os.getpid()} {child.pid}\\n".encode())  # in one piece: the other worker writes too
    if sys.platform == "linux":
        pow(3, 10**10)  # compiled code that holds the interpreter's lock
    time.sleep(6000)

def fork(trial, result):
    if trial.number == 0 and os.fork() == 0:  # a copy that lives on, with whatever is open
        os.setsid()
        sys.stdin.read()
        os._exit(0)

print(kbo.minimize(objective, [(0.0, 1.0)], 9, workers=2, journal=sys.argv[1], on_trial=fork))
"""


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL], ids=repr)
def test_a_script_that_is_ended_leaves_no_process_of_busy_workers_and_goes_on(sent, tmp_path):
    script, journal = tmp_path / "script.py", tmp_path / "run.jsonl"
    script.write_text(SCRIPT)  # without if __name__ == "__main__"
    with started(script, journal, stdin=subprocess.PIPE) as process:
        pairs = [tuple(map(int, process.stdout.readline().split())) for _ in range(2)]
        try:
            process.send_signal(sent)
            process.wait(PATIENCE)
            wait_until(lambda: not any(map(runs, itertools.chain(*pairs))), lambda: pairs)
        finally:
            for worker, _ in pairs:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(worker, signal.SIGKILL)
        output = process.communicate()[0]
    before = [json.loads(line).get("event") for line in journal.read_text().splitlines()]
    released = 2 if sent == signal.SIGINT else 0
    assert ("interrupted" in output) == bool(released)
    assert [before.count(event) for event in ("ask", "tell", "release")] == [5, 3, released]
    result = kbo.minimize(lambda x: x[0], [(0.0, 1.0)], 6, journal=journal)
    assert [trial.starts for trial in result.trials] == [1, 1, 1, 2, 2, 1]
    for trial in result.trials[:3]:
        assert trial.value == (trial.params[0] - 0.3) ** 2
    assert statuses(result) == ["complete"] * 6


# What objectives leave behind, import and raise

ENTERED = []
"""Contexts that end when nothing holds them any more."""


def enter_inference_mode():
    ENTERED.append(torch.inference_mode())
    ENTERED[-1].__enter__()


SETTINGS = [
    (torch.is_grad_enabled, lambda: torch.set_grad_enabled(False)),
    (torch.is_inference_mode_enabled, enter_inference_mode),
    (torch.get_default_dtype, lambda: torch.set_default_dtype(torch.float16)),
    (torch.get_default_device, lambda: torch.set_default_device("meta")),
    (torch.get_num_threads, lambda: torch.set_num_threads(torch.get_num_threads() + 1)),
    (np.geterr, lambda: np.seterr(all="raise")),
]


def settings():
    return [read() for read, _ in SETTINGS]


def test_settings_that_an_objective_leaves_behind_are_restored_whether_it_returns_or_raises():
    before = settings()
    after = []
    numbers = itertools.count()

    def objective(x):
        for read, change in SETTINGS:
            value = read()
            change()
            assert read() != value
        number = next(numbers)
        if number == 6:
            raise KeyboardInterrupt
        return 1 / 0 if number == 3 else bowl(x)

    result = kbo.minimize(objective, BOX, 9, on_trial=lambda *_: after.append(settings()))
    assert statuses(result) == ["complete"] * 3 + ["failed"] + ["complete"] * 2 + ["pending"]
    assert all(found == before for found in [*after, settings()])


def test_settings_that_threads_leave_behind_are_restored_at_the_end():
    def objective(x):
        torch.set_default_dtype(torch.float64)
        return bowl(x)

    kbo.minimize(objective, BOX, 3, workers=kbo.Threads(2))
    assert torch.get_default_dtype() == torch.float32


def test_an_interrupt_inside_no_grad_leaves_gradients_on():
    optimizer = kbo.Optimizer(BOX)
    for _ in range(6):
        params = optimizer.ask()
        optimizer.tell(params, bowl(params))

    def trace(frame, event, arg):
        if frame.f_code.co_name == "__exit__" and frame.f_code.co_filename.endswith("grad_mode.py"):
            sys.settrace(None)
            raise KeyboardInterrupt

    sys.settrace(trace)
    try:
        with pytest.raises(KeyboardInterrupt):
            optimizer.ask()
    finally:
        sys.settrace(None)
    assert torch.is_grad_enabled()


class Unspeakable(Exception):
    """An exception without text."""

    def __str__(self):
        raise self.raised("no text")


class Annotated(Exception):
    """An exception without notes."""

    @property
    def __notes__(self):
        raise self.raised("no notes")


@pytest.mark.parametrize("raised", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("error", [Unspeakable, Annotated])
def test_an_exception_that_cannot_be_shown_fails_its_trial(error, raised):
    def objective(x):
        broken = error()
        broken.raised = raised
        raise broken

    assert outcome_of(kbo.Threads(1), objective).failure.startswith(error.__name__)


def test_the_place_of_a_failure_is_in_the_callers_own_code_and_its_log_is_above_the_bar(capsys):
    def objective(x, trial):
        return json.loads("{") if trial.number else trial.report(1.0, step="first")

    with pytest.raises(kbo.TooManyFailures) as raised:
        kbo.minimize(objective, BOX, 2, progress=True)
    for trial in raised.value.trials:
        assert re.search(r"\(test_workers.py, line \d+\)$", trial.failure)
    lines = [line.rpartition("\r")[2] for line in capsys.readouterr().err.splitlines()]
    assert any(line.startswith("trial 1 failed: JSONDecodeError") for line in lines)


def test_progress_without_a_stream_for_it_is_not_shown(monkeypatch):
    closed = io.StringIO()
    closed.close()
    for stream in (None, closed):
        monkeypatch.setattr(sys, "stderr", stream)
        assert statuses(kbo.minimize(bowl, BOX, 2, progress=True)) == ["complete"] * 2


PROBLEM = "from helper_of_script import bounds\ndef objective(x): return x[0]\n"


@pytest.fixture
def script(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "helper_of_script.py").write_text("bounds = [(0.0, 1.0)]\n")
    yield tmp_path / "script_of_user.py"
    for name in ("script_of_user", "helper_of_script"):
        sys.modules.pop(name, None)


def test_modules_beside_a_script_or_in_the_current_folder_do_not_replace_others(
    script, monkeypatch
):
    folder = script.parent
    here = folder / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    script.write_text(PROBLEM)
    names = ("queue", "pickle", "kbo", "torch")
    for spy in (folder / "queue.py", *(here / f"{name}.py" for name in names)):
        spy.write_text("open(__file__ + '.imported', 'w').close()\n")
    options = ["-n", "2", "-j", "2", "--out", str(folder)]
    assert CliRunner().invoke(app, ["tune", str(script), *options]).exit_code == 0
    assert not list(folder.rglob("*.imported"))
    assert sys.path.index(str(folder)) > sys.path.index(sysconfig.get_path("stdlib"))


@pytest.mark.parametrize("name", ["random", "kbo", "torch"])
def test_a_script_with_the_name_of_a_module_that_kbo_needs_is_refused(name, script):
    script = script.with_stem(name)
    script.write_text(PROBLEM)
    words = rf"{name}\.py has the name of a module of .*: rename it"
    with pytest.raises(kbo.InvalidInput, match=words):
        load(str(script))
    assert getattr(sys.modules.get(name), "__file__", None) != str(script)


def test_a_script_is_loaded_again_from_another_folder(script):
    for folder in ("a", "b"):
        path = script.parent / folder / script.name
        path.parent.mkdir()
        path.write_text(f"bounds, folder = [], {folder!r}\ndef objective(x): return x[0]\n")
        load(str(path))
        assert sys.modules[script.stem].folder == folder


def test_a_client_that_leaves_a_live_page_is_no_news(capsys):
    def serving():
        return any("process_request" in thread.name for thread in threading.enumerate())

    with kbo.report.Live(quiet=True) as live:
        port = int(live.address.rstrip("/").rpartition(":")[2])
        client = socket.create_connection(("127.0.0.1", port))
        client.sendall(b"GET / HT")
        wait_until(serving)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()  # with a reset
        wait_until(lambda: not serving())
    assert capsys.readouterr().err == ""
