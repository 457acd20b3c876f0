"""The proved optimality gap: never below the truth, whatever the space, and near to what is found."""

import itertools
import math

import pytest
import torch
from gpytorch.kernels import AdditiveKernel, MaternKernel, PeriodicKernel, ProductKernel, RBFKernel, ScaleKernel

import kbo
from kbo.confidence import FixedWidth, MartingaleMixture, SelfNormalized
from kbo.optimize.belief import Bound
from kbo.optimize.search.branch import largest_proved
from kbo.regression import KernelRidge

SPACES = {
    "interval": {"x": (0.0, 1.0)},
    "logarithm": {"x": kbo.Float(1e-3, 1.0, log=True), "y": (2.0, 3.0)},
    "mixed": {"x": (0.0, 1.0), "n": kbo.Int(1, 9), "c": ["a", "b", "d"]},
    "steps": {"n": kbo.Int(1, 1000, log=True), "o": kbo.Ordinal([1, 2, 4, 8]), "x": (0.0, 1.0)},
    "list": [(0.0, 1.0), (-1.0, 1.0), (0.0, 2.0)],
}


def kernel(columns, seed):
    generator = torch.Generator().manual_seed(seed)
    lengths = 0.2 + torch.rand(1, columns, generator=generator).double()
    first = MaternKernel(nu=2.5, ard_num_dims=columns).double()
    first.lengthscale = lengths
    second = RBFKernel(ard_num_dims=columns).double()
    second.lengthscale = lengths.flip(1)
    made = [first, second, ScaleKernel(second).double(), ProductKernel(first, second), AdditiveKernel(first, second)]
    return made[seed % len(made)].requires_grad_(False)


def case(space, seed, n=12, norm=2.0):
    """A function of this norm, a posterior after n values, and random points with the function there."""
    generator = torch.Generator().manual_seed(seed)
    k = kernel(space.columns, seed)
    Z = space.features(torch.rand(5, space.dimension, generator=generator).double())
    weights = torch.randn(5, generator=generator).double()
    gram = k(Z).to_dense()
    weights = weights * norm / float((weights @ gram @ weights).sqrt())

    def function(X):
        return k(X, Z).to_dense() @ weights

    state = KernelRidge(k, 0.01)
    X = space.features(torch.rand(n, space.dimension, generator=generator).double())
    state.update(X, function(X) + 0.1 * torch.randn(n, generator=generator).double())
    points = space.features(torch.rand(4000, space.dimension, generator=generator).double())
    return state, points, function(points)


@pytest.mark.parametrize("name", SPACES)
def test_the_bound_holds_everywhere_at_every_budget_and_falls(name):
    space = kbo.Space(SPACES[name])
    for seed, kind in itertools.product(range(5), (MartingaleMixture, SelfNormalized)):
        state, points, values = case(space, seed)
        bound = Bound(kind(0.1, 2.0, 0.01), state, 2.0)
        upper = bound.confidence.upper(state, points)
        assert bool((upper >= values).all())
        proved = [largest_proved(bound, space, float(values.max()), 0.0, most) for most in (1, 200, 4000)]
        assert proved == sorted(proved, reverse=True)
        assert proved[-1] >= float(values.max())
        if name == "interval":
            grid = space.features(torch.linspace(0, 1, 2001, dtype=torch.float64).unsqueeze(1))
            largest = float(bound.confidence.upper(state, grid).max())
            assert proved[-1] <= largest + 0.05 * (largest - float(values.max())) + 1e-3


def test_a_finite_space_is_searched_to_its_end():
    space = kbo.Space({"n": kbo.Int(1, 40), "c": ["a", "b"]})
    state, _, _ = case(space, 0)
    bound = Bound(SelfNormalized(0.1, 2.0, 0.1), state, 2.0)
    features = space.features(space.points(1000))
    upper, deviation = bound.confidence.upper(state, features), state.kernel(features).to_dense()
    # at the last the cells are points, each with the best bound of the cells around it
    distances = (2 * (1 - deviation.clamp_max(1.0))).sqrt()
    best = (upper.unsqueeze(0) + 2.0 * distances).amin(1).max()
    found = largest_proved(bound, space, -9.0, 0.0, 10_000)
    assert float(best) - 1e-6 <= found <= 1.02 * float(upper.max())


