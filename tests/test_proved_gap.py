"""The proved optimality gap: never below the truth, whatever the space, and near to what is found."""

import itertools
import math
import random
import re

import pandas as pd
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
from experiments.guarantees.proofs import KINDS, Cone, faults, legal, main, random_space
from kbo.confidence import FixedWidth, MartingaleMixture, SelfNormalized
from kbo.errors import Contradiction
from kbo.kernels import freeze
from kbo.optimize.insight import cells as cells_module
from kbo.optimize.insight.branch_and_bound import CellBound, bound_maximum
from kbo.optimize.insight.cells import Cells
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


def proof(bound, space, evaluations, **options):
    return bound_maximum([CellBound([bound])], space, evaluations, **options).largest


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
        limit = CellBound([Bound(SelfNormalized(0.1, 2.0, 0.01), other, 2.0)], level, unit=3.0)
        found = bound_maximum([CellBound([refuted, bound])], space, 3000, slacks=[limit])
        assert found.largest >= float(values[slack >= level].max())
        both = bound_maximum([CellBound([bound]), limit], space, 3000, lower=-9.0)
        assert both.largest >= float(torch.minimum(values, (slack - level) / 3.0).max())
        alone = [
            bound_maximum([one], space, 3000, lower=-9.0) for one in (CellBound([bound]), limit)
        ]
        assert both.largest <= min(one.largest for one in alone) + 0.1
        least = bound_maximum([CellBound([bound], -1.0, -1)], space, 3000)
        assert least.largest >= float((1.0 - values).max())
        ended = bound_maximum([CellBound([bound])], space, 3000, until=-9.0)
        assert ended.largest >= ended.found >= -9.0
        assert 0 <= float(ended.point.min()) <= float(ended.point.max()) <= 1


LISTED = [kind for kind in KINDS if 2 <= len(KINDS[kind](random.Random(0)).options) <= 100]


@pytest.mark.parametrize("kind", LISTED)
def test_no_option_of_a_parameter_is_left_out_of_a_proof(kind):
    """The data are values of zero at all other options, so the bounds are largest at this one alone."""
    for seed in range(3):
        space = kbo.Space({"p": KINDS[kind](random.Random(seed)), "x": (0.0, 1.0)})
        options = space.parameters["p"].options
        k = freeze(MaternKernel(nu=2.5).double(), torch.zeros(1, space.columns).double())
        for left_out in options:
            others = [{"p": p, "x": i / 4} for p in options if p != left_out for i in range(5)]
            X = space.features(space.units(others))
            state = KernelRidge(MaternKernel(nu=2.5).double(), 0.01)
            state.update(X[:1], torch.zeros(1).double())
            cone = Cone(k, X, torch.zeros(len(X)).double())
            points = space.features(space.units([{"p": left_out, "x": i / 40} for i in range(41)]))
            largest = float(cone.upper(state, points).max())
            assert largest > 1e-3
            assert proof(Bound(cone, state, 2.0), space, 1000) >= largest - 1e-6


class AnySide:
    """A function that may change most along any side."""

    def __init__(self, generator):
        self.generator = generator

    def change(self, differences):
        return torch.rand(len(differences), generator=self.generator).double()


def place_of(parameter, value):
    """Return the position of an option, or the unit coordinate of a real number."""
    if not parameter.options:
        return parameter.unit(value)
    if isinstance(parameter, (kbo.Float, kbo.Int)):
        return round((value - parameter.low) / parameter.step)
    return parameter.options.index(value)


