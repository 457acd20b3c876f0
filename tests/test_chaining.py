"""Bonuses and bounds by chaining: against dense formulas, in simulation, and in all that uses them.

The laws of every bound, also of the smooth and the rigorous one, are in ``tests/laws/test_confidences.py``.
"""

from __future__ import annotations

import math

import pytest
import torch
from botorch.models.transforms import Normalize
from botorch.optim import optimize_acqf, optimize_acqf_discrete
from gpytorch.kernels import Kernel, LinearKernel, RBFKernel, ScaleKernel
from torch import Tensor

from experiments.problems import GaussianProcessBandit, GraphBandit
from kbo import AdaptiveRidge, Certified, Int, InvalidInput, KernelRidge, bandit, minimize
from kbo.acquisition import KernelUCB
from kbo.acquisition.ucb import ChainingUCB
from kbo.confidence import Chaining, FiniteSet, NoiseBounds
from kbo.confidence.chaining import PosteriorMetric, chain, cover
from kbo.confidence.chaining.bonus import contal
from kbo.confidence.chaining.proved import Cuts, proved_cuts
from kbo.confidence.gaussian import exact_tail, srinivas
from kbo.models import KernelRidgeGP, NystromGP
from kbo.regression import (
    BatchView,
    FixedDictionary,
    FixedPoints,
    GreedyDictionary,
    Hypothetical,
    NystromRidge,
)
from tests.dense import Dense, Hallucinated, close
from tests.dense_chaining import Covers, chaining
from tests.laws.states import normal, seeded
from tests.test_covers import rbf, scaled

DELTA = 0.05
KINDS = {"steps": {}, "smooth": {"smooth": True}, "rigorous": {"rigorous": True}}


def uniform(*shape: int, seed: int = 0, device="cpu") -> Tensor:
    return torch.rand(*shape, generator=seeded(seed), dtype=torch.float64).to(device)


def data(n: int, device="cpu") -> tuple[Tensor, Tensor]:
    return uniform(n, 2, seed=50, device=device), normal(n, 50).to(device)


def kernel(kappa: float = 1.0) -> Kernel:
    return scaled("matern52", kappa, 0.3)


def fed(n: int, device="cpu", kappa: float = 1.0) -> KernelRidge:
    state = KernelRidge(kernel(kappa), 0.01 * kappa**2)
    X, y = data(n, device)
    state.update(X, kappa * y)
    return state


# Against the dense formulas


@pytest.mark.parametrize(("kappa", "n", "size"), [(1.0, 0, 40), (0.3, 1, 1), (7.0, 30, 250)])
def test_bonuses_are_those_of_the_dense_formulas(device, kappa, n, size):
    state = fed(n, device, kappa)
    Z = uniform(size, 2, device=device)
    X, y = data(n, device)
    covers = Covers(Dense(kernel(kappa), X, kappa * y), Z, state.ridge)
    line = torch.linspace(0, 1.2, 200).double()
    std = kappa * torch.cat([line, torch.tensor(covers.std)]).to(device)
    plain, smooth, rigorous = (
        Chaining(DELTA, points=Z, **kind).bonus(state) for kind in KINDS.values()
    )
    assert plain.heights == pytest.approx(covers.heights(DELTA), rel=1e-12)
    for found, formula in (
        (plain, covers.steps),
        (plain.majorant, covers.smooth),
        (rigorous, covers.rigorous),
    ):
        close(found(std).cpu(), torch.tensor(formula(std.cpu().numpy(), DELTA)), 1e-11)
    close(smooth.majorant(std), plain.majorant(std), 1e-14)
    close(rigorous.majorant(std), rigorous(std), 1e-14)


@pytest.mark.parametrize("kind", KINDS)
def test_a_set_is_given_or_what_is_asked_for(device, kind):
    state = fed(30, device)
    Z = uniform(80, 2, device=device)
    expected = chaining(Dense(kernel(), *data(30, device)), Z, 0.01, Z, DELTA, kind)
    for points in (Z, None):
        found = Chaining(DELTA, points=points, **KINDS[kind]).interval(state, Z)
        close(torch.stack(found), torch.stack(expected), 1e-9)
    confidence = Chaining(DELTA, points=Z[:40], **KINDS[kind])
    quick = confidence.quick_interval(state, Z)[1]
    upper = confidence.upper(state, Z)
    assert (quick >= upper - 1e-12).all()
    assert torch.equal(quick, upper) == (kind != "steps")


