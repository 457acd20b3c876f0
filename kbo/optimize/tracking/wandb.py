"""Records of runs in Weights & Biases."""

from __future__ import annotations

import os
from datetime import datetime
from importlib import import_module
from typing import Any

from kbo._base import checks
from kbo._base.extras import require
from kbo.optimize.result import Result
from kbo.optimize.run.table import by_name, heading
from kbo.optimize.run.trials import Trial, measurements
from kbo.optimize.tracking.tracker import Tracker


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
