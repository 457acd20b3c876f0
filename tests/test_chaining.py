"""Bonuses and bounds by chaining: against dense formulas, by their laws, in simulation, and in all that uses them."""

from __future__ import annotations

import math

import pytest
import torch
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.models.transforms import Normalize
from botorch.optim import optimize_acqf, optimize_acqf_discrete
from gpytorch.kernels import Kernel, LinearKernel, MaternKernel, RBFKernel, ScaleKernel
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck

from kbo import AdaptiveRidge, Certified, Int, InvalidInput, KernelRidge, bandit, minimize, recipes
from kbo.acquisition import KernelUCB
from kbo.acquisition.ucb import ChainingUCB
from kbo.confidence import Chaining, FiniteSet, NoiseBounds, widths
from kbo.confidence.chaining.bonus import Cuts, Steps
from kbo.covers import PosteriorMetric, chain, greedy
from kbo.models import KernelRidgeGP, NystromGP
from kbo.problems import BANDITS, GaussianProcessBandit, GraphBandit, HimmelblauBandit, RKHSBandit
from kbo.regression import BatchView, FixedDictionary, GreedyDictionary, Hypothetical, NystromRidge, track
from tests import dense_chaining
from tests.dense import Dense, Hallucinated, close
from tests.dense_chaining import Covers, chaining
from tests.laws.states import seeded

DELTA = 0.05
KINDS = {"steps": {}, "smooth": {"smooth": True}, "rigorous": {"rigorous": True}}


def uniform(*shape: int, seed: int = 0, device="cpu") -> Tensor:
    return torch.rand(*shape, generator=seeded(seed), dtype=torch.float64).to(device)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=seeded(seed), dtype=torch.float64)


def kernel(kappa: float = 1.0, lengthscale: float = 0.3) -> Kernel:
    scaled = ScaleKernel(MaternKernel(nu=2.5)).double()
    scaled.base_kernel.lengthscale, scaled.outputscale = lengthscale, torch.tensor(kappa**2, dtype=torch.float64)
    return scaled


def rbf(lengthscale: float) -> Kernel:
    found = RBFKernel().double()
    found.lengthscale = lengthscale
    return found


def fed(n: int, device="cpu", kappa: float = 1.0, ridge: float = 0.01, seed: int = 50) -> KernelRidge:
    state = KernelRidge(kernel(kappa), ridge * kappa**2)
    state.update(uniform(n, 2, seed=seed, device=device), kappa * normal(n, seed=seed).to(device))
    return state


# Against the dense formulas


@pytest.mark.parametrize("size", [1, 40, 250])
@pytest.mark.parametrize("n", [0, 1, 30])
@pytest.mark.parametrize("kappa", [1.0, 0.3, 7.0])
def test_bonuses_are_those_of_the_dense_formulas(device, kappa, n, size):
    state, Z = fed(n, device, kappa), uniform(size, 2, device=device)
    covers = Covers(Dense(kernel(kappa), *data(state, Z)), Z, state.ridge)
    std = kappa * torch.cat([torch.linspace(0, 1.2, 200).double(), torch.tensor(covers.std)]).to(device)
    plain, smooth, rigorous = (Chaining(DELTA, points=Z, **kind).bonus(state) for kind in KINDS.values())
    assert isinstance(plain, Steps)
    assert isinstance(rigorous, Cuts)
    assert plain.heights == pytest.approx(covers.heights(DELTA), rel=1e-12)
    steps = covers.steps(std.cpu().numpy(), DELTA)
    close(plain(std).cpu(), torch.tensor(steps), 1e-11)
    close(plain.majorant(std).cpu(), torch.tensor(covers.smooth(std.cpu().numpy(), DELTA)), 1e-11)
    close(smooth.majorant(std), plain.majorant(std), 1e-14)
    close(rigorous(std).cpu(), torch.tensor(covers.rigorous(std.cpu().numpy(), DELTA)), 1e-11)
    close(rigorous.majorant(std), rigorous(std), 1e-14)


def data(state: KernelRidge, like: Tensor) -> tuple[Tensor, Tensor]:
    return (like[:0], like[:0, 0]) if state.data is None else (state.data.X, state.data.y)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [0, 30])
def test_bounds_are_those_of_the_dense_formulas_on_the_set_and_off_it(device, n, kind):
    state, Z = fed(n, device), uniform(80, 2, device=device)
    asked = torch.cat([Z[:20], 3 * uniform(20, 2, seed=9, device=device)])
    expected = chaining(Dense(kernel(), *data(state, Z)), asked, 0.01, Z, DELTA, kind)
    found = Chaining(DELTA, points=Z, **KINDS[kind])
    for one, other in zip(found.interval(state, asked), expected, strict=True):
        close(one, other, 1e-9)
    together = Chaining(DELTA, **KINDS[kind]).interval(state, Z)
    for one, other in zip(together, found.interval(state, Z), strict=True):
        close(one, other, 1e-13)