def test_the_constants_are_those_of_the_paper():
    """By hand: three points far from each other, nothing observed but the first, many times."""
    Z = torch.tensor([[0.0], [100.0], [200.0]]).double()
    state = KernelRidge(rbf(1.0), 0.01)
    state.update(Z[:1].expand(4, 1), torch.zeros(4).double())
    # std^2 = r / (4 + r) with r = 0.01, so 0.05 <= eps_i for i = 1 .. 5.
    # d = sqrt(1 + std^2) or sqrt 2: more than 1 from the first on, so that T_1 has all three.
    expected = [
        2.0 ** (1 - i) * math.sqrt(2 * math.log(4 * i**2 * 25 * math.pi**4 / (36 * 0.05)))
        for i in range(1, 6)
    ]
    assert Chaining(0.05, points=Z).bonus(state).heights == pytest.approx(expected, rel=1e-13)
    # eps_1 = 1 is no step below a standard deviation of 1.
    upper = Chaining(0.05, points=Z).upper(state, Z)
    assert upper.tolist() == pytest.approx([0.0, sum(expected[1:]), sum(expected[1:])])
    assert contal(3, 2, 5, 0.05) == pytest.approx(2 * expected[1], rel=1e-13)


def test_the_first_level_is_no_step_where_nothing_is_known_whatever_the_units():
    """The square root of k(x, x), taken twice in different ways, must not be below itself."""
    Z = uniform(5, 2)
    variances = [k / 9973 for k in range(1, 30_000, 7)]
    for variance in [v for v in variances if v**0.5 != math.sqrt(v)][:20]:
        prior = ScaleKernel(RBFKernel()).double()
        prior.outputscale = torch.tensor(variance, dtype=torch.float64)
        upper = Chaining(DELTA, points=Z).upper(KernelRidge(prior, 0.1), Z)
        assert upper.tolist() == [0.0] * 5


# The finite set, views and guarantees


def test_the_proved_bound_over_the_same_set_shares_its_covers():
    state = fed(20)
    Z = uniform(60, 2)
    plain = Chaining(DELTA, points=Z)
    rigorous = Chaining(DELTA, rigorous=True, points=Z)
    proved = plain.reported()
    assert proved.chain(state) is plain.chain(state)
    assert proved.guarantee == rigorous.guarantee
    assert torch.equal(proved.upper(state, Z), rigorous.upper(state, Z))


def test_a_set_serves_posteriors_of_both_precisions(device):
    """Also one whose points are whole numbers, which are the same in both."""
    Z = torch.cartesian_prod(torch.arange(8.0), torch.arange(8.0)).double().to(device)
    confidence = Chaining(DELTA, rigorous=True, points=Z)
    single = KernelRidge(rbf(3.0), 0.1)
    single.update(Z[:9].float(), Z[:9, 0].float())
    double = KernelRidge(rbf(3.0), 0.1)
    double.update(Z[:9], Z[:9, 0])
    for _ in range(2):
        upper = confidence.upper(single, Z.float())
        assert upper.dtype == torch.float32
        close(upper.double(), confidence.upper(double, Z), 1e-3)


def test_imagined_observations_change_standard_deviations_and_not_the_bonus(device):
    state = fed(20, device)
    Z = uniform(60, 2, device=device)
    P = Z[[3, 8]]
    confidence = Chaining(DELTA, points=Z)
    frozen = BatchView(FixedPoints(state, Z), Z)
    frozen.observe(3)
    frozen.observe(8)
    formulas = Hallucinated(Dense(kernel(), *data(20, device)), P)
    expected = chaining(formulas, Z, 0.01, Z, DELTA, "steps")
    for view in (Hypothetical(state, P), frozen, Hypothetical(Hypothetical(state, P[:1]), P[1:])):
        assert confidence.bonus(view) is confidence.bonus(state)
        assert confidence.chain(view) is confidence.chain(state)
        close(torch.stack(confidence.interval(view, Z)), torch.stack(expected), 1e-8)


