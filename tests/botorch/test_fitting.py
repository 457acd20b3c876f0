"""Kernel and ridge that are fitted or set through BoTorch: the same numbers as there, and no guarantee."""

from __future__ import annotations

import copy
import math
import pickle

import pytest
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.transforms import Normalize, Standardize
from botorch.optim.utils import sample_all_priors
from gpytorch.constraints import GreaterThan, Interval, LessThan
from gpytorch.mlls import ExactMarginalLogLikelihood, SumMarginalLogLikelihood
from gpytorch.priors import LogNormalPrior
from torch import Tensor

from kbo.acquisition import KernelUCB
from kbo.confidence import SelfNormalized
from kbo.errors import InvalidInput
from kbo.models import KernelRidgeGP, NystromGP
from kbo.regression import GreedyDictionary
from tests.dense import close
from tests.test_models import BOTH, MODELS, RIDGE, data, kernel, model_and_reference, points, same

pytestmark = pytest.mark.usefixtures("device")
X, Y = data(25)
Z = points(3, 4, 2, seed=5)
BOUND = SelfNormalized(0.2, 20.0, 0.1)


def plain() -> KernelRidgeGP:
    return KernelRidgeGP(X, Y, kernel(), RIDGE)


def fitted(model):
    mll = fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    mll.train()
    value = mll(model(*model.train_inputs), model.train_targets).item()
    mll.eval()
    return value


def caveats(model) -> str:
    return " ".join(model.state.provenance.caveats)


@pytest.mark.parametrize("known", [False, True])
def test_a_fit_finds_what_botorch_finds(known):
    model, reference = model_and_reference(BOTH, known)
    before = model.posterior(Z).mean
    assert fitted(model) == pytest.approx(fitted(reference), abs=1e-4)
    assert not torch.equal(model.posterior(Z).mean, before)
    close(model.posterior(Z).mean.detach(), reference.posterior(Z).mean.detach(), 1e-2)
    assert "changed after the model had data" in " ".join(KernelUCB(model, BOUND).objections)
    if known:
        assert model.state.ridge == RIDGE
        with pytest.raises(InvalidInput, match="another train_Yvar"):
            model.likelihood.noise = 1.0
    else:
        assert float(model.ridge) == pytest.approx(float(reference.likelihood.noise), rel=0.02)
        again = KernelRidgeGP(X, Y, model.covar_module, float(model.ridge), **BOTH())
        same(model.posterior(Z), again.posterior(Z), 1e-10)


@pytest.mark.parametrize("known", [False, True])
def test_a_fit_of_a_sketched_model_maximises_the_collapsed_bound(known):
    X, Y = data(60)
    options = {**BOTH(), "train_Yvar": 0.02 + 0.01 * Y.square() if known else None}
    model = NystromGP(X, Y, kernel(), RIDGE, GreedyDictionary(0.1), **options)
    P = model.train_inputs[0]
    y = model.train_targets
    anchors = model.state.anchors
    before = model.posterior(Z).mean
    mll = ExactMarginalLogLikelihood(model.likelihood, model).train()
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]

    def dense() -> Tensor:
        k = model.covar_module
        noise = model.likelihood.noise.expand(len(y))
        K_ZX = k(anchors, P).to_dense()
        K_ZZ = k(anchors).to_dense() + 1e-9 * torch.eye(len(anchors)).to(P)
        Q = K_ZX.mT @ torch.linalg.solve(K_ZZ, K_ZX)
        likelihood = torch.distributions.MultivariateNormal(0 * y, Q + noise.diag()).log_prob(y)
        return (likelihood - ((k(P).to_dense() - Q).diagonal() / noise).sum() / 2) / len(y)

    def gradient(value: Tensor) -> Tensor:
        parts = torch.autograd.grad(value, parameters, allow_unused=True, materialize_grads=True)
        return torch.cat([part.reshape(-1) for part in parts])

    value = mll(model(P), y)
    close(value, dense(), 1e-6)
    close(gradient(value), gradient(dense()), 1e-4)
    fit_gpytorch_mll(mll)
    assert dense().item() > value.item() + 0.01
    assert float(gradient(dense()).abs().max()) < 1e-2  # flat, with the anchors of its beginning
    given = model.covar_module, float(model.ridge), GreedyDictionary(0.1)
    same(model.posterior(Z), NystromGP(X, Y, *given, **options).posterior(Z), 1e-8)
    assert not torch.equal(model.posterior(Z).mean, before)
    assert "changed after the model had data" in caveats(model)


