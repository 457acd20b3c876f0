"""Limits on measured quantities: runs, laws of the search, and the problems and tuners to compare on."""

import math

import pandas as pd
import pytest
import torch
from gpytorch.kernels import RBFKernel

import kbo
from experiments.tuning.constrained import run, summary
from experiments.tuning.tuners import tuner
from kbo.cli.app import app
from kbo.optimize.insight.gap.infeasibility import Infeasible
from kbo.optimize.run.outcome import outcome_of
from kbo.optimize.surrogates.fitting import unit_kernel
from kbo.optimize.surrogates.outcome_transform import around
from kbo.report.record import Record
from tests.commands import CliRunner

BOX = {"x": (0.0, 1.0), "y": (0.0, 1.0)}
MEMORY = kbo.Constraint("memory", upper=8.0)
PROVED = kbo.Certified(unit_kernel(1), 0.05, 8.0)


def train(params):
    """Loss with its least value at (0.9, 0.9), where the memory is 13.5; 0.242 within the limit."""
    x, y = params["x"], params["y"]
    return (x - 0.9) ** 2 + (y - 0.9) ** 2, {"memory": 10 * x + 5 * y}


def limit(upper, noise_std=0.05, norm_bound=8.0, **options):
    return kbo.Constraint(
        "memory", upper=upper, noise_std=noise_std, norm_bound=norm_bound, **options
    )


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def test_what_an_objective_returns_is_read_as_value_and_measurements():
    more = {"memory": 7.0, "seconds": 3.0}
    for returned, value, measured, failure in (
        (1.5, 1.5, {}, "no measurement of 'memory'"),
        ((1.5, {"memory": 7}), 1.5, {"memory": 7.0}, ""),
        ({"objective": 1.5, **more, "note": "x"}, 1.5, more, ""),
        ({"memory": 7.0}, None, {"memory": 7.0}, "without an entry 'objective'"),
        ({"objective": None, "memory": 9.0}, None, {"memory": 9.0}, "returned None"),
        ((1.5, {"memory": math.nan}), 1.5, {}, "the measurement of 'memory' is nan"),
        ((1.0, 2.0), None, {}, "for several objectives pass objectives=[...]"),
    ):
        found = outcome_of(returned, ["memory"])
        assert (found.value, found.measured) == (value, measured)
        assert failure in found.failure
        assert bool(failure) == bool(found.failure)


def test_constraints_that_cannot_be_used_are_refused_at_once():
    certified = kbo.Certified(unit_kernel(2), 0.1, 5.0)
    for constraints, setting, message in (
        ([MEMORY, "memory<=8"], None, r"constraints\[1\] must be a kbo.Constraint"),
        ([MEMORY, MEMORY], None, "several with the name 'memory'"),
        ([MEMORY], certified, "needs its own noise_std and norm_bound"),
        ([limit(-9.0)], certified, "infeasible at once"),
    ):
        with pytest.raises(kbo.InvalidInput, match=message):
            kbo.Optimizer(BOX, setting=setting, constraints=constraints)
    for limits in ({}, {"upper": math.nan}):
        with pytest.raises(kbo.InvalidInput, match="memory"):
            kbo.Constraint("memory", **limits)


# Runs of the practical setting


def test_the_best_setting_within_the_limit_is_found():
    result = kbo.minimize(train, BOX, 15, constraints=[MEMORY])
    assert train(result.params)[1]["memory"] <= 8.0
    assert 0.242 - 1e-3 <= result.value <= 0.26
    kept = [trial.value for trial in result.trials if trial.measured["memory"] <= 8.0]
    assert result.best_observed == min(kept)
    assert result.feasibility.kept
    assert "memory <= 8" in str(result)
    measured = [trial.measured["memory"] for trial in result.trials]
    assert result.to_frame()["measured.memory"].tolist() == measured
    assert 0.4 < result.optimizer.best({"y": 0.6})["x"] <= 0.5  # 0.9 without the limit


