"""Upper confidence bounds over the points that possibly, or certainly, keep limits, inside BoTorch's optimisers."""

from __future__ import annotations

import pytest
import torch
from botorch.acquisition.input_constructors import get_acqf_input_constructor
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.models import ModelListGP
from botorch.models.transforms import Log, Normalize, Standardize
from botorch.models.transforms.outcome import Bilog, Power
from botorch.models.transforms.outcome import ChainedOutcomeTransform as chain
from botorch.optim import optimize_acqf, optimize_acqf_discrete
from gpytorch.kernels import MaternKernel, ScaleKernel
from torch.autograd import gradcheck

from experiments.problems.rkhs import stationary_kernel
from kbo.acquisition import (
    CMMUCB,
    ConstrainedKernelUCB,
    SafeExpander,
    SafeUCB,
    optimize_safely,
)
from kbo.confidence import (
    AdaptiveSelfNormalized,
    FixedWidth,
    Limit,
    MartingaleMixture,
    NoiseBounds,
    SelfNormalized,
)
from kbo.errors import InvalidInput
from kbo.models import AdaptiveRidgeGP, KernelRidgeGP
from tests.dense import close
from tests.test_acquisition import box, minus, points

WIDTH = FixedWidth(0.5)


def grid(device, count=40):
    line = torch.linspace(0, 2, count, dtype=torch.float64, device=device)
    return torch.cartesian_prod(line, line)


def matern():
    return MaternKernel(nu=2.5).double().initialize(lengthscale=0.5)


def models(device, scale=1.0):
    """An objective that grows with both coordinates, and a cost that does so too, in other units."""
    X = points(25, 2, device=device)
    costs = ScaleKernel(matern()).double().initialize(outputscale=scale**2)
    gain, cost = X.sum(-1, keepdim=True), X.square().sum(-1, keepdim=True)
    return ModelListGP(
        KernelRidgeGP(X, gain, matern(), 0.05, input_transform=Normalize(2, bounds=box(device))),
        KernelRidgeGP(X, scale * cost, costs.to(device), 1e-3 * scale**2),
    )


def constrained(device, limit=1.8, width=WIDTH, transform=None, X_pending=None, scale=1.0):
    limits = {1: (None, limit * scale)}
    return ConstrainedKernelUCB(
        models(device, scale), [WIDTH, width], 0, limits, transform, X_pending
    )


def dense(model, X):
    """Lower and upper bound by a dense solve."""
    Z, X = model.train_inputs[0], model.transform_inputs(X)
    with torch.no_grad():
        K, k = model.covar_module(Z).to_dense(), model.covar_module(X, Z).to_dense()
        prior = model.covar_module(X, diag=True)
        solved = torch.linalg.solve(K + model.ridge * torch.eye(len(Z)).to(K), k.T)
    mean, spread = model.train_targets @ solved, 0.5 * (prior - (k.T * solved).sum(0)).sqrt()
    return mean - spread, mean + spread


@pytest.mark.parametrize("weight", [1.0, -1.0])
def test_the_best_point_has_the_best_bound_of_all_that_possibly_keep_the_limit(device, weight):
    acqf = constrained(device, transform=minus(device) if weight < 0 else None)
    X, (objective, cost) = grid(device), acqf.model.models
    value = acqf(X.unsqueeze(1))
    lower, upper = dense(objective, X)
    bound, possible = (upper if weight > 0 else -lower), dense(cost, X)[0] <= 1.8
    assert 0.2 < possible.double().mean() < 0.6
    close(value[possible], bound[possible])
    assert value[~possible].max() < min(bound.min(), value[possible].min())
    assert torch.equal(acqf.slack(X) >= 0, possible)
    x, best = optimize_acqf_discrete(acqf, q=1, choices=X)
    assert torch.equal(x[0], X[possible][bound[possible].argmax()])
    close(best.reshape(1), bound[possible].max().reshape(1))
    other_units = constrained(device, transform=minus(device) if weight < 0 else None, scale=1e3)
    close(other_units(X.unsqueeze(1)), value, 1e-7)


def test_gradients_lead_back_to_where_the_limit_is_possibly_kept(device):
    acqf = constrained(device)
    outside = torch.tensor([[[1.3, 1.5]], [[1.2, 1.4]]], dtype=torch.float64, device=device)
    assert (acqf.slack(outside) < -0.1).all()
    assert gradcheck(acqf, torch.cat([outside, outside / 3], 1).requires_grad_())
    x, _ = optimize_acqf(acqf, box(device), q=1, num_restarts=2, batch_initial_conditions=outside)
    assert acqf.slack(x) >= 0


def test_a_batch_is_the_mean_of_its_points(device):
    wide, X = FixedWidth(2.0), points(3, 2, 2, device=device, seed=4)
    acqf = constrained(device, width=wide)
    pending = [constrained(device, width=wide, X_pending=x[:1]) for x in X]
    second = torch.cat([one(x[None, 1:]) for one, x in zip(pending, X, strict=True)])
    close(acqf(X), (acqf(X[:, :1]) + second) / 2)


