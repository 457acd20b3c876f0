"""``KernelRidgeGP`` is BoTorch's ``SingleTaskGP`` with fixed hyper-parameters and noise = ridge."""

from __future__ import annotations

import contextlib
import copy
import math
import pickle

import pytest
import torch
from botorch.acquisition import LogExpectedImprovement, qKnowledgeGradient
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize, Standardize
from botorch.optim import optimize_acqf
from botorch.sampling import SobolQMCNormalSampler
from botorch.utils.datasets import SupervisedDataset
from gpytorch.constraints import Positive
from gpytorch.kernels import LinearKernel, MaternKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ZeroMean
from gpytorch.mlls import ExactMarginalLogLikelihood
from linear_operator.operators import DenseLinearOperator
from torch import Tensor
from torch.autograd import gradcheck

from kbo.acquisition import CMMUCB, KernelUCB
from kbo.confidence import BKB, MartingaleMixture, NoiseBounds, SelfNormalized
from kbo.errors import InvalidInput
from kbo.linalg import PANEL
from kbo.models import AdaptiveRidgeGP, KernelRidgeGP, NystromGP
from kbo.regression import (
    BatchedResampling,
    FixedDictionary,
    GreedyDictionary,
    LeverageResampling,
    NystromRidge,
    OnlineRowSampling,
)
from tests.dense import Dense, Sketched, close

RIDGE = 0.05
SCALE = torch.tensor([2.0, 5.0], dtype=torch.float64)  # the size of the search space


def points(*shape: int, device="cpu", seed: int = 0) -> Tensor:
    X = torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * SCALE - 1
    return X.to(device)