def test_the_constants_are_those_of_the_paper():
    """By hand: three points far from each other, nothing observed but the first, many times."""
    Z = torch.tensor([[0.0], [100.0], [200.0]]).double()
    state = KernelRidge(rbf(1.0), 0.01)
    state.update(Z[:1].expand(4, 1), torch.zeros(4).double())
    # std^2 = r / (4 + r) with r = 0.01, so 0.05 <= eps_i for i = 1 .. 5.
    std = math.sqrt(0.01 / 4.01)
    bonus = Chaining(0.05, points=Z).bonus(state)
    # d = sqrt(1 + std^2) or sqrt 2: more than 1 from the first on, so that T_1 has all three.
    expected = [2.0 ** (1 - i) * math.sqrt(2 * math.log(4 * i**2 * 25 * math.pi**4 / (36 * 0.05))) for i in range(1, 6)]
    assert std < 2**-4
    assert std > 2**-5
    assert bonus.heights == pytest.approx(expected, rel=1e-13)
    upper = Chaining(0.05, points=Z).upper(state, Z)
    # eps_1 = 1 is no step below a standard deviation of 1.
    assert upper.tolist() == pytest.approx([0.0, sum(expected[1:]), sum(expected[1:])])
    assert widths.contal(3, 2, 5, 0.05) == pytest.approx(2 * expected[1], rel=1e-13)


def test_the_first_level_is_no_step_where_nothing_is_known_whatever_the_units():
    """The square root of k(x, x), taken twice in different ways, must not be below itself."""
    for kappa2 in [k / 9973 for k in range(1, 30_000, 7) if (k / 9973) ** 0.5 != math.sqrt(k / 9973)][:20]:
        scaled = ScaleKernel(RBFKernel()).double()
        scaled.outputscale = torch.tensor(kappa2, dtype=torch.float64)
        state, Z = KernelRidge(scaled, 0.1), uniform(5, 2)
        assert Chaining(DELTA, points=Z).upper(state, Z).tolist() == [0.0] * 5


# Functions of the standard deviation

POSITIVE = st.floats(1e-3, 1e3)


@st.composite
def bonuses(draw) -> Steps:
    edges = sorted(draw(st.sets(st.integers(1, 1000), min_size=1, max_size=9)), reverse=True)
    heights = draw(st.lists(st.floats(0.01, 10), min_size=len(edges), max_size=len(edges)))
    return Steps([edge / 100 for edge in edges], heights)


@given(bonuses())
def test_steps_and_their_majorant(bonus):
    edges = torch.tensor(bonus.edges[::-1], dtype=torch.float64)
    std = torch.cat([torch.linspace(0, 12, 997).double(), edges, edges * (1 + 1e-12)]).sort().values
    steps, smooth = bonus(std), bonus.majorant(std)
    expected = [
        sum(h for e, h in zip(bonus.edges, bonus.heights, strict=True) if e * (1 + 1e-13) < x) for x in std.tolist()
    ]
    assert steps.tolist() == pytest.approx(expected)
    assert (steps.diff() >= 0).all()
    assert (smooth.diff() >= -1e-12).all()
    assert (smooth >= steps - 1e-12 * steps).all()
    # Equal at the upper corners, just above an edge: no continuous non-decreasing majorant is smaller there.
    close(bonus.majorant(edges), bonus(edges * (1 + 1e-12)), 1e-12)
    # Continuous: no jump at any edge.
    above, below = bonus.majorant(edges * (1 + 1e-13)), bonus.majorant(edges * (1 - 1e-13))
    close(above, below, 1e-9)
    assert float(bonus.majorant(torch.zeros(1).double())) == 0


@given(bonuses())
def test_the_majorant_has_a_positive_and_right_gradient(bonus):
    edges = torch.tensor([0.0, *bonus.edges[::-1], 12.0], dtype=torch.float64)
    std = (0.3 * edges[:-1] + 0.7 * edges[1:]).requires_grad_()
    (gradient,) = torch.autograd.grad(bonus.majorant(std).sum(), std)
    assert (gradient > 0).all()
    assert gradcheck(bonus.majorant, std, eps=1e-7, atol=1e-4)
    assert not bonus(std).requires_grad


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0, 10)), min_size=1, max_size=6))
def test_cuts_are_the_least_line_without_jumps(lines):
    bonus, std = Cuts(*zip(*lines, strict=True)), torch.linspace(0, 5, 300).double()
    expected = [min(a + b * x for a, b in lines) for x in std.tolist()]
    assert bonus(std).tolist() == pytest.approx(expected)
    assert bonus(std.reshape(3, 100)).shape == (3, 100)
    assert (bonus(std).diff() >= -1e-12).all()
    assert (bonus(std).diff() <= 10 * 5 / 299 + 1e-9).all()


@given(n=st.integers(0, 30), seed=st.integers(0, 99), log_ridge=st.floats(-5, 1))
def test_bounds_do_not_fall_as_points_become_uncertain(n, seed, log_ridge):
    state, Z = fed(n, ridge=10**log_ridge, seed=seed), uniform(60, 2, seed=seed + 1)
    order = state.predict(Z)[1].argsort()
    for kind in KINDS.values():
        lower, upper = Chaining(DELTA, points=Z, **kind).interval(state, Z)
        width = (upper - lower)[order]
        assert (width.diff() >= -1e-9 * width[1:].abs()).all()
        assert (width >= 0).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("s", [1e-3, 0.3, 40.0])
