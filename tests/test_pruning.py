"""Early stopping: decisions of pruners, the same after a journal is opened again, and pruned trials in the search."""

import dataclasses
import random

import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel
from scipy import stats

import kbo
from kbo.optimize.pruning import Curves, Pruning, _probability_above, matched_values, resolve
from kbo.optimize.trials import Trial

BOX = {"x": (0.0, 1.0)}


def curve(x, steps=12, seed=None):
    """A learning curve [steps] that falls to (x - 0.3)^2, faster for larger x, with noise."""
    rng = random.Random(x if seed is None else seed)
    return [(x - 0.3) ** 2 + np.exp(-(0.1 + x) * step) + rng.gauss(0, 0.02) for step in range(1, steps + 1)]


def trial(number, reports, value=None, **more):
    return Trial(number, {"x": 0.5}, value, reports=list(enumerate(reports, 1)), **more)


def play(optimizer, pruner, xs):
    """Evaluate curves at points; return the numbers of reports of each trial."""
    pruning = Pruning(pruner, optimizer.space, optimizer.maximize)
    sign = -1 if optimizer.maximize else 1
    for x in xs:
        this, values = optimizer.expect({"x": x}), curve(x)
        for step, value in enumerate(values, 1):
            optimizer.report(this, step, sign * value)
            if pruning.should_stop(this.number, optimizer.events[pruning.n_events :]):
                optimizer.prune(this)
                break
        else:
            optimizer.tell(this, sign * values[-1])
    return [len(this.reports) for this in optimizer.trials]


XS = [round(0.01 + 0.98 * ((i * 0.618) % 1), 6) for i in range(24)]


def test_the_probability_is_that_of_a_prediction_interval():
    rng = np.random.default_rng(0)
    x = rng.normal(size=9)
    y = 0.5 * x + rng.normal(size=9)
    line = stats.linregress(x, y)
    predicted = line.intercept + line.slope * 0.7
    residual = np.sqrt(((y - line.intercept - line.slope * x) ** 2).sum() / 7)
    error = residual * np.sqrt(1 + 1 / 9 + (0.7 - x.mean()) ** 2 / ((x - x.mean()) ** 2).sum())
    assert _probability_above(1.2, 0.7, x, y) == pytest.approx(stats.t.sf((1.2 - predicted) / error, 7))
    assert _probability_above(1.0, 5.0, np.ones(5), np.ones(5)) == 1.0  # equal curves: no error, and no worse
    assert _probability_above(1.1, 5.0, np.ones(5), np.ones(5)) == 0.0


@pytest.mark.parametrize("maximize", [False, True])
def test_curves_stop_a_trial_that_will_not_be_the_best(maximize):
    sign = -1 if maximize else 1
    done = [trial(i, [sign * (2 + i), sign * (1 + 0.1 * i)], sign * 0.1 * i) for i in range(6)]
    good, bad = trial(6, [sign * 1.9]), trial(6, [sign * 5.0])
    assert not Curves().should_stop(good, [*done, good], maximize)
    assert Curves().should_stop(bad, [*done, bad], maximize)
    assert not Curves().should_stop(bad, [*done[:5], bad], maximize)  # too few
    pruned = [dataclasses.replace(trial(7 + i, [9.0]), pruned=True) for i in range(19)]
    assert Curves().should_stop(bad, [*done, bad, *pruned[:18]], maximize)
    assert not Curves().should_stop(bad, [*done, bad, *pruned], maximize)  # the model would learn too little


@pytest.mark.parametrize(
    ("name", "maximize"), [("Median", False), ("Median", True), ("Hyperband", False), ("SuccessiveHalving", True)]
)
def test_a_pruner_of_optuna_decides_as_in_its_own_study(name, maximize):
    optuna = pytest.importorskip("optuna")
    make = getattr(optuna.pruners, f"{name}Pruner")
    sampler = optuna.samplers.RandomSampler(seed=0)
    direction = "maximize" if maximize else "minimize"
    study = optuna.create_study(study_name="kbo", pruner=make(), sampler=sampler, direction=direction)
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
    worse, better = trial(1, [1.2 + fold for fold in folds]), trial(1, [0.8 + fold for fold in folds])
    assert resolve("wilcoxon").should_stop(worse, [done, worse], maximize=False)
    assert not resolve("wilcoxon").should_stop(better, [done, better], maximize=False)


