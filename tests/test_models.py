"""``KernelRidgeGP`` is BoTorch's ``SingleTaskGP`` of fixed hyper-parameters, noise = ridge; ``NystromGP`` is DTC."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize, Standardize
from botorch.sampling import SobolQMCNormalSampler
from botorch.utils.datasets import SupervisedDataset
from gpytorch.constraints import Positive
from gpytorch.kernels import LinearKernel, MaternKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ZeroMean
from linear_operator.operators import DenseLinearOperator
from torch import Tensor
from torch.autograd import grad, gradcheck

from kbo.acquisition import KernelUCB
from kbo.confidence import NoiseBounds, SelfNormalized
from kbo.errors import InvalidInput
from kbo.models import AdaptiveRidgeGP, KernelRidgeGP, NystromGP, PosteriorGP
from kbo.regression import (
    FixedDictionary,
    GreedyDictionary,
    KernelRidge,
    LeverageResampling,
    NystromRidge,
    OnlineRowSampling,
)
from tests.conftest import DEVICE
from tests.dense import Dense, Sketched, close
from tests.laws.states import seeded

pytestmark = pytest.mark.usefixtures("device")

RIDGE = 0.05
SCALE = torch.tensor([2.0, 5.0]).double()  # the size of the search space
BOUNDS = torch.stack([-torch.ones(2).double(), SCALE - 1])


def points(*shape: int, device=DEVICE, seed: int = 0) -> Tensor:
    X = torch.rand(*shape, generator=seeded(seed), dtype=torch.float64) * SCALE - 1
    return X.to(device)


def data(n: int, device=DEVICE) -> tuple[Tensor, Tensor]:
    X = points(n, 2, device=device)
    noise = torch.randn(n, 1, generator=seeded(1), dtype=torch.float64).to(device)
    return X, 3 + 2 * torch.sin(3 * X).sum(-1, keepdim=True) + 0.2 * noise


def kernel() -> ScaleKernel:
    kernel = ScaleKernel(MaternKernel(nu=2.5, ard_num_dims=2)).double()
    kernel.base_kernel.lengthscale = torch.tensor([[0.4, 0.9]])
    kernel.outputscale = 1.7
    return kernel


def BOTH() -> dict[str, Any]:
    return {"input_transform": Normalize(2), "outcome_transform": Standardize(1)}


MODELS: dict[str, Callable[..., Any]] = {
    "KernelRidgeGP": lambda X, Y, **more: KernelRidgeGP(X, Y, kernel(), RIDGE, **more),
    "NystromGP": lambda X, Y, **more: NystromGP(
        X, Y, kernel(), RIDGE, GreedyDictionary(1e-9), **more
    ),
    "AdaptiveRidgeGP": lambda X, Y, **more: AdaptiveRidgeGP(
        X, Y, kernel(), NoiseBounds(9.0, 0.1, upper=1.0), **more
    ),
    "PosteriorGP": lambda X, Y, **more: PosteriorGP(X, Y, KernelRidge(kernel(), RIDGE), **more),
}


def beside(
    name: str, X: Tensor, Y: Tensor, Yvar: Tensor | None, transforms
) -> tuple[Any, SingleTaskGP]:
    """A model and BoTorch's own of the same kernel, noise, data and transforms."""
    known = {} if Yvar is None else {"train_Yvar": Yvar}
    model = MODELS[name](X, Y, **transforms(), **known)
    likelihood = GaussianLikelihood(noise_constraint=Positive()) if Yvar is None else None
    options = {"outcome_transform": None, "likelihood": likelihood, **transforms()}
    reference = SingleTaskGP(X, Y, Yvar, covar_module=kernel(), mean_module=ZeroMean(), **options)
    reference.to(X)
    if Yvar is None:
        reference.likelihood.noise = model.likelihood.noise.detach()
    return model, reference.eval()


def model_and_reference(transforms, known: bool = False) -> tuple[KernelRidgeGP, SingleTaskGP]:
    Yvar = 0.01 + 0.3 * points(25, 2, seed=8)[:, :1].abs() if known else None
    return beside("KernelRidgeGP", *data(25), Yvar, transforms)


@pytest.fixture
def plain() -> KernelRidgeGP:
    given = kernel()
    model = KernelRidgeGP(*data(25), given, RIDGE)
    assert all(parameter.requires_grad for parameter in given.parameters())
    given.outputscale = 9.0  # the model has a copy
    return model


DICTIONARIES = {
    "default": lambda: None,
    "online": lambda: OnlineRowSampling(RIDGE, 1.0),
    "resampled": lambda: LeverageResampling(1.5),
}


