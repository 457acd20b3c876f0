"""A posterior from outside kbo works everywhere: as the exact one does, whose equal it is."""

from __future__ import annotations

import pytest
import torch
from botorch.optim import optimize_acqf
from gpytorch.kernels import ScaleKernel

import kbo
from experiments.problems import RKHSBandit
from kbo import bandit
from kbo.acquisition import (
    CMMUCB,
    ChainingUCB,
    InflatedPosteriorSampling,
    InflatedThompsonSampling,
    KernelUCB,
)
from kbo.bandit import METHODS, Facts, NamedMethod, methods
from kbo.confidence import AdaptiveMixture, FixedWidth, MartingaleMixture, MixtureNoiseBounds
from kbo.models import KernelRidgeGP, PosteriorGP
from kbo.regression import AdaptiveRidge, KernelRidge
from tests.dense import close
from tests.laws.confidences import BOUNDS, Setting
from tests.laws.states import FeatureKernel, features, unit_square
from tests.third_party_posterior import LinearRegression

RIDGE = 0.05


def data(n: int = 25) -> tuple[torch.Tensor, torch.Tensor]:
    X = unit_square(n, 1)
    return X, torch.sin(4 * X).sum(-1)


def pair(ridge: float = RIDGE, n: int = 25):
    states = LinearRegression(features, ridge), KernelRidge(FeatureKernel(), ridge)
    for state in states:
        state.update(*data(n))
    return states


def equal(found, expected, tol: float = 1e-7) -> None:
    for one, other in zip(found, expected, strict=True):
        close(one, other, tol)


@pytest.mark.parametrize(
    "bound", [b for b in BOUNDS if not b.other_numbers], ids=lambda bound: bound.name
)
def test_every_confidence(bound):
    setting, Z = Setting(), unit_square(6, 2)
    ours, exact = pair(setting.ridge)
    equal(bound.make(setting).interval(ours, Z), bound.make(setting).interval(exact, Z), 1e-5)
    assert bound.make(setting).guarantee_on(ours) == bound.make(setting).guarantee_on(exact)


def test_a_ridge_that_follows_the_data():
    X, Z = unit_square(100, 1), unit_square(6, 2)
    y = (
        torch.sin(4 * X).sum(-1)
        + 0.1 * torch.randn(100, generator=torch.Generator().manual_seed(0)).double()
    )
    adaptive = [
        AdaptiveRidge(state, MixtureNoiseBounds(9.0, 0.1, upper=2.0)) for state in pair(n=0)
    ]
    for state in adaptive:
        state.update(X, y)
    assert adaptive[0].ridge == adaptive[1].ridge
    equal(*(AdaptiveMixture("dmm").interval(state, Z) for state in adaptive), 1e-5)


def models():
    X, y = data()
    ours = PosteriorGP(X, y.unsqueeze(-1), LinearRegression(features, RIDGE))
    return ours, KernelRidgeGP(X, y.unsqueeze(-1), FeatureKernel(), RIDGE)


def test_a_botorch_model():
    Z, X, Y = unit_square(6, 2), unit_square(3, 5), unit_square(3, 6)[:, :1]
    batch = [
        model.condition_on_observations(X.expand(2, 3, 2), Y.expand(2, 3, 1)) for model in models()
    ]
    for ours, exact in (
        models(),
        [model.condition_on_observations(X, Y) for model in models()],
        batch,
    ):
        found, expected = (model.posterior(Z, observation_noise=True) for model in (ours, exact))
        equal([found.mean, found.covariance_matrix], [expected.mean, expected.covariance_matrix])


ACQUISITIONS = {
    "cmm": lambda model: CMMUCB(model, 0.3, 8.0, 0.1),
    "chaining": lambda model: ChainingUCB(model, unit_square(30, 7), 0.1),
    "pending": lambda model: KernelUCB(model, FixedWidth(2.0), X_pending=unit_square(2, 8)),
    "thompson": lambda model: InflatedThompsonSampling(model, FixedWidth(1.0), seed=3),
}


@pytest.mark.parametrize("name", ACQUISITIONS)
def test_acquisition_functions(name):
    ours, exact = models()
    box = torch.tensor([[0.0, 0.0], [1.0, 1.0]]).double()
    x, value = optimize_acqf(ACQUISITIONS[name](ours), box, q=1, num_restarts=2, raw_samples=16)
    assert bool(torch.isfinite(value))
    if name != "thompson":  # features of its own: draws differ
        equal([value], [ACQUISITIONS[name](exact)(x.unsqueeze(0))[0]], 1e-5)
    assert InflatedPosteriorSampling(ours, FixedWidth(1.0))(
        unit_square(50, 9), num_samples=3
    ).shape == (3, 2)


def linear(facts: Facts) -> LinearRegression:
    return LinearRegression(features, facts.noise_std**2)


def mixture(facts: Facts) -> MartingaleMixture:
    return MartingaleMixture(facts.noise_std, facts.norm_bound, facts.delta, "dmm")


@pytest.fixture
def named(monkeypatch):
    for name, posterior in (("ours", linear), ("exact", methods.exact)):
        monkeypatch.setitem(METHODS, name, NamedMethod(name, posterior, mixture))


def test_a_named_method_in_the_bandit_loop_and_in_minimize(named):
    def arms(name):
        problem = RKHSBandit("matern52", 0.3, dim=2, norm=3.0, noise_std=0.1, seed=0)
        method = bandit.make(name, FeatureKernel(), noise_std=0.1, norm_bound=6.0, delta=0.1)
        return [row["arm"] for row in bandit.play(method, problem, rounds=30)]

    assert arms("ours") == arms("exact")

    def values(name):
        kernel = ScaleKernel(FeatureKernel())
        kernel.outputscale = torch.tensor(1.0)
        setting = kbo.Certified(kernel, noise_std=0.05, norm_bound=20.0)
        space = {"a": (0.0, 1.0), "b": (0.0, 1.0)}
        result = kbo.minimize(
            lambda p: float(p["a"] ** 2 - p["b"]), space, n_trials=8, setting=setting, method=name
        )
        return [trial.value for trial in result.trials]

    assert values("ours") == pytest.approx(values("exact"), abs=1e-4)
