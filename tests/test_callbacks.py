"""Functions called after trials: several, and context managers that are entered for the run."""

from importlib import import_module

import pytest

import kbo
from kbo.errors import InvalidInput, TooManyFailures


class Recorded:
    """Writes down what happens to it."""

    def __init__(self, broken=None) -> None:
        self.seen, self.broken = [], broken

    def __enter__(self):
        self.seen.append("begin")
        if self.broken:
            raise self.broken

    def __exit__(self, kind, *_):
        self.seen.append(kind)

    def __call__(self, trial, result):
        self.seen.append((trial.number, len(result.trials)))


BOX = [(0.0, 1.0)]


def test_several_are_called_and_one_that_is_a_context_manager_is_entered():
    one = Recorded()
    result = kbo.minimize(lambda x: x[0], BOX, 9, on_trial=[one, lambda t, r: t.number == 1])
    assert one.seen == ["begin", (0, 1), (1, 2), None]
    assert result.stopped == "stopped by on_trial"


def test_an_exception_ends_the_run_with_its_reason_or_is_passed_on():
    def stop(trial, result):
        raise kbo.Stop("good enough")

    stopped = kbo.minimize(lambda x: x[0], BOX, 9, on_trial=stop)
    assert stopped.stopped == "stopped by on_trial: good enough"
    one = Recorded()
    with pytest.raises(TooManyFailures):
        kbo.minimize(lambda x: None, BOX, 9, max_failures=2, on_trial=one)
    assert one.seen == ["begin", (0, 1), (1, 2), TooManyFailures]


def test_those_that_were_entered_are_left_when_another_cannot_be():
    one = Recorded()
    taken = Recorded(InvalidInput("the port is taken"))
    with pytest.raises(InvalidInput, match="port"):
        kbo.minimize(lambda x: x[0], BOX, 2, on_trial=[one, taken])
    assert one.seen == ["begin", InvalidInput]
    with pytest.raises(InvalidInput, match="on_trial must be a function, got"):
        kbo.minimize(lambda x: x[0], BOX, 2, on_trial=[print, None])


def test_an_interrupt_while_the_loop_begins_ends_with_a_result(monkeypatch):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(import_module("kbo.optimize.minimize"), "Loop", interrupted)
    recorded = Recorded()
    result = kbo.minimize(lambda x: x[0], BOX, 3, on_trial=recorded)
    assert result.stopped.startswith("interrupted")
    assert recorded.seen == ["begin", KeyboardInterrupt]
