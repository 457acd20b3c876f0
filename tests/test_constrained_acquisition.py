"""Upper confidence bounds over the points that possibly keep limits, inside BoTorch's optimisers."""

from __future__ import annotations

import pytest
import torch
from botorch.acquisition.input_constructors import get_acqf_input_constructor
from botorch.acquisition.objective import IdentityMCObjective, ScalarizedPosteriorTransform
from botorch.models import ModelListGP
from botorch.models.transforms import Normalize, Standardize
from botorch.optim import optimize_acqf, optimize_acqf_discrete
from gpytorch.kernels import MaternKernel, ScaleKernel
from torch import Tensor
from torch.autograd import gradcheck

from kbo.acquisition import ConstrainedKernelUCB, KernelUCB
from kbo.confidence import AdaptiveSelfNormalized, FixedWidth, NoiseBounds, SelfNormalized
from kbo.errors import InvalidInput
from kbo.models import AdaptiveRidgeGP, KernelRidgeGP
from tests.dense import close
from tests.test_acquisition import OPTIONS, box, minus, points

WIDTH = FixedWidth(0.5)


def grid(device, count: int = 40) -> Tensor:
    return torch.cartesian_prod(*[torch.linspace(0, 2, count, dtype=torch.float64, device=device)] * 2)


def models(device, scale: float = 1.0, **options) -> ModelListGP:
    """An objective that grows with both coordinates, and a cost that does so too, in other units."""
    X = points(25, 2, device=device)
    kernel = MaternKernel(nu=2.5).double()
    kernel.lengthscale = 0.5
    costs = ScaleKernel(MaternKernel(nu=2.5).double())
    costs.base_kernel.lengthscale = 0.5
    costs.outputscale = scale**2
    gain, cost = X.sum(-1, keepdim=True), X.square().sum(-1, keepdim=True)
    return ModelListGP(
        KernelRidgeGP(X, gain, kernel, 0.05, input_transform=Normalize(2, bounds=box(device))),
        KernelRidgeGP(X, scale * cost, costs.to(device), 1e-3 * scale**2, **options),
    )


def constrained(device, limit=1.8, width=WIDTH, transform=None, X_pending=None, scale=1.0, **options):
    limits = {1: (None, limit * scale)}
    return ConstrainedKernelUCB(models(device, scale, **options), [WIDTH, width], 0, limits, transform, X_pending)


def dense(model: KernelRidgeGP, X: Tensor) -> tuple[Tensor, Tensor]:
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


def test_searches_come_close_to_the_border_and_follow_it_as_a_nonlinear_constraint(device):
    acqf, X = constrained(device), grid(device, 100)
    best = acqf(X.unsqueeze(1)).max()
    x, value = optimize_acqf(acqf, box(device), q=1, **OPTIONS)
    assert acqf.slack(x) >= 0
    assert value > best - 0.2
    start = {"batch_initial_conditions": x.unsqueeze(0), "num_restarts": 1}
    border = [(acqf.slack, True)]
    followed, better = optimize_acqf(acqf, box(device), q=1, **start, nonlinear_inequality_constraints=border)
    assert acqf.slack(followed).abs() < 1e-4
    assert better > best - 1e-3


def test_gradients_lead_back_to_where_the_limit_is_possibly_kept(device):
    acqf = constrained(device)
    outside = torch.tensor([[[1.3, 1.5]], [[1.2, 1.4]]], dtype=torch.float64, device=device)
    assert (acqf.slack(outside) < -0.1).all()
    inside = outside / 3
    for X in (outside, inside, torch.cat([outside, inside], 1)):
        assert gradcheck(acqf, X.requires_grad_())
    x, _ = optimize_acqf(acqf, box(device), q=1, num_restarts=2, batch_initial_conditions=outside.detach())
    assert acqf.slack(x) >= 0


def test_a_batch_is_the_mean_of_its_points_and_searched_in_turn(device):
    acqf, X = constrained(device, width=FixedWidth(2.0)), points(3, 2, 2, device=device, seed=4)
    pending = [constrained(device, width=FixedWidth(2.0), X_pending=x[:1]) for x in X]
    first, second = acqf(X[:, :1]), torch.cat([one(x[None, 1:]) for one, x in zip(pending, X, strict=True)])
    close(acqf(X), (first + second) / 2)
    assert torch.equal(pending[0].slack(X), acqf.slack(X))
    batch, _ = optimize_acqf(acqf, box(device), q=2, sequential=True, num_restarts=2, raw_samples=64)
    assert (acqf.slack(batch) >= 0).all()
    assert acqf.X_pending is None


def test_the_units_of_a_constraint_change_nothing(device):
    X, acqf = grid(device), constrained(device)
    close(constrained(device, scale=1e3)(X.unsqueeze(1)), acqf(X.unsqueeze(1)), 1e-7)
    standardized = constrained(device, scale=7.0, outcome_transform=Standardize(1))
    plain, unit = standardized.model.models[1], standardized.model.models[1].outcome_transform
    lower = dense(plain, X)[0] * unit.stdvs.squeeze() + unit.means.squeeze()
    assert torch.equal(standardized.slack(X) >= 0, lower <= 1.8 * 7.0)


def test_limits_on_both_sides_on_the_objective_and_always_kept(device):
    X, two = grid(device), models(device)
    low, high = dense(two.models[1], X)
    band = ConstrainedKernelUCB(two, [WIDTH] * 2, 0, {1: (1.0, 1.8)})
    assert torch.equal(band.slack(X) >= 0, (low <= 1.8) & (high >= 1.0))
    own = ConstrainedKernelUCB(two, [WIDTH] * 2, 0, {0: (None, 2.0), 1: (None, 1e9)})
    assert torch.equal(own.slack(X) >= 0, dense(two.models[0], X)[0] <= 2.0)
    free = ConstrainedKernelUCB(two, [WIDTH] * 2, 0, {1: (None, 1e9)})
    close(free(X.unsqueeze(1)), KernelUCB(two.models[0], WIDTH)(X.unsqueeze(1)), 1e-12)


