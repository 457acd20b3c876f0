"""Limits on measured quantities: runs, laws of the search, and the problems and tuners to compare on."""

import math

import pandas as pd
import pytest
import torch
from gpytorch.kernels import RBFKernel
from scipy.optimize import minimize

import kbo
from experiments.problems import CONSTRAINED
from experiments.problems.base import NOISE_LEVEL, interquartile_ranges
from experiments.tuning import infeasible
from experiments.tuning.constrained import REPORTED, run, summary
from experiments.tuning.tuners import BoTorchTuner, tuner
from kbo.cli.app import app
from kbo.optimize.run import journal
from kbo.optimize.run.outcome import outcome_of
from kbo.optimize.surrogates.fitting import unit_kernel
from kbo.optimize.surrogates.model import fit_limited
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


@pytest.mark.parametrize(
    ("returned", "value", "measured", "failure"),
    [
        (1.5, 1.5, {}, "no measurement of 'memory'"),
        ((1.5, {"memory": 7}), 1.5, {"memory": 7.0}, ""),
        (
            {"objective": 1.5, "memory": 7.0, "seconds": 3.0, "note": "x"},
            1.5,
            {"memory": 7.0, "seconds": 3.0},
            "",
        ),
        ({"memory": 7.0}, None, {"memory": 7.0}, "without an entry 'objective'"),
        ({"objective": None, "memory": 9.0}, None, {"memory": 9.0}, "returned None"),
        ((1.5, {"memory": math.nan}), 1.5, {}, "the measurement of 'memory' is nan"),
        ((1.5, {"memroy": 7.0}), 1.5, {"memroy": 7.0}, "it came with ['memroy']"),
        (
            (1.0, 2.0),
            None,
            {},
            "(1.0, 2.0) instead of a number: for several objectives pass objectives=[...]",
        ),
    ],
)
def test_what_an_objective_returns_is_read_as_value_and_measurements(
    returned, value, measured, failure
):
    found = outcome_of(returned, ["memory"])
    assert (found.value, found.measured) == (value, measured)
    assert failure in found.failure
    assert bool(failure) == bool(found.failure)


@pytest.mark.parametrize(
    ("constraints", "setting", "message"),
    [
        (
            [MEMORY, "memory<=8"],
            None,
            r"constraints\[1\] must be a kbo.Constraint, a kbo.Linear or a function",
        ),
        ([MEMORY, MEMORY], None, "several with the name 'memory'"),
        (
            [MEMORY],
            kbo.Certified(unit_kernel(2), 0.1, 5.0),
            "needs its own noise_std and norm_bound",
        ),
        ([limit(-9.0)], kbo.Certified(unit_kernel(2), 0.1, 5.0), "infeasible at once"),
    ],
)
def test_constraints_that_cannot_be_used_are_refused_at_once(constraints, setting, message):
    with pytest.raises(kbo.InvalidInput, match=message):
        kbo.Optimizer(BOX, setting=setting, constraints=constraints)


@pytest.mark.parametrize(
    "limits", [{}, {"upper": 1.0, "lower": 0.0}, {"upper": math.nan}, {"upper": "8"}]
)
def test_a_constraint_has_one_finite_limit(limits):
    with pytest.raises(kbo.InvalidInput, match="memory"):
        kbo.Constraint("memory", **limits)


# Runs of the practical setting


def test_the_best_setting_within_the_limit_is_found():
    result = kbo.minimize(train, BOX, 25, constraints=[MEMORY])
    assert train(result.params)[1]["memory"] <= 8.0
    assert 0.242 - 1e-3 <= result.value <= 0.26
    assert result.best_observed == min(
        t.value for t in result.trials if t.measured["memory"] <= 8.0
    )
    assert result.feasibility.kept
    assert "memory <= 8" in str(result)
    assert "log-probability" in result.account["limits"]
    assert result.to_frame()["measured.memory"].tolist() == [
        t.measured["memory"] for t in result.trials
    ]
    assert 0.4 < result.optimizer.best({"y": 0.6})["x"] <= 0.5  # 0.9 without the limit


