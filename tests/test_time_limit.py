"""``timeout`` of an objective in this process: what catches it, limits within limits, timers of the caller."""

import contextlib
import itertools
import signal
import sys
import time

import pytest

import kbo
from kbo.workers.time_limit import call_with_limit
from tests.faults import REPEATS
from tests.processes import wait_until


def busy(seconds=5.0):
    """Python code that takes so long unless something interrupts it; an alarm may be lost in code that catches all."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.01)
    return 1.0


def failures(objective, seconds):
    """Return the reasons for which two trials with a limit of time failed."""
    with pytest.raises(kbo.TooManyFailures) as raised:
        kbo.minimize(objective, [(0, 1)], 2, timeout=seconds, workers=1)
    return [trial.failure for trial in raised.value.trials]


@pytest.mark.parametrize("error", [Exception, BaseException])
def test_no_value_counts_after_the_time_whatever_the_objective_catches(error):
    def objective(x):
        with contextlib.suppress(error):
            busy()
        return 0.0

    for failure in failures(objective, 0.05):
        assert failure.startswith("TimeoutError: no value after 0.05 s")


@pytest.mark.parametrize("inner", [None, 0.02, 600.0])
def test_a_run_within_a_trial_ends_with_the_trial(inner):
    def objective(x):
        options = {"max_failures": 40, "workers": 1, "method": "random"}
        return kbo.minimize(lambda x: busy(0.05), [(0, 1)], 40, timeout=inner, **options).value

    for failure in failures(objective, 0.2):
        assert failure.startswith("TimeoutError: no value after 0.2 s")


def test_a_limit_is_not_lost_when_one_within_it_is_due_at_the_same_moment():
    def late():  # both alarms come when both times are over
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
        try:
            time.sleep(0.1)
        finally:  # an alarm that another thread has taken raises before this
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})

    def within():
        with contextlib.suppress(TimeoutError):
            call_with_limit(late, 0.05)
        whole.append(busy())

    whole = []
    with pytest.raises(TimeoutError, match=r"0\.06"):
        call_with_limit(within, 0.06)
    assert not whole


@pytest.mark.parametrize("seconds", [0.2, 600.0])
def test_a_timer_of_the_caller_goes_on_during_and_after_a_limit(seconds):
    ticks = []
    before = signal.signal(signal.SIGALRM, lambda signum, frame: ticks.append(signum))
    signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
    try:
        if seconds < 1.0:
            with pytest.raises(TimeoutError):
                call_with_limit(busy, seconds)
            assert ticks
        else:
            call_with_limit(lambda: wait_until(lambda: len(ticks) >= 2), seconds)
        many = len(ticks) + 2
        wait_until(lambda: len(ticks) >= many)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def state():
    return signal.getitimer(signal.ITIMER_REAL), signal.getsignal(signal.SIGALRM)


@pytest.mark.faults
def test_an_alarm_at_the_last_moment_neither_escapes_nor_stays():
    before = state()
    for i in range(300 * REPEATS):
        with contextlib.suppress(TimeoutError):
            assert call_with_limit(lambda i=i: time.sleep(1e-4 * (i % 3)) or 1.0, 1e-4) == 1.0
    assert state() == before


def test_an_alarm_at_any_line_of_a_limit_neither_escapes_nor_stays(monkeypatch):
    before, k, seen = state(), 0, []
    monkeypatch.setattr(signal, "setitimer", lambda *_: None)
    while len(seen) == k:  # there was a k-th line
        k += 1
        lines = itertools.count(1)

        def alarm(frame, event, arg, k=k, lines=lines):
            if (
                frame.f_code.co_filename != call_with_limit.__code__.co_filename
                or frame.f_code.co_name == "expire"
            ):
                return None
            if (
                event == "line"
                and signal.getsignal(signal.SIGALRM) is not before[1]
                and next(lines) == k
            ):
                seen.append(k)
                sys.settrace(None)
                signal.raise_signal(signal.SIGALRM)
            return alarm

        sys.settrace(alarm)
        try:
            assert call_with_limit(lambda: 1.0, 1e-9) == 1.0
        except TimeoutError:
            pass
        finally:
            sys.settrace(None)
        assert state() == before
    assert k > 5
