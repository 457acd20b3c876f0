"""Ask, tell, minimise: failures, batches, settings, results."""

import dataclasses
import math

import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel

import kbo
from kbo.optimize.loop.loop import place_of
from kbo.optimize.result import result_of
from kbo.optimize.run.trials import repetitions

BOUNDS = {"x": (0.0, 1.0), "n": kbo.Int(1, 5), "c": ["a", "b"]}
LINE = [(0.0, 1.0)]
SMOOTH = RBFKernel().double().initialize(lengthscale=1.0)


def quadratic(params):
    return (params["x"] - 0.3) ** 2 + 0.1 * (params["n"] - 2) ** 2 + (params["c"] == "a")


def certified(norm_bound=2.0, noise_std=0.1, **options):
    kernel = MaternKernel(nu=2.5).double()
    kernel.lengthscale = 0.5
    return kbo.Certified(kernel, noise_std, norm_bound, **options)


def noisy(function, level=0.05):
    rng = torch.Generator().manual_seed(0)
    return lambda x: function(x) + level * float(torch.randn((), generator=rng))


def test_minimize_finds_the_minimum_of_a_mixed_space():
    result = kbo.minimize(quadratic, BOUNDS, 24, seed=1)
    assert (result.params["c"], result.params["n"]) == ("b", 2)
    assert abs(result.params["x"] - 0.3) < 0.15
    assert not result.certified
    assert "not certified" in result.summary(full=True)
    assert result.lower <= result.value <= result.upper


def test_maximize_is_minimize_of_the_negative():
    low = kbo.minimize(quadratic, BOUNDS, 9)
    high = kbo.maximize(lambda p: -quadratic(p), BOUNDS, 9)
    assert [t.params for t in low.trials] == [t.params for t in high.trials]
    expected = (-low.upper, -low.value, -low.lower)
    assert (high.lower, high.value, high.upper) == pytest.approx(expected)


def test_certified_setting_reports_refuted_assumptions_with_figures(tmp_path):
    options = {"setting": certified(0.5), "journal": tmp_path / "j"}
    with pytest.raises(kbo.RefutedAssumptions) as caught:
        kbo.minimize(lambda x: 10 * math.sin(9 * x[0]), LINE, 30, **options)
    assert caught.value.figures["norm_at_least"] > 0.5
    assert str(tmp_path) in "".join(caught.value.__notes__)


def test_the_same_seed_has_the_same_trials_also_if_somebody_looks_and_another_seed_others():
    looked, unseen, other = (kbo.Optimizer(BOUNDS, seed=seed) for seed in (3, 3, 2**60))
    for i in range(9):
        params = looked.ask()
        assert params == unseen.ask()
        value = quadratic(params) + (-1) ** i * 0.3
        looked.tell(params, value)
        unseen.tell(params, value)
        looked.recommended()
        looked.interval(params)
    assert other.ask(6)[1:] != [trial.params for trial in looked.trials[1:6]]


def test_failures_are_recorded_and_never_fed_to_the_model():
    answers = iter([1.0, math.nan, 2.0, -math.inf, None, 3.0, "text", 10**400, 0.5])

    def objective(x):
        value = next(answers)
        if value == 2.0:
            raise ValueError("boom")
        return value

    result = kbo.minimize(objective, LINE, 9)
    assert [t.number for t in result.trials if t.status == "complete"] == [0, 5, 8]
    assert result.trials[2].failure.startswith("ValueError: boom (test_optimize.py, line ")
    assert result.best_observed == 0.5
    assert math.isfinite(result.value)
    with pytest.raises(kbo.TooManyFailures, match=r"4 trials in a row.*division by zero") as failed:
        kbo.minimize(lambda x: 1 / 0, LINE, 20, max_failures=4)
    assert [t.status for t in failed.value.trials] == ["failed"] * 4
    for n_trials, message in ((1, "the only trial failed with"), (2, "trial 0 failed, and max_fa")):
        with pytest.raises(kbo.TooManyFailures, match=message):
            kbo.minimize(lambda x: 1 / 0, LINE, n_trials, max_failures=3 - n_trials)


