"""Calls in this process: one at a time, or in threads."""

from __future__ import annotations

import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from kbo._base import checks
from kbo._base.isolation import as_caller, settings_of_caller
from kbo._base.program_state import preserved
from kbo.errors import InvalidInput
from kbo.workers.call import (
    YEAR,
    CallOutcome,
    Engine,
    OnReport,
    RunningTrial,
    Session,
    call,
)

R = TypeVar("R")


@dataclass(frozen=True)
class InProcess(Engine):
    """Calls in this process. The function shares its memory, and a time limit cannot interrupt compiled code."""

    @contextmanager
    def session(
        self, function: Callable[..., Any], timeout: float | None, on_report: OnReport
    ) -> Iterator[Session]:
        if timeout is not None:
            timeout = checks.positive("timeout", timeout, most=YEAR)
            _check_alarm()
        yield _InProcess(function, timeout, on_report)


class _InProcess(Session):
    """A session of one call, which runs within ``wait``."""

    capacity = 1

    def __init__(
        self, function: Callable[..., Any], timeout: float | None, on_report: OnReport
    ) -> None:
        self.running: dict[int, Any] = {}  # the parameters
        self._function = function
        self._timeout = timeout
        self._on_report = on_report

    def start(self, number: int, params: Any) -> None:
        self.running[number] = params

    def wait(self, seconds: float | None = None) -> list[CallOutcome]:
        ((number, params),) = self.running.items()
        limits = [limit for limit in (self._timeout, seconds) if limit is not None]
        limit = min(limits, default=None)
        start = time.perf_counter()
        trial = _trial(number, params, self._on_report)
        try:
            with as_caller(), preserved():
                outcome = call_with_limit(lambda: call(self._function, trial), limit)
        except TimeoutError as error:
            trial.end()
            if limit != self._timeout:
                return []
            duration = round(time.perf_counter() - start, 4)
            outcome = CallOutcome(number, failure=f"TimeoutError: {error}", seconds=duration)
        del self.running[number]
        return [outcome]


def call_with_limit(function: Callable[[], R], seconds: float | None) -> R:
    """Return ``function()``, or raise TimeoutError after ``seconds``; None for no limit. Main thread only.

    Like Ctrl-C, an alarm raises an exception in Python code that is no ``Exception``. Compiled code is interrupted when
    it returns. If the function catches ``BaseException``, it goes on, and TimeoutError is raised when it ends.
    """
    if seconds is None:
        return function()
    _check_alarm()
    start = time.monotonic()
    alarm = _Alarm()
    handler = signal.getsignal(signal.SIGALRM)
    value: Any = None
    try:
        signal.signal(signal.SIGALRM, alarm.expire)
        signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-6))
        value = alarm.call(function)
    except (Exception, _Expired):
        if not alarm.has_expired:
            raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, handler)
    if not alarm.has_expired:
        return value
    duration = time.monotonic() - start
    message = f"no value after {seconds:g} s"
    if duration > seconds + 1:
        message += f"; stopped after {duration:.3g} s, since compiled code is not interrupted"
    raise TimeoutError(message)


def _check_alarm() -> None:
    """Check that this thread can set an alarm, and that no other one is set."""
    is_possible = hasattr(signal, "setitimer")
    is_main = threading.current_thread() is threading.main_thread()
    if not is_possible or not is_main or signal.getitimer(signal.ITIMER_REAL)[0]:
        raise InvalidInput(
            "a limit of time within this process (workers=1) needs Unix, the main thread and a timer "
            "(signal.setitimer) that nothing else uses: leave out workers for a worker process, or limit the time in "
            "the objective."
        )


class _Expired(BaseException):
    """The time is over. It is no ``Exception``, so that ``except Exception`` in the function does not catch it."""


class _Alarm:
    """An alarm that interrupts a function at most once, and never after the function has returned."""

    def __init__(self) -> None:
        self._is_set = True
        self.has_expired = False

    def expire(self, signum: int, frame: Any) -> None:
        """Handle the signal of the timer."""
        if self._is_set:
            self._is_set = False
            self.has_expired = True
            raise _Expired

    def call(self, function: Callable[[], R]) -> R:
        """Call the function. This is a method because an alarm at the line of a nested ``try`` would not be caught."""
        try:
            return function()
        finally:
            self._is_set = False


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
        trial = _trial(number, params, self._report)
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


def _trial(number: int, params: Any, on_report: OnReport) -> RunningTrial:
    """Return a trial whose reports are answered at once, in the thread that reports."""
    answers: queue.SimpleQueue[bool] = queue.SimpleQueue()

    def send(value: float, step: int) -> None:
        answers.put(on_report(number, value, step))

    return RunningTrial(number, params, send, answers.get)