def test_a_violation_measured_without_noise_leaves_no_probability_of_feasibility():
    result = kbo.minimize(train, BOX, 6, constraints=[kbo.Constraint("memory", upper=-1.0)])
    assert (result.feasibility.kept, result.feasibility.probability) == (False, 0.0)
    assert "with probability 0" in str(result)


def test_a_limit_on_the_objective_itself_needs_no_measurement():
    result = kbo.minimize(
        lambda p: p["x"] * p["y"], BOX, 12, constraints=[kbo.Constraint("objective", lower=0.2)]
    )
    assert 0.2 <= result.value < 0.35


def test_measurements_survive_the_journal_and_a_kill(tmp_path):
    path, first = tmp_path / "run.jsonl", {"constraints": [MEMORY], "seed": 1}
    whole = kbo.minimize(train, BOX, 9, **first)
    kbo.minimize(train, BOX, 6, journal=path, **first)
    again = kbo.minimize(train, BOX, 9, journal=path, **first)
    assert [(t.params, t.measured) for t in again.trials] == [
        (t.params, t.measured) for t in whole.trials
    ]
    with pytest.raises(kbo.JournalError, match="memory"):
        kbo.minimize(
            train, BOX, 12, journal=path, seed=1, constraints=[kbo.Constraint("memory", upper=9.0)]
        )
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
    assert optimizer.run.trials.failed
    assert all(trial.measured["memory"] > 8 for trial in optimizer.run.trials.failed)
    assert train(optimizer.ask())[1]["memory"] < 9
    optimizer.close()
    assert sum(bool(getattr(event, "measured", {})) for event in journal.read(path)[1]) == 12


def test_known_results_bring_their_measurements():
    table = pd.DataFrame(
        {"x": [0.1, 0.2], "y": [0.3, 0.4], "value": [1.0, 0.9], "memory": [2.5, 4.0]}
    )
    result = kbo.minimize(train, BOX, 2, constraints=[MEMORY], evaluated=table)
    assert [t.measured for t in result.trials[:2]] == [{"memory": 2.5}, {"memory": 4.0}]
    with pytest.raises(kbo.InvalidInput, match="no measurement of 'memory'"):
        kbo.minimize(train, BOX, 3, constraints=[MEMORY], evaluated=table.drop(columns="memory"))


SCRIPT = """
import kbo
bounds = {"x": (0.0, 1.0), "y": (0.0, 1.0)}
constraints = [kbo.Constraint("memory", upper=8.0)]
def objective(params):
    x, y = params["x"], params["y"]
    return (x - 0.9) ** 2 + (y - 0.9) ** 2, {"memory": 10 * x + 5 * y, "accuracy": y}
"""


def test_the_command_line_takes_constraints_of_the_script_and_its_own(tmp_path):
    script, path = tmp_path / "train.py", tmp_path / "tune-train.jsonl"
    script.write_text(SCRIPT)
    command = ["tune", str(script), "-n", "6", "-o", str(tmp_path), "-q"]
    done = CliRunner().invoke(app, [*command, "--constraint", "accuracy>=0.2"])
    assert done.exit_code == 0, done.output
    assert "(memory <= 8)" in done.output
    assert "(accuracy >= 0.2)" in done.output
    assert "measured.memory" in CliRunner().invoke(app, ["journal", "show", str(path)]).output
    assert CliRunner().invoke(app, [*command, "--constraint", "accuracy=0.2"]).exit_code != 0


# Certified runs


def certified(upper, n_trials):
    """A run on a finite set, with memory 2 + cos(3 x) between 1 and 3."""
    rng = seeded()

    def objective(params):
        x, e = params["i"] / 10, 0.05 * torch.randn(2, generator=rng).double()
        return -math.sin(3 * x) + float(e[0]), {"memory": 2 + math.cos(3 * x) + float(e[1])}

    options = {"setting": PROVED, "method": "cmm-ucb", "constraints": [limit(upper)]}
    return kbo.minimize(objective, {"i": kbo.Int(0, 10)}, n_trials, **options)


