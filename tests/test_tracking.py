"""Runs recorded in MLflow and in Weights & Biases, in local folders."""

import json

import pytest

import kbo
from kbo.errors import InvalidInput
from kbo.optimize import tracking
from kbo.optimize.result import result_of


def recorded(**options):
    """A complete trial with reports, a failed one and one that was stopped early; and the result."""
    space = {"x": (0.0, 1.0), "kind": ["a", "b"]}
    optimizer = kbo.Optimizer(space, **options)
    begun = [optimizer.begin() for _ in range(3)]
    for step in (0, 1):
        optimizer.report(begun[0], 1.0 - step / 2, step=step)
    optimizer.fail(begun[1], "diverged")
    if options:
        values = {"error": 0.5, "speed": 3.0, "memory (GB)": 7.5}
        optimizer.tell(begun[0], values, seconds=2.0)
        optimizer.fail(begun[2], "diverged")
    else:
        optimizer.tell(begun[0], (0.5, {"memory (GB)": 7.5}), seconds=2.0)
        optimizer.prune(begun[2])
    return begun, result_of(optimizer, "", None)


@pytest.mark.keeps(
    r"file .*runs\.db", "MLflow keeps the connections to its database until the process ends"
)
@pytest.mark.thorough
def test_mlflow_has_a_nested_run_for_each_trial(tmp_path):
    pytest.importorskip("mlflow")
    from mlflow import MlflowClient

    begun, result = recorded()
    uri = f"sqlite:///{tmp_path / 'runs.db'}"
    with tracking.MLflow("digits", uri, name="whole") as record:
        for trial in begun:
            record(trial, result)
    client = MlflowClient(uri)
    runs = client.search_runs([client.get_experiment_by_name("digits").experiment_id])
    by_name = {run.info.run_name: run for run in runs}
    whole = by_name.pop("whole")
    assert (whole.info.status, whole.data.metrics["best observed"]) == ("FINISHED", 0.5)
    assert whole.data.params["recommended x"] == str(result.params["x"])
    assert {run.data.tags["mlflow.parentRunId"] for run in by_name.values()} == {whole.info.run_id}
    assert [by_name[f"trial {i}"].info.status for i in range(3)] == ["FINISHED", "FAILED", "KILLED"]
    first = by_name["trial 0"]
    assert first.data.params["kind"] == begun[0].params["kind"]
    assert first.data.metrics.items() >= {"value": 0.5, "memory _GB_": 7.5}.items()
    reports = client.get_metric_history(first.info.run_id, "report")
    assert [(entry.step, entry.value) for entry in reports] == [(0, 1.0), (1, 0.5)]
    assert first.info.start_time == int(1000 * begun[0].started)
    assert by_name["trial 1"].data.tags["failure"] == "diverged"
    with pytest.raises(KeyboardInterrupt), tracking.MLflow("digits", uri, name="ended"):
        raise KeyboardInterrupt
    (ended,) = client.search_runs([whole.info.experiment_id], "attributes.run_name = 'ended'")
    assert ended.info.status == "FAILED"


def entries(data):
    """The entries of a file of W&B, which has a header of 7 bytes, and so has each entry."""
    data = data[7:]
    while data:
        size = int.from_bytes(data[4:6], "little")
        yield data[7 : 7 + size]
        data = data[7 + size :]


@pytest.mark.keeps("thread Otel", "W&B keeps its threads for telemetry until the process ends")
def test_wandb_has_a_run_of_a_group_for_each_trial_with_each_objective(tmp_path, caplog):
    wandb = pytest.importorskip("wandb")
    from wandb.proto.wandb_internal_pb2 import Record

    begun, result = recorded(objectives=["error", kbo.Maximize("speed")])
    # W&B gives up after a time on a busy machine; so does the record, with a warning.
    for attempt in range(9):
        (folder := tmp_path / str(attempt)).mkdir()
        record = tracking.WandB("digits", mode="offline", folder=folder)
        for trial in begun:
            record(trial, result)
        wandb.teardown()  # ends the service of W&B, which has then written its files
        if "records no more of this run" not in caplog.text:
            break
        caplog.clear()
    summaries = {}
    groups = set()
    for path in folder.rglob("run-*.wandb"):
        summary = {}
        for entry in map(Record.FromString, entries(path.read_bytes())):
            groups |= {entry.run.run_group} - {""}
            items = [item for item in entry.summary.update if item.key]
            summary |= {item.key: json.loads(item.value_json) for item in items}
        summaries[summary["number"]] = summary
    assert len(groups) == 1
    assert [summaries[i]["status"] for i in range(3)] == ["complete", "failed", "failed"]
    numbers = {"error": 0.5, "speed": 3.0, "seconds": 2.0, "memory (GB)": 7.5}
    assert summaries[0].items() >= numbers.items()
    assert "value" not in summaries[0]
    assert summaries[1]["failure"] == "diverged"


def test_what_cannot_be_recorded_is_refused():
    pytest.importorskip("wandb")
    with pytest.raises(InvalidInput, match="must be text"):
        tracking.WandB(3)
