"""Trials that another tool made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from kbo.optimize import Optimizer

_MOST_NAMED = 5
"""Number of trials left out whose names are shown."""


class History(NamedTuple):
    """Trials of another tool in an optimiser.

    Attributes:
        source: The study, experiment or file.
        tool: The tool.
        optimizer: The optimiser with the trials.
        names: The name of each trial in the tool.
        remark: Further facts about the history, such as the number of rows left out.
        inferred: Whether the space is unknown, and its ranges are those of the trials.
    """

    source: str
    tool: str
    optimizer: Optimizer
    names: Sequence[Any]
    remark: str = ""
    inferred: bool = False


def listed(names: Sequence[Any]) -> str:
    """Return the first names of trials as text."""
    text = ", ".join(map(str, names[:_MOST_NAMED]))
    if len(names) > _MOST_NAMED:
        return f"{text}, ..."
    return text