def test_known_variances_cannot_be_changed_nor_lost():
    model = KernelRidgeGP(X, Y, kernel(), RIDGE, train_Yvar=0.1 + Y.square())
    before = model.posterior(X).variance
    variances = model.train_Yvar
    for change in (
        lambda: setattr(model, "train_Yvar", variances + 9),
        lambda: model.likelihood.noise_covar.initialize(noise=9.0),
        lambda: model.set_train_data(X[:5], Y[:5, 0], strict=False),
    ):
        with pytest.raises(InvalidInput, match="another train_Yvar"):
            change()
    assert model.train_Yvar is variances
    model.set_train_data(X, 2 * Y.squeeze(-1))
    assert torch.equal(model.posterior(X).variance, before)


@pytest.mark.parametrize("known", [False, True])
def test_a_fitted_gp_is_taken_over_with_its_posterior_and_a_caveat(known):
    for transforms in ({"outcome_transform": None}, {"input_transform": Normalize(2)}):
        gp = SingleTaskGP(X, Y, 0.01 + 0.01 * Y.square() if known else None, **transforms)
        fitted(gp)
        model = KernelRidgeGP.from_gp(gp)
        same(model.posterior(Z), gp.posterior(Z), 1e-5)
        assert "fitted to data" in caveats(model.condition_on_observations(X, Y))
    noise = {"noise": Y.square()} if known else {}
    with pytest.raises(InvalidInput, match="other data"):
        KernelRidgeGP.from_gp(gp.condition_on_observations(9 * X, Y, **noise))
    for other in (SingleTaskGP(X, Y.expand(-1, 2)), model, "gp"):
        with pytest.raises(InvalidInput, match="SingleTaskGP with one output"):
            KernelRidgeGP.from_gp(other)


@pytest.mark.parametrize("build", [KernelRidgeGP, NystromGP])
def test_a_noise_is_the_ridge_and_set_as_in_botorch_also_through_its_module_and_its_prior(build):
    model = build(X, Y, kernel(), RIDGE)
    noise = model.likelihood.noise_covar
    assert model.likelihood.noise.tolist() == [RIDGE]
    model.likelihood.noise = 1.0
    same(model.posterior(Z), build(X, Y, kernel(), 1.0).posterior(Z), 1e-12)
    assert caveats(model)
    noise.noise = torch.tensor([0.3])
    assert model.state.ridge == pytest.approx(0.3)
    noise.initialize(noise=0.4)
    assert model.state.ridge == pytest.approx(0.4)
    noise.register_prior("noise_prior", LogNormalPrior(-4.0, 1e-3), "noise")
    sample_all_priors(model)  # as a fit does that is tried again
    assert model.state.ridge == pytest.approx(math.exp(-4.0), rel=0.1)
    with pytest.raises(InvalidInput, match="noise"):
        model.likelihood.noise = -1.0
    with pytest.raises(InvalidInput, match="AdaptiveRidgeGP follows"):  # from its data
        MODELS["AdaptiveRidgeGP"](X, Y).likelihood.noise = 1.0
    with pytest.raises(InvalidInput, match=f"{build.__name__} has no data"):
        fitted(build(X[:0], Y[:0], kernel(), RIDGE))


