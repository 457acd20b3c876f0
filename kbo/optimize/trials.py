"""Trials: parameters that were evaluated, with their values or failures."""

from __future__ import annotations

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
    """

    number: int
    params: Params
    value: float | None = None
    seconds: float | None = None
    failure: str | None = None

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
    if kind not in ("ask", "tell", "fail"):
        raise InvalidInput(f"unknown event {kind!r}")
    if kind == "ask":
        if number != len(trials):
            raise InvalidInput(f"trial {number} out of order")
        trials.append(Trial(number, event["params"]))
        return trials[number]
    trial = trials[number]
    if trial.status != "pending":
        raise InvalidInput(f"trial {number} is already {trial.status}")
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
