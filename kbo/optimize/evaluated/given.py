"""Results as a table or a journal has them, before it is known whether they fit a space."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

_EXAMPLES = 3
"""Number of results that a message names."""


class Row(NamedTuple):
    """A result as it was given.

    Attributes:
        place: Its place in the source, such as "row 3".
        params: The parameters, a dict by name or a list.
        returned: What the objective would have returned.
    """

    place: str
    params: Any
    returned: Any


class GivenResults(NamedTuple):
    """The results of a table or of a journal.

    Attributes:
        rows: The results with a value.
        left_out: Sentences about what else the source has, one for each reason.
    """

    rows: list[Row]
    left_out: list[str]


def examples(entries: Sequence[str]) -> str:
    """Return the first three entries in one text, and the number of the others."""
    shown = " ".join(entries[:_EXAMPLES])
    if len(entries) > _EXAMPLES:
        shown += f" And {len(entries) - _EXAMPLES} more."
    return shown