def test_an_infeasible_problem_ends_with_its_certificate():
    result = certified(0.5, 40)
    assert len(result.trials) < 10
    assert result.infeasible is not None
    assert result.stopped.startswith("infeasible: none of the 11 points can keep all limits")
    assert "memory at least" in result.stopped
    assert result.best_observed is None


def test_a_certified_run_says_that_its_recommendation_is_feasible():
    result = certified(1.5, 12)
    assert result.feasibility.kept
    assert result.feasibility.certified
    assert (
        result.feasibility.probability == 0.9
    )  # delta is shared: each of the two bounds has half of it
    assert result.assumptions["delta"] == 0.05
    assert 2 + math.cos(3 * result.params["i"] / 10) <= 1.5
    assert result.gap is not None


def test_failed_trials_remove_the_certificate_of_feasibility():
    optimizer = kbo.Optimizer({"i": kbo.Int(0, 20)}, setting=PROVED, constraints=[limit(1.0)])
    optimizer.tell(optimizer.ask(), (0.5, {"memory": -2.0}))
    known = optimizer.insight.feasibility()
    assert (known.kept, known.certified, known.probability) == (True, True, 0.9)
    optimizer.tell(optimizer.ask(), (0.5, {}))
    after = optimizer.insight.feasibility()
    assert (after.certified, after.probability) == (False, None)
    assert str(after).startswith("not certified: memory")


def test_failed_trials_remove_that_of_infeasibility():
    optimizer = kbo.Optimizer({"i": kbo.Int(0, 4)}, setting=PROVED, constraints=[limit(-1.0)])
    optimizer.tell(optimizer.ask(), (0.5, {"memory": 2.0}))
    assert optimizer.insight.infeasible() is not None
    optimizer.fail(optimizer.ask(), "crashed")
    assert optimizer.insight.infeasible() is None


def test_bounds_and_not_a_noisy_measurement_say_whether_a_limit_is_kept():
    options = {
        "setting": kbo.Certified(unit_kernel(1), 0.1, 1.0),
        "constraints": [limit(0.9, 0.3, 1.0)],
    }
    optimizer = kbo.Optimizer({"i": kbo.Int(0, 1)}, **options)
    first = optimizer.begin()
    optimizer.tell(first, (-0.3, {"memory": 1.0}))
    for _ in range(19):
        trial = optimizer.begin()
        optimizer.tell(trial, (-0.3 if trial.params == first.params else 0.0, {"memory": 0.0}))
    assert optimizer.recommended().params == first.params
    assert optimizer.insight.feasibility().kept
    assert optimizer.gap() is not None


def test_a_limit_that_every_function_of_the_norm_keeps_changes_nothing():
    """Neither trials, nor delta, nor the gap, also where its noisy measurements break it."""
    rows, setting = {"i": kbo.Int(0, 20)}, kbo.Certified(unit_kernel(1), 0.1, 1.0)
    without = kbo.minimize(lambda p: p["i"] / 80, rows, 5, setting=setting)
    safe = [limit(1.01, 1.0, 1.0)]
    within = kbo.minimize(
        lambda p: (p["i"] / 80, {"memory": 2.0}), rows, 5, setting=setting, constraints=safe
    )
    assert [t.params for t in within.trials] == [t.params for t in without.trials]
    assert (within.gap, within.guarantee, within.assumptions) == (
        without.gap,
        without.guarantee,
        without.assumptions,
    )
    assert within.gap is not None
    assert within.feasibility.certified
    assert within.feasibility.kept


class Growing(RBFKernel):
    """A kernel with a length scale, which GPyTorch takes for stationary, and a variance that grows with x."""

    def forward(self, x1, x2, diag=False, **params):
        size = x1.sum(-1), x2.sum(-1)
        scale = size[0] * size[1] if diag else size[0].unsqueeze(-1) * size[1].unsqueeze(-2)
        return super().forward(x1, x2, diag=diag, **params) * scale