def test_the_proof_ends_when_the_goal_is_reached():
    space = kbo.Space(SPACES["list"])
    state, _, _ = case(space, 1)
    asked = []

    class Counting(SelfNormalized):
        def interval(self, state, X):
            asked.append(len(X))
            return super().interval(state, X)

    bound = Bound(Counting(0.1, 2.0, 0.1), state, 2.0)
    top = largest_proved(bound, space, -2.0, 100.0, 50_000)
    assert sum(asked) == 1
    assert top >= largest_proved(bound, space, -2.0, 0.0, 50_000)
    assert sum(asked) <= 50_001


@pytest.mark.parametrize(
    ("bounds", "changed"),
    [
        ({"x": (0.0, 1.0)}, {"norm_bound": None}),
        ({"x": (0.0, 1.0)}, {"kernel": PeriodicKernel().double()}),
        ({"c": ["a", "b"], **{f"{i}": list(range(9)) for i in range(5)}}, {}),
        ([kbo.When("c", "a", {"x": (0.0, 1.0)}), {"c": ["a", "b"]}], {}),
    ],
    ids=["no norm", "no monotone kernel", "too many options", "conditions"],
)
def test_where_nothing_is_proved_nothing_is_said(bounds, changed):
    space = kbo.Space(bounds)
    state = KernelRidge(changed.get("kernel", RBFKernel().double()), 0.01)
    state.update(torch.zeros(1, space.columns).double(), torch.zeros(1).double())
    bound = Bound(SelfNormalized(0.1, 2.0, 0.1), state, changed.get("norm_bound", 2.0))
    assert largest_proved(bound, space, 0.0, 0.0, 100) is None


def test_a_bound_that_is_not_a_number_is_refused():
    space = kbo.Space({"x": (0.0, 1.0)})
    state, _, _ = case(space, 0)

    class Broken(FixedWidth):
        def interval(self, state, X):
            return X[..., 0] * math.nan, X[..., 0] * math.nan

    with pytest.raises(kbo.InvalidInput, match="NaN"):
        largest_proved(Bound(Broken(1.0), state, 2.0), space, 0.0, 0.0, 100)


NOISE = torch.Generator().manual_seed(0)


def smooth(params):
    return math.sin(4 * params["x"]) + 0.3 * params["y"]


def objective(params):
    return smooth(params) + 0.05 * float(torch.randn((), generator=NOISE))


def test_a_run_says_what_is_proved_and_what_is_found():
    k = RBFKernel().double()
    k.lengthscale = 0.5
    bounds = {"x": (0.0, 1.0), "y": (0.0, 1.0)}
    for setting in (kbo.Certified(k, 0.05, 3.0), kbo.Certified([kbo.Hypothesis(k, 0.05, b) for b in (3.0, 4.0)])):
        result = kbo.minimize(objective, bounds, 12, setting=setting)
        assert result.gap_proved
        assert result.gap_found <= result.gap <= 1.2 * result.gap_found + 0.05
        assert "proved; " in str(result)
        grid = [smooth({"x": i / 200, "y": j / 200}) for i in range(201) for j in range(201)]
        assert smooth(result.params) - min(grid) <= result.gap
    stopped = kbo.minimize(objective, bounds, 40, setting=kbo.Certified(k, 0.05, 3.0), stop_at_gap=1.0)
    assert stopped.gap <= 1.0
    assert "is at most 1" in stopped.stopped
    failed = kbo.Optimizer(bounds, setting=kbo.Certified(k, 0.05, 3.0))
    for value in (0.5, math.nan, 0.4):
        failed.tell(failed.ask(), value)
    assert not failed.gap(2000).proved  # as nothing is certified after a failure
    practical = kbo.minimize(objective, bounds, 8)
    assert not practical.gap_proved
