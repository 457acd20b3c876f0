"""``timeout`` of an objective: what catches it, limits within limits, timers of the caller."""

import contextlib
import itertools
import signal
import sys
import time

import pytest

import kbo
from kbo.workers.time_limit import call_with_limit

RUN = {"bounds": [(0, 1)], "n_trials": 2, "max_failures": 9}


def busy(seconds=2.0):
    """Python code that takes so long unless something interrupts it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.01)
    return 1.0


def swallow(error):
    def objective(x):
        try:
            return busy(0.3)
        except error:
            return 0.0

    return objective


@pytest.fixture
def ticks():
    """The times at which a timer of the caller's own has fired: every 0.02 s."""
    seen = []
    before = signal.signal(signal.SIGALRM, lambda signum, frame: seen.append(time.monotonic()))
    signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
    yield seen
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("error", [Exception, BaseException])
def test_no_value_counts_after_the_time_whatever_the_objective_catches(error):
    with pytest.raises(kbo.TooManyFailures) as raised:
        kbo.minimize(swallow(error), timeout=0.05, workers=1, **RUN)
    assert [trial.status for trial in raised.value.trials] == ["failed"] * 2
    assert all("TimeoutError: no value after 0.05 s" in trial.failure for trial in raised.value.trials)


@pytest.mark.parametrize("inner", [None, 0.05, 10.0])
def test_a_run_within_a_trial_ends_with_the_trial(inner):
    def objective(x):
        return kbo.minimize(lambda x: busy(0.2), [(0, 1)], 40, timeout=inner, max_failures=40, workers=1).value

    with pytest.raises(kbo.TooManyFailures) as raised:
        kbo.minimize(objective, timeout=0.3, workers=1, **RUN)
    assert [trial.status for trial in raised.value.trials] == ["failed"] * 2


@pytest.mark.parametrize("seconds", [0.4, 600.0])
def test_a_timer_of_the_caller_goes_on_during_and_after_a_limit(ticks, seconds):
    wait = lambda n: until(lambda: len(ticks) >= n)  # noqa: E731
    if seconds < 1.0:
        with pytest.raises(TimeoutError):
            call_with_limit(lambda: wait(10**6), seconds)
        assert ticks
    else:
        call_with_limit(lambda: wait(2), seconds)
    wait(len(ticks) + 2)


def until(condition):
    end = time.monotonic() + 60.0
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def state():
    return signal.getitimer(signal.ITIMER_REAL), signal.getsignal(signal.SIGALRM)


def test_an_alarm_at_the_last_moment_neither_escapes_nor_stays():
    before = state()
    for i in range(300):
        with contextlib.suppress(TimeoutError):
            assert call_with_limit(lambda i=i: busy(1e-4 * (i % 3)), 1e-4) == 1.0
    assert state() == before


def test_an_alarm_at_any_line_of_a_limit_neither_escapes_nor_stays(monkeypatch):
    before, k, seen = state(), 0, []
    monkeypatch.setattr(signal, "setitimer", lambda *_: None)
    while len(seen) == k:  # there was a k-th line
        k += 1
        lines = itertools.count(1)

        def alarm(frame, event, arg, k=k, lines=lines):
            if frame.f_code.co_filename != call_with_limit.__code__.co_filename or frame.f_code.co_name == "expire":
                return None
            if event == "line" and signal.getsignal(signal.SIGALRM) is not before[1] and next(lines) == k:
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
