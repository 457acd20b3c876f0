"""Draws have the law that the formulas say, whatever the posterior; rules maximise them."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.models.transforms import Normalize, Standardize
from botorch.optim import optimize_acqf
from gpytorch.kernels import Kernel, LinearKernel, MaternKernel, ScaleKernel
from scipy.stats import chi2
from torch import Tensor
from torch.autograd import gradcheck

from kbo.acquisition import InflatedPosteriorSampling, InflatedThompsonSampling, inflated_draws
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
    RidgeSchedule,
)
from tests.dense import Dense, Sketched, close
from tests.laws.states import composite, matern, normal, rbf, seeded, unit_square

RIDGE, DRAWS, PATHS = 0.1, 4000, 200
ANCHORS = unit_square(5, 30)
BOUND = {"noise_std": 0.2, "norm_bound": 4.0, "delta": 0.1}
OF_NORM = SelfNormalized(**BOUND)


def data(device) -> tuple[Tensor, Tensor]:
    X = unit_square(30, 1).to(device)
    X[-5:] = X[:5]  # repeats
    return X, torch.sin(5 * X).sum(-1) + 0.3 * normal(30, 2).to(device)


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


def residual(formulas: Dense, Z: Tensor) -> Tensor:
    """The part of the prior covariance that a sketch does not see."""
    if not isinstance(formulas, Sketched):
        return torch.zeros(len(Z), len(Z)).to(Z)
    f = formulas.features(Z)
    return formulas.covariance(Z, Z, 1e12) - f @ f.mT  # at an infinite ridge: the prior


def documented(formulas: Dense, Z: Tensor, ridge: float) -> Tensor:
    """The covariance of draws over a finite set: on a sketch, the residual is independent from point to point."""
    rest = residual(formulas, Z)
    return formulas.covariance(Z, Z, ridge) - rest + rest.diagonal().diag()


class Grid(RidgeSchedule):
    """A ridge that moves with the number of observations."""

    def __init__(self) -> None:
        self.ridge = 5.0

    def update(self, state: Posterior) -> None:
        self.ridge = 3.0 / state.n  # 0.1 after 30


def exact(ridge: float = RIDGE) -> KernelRidge:
    return KernelRidge(matern(1.5), ridge)


def sketch() -> NystromRidge:
    return NystromRidge(matern(1.5), RIDGE, FixedDictionary(ANCHORS))


STATES = {
    "exact": lambda Z: exact(),
    "tracked": lambda Z: FixedPoints(exact(), Z),
    "moving": lambda Z: FixedPoints(AdaptiveRidge(exact(1.0), Grid()), Z),
    "sketched": lambda Z: sketch(),
    "tracked-sketch": lambda Z: FixedPoints(sketch(), Z),
    "moving-sketch": lambda Z: FixedPoints(AdaptiveRidge(sketch(), Grid()), Z),
}


def fed(name: str, device, n: int = 30) -> tuple[Posterior, Dense, Tensor]:
    """A state with data, the formulas it must follow, and points."""
    X, y = (part[:n] for part in data(device))
    Z = unit_square(6, 9).to(device) if n else ANCHORS.to(device) + 0.1
    state = STATES[name](Z)
    for x, target in zip(X.split(10), y.split(10), strict=True):
        state.update(x, target)
        state.predict(Z)
    if "sketch" in name:
        return state, Sketched(matern(1.5), X, y, ANCHORS.to(X)), Z
    return state, Dense(matern(1.5), X, y), Z


# Draws over finite sets


@pytest.mark.parametrize("ridge", [None, 0.8])
@pytest.mark.parametrize("name", STATES)
def test_draws_have_mean_zero_and_the_covariance_of_the_posterior(device, name, ridge):
    state, formulas, Z = fed(name, device)
    drawn = state.at(ridge).draw(Z, DRAWS, seeded(3))
    assert drawn.shape == (DRAWS, 6)
    assert fits(drawn, 0.0, documented(formulas, Z, ridge or RIDGE))
    if "sketch" in name:  # the residual is not drawn jointly
        assert probability(drawn, 0.0, formulas.covariance(Z, Z, ridge or RIDGE)) < 1e-6


@pytest.mark.parametrize("name", ["exact", "tracked", "sketched", "tracked-sketch"])
def test_draws_follow_the_seed_and_the_dtype(device, name):
    empty, prior, Z = fed(name, device, 0)
    assert fits(empty.at().draw(Z, DRAWS, seeded(3)), 0.0, documented(prior, Z, RIDGE))
    state, _, Z = fed(name, device)
    global_state = torch.get_rng_state()
    for draw in (
        lambda *generator: state.at().draw(Z, 3, *generator),
        lambda *generator: state.at().draw_function(Z, *generator)(Z),
    ):
        first = draw(seeded(3))
        assert torch.equal(first, draw(seeded(3)))
        assert not torch.equal(first, draw(seeded(4)))
        assert torch.equal(torch.get_rng_state(), global_state)
        first = draw()  # without a generator, torch's own
        assert not torch.equal(first, draw())
        torch.set_rng_state(global_state)
        assert torch.equal(first, draw())
        torch.set_rng_state(global_state)
    X, y = data(device)
    single = STATES[name](Z.float())
    single.update(X.float(), y.float())
    assert single.at().draw_function(Z.float())(Z.float()).dtype == torch.float32
    assert inflated_draws(OF_NORM, single, Z.float(), 3).dtype == torch.float32


def test_many_points_are_drawn_without_a_matrix_of_their_size(device, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("a joint covariance was formed")

    monkeypatch.setattr("kbo.regression.posterior.joint_draws", refuse)
    Z = unit_square(20_000, 7).to(device)
    for state, points in ((sketch(), Z), (FixedPoints(sketch(), Z), Z), (exact(), Z[:3000])):
        state.update(*data(device))
        drawn = state.at().draw(points, 1, seeded(3))[0]
        scaled = drawn / state.predict(points)[1].sqrt()
        assert 0.5 < float(scaled.square().mean()) < 1.7
    with pytest.raises(AssertionError, match="joint covariance"):
        exact().at().draw(Z[:10])


def test_chunks_do_not_change_a_draw(device, monkeypatch):
    state = fed("sketched", device)[0]
    Z = unit_square(500, 7).to(device)
    whole = state.at().draw(Z, 2, seeded(3))
    for module in ("sampling", "sketch.nystrom"):
        monkeypatch.setattr(f"kbo.regression.{module}.block_of", lambda on_cpu, device: 35)
    close(state.at().draw(Z, 2, seeded(3)), whole, 1e-10)
    monkeypatch.setattr("kbo.regression.posterior.MOST_JOINT", 5)
    at = fed("exact", device)[0].at()
    close(at.draw(Z, 1, seeded(3))[0], at.draw_function(Z, seeded(3))(Z), 1e-10)


def test_the_covariance_of_tracked_points_follows_the_data_and_a_few_ridges_are_remembered(device):
    X = unit_square(80, 1).to(device)
    y = normal(80, 2).to(device)
    Z = unit_square(6, 9).to(device)
    state = FixedPoints(exact(), Z)
    for stop in (1, 30, 80):  # the last with folded rows
        state.update(X[state.n : stop], y[state.n : stop])
        formulas = Dense(matern(1.5), X[:stop], y[:stop])
        for ridge in (RIDGE, 0.7, 0.2):
            close(state.at(ridge).covariance(Z, Z[:2]), formulas.covariance(Z, Z[:2], ridge))
    for ridge in (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, RIDGE):
        close(torch.stack(state.at(ridge).predict(Z)), torch.stack(formulas.predict(Z, ridge)))
        state.predict(Z)
    columns = state.columns_at(Z)
    assert len(columns._at) == 4
    assert RIDGE in columns._at


# Functions


def swapped() -> Kernel:
    """Long along the second column, short along the first."""
    kernel = rbf(active_dims=[1, 0], ard_num_dims=2)
    kernel.lengthscale = torch.tensor([[2.0, 0.2]])
    return ScaleKernel(kernel).double()


def scaled_twice() -> Kernel:
    return ScaleKernel(ScaleKernel(MaternKernel(nu=0.5, active_dims=[1]))).double()


def paths(state: Posterior, Z: Tensor, ridge: float | None = None) -> Tensor:
    generator = seeded(3)
    at = state.at(ridge)
    return torch.stack([at.draw_function(Z, generator)(Z) for _ in range(PATHS)])


@pytest.mark.parametrize(
    ("kernel", "sketched"),
    [
        (rbf(active_dims=[1]) + matern(2.5), False),
        (scaled_twice(), False),
        (swapped(), False),
        (swapped(), True),
    ],
    ids=["sum", "column-scaled-twice", "columns-swapped", "columns-swapped-sketched"],
)
def test_functions_have_the_joint_covariance_of_the_posterior(device, kernel, sketched):
    X, y = data(device)
    Z = unit_square(4, 9).to(device)
    state = KernelRidge(kernel, RIDGE)
    formulas = Dense(kernel, X, y)
    if sketched:
        state = NystromRidge(kernel, RIDGE, FixedDictionary(ANCHORS))
        formulas = Sketched(kernel, X, y, ANCHORS.to(X))
    state.update(X, y)
    drawn = paths(state, Z)
    expected = formulas.covariance(Z, Z, RIDGE)
    assert fits(drawn, 0.0, expected)
    if sketched:
        assert probability(drawn, 0.0, expected - 0.5 * residual(formulas, Z)) < 1e-6


@pytest.mark.parametrize("name", ["exact", "tracked-sketch"])
@pytest.mark.parametrize(("n", "ridge"), [(30, 0.8), (0, RIDGE)])
def test_functions_at_another_ridge_and_before_any_data(device, name, n, ridge):
    state, formulas, Z = fed(name, device, n)
    assert fits(paths(state, Z, ridge), 0.0, formulas.covariance(Z, Z, ridge))


@pytest.mark.parametrize(
    "dictionary",
    [GreedyDictionary(0.001), LeverageResampling(3.0)],
    ids=lambda dictionary: type(dictionary).__name__,
)
def test_a_function_stays_when_the_sketch_learns(device, dictionary):
    X, y = data(device)
    Z = unit_square(3, 8).to(device).reshape(1, 3, 2)
    state = NystromRidge(rbf(), RIDGE, dictionary)
    state.update(X[:10], y[:10])
    path = state.at().draw_function(Z, seeded(3))
    before = path(Z)
    assert before.shape == (1, 3)
    close(path(Z[0, 1]), before[0, 1], 1e-10)
    state.update(X[10:], y[10:])
    assert torch.equal(path(Z), before)


def test_kernels_without_random_features_are_refused_by_functions_only(device):
    Z = unit_square(3000, 9).to(device)
    whole = KernelRidge(composite(), RIDGE)
    sketched = NystromRidge(composite(), RIDGE, FixedDictionary(ANCHORS))
    for state in (whole, sketched):
        state.update(*data(device))
        with pytest.raises(InvalidInput, match=r"no random features.*RBFKernel.*finite set"):
            state.at().draw_function(Z)
        assert state.at().draw(Z[:20]).shape == (1, 20)
    assert sketched.at().draw(Z).shape == (1, 3000)
    with pytest.raises(InvalidInput, match="no random features"):
        whole.at().draw(Z)


def test_imagined_observations_are_drawn_too(device):
    state, formulas, Z = fed("exact", device)
    S = formulas.covariance(Z, Z, RIDGE)
    expected = S - S[:, :1] @ S[:1] / (S[0, 0] + RIDGE)
    frozen = BatchView(state, Z)
    frozen.observe(0)
    for view in (Hypothetical(state, Z[:1]), frozen):
        assert fits(view.at().draw(Z, DRAWS, seeded(3)), 0.0, expected)
    assert fits(paths(frozen, Z), 0.0, expected)


# Inflation


@pytest.mark.parametrize("name", ["moving", "sketched"])
def test_under_a_width_draws_are_the_mean_plus_width_times_the_deviation(device, name):
    state, _, Z = fed(name, device)
    deviation = state.at().draw(Z, 4, seeded(3))
    for confidence in (FixedWidth(2.0), OF_NORM):
        drawn = inflated_draws(confidence, state, Z, 4, seeded(3))
        width = confidence.width(state).to(Z)
        assert torch.equal(drawn, state.predict(Z)[0] + width * deviation)


@pytest.mark.parametrize(("name", "kind"), [("exact", "dmm"), ("tracked-sketch", "cmm")])
def test_draws_fill_any_interval_as_a_standard_deviation(device, name, kind):
    state, formulas, Z = fed(name, device)
    confidence = MartingaleMixture(**BOUND, kind=kind)
    drawn = inflated_draws(confidence, state, Z, DRAWS, seeded(3))
    lower, upper = confidence.interval(state, Z)
    covariance = documented(formulas, Z, RIDGE)
    scale = (upper - lower) / 2 / covariance.diagonal().sqrt()
    assert fits(drawn, (lower + upper) / 2, scale.unsqueeze(-1) * covariance * scale)


def test_draws_without_a_finite_bound_are_the_deviation_and_those_of_a_known_value_are_it(device):
    Z = unit_square(6, 9).to(device)
    unknown = AdaptiveRidge(exact(1.0), NoiseBounds(4.0, 0.1))
    drawn = inflated_draws(AdaptiveSelfNormalized(), unknown, Z, 4, seeded(3))
    assert torch.equal(drawn, unknown.at().draw(Z, 4, seeded(3)))
    known = KernelRidge(LinearKernel().double(), RIDGE)
    drawn = MartingaleMixture(**BOUND).inflated(known, 0 * Z, torch.zeros(6).to(Z))
    assert drawn.tolist() == [0.0] * 6


# As an acquisition function


def model(device, kind: str, transformed: bool = True):
    X = 2 * data(device)[0]
    level = torch.linspace(0, 0.01, len(X), dtype=torch.float64, device=device)
    Y = (torch.sin(3 * X).sum(-1) + level).unsqueeze(-1)
    arguments = {}
    if transformed:
        arguments = {"input_transform": Normalize(2), "outcome_transform": Standardize(1)}
    if kind == "exact":
        return KernelRidgeGP(X, Y, matern(2.5), 0.05, **arguments)
    return NystromGP(X, Y, matern(2.5), 0.05, FixedDictionary(X[:12].clone()), **arguments)


def linear(device, weight: float, offset: float = 0.0) -> ScalarizedPosteriorTransform:
    weights = torch.tensor([weight], dtype=torch.float64, device=device)
    return ScalarizedPosteriorTransform(weights, offset=offset)


def batches(device, *shape: int) -> Tensor:
    return 2 * torch.rand(*shape, 2, generator=seeded(6), dtype=torch.float64).to(device)


@pytest.mark.parametrize("kind", ["exact", "sketched"])
def test_every_point_of_a_batch_maximises_a_draw_of_its_own(device, kind):
    built = model(device, kind)
    sampled = partial(InflatedThompsonSampling, built, OF_NORM, 3, None)
    acqf = sampled()
    single = [sampled(batches(device, j)) for j in range(2)]
    X = batches(device, 5, 2)
    close(acqf(X), (single[0](X[:, :1]) + single[1](X[:, 1:])) / 2, 1e-12)
    box = torch.tensor([[0.0, 0.0], [2.0, 2.0]], dtype=torch.float64, device=device)
    found, _ = optimize_acqf(
        acqf,
        box,
        q=2,
        sequential=True,
        num_restarts=6,
        raw_samples=128,
        options={"seed": 0, "maxiter": 100},
    )
    line = torch.linspace(0, 2, 40, dtype=torch.float64, device=device)
    grid = torch.cartesian_prod(line, line).unsqueeze(1)
    assert acqf(found) > sum(float(one(grid).max()) for one in single) / 2 - 1e-3
    assert torch.pdist(found) > 0.01


@pytest.mark.parametrize(
    ("kind", "transformed", "confidence"),
    [("exact", False, FixedWidth(2.0)), ("sketched", True, ImprovedGPUCB(**BOUND, eta=0.5))],
    ids=["at the ridge of the state", "at another ridge"],
)
def test_values_of_many_seeds_have_the_law_of_the_posterior(device, kind, transformed, confidence):
    built = model(device, kind, transformed)
    X = batches(device, 4, 1)
    values = [InflatedThompsonSampling(built, confidence, seed)(X) for seed in range(PATHS)]
    Z = built.transform_inputs(X).squeeze(-2)
    posterior = built.state.at(confidence.ridge(built.state))
    covariance = confidence.width(built.state) ** 2 * posterior.covariance(Z, Z)
    assert fits(torch.stack(values), posterior.predict(Z)[0], covariance)


@pytest.mark.parametrize("kind", ["exact", "sketched"])
def test_values_are_fixed_by_the_seed_do_not_depend_on_other_rows_and_are_differentiable(
    device, kind
):
    built = model(device, kind)
    X = batches(device, 3, 4, 3)
    global_state = torch.get_rng_state()
    acqf = InflatedThompsonSampling(built, OF_NORM, 3)
    same = InflatedThompsonSampling(built, OF_NORM, 3)
    same(X[..., :1, :])  # in another order: slots are drawn one after the other
    values = acqf(X)
    assert torch.equal(torch.get_rng_state(), global_state)
    assert values.shape == (3, 4)
    assert torch.equal(acqf(X), values)
    assert torch.equal(same(X), values)
    assert not torch.equal(InflatedThompsonSampling(built, OF_NORM, 4)(X), values)
    close(acqf(X[1]), values[1], 1e-10)
    close(acqf(X[1, 2]), values[1, 2:3], 1e-10)
    transformed = InflatedThompsonSampling(built, OF_NORM, 3, linear(device, 2.0, 3.0))
    close(transformed(X), 2 * values + 3, 1e-12)
    mixture = MartingaleMixture(0.2, 8.0, 0.1, kind="dmm")
    for confidence in (OF_NORM, ImprovedGPUCB(**BOUND, eta=0.01), mixture):
        acqf = InflatedThompsonSampling(built, confidence, 3, linear(device, -1.0))
        assert gradcheck(acqf, batches(device, 2, 2).requires_grad_())


def test_a_strategy_samples_where_draws_are_largest(device):
    built = model(device, "sketched")
    X = batches(device, 50)
    expected = inflated_draws(OF_NORM, built.state, built.transform_inputs(X), 7, seeded(3))
    for transform, sign in ((None, 1), (linear(device, -1.0), -1)):
        sampling, same = (InflatedPosteriorSampling(built, OF_NORM, 3, transform) for _ in range(2))
        drawn = sampling(X, 7)
        again = sampling(X, 7)
        assert torch.equal(drawn, X[(sign * expected).argmax(-1)])
        assert not torch.equal(drawn, again)
        assert torch.equal(same(X, 7), drawn)
        assert torch.equal(same(X, 7), again)
        assert sampling(X).shape == (1, 2)


def test_what_is_proved_is_said(device):
    plain = model(device, "exact", transformed=False)
    sketched = model(device, "sketched", transformed=False)
    mixture = MartingaleMixture(**BOUND)
    for rule in (InflatedThompsonSampling, InflatedPosteriorSampling):
        assert rule(plain, FixedWidth(1.0)).guarantee is None
        assert rule(model(device, "exact"), OF_NORM).guarantee is None  # fitted transforms
        assert "probability" in rule(plain, OF_NORM).guarantee
        assert rule(sketched, mixture).guarantee == mixture.guarantee


# As a method


@pytest.mark.parametrize(
    ("make", "confidence"),
    [(exact, FixedWidth(1.0)), (sketch, MartingaleMixture(**BOUND))],
    ids=["exact", "sketched"],
)
def test_a_method_chooses_where_a_draw_is_largest(device, make, confidence):
    Z = unit_square(30, 9).to(device)
    method = Method(make, confidence, ThompsonSampling())
    state = method.state(Z)
    state.update(*data(device))

    def largest(count: int) -> list[int]:
        return inflated_draws(confidence, state, Z, count, seeded(3)).argmax(-1).tolist()

    assert [method.choose(state, Z, seeded(3))] == largest(1)
    batch = method.choose_batch(state, Z, 40, seeded(3))
    assert batch == largest(40)
    assert 1 < len(set(batch)) < 40
    assert state.n == 30
    torch.manual_seed(3)
    assert method.choose_batch(state, Z, 40) == batch  # without a generator, torch's own
    same = Z[:1].expand(5, 2)  # no residual: five equal values, and the first is taken
    assert method.choose(NystromRidge(rbf(), RIDGE, FixedDictionary(Z[:1])), same, seeded(3)) == 0


def test_a_multiplier_keeps_the_rule():
    spread = Method(exact, OF_NORM, ThompsonSampling()).with_multiplier(0.3)
    assert isinstance(spread.rule, ThompsonSampling)
    assert spread.confidence.guarantee is None
    assert float(spread.confidence.width(spread.state())) == pytest.approx(0.3 / math.sqrt(RIDGE))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_drawn_functions_do_not_depend_on_the_default_dtype(dtype):
    X = unit_square(5, 1)
    state = KernelRidge(rbf(), 0.1)
    expected = state.draw_prior(X, seeded(0))(X)
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        assert torch.equal(state.draw_prior(X, seeded(0))(X), expected)
    finally:
        torch.set_default_dtype(before)
