"""Parallel trials: engines, limits of time, deaths of workers, interrupts, and what objectives leave behind."""

import atexit
import contextlib
import importlib
import itertools
import json
import os
import re
import signal
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
from kbo.cli.app import app
from kbo.cli.script import load
from kbo.workers import processes, remote
from kbo.workers.call import CallOutcome, Engine, Session
from kbo.workers.in_process import InProcess
from kbo.workers.processes import engine_of
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


def outcome_of(engine, objective, timeout=None, params=()):
    """Return the outcome of one call."""
    with engine.session(objective, timeout, go_on) as session:
        session.start(0, params)
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
    for module in ("kbo.optimize.loop.loop", "kbo.optimize.run.run", "kbo.workers.remote"):
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
    here, there = (kbo.minimize(bowl, BOX, 7, workers=w) for w in (1, kbo.Processes(1)))
    assert [trial.params for trial in here.trials] == [trial.params for trial in there.trials]
    assert engine_of(None) == InProcess()
    assert engine_of(None, timeout=1.0) == kbo.Processes(1)


class Together(Engine, Session):
    """Two calls at a time, which end at the same moment."""

    capacity = 2

    @contextlib.contextmanager
    def session(self, function, timeout, on_report):
        self.function, self.running = function, {}
        yield self

    def start(self, number, params):
        self.running[number] = params

    def wait(self, seconds=None):
        numbers = list(self.running)
        return [CallOutcome(number, self.function(self.running.pop(number))) for number in numbers]


def test_values_that_arrive_together_are_kept_if_the_run_is_interrupted_after_the_first():
    def interrupt(trial, result):
        raise KeyboardInterrupt

    result = kbo.minimize(bowl, BOX, 4, workers=Together(), on_trial=interrupt)
    assert result.stopped.startswith("interrupted")
    assert statuses(result) == ["complete"] * 2


def test_what_an_engine_cannot_do_is_said_before_the_first_trial():
    lock = threading.Lock()
    for options, says in (
        ({"workers": 2}, r"cannot be sent to worker processes .*workers=1"),
        ({"workers": kbo.Threads(2), "timeout": 1.0}, "timeout cannot end threads"),
        ({"workers": kbo.Processes}, r"write Processes\(\.\.\.\)"),
    ):
        with pytest.raises(kbo.InvalidInput, match=says):
            kbo.minimize(lambda x: lock.acquire(), BOX, 4, **options)


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


def test_trials_that_are_ended_with_the_run_were_not_lost(tmp_path, monkeypatch):
    # It stands still: a slow machine does not use up the time before a trial begins.
    for module in ("kbo.optimize.loop.loop", "kbo.optimize.run.run"):
        monkeypatch.setattr(importlib.import_module(module), "time", Clock())
    for n_workers, engine in ((1, InProcess()), (2, kbo.Processes(2))):
        options = {"workers": engine, "journal": tmp_path / f"{n_workers}.jsonl"}
        ending = {"time_budget": 0.2, "end_running": True}
        for call in (1, 2):
            ended = kbo.minimize(lambda x: time.sleep(600), BOX, **ending, **options)
            counts = [(trial.status, trial.starts, trial.released) for trial in ended.trials]
            assert counts == [("pending", call, call)] * n_workers
        assert statuses(kbo.minimize(bowl, BOX, 2, **options)) == ["complete"] * 2


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


def test_what_happened_in_time_counts_when_it_is_read_late(clock):
    def pass_time(*_):
        wait_until(session.running[0].connection.poll)  # it has come
        clock.now += 2 * PATIENCE
        return False

    def objective(x, trial):
        trial.report(0.0, step=0)
        return 7.0

    with kbo.Processes(1).session(objective, 1.0, pass_time) as session:
        session.start(0, ())
        pass_time()
        (outcome,) = session.wait(PATIENCE)
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

    result = kbo.minimize(objective, BOX, 3, workers=kbo.Processes(2))
    assert statuses(result) == ["failed"] * 2 + ["complete"]
    reasons = "ended itself with exit code 3", "ended by SIGKILL, perhaps because memory ran out"
    for trial, reason in zip(result.trials, reasons, strict=False):
        assert len(list(tmp_path.glob(f"{trial.number} *"))) == trial.starts == 2
        assert re.search(f"{reason}.*; the trial was started 2 times", trial.failure)
        assert re.search(f"trial {trial.number} is started again: .*{reason}", caplog.text)


