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
from tests.laws.states import seeded
from tests.test_covers import rbf, scaled

DELTA = 0.05
KINDS = {"steps": {}, "smooth": {"smooth": True}, "rigorous": {"rigorous": True}}


def uniform(*shape: int, seed: int = 0, device="cpu") -> Tensor:
    return torch.rand(*shape, generator=seeded(seed), dtype=torch.float64).to(device)


def normal(n: int, seed: int = 0) -> Tensor:
    return torch.randn(n, generator=seeded(seed), dtype=torch.float64)


def kernel(kappa: float = 1.0) -> Kernel:
    return scaled("matern52", kappa, 0.3)


def fed(n: int, device="cpu", kappa: float = 1.0) -> KernelRidge:
    state = KernelRidge(kernel(kappa), 0.01 * kappa**2)
    state.update(uniform(n, 2, seed=50, device=device), kappa * normal(n, 50).to(device))
    return state


def formulas(n: int, device, kappa: float = 1.0) -> Dense:
    return Dense(
        kernel(kappa), uniform(n, 2, seed=50, device=device), kappa * normal(n, 50).to(device)
    )


# Against the dense formulas


@pytest.mark.parametrize(("kappa", "n", "size"), [(1.0, 0, 40), (0.3, 1, 1), (7.0, 30, 250)])
def test_bonuses_are_those_of_the_dense_formulas(device, kappa, n, size):
    state, Z = fed(n, device, kappa), uniform(size, 2, device=device)
    covers = Covers(formulas(n, device, kappa), Z, state.ridge)
    std = kappa * torch.cat([torch.linspace(0, 1.2, 200).double(), torch.tensor(covers.std)]).to(
        device
    )
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
    state, Z = fed(30, device), uniform(80, 2, device=device)
    expected = chaining(formulas(30, device), Z, 0.01, Z, DELTA, kind)
    for confidence in (Chaining(DELTA, points=Z, **KINDS[kind]), Chaining(DELTA, **KINDS[kind])):
        for one, other in zip(confidence.interval(state, Z), expected, strict=True):
            close(one, other, 1e-9)
    confidence = Chaining(DELTA, points=Z[:40], **KINDS[kind])
    quick, upper = confidence.quick_interval(state, Z)[1], confidence.upper(state, Z)
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
    for kappa2 in [
        k / 9973 for k in range(1, 30_000, 7) if (k / 9973) ** 0.5 != math.sqrt(k / 9973)
    ][:20]:
        prior = ScaleKernel(RBFKernel()).double()
        prior.outputscale = torch.tensor(kappa2, dtype=torch.float64)
        state, Z = KernelRidge(prior, 0.1), uniform(5, 2)
        assert Chaining(DELTA, points=Z).upper(state, Z).tolist() == [0.0] * 5


# The finite set, views and guarantees


def test_the_proved_bound_over_the_same_set_shares_its_covers():
    state, Z = fed(20), uniform(60, 2)
    plain, rigorous = Chaining(DELTA, points=Z), Chaining(DELTA, rigorous=True, points=Z)
    proved = plain.reported()
    assert proved.chain(state) is plain.chain(state)
    assert proved.guarantee == rigorous.guarantee
    assert torch.equal(proved.upper(state, Z), rigorous.upper(state, Z))


def test_a_set_serves_posteriors_of_both_precisions(device):
    """Also one whose points are whole numbers, which are the same in both."""
    Z = torch.cartesian_prod(torch.arange(8.0), torch.arange(8.0)).double().to(device)
    confidence = Chaining(DELTA, rigorous=True, points=Z)
    single, double = KernelRidge(rbf(3.0), 0.1), KernelRidge(rbf(3.0), 0.1)
    single.update(Z[:9].float(), Z[:9, 0].float())
    double.update(Z[:9], Z[:9, 0])
    for _ in range(2):
        upper = confidence.upper(single, Z.float())
        assert upper.dtype == torch.float32
        close(upper.double(), confidence.upper(double, Z), 1e-3)


