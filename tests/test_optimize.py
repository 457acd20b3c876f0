"""Ask, tell, minimise: failures, batches, settings, results."""

import dataclasses
import itertools
import math
import os
import signal
import time

import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel

import kbo
from kbo.confidence import MIXED_SCALES, MartingaleMixture, norm_lower_bound
from kbo.errors import InvalidInput
from kbo.optimize.result import result_of
from kbo.optimize.settings import Practical
from kbo.optimize.trials import repetitions
from kbo.problems import RKHSBandit, branin, hartmann6

BOUNDS = {"x": (0.0, 1.0), "n": kbo.Int(1, 5), "c": ["a", "b"]}


def quadratic(params):
    return (params["x"] - 0.3) ** 2 + 0.1 * (params["n"] - 2) ** 2 + (params["c"] == "a")


def certified(norm_bound=2.0, noise_std=0.1):
    kernel = MaternKernel(nu=2.5).double()
    kernel.lengthscale = 0.5
    return kbo.Certified(kernel, noise_std=noise_std, norm_bound=norm_bound)


def trajectory(result):
    return [(t.params, t.value) for t in result.trials]


def test_minimize_finds_the_minimum_of_a_mixed_space():
    result = kbo.minimize(quadratic, BOUNDS, 40, seed=1)
    assert result.params["c"] == "b"
    assert result.params["n"] == 2
    assert abs(result.params["x"] - 0.3) < 0.15


def test_maximize_is_minimize_of_the_negative():
    low = kbo.minimize(quadratic, BOUNDS, 15)
    high = kbo.maximize(lambda p: -quadratic(p), BOUNDS, 15)
    assert [t.params for t in low.trials] == [t.params for t in high.trials]
    assert high.value == pytest.approx(-low.value)
    assert (high.lower, high.upper) == pytest.approx((-low.upper, -low.lower))


@pytest.mark.parametrize("make", [lambda s: branin(2.0, s), lambda s: hartmann6(0.1, s)])
def test_practical_setting_beats_random_search_on_average(make):
    def regret(method, seed):
        problem = make(seed)
        params = kbo.minimize(problem, problem.space, 40, method=method, seed=seed).params
        return problem.noiseless(params) - problem.optimum

    assert sum(regret(None, s) for s in range(3)) < 0.75 * sum(regret("random", s) for s in range(3))


def test_result_says_practical_and_never_certified_when_things_were_estimated():
    result = kbo.minimize(quadratic, BOUNDS, 12)
    assert not result.certified
    assert "not certified" in result.guarantee
    assert result.lower <= result.value <= result.upper
    assert "not certified" in str(result)


def test_certified_setting_states_its_guarantee_and_its_interval_holds():
    world = RKHSBandit("matern52", 0.5, dim=2, norm=2.0, seed=3)
    setting = kbo.Certified(world.kernel, noise_std=0.1, norm_bound=2.0, delta=0.1)
    result = kbo.maximize(
        lambda x: float(world.observe(torch.tensor([x]).double())), [(0, 1), (0, 1)], 30, setting=setting
    )
    truth = float(world.mean(torch.tensor([result.params]).double()))
    assert result.certified
    assert "at least 1 - 0.1" in result.guarantee
    assert result.lower <= truth <= result.upper


def test_certified_setting_reports_refuted_assumptions_with_figures(tmp_path):
    with pytest.raises(kbo.RefutedAssumptions) as caught:
        kbo.minimize(lambda x: 10 * math.sin(9 * x[0]), [(0, 1)], 30, setting=certified(0.5), journal=tmp_path / "j")
    assert caught.value.figures["norm_at_least"] > 0.5
    assert str(tmp_path) in "".join(caught.value.__notes__)


def test_same_seed_same_trajectory_other_seed_another():
    first, again, other = (trajectory(kbo.minimize(quadratic, BOUNDS, 14, seed=s)) for s in (0, 0, 1))
    assert first == again
    assert first != other


@pytest.mark.parametrize("method", ["dmm-ucb", "amm-ucb", "ay-gp-ucb", "igp-ucb", "random"])
@pytest.mark.parametrize("setting", [None, certified(norm_bound=20.0)])
def test_every_method_for_boxes_runs(method, setting):
    result = kbo.minimize(quadratic, BOUNDS, 12, method=method, setting=setting)
    assert len(result.trials) == 12
    assert (result.lower is None) == (method == "random")


