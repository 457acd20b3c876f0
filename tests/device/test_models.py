"""Models and acquisition functions on two devices: moves, copies, files, and mistakes."""

from __future__ import annotations

import copy
import functools
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from botorch.models import ModelListGP
from botorch.optim import optimize_acqf
from torch import Tensor

from kbo.acquisition import (
    ChainingUCB,
    ConstrainedKernelUCB,
    InflatedThompsonSampling,
    KernelUCB,
    SafeExpander,
)
from kbo.bandit import methods
from kbo.confidence import FixedWidth
from kbo.errors import InvalidInput
from kbo.models import KernelRidgeGP, NystromGP, PosteriorGP, PosteriorModel
from kbo.regression import FixedDictionary, LeverageResampling, NystromRidge
from tests import test_models
from tests.dense import close
from tests.test_models import BOTH, BOUNDS, RIDGE, data, kernel, points

CPU = torch.device("cpu")
Z = points(6, 1, 2, device=CPU, seed=5)
WIDTH = FixedWidth(2.0)
MODELS: dict[str, Callable[..., PosteriorModel]] = {
    **test_models.MODELS,
    "known": lambda X, Y, **more: KernelRidgeGP(
        X, Y, kernel(), RIDGE, **more, train_Yvar=torch.full_like(Y, 0.1)
    ),
    "resampled": lambda X, Y, **more: NystromGP(
        X, Y, kernel(), RIDGE, LeverageResampling(0.5, seed=1), **more
    ),
    "sketch": lambda X, Y, **more: PosteriorGP(
        X, Y, NystromRidge(kernel(), RIDGE, FixedDictionary(points(8, 2).to(X))), **more
    ),
}


def made(name: str, device) -> PosteriorModel:
    return MODELS[name](*data(25, device), **BOTH())


def answers(model: PosteriorModel) -> Tensor:
    """Mean and variance at Z, before and after one more observation, on the CPU."""
    like = model.train_targets
    later = model.condition_on_observations(Z[0].to(like), torch.ones(1, 1).to(like))
    found = [one.posterior(Z.to(like)) for one in (model, later)]
    return torch.stack([part.cpu() for one in found for part in (one.mean, one.variance)])


def reloaded(value: Any, device) -> Any:
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, map_location=device, weights_only=False)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_answers_alike_wherever_it_is_moved_copied_or_loaded(device, name):
    model, here = (made(name, place) for place in (device, CPU))
    moved = copy.deepcopy(here).to(device)
    assert moved.state.like.device == moved.train_targets.device == device
    assert reloaded(model, CPU).state.like.device == CPU
    twins = [moved, copy.deepcopy(moved).to(CPU), model, copy.deepcopy(model)]
    twins += [pickle.loads(pickle.dumps(model)), reloaded(model, None)]
    twins += [reloaded(model, CPU), reloaded(here, device)]
    expected = answers(here)
    for twin in twins:
        close(answers(twin), expected)
    for source, target in ((here, model), (model, here)):
        target.covar_module.outputscale = 9.0
        target.load_state_dict(reloaded(source.state_dict(), CPU))
        close(answers(target), expected)


def test_a_model_is_searched(device):
    acqf = KernelUCB(made("KernelRidgeGP", device), WIDTH)
    options = {"num_restarts": 2, "raw_samples": 16, "options": {"maxiter": 10, "seed": 0}}
    x, value = optimize_acqf(acqf, BOUNDS.to(device), q=1, **options)
    assert x.device == device
    assert value >= acqf(points(10, 1, 2, seed=6).to(x)).max() - 1e-3


def named(name: str, device) -> Any:
    candidates = points(9, 2, seed=3, device=device)
    numbers = {"horizon": 30, "n_points": 9, "noise_upper": 1.0, "points": candidates}
    method = methods.make(name, kernel(), 0.2, 9.0, 0.1, **numbers)
    rule = KernelUCB
    if method.rule.draws:
        rule = functools.partial(InflatedThompsonSampling, seed=0)
    return rule(PosteriorGP(*data(25, device), method.posterior()), method.bound)


def limited(kind: type, device) -> Any:
    models = ModelListGP(made("KernelRidgeGP", device), made("known", device))
    return kind(models, [WIDTH] * 2, 0, {1: (None, 3.0)})


RULES: dict[str, Callable[[Any], Any]] = {
    "pending": lambda device: KernelUCB(
        made("KernelRidgeGP", device), WIDTH, X_pending=Z[0].to(device)
    ),
    "constrained": lambda device: limited(ConstrainedKernelUCB, device),
    "expander": lambda device: limited(SafeExpander, device),
    **{
        name: lambda device, name=name: named(name, device)
        for name, one in methods.METHODS.items()
        if one.has_bounds
    },
}


@pytest.mark.parametrize("name", RULES)
def test_every_acquisition_function_has_the_same_values_and_gradients(device, name):
    found = []
    for place in (CPU, device):
        X = Z.clone().to(place).requires_grad_()
        values = RULES[name](place)(X)
        slope = torch.autograd.grad(values.sum(), X)[0].flatten(1).T
        found.append(torch.stack([values, *slope]).detach().cpu())
    close(*found, 1e-6)


ONE = torch.ones(1, 1).double()
MISTAKES: dict[str, Callable[[Any, Any], Any]] = {
    "X": lambda model, device: model.posterior(Z),
    "points": lambda model, device: KernelUCB(model, WIDTH)(Z),
    "new Y": lambda model, device: model.condition_on_observations(Z[0].to(device), ONE),
    "train_Yvar": lambda model, device: KernelRidgeGP(
        *data(5, device), kernel(), RIDGE, train_Yvar=data(5, CPU)[1] ** 2
    ),
    "set": lambda model, device: ChainingUCB(model, Z[:, 0], 0.1),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_tensors_of_another_device_are_refused_with_the_remedy(device, mistake):
    remedy = rf"is on cpu but the data are on {device}: use .*\.to\('{device}'\)"
    with pytest.raises(InvalidInput, match=remedy):
        MISTAKES[mistake](made("KernelRidgeGP", device), device)
