"""Limits on measured quantities, from the argument to the page."""

import math

import pandas as pd
import pytest
import torch
from gpytorch.kernels import RBFKernel

import kbo
from kbo import report
from kbo.cli import app
from kbo.optimize import journal
from kbo.optimize.constraint import outcome_of
from kbo.optimize.fitting import unit_kernel
from kbo.report.record import Record
from tests.commands import CliRunner

BOX = {"x": (0.0, 1.0), "y": (0.0, 1.0)}
MEMORY = kbo.Constraint("memory", upper=8.0)


def train(params):
    """Loss with its least value at (0.9, 0.9), where the memory is 13.5; 0.242 within the limit."""
    x, y = params["x"], params["y"]
    return (x - 0.9) ** 2 + (y - 0.9) ** 2, {"memory": 10 * x + 5 * y}


def certified(limit, n_trials=40, rows=20):
    """A run on a finite set, with memory 2 + cos(3 x) between 1 and 3."""
    rng = torch.Generator().manual_seed(0)

    def noisy(value):
        return value + 0.05 * float(torch.randn((), generator=rng))

    def objective(params):
        x = params["i"] / rows
        return noisy(-math.sin(3 * x)), {"memory": noisy(2 + math.cos(3 * x))}

    constraint = kbo.Constraint("memory", upper=limit, noise_std=0.05, norm_bound=8.0)
    setting = kbo.Certified(unit_kernel(1), 0.05, 8.0)
    space = {"i": kbo.Int(0, rows)}
    return kbo.minimize(objective, space, n_trials, setting=setting, method="cmm-ucb", constraints=[constraint])


@pytest.mark.parametrize(
    ("returned", "value", "measured", "failure"),
    [
        (1.5, 1.5, {}, "no measurement of 'memory'"),
        ((1.5, {"memory": 7}), 1.5, {"memory": 7.0}, ""),
        ({"objective": 1.5, "memory": 7.0, "seconds": 3.0, "note": "x"}, 1.5, {"memory": 7.0, "seconds": 3.0}, ""),
        ({"memory": 7.0}, None, {"memory": 7.0}, "without an entry 'objective'"),
        ({"objective": None, "memory": 9.0}, None, {"memory": 9.0}, "returned None"),
        ((1.5, {"memory": math.nan}), 1.5, {}, "the measurement of 'memory' is nan"),
        ((1.5, {"memory": "much"}), 1.5, {}, "'much' instead of a number"),
        ((1.5, {"memroy": 7.0}), 1.5, {"memroy": 7.0}, "it came with ['memroy']"),
        ("good", None, {}, "'good' instead of a number"),
        ((1.0, 2.0), None, {}, "(1.0, 2.0) instead of a number: for several objectives use Optuna's NSGAIISampler"),
    ],
)
def test_what_an_objective_returns_is_read_as_value_and_measurements(returned, value, measured, failure):
    found = outcome_of(returned, ["memory"])
    assert (found.value, found.measured) == (value, measured)
    assert failure in found.failure
    assert bool(failure) == bool(found.failure)


def test_the_best_setting_within_the_limit_is_found():
    result = kbo.minimize(train, BOX, 30, constraints=[MEMORY])
    assert result.params is not None
    assert train(result.params)[1]["memory"] <= 8.0
    assert 0.242 - 1e-3 <= result.value <= 0.25
    assert result.best_observed == min(t.value for t in result.trials if t.measured["memory"] <= 8.0)
    assert result.feasibility is not None
    assert result.feasibility.kept
    assert "memory <= 8" in str(result)
    assert "log-probability" in result.account["limits"]
    assert result.to_frame()["measured.memory"].tolist() == [t.measured["memory"] for t in result.trials]


def test_a_violation_measured_without_noise_leaves_no_probability_of_feasibility():
    result = kbo.minimize(train, BOX, 8, constraints=[kbo.Constraint("memory", upper=-1.0)])
    assert (result.feasibility.kept, result.feasibility.probability) == (False, 0.0)
    assert "with probability 0" in str(result)