def test_a_norm_decides_no_limit_of_a_method_without_norms_and_in_a_box_none_where_the_prior_differs_by_place():
    optimizer = kbo.Optimizer(
        {"i": kbo.Int(0, 3)}, setting=PROVED, method="chaining-ucb", constraints=[limit(9.0)]
    )
    optimizer.tell(optimizer.ask(), (0.5, {"memory": 0.0}))
    assert optimizer.insight.surrogate().assumptions()["delta"] == 0.05
    for kernel, decided in ((RBFKernel().double(), True), (Growing().double(), False)):
        assert PROVED.decides(limit(9.0, kernel=kernel), "dmm-ucb", kbo.Space(BOX)) == decided


# Laws of the search

TWO = [kbo.Constraint("a", upper=0.6), kbo.Constraint("b", lower=0.2)]


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


@pytest.fixture(scope="module")
def plain():
    return trajectory(TWO)


def test_trials_keep_the_limits_and_the_recommendation_is_nearly_the_best_feasible_point(plain):
    chosen, best = plain
    assert sum(params["x"] * params["y"] > 0.15 for params in chosen[8:]) >= 5
    assert best["x"] * best["y"] >= 0.2
    assert best["x"] + best["y"] <= 2 * math.sqrt(0.2) + 0.25


def test_units_sides_and_the_order_of_constraints_change_nothing(plain):
    """The other side of a limit is the same limit; the factors are powers of 2, which round nothing."""
    other = [kbo.Constraint("b", upper=-0.2 / 64), kbo.Constraint("a", upper=0.6 * 1024)]
    assert trajectory(other, (1024.0, -1 / 64)) == plain


def test_constraints_that_hold_by_far_change_nothing():
    far = [kbo.Constraint("a", upper=1e6), kbo.Constraint("b", lower=-1e6)]
    assert trajectory(far) == trajectory([])


@pytest.mark.parametrize("at", [-100.0, 0.5])
def test_targets_around_a_limit_are_a_bijection_that_is_steepest_there(at):
    """Or, with power 1, linear."""
    y = torch.randn(40, dtype=torch.float64, generator=seeded()).mul(3).exp() - 1
    targets = around(at, y, 0.0)
    torch.testing.assert_close(targets.inverse(targets(y)), y)
    t = targets(torch.tensor([at - 1e3, at - 0.01, at, at + 0.01, at + 1e3], dtype=torch.float64))
    assert bool((t.diff() > 0).all())
    assert float(t[2] - t[1]) == pytest.approx(float(t[3] - t[2]))
    assert float(t[2] - t[1]) / 0.01 > float(t[1] - t[0]) / 1e3
    assert float(targets(y).std()) == pytest.approx(1.0)
    assert around(at, y, 1.0)(y).sub(y / y.std()).std() < 1e-12


def test_values_with_a_limit_are_drawn_together_only_where_that_makes_them_likelier():
    X = torch.rand(40, 1, dtype=torch.float64, generator=seeded())
    noise = 0.05 * torch.randn(40, dtype=torch.float64, generator=seeded(1))
    assert fit_limited(1.0, X, 3 * X[:, 0] + noise).transform.power == 1.0
    assert fit_limited(1.0, X, (6 * X[:, 0] - 3).sinh() * noise.exp()).transform.power == 0.0
    given = fit_limited(1.0, X, 3 * X[:, 0] + noise, 0.05)
    assert given.noise_std * given.transform.scale == pytest.approx(0.05)


# Problems and tuners to compare on


FEW = ("gardner1", "welded-beam")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in FEW else pytest.mark.thorough) for name in CONSTRAINED],
)
def test_the_best_point_is_feasible_and_nothing_near_it_or_in_the_box_is_better(name):
    problem = CONSTRAINED[name](seed=0)
    f, (low, high) = problem.function, problem.function.bounds
    best = torch.tensor(problem.best, dtype=torch.float64)
    assert problem.feasible(problem.best)
    box = low + (high - low) * torch.rand(4096, len(best), generator=seeded(1), dtype=torch.float64)
    near = (best + 1e-2 * (box - best)).clamp(low, high)
    X = torch.cat([box, near])
    feasible = (f.evaluate_slack_true(X) >= 0).all(-1)
    assert 0 < int(feasible.sum()) < len(X)
    assert float(f.evaluate_true(X)[feasible].min()) >= problem.optimum
    scale, unit = (
        1e-9 + f.evaluate_slack_true(box).abs().median(0).values,
        max(abs(problem.optimum), 1e-2),
    )
    found = minimize(
        lambda x: float(f.evaluate_true(torch.tensor(x))) / unit,
        best.numpy(),
        method="SLSQP",
        bounds=f.bounds.T.tolist(),
        constraints={
            "type": "ineq",
            "fun": lambda x: (f.evaluate_slack_true(torch.tensor(x)) / scale).numpy(),
        },
    )
    assert float(f.evaluate_true(torch.tensor(found.x))) >= problem.optimum - 1e-4 * unit