def test_imagined_observations_change_standard_deviations_and_not_the_bonus(device):
    state, Z = fed(20, device), uniform(60, 2, device=device)
    confidence, P = Chaining(DELTA, points=Z), Z[[3, 8]]
    frozen = BatchView(FixedPoints(state, Z), Z)
    frozen.observe(3)
    frozen.observe(8)
    expected = chaining(Hallucinated(formulas(20, device), P), Z, 0.01, Z, DELTA, "steps")
    for view in (Hypothetical(state, P), frozen, Hypothetical(Hypothetical(state, P[:1]), P[1:])):
        assert confidence.bonus(view) is confidence.bonus(state)
        assert confidence.chain(view) is confidence.chain(state)
        for one, other in zip(confidence.interval(view, Z), expected, strict=True):
            close(one, other, 1e-8)


def test_only_the_rigorous_bound_promises_and_only_where_it_may():
    Z, X, y = uniform(30, 2), uniform(10, 2, seed=50), normal(10, 50)
    state = fed(10)
    assert Chaining(DELTA, points=Z).guarantee_on(state) is None
    assert (
        Chaining(DELTA, rigorous=True).guarantee_on(state) is None
    )  # a second set in a round would be one too many
    rigorous = Chaining(DELTA, rigorous=True, points=Z)
    for word in ("30 points", "at least 1 - 0.05", "prior", "ridge"):
        assert word in rigorous.guarantee_on(state)
    assert rigorous.guarantee_on(FixedPoints(state, Z)) == rigorous.guarantee
    frozen = BatchView(state, Z)
    assert rigorous.guarantee_on(frozen) is not None
    frozen.observe(3)
    sketch, moved = NystromRidge(kernel(), 0.01, GreedyDictionary(0.3)), fed(10)
    sketch.update(X, y)
    moved.move_ridge(0.02)
    schedule = NoiseBounds(50.0, 0.1, largest_ridge=0.1)
    adaptive = AdaptiveRidge(KernelRidge(kernel(), 0.1), schedule)
    for other in (
        sketch,
        frozen,
        Hypothetical(state, Z[:2]),
        moved,
        FixedPoints(moved, Z),
        adaptive,
        FixedPoints(adaptive, Z),
    ):
        assert rigorous.guarantee_on(other) is None
    assert torch.isfinite(rigorous.upper(sketch, Z)).all()
    adaptive.update(X, y)
    found = KernelRidge(kernel(), adaptive.ridge)
    found.update(X, y)
    close(rigorous.upper(adaptive, Z), rigorous.upper(found, Z), 1e-8)


# What is proved


def test_interior_cuts_are_those_of_the_dense_formulas_where_points_are_alike():
    """A point, and far from it many that are nearly one: there a chain is worth more than a union over all points."""
    Z = torch.cat([torch.zeros(1, 1).double(), 50 + 1e-4 * uniform(1499, 1)])
    state, std, X = (
        KernelRidge(rbf(1.0), 1e-4),
        torch.linspace(0.05, 1.2, 100).double(),
        Z[:1].expand(40, 1),
    )
    state.update(X, torch.zeros(40).double())
    bonus = Chaining(DELTA, rigorous=True, points=Z).bonus(state)
    assert isinstance(bonus, Cuts)
    lines = torch.tensor(bonus.intercepts).double() + torch.tensor(
        bonus.slopes
    ).double() * std.unsqueeze(-1)
    assert float((lines.argmin(1) < len(bonus.slopes) - 1).double().mean()) > 0.8
    covers = Covers(Dense(rbf(1.0), X, torch.zeros(40).double()), Z, 1e-4)
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
        X, y = made.train_inputs[0], made.train_targets.unsqueeze(-1)
        made = NystromGP(X, y, rbf(0.5), 0.01, FixedDictionary(uniform(9, 2, seed=7)))
    points, X = uniform(60, 2), uniform(4, 3, 2, seed=3)
    acqf, confidence = (
        ChainingUCB(made, points, DELTA, **RULES[kind]),
        Chaining(DELTA, points=points, **KINDS[kind]),
    )
    assert (acqf.guarantee is not None) == (kind == "rigorous")
    close(acqf(X[:, :1]), confidence.upper(made.state, X[:, :1]).squeeze(-1), 1e-12)
    assert acqf.guarantee is None  # X is not among the points
    acqf.set_X_pending(X[0, :1])
    close(
        acqf(X[:, 1:2]),
        confidence.upper(Hypothetical(made.state, X[0, :1]), X[:, 1:2]).squeeze(-1),
        1e-9,
    )


