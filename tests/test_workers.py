"""Parallel trials: engines, limits of time, deaths of workers, interrupts."""

import contextlib
import json
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import cloudpickle
import pytest
import torch

import kbo
from kbo.workers.call import Outcome
from kbo.workers.choice import engine_of
from kbo.workers.engine import Engine, Session
from kbo.workers.here import Here

BOX = [(0.0, 1.0)] * 2
ENGINES = [Here(), kbo.Threads(2), kbo.Processes(2)]


def bowl(x):
    return (x[0] - 0.3) ** 2 + (x[1] - 0.6) ** 2


def names(result):
    return [trial.status for trial in result.trials]


@pytest.mark.parametrize("engine", ENGINES, ids=repr)
def test_an_engine_evaluates_reports_and_stops(engine):
    def objective(x, trial):
        for step in range(5):
            trial.report(step, x[0] + step)
            if trial.should_stop():
                raise AssertionError("nobody prunes")
        if trial.number == 2:
            raise ValueError("no value here")
        return bowl(x)

    result = kbo.minimize(objective, BOX, 8, workers=engine)
    assert names(result) == ["complete"] * 2 + ["failed"] + ["complete"] * 5
    assert "ValueError: no value here (test_workers.py" in result.trials[2].failure
    for trial in result.trials:
        assert trial.reports == [(step, trial.params[0] + step) for step in range(5)]
        assert trial.value in (None, bowl(trial.params))


@pytest.mark.parametrize("engine", [Here(), kbo.Threads(1), kbo.Processes(1)], ids=repr)
def test_a_thread_that_reports_after_its_trial_is_refused(engine, tmp_path):
    def objective(x, trial):
        def late():
            while not (tmp_path / "next").exists():
                time.sleep(0.01)
            try:
                trial.report(7, 123.0)
            except kbo.InvalidInput as error:
                (tmp_path / "refused").write_text(str(error))

        if trial.number == 0:
            threading.Thread(target=late).start()
        if trial.number == 1:
            (tmp_path / "next").touch()
            while not (tmp_path / "refused").exists():
                time.sleep(0.01)
            trial.report(0, x[0])
            trial.should_stop()
        return bowl(x)

    result = kbo.minimize(objective, BOX, 3, workers=engine)
    assert names(result) == ["complete"] * 3
    assert [trial.starts for trial in result.trials] == [1] * 3
    assert [len(trial.reports) for trial in result.trials] == [0, 1, 0]
    assert (tmp_path / "refused").read_text().startswith("trial 0 has ended")


def test_one_worker_gives_the_points_of_this_process():
    here, there = (kbo.minimize(bowl, BOX, 10, workers=w) for w in (1, kbo.Processes(1)))
    assert [trial.params for trial in here.trials] == [trial.params for trial in there.trials]
    assert engine_of(1) == engine_of(None) == Here()
    assert engine_of(None, timeout=1.0) == kbo.Processes(1)


def test_the_same_order_of_completions_gives_the_same_points(tmp_path):
    def late(x):  # the first trial ends when the second has
        waited = tmp_path / f"{x[0]:.6f}"
        waited.touch()
        while len(list(tmp_path.iterdir())) == 1:
            time.sleep(0.01)
        return bowl(x)

    runs = [kbo.minimize(late, BOX, 6, workers=2) for _ in range(2)]
    assert [t.params for t in runs[0].trials[:2]] == [t.params for t in runs[1].trials[:2]]
    assert len({tuple(t.params) for t in runs[0].trials}) == 6


def test_a_free_worker_gets_a_point_at_once(tmp_path):
    def objective(x, trial):
        (tmp_path / str(trial.number)).touch()
        while trial.number == 0 and not (tmp_path / "4").exists():  # the other worker has had three trials
            time.sleep(0.01)
        return bowl(x)

    assert names(kbo.minimize(objective, BOX, 6, workers=2, timeout=100.0)) == ["complete"] * 6


def test_a_hanging_trial_is_ended_with_what_it_started(tmp_path):
    def objective(x):
        if x[0] == 0.5:  # the first point is the centre
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            (tmp_path / "pid").write_text(str(child.pid))
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            pow(3, 10**9)  # compiled code that holds the interpreter's lock
        return bowl(x)

    start = time.monotonic()
    result = kbo.minimize(objective, BOX, 4, timeout=5.0)
    assert time.monotonic() - start < 300
    assert names(result) == ["failed"] + ["complete"] * 3
    assert result.trials[0].failure == "TimeoutError: no value after 5 s; its process was ended"
    assert not running(int((tmp_path / "pid").read_text()))


