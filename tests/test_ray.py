"""Ray: sweeps and trials as its tasks, what a killed worker costs, how clusters let us in, and Ray Tune."""

import contextlib
import os
import re
import signal
import tempfile
import time
from pathlib import Path

import pandas as pd
import pytest

from tests import processes
from tests.commands import experiment

ray = pytest.importorskip("ray")
tune = pytest.importorskip("ray.tune")
pytest.importorskip("optuna")
pytestmark = pytest.mark.keeps(
    "file .*socket:|thread Dummy", "Ray opens connections, and runs callbacks in threads of its own"
)

from ray.tune.search.optuna import OptunaSearch  # noqa: E402

import kbo  # noqa: E402
from experiments.sweep.cells import Cell, read_rows  # noqa: E402
from experiments.sweep.runner import run_all, sweep  # noqa: E402
from kbo.errors import InvalidInput, KboError  # noqa: E402
from kbo.integrations.optuna import KBOSampler  # noqa: E402
from kbo.workers.ray import Ray, connected  # noqa: E402
from tests.chores import squares  # noqa: E402

CHORES = "tests.chores"
RUN = ["rkhs", "-m", "random", "-m", "dmm-ucb", "-T", "20", "-K", "2"]


def test_mistakes_are_explained(tmp_path):
    for arguments, message in {
        ("--engine", "spark"): "--engine must be processes or ray, got 'spark'",
        ("--address", "auto"): "add --engine ray",
        ("--engine", "ray", "--address", "ray://head:10001"): "must be HOST:PORT.*ray start",
        ("--engine", "ray", "--address", "head"): "must be HOST:PORT",
        ("--engine", "ray", "--address", "head:port"): "must be HOST:PORT",
    }.items():
        assert re.search(
            message, experiment("bandits", *RUN, *arguments, "-o", tmp_path, code=1).stderr
        )
    for wrong in (
        {"workers": 0},
        {"resources": {}},
        {"resources": {"cpu": -1}},
        {"resources": "cpu"},
    ):
        with pytest.raises(InvalidInput, match=next(iter(wrong))):
            Ray(**wrong)


def test_a_saved_search_of_tune_is_restored_with_its_sampler_and_its_failures(tmp_path):
    space = OptunaSearch.convert_search_space({"lr": tune.uniform(0.0, 1.0)})
    search = OptunaSearch(
        space, metric="loss", mode="max", sampler=KBOSampler(seed=1, n_startup_trials=3)
    )
    for i in range(5):
        config = search.suggest(str(i))
        if i == 3:
            search.on_trial_complete(str(i), error=True)
        else:
            search.on_trial_complete(
                str(i), {"loss": -((config["lr"] - 0.3) ** 2), "training_iteration": 1}
            )
    search.save(str(tmp_path / "search.pkl"))
    restored = OptunaSearch(space, metric="loss", mode="max")
    restored.restore(str(tmp_path / "search.pkl"))
    assert isinstance(restored._ot_study.sampler, KBOSampler)
    assert restored.suggest("next") == search.suggest("next")


@pytest.fixture(scope="module")
def session():
    """Ray on this machine, shared by all tests that take it."""
    with connected("local", 2):
        yield
    assert not ray.is_initialized()


def rows_that_stay():
    return [{"square": (x for x in range(3))}]


def when(_):
    start = time.monotonic()
    time.sleep(0.2)
    return start, time.monotonic()


@pytest.mark.thorough
def test_a_killed_worker_costs_a_retry_and_what_is_done_is_not_done_again(session, tmp_path):
    once = tmp_path / "once"
    cells = squares(6)
    cells.insert(3, Cell(f"{CHORES}:kill_the_worker", {"once": str(once)}, "deadly once"))
    found = sweep(cells, tmp_path / "ray", workers=Ray(), progress=False)
    assert once.exists()
    serial = sweep(cells, tmp_path / "serial", workers=1, progress=False)
    pd.testing.assert_frame_equal(found.rows, serial.rows)
    written = {path: path.stat().st_mtime_ns for path in (tmp_path / "ray").glob("*.parquet")}
    deadly = Cell(f"{CHORES}:kill_the_worker", {"once": None}, "deadly")
    staying = Cell(f"{__name__}:rows_that_stay", {}, "staying")
    more = [*cells, deadly, staying, *squares(1, shift=1)]
    again = sweep(more, tmp_path / "ray", workers=Ray(), progress=False)
    assert len(again.rows) == len(found.rows) + 2
    assert {path: path.stat().st_mtime_ns for path in written} == written
    texts = {failure.cell.label: failure.path.read_text() for failure in again.failures}
    assert set(texts) == {"deadly", "staying"}
    assert "died 3 times" in texts["deadly"]
    assert "cannot pickle" in texts["staying"]
    assert ray.is_initialized()  # a session that was there before is left open