def test_points_are_given_in_the_units_of_the_model():
    X = 100 + 50 * uniform(15, 2, seed=50)
    y = torch.sin(X / 20).sum(-1, keepdim=True)
    units = Normalize(2, bounds=torch.tensor([[100.0] * 2, [150.0] * 2]).double())
    model, plain = (
        KernelRidgeGP(X, y, rbf(0.5), 0.01, input_transform=units),
        KernelRidgeGP((X - 100) / 50, y, rbf(0.5), 0.01),
    )
    points, asked = uniform(60, 2), uniform(20, 1, 2, seed=3)
    for kind in RULES.values():
        model.train()
        expected = ChainingUCB(plain, points, DELTA, **kind)(asked)
        close(
            ChainingUCB(model, 100 + 50 * points, DELTA, **kind)(100 + 50 * asked), expected, 1e-9
        )


def test_a_box_is_searched_by_gradients():
    design = torch.quasirandom.SobolEngine(6, scramble=True, seed=1).draw(500, dtype=torch.float64)
    acqf, box = (
        ChainingUCB(gp(20, 6, 0.8), design, DELTA),
        torch.tensor([[0.0] * 6, [1.0] * 6]).double(),
    )
    _, value = optimize_acqf(
        acqf, box, q=1, num_restarts=4, raw_samples=64, options={"seed": 0, "maxiter": 50}
    )
    assert float(value) >= float(acqf(uniform(512, 1, 6, seed=9)).max())
    batch, _ = optimize_acqf(
        acqf, box, q=2, num_restarts=2, raw_samples=16, options={"maxiter": 10}
    )
    assert float(torch.pdist(batch)) > 0.01


@pytest.mark.parametrize("kind", ["steps", "rigorous"])
def test_the_best_of_very_many_choices_is_found(monkeypatch, kind):
    monkeypatch.setattr(cover, "AT_ONCE", 500)
    choices, model = uniform(5000, 2), gp(8, 2, 1.0)
    acqf = ChainingUCB(model, choices, DELTA, **RULES[kind])
    x, value = optimize_acqf_discrete(acqf, q=1, choices=choices)
    best = float(acqf(choices.unsqueeze(1)).max())
    assert float(value) == pytest.approx(best, rel=1e-12)
    assert float(acqf(x)) == pytest.approx(best, rel=1e-12)


def test_covers_are_kept_by_the_next_acquisition_function(monkeypatch):
    Z, made = uniform(200, 2), []
    monkeypatch.setattr(
        "kbo.confidence.chaining.memory.Chain", lambda *args: made.append(1) or chain.Chain(*args)
    )
    X, y = uniform(20, 2, seed=50), normal(20).unsqueeze(-1)
    first = ChainingUCB(KernelRidgeGP(X[:12], y[:12], rbf(0.3), 0.01), Z, 0.1)
    first(Z.unsqueeze(1))
    second = ChainingUCB(KernelRidgeGP(X, y, rbf(0.3), 0.01), Z, 0.1, previous=first)
    second(Z.unsqueeze(1))
    assert len(made) == 1
    ChainingUCB(KernelRidgeGP(X, y, rbf(0.2), 0.01), Z, 0.1, previous=second)(Z.unsqueeze(1))
    assert len(made) == 2


# In the laboratory and in minimize

PROBLEMS = {
    "gp-draw": lambda seed: GaussianProcessBandit(n_points=200, side=4.0, seed=seed),
    "graphs": lambda seed: GraphBandit(n_graphs=200, seed=seed),
}


def method(name: str, problem, **kwargs):
    return bandit.make(
        name, problem.kernel, problem.noise_std, 5.0, DELTA, n_points=problem.n_arms, **kwargs
    )


@pytest.mark.parametrize(("game", "kind"), [("gp-draw", "steps"), ("graphs", "rigorous")])
def test_the_recipes_choose_the_largest_dense_bound(game, kind):
    problem = PROBLEMS[game](3)
    played = method("chaining-ucb" if kind == "steps" else "chaining-ucb-rigorous", problem)
    arms, state = problem.arms(), played.state(problem.fixed_arms)
    assert state.ridge == problem.noise_std**2
    for n in (5, 30):
        X = arms[torch.randperm(200, generator=seeded(n))[: n - state.n]]
        state.update(X, problem.observe(X))
        dense = Dense(problem.kernel, state.state.data.X, state.state.data.y)
        upper = chaining(dense, arms, state.ridge, arms, DELTA, kind)[1]
        assert float(upper[played.choose(state, arms)]) == pytest.approx(
            float(upper.max()), rel=1e-8
        )
    batch = played.choose_batch(state, arms, 5)
    assert batch[0] == played.choose(state, arms)
    assert len(batch) == 5
    assert game == "graphs" or len(set(batch)) > 2