def test_every_output_has_noise_in_proportion_to_its_spread():
    problem = CONSTRAINED["gardner1"](seed=0)
    spread = interquartile_ranges(problem.outputs, problem.space)
    drawn = torch.tensor(
        [list(problem(problem.best).values()) for _ in range(300)], dtype=torch.float64
    )
    assert list(problem(problem.best)) == ["objective", "c1"]
    torch.testing.assert_close(
        drawn.std(0) / spread, torch.full((2,), NOISE_LEVEL).double(), rtol=0.2, atol=0
    )
    torch.testing.assert_close(
        drawn.mean(0), problem.outputs(problem.best), rtol=0, atol=float(0.03 * spread.max())
    )
    assert problem(problem.best) != problem(problem.best)
    assert CONSTRAINED["gramacy"](seed=3)([0.5, 0.5]) == CONSTRAINED["gramacy"](seed=3)([0.5, 0.5])
    assert set(REPORTED) < set(CONSTRAINED)
    assert len(REPORTED) == len(CONSTRAINED) / 2


@pytest.mark.parametrize(
    "name",
    ["kbo", "qlognei", "gpsampler", "tpe", "random", pytest.param("ax", marks=pytest.mark.slow)],
)
def test_a_recommendation_of_a_tuner_respects_the_constraint(name, monkeypatch):
    """The least value, at 0, violates it; the best feasible point is 0.5."""
    for option, few in (("restarts", 1), ("raw_samples", 8), ("draws", 8)):
        monkeypatch.setattr(BoTorchTuner, option, few)
    chosen = tuner(name, kbo.Space([(0.0, 1.0)]), 0, 6, constraints=["c1"])
    for _ in range(6):
        x = chosen.ask()
        chosen.tell(x, {"objective": x[0], "c1": 0.5 - x[0]})
    assert chosen.recommended()[0] >= 0.5


def test_where_no_trial_is_feasible_optuna_recommends_none():
    chosen = tuner("tpe", kbo.Space([(0.0, 1.0)]), 0, 3, constraints=["c1"])
    chosen.tell(chosen.ask(), {"objective": 1.0, "c1": 1.0})
    assert chosen.recommended() is None


def test_a_run_is_judged_by_the_truth_of_its_recommendation_and_an_infeasible_one_ranks_last():
    assert 0 < run("gardner1", "random", 0, 10)[0]["regret"] < 5
    assert math.isnan(run("welded-beam", "random", 0, 2)[0]["regret"])
    runs = [("a", 0, 1.0), ("a", 1, 2.0), ("b", 0, 0.5), ("b", 1, math.nan)]
    rows = [
        {"problem": "p", "name": n, "seed": s, "regret": r, "cpu_seconds": 1.0} for n, s, r in runs
    ]
    table = summary(pd.DataFrame(rows))
    assert table.loc["mean rank"].str[:4].to_dict() == {"a": "1.50", "b": "1.50"}
    assert table.loc["infeasible"].to_dict() == {"a": "0%", "b": "50%"}
    assert table.loc["p", "a"] == "1.5 ± 0.5 (0 of 2)"


def test_infeasibility_is_certified_and_a_feasible_problem_never_is():
    assert infeasible.run(1, 0.5, 60)[0]["found"] <= 60
    assert math.isnan(infeasible.run(1, -0.1, 4)[0]["found"])