def test_constraints_without_finite_bounds_exclude_nothing(device):
    X = grid(device)
    unknown = AdaptiveRidgeGP(X[:1], X[:1, :1], matern(), NoiseBounds(5.0, delta=0.1))
    two = ModelListGP(models(device).models[0], unknown)
    bounds = [WIDTH, AdaptiveSelfNormalized()]
    acqf = ConstrainedKernelUCB(two, bounds, 0, {1: (None, -99.0)})
    assert acqf.slack(X).isposinf().all()
    assert acqf(X.unsqueeze(1).requires_grad_()).isfinite().all()


class Undocumented(SelfNormalized):
    """A bound that does not say with which probability it fails."""

    def __init__(self):
        super().__init__(0.2, 8.0, 0.1)
        del self.delta


def test_the_guarantee_is_that_of_all_bounds_together_if_their_probabilities_add_up_to_less_than_one(
    device,
):
    two = models(device)
    three = ModelListGP(*two.models, two.models[0])  # the third is of no limit

    known = [SelfNormalized(0.2, 8.0, delta) for delta in (0.05, 0.1, 0.95)]

    def acquisition(*bounds):
        return ConstrainedKernelUCB(three, bounds, 0, {1: (None, 1.8)})

    guarantee = acquisition(*known).guarantee
    assert guarantee.endswith("all hold together with probability at least 1 - 0.15")
    assert "function 2" not in guarantee
    for bound, total in ((known[2], 1), (Undocumented(), 1.05)):
        acqf = acquisition(known[0], bound, known[1])
        assert acqf.guarantee is None
        assert f"add up to {total}, " in acqf.objections[0]
    assert constrained(device).guarantee is None
    assert constrained(device).objections[1].startswith("function 1: ")


def test_botorch_gives_limits_as_matrices(device):
    construct, two = get_acqf_input_constructor(ConstrainedKernelUCB), models(device)
    A, b = torch.tensor([[-1.0, 0.0], [2.0, 0.0], [1.0, 0.0]]), torch.tensor([[-0.5], [8.0], [9.0]])

    def constructed(A, b, weights):
        transform = ScalarizedPosteriorTransform(torch.tensor(weights).double())
        options = {"training_data": None, "bounds": None, "confidences": [WIDTH] * 2}
        options |= {"constraints_tuple": (A, b), "posterior_transform": transform}
        return ConstrainedKernelUCB(**construct(two, **options))

    acqf = constructed(A, b, [0.0, -2.0])
    assert acqf.constraints == {0: (0.5, 4.0)}
    assert (acqf.objective.weight, acqf.objective.model) == (-2.0, two.models[1])
    with pytest.raises(InvalidInput, match="one objective"):
        constructed(A, b, [1.0, 1.0])
    with pytest.raises(InvalidInput, match="about one outcome"):
        constructed(torch.ones(1, 2), b[:1], [0.0, -2.0])


def test_arguments_that_cannot_be_are_named(device):
    given = {"confidences": [WIDTH] * 2, "objective_index": 0, "constraints": {1: (None, 1.0)}}
    for name, value, words in (
        ("model", None, "model must be a botorch.ModelListGP"),
        ("confidences", [WIDTH], "one bound for each of 2 models"),
        ("objective_index", 2, "objective_index must be a whole number from 0 to 1"),
        ("constraints", {}, "take KernelUCB"),
        ("constraints", {2: (None, 1.0)}, "key of constraints.*whole number from 0 to 1, got 2"),
        ("constraints", {1: (2.0, 1.0)}, "lower limit 2 is above"),
    ):
        with pytest.raises(InvalidInput, match=words):
            ConstrainedKernelUCB(**{"model": models(device), **given, name: value})


# Outcome transforms


def limited(kind, transform, limit):
    X = torch.linspace(0, 1, 9, dtype=torch.float64).unsqueeze(-1)
    kernel = MaternKernel(nu=2.5).double()
    cost = KernelRidgeGP(X, 2.0 + 10 * X, kernel, 1e-4, outcome_transform=transform)
    two = ModelListGP(KernelRidgeGP(X, X, kernel, 1e-4), cost)
    return kind(two, [FixedWidth(1.0)] * 2, 0, {1: limit})


@pytest.mark.parametrize("kind", [SafeUCB, ConstrainedKernelUCB])
def test_limits_are_those_of_the_data_under_every_increasing_transform(kind):
    at = torch.tensor([[0.0], [0.2], [0.4], [0.5], [0.7], [1.0]], dtype=torch.float64)
    cost = 2.0 + 10 * at.squeeze(-1)
    for transform in (None, Log(), Bilog(), chain(first=Log(), second=Standardize(1))):
        for low, high in ((None, 8.0), (5.0, None), (5.0, 8.0)):
            kept = (cost >= (low or 0.0)) & (cost <= (high or 100.0))
            assert torch.equal(limited(kind, transform, (low, high)).slack(at) >= 0, kept)


