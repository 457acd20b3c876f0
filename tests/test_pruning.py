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
from kbo.optimize.loop.pruning import Curves, Pruning, pruner_of
from kbo.optimize.quantities.learning_curves import prediction
from kbo.optimize.result import result_of
from kbo.optimize.run.trials import Trial

BOX = {"x": (0.0, 1.0)}
PRACTICAL = kbo.Practical(noise_std=0.05)
XS = [round(0.01 + 0.98 * ((i * 0.618) % 1), 6) for i in range(24)]


def curve(x, steps=12):
    """A learning curve [steps] that falls to (x - 0.3)^2, faster for larger x, with noise."""
    rng = random.Random(x)
    values = [(x - 0.3) ** 2 + np.exp(-(0.1 + x) * step) for step in range(1, steps + 1)]
    return [value + rng.gauss(0, 0.02) for value in values]


def trial(number, reports, value=None, **more):
    return Trial(number, {"x": 0.5}, value, reports=list(enumerate(reports, 1)), **more)


def finished(first_reports, values):
    """Trials with a first report, a second one of 0, and a value."""
    pairs = zip(map(float, first_reports), map(float, values), strict=True)
    return [trial(i, [report, 0.0], value) for i, (report, value) in enumerate(pairs)]


def play(optimizer, pruner, xs):
    """Evaluate curves at points; return the numbers of reports of each trial."""
    pruning = Pruning(pruner, optimizer.space, optimizer.maximize)
    sign = -1 if optimizer.maximize else 1
    for x in xs:
        this = optimizer.run.begin({"x": x})
        values = curve(x)
        for step, value in enumerate(values, 1):
            optimizer.report(this, sign * value, step=step)
            if pruning.should_stop(this.number, optimizer.run.events[pruning.n_events :]):
                optimizer.prune(this)
                break
        else:
            optimizer.tell(this, sign * values[-1])
    return [len(this.reports) for this in optimizer.trials]


def predicted(x, y, at):
    """The value on the regression line at a point, and its standard error."""
    line = stats.linregress(x, y)
    residual = ((y - line.intercept - line.slope * x) ** 2).sum() / (len(x) - 2)
    spread = 1 + 1 / len(x) + (at - x.mean()) ** 2 / ((x - x.mean()) ** 2).sum()
    return line.intercept + line.slope * at, np.sqrt(residual * spread)


def test_the_probability_is_that_of_a_prediction_interval():
    rng = np.random.default_rng(0)
    x = rng.normal(size=6)
    y = 2 * x + rng.normal(size=6)
    value, error = predicted(x, y, 0.7)
    probability = stats.t.sf((y.max() - value) / error, 4)
    judged = trial(6, [0.7])
    trials = [*finished(x, y), judged]
    assert Curves(probability + 1e-6, 6, n_warmup=0).should_stop(judged, trials, maximize=True)
    assert not Curves(probability - 1e-6, 6, n_warmup=0).should_stop(judged, trials, maximize=True)
    equal = finished([1.0] * 10, [1.0] * 10)  # equal curves: no error, and no worse
    assert not Curves().should_stop(trial(10, [5.0]), [*equal, trial(10, [5.0])], maximize=True)


@pytest.mark.parametrize("maximize", [False, True])
def test_curves_stop_a_trial_that_will_not_be_among_the_best(maximize):
    sign = -1 if maximize else 1
    done = [
        trial(i, [9.0, 9.0, sign * (2 + i), sign * (1 + 0.1 * i)], sign * 0.1 * i)
        for i in range(10)
    ]
    good = trial(10, [9.0, 9.0, sign * 3.0])  # as the second best
    bad = trial(10, [9.0, 9.0, sign * 7.0])
    pruned = [dataclasses.replace(trial(11 + i, [9.0]), pruned=True) for i in range(31)]
    for stops, curves, judged, others in (
        (False, Curves(n_warmup=3), bad, done),
        (False, Curves(), good, done),
        (True, Curves(), bad, done),
        (False, Curves(), bad, done[:9]),  # too few
        (True, Curves(), bad, [*done, *pruned[:30]]),
        (False, Curves(), bad, [*done, *pruned]),  # the model would learn too little
    ):
        assert curves.should_stop(judged, [*others, judged], maximize) == stops


