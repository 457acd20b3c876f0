"""Sweeps on Ray: what a killed worker costs, what comes back, and how clusters let us in."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd
import pytest

from tests.commands import CliRunner

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.keeps(
    "file .*socket:|thread Dummy", "Ray opens connections, and runs callbacks in threads of its own"
)

import kbo  # noqa: E402
from kbo.cli import app  # noqa: E402
from kbo.errors import InvalidInput, KboError  # noqa: E402
from kbo.experiments.sweep.cells import Cell, read_rows  # noqa: E402
from kbo.experiments.sweep.runner import run_all, sweep  # noqa: E402
from kbo.workers.ray import Ray, connected  # noqa: E402
from tests.chores import squares  # noqa: E402

CHORES = "tests.chores"
TOKEN = "0123456789abcdef" * 4
RUN = ["run", "rkhs", "-m", "random", "-m", "dmm-ucb", "-T", "20", "-K", "2"]


def rows_that_stay():
    return [{"square": (x for x in range(3))}]


def when(_):
    start = time.monotonic()
    time.sleep(0.2)
    return start, time.monotonic()


@pytest.fixture(scope="module")
def session():
    """Ray on this machine, shared by all sweeps of this module."""
    with connected("local", 2):
        yield
    assert not ray.is_initialized()


def run(*arguments, code=0):
    done = CliRunner().invoke(app, list(map(str, arguments)))
    assert done.exit_code == code, done.output
    return done


def test_a_killed_worker_costs_a_retry_and_what_is_done_is_not_done_again(session, tmp_path):
    once = tmp_path / "once"
    cells = squares(47)
    cells.insert(24, Cell(f"{CHORES}:kill_the_worker", {"once": str(once)}, "deadly once"))
    found = sweep(cells, tmp_path / "ray", workers=Ray(), progress=False)
    assert once.exists()
    assert found.checked("fine") == "fine"
    serial = sweep(cells, tmp_path / "serial", workers=1, progress=False)
    pd.testing.assert_frame_equal(found.rows, serial.rows)
    written = {path: path.stat().st_mtime_ns for path in (tmp_path / "ray").glob("*.parquet")}
    again = sweep([*cells, *squares(1, shift=1)], tmp_path / "ray", workers=Ray(), progress=False)
    assert len(again.rows) == len(found.rows) + 2
    assert {path: path.stat().st_mtime_ns for path in written} == written
    assert ray.is_initialized()  # a session that was there before is left open


def test_failures_cost_only_themselves(session, tmp_path):
    deadly = Cell(f"{CHORES}:kill_the_worker", {"once": None}, "deadly")
    failing = Cell(f"{CHORES}:fail", {"x": 3}, "failing")
    staying = Cell(f"{__name__}:rows_that_stay", {}, "staying")
    no_rows = Cell("builtins:dict", {"a": 1}, "no rows")
    found = sweep([deadly, failing, staying, no_rows, *squares(4)], tmp_path, workers=Ray(), progress=False)
    assert sorted(found.rows["square"].tolist()) == [0, 0, 1, 1, 4, 4, 9, 9]
    texts = {failure.cell.label: failure.path.read_text() for failure in found.failures}
    assert set(texts) == {"deadly", "failing", "staying", "no rows"}
    assert "died 3 times" in texts["deadly"]
    assert "Traceback" in texts["failing"]
    assert "cannot do 3" in texts["failing"]
    assert "cannot pickle" in texts["staying"]
    assert "list of dictionaries" in texts["no rows"]


def test_workers_limits_the_tasks_at_a_time(session):
    times = {i: outcome.value for i, outcome in run_all(Ray(workers=1), range(4), when)}
    assert list(times) == [0, 1, 2, 3]
    assert all(times[i][1] <= times[i + 1][0] for i in range(3))


def test_trials_run_on_ray_report_and_are_ended(session):
    def objective(x, trial):
        trial.report(0, x[0])
        assert not trial.should_stop()
        if trial.number == 1:
            os._exit(1)
        if trial.number == 2:
            time.sleep(600)
        return (x[0] - 0.3) ** 2

    workers = Ray(resources={"cpu": 0.5})
    result = kbo.minimize(objective, [(0.0, 1.0)], 6, workers=workers, timeout=30.0)
    assert [trial.status for trial in result.trials] == ["complete", "failed", "failed", *["complete"] * 3]
    assert result.trials[1].starts == 2
    assert "its worker of Ray died" in result.trials[1].failure
    assert result.trials[2].failure == "TimeoutError: no value after 30 s; its task was ended"
    assert all(trial.reports == [(0, trial.params[0])] for trial in result.trials)
    for wrong in ({}, {"cpu": -1}, "cpu"):
        with pytest.raises(InvalidInput, match="resources"):
            Ray(resources=wrong)


def test_whatever_an_objective_raises_and_however_often_it_returns_a_trial_has_one_outcome(session):
    class Loads:
        def __call__(self, x, trial):
            if trial.number == 1:
                raise KeyboardInterrupt
            if trial.number == 2 and (child := os.fork()):
                os.waitpid(child, 0)
            return x[0]

        def __reduce__(self):
            return late, ()

    def late():
        time.sleep(3.0)  # which does not count in the time of a trial
        return Loads()

    result = kbo.minimize(Loads(), [(0.0, 1.0)], 4, workers=Ray(), timeout=2.0)
    assert [trial.status for trial in result.trials] == ["complete", "failed", "complete", "complete"]
    assert result.trials[1].failure.startswith("KeyboardInterrupt")


def test_a_limit_of_time_covers_the_loading_of_the_objective_on_ray(session, monkeypatch):
    monkeypatch.setattr("kbo.workers.ray.LOADING", 1.0)

    class Hangs:
        def __call__(self, x):
            return 1.0

        def __reduce__(self):
            return time.sleep, (600,)

    with Ray().session(Hangs(), 0.1, lambda number, step, value: False) as tasks:
        tasks.start(0, [])
        (outcome,) = tasks.wait(60.0)
    assert outcome.failure == "TimeoutError: the objective was not loaded after 1 s; its task was ended"


def test_a_worker_with_another_kbo_stops_the_sweep(session, monkeypatch):
    monkeypatch.setattr(kbo, "__version__", "0.0.1")
    with pytest.raises(KboError, match=r"this worker has kbo .*needs kbo 0\.0\.1"):
        list(run_all(Ray(), range(4), when))


def test_run_and_reproduce_work_on_ray(session, tmp_path):
    assert "dmm-ucb" in run(*RUN, "-q", "--engine", "ray", "-o", tmp_path / "ray").stdout
    run(*RUN, "-q", "-j", "1", "-o", tmp_path / "here")
    there, here = (
        read_rows(next(path for path in (tmp_path / name).iterdir() if path.is_dir())) for name in ("ray", "here")
    )
    pd.testing.assert_frame_equal(there.drop(columns="cpu_seconds"), here.drop(columns="cpu_seconds"))
    table = run("reproduce", "mixture", "--table", "1", "--quick", "-q", "--engine", "ray", "-o", tmp_path).stdout
    assert "130 ± 46" in table


def test_mistakes_are_explained(tmp_path):
    for arguments, message in {
        ("--engine", "spark"): "--engine must be processes or ray, got 'spark'",
        ("--address", "auto"): "add --engine ray",
        ("--engine", "ray", "--address", "ray://head:10001"): "must be HOST:PORT.*ray start",
        ("--engine", "ray", "--address", "head"): "must be HOST:PORT",
        ("--engine", "ray", "--address", "head:port"): "must be HOST:PORT",
    }.items():
        with pytest.raises(InvalidInput, match=message):
            raise run(*RUN, *arguments, "-o", tmp_path, code=1).exception
    with pytest.raises(InvalidInput, match="workers must be a whole number"):
        Ray(workers=0)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def head():
    """The address of a cluster of one node that asks for a token, and the environment that has it."""
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:  # paths of sockets are short
        yield from head_in(folder)


def head_in(folder):
    address = f"127.0.0.1:{free_port()}"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", f"--port={address[10:]}"]
    log = Path(folder) / "log"
    with open(log, "wb") as stdout:
        process = subprocess.Popen(
            [*command, "--num-cpus=2", "--include-dashboard=false", "--disable-usage-stats", f"--temp-dir={folder}"],
            env={**environment, "SECONDS_OF_A_CHORE": "0.5"},
            stdout=stdout,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    deadline = time.monotonic() + 300
    while "Ray runtime started" not in log.read_text():
        assert time.monotonic() < deadline, log.read_text()
        assert process.poll() is None, log.read_text()
        time.sleep(0.1)
    yield address, environment
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(120)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def test_a_cluster_that_asks_for_a_token(head, tmp_path):
    address, environment = head
    script = f"""