def data(n: int, device) -> tuple[Tensor, Tensor]:
    X = points(n, 2, device=device)
    noise = torch.randn(n, 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(device)
    return X, 3 + 2 * torch.sin(3 * X).sum(-1, keepdim=True) + 0.2 * noise


def kernel() -> ScaleKernel:
    kernel = ScaleKernel(MaternKernel(nu=2.5, ard_num_dims=2)).double()
    kernel.base_kernel.lengthscale, kernel.outputscale = torch.tensor([[0.4, 0.9]]), 1.7
    return kernel


TRANSFORMS = {
    "plain": dict,
    "normalize": lambda: {"input_transform": Normalize(2)},
    "standardize": lambda: {"outcome_transform": Standardize(1)},
    "both": lambda: {"input_transform": Normalize(2), "outcome_transform": Standardize(1)},
}


def model_and_reference(transforms, device, known: bool = False) -> tuple[KernelRidgeGP, SingleTaskGP]:
    X, Y = data(25, device)
    Yvar = 0.01 + 0.3 * points(25, 2, device=device, seed=8)[:, :1].abs() if known else None
    model = KernelRidgeGP(X, Y, kernel(), RIDGE, **transforms(), train_Yvar=Yvar)
    likelihood = GaussianLikelihood(noise_constraint=Positive()).double()
    likelihood.noise = torch.tensor(RIDGE, dtype=torch.float64)
    options = {"outcome_transform": None, "likelihood": None if known else likelihood, **transforms()}
    reference = SingleTaskGP(X, Y, Yvar, covar_module=kernel(), mean_module=ZeroMean(), **options)
    return model, reference.to(X).eval()


@pytest.fixture(scope="module", params=TRANSFORMS.values(), ids=TRANSFORMS)
def pair(request, device) -> tuple[KernelRidgeGP, SingleTaskGP]:
    return model_and_reference(request.param, device)


@pytest.fixture
def plain(device) -> KernelRidgeGP:
    return KernelRidgeGP(*data(25, device), kernel(), RIDGE)


def same(actual, expected, tol: float = 1e-6) -> None:
    """Equal posteriors; GPyTorch itself is good to about 1e-7, since it takes distances from inner products."""
    close(actual.mean.detach(), expected.mean.detach(), tol)
    close(actual.variance.detach(), expected.variance.detach(), tol)
    close(covariance(actual), covariance(expected), tol)


def covariance(posterior) -> Tensor:
    return posterior.distribution.covariance_matrix.detach()


def identical(actual, expected) -> None:
    assert torch.equal(actual.mean, expected.mean)
    assert torch.equal(covariance(actual), covariance(expected))


# Posteriors


@pytest.mark.parametrize("shape", [(1,), (4,), (3, 1), (3, 4), (2, 3, 4), (0, 4)])
def test_posterior_equals_botorch(pair, device, shape):
    model, reference = pair
    X = points(*shape, 2, device=device, seed=5)
    posterior = model.posterior(X)
    assert posterior.mean.shape == (*shape, 1)
    same(posterior, reference.posterior(X))


def test_observation_noise_equals_botorch(pair, device):
    model, reference = pair
    X = points(3, 4, 2, device=device, seed=5)
    same(model.posterior(X, observation_noise=True), reference.posterior(X, observation_noise=True))


def test_observation_noise_of_ones_own_is_added_to_the_variance(plain, device):
    X, noise = points(3, 4, 2, device=device), points(3, 4, 2, device=device)[..., :1] + 2
    close(plain.posterior(X, observation_noise=noise).variance, plain.posterior(X).variance + noise, 1e-12)


def test_posterior_transform_equals_botorch(pair, device):
    model, reference = pair
    X = points(3, 4, 2, device=device, seed=5)
    transform = ScalarizedPosteriorTransform(torch.tensor([-2.0], dtype=torch.float64, device=device), offset=1.0)
    same(model.posterior(X, posterior_transform=transform), reference.posterior(X, posterior_transform=transform))


def test_samples_equal_botorch(pair, device):
    model, reference = pair
    X = points(3, 4, 2, device=device, seed=5)
    draw = [SobolQMCNormalSampler(torch.Size([16]), seed=0)(one.posterior(X)) for one in (model, reference)]
    close(draw[0], draw[1].detach(), 1e-5)


def test_the_covariance_of_many_points_is_lazy_and_right(plain, device):
    X = points(1500, 2, device=device, seed=5)
    posterior = plain.posterior(X)
    dense = Dense(kernel(), plain.train_inputs[0], plain.train_targets)
    part = torch.arange(0, 1500, 50)
    close(posterior.mean[part, 0], dense.mean(X[part], RIDGE))
    close(posterior.variance[part, 0], dense.predict(X[part], RIDGE)[1], 1e-6)
    found = posterior.distribution.lazy_covariance_matrix
    assert found.shape == (1500, 1500)
    assert not isinstance(found, DenseLinearOperator)
    close(found[part][:, part].to_dense().detach(), dense.covariance(X[part], X[part], RIDGE), 1e-6)
    assert posterior.rsample(torch.Size([2])).shape == (2, 1500, 1)


def test_gradients_of_the_posterior_are_exact(pair, device):
    X = points(3, 2, device=device, seed=5).requires_grad_()
    assert gradcheck(lambda X: (pair[0].posterior(X).mean, pair[0].posterior(X).distribution.covariance_matrix), X)


def test_the_model_describes_itself(pair, device):
    model, reference = pair
    assert (model.num_outputs, model.batch_shape) == (reference.num_outputs, reference.batch_shape)
    assert float(model.likelihood.noise) == pytest.approx(RIDGE, rel=1e-12)
    assert model.state.n == 25


# Hyper-parameters, copies, devices


def test_a_changed_hyper_parameter_takes_effect(device):
    model, reference = model_and_reference(TRANSFORMS["both"], device)
    X = points(3, 4, 2, device=device, seed=5)
    model.posterior(X)
    for one in (model, reference):
        one.covar_module.base_kernel.lengthscale, one.covar_module.outputscale = 0.7, 3.0
    same(model.posterior(X), reference.posterior(X))
    model.ridge.data.fill_(0.2)
    reference.likelihood.noise = 0.2
    reference.train()
    same(model.posterior(X), reference.eval().posterior(X))


@pytest.mark.parametrize("after", [1.0, RIDGE])
@pytest.mark.parametrize("stored", range(3))
def test_an_interrupted_build_leaves_no_state_of_another_ridge(monkeypatch, plain, stored, after):
    assert plain.state.ridge == RIDGE
    left, store = iter(range(stored)), KernelRidgeGP.__setattr__

    def store_some(model, name, value):
        if next(left, None) is None:
            raise KeyboardInterrupt
        store(model, name, value)

    plain.ridge.data.fill_(1.0)
    with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
        patch.setattr(KernelRidgeGP, "__setattr__", store_some)
        assert plain.state.ridge == 1.0
    plain.ridge.data.fill_(after)
    assert plain.state.ridge == after
    assert bool(plain.state.objections()) == (after != RIDGE)


def test_training_mode_and_back_changes_nothing(pair, device):
    model, X = pair[0], points(4, 2, device=device, seed=5)
    before = model.posterior(X)
    inputs = model.train().train_inputs[0]
    close(inputs, data(25, device)[0], 1e-12)
    identical(model.posterior(X), before)


def test_the_kernel_passed_in_stays_as_it_was(device):
    k = kernel()
    model = KernelRidgeGP(*data(10, device), k, RIDGE)
    X = points(3, 2, device=device)
    before = model.posterior(X)
    assert all(parameter.requires_grad for parameter in k.parameters())
    k.outputscale = 9.0
    identical(model.posterior(X), before)


def test_the_state_dict_carries_the_hyper_parameters(pair, device):
    model, X = pair[0], points(4, 2, device=device, seed=5)
    other = copy.deepcopy(model)
    other.covar_module.outputscale = 9.0
    other.ridge.data.fill_(1.0)
    assert not torch.equal(other.posterior(X).mean, model.posterior(X).mean)
    other.load_state_dict(model.state_dict())
    same(other.posterior(X), model.posterior(X), 1e-12)


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["deepcopy", "pickle"])
def test_a_copy_is_identical_and_independent(pair, device, clone):
    model, X = pair[0], points(4, 2, device=device, seed=5)
    before = model.posterior(X)
    other = clone(model)
    identical(other.posterior(X), before)
    other.covar_module.outputscale = 9.0
    assert not torch.equal(other.posterior(X).mean, before.mean)
    identical(model.posterior(X), before)