def test_bounds_follow_the_units_of_the_prior(device, kind, s):
    Z = uniform(70, 2, device=device)
    plain = torch.stack(Chaining(DELTA, points=Z, **KINDS[kind]).interval(fed(25, device), Z))
    other = torch.stack(Chaining(DELTA, points=Z, **KINDS[kind]).interval(fed(25, device, kappa=s), Z))
    close(other / s, plain, 1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_more_rounds_and_smaller_delta_widen_the_bounds(kind):
    Z = uniform(50, 2)
    std = torch.linspace(0.2, 1, 30).double()
    state = fed(20)
    wide = Chaining(0.001, points=Z, **KINDS[kind]).bonus(state)(std)
    assert (wide > Chaining(0.1, points=Z, **KINDS[kind]).bonus(state)(std)).all()


@pytest.mark.parametrize("kind", KINDS)
def test_with_given_points_a_bound_does_not_depend_on_the_others_asked(device, kind):
    state, Z = fed(25, device), uniform(70, 2, device=device)
    confidence, asked = Chaining(DELTA, points=Z, **KINDS[kind]), uniform(24, 2, seed=5, device=device)
    lower, upper = confidence.interval(state, asked)
    for i in (0, 7, 23):
        close(confidence.upper(state, asked[i : i + 1]), upper[i : i + 1], 1e-12)
        close(confidence.lower(state, asked[i]), lower[i], 1e-12)
    close(confidence.upper(state, asked.reshape(2, 3, 4, 2)), upper.reshape(2, 3, 4), 1e-12)
    assert confidence.upper(state, asked[:0]).shape == (0,)


@pytest.mark.parametrize("kind", KINDS)
def test_quick_bounds_are_nowhere_smaller(device, kind):
    state, Z = fed(25, device), uniform(300, 2, device=device)
    confidence = Chaining(DELTA, points=Z[:100], **KINDS[kind])
    quick, upper = confidence.quick_upper(state, Z), confidence.upper(state, Z)
    assert (quick >= upper - 1e-12).all()
    assert torch.equal(quick, upper) == (kind != "steps")


# The finite set


@pytest.mark.parametrize("X", [uniform(5, 1, 2), uniform(2), uniform(0, 2)])
def test_a_set_that_is_not_given_is_what_is_asked_for_and_no_batch(X):
    with pytest.raises(InvalidInput, match=r"points|shape"):
        Chaining(DELTA).upper(fed(3), X)
    with pytest.raises(InvalidInput, match="points="):
        KernelUCB(KernelRidgeGP(uniform(3, 2), uniform(3, 1), kernel(), 0.1), Chaining(DELTA))(uniform(4, 1, 2))


@pytest.mark.parametrize("points", [uniform(5), uniform(0, 2), uniform(2, 2).long(), uniform(3, 2) * math.nan, [[0.0]]])
def test_impossible_sets_are_refused(points):
    with pytest.raises(InvalidInput, match="points"):
        Chaining(DELTA, points=points)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1.0, math.nan, "small"])
def test_impossible_probabilities_are_refused(delta):
    with pytest.raises(InvalidInput, match="delta"):
        Chaining(delta)


def test_points_of_another_dimension_than_the_data_are_an_error():
    with pytest.raises(InvalidInput, match="columns"):
        Chaining(DELTA, points=uniform(5, 3)).upper(fed(4), uniform(3, 2))


def test_the_proved_bound_over_the_same_set_shares_its_covers():
    state, Z = fed(20), uniform(60, 2)
    plain = Chaining(DELTA, points=Z)
    proved = plain.reported()
    assert proved.chain(state) is plain.chain(state)
    assert proved.guarantee == Chaining(DELTA, rigorous=True, points=Z).guarantee
    assert torch.equal(proved.upper(state, Z), Chaining(DELTA, rigorous=True, points=Z).upper(state, Z))


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


# Views and guarantees


@pytest.mark.parametrize("kind", KINDS)
def test_imagined_observations_change_standard_deviations_and_not_the_bonus(device, kind):
    state, Z = fed(20, device), uniform(60, 2, device=device)
    confidence, P = Chaining(DELTA, points=Z, **KINDS[kind]), Z[[3, 8]]
    hypothetical, frozen = Hypothetical(state, P), BatchView(track(state, Z), Z)
    frozen.observe(3)
    frozen.observe(8)
    bonus, mean = confidence.bonus(state), state.predict(Z)[0]
    for view in (hypothetical, frozen, Hypothetical(Hypothetical(state, P[:1]), P[1:])):
        assert confidence.bonus(view) is bonus
        assert confidence.chain(view) is confidence.chain(state)
        std = view.predict(Z)[1].sqrt()
        margin = bonus.majorant(std) if kind == "smooth" else bonus(std)
        close(confidence.upper(view, Z), mean + margin, 1e-9)
        assert float(confidence.upper(view, P).sum()) < float(confidence.upper(state, P).sum())
    expected = chaining(Hallucinated(Dense(kernel(), *data(state, Z)), P), Z, 0.01, Z, DELTA, kind)
    for one, other in zip(confidence.interval(hypothetical, Z), expected, strict=True):
        close(one, other, 1e-8)


