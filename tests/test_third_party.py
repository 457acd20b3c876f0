"""A posterior from outside kbo works everywhere: as the exact one does, whose equal it is."""

from __future__ import annotations

import pytest
import torch
from gpytorch.kernels import ScaleKernel

import kbo
from experiments.problems import RKHSBandit
from kbo import acquisition, bandit
from kbo.bandit import METHODS, NamedMethod, methods
from kbo.confidence import AdaptiveMixture, FixedWidth, MartingaleMixture, MixtureNoiseBounds
from kbo.models import KernelRidgeGP, PosteriorGP
from kbo.regression import AdaptiveRidge, KernelRidge
from tests.dense import close
from tests.laws.states import FeatureKernel, features, unit_square
from tests.third_party_posterior import LinearRegression

X = unit_square(25, 1)
Y = torch.sin(4 * X).sum(-1, keepdim=True)
Z = unit_square(6, 2)
RIDGE = 0.05


def test_a_ridge_that_follows_the_data():
    bounds = []
    for state in (LinearRegression(features, RIDGE), KernelRidge(FeatureKernel(), RIDGE)):
        adaptive = AdaptiveRidge(state, MixtureNoiseBounds(9.0, 0.1, upper=2.0))
        adaptive.update(X, Y.squeeze(-1) + 0.1 * torch.cos(99 * X[:, 0]))
        bounds.append(torch.stack(AdaptiveMixture("dmm").interval(adaptive, Z)))
    close(*bounds, 1e-5)


ACQUISITIONS = {
    "cmm": lambda model: acquisition.CMMUCB(model, 0.3, 8.0, 0.1),
    "chaining": lambda model: acquisition.ChainingUCB(model, unit_square(30, 7), 0.1),
    "pending": lambda model: acquisition.KernelUCB(
        model, FixedWidth(2.0), X_pending=unit_square(2, 8)
    ),
}


@pytest.mark.parametrize("name", ACQUISITIONS)
def test_acquisition_functions(name):
    ours, exact = (
        ACQUISITIONS[name](model)(Z.unsqueeze(-2))
        for model in (
            PosteriorGP(X, Y, LinearRegression(features, RIDGE)),
            KernelRidgeGP(X, Y, FeatureKernel(), RIDGE),
        )
    )
    close(ours, exact, 1e-5)


def test_functions_are_drawn():
    model = PosteriorGP(X, Y, LinearRegression(features, RIDGE))
    draw = acquisition.InflatedPosteriorSampling(model, FixedWidth(1.0))
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
        arms.append([row["arm"] for row in bandit.play(method, problem, rounds=10)])
        kernel = ScaleKernel(FeatureKernel())
        kernel.outputscale = torch.tensor(1.0)
        setting = kbo.Certified(kernel, noise_std=0.05, norm_bound=20.0)
        result = kbo.minimize(
            lambda x: x[0] ** 2 - x[1], [(0.0, 1.0)] * 2, 5, setting=setting, method=name
        )
        values.append([trial.value for trial in result.trials])
    assert arms[0] == arms[1]
    assert values[0] == pytest.approx(values[1], abs=1e-4)
