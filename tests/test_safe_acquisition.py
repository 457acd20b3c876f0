"""Acquisition functions of safe exploration: values, gradients, and loops that never leave the certain points."""

import pytest
import torch
from botorch.models import ModelListGP
from botorch.optim import optimize_acqf_discrete

from kbo import KernelRidge
from kbo.acquisition import CMMUCB, SafeExpander, SafeUCB, optimize_safely
from kbo.confidence import Limit, MartingaleMixture
from kbo.errors import InvalidInput
from kbo.models import KernelRidgeGP
from kbo.problems.rkhs import stationary_kernel

NOISE, NORM, LIMIT = 0.05, 1.5, 0.3
KERNEL = stationary_kernel("rbf", 0.6)
BOX = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
START = torch.tensor([[0.2, 0.2], [0.3, 0.1]], dtype=torch.float64)
BOUND = MartingaleMixture(NOISE, NORM, 0.05)


def gain(X):
    return X[:, :1] * (1 - X[:, 1:])


def heat(X):
    return 0.8 * (X[:, :1] - 0.2) ** 2 + 0.4 * X[:, 1:]


def made(kind, X, Y, **options):
    model = ModelListGP(*(KernelRidgeGP(X, y, KERNEL, NOISE**2) for y in Y.split(1, -1)))
    return kind(model, [BOUND, BOUND], 0, {1: (None, LIMIT)}, **options)


def data(X, rng):
    clean = torch.cat([gain(X), heat(X)], -1)
    return clean + NOISE * torch.randn(clean.shape, generator=rng, dtype=X.dtype).to(X)


@pytest.fixture
def observed(device):
    X = START.repeat(4, 1).to(device)
    return X, data(X, torch.Generator().manual_seed(0))


def test_values_are_the_bound_and_the_width_where_all_limits_are_certain(observed):
    X, Y = observed
    states = [KernelRidge(KERNEL, NOISE**2) for _ in range(2)]
    for state, y in zip(states, Y.T, strict=True):
        state.update(X, y)
    Z = torch.rand(200, 2, dtype=torch.float64).to(X) * 0.5
    certain = Limit(states[1], BOUND, upper=LIMIT).certain(Z) >= 0
    assert 0 < int(certain.sum()) < len(Z)
    width = torch.stack([state.predict(Z)[1].sqrt() for state in states]).amax(0)
    for kind, expected in ((SafeUCB, BOUND.upper(states[0], Z)), (SafeExpander, width)):
        values = made(kind, X, Y)(Z.unsqueeze(-2))
        assert torch.allclose(values[certain], expected[certain])
        assert values[~certain].max() < values[certain].min()
    assert torch.autograd.gradcheck(made(SafeExpander, X, Y), Z[:3].unsqueeze(-2).requires_grad_(), rtol=1e-2)
    pending = made(SafeExpander, X, Y, X_pending=Z[:1])(Z[:1].unsqueeze(-2))
    assert not certain[0] or pending < made(SafeExpander, X, Y)(Z[:1].unsqueeze(-2))


@pytest.mark.parametrize(("kind", "discrete"), [(SafeUCB, True), (SafeExpander, False)])
def test_a_loop_never_leaves_the_certain_points(kind, discrete, observed):
    (X, Y), rng = observed, torch.Generator().manual_seed(1)
    choices = torch.cartesian_prod(*[torch.linspace(0, 1, 21, dtype=torch.float64)] * 2).to(X)
    for _ in range(4 if discrete else 2):
        acqf = made(kind, X, Y)
        if discrete:
            x, _ = optimize_acqf_discrete(acqf, q=1, choices=choices)
        else:
            x, _ = optimize_safely(acqf, BOX.to(X), X, num_restarts=1, raw_samples=64, options={"maxiter": 5})
        assert float(acqf.slack(x)) >= 0
        assert float(heat(x)) <= LIMIT
        X, Y = torch.cat([X, x]), torch.cat([Y, data(x, rng)])
    assert len(X[8:].unique(dim=0)) > 1


def test_where_nothing_is_certain_a_known_point_is_returned(observed):
    X, Y = observed
    acqf, box, start = made(SafeUCB, X, Y + 1.0), BOX.to(X), START.to(X)
    point, _ = optimize_safely(acqf, box, start)
    assert bool((point == start).all(-1).any())
    for arguments in ((box, start[:, :1]), (box[:1], start)):
        with pytest.raises(InvalidInput, match="bounds"):
            optimize_safely(acqf, *arguments)
    with pytest.raises(InvalidInput, match="acqf"):
        optimize_safely(CMMUCB(acqf.model.models[0], NOISE, NORM, 0.1), box, start)