import sys
from kbo.errors import InvalidInput
from kbo.experiments.sweep.runner import sweep
from kbo.workers.ray import Ray
from {CHORES} import squares
import ray

try:
    sweep(squares(1), {str(tmp_path / "elsewhere")!r}, workers=Ray("127.0.0.1:{free_port()}"))
except InvalidInput as error:
    assert "no answer" in str(error), error
found = sweep(squares(2), {str(tmp_path)!r}, workers=Ray("{address}"), progress=False)
assert found.rows["square"].tolist() == [0, 0, 1, 1]
assert not ray.is_initialized()
print("now", flush=True)
sweep(squares(30), {str(tmp_path)!r}, workers=Ray("{address}"), progress=False)
"""
    root = Path(__file__).parent.parent
    process = subprocess.Popen(
        [sys.executable, "-c", script], cwd=root, env=environment, stdout=-1, stderr=-1, text=True
    )
    assert process.stdout.readline() == "now\n", process.communicate()[1]
    deadline = time.monotonic() + 300
    while len(list(tmp_path.glob("*.parquet"))) < 4 and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    stderr = process.communicate(timeout=120)[1]
    assert stderr.strip().endswith("KeyboardInterrupt"), stderr
    assert 4 <= len(list(tmp_path.glob("*.parquet"))) < 30
    without = {name: value for name, value in environment.items() if not name.startswith("RAY_")}
    refused = subprocess.run(
        [sys.executable, "-m", "kbo", *RUN, "--engine", "ray", "--address", address],
        cwd=tmp_path,
        env=without,
        capture_output=True,
        text=True,
    )
    assert refused.returncode == 1
    assert "Traceback" not in refused.stderr
    assert "set RAY_AUTH_MODE=token" in refused.stderr.splitlines()[-1]
