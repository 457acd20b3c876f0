"""The trials of a run as tables, and why some of them failed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kbo.optimize import Trial
from kbo.report import markup
from kbo.report.record import Record

_MOST = 50
"""Of more than twice as many trials, so many best and so many last ones are shown."""

_MOST_REASONS, _LONGEST = 10, 300


def tables(record: Record, recommended: int | None) -> list[str]:
    """All trials, or the best and the last of a long run."""
    trials = record.trials
    if not trials:
        return []
    if len(trials) <= 2 * _MOST:
        return [_table(record, "All trials in the order of asking.", trials, recommended)]
    sign = -1 if record.maximize else 1
    best = sorted(record.with_status("complete"), key=lambda trial: sign * (trial.value or 0.0))[:_MOST]
    note = (
        f"The run has {len(trials)} trials. Here are the {len(best)} best values and the last {_MOST} trials; "
        "the journal has them all."
    )
    return [
        markup.paragraph(note),
        _table(record, f"The {len(best)} best observed values.", best, recommended),
        _table(record, f"The last {_MOST} trials.", trials[-_MOST:], recommended),
    ]


def failures(record: Record) -> list[str]:
    """Why trials failed, the most frequent reasons first; empty if none did."""
    last: dict[str, int] = {}
    times: dict[str, int] = {}
    for trial in record.with_status("failed"):
        reason = shortened(trial.failure or "")
        last[reason], times[reason] = trial.number, times.get(reason, 0) + 1
    if not times:
        return []
    most = sorted(times, key=lambda reason: -times[reason])
    rows = [(times[reason], last[reason], reason) for reason in most[:_MOST_REASONS]]
    total = sum(times.values())
    note = (
        f"{total} of {len(record.trials)} trials failed. They are left out of the fit; where to look next is chosen as "
        "if they had been as bad as the worst value."
    )
    more = f" The {_MOST_REASONS} most frequent of {len(most)}." if len(most) > _MOST_REASONS else ""
    return [
        markup.paragraph(note),
        markup.table(f"Reasons.{more}", ("times", "last trial", "reason"), rows),
    ]


def shortened(text: str) -> str:
    """The text, cut where it is very long."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _table(record: Record, caption: str, trials: Sequence[Trial], recommended: int | None) -> str:
    names = [str(entry["name"]) for entry in record.header["space"]]
    best = record.best()
    rows, marked = [], []
    for i, trial in enumerate(trials):
        if trial.number == recommended:
            marked.append(i)
        notes = [trial.status] if trial.status == "pending" else []
        notes += ["recommended"] if trial.number == recommended else []
        notes += ["best observed"] if best is not None and trial.number == best.number else []
        notes += [f"failed: {shortened(trial.failure)}"] if trial.failure is not None else []
        rows.append((trial.number, trial.value, *_values(trial, names), trial.seconds, ", ".join(notes)))
    return markup.table(caption, ("trial", "value", *names, "seconds", "note"), rows, marked)


def _values(trial: Trial, names: Sequence[str]) -> list[Any]:
    values = trial.params.values() if isinstance(trial.params, dict) else trial.params
    found = list(values)[: len(names)]
    return found + [None] * (len(names) - len(found))
