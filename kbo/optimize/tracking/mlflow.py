"""Records of runs in MLflow."""

from __future__ import annotations

import re
import time
from importlib import import_module
from typing import Any

from kbo._base import checks
from kbo._base.extras import require
from kbo.optimize.result import Result
from kbo.optimize.run.table import by_name, heading
from kbo.optimize.run.trials import Trial, measurements
from kbo.optimize.tracking.tracker import Tracker

_STATUS = {"complete": "FINISHED", "failed": "FAILED", "pruned": "KILLED", "removed": "KILLED"}


class MLflow(Tracker):
    """Record a run in MLflow: an ``on_trial`` of ``minimize``.

    As in MLflow's own examples of tuning, every trial is an MLflow run, nested in one run for the whole. A trial has
    its parameters, its times, the metrics "value" and "report" (by step), other measurements by name, and the reason of
    a failure as a tag. In names, "_" replaces characters that MLflow does not allow. The whole has the metric "best
    observed", by trial, and at the end the recommended parameters. Several objectives are metrics under their names,
    and there is no best one. Trials may run in parallel, and MLflow's active run stays as it is. An error of MLflow is
    logged; it ends the record, but not the run.

    Args:
        experiment: Name of the experiment, which is created if it does not exist.
        uri: Where MLflow stores the record, such as "sqlite:///runs.db" or the address of a server; by default as
            MLflow is configured.
        name: Name of the run; by default MLflow makes one.

    Raises:
        MissingExtra: MLflow is not installed.

    Example:
        >>> from kbo.optimize.tracking import MLflow
        >>> kbo.minimize(objective, bounds, 50, on_trial=MLflow("digits", "sqlite:///runs.db"))
    """

    def __init__(
        self, experiment: str = "kbo", uri: str | None = None, name: str | None = None
    ) -> None:
        self._experiment = checks.text("experiment", experiment)
        self._uri = checks.maybe(checks.text, "uri", uri)
        self._name = checks.maybe(checks.text, "name", name)
        require("kbo.optimize.tracking.MLflow", "mlflow", "mlflow")

    def _begin(self) -> None:
        mlflow: Any = import_module("mlflow")
        self._entities: Any = mlflow.entities
        self._client: Any = mlflow.MlflowClient(tracking_uri=self._uri)
        experiment = self._client.get_experiment_by_name(self._experiment)
        if experiment is None:
            self._experiment_id = self._client.create_experiment(self._experiment)
        else:
            self._experiment_id = experiment.experiment_id
        parent = self._client.create_run(self._experiment_id, run_name=self._name)
        self._parent_id = parent.info.run_id
        self._result: Result | None = None

    def _record(self, trial: Trial, result: Result) -> None:
        self._result = result
        end = _milliseconds(trial.finished)
        run = self._client.create_run(
            self._experiment_id,
            start_time=_milliseconds(trial.started),
            tags={"mlflow.parentRunId": self._parent_id, "mlflow.runName": f"trial {trial.number}"},
        )
        run_id = run.info.run_id
        metrics = []
        for step, value in trial.reports:
            metrics.append(self._entities.Metric("report", value, end, step))
        main = heading(result.optimizer.run.main)
        for name, value in measurements(trial, main).items():
            metrics.append(self._entities.Metric(_name(name), value, end, 0))
        params = []
        for name, value in by_name(trial.params).items():
            params.append(self._entities.Param(_name(name), str(value)))
        tags = []
        if trial.failure:
            tags.append(self._entities.RunTag("failure", trial.failure))
        self._client.log_batch(run_id, metrics, params, tags)
        self._client.set_terminated(run_id, _STATUS[trial.status], end)
        if result.best_observed is not None:
            self._client.log_metric(
                self._parent_id, "best observed", result.best_observed, end, trial.number
            )

    def _end(self, whole: bool) -> None:
        if self._result is not None and self._result.params is not None:
            for name, value in by_name(self._result.params).items():
                self._client.log_param(self._parent_id, f"recommended {_name(name)}", value)
        self._client.set_terminated(self._parent_id, "FINISHED" if whole else "FAILED")


def _name(text: str) -> str:
    """Return a name with "_" in place of characters that MLflow does not allow."""
    return re.sub(r"[^\w./ -]", "_", text)


def _milliseconds(seconds: float | None) -> int:
    """Return a time in milliseconds since 1970; by default the current time."""
    if seconds is None:
        seconds = time.time()
    return int(1000 * seconds)
