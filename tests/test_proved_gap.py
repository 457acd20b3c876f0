"""The proved optimality gap: never below the truth, whatever the space, and near to what is found."""

import itertools
import math
import re

import pytest
import torch
from gpytorch.kernels import (
    AdditiveKernel,
    MaternKernel,
    PeriodicKernel,
    ProductKernel,
    RBFKernel,
    ScaleKernel,
)

import kbo
from experiments.guarantees.proofs import faults, main
from kbo.confidence import MartingaleMixture, SelfNormalized
from kbo.errors import Contradiction
from kbo.optimize.insight.gap import branch_and_bound
from kbo.optimize.insight.gap.branch_and_bound import BoundedScore, bound_maximum
from kbo.optimize.insight.gap.cells import CellBound, Cells
from kbo.optimize.surrogates.surrogate import Bound
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
    made = [
        first,
        second,
        ScaleKernel(second).double(),
        ProductKernel(first, second),
        AdditiveKernel(first, second),
    ]
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
        limit = CellBound([Bound(SelfNormalized(0.1, 2.0, 0.01), other, 2.0)], level, unit=3.0)

        def largest(functions, space=space, slacks=(), **options):
            problem = BoundedScore(functions, space, slacks)
            return bound_maximum(problem, 1000, **options).largest

        objective = CellBound([bound])
        found = largest([CellBound([refuted, bound])], slacks=[limit])
        assert found >= float(values[slack >= level].max())
        both = largest([objective, limit], lower=-9.0)
        assert both >= float(torch.minimum(values, (slack - level) / 3.0).max())
        assert largest([CellBound([bound], -1.0, -1)]) >= float((1.0 - values).max())
        ended = bound_maximum(BoundedScore([objective], space), 1000, until=-9.0)
        assert ended.largest >= ended.found >= -9.0
        assert 0 <= float(ended.point.min()) <= float(ended.point.max()) <= 1


@pytest.mark.parametrize(("evaluations", "n_examined"), [(100, 100), (101, 100), (10, 10), (1, 10)])
def test_the_first_points_are_always_examined_and_count(evaluations, n_examined, monkeypatch):
    space = kbo.Space({"x": (0.0, 1.0), "c": list("abcde"), "d": ["a", "b"]})
    state, _, _ = case(space, 0)
    problem = BoundedScore(
        [CellBound([Bound(MartingaleMixture(0.1, 2.0, 0.01), state, 2.0)])], space
    )
    counts = []
    evaluated = branch_and_bound._evaluated

    def counted(problem, cells):
        counts.append(len(cells))
        return evaluated(problem, cells)

    monkeypatch.setattr(branch_and_bound, "_evaluated", counted)
    bound_maximum(problem, evaluations)
    assert counts[0] == 10
    assert sum(counts) == n_examined


def test_random_proofs_over_every_kind_of_parameter_are_right():
    assert [fault for *_, fault in faults(15, 5) if fault] == []


@pytest.mark.thorough
def test_two_thousand_proofs_and_five_hundred_certificates_are_right(capsys):
    with capsys.disabled():
        assert main(2000, 500) == 0


def smooth_kernel():
    return RBFKernel().double().initialize(lengthscale=0.5)


BOX = {"x": (0.0, 1.0), "y": (0.0, 1.0)}
BRANCHES = [kbo.When("c", "a", {"x": (0.0, 1.0)}), {"c": ["a", "b"]}]
PROVED = kbo.Certified(smooth_kernel(), 0.05, 3.0)
NOISE = torch.Generator().manual_seed(0)


def smooth(params):
    return math.sin(4 * params["x"]) + 0.3 * params["y"]


def least_value(largest_x=1.0):
    return min(smooth({"x": largest_x * i / 200, "y": 0.0}) for i in range(201))


def objective(params):
    return smooth(params) + 0.05 * float(torch.randn((), generator=NOISE))


def test_a_run_says_what_is_proved_and_what_is_found():
    hypotheses = [kbo.Hypothesis(smooth_kernel(), 0.05, norm) for norm in (3.0, 4.0)]
    for setting in (PROVED, kbo.Certified(hypotheses)):
        result = kbo.minimize(objective, BOX, 12, setting=setting)
        assert result.gap.proved
        assert result.gap.found <= result.gap.value <= 1.2 * result.gap.found + 0.05
        assert "(over the whole space, proved)" in str(result)
        assert smooth(result.params) - least_value() <= result.gap.value
    stopped = kbo.minimize(objective, BOX, 40, setting=PROVED, stop_at_gap=1.0)
    assert stopped.gap.value <= 1.0
    assert "is at most 1" in stopped.stopped
    failed = kbo.Optimizer(BOX, setting=PROVED)
    for value in (0.5, math.nan, 0.4):
        failed.tell(failed.ask(), value)
    assert not failed.gap(2000).proved  # as nothing is certified after a failure


