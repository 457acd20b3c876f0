"""Calls in threads of this process, for functions that release the interpreter's lock or wait for others."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kbo._base import checks
from kbo._base.surroundings import callers_settings
from kbo.errors import InvalidInput
from kbo.workers.call import Outcome, RunningTrial, call
from kbo.workers.engine import Engine, OnReport, Session
from kbo.workers.preserved import preserved


@dataclass(frozen=True)
class Threads(Engine):
    """Threads of this process: they share its memory, and nothing can end them before they return.

    Attributes:
        count: Their number.

    Raises:
        InvalidInput: It is no whole number of at least 1.
    """

    count: int

    def __post_init__(self) -> None:
        checks.whole("count", self.count, 1)

    @contextmanager
    def session(
        self, function: Callable[..., Any], timeout: float | None, on_report: OnReport
    ) -> Iterator[Session]:
        if timeout is not None:
            raise InvalidInput(
                "timeout cannot end threads: use worker processes, workers=kbo.Processes(...), or limit the time in "
                "the objective."
            )
        with preserved():  # threads that run at the same time cannot be told apart
            yield _Threads(self.count, function, on_report)


class _Threads(Session):
    """One thread for each call; daemons, since those that still run must not keep the process from ending."""

    def __init__(self, capacity: int, function: Callable[..., Any], on_report: OnReport) -> None:
        self._capacity, self._function, self._on_report = capacity, function, on_report
        self._settings = callers_settings().of_thread()
        self._reporting = threading.Lock()
        self._running: set[int] = set()
        self._outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()

    @property
    def capacity(self) -> int:
        return self._capacity

    @property
    def running(self) -> Collection[int]:
        return self._running

    def start(self, number: int, params: Any) -> None:
        stop = False

        def report(value: float, step: int) -> None:
            nonlocal stop
            with self._reporting:
                stop = self._on_report(number, value, step)

        trial = RunningTrial(number, params, report, lambda: stop)
        self._running.add(number)

        def run() -> None:
            outcome = Outcome(number, failure="its thread ended without a value")
            try:
                with self._settings.applied():
                    outcome = call(self._function, trial, (BaseException,))
            finally:
                self._outcomes.put(outcome)

        threading.Thread(target=run, name=f"kbo trial {number}", daemon=True).start()

    def wait(self, seconds: float | None = None) -> list[Outcome]:
        try:
            outcome = self._outcomes.get(timeout=seconds)
        except queue.Empty:
            return []
        self._running.remove(outcome.number)
        return [outcome]
