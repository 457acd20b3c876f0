"""Trials of clients of Ax."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kbo._base.extras import require
from kbo._base.files import reading
from kbo.report import captions
from kbo.report.record import ImportedTrials

require("an audit of Ax", "ax", "ax")

from ax.api.client import Client

from kbo.integrations.ax.report import replayed

_ADVICE = "Save it by client.save_to_json_file(path), with the version of Ax that reads it."


def trials_of(history: Any) -> ImportedTrials:
    """Return the trials of a client, or of the JSON file that it was saved to, whatever strategy proposed them."""
    client = history
    source = "experiment of Ax"
    if isinstance(history, Path):
        source = history.name
        with reading(history, "a client of Ax in JSON", _ADVICE):
            client = Client.load_from_json_file(str(history))
    replay, lost = replayed(client)
    remark = captions.trials_left_out(lost, "outside the search space")
    names = [trial.key[0] for trial in replay.trials]
    return ImportedTrials(source, "Ax", replay.optimizer, names, remark)
