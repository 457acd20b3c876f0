"""Early stopping: decisions of pruners, the same after a journal is opened again, and pruned trials in the search."""

import dataclasses
import math
import random

import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel
from scipy import stats

import kbo
from kbo.optimize.pruning import Curves, Pruning, prediction, resolve
from kbo.optimize.run.trials import Trial
from kbo.optimize.surrogates.outcome_transform import linear

BOX = {"x": (0.0, 1.0)}


def curve(x, steps=12, seed=None):
    """A learning curve [steps] that falls to (x - 0.3)^2, faster for larger x, with noise."""
    rng = random.Random(x if seed is None else seed)
    return [
        (x - 0.3) ** 2 + np.exp(-(0.1 + x) * step) + rng.gauss(0, 0.02)
        for step in range(1, steps + 1)
    ]


def trial(number, reports, value=None, **more):
    return Trial(number, {"x": 0.5}, value, reports=list(enumerate(reports, 1)), **more)


def play(optimizer, pruner, xs):
    """Evaluate curves at points; return the numbers of reports of each trial."""
    pruning = Pruning(pruner, optimizer.space, optimizer.maximize)
    sign = -1 if optimizer.maximize else 1
    for x in xs:
        this, values = optimizer.run.begin({"x": x}), curve(x)
        for step, value in enumerate(values, 1):
            optimizer.report(this, sign * value, step=step)
            if pruning.should_stop(this.number, optimizer.run.events[pruning.n_events :]):
                optimizer.prune(this)
                break
        else:
            optimizer.tell(this, sign * values[-1])
    return [len(this.reports) for this in optimizer.trials]


XS = [round(0.01 + 0.98 * ((i * 0.618) % 1), 6) for i in range(24)]


def test_the_probability_is_that_of_a_prediction_interval():
    rng = np.random.default_rng(0)
    x = rng.normal(size=6)
    y = 2 * x + rng.normal(size=6)
    line = stats.linregress(x, y)
    predicted = line.intercept + line.slope * 0.7
    residual = np.sqrt(((y - line.intercept - line.slope * x) ** 2).sum() / 4)
    error = residual * np.sqrt(1 + 1 / 6 + (0.7 - x.mean()) ** 2 / ((x - x.mean()) ** 2).sum())
    probability = stats.t.sf((y.max() - predicted) / error, 4)
    trials = [
        trial(i, [a, 0.0], b) for i, (a, b) in enumerate(zip(x.tolist(), y.tolist(), strict=True))
    ]
    trials.append(trial(6, [0.7]))
    assert Curves(probability + 1e-6, 6, n_warmup=0).should_stop(trials[-1], trials, maximize=True)
    assert not Curves(probability - 1e-6, 6, n_warmup=0).should_stop(
        trials[-1], trials, maximize=True
    )
    equal = [trial(i, [1.0, 0.0], 1.0) for i in range(10)]  # equal curves: no error, and no worse
    assert not Curves().should_stop(trial(10, [5.0]), [*equal, trial(10, [5.0])], maximize=True)


@pytest.mark.parametrize("maximize", [False, True])
def test_curves_stop_a_trial_that_will_not_be_among_the_best(maximize):
    sign = -1 if maximize else 1
    done = [
        trial(i, [9.0, 9.0, sign * (2 + i), sign * (1 + 0.1 * i)], sign * 0.1 * i)
        for i in range(10)
    ]
    good, bad = (
        trial(10, [9.0, 9.0, sign * 3.0]),
        trial(10, [9.0, 9.0, sign * 7.0]),
    )  # good: as the second best
    assert not Curves(n_warmup=3).should_stop(bad, [*done, bad], maximize)
    assert not Curves().should_stop(good, [*done, good], maximize)
    assert Curves().should_stop(bad, [*done, bad], maximize)
    assert not Curves().should_stop(bad, [*done[:9], bad], maximize)  # too few
    pruned = [dataclasses.replace(trial(11 + i, [9.0]), pruned=True) for i in range(31)]
    assert Curves().should_stop(bad, [*done, bad, *pruned[:30]], maximize)
    assert not Curves().should_stop(
        bad, [*done, bad, *pruned], maximize
    )  # the model would learn too little