def test_every_point_of_a_space_is_in_a_cell_of_a_proof_at_every_division():
    for seed in range(25):
        rng, generator = random.Random(seed), torch.Generator().manual_seed(seed)
        space, limits, _ = random_space(rng)
        points = legal(space, limits, rng)[:200]
        rows = [
            [place_of(p, point[name]) for name, p in space.parameters.items()] for point in points
        ]
        places, features = (
            torch.tensor(rows).double().unsqueeze(1),
            space.features(space.units(points)),
        )
        cells = Cells.covering(space)
        for _ in range(10):
            inside = ((cells.low <= places) & (places <= cells.high)).all(2)
            assert bool(inside.any(1).all())
            if not space.continuous:
                assert bool((inside.sum(1) == 1).all())
            point, cell = inside.nonzero(as_tuple=True)
            centres, differences = cells.spans()
            assert bool(
                ((features[point] - space.features(centres)[cell]).abs() <= differences[cell]).all()
            )
            assert bool(space.may_satisfy(*cells.corners())[cell].all())
            divided = torch.rand(len(cells), generator=generator) < 0.7
            halves = cells[divided].halves(AnySide(generator).change)
            proper = (halves.low <= halves.high).all(1)  # a cell of one option has only one half
            cells = halves[proper].joined(cells[~divided])


def test_random_proofs_over_every_kind_of_parameter_are_right():
    assert [fault for *_, fault in faults(15, 5) if fault] == []


@pytest.mark.thorough
def test_two_thousand_proofs_and_five_hundred_certificates_are_right(capsys):
    with capsys.disabled():
        assert main(2000, 500) == 0


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
    assert sum(asked) <= 1 + 64  # and the points that it is compared with
    assert top >= proof(bound, space, 50_000, lower=-2.0)
    assert sum(asked) <= 50_001 + 2 * 64 * 10


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
    assert bound_maximum([CellBound([bound])], space, 100) is None


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
    for setting in (
        kbo.Certified(k, 0.05, 3.0),
        kbo.Certified([kbo.Hypothesis(k, 0.05, b) for b in (3.0, 4.0)]),
    ):
        result = kbo.minimize(objective, bounds, 12, setting=setting)
        assert result.gap_proved
        assert result.gap_found <= result.gap <= 1.2 * result.gap_found + 0.05
        assert "proved; " in str(result)
        grid = [smooth({"x": i / 200, "y": j / 200}) for i in range(201) for j in range(201)]
        assert smooth(result.params) - min(grid) <= result.gap
    stopped = kbo.minimize(
        objective, bounds, 40, setting=kbo.Certified(k, 0.05, 3.0), stop_at_gap=1.0
    )
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
    return objective(params), {
        "slope": params["x"] + 0.02 * float(torch.randn((), generator=NOISE))
    }


def limit(upper):
    return kbo.Constraint("slope", upper=upper, noise_std=0.02, norm_bound=2.0)


BOX = {"x": (0.0, 1.0), "y": (0.0, 1.0)}


def test_on_a_box_a_problem_without_a_solution_is_certified():
    k = RBFKernel().double()
    k.lengthscale = 0.5
    setting = kbo.Certified(k, 0.05, 3.0)
    result = kbo.minimize(measured, BOX, 40, setting=setting, constraints=[limit(-0.5)])
    assert result.stopped.startswith(
        "infeasible: no point can keep all limits; the nearest one found has slope at l"
    )
    assert result.infeasible.points is None
    assert "recommended" not in str(result)
    unknown = kbo.minimize(measured, BOX, 2, setting=setting, constraints=[limit(0.0)])
    assert "not known to keep all limits" in str(unknown)
    assert result.infeasible.bounds["slope"] > -0.5
    # by the trials alone nothing is known of the other points
    assert result.optimizer.insight.infeasible() is None
    solvable = kbo.minimize(measured, BOX, 15, setting=setting, constraints=[limit(0.5)])
    assert solvable.infeasible is None
    assert solvable.gap_proved
    free = bound_maximum(
        [CellBound(solvable.optimizer.insight.surrogate().bounds)], solvable.optimizer.space, 20_000
    )
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
        while (found := optimizer.insight.infeasible(20_000)) is None:
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
    whole, part = (
        kbo.minimize(measured, BOX, 8, setting=setting, constraints=[limit(u)]) for u in (1.9, 0.9)
    )
    assert whole.gap_proved
    assert "every point of which is certain to be safe, proved" in whole.gap_scope
    assert "points that are certain to be safe" in part.gap_scope
    assert not part.gap_proved


