"""Trials: parameters that were evaluated, with their values or failures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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


def trials_of(events: list[dict[str, Any]]) -> list[Trial]:
    """Return the trials that the events of a journal describe, without a model."""
    trials: list[Trial] = []
    for event in events:
        if event["event"] == "ask":
            trials.append(Trial(event["number"], event["params"]))
        elif event["event"] == "tell":
            trials[event["number"]].value = event["value"]
        else:
            trials[event["number"]].failure = event["reason"]
    return trials