def test_after_a_mistake_in_the_objective_the_same_call_gets_all_its_trials(tmp_path, caplog):
    journal = tmp_path / "run.jsonl"
    for message in (
        "and begin a new journal .*do not count in n_trials .* of the next call",
        "failed",
    ):
        with pytest.raises(kbo.TooManyFailures, match=message):
            kbo.minimize(lambda x: 1 / 0, LINE, 6, journal=journal)
    result = kbo.minimize(lambda x: x[0], LINE, 6, journal=journal)
    assert "the 10 trials of earlier calls failed, so they do not count" in caplog.text
    assert [trial.status for trial in result.trials] == ["failed"] * 10 + ["complete"] * 6
    result = kbo.minimize(lambda x: x[0], LINE, 7, journal=journal)
    assert len(result.trials) == 17
    assert "6 of them ended in earlier sessions" in result.stopped


def test_a_run_that_continues_names_the_trials_without_a_result(tmp_path):
    path = tmp_path / "run.jsonl"
    result = kbo.minimize(lambda x: x[0], LINE, 1, journal=path)
    assert result.stopped == "the budget of 1 trial is used"
    optimizer = kbo.Optimizer(LINE, journal=path)
    optimizer.begin()
    said = place_of(optimizer.run)
    assert "which has trials (2, 1 without a result)" in said
    optimizer.close()
    result = kbo.minimize(lambda x: x[0], LINE, 3, journal=path)
    assert result.stopped == "the budget of 3 trials is used, 1 of them ended in earlier sessions"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"setting": kbo.Certified(MaternKernel(ard_num_dims=2), 0.1, 1.0)}, "columns|features"),
        ({"method": "gp-ucb"}, "finite sets"),
        ({"setting": certified(1.0, None)}, "needs the noise level"),
    ],
)
def test_bad_options_are_refused_before_the_first_trial(options, says):
    with pytest.raises(kbo.InvalidInput, match=says):
        kbo.minimize(lambda x: pytest.fail("called"), LINE, 5, **options)


def test_recommended_is_the_best_pessimistic_bound_not_the_luckiest_value():
    optimizer = kbo.Optimizer(LINE, setting=certified(2.0, noise_std=0.5), maximize=True)
    for _ in range(30):
        optimizer.tell([0.2], 1.0)
    optimizer.tell([0.95], 1.6)  # one lucky draw
    assert optimizer.recommended().params == [0.2]


def test_failures_are_in_the_guarantee():
    setting = certified(1.0, 1.0)
    texts = {
        setting: "not certified: trials failed: ",
        dataclasses.replace(setting, completion_independent_of_noise=True): (
            "if completion does not depend on the noise (trials failed: "
        ),
    }
    for assumed, text in texts.items():
        optimizer = kbo.Optimizer(LINE, setting=assumed)
        optimizer.fail(optimizer.ask(), "diverged")
        optimizer.tell(optimizer.ask(), 0.5)
        result = result_of(optimizer, "", None)
        assert result.certified == assumed.completion_independent_of_noise
        assert text in result.guarantee


@pytest.mark.parametrize(("setting", "method"), [(None, None), (certified(2.0, 0.05), "kernel-ts")])
def test_the_search_leaves_a_region_where_the_objective_fails(setting, method):
    """A failed trial is imagined as bad as the worst value, in draws of functions too."""
    result = kbo.minimize(
        lambda x: 1 / 0 if x[0] > 0.7 else -x[0], LINE, 16, setting=setting, method=method
    )
    assert 0.5 < result.params[0] <= 0.7
    assert sum(t.status == "failed" for t in result.trials[10:]) < 3


def test_the_gap_covers_the_regret_and_a_run_stops_on_it():
    objective = noisy(lambda x: math.sin(3 * x[0]))
    options = {"setting": certified(5.0, 0.05), "method": "cmm-ucb", "stop_at_gap": 0.35}
    result = kbo.maximize(objective, LINE, 60, **options)
    assert len(result.trials) < 60
    assert "optimality gap" in result.stopped
    assert 1 - math.sin(3 * result.params[0]) <= result.gap.value <= 0.35
    assert not result.gap.exact
    assert result.gap.proved