def running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")  # a dead child that nobody has waited for still has a number
    return not state.exists() or state.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.parametrize(
    ("death", "reason"),
    [
        (lambda: os._exit(3), "ended itself with exit code 3"),
        (lambda: os.kill(os.getpid(), signal.SIGSEGV), "ended by SIGSEGV"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "ended by SIGKILL, perhaps because memory ran out"),
    ],
    ids=["exit", "segfault", "kill"],
)
def test_a_trial_whose_worker_dies_is_started_once_more(death, reason, tmp_path, caplog):
    def objective(x):
        if x[0] == 0.5:
            (tmp_path / str(os.getpid())).touch()
            death()
        return bowl(x)

    result = kbo.minimize(objective, BOX, 4, workers=kbo.Processes(2), journal=tmp_path / "run.jsonl")
    assert sorted(names(result)) == ["complete"] * 3 + ["failed"]
    assert result.trials[0].starts == 2
    assert len(list(tmp_path.glob("[0-9]*"))) == 2
    assert re.search(f"{reason}.*; the trial was started 2 times", result.trials[0].failure)
    assert re.search(f"trial 0 is started again: .*{reason}", caplog.text)
    assert f"trial 0 failed: {result.trials[0].failure}" in caplog.text


def test_the_place_of_a_failure_is_in_the_callers_own_code():
    def objective(x, trial):
        return json.loads("{") if trial.number else trial.report("first", 1.0)

    with pytest.raises(kbo.TooManyFailures) as raised:
        kbo.minimize(objective, BOX, 2)
    for trial in raised.value.trials:
        assert re.search(r"\(test_workers.py, line \d+\)$", trial.failure)


def test_lines_of_the_log_are_above_the_bar(capsys):
    kbo.minimize(lambda x: 1 / 0 if x[0] == 0.5 else x[0], [(0.0, 1.0)], 3, progress=True)
    lines = [line.rpartition("\r")[2] for line in capsys.readouterr().err.splitlines()]
    assert any(line.startswith("trial 0 failed: ZeroDivisionError") for line in lines)


def test_a_worker_that_is_killed_while_it_is_idle_costs_no_trial():
    with kbo.Processes(1).session(lambda x: os.getpid(), None, lambda number, step, value: False) as session:
        session.start(0, [])
        (before,) = session.wait()
        os.kill(before.value, signal.SIGKILL)
        os.waitid(os.P_PID, before.value, os.WEXITED | os.WNOWAIT)  # until its last thread has ended
        session.start(1, [])
        (after,) = session.wait()
    assert after.failure is None
    assert after.value != before.value


class Together(Engine, Session):
    """Two calls that end at the same moment."""

    capacity, running = 2, {}

    @contextlib.contextmanager
    def session(self, function, timeout, on_report):
        self.function, self.running = function, {}
        yield self

    def start(self, number, params):
        self.running[number] = params

    def wait(self, seconds=None):
        ended, self.running = self.running, {}
        return [Outcome(number, self.function(params)) for number, params in ended.items()]


def test_values_that_arrive_together_are_kept_if_the_run_is_interrupted_after_the_first():
    def interrupt(trial, result):
        raise KeyboardInterrupt

    result = kbo.minimize(bowl, BOX, 4, workers=Together(), on_trial=interrupt)
    assert result.stopped.startswith("interrupted")
    assert names(result) == ["complete"] * 2


class Unreadable:
    def __reduce__(self):
        return int, ("no number",)


def test_params_that_a_worker_cannot_read_end_it():
    with kbo.Processes(1).session(bowl, None, lambda number, step, value: False) as session:
        session.start(0, Unreadable())
        (outcome,) = session.wait(60.0)
    assert outcome.died


def test_a_worker_may_be_replaced_after_each_trial():
    result = kbo.minimize(lambda x: float(os.getpid()), BOX, 4, workers=kbo.Processes(1, trials_each=1))
    assert len({trial.value for trial in result.trials}) == 4


def test_the_time_budget_counts_all_calls(tmp_path):
    def objective(x):
        time.sleep(0.4)
        return bowl(x)

    run = {"time_budget": 1.0, "workers": kbo.Processes(2), "journal": tmp_path / "run.jsonl"}
    first = kbo.minimize(objective, BOX, **run)
    assert first.stopped == "the time budget of 1 s is used"
    assert names(first) == ["complete"] * len(first.trials)
    again = kbo.minimize(objective, BOX, **run)
    assert [trial.params for trial in again.trials] == [trial.params for trial in first.trials]
    with pytest.raises(kbo.InvalidInput, match="n_trials, time_budget"):
        kbo.minimize(objective, BOX)


@pytest.mark.parametrize("engine", [Here(), kbo.Processes(2)], ids=repr)
def test_trials_that_are_ended_with_the_run_were_not_lost(engine, tmp_path):
    run = {"workers": engine, "journal": tmp_path / "run.jsonl"}
    for call in (1, 2, 3):
        ended = kbo.minimize(lambda x: time.sleep(600), BOX, time_budget=2.0 * call, end_running=True, **run)
        assert names(ended) == ["pending"] * len(ended.trials)
        assert {(trial.starts, trial.released) for trial in ended.trials} == {(call, call)}
    more = kbo.minimize(bowl, BOX, 4, **run)
    assert names(more) == ["complete"] * 4


