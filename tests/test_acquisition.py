"""Upper confidence bounds inside BoTorch's optimisers."""

from __future__ import annotations

import copy
import inspect

import pytest
import torch
from botorch.acquisition.objective import (
    ExpectationPosteriorTransform,
    ScalarizedPosteriorTransform,
)
from botorch.models import ModelListGP
from botorch.models.transforms import Normalize
from botorch.models.transforms.input import Log10
from botorch.models.transforms.outcome import OutcomeTransform
from botorch.optim import optimize_acqf
from gpytorch.kernels import MaternKernel
from torch import Tensor
from torch.autograd import gradcheck

from kbo.acquisition import AMMUCB, DMMUCB, KernelUCB, SafeExpander
from kbo.confidence import Confidence, FixedWidth, ImprovedGPUCB, MartingaleMixture
from kbo.errors import InvalidInput
from kbo.models import KernelRidgeGP
from tests.conftest import DEVICE
from tests.dense import close
from tests.laws.states import seeded

pytestmark = pytest.mark.usefixtures("device")
MIXTURE = {"noise_std": 0.2, "norm_bound": 8.0, "delta": 0.1}


def points(*shape: int, device=DEVICE, seed: int = 0) -> Tensor:
    return 2 * torch.rand(*shape, generator=seeded(seed), dtype=torch.float64).to(device)


def box(device=DEVICE) -> Tensor:
    return torch.tensor([[0.0, 0.0], [2.0, 2.0]], dtype=torch.float64, device=device)


def minus(device=DEVICE) -> ScalarizedPosteriorTransform:
    return ScalarizedPosteriorTransform(torch.tensor([-1.0], dtype=torch.float64, device=device))


X = points(6, 1, 2, seed=3)
PENDING = points(2, 2, seed=4)


@pytest.fixture(scope="session")
def model() -> KernelRidgeGP:
    X = points(25, 2)
    kernel = MaternKernel(nu=2.5).double()
    kernel.lengthscale = 0.3
    Y = torch.sin(3 * X).sum(-1, keepdim=True)
    return KernelRidgeGP(X, Y, kernel, 0.05, input_transform=Normalize(2))


RULES = {
    "igp": lambda model, **kwargs: KernelUCB(model, ImprovedGPUCB(**MIXTURE, eta=0.01), **kwargs),
    "amm": lambda model, **kwargs: AMMUCB(model, **MIXTURE, **kwargs),
    "dmm": lambda model, **kwargs: DMMUCB(model, **MIXTURE, **kwargs),
}


@pytest.fixture(scope="session", params=RULES.values(), ids=RULES)
def rule(request):
    return request.param


# Values


def test_the_value_of_a_point_is_its_upper_bound_and_weights_and_offsets_act_on_it(rule, model):
    P = model.transform_inputs(X)
    lower, upper = (bound.squeeze(-1) for bound in rule(model).confidence.interval(model.state, P))
    close(rule(model)(X), upper)
    close(rule(model, posterior_transform=minus())(X), -lower)
    transform = ScalarizedPosteriorTransform(torch.tensor([2.0]).to(X), offset=3.0)
    close(rule(model, posterior_transform=transform)(X), 2 * upper + 3)
    trained = model.transform_inputs(points(25, 2))
    flipped = KernelRidgeGP(trained, -model.train_targets.unsqueeze(-1), model.covar_module, 0.05)
    close(rule(flipped)(P), -lower)


def test_a_batch_is_worth_the_mean_of_bounds_that_know_the_points_before(rule, model):
    X = points(4, 3, 2, seed=3)
    for x, value in zip(X, rule(model)(X), strict=True):
        terms = [rule(model, X_pending=x[:i])(x[i : i + 1]) for i in range(3)]
        close(value, torch.cat(terms).mean())


def test_pending_points_lower_the_value_there_and_raise_it_nowhere_and_can_be_cleared(rule, model):
    X = points(50, 1, 2, seed=3)
    acqf = rule(model)
    everywhere = acqf(X)
    there = acqf(PENDING.unsqueeze(1))
    given = PENDING.clone().requires_grad_()
    acqf.set_X_pending(given)
    given.data.zero_()  # it has a copy without gradients
    assert (acqf(PENDING.unsqueeze(1)) < there - 0.1).all()
    assert (acqf(X) <= everywhere + 1e-12).all()
    assert not acqf(X).requires_grad
    for nothing in (None, X[:0, 0]):
        acqf.set_X_pending(PENDING)
        acqf.set_X_pending(nothing)
        assert torch.equal(acqf(X), everywhere)
        assert acqf.X_pending is None


def test_pending_points_follow_a_changed_model(rule, model):
    model = copy.deepcopy(model)
    acqf = rule(model, X_pending=PENDING)
    before = acqf(X)
    model.covar_module.lengthscale = 1.1 * model.covar_module.lengthscale.detach()
    assert torch.equal(acqf(X), rule(model, X_pending=PENDING)(X))
    assert not torch.equal(acqf(X), before)
    acqf.set_X_pending(PENDING[:1])
    assert torch.equal(acqf(X), rule(model, X_pending=PENDING[:1])(X))


