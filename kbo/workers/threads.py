"""Calls in threads of this process, for functions that release the interpreter's lock or wait for other programs."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kbo._base import checks
from kbo._base.isolation import settings_of_caller
from kbo._base.program_state import preserved
from kbo.errors import InvalidInput
from kbo.workers.call import CallOutcome, call, trial_of_this_process
from kbo.workers.engine import Engine, OnReport, Session


@dataclass(frozen=True)
class Threads(Engine):
    """Threads of this process. They share its memory, and cannot be ended before they return.

    Attributes:
        count: The number of threads.

    Raises:
        InvalidInput: The number is no whole number of at least 1.
    """

    count: int

    def __post_init__(self) -> None:
        checks.keep(self, count=checks.whole("count", self.count, 1))

    @contextmanager
    def session(
        self, function: Callable[..., Any], timeout: float | None, on_report: OnReport
    ) -> Iterator[Session]:
        if timeout is not None:
            raise InvalidInput(
                "timeout cannot end threads: use worker processes, workers=kbo.Processes(...), or limit the time in "
                "the objective."
            )
        with preserved():  # for all calls together, since they overlap
            yield _Threads(self.count, function, on_report)


class _Threads(Session):
    """A session with one thread for each call. The threads are daemons: they do not keep the process alive."""

    def __init__(self, count: int, function: Callable[..., Any], on_report: OnReport) -> None:
        self.capacity = count
        self.running: set[int] = set()
        self._function = function
        self._on_report = on_report
        self._settings = settings_of_caller().of_thread()
        self._reporting = threading.Lock()
        self._outcomes: queue.SimpleQueue[CallOutcome] = queue.SimpleQueue()

    def start(self, number: int, params: Any) -> None:
        self.running.add(number)
        name = f"kbo trial {number}"
        threading.Thread(target=self._call, args=(number, params), name=name, daemon=True).start()

    def _call(self, number: int, params: Any) -> None:
        outcome = CallOutcome(number, failure="its thread ended without a value")
        trial = trial_of_this_process(number, params, self._report)
        try:
            with self._settings.applied():
                outcome = call(self._function, trial, failures=(BaseException,))
        finally:
            self._outcomes.put(outcome)

    def _report(self, number: int, value: float, step: int) -> bool:
        with self._reporting:  # one trial at a time
            return self._on_report(number, value, step)

    def wait(self, seconds: float | None = None) -> list[CallOutcome]:
        try:
            outcome = self._outcomes.get(timeout=seconds)
        except queue.Empty:
            return []
        self.running.remove(outcome.number)
        return [outcome]