def test_a_limit_on_the_objective_itself_needs_no_measurement():
    result = kbo.minimize(lambda p: p["x"] * p["y"], BOX, 15, constraints=[kbo.Constraint("objective", lower=0.2)])
    assert result.value >= 0.2
    assert result.value < 0.3


def test_measurements_survive_the_journal_and_a_kill(tmp_path):
    path, first = tmp_path / "run.jsonl", {"constraints": [MEMORY], "seed": 1}
    whole = kbo.minimize(train, BOX, 12, **first)
    kbo.minimize(train, BOX, 7, journal=path, **first)
    again = kbo.minimize(train, BOX, 12, journal=path, **first)
    assert [(t.params, t.value, t.measured) for t in again.trials] == [
        (t.params, t.value, t.measured) for t in whole.trials
    ]
    with pytest.raises(kbo.JournalError, match="memory"):
        kbo.minimize(train, BOX, 12, journal=path, seed=1, constraints=[kbo.Constraint("memory", upper=9.0)])
    record = Record.of(path)
    assert record.constraints == [MEMORY]
    assert record.recommended().params == whole.params  # whose trials took other times


def test_what_a_failed_trial_has_measured_is_kept_and_used(tmp_path):
    path = tmp_path / "run.jsonl"
    with kbo_optimizer(path) as optimizer:
        for _ in range(12):
            params = optimizer.ask()
            loss, found = train(params)
            optimizer.tell(params, {"objective": None if found["memory"] > 8 else loss, **found})
        failed = optimizer.failed()
        assert failed
        assert all(trial.measured["memory"] > 8 for trial in failed)
        last = train(optimizer.ask())[1]["memory"]
        assert last < 9
    events = journal.read(path)[1]
    assert sum(bool(getattr(event, "measured", {})) for event in events) == 12


class kbo_optimizer:
    def __init__(self, path):
        self.optimizer = kbo.Optimizer(BOX, constraints=[MEMORY], journal=path)

    def __enter__(self):
        return self.optimizer

    def __exit__(self, *error):
        self.optimizer.close()


def test_known_results_bring_their_measurements(tmp_path):
    table = pd.DataFrame({"x": [0.1, 0.2], "y": [0.3, 0.4], "value": [1.0, 0.9], "memory": [2.5, 4.0]})
    result = kbo.minimize(train, BOX, 3, constraints=[MEMORY], evaluated=table)
    assert [t.measured for t in result.trials[:2]] == [{"memory": 2.5}, {"memory": 4.0}]
    more = kbo.minimize(train, BOX, 2, constraints=[MEMORY], evaluated=result.to_frame())
    assert [t.measured for t in more.trials[:5]] == [t.measured for t in result.trials]
    with pytest.raises(kbo.InvalidInput, match="no measurement of 'memory'"):
        kbo.minimize(train, BOX, 3, constraints=[MEMORY], evaluated=table.drop(columns="memory"))


@pytest.mark.parametrize("name", ["value", "x", "params.x"])
def test_known_results_keep_measurements_apart_from_values_and_parameters(name):
    run = {"constraints": [kbo.Constraint(name, upper=2.0)]}
    table = kbo.minimize(lambda p: (p["x"] + 5.0, {name: 1.0}), BOX, 2, **run).to_frame()
    again = kbo.minimize(lambda p: (p["x"] + 5.0, {name: 1.0}), BOX, 1, evaluated=table, **run)
    assert [t.measured for t in again.trials] == [{name: 1.0}] * 3


def test_an_infeasible_problem_ends_with_its_certificate():
    result = certified(0.5)
    assert len(result.trials) < 10
    assert result.infeasible is not None
    assert result.stopped.startswith("infeasible: none of the 21 points can keep all limits")
    assert "memory at least" in result.stopped
    assert result.best_observed is None