def test_only_the_rigorous_bound_promises_and_only_where_it_may():
    Z = uniform(30, 2)
    state = fed(10)
    assert Chaining(DELTA, points=Z).guarantee_on(state) is None
    assert Chaining(DELTA, points=Z, smooth=True).guarantee_on(state) is None
    rigorous = Chaining(DELTA, rigorous=True, points=Z)
    for word in ("30 points", "at least 1 - 0.05", "prior", "ridge"):
        assert word in rigorous.guarantee_on(state)
    assert Chaining(DELTA, rigorous=True).guarantee_on(state) is None  # a second set in a round would be one too many
    assert rigorous.guarantee_on(track(state, Z)) == rigorous.guarantee
    sketch = NystromRidge(kernel(), 0.01, GreedyDictionary(0.3))
    sketch.update(uniform(10, 2, seed=50), normal(10))
    frozen = BatchView(state, Z)
    assert rigorous.guarantee_on(frozen) is not None
    frozen.observe(3)
    moved = fed(10)
    moved.move_ridge(0.02)
    schedule = NoiseBounds(50.0, 0.1, variant="tight+grid", largest_ridge=0.1)
    adaptive = AdaptiveRidge(KernelRidge(kernel(), 0.1), schedule)
    for other in (sketch, frozen, Hypothetical(state, Z[:2]), moved, track(moved, Z), adaptive, track(adaptive, Z)):
        assert rigorous.guarantee_on(other) is None
    assert torch.isfinite(rigorous.upper(sketch, Z)).all()
    adaptive.update(uniform(10, 2, seed=50), normal(10))
    found = KernelRidge(kernel(), adaptive.ridge)
    found.update(uniform(10, 2, seed=50), normal(10))
    close(rigorous.upper(adaptive, Z), rigorous.upper(found, Z), 1e-8)


# What is proved


@pytest.mark.parametrize("ridge", [1e-3, 0.1])
@pytest.mark.parametrize("lengthscale", [0.05, 0.3, 3.0])
def test_the_rigorous_bound_is_hardly_wider_than_the_union_bound_and_narrower_where_points_are_alike(
    lengthscale, ridge
):
    Z, ratios = uniform(500, 2), []
    for n in (0, 10, 60):
        state = KernelRidge(rbf(lengthscale), ridge)
        state.update(uniform(n, 2, seed=50), normal(n))
        union = FiniteSet(500, DELTA, "quantile")
        (lower, upper), (low, high) = (c.interval(state, Z) for c in (Chaining(DELTA, True, Z), union))
        ratios.append(float(((upper - lower) / (high - low)).max()))
    assert max(ratios) < 1.01


def draw(X: Tensor, prior: Kernel, seed: int) -> Tensor:
    with torch.no_grad():
        root = torch.linalg.cholesky(prior(X).to_dense() + 1e-9 * torch.eye(len(X)).double())
    return root @ normal(len(X), seed=seed)


def alike(n: int) -> Tensor:
    """A point, and far from it many that are nearly one: there a chain is worth more than a union over all points."""
    return torch.cat([torch.zeros(1, 1).double(), 50 + 1e-4 * uniform(n - 1, 1)])


def well_known_point(Z: Tensor) -> KernelRidge:
    state = KernelRidge(rbf(1.0), 1e-4)
    state.update(Z[:1].expand(40, 1), torch.zeros(40).double())
    return state


def test_interior_cuts_are_those_of_the_dense_formulas_where_points_are_alike():
    Z = alike(1500)
    state, std = well_known_point(Z), torch.linspace(0.05, 1.2, 100).double()
    bonus = Chaining(DELTA, rigorous=True, points=Z).bonus(state)
    covers = Covers(Dense(rbf(1.0), Z[:1].expand(40, 1), torch.zeros(40).double()), Z, 1e-4)
    assert isinstance(bonus, Cuts)
    lines = torch.tensor(bonus.intercepts).double() + torch.tensor(bonus.slopes).double() * std.unsqueeze(-1)
    assert len(set(lines.argmin(1).tolist()) - {len(bonus.slopes) - 1}) > 0
    assert float((lines.argmin(1) < len(bonus.slopes) - 1).double().mean()) > 0.8
    assert bonus(std).numpy() == pytest.approx(covers.rigorous(std.numpy(), DELTA), rel=1e-10)
    union = widths.exact_tail(widths.srinivas(len(Z), 41, DELTA))
    assert float(bonus(torch.ones(1).double())) < 0.97 * union


def test_where_the_prior_knows_everything_nothing_is_explored():
    Z = torch.zeros(3, 2).double()
    state = KernelRidge(ScaleKernel(LinearKernel()).double(), 0.1)
    for kind in KINDS.values():
        lower, upper = Chaining(DELTA, points=Z, **kind).interval(state, Z)
        assert bool((lower == 0).all())
        assert bool((upper == 0).all())


