"""Models and acquisition functions on two devices: moves, copies, files, mistakes, and how often they wait."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from botorch.acquisition import UpperConfidenceBound
from botorch.models import ModelListGP
from botorch.models.transforms import Normalize, Standardize
from botorch.optim import optimize_acqf
from torch import Tensor

from kbo import recipes
from kbo.acquisition import (
    ChainingUCB,
    ConstrainedKernelUCB,
    InflatedPosteriorSampling,
    InflatedThompsonSampling,
    KernelUCB,
    SafeExpander,
)
from kbo.confidence import FixedWidth, NoiseBounds
from kbo.errors import InvalidInput
from kbo.experiments.bench.operations import Operations
from kbo.models import AdaptiveRidgeGP, KernelRidgeGP, NystromGP, PosteriorGP, PosteriorModel
from kbo.recipes.method import UniformChoice
from kbo.regression import FixedDictionary, KernelRidge, LeverageResampling, NystromRidge
from tests.dense import close
from tests.test_models import RIDGE, data, kernel, points

CPU = torch.device("cpu")
BOTH = lambda: {"input_transform": Normalize(2), "outcome_transform": Standardize(1)}  # noqa: E731
Z, WIDTH = points(6, 1, 2, seed=5), FixedWidth(2.0)

MODELS: dict[str, Callable[[Tensor, Tensor], PosteriorModel]] = {
    "exact": lambda X, Y: KernelRidgeGP(X, Y, kernel(), RIDGE, **BOTH()),
    "known": lambda X, Y: KernelRidgeGP(X, Y, kernel(), RIDGE, **BOTH(), train_Yvar=torch.full_like(Y, 0.1)),
    "sketch": lambda X, Y: NystromGP(X, Y, kernel(), RIDGE, FixedDictionary(points(8, 2, seed=7).to(X)), **BOTH()),
    "resampled": lambda X, Y: NystromGP(X, Y, kernel(), RIDGE, LeverageResampling(0.5, seed=1), **BOTH()),
    "adaptive": lambda X, Y: AdaptiveRidgeGP(X, Y, kernel(), NoiseBounds(9.0, delta=0.1, upper=1.0), **BOTH()),
    "posterior": lambda X, Y: PosteriorGP(X, Y, KernelRidge(kernel(), RIDGE), **BOTH()),
    "its sketch": lambda X, Y: PosteriorGP(X, Y, NystromRidge(kernel(), RIDGE, FixedDictionary(points(8, 2).to(X)))),
}


def made(name: str, device, dtype=torch.float64) -> PosteriorModel:
    return MODELS[name](*(part.to(device, dtype) for part in data(25, CPU)))


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
def test_a_model_answers_alike_wherever_it_is_moved(device, name):
    model = made(name, CPU)
    expected = answers(model)
    moved = copy.deepcopy(model).to(device)
    assert moved.state.device == moved.train_targets.device == device
    close(answers(moved), expected)
    close(answers(moved.to(CPU)), expected)
    close(answers(made(name, device)), expected)


@pytest.mark.parametrize("name", MODELS)
def test_copies_and_files_of_a_model_serve_both_devices(device, name):
    model = made(name, device)
    expected = answers(model)
    for clone in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), reloaded(model, None), reloaded(model, CPU)):
        close(answers(clone), expected)
    assert clone.state.device == CPU
    close(answers(reloaded(made(name, CPU), device)), expected)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("map_location", [None, CPU])
def test_state_dicts_pass_from_one_device_to_the_other(device, name, map_location):
    for source, target in ((CPU, device), (device, CPU)):
        model, other = made(name, source), made(name, target)
        with torch.no_grad():
            for parameter in other.parameters():
                parameter.mul_(1.5)
        other.load_state_dict(reloaded(model.state_dict(), map_location))
        close(answers(other), answers(model))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("ignore")  # of float32
def test_every_model_is_searched(device, name, dtype):
    box = torch.tensor([[-1.0, -1.0], [1.0, 4.0]], device=device, dtype=dtype)
    options = {"num_restarts": 2, "raw_samples": 16, "options": {"maxiter": 10, "seed": 0}}
    for make in (lambda model: KernelUCB(model, WIDTH), lambda model: UpperConfidenceBound(model, 4.0)):
        acqf = make(made(name, device, dtype))
        x, value = optimize_acqf(acqf, box, q=1, **options)
        assert (x.device, x.dtype) == (device, dtype)
        assert value >= acqf(points(10, 1, 2, seed=6).to(x)).max() - 1e-3


@pytest.mark.parametrize("name", [name for name in recipes.names() if not recipes.RECIPES[name].rule.finite_sets_only])
def test_every_recipe_has_the_same_values_and_gradients(device, name):
    found = []
    for at in (CPU, device):
        numbers = {"horizon": 30, "n_points": 9, "noise_upper": 1.0, "points": points(9, 2, seed=3, device=at)}
        method = recipes.make(name, kernel(), 0.2, 9.0, 0.1, **numbers)
        if isinstance(method.rule, UniformChoice):
            pytest.skip("it has no acquisition function")
        X = Z.clone().to(at).requires_grad_()
        values = method.acquisition(method.model(*data(25, at)), torch.Generator().manual_seed(0))(X)
        found.append(torch.stack([values, *torch.autograd.grad(values.sum(), X)[0].flatten(1).T]).detach().cpu())
    close(*found, 1e-6)


def pair(device) -> ModelListGP:
    return ModelListGP(made("exact", device), made("known", device))


ACQUISITIONS: dict[str, Callable[[Any], Any]] = {
    "ucb": lambda device: KernelUCB(made("exact", device), WIDTH),
    "pending": lambda device: KernelUCB(made("exact", device), WIDTH, X_pending=Z[0].to(device)),
    "sketch": lambda device: KernelUCB(made("sketch", device), WIDTH),
    "chaining": lambda device: ChainingUCB(made("exact", device), points(30, 2, device=device), 0.1),
    "thompson": lambda device: InflatedThompsonSampling(made("exact", device), WIDTH),
    "constrained": lambda device: ConstrainedKernelUCB(pair(device), [WIDTH] * 2, 0, {1: (None, 3.0)}),
    "expander": lambda device: SafeExpander(pair(device), [WIDTH] * 2, 0, {1: (None, 3.0)}),
}


@pytest.mark.parametrize("name", ACQUISITIONS)
def test_an_evaluation_waits_once_for_the_device(device, name):
    acqf, X = ACQUISITIONS[name](device), Z.to(device).requires_grad_()
    acqf(X).sum().backward()
    with Operations(device) as counted:
        acqf(X).sum().backward()
    assert counted.syncs.total() <= 1, counted.syncs


def test_botorch_evaluates_a_model_without_building_it_again(device):
    model, X = KernelRidgeGP(*data(25, device), kernel(), RIDGE), Z.to(device)
    acqf, state = UpperConfidenceBound(model, 4.0), model.state
    acqf(X)
    assert model.state is state
    with Operations(device) as counted:
        acqf(X)
    assert counted.syncs.total() <= 2, counted.syncs  # one is GPyTorch's, for its least variance


def test_new_data_wait_for_the_device_as_few_times_as_an_update(device):
    if device == CPU:
        pytest.skip("checks on the CPU wait for nothing")
    model, (X, Y) = made("exact", device), (Z[:3, 0].to(device), torch.ones(3, 1).to(Z).to(device))
    for start in (0, 1, 2):
        with Operations(device) as counted:
            model = model.condition_on_observations(X[start : start + 1], Y[start : start + 1])
    assert counted.syncs.total() <= 3, counted.syncs


MISTAKES: dict[str, Callable[[Any], Any]] = {
    "X": lambda device: made("exact", device).posterior(Z),
    "points": lambda device: KernelUCB(made("exact", device), WIDTH)(Z),
    "choices": lambda device: InflatedPosteriorSampling(made("exact", device), WIDTH)(Z[:, 0]),
    "pending": lambda device: KernelUCB(made("exact", device), WIDTH, X_pending=Z[0])(Z.to(device)),
    "new X": lambda device: made("exact", device).condition_on_observations(Z[0], torch.ones(1, 1).to(Z).to(device)),
    "new Y": lambda device: made("exact", device).condition_on_observations(Z[0].to(device), torch.ones(1, 1).to(Z)),
    "train_Y": lambda device: KernelRidgeGP(data(5, device)[0], data(5, CPU)[1], kernel(), RIDGE),
    "train_Yvar": lambda device: KernelRidgeGP(*data(5, device), kernel(), RIDGE, train_Yvar=data(5, CPU)[1].square()),
    "set": lambda device: ChainingUCB(made("exact", device), Z[:, 0], 0.1),
}


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_tensors_of_another_device_are_refused_with_the_remedy(device, mistake):
    if device == CPU:
        pytest.skip("there is no other device")
    with pytest.raises(InvalidInput, match=rf"is on cpu but the data are on {device}: use .*\.to\('{device}'\)"):
        mistake(device)
