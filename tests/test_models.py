"""``KernelRidgeGP`` is BoTorch's ``SingleTaskGP`` of fixed hyper-parameters, noise = ridge; ``NystromGP`` is DTC."""

from __future__ import annotations

import contextlib
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
from torch.autograd import gradcheck

from kbo._base.linalg import PANEL
from kbo.acquisition import KernelUCB
from kbo.confidence import NoiseBounds, SelfNormalized
from kbo.errors import InvalidInput
from kbo.models import AdaptiveRidgeGP, KernelRidgeGP, NystromGP, PosteriorGP
from kbo.regression import (
    BatchedResampling,
    FixedDictionary,
    GreedyDictionary,
    KernelRidge,
    LeverageResampling,
    NystromRidge,
    OnlineRowSampling,
)
from tests.dense import Dense, Sketched, close

RIDGE = 0.05
SCALE = torch.tensor([2.0, 5.0], dtype=torch.float64)  # the size of the search space
BOUNDS = torch.stack([-torch.ones(2, dtype=torch.float64), SCALE - 1])


def points(*shape: int, device="cpu", seed: int = 0) -> Tensor:
    X = (
        torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        * SCALE
        - 1
    )
    return X.to(device)


def data(n: int, device="cpu") -> tuple[Tensor, Tensor]:
    X = points(n, 2, device=device)
    noise = torch.randn(n, 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(
        device
    )
    return X, 3 + 2 * torch.sin(3 * X).sum(-1, keepdim=True) + 0.2 * noise


def kernel() -> ScaleKernel:
    kernel = ScaleKernel(MaternKernel(nu=2.5, ard_num_dims=2)).double()
    kernel.base_kernel.lengthscale, kernel.outputscale = torch.tensor([[0.4, 0.9]]), 1.7
    return kernel


TRANSFORMS: dict[str, Callable[[], dict[str, Any]]] = {
    "plain": dict,
    "both": lambda: {"input_transform": Normalize(2), "outcome_transform": Standardize(1)},
}
BOTH = TRANSFORMS["both"]
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
    model = MODELS[name](X, Y, **transforms(), **({} if Yvar is None else {"train_Yvar": Yvar}))
    likelihood = GaussianLikelihood(noise_constraint=Positive()) if Yvar is None else None
    options = {"outcome_transform": None, "likelihood": likelihood, **transforms()}
    reference = SingleTaskGP(
        X, Y, Yvar, covar_module=kernel(), mean_module=ZeroMean(), **options
    ).to(X)
    if Yvar is None:
        reference.likelihood.noise = model.likelihood.noise.detach()
    return model, reference.eval()


def model_and_reference(
    transforms, device="cpu", known: bool = False
) -> tuple[KernelRidgeGP, SingleTaskGP]:
    Yvar = 0.01 + 0.3 * points(25, 2, device=device, seed=8)[:, :1].abs() if known else None
    return beside("KernelRidgeGP", *data(25, device), Yvar, transforms)


@pytest.fixture(params=TRANSFORMS.values(), ids=TRANSFORMS)
def pair(request, device) -> tuple[KernelRidgeGP, SingleTaskGP]:
    return model_and_reference(request.param, device)


@pytest.fixture
def plain(device) -> KernelRidgeGP:
    given = kernel()
    model = KernelRidgeGP(*data(25, device), given, RIDGE)
    assert all(parameter.requires_grad for parameter in given.parameters())
    given.outputscale = 9.0  # the model has a copy
    return model


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


DICTIONARIES = {
    "default": lambda: None,
    "online": lambda: OnlineRowSampling(RIDGE, 1.0),
    "resampled": lambda: LeverageResampling(1.5),
    "batched": lambda: BatchedResampling(1.5, 2.0),
}


def sketched(kind: str, device, n: int = 40, **transforms) -> NystromGP:
    return NystromGP(*data(n, device), kernel(), RIDGE, DICTIONARIES[kind](), **transforms)


@pytest.fixture(params=["exact", "default", "resampled"])
def model(request, device) -> KernelRidgeGP | NystromGP:
    if request.param == "exact":
        return KernelRidgeGP(*data(25, device), kernel(), RIDGE, **BOTH())
    return sketched(request.param, device, 25, **BOTH())


# Posteriors


@pytest.mark.parametrize("shape", [(1,), (2, 3, 4), (0, 4)])
def test_the_joint_posterior_and_its_gradient_are_those_of_botorch(pair, device, shape):
    model, reference = pair
    X = points(*shape, 2, device=device, seed=5)
    posterior = model.posterior(X)
    assert posterior.mean.shape == (*shape, 1)
    same(posterior, reference.posterior(X))
    assert (model.num_outputs, model.batch_shape) == (reference.num_outputs, reference.batch_shape)
    parts = lambda X: (model.posterior(X).mean, model.posterior(X).distribution.covariance_matrix)  # noqa: E731
    assert shape != (1,) or gradcheck(parts, points(3, 2, device=device, seed=5).requires_grad_())


def test_the_covariance_of_many_points_is_lazy_and_right(plain, device):
    X = points(200, 2, device=device, seed=5)
    posterior, part = plain.posterior(X), torch.arange(0, 200, 20)
    dense = Dense(kernel(), plain.train_inputs[0], plain.train_targets)
    close(posterior.mean[part, 0], dense.mean(X[part], RIDGE))
    found = posterior.distribution.lazy_covariance_matrix
    assert not isinstance(found, DenseLinearOperator)
    close(found[part][:, part].to_dense().detach(), dense.covariance(X[part], X[part], RIDGE), 1e-6)
    assert posterior.rsample(torch.Size([2])).shape == (2, 200, 1)


# Hyper-parameters, copies, types of numbers


def test_a_changed_hyper_parameter_takes_effect(device):
    model, reference = model_and_reference(BOTH, device)
    X = points(3, 4, 2, device=device, seed=5)
    model.posterior(X)
    for one in (model, reference):
        one.covar_module.base_kernel.lengthscale, one.covar_module.outputscale = 0.7, 3.0
    same(model.posterior(X), reference.posterior(X))
    model.ridge.data.fill_(0.2)
    reference.likelihood.noise = 0.2
    reference.train()
    same(model.posterior(X), reference.eval().posterior(X))


@pytest.mark.parametrize("stored", range(3))
def test_an_interrupted_build_leaves_no_state_of_another_ridge(monkeypatch, plain, stored):
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
    for after in (1.0, RIDGE):
        plain.ridge.data.fill_(after)
        assert plain.state.ridge == after
        assert bool(plain.state.provenance.caveats) == (after != RIDGE)


def rescaled(model, scale: float = 9.0) -> None:
    model.covar_module.outputscale = scale


def child(model):
    return model.condition_on_observations(some(model), some(model)[:, :1])


def some(model) -> Tensor:
    return points(3, 2, seed=9).to(model.train_targets)


def replaced_and_back(model, X: Tensor, y: Tensor) -> None:
    model.set_train_data(some(model), y[:3])
    assert model.posterior(X).mean.shape == (len(X), 1) != (model.state.n, 1)
    model.set_train_data(X, y)


def refilled(model) -> None:
    model.load_state_dict(
        {name: value + 1 for name, value in model.state_dict().items()}, strict=False
    )


ELSEWHERE = {
    "training mode and back": lambda model: model.train().eval(),
    "a child": lambda model: child(model).posterior(some(model)),
    "a child in float32": lambda model: child(model).to(torch.float32),
    "a child's ridge": lambda model: child(model).ridge.data.fill_(1.0),
    "a child's kernel": lambda model: rescaled(child(model)),
    "a child's state dict": lambda model: refilled(child(model)),
    "a deep copy's kernel": lambda model: rescaled(copy.deepcopy(model)),
    "a pickle's kernel": lambda model: rescaled(pickle.loads(pickle.dumps(model))),
    "its own kernel, and back": lambda model: (
        rescaled(model),
        model.posterior(some(model)),
        rescaled(model, 1.7),
    ),
    "its own data, and back": lambda model: replaced_and_back(
        model, *model.train_inputs, model.train_targets
    ),
}


@pytest.mark.parametrize("change", ELSEWHERE.values(), ids=ELSEWHERE)
def test_a_posterior_stays_what_it_is_whatever_is_done_elsewhere(model, device, change):
    X = points(4, 2, device=device, seed=5)
    before, inputs = model.posterior(X), model.train_inputs[0]
    change(model)
    close(model.train_inputs[0], inputs, 1e-12)
    identical(model.posterior(X), before)


def test_copies_and_state_dicts_have_the_same_posterior_and_go_on_alike(model, device):
    X = points(4, 2, device=device, seed=5)
    other = copy.deepcopy(model)
    rescaled(other)
    other.ridge.data.fill_(1.0)
    assert not torch.equal(other.posterior(X).mean, model.posterior(X).mean)
    other.load_state_dict(model.state_dict())
    for one in (other, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        same(one.posterior(X), model.posterior(X), 1e-12)
        same(child(one).posterior(X), child(model).posterior(X), 1e-12)


def test_moving_to_float32_and_back_keeps_the_posterior(model, device):
    X = points(4, 2, device=device, seed=5)
    before = model.posterior(X)
    single = model.to(torch.float32).posterior(X.float())
    assert single.mean.dtype == single.variance.dtype == torch.float32
    close(single.mean.double(), before.mean, 1e-2)
    close(model.to(torch.float64).posterior(X).mean, before.mean, 1e-4)


def test_a_model_that_was_in_float32_has_no_guarantee(device):
    (X, Y), bound = data(25, device), SelfNormalized(RIDGE**0.5, 3e6, 0.1)
    model = KernelRidgeGP(X, 1e6 + Y, kernel(), RIDGE)
    rounded = copy.deepcopy(model).float().double()
    for one, certified in (
        (model.double(), True),
        (rounded, False),
        (rounded.condition_on_observations(X, Y), False),
    ):
        ucb = KernelUCB(one, bound)
        assert (ucb.guarantee is not None) == certified
        assert any("rounded to torch.float32" in reason for reason in ucb.objections) != certified
    empty = KernelRidgeGP(X[:0], Y[:0], kernel(), RIDGE).float().double()
    assert KernelUCB(empty.condition_on_observations(X, Y), bound).guarantee is not None


# More data


def new_data(device, *batch: int) -> tuple[Tensor, Tensor]:
    return points(*batch, 3, 2, device=device, seed=9), points(
        *batch, 3, 2, device=device, seed=10
    )[..., :1] + 3


def test_conditioning_equals_a_model_of_all_data(plain, device):
    (X, Y), Z = new_data(device), points(2, 4, 2, device=device, seed=5)
    grandchild = plain.condition_on_observations(X, Y).condition_on_observations(X[:1] + 0.1, Y[:1])
    old = data(25, device)
    everything = KernelRidgeGP(
        torch.cat([old[0], X, X[:1] + 0.1]), torch.cat([old[1], Y, Y[:1]]), kernel(), RIDGE
    )
    same(grandchild.posterior(Z), everything.posterior(Z), 1e-8)


def test_conditioning_shares_the_factor(device):
    model = KernelRidgeGP(*data(PANEL + 50, device), kernel(), RIDGE)
    model.posterior(points(1, 2, device=device))
    parts = [one.state.factor(RIDGE)._panels[0] for one in (model, child(model))]
    assert parts[0].rows.data_ptr() == parts[1].rows.data_ptr()


def test_conditioning_on_plain_data_keeps_no_graph(plain, device):
    X, Y = new_data(device)
    once = plain.condition_on_observations(X, Y)
    for one in (once, once.condition_on_observations(X, Y)):
        posterior = one.posterior(X)
        kept = [
            one.train_inputs[0],
            one.train_targets,
            posterior.mean,
            posterior.variance,
            covariance(posterior),
        ]
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


def test_fantasies_condition_the_posterior_and_are_differentiable(model, device):
    """Also those of a sketch, whose dictionary they leave as it is."""
    Z = points(4, 2, device=device, seed=5)
    X, Y = (tensor.requires_grad_() for tensor in new_data(device))
    assert gradcheck(
        lambda X, Y: model.condition_on_observations(X, Y).posterior(Z[:2]).mean, (X, Y)
    )
    joint = model.posterior(torch.cat([Z, X]).detach())
    mean, C = joint.mean[:, 0], covariance(joint)
    noise = RIDGE * model.outcome_transform.stdvs[0, 0] ** 2
    gain = torch.linalg.solve(C[4:, 4:] + noise * torch.eye(3).to(C), C[4:])
    fantasy = model.condition_on_observations(X, Y).posterior(Z)
    close(fantasy.mean[:, 0].detach(), mean[:4] + gain[:, :4].mT @ (Y[:, 0].detach() - mean[4:]))
    close(covariance(fantasy), C[:4, :4] - C[:4, 4:] @ gain[:, :4])
    sampler = SobolQMCNormalSampler(torch.Size([4]), seed=0)
    assert model.fantasize(points(3, 2, 2, device=device, seed=9), sampler).posterior(
        Z
    ).mean.shape == (4, 3, 4, 1)


def test_known_variances_are_weights_and_data_without_them_have_the_ridge(plain, device):
    (X, Y), Z = new_data(device), points(4, 2, device=device, seed=5)
    noise = torch.full_like(Y, 0.5)
    grown = plain.condition_on_observations(X, Y, noise=noise).condition_on_observations(
        Z, Z[:, :1]
    )
    variances = torch.cat(
        [torch.full_like(plain.train_targets, RIDGE), noise[:, 0], torch.full_like(Z[:, 0], RIDGE)]
    )
    given = grown.train_inputs[0], grown.train_targets[:, None], kernel(), RIDGE
    rebuilt = KernelRidgeGP(*given, train_Yvar=variances[:, None])
    close(grown.train_Yvar, variances, 1e-12)
    same(grown.posterior(Z + 0.1), rebuilt.posterior(Z + 0.1), 1e-8)
    assert "weight" in SelfNormalized(RIDGE**0.5, 20.0, 0.1).guarantee_on(grown.state)


def test_a_model_is_constructed_from_a_data_set_and_options(device):
    X, Y = data(20, device)
    dataset = SupervisedDataset(X, Y, feature_names=["a", "b"], outcome_names=["y"])
    given, Z = {"kernel": kernel(), "ridge": RIDGE}, points(3, 2, device=device, seed=5)
    for kind, options in [
        (KernelRidgeGP, {"input_transform": Normalize(2)}),
        (NystromGP, {}),
        (NystromGP, {"dictionary": GreedyDictionary(0.1)}),
    ]:
        model = kind(**kind.construct_inputs(dataset, **given, **options))
        identical(model.posterior(Z), kind(X, Y, **given, **options).posterior(Z))
        with pytest.raises(TypeError, match="rigde"):
            kind(**kind.construct_inputs(dataset, **given, rigde=RIDGE))


# Bad input

NAN = torch.tensor([[math.nan]], dtype=torch.float64)
BAD = {
    "Y without its column": lambda X, Y: (X, Y.squeeze(-1)),
    "too few targets": lambda X, Y: (X, Y[1:]),
    "X without its rows": lambda X, Y: (X[:, 0], Y),
    "whole numbers": lambda X, Y: (X.long(), Y.long()),
    "NaN in Y": lambda X, Y: (X, torch.cat([Y[1:], NAN.to(Y)])),
    "NaN in X": lambda X, Y: (X * NAN.to(X), Y),
    "no tensor": lambda X, Y: (X, Y.tolist()),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_bad_data_are_refused_and_change_nothing(plain, device, bad):
    with pytest.raises(InvalidInput):
        KernelRidgeGP(*bad(*data(6, device)), kernel(), RIDGE)
    X = points(4, 2, device=device)
    before = plain.posterior(X)
    with pytest.raises(InvalidInput):
        plain.condition_on_observations(*bad(*new_data(device)))
    identical(plain.posterior(X), before)


def test_bad_ridges_variances_and_dictionaries_are_refused(plain, device):
    X, Y = new_data(device)
    for ridge in (0.0, -1.0, math.nan):
        with pytest.raises(InvalidInput, match="ridge"):
            KernelRidgeGP(X, Y, kernel(), ridge)
    for noise in (0 * Y, torch.ones_like(Y[:, 0]), 0.1):
        with pytest.raises(InvalidInput, match="noise"):
            plain.condition_on_observations(X[None], Y[None], noise=noise)
        with pytest.raises(InvalidInput, match="train_Yvar"):
            KernelRidgeGP(X, Y, kernel(), RIDGE, train_Yvar=noise)
    for dictionary in (FixedDictionary(points(4, 2)[:, :1]), points(4, 2), "online"):
        with pytest.raises(InvalidInput):
            NystromGP(X, Y, kernel(), RIDGE, dictionary)


@pytest.mark.parametrize("bad", [lambda X: X[:, :1], lambda X: X.long()])
def test_a_posterior_at_bad_points_is_refused(plain, device, bad):
    with pytest.raises(InvalidInput):
        plain.posterior(bad(points(4, 2, device=device)))


@pytest.mark.parametrize("build", [KernelRidgeGP, NystromGP])
def test_a_missing_or_wrong_kernel_or_ridge_is_named(device, build):
    for given, missing in [({}, "'kernel' and 'ridge'"), ({"kernel": kernel()}, "'ridge'")]:
        with pytest.raises(TypeError, match=rf"missing.*{missing}"):
            build(*data(9, device), **given)
    for wrong in ("matern", MaternKernel):
        with pytest.raises(InvalidInput, match=r"kernel must be a gpytorch\.kernels\.Kernel"):
            build(*data(9, device), wrong, 0.1)


# Sketched models


def stream_of(model: NystromGP, X: Tensor, Y: Tensor, sizes: list[int]) -> NystromRidge:
    """One state that is given all data in their order, in parts of these sizes."""
    state = NystromRidge(kernel(), RIDGE, model.dictionary)
    for part, values in zip(X.split(sizes), Y.split(sizes), strict=True):
        state.update(part, values[:, 0])
    return state


@pytest.mark.parametrize("kind", DICTIONARIES)
def test_a_conditioned_model_goes_on_with_the_dictionary_as_a_state_would(device, kind):
    model, (X, Y), Z = (
        sketched(kind, device, 20),
        data(40, device),
        points(6, 2, device=device, seed=5),
    )
    X[:20], Y[:20] = data(20, device)
    child = model.condition_on_observations(X[20:23], Y[20:23])
    grandchild = child.condition_on_observations(X[23:], Y[23:])
    other = model.condition_on_observations(
        X[23:], Y[23:]
    )  # the children have drawn nothing from the parent
    without = torch.cat([X[:20], X[23:]]), torch.cat([Y[:20], Y[23:]])
    parts = {child: [20, 3], grandchild: [20, 3, 17], other: [20, 17]}
    for one, given in ((child, (X[:23], Y[:23])), (grandchild, (X, Y)), (other, without)):
        # Only the default one sees together what came together: it takes the worst first.
        state = stream_of(model, *given, parts[one] if kind == "default" else [1] * len(given[0]))
        assert torch.equal(one.state.anchors, state.anchors)
        close(torch.stack(one.state.predict(Z)), torch.stack(state.predict(Z)), 1e-10)
        close(one.posterior(Z).mean[:, 0], state.predict(Z)[0], 1e-10)
        assert one.state.n == state.n
    assert grandchild.state.m != model.state.m


def test_the_default_dictionary_leaves_less_variance_than_the_noise_has_but_sees_something(device):
    X, Y = data(150, device)
    model = NystromGP(X, Y, kernel(), RIDGE)
    residual = Sketched(kernel(), X, Y[:, 0], model.state.anchors).residual.diagonal()
    assert float(residual.max()) <= 0.1 * RIDGE + 1e-9
    assert 100 <= model.state.m < 150
    grown = NystromGP(X[:60], Y[:60], kernel(), RIDGE).condition_on_observations(X[60:], Y[60:])
    assert torch.equal(grown.state.anchors, model.state.anchors)
    k = LinearKernel().double()
    noisy = NystromGP(X[:20], Y[:20], k, 100.0)
    assert noisy.dictionary.threshold == pytest.approx(
        0.01 * float(k(X[:20].cpu(), diag=True).max().detach())
    )
    assert noisy.state.m > 0


def test_a_default_dictionary_follows_the_hyper_parameters_that_are_loaded(device):
    X, Y = data(60, device)
    model, trained = NystromGP(X, Y, kernel(), 0.5), NystromGP(X, Y, kernel(), 1e-4)
    model.load_state_dict(trained.state_dict())
    close(model.posterior(X).mean, trained.posterior(X).mean, 1e-12)
    assert model.dictionary.threshold == trained.dictionary.threshold


def test_a_dictionary_may_begin_with_points_in_the_units_of_the_data(device):
    X, Y = data(40, device)
    dictionary = GreedyDictionary(0.1)
    dictionary.points = points(3, 2, device=device, seed=7)
    model = NystromGP(X, Y, kernel(), RIDGE, dictionary, input_transform=Normalize(2))
    close(model.state.anchors[:3], (dictionary.points - X.amin(0)) / (X.amax(0) - X.amin(0)))
    assert 3 < model.state.m < 40
