"""Records of runs in other tools, to pass as ``on_trial`` of ``minimize``."""

from __future__ import annotations

import logging
import os
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import datetime
from importlib import import_module
from typing import Any, Self

from kbo._base import checks
from kbo._base.extras import require
from kbo.optimize.result import Result
from kbo.optimize.run.table import by_name, heading
from kbo.optimize.run.trials import Trial, measurements

log: logging.Logger = logging.getLogger("kbo")

_STATUS = {"complete": "FINISHED", "failed": "FAILED", "pruned": "KILLED", "removed": "KILLED"}
"""The state in MLflow for each status of a trial."""


class Tracker(ABC):
    """An ``on_trial`` that records trials in another tool. Its first error is logged, and ends the record."""

    _failed: bool = False

    def __enter__(self) -> Self:
        self._failed = False
        self._try(self._begin)
        return self

    def __call__(self, trial: Trial, result: Result) -> None:
        """Record a trial."""
        self._try(self._record, trial, result)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._try(self._end, kind is None)

    def _try(self, step: Callable[..., None], *args: Any) -> None:
        if self._failed:
            return
        try:
            step(*args)
        except Exception as error:  # the other tool may raise anything
            self._failed = True
            log.warning(
                "%s failed, and records no more of this run, which goes on: %s: %.500s",
                type(self).__name__,
                type(error).__name__,
                error,
            )

    def _begin(self) -> None:
        """Begin the record of a run, before its first trial."""
        return

    @abstractmethod
    def _record(self, trial: Trial, result: Result) -> None:
        """Record a trial that has ended."""

    def _end(self, whole: bool) -> None:
        """End the record of a run; ``whole`` is whether no error ended it."""
        return


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


class WandB(Tracker):
    """Record a run in Weights & Biases: an ``on_trial`` of ``minimize``.

    As in a sweep, every trial is a W&B run of one group, so that the panels that compare runs (parallel coordinates,
    importance) work. A trial has its parameters as configuration, and "report" by step. Its summary has "value" (with
    several objectives, their names), other measurements by name, "number", "status" and "seconds". The W&B run of a
    failed trial is marked as failed. Trials may run in parallel, and an active run of the caller stays as it is.
    Recording takes about half a second for each trial offline. An error of W&B is logged; it ends the record, but not
    the run.

    Args:
        project: Name of the project.
        mode: "online", "offline", or None for the configured mode.
        group: Name of the group; by default "kbo" with the time.
        folder: Folder of the files; by default the current folder.

    Raises:
        MissingExtra: wandb is not installed.

    Example:
        >>> from kbo.optimize.tracking import WandB
        >>> kbo.minimize(objective, bounds, 50, on_trial=WandB("digits", mode="offline"))
    """

    def __init__(
        self,
        project: str = "kbo",
        mode: str | None = None,
        group: str | None = None,
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        group = checks.maybe(checks.text, "group", group)
        self._options = {
            "project": checks.text("project", project),
            "mode": checks.maybe(checks.one_of, "mode", mode, ("online", "offline")),
            "group": group or f"kbo {datetime.now():%Y-%m-%d %H:%M:%S}",
            "dir": checks.maybe(checks.path, "folder", folder),
        }
        require("kbo.optimize.tracking.WandB", "wandb", "wandb")

    def _record(self, trial: Trial, result: Result) -> None:
        wandb: Any = import_module("wandb")
        run = wandb.init(
            **self._options,
            name=f"trial {trial.number}",
            config=by_name(trial.params),
            reinit="create_new",
            settings=wandb.Settings(silent=True),
        )
        for step, value in trial.reports:
            run.log({"report": value}, step=step)
        summary: dict[str, Any] = measurements(trial, heading(result.optimizer.run.main))
        for name in ("number", "status", "seconds", "failure"):
            summary[name] = getattr(trial, name)
        for name, entry in summary.items():
            if entry is not None:
                run.summary[name] = entry
        run.finish(exit_code=int(trial.status == "failed"))