def test_a_violation_measured_without_noise_leaves_no_probability_of_feasibility():
    result = kbo.minimize(train, BOX, 6, constraints=[kbo.Constraint("memory", upper=-1.0)])
    assert (result.feasibility.kept, result.feasibility.probability) == (False, 0.0)
    assert "with probability 0" in str(result.feasibility)


def test_measurements_survive_the_journal_and_a_kill(tmp_path):
    path, first = tmp_path / "run.jsonl", {"constraints": [MEMORY], "seed": 1}
    whole = kbo.minimize(train, BOX, 7, **first)
    kbo.minimize(train, BOX, 4, journal=path, **first)
    again = kbo.minimize(train, BOX, 7, journal=path, **first)
    for one, other in zip(again.trials, whole.trials, strict=True):
        assert (one.params, one.measured) == (other.params, other.measured)
    changed = [kbo.Constraint("memory", upper=9.0)]
    with pytest.raises(kbo.JournalError, match="memory"):
        kbo.minimize(train, BOX, 12, journal=path, seed=1, constraints=changed)
    record = Record.of(path)
    assert record.constraints == [MEMORY]
    assert record.recommended().params == whole.params  # whose trials took other times


def test_what_a_failed_trial_has_measured_is_kept_and_used(tmp_path):
    path = tmp_path / "run.jsonl"
    optimizer = kbo.Optimizer(BOX, constraints=[MEMORY], journal=path)
    for _ in range(12):
        params = optimizer.ask()
        loss, found = train(params)
        optimizer.tell(params, {"objective": None if found["memory"] > 8 else loss, **found})
    assert train(optimizer.ask())[1]["memory"] < 9
    optimizer.close()
    failed = Record.of(path).optimizer.run.trials.failed
    assert failed
    assert all(trial.measured["memory"] > 8 for trial in failed)


def test_known_results_bring_their_measurements():
    table = pd.DataFrame({"x": [0.1, 0.2], "y": 0.3, "value": [1.0, 0.9], "memory": [2.5, 4.0]})
    result = kbo.minimize(train, BOX, 2, constraints=[MEMORY], evaluated=table)
    assert [t.measured for t in result.trials[:2]] == [{"memory": 2.5}, {"memory": 4.0}]
    with pytest.raises(kbo.InvalidInput, match="no measurement of 'memory'"):
        kbo.minimize(train, BOX, 3, constraints=[MEMORY], evaluated=table.drop(columns="memory"))


SCRIPT = """
import kbo
bounds = {"x": (0.0, 1.0)}
constraints = [kbo.Constraint("memory", upper=8.0)]
def objective(params):
    return (params["x"] - 0.9) ** 2, {"memory": 10 * params["x"], "accuracy": params["x"]}
"""


