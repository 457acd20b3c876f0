"""The proved optimality gap: never below the truth, whatever the space, and near to what is found."""

import itertools
import math

import pandas as pd
import pytest
import torch
from gpytorch.kernels import AdditiveKernel, MaternKernel, PeriodicKernel, ProductKernel, RBFKernel, ScaleKernel

import kbo
from kbo.confidence import FixedWidth, MartingaleMixture, SelfNormalized
from kbo.optimize.belief import Bound
from kbo.optimize.search.branch import Ceiling, largest_proved
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


def proof(bound, space, evaluations, **options):
    return largest_proved([Ceiling([bound])], space, evaluations, **options).largest


@pytest.mark.parametrize("name", SPACES)
def test_the_bound_holds_everywhere_at_every_budget_and_falls(name):
    space = kbo.Space(SPACES[name])
    for seed, kind in itertools.product(range(5), (MartingaleMixture, SelfNormalized)):
        state, points, values = case(space, seed)
        bound = Bound(kind(0.1, 2.0, 0.01), state, 2.0)
        upper = bound.confidence.upper(state, points)
        assert bool((upper >= values).all())
        proved = [proof(bound, space, most, lower=float(values.max())) for most in (1, 200, 4000)]
        assert proved == sorted(proved, reverse=True)
        assert proved[-1] >= float(values.max())
        if name == "interval":
            grid = space.features(torch.linspace(0, 1, 2001, dtype=torch.float64).unsqueeze(1))
            largest = float(bound.confidence.upper(state, grid).max())
            assert proved[-1] <= largest + 0.05 * (largest - float(values.max())) + 1e-3


@pytest.mark.parametrize("name", SPACES)
def test_limits_and_several_hypotheses_keep_every_point_that_may_count(name):
    space = kbo.Space(SPACES[name])
    for seed in range(5):
        (state, points, values), k = case(space, seed), kernel(space.columns, seed + 1)
        other, own = KernelRidge(k, 0.01), k(points, points[:1]).to_dense()[:, 0]
        slack = own * 2.0 / float(own[0]) ** 0.5  # a function of norm 2, which is known well
        other.update(points[:40], slack[:40])
        level = float(slack.quantile(0.7))
        bound = Bound(MartingaleMixture(0.1, 2.0, 0.01), state, 2.0)
        refuted = Bound(SelfNormalized(0.1, 0.01, 0.01), state, 0.01)
        limit = Ceiling([Bound(SelfNormalized(0.1, 2.0, 0.01), other, 2.0)], level, unit=3.0)
        found = largest_proved([Ceiling([refuted, bound])], space, 3000, within=[limit])
        assert found.largest >= float(values[slack >= level].max())
        both = largest_proved([Ceiling([bound]), limit], space, 3000, lower=-9.0)
        assert both.largest >= float(torch.minimum(values, (slack - level) / 3.0).max())
        alone = [largest_proved([one], space, 3000, lower=-9.0) for one in (Ceiling([bound]), limit)]
        assert both.largest <= min(one.largest for one in alone) + 0.1
        least = largest_proved([Ceiling([bound], -1.0, -1)], space, 3000)
        assert least.largest >= float((1.0 - values).max())
        ended = largest_proved([Ceiling([bound])], space, 3000, until=-9.0)
        assert ended.largest >= ended.found >= -9.0
        assert 0 <= float(ended.unit.min()) <= float(ended.unit.max()) <= 1


def test_a_finite_space_is_searched_to_its_end():
    space = kbo.Space({"n": kbo.Int(1, 40), "c": ["a", "b"]})
    state, _, _ = case(space, 0)
    bound = Bound(SelfNormalized(0.1, 2.0, 0.1), state, 2.0)
    features = space.features(space.points(1000))
    upper, deviation = bound.confidence.upper(state, features), state.kernel(features).to_dense()
    # at the last the cells are points, each with the best bound of the cells around it
    distances = (2 * (1 - deviation.clamp_max(1.0))).sqrt()
    best = (upper.unsqueeze(0) + 2.0 * distances).amin(1).max()
    found = proof(bound, space, 10_000, lower=-9.0)
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
    top = proof(bound, space, 50_000, lower=-2.0, goal=100.0)
    assert sum(asked) == 1
    assert top >= proof(bound, space, 50_000, lower=-2.0)
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
    assert largest_proved([Ceiling([bound])], space, 100) is None