@pytest.mark.thorough
def test_tasks_at_a_time_and_the_version_of_kbo(session, monkeypatch):
    times = {i: outcome.value for i, outcome in run_all(Ray(workers=1), range(3), when)}
    assert list(times) == [0, 1, 2]
    assert all(times[i][1] <= times[i + 1][0] for i in range(2))
    monkeypatch.setattr(kbo, "__version__", "0.0.1")
    with pytest.raises(KboError, match=r"this worker has kbo .*needs kbo 0\.0\.1"):
        list(run_all(Ray(), range(4), when))


@pytest.mark.thorough
def test_trials_run_on_ray_report_and_are_ended(session):
    def objective(x, trial):
        trial.report(x[0], step=0)
        assert not trial.should_stop()
        if trial.number == 1:
            os._exit(1)
        if trial.number == 2:
            time.sleep(6000)
        if trial.number == 3:
            raise KeyboardInterrupt
        if trial.number == 4 and (child := os.fork()):  # returns twice
            os.waitpid(child, 0)
        return (x[0] - 0.3) ** 2

    result = kbo.minimize(
        objective, [(0.0, 1.0)], 6, workers=Ray(resources={"cpu": 0.5}), timeout=30.0
    )
    failed = ["complete", "failed", "failed", "failed", "complete", "complete"]
    assert [trial.status for trial in result.trials] == failed
    assert result.trials[1].starts == 2
    assert "its worker of Ray died" in result.trials[1].failure
    assert result.trials[2].failure == "TimeoutError: no value after 30 s; its task was ended"
    assert result.trials[3].failure.startswith("KeyboardInterrupt")
    assert all(trial.reports == [(0, trial.params[0])] for trial in result.trials)


@pytest.mark.thorough
def test_loading_the_objective_has_a_limit_of_its_own_on_ray(session, monkeypatch):
    monkeypatch.setattr("kbo.workers.remote.LOADING", 1.0)

    class Hangs:
        def __call__(self, x):
            return 1.0

        def __reduce__(self):
            return time.sleep, (6000,)

    with Ray().session(Hangs(), 0.1, lambda number, value, step: False) as tasks:
        tasks.start(0, [])
        (outcome,) = tasks.wait()
    assert (
        outcome.failure
        == "TimeoutError: the objective was not loaded after 1 s; its task was ended"
    )


@pytest.mark.thorough
def test_a_sweep_on_ray_has_the_rows_of_one_here(session, tmp_path):
    assert (
        "dmm-ucb"
        in experiment("bandits", *RUN, "-q", "--engine", "ray", "-o", tmp_path / "ray").stdout
    )
    experiment("bandits", *RUN, "-q", "-j", "1", "-o", tmp_path / "here")
    there, here = (
        read_rows(next(path for path in (tmp_path / name).iterdir() if path.is_dir()))
        for name in ("ray", "here")
    )
    pd.testing.assert_frame_equal(
        there.drop(columns="cpu_seconds"), here.drop(columns="cpu_seconds")
    )


