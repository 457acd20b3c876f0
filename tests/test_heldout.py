"""The comparison on held-out problems: nothing of it was used to develop kbo, and its table counts what ran."""

from __future__ import annotations

import cocoex
import pandas as pd
import pytest
import torch

from experiments.problems import BBOB, ChoiceOfFunction, ConstrainedBBOB
from experiments.tuning import heldout
from experiments.tuning.comparison import run
from experiments.tuning.suites import DEVELOPMENT, PROBLEMS


def test_no_problem_of_the_comparison_was_used_to_develop_kbo():
    parts = heldout.parts()
    problems = {problem for part in parts for problem in part.problems}
    assert problems <= set(PROBLEMS)
    assert not problems & DEVELOPMENT
    seeds = {cell.arguments["seed"] for part in parts for cell in part.cells(heldout.CHEAP)}
    assert min(seeds) == heldout.FIRST_SEED > 100


def test_a_constrained_function_is_that_of_coco_and_an_infeasible_recommendation_is_the_worst():
    problem = ConstrainedBBOB(2, 5, 201, seed=1)
    reference = cocoex.Suite("bbob-constrained", "instances: 201", "dimensions: 5")[1]
    kept = []
    for x in (10 * torch.rand(50, 5, dtype=torch.float64) - 5).tolist():
        assert problem.noiseless(x) == reference(x)
        assert problem.feasible(x) == bool((reference.constraint(x) <= 0).all())
        kept.append(problem.feasible(x))
        measured = problem(x)
        names = ["objective", *problem.constraints]
        noise = [measured[name] for name in names] - problem.outputs(x).numpy()
        assert (abs(noise) < 6 * problem.noise_stds.numpy()).all()
    assert 0 < sum(kept) < 50
    (row,) = run("constrained-f8-d5", "random", 201, [3])
    assert row["value"] == float("inf")


def test_a_choice_of_functions_has_its_optimum_at_that_of_the_best_option():
    problem = ChoiceOfFunction((2, 8, 14), instance=201)
    values = []
    for option, (number, size) in enumerate(zip((2, 8, 14), (2, 3, 5), strict=True)):
        best = BBOB(number, size, 201).solution
        params = {f"f{option} x{i}": x for i, x in enumerate(best)}
        values.append(problem.noiseless({"function": f"f{option}", **params}))
    assert min(values) == pytest.approx(problem.optimum, abs=1e-9)
    assert max(values) < 0.3
    noisy = ChoiceOfFunction((2, 8, 14), 201, "gauss-0.5", seed=1)
    draws = torch.tensor([noisy(params | {"function": "f2"}) for _ in range(400)])
    assert float(draws.std()) == pytest.approx(0.5, rel=0.15)


def test_the_table_says_where_kbo_is_first_level_or_behind():
    part = heldout.Part("functions", "2", "none", ["a", "b"], 50, {"kbo": 2, "tpe": 2, "random": 1})
    rows = []
    for problem in part.problems:
        for name, value in {"kbo": 1.0, "tpe": 2.0, "random": 3.0}.items():
            rows += [(problem, name, seed, 50, value, 50) for seed in range(part.seeds[name])]
    names = ["problem", "name", "seed", "trials", "value", "last"]
    frame = pd.DataFrame(rows, columns=names)
    line = heldout.table(frame, [part]).loc[("functions", "2", "none", "50")]
    assert line["kbo is"] == "first"
    assert line["kbo"].startswith("1.00 (")
    assert line["random"] == "3.00 [2]"
    worse = frame.assign(value=frame["value"].mask(frame["name"] == "kbo", 9.0))
    assert heldout.table(worse, [part])["kbo is"].item() == "behind tpe"


def test_seconds_are_of_whole_runs_where_a_problem_has_a_short_and_a_long_one():
    names = ["cell", "problem", "name", "seed", "trials", "value", "cpu_seconds", "last"]
    rows = [
        ("short", "a", "kbo", 201, 15, 1.0, 0.25, 50),
        ("short", "a", "kbo", 201, 50, 1.0, 1.0, 50),
        ("long", "a", "kbo", 201, 15, 1.0, 0.25, 200),
        ("long", "a", "kbo", 201, 50, 1.0, 1.0, 200),
        ("long", "a", "kbo", 201, 200, 1.0, 6.0, 200),
    ]
    seconds = heldout.cpu_seconds(pd.DataFrame(rows, columns=names)).loc["kbo"]
    assert seconds.to_dict() == {50: 1.0, 200: 6.0, "runs": 2}
