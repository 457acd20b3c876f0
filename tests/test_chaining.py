"""Bonuses and bounds by chaining: against dense formulas, in BoTorch, in the laboratory and in ``minimize``.

The laws of every bound, also of the smooth and the rigorous one, are in ``tests/laws/test_confidences.py``.
"""

from __future__ import annotations

import math

import pytest
import torch
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.models.transforms import Normalize
from gpytorch.kernels import Kernel, LinearKernel, RBFKernel, ScaleKernel
from torch import Tensor

from experiments.problems import GaussianProcessBandit, GraphBandit
from kbo import AdaptiveRidge, Certified, Int, InvalidInput, KernelRidge, bandit, minimize
from kbo.acquisition import KernelUCB
from kbo.acquisition.ucb import ChainingUCB
from kbo.confidence import Chaining, FiniteSet, NoiseBounds
from kbo.confidence.chaining.bonus import Cuts, contal, proved_cuts
from kbo.confidence.gaussian import exact_tail, srinivas
from kbo.models import KernelRidgeGP
from kbo.regression import BatchView, FixedPoints, GreedyDictionary, Hypothetical, NystromRidge
from tests.conftest import DEVICE
from tests.dense import Dense, close
from tests.dense_chaining import Covers, chaining
from tests.laws.states import normal, seeded
from tests.test_covers import rbf, scaled

pytestmark = pytest.mark.usefixtures("device")

DELTA = 0.05
KINDS = {"steps": {}, "rigorous": {"rigorous": True}}


def uniform(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=seeded(seed), dtype=torch.float64).to(DEVICE)


X = uniform(30, 2, seed=50)
Y = normal(30, 50).to(DEVICE)


def kernel(kappa: float = 1.0) -> Kernel:
    return scaled("matern52", kappa, 0.3)


def fed(n: int, kappa: float = 1.0) -> KernelRidge:
    state = KernelRidge(kernel(kappa), 0.01 * kappa**2)
    state.update(X[:n], kappa * Y[:n])
    return state


# Against the dense formulas


@pytest.mark.parametrize(("kappa", "n", "size"), [(1.0, 0, 40), (0.3, 1, 1), (7.0, 30, 250)])
def test_bonuses_and_bounds_are_those_of_the_dense_formulas(kappa, n, size):
    state = fed(n, kappa)
    Z = uniform(size, 2)
    formulas = Dense(kernel(kappa), X[:n], kappa * Y[:n])
    covers = Covers(formulas, Z, state.ridge)
    line = torch.linspace(0, 1.2, 200).double()
    std = kappa * torch.cat([line, torch.tensor(covers.std)]).to(DEVICE)
    made = {kind: Chaining(DELTA, points=Z, **options) for kind, options in KINDS.items()}
    bonuses = {kind: confidence.bonus(state) for kind, confidence in made.items()}
    assert bonuses["steps"].heights == pytest.approx(covers.heights(DELTA), rel=1e-12)
    for found, formula in (
        (bonuses["steps"], covers.steps),
        (bonuses["steps"].majorant, covers.smooth),
        (bonuses["rigorous"], covers.rigorous),
    ):
        close(found(std).cpu(), torch.tensor(formula(std.cpu().numpy(), DELTA)), 1e-11)
    for kind, confidence in made.items():
        expected = torch.stack(chaining(formulas, Z, state.ridge, Z, DELTA, kind))
        close(torch.stack(confidence.interval(state, Z)), expected, 1e-9)
        asked = Chaining(DELTA, **KINDS[kind])  # for the set that is asked for
        close(torch.stack(asked.interval(state, Z)), expected, 1e-9)
        quick = torch.stack(confidence.quick_interval(state, Z))
        continuous = "smooth" if kind == "steps" else kind
        close(quick, torch.stack(chaining(formulas, Z, state.ridge, Z, DELTA, continuous)), 1e-9)
        assert (quick[1] >= confidence.upper(state, Z) - 1e-12).all()


