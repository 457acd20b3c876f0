"""Known results as a table or a journal has them, before they are compared with a space."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

_EXAMPLES = 3
"""Number of results that a message names."""


class Row(NamedTuple):
    """A known result.

    Attributes:
        place: Its place in the source, such as "row 3".
        params: The parameters: a dict by name, or a list.
        returned: The value and the measurements, as an objective returns them.
    """

    place: str
    params: Any
    returned: Any


class GivenResults(NamedTuple):
    """The results of a table or of a journal.

    Attributes:
        rows: The results with a value.
        left_out: Sentences about the entries that were left out, one for each reason.
    """

    rows: list[Row]
    left_out: list[str]


def examples(entries: Sequence[str]) -> str:
    """Return a text with the first three entries, and the number of the others."""
    shown = " ".join(entries[:_EXAMPLES])
    if len(entries) > _EXAMPLES:
        shown += f" And {len(entries) - _EXAMPLES} more."
    return shown
