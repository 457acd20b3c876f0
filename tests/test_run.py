"""A run alone, without a model: trials, events, the journal, and methods that are interrupted or called by threads."""

import gc
import threading
import weakref

import pytest

from kbo.errors import InvalidInput
from kbo.optimize.run.guard import Guard, guarded
from kbo.optimize.run.run import Run
from kbo.space import Space
from kbo.workers.call import CallOutcome

POINT = {"x": 0.5}


def begun(path=None, **options):
    space = Space({"x": (0.0, 1.0)})
    header = {"about": "an example", "space": space.describe(), "named": True}
    return Run(space, header, path, **options)


def test_a_run_records_what_happens_to_its_trials_and_can_be_read_again(tmp_path):
    run = begun(tmp_path / "j", needed=["memory"])
    run.report(run.begin(POINT), 2.0, step=1)
    run.complete(POINT, (1.0, {"memory": 7.0}))
    run.complete(run.begin({"x": 0.6}), 1.0)
    run.fail(run.begin({"x": 0.7}), "it diverged", 3.0)
    run.prune(run.begin({"x": 0.8}))
    run.add({"x": 0.9}, (0.0, {"memory": 6.0}))
    run.begin({"x": 1.0})
    assert [trial.status for trial in run.trials.all] == [
        *("complete", "failed", "failed", "pruned", "complete", "pending")
    ]
    assert run.trials.all[0].reports == [(1, 2.0)]
    assert "there is no measurement of 'memory'" in run.trials.all[1].failure
    assert (run.trials.n_asked_ended, len(run.trials.finished)) == (4, 5)
    run.save(tmp_path / "saved")
    run.close()
    for again in (begun(tmp_path / "j"), begun()):
        if not again.trials.all:
            again.load(tmp_path / "saved")
        assert again.trials.all == run.trials.all
        assert again.events == run.events
        assert [trial.params for trial in again.abandoned()] == [{"x": 1.0}]


def test_a_run_knows_who_evaluates_a_trial(tmp_path):
    run = begun(tmp_path / "j")
    first, second = run.begin(POINT), run.begin({"x": 0.6})
    assert run.abandoned() == []
    run.abandon([first])
    assert run.abandoned() == [first]
    assert run.resume(first).starts == 1  # nobody was given it
    run.lose(second, "its worker died")
    assert run.abandoned() == [second]
    assert run.resume(second).starts == 2
    assert "started 2 times" in run.lose(second, "its worker died").failure
    run.release()
    assert run.abandoned() == [first]
    assert run.resume(first).starts - first.released == 1


def test_the_end_of_a_call_is_the_end_of_its_trial_unless_the_worker_died():
    for status, outcome in {
        "complete": CallOutcome(0, value=1.0),
        "failed": CallOutcome(0, value="text"),
        "pruned": CallOutcome(0, stopped=True),
        "pending": CallOutcome(0, failure="its worker died", died=True),
    }.items():
        run = begun()
        run.begin(POINT)
        assert run.end(outcome).status == status


def test_a_value_is_that_of_the_pending_trial_with_these_parameters_which_was_started_last():
    run = begun()
    run.begin(POINT)
    last = run.begin(POINT)
    assert run.complete(POINT, 1.0) is last


def test_a_run_that_nobody_uses_any_more_lets_go_of_its_journal_at_once(tmp_path):
    gc.disable()
    try:
        run = begun(tmp_path / "j")
        reference = weakref.ref(run)
        del run
        assert reference() is None
        begun(tmp_path / "j").close()
    finally:
        gc.enable()


class Counter:
    """A number that is computed from a record."""

    def __init__(self):
        self.record = []
        self.count = 0
        self.n_rebuilt = 0
        self.guard = Guard(self.rebuild)

    def rebuild(self):
        self.n_rebuilt += 1
        self.count = len(self.record)

    @guarded
    def add(self, error=None):
        self.record.append(error)
        if error is not None:
            raise error
        self.count += 1

    @guarded
    def add_twice(self, error=None):
        self.add()
        self.add(error)


@pytest.mark.parametrize("method", ["add", "add_twice"])
def test_an_interrupted_method_is_repaired_before_the_next_one_and_a_refusal_needs_no_repair(
    method,
):
    counter = Counter()
    with pytest.raises(KeyboardInterrupt):
        getattr(counter, method)(KeyboardInterrupt())
    counter.add_twice()
    assert (counter.count, counter.n_rebuilt) == (len(counter.record), 1)
    with pytest.raises(InvalidInput):
        getattr(counter, method)(InvalidInput("no"))
    counter.add()
    assert counter.n_rebuilt == 1


def test_a_method_waits_for_the_methods_of_other_threads():
    counter = Counter()
    threads = [threading.Thread(target=counter.add_twice) for _ in range(8)]
    with counter.guard.lock:
        for thread in threads:
            thread.start()
        assert counter.count == 0
    for thread in threads:
        thread.join()
    assert counter.count == 16