def test_the_first_level_is_no_step_where_nothing_is_known_whatever_the_units():
    """The square root of k(x, x), taken twice in different ways, must not be below itself."""
    Z = uniform(5, 2)
    variances = [k / 9973 for k in range(1, 30_000, 7)]
    for variance in [v for v in variances if v**0.5 != math.sqrt(v)][:20]:
        prior = ScaleKernel(RBFKernel()).double()
        prior.outputscale = torch.tensor(variance, dtype=torch.float64)
        upper = Chaining(DELTA, points=Z).upper(KernelRidge(prior, 0.1), Z)
        assert upper.tolist() == [0.0] * 5


def test_where_the_prior_knows_everything_nothing_is_explored():
    Z = torch.zeros(3, 2).double()
    state = KernelRidge(ScaleKernel(LinearKernel()).double(), 0.1)
    for kind in KINDS.values():
        assert bool((torch.stack(Chaining(DELTA, points=Z, **kind).interval(state, Z)) == 0).all())


def test_interior_cuts_are_those_of_the_dense_formulas_where_points_are_alike():
    """A point, and far from it many that are nearly one: there a chain is worth more than a union over all points."""
    Z = torch.cat([torch.zeros(1, 1).to(X), 50 + 1e-4 * uniform(1499, 1)])
    same = Z[:1].expand(40, 1)
    state = KernelRidge(rbf(1.0), 1e-4)
    state.update(same, same[:, 0])
    bonus = Chaining(DELTA, rigorous=True, points=Z).bonus(state)
    assert isinstance(bonus, Cuts)
    std = torch.linspace(0.05, 1.2, 100).double()
    lines = std.unsqueeze(-1) * std.new_tensor(bonus.slopes) + std.new_tensor(bonus.intercepts)
    assert float((lines.argmin(1) < len(bonus.slopes) - 1).double().mean()) > 0.8
    covers = Covers(Dense(rbf(1.0), same, same[:, 0]), Z, 1e-4)
    assert bonus(std).numpy() == pytest.approx(covers.rigorous(std.numpy(), DELTA), rel=1e-10)
    union = exact_tail(srinivas(len(Z), 41, DELTA))
    assert float(bonus(torch.ones(1).double())) < 0.97 * union


def test_every_cut_is_a_line_of_the_table():
    sizes, radii, delta, t = [2, 5, 9], [1.0, 0.5, 0.25], 0.1, 4
    found = proved_cuts(sizes, radii, 20, t, delta)
    steps = [
        eps * exact_tail(contal(size, level, t, delta / 10))
        for eps, size, level in zip(radii, [5, 9, 20], [2, 3, 4], strict=True)
    ]
    for c, size in enumerate(sizes):
        slope = exact_tail(contal(size - 1, 1, t, delta / 30))
        intercept = (2 * radii[c] - radii[-1]) * slope + sum(steps[c:])
        assert (found.slopes[c], found.intercepts[c]) == pytest.approx((slope, intercept))


def test_only_the_rigorous_bound_promises_and_only_where_it_may():
    Z = uniform(30, 2)
    state = fed(10)
    plain = Chaining(DELTA, points=Z)
    assert plain.guarantee_on(state) is None
    # A second set in a round would be one too many.
    assert Chaining(DELTA, rigorous=True).guarantee_on(state) is None
    rigorous = Chaining(DELTA, rigorous=True, points=Z)
    assert plain.reported().guarantee == rigorous.guarantee
    assert torch.equal(plain.reported().upper(state, Z), rigorous.upper(state, Z))
    for word in ("30 points", "at least 1 - 0.05", "prior", "ridge"):
        assert word in rigorous.guarantee_on(state)
    frozen = BatchView(state, Z)
    for view in (FixedPoints(state, Z), frozen):
        assert rigorous.guarantee_on(view) == rigorous.guarantee
    frozen.observe(3)
    sketch = NystromRidge(kernel(), 0.01, GreedyDictionary(0.3))
    sketch.update(X, Y)
    moved = fed(10)
    moved.move_ridge(0.02)
    schedule = NoiseBounds(50.0, 0.1, largest_ridge=0.1)
    adaptive = AdaptiveRidge(KernelRidge(kernel(), 0.1), schedule)
    for other in (sketch, frozen, Hypothetical(state, Z[:2]), moved, FixedPoints(adaptive, Z)):
        assert rigorous.guarantee_on(other) is None


