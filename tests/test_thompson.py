"""Draws have the law that the formulas say, whatever the posterior; rules maximise them."""

from __future__ import annotations

import pytest
import torch
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.models.transforms import Normalize, Standardize
from gpytorch.kernels import LinearKernel, MaternKernel, ScaleKernel
from scipy.stats import chi2
from torch import Tensor
from torch.autograd import gradcheck

from kbo.acquisition import InflatedPosteriorSampling, InflatedThompsonSampling
from kbo.bandit import Method, ThompsonSampling
from kbo.confidence import (
    AdaptiveSelfNormalized,
    FixedWidth,
    ImprovedGPUCB,
    MartingaleMixture,
    NoiseBounds,
    SelfNormalized,
)
from kbo.errors import InvalidInput
from kbo.models import KernelRidgeGP, NystromGP
from kbo.regression import (
    AdaptiveRidge,
    BatchView,
    FixedDictionary,
    FixedPoints,
    GreedyDictionary,
    Hypothetical,
    KernelRidge,
    LeverageResampling,
    NystromRidge,
    Posterior,
)
from tests.conftest import DEVICE
from tests.dense import Dense, Sketched, close
from tests.laws.states import composite, matern, normal, rbf, seeded, unit_square

pytestmark = pytest.mark.usefixtures("device")

RIDGE, DRAWS, PATHS = 0.1, 4000, 200
NUMBERS = 0.2, 4.0, 0.1  # noise level, norm bound, delta
OF_NORM = SelfNormalized(*NUMBERS)
ANCHORS = unit_square(5, 30)
X = unit_square(30, 1).to(DEVICE)
X[-5:] = X[:5]  # repeats
Y = torch.sin(5 * X).sum(-1) + 0.3 * normal(30, 2).to(DEVICE)
Z = unit_square(6, 9).to(DEVICE)


