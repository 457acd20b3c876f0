"""Tuners and how they are compared."""

import math
from types import SimpleNamespace

import pandas as pd
import pytest

from experiments.problems import TrainingCurves, branin
from experiments.problems.curves import SPACES, STEPS
from experiments.tuning import comparison as tuning
from experiments.tuning.comparison import run
from experiments.tuning.suites import DEVELOPMENT, HALVES, PROBLEMS, half_of
from experiments.tuning.tuners import TUNERS, BoTorchTuner, tuner
from kbo.errors import InvalidInput
from kbo.space import Choice, Float, Int, Space


@pytest.fixture(autouse=True)
def _few_starts(monkeypatch):
    """The search of BoTorch is not what is tested here."""
    for name, few in (("restarts", 2), ("raw_samples", 16), ("draws", 16)):
        monkeypatch.setattr(BoTorchTuner, name, few)


MIXED = Space(
    {
        "a": Float(1e-3, 1.0, log=True),
        "b": Int(1, 20),
        "c": Choice(["x", "y", "z"]),
        "d": Int(1, 64, log=True),
    }
)


def objective(params):
    return (math.log10(params["a"]) + 1) ** 2 + 0.01 * (params["b"] - 7) ** 2 + (params["c"] != "y")


def played(chosen, function, trials):
    """The points that a tuner asks for."""
    asked = []
    for _ in range(trials):
        asked.append(chosen.ask())
        chosen.tell(asked[-1], function(asked[-1]))
    return asked


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in ("ax", "smac"))) for name in TUNERS],
)
def test_a_tuner_tunes_a_mixed_space_the_same_way_with_the_same_seed(name):
    library = {"cmaes": "cmaes", "smac": "smac", "ngopt": "nevergrad"}.get(name)
    if library:
        pytest.importorskip(library)
    trials = 7  # more than the first points of each
    runs = []
    for seed in (3, 3, 4):
        chosen = tuner(name, MIXED, seed, trials)
        runs.append(played(chosen, objective, trials))
        assert chosen.recommended() in runs[-1]
    for params in runs[0]:
        MIXED.unit(params)  # inside the space
    assert runs[0] == runs[1] != runs[2]


def test_a_run_has_a_row_for_every_checkpoint_and_trial_that_is_better_than_all_before():
    problem = branin(seed=1)
    records = []
    best = math.inf
    asked = played(tuner("random", problem.space, 1, 20), problem, 20)
    for number, params in enumerate(asked, start=1):
        regret = problem.noiseless(params) - problem.optimum
        if regret < best:
            records.append((number, regret))
            best = regret
    rows = run("branin", "random", 1, [19, 20])
    assert 2 <= len(records) < 19
    found = [(row["trials"], row["visited_regret"]) for row in rows if row["trials"] < 19]
    assert found == [record for record in records if record[0] < 19]
    assert rows[-1]["visited_regret"] == best
    judged = [row for row in rows if not math.isnan(row["value"])]
    assert [row["trials"] for row in judged] == [19, 20]
    for row in judged:  # without noise
        assert row["regret"] == pytest.approx(row["value"] - problem.optimum)
        assert row["regret"] >= row["visited_regret"] >= 0
        assert row["cpu_seconds"] > 0


def test_a_recorded_training_reports_every_step_and_stops_when_told():
    problem = TrainingCurves(next(iter(SPACES)), seed=1)
    params = min(map(problem.space.params, problem.space.table), key=problem.noiseless)
    assert problem.noiseless(params) == problem.optimum
    for most in (STEPS + 1, 3):
        steps = []
        trial = SimpleNamespace(
            report=lambda value, *, step, steps=steps: steps.append(step),
            should_stop=lambda steps=steps, most=most: len(steps) >= most,
        )
        problem(params, trial)
        assert steps == list(range(1, min(most, STEPS) + 1))


def test_a_suite_is_the_sum_of_its_halves_and_the_seed_is_the_instance():
    for suite, size in {"bbob": 12, "bbob-mixint": 12, "hpo": 10}.items():
        odd, even = (half_of(suite, half) for half in HALVES)
        assert (len(odd), len(even), len({*odd, *even})) == (size, size, 2 * size)
        assert set(odd) <= DEVELOPMENT <= set(PROBLEMS)
    assert PROBLEMS["bbob-f2-d2-heavy"](seed=4).name == "bbob_f002_i04_d02"
    with pytest.raises(
        InvalidInput, match="dim of bbob-mixint must be one of 5, 10, 20, 40, got 2"
    ):
        half_of("bbob-mixint", "held-out", 2)


def test_runs_of_another_kbo_are_other_cells(monkeypatch):
    def keys():
        return [tuning.cell("branin", name, 0, [5]).key for name in ("kbo", "tpe")]

    kbo, tpe = keys()
    monkeypatch.setattr(tuning, "code", lambda: "other")
    other, same = keys()
    assert other != kbo
    assert same == tpe


def test_the_best_group_is_who_nobody_beats_by_two_standard_errors_of_paired_differences():
    best = [1.0, 2.0, 3.0, 4.0]
    worse = [1.1, 2.1, 3.1, 4.1]
    values = {"best": best, "worse": worse, "as good": [1.3, 1.8, 3.2, 3.9], "far": [9.0] * 4}
    assert tuning.best_group(pd.DataFrame(values)) == {"best", "as good"}
    # The best of few seeds does not shield the others.
    values = {"few": [0.5, math.nan, math.nan, math.nan], "best": best, "worse": worse}
    assert tuning.best_group(pd.DataFrame(values)) == {"few", "best"}