@pytest.fixture(params=["exact", "default", "resampled"])
def model(request) -> KernelRidgeGP | NystromGP:
    if request.param == "exact":
        return KernelRidgeGP(*data(25), kernel(), RIDGE, **BOTH())
    return NystromGP(*data(25), kernel(), RIDGE, DICTIONARIES[request.param](), **BOTH())


def covariance(posterior) -> Tensor:
    return posterior.distribution.covariance_matrix.detach()


def same(actual, expected, tol: float = 1e-6) -> None:
    """Equal posteriors; GPyTorch itself is good to about 1e-7, since it takes distances from inner products."""
    close(actual.mean.detach(), expected.mean.detach(), tol)
    close(actual.variance.detach(), expected.variance.detach(), tol)
    close(covariance(actual), covariance(expected), tol)


def identical(actual, expected) -> None:
    assert torch.equal(actual.mean, expected.mean)
    assert torch.equal(covariance(actual), covariance(expected))


Z = points(4, 2, seed=5)
NEW = points(3, 2, seed=9)
NEW_Y = points(3, 2, seed=10)[:, :1] + 3


def child(model):
    new = NEW.to(model.train_targets)
    return model.condition_on_observations(new, new[:, :1])


# Posteriors


@pytest.mark.parametrize("transforms", [dict, BOTH], ids=["plain", "both"])
def test_the_joint_posterior_and_its_gradient_are_those_of_botorch(transforms):
    model, reference = model_and_reference(transforms)
    for shape in ((1,), (2, 3, 4), (0, 4)):
        X = points(*shape, 2, seed=5)
        same(model.posterior(X), reference.posterior(X))
    assert (model.num_outputs, model.batch_shape) == (1, torch.Size())

    def moments(X: Tensor) -> tuple[Tensor, Tensor]:
        posterior = model.posterior(X)
        return posterior.mean, posterior.distribution.covariance_matrix

    assert gradcheck(moments, points(3, 2, seed=5).requires_grad_())


def test_the_covariance_of_many_points_is_lazy_and_right(plain):
    X = points(200, 2, seed=5)
    posterior = plain.posterior(X)
    part = torch.arange(0, 200, 20)
    dense = Dense(kernel(), plain.train_inputs[0], plain.train_targets)
    close(posterior.mean[part, 0], dense.mean(X[part], RIDGE))
    found = posterior.distribution.lazy_covariance_matrix
    assert not isinstance(found, DenseLinearOperator)
    close(found[part][:, part].to_dense().detach(), dense.covariance(X[part], X[part], RIDGE), 1e-6)
    assert posterior.rsample(torch.Size([2])).shape == (2, 200, 1)


# Hyper-parameters, copies, types of numbers


@pytest.mark.parametrize("kind", [KernelRidgeGP, NystromGP, AdaptiveRidgeGP, PosteriorGP])
def test_a_wrong_argument_names_the_class_that_was_called(kind):
    with pytest.raises(TypeError, match=rf"^{kind.__name__}\.__init__"):
        kind(*data(5), foo=1)


def test_a_changed_hyper_parameter_takes_effect():
    model, reference = model_and_reference(BOTH)
    model.posterior(Z)
    for one in (model, reference):
        one.covar_module.base_kernel.lengthscale = 0.7
        one.covar_module.outputscale = 3.0
    same(model.posterior(Z), reference.posterior(Z))
    model.ridge.data.fill_(0.2)
    reference.likelihood.noise = 0.2
    reference.train()
    same(model.posterior(Z), reference.eval().posterior(Z))


def rescaled(model, scale: float = 9.0) -> None:
    model.covar_module.outputscale = scale


def rescaled_and_back(model) -> None:
    rescaled(model)
    model.posterior(Z)
    rescaled(model, 1.7)


def replaced_and_back(model) -> None:
    X = model.train_inputs[0]
    y = model.train_targets
    model.set_train_data(NEW, y[:3])
    assert model.posterior(X).mean.shape == (len(X), 1) != (model.state.n, 1)
    model.set_train_data(X, y)


ELSEWHERE = {
    "training mode and back": lambda model: model.train().eval(),
    "a child": lambda model: child(model).posterior(NEW),
    "a child's kernel": lambda model: rescaled(child(model)),
    "its own kernel, and back": rescaled_and_back,
    "its own data, and back": replaced_and_back,
}


@pytest.mark.parametrize("change", ELSEWHERE.values(), ids=ELSEWHERE)
def test_a_posterior_stays_what_it_is_whatever_is_done_elsewhere(model, change):
    before = model.posterior(Z)
    inputs = model.train_inputs[0]
    change(model)
    close(model.train_inputs[0], inputs, 1e-12)
    identical(model.posterior(Z), before)


