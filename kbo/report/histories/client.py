"""Experiments of Ax."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kbo._base.extras import require
from kbo._base.files import reading
from kbo.report.histories.history import History, listed

require("a history of Ax", "ax", "ax")

from ax.api.client import Client

from kbo.integrations.ax.report import replayed, unused


def of_client_file(path: Path) -> History:
    """Return the trials of a client that was saved as JSON."""
    advice = "Save it by client.save_to_json_file(path), with the version of Ax that reads it."
    with reading(path, "a client of Ax in JSON", advice):
        client = Client.load_from_json_file(str(path))
    return of_client(client, path.name)


def of_client(client: Any, source: str = "experiment of Ax") -> History:
    """Return the trials of a client."""
    known = replayed(client)
    lost = unused(client, known)
    remark = ""
    if lost:
        remark = f", {len(lost)} left out (outside the search space: {listed(lost)})"
    names = [trial.key[0] for trial in known.trials]
    return History(source, "Ax", known.optimizer, names, remark)