def test_a_worker_that_is_killed_while_it_is_idle_costs_no_trial():
    with kbo.Processes(1).session(lambda x: os.getpid(), None, go_on) as session:
        session.start(0, [])
        (first,) = session.wait(PATIENCE)
        (worker,) = session._idle
        # Stopped first, so that it cannot begin the next trial.
        os.kill(first.value, signal.SIGSTOP)
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
    result = kbo.minimize(lambda x: float(os.getpid()), BOX, 2, workers=engine)
    assert len({trial.value for trial in result.trials}) == 2


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


def test_a_script_that_is_killed_leaves_no_process_of_busy_workers_and_goes_on(tmp_path):
    script, journal = tmp_path / "script.py", tmp_path / "run.jsonl"
    script.write_text(SCRIPT)  # without if __name__ == "__main__"
    with started(script, journal, stdin=subprocess.PIPE) as process:
        pairs = [tuple(map(int, process.stdout.readline().split())) for _ in range(2)]
        try:
            process.kill()
            process.wait(PATIENCE)
            wait_until(lambda: not any(map(runs, itertools.chain(*pairs))), lambda: pairs)
        finally:
            for worker, _ in pairs:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(worker, signal.SIGKILL)
    before = [json.loads(line).get("event") for line in journal.read_text().splitlines()]
    assert [before.count(event) for event in ("ask", "tell")] == [5, 3]
    result = kbo.minimize(lambda x: x[0], [(0.0, 1.0)], 6, journal=journal)
    assert [trial.starts for trial in result.trials] == [1, 1, 1, 2, 2, 1]
    for trial in result.trials[:3]:
        assert trial.value == (trial.params[0] - 0.3) ** 2
    assert statuses(result) == ["complete"] * 6


# What objectives leave behind, import and raise

SETTINGS = [
    (torch.is_grad_enabled, lambda: torch.set_grad_enabled(False)),
    (torch.get_default_dtype, lambda: torch.set_default_dtype(torch.float16)),
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
        if number == 3:
            raise KeyboardInterrupt
        return 1 / 0 if number == 1 else bowl(x)

    result = kbo.minimize(objective, BOX, 5, on_trial=lambda *_: after.append(settings()))
    assert statuses(result) == ["complete", "failed", "complete", "pending"]
    assert all(found == before for found in [*after, settings()])


class Unspeakable(Exception):
    """An exception without text and without notes."""

    def __str__(self):
        raise self.raised("no text")

    @property
    def __notes__(self):
        raise self.raised("no notes")


@pytest.mark.parametrize("raised", [ValueError, KeyboardInterrupt])
def test_an_exception_that_cannot_be_shown_fails_its_trial(raised):
    def objective(x):
        broken = Unspeakable()
        broken.raised = raised
        raise broken

    assert outcome_of(kbo.Threads(1), objective).failure.startswith("Unspeakable")


def test_scripts_and_modules_beside_them_do_not_replace_others(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    code = "bounds = [(0.0, 1.0)]\ndef objective(x): return x[0]\n"
    script = tmp_path / "script_of_user.py"
    script.write_text(code)
    for name in ("queue.py", "here/queue.py", "here/kbo.py", "here/torch.py"):
        (tmp_path / name).write_text("open(__file__ + '.imported', 'w').close()\n")
    options = ["-n", "2", "-j", "2", "--out", str(tmp_path)]
    assert CliRunner().invoke(app, ["tune", str(script), *options]).exit_code == 0
    sys.modules.pop("script_of_user")
    assert not list(tmp_path.rglob("*.imported"))
    assert sys.path.index(str(tmp_path)) > sys.path.index(sysconfig.get_path("stdlib"))
    (tmp_path / "torch.py").write_text(code)
    with pytest.raises(kbo.InvalidInput, match=r"torch\.py has the name of a module of .*: rename"):
        load(str(tmp_path / "torch.py"))