@pytest.mark.parametrize("transforms", TRANSFORMS.values(), ids=TRANSFORMS)
def test_moving_to_float32_and_back_keeps_the_posterior(transforms, device):
    model, X = model_and_reference(transforms, device)[0], points(4, 2, device=device, seed=5)
    before = model.posterior(X)
    single = model.to(torch.float32).posterior(X.float())
    assert single.mean.dtype == single.variance.dtype == torch.float32
    close(single.mean.double(), before.mean, 1e-3)
    double = model.to(torch.float64).posterior(X)
    assert double.mean.dtype == torch.float64
    close(double.mean, before.mean, 1e-4)


def test_a_model_that_was_in_float32_has_no_guarantee(device):
    (X, Y), bound = data(25, device), SelfNormalized(RIDGE**0.5, 3e6, 0.1)
    model = KernelRidgeGP(X, 1e6 + Y, kernel(), RIDGE)
    copied = copy.deepcopy(model)
    rounded = copied.float().double()
    for one, certified in ((model.double(), True), (rounded, False), (rounded.condition_on_observations(X, Y), False)):
        ucb = KernelUCB(one, bound)
        assert (ucb.guarantee is not None) == certified
        assert any("rounded to torch.float32" in reason for reason in ucb.objections) != certified
    empty = KernelRidgeGP(X[:0], Y[:0], kernel(), RIDGE).float().double()
    assert KernelUCB(empty.condition_on_observations(X, Y), bound).guarantee is not None


# More data


def new_data(device, *batch: int) -> tuple[Tensor, Tensor]:
    return points(*batch, 3, 2, device=device, seed=9), points(*batch, 3, 2, device=device, seed=10).sum(
        -1, keepdim=True
    )


def test_conditioning_equals_botorch(pair, device):
    (X, Y), Z = new_data(device), points(2, 4, 2, device=device, seed=5)
    for one in pair:
        one.posterior(Z)
    found, expected = (one.condition_on_observations(X, Y).posterior(Z) for one in pair)
    same(found, expected)


def test_conditioning_equals_a_model_of_all_data(pair, device):
    model, _ = pair
    (X, Y), Z = new_data(device), points(2, 4, 2, device=device, seed=5)
    child = model.condition_on_observations(X, Y)
    grandchild = child.condition_on_observations(X[:1] + 0.1, Y[:1])
    # A transform learns from the first data only, so it is handed over as it stands.
    everything = KernelRidgeGP(
        model.transform_inputs(torch.cat([data(25, device)[0], X, X[:1] + 0.1])),
        transformed(model, torch.cat([data(25, device)[1], Y, Y[:1]])),
        kernel(),
        RIDGE,
    )
    expected = everything.posterior(model.transform_inputs(Z))
    if hasattr(model, "outcome_transform"):
        expected = model.outcome_transform.untransform_posterior(expected)
    same(grandchild.posterior(Z), expected, 1e-8)
    inputs = grandchild.train().train_inputs[0]
    close(inputs, torch.cat([data(25, device)[0], X, X[:1] + 0.1]), 1e-12)
    same(grandchild.posterior(Z), expected, 1e-8)


def transformed(model, Y: Tensor) -> Tensor:
    return model.outcome_transform(Y)[0] if hasattr(model, "outcome_transform") else Y


def test_conditioning_leaves_the_parent_alone(pair, device):
    model, _ = pair
    (X, Y), Z = new_data(device), points(4, 2, device=device, seed=5)
    before = model.posterior(Z)
    child = model.condition_on_observations(X, Y)
    child.posterior(Z)
    identical(model.posterior(Z), before)
    assert (model.state.n, child.state.n) == (25, 28)