def test_only_the_rigorous_bound_promises_and_only_where_it_may():
    Z = uniform(30, 2)
    state = fed(10)
    assert Chaining(DELTA, points=Z).guarantee_on(state) is None
    # A second set in a round would be one too many.
    assert Chaining(DELTA, rigorous=True).guarantee_on(state) is None
    rigorous = Chaining(DELTA, rigorous=True, points=Z)
    for word in ("30 points", "at least 1 - 0.05", "prior", "ridge"):
        assert word in rigorous.guarantee_on(state)
    assert rigorous.guarantee_on(FixedPoints(state, Z)) == rigorous.guarantee
    frozen = BatchView(state, Z)
    assert rigorous.guarantee_on(frozen) is not None
    frozen.observe(3)
    sketch = NystromRidge(kernel(), 0.01, GreedyDictionary(0.3))
    sketch.update(*data(10))
    assert torch.isfinite(rigorous.upper(sketch, Z)).all()
    moved = fed(10)
    moved.move_ridge(0.02)
    schedule = NoiseBounds(50.0, 0.1, largest_ridge=0.1)
    adaptive = AdaptiveRidge(KernelRidge(kernel(), 0.1), schedule)
    others = [sketch, frozen, Hypothetical(state, Z[:2]), moved, adaptive]
    for other in (*others, FixedPoints(moved, Z), FixedPoints(adaptive, Z)):
        assert rigorous.guarantee_on(other) is None
    adaptive.update(*data(10))
    plain = KernelRidge(kernel(), adaptive.ridge)
    plain.update(*data(10))
    close(rigorous.upper(adaptive, Z), rigorous.upper(plain, Z), 1e-8)


# What is proved


def test_interior_cuts_are_those_of_the_dense_formulas_where_points_are_alike():
    """A point, and far from it many that are nearly one: there a chain is worth more than a union over all points."""
    Z = torch.cat([torch.zeros(1, 1).double(), 50 + 1e-4 * uniform(1499, 1)])
    X = Z[:1].expand(40, 1)
    state = KernelRidge(rbf(1.0), 1e-4)
    state.update(X, X[:, 0])
    bonus = Chaining(DELTA, rigorous=True, points=Z).bonus(state)
    assert isinstance(bonus, Cuts)
    std = torch.linspace(0.05, 1.2, 100).double()
    lines = std.unsqueeze(-1) * std.new_tensor(bonus.slopes) + std.new_tensor(bonus.intercepts)
    assert float((lines.argmin(1) < len(bonus.slopes) - 1).double().mean()) > 0.8
    covers = Covers(Dense(rbf(1.0), X, X[:, 0]), Z, 1e-4)
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


def test_where_the_prior_knows_everything_nothing_is_explored():
    Z = torch.zeros(3, 2).double()
    state = KernelRidge(ScaleKernel(LinearKernel()).double(), 0.1)
    for kind in KINDS.values():
        assert bool((torch.stack(Chaining(DELTA, points=Z, **kind).interval(state, Z)) == 0).all())


# In BoTorch


def gp(n: int = 15, d: int = 2, lengthscale: float = 0.5) -> KernelRidgeGP:
    X = uniform(n, d, seed=50)
    return KernelRidgeGP(X, torch.sin(3 * X).sum(-1, keepdim=True), rbf(lengthscale), 0.01)


RULES = {"steps": {"smooth": False}, "smooth": {}, "rigorous": {"rigorous": True}}


@pytest.mark.parametrize(
    ("kind", "sketched"), [("steps", True), ("smooth", False), ("rigorous", False)]
)
def test_values_are_upper_bounds_also_with_pending_points(kind, sketched):
    made = gp()
    if sketched:
        X = made.train_inputs[0]
        anchors = FixedDictionary(uniform(9, 2, seed=7))
        made = NystromGP(X, made.train_targets.unsqueeze(-1), rbf(0.5), 0.01, anchors)
    points = uniform(60, 2)
    X = uniform(4, 3, 2, seed=3)
    acqf = ChainingUCB(made, points, DELTA, **RULES[kind])
    confidence = Chaining(DELTA, points=points, **KINDS[kind])
    assert (acqf.guarantee is not None) == (kind == "rigorous")
    close(acqf(X[:, :1]), confidence.upper(made.state, X[:, :1]).squeeze(-1), 1e-12)
    assert acqf.guarantee is None  # X is not among the points
    acqf.set_X_pending(X[0, :1])
    pending = Hypothetical(made.state, X[0, :1])
    close(acqf(X[:, 1:2]), confidence.upper(pending, X[:, 1:2]).squeeze(-1), 1e-9)