@pytest.mark.parametrize("broken", ["unit_coordinates", "spans"])
def test_a_proof_that_the_bounds_at_a_point_contradict_is_an_error(monkeypatch, broken):
    k = MaternKernel(nu=2.5).double()
    k.lengthscale = 0.15
    space = {"n": kbo.Int(1, 5, log=True), "x": (0.0, 1.0)}
    setting = kbo.Certified(k, 0.05, 8.0, 0.05, completion_independent_of_noise=True)
    optimizer = kbo.Optimizer(space, setting=setting, maximize=True)
    for n, i in itertools.product(range(1, 5), range(11)):
        optimizer.tell({"n": n, "x": i / 10}, -1.0)
    assert optimizer.gap(3000).value > 8.0  # n = 5 may be as large as the norm bound allows
    spans = Cells.spans

    def narrow_spans(cells):
        centres, differences = spans(cells)
        return centres, 0.1 * differences

    def coordinates_until_0_22(space, places):  # of a whole number on a logarithmic scale
        return torch.stack([(places[:, 0] + 0.5) / 5, places[:, 1]], 1)

    if broken == "spans":
        monkeypatch.setattr(Cells, "spans", narrow_spans)
    else:
        monkeypatch.setattr(cells_module, "unit_coordinates", coordinates_until_0_22)
    with pytest.raises(Contradiction, match=r"no norm bound forbids\. This is a fault of kbo"):
        optimizer.gap(3000)


def test_a_gap_below_what_was_found_names_the_bound_that_proves_more():
    box = {f"x{i}": (0.0, 1.0) for i in range(4)}
    k = MaternKernel(nu=2.5).double()
    k.lengthscale = 0.3
    generator = torch.Generator().manual_seed(0)
    points = torch.rand(8, 4, generator=generator).tolist()
    setting = kbo.Certified(k, 0.1, 1.0, completion_independent_of_noise=True)
    optimizer = kbo.Optimizer(box, setting=setting, maximize=True, method="igp-ucb", n_trials=8)
    for point in points:
        optimizer.tell(dict(zip(box, point, strict=True)), 0.2)
    gap = optimizer.gap(500)
    assert gap.proved
    assert gap.value < gap.found
    assert (
        gap.reason
        == "the norm bound leaves less there than the bounds of the method (docs/theory/gaps.md)"
    )
    assert gap.scope.endswith(f"proved; {gap.found:.4g} was found, but {gap.reason}")
    within = optimizer.gap()
    assert not within.proved
    assert within.reason == "no proof was asked for: pass evaluations="
    assert within.scope == "by a search from many starts"


def optimizer_of(bounds, changed=None):
    k = RBFKernel().double()
    optimizer = kbo.Optimizer(
        bounds, **({"setting": kbo.Certified(k, 0.05, 3.0)} | (changed or {}))
    )
    for value in range(8):
        optimizer.tell(optimizer.ask(), 0.5 + value / 100)
    return optimizer


def test_a_gap_that_is_not_proved_says_why():
    parts = [kbo.When("c", "a", {"x": (0.0, 1.0)}), {"c": ["a", "b"]}]
    cases = {
        "the space has conditional parameters": optimizer_of(parts),
        "the kernel is not made of RBF and Matern kernels": optimizer_of(
            BOX, {"setting": kbo.Certified(PeriodicKernel().double(), 0.05, 3.0)}
        ),
        "practical, not certified": optimizer_of(BOX, {"setting": kbo.Practical(noise_std=0.05)}),
    }
    unasked = optimizer_of(BOX)
    unasked.tell({"x": 0.1, "y": 0.2}, 0.5)
    cases[r"trials with a value at parameters that ask did not return: 1; .*first trial 8\)"] = (
        unasked
    )
    for reason, optimizer in cases.items():
        gap = optimizer.gap(500)
        assert not gap.proved
        assert re.match(reason, gap.reason), gap.reason
        assert re.match(f"by a search from many starts; not proved: {reason}", gap.scope)