@pytest.mark.parametrize(
    "change",
    [
        lambda child: child.to(torch.float32),
        lambda child: child.ridge.data.fill_(1.0),
        lambda child: setattr(child.covar_module, "outputscale", 9.0),
        lambda child: child.load_state_dict({k: v + 1 for k, v in child.state_dict().items()}, strict=False),
    ],
    ids=["to", "ridge", "outputscale", "load_state_dict"],
)
def test_changing_a_conditioned_model_leaves_the_parent_alone(plain, device, change):
    Z = points(4, 2, device=device, seed=5)
    before = plain.posterior(Z)
    change(plain.condition_on_observations(*new_data(device)))
    identical(plain.posterior(Z), before)


def test_conditioning_shares_the_factor(device):
    model = KernelRidgeGP(*data(PANEL + 50, device), kernel(), RIDGE)
    model.posterior(points(1, 2, device=device))
    child = model.condition_on_observations(*new_data(device))
    parts = [one.state.factor(RIDGE).cholesky._panels[0] for one in (model, child)]
    assert parts[0].rows.data_ptr() == parts[1].rows.data_ptr()


def test_conditioning_on_plain_data_keeps_no_graph(plain, device):
    X, Y = new_data(device)
    for child in (
        plain.condition_on_observations(X, Y),
        plain.condition_on_observations(X, Y).condition_on_observations(X, Y),
    ):
        posterior = child.posterior(X)
        kept = [child.train_inputs[0], child.train_targets, posterior.mean, posterior.variance, covariance(posterior)]
        assert all(tensor.grad_fn is None for tensor in kept)


def test_a_fantasy_has_gradients_after_values_without(plain, device):
    (X, Y), Z = new_data(device), points(4, 2, device=device, seed=5)
    found = []
    for first in (False, True):
        P = X.clone().requires_grad_()
        fantasy = plain.condition_on_observations(P, Y)
        if first:
            with torch.no_grad():
                fantasy.posterior(Z)
        found.append(torch.autograd.grad(fantasy.posterior(Z).variance.sum(), P)[0])
    assert torch.equal(*found)


@pytest.mark.parametrize("transforms", TRANSFORMS.values(), ids=TRANSFORMS)
def test_conditioning_is_differentiable_in_the_new_data(transforms, device):
    model, Z = model_and_reference(transforms, device)[0], points(2, 2, device=device, seed=5)
    X, Y = (tensor.requires_grad_() for tensor in new_data(device))
    assert gradcheck(lambda X, Y: model.condition_on_observations(X, Y).posterior(Z).mean, (X, Y))
    with torch.no_grad():
        assert not model.condition_on_observations(X, Y).posterior(Z).mean.requires_grad


def test_conditioning_on_batches_equals_one_by_one(pair, device):
    model, _ = pair
    (X, Y), Z = new_data(device, 2), points(4, 2, device=device, seed=5)
    batch = model.condition_on_observations(X, Y).posterior(Z)
    assert batch.mean.shape == (2, 4, 1)
    for i in range(2):
        alone = model.condition_on_observations(X[i], Y[i]).posterior(Z)
        close(batch.mean[i], alone.mean)
        close(covariance(batch)[i], covariance(alone))


@pytest.mark.parametrize("transforms", TRANSFORMS.values(), ids=TRANSFORMS)
def test_known_variances_equal_botorch_built_and_conditioned(transforms, device):
    (model, reference), (X, Y), Z = (
        model_and_reference(transforms, device, known=True),
        data(25, device),
        points(4, 2, device=device, seed=5),
    )
    same(model.posterior(Z), reference.posterior(Z))
    assert model.state.weighted
    if transforms is dict:
        Yvar = model.train_Yvar.unsqueeze(-1)
        head = KernelRidgeGP(X[:15], Y[:15], kernel(), RIDGE, train_Yvar=Yvar[:15])
        grown = head.condition_on_observations(X[15:], Y[15:], noise=Yvar[15:])
        same(grown.posterior(Z), model.posterior(Z), 1e-8)
        assert "weight" in SelfNormalized(RIDGE**0.5, 20.0, 0.1).guarantee_on(grown.state)


def test_plain_data_beside_known_variances_have_the_ridge(plain, device):
    (X, Y), Z = new_data(device), points(4, 2, device=device, seed=5)
    noise = torch.full_like(Y, 0.5)
    grown = plain.condition_on_observations(X, Y, noise=noise).condition_on_observations(Z, Z[:, :1])
    variances = torch.cat([torch.full_like(plain.train_targets, RIDGE), noise[:, 0], torch.full_like(Z[:, 0], RIDGE)])
    rebuilt = KernelRidgeGP(
        grown.train_inputs[0], grown.train_targets[:, None], kernel(), RIDGE, train_Yvar=variances[:, None]
    )
    close(grown.train_Yvar, variances, 1e-12)
    same(grown.posterior(Z + 0.1), rebuilt.posterior(Z + 0.1), 1e-8)


