"""A limit of time within this process: an alarm that interrupts Python code as Ctrl-C does."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from kbo._base import checks
from kbo.errors import InvalidInput

R = TypeVar("R")

YEAR = 365 * 86_400.0
"""The longest limit of time, in seconds."""


class _Expired(BaseException):
    """The time is over; no Exception, so that ``except Exception`` within the limit does not catch it."""


def check_time_limit(name: str, seconds: Any) -> None:
    """Check seconds above 0, and that this thread can limit the time of its calls."""
    checks.positive(name, seconds, most=YEAR)
    is_main = threading.current_thread() is threading.main_thread()
    if not hasattr(signal, "setitimer") or not is_main:
        raise InvalidInput(
            f"{name} needs Unix and the main thread; limit the time in the objective instead."
        )


def call_with_limit(function: Callable[[], R], seconds: float | None) -> R:
    """Return ``function()``, or raise TimeoutError after that many seconds in the main thread; None for no limit.

    The interruption of the function is not an ``Exception``. Compiled code is only interrupted when it returns. A
    function that catches ``BaseException`` goes on, and then TimeoutError is raised at its end. Limits may be nested,
    also in a timer of the caller's own (``signal.setitimer``), which goes on and calls its handler at its time.
    """
    if seconds is None:
        return function()
    value: Any = None
    start = time.monotonic()
    alarm = _Alarm(start + float(seconds))
    try:
        alarm.begin()
        value = alarm.call(function)
    except (Exception, _Expired):
        if not alarm.expired:  # the function failed, or an outer limit expired
            raise
    finally:
        alarm.restore()
    if not alarm.expired:
        return value
    duration = time.monotonic() - start
    message = f"no value after {seconds:g} s"
    if duration > seconds + 1:
        message += f"; stopped after {duration:.3g} s, since compiled code is not interrupted"
    raise TimeoutError(message)


class _Alarm:
    """The timer of this process, shared by a limit of time and the timer that was there before, the outer one.

    Attributes:
        deadline: The end of the limit; infinite when an alarm has nothing to interrupt any more.
        expired: Whether the limit has interrupted its function.
    """

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.expired = False
        self._outer_handler = signal.getsignal(signal.SIGALRM)
        left, self._outer_interval = signal.getitimer(signal.ITIMER_REAL)
        self._outer_deadline = math.inf
        if left:
            self._outer_deadline = time.monotonic() + left

    def begin(self) -> None:
        signal.signal(signal.SIGALRM, self.expire)
        self._arm()

    def call(self, function: Callable[[], R]) -> R:
        try:
            return function()
        finally:
            self.deadline = math.inf

    def expire(self, signum: int, frame: Any) -> None:
        """Handle the signal of the timer."""
        now = time.monotonic()
        if now >= self._outer_deadline:
            self._expire_outer(now, signum, frame)
        elif now >= self.deadline:
            self.deadline = math.inf
            self.expired = True
            self._arm()
            raise _Expired
        else:  # a little early
            self._arm()

    def _expire_outer(self, now: float, signum: int, frame: Any) -> None:
        self._outer_deadline = now + (self._outer_interval or math.inf)
        try:
            if callable(self._outer_handler):
                self._outer_handler(signum, frame)
        except _Expired:  # of an outer limit: an alarm of this one must not replace it
            self.deadline = math.inf
            raise
        finally:
            self._arm()

    def _arm(self) -> None:
        _set_timer(min(self.deadline, self._outer_deadline))

    def restore(self) -> None:
        """Leave the timer to the outer one."""
        _set_timer(math.inf)
        signal.signal(signal.SIGALRM, self._outer_handler)
        _set_timer(self._outer_deadline, self._outer_interval)


def _set_timer(deadline: float, interval: float = 0.0) -> None:
    seconds = 0.0  # switches the timer off
    if deadline < math.inf:
        seconds = max(deadline - time.monotonic(), 1e-6)
    signal.setitimer(signal.ITIMER_REAL, seconds, interval)
