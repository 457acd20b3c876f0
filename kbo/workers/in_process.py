"""Calls in this process, one at a time."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from kbo._base import checks
from kbo._base.isolation import as_caller
from kbo._base.program_state import preserved
from kbo.errors import InvalidInput
from kbo.workers.call import CallOutcome, call, trial_of_this_process
from kbo.workers.engine import YEAR, Engine, OnReport, Session

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
        trial = trial_of_this_process(number, params, self._on_report)
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