def test_variances_that_cannot_be_used_are_refused(plain, device):
    X, Y = new_data(device)
    for noise in (0 * Y, torch.ones_like(Y[:, 0]), torch.ones_like(Y).long(), 0.1):
        for data in ((X, Y), (X[None], Y[None])):
            with pytest.raises(InvalidInput, match="noise"):
                plain.condition_on_observations(*data, noise=noise)
        with pytest.raises(InvalidInput, match="train_Yvar"):
            KernelRidgeGP(X, Y, kernel(), RIDGE, train_Yvar=noise)


def test_fantasies_equal_botorch(pair, device):
    X, Z = points(3, 2, 2, device=device, seed=9), points(3, 4, 2, device=device, seed=5)
    found, expected = (one.fantasize(X, SobolQMCNormalSampler(torch.Size([4]), seed=0)).posterior(Z) for one in pair)
    assert found.mean.shape == (4, 3, 4, 1)
    same(found, expected, 1e-5)


def test_fantasies_of_fantasies_have_their_shape(plain, device):
    sampler = SobolQMCNormalSampler(torch.Size([2]), seed=0)
    once = plain.fantasize(points(3, 1, 2, device=device, seed=9), sampler)
    twice = once.fantasize(points(2, 3, 1, 2, device=device, seed=8), SobolQMCNormalSampler(torch.Size([5]), seed=1))
    assert twice.posterior(points(4, 2, device=device)).mean.shape == (5, 2, 3, 4, 1)


def test_replacing_the_data_replaces_the_posterior(plain, device):
    (X, Y), Z = new_data(device), points(4, 2, device=device, seed=5)
    plain.posterior(Z)
    plain.set_train_data(X, Y.squeeze(-1))
    identical(plain.posterior(Z), KernelRidgeGP(X, Y, kernel(), RIDGE).posterior(Z))


# Bad input