def test_copies_and_state_dicts_have_the_same_posterior_and_go_on_alike(model):
    other = copy.deepcopy(model)
    rescaled(other)
    other.ridge.data.fill_(1.0)
    assert not torch.equal(other.posterior(Z).mean, model.posterior(Z).mean)
    other.load_state_dict(model.state_dict())
    for one in (other, pickle.loads(pickle.dumps(model))):
        same(one.posterior(Z), model.posterior(Z), 1e-12)
        same(child(one).posterior(Z), child(model).posterior(Z), 1e-12)


def test_a_model_that_was_in_float32_has_no_guarantee():
    X, Y = data(25)
    bound = SelfNormalized(RIDGE**0.5, 3e6, 0.1)
    model = KernelRidgeGP(X, 1e6 + Y, kernel(), RIDGE)
    rounded = copy.deepcopy(model).float().double()
    empty = KernelRidgeGP(X[:0], Y[:0], kernel(), RIDGE).float().double()
    for one, certified in (
        (model.double(), True),
        (rounded, False),
        (rounded.condition_on_observations(X, Y), False),
        (empty.condition_on_observations(X, Y), True),
    ):
        ucb = KernelUCB(one, bound)
        assert (ucb.guarantee is not None) == certified
        assert any("rounded to torch.float32" in reason for reason in ucb.objections) != certified


# More data


def test_a_fantasy_has_gradients_after_values_without(plain):
    found = []
    for first in (False, True):
        X = NEW.clone().requires_grad_()
        fantasy = plain.condition_on_observations(X, NEW_Y)
        if first:
            with torch.no_grad():
                fantasy.posterior(Z)
        found.append(grad(fantasy.posterior(Z).variance.sum(), X)[0])
    assert torch.equal(*found)


def test_fantasies_condition_the_posterior_and_are_differentiable(model):
    """Also those of a sketch, whose dictionary they leave as it is."""
    new = NEW.clone().requires_grad_(), NEW_Y.clone().requires_grad_()
    assert gradcheck(lambda X, Y: model.condition_on_observations(X, Y).posterior(Z[:2]).mean, new)
    joint = model.posterior(torch.cat([Z, NEW]))
    mean = joint.mean[:, 0]
    C = covariance(joint)
    noise = RIDGE * model.outcome_transform.stdvs[0, 0] ** 2
    gain = torch.linalg.solve(C[4:, 4:] + noise * torch.eye(3).to(C), C[4:])
    fantasy = model.condition_on_observations(*new).posterior(Z)
    close(fantasy.mean[:, 0].detach(), mean[:4] + gain[:, :4].mT @ (NEW_Y[:, 0] - mean[4:]))
    close(covariance(fantasy), C[:4, :4] - C[:4, 4:] @ gain[:, :4])
    sampler = SobolQMCNormalSampler(torch.Size([4]), seed=0)
    fantasies = model.fantasize(points(3, 2, 2, seed=9), sampler)
    assert fantasies.posterior(Z).mean.shape == (4, 3, 4, 1)


def test_known_variances_are_weights_and_data_without_them_have_the_ridge(plain):
    noise = torch.full_like(NEW_Y, 0.5)
    grown = plain.condition_on_observations(NEW, NEW_Y, noise=noise)
    grown = grown.condition_on_observations(Z, Z[:, :1])
    variances = Z.new_tensor([RIDGE] * 25 + [0.5] * 3 + [RIDGE] * 4)
    given = grown.train_inputs[0], grown.train_targets[:, None], kernel(), RIDGE
    rebuilt = KernelRidgeGP(*given, train_Yvar=variances[:, None])
    close(grown.train_Yvar, variances, 1e-12)
    same(grown.posterior(Z + 0.1), rebuilt.posterior(Z + 0.1), 1e-8)
    assert "weight" in SelfNormalized(RIDGE**0.5, 20.0, 0.1).guarantee_on(grown.state)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (KernelRidgeGP, {"input_transform": Normalize(2)}),
        (NystromGP, {"dictionary": GreedyDictionary(0.1)}),
    ],
)
def test_a_model_is_constructed_from_a_data_set_and_options(kind, options):
    X, Y = data(20)
    dataset = SupervisedDataset(X, Y, feature_names=["a", "b"], outcome_names=["y"])
    options = {"kernel": kernel(), "ridge": RIDGE, **options}
    model = kind(**kind.construct_inputs(dataset, **options))
    identical(model.posterior(Z), kind(X, Y, **options).posterior(Z))
    with pytest.raises(TypeError, match="rigde"):
        kind(**kind.construct_inputs(dataset, **options, rigde=RIDGE))