# In BoTorch


def gp(n: int = 15, lengthscale: float = 0.5, **options) -> KernelRidgeGP:
    targets = torch.sin(3 * X[:n]).sum(-1, keepdim=True)
    return KernelRidgeGP(X[:n], targets, rbf(lengthscale), 0.01, **options)


MINIMISED = ScalarizedPosteriorTransform(torch.tensor([-1.0]).double())
RULES = {"steps": {"smooth": False}, "smooth": {}, "rigorous": {"rigorous": True}}


@pytest.mark.parametrize("kind", RULES)
def test_values_are_upper_bounds_in_the_units_of_the_model_also_with_pending_points(kind):
    units = Normalize(2, bounds=X.new_tensor([[-2.0] * 2, [2.0] * 2]))
    made = gp(input_transform=units)
    inside = KernelRidge(rbf(0.5), 0.01)
    inside.update((X[:15] + 2) / 4, made.train_targets)
    points = uniform(60, 2)
    asked = uniform(4, 1, 2, seed=3)
    scaled_points, scaled_asked = ((tensor + 2) / 4 for tensor in (points, asked))
    made.train()
    acqf = ChainingUCB(made, points, DELTA, **RULES[kind])
    confidence = Chaining(DELTA, rigorous=kind == "rigorous", points=scaled_points)

    def upper(state):
        if kind == "smooth":
            return confidence.quick_interval(state, scaled_asked)[1].squeeze(-1)
        return confidence.upper(state, scaled_asked).squeeze(-1)

    assert (acqf.guarantee is not None) == (kind == "rigorous")
    close(acqf(asked), upper(inside), 1e-9)
    assert acqf.guarantee is None  # what was asked for is not among the points
    acqf.set_X_pending(points[:2])
    pending = Hypothetical(inside, scaled_points[:2])
    close(acqf(asked), upper(pending), 1e-9)
    lowest = ChainingUCB(made, points, DELTA, posterior_transform=MINIMISED, **RULES[kind])
    mean = inside.predict(scaled_asked)[0].squeeze(-1)
    close(lowest(asked) + mean, upper(inside) - mean, 1e-9)


def test_covers_are_kept_by_the_next_acquisition_function():
    Z = uniform(200, 2)
    previous = None
    chains = []
    for n, lengthscale in ((12, 0.3), (20, 0.3), (20, 0.2)):
        previous = ChainingUCB(gp(n, lengthscale), Z, 0.1, previous=previous)
        chains.append(previous.confidence.chain(previous.model.state))
    assert chains[0] is chains[1] is not chains[2]


# In the laboratory and in minimize


def method(name: str, problem, **options):
    numbers = problem.noise_std, 5.0, DELTA
    return bandit.make(name, problem.kernel, *numbers, n_points=problem.n_arms, **options)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("chaining-ucb", GaussianProcessBandit(n_points=200, side=4.0, seed=3)),
        ("chaining-ucb-rigorous", GraphBandit(n_graphs=200, seed=3)),
    ],
    ids=["steps", "rigorous"],
)
def test_the_recipes_choose_the_largest_dense_bound(name, problem):
    played = method(name, problem)
    kind = "rigorous" if "rigorous" in name else "steps"
    arms = problem.arms()
    state = played.state(problem.fixed_arms)
    assert state.ridge == problem.noise_std**2
    pulled = arms[torch.randperm(200, generator=seeded(30))[:30]]
    state.update(pulled, problem.observe(pulled))
    dense = Dense(problem.kernel, state.state.data.X, state.state.data.y)
    upper = chaining(dense, arms, state.ridge, arms, DELTA, kind)[1]
    row = played.choose(state, arms)
    assert float(upper[row]) == pytest.approx(float(upper.max()), rel=1e-8)
    batch = played.choose_batch(state, arms, 5)
    assert batch[0] == row
    assert len(batch) == 5
    given = method(name, problem, points=arms[:50]).bound
    assert "50 points" in given.reported().guarantee