def test_a_tensor_that_is_written_to_is_another_set():
    Z = alike(1500)
    state, confidence = well_known_point(Z), Chaining(DELTA, rigorous=True)
    asked = Z.clone()
    before = confidence.upper(state, asked)
    asked[1:] = 1e4 * uniform(1499, 1, seed=3)
    after = confidence.upper(state, asked)
    assert float(after.max()) > float(before.max())
    assert torch.equal(after, Chaining(DELTA, rigorous=True).upper(state, asked))
    points = Z.clone()
    given_points = Chaining(DELTA, rigorous=True, points=points)
    points[1:] = 1e4 * uniform(1499, 1, seed=3)
    assert torch.equal(given_points.upper(state, Z), before)


def failures(shrink: float, runs: int = 25, rounds: int = 8, Z: Tensor | None = None) -> int:
    """Runs in which the function leaves the rigorous bounds somewhere at some time, on points that they choose."""
    Z, failed = uniform(100, 2) if Z is None else Z, 0
    for seed in range(runs):
        f, noise = draw(Z, rbf(0.3), seed), 0.1 * normal(rounds, seed=1000 + seed)
        state, confidence, held = track(KernelRidge(rbf(0.3), 0.01), Z), Chaining(0.1, rigorous=True, points=Z), True
        for t in range(rounds):
            lower, upper = confidence.interval(state, Z)
            middle, half = (lower + upper) / 2, (upper - lower) / 2
            held &= bool(((f - middle).abs() <= shrink * half).all())
            i = int(upper.argmax())
            state.update(Z[i : i + 1], f[i : i + 1] + noise[t])
        failed += not held
    return failed


def test_the_rigorous_bound_holds_for_draws_of_the_prior_and_not_for_nothing():
    assert failures(1.0) <= 1
    assert failures(1.0, Z=torch.cat([uniform(10, 2), 3 + 1e-3 * uniform(90, 2)])) <= 1
    assert failures(0.4, runs=8) > 4


def test_algorithm_1_is_below_what_is_proved_where_nothing_is_known():
    """It ranks points: it lacks the levels below the least standard deviation."""
    state, Z = fed(30), uniform(200, 2)
    std = torch.linspace(0.3, 1, 50).double()
    assert (Chaining(DELTA, points=Z).bonus(state)(std) < 2 * Chaining(DELTA, True, Z).bonus(state)(std)).all()


# In BoTorch


def gp(n: int = 15, d: int = 2, lengthscale: float = 0.5, **kwargs) -> KernelRidgeGP:
    X = uniform(n, d, seed=50)
    return KernelRidgeGP(X, torch.sin(3 * X).sum(-1, keepdim=True), rbf(lengthscale), 0.01, **kwargs)


RULES = {"steps": {"smooth": False}, "smooth": {}, "rigorous": {"rigorous": True}}


@pytest.mark.parametrize("kind", RULES)
@pytest.mark.parametrize("model", ["exact", "sketched"])
def test_values_are_upper_bounds_and_batches_know_the_points_before(model, kind):
    made = gp()
    if model == "sketched":
        X, y = made.train_inputs[0], made.train_targets.unsqueeze(-1)
        made = NystromGP(X, y, rbf(0.5), 0.01, FixedDictionary(uniform(9, 2, seed=7)))
    points, X = uniform(60, 2), uniform(4, 3, 2, seed=3)
    acqf, confidence = ChainingUCB(made, points, DELTA, **RULES[kind]), Chaining(DELTA, points=points, **KINDS[kind])
    assert (acqf.guarantee is not None) == (kind == "rigorous" and model == "exact")
    close(acqf(X[:, :1]), confidence.upper(made.state, X[:, :1]).squeeze(-1), 1e-12)
    assert acqf.guarantee is None  # X is not among the points
    parts = [confidence.upper(made.state, X[:, 0])]
    parts += [confidence.upper(Hypothetical(made.state, X[:, :j]), X[:, j : j + 1]).squeeze(-1) for j in (1, 2)]
    close(acqf(X), sum(parts) / 3, 1e-9)
    everywhere = acqf(X[:, :1])
    acqf.set_X_pending(X[0, :1])
    assert float(acqf(X[:1, :1])) < float(everywhere[0])
    close(acqf(X[:, 1:2]), confidence.upper(Hypothetical(made.state, X[0, :1]), X[:, 1:2]).squeeze(-1), 1e-9)
    assert acqf.guarantee is None  # no bound of the data alone


@pytest.mark.parametrize("kind", RULES)
def test_weight_minus_one_minimises(kind):
    model, points, X = gp(), uniform(60, 2), uniform(30, 1, 2, seed=3)
    minus = ScalarizedPosteriorTransform(torch.tensor([-1.0]).double())
    other = KernelRidgeGP(model.train_inputs[0], -model.train_targets.unsqueeze(-1), rbf(0.5), 0.01)
    close(
        ChainingUCB(model, points, DELTA, **RULES[kind], posterior_transform=minus)(X),
        ChainingUCB(other, points, DELTA, **RULES[kind])(X),
        1e-9,
    )


