"""Calls in other processes: messages, time limits and deaths of workers, for worker processes and tasks of Ray."""

from __future__ import annotations

import io
import marshal
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import CodeType
from typing import Any, ClassVar, Generic, TypeVar

import cloudpickle

from kbo._base.isolation import settings_of_caller
from kbo.workers.call import CallOutcome, OnReport, Session, Work

LOADING = 60.0
"""Seconds that a worker may take to start and load the objective, or the time limit of a trial if that is longer."""

Message = tuple[str, Any]
"""Kind and content: "loading", "begun", "report" (value and step), "ended" (the outcome) or "died" (the reason)."""


class Worker(ABC):
    """A worker in another process, which makes one call at a time.

    Attributes:
        deadline: The time of ``time.monotonic`` at which the time limit of its call is over, in seconds.
        is_overdue: Whether the call was ended because its time limit was over.
        has_begun: Whether the worker has reported that its call begins.
    """

    kind: ClassVar[str]

    def __init__(self) -> None:
        self.deadline: float = math.inf
        self.is_overdue: bool = False
        self.has_begun: bool = False
        self._began = time.monotonic()
        self._limit = ""

    @abstractmethod
    def receive(self) -> Message | None:
        """Return the next message, or None if there is none. A dead worker's last message is "died"."""

    @abstractmethod
    def answer(self, stop: bool) -> None:
        """Answer a report: whether the trial should stop."""

    @abstractmethod
    def end(self) -> None:
        """End the call at once. Messages that have arrived can still be received."""

    def set_limit(self, seconds: float | None, missing: str) -> None:
        """Start a time limit in seconds; ``missing`` begins the failure's text, for example "no value"."""
        self._began = time.monotonic()
        if seconds is not None:
            self.deadline = self._began + seconds
            self._limit = f"{missing} after {seconds:g} s"

    def end_overdue(self) -> None:
        """End a call whose time limit is over."""
        self.deadline = math.inf
        self.is_overdue = True
        self.end()

    def failure(self, number: int, reason: str) -> CallOutcome:
        """Return the outcome of a call whose worker died (for the reason) or was ended (by its time limit)."""
        seconds = round(time.monotonic() - self._began, 4)
        if self.is_overdue:
            reason = f"TimeoutError: {self._limit}; its {self.kind} was ended"
        return CallOutcome(number, failure=reason, died=not self.is_overdue, seconds=seconds)


W = TypeVar("W", bound=Worker)


class RemoteSession(Session, Generic[W]):
    """A session of workers in other processes; ``running`` has them by the numbers of their calls."""

    def __init__(self, timeout: float | None, on_report: OnReport) -> None:
        self._timeout = timeout
        self._on_report = on_report
        self.running: dict[int, W] = {}

    @abstractmethod
    def _wait_for_message(self, seconds: float) -> None:
        """Wait until a worker may have sent a message or died, or for ``seconds``, which may be infinite."""

    def _release(self, worker: W) -> None:
        """Take back a worker after its call has ended."""

    def wait(self, seconds: float | None = None) -> list[CallOutcome]:
        end = math.inf
        if seconds is not None:
            end = time.monotonic() + seconds
        while True:
            deadlines = [worker.deadline for worker in self.running.values()]
            self._wait_for_message(max(min([end, *deadlines]) - time.monotonic(), 0.0))
            outcomes = self._outcomes()
            if outcomes or time.monotonic() >= end:
                return outcomes

    def _outcomes(self) -> list[CallOutcome]:
        """Take one message of each worker, end calls whose time limit is over, and return the outcomes."""
        outcomes: list[CallOutcome] = []
        for number, worker in list(self.running.items()):
            # Messages come first: this process may have been too busy to read "begun" or "ended" in time.
            outcome = self._outcome(number, worker)
            if outcome is None and time.monotonic() >= worker.deadline:
                worker.end_overdue()
                outcome = self._outcome(number, worker)
            if outcome is not None:
                del self.running[number]
                self._release(worker)
                outcomes.append(outcome)
        return outcomes

    def _outcome(self, number: int, worker: W) -> CallOutcome | None:
        """Take one message of a worker, and return the outcome if its call has ended."""
        match worker.receive():
            case "loading", _:
                self._limit_loading(worker)
            case "begun", _:
                worker.has_begun = True
                worker.set_limit(self._timeout, "no value")
            case "report", (value, step):
                worker.answer(self._on_report(number, value, step))
            case "ended", outcome:
                return outcome
            case "died", reason:
                return worker.failure(number, reason)
        return None

    def _limit_loading(self, worker: W) -> None:
        """Start the time limit for loading the function, if calls have a time limit."""
        if self._timeout is not None:
            worker.set_limit(max(self._timeout, LOADING), "the objective was not loaded")

    def close(self) -> None:
        """End the calls that are running."""
        for worker in self.running.values():
            worker.end()


def work_of(function: Callable[..., Any]) -> Work:
    """Return a function in pickled form, with the settings of this program."""
    with io.BytesIO() as file:
        _Pickler(file).dump(function)
        return Work(file.getvalue(), settings_of_caller().of_process())


class _Pickler(cloudpickle.Pickler):
    """A pickler like cloudpickle, except that code keeps its file name, which messages of failures show."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, CodeType):
            return marshal.loads, (marshal.dumps(obj),)
        return super().reducer_override(obj)