NAN = torch.tensor([[math.nan]], dtype=torch.float64)
BAD = {
    "Y without its column": lambda X, Y: (X, Y.squeeze(-1)),
    "Y with two columns": lambda X, Y: (X, Y.expand(-1, 2)),
    "too few targets": lambda X, Y: (X, Y[1:]),
    "batched X": lambda X, Y: (X[None], Y[None]),
    "X without its rows": lambda X, Y: (X[:, 0], Y),
    "integer X": lambda X, Y: (X.long(), Y),
    "float32 Y": lambda X, Y: (X, Y.float()),
    "NaN in Y": lambda X, Y: (X, torch.cat([Y[1:], NAN.to(Y)])),
    "NaN in X": lambda X, Y: (X * NAN.to(X), Y),
    "no tensor": lambda X, Y: (X, Y.tolist()),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_bad_training_data_are_refused(device, bad):
    with pytest.raises(InvalidInput):
        KernelRidgeGP(*bad(*data(6, device)), kernel(), RIDGE)


@pytest.mark.parametrize("ridge", [0.0, -1.0, math.nan])
def test_bad_ridges_are_refused(device, ridge):
    with pytest.raises(InvalidInput):
        KernelRidgeGP(*data(6, device), kernel(), ridge)


@pytest.mark.parametrize("bad", [lambda X: X[:, :1], lambda X: X * NAN.to(X), lambda X: X.long()])
def test_a_posterior_at_bad_points_is_refused(plain, device, bad):
    with pytest.raises(InvalidInput):
        plain.posterior(bad(points(4, 2, device=device)))


BAD_NEW = {
    "Y without its column": lambda X, Y: (X, Y.squeeze(-1)),
    "too few targets": lambda X, Y: (X, Y[1:]),
    "another dimension": lambda X, Y: (X[:, :1], Y),
    "NaN in Y": lambda X, Y: (X, Y * NAN.to(Y)),
    "whole numbers": lambda X, Y: (X.long(), Y.long()),
}


@pytest.mark.parametrize("bad", BAD_NEW.values(), ids=BAD_NEW)
def test_bad_new_data_are_refused_and_change_nothing(plain, device, bad):
    X = points(4, 2, device=device)
    before = plain.posterior(X)
    with pytest.raises(InvalidInput):
        plain.condition_on_observations(*bad(*new_data(device)))
    identical(plain.posterior(X), before)


# In BoTorch's acquisition functions

BOUNDS = torch.stack([-torch.ones(2, dtype=torch.float64), SCALE - 1])


def acquisitions(model, device) -> dict:
    X, Y = data(25, device)
    sampler = SobolQMCNormalSampler(torch.Size([8]), seed=0)
    return {
        "logei": (LogExpectedImprovement(model, best_f=Y.max()), 1),
        "qlognei": (qLogNoisyExpectedImprovement(model, X, sampler=sampler, prune_baseline=False), 2),
        "qkg": (qKnowledgeGradient(model, num_fantasies=4, sampler=SobolQMCNormalSampler(torch.Size([4]), seed=0)), 1),
    }


@pytest.mark.parametrize("name", ["logei", "qlognei", "qkg"])
def test_acquisition_values_equal_those_of_botorch(pair, device, name):
    (found, q), (expected, _) = (acquisitions(one, device)[name] for one in pair)
    X = points(3, q + (4 if name == "qkg" else 0), 2, device=device, seed=5)
    close(found(X).detach(), expected(X).detach(), 1e-4)


@pytest.mark.parametrize("name", ["logei", "qlognei", "qkg"])
def test_acquisition_functions_of_botorch_are_optimised(pair, device, name):
    acqf, q = acquisitions(pair[0], device)[name]
    X, value = optimize_acqf(
        acqf, BOUNDS.to(device), q=q, num_restarts=2, raw_samples=8, options={"maxiter": 20, "seed": 0}
    )
    assert X.shape == (q, 2)
    assert value.isfinite()
    assert ((BOUNDS[0].to(device) <= X) & (BOUNDS[1].to(device) >= X)).all()


# Sketched models

DICTIONARIES = {
    "default": lambda: None,
    "fixed": lambda: FixedDictionary(points(12, 2, seed=7)),
    "online": lambda: OnlineRowSampling(RIDGE, 1.0),
    "greedy": lambda: GreedyDictionary(0.1),
    "resampled": lambda: LeverageResampling(1.5),
    "batched": lambda: BatchedResampling(1.5, 2.0),
}
CLONES = {"deepcopy": copy.deepcopy, "pickle": lambda model: pickle.loads(pickle.dumps(model))}


@pytest.fixture(params=DICTIONARIES)
def kind(request) -> str:
    return request.param


def sketched(kind: str, device, n: int = 40, **transforms) -> NystromGP:
    return NystromGP(*data(n, device), kernel(), RIDGE, DICTIONARIES[kind](), **transforms)


def stream_of(model: NystromGP, X: Tensor, Y: Tensor) -> NystromRidge:
    """One state that is given all data in their order."""
    state = NystromRidge(kernel(), RIDGE, model.dictionary)
    for i in range(len(X)):
        state.update(X[i : i + 1], Y[i])
    return state


@pytest.mark.parametrize("transforms", TRANSFORMS.values(), ids=TRANSFORMS)
def test_a_sketched_posterior_equals_the_dense_formulas(device, kind, transforms):
    model, (X, Y), Z = sketched(kind, device, **transforms()), data(40, device), points(3, 4, 2, device=device, seed=5)
    low, size = X.amin(0), X.amax(0) - X.amin(0)
    low, size = (low, size) if "input_transform" in transforms() else (0 * low, 0 * size + 1)
    mean, std = (Y.mean(), Y.std()) if "outcome_transform" in transforms() else (0.0, 1.0)
    anchors = (points(12, 2, device=device, seed=7) - low) / size if kind == "fixed" else model.state.anchors
    dense = Sketched(kernel(), (X - low) / size, (Y[:, 0] - mean) / std, anchors)
    posterior = model.posterior(Z)
    for i in range(3):
        P = (Z[i] - low) / size
        close(posterior.mean[i, :, 0], mean + std * dense.mean(P, RIDGE), 1e-7)
        close(covariance(posterior)[i], std**2 * dense.covariance(P, P, RIDGE), 1e-7)
    assert 1 < model.state.m <= 40
    assert (model.state.m == 40) == (kind == "default")


def test_a_conditioned_model_goes_on_with_the_dictionary_as_a_state_would(device, kind):
    model, (X, Y), Z = sketched(kind, device), data(80, device), points(6, 2, device=device, seed=5)
    X[:40], Y[:40] = data(40, device)
    before, anchors = model.posterior(Z), model.state.anchors.clone()
    child = model.condition_on_observations(X[40:43], Y[40:43])
    grandchild = child.condition_on_observations(X[43:], Y[43:])
    for one, n in ((child, 43), (grandchild, 80)):
        state = stream_of(model, X[:n], Y[:n])
        assert torch.equal(one.state.anchors, state.anchors)
        close(torch.stack(one.state.predict(Z)), torch.stack(state.predict(Z)), 1e-10)
        close(one.posterior(Z).mean[:, 0], state.predict(Z)[0], 1e-10)
        assert one.state.n == n
    identical(model.posterior(Z), before)
    assert torch.equal(model.state.anchors, anchors)
    other = model.condition_on_observations(X[60:], Y[60:])  # the children have drawn nothing from the parent
    expected = stream_of(model, torch.cat([X[:40], X[60:]]), torch.cat([Y[:40], Y[60:]]))
    assert torch.equal(other.state.anchors, expected.anchors)
    if kind != "fixed":
        assert grandchild.state.m != model.state.m


def test_a_sketched_model_is_a_function_of_its_data(device, kind):
    one, same, Z = sketched(kind, device), sketched(kind, device), points(6, 2, device=device, seed=5)
    before = one.posterior(Z)
    identical(same.posterior(Z), before)
    one.covar_module.outputscale = 9.0
    assert not torch.equal(one.posterior(Z).mean, before.mean)
    one.covar_module.outputscale = 1.7
    identical(one.posterior(Z), before)
    same.set_train_data(same.train_inputs[0], same.train_targets)
    identical(same.posterior(Z), before)
    assert not any(tensor.requires_grad for tensor in (before.mean, before.variance))


def test_the_default_dictionary_leaves_less_variance_than_the_noise_has(device):
    X, Y = data(300, device)
    model = NystromGP(X, Y, kernel(), RIDGE)
    residual = Sketched(kernel(), X, Y[:, 0], model.state.anchors).residual.diagonal()
    assert float(residual.max()) <= 0.1 * RIDGE + 1e-9
    assert 100 <= model.state.m < 250


def test_the_default_dictionary_sees_something_however_large_the_noise(device):
    (X, Y), k = data(20, device), LinearKernel().double()
    model = NystromGP(X, Y, k, 100.0, input_transform=Normalize(2))
    largest = ((X - X.amin(0)) / (X.amax(0) - X.amin(0))).square().sum(-1).max() * float(k.variance)
    assert model.dictionary.threshold == pytest.approx(0.01 * float(largest))
    assert model.state.m > 0


def test_a_dictionary_may_begin_with_points_in_the_units_of_the_data(device):
    X, Y = data(40, device)
    dictionary = GreedyDictionary(0.1)
    dictionary.points = points(3, 2, device=device, seed=7)
    model = NystromGP(X, Y, kernel(), RIDGE, dictionary, input_transform=Normalize(2))
    close(model.state.anchors[:3], (dictionary.points - X.amin(0)) / (X.amax(0) - X.amin(0)))
    assert 3 < model.state.m < 40


@pytest.mark.parametrize("transforms", TRANSFORMS.values(), ids=TRANSFORMS)
def test_fantasies_of_a_sketched_model_condition_its_posterior(device, kind, transforms):
    model, Z = sketched(kind, device, **transforms()), points(4, 2, device=device, seed=5)
    X, Y = (tensor.requires_grad_() for tensor in new_data(device))
    assert gradcheck(lambda X, Y: model.condition_on_observations(X, Y).posterior(Z[:2]).mean, (X, Y))
    joint = model.posterior(torch.cat([Z, X]).detach())
    mean, C = joint.mean[:, 0], covariance(joint)
    noise = RIDGE * (model.outcome_transform.stdvs[0, 0] ** 2 if hasattr(model, "outcome_transform") else 1.0)
    gain = torch.linalg.solve(C[4:, 4:] + noise * torch.eye(3).to(C), C[4:])
    fantasy = model.condition_on_observations(X, Y).posterior(Z)
    close(fantasy.mean[:, 0].detach(), mean[:4] + gain[:, :4].mT @ (Y[:, 0].detach() - mean[4:]))
    close(covariance(fantasy), C[:4, :4] - C[:4, 4:] @ gain[:, :4])
    sampler = SobolQMCNormalSampler(torch.Size([4]), seed=0)
    assert model.fantasize(points(3, 2, 2, device=device, seed=9), sampler).posterior(Z).mean.shape == (4, 3, 4, 1)


UCBS = {
    "self-normalised": lambda model: KernelUCB(model, SelfNormalized(0.2, 20.0, 0.1)),
    "bkb": lambda model: KernelUCB(model, BKB(0.2, 20.0, 0.1)),
    "mixture": lambda model: KernelUCB(model, MartingaleMixture(0.2, 20.0, 0.1, "dmm")),
    "cmm": lambda model: CMMUCB(model, noise_std=0.2, norm_bound=20.0, delta=0.1),
}


@pytest.mark.parametrize("name", UCBS)
@pytest.mark.parametrize("dictionary", ["default", "online", "batched"])
def test_bounds_of_a_sketched_model_are_optimised(device, dictionary, name):
    acqf = UCBS[name](sketched(dictionary, device, input_transform=Normalize(2)))
    X, value = optimize_acqf(
        acqf, BOUNDS.to(device), q=1, num_restarts=3, raw_samples=64, options={"maxiter": 60, "seed": 0}
    )
    assert ((BOUNDS[0].to(device) <= X) & (BOUNDS[1].to(device) >= X)).all()
    close(acqf(X[None])[0].detach(), value, 1e-10)
    elsewhere = acqf(points(300, 1, 2, device=device, seed=8)).detach()
    assert float(value) >= float(elsewhere.max()) - 1e-3 * float(elsewhere.max() - elsewhere.min())


@pytest.mark.parametrize("clone", CLONES.values(), ids=CLONES)
def test_a_copy_of_a_sketched_model_goes_on_alike(device, kind, clone):
    model, (X, Y), Z = sketched(kind, device), new_data(device), points(6, 2, device=device, seed=5)
    before = model.posterior(Z)
    other = clone(model)
    identical(other.posterior(Z), before)
    children = [one.condition_on_observations(X, Y) for one in (other, model)]
    assert torch.equal(children[0].state.anchors, children[1].state.anchors)
    same(children[0].posterior(Z), children[1].posterior(Z), 1e-12)
    identical(model.posterior(Z), before)


def test_the_state_dict_of_a_sketched_model_carries_its_hyper_parameters(device, kind):
    model, Z = sketched(kind, device, outcome_transform=Standardize(1)), points(6, 2, device=device, seed=5)
    other = copy.deepcopy(model)
    other.covar_module.outputscale = 9.0
    assert not torch.equal(other.posterior(Z).mean, model.posterior(Z).mean)
    other.load_state_dict(model.state_dict())
    same(other.posterior(Z), model.posterior(Z), 1e-12)


def test_a_sketched_model_moves_to_float32_and_back(device, kind):
    model, Z = sketched(kind, device), points(6, 2, device=device, seed=5)
    before = model.posterior(Z)
    assert model.to(torch.float32).posterior(Z.float()).mean.dtype == torch.float32
    close(model.posterior(Z.float()).mean.double(), before.mean, 1e-3)
    close(model.to(torch.float64).posterior(Z).mean, before.mean, 1e-4)


def test_a_sketched_model_is_constructed_from_a_data_set(device):
    X, Y = data(20, device)
    dictionary = GreedyDictionary(0.1)
    dataset = SupervisedDataset(X, Y, feature_names=["a", "b"], outcome_names=["y"])
    inputs = NystromGP.construct_inputs(dataset, kernel=kernel(), ridge=RIDGE, dictionary=dictionary)
    model = NystromGP(**inputs)
    assert model.dictionary is dictionary
    Z = points(3, 2, device=device, seed=5)
    identical(model.posterior(Z), NystromGP(X, Y, kernel(), RIDGE, dictionary).posterior(Z))
    identical(
        NystromGP(**NystromGP.construct_inputs(dataset, kernel=kernel(), ridge=RIDGE)).posterior(Z),
        NystromGP(X, Y, kernel(), RIDGE).posterior(Z),
    )


def test_a_dictionary_that_does_not_fit_the_data_is_refused(device):
    for dictionary in (FixedDictionary(points(4, 2)[:, :1]), points(4, 2), "online"):
        with pytest.raises(InvalidInput):
            NystromGP(*data(6, device), kernel(), RIDGE, dictionary)


@pytest.mark.parametrize(
    "build",
    [
        lambda X, Y: KernelRidgeGP(X, Y),
        lambda X, Y: CMMUCB(KernelRidgeGP(X, Y, kernel(), RIDGE), noise_std=0.1),
        lambda X, Y: KernelUCB(KernelRidgeGP(X, Y, kernel(), RIDGE)),
    ],
    ids=["KernelRidgeGP", "CMMUCB", "KernelUCB"],
)
def test_messages_about_missing_arguments_name_the_class(request, device, build):
    with pytest.raises(TypeError, match=rf"^{request.node.callspec.id.split('-')[-1]}\.__init__"):
        build(*data(6, device))


def test_a_model_without_a_marginal_likelihood_refuses_to_be_fitted(plain, device):
    X, Y = new_data(device, 2)
    adaptive = AdaptiveRidgeGP(*data(9, device), kernel(), NoiseBounds(20.0, 0.1, upper=1.0))
    for model in (adaptive, plain.condition_on_observations(X, Y)):
        with pytest.raises(InvalidInput, match=rf"{type(model).__name__} cannot be fitted.*KernelRidgeGP"):
            fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