def probability(drawn: Tensor, mean: Tensor | float, covariance: Tensor) -> float:
    """Of a mean, or a covariance (by its likelihood), of draws [count p] as far from ``N(mean, covariance)``."""
    count, p = drawn.shape
    L = torch.linalg.cholesky(covariance)
    W = torch.linalg.solve_triangular(L, (drawn - mean).mT, upper=False)
    average = W.mean(1)
    S = W @ W.mT / count
    ratio = count * (S.trace() - torch.linalg.slogdet(S)[1] - p)
    of_mean = chi2.sf(float(count * average @ average), p)
    return min(of_mean, chi2.sf(float(ratio), p * (p + 1) // 2))


def fits(drawn: Tensor, mean: Tensor | float, covariance: Tensor) -> bool:
    """Also whether a covariance that is 1.5 times as large does not fit."""
    assert probability(drawn, mean, 1.5 * covariance) < 1e-6
    return probability(drawn, mean, covariance) > 1e-3


def residual(formulas: Dense, points: Tensor) -> Tensor:
    """The part of the prior covariance that a sketch does not see."""
    if not isinstance(formulas, Sketched):
        return torch.zeros(len(points), len(points)).to(points)
    f = formulas.features(points)
    return formulas.covariance(points, points, 1e12) - f @ f.mT  # at an infinite ridge: the prior


def documented(formulas: Dense, ridge: float = RIDGE) -> Tensor:
    """The covariance of draws over Z: on a sketch, the residual is independent from point to point."""
    rest = residual(formulas, Z)
    return formulas.covariance(Z, Z, ridge) - rest + rest.diagonal().diag()


def exact() -> KernelRidge:
    return KernelRidge(matern(1.5), RIDGE)


def sketch() -> NystromRidge:
    return NystromRidge(matern(1.5), RIDGE, FixedDictionary(ANCHORS))


STATES = {
    "exact": exact,
    "sketched": sketch,
    "tracked": lambda: FixedPoints(exact(), Z),
    "tracked-sketch": lambda: FixedPoints(sketch(), Z),
}


def fed(name: str, n: int = 30) -> tuple[Posterior, Dense]:
    """A state with data and the formulas that it must follow."""
    state = STATES[name]()
    for x, target in zip(X[:n].split(10), Y[:n].split(10), strict=True):
        state.update(x, target)
        state.predict(Z)
    if "sketch" in name:
        return state, Sketched(matern(1.5), X[:n], Y[:n], ANCHORS.to(X))
    return state, Dense(matern(1.5), X[:n], Y[:n])


def paths(state: Posterior, points: Tensor, ridge: float | None = None) -> Tensor:
    """Values of drawn functions [count N]."""
    generator = seeded(3)
    at = state.at(ridge)
    return torch.stack([at.draw_function(points, generator)(points) for _ in range(PATHS)])


# The law of draws


@pytest.mark.parametrize("name", STATES)
def test_draws_have_mean_zero_and_the_covariance_of_the_posterior(name):
    for n, ridge in ((30, RIDGE), (30, 0.8), (0, RIDGE)):
        state, formulas = fed(name, n)
        drawn = state.at(ridge).draw(Z, DRAWS, seeded(3))
        assert fits(drawn, 0.0, documented(formulas, ridge))
        if n and "sketch" in name:  # the residual is not drawn jointly
            assert probability(drawn, 0.0, formulas.covariance(Z, Z, ridge)) < 1e-6


def test_draws_follow_the_seed_and_the_dtype():
    for make in STATES.values():
        state = make()
        state.update(X, Y)
        at = state.at()

        def draw(generator=None, at=at) -> Tensor:
            return torch.cat([at.draw(Z, 1, generator)[0], at.draw_function(Z, generator)(Z)])

        before = torch.get_rng_state()
        first = draw(seeded(3))
        assert torch.equal(first, draw(seeded(3)))
        assert (first != draw(seeded(4))).all()
        assert torch.equal(torch.get_rng_state(), before)
        first = draw()  # from torch's own generator
        assert (first != draw()).all()
        torch.set_rng_state(before)
        assert torch.equal(first, draw())
    single = exact()
    single.update(X.float(), Y.float())
    assert single.at().draw_function(Z.float())(Z.float()).dtype == torch.float32
    assert OF_NORM.draw(single, Z.float(), 3).dtype == torch.float32


def test_many_points_are_drawn_without_a_matrix_of_their_size():
    """A joint covariance of 20 000 points has 3 GB."""
    many = unit_square(20_000, 7).to(DEVICE)
    for state, points in ((sketch(), many), (FixedPoints(sketch(), many), many), (exact(), many)):
        state.update(X, Y)
        drawn = state.at().draw(points, 1, seeded(3))[0]
        scaled = drawn / state.predict(points)[1].sqrt()
        assert 0.5 < float(scaled.square().mean()) < 1.7


SWAPPED = ScaleKernel(rbf(active_dims=[1, 0], ard_num_dims=2)).double()
SWAPPED.base_kernel.lengthscale = torch.tensor([[2.0, 0.2]])
"""Long along the second column, short along the first."""


@pytest.mark.parametrize(
    ("kernel", "is_sketched", "n", "ridge"),
    [
        (rbf(active_dims=[1]) + matern(2.5), False, 30, RIDGE),
        (ScaleKernel(ScaleKernel(MaternKernel(nu=0.5, active_dims=[1]))).double(), False, 30, 0.8),
        (SWAPPED, True, 30, RIDGE),
        (SWAPPED, True, 0, RIDGE),
    ],
    ids=["sum", "column-scaled-twice", "columns-swapped", "without-data"],
)
def test_functions_have_the_joint_covariance_of_the_posterior(kernel, is_sketched, n, ridge):
    points = Z[:4]
    state = KernelRidge(kernel, RIDGE)
    formulas = Dense(kernel, X[:n], Y[:n])
    if is_sketched:
        state = NystromRidge(kernel, RIDGE, FixedDictionary(ANCHORS))
        formulas = Sketched(kernel, X[:n], Y[:n], ANCHORS.to(X))
    state.update(X[:n], Y[:n])
    drawn = paths(state, points, ridge)
    expected = formulas.covariance(points, points, ridge)
    assert fits(drawn, 0.0, expected)
    if is_sketched:
        assert probability(drawn, 0.0, expected - 0.5 * residual(formulas, points)) < 1e-6


def test_a_function_stays_when_the_sketch_learns():
    for dictionary in (GreedyDictionary(0.001), LeverageResampling(3.0)):
        state = NystromRidge(rbf(), RIDGE, dictionary)
        state.update(X[:10], Y[:10])
        path = state.at().draw_function(Z, seeded(3))
        before = path(Z.reshape(2, 3, 2))
        assert before.shape == (2, 3)
        close(path(Z[1]), before[0, 1], 1e-10)
        state.update(X[10:], Y[10:])
        assert torch.equal(path(Z.reshape(2, 3, 2)), before)


def test_kernels_without_random_features_are_refused_by_functions_only():
    many = unit_square(3000, 9).to(DEVICE)
    whole = KernelRidge(composite(), RIDGE)
    sketched = NystromRidge(composite(), RIDGE, FixedDictionary(ANCHORS))
    for state in (whole, sketched):
        state.update(X, Y)
        with pytest.raises(InvalidInput, match=r"no random features.*RBFKernel.*finite set"):
            state.at().draw_function(Z)
        assert state.at().draw(Z).shape == (1, 6)
    assert sketched.at().draw(many).shape == (1, 3000)
    with pytest.raises(InvalidInput, match="no random features"):
        whole.at().draw(many)


def test_imagined_observations_are_drawn_too():
    state, formulas = fed("exact")
    S = formulas.covariance(Z, Z, RIDGE)
    expected = S - S[:, :1] @ S[:1] / (S[0, 0] + RIDGE)
    frozen = BatchView(state, Z)
    frozen.observe(0)
    for view in (Hypothetical(state, Z[:1]), frozen):
        assert fits(view.at().draw(Z, DRAWS, seeded(3)), 0.0, expected)
    assert fits(paths(frozen, Z), 0.0, expected)


# Inflation


@pytest.mark.parametrize(("name", "kind"), [("exact", "dmm"), ("tracked-sketch", "cmm")])
def test_draws_fill_an_interval_as_a_standard_deviation(name, kind):
    state, formulas = fed(name)
    confidence = MartingaleMixture(*NUMBERS, kind)
    drawn = confidence.draw(state, Z, DRAWS, seeded(3))
    lower, upper = confidence.interval(state, Z)
    covariance = documented(formulas)
    scale = (upper - lower) / 2 / covariance.diagonal().sqrt()
    assert fits(drawn, (lower + upper) / 2, scale.unsqueeze(-1) * covariance * scale)
    drawn = OF_NORM.draw(state, Z, 4, seeded(3))
    expected = state.predict(Z)[0] + OF_NORM.width(state) * state.at().draw(Z, 4, seeded(3))
    assert torch.equal(drawn, expected)


def test_draws_without_a_finite_bound_are_the_deviation_and_those_of_a_known_value_are_it():
    unknown = AdaptiveRidge(exact(), NoiseBounds(4.0, 0.1))
    drawn = AdaptiveSelfNormalized().draw(unknown, Z, 4, seeded(3))
    assert torch.equal(drawn, unknown.at().draw(Z, 4, seeded(3)))
    known = KernelRidge(LinearKernel().double(), RIDGE)
    assert not MartingaleMixture(*NUMBERS).draw(known, 0 * Z, 4).any()


# As an acquisition function


def model(kind: str, is_transformed: bool = True):
    level = torch.linspace(0, 0.01, len(X)).to(X)
    targets = (torch.sin(6 * X).sum(-1) + level).unsqueeze(-1)
    arguments = {}
    if is_transformed:
        arguments = {"input_transform": Normalize(2), "outcome_transform": Standardize(1)}
    if kind == "exact":
        return KernelRidgeGP(2 * X, targets, matern(2.5), 0.05, **arguments)
    return NystromGP(2 * X, targets, matern(2.5), 0.05, FixedDictionary(2 * X[:12]), **arguments)


def linear(weight: float, offset: float = 0.0) -> ScalarizedPosteriorTransform:
    return ScalarizedPosteriorTransform(X.new_tensor([weight]), offset=offset)


def batches(*shape: int) -> Tensor:
    return 2 * torch.rand(*shape, 2, generator=seeded(6), dtype=torch.float64).to(DEVICE)


def test_every_point_of_a_batch_maximises_a_draw_of_its_own():
    built = model("exact")
    acqf = InflatedThompsonSampling(built, OF_NORM, 3)
    first = InflatedThompsonSampling(built, OF_NORM, 3)
    second = InflatedThompsonSampling(built, OF_NORM, 3, X_pending=batches(1))
    points = batches(5, 2)
    close(acqf(points), (first(points[:, :1]) + second(points[:, 1:])) / 2, 1e-12)


@pytest.mark.parametrize("kind", ["exact", "sketched"])
def test_values_are_fixed_by_the_seed_do_not_depend_on_other_rows_and_are_differentiable(kind):
    built = model(kind)
    points = batches(3, 4, 3)
    acqf = InflatedThompsonSampling(built, OF_NORM, 3)
    same = InflatedThompsonSampling(built, OF_NORM, 3)
    same(points[..., :1, :])  # in another order: slots are drawn one after the other
    values = acqf(points)
    assert values.shape == (3, 4)
    assert torch.equal(same(points), values)
    assert not torch.equal(InflatedThompsonSampling(built, OF_NORM, 4)(points), values)
    close(acqf(points[1]), values[1], 1e-10)
    transformed = InflatedThompsonSampling(built, OF_NORM, 3, linear(2.0, 3.0))
    close(transformed(points), 2 * values + 3, 1e-12)
    one = built.transform_inputs(points[0, :, :1])
    for confidence in (ImprovedGPUCB(*NUMBERS, eta=0.5), MartingaleMixture(0.2, 8.0, 0.1, "dmm")):
        acqf = InflatedThompsonSampling(built, confidence, 3)
        posterior = built.state.at(confidence.ridge(built.state))
        deviation = posterior.draw_function(one, seeded(3))(one)
        expected = confidence.inflated(built.state, one, deviation).squeeze(-1)
        close(acqf(points[0, :, :1]), expected, 1e-12)
        assert gradcheck(acqf, batches(2, 2).requires_grad_())


def test_a_strategy_samples_where_draws_are_largest():
    built = model("sketched")
    points = batches(50)
    expected = OF_NORM.draw(built.state, built.transform_inputs(points), 7, seeded(3))
    for transform, sign in ((None, 1), (linear(-1.0), -1)):
        sampling = InflatedPosteriorSampling(built, OF_NORM, 3, transform)
        drawn = sampling(points, 7)
        assert torch.equal(drawn, points[(sign * expected).argmax(-1)])
        assert not torch.equal(drawn, sampling(points, 7))
        assert sampling(points).shape == (1, 2)


@pytest.mark.parametrize("rule", [InflatedThompsonSampling, InflatedPosteriorSampling])
def test_without_a_seed_every_rule_has_draws_of_its_own_which_follow_the_seed_of_torch(rule):
    seeds = []
    for _ in range(2):
        torch.manual_seed(3)
        rules = [rule(model("exact"), OF_NORM) for _ in range(2)]
        seeds.append([getattr(one, "rule", one).generator.initial_seed() for one in rules])
    assert seeds[0] == seeds[1]
    assert seeds[0][0] != seeds[0][1]


def test_what_is_proved_is_said():
    plain = model("exact", is_transformed=False)
    for rule in (InflatedThompsonSampling, InflatedPosteriorSampling):
        assert rule(plain, FixedWidth(1.0)).guarantee is None
        assert rule(model("exact"), OF_NORM).guarantee is None  # fitted transforms
        assert rule(plain, OF_NORM).guarantee == OF_NORM.guarantee


# As a method


def test_a_method_chooses_where_a_draw_is_largest():
    arms = unit_square(30, 9).to(DEVICE)
    method = Method(sketch, OF_NORM, ThompsonSampling())
    state = method.state(arms)
    state.update(X, Y)
    draws = OF_NORM.draw(state, arms, 40, seeded(3))
    batch = method.choose_batch(state, arms, 40, seeded(3))
    assert batch == draws.argmax(-1).tolist()
    assert 1 < len(set(batch)) < 40
    assert [method.choose(state, arms, seeded(3))] == method.choose_batch(state, arms, 1, seeded(3))
    torch.manual_seed(3)
    assert method.choose_batch(state, arms, 40) == batch  # without a generator, torch's own
    assert isinstance(method.with_multiplier(0.3).rule, ThompsonSampling)