def test_pending_points_that_the_model_cannot_transform_are_refused(model):
    given = X[:, 0] + 0.1, X[:, 0, :1], model.covar_module, 0.05
    model = KernelRidgeGP(*given, input_transform=Log10(indices=[0, 1]))
    limits = [FixedWidth(2.0)] * 2, 0, {1: (None, 9.0)}
    for acqf in (
        RULES["dmm"](model, X_pending=-PENDING),
        SafeExpander(ModelListGP(model, model), *limits, X_pending=-PENDING),
    ):
        with pytest.raises(InvalidInput, match="X_pending: P contains NaN"):
            acqf(0.1 + X)


@pytest.mark.parametrize(("make", "kind"), [(AMMUCB, "amm"), (DMMUCB, "dmm")])
def test_mixtures_by_name_are_those_of_their_bound(make, kind, model):
    bound = MartingaleMixture(**MIXTURE, kind=kind, scale=2.0)
    close(make(model, **MIXTURE, scale=2.0)(X), KernelUCB(model, bound)(X))


# Gradients and transforms


@pytest.mark.parametrize("scale", [3.0, -3.0])
def test_an_interval_is_in_the_units_of_the_data(scale):
    X = points(25, 2)
    Y = torch.sin(3 * X).sum(-1, keepdim=True)
    kernel = MaternKernel(nu=2.5).double()
    plain = KernelRidgeGP(X, Y, kernel, 0.05)
    moved = AffineOutcome(5.0, scale)
    rescaled = KernelRidgeGP(X, 5.0 + scale * Y, kernel, 0.05, outcome_transform=moved)
    new = points(4, 2, seed=9)
    ends = torch.stack(AMMUCB(plain, **MIXTURE).interval(new))
    close(ends, torch.stack(MartingaleMixture(**MIXTURE, kind="amm").interval(plain.state, new)))
    expected = (5.0 + scale * ends).sort(0).values
    close(
        torch.stack(AMMUCB(rescaled, **MIXTURE, posterior_transform=minus()).interval(new)),
        expected,
    )


class MeanOnly(Confidence):
    def interval(self, state, X):
        return state.predict(X)[0]


def test_a_wrong_confidence_is_named(model):
    with pytest.raises(InvalidInput, match="MeanOnly must return lower and upper bound"):
        KernelUCB(model, MeanOnly())(X)
    with pytest.raises(InvalidInput, match="FixedWidth"):
        KernelUCB(model, 2.0)
    assert list(inspect.signature(FixedWidth).parameters) == ["multiplier"]


class AffineOutcome(OutcomeTransform):
    """Targets that are ``offset + scale`` times those that the model sees."""

    def __init__(self, offset, scale):
        super().__init__()
        self.offset = offset
        self.scale = scale

    def forward(self, Y, Yvar=None, X=None):
        return (Y - self.offset) / self.scale, Yvar

    def untransform(self, Y, Yvar=None, X=None):
        return self.offset + self.scale * Y, Yvar


def test_gradients_are_exact_and_second_derivatives_are_refused(model):
    acqf = RULES["dmm"](model, posterior_transform=minus(), X_pending=PENDING)
    assert gradcheck(acqf, points(2, 2, 2, seed=3).requires_grad_())
    at = X.clone().requires_grad_()
    with pytest.raises(InvalidInput, match="second derivatives"):
        torch.autograd.grad(acqf(at).sum(), at, create_graph=True)


def test_other_posterior_transforms_are_refused(model):
    two_outputs = ScalarizedPosteriorTransform(torch.ones(2).double())
    for transform in (two_outputs, ExpectationPosteriorTransform(n_w=2)):
        with pytest.raises(InvalidInput, match="posterior_transform"):
            RULES["dmm"](model, posterior_transform=transform)


# Optimisers


# The searches start from the best of the raw samples: BoTorch's random choice of starts misses the maximum at times.
OPTIONS = {
    "num_restarts": 6,
    "raw_samples": 256,
    "options": {"seed": 0, "maxiter": 100, "topn": True},
}
FEW = {**OPTIONS, "num_restarts": 2}


def test_optimize_acqf_finds_the_maximum_and_with_weight_minus_one_the_minimum(rule, model):
    axis = torch.linspace(0, 2, 40).to(X)
    grid = torch.cartesian_prod(axis, axis).unsqueeze(1)
    for transform in (None, minus()):
        acqf = rule(model, posterior_transform=transform)
        x, value = optimize_acqf(acqf, box(), q=1, **FEW)
        close(acqf(x), value.reshape(1))
        assert value > acqf(grid).max() - 1e-3


def test_batches_are_optimised_sequentially_and_jointly(model):
    acqf = RULES["igp"](model)
    greedy, _ = optimize_acqf(acqf, box(), q=3, sequential=True, **FEW)
    start = {"batch_initial_conditions": greedy.unsqueeze(0), "num_restarts": 1}
    joint, value = optimize_acqf(acqf, box(), q=3, **start)
    assert acqf.X_pending is None
    assert greedy.shape == joint.shape == (3, 2)
    assert torch.pdist(greedy).min() > 0.05
    assert value >= acqf(greedy) - 1e-9
    assert value > acqf(points(100, 3, 2, seed=6)).max()
