"""kbo's models as guests of BoTorch: transforms, construction from data sets, and what is refused with a reason."""

from __future__ import annotations

import pytest
import torch
from botorch.acquisition import qNoisyExpectedImprovement
from botorch.acquisition.risk_measures import VaR
from botorch.models.transforms import Normalize, Standardize
from botorch.models.transforms.input import InputPerturbation
from botorch.sampling import SobolQMCNormalSampler
from botorch.utils.datasets import SupervisedDataset

from kbo.acquisition import InflatedPosteriorSampling, InflatedThompsonSampling, KernelUCB
from kbo.confidence import FixedWidth
from kbo.errors import InvalidInput
from kbo.models import KernelRidgeGP, NystromGP
from tests.dense import close
from tests.test_models import RIDGE, data, kernel, model_and_reference, points, same


def test_a_transform_learns_anew_for_every_model(device):
    X, Y = data(20, device)
    used = Standardize(1)
    KernelRidgeGP(X, Y, kernel(), RIDGE, outcome_transform=used)
    used(Y)
    for transform in (used, used.eval(), Standardize(1).eval()):
        model = KernelRidgeGP(X, 50 + Y, kernel(), RIDGE, outcome_transform=transform)
        close(
            model.posterior(X).mean, 50 + KernelRidgeGP(X, Y, kernel(), RIDGE, None, Standardize(1)).posterior(X).mean
        )


def test_a_default_dictionary_follows_the_hyper_parameters_that_are_loaded(device):
    X, Y = data(60, device)
    model, trained = NystromGP(X, Y, kernel(), 0.5), NystromGP(X, Y, kernel(), 1e-4)
    model.load_state_dict(trained.state_dict())
    close(model.posterior(X).mean, trained.posterior(X).mean, 1e-12)
    assert model.dictionary.threshold == trained.dictionary.threshold


# Transforms that make several points of one


def perturbation(device) -> InputPerturbation:
    return InputPerturbation(0.1 * points(3, 2, seed=4).to(device))


def test_perturbed_inputs_give_the_values_of_botorch(device):
    model, reference = model_and_reference(lambda: {"input_transform": perturbation(device)}, device)
    X, (new, Y) = points(5, 2, 2, device=device, seed=3), data(4, device)
    same(model.posterior(X), reference.posterior(X))
    sampler, risk = SobolQMCNormalSampler(torch.Size([16]), seed=0), VaR(alpha=0.5, n_w=3)
    values = [
        qNoisyExpectedImprovement(one, new, sampler, risk, prune_baseline=False, cache_root=False)(X)
        for one in (model, reference)
    ]
    close(values[0], values[1].detach(), 1e-6)
    plain = model_and_reference(dict, device)[0].condition_on_observations(new + 0.1, Y)
    perturbed = model.condition_on_observations(new + 0.1, Y)  # observations are where they were made
    close(perturbed.posterior(X).mean[:, ::3], plain.posterior(X + perturbation(device).perturbation_set[0]).mean)


@pytest.mark.parametrize("rule", [KernelUCB, InflatedThompsonSampling, InflatedPosteriorSampling])
def test_bounds_and_draws_refuse_perturbed_inputs(device, rule):
    model = KernelRidgeGP(*data(9, device), kernel(), RIDGE, input_transform=perturbation(device))
    with pytest.raises(InvalidInput, match=r"InputPerturbation.*one point.*model\.posterior"):
        rule(model, FixedWidth(2.0))


# Construction


def test_a_misspelt_option_of_a_data_set_is_named(device):
    X, Y = data(9, device)
    dataset = SupervisedDataset(X, Y, feature_names=["a", "b"], outcome_names=["y"])
    with pytest.raises(TypeError, match="rigde"):
        KernelRidgeGP(**KernelRidgeGP.construct_inputs(dataset, kernel=kernel(), rigde=RIDGE, ridge=RIDGE))
    options = {"kernel": kernel(), "ridge": RIDGE, "input_transform": Normalize(2)}
    model = KernelRidgeGP(**KernelRidgeGP.construct_inputs(dataset, **options))
    assert model.input_transform.bounds.shape == (2, 2)
