"""A posterior from outside kbo works everywhere: as the exact one does, whose equal it is."""

from __future__ import annotations

import pytest
import torch
from botorch.optim import optimize_acqf
from gpytorch.kernels import ScaleKernel

import kbo
from experiments.problems import RKHSBandit
from kbo import acquisition, bandit
from kbo.bandit import METHODS, NamedMethod, methods
from kbo.confidence import AdaptiveMixture, FixedWidth, MartingaleMixture, MixtureNoiseBounds
from kbo.models import KernelRidgeGP, PosteriorGP
from kbo.regression import AdaptiveRidge, KernelRidge
from tests.dense import close
from tests.laws.confidences import BOUNDS, Setting
from tests.laws.states import FeatureKernel, features, unit_square
from tests.third_party_posterior import LinearRegression

X = unit_square(25, 1)
Y = torch.sin(4 * X).sum(-1, keepdim=True)
Z = unit_square(6, 2)
RIDGE = 0.05


def states(ridge: float = RIDGE):
    return LinearRegression(features, ridge), KernelRidge(FeatureKernel(), ridge)


def models():
    ours = PosteriorGP(X, Y, LinearRegression(features, RIDGE))
    return ours, KernelRidgeGP(X, Y, FeatureKernel(), RIDGE)


def equal(pair, tol: float = 1e-5) -> None:
    ours, exact = pair
    close(torch.stack(tuple(ours)), torch.stack(tuple(exact)), tol)


@pytest.mark.parametrize(
    "bound", [b for b in BOUNDS if not b.other_numbers], ids=lambda bound: bound.name
)
def test_every_confidence(bound):
    setting = Setting()
    fed = states(setting.ridge)
    for state in fed:
        state.update(X, Y.squeeze(-1))
    equal(bound.make(setting).interval(state, Z) for state in fed)
    ours, exact = (bound.make(setting).guarantee_on(state) for state in fed)
    assert ours == exact


def test_a_ridge_that_follows_the_data():
    adaptive = [AdaptiveRidge(state, MixtureNoiseBounds(9.0, 0.1, upper=2.0)) for state in states()]
    for state in adaptive:
        state.update(X, Y.squeeze(-1) + 0.1 * torch.cos(99 * X[:, 0]))
    assert adaptive[0].ridge == adaptive[1].ridge
    equal(AdaptiveMixture("dmm").interval(state, Z) for state in adaptive)


ACQUISITIONS = {
    "cmm": lambda model: acquisition.CMMUCB(model, 0.3, 8.0, 0.1),
    "chaining": lambda model: acquisition.ChainingUCB(model, unit_square(30, 7), 0.1),
    "pending": lambda model: acquisition.KernelUCB(
        model, FixedWidth(2.0), X_pending=unit_square(2, 8)
    ),
    "thompson": lambda model: acquisition.InflatedThompsonSampling(model, FixedWidth(1.0), seed=3),
}


@pytest.mark.parametrize("name", ACQUISITIONS)
def test_acquisition_functions(name):
    ours, exact = map(ACQUISITIONS[name], models())
    box = torch.tensor([[0.0, 0.0], [1.0, 1.0]]).double()
    x, value = optimize_acqf(ours, box, q=1, num_restarts=1, raw_samples=8)
    assert bool(torch.isfinite(value))
    if name != "thompson":  # features of its own: draws differ
        close(value, exact(x)[0], 1e-5)


def test_posterior_sampling():
    draw = acquisition.InflatedPosteriorSampling(models()[0], FixedWidth(1.0))
    assert draw(unit_square(50, 9), num_samples=3).shape == (3, 2)


def test_a_named_method_in_the_bandit_loop_and_in_minimize(monkeypatch):
    posteriors = {
        "ours": lambda facts: LinearRegression(features, facts.noise_std**2),
        "exact": methods.exact,
    }

    def mixture(facts):
        return MartingaleMixture(facts.noise_std, facts.norm_bound, facts.delta, "dmm")

    arms, values = [], []
    for name, posterior in posteriors.items():
        monkeypatch.setitem(METHODS, name, NamedMethod(name, posterior, mixture))
        problem = RKHSBandit("matern52", 0.3, dim=2, norm=3.0, noise_std=0.1, seed=0)
        method = bandit.make(name, FeatureKernel(), noise_std=0.1, norm_bound=6.0, delta=0.1)
        arms.append([row["arm"] for row in bandit.play(method, problem, rounds=15)])
        kernel = ScaleKernel(FeatureKernel())
        kernel.outputscale = torch.tensor(1.0)
        setting = kbo.Certified(kernel, noise_std=0.05, norm_bound=20.0)
        result = kbo.minimize(
            lambda x: x[0] ** 2 - x[1], [(0.0, 1.0)] * 2, 5, setting=setting, method=name
        )
        values.append([trial.value for trial in result.trials])
    assert arms[0] == arms[1]
    assert values[0] == pytest.approx(values[1], abs=1e-4)