def test_batches_treat_pending_points_as_taken():
    optimizer = kbo.Optimizer({"x": (0.0, 1.0)}, setting=certified())
    optimizer.tell({"x": 0.5}, math.sin(5 * 0.5))
    batch = [p["x"] for p in optimizer.ask(4)]
    gaps = [abs(a - b) for i, a in enumerate(batch) for b in batch[:i]]
    assert min(gaps) > 0.02
    for x in reversed(batch):  # told in any order
        optimizer.tell({"x": x}, math.sin(5 * x))
    assert len(optimizer.completed()) == 5


def test_save_and_load_continue_with_the_same_point(tmp_path):
    optimizer = kbo.Optimizer(BOUNDS, seed=4)
    for _ in range(11):
        x = optimizer.ask()
        optimizer.tell(x, quadratic(x))
    pending = optimizer.ask()
    optimizer.save(tmp_path / "run.jsonl")
    other = kbo.Optimizer(BOUNDS, seed=4)
    other.load(tmp_path / "run.jsonl")
    assert other.ask() == pending
    for _ in range(12):  # across a refit
        x, y = optimizer.ask(), other.ask()
        assert x == y
        optimizer.tell(x, quadratic(x))
        other.tell(y, quadratic(y))


def test_failures_are_recorded_and_never_fed_to_the_model():
    answers = iter([1.0, math.nan, 2.0, -math.inf, None, 3.0, "text", 0.5])

    def objective(x):
        value = next(answers)
        if value == 2.0:
            raise ValueError("boom")
        return value

    result = kbo.minimize(objective, [(0, 1)], 8, setting=certified(10.0))
    assert [t.status for t in result.trials] == [
        "complete", "failed", "failed", "failed", "failed", "complete", "failed", "complete",
    ]  # fmt: skip
    assert result.trials[2].failure.startswith("ValueError: boom (test_optimize.py, line ")
    assert result.best_observed == 0.5
    assert math.isfinite(result.value)


def test_repeated_failure_stops_with_the_reason(tmp_path):
    def objective(x):
        raise RuntimeError("no data set")

    with pytest.raises(kbo.TooManyFailures, match=r"4 trials in a row.*no data set"):
        kbo.minimize(objective, [(0, 1)], 20, max_failures=4, journal=tmp_path / "j.jsonl")


def test_a_trial_that_takes_too_long_is_a_failure():
    def objective(x):
        if x[0] < 0.5:
            time.sleep(600)
        return x[0]

    start = time.perf_counter()
    result = kbo.minimize(objective, [(0, 1)], 6, timeout=0.1)
    assert time.perf_counter() - start < 300
    assert any("TimeoutError" in (t.failure or "") for t in result.trials)
    assert all(t.value is None for t in result.trials if t.params[0] < 0.5)


def test_ctrl_c_returns_what_is_known(tmp_path):
    calls = []

    def objective(x):
        calls.append(x)
        if len(calls) == 5:
            os.kill(os.getpid(), signal.SIGINT)
        return x[0]

    result = kbo.minimize(objective, [(0, 1)], 50, journal=tmp_path / "j.jsonl")
    assert result.stopped.startswith("interrupted")
    assert len([t for t in result.trials if t.status == "complete"]) in (4, 5)
    done = kbo.minimize(lambda x: x[0], [(0, 1)], 8, journal=tmp_path / "j.jsonl")
    assert len(done.trials) == 8


@pytest.mark.parametrize("n_trials", [0, -1, 2.5])
def test_n_trials_must_be_a_positive_whole_number(n_trials):
    with pytest.raises(kbo.InvalidInput, match="n_trials"):
        kbo.minimize(quadratic, BOUNDS, n_trials)


def test_unknown_method_names_near_ones():
    with pytest.raises(kbo.InvalidInput, match="dmm-ucb"):
        kbo.minimize(quadratic, BOUNDS, 5, method="dmmucb")