def test_a_bound_that_is_not_a_number_is_refused():
    space = kbo.Space({"x": (0.0, 1.0)})
    state, _, _ = case(space, 0)

    class Broken(FixedWidth):
        def interval(self, state, X):
            return X[..., 0] * math.nan, X[..., 0] * math.nan

    with pytest.raises(kbo.InvalidInput, match="NaN"):
        proof(Bound(Broken(1.0), state, 2.0), space, 100)


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
    shown = failed.gap(2000, progress=True)
    assert shown == failed.gap(2000)
    practical = kbo.minimize(objective, bounds, 8)
    assert not practical.gap_proved


def measured(params):
    return objective(params), {"slope": params["x"] + 0.02 * float(torch.randn((), generator=NOISE))}


def limit(upper):
    return kbo.Constraint("slope", upper=upper, noise_std=0.02, norm_bound=2.0)


BOX = {"x": (0.0, 1.0), "y": (0.0, 1.0)}


def test_on_a_box_a_problem_without_a_solution_is_certified():
    k = RBFKernel().double()
    k.lengthscale = 0.5
    setting = kbo.Certified(k, 0.05, 3.0)
    result = kbo.minimize(measured, BOX, 40, setting=setting, constraints=[limit(-0.5)])
    assert result.stopped.startswith("infeasible: no point can keep all limits; the nearest one found has slope at l")
    assert result.infeasible.points is None
    assert "recommended" not in str(result)
    unknown = kbo.minimize(measured, BOX, 2, setting=setting, constraints=[limit(0.0)])
    assert "not known to keep all limits" in str(unknown)
    assert result.infeasible.bounds["slope"] > -0.5
    # by the trials alone nothing is known of the other points
    assert result.optimizer.infeasible() is None
    solvable = kbo.minimize(measured, BOX, 15, setting=setting, constraints=[limit(0.5)])
    assert solvable.infeasible is None
    assert solvable.gap_proved
    free = largest_proved([Ceiling(solvable.optimizer.belief().bounds)], solvable.optimizer.space, 20_000)
    lower = -solvable.upper
    assert solvable.gap <= free.largest - lower + 1e-9
    grid = [smooth({"x": i / 200, "y": j / 200}) for i in range(101) for j in range(201)]
    assert smooth(solvable.params) - min(grid) <= solvable.gap


def test_the_nearest_point_of_a_certificate_is_one_of_the_space():
    k = RBFKernel().double()
    k.lengthscale = 0.5
    table = pd.DataFrame({"x": [i / 12_000 for i in range(12_000)], "y": [0.5] * 12_000})
    spaces = {"table": table, "rule": BOX}
    for name, bounds in spaces.items():
        rules = [] if name == "table" else [kbo.Linear({"x": 1.0}, lower=0.7)]
        given = {"setting": kbo.Certified(k, 0.05, 3.0), "constraints": [limit(-0.6), *rules]}
        optimizer = kbo.Optimizer(bounds, **given)
        while (found := optimizer.infeasible(20_000)) is None:
            params = optimizer.ask()
            optimizer.tell(params, measured(params))
        assert found.points is None
        assert not optimizer.space.violated(found.params)
        assert found.bounds["slope"] == optimizer.interval(found.params, "slope")[0]
        assert found.bounds["slope"] > -0.6
        assert "with probability at least 0.95, if the assumptions are right" in str(found)


def test_a_gap_of_a_safe_run_is_about_the_whole_space_if_all_of_it_is_certain_to_be_safe():
    k = RBFKernel().double()
    k.lengthscale = 0.5
    setting = kbo.Safe(k, 0.05, 3.0, start=[{"x": 0.1, "y": 0.5}])
    whole, part = (kbo.minimize(measured, BOX, 8, setting=setting, constraints=[limit(u)]) for u in (1.9, 0.9))
    assert whole.gap_proved
    assert "every point of which is certain to be safe, proved" in whole.gap_scope
    assert "points that are certain to be safe" in part.gap_scope
    assert not part.gap_proved
