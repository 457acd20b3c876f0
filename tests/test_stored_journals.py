"""Journals of earlier versions are read and continued, and the answers about them stay the same.

The two of kbo 0.30 were written by ``write_everything`` and ``write_front`` below. A version that changes the answers
on purpose stores new numbers here; the journals stay as they are.
"""

import shutil
import typing
from pathlib import Path

import numpy as np
import pandas
import pytest
from gpytorch.kernels import RBFKernel

import kbo
from kbo.optimize.run.events import Event
from kbo.optimize.run.journal_file import read_journal
from kbo.report.record import Record

JOURNALS = Path(__file__).parent / "journals"

FIRST_SPACE = {"rate": kbo.Float(1e-3, 1.0, log=True), "layers": kbo.Int(1, 4), "kind": ["a", "b"]}
SPACE = {**FIRST_SPACE, "rate": kbo.Float(1e-2, 1.0, log=True), "drop": (0.0, 0.5)}
PROBLEM = {"setting": kbo.Practical(n_initial=4), "seed": 3, "value_range": (-1.0, 50.0)}
LIMITS = [kbo.Constraint("memory", upper=4.5)]

OBJECTIVES = {
    "objectives": ["error", kbo.Maximize("speed")],
    "reference": {"error": 3.0},
    "seed": 5,
}
BOX = {"x": (0.0, 1.0), "y": (0.0, 1.0)}


def measured(params):
    """Return the loss and the memory of parameters."""
    loss = (np.log10(params["rate"]) + 1.2) ** 2 + 0.1 * params["layers"]
    loss += 0.3 * (params["kind"] == "a") + params.get("drop", 0.0)
    return {"objective": loss, "memory": 1.0 + params["layers"]}


def both(params):
    """Return the error and the speed of parameters."""
    return {"error": (params["x"] - 0.2) ** 2 + params["y"], "speed": params["x"] + params["y"]}


def write_everything(path):
    """Write a journal with one objective and events of every kind."""

    def objective(params, trial):
        trial.report(2.0 * measured(params)["objective"], step=1)
        return measured(params)

    known = pandas.DataFrame([{"rate": 0.5, "layers": 2, "kind": "a", "value": 1.1, "memory": 3.0}])
    options = {**PROBLEM, "constraints": LIMITS, "journal": path}
    kbo.minimize(objective, FIRST_SPACE, 5, evaluated=known, **options)
    optimizer = kbo.Optimizer(FIRST_SPACE, **options)
    optimizer.fail(optimizer.ask(), "diverged", measured={"memory": 2.0})
    stopped = optimizer.begin()
    optimizer.report(stopped, 9.0, step=1)
    optimizer.prune(stopped)
    params = optimizer.ask(context={"kind": "b"})
    optimizer.tell(params, measured(params))
    optimizer.correct(1, {"objective": 0.9, "memory": 2.0})
    optimizer.remove(2, "the sensor was off")
    optimizer.ask()
    optimizer.run.release()
    optimizer.close()
    optimizer = kbo.Optimizer(SPACE, allow_change=True, was={"drop": 0.0}, **options)
    for _ in range(4):
        params = optimizer.ask()
        optimizer.tell(params, measured(params))
    optimizer.ask()
    optimizer.close()
    optimizer = kbo.Optimizer(SPACE, **options)
    optimizer.ask()
    optimizer.close()


def write_front(path):
    """Write a journal with two objectives."""
    optimizer = kbo.Optimizer(BOX, journal=path, **OBJECTIVES)
    for _ in range(8):
        params = optimizer.ask()
        optimizer.tell(params, both(params))
    optimizer.close()


def continued(name, folder, bounds, objective, **options):
    """Return an optimiser after two further trials of a copy of a stored journal."""
    path = shutil.copy(JOURNALS / name, folder)
    optimizer = kbo.Optimizer(bounds, journal=path, **options)
    for _ in range(2):
        params = optimizer.ask()
        optimizer.tell(params, objective(params))
    return optimizer


def close(numbers):
    """Return numbers that are equal to 1e-6."""
    return pytest.approx(numbers, rel=0.0, abs=1e-6)


def test_the_stored_journals_have_events_of_every_kind():
    stored = read_journal(JOURNALS / "journal-0.30.0-everything.jsonl").whole().events
    assert {type(event) for event in stored} == set(typing.get_args(Event))