@pytest.mark.parametrize(
    ("name", "maximize"),
    [("Median", False), ("Median", True), ("Hyperband", False), ("SuccessiveHalving", True)],
)
def test_a_pruner_of_optuna_decides_as_in_its_own_study(name, maximize):
    optuna = pytest.importorskip("optuna")
    make = getattr(optuna.pruners, f"{name}Pruner")
    sampler = optuna.samplers.RandomSampler(seed=0)
    direction = "maximize" if maximize else "minimize"
    study = optuna.create_study(
        study_name="kbo", pruner=make(), sampler=sampler, direction=direction
    )
    for x in XS:
        own, values = study.ask(), curve(x)
        for step, value in enumerate(values, 1):
            own.report(-value if maximize else value, step)
            # At the last step nothing is saved, and before a trial is complete nothing can be compared.
            if (
                own.should_prune()
                and step < len(values)
                and study.get_trials(states=[optuna.trial.TrialState.COMPLETE])
            ):
                study.tell(own, state=optuna.trial.TrialState.PRUNED)
                break
        else:
            study.tell(own, -values[-1] if maximize else values[-1])
    lengths = play(kbo.Optimizer(BOX, maximize=maximize), make(), XS)
    assert lengths == [len(own.intermediate_values) for own in study.trials]
    assert min(lengths) < 12


def test_the_wilcoxon_pruner_compares_the_same_folds():
    pytest.importorskip("optuna")
    folds = [0.1 * i for i in range(12)]
    done = trial(0, [1 + fold for fold in folds], 1.5)
    worse, better = (
        trial(1, [1.2 + fold for fold in folds]),
        trial(1, [0.8 + fold for fold in folds]),
    )
    assert resolve("wilcoxon").should_stop(worse, [done, worse], maximize=False)
    assert not resolve("wilcoxon").should_stop(better, [done, better], maximize=False)


def test_a_trial_that_was_started_again_is_judged_by_its_new_reports():
    pytest.importorskip("optuna")
    median, trials = (
        resolve("median"),
        [trial(i, [1.0, 0.5], 0.5) for i in range(6)] + [trial(6, [0.0])],
    )
    assert not median.should_stop(trials[6], trials, maximize=False)
    trials[6].starts, trials[6].reports = 2, [(1, 9.0)]
    assert median.should_stop(trials[6], trials, maximize=False)


def test_no_trial_is_stopped_before_one_is_complete_or_at_the_last_step():
    class Always:
        def should_stop(self, trial, trials, maximize):
            return True

    lengths = play(kbo.Optimizer(BOX), Always(), [0.1, 0.2, 0.3])
    assert lengths == [12, 1, 1]
    optimizer = kbo.Optimizer(BOX)
    optimizer.tell({"x": 0.5}, 1.0)  # without reports: nothing is known of the last step
    assert play(optimizer, Always(), [0.1]) == [0, 12]


def test_what_is_no_pruner_is_refused():
    for pruner in ("medain", 3, Curves):
        with pytest.raises(kbo.InvalidInput, match="pruner must be"):
            resolve(pruner)
    with pytest.raises(
        kbo.InvalidInput, match="pruner needs an objective that takes two arguments"
    ):
        kbo.minimize(lambda params: 0.0, BOX, 3, pruner="curves")


def test_the_value_of_a_pruned_trial_is_predicted_by_its_rank_among_few_and_by_regression_among_more():
    done = [trial(i, [10.0 * i, 0.0], float(i * i)) for i in range(4)]
    found = [prediction(trial(4, [v]), done, maximize=False) for v in (-5.0, 10.0, 15.0, 99.0)]
    assert [value for value, _ in found] == pytest.approx([0.0, 1.0, 2.5, 9.0])
    assert found[0][1] == pytest.approx(9 / 4)
    assert found[2][1] == pytest.approx(math.hypot(9 / 4, 1.5 / 4)), "it is 1.5 from every value"
    assert prediction(trial(4, []), done, maximize=False) is None
    assert prediction(trial(5, [1.0]), done[:2], maximize=False) is None
    far = prediction(
        trial(5, [1e300]), [trial(i, [1e200 * i, 0.0], 1e200 * i) for i in range(7)], maximize=False
    )
    assert far is None or all(map(math.isfinite, far))
    x = np.arange(1.0, 7.0)
    y = 2 * x + 0.1 * (-1) ** np.arange(6)
    done = [
        trial(i, [a, 0.0], b) for i, (a, b) in enumerate(zip(x.tolist(), y.tolist(), strict=True))
    ]
    line = stats.linregress(x, y)
    worse, error = prediction(trial(19, [12.0]), done, maximize=False)
    better, _ = prediction(trial(19, [-3.0]), done, maximize=False)
    assert worse == pytest.approx(12), "worse than every value, but not than the report"
    residual = y - line.intercept - line.slope * x
    spread = (
        residual @ residual / 4 * (1 + 1 / 6 + (12 - x.mean()) ** 2 / ((x - x.mean()) ** 2).sum())
    )
    assert error == pytest.approx(math.hypot(math.sqrt(spread), (12 - y.max()) / 4))
    assert better == y.min(), "never better than the best value"


def told(optimizer, n=10):
    for i in range(n):
        x = (i * 0.618) % 1
        this = optimizer.run.begin({"x": x})
        for step, value in enumerate(curve(x, 4), 1):
            optimizer.report(this, value, step=step)
        optimizer.tell(this, (x - 0.3) ** 2 + 0.05 * (-1) ** i)
    return optimizer


