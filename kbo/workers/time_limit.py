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
"""Seconds that a limit of time may have."""

_EARLY = 1e-3  # seconds by which an alarm may come before its time


class _Expired(BaseException):
    """The time is over; no Exception, so that ``except Exception`` within the limit does not catch it."""


def check_time_limit(name: str, seconds: Any) -> None:
    """Check seconds above 0, and that this thread can limit the time of what it calls."""
    checks.positive(name, seconds, most=YEAR)
    if (
        not hasattr(signal, "setitimer")
        or threading.current_thread() is not threading.main_thread()
    ):
        raise InvalidInput(
            f"{name} needs Unix and the main thread; limit the time in the objective instead."
        )


def call_with_limit(function: Callable[[], R], seconds: float | None) -> R:
    """Return ``function()``, or raise TimeoutError after that many seconds in the main thread; None for no limit.

    What interrupts the function is not an ``Exception``. Compiled code is only interrupted when it returns. A function
    that catches ``BaseException`` goes on, and then TimeoutError is raised at its end. Limits may be nested, also in a
    timer of the caller's own (``signal.setitimer``), which goes on and calls its handler at its time.
    """
    if seconds is None:
        return function()
    value: Any = None
    expired, start = False, time.monotonic()
    deadline = start + float(seconds)
    before = signal.getsignal(signal.SIGALRM)
    left, interval = signal.getitimer(signal.ITIMER_REAL)
    outer = time.monotonic() + left if left else math.inf

    def arm(due: float, repeat: float = 0.0) -> None:
        signal.setitimer(
            signal.ITIMER_REAL, max(due - time.monotonic(), 1e-6) if due < math.inf else 0.0, repeat
        )

    def expire(signum: int, frame: Any) -> None:
        nonlocal expired, deadline, outer
        now = time.monotonic() + _EARLY
        if now >= outer:
            outer = now + interval if interval else math.inf
            try:
                if callable(before):
                    before(signum, frame)
            except (
                _Expired
            ):  # of a limit around this one; an alarm for this one would take its place
                deadline = math.inf
                raise
            finally:
                arm(min(deadline, outer))
        elif now >= deadline:
            expired, deadline = True, math.inf
            arm(outer)
            raise _Expired

    def called() -> R:
        nonlocal deadline
        try:
            return function()
        finally:
            deadline = math.inf  # an alarm that is on its way finds nothing due

    try:
        signal.signal(signal.SIGALRM, expire)
        arm(min(deadline, outer))
        value = called()
    except (Exception, _Expired):  # an _Expired of an outer limit goes on
        if not expired:
            raise
    finally:
        arm(math.inf)
        signal.signal(signal.SIGALRM, before)
        arm(outer, interval)
    if expired:
        late = time.monotonic() - start
        slow = (
            f"; stopped after {late:.3g} s, since compiled code is not interrupted"
            if late > seconds + 1
            else ""
        )
        raise TimeoutError(f"no value after {seconds:g} s{slow}")
    return value
