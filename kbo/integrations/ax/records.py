"""Records of the data behind proposals and bounds. They show whether values were overwritten later.

Ax keeps only the last value of each metric. So each proposal stores a digest of the data that it used in its trial, and
each bound stores one in the newest trial. If the present data of the same trials have another digest, a value was
overwritten.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from typing import Any

from ax.core.base_trial import BaseTrial

Row = tuple[int, str]
"""The index of a trial and the name of an arm."""

Columns = dict[str, dict[Row, float]]
"""Means and standard errors of each metric, by "mean NAME" and "sem NAME"."""

_KEY = "kbo:seen"
"""The key of the record in the metadata of a proposal, and of the list of records in the metadata of a trial."""

_DIGITS = 6
"""Number of digits of a column's largest value that enter its digest."""


def record_of(data: Columns) -> dict[str, Any]:
    """Return metadata with a record of the data; empty without data.

    The record has the ``last`` trial with data, the earlier trials ``without`` data, and a digest of each column.
    """
    indices = {index for column in data.values() for index, _ in column}
    if not indices:
        return {}
    last = max(indices)
    without = sorted(set(range(last)) - indices)
    return {_KEY: {"last": last, "without": without, "digests": _digests(data, last, without)}}


def store_record(trial: BaseTrial, data: Columns) -> None:
    """Add a record of the data to a trial, unless it has a record of the same trials already."""
    records = trial.run_metadata.get(_KEY, [])
    record = record_of(data).get(_KEY)
    if record is None:
        return
    for earlier in records:
        if earlier["last"] == record["last"] and earlier["without"] == record["without"]:
            return
    trial.update_run_metadata({_KEY: [*records, record]})


def overwritten(trials: Iterable[BaseTrial], data: Columns) -> int:
    """Return the number of records in these trials that the present data contradict."""
    count = 0
    for trial in trials:
        for record in _records(trial):
            present = _digests(data, record["last"], record["without"])
            digests = record["digests"].items()
            count += any(present.get(column) != digest for column, digest in digests)
    return count


def _records(trial: BaseTrial) -> list[dict[str, Any]]:
    """Return the records in a trial, of bounds and of proposals."""
    records = list(trial.run_metadata.get(_KEY, []))
    for run in trial.generator_runs:
        metadata = run.gen_metadata or {}
        if _KEY in metadata:
            records.append(metadata[_KEY])
    return records


def _digests(data: Columns, last: int, without: Iterable[int]) -> dict[str, str]:
    """Return a digest of each column over the trials up to ``last``, except those ``without`` data."""
    indices = set(range(last + 1)) - set(without)
    digests: dict[str, str] = {}
    for name, column in data.items():
        digests[name] = _digest({row: value for row, value in column.items() if row[0] in indices})
    return digests


def _digest(column: Mapping[Row, float]) -> str:
    """Return a digest of numbers, rounded to ``_DIGITS`` digits of the largest one."""
    largest = largest_of(column)
    unit = 1.0
    if largest > 0:
        unit = 10.0 ** (math.floor(math.log10(largest)) - _DIGITS)
    rounded: list[tuple[Row, int | str]] = []
    for row, value in sorted(column.items()):
        if math.isfinite(value):
            rounded.append((row, round(value / unit)))
        else:
            rounded.append((row, str(value)))
    return hashlib.sha256(repr(rounded).encode()).hexdigest()[:16]


def largest_of(column: Mapping[Any, float]) -> float:
    """Return the largest absolute value of the finite numbers in a column; 0 if there are none."""
    return max((abs(value) for value in column.values() if math.isfinite(value)), default=0.0)