@pytest.mark.parametrize("kind", RULES)
def test_points_are_given_in_the_units_of_the_model(kind):
    X = uniform(15, 2, seed=50)
    y = torch.sin(5 + 2.5 * X).sum(-1, keepdim=True)
    units = Normalize(2, bounds=torch.tensor([[100.0] * 2, [150.0] * 2]).double())
    model = KernelRidgeGP(100 + 50 * X, y, rbf(0.5), 0.01, input_transform=units)
    plain = KernelRidgeGP(X, y, rbf(0.5), 0.01)
    points = uniform(60, 2)
    asked = uniform(20, 1, 2, seed=3)
    expected = ChainingUCB(plain, points, DELTA, **RULES[kind])(asked)
    model.train()
    acqf = ChainingUCB(model, 100 + 50 * points, DELTA, **RULES[kind])
    close(acqf(100 + 50 * asked), expected, 1e-9)


def test_a_box_is_searched_by_gradients():
    acqf = ChainingUCB(gp(20, 6, 0.8), uniform(300, 6, seed=1), DELTA)
    box = torch.tensor([[0.0] * 6, [1.0] * 6]).double()
    options = {"num_restarts": 4, "raw_samples": 64, "options": {"seed": 0, "maxiter": 50}}
    _, value = optimize_acqf(acqf, box, q=1, **options)
    assert float(value) >= float(acqf(uniform(512, 1, 6, seed=9)).max())
    batch, _ = optimize_acqf(acqf, box, q=2, num_restarts=2, raw_samples=16, options={"maxiter": 5})
    assert float(torch.pdist(batch)) > 0.01


@pytest.mark.parametrize("kind", ["steps", "rigorous"])
def test_the_best_of_very_many_choices_is_found(monkeypatch, kind):
    monkeypatch.setattr(cover, "AT_ONCE", 500)
    choices = uniform(2000, 2)
    acqf = ChainingUCB(gp(8, 2, 1.0), choices, DELTA, **RULES[kind])
    x, value = optimize_acqf_discrete(acqf, q=1, choices=choices)
    best = pytest.approx(float(acqf(choices.unsqueeze(1)).max()), rel=1e-12)
    assert (float(value), float(acqf(x))) == (best, best)


def test_covers_are_kept_by_the_next_acquisition_function(monkeypatch):
    made = []
    monkeypatch.setattr(
        "kbo.confidence.chaining.memory.Chain", lambda *args: made.append(1) or chain.Chain(*args)
    )
    Z = uniform(200, 2)
    X, y = data(20)
    acqf = None
    for n, lengthscale, n_made in ((12, 0.3, 1), (20, 0.3, 1), (20, 0.2, 2)):
        model = KernelRidgeGP(X[:n], y[:n].unsqueeze(-1), rbf(lengthscale), 0.01)
        acqf = ChainingUCB(model, Z, 0.1, previous=acqf)
        acqf(Z.unsqueeze(1))
        assert len(made) == n_made


# In the laboratory and in minimize


def method(name: str, problem, **kwargs):
    numbers = problem.noise_std, 5.0, DELTA
    return bandit.make(name, problem.kernel, *numbers, n_points=problem.n_arms, **kwargs)


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
    for n in (5, 30):
        X = arms[torch.randperm(200, generator=seeded(n))[: n - state.n]]
        state.update(X, problem.observe(X))
        dense = Dense(problem.kernel, state.state.data.X, state.state.data.y)
        upper = chaining(dense, arms, state.ridge, arms, DELTA, kind)[1]
        row = played.choose(state, arms)
        assert float(upper[row]) == pytest.approx(float(upper.max()), rel=1e-8)
    batch = played.choose_batch(state, arms, 5)
    assert batch[0] == row
    assert len(batch) == 5
    assert kind == "rigorous" or len(set(batch)) > 2


