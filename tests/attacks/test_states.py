"""Attacks on states and bounds: after each, a bound has no guarantee, or the attack is refused."""

import copy
import io

import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, RQKernel

from kbo.confidence import (
    BKB,
    EKUCB,
    AdaptiveSelfNormalized,
    Chaining,
    FiniteSet,
    ImprovedGPUCB,
    MartingaleMixture,
    NoiseBounds,
    SelfNormalized,
    UnknownNorm,
)
from kbo.errors import KboError
from kbo.kernels import freeze
from kbo.models import KernelRidgeGP
from kbo.recipes import pareto_set
from kbo.regression import (
    AdaptiveRidge,
    FixedDictionary,
    GreedyDictionary,
    KernelRidge,
    LeverageResampling,
    NystromRidge,
    OnlineRowSampling,
)

NOISE, NORM, DELTA = 0.1, 2.0, 0.1
X = torch.rand(12, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = torch.sin(4 * X).sum(-1)

STATES = {
    "exact": KernelRidge,
    "fixed": lambda kernel, ridge: NystromRidge(kernel, ridge, FixedDictionary(X[:5])),
    "online": lambda kernel, ridge: NystromRidge(kernel, ridge, OnlineRowSampling(0.01)),
    "greedy": lambda kernel, ridge: NystromRidge(kernel, ridge, GreedyDictionary(0.1)),
    "resampled": lambda kernel, ridge: NystromRidge(kernel, ridge, LeverageResampling(2.0)),
}


def learned(make, kernel=None, ridge: float = NOISE**2, X=X, y=Y):
    state = make(MaternKernel(nu=0.5) if kernel is None else kernel, ridge)
    state.update(X, y)
    return state


BOUNDS = {
    "self-normalized": lambda: SelfNormalized(NOISE, NORM, DELTA),
    "improved": lambda: ImprovedGPUCB(NOISE, NORM, DELTA, 0.1),
    "mixture": lambda: MartingaleMixture(NOISE, NORM, DELTA),
    "unknown norm": lambda: UnknownNorm(NOISE, DELTA),
    "bkb": lambda: BKB(NOISE, NORM, DELTA),
    "ek-ucb": lambda: EKUCB(NOISE, NORM, DELTA, 0.0),
    "finite": lambda: FiniteSet(X, DELTA),
    "chaining": lambda: Chaining(DELTA, rigorous=True, points=X),
    "noise": lambda: NoiseBounds(NORM, DELTA, 1.0),
}


@pytest.mark.parametrize("name", BOUNDS)
def test_numbers_that_a_statement_names_are_read_only(name):
    bound = BOUNDS[name]()
    for twin in (bound, copy.deepcopy(bound), copy.copy(bound)):
        named = [n for n in ("noise_std", "norm_bound", "delta", "upper", "guarantee") if hasattr(twin, n)]
        assert "delta" in named
        for attribute in named:
            before = getattr(twin, attribute)
            with pytest.raises((KboError, AttributeError), match=attribute):
                setattr(twin, attribute, 0.01)
            assert getattr(twin, attribute) == before


@pytest.mark.parametrize("name", STATES)
@pytest.mark.parametrize("attribute", ["ridge", "kernel"])
def test_ridge_and_kernel_of_a_state_are_read_only(name, attribute):
    state = learned(STATES[name])
    for view in (state, state.fork(), copy.deepcopy(state)):
        with pytest.raises((KboError, AttributeError), match=attribute):
            setattr(view, attribute, RBFKernel() if attribute == "kernel" else 7.0)
        assert view.ridge == NOISE**2
    state.move_ridge(0.5)
    assert any("ridge" in reason for reason in SelfNormalized(NOISE, NORM, DELTA).objections(state))


def test_the_ridge_of_a_schedule_is_read_only():
    bounds = NoiseBounds(NORM, DELTA, 1.0)
    state = AdaptiveRidge(KernelRidge(RBFKernel(), bounds.ridge), bounds)
    state.update(X, Y)
    with pytest.raises(KboError, match="ridge"):
        state.ridge = 1.0
    with pytest.raises(KboError, match="upper"):
        state.schedule.upper = 0.01
    assert AdaptiveSelfNormalized().guarantee_on(state)


OTHERS = {
    "smoothness": lambda: MaternKernel(nu=1.5),
    "class": lambda: RBFKernel(),
    "mixture": lambda: RQKernel(),
}


@pytest.mark.parametrize("name", STATES)
@pytest.mark.parametrize("other", OTHERS)
def test_a_state_of_another_kernel_has_no_guarantee(name, other):
    saved = learned(STATES[name]).state_dict()
    buffer = io.BytesIO()
    torch.save(saved, buffer)
    buffer.seek(0)
    for state_dict in (saved, torch.load(buffer, weights_only=True)):
        same, foreign = STATES[name](MaternKernel(nu=0.5), NOISE**2), STATES[name](OTHERS[other](), NOISE**2)
        same.load_state_dict(state_dict)
        assert not same.objections()
        foreign.load_state_dict(state_dict)
        assert "another kernel" in foreign.objections()[0]
        again = STATES[name](OTHERS[other](), NOISE**2)
        again.load_state_dict(foreign.state_dict())
        assert again.objections()


class Subclass(MaternKernel):
    """A subclass that changes nothing."""


class Expanded(MaternKernel):
    """Distances from ``|x|^2 - 2xz + |z|^2``."""

    def forward(self, x1, x2, diag=False, **params):
        a, b = x1 / self.lengthscale, x2 / self.lengthscale
        square = a.square().sum(-1, keepdim=True) - 2 * a @ b.mT + b.square().sum(-1).unsqueeze(-2)
        value = (-square.clamp_min(1e-30).sqrt()).exp()
        return value.diagonal(dim1=-2, dim2=-1) if diag else value


@pytest.mark.parametrize("kernel", [Subclass(nu=0.5), RQKernel(), MaternKernel(nu=0.5) * RQKernel()])
def test_distances_of_all_kernels_come_from_differences(kernel):
    many = X.repeat(3, 1) + torch.linspace(0, 1, 3 * len(X), dtype=X.dtype).unsqueeze(-1)
    k, Z = freeze(kernel, X), many + 1e-9
    r = (many.unsqueeze(1) - Z.unsqueeze(0)).norm(dim=-1) / 0.6931471805599453
    exact = {"Subclass": (-r).exp(), "RQKernel": 1 / (1 + r**2 / (2 * 0.6931471805599453)) ** 0.6931471805599453}
    exact["ProductKernel"] = exact["Subclass"] * exact["RQKernel"]
    torch.testing.assert_close(k(many, Z), exact[type(kernel).__name__], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", STATES)
def test_a_kernel_of_unknown_formula_has_no_guarantee_at_small_ridges(name):
    bound = SelfNormalized(2e-4, NORM, DELTA)
    state = learned(STATES[name], Expanded(nu=0.5), 4e-8)
    assert any("is assumed of a kernel" in reason for reason in bound.objections(state))
    assert SelfNormalized(NOISE, NORM, DELTA).guarantee_on(learned(STATES["exact"], Expanded(nu=0.5)))


KERNELS = {
    "matern": lambda: MaternKernel(nu=0.5),
    "product": lambda: MaternKernel(nu=0.5, active_dims=(0,)) * RBFKernel(active_dims=(1,)),
    "generic": lambda: RQKernel(),
    "ard": lambda: MaternKernel(nu=0.5, ard_num_dims=2),
}


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("name", ["exact", "fixed", "online"])
def test_points_that_are_far_from_zero_have_no_guarantee_at_small_ridges(name, kernel):
    bound = SelfNormalized(NOISE, NORM, DELTA)
    assert bound.guarantee_on(learned(STATES[name], KERNELS[kernel](), X=X + 1e3))
    state = learned(STATES[name], KERNELS[kernel](), X=X + 1e13)
    loaded = STATES[name](KERNELS[kernel](), NOISE**2)
    loaded.load_state_dict(state.state_dict())
    for far in (state, state.fork(), loaded):
        assert any(reason.startswith("rounding") for reason in bound.objections(far))


@pytest.mark.parametrize("make", [lambda: FiniteSet(X, DELTA), lambda: FiniteSet(len(X), DELTA), BOUNDS["chaining"]])
def test_bounds_over_a_set_object_to_other_points(make):
    state, bound = learned(KernelRidge, RBFKernel()), make()
    bound.interval(state, X[:3])
    bound.interval(state, X.flip(0).repeat(2, 1))
    assert bound.guarantee_on(state)
    found = pareto_set([state, state], [make(), bound], torch.cat([X, X + 0.01]), 0.1)
    assert found.guarantee is None
    assert any("points other than" in reason for reason in bound.objections(state))
    assert copy.deepcopy(bound).guarantee_on(state) is None


@pytest.mark.parametrize("name", STATES)
def test_repeats_with_equal_values_are_an_objection_until_one_differs(name):
    state, bound = learned(STATES[name]), SelfNormalized(NOISE, NORM, DELTA)
    assert bound.guarantee_on(state)
    state.update(X[:2], Y[:2])
    twin = STATES[name](MaternKernel(nu=0.5), NOISE**2)
    twin.load_state_dict(state.state_dict())
    for each in (state, twin, state.fork()):
        assert any("random seed" in reason for reason in bound.objections(each))
    state.update(X[:1], Y[:1] + 0.01)
    assert bound.guarantee_on(state)


def test_given_variances_and_noise_std_must_agree():
    variances = torch.full((len(X), 1), 0.04, dtype=torch.float64)
    model = KernelRidgeGP(X, Y.unsqueeze(-1), RBFKernel(), 0.04, train_Yvar=variances)
    assert SelfNormalized(0.2, NORM, DELTA).guarantee_on(model.state)
    more = model.condition_on_observations(X[:1] + 0.1, Y[:1, None], noise=variances[:1])
    for state in (model.state, more.state):
        assert any("variances that were given" in r for r in SelfNormalized(0.1, NORM, DELTA).objections(state))