@pytest.mark.parametrize(
    "make",
    [
        lambda: certified(noise_std=0.0),
        lambda: certified(norm_bound=-1.0),
        lambda: kbo.Certified(MaternKernel(), 0.1, 1.0, delta=1.5),
        lambda: Practical(delta=0.0),
        lambda: Practical(norm_factor=0.5),
        lambda: Practical(n_initial=1),
    ],
)
def test_bad_settings_are_refused_before_the_first_trial(make):
    with pytest.raises(kbo.InvalidInput):
        kbo.minimize(quadratic, BOUNDS, 5, setting=make())


def test_one_constant_objective_does_not_break_the_fit():
    result = kbo.minimize(lambda x: 1.0, [(0, 1)], 12)
    assert result.value == pytest.approx(1.0, abs=0.05)


def test_recommended_is_the_best_pessimistic_bound_not_the_luckiest_value():
    optimizer = kbo.Optimizer({"x": (0.0, 1.0)}, setting=certified(2.0, noise_std=0.5), maximize=True)
    for _ in range(30):
        optimizer.tell({"x": 0.2}, 1.0)
    optimizer.tell({"x": 0.95}, 1.6)  # one lucky draw
    assert optimizer.recommended().params == {"x": 0.2}


@pytest.mark.parametrize("bounds", [BOUNDS, [(0.0, 1.0), (0.0, 1.0)]])
def test_an_objective_may_change_its_parameters(bounds, tmp_path):
    def objective(params):
        if isinstance(params, dict):
            value = params.pop("x")
            params["extra"] = 1
            return value
        params[0] += 5
        return params[1]

    result = kbo.minimize(objective, bounds, 8, journal=tmp_path / "j")
    assert all("x" in t.params if isinstance(bounds, dict) else 0 <= t.params[0] <= 1 for t in result.trials)
    assert kbo.minimize(objective, bounds, 8, journal=tmp_path / "j").params == result.params


@pytest.mark.parametrize("wild", [1e200, 1e308])
def test_huge_values_do_not_break_the_model(wild, tmp_path):
    result = kbo.minimize(lambda x: wild if x[0] > 0.4 else x[0], [(0, 1)], 14, journal=tmp_path / "j")
    assert result.params[0] <= 0.4
    assert len(kbo.minimize(lambda x: x[0], [(0, 1)], 14, journal=tmp_path / "j").trials) == 14


def test_an_integer_too_large_for_a_float_is_a_failed_trial():
    result = kbo.minimize(lambda x: 10**400 if x[0] > 0.7 else x[0], [(0, 1)], 6)
    assert "failed" in {t.status for t in result.trials}


def test_numpy_values_become_plain_ones(tmp_path):
    import numpy as np

    optimizer = kbo.Optimizer(BOUNDS, journal=tmp_path / "j")
    optimizer.tell({"x": np.float32(0.5), "n": np.int64(3), "c": np.str_("a")}, np.float64(1.0))
    optimizer.save(tmp_path / "copy")
    assert optimizer.trials[0].params == {"x": 0.5, "n": 3, "c": "a"}


def test_a_kernel_that_does_not_fit_the_space_is_refused_before_the_first_trial():
    setting = kbo.Certified(MaternKernel(ard_num_dims=2), noise_std=0.1, norm_bound=1.0)
    with pytest.raises(kbo.InvalidInput, match=r"columns|features"):
        kbo.minimize(lambda x: x[0], [(0, 1)], 5, setting=setting)


def test_a_timeout_off_the_main_thread_is_refused_before_the_first_trial():
    import threading

    errors = []

    def work():
        try:
            kbo.minimize(lambda x: x[0], [(0, 1)], 5, timeout=1.0, workers=1)
        except kbo.InvalidInput as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert "main thread" in str(errors[0])


def test_the_value_lies_in_its_interval_and_failures_are_in_the_guarantee():
    setting = kbo.Certified(MaternKernel(nu=2.5), noise_std=1.0, norm_bound=1.0)
    optimizer = kbo.Optimizer([(0, 1)], setting=setting, maximize=True)
    for x in (0.4, 0.5, 0.6):
        optimizer.tell([x], 2.5)
    lower, value, upper = optimizer.interval([0.5])
    assert lower <= value <= upper
    noise = itertools.count()

    def objective(x):
        return 1 / 0 if x[0] > 0.8 else x[0] + 1e-6 * next(noise)

    result = kbo.maximize(objective, [(0, 1)], 6, setting=setting)
    assert not result.certified
    assert result.guarantee.startswith("not certified: trials failed: ")
    setting = dataclasses.replace(setting, completion_independent_of_noise=True)
    result = kbo.maximize(objective, [(0, 1)], 6, setting=setting)
    assert result.certified
    assert "if completion does not depend on the noise (trials failed: " in result.guarantee