@pytest.mark.parametrize(("name", "maximize"), [("Median", True), ("Hyperband", False)])
def test_a_pruner_of_optuna_decides_as_in_its_own_study(name, maximize):
    optuna = pytest.importorskip("optuna")
    make = getattr(optuna.pruners, f"{name}Pruner")
    sampler = optuna.samplers.RandomSampler(seed=0)
    direction = "maximize" if maximize else "minimize"
    options = {"study_name": "kbo", "pruner": make(), "sampler": sampler, "direction": direction}
    study = optuna.create_study(**options)
    sign = -1 if maximize else 1
    states = optuna.trial.TrialState
    for x in XS:
        own = study.ask()
        values = curve(x)
        for step, value in enumerate(values, 1):
            own.report(sign * value, step)
            # At the last step nothing is saved, and before a trial is complete nothing can be compared.
            may_stop = step < len(values) and study.get_trials(states=[states.COMPLETE])
            if own.should_prune() and may_stop:
                study.tell(own, state=states.PRUNED)
                break
        else:
            study.tell(own, sign * values[-1])
    lengths = play(kbo.Optimizer(BOX, maximize=maximize), make(), XS)
    assert lengths == [len(own.intermediate_values) for own in study.trials]
    assert min(lengths) < 12


def test_a_trial_that_was_started_again_is_judged_by_its_new_reports():
    pytest.importorskip("optuna")
    median = pruner_of("median")
    judged = trial(6, [0.0])
    trials = [*(trial(i, [1.0, 0.5], 0.5) for i in range(6)), judged]
    assert not median.should_stop(judged, trials, maximize=False)
    judged.starts = 2
    judged.reports = [(1, 9.0)]
    assert median.should_stop(judged, trials, maximize=False)


def test_no_trial_is_stopped_before_one_is_complete_or_at_the_last_step():
    class Always:
        def should_stop(self, trial, trials, maximize):
            return True

    assert play(kbo.Optimizer(BOX), Always(), [0.1, 0.2, 0.3]) == [12, 1, 1]
    optimizer = kbo.Optimizer(BOX)
    optimizer.tell({"x": 0.5}, 1.0)  # without reports: nothing is known of the last step
    assert play(optimizer, Always(), [0.1]) == [0, 12]


def test_the_value_of_a_pruned_trial_is_predicted_by_its_rank_among_few():
    def predict(report, trials):
        return prediction(trial(9, report), trials, maximize=False)

    done = finished([0.0, 10.0, 20.0, 30.0], [0.0, 1.0, 4.0, 9.0])
    values, errors = zip(*(predict([v], done) for v in (-5.0, 10.0, 15.0, 99.0)), strict=True)
    assert values == pytest.approx([0.0, 1.0, 2.5, 9.0])
    assert errors[0] == pytest.approx(9 / 4)
    assert errors[2] == pytest.approx(math.hypot(9 / 4, 1.5 / 4)), "it is 1.5 from every value"
    assert predict([], done) is None
    assert predict([1.0], done[:2]) is None


def test_the_value_of_a_pruned_trial_is_predicted_by_regression_among_more():
    x = np.arange(1.0, 7.0)
    y = 2 * x + 0.1 * (-1) ** np.arange(6)
    worse, error = prediction(trial(19, [12.0]), finished(x, y), maximize=False)
    better, _ = prediction(trial(19, [-3.0]), finished(x, y), maximize=False)
    assert worse == pytest.approx(12), "worse than every value, but not than the report"
    _, spread = predicted(x, y, 12)
    assert error == pytest.approx(math.hypot(spread, (12 - y.max()) / 4))
    assert better == y.min(), "never better than the best value"