def measured(params):
    noise = 0.02 * float(torch.randn((), generator=NOISE))
    return objective(params), {"slope": params["x"] + noise}


def limit(upper):
    return kbo.Constraint("slope", upper=upper, noise_std=0.02, norm_bound=2.0)


def test_on_a_box_a_problem_without_a_solution_is_certified():
    limits = [limit(-0.6), kbo.Linear({"x": 1.0}, lower=0.7)]
    result = kbo.minimize(measured, BOX, 40, setting=PROVED, constraints=limits)
    assert result.stopped.startswith("infeasible: no point can keep all limits")
    assert "recommended" not in str(result)
    found = result.infeasible
    assert not result.optimizer.space.violated(found.params)
    assert found.bounds["slope"] == result.optimizer.interval(found.params, "slope")[0] > -0.6
    # by the trials alone nothing is known of the other points
    assert result.optimizer.insight.infeasible() is None
    solvable = kbo.minimize(measured, BOX, 15, setting=PROVED, constraints=[limit(0.5)])
    assert solvable.infeasible is None
    assert solvable.gap.proved
    assert smooth(solvable.params) - least_value(0.5) <= solvable.gap.value


def test_a_gap_of_a_safe_run_is_about_the_whole_space_if_all_of_it_is_certain_to_be_safe():
    setting = kbo.Safe(smooth_kernel(), 0.05, 3.0, start=[{"x": 0.1, "y": 0.5}])
    whole = kbo.minimize(measured, BOX, 8, setting=setting, constraints=[limit(1.9)])
    part = kbo.minimize(measured, BOX, 4, setting=setting, constraints=[limit(0.9)])
    assert whole.gap.proved
    assert "every point of which is certain to be safe, proved" in whole.gap.scope
    assert "points that are certain to be safe" in part.gap.scope
    assert not part.gap.proved


def test_a_proof_that_the_bounds_at_a_point_contradict_is_an_error(monkeypatch):
    k = MaternKernel(nu=2.5).double().initialize(lengthscale=0.15)
    setting = kbo.Certified(k, 0.05, 8.0, 0.05, completion_independent_of_noise=True)
    optimizer = kbo.Optimizer({"n": kbo.Int(1, 5), "x": (0.0, 1.0)}, setting=setting, maximize=True)
    for n, i in itertools.product(range(1, 5), range(11)):
        optimizer.tell({"n": n, "x": i / 10}, -1.0)
    assert optimizer.gap(3000).value > 8.0  # n = 5 may be as large as the norm bound allows
    spans = Cells.spans

    def narrow_spans(cells):
        centres, differences = spans(cells)
        return centres, 0.1 * differences

    monkeypatch.setattr(Cells, "spans", narrow_spans)
    with pytest.raises(Contradiction, match=r"no norm bound forbids\. This is a fault of kbo"):
        optimizer.gap(3000)


def optimizer_of(bounds, setting=PROVED):
    optimizer = kbo.Optimizer(bounds, setting=setting)
    for value in range(6):
        optimizer.tell(optimizer.ask(), 0.5 + value / 100)
    return optimizer


def test_a_gap_that_is_not_proved_says_why():
    unasked = optimizer_of(BOX)
    assert unasked.gap().reason == "no proof was asked for: pass evaluations="
    unasked.tell({"x": 0.1, "y": 0.2}, 0.5)
    periodic = kbo.Certified(PeriodicKernel().double(), 0.05, 3.0)
    cases = {
        "the space has conditional parameters": optimizer_of(BRANCHES),
        "the kernel is not made of RBF and Matern kernels": optimizer_of(BOX, periodic),
        "practical, not certified": optimizer_of(BOX, kbo.Practical(noise_std=0.05)),
        r"trials with a value .* that ask did not return: 1; .*first trial 6\)": unasked,
    }
    for reason, optimizer in cases.items():
        gap = optimizer.gap(500)
        assert not gap.proved
        assert re.match(reason, gap.reason), gap.reason
        assert re.match(
            f"over the points of a search from many starts; not proved: {reason}", gap.scope
        )