def play(problem: GraphBandit, name: str = "random", seed: int = 3, **options) -> list[dict]:
    return list(bandit.play(method(name, problem), problem, 4, seed, **options))


class Watched(GraphBandit):
    """It remembers what was pulled."""

    def __init__(self) -> None:
        super().__init__(n_graphs=100)
        self.pulled = []

    def observe(self, X: Tensor) -> Tensor:
        self.pulled += [int((self.arms() == x).all(-1).nonzero()[0]) for x in X]
        return super().observe(X)


def test_initial_arms_are_the_same_for_all_methods_of_a_seed_and_best_is_the_least_regret_so_far():
    initial = []
    for name, seed in (("chaining-ucb", 3), ("random", 3), ("random", 4)):
        problem = Watched()
        rows = play(problem, name, seed, first=5, initial=7)
        means = problem.mean(problem.arms())
        regrets = (means.max() - means[problem.pulled]).tolist()
        assert torch.equal(problem.arms()[problem.pulled[0]], problem.arms()[5])
        assert (len(rows), len(regrets)) == (4, 12)
        for t, row in enumerate(rows, start=1):
            found = [row[column] for column in ("round", "regret", "cumulative", "best")]
            expected = [t, regrets[7 + t], sum(regrets[8 : 8 + t]), min(regrets[: 8 + t])]
            assert found == pytest.approx(expected, abs=1e-12)
        initial.append(problem.pulled[1:8])
    assert initial[0] == initial[1] != initial[2]


CERTIFIED = Certified(rbf(0.3), noise_std=0.05)


@pytest.mark.parametrize("name", ["chaining-ucb", "chaining-ucb-rigorous"])
def test_minimize_covers_finite_spaces_and_reports_what_is_proved(name):
    noise = iter(range(12))

    def objective(p):
        return (p["a"] - 7) ** 2 / 50 + 0.2 * (p["b"] == "x") + 1e-6 * next(noise)

    space = {"a": Int(0, 20), "b": ["x", "y"]}
    result = minimize(objective, space, 12, method=name, setting=CERTIFIED, seed=1)
    assert "42 points given" in result.guarantee
    assert result.gap.value > 0
    assert result.upper - result.lower > 0.1
    assert result.assumptions["norm_bound"] is None


def minimized(bounds, **options):
    return minimize(lambda x: 0.0, bounds, 3, method="chaining-ucb", **options)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: minimized([(0.0, 1.0)], setting=CERTIFIED), "finite sets of points"),
        (lambda: minimized([(0, 10**5)], setting=CERTIFIED), "at most 4096"),
        (lambda: minimized([(0, 5)]), "certified setting"),
        (lambda: play(Watched(), initial=-1), "initial"),
        (lambda: Chaining(DELTA).upper(fed(3), uniform(5, 1, 2)), "points"),
        (lambda: KernelUCB(gp(), Chaining(DELTA))(uniform(4, 1, 2)), "points="),
        (lambda: Chaining(DELTA, points=uniform(5, 3)).upper(fed(4), uniform(3, 2)), "columns"),
        (
            lambda: Chaining(DELTA).share_covers(FiniteSet(10, 0.1)),
            "other must be a kbo.confidence.Chaining",
        ),
        (
            lambda: ChainingUCB(gp(), uniform(3, 2), 0.1, previous=Chaining(0.1)),
            "previous must be a kbo.acquisition.ChainingUCB",
        ),
    ],
)
def test_mistakes_are_named(make, says):
    with pytest.raises(InvalidInput, match=says):
        make()