def test_a_recipe_keeps_its_chain_between_refreshes_and_with_given_points_is_about_those():
    problem = PROBLEMS["gp-draw"](1)
    played, chains, arms = method("chaining-ucb", problem), [], problem.arms()
    state = played.state(problem.fixed_arms)
    for _ in range(16):
        index = played.choose(state, arms)
        chains.append(played.confidence.chain(state, arms))
        state.update(arms[index : index + 1], problem.observe(arms[index : index + 1]))
    assert [i for i in range(1, 16) if chains[i] is not chains[i - 1]] == [1, 3, 7, 15]

    assert (
        "50 points"
        in method("chaining-ucb-rigorous", problem, points=problem.arms()[:50]).confidence.guarantee
    )
    assert method("chaining-ucb", problem).confidence.points is None


class Watched(GraphBandit):
    """It remembers what was pulled."""

    def __init__(self, **kwargs) -> None:
        super().__init__(n_graphs=100, **kwargs)
        self.pulled = []

    def observe(self, X: Tensor) -> Tensor:
        self.pulled += [int((self.arms() == x).all(-1).nonzero()[0]) for x in X]
        return super().observe(X)


def test_initial_arms_are_the_same_for_all_methods_of_a_seed_and_best_is_the_least_regret_so_far():
    pulled = {}
    for name, seed in (("chaining-ucb", 3), ("gp-ucb", 3), ("random", 3), ("gp-ucb", 4)):
        problem = Watched()
        rows = list(bandit.play(method(name, problem), problem, 4, seed, initial=7))
        assert [row["round"] for row in rows] == [1, 2, 3, 4]
        assert rows[-1]["cumulative"] == pytest.approx(sum(row["regret"] for row in rows))
        means = problem.mean(problem.arms())
        regrets = (means.max() - means[problem.pulled]).tolist()
        assert len(regrets) == 11
        assert [row["regret"] for row in rows] == pytest.approx(regrets[7:], abs=1e-14)
        assert [row["best"] for row in rows] == pytest.approx(
            [min(regrets[:t]) for t in range(8, 12)], abs=1e-14
        )
        pulled[name, seed] = problem.pulled[:7]
    assert (
        pulled["chaining-ucb", 3]
        == pulled["gp-ucb", 3]
        == pulled["random", 3]
        != pulled["gp-ucb", 4]
    )
    assert len(set(pulled["random", 3])) > 2
    list(bandit.play(method("random", first := Watched()), first, 2, 3, initial=7, first=5))
    assert torch.equal(first.arms()[first.pulled[0]], first.arms()[5])
    assert len(first.pulled) == 10


FINITE = {"a": Int(0, 20), "b": ["x", "y"]}
CERTIFIED = Certified(rbf(0.3), noise_std=0.05, norm_bound=1.0)


@pytest.mark.parametrize("name", ["chaining-ucb", "chaining-ucb-rigorous"])
def test_minimize_covers_finite_spaces_and_reports_what_is_proved(name):
    noise = iter(range(12))

    def objective(p):
        return (p["a"] - 7) ** 2 / 50 + 0.2 * (p["b"] == "x") + 1e-6 * next(noise)

    result = minimize(objective, FINITE, 12, method=name, setting=CERTIFIED, seed=1)
    assert "42 points given" in result.guarantee
    assert result.gap > 0
    assert result.upper - result.lower > 0.1


def play(**kwargs):
    problem = Watched()
    return list(bandit.play(method("random", problem), problem, 2, **kwargs))


def chosen(**options):
    return minimize(lambda x: 0.0, n_trials=3, method="chaining-ucb", **options)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: chosen(setting=CERTIFIED, bounds=[(0.0, 1.0)]), "finite sets of points"),
        (lambda: chosen(setting=CERTIFIED, bounds=[(0, 10**5)]), "at most 4096"),
        (lambda: chosen(bounds=FINITE), "certified setting"),
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