def test_errors_carry_the_trials():
    with pytest.raises(kbo.TooManyFailures) as failed:
        kbo.minimize(lambda x: 1 / 0, [(0, 1)], 9, max_failures=3)
    assert [t.status for t in failed.value.trials] == ["failed"] * 3


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"setting": "practical"}, "setting must be"),
        ({"setting": kbo.Practical}, "setting must be"),
        ({"max_failures": 0}, "max_failures"),
        ({"method": "gp-ucb"}, "finite sets"),
        ({"timeout": -1.0}, "timeout"),
    ],
)
def test_bad_options_are_refused_with_what_to_do(options, says):
    with pytest.raises(kbo.InvalidInput, match=says):
        kbo.minimize(lambda x: x[0], [(0, 1)], 5, **options)


def test_a_plateau_of_good_values_still_tells_bad_ones_apart():
    result = kbo.minimize(lambda x: 0.9 if x[0] > 0.8 else 0.1, [(0, 1)], 25)
    assert result.params[0] <= 0.8
    assert sum(t.params[0] > 0.8 for t in result.trials[4:]) <= 6


@pytest.mark.parametrize("setting", [None, certified(10.0)])
def test_the_search_leaves_a_region_where_the_objective_fails(setting):
    def objective(x):
        if x[0] > 0.7:
            raise MemoryError("too wide")
        return -x[0]

    result = kbo.minimize(objective, [(0, 1), (0, 1)], 40, setting=setting)
    assert 0.5 < result.params[0] <= 0.7
    assert sum(t.status == "failed" for t in result.trials) < 20


def test_looking_at_a_run_does_not_change_how_it_goes_on():
    looked, unseen = kbo.Optimizer(BOUNDS, seed=3), kbo.Optimizer(BOUNDS, seed=3)
    for i in range(24):
        x = looked.ask()
        assert x == unseen.ask()
        value = quadratic(x) + (-1) ** i * 0.3
        looked.tell(x, value)
        unseen.tell(x, value)
        looked.recommended()
        looked.interval(x)


def test_the_practical_norm_bound_is_never_refuted_and_a_multiple_of_its_lower_bound():
    optimizer = kbo.Optimizer(BOUNDS, method="dmm-ucb", seed=3, setting=Practical(norm_factor=1.0))
    for _ in range(25):
        x = optimizer.ask()
        optimizer.tell(x, quadratic(x))
    belief = optimizer.belief()
    confidence = belief.confidence()
    least = float(norm_lower_bound(belief.posterior, belief.fitted.noise_std, 0.1, 1.0))
    assert confidence.norm_bound == pytest.approx(max(least, 1.0), rel=1e-5)
    assert optimizer.interval(x) is not None


def test_the_gap_covers_the_regret_and_a_run_stops_on_it():
    setting = certified(norm_bound=5.0, noise_std=0.05)
    noise = torch.Generator().manual_seed(0)

    def objective(x):
        return math.sin(3 * x[0]) + 0.05 * float(torch.randn((), generator=noise))

    result = kbo.maximize(objective, [(0.0, 1.0)], 60, setting=setting, method="cmm-ucb", stop_at_gap=0.35)
    assert len(result.trials) < 60
    assert "optimality gap" in result.stopped
    assert 1 - math.sin(3 * result.params[0]) <= result.gap <= 0.35
    assert not result.gap_exact
    assert "search from many starts" in str(result)


def test_the_gap_of_a_finite_space_is_exact():
    bounds = {"n": kbo.Int(1, 9), "c": ["a", "b"]}
    optimizer = kbo.Optimizer(bounds, seed=1)
    assert optimizer.gap() is None
    for _ in range(12):
        x = optimizer.ask()
        optimizer.tell(x, (x["n"] - 3) ** 2 + (x["c"] == "a"))
    gap, exact, *_ = optimizer.gap()
    assert exact
    everywhere = [optimizer.interval({"n": n, "c": c}) for n in range(1, 10) for c in "ab"]
    recommended = optimizer.interval(optimizer.recommended().params)
    assert gap == pytest.approx(recommended[2] - min(low for low, _, _ in everywhere), abs=1e-6)