def test_a_journal_with_events_of_every_kind_continues_with_the_same_answers(tmp_path):
    name = "journal-0.30.0-everything.jsonl"
    optimizer = continued(name, tmp_path, SPACE, measured, constraints=LIMITS, **PROBLEM)
    statuses = [trial.status for trial in optimizer.trials]
    assert [statuses.index(status) for status in ("removed", "failed", "pruned")] == [2, 6, 7]
    assert statuses[13:] == ["failed", "complete", "complete"]  # trial 13 was lost twice
    assert [trial.value for trial in optimizer.trials[-2:]] == close([2.05395811, 0.30077187])
    assert optimizer.recommended().number == 15
    point = {"rate": 0.2, "layers": 2, "kind": "a", "drop": 0.2}
    assert optimizer.interval(point) == close([0.32589189, 0.76123584, 1.77887123])
    assert optimizer.interval(point, "memory") == close([1.32598555, 2.86745926, 3.76219050])


def test_a_journal_with_two_objectives_continues_with_the_same_answers(tmp_path):
    optimizer = continued("journal-0.30.0-front.jsonl", tmp_path, BOX, both, **OBJECTIVES)
    assert [trial.value for trial in optimizer.trials[-2:]] == close([0.85757430, 0.91100052])
    assert optimizer.recommended().number == 7
    point = {"x": 0.3, "y": 0.6}
    assert optimizer.interval(point) == close([0.53776185, 0.59648087, 0.65519988])
    assert optimizer.interval(point, "speed") == close([0.80055317, 0.88622998, 0.97190678])
    assert optimizer.insight.front().hypervolume.value == close(2.63387772)


@pytest.mark.parametrize(
    ("name", "method"), [("drawn", "chaining-ucb"), ("doubling", "cmm-ucb-doubling")]
)
def test_a_journal_with_norm_bounds_that_its_method_does_not_use_can_be_read_and_continued(
    name, method, tmp_path
):
    path = shutil.copy(JOURNALS / f"journal-1.0.0-{name}.jsonl", tmp_path)
    kernel = RBFKernel().double().initialize(lengthscale=0.5)
    record = Record.of(path, kernel)
    assert [trial.value for trial in record.trials] == close([0.32, 3.38, 0.98])
    limit = kbo.Constraint("memory", upper=4.5, noise_std=0.1)
    options = {"method": method, "constraints": [limit], "journal": path, "seed": 4}
    setting = kbo.Certified(kernel, 0.1)
    optimizer = kbo.Optimizer({"i": kbo.Int(0, 20)}, setting=setting, **options)
    assert len(optimizer.trials) == 3
    assert optimizer.interval({"i": 5}) == record.optimizer.interval({"i": 5})


def test_a_parameter_called_norm_bound_is_compared_as_any_other(tmp_path):
    path = tmp_path / "run.jsonl"
    kbo.Optimizer({"norm_bound": (0.0, 1.0), "x": (0.0, 1.0)}, journal=path).close()
    with pytest.raises(kbo.JournalError, match="space norm_bound: only in the journal"):
        kbo.Optimizer({"x": (0.0, 1.0)}, journal=path)


@pytest.mark.parametrize(
    ("version", "limits"), [("0.11.0", []), ("0.14.0", [kbo.Constraint("memory", upper=8.0)])]
)
def test_journals_of_earlier_versions_continue_with_their_pending_trial(version, limits, tmp_path):
    """Values, a failure, conditions, reports, a pruned trial and, in the second one, measurements."""
    path = shutil.copy(JOURNALS / f"journal-{version}-events.jsonl", tmp_path)
    space = [
        {"rate": kbo.Float(1e-4, 1e-1, log=True), "n": kbo.Int(1, 8), "kind": ["a", "b"]},
        kbo.When("kind", "b", {"depth": kbo.Int(2, 6)}),
    ]
    setting = kbo.Practical(n_initial=4)
    optimizer = kbo.Optimizer(space, setting=setting, seed=7, journal=path, constraints=limits)
    ends = ["complete"] * 3 + ["failed", "complete", "pruned"] + ["complete"] * 3
    assert [trial.status for trial in optimizer.trials] == [*ends, "pending"]
    assert optimizer.recommended().number == 0
    assert optimizer.ask() == optimizer.trials[-1].params