def pruned_at(optimizer, x, value):
    this = optimizer.run.begin({"x": x})
    optimizer.report(this, value, step=1)
    optimizer.prune(this)
    return optimizer


def test_a_pruned_trial_is_an_evaluation_with_a_predicted_value():
    plain, good, bad = (
        told(kbo.Optimizer(BOX, setting=kbo.Practical(noise_std=0.05))) for _ in range(3)
    )
    pruned_at(good, 0.31, 0.2)
    pruned_at(bad, 0.9, 9.0)
    for run in (good, bad):
        prediction = run.insight.surrogate().values[-1]
        assert prediction.error > 0
        assert run.insight.surrogate().posterior.n == 11
        assert (
            "1 trial stopped early: final values predicted"
            in run.insight.surrogate().account()["predicted"]
        )
        assert "11 trials, 1 stopped early" in str(kbo.optimize.result.result_of(run, "", None))
    assert bad.interval({"x": 0.9})[1] > plain.interval({"x": 0.9})[1]
    assert "predicted" not in plain.insight.surrogate().account()
    again = kbo.Optimizer(BOX, setting=kbo.Practical(noise_std=0.05))
    again.run.restore(list(bad.run.events), bad.space)
    assert again.interval({"x": 0.9}) == bad.interval({"x": 0.9})


class Own(kbo.Practical):
    pass


@pytest.mark.parametrize("setting", [kbo.Practical(), Own()])
def test_reports_say_how_bad_values_are_that_the_search_cuts(setting):
    optimizer = kbo.Optimizer(BOX, setting=setting)
    for i in range(30):
        x = i / 29
        optimizer.tell({"x": x}, (100.0 if x > 0.8 else (x - 0.3) ** 2) + 0.01 * (-1) ** i)
    belief = optimizer.insight.surrogate()
    assert belief.transform.cuts(-100.0)
    low, mean, high = optimizer.interval({"x": 0.95})
    assert low < mean < high
    assert 30 < mean < 300
    assert high >= 100  # what was observed is not excluded
    cut = belief.interval(torch.tensor([[0.95], [0.3]], dtype=torch.float64))
    assert float(-cut[1][0]) < 1
    low, mean, high = optimizer.interval({"x": 0.3})
    assert low < 0 < high < 0.03
    assert mean == pytest.approx(float(-cut[1][1]), abs=0.01), "where nothing is cut"
    y = torch.tensor([-3.0, -0.5, -0.4, -0.3, -0.2, 0.0, -1e9], dtype=torch.float64)
    targets = linear(y, cut=False)
    torch.testing.assert_close(targets.inverse(targets(y)), y)


def test_a_pruned_trial_certifies_nothing_and_its_value_is_not_used():
    kernel = MaternKernel(nu=2.5).double()
    kernel.lengthscale = 0.5
    setting = kbo.Certified(kernel, noise_std=0.1, norm_bound=3.0)
    runs = [
        pruned_at(told(kbo.Optimizer(BOX, setting=setting)), 0.31, value) for value in (0.2, 9.0)
    ]
    assert runs[0].suggest() == runs[1].suggest()
    result = kbo.optimize.result.result_of(runs[0], "", None)
    assert not result.certified
    assert "trials stopped early: 1" in result.guarantee
    declared = dataclasses.replace(setting, completion_independent_of_noise=True)
    result = kbo.optimize.result.result_of(
        pruned_at(told(kbo.Optimizer(BOX, setting=declared)), 0.31, 9.0), "", None
    )
    assert result.certified
    assert (
        "if completion does not depend on the noise (trials stopped early: 1)" in result.guarantee
    )


def train(params, trial):
    """An objective of learning curves; the last value is that of a whole training."""
    value = 0.0
    for step, value in enumerate(curve(params["x"]), 1):
        trial.report(value, step=step)
        if trial.should_stop():
            break
    return value


def ends(result):
    return [
        (trial.params["x"], trial.status, trial.value, trial.reports) for trial in result.trials
    ]


@pytest.mark.parametrize("pruner", ["curves", "hyperband"])
def test_minimize_stops_trials_and_continues_as_if_it_had_never_ended(pruner, tmp_path):
    if pruner != "curves":
        pytest.importorskip("optuna")
    path, whole = tmp_path / "run.jsonl", kbo.minimize(train, BOX, 20, pruner=pruner)
    assert {trial.status for trial in whole.trials} == {"complete", "pruned"}
    assert all(
        trial.value is None and len(trial.reports) < 12
        for trial in whole.trials
        if trial.status == "pruned"
    )
    for n_trials in (9, 14, 20):
        continued = kbo.minimize(train, BOX, n_trials, pruner=pruner, journal=path)
    assert ends(continued) == ends(whole)