def test_a_norm_bound_that_follows_the_data_certifies_nothing():
    options = {"setting": certified(None), "method": "cmm-ucb-doubling"}
    result = kbo.maximize(lambda x: math.sin(3 * x[0]), LINE, 5, **options)
    assert not result.certified
    assert result.guarantee.startswith("not certified")
    assert "norm bound from the data" in result.assumptions["from"]


@pytest.mark.parametrize("method", ["chaining-ucb", "chaining-ucb-rigorous", "cmm-ucb-practical"])
def test_a_norm_bound_is_refused_by_methods_that_assume_none(method):
    space = {"i": kbo.Int(0, 9)}
    kbo.Optimizer(space, setting=certified(None), method=method)
    with pytest.raises(kbo.InvalidInput, match=f"'{method}' does not use norm_bound: pass"):
        kbo.Optimizer(space, setting=certified(), method=method)
    limit = kbo.Constraint("memory", upper=1.0, noise_std=0.1, norm_bound=2.0)
    with pytest.raises(kbo.InvalidInput, match="no norm_bound as the objective has none"):
        kbo.Optimizer(space, setting=certified(None), method=method, constraints=[limit])


@pytest.mark.parametrize("method", ["dmm-ucb", "ucb", "kernel-ts", "dmm-ucb-adaptive"])
def test_a_norm_bound_is_needed_by_methods_whose_reports_assume_it(method):
    noise_std = None if "adaptive" in method else 0.1
    with pytest.raises(kbo.InvalidInput, match=rf"'{method}' needs .* pass Certified\(norm_bound"):
        kbo.Optimizer(LINE, setting=certified(None, noise_std), method=method)


def test_random_search_takes_a_setting_with_or_without_a_norm_bound():
    for norm_bound in (None, 2.0):
        kbo.minimize(lambda x: x[0], LINE, 2, setting=certified(norm_bound), method="random")


def test_a_certified_run_needs_no_noise_level():
    setting = kbo.Certified(SMOOTH, None, norm_bound=5.0, noise_upper=0.2)
    objective = noisy(lambda x: math.sin(2 * x[0]))
    result = kbo.maximize(objective, LINE, 20, method="dmm-ucb-adaptive", setting=setting)
    assert result.certified
    assert "at least 1 - 0.1" in result.guarantee
    assert "a level of at most 0.2" in result.guarantee
    assert 0.05 < result.assumptions["noise_std"] <= 0.2
    assert result.lower < math.sin(2 * result.params[0]) < result.upper


@pytest.mark.parametrize("strict", [False, True])
def test_a_certified_run_names_the_class_of_its_noise(strict):
    setting = kbo.Certified(SMOOTH, None, 5.0, noise_upper=0.2, strict_noise=strict)
    optimizer = kbo.Optimizer(LINE, setting=setting, method="dmm-ucb-adaptive")
    optimizer.tell(optimizer.ask(), 1.0)
    text = result_of(optimizer, "", None).guarantee
    assert ("no more mass near zero" in text) == (not strict)


def test_without_noise_no_point_but_the_first_repetition_is_evaluated_twice():
    space = {"x": (-2.0, 3.0), "n": kbo.Int(1, 64, log=True), "c": ["a", "b", None]}
    optimizer = kbo.Optimizer(space, seed=1)
    running = [optimizer.begin() for _ in range(4)]
    for trial in running:
        params = trial.params
        value = (params["x"] - 1) ** 2 + abs(params["n"] - 8) / 8 + (params["c"] != "b")
        optimizer.tell(trial, value)
        if len(running) < 24:
            running.append(optimizer.begin())
    assert len(repetitions(optimizer.trials)) <= 1


def test_a_run_ends_when_every_point_is_known_without_noise():
    result = kbo.minimize(lambda x: (x["n"] - 3) ** 2, {"n": kbo.Int(1, 9)}, 30)
    assert result.stopped == "every point has been evaluated, and the objective has no noise"
    assert {trial.params["n"] for trial in result.trials} == set(range(1, 10))
    assert len(result.trials) <= 12  # values are equal by symmetry, so three repetitions show it