@pytest.mark.parametrize("fresh", [True, False])
def test_points_are_given_in_the_units_of_the_model(fresh):
    X = 100 + 50 * uniform(15, 2, seed=50)
    y = torch.sin(X / 20).sum(-1, keepdim=True)
    model = KernelRidgeGP(
        X, y, rbf(0.5), 0.01, input_transform=Normalize(2, bounds=torch.tensor([[100.0] * 2, [150.0] * 2]).double())
    )
    plain = KernelRidgeGP((X - 100) / 50, y, rbf(0.5), 0.01)
    if not fresh:
        model.train()
    points, asked = uniform(60, 2), uniform(20, 1, 2, seed=3)
    for kind in RULES.values():
        expected = ChainingUCB(plain, points, DELTA, **kind)(asked)
        close(ChainingUCB(model, 100 + 50 * points, DELTA, **kind)(100 + 50 * asked), expected, 1e-9)


def test_gradients_are_exact_between_the_corners():
    points, X = uniform(60, 2), uniform(2, 2, 2, seed=3).requires_grad_()
    for kind in ({}, {"rigorous": True}):
        assert gradcheck(ChainingUCB(gp(), points, DELTA, **kind), X)


@pytest.mark.parametrize("kind", [{}, {"rigorous": True}], ids=["smooth", "rigorous"])
def test_a_box_is_searched_by_gradients(kind):
    design = torch.quasirandom.SobolEngine(6, scramble=True, seed=1).draw(500, dtype=torch.float64)
    acqf = ChainingUCB(gp(20, 6, 0.8), design, DELTA, **kind)
    box = torch.tensor([[0.0] * 6, [1.0] * 6]).double()
    x, value = optimize_acqf(acqf, box, q=1, num_restarts=4, raw_samples=64, options={"seed": 0, "maxiter": 50})
    assert torch.isfinite(value)
    assert float(value) >= float(acqf(uniform(512, 1, 6, seed=9)).max())
    inside = uniform(5, 1, 6, seed=3).requires_grad_()
    (gradient,) = torch.autograd.grad(acqf(inside).sum(), inside)
    assert (gradient.abs().amax(-1) > 1e-3).all()
    batch, value = optimize_acqf(acqf, box, q=2, num_restarts=2, raw_samples=16, options={"maxiter": 10})
    assert torch.isfinite(value)
    assert float(torch.pdist(batch)) > 0.01
    assert x.shape == (1, 6)


def test_one_confidence_for_all_rounds_keeps_its_chain():
    design = torch.quasirandom.SobolEngine(6, scramble=True, seed=1).draw(200, dtype=torch.float64)
    confidence = Chaining(DELTA, points=design, smooth=True)
    box = torch.tensor([[0.0] * 6, [1.0] * 6]).double()
    X = uniform(10, 6, seed=50)
    chains = set()
    for _ in range(6):
        model = KernelRidgeGP(X, -(X - 0.4).square().sum(-1, keepdim=True), rbf(0.8), 0.01)
        acqf = KernelUCB(model, confidence)
        x, _ = optimize_acqf(acqf, box, q=1, num_restarts=2, raw_samples=16, options={"seed": 0, "maxiter": 15})
        chains.add(id(confidence.chain(model.state)))
        X = torch.cat([X, x])
    assert len(chains) == 1


@pytest.mark.parametrize(
    ("count", "kind"), [(100_000, {"smooth": False}), (11_000, {"rigorous": True})], ids=["steps", "rigorous"]
)
def test_the_best_of_very_many_choices_is_found(monkeypatch, count, kind):
    for module in (chain, greedy):
        monkeypatch.setattr(module, "AT_ONCE", 1500)
    choices = uniform(count, 2)
    model = gp(8, 2, 1.0)
    acqf = ChainingUCB(model, choices, DELTA, **kind)
    x, value = optimize_acqf_discrete(acqf, q=1, choices=choices)
    values = torch.cat([acqf(part.unsqueeze(1)) for part in choices.split(10_000)])
    close(value.reshape(()), values.max(), 1e-12)
    assert float(acqf(x)) == pytest.approx(float(values.max()), rel=1e-12)
    found = acqf.confidence.chain(model.state)
    assert found.sizes == sorted(found.sizes)
    assert found.sizes[0] < 20


def test_other_models_and_points_are_refused():
    with pytest.raises(InvalidInput, match="model"):
        ChainingUCB(rbf(1.0), uniform(3, 2), DELTA)
    with pytest.raises(InvalidInput, match="points"):
        ChainingUCB(gp(), uniform(3, 1, 2), DELTA)


# In the laboratory

PROBLEMS = {
    "gp-draw": lambda seed: GaussianProcessBandit(n_points=200, side=4.0, seed=seed),
    "graphs": lambda seed: GraphBandit(n_graphs=200, seed=seed),
    "himmelblau": lambda seed: HimmelblauBandit(n_points=200, seed=seed),
    "fresh-arms": lambda seed: RKHSBandit(seed=seed),
    "chessboard": lambda seed: BANDITS["chessboard"](seed=seed),
    "tuning-table": lambda seed: BANDITS["tuning-table"](6, 5, 2, seed=seed),
}