def test_a_constraint_and_a_prior_of_the_noise_have_an_effect():
    model = plain()
    noise = model.likelihood.noise_covar
    free = noise.raw_noise_constraint
    for first, limits in (
        (0.55, Interval(0.5, 0.6, transform=None, initial_value=0.55)),
        (0.7, GreaterThan(0.65, initial_value=0.7)),
        (5e-4, LessThan(1e-3, initial_value=5e-4)),
    ):
        noise.register_constraint("raw_noise", limits)
        assert model.state.ridge == pytest.approx(first)
        fitted(model)
        assert max(limits.lower_bound, 1e-8) - 1e-6 <= model.state.ridge
        assert model.state.ridge <= limits.upper_bound + 1e-6
    with pytest.raises(RuntimeError, match="Interval"):
        model.likelihood.noise = 0.3
    noise.register_constraint("raw_noise", free)
    model.likelihood.register_prior("noise_prior", LogNormalPrior(-4.0, 0.01), "noise")
    joint = ModelListGP(model)
    fit_gpytorch_mll(SumMarginalLogLikelihood(joint.likelihood, joint))
    assert model.state.ridge == pytest.approx(math.exp(-4.0), rel=0.1)
    new = model.condition_on_observations(X[:3], Y[:3])
    assert [prior for *_, prior, _, _ in new.named_priors()]
    new.likelihood.noise = 0.5
    assert new.state.ridge == 0.5 != model.state.ridge


def test_a_copy_of_a_likelihood_and_its_model_belong_together():
    model = plain()
    mll = ExactMarginalLogLikelihood(model.likelihood, model)
    twin = copy.deepcopy(mll)
    for copied in (twin, pickle.loads(pickle.dumps(mll)), copy.deepcopy(mll).float().double()):
        copied.likelihood.noise = 0.5
        assert copied.model.state.ridge == 0.5
    assert model.state.ridge == RIDGE


def test_a_fit_is_remembered_by_state_dicts():
    model = plain()
    start = copy.deepcopy(model.state_dict())
    fitted(model)
    for state, fit in ((start, False), (model.state_dict(), True)):
        one = KernelRidgeGP(X[:0], Y[:0], kernel(), 0.1)
        again = copy.deepcopy(one)
        ModelListGP(one).load_state_dict({f"models.0.{name}": state[name] for name in state})
        again.load_state_dict(one.state_dict())
        for loaded in (one, again):
            ucb = KernelUCB(loaded.condition_on_observations(X, Y), BOUND)
            assert (ucb.guarantee is None) == fit
            assert ("state dict" in " ".join(ucb.objections)) == fit
    same(ucb.model.posterior(X), model.posterior(X), 1e-8)
    model.load_state_dict(start)
    assert KernelUCB(model, BOUND).guarantee is not None


def test_limits_and_priors_of_the_noise_move_with_the_model():
    model = plain()
    limits = Interval(1e-3, 2.0, transform=None).double()
    model.likelihood.noise_covar.register_constraint("raw_noise", limits)
    model.likelihood.register_prior("noise_prior", LogNormalPrior(-4.0, 0.01).double(), "noise")
    model.float()
    assert {buffer.dtype for buffer in model.likelihood.buffers()} == {torch.float32}


def test_a_sketched_model_keeps_its_anchors_while_it_is_in_training_mode():
    X, Y = data(60)
    model = NystromGP(X, Y, kernel(), RIDGE, GreedyDictionary(0.1)).train()
    model.covar_module.base_kernel.lengthscale = 3.0
    before = model(X).covariance_matrix
    assert torch.equal(model.train()(X).covariance_matrix, before)
    model.eval()
    assert not torch.equal(model.train()(X).covariance_matrix, before)


def test_known_variances_follow_a_scale_that_is_loaded():
    one, other = (
        KernelRidgeGP(X, scale * Y, kernel(), RIDGE, None, Standardize(1), 0.1 + Y.square())
        for scale in (1, 10)
    )
    one.load_state_dict(other.state_dict())
    close(one.train_Yvar, other.train_Yvar, 1e-12)
    close(one.posterior(Z).variance, other.posterior(Z).variance, 1e-10)