@pytest.mark.parametrize("method", ["cmm-ucb-doubling", "cmm-ucb-practical"])
def test_a_norm_bound_that_follows_the_data_certifies_nothing(method):
    result = kbo.maximize(lambda x: math.sin(3 * x[0]), [(0.0, 1.0)], 8, setting=certified(), method=method)
    assert not result.certified
    assert result.guarantee.startswith("not certified")
    assert "norm bound from the data" in result.assumptions["from"]


def test_a_gap_must_be_positive():
    with pytest.raises(kbo.InvalidInput, match="stop_at_gap"):
        kbo.minimize(quadratic, BOUNDS, 5, stop_at_gap=0.0)


@pytest.mark.parametrize("method", ["dmm-ucb-adaptive", "kernel-ucb-adaptive", "kernel-ts-adaptive"])
def test_a_certified_run_needs_no_noise_level(method):
    kernel = RBFKernel().double().initialize(lengthscale=1.0)
    noise = torch.Generator().manual_seed(0)

    def objective(x):
        return math.sin(2 * x[0]) + 0.05 * float(torch.randn((), generator=noise))

    setting = kbo.Certified(kernel, None, norm_bound=5.0, noise_upper=0.2)
    result = kbo.maximize(objective, [(0.0, 1.0)], 60, method=method, setting=setting)
    assert result.certified
    assert "a level of at most 0.2" in result.guarantee
    assert 0.05 < result.assumptions["noise_std"] <= 0.2
    assert result.lower < math.sin(2 * result.params[0]) < result.upper
    assert result.params[0] > 0.4


def test_a_certified_run_averages_over_scales_and_names_the_class_of_its_noise(tmp_path):
    kernel, path = RBFKernel().double().initialize(lengthscale=1.0), tmp_path / "run.jsonl"
    setting = kbo.Certified(kernel, 0.1, 5.0, scale=MIXED_SCALES)
    optimizer = kbo.Optimizer([(0.0, 1.0)], setting=setting, method="cmm-ucb", journal=path, maximize=True)
    optimizer.tell([0.5], 1.0)
    optimizer.close()
    x = torch.tensor([[0.2]], dtype=torch.float64)
    bounds = MartingaleMixture(0.1, 5.0, 0.1, scale=MIXED_SCALES).interval(optimizer.belief().posterior, x)
    assert optimizer.interval([0.2])[::2] == pytest.approx(tuple(map(float, bounds)))
    declared = dataclasses.replace(setting, completion_independent_of_noise=True)
    resumed = kbo.Optimizer([(0.0, 1.0)], setting=declared, method="cmm-ucb", journal=path, maximize=True)
    assert resumed.trials  # it may be declared later
    for variant in (None, "mixture+strict"):
        setting = kbo.Certified(kernel, None, 5.0, noise_upper=0.2, noise_variant=variant)
        optimizer = kbo.Optimizer([(0.0, 1.0)], setting=setting, method="dmm-ucb-adaptive")
        optimizer.tell(optimizer.ask(), 1.0)
        assert ("no more mass near zero" in result_of(optimizer, "", None).guarantee) == (variant is None)


def test_before_there_is_a_noise_bound_a_run_fills_the_space_and_recommends_by_value():
    kernel = RBFKernel().double().initialize(lengthscale=0.3)
    setting = kbo.Certified(kernel, None, norm_bound=5.0)
    optimizer = kbo.Optimizer([(0.0, 1.0)], setting=setting, method="dmm-ucb-adaptive")
    for _ in range(8):
        x = optimizer.ask()
        optimizer.tell(x, -abs(x[0] - 0.3))
    asked = sorted(trial.params[0] for trial in optimizer.trials)
    assert max(b - a for a, b in itertools.pairwise(asked)) < 0.4
    assert optimizer.interval([0.5]) is None
    assert optimizer.recommended().value == min(trial.value for trial in optimizer.trials)