def test_a_trial_that_was_started_again_is_judged_by_its_new_reports():
    pytest.importorskip("optuna")
    median, trials = resolve("median"), [trial(i, [1.0, 0.5], 0.5) for i in range(6)] + [trial(6, [0.0])]
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
    with pytest.raises(kbo.InvalidInput, match="pruner needs an objective that takes two arguments"):
        kbo.minimize(lambda params: 0.0, BOX, 3, pruner="curves")


def test_a_pruned_trial_matches_the_value_of_its_rank():
    done = [trial(i, [10.0 * i, 0.0], float(i * i)) for i in range(4)]
    pruned = [trial(4, [v]) for v in (-5.0, 10.0, 15.0, 99.0)]
    pruned = [dataclasses.replace(each, number=4 + i) for i, each in enumerate(pruned)]
    assert matched_values(pruned, done) == {4: 0.0, 5: 1.0, 6: 2.5, 7: 9.0}
    assert matched_values([trial(4, []), trial(5, [1.0])], [trial(0, [], 1.0)]) == {}


def told(optimizer, n=10):
    for i in range(n):
        x = (i * 0.618) % 1
        this = optimizer.expect({"x": x})
        for step, value in enumerate(curve(x, 4), 1):
            optimizer.report(this, step, value)
        optimizer.tell(this, (x - 0.3) ** 2 + 0.05 * (-1) ** i)
    return optimizer


def pruned_at(optimizer, x, value):
    this = optimizer.expect({"x": x})
    optimizer.report(this, 1, value)
    optimizer.prune(this)
    return optimizer


def test_a_pruned_trial_changes_the_search_and_nothing_else(monkeypatch):
    seen = []
    recording = (lambda step: seen.append(step.posterior), *kbo.Practical.proposers)
    monkeypatch.setattr(kbo.Practical, "proposers", recording)
    plain, *others = (told(kbo.Optimizer(BOX, setting=kbo.Practical(noise_std=0.05))) for _ in range(3))
    runs = [plain, *(pruned_at(run, 0.31, value) for run, value in zip(others, (0.2, 9.0), strict=True))]
    for run in runs:
        run.suggest()
    at = torch.tensor([[0.31]], dtype=torch.float64)
    plain, good, bad = (float(posterior.predict(at)[0]) for posterior in seen)
    assert bad < good
    assert bad < plain
    for run in runs[1:]:
        assert run.recommended().number == runs[0].recommended().number
        assert run.interval({"x": 0.31}) == runs[0].interval({"x": 0.31})
        assert "11 trials, 1 stopped early; " in str(kbo.optimize.result.result_of(run, "", None))


def test_a_pruned_trial_certifies_nothing_and_its_value_is_not_used():
    kernel = MaternKernel(nu=2.5).double()
    kernel.lengthscale = 0.5
    setting = kbo.Certified(kernel, noise_std=0.1, norm_bound=3.0)
    runs = [pruned_at(told(kbo.Optimizer(BOX, setting=setting)), 0.31, value) for value in (0.2, 9.0)]
    assert runs[0].suggest() == runs[1].suggest()
    result = kbo.optimize.result.result_of(runs[0], "", None)
    assert not result.certified
    assert "trials stopped early: 1" in result.guarantee
    declared = dataclasses.replace(setting, completion_independent_of_noise=True)
    result = kbo.optimize.result.result_of(pruned_at(told(kbo.Optimizer(BOX, setting=declared)), 0.31, 9.0), "", None)
    assert result.certified
    assert "if completion does not depend on the noise (trials stopped early: 1)" in result.guarantee


def train(params, trial):
    """An objective of learning curves; the last value is that of a whole training."""
    value = 0.0
    for step, value in enumerate(curve(params["x"]), 1):
        trial.report(step, value)
        if trial.should_stop():
            break
    return value


def ends(result):
    return [(trial.params["x"], trial.status, trial.value, trial.reports) for trial in result.trials]


@pytest.mark.parametrize("pruner", ["curves", "hyperband"])
def test_minimize_stops_trials_and_continues_as_if_it_had_never_ended(pruner, tmp_path):
    if pruner != "curves":
        pytest.importorskip("optuna")
    path, whole = tmp_path / "run.jsonl", kbo.minimize(train, BOX, 20, pruner=pruner)
    assert {trial.status for trial in whole.trials} == {"complete", "pruned"}
    assert all(trial.value is None and len(trial.reports) < 12 for trial in whole.trials if trial.status == "pruned")
    for n_trials in (9, 14, 20):
        continued = kbo.minimize(train, BOX, n_trials, pruner=pruner, journal=path)
    assert ends(continued) == ends(whole)
