"""Trials: parameters that were evaluated, with their values or failures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kbo.errors import InvalidInput
from kbo.space import Params


@dataclass
class Trial:
    """One evaluation: pending until its value or failure is reported.

    Attributes:
        number: Position in the order in which trials were begun, from 0.
        params: The arguments of the objective.
        value: The value of the objective; None while pending or if it failed.
        seconds: The duration, if known.
        failure: The reason of a failure; None without one.
        starts: How often it was started: more than once if it was lost.
        asked: Whether it was started before its value was known.
    """

    number: int
    params: Params
    value: float | None = None
    seconds: float | None = None
    failure: str | None = None
    starts: int = 1
    asked: bool = True

    @property
    def status(self) -> str:
        """One of "pending", "complete" and "failed"."""
        if self.failure is not None:
            return "failed"
        return "pending" if self.value is None else "complete"


def apply(trials: list[Trial], event: dict[str, Any]) -> Trial:
    """Apply an event of a journal to the trials so far, and return the trial that it concerns.

    Raises:
        InvalidInput: An event that cannot follow these trials.
    """
    kind, number = event["event"], event["number"]
    if kind not in ("ask", "again", "tell", "fail"):
        raise InvalidInput(f"unknown event {kind!r}")
    if kind == "ask":
        if number != len(trials):
            raise InvalidInput(f"trial {number} out of order")
        trials.append(Trial(number, event["params"], asked=event.get("asked", True)))
        return trials[number]
    trial = trials[number]
    if trial.status != "pending":
        raise InvalidInput(f"trial {number} is already {trial.status}")
    if kind == "again":
        trial.starts += 1
        return trial
    trial.seconds = event.get("seconds")
    if kind == "tell":
        trial.value = float(event["value"])
    else:
        trial.failure = str(event["reason"])
    return trial


def trials_of(events: list[dict[str, Any]]) -> list[Trial]:
    """Return the trials that the events of a journal describe, without a model."""
    trials: list[Trial] = []
    for event in events:
        apply(trials, event)
    return trials


def selected(trials: Sequence[Trial]) -> list[str]:
    """Return the ways in which the noise may have decided which values there are, in words; none if it cannot have."""
    ways = {
        "failed": sum(trial.status == "failed" for trial in trials),
        "lost and started again": sum(trial.starts > 1 for trial in trials),
        "with a value at parameters that ask did not return": sum(not trial.asked for trial in trials),
    }
    return in_words(ways)


def overtaken(starts: Iterable[Any]) -> int:
    """Return how many trials later ones have overtaken.

    Args:
        starts: The moments of their starts, in the order of their ends; those that run are the last.
    """
    latest, count = None, 0
    for start in starts:
        count += latest is not None and start < latest
        latest = start if latest is None else max(latest, start)
    return count


def in_words(ways: Mapping[str, int]) -> list[str]:
    """Return ways in which trials went wrong, with their numbers, in words; those without a trial are left out."""
    return [f"trials {way}: {count}" for way, count in ways.items() if count]