def method(name: str, problem, **kwargs):
    return recipes.make(name, problem.kernel, problem.noise_std, 5.0, DELTA, n_points=problem.n_arms, **kwargs)


@pytest.mark.parametrize("name", ["chaining-ucb", "chaining-ucb-rigorous"])
@pytest.mark.parametrize("game", PROBLEMS)
def test_the_recipes_play(game, name):
    def rows():
        problem = PROBLEMS[game](1)
        return [(row["regret"], row["best"]) for row in bandit.play(method(name, problem), problem, 12, 1, initial=3)]

    found = rows()
    assert len(found) == 12
    assert all(regret >= 0 and best <= regret for regret, best in found)
    assert rows() == found


@pytest.mark.parametrize("name", ["chaining-ucb", "chaining-ucb-rigorous"])
@pytest.mark.parametrize("game", ["gp-draw", "graphs", "himmelblau"])
def test_the_recipes_choose_the_largest_dense_bound(game, name):
    problem = PROBLEMS[game](3)
    played = method(name, problem)
    arms, state = problem.arms(), played.state(problem.fixed_arms)
    kind = "rigorous" if "rigorous" in name else "steps"
    assert played.ridge == problem.noise_std**2
    for n in (5, 30):
        X = arms[torch.randperm(200, generator=seeded(n))[: n - state.n]]
        state.update(X, problem.observe(X))
        dense = Dense(problem.kernel, state.state.data.X, state.state.data.y)
        upper = chaining(dense, arms, played.ridge, arms, DELTA, kind)[1]
        assert float(upper[played.choose(state, arms)]) == pytest.approx(float(upper.max()), rel=1e-8)
    batch = played.choose_batch(state, arms, 5)
    assert batch[0] == played.choose(state, arms)
    assert len(batch) == 5
    if game != "graphs":
        assert len(set(batch)) > 2


def test_chaining_has_far_less_regret_than_chance():
    for game in ("gp-draw", "graphs"):
        late = {}
        for name in ("chaining-ucb", "chaining-ucb-rigorous", "random"):
            late[name] = 0.0
            for seed in range(2):
                problem = PROBLEMS[game](seed)
                rows = list(bandit.play(method(name, problem), problem, 65, seed, initial=5))
                late[name] += sum(row["regret"] for row in rows[40:])
        assert late["chaining-ucb"] < 0.6 * late["random"]
        assert late["chaining-ucb-rigorous"] < 0.6 * late["random"]


def test_a_recipe_with_given_points_is_about_those():
    problem = PROBLEMS["gp-draw"](1)
    played = method("chaining-ucb-rigorous", problem, points=problem.arms()[:50])
    assert played.confidence.points is not None
    assert "50 points" in played.confidence.guarantee
    assert method("chaining-ucb", problem).confidence.points is None
    assert not method("chaining-ucb", problem).confidence.rigorous


def test_the_chain_of_a_game_is_kept_between_refreshes():
    problem = PROBLEMS["gp-draw"](1)
    played, chains = method("chaining-ucb", problem), []
    state = played.state(problem.fixed_arms)
    for _ in range(16):
        index = played.choose(state, problem.arms())
        chains.append(played.confidence.chain(state, problem.arms()))
        X = problem.arms()[index : index + 1]
        state.update(X, problem.observe(X))
    # Anew with 0, 1, 3, 7, 15 observations.
    anew = [i for i in range(1, 16) if chains[i] is not chains[i - 1]]
    assert anew == [1, 3, 7, 15]


# Rounds before the first


class Watched(GraphBandit):
    """It remembers what was pulled."""

    def __init__(self, **kwargs) -> None:
        super().__init__(**kwargs)
        self.pulled = []

    def observe(self, X: Tensor) -> Tensor:
        self.pulled += [int((self.arms() == x).all(-1).nonzero()[0]) for x in X]
        return super().observe(X)


@pytest.mark.parametrize("initial", [0, 1, 7])
def test_initial_arms_are_the_same_for_all_methods_of_a_seed(initial):
    pulled = {}
    for name, seed in (("chaining-ucb", 3), ("gp-ucb", 3), ("random", 3), ("gp-ucb", 4)):
        problem = Watched(n_graphs=100)
        rows = list(bandit.play(method(name, problem), problem, 4, seed, initial=initial))
        assert [row["round"] for row in rows] == [1, 2, 3, 4]
        assert rows[-1]["cumulative"] == pytest.approx(sum(row["regret"] for row in rows))
        assert len(problem.pulled) == initial + 4
        pulled[name, seed] = problem.pulled[:initial]
    assert pulled["chaining-ucb", 3] == pulled["gp-ucb", 3] == pulled["random", 3]
    if initial > 1:
        assert pulled["gp-ucb", 3] != pulled["gp-ucb", 4]
        assert len(set(pulled["random", 3])) > 2