@pytest.fixture
def handlers():
    """Puts back the signal handlers that Ray Tune leaves."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGUSR1)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.thorough
def test_tune_runs_two_trials_at_once(session, tmp_path, handlers):
    def train(config):  # pickled by value: workers need not import what the tests do
        tune.report(
            {
                "loss": (config["lr"] - 0.3) ** 2
                + abs(config["width"] - 4) / 10
                + (config["act"] == "relu")
            }
        )

    sampler = KBOSampler(seed=0)
    search = OptunaSearch(metric="loss", mode="min", sampler=sampler)
    space = {
        "lr": tune.uniform(0.0, 1.0),
        "width": tune.randint(1, 9),
        "act": tune.choice(["relu", "tanh"]),
        "k": 3,
    }
    config = tune.TuneConfig(
        search_alg=search, num_samples=12, max_concurrent_trials=2, reuse_actors=True
    )
    run = tune.RunConfig(storage_path=str(tmp_path), verbose=0)
    results = tune.Tuner(train, param_space=space, tune_config=config, run_config=run).fit()
    assert results.num_errors == 0
    assert all(0 <= r.config["lr"] <= 1 and r.config["width"] in range(1, 9) for r in results)
    best = results.get_best_result("loss", "min")
    assert best.metrics["loss"] < 0.2
    lower, _, upper = sampler.interval(search._ot_study, best.config)
    assert lower <= upper


@contextlib.contextmanager
def head(folder):
    """The address of a cluster of one node that asks for a token, and the environment that has it."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment |= {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": "0123456789abcdef" * 4,
        "OMP_NUM_THREADS": "1",
    }
    start = [
        "-m",
        "ray.scripts.scripts",
        "start",
        "--head",
        "--block",
        "--node-ip-address=127.0.0.1",
        "--port=0",
    ]
    start += [
        "--num-cpus=2",
        "--include-dashboard=false",
        "--disable-usage-stats",
        f"--temp-dir={folder}",
    ]
    log = Path(folder, "log")
    with (
        open(log, "wb") as out,
        processes.started(
            *start, env=environment, stdout=out, stderr=out, start_new_session=True
        ) as process,
    ):
        try:
            processes.wait_until(
                lambda: process.poll() is not None or "Ray runtime started" in log.read_text(),
                log.read_text,
            )
            yield re.search(r"--address='([^']+)'", log.read_text())[1], environment
            process.terminate()
            process.wait(processes.PATIENCE)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.thorough
def test_a_cluster_that_asks_for_a_token(tmp_path):
    script = f"""
import socket, sys
from kbo.errors import InvalidInput
from experiments.sweep.cells import Cell
from experiments.sweep.runner import sweep
from kbo.workers.ray import Ray
from {CHORES} import squares
import ray

folder, address = sys.argv[1:]
with socket.socket() as nobody_listens:
    nobody_listens.bind(("127.0.0.1", 0))
    try:
        sweep(squares(1), folder + "/elsewhere", workers=Ray("127.0.0.1:%d" % nobody_listens.getsockname()[1]))
    except InvalidInput as error:
        assert "no answer" in str(error), error
found = sweep(squares(2), folder, workers=Ray(address), progress=False)
assert found.rows["square"].tolist() == [0, 0, 1, 1]
assert not ray.is_initialized()
hangs = Cell("{CHORES}:sleep", {{"seconds": 6000}}, "hangs")
sweep([*squares(4), hangs, *squares(9)], folder, workers=Ray(address, workers=1), progress=False)
"""
    root = Path(__file__).parent.parent
    # paths of sockets are short
    with (
        tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder,
        head(folder) as found,
    ):
        address, environment = found
        with processes.started(
            "-c", script, tmp_path, address, cwd=root, env=environment, stderr=-1
        ) as process:
            processes.wait_until(
                lambda: process.poll() is not None or len(list(tmp_path.glob("*.parquet"))) == 4
            )
            process.send_signal(signal.SIGINT)
            stderr = process.communicate(timeout=processes.PATIENCE)[1]
        assert stderr.strip().endswith("KeyboardInterrupt"), stderr
        assert len(list(tmp_path.glob("*.parquet"))) == 4
        without = {
            name: value for name, value in environment.items() if not name.startswith("RAY_")
        }
        arguments = [
            "-m",
            "experiments.bandits",
            *RUN,
            "--engine",
            "ray",
            "--address",
            address,
            "-o",
            tmp_path,
        ]
        refused = processes.python(*arguments, cwd=root, env=without, check=False)
    assert refused.returncode == 1
    assert "Traceback" not in refused.stderr
    assert "set RAY_AUTH_MODE=token" in refused.stderr.splitlines()[-1]