def test_a_transform_that_may_not_increase_and_a_limit_out_of_its_domain_are_refused():
    for transform in (Power(2.0), chain(first=Standardize(1), second=Power(2.0))):
        with pytest.raises(InvalidInput, match="may not increase"):
            limited(SafeUCB, transform, (None, 8.0))
    with pytest.raises(InvalidInput, match="no finite value at the limit -1"):
        limited(SafeUCB, Log(), (-1.0, 8.0))


# Safe exploration: loops that never leave the certain points

NOISE, NORM, LIMIT = 0.05, 1.5, 0.3
KERNEL, BOUND = stationary_kernel("rbf", 0.6), MartingaleMixture(NOISE, NORM, 0.05)
BOX = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
START = torch.tensor([[0.2, 0.2], [0.3, 0.1]], dtype=torch.float64)


def heat(X):
    return 0.8 * (X[:, :1] - 0.2) ** 2 + 0.4 * X[:, 1:]


def measured(X, rng):
    clean = torch.cat([X[:, :1] * (1 - X[:, 1:]), heat(X)], -1)
    return clean + NOISE * torch.randn(clean.shape, generator=rng, dtype=X.dtype).to(X)


def safe(kind, X, Y, **options):
    model = ModelListGP(*(KernelRidgeGP(X, y, KERNEL, NOISE**2) for y in Y.split(1, -1)))
    return kind(model, [BOUND, BOUND], 0, {1: (None, LIMIT)}, **options)


@pytest.fixture
def observed(device):
    X = START.repeat(4, 1).to(device)
    return X, measured(X, torch.Generator().manual_seed(0))


def test_values_are_the_bound_and_the_width_where_all_limits_are_certain(observed):
    X, Y = observed
    states = [model.state for model in safe(SafeUCB, X, Y).model.models]
    Z = torch.rand(200, 2, dtype=torch.float64).to(X) * 0.5
    certain = Limit(states[1], BOUND, upper=LIMIT).certain(Z) >= 0
    assert 0 < int(certain.sum()) < len(Z)
    width = torch.stack([state.predict(Z)[1].sqrt() for state in states]).amax(0)
    for kind, expected in ((SafeUCB, BOUND.upper(states[0], Z)), (SafeExpander, width)):
        values = safe(kind, X, Y)(Z.unsqueeze(-2))
        close(values[certain], expected[certain], 1e-6)
        assert values[~certain].max() < values[certain].min()
    acqf, z = safe(SafeExpander, X, Y), Z[certain][:1].unsqueeze(-2)
    assert gradcheck(acqf, Z[:3].unsqueeze(-2).requires_grad_(), rtol=1e-2)
    assert safe(SafeExpander, X, Y, X_pending=z[0])(z) < acqf(z)


@pytest.mark.parametrize("kind", [SafeUCB, SafeExpander])
def test_a_loop_never_leaves_the_certain_points(kind, observed):
    (X, Y), rng = observed, torch.Generator().manual_seed(1)
    for _ in range(4 if kind is SafeUCB else 2):
        acqf = safe(kind, X, Y)
        if kind is SafeUCB:
            x, _ = optimize_acqf_discrete(acqf, q=1, choices=grid(X.device, 21) / 2)
        else:
            options = {"num_restarts": 1, "raw_samples": 64, "options": {"maxiter": 5}}
            x, _ = optimize_safely(acqf, BOX.to(X), X, **options)
        assert float(acqf.slack(x)) >= 0
        assert float(heat(x)) <= LIMIT
        X, Y = torch.cat([X, x]), torch.cat([Y, measured(x, rng)])
    assert len(X[8:].unique(dim=0)) > 1


def test_a_seed_gives_the_same_safe_point_and_leaves_the_global_generator_alone(observed):
    X, Y = observed
    acqf = safe(SafeUCB, X, Y)
    options = {"num_restarts": 1, "raw_samples": 64, "options": {"maxiter": 3}}
    points = []
    for number, seed in enumerate([5, 5, 6]):
        torch.manual_seed(number)
        before = torch.get_rng_state()
        points.append(optimize_safely(acqf, BOX.to(X), X, seed=seed, **options)[0])
        assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(points[0], points[1])
    assert not torch.equal(points[0], points[2])


def test_where_nothing_is_certain_a_known_point_is_returned(observed):
    X, Y = observed
    acqf, box, start = safe(SafeUCB, X, Y + 1.0), BOX.to(X), START.to(X)
    point, _ = optimize_safely(acqf, box, start)
    assert bool((point == start).all(-1).any())
    with pytest.raises(InvalidInput, match="bounds"):
        optimize_safely(acqf, box[:1], start)
    with pytest.raises(InvalidInput, match="acqf"):
        optimize_safely(CMMUCB(acqf.model.models[0], NOISE, NORM, 0.1), box, start)
