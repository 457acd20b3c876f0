"""``timeout`` of an objective in this process: what catches it, other timers, and when it is refused."""

import contextlib
import itertools
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import kbo
from kbo.workers.in_process import call_with_limit
from tests.faults import REPEATS


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


def test_a_run_within_a_trial_ends_with_the_trial():
    def objective(x):
        options = {"max_failures": 40, "workers": 1, "method": "random"}
        return kbo.minimize(lambda x: busy(0.05), [(0, 1)], 40, **options).value

    for failure in failures(objective, 0.2):
        assert failure.startswith("TimeoutError: no value after 0.2 s")


@pytest.fixture
def _timer_of_the_program():
    signal.setitimer(signal.ITIMER_REAL, 600.0)
    yield
    assert signal.getitimer(signal.ITIMER_REAL)[0] > 0.0
    signal.setitimer(signal.ITIMER_REAL, 0.0)


@pytest.mark.usefixtures("_timer_of_the_program")
@pytest.mark.parametrize("limit", [{"timeout": 5.0}, {"time_budget": 5.0, "end_running": True}])
def test_a_limit_beside_a_timer_of_the_program_is_refused_before_the_objective_is_called(limit):
    called = []
    with pytest.raises(kbo.InvalidInput, match=r"leave out workers for a worker process"):
        kbo.minimize(called.append, [(0, 1)], 2, workers=1, **limit)
    assert not called


def test_a_limit_within_another_one_is_refused():
    def objective(x):
        return kbo.minimize(lambda x: 1.0, [(0, 1)], 2, timeout=5.0, workers=1).value

    for failure in failures(objective, 600.0):
        assert "leave out workers for a worker process" in failure


def test_a_limit_outside_of_the_main_thread_is_refused():
    with ThreadPoolExecutor(1) as pool, pytest.raises(kbo.InvalidInput, match="the main thread"):
        pool.submit(call_with_limit, busy, 5.0).result()


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
