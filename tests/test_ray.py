"""Ray: sweeps and trials as its tasks, what a killed worker costs, and searches of Ray Tune."""

import os
import re
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
    }.items():
        failed = experiment("bandits", *RUN, *arguments, "-o", tmp_path, code=1)
        assert re.search(message, failed.stderr)
    for wrong in ({"workers": 0}, {"resources": {"cpu": -1}}, {"resources": "cpu"}):
        with pytest.raises(InvalidInput, match=next(iter(wrong))):
            Ray(**wrong)


def test_a_saved_search_of_tune_is_restored_with_its_sampler_and_its_failures(tmp_path):
    space = OptunaSearch.convert_search_space({"lr": tune.uniform(0.0, 1.0)})
    sampler = KBOSampler(seed=1, n_startup_trials=3)
    search = OptunaSearch(space, metric="loss", mode="max", sampler=sampler)
    for i in range(5):
        config = search.suggest(str(i))
        if i == 3:
            search.on_trial_complete(str(i), error=True)
        else:
            result = {"loss": -((config["lr"] - 0.3) ** 2), "training_iteration": 1}
            search.on_trial_complete(str(i), result)
    search.save(str(tmp_path / "search.pkl"))
    restored = OptunaSearch(space, metric="loss", mode="max")
    restored.restore(str(tmp_path / "search.pkl"))
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
    again = sweep([*cells, deadly, staying], tmp_path / "ray", workers=Ray(), progress=False)
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
def test_a_sweep_on_ray_from_another_process_has_the_rows_of_one_here(session, tmp_path):
    address = ray.get_runtime_context().gcs_address
    rows = []
    for name, engine in (("ray", ["--engine", "ray", "--address", address]), ("here", ["-j", "1"])):
        arguments = ["-m", "experiments.bandits", *RUN, "-q", *engine, "-o", tmp_path / name]
        done = processes.python(*arguments, cwd=Path(__file__).parent.parent)
        assert "dmm-ucb" in done.stdout
        (cells,) = (path for path in (tmp_path / name).iterdir() if path.is_dir())
        rows.append(read_rows(cells).drop(columns="cpu_seconds"))
    pd.testing.assert_frame_equal(*rows)
