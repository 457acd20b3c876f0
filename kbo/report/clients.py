"""Trials of a client of Ax, for ``kbo.audit``."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from kbo._base import checks
from kbo._base.extras import require
from kbo._base.files import reading
from kbo.errors import InvalidInput
from kbo.report import captions
from kbo.report.record import ImportedTrials

require("an audit of Ax", "ax", "ax")

from ax.api.client import Client

from kbo.integrations.ax.report import replayed

_ADVICE = "Save it by client.save_to_json_file(path), with the version of Ax that reads it."

_FORMULAS = ("Objective", "Constraint", "Derived")
"""Parts of names of classes of Ax that contain formulas, or names that Ax puts into formulas."""

_CODE = re.compile(r"[\w)\]]\s*\(|\*\*|<<|!")
"""Signs that no linear formula has: calls, which could run any code, and operators that make very long numbers."""


def trials_of_client(history: Any) -> ImportedTrials:
    """Return the trials of a client, with any strategy, or of its JSON file."""
    client = history
    source = "experiment of Ax"
    if isinstance(history, Path):
        source = history.name
        with reading(history, "a client of Ax in JSON", _ADVICE):
            _check_formulas(json.loads(history.read_text()), history)
            client = Client.load_from_json_file(str(history))
    replay, lost = replayed(client)
    remark = captions.trials_left_out(lost, "outside the search space")
    names = [trial.key[0] for trial in replay.trials]
    return ImportedTrials(source, "Ax", replay.optimizer, names, remark)


def _check_formulas(entry: Any, path: Path, is_formula: bool = False) -> None:
    """Check that all formulas in a file of Ax are linear, because Ax evaluates them as Python code.

    Args:
        entry: The contents of the file, or a value in it.
        path: The file.
        is_formula: Whether texts in the entry may become parts of formulas.

    Raises:
        InvalidInput: A formula may be no linear one.
    """
    if isinstance(entry, dict):
        kind = str(entry.get("__type"))
        is_formula = is_formula or any(part in kind for part in _FORMULAS)
        entry = [*entry.keys(), *entry.values()]
    if isinstance(entry, list):
        for value in entry:
            _check_formulas(value, path, is_formula)
    elif is_formula and isinstance(entry, str) and _CODE.search(entry):
        raise InvalidInput(
            f"{path} has the formula {checks.shown(entry)}, and Ax evaluates formulas as Python code: expected sums "
            "of outcomes or parameters, with numbers as factors. If you trust the file, load it with Ax, and give "
            "kbo.audit(client)."
        )