def test_the_least_impossible_point_is_found_if_no_point_keeps_the_limit(device):
    acqf = constrained(device, limit=-2.0)
    assert (acqf.slack(grid(device)) < 0).all()
    x, _ = optimize_acqf(acqf, box(device), q=1, **OPTIONS)
    assert acqf.slack(x) > acqf.slack(grid(device)).max() - 1e-3


def test_constraints_without_finite_bounds_exclude_nothing(device):
    X = grid(device)
    unknown = AdaptiveRidgeGP(X[:1], X[:1, :1], MaternKernel().double(), NoiseBounds(5.0, delta=0.1))
    two = ModelListGP(models(device).models[0], unknown)
    acqf = ConstrainedKernelUCB(two, [WIDTH, AdaptiveSelfNormalized()], 0, {1: (None, -99.0)})
    assert acqf.slack(X).isposinf().all()
    assert acqf(X.unsqueeze(1).requires_grad_()).isfinite().all()
    acqf = ConstrainedKernelUCB(two, [WIDTH, AdaptiveSelfNormalized()], 1, {0: (None, 1.0)})
    values, possible = acqf(X.unsqueeze(1)), acqf.slack(X) >= 0
    assert values[possible].min() >= 0 > values[~possible].max()


class Undocumented(SelfNormalized):
    """A bound that does not say with which probability it fails."""

    def __init__(self) -> None:
        super().__init__(0.2, 8.0, 0.1)
        del self.delta

    def width(self, state) -> Tensor:
        return torch.tensor(3.0)


def test_the_guarantee_is_that_of_all_bounds_together_if_their_probabilities_add_up_to_less_than_one(device):
    two, known = models(device), [SelfNormalized(0.2, 8.0, delta) for delta in (0.05, 0.1, 0.9)]
    three = ModelListGP(*two.models, two.models[0])
    acqf = ConstrainedKernelUCB(three, known, 0, {1: (None, 1.8)})  # the third is of no limit
    assert acqf.guarantee.endswith("all hold together with probability at least 1 - 0.15")
    assert "function 2" not in acqf.guarantee
    assert constrained(device).guarantee is None
    assert constrained(device).objections[1].startswith("function 1: ")
    X, noise = points(25, 2, device=device), NoiseBounds(20.0, 0.1, upper=1.0)
    adaptive = ModelListGP(AdaptiveRidgeGP(X, X[:, :1], MaternKernel().double(), noise), two.models[0])
    for bound, total in ((SelfNormalized(0.2, 8.0, 0.2), 0.3), (known[2], 1), (Undocumented(), 1.1)):
        acqf = ConstrainedKernelUCB(adaptive, [AdaptiveSelfNormalized(), bound], 0, {1: (None, 1.8)})
        if total < 1:
            assert acqf.guarantee.endswith("1 - 0.3")
        else:
            assert acqf.guarantee is None
            assert f"add up to {total}, " in acqf.objections[0]


def test_botorch_gives_limits_as_matrices(device):
    construct, two = get_acqf_input_constructor(ConstrainedKernelUCB), models(device)
    weights = ScalarizedPosteriorTransform(torch.tensor([0.0, -2.0]).double())
    A, b = torch.tensor([[-1.0, 0.0], [2.0, 0.0], [1.0, 0.0]]), torch.tensor([[-0.5], [8.0], [9.0]])
    given = {"confidences": [WIDTH] * 2, "training_data": None, "bounds": None, "constraints": [lambda y: y]}
    acqf = ConstrainedKernelUCB(
        **construct(two, **given, posterior_transform=weights, constraints_tuple=(A, b), X_pending=points(1, 2))
    )
    assert acqf.constraints == {0: (0.5, 4.0)}
    assert acqf.objective.weight == -2.0
    assert acqf.objective.model is two.models[1]
    assert len(acqf.X_pending) == 1
    both = ScalarizedPosteriorTransform(torch.ones(2).double())
    for change, words in [
        ({"posterior_transform": both}, "one objective"),
        ({"objective": IdentityMCObjective()}, "one objective"),
        ({"constraints_tuple": (torch.ones(1, 2), b[:1])}, "about one outcome"),
    ]:
        options = {**given, "posterior_transform": weights, "constraints_tuple": (A, b), **change}
        with pytest.raises(InvalidInput, match=words):
            construct(two, **options)


MISTAKES: list[tuple[dict, str]] = [
    ({"model": None}, "model must be a botorch.ModelListGP"),
    ({"confidences": [WIDTH]}, "one bound for each of 2 models"),
    ({"objective_index": 2}, "objective_index must be a whole number from 0 to 1"),
    ({"constraints": {}}, "take KernelUCB"),
    ({"constraints": {2: (None, 1.0)}}, "key of constraints, 2"),
    ({"constraints": {1: 8.0}}, r"constraints\[1\] must be \(lower, upper\)"),
    ({"constraints": {1: (2.0, 1.0)}}, "lower limit 2 is above"),
    ({"constraints": {1: (float("nan"), 1.0)}}, "a finite number"),
]


def test_arguments_that_cannot_be_are_named(device):
    given = {"model": models(device), "confidences": [WIDTH] * 2, "objective_index": 0, "constraints": {1: (None, 1.0)}}
    for change, words in MISTAKES:
        with pytest.raises(InvalidInput, match=words):
            ConstrainedKernelUCB(**{**given, **change})
