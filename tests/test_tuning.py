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


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in ("ax", "smac"))) for name in TUNERS],
)
def test_a_tuner_tunes_a_mixed_space_the_same_way_with_the_same_seed(name):
    for library in {"cmaes": ["cmaes"], "smac": ["smac"], "ngopt": ["nevergrad"]}.get(name, ()):
        pytest.importorskip(library)
    trials = 7  # more than the first points of each
    runs = []
    for seed in (3, 3, 4):
        chosen, asked = tuner(name, MIXED, seed, trials), []
        for _ in range(trials):
            params = chosen.ask()
            MIXED.unit(params)  # inside the space
            asked.append(params)
            chosen.tell(params, objective(params))
        assert chosen.recommended() in asked
        runs.append(asked)
    assert runs[0] == runs[1] != runs[2]


@pytest.mark.parametrize("name", ["kbo", "qlognei"])
def test_a_tuner_minimises(name):
    chosen = tuner(name, Space([(-1.0, 1.0)]), 0, 10)
    for _ in range(10):
        x = chosen.ask()
        chosen.tell(x, (x[0] - 0.5) ** 2)
    assert abs(chosen.recommended()[0] - 0.5) < 0.1


def test_botorch_searches_finite_spaces_point_by_point():
    space = Space({"x": Int(0, 9), "y": Int(0, 9)})
    chosen = BoTorchTuner(space, 0, 9)
    for _ in range(9):
        x = chosen.ask()
        chosen.tell(x, float((x["x"] - 3) ** 2 + (x["y"] - 4) ** 2))
    assert chosen._points is not None
    assert len(chosen._points) == 100


def test_a_run_is_judged_without_noise_at_every_checkpoint():
    rows = run("branin", "random", 1, [3, 6])
    judged = [row for row in rows if not math.isnan(row["value"])]
    assert [row["trials"] for row in judged] == [3, 6]
    problem = branin(seed=1)
    for row in judged:
        assert row["regret"] == pytest.approx(row["value"] - problem.optimum)
        assert row["regret"] >= row["visited_regret"] >= 0
        assert row["cpu_seconds"] > 0
    longer = run("branin", "random", 1, [6])
    assert longer[-1]["value"] == judged[1]["value"]  # a longer run begins as a shorter one


def test_a_run_has_a_row_for_every_trial_that_is_better_than_all_before():
    problem, chosen, best = branin(seed=1), tuner("random", branin().space, 1, 20), []
    for trial in range(1, 21):
        params = chosen.ask()
        chosen.tell(params, problem(params))
        best.append((trial, problem.noiseless(params) - problem.optimum))
    records = [
        (n, r) for n, r in best if r < min([math.inf, *(earlier for _, earlier in best[: n - 1])])
    ]
    rows = run("branin", "random", 1, [20])
    assert [(row["trials"], row["visited_regret"]) for row in rows if row["trials"] < 20] == records
    assert rows[-1]["visited_regret"] == records[-1][1]
    assert 2 <= len(records) < 19


def test_where_the_optimum_is_unknown_new_evaluations_judge_all_tuners_alike():
    make = DiabetesSVR
    params = {"C": 10.0, "gamma": 0.01, "epsilon": 10.0}
    problem = make(seed=0)
    problem(params)
    assert true_value(make, problem, params, 0) == true_value(make, make(seed=0), params, 0)
    (row,) = run("diabetes", "random", 0, [2])
    assert math.isnan(row["regret"])
    assert math.isnan(row["visited_regret"])


@pytest.mark.parametrize("name", [name for name in TABLES if name not in ("diabetes", "digits")])
def test_nothing_is_below_the_optimum(name):
    problem = TABLES[name](seed=2)
    for u in torch.rand(300, problem.space.dimension, dtype=torch.float64):
        assert problem.noiseless(problem.space.params(u)) >= problem.optimum - 1e-9


@pytest.mark.parametrize("name", SPACES)
def test_a_recorded_training_reports_every_step_and_stops_when_told(name):
    def value_and_reports(most):
        reports = []
        trial = SimpleNamespace(
            report=lambda value, *, step: reports.append((step, value)),
            should_stop=lambda: len(reports) >= most,
        )
        return TrainingCurves(name, seed=1)(params, trial), reports

    problem = TrainingCurves(name)
    params = min(map(problem.space.params, problem.space.table), key=problem.noiseless)
    (value, whole), (early, stopped) = value_and_reports(math.inf), value_and_reports(3)
    assert [step for step, _ in whole] == list(range(1, STEPS + 1))
    assert stopped == whole[:3]
    assert (early, value) == (stopped[-1][1], whole[-1][1])
    assert problem.noiseless(params) == problem.optimum
    assert value < whole[0][1]  # it learns


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
    before = tuning.cell("branin", "kbo", 0, [5]), tuning.cell("branin", "tpe", 0, [5])
    monkeypatch.setattr(tuning, "code", lambda: "other")
    after = tuning.cell("branin", "kbo", 0, [5]), tuning.cell("branin", "tpe", 0, [5])
    assert before[0].key != after[0].key
    assert before[1].key == after[1].key


def table(**columns):
    return pd.DataFrame(columns)


def test_the_best_group_is_who_nobody_beats_by_two_standard_errors_of_paired_differences():
    base = [1.0, 2.0, 3.0, 4.0]
    found = tuning.best_group(
        table(
            best=base,
            always_a_bit_worse=[b + 0.1 for b in base],
            as_good=[1.3, 1.8, 3.2, 3.9],
            far=[9.0] * 4,
        )
    )
    assert found == {"best", "as_good"}
    # Seeds that only one of them ran do not count, and the best of few seeds does not shield the others.
    assert tuning.best_group(table(a=[1.0, 1.0, 1.0], b=[5.0, math.nan, math.nan])) == {"a", "b"}
    few = table(few=[0.5, *[math.nan] * 3], best=base, worse=[b + 0.1 for b in base])
    assert tuning.best_group(few) == {"few", "best"}


def test_the_summary_has_a_line_for_every_problem_and_length():
    rows = [
        {
            "problem": p,
            "name": n,
            "seed": s,
            "trials": t,
            "value": s + (n == "b"),
            "regret": r,
            "cpu_seconds": 2.0,
        }
        for p, r in (("known", 0.5), ("unknown", math.nan))
        for n in "ab"
        for s in range(3)
        for t in (5, 9)
    ]
    table = tuning.summary(pd.DataFrame(rows))
    assert list(table.index) == [
        (name, t) for t in (5, 9) for name in ("known", "unknown", "CPU s a run")
    ]
    assert table.loc["known", "a"].iloc[0].startswith("0.5 ± 0")
    assert table.loc["unknown"].iloc[0].to_dict() == {"a": "1 ± 0.6 (3)*", "b": "2 ± 0.6 (3)"}
    assert table.loc["CPU s a run"].iloc[0].tolist() == ["2.0", "2.0"]


def test_the_comparison_runs_and_is_stored(tmp_path, monkeypatch):
    for name in ("TUNERS", "FAST"):
        monkeypatch.setattr(tuning, name, ("kbo", "random"))
    monkeypatch.setattr(tuning, "TABLES", {"branin": TABLES["branin"]})
    for which in (1, 2):
        assert "branin" in papers.paper("tuning").experiment("table", which)(
            tmp_path, True, 1, False
        )
    assert (tmp_path / "table1.md").read_text().startswith("| problem | trials | kbo | random |")
    assert len(pd.read_csv(tmp_path / "table1.csv")) == 2 * 2 * 2
