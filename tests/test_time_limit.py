"""``timeout`` of an objective in this process: what catches it, other timers, and when it is refused."""

import contextlib
import itertools
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import kbo
from kbo.workers.in_process import call_with_limit


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


def test_a_limit_beside_a_timer_of_the_program_is_refused_before_the_objective_is_called():
    called = []
    signal.setitimer(signal.ITIMER_REAL, 600.0)
    try:
        for limit in ({"timeout": 5.0}, {"time_budget": 5.0, "end_running": True}):
            with pytest.raises(kbo.InvalidInput, match="leave out workers for a worker process"):
                kbo.minimize(called.append, [(0, 1)], 2, workers=1, **limit)
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0.0
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
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


def test_an_alarm_at_any_line_of_a_limit_neither_escapes_nor_stays(monkeypatch):
    before = state()
    code = call_with_limit.__code__
    monkeypatch.setattr(signal, "setitimer", lambda *_: None)
    n_alarms = 0
    while True:
        lines = itertools.count()
        was_sent = False

        def alarm(frame, event, arg, lines=lines, number=n_alarms):
            nonlocal was_sent
            if frame.f_code.co_filename != code.co_filename or frame.f_code.co_name == "expire":
                return None
            is_set = signal.getsignal(signal.SIGALRM) is not before[1]
            if event == "line" and is_set and next(lines) == number:
                was_sent = True
                sys.settrace(None)
                signal.raise_signal(signal.SIGALRM)
            return alarm

        tracer = sys.gettrace()
        sys.settrace(alarm)
        with contextlib.suppress(TimeoutError):
            assert call_with_limit(lambda: 1.0, 1e-9) == 1.0
        sys.settrace(tracer)
        assert state() == before
        if not was_sent:
            break
        n_alarms += 1
    assert n_alarms > 5


def test_a_limit_may_be_a_number_of_numpy():
    seconds = np.float32(9)
    result = kbo.minimize(lambda p: p["x"], {"x": (0.0, 1.0)}, 2, timeout=seconds, workers=1)
    assert len(result.optimizer.trials) == 2