@pytest.mark.parametrize("setting", ["certified", "practical"])
def test_thompson_sampling_finds_an_optimum_and_reports_a_bound_of_its_setting(setting):
    kernel = RBFKernel().double().initialize(lengthscale=0.5)
    chosen = kbo.Certified(kernel, 0.05, 5.0) if setting == "certified" else kbo.Practical()
    runs = [
        kbo.maximize(lambda p: math.sin(2 * p["x"]) - p["y"] ** 2, BOX, 30, method="kernel-ts", setting=chosen, seed=3)
        for _ in range(2)
    ]
    assert [trial.params for trial in runs[0].trials] == [trial.params for trial in runs[1].trials]
    assert runs[0].certified == (setting == "certified")
    assert setting == "practical" or runs[0].upper - runs[0].lower > 0.05  # more than a standard deviation or two
    assert runs[0].params["x"] > 0.6
    assert runs[0].params["y"] < 0.3


BOX = {"x": (0.0, 1.0), "y": (0.0, 1.0)}


def test_thompson_sampling_does_not_return_to_where_it_failed():
    """A failed trial is imagined as bad as the worst value, in the draw too."""

    def objective(p):
        if p["x"] > 0.5:
            raise RuntimeError("diverged")
        return p["x"]

    kernel = RBFKernel().double().initialize(lengthscale=0.3)
    setting = kbo.Certified(kernel, 0.05, 2.0)
    result = kbo.maximize(objective, {"x": (0.0, 1.0)}, 30, method="kernel-ts", setting=setting)
    late = [trial.status for trial in result.trials[15:]]
    assert late.count("failed") < 8


def test_settings_say_what_they_need_to_know_of_the_noise():
    kernel = RBFKernel().double()
    with pytest.raises(InvalidInput, match="needs the noise level"):
        kbo.maximize(lambda x: x[0], [(0.0, 1.0)], 5, setting=kbo.Certified(kernel, None, 1.0))
    with pytest.raises(InvalidInput, match="certified setting"):
        kbo.maximize(lambda x: x[0], [(0.0, 1.0)], 5, method="kernel-ucb-adaptive")
    for method, numbers in (
        ("dmm-ucb-adaptive", (0.1, None)),
        ("kernel-ucb-fixed", (0.1, 1.0)),
        ("dmm-ucb", (0.1, 1.0)),
    ):
        setting = kbo.Certified(kernel, numbers[0], 1.0, noise_upper=numbers[1])
        with pytest.raises(InvalidInput, match="does not use"):
            kbo.maximize(lambda x: x[0], [(0.0, 1.0)], 5, method=method, setting=setting)


def test_a_fixed_upper_bound_of_the_noise_is_the_level_that_is_reported():
    kernel = RBFKernel().double()
    setting = kbo.Certified(kernel, None, 2.0, noise_upper=0.3)
    noise = itertools.count()
    result = kbo.maximize(
        lambda x: x[0] + 1e-6 * next(noise), [(0.0, 1.0)], 8, method="kernel-ucb-fixed", setting=setting
    )
    assert result.assumptions["noise_std"] == 0.3
    assert "0.3-sub-Gaussian" in result.guarantee


@pytest.mark.parametrize("workers", [1, 4])
def test_without_noise_no_point_but_the_first_repetition_is_evaluated_twice(workers):
    optimizer = kbo.Optimizer({"x": (-2.0, 3.0), "n": kbo.Int(1, 64, log=True), "c": ["a", "b", None]}, seed=1)
    running = []
    while len(optimizer.completed()) < 60:
        while len(running) < workers:
            running.append(optimizer.begin())
        x = (trial := running.pop(0)).params
        optimizer.tell(trial, (x["x"] - 1) ** 2 + abs(x["n"] - 8) / 8 + (x["c"] != "b"))
    assert len(repetitions(optimizer.trials)) <= 1


def test_a_run_ends_when_every_point_is_known_without_noise():
    result = kbo.minimize(lambda x: (x["n"] - 3) ** 2, {"n": kbo.Int(1, 9)}, 30)
    assert result.stopped == "every point has been evaluated, and the objective has no noise"
    assert {trial.params["n"] for trial in result.trials} == set(range(1, 10))
    assert len(result.trials) <= 10