def test_a_recipe_keeps_its_chain_between_refreshes_and_with_given_points_is_about_those():
    problem = GaussianProcessBandit(n_points=200, side=4.0, seed=1)
    arms = problem.arms()
    played = method("chaining-ucb", problem)
    assert played.confidence.points is None
    state = played.state(problem.fixed_arms)
    chains = []
    for _ in range(16):
        index = played.choose(state, arms)
        chains.append(played.confidence.chain(state, arms))
        state.update(arms[index : index + 1], problem.observe(arms[index : index + 1]))
    assert [i for i in range(1, 16) if chains[i] is not chains[i - 1]] == [1, 3, 7, 15]
    given = method("chaining-ucb-rigorous", problem, points=arms[:50])
    assert "50 points" in given.confidence.guarantee


class Watched(GraphBandit):
    """It remembers what was pulled."""

    def __init__(self, **kwargs) -> None:
        super().__init__(n_graphs=100, **kwargs)
        self.pulled = []

    def observe(self, X: Tensor) -> Tensor:
        self.pulled += [int((self.arms() == x).all(-1).nonzero()[0]) for x in X]
        return super().observe(X)


def test_initial_arms_are_the_same_for_all_methods_of_a_seed_and_best_is_the_least_regret_so_far():
    initial = []
    for name, seed in (("chaining-ucb", 3), ("gp-ucb", 3), ("random", 3), ("gp-ucb", 4)):
        rows, problem = play(name, seed, initial=7)
        means = problem.mean(problem.arms())
        regrets = (means.max() - means[problem.pulled]).tolist()
        total = 0.0
        for t, row in enumerate(rows, start=1):
            total += row["regret"]
            found = [row[column] for column in ("round", "regret", "cumulative", "best")]
            expected = [t, regrets[6 + t], total, min(regrets[: 7 + t])]
            assert found == pytest.approx(expected, abs=1e-12)
        assert (len(rows), len(regrets)) == (4, 11)
        initial.append(problem.pulled[:7])
    assert initial[0] == initial[1] == initial[2] != initial[3]
    assert len(set(initial[2])) > 2
    first = play(initial=7, first=5)[1]
    assert torch.equal(first.arms()[first.pulled[0]], first.arms()[5])
    assert len(first.pulled) == 12


CERTIFIED = Certified(rbf(0.3), noise_std=0.05, norm_bound=1.0)


@pytest.mark.parametrize("name", ["chaining-ucb", "chaining-ucb-rigorous"])
def test_minimize_covers_finite_spaces_and_reports_what_is_proved(name):
    noise = iter(range(12))

    def objective(p):
        return (p["a"] - 7) ** 2 / 50 + 0.2 * (p["b"] == "x") + 1e-6 * next(noise)

    space = {"a": Int(0, 20), "b": ["x", "y"]}
    result = minimize(objective, space, 12, method=name, setting=CERTIFIED, seed=1)
    assert "42 points given" in result.guarantee
    assert result.gap > 0
    assert result.upper - result.lower > 0.1


def minimized(bounds, **options):
    return minimize(lambda x: 0.0, bounds, 3, method="chaining-ucb", **options)


def play(name: str = "random", seed: int = 3, **options) -> tuple[list[dict], Watched]:
    problem = Watched()
    return list(bandit.play(method(name, problem), problem, 4, seed, **options)), problem


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: minimized([(0.0, 1.0)], setting=CERTIFIED), "finite sets of points"),
        (lambda: minimized([(0, 10**5)], setting=CERTIFIED), "at most 4096"),
        (lambda: minimized([(0, 5)]), "certified setting"),
        (lambda: play(initial=-1), "initial"),
        (lambda: Chaining(DELTA, points=uniform(0, 2)), "points"),
        (lambda: Chaining(DELTA).upper(fed(3), uniform(5, 1, 2)), "points"),
        (lambda: KernelUCB(gp(), Chaining(DELTA))(uniform(4, 1, 2)), "points="),
        (lambda: Chaining(DELTA, points=uniform(5, 3)).upper(fed(4), uniform(3, 2)), "columns"),
        (lambda: Chaining(DELTA).share_covers(FiniteSet(10, 0.1)), "shared with another Chaining"),
        (lambda: PosteriorMetric(gp(), uniform(5, 2)), r"model\.state"),
        (
            lambda: ChainingUCB(gp(), uniform(3, 2), 0.1, previous=Chaining(0.1)),
            "previous must be the ChainingUCB",
        ),
    ],
)
def test_mistakes_are_named(make, says):
    with pytest.raises(InvalidInput, match=says):
        make()