def test_a_certified_run_says_that_its_recommendation_is_feasible():
    result = certified(1.5)
    found = result.feasibility
    assert found is not None
    assert found.kept
    assert found.certified
    assert found.probability == 0.9  # delta is shared: each of the two bounds has half of it
    assert result.assumptions["delta"] == 0.05
    assert 2 + math.cos(3 * result.params["i"] / 20) <= 1.5
    assert result.gap is not None


@pytest.mark.parametrize(
    ("constraints", "setting", "message"),
    [
        ("memory<=8", None, "constraints must be a list"),
        ([MEMORY, "memory<=8"], None, r"constraints\[1\] must be a kbo.Constraint, a kbo.Linear or a function"),
        ([MEMORY, MEMORY], None, "several with the name 'memory'"),
        ([kbo.Constraint("memory", upper=8.0, norm_bound=3.0)], None, "norm_bound and kernel are for kbo.Certified"),
        ([MEMORY], kbo.Certified(unit_kernel(2), 0.1, 5.0), "needs its own noise_std and norm_bound"),
        (
            [kbo.Constraint("memory", upper=-6.0, noise_std=0.1, norm_bound=5.0)],
            kbo.Certified(unit_kernel(2), 0.1, 5.0),
            "infeasible at once",
        ),
    ],
)
def test_constraints_that_cannot_be_used_are_refused_at_once(constraints, setting, message):
    with pytest.raises(kbo.InvalidInput, match=message):
        kbo.Optimizer(BOX, setting=setting, constraints=constraints)


@pytest.mark.parametrize("limits", [{}, {"upper": 1.0, "lower": 0.0}, {"upper": math.nan}, {"upper": "8"}])
def test_a_constraint_has_one_finite_limit(limits):
    with pytest.raises(kbo.InvalidInput, match="memory"):
        kbo.Constraint("memory", **limits)


def test_a_limit_that_every_function_of_the_norm_keeps_changes_nothing():
    """Neither trials, nor delta, nor the gap, also where its noisy measurements break it."""
    rows, setting = {"i": kbo.Int(0, 20)}, kbo.Certified(unit_kernel(1), 0.1, 1.0)
    safe = kbo.Constraint("memory", upper=1.01, noise_std=1.0, norm_bound=1.0)
    without = kbo.minimize(lambda p: p["i"] / 80, rows, 5, setting=setting)
    within = kbo.minimize(lambda p: (p["i"] / 80, {"memory": 2.0}), rows, 5, setting=setting, constraints=[safe])
    assert [t.params for t in within.trials] == [t.params for t in without.trials]
    assert (within.gap, within.guarantee, within.assumptions) == (without.gap, without.guarantee, without.assumptions)
    assert within.gap is not None
    assert within.feasibility.certified
    assert within.feasibility.kept


def test_bounds_and_not_a_noisy_measurement_say_whether_a_limit_is_kept():
    setting = kbo.Certified(unit_kernel(1), 0.1, 1.0)
    constraint = kbo.Constraint("memory", upper=0.9, noise_std=0.3, norm_bound=1.0)
    optimizer = kbo.Optimizer({"i": kbo.Int(0, 1)}, setting=setting, constraints=[constraint])
    first = optimizer.begin()
    optimizer.tell(first, (-0.3, {"memory": 1.0}))
    for _ in range(29):
        trial = optimizer.begin()
        optimizer.tell(trial, (-0.3 if trial.params == first.params else 0.0, {"memory": 0.0}))
    assert optimizer.recommended().params == first.params
    assert optimizer.feasibility().kept
    assert optimizer.gap() is not None


def test_a_norm_that_a_method_does_not_assume_decides_no_limit():
    """A draw of a Gaussian process has no norm."""
    safe = kbo.Constraint("memory", upper=3.0, noise_std=0.1, norm_bound=1.0)
    options = {"setting": kbo.Certified(unit_kernel(1), 0.1, 1.0), "method": "chaining-ucb", "constraints": [safe]}
    optimizer = kbo.Optimizer({"i": kbo.Int(0, 3)}, **options)
    optimizer.tell(optimizer.ask(), (0.5, {"memory": 0.0}))
    assert optimizer.belief().assumptions()["delta"] == 0.05