def told(setting, pruned=None):
    """Return an optimizer with ten trials and, if a point and a report are given, one that was pruned."""
    optimizer = kbo.Optimizer(BOX, setting=setting)
    for i in range(10):
        x = (i * 0.618) % 1
        this = optimizer.run.begin({"x": x})
        for step, value in enumerate(curve(x, 4), 1):
            optimizer.report(this, value, step=step)
        optimizer.tell(this, (x - 0.3) ** 2 + 0.05 * (-1) ** i)
    if pruned is not None:
        x, value = pruned
        this = optimizer.run.begin({"x": x})
        optimizer.report(this, value, step=1)
        optimizer.prune(this)
    return optimizer


def test_a_pruned_trial_is_an_evaluation_with_a_predicted_value():
    plain = told(PRACTICAL)
    bad = told(PRACTICAL, (0.9, 9.0))
    surrogate = bad.insight.surrogate()
    assert surrogate.values[-1].error > 0
    assert surrogate.posterior.n == 11
    account = surrogate.account()["predicted"]
    assert "1 trial stopped early: final values predicted" in account
    assert "11 trials, of which 1 stopped early" in str(result_of(bad, "", None))
    assert bad.interval({"x": 0.9})[1] > plain.interval({"x": 0.9})[1]
    assert "predicted" not in plain.insight.surrogate().account()
    again = kbo.Optimizer(BOX, setting=PRACTICAL)
    again.run.restore(list(bad.run.events), bad.space)
    assert again.interval({"x": 0.9}) == bad.interval({"x": 0.9})


def test_reports_say_how_bad_values_are_that_the_search_cuts():
    optimizer = kbo.Optimizer(BOX)
    for i in range(30):
        x = i / 29
        optimizer.tell({"x": x}, (100.0 if x > 0.8 else (x - 0.3) ** 2) + 0.01 * (-1) ** i)
    surrogate = optimizer.insight.surrogate()
    low, mean, high = optimizer.interval({"x": 0.95})
    assert low < mean < high
    assert 30 < mean < 300
    assert high >= 100  # what was observed is not excluded
    cut = surrogate.interval(torch.tensor([[0.95], [0.3]], dtype=torch.float64))
    assert float(-cut[1][0]) < 1
    low, mean, high = optimizer.interval({"x": 0.3})
    assert low < 0 < high < 0.03
    assert mean == pytest.approx(float(-cut[1][1]), abs=0.01), "where nothing is cut"


def test_a_pruned_trial_certifies_nothing_and_its_value_is_not_used():
    kernel = MaternKernel(nu=2.5).double()
    kernel.lengthscale = 0.5
    setting = kbo.Certified(kernel, noise_std=0.1, norm_bound=3.0)
    good, bad = (told(setting, (0.31, value)) for value in (0.2, 9.0))
    assert good.suggest() == bad.suggest()
    result = result_of(good, "", None)
    assert not result.certified
    assert "trials stopped early: 1" in result.guarantee
    declared = dataclasses.replace(setting, completion_independent_of_noise=True)
    result = result_of(told(declared, (0.31, 9.0)), "", None)
    assert result.certified
    condition = "if completion does not depend on the noise (trials stopped early: 1)"
    assert condition in result.guarantee


def train(params, trial):
    """An objective of learning curves; the last value is that of a whole training."""
    value = 0.0
    for step, value in enumerate(curve(params["x"]), 1):
        trial.report(value, step=step)
        if trial.should_stop():
            break
    return value


def ends(result):
    return [(t.params["x"], t.status, t.value, t.reports) for t in result.trials]


def test_minimize_stops_trials_and_continues_as_if_it_had_never_ended(tmp_path):
    whole = kbo.minimize(train, BOX, 15, pruner="curves")
    assert {trial.status for trial in whole.trials} == {"complete", "pruned"}
    for trial in whole.trials:
        assert (trial.value is None) == trial.pruned == (len(trial.reports) < 12)
    for n_trials in (12, 15):
        journal = tmp_path / "run.jsonl"
        continued = kbo.minimize(train, BOX, n_trials, pruner="curves", journal=journal)
    assert ends(continued) == ends(whole)
