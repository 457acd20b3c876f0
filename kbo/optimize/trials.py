"""Trials: what was tried and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kbo.space import Params


@dataclass
class Trial:
    """One evaluation: pending until it is told or failed.

    Attributes:
        number: Its place in the order of asking, from 0.
        params: What the objective got.
        value: What it returned; None while pending or if it failed.
        seconds: How long it took, if known.
        failure: Why it failed; None if it did not.
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
    """The trials that a journal's events tell of, without a model."""
    trials: list[Trial] = []
    for event in events:
        if event["event"] == "ask":
            trials.append(Trial(event["number"], event["params"]))
        elif event["event"] == "tell":
            trials[event["number"]].value = event["value"]
        else:
            trials[event["number"]].failure = event["reason"]
    return trials
