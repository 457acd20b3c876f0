"""Tuners and how they are compared."""

import math
from types import SimpleNamespace

import pandas as pd
import pytest
import torch

from experiments.papers import catalogue as papers
from experiments.problems import DiabetesSVR, TrainingCurves, branin
from experiments.problems.curves import SPACES, STEPS
from experiments.tuning import comparison as tuning
from experiments.tuning.comparison import run
from experiments.tuning.suites import DEVELOPMENT, HALVES, PROBLEMS, TABLES, half_of, true_value
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


@pytest.mark.parametrize("name", ["kbo", "qlognei"])
def test_a_tuner_minimises(name):
    chosen = tuner(name, Space([(-1.0, 1.0)]), 0, 10)
    played(chosen, lambda x: (x[0] - 0.5) ** 2, 10)
    assert abs(chosen.recommended()[0] - 0.5) < 0.1


def test_a_run_has_a_row_for_every_checkpoint_and_trial_that_is_better_than_all_before():
    problem = branin(seed=1)
    regrets = [
        problem.noiseless(params) - problem.optimum
        for params in played(tuner("random", problem.space, 1, 20), problem, 20)
    ]
    best = math.inf
    records = []
    for number, regret in enumerate(regrets, start=1):
        if regret < best:
            records.append((number, regret))
        best = min(best, regret)
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
    assert run("branin", "random", 1, [19])[-1]["value"] == judged[0]["value"]  # begins alike


def test_where_the_optimum_is_unknown_new_evaluations_judge_all_tuners_alike():
    params = {"C": 10.0, "gamma": 0.01, "epsilon": 10.0}
    problem = DiabetesSVR(seed=0)
    problem(params)
    fresh = true_value(DiabetesSVR, DiabetesSVR(seed=0), params, 0)
    assert true_value(DiabetesSVR, problem, params, 0) == fresh
    (row,) = run("diabetes", "random", 0, [2])
    assert math.isnan(row["regret"])
    assert math.isnan(row["visited_regret"])


@pytest.mark.parametrize("name", [name for name in TABLES if name not in ("diabetes", "digits")])
def test_nothing_is_below_the_optimum(name):
    problem = TABLES[name](seed=2)
    for u in torch.rand(100, problem.space.dimension, dtype=torch.float64):
        assert problem.noiseless(problem.space.params(u)) >= problem.optimum - 1e-9


@pytest.mark.parametrize("name", SPACES)
def test_a_recorded_training_reports_every_step_and_stops_when_told(name):
    problem = TrainingCurves(name)
    params = min(map(problem.space.params, problem.space.table), key=problem.noiseless)
    runs = {}
    for most in (math.inf, 3):
        reports = runs[most] = []
        trial = SimpleNamespace(
            report=lambda value, *, step, reports=reports: reports.append((step, value)),
            should_stop=lambda reports=reports, most=most: len(reports) >= most,
        )
        assert TrainingCurves(name, seed=1)(params, trial) == reports[-1][1]
    whole = runs[math.inf]
    assert [step for step, _ in whole] == list(range(1, STEPS + 1))
    assert runs[3] == whole[:3]
    assert problem.noiseless(params) == problem.optimum
    assert whole[-1][1] < whole[0][1]  # it learns


@pytest.mark.parametrize(("suite", "size"), [("bbob", 12), ("bbob-mixint", 12), ("hpo", 10)])
def test_a_suite_is_the_sum_of_its_halves(suite, size):
    odd, even = (half_of(suite, half) for half in HALVES)
    assert (len(odd), len(even), len({*odd, *even})) == (size, size, 2 * size)
    assert set(odd) <= DEVELOPMENT <= set(PROBLEMS)


def test_functions_of_odd_number_are_to_develop_on_and_the_seed_is_the_instance():
    odd, even = (half_of("bbob", half, 2, "heavy") for half in HALVES)
    assert (odd[1], even[0]) == ("bbob-f3-d2-heavy", "bbob-f2-d2-heavy")
    problem = PROBLEMS[even[0]](seed=4)
    assert (problem.name, problem.noise) == ("bbob_f002_i04_d02", "heavy")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("bob", "held-out"), "suite must be one of"),
        (("bbob", "both"), "half must be one of"),
        (("bbob-mixint", "held-out", 2), "dim of bbob-mixint must be one of 5, 10, 20, got 2"),
        (("bbob", "held-out", 5, "loud"), "noise must be one of"),
        (("hpo", "held-out", 5), "leave them out"),
    ],
)
def test_wrong_suites_are_named(arguments, message):
    with pytest.raises(InvalidInput, match=message):
        half_of(*arguments)


def test_runs_of_another_kbo_are_other_cells(monkeypatch):
    def keys():
        return [tuning.cell("branin", name, 0, [5]).key for name in ("kbo", "tpe")]

    kbo, tpe = keys()
    monkeypatch.setattr(tuning, "code", lambda: "other")
    other, same = keys()
    assert other != kbo
    assert same == tpe


NAN = math.nan
WORSE = [1.1, 2.1, 3.1, 4.1]


@pytest.mark.parametrize(
    ("values", "best"),
    [
        (
            {
                "best": [1.0, 2.0, 3.0, 4.0],
                "always a bit worse": WORSE,
                "as good": [1.3, 1.8, 3.2, 3.9],
                "far": [9.0] * 4,
            },
            {"best", "as good"},
        ),
        # Seeds that only one of them ran do not count, and the best of few seeds does not shield the others.
        ({"a": [1.0, 1.0, 1.0], "b": [5.0, NAN, NAN]}, {"a", "b"}),
        (
            {"few": [0.5, NAN, NAN, NAN], "best": [1.0, 2.0, 3.0, 4.0], "worse": WORSE},
            {"few", "best"},
        ),
    ],
)
def test_the_best_group_is_who_nobody_beats_by_two_standard_errors_of_paired_differences(
    values, best
):
    assert tuning.best_group(pd.DataFrame(values)) == best


def test_the_comparison_runs_and_is_stored(tmp_path, monkeypatch):
    for name in ("TUNERS", "FAST"):
        monkeypatch.setattr(tuning, name, ("kbo", "random"))
    monkeypatch.setattr(tuning, "TABLES", {"branin": TABLES["branin"]})
    for which in (1, 2):
        table = papers.paper("tuning").experiment("table", which)
        assert "branin" in table(tmp_path, True, 1, False)
    assert (tmp_path / "table1.md").read_text().startswith("| problem | trials | kbo | random |")
    assert len(pd.read_csv(tmp_path / "table1.csv")) == 2 * 2 * 2