@pytest.mark.parametrize("first", [None, 5])
def test_best_is_the_least_regret_so_far_uncounted_rounds_included(first):
    seen_before = False
    for seed in range(6):
        problem = Watched(n_graphs=100, seed=seed)
        rows = list(bandit.play(method("random", problem), problem, 12, seed, initial=4, first=first))
        means = problem.mean(problem.arms())
        regrets = (means.max() - means[problem.pulled]).tolist()
        before = 4 + (first is not None)
        assert first is None or problem.pulled[0] == duplicates(problem, first)
        for t, row in enumerate(rows):
            assert row["regret"] == pytest.approx(regrets[before + t], abs=1e-14)
            assert row["best"] == pytest.approx(min(regrets[: before + t + 1]), abs=1e-14)
        seen_before |= rows[0]["best"] < rows[0]["regret"]
    assert seen_before


def duplicates(problem: Watched, index: int) -> int:
    """The first arm that is equal to that one."""
    return int((problem.arms() == problem.arms()[index]).all(-1).nonzero()[0])


@pytest.mark.parametrize("initial", [-1, 2.5, math.nan, "some"])
def test_impossible_numbers_of_initial_rounds_are_refused(initial):
    problem = Watched(n_graphs=20)
    with pytest.raises(InvalidInput, match="initial"):
        list(bandit.play(method("random", problem), problem, 2, initial=initial))


def test_a_chain_that_is_seen_is_the_one_of_the_dense_formulas():
    problem = PROBLEMS["graphs"](1)
    state = method("chaining-ucb", problem).state()
    X = problem.arms()[:10]
    state.update(X, problem.observe(X))
    found = Chaining(DELTA).chain(state, problem.arms())
    expected = Covers(Dense(problem.kernel, X, X[:, 0]), problem.arms(), state.ridge)
    assert found.sizes == expected.sizes
    assert dense_chaining.is_covered(expected.D, found.radius(2), found.centres(2).tolist(), 1e-12)


# In minimize


FINITE = {"a": Int(0, 20), "b": ["x", "y"]}


@pytest.mark.parametrize("name", ["chaining-ucb", "chaining-ucb-rigorous"])
def test_minimize_covers_finite_spaces_and_reports_what_is_proved(name):
    setting = Certified(rbf(0.3), noise_std=0.05, norm_bound=1.0)
    noise = iter(range(12))

    def objective(p):
        return (p["a"] - 7) ** 2 / 50 + 0.2 * (p["b"] == "x") + 1e-6 * next(noise)

    result = minimize(objective, FINITE, 12, method=name, setting=setting, seed=1)
    assert "42 points given" in result.guarantee
    assert result.gap is not None
    assert result.gap > 0
    assert result.upper is not None
    assert result.lower is not None
    assert result.upper - result.lower > 0.1


@pytest.mark.parametrize("name", ["chaining-ucb", "chaining-ucb-rigorous"])
@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"setting": Certified(rbf(0.3), 0.05, 1.0), "bounds": [(0.0, 1.0)]}, "finite sets of points"),
        ({"setting": Certified(rbf(0.3), 0.05, 1.0), "bounds": [(0, 10**5)]}, "at most 4096"),
        ({"bounds": FINITE}, "certified setting"),
    ],
)
def test_minimize_refuses_boxes_and_kernels_that_move(name, options, says):
    with pytest.raises(InvalidInput, match=says):
        minimize(lambda x: 0.0, n_trials=3, method=name, **options)


def test_mistakes_are_named():
    Z, model = uniform(10, 2), gp()
    with pytest.raises(InvalidInput, match="previous must be the ChainingUCB"):
        ChainingUCB(model, Z, 0.1, previous=Chaining(0.1))
    with pytest.raises(InvalidInput, match="shared with another Chaining"):
        Chaining(0.1).share_covers(FiniteSet(10, 0.1))
    with pytest.raises(InvalidInput, match=r"model\.state"):
        PosteriorMetric(model, Z)
    for scale, depth in ((-1.0, 3), (math.nan, 3), (1.0, 0)):
        with pytest.raises(InvalidInput):
            chain.Chain(PosteriorMetric(model.state, Z), scale, depth)
    made = chain.Chain(PosteriorMetric(model.state, Z), 1.0, 3)
    for level in (0, 4, 1.5):
        with pytest.raises(InvalidInput, match="level must be 1 to 3"):
            made.centres(level)


def test_covers_are_kept_by_the_next_acquisition_function(monkeypatch):
    Z, made = uniform(200, 2), []
    monkeypatch.setattr("kbo.covers.reuse.Chain", lambda *args: made.append(1) or chain.Chain(*args))
    X, y = uniform(20, 2, seed=50), normal(20).unsqueeze(-1)
    first = ChainingUCB(KernelRidgeGP(X[:12], y[:12], rbf(0.3), 0.01), Z, 0.1)
    first(Z.unsqueeze(1))
    second = ChainingUCB(KernelRidgeGP(X, y, rbf(0.3), 0.01), Z, 0.1, previous=first)
    second(Z.unsqueeze(1))
    assert len(made) == 1
    ChainingUCB(KernelRidgeGP(X, y, rbf(0.2), 0.01), Z, 0.1, previous=second)(Z.unsqueeze(1))
    assert len(made) == 2