# Bad input


def test_bad_data_are_refused_and_change_nothing(plain):
    before = plain.posterior(Z)
    for X, Y in (
        (NEW, NEW_Y.squeeze(-1)),
        (NEW, NEW_Y[1:]),
        (NEW.long(), NEW_Y.long()),
        (NEW, math.nan * NEW_Y),
        (NEW * math.nan, NEW_Y),
        (NEW, NEW_Y.tolist()),
    ):
        with pytest.raises(InvalidInput):
            KernelRidgeGP(X, Y, kernel(), RIDGE)
        with pytest.raises(InvalidInput):
            plain.condition_on_observations(X, Y)
    for bad in (Z[:, :1], Z.long()):
        with pytest.raises(InvalidInput):
            plain.posterior(bad)
    identical(plain.posterior(Z), before)


def test_bad_ridges_variances_and_dictionaries_are_refused(plain):
    given = NEW, NEW_Y, kernel()
    for ridge in (0.0, math.nan):
        with pytest.raises(InvalidInput, match="ridge"):
            KernelRidgeGP(*given, ridge)
    for noise in (0 * NEW_Y, 0.1):
        with pytest.raises(InvalidInput, match="noise"):
            plain.condition_on_observations(NEW, NEW_Y, noise=noise)
        with pytest.raises(InvalidInput, match="train_Yvar"):
            KernelRidgeGP(*given, RIDGE, train_Yvar=noise)
    for dictionary in (FixedDictionary(Z[:, :1]), "online"):
        with pytest.raises(InvalidInput):
            NystromGP(*given, RIDGE, dictionary)


@pytest.mark.parametrize("build", [KernelRidgeGP, NystromGP])
def test_a_missing_or_wrong_kernel_or_ridge_is_named(build):
    with pytest.raises(TypeError, match=r"missing.*'kernel' and 'ridge'"):
        build(*data(9))
    with pytest.raises(InvalidInput, match=r"kernel must be a gpytorch\.kernels\.Kernel"):
        build(*data(9), MaternKernel, 0.1)


# Sketched models


@pytest.mark.parametrize("kind", DICTIONARIES)
def test_a_conditioned_model_goes_on_with_the_dictionary_as_a_state_would(kind):
    X, Y = data(40)
    model = NystromGP(X[:20], Y[:20], kernel(), RIDGE, DICTIONARIES[kind]())
    before = model.state.m
    first, last = slice(20, 23), slice(23, 40)
    grown = model.condition_on_observations(X[first], Y[first])
    whole = grown.condition_on_observations(X[last], Y[last])
    other = model.condition_on_observations(X[last], Y[last])  # has drawn nothing from the first
    for one, rows, sizes in (
        (grown, range(23), [20, 3]),
        (whole, range(40), [20, 3, 17]),
        (other, [*range(20), *range(23, 40)], [20, 17]),
    ):
        # Only the default one sees together what came together: it takes the worst first.
        state = NystromRidge(kernel(), RIDGE, one.dictionary)
        for part in torch.tensor(rows).split(sizes if kind == "default" else 1):
            state.update(X[part], Y[part, 0])
        assert torch.equal(one.state.anchors, state.anchors)
        close(torch.stack(one.state.predict(Z)), torch.stack(state.predict(Z)), 1e-10)
        close(one.posterior(Z).mean[:, 0], state.predict(Z)[0], 1e-10)
        assert one.state.n == state.n
    assert whole.state.m != before


def test_the_default_dictionary_leaves_less_variance_than_the_noise_has_but_sees_something():
    X, Y = data(150)
    model = NystromGP(X, Y, kernel(), RIDGE)
    residual = Sketched(kernel(), X, Y[:, 0], model.state.anchors).residual.diagonal()
    assert float(residual.max()) <= 0.1 * RIDGE + 1e-9
    assert 100 <= model.state.m < 150
    grown = NystromGP(X[:60], Y[:60], kernel(), RIDGE).condition_on_observations(X[60:], Y[60:])
    assert torch.equal(grown.state.anchors, model.state.anchors)
    linear = LinearKernel().double()
    noisy = NystromGP(X[:20], Y[:20], linear, 100.0)
    largest = float(linear(X[:20].cpu(), diag=True).max().detach())
    assert noisy.dictionary.threshold == pytest.approx(0.01 * largest)
    assert noisy.state.m > 0