def test_on_trial_ends_a_run_by_its_answer_or_an_exception():
    def stop(trial, result):
        assert result.trials[trial.number] == trial
        if trial.number == 2:
            raise kbo.Stop("good enough")

    assert kbo.minimize(bowl, BOX, 9, on_trial=stop).stopped == "stopped by on_trial: good enough"
    early = kbo.minimize(bowl, BOX, 9, on_trial=lambda trial, result: trial.number == 3)
    assert (early.stopped, len(early.trials)) == ("stopped by on_trial", 4)


def test_what_an_engine_cannot_do_is_said_before_the_first_trial():
    lock = threading.Lock()
    with pytest.raises(kbo.InvalidInput, match=r"cannot be sent to worker processes .*workers=1"):
        kbo.minimize(lambda x: lock.acquire(), BOX, 4, workers=2)
    with pytest.raises(kbo.InvalidInput, match="timeout cannot end threads"):
        kbo.minimize(bowl, BOX, 4, workers=kbo.Threads(2), timeout=1.0)
    with pytest.raises(kbo.InvalidInput, match=r"write Processes\(\.\.\.\)"):
        kbo.minimize(bowl, BOX, 4, workers=kbo.Processes)


SCRIPT = """
import os, sys, time
import kbo

def objective(x):
    open(sys.argv[2] + str(os.getpid()), "w").close()
    time.sleep(0.2)
    return (x[0] - 0.3) ** 2

print(kbo.minimize(objective, [(0.0, 1.0)], int(sys.argv[3]), workers=2, journal=sys.argv[1]))
"""


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_script_leaves_no_process_and_goes_on(sent, tmp_path):
    script = tmp_path / "script.py"  # without if __name__ == "__main__"
    script.write_text(SCRIPT)
    command = [sys.executable, script, tmp_path / "run.jsonl", f"{tmp_path}/pid-"]
    process = subprocess.Popen([*command, "200"], stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while (done := lines(tmp_path / "run.jsonl").count("tell")) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(sent)
    output = process.communicate(timeout=120)[0]
    workers = [int(path.name[4:]) for path in tmp_path.glob("pid-*")]
    deadline = time.monotonic() + 120
    while any(map(running, workers)):
        assert time.monotonic() < deadline, "an orphan"
        time.sleep(0.05)
    if sent == signal.SIGINT:
        assert "interrupted" in output
        assert lines(tmp_path / "run.jsonl").count("release") in (1, 2)
    finished = subprocess.run([*command, str(done + 4)], capture_output=True, text=True, check=True)
    assert f"{done + 4} trials; the budget" in finished.stdout
    assert lines(tmp_path / "run.jsonl").count("tell") == done + 4


BUSY = """
import subprocess, sys
import kbo

def objective(x):
    print(subprocess.Popen(["sleep", "600"], stdout=subprocess.DEVNULL).pid, flush=True)
    pow(3, 10**9)  # compiled code that holds the interpreter's lock

kbo.minimize(objective, [(0.0, 1.0)], 1, workers=kbo.Processes(1))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a worker must reach Python code to end what it started")
def test_what_a_busy_worker_started_ends_with_a_killed_run():
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE, text=True) as process:
        child = int(process.stdout.readline())
        group = os.getpgid(child)
        process.kill()
    deadline = time.monotonic() + 120
    try:
        while running(child):
            assert time.monotonic() < deadline, "an orphan"
            time.sleep(0.05)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


def lines(path):
    return [json.loads(line).get("event") for line in path.read_text().splitlines() if line] if path.exists() else []


def test_copies_of_a_problem_draw_noise_of_their_own_unless_it_has_a_seed():
    for make in (kbo.problems.branin, kbo.problems.GridBandit, kbo.problems.DigitsMLP):
        for seed, different in ((None, 2), (3, 1)):
            problem = make(seed=seed)
            copies = [pickle.loads(cloudpickle.dumps(problem)) for _ in range(2)]
            params = problem.space.params(torch.full((problem.space.dimension,), 0.5))
            if make is kbo.problems.DigitsMLP:
                assert len({copy._draw() for copy in copies}) == different
            else:
                assert len({copy(params) for copy in copies}) == different


@pytest.mark.parametrize("engine", ENGINES, ids=repr)
def test_an_error_of_the_pruner_ends_the_run_and_not_the_trial(engine):
    class Broken:
        def should_stop(self, trial, trials, maximize):
            raise ZeroDivisionError("of the pruner")

    def objective(x, trial):
        for step in range(3 if trial.number else 4):
            trial.report(step, x[0])
            trial.should_stop()
        return bowl(x)

    with pytest.raises(ZeroDivisionError, match="of the pruner"):
        kbo.minimize(objective, BOX, 8, workers=engine, pruner=Broken())