def test_the_command_line_takes_constraints_of_the_script_and_its_own(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    command = ["tune", str(script), "-n", "3", "-o", str(tmp_path), "-q", "--constraint"]
    done = CliRunner().invoke(app, [*command, "accuracy>=0.2"])
    assert done.exit_code == 0, done.output
    assert "(memory <= 8)" in done.output
    assert "(accuracy >= 0.2)" in done.output
    assert CliRunner().invoke(app, [*command, "accuracy=0.2"]).exit_code != 0


# Certified runs


def certified(upper, n_trials):
    """A run on a finite set, with memory 2 + cos(3 x) between 1 and 3."""
    rng = seeded()

    def objective(params):
        x, e = params["i"] / 10, 0.05 * torch.randn(2, generator=rng).double()
        return -math.sin(3 * x) + float(e[0]), {"memory": 2 + math.cos(3 * x) + float(e[1])}

    kernel = unit_kernel(1)
    kernel.lengthscale = 1.0  # with it the functions have norms of 3 to 4
    setting = kbo.Certified(kernel, 0.05, 8.0)
    options = {"setting": setting, "method": "cmm-ucb", "constraints": [limit(upper)]}
    return kbo.minimize(objective, {"i": kbo.Int(0, 10)}, n_trials, **options)


def test_an_infeasible_problem_ends_with_its_certificate():
    result = certified(0.5, 40)
    assert len(result.trials) < 10
    assert result.infeasible is not None
    assert result.stopped.startswith("infeasible: none of the 11 points can keep all limits")
    assert result.best_observed is None


def test_a_certificate_is_wrong_with_at_most_the_sum_of_the_probabilities_of_its_bounds():
    limits = [limit(-1.0), kbo.Constraint("size", lower=0.0, noise_std=0.05, norm_bound=8.0)]
    setting = kbo.Certified(unit_kernel(1), 0.05, 8.0, delta=0.06)
    optimizer = kbo.Optimizer({"i": kbo.Int(0, 4)}, setting=setting, constraints=limits)
    optimizer.tell(optimizer.ask(), (0.5, {"memory": 2.0, "size": 1.0}))
    assert optimizer.insight.infeasible().delta == pytest.approx(2 * 0.06 / 3)


def test_a_certificate_shows_on_which_side_of_a_limit_a_bound_is():
    limits = (kbo.Constraint("memory", upper=8.0), kbo.Constraint("speed", lower=3.0))
    bounds = {"memory": 8.00004, "speed": 2.99998}
    text = str(Infeasible(None, {"x": 0.1}, bounds, limits, 1e-6))
    assert "memory at least 8.00004 (memory <= 8)" in text
    assert "speed at most 2.99998 (speed >= 3)" in text
    assert "with probability at least 0.999999" in text


def test_a_certified_run_says_that_its_recommendation_is_feasible():
    result = certified(1.5, 12)
    assert result.feasibility.kept
    assert result.feasibility.certified
    assert result.feasibility.probability == 0.9
    assert result.assumptions["delta"] == 0.05  # each of the two bounds has half of it
    assert 2 + math.cos(3 * result.params["i"] / 10) <= 1.5
    assert result.gap is not None


def test_failed_trials_remove_the_certificates_of_feasibility_and_infeasibility():
    optimizer = kbo.Optimizer({"i": kbo.Int(0, 20)}, setting=PROVED, constraints=[limit(1.0)])
    optimizer.tell(optimizer.ask(), (0.5, {"memory": -2.0}))
    known = optimizer.insight.feasibility()
    assert (known.kept, known.certified, known.probability) == (True, True, 0.9)
    optimizer.tell(optimizer.ask(), (0.5, {}))
    after = optimizer.insight.feasibility()
    assert (after.certified, after.probability) == (False, None)
    assert str(after).startswith("not certified: memory")

    optimizer = kbo.Optimizer({"i": kbo.Int(0, 4)}, setting=PROVED, constraints=[limit(-1.0)])
    optimizer.tell(optimizer.ask(), (0.5, {"memory": 2.0}))
    assert optimizer.insight.infeasible() is not None
    optimizer.fail(optimizer.ask(), "crashed")
    assert optimizer.insight.infeasible() is None


def test_a_limit_that_every_function_of_the_norm_keeps_changes_nothing():
    """Neither trials, nor delta, nor the gap, also where its noisy measurements break it."""
    rows, options = {"i": kbo.Int(0, 20)}, {"setting": kbo.Certified(unit_kernel(1), 0.1, 1.0)}
    without = kbo.minimize(lambda p: p["i"] / 80, rows, 5, **options)
    options["constraints"] = [limit(1.01, 1.0, 1.0)]
    within = kbo.minimize(lambda p: (p["i"] / 80, {"memory": 2.0}), rows, 5, **options)
    assert [t.params for t in within.trials] == [t.params for t in without.trials]
    for fact in ("gap", "guarantee", "assumptions"):
        assert getattr(within, fact) == getattr(without, fact) is not None
    assert within.feasibility.certified
    assert within.feasibility.kept


class Growing(RBFKernel):
    """A kernel with a length scale, which GPyTorch takes for stationary, and a variance that grows with x."""

    def forward(self, x1, x2, diag=False, **params):
        size = x1.sum(-1), x2.sum(-1)
        scale = size[0] * size[1] if diag else size[0].unsqueeze(-1) * size[1].unsqueeze(-2)
        return super().forward(x1, x2, diag=diag, **params) * scale


def test_a_norm_decides_no_limit_in_a_box_where_the_prior_differs_by_place():
    for kernel, decided in ((RBFKernel().double(), True), (Growing().double(), False)):
        assert PROVED.decides(limit(9.0, kernel=kernel), "dmm-ucb", kbo.Space(BOX)) == decided


# Laws of the search


def trajectory(constraints, factors=(1.0, 1.0)):
    """Parameters that were chosen, and those that are recommended; the least sum of x and y with a <= .6, b >= .2."""
    rng, optimizer, chosen = seeded(), kbo.Optimizer(BOX, constraints=constraints), []
    for _ in range(14):
        params = optimizer.ask()
        noise = 0.02 * torch.randn(3, generator=rng, dtype=torch.float64)
        a, b = (params["x"] - params["y"]) ** 2 + noise[1], params["x"] * params["y"] + noise[2]
        value = params["x"] + params["y"] + float(noise[0])
        optimizer.tell(params, (value, {"a": factors[0] * float(a), "b": factors[1] * float(b)}))
        chosen.append(params)
    return chosen, optimizer.recommended().params


def test_the_recommendation_is_nearly_the_best_feasible_point_whatever_the_units_and_the_order():
    """The other side of a limit is the same limit; the factors are powers of 2, which round nothing."""
    plain = trajectory([kbo.Constraint("a", upper=0.6), kbo.Constraint("b", lower=0.2)])
    chosen, best = plain
    assert sum(params["x"] * params["y"] > 0.15 for params in chosen[8:]) >= 5
    assert best["x"] * best["y"] >= 0.2
    assert best["x"] + best["y"] <= 2 * math.sqrt(0.2) + 0.25
    other = [kbo.Constraint("b", upper=-0.2 / 64), kbo.Constraint("a", upper=0.6 * 1024)]
    assert trajectory(other, (1024.0, -1 / 64)) == plain


def test_targets_around_a_limit_are_a_bijection_that_is_steepest_there():
    """Or, with power 1, linear."""
    y = torch.randn(40, dtype=torch.float64, generator=seeded()).mul(3).exp() - 1
    for at in (-100.0, 0.5):
        targets = around(at, y, 0.0)
        torch.testing.assert_close(targets.inverse(targets(y)), y)
        t = targets(at + torch.tensor([-1e3, -0.01, 0.0, 0.01, 1e3], dtype=torch.float64))
        assert bool((t.diff() > 0).all())
        assert float(t[2] - t[1]) == pytest.approx(float(t[3] - t[2]))
        assert float(t[2] - t[1]) / 0.01 > float(t[1] - t[0]) / 1e3
        assert float(targets(y).std()) == pytest.approx(1.0)
        assert around(at, y, 1.0)(y).sub(y / y.std()).std() < 1e-12


# Problems and tuners to compare on


TUNERS = ["kbo", "gpsampler", "tpe", pytest.param("qlognei", marks=pytest.mark.thorough)]


@pytest.mark.parametrize("name", [*TUNERS, pytest.param("ax", marks=pytest.mark.slow)])
def test_a_recommendation_of_a_tuner_respects_the_constraint(name):
    """The least value, at 0, violates it; the best feasible point is 0.5."""
    chosen = tuner(name, kbo.Space([(0.0, 1.0)]), 0, 6, constraints=["c1"])
    for _ in range(6):
        x = chosen.ask()
        chosen.tell(x, {"objective": x[0], "c1": 0.5 - x[0]})
    assert chosen.recommended()[0] >= 0.5


def test_a_run_is_judged_by_the_truth_of_its_recommendation_and_an_infeasible_one_ranks_last():
    assert 0 < run("gardner1", "random", 0, 10)[0]["regret"] < 5
    assert math.isnan(run("welded-beam", "random", 0, 2)[0]["regret"])
    rows = pd.DataFrame({"problem": "p", "name": ["a", "a", "b", "b"], "seed": [0, 1, 0, 1]})
    table = summary(rows.assign(regret=[1.0, 2.0, 0.5, math.nan], cpu_seconds=1.0))
    assert table.loc["infeasible"].to_dict() == {"a": "0%", "b": "50%"}
    assert table.loc["p", "a"] == "1.5 ± 0.5 (0 of 2)"