SCRIPT = """
import kbo
bounds = {"x": (0.0, 1.0), "y": (0.0, 1.0)}
constraints = [kbo.Constraint("memory", upper=8.0)]
def objective(params):
    x, y = params["x"], params["y"]
    return (x - 0.9) ** 2 + (y - 0.9) ** 2, {"memory": 10 * x + 5 * y, "accuracy": y}
"""


def test_the_command_line_takes_constraints_of_the_script_and_its_own(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    run = ["tune", str(script), "-n", "10", "-o", str(tmp_path), "-q", "--again", "1"]
    done = CliRunner().invoke(app, [*run, "--constraint", "accuracy>=0.2"])
    assert done.exit_code == 0, done.output
    assert "(memory <= 8)" in done.output
    assert "(accuracy >= 0.2)" in done.output
    page = report.write(tmp_path / "tune-train.jsonl").read_text()
    assert "Limits at the recommended setting" in page
    assert "kbo.Constraint(name=&#39;memory&#39;, upper=8.0)" in page
    assert "memory=" in CliRunner().invoke(app, ["journal", "show", str(tmp_path / "tune-train.jsonl")]).output
    wrong = CliRunner().invoke(app, [*run, "--constraint", "accuracy=0.2"])
    assert wrong.exit_code != 0


def test_failed_trials_remove_the_certificate_of_feasibility():
    setting = kbo.Certified(unit_kernel(1), 0.05, 8.0)
    constraint = kbo.Constraint("memory", upper=1.0, noise_std=0.05, norm_bound=8.0)
    optimizer = kbo.Optimizer({"i": kbo.Int(0, 20)}, setting=setting, constraints=[constraint])
    optimizer.tell(optimizer.ask(), (0.5, {"memory": -2.0}))
    known = optimizer.feasibility()
    assert known is not None
    assert (known.kept, known.certified, known.probability) == (True, True, 0.9)
    optimizer.tell(optimizer.ask(), (0.5, {}))
    after = optimizer.feasibility()
    assert after is not None
    assert (after.certified, after.probability) == (False, None)
    assert str(after).startswith("not certified: memory")


def test_the_best_parameters_of_a_context_keep_the_limits():
    optimizer = kbo.minimize(train, BOX, 30, constraints=[MEMORY]).optimizer
    best = optimizer.best({"y": 0.6})
    assert best is not None
    assert 0.45 < best["x"] <= 0.5  # 0.9 without the limit


def test_failed_trials_remove_that_of_infeasibility():
    constraint = kbo.Constraint("memory", upper=-1.0, noise_std=0.05, norm_bound=8.0)
    setting = kbo.Certified(unit_kernel(1), 0.05, 8.0)
    optimizer = kbo.Optimizer({"i": kbo.Int(0, 4)}, setting=setting, constraints=[constraint])
    optimizer.tell(optimizer.ask(), (0.5, {"memory": 2.0}))
    assert optimizer.infeasible() is not None
    optimizer.fail(optimizer.ask(), "crashed")
    assert optimizer.infeasible() is None


class Growing(RBFKernel):
    """A kernel with a length scale, which GPyTorch takes for stationary, and a variance that grows with x."""

    def forward(self, x1, x2, diag=False, **params):
        size = x1.sum(-1), x2.sum(-1)
        scale = size[0] * size[1] if diag else size[0].unsqueeze(-1) * size[1].unsqueeze(-2)
        return super().forward(x1, x2, diag=diag, **params) * scale


def test_in_a_box_a_prior_that_differs_by_place_decides_nothing():
    def decided(kernel):
        constraint = kbo.Constraint("memory", upper=6.0, noise_std=0.1, norm_bound=5.0, kernel=kernel)
        return kbo.Certified(unit_kernel(2), 0.1, 5.0).decides(constraint, "dmm-ucb", kbo.Space(BOX))

    assert decided(RBFKernel().double())
    assert not decided(Growing().double())
