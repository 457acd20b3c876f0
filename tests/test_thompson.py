"""Draws have the law that the formulas say, whatever the posterior; rules maximise them."""

from __future__ import annotations

import math
from typing import ClassVar

import pytest
import torch
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.models.transforms import Normalize, Standardize
from botorch.optim import optimize_acqf
from gpytorch.kernels import Kernel, MaternKernel, ScaleKernel
from scipy.stats import chi2
from torch import Tensor
from torch.autograd import gradcheck

from kbo import bandit
from kbo.acquisition import InflatedPosteriorSampling, InflatedThompsonSampling
from kbo.acquisition.thompson import inflated_draws
from kbo.confidence import FixedWidth, ImprovedGPUCB, MartingaleMixture, SelfNormalized
from kbo.errors import InvalidInput
from kbo.models import KernelRidgeGP, NystromGP
from kbo.problems import RKHSBandit
from kbo.recipes import Method, ThompsonSampling, UniformChoice
from kbo.regression import (
    AdaptiveRidge,
    BatchView,
    FixedDictionary,
    GreedyDictionary,
    Hypothetical,
    KernelRidge,
    LeverageResampling,
    NystromRidge,
    Posterior,
    RidgeSchedule,
    Tracked,
    centred_draws,
    draw_path,
    track,
)
from tests.dense import Dense, Sketched, close
from tests.laws.states import composite, matern, periodic, rbf, seeded, unit_square

RIDGE, DRAWS, PATHS = 0.1, 4000, 400
ANCHORS = unit_square(5, 30)
BOUND = {"noise_std": 0.2, "norm_bound": 4.0, "delta": 0.1}


def data(device, n: int = 30) -> tuple[Tensor, Tensor]:
    X = unit_square(n, 1).to(device)
    X[-5:] = X[:5]  # repeats
    return X, torch.sin(5 * X).sum(-1) + 0.3 * torch.randn(n, generator=seeded(2), dtype=torch.float64).to(device)


def test_points(device) -> Tensor:
    return unit_square(6, 9).to(device)


test_points.__test__ = False


def probability(drawn: Tensor, mean: Tensor | float, covariance: Tensor) -> float:
    """Of a mean, or a covariance (by its likelihood), of draws [count p] as far from ``N(mean, covariance)``."""
    count, p = drawn.shape
    W = torch.linalg.solve_triangular(torch.linalg.cholesky(covariance), (drawn - mean).mT, upper=False)
    average, S = W.mean(1), W @ W.mT / count
    ratio = count * (S.trace() - torch.linalg.slogdet(S)[1] - p)
    return min(chi2.sf(float(count * average @ average), p), chi2.sf(float(ratio), p * (p + 1) // 2))


def fits(drawn: Tensor, mean: Tensor | float, covariance: Tensor) -> bool:
    return probability(drawn, mean, covariance) > 1e-3


def refuted(drawn: Tensor, mean: Tensor | float, covariance: Tensor) -> bool:
    return probability(drawn, mean, covariance) < 1e-6


def documented(formulas: Dense, Z: Tensor, ridge: float) -> Tensor:
    """The covariance of draws over a finite set: on a sketch, the residual is independent from point to point."""
    joint = formulas.covariance(Z, Z, ridge)
    return joint - off_diagonal(residual(formulas, Z))


def residual(formulas: Dense, Z: Tensor) -> Tensor:
    if not isinstance(formulas, Sketched):
        return torch.zeros(len(Z), len(Z)).to(Z)
    f = formulas.features(Z)
    return formulas.covariance(Z, Z, 1e12) - f @ f.mT  # at an infinite ridge: the prior


def off_diagonal(matrix: Tensor) -> Tensor:
    return matrix - matrix.diagonal().diag()


class Grid(RidgeSchedule):
    """A ridge that moves with the number of observations."""

    saved = ("ridge",)

    def __init__(self, continuous: bool) -> None:
        self.continuous, self.ridge = continuous, 5.0

    def update(self, state: Posterior) -> None:
        self.ridge = 3.0 / state.n  # 0.1 after 30


def sketch() -> NystromRidge:
    return NystromRidge(matern(1.5), RIDGE, FixedDictionary(ANCHORS))


STATES = {
    "exact": lambda Z: KernelRidge(matern(1.5), RIDGE),
    "tracked": lambda Z: track(KernelRidge(matern(1.5), RIDGE), Z),
    "moving": lambda Z: track(AdaptiveRidge(KernelRidge(matern(1.5), 1.0), Grid(False)), Z),
    "moving-continuously": lambda Z: track(AdaptiveRidge(KernelRidge(matern(1.5), 1.0), Grid(True)), Z),
    "sketched": lambda Z: sketch(),
    "tracked-sketch": lambda Z: track(sketch(), Z),
    "moving-sketch": lambda Z: track(AdaptiveRidge(sketch(), Grid(False)), Z),
}


def fed(name: str, device) -> tuple[Posterior, Dense, Tensor]:
    """A state with data, the formulas it must follow, and test points."""
    (X, y), Z = data(device), test_points(device)
    state = STATES[name](Z)
    for x, target in zip(X.split(10), y.split(10), strict=True):
        state.update(x, target)
        state.predict(Z)
    formulas = Sketched(matern(1.5), X, y, ANCHORS.to(X)) if "sketch" in name else Dense(matern(1.5), X, y)
    return state, formulas, Z


# Draws over finite sets


@pytest.mark.parametrize("ridge", [None, 0.8])
@pytest.mark.parametrize("name", STATES)
def test_draws_have_mean_zero_and_the_covariance_of_the_posterior(device, name, ridge):
    state, formulas, Z = fed(name, device)
    assert state.ridge == pytest.approx(RIDGE)
    drawn = centred_draws(state, Z, DRAWS, seeded(3), ridge)
    expected = documented(formulas, Z, ridge or RIDGE)
    assert drawn.shape == (DRAWS, 6)
    assert fits(drawn, 0.0, expected)
    assert refuted(1.1 * drawn, 0.0, expected)
    assert refuted(drawn + 0.1, 0.0, expected)
    if "sketch" in name:
        assert refuted(drawn, 0.0, expected - 0.5 * residual(formulas, Z).diagonal().diag())
        assert refuted(drawn, 0.0, formulas.covariance(Z, Z, ridge or RIDGE))  # the residual is not drawn jointly


@pytest.mark.parametrize("name", ["exact", "tracked", "sketched", "tracked-sketch"])
def test_before_any_data_draws_are_those_of_the_prior(device, name):
    Z = test_points(device)
    prior = Dense(matern(1.5), Z[:0], Z[:0, 0]).covariance(Z, Z, RIDGE)
    if "sketch" in name:
        f = Sketched(matern(1.5), Z[:0], Z[:0, 0], ANCHORS.to(Z)).features(Z)
        prior = prior - off_diagonal(prior - f @ f.mT)
    assert fits(centred_draws(STATES[name](Z), Z, DRAWS, seeded(3)), 0.0, prior)


@pytest.mark.parametrize("name", ["exact", "tracked"])
def test_more_points_of_an_exact_state_are_drawn_as_functions(device, name, monkeypatch):
    state, formulas, Z = fed(name, device)
    monkeypatch.setattr("kbo.regression.posterior.MOST_JOINT", 5)
    drawn = centred_draws(state, Z, PATHS, seeded(3))
    expected = formulas.covariance(Z, Z, RIDGE)
    assert fits(drawn, 0.0, expected)
    assert refuted(1.25 * drawn, 0.0, expected)


@pytest.mark.parametrize("name", STATES)
def test_the_same_seed_gives_the_same_draw(device, name):
    state, _, Z = fed(name, device)
    global_state = torch.get_rng_state()
    first, second = (centred_draws(state, Z, 3, seeded(3)) for _ in range(2))
    assert torch.equal(first, second)
    assert not torch.equal(first, centred_draws(state, Z, 3, seeded(4)))
    assert torch.equal(torch.get_rng_state(), global_state)
    torch.manual_seed(5)
    first = centred_draws(state, Z)
    torch.manual_seed(5)
    assert torch.equal(first, centred_draws(state, Z))
    assert not torch.equal(first, centred_draws(state, Z))


def test_remembered_features_give_the_draws_of_the_sketch(device):
    state, _, Z = fed("tracked-sketch", device)
    assert isinstance(state, Tracked)
    close(centred_draws(state, Z, 3, seeded(3)), centred_draws(state.state, Z.clone(), 3, seeded(3)))
    other = unit_square(4, 8).to(Z)
    assert torch.equal(centred_draws(state, other, 3, seeded(3)), centred_draws(state.state, other, 3, seeded(3)))


def test_a_hundred_thousand_points_are_drawn_without_a_matrix_of_their_size(device, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("a joint covariance was formed")

    monkeypatch.setattr("kbo.regression.posterior.joint_draws", refuse)
    Z, (X, y) = unit_square(100_000, 7).to(device), data(device)
    for state in (sketch(), track(sketch(), Z), KernelRidge(matern(1.5), RIDGE)):
        points = Z if not isinstance(state, KernelRidge) else Z[:5000]
        state.update(X, y)
        drawn = centred_draws(state, points, 1, seeded(3))[0]
        assert drawn.shape == points.shape[:1]
        scaled = drawn / state.predict(points)[1].sqrt()
        assert 0.5 < float(scaled.square().mean()) < 1.7
    with pytest.raises(AssertionError, match="joint covariance"):
        centred_draws(KernelRidge(matern(1.5), RIDGE), Z[:10])


def test_chunks_do_not_change_a_draw(device, monkeypatch):
    state, _, _ = fed("sketched", device)
    Z = unit_square(500, 7).to(device)
    whole = centred_draws(state, Z, 2, seeded(3))
    for module in ("sampling", "sketch.one_ridge"):
        monkeypatch.setattr(f"kbo.regression.{module}.block_of", lambda on_cpu, device: 35)
    close(centred_draws(state, Z, 2, seeded(3)), whole, 1e-10)
    monkeypatch.setattr("kbo.regression.posterior.MOST_JOINT", 5)
    exact, _, _ = fed("exact", device)
    close(centred_draws(exact, Z, 1, seeded(3))[0], draw_path(exact, Z, seeded(3))(Z), 1e-10)


@pytest.mark.parametrize("name", ["exact", "sketched", "tracked-sketch"])
def test_sample_adds_the_mean(name, device):
    state, _, Z = fed(name, device)
    sampled, deviations = state.sample(Z, 5, seeded(3)), centred_draws(state, Z, 5, seeded(3))
    close(sampled, state.predict(Z)[0] + deviations, 1e-12)


# The joint covariance of tracked points


def test_the_covariance_of_tracked_points_follows_the_data(device):
    (X, y), Z = data(device, 80), test_points(device)
    state = Tracked(KernelRidge(matern(1.5), RIDGE), Z)
    for stop in (1, 2, 30, 80):  # the last with folded rows
        state.update(X[state.n : stop], y[state.n : stop])
        formulas = Dense(matern(1.5), X[:stop], y[:stop])
        close(state.covariance(Z, Z), formulas.covariance(Z, Z, RIDGE))
        close(state.covariance(Z, Z, 0.7), formulas.covariance(Z, Z, 0.7))
        close(state.covariance(Z, Z, [0.7, 0.2]), formulas.covariance(Z, Z, [0.7, 0.2]))
        close(state.covariance(Z, Z[:2]), formulas.covariance(Z, Z[:2], RIDGE))


class Counting(MaternKernel):
    shapes: ClassVar[list[tuple[int, int]]] = []

    def forward(self, x1, x2, diag=False, **params):
        self.shapes.append((len(x1), len(x2)))
        return super().forward(x1, x2, diag, **params)


def test_a_draw_of_tracked_points_evaluates_the_kernel_for_new_rows_only(device):
    (X, y), Z = data(device), test_points(device)
    tracked = Tracked(KernelRidge(Counting(nu=1.5).double(), RIDGE), Z)
    Counting.shapes.clear()
    for i in range(4):
        tracked.update(X[i : i + 1], y[i : i + 1])
        centred_draws(tracked, Z, 1, seeded(3))
    assert sorted(shape for shape in Counting.shapes if shape[1] == len(Z)) == [*[(1, 6)] * 4, (6, 6)]


def test_tracked_points_remember_a_few_ridges_only(device):
    state, formulas, Z = fed("tracked", device)
    for ridge in (0.2, 0.3, 0.4, 0.5, 0.6, 0.7):
        state.predict(Z, ridge)
        state.predict(Z)
    assert len(state.followed.columns) == 4
    assert RIDGE in state.followed.columns
    for ridge in (0.2, 0.7, RIDGE):
        close(torch.stack(state.predict(Z, ridge)), torch.stack(formulas.predict(Z, ridge)))


# Functions


def swapped() -> Kernel:
    """Long along the second column, short along the first."""
    kernel = rbf(active_dims=[1, 0], ard_num_dims=2)
    kernel.lengthscale = torch.tensor([[2.0, 0.2]])
    return kernel


KERNELS = {
    "rbf": rbf,
    "matern12": lambda: matern(0.5),
    "matern52": lambda: matern(2.5),
    "column": lambda: rbf(active_dims=[1]) + matern(2.5),
    "column-scaled-twice": lambda: ScaleKernel(ScaleKernel(MaternKernel(nu=0.5, active_dims=[1]))).double(),
    "columns-swapped": lambda: ScaleKernel(ScaleKernel(swapped())).double(),
    "sum": lambda: matern(2.5) + rbf(),
}


def paths(state: Posterior, Z: Tensor, ridge: float | None = None) -> Tensor:
    generator = seeded(3)
    return torch.stack([draw_path(state, Z, generator, ridge)(Z) for _ in range(PATHS)])


@pytest.mark.parametrize(
    ("kernel", "sketched"), [*((kernel, False) for kernel in KERNELS), ("matern52", True), ("columns-swapped", True)]
)
def test_functions_have_the_joint_covariance_of_the_posterior(device, kernel, sketched):
    (X, y), Z, k = data(device), test_points(device)[:4], KERNELS[kernel]()
    state = NystromRidge(k, RIDGE, FixedDictionary(ANCHORS)) if sketched else KernelRidge(k, RIDGE)
    formulas = Sketched(k, X, y, ANCHORS.to(X)) if sketched else Dense(k, X, y)
    state.update(X, y)
    drawn, expected = paths(state, Z), formulas.covariance(Z, Z, RIDGE)
    assert fits(drawn, 0.0, expected)
    assert refuted(1.25 * drawn, 0.0, expected)
    if sketched:
        assert refuted(drawn, 0.0, expected - 0.5 * residual(formulas, Z))


@pytest.mark.parametrize("name", ["exact", "tracked-sketch"])
def test_functions_at_another_ridge(device, name):
    state, formulas, Z = fed(name, device)
    drawn = paths(state, Z, 0.8)
    assert fits(drawn, 0.0, formulas.covariance(Z, Z, 0.8))
    assert refuted(drawn, 0.0, formulas.covariance(Z, Z, 0.1))


@pytest.mark.parametrize("sketched", [False, True])
def test_before_any_data_functions_are_those_of_the_prior(device, sketched):
    Z = test_points(device)[:4]
    state = sketch() if sketched else KernelRidge(matern(1.5), RIDGE)
    assert fits(paths(state, Z), 0.0, Dense(matern(1.5), Z[:0], Z[:0, 0]).covariance(Z, Z, RIDGE))


@pytest.mark.parametrize("kind", ["exact", "growing", "resampled"])
def test_a_function_stays_when_the_posterior_learns(device, kind):
    (X, y), Z = data(device, 60), unit_square(3, 8).to(device).reshape(1, 3, 2)
    dictionaries = {"growing": GreedyDictionary(0.001), "resampled": LeverageResampling(3.0)}
    state = NystromRidge(rbf(), RIDGE, dictionaries[kind]) if kind != "exact" else KernelRidge(rbf(), RIDGE)
    state.update(X[:20], y[:20])
    path = draw_path(state, Z, seeded(3))
    before = path(Z)
    assert before.shape == (1, 3)
    close(path(Z[0, 1]), before[0, 1], 1e-10)
    state.update(X[20:], y[20:])
    assert torch.equal(path(Z), before)


@pytest.mark.parametrize("name", ["exact", "moving-continuously", "sketched"])
def test_functions_are_differentiable(device, name):
    state, _, Z = fed(name, device)
    assert gradcheck(draw_path(state, Z, seeded(3)), Z.clone().requires_grad_())


@pytest.mark.parametrize("name", ["exact", "sketched"])
def test_drawing_a_function_leaves_the_global_generators_alone(device, name):
    state, _, Z = fed(name, device)
    torch.manual_seed(1)
    global_state = torch.get_rng_state()
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    first, second = (draw_path(state, Z, seeded(3))(Z) for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), global_state)
    assert all(torch.equal(a, b) for a, b in zip(cuda, torch.cuda.get_rng_state_all() if cuda else [], strict=True))
    first = draw_path(state, Z)(Z)
    assert not torch.equal(first, draw_path(state, Z)(Z))
    torch.set_rng_state(global_state)
    assert torch.equal(first, draw_path(state, Z)(Z))


@pytest.mark.parametrize("name", ["exact", "tracked", "sketched", "tracked-sketch"])
def test_single_precision_stays(device, name):
    (X, y), Z = data(device), test_points(device).float()
    state = STATES[name](Z)
    state.update(X.float(), y.float())
    for confidence in (FixedWidth(2.0), SelfNormalized(**BOUND), MartingaleMixture(**BOUND, kind="dmm")):
        assert inflated_draws(confidence, state, Z, 3, seeded(3)).dtype == torch.float32
    assert draw_path(state, Z, seeded(3))(Z).dtype == torch.float32
    wide = STATES[name](Z.double())
    wide.update(X.float().double(), y.float().double())
    close(draw_path(state, Z, seeded(3))(Z).double(), draw_path(wide, Z.double(), seeded(3))(Z.double()), 1.0)


# Inflation


@pytest.mark.parametrize("name", STATES)
def test_under_a_width_draws_are_the_mean_plus_width_times_the_deviation(device, name):
    state, _, Z = fed(name, device)
    for confidence in (FixedWidth(2.0), SelfNormalized(**BOUND)):
        drawn = inflated_draws(confidence, state, Z, 4, seeded(3))
        expected = state.predict(Z)[0] + confidence.width(state).to(Z) * centred_draws(state, Z, 4, seeded(3))
        assert torch.equal(drawn, expected)


@pytest.mark.parametrize("name", ["tracked", "tracked-sketch"])
def test_a_bound_with_a_ridge_of_its_own_is_drawn_at_that_ridge(device, name):
    state, formulas, Z = fed(name, device)
    confidence = ImprovedGPUCB(**BOUND, eta=0.3)
    drawn = inflated_draws(confidence, state, Z, DRAWS, seeded(3))
    mean, square = formulas.mean(Z, 1.3), confidence.width(state) ** 2
    assert fits(drawn, mean, square * documented(formulas, Z, 1.3))
    assert refuted(drawn, mean, square * documented(formulas, Z, RIDGE))
    assert refuted(drawn, 3 * confidence.width(state) + mean, square * documented(formulas, Z, 1.3))


@pytest.mark.parametrize("kind", ["dmm", "cmm"])
@pytest.mark.parametrize("name", ["exact", "tracked", "sketched", "tracked-sketch"])
def test_draws_fill_any_interval_as_a_standard_deviation(device, name, kind):
    state, formulas, Z = fed(name, device)
    confidence = MartingaleMixture(**BOUND, kind=kind)
    drawn = inflated_draws(confidence, state, Z, DRAWS, seeded(3))
    lower, upper = confidence.interval(state, Z)
    covariance = documented(formulas, Z, RIDGE)
    scale = (upper - lower) / 2 / covariance.diagonal().sqrt()
    assert fits(drawn, (lower + upper) / 2, scale.unsqueeze(-1) * covariance * scale)
    assert refuted(drawn, (lower + upper) / 2, 1.2 * scale.unsqueeze(-1) * covariance * scale)
    assert refuted(drawn, upper, scale.unsqueeze(-1) * covariance * scale)


class NoBoundYet(FixedWidth):
    def finite_on(self, state: Posterior) -> bool:
        return False

    def width(self, state: Posterior) -> Tensor:
        return torch.tensor(math.inf)


def test_while_the_bounds_are_infinite_the_deviation_itself_is_the_draw(device):
    state, _, Z = fed("tracked", device)
    drawn = inflated_draws(NoBoundYet(1.0), state, Z, 4, seeded(3))
    assert torch.equal(drawn, centred_draws(state, Z, 4, seeded(3)))


def test_a_point_that_is_known_exactly_is_drawn_at_its_value(device):
    Z = test_points(device)

    class Known(KernelRidge):
        """Every value is known."""

        def predict(self, X, ridge=None):
            return torch.ones(len(X)).to(X), torch.zeros(len(X)).to(X)

    class Two(MartingaleMixture):
        def interval(self, state, X):
            return torch.full((len(X),), 2.0).to(X), torch.full((len(X),), 2.0).to(X)

    assert torch.equal(Two(**BOUND).inflated(Known(rbf(), 1.0), Z, torch.zeros(6).to(Z)), torch.full((6,), 2.0).to(Z))


# As an acquisition function


def model(device, kind: str, transformed: bool = True):
    X, _ = data(device)
    X = 2 * X
    Y = torch.sin(3 * X).sum(-1, keepdim=True) + 0.01 * torch.linspace(0, 1, len(X)).to(X).unsqueeze(-1)
    arguments = {"input_transform": Normalize(2), "outcome_transform": Standardize(1)} if transformed else {}
    if kind == "exact":
        return KernelRidgeGP(X, Y, matern(2.5), 0.05, **arguments)
    return NystromGP(X, Y, matern(2.5), 0.05, FixedDictionary(X[:12].clone()), **arguments)


def minus(device) -> ScalarizedPosteriorTransform:
    return ScalarizedPosteriorTransform(torch.tensor([-1.0], dtype=torch.float64, device=device))


def batches(device, *shape: int) -> Tensor:
    return 2 * torch.rand(*shape, 2, generator=seeded(6), dtype=torch.float64).to(device)


BOX = torch.tensor([[0.0, 0.0], [2.0, 2.0]], dtype=torch.float64)
OPTIONS = {"num_restarts": 6, "raw_samples": 128, "options": {"seed": 0, "maxiter": 100}}
CONFIDENCES = {
    "plain": FixedWidth(1.0),
    "self-normalised": SelfNormalized(**BOUND),
    "igp": ImprovedGPUCB(**BOUND, eta=0.01),
    "dmm": MartingaleMixture(0.2, 8.0, 0.1, kind="dmm"),
}


def best_of_a_grid(acqf, device) -> float:
    axis = torch.linspace(0, 2, 40, dtype=torch.float64, device=device)
    return float(acqf(torch.cartesian_prod(axis, axis).unsqueeze(1)).max())


@pytest.mark.parametrize("confidence", CONFIDENCES.values(), ids=CONFIDENCES)
@pytest.mark.parametrize("kind", ["exact", "sketched"])
def test_optimize_acqf_finds_the_maximum_of_a_draw(device, kind, confidence):
    acqf = InflatedThompsonSampling(model(device, kind), confidence, seed=3)
    x, value = optimize_acqf(acqf, BOX.to(device), q=1, **OPTIONS)
    close(acqf(x), value.reshape(1))
    assert value > best_of_a_grid(acqf, device) - 1e-3


@pytest.mark.parametrize("kind", ["exact", "sketched"])
def test_every_point_of_a_batch_maximises_a_draw_of_its_own(device, kind):
    built, confidence = model(device, kind), FixedWidth(2.0)
    acqf = InflatedThompsonSampling(built, confidence, seed=3)
    single = [InflatedThompsonSampling(built, confidence, 3, None, batches(device, j)) for j in range(2)]
    X = batches(device, 5, 2)
    close(acqf(X), (single[0](X[:, :1]) + single[1](X[:, 1:])) / 2, 1e-12)
    best = sum(best_of_a_grid(rule, device) for rule in single) / 2
    greedy, _ = optimize_acqf(acqf, BOX.to(device), q=2, sequential=True, **OPTIONS)
    assert acqf.X_pending is None
    assert acqf(greedy) > best - 1e-3
    assert torch.pdist(greedy) > 0.01
    start = {"batch_initial_conditions": greedy.unsqueeze(0), "num_restarts": 1}
    joint, value = optimize_acqf(acqf, BOX.to(device), q=2, **start)
    free, other = optimize_acqf(acqf, BOX.to(device), q=2, **OPTIONS)
    assert joint.shape == free.shape == (2, 2)
    assert value >= acqf(greedy) - 1e-9
    assert min(value, other) > acqf(batches(device, 100, 2)).max()


OWN, OTHER = FixedWidth(2.0), ImprovedGPUCB(**BOUND, eta=0.5)
"""At the ridge of the state, and at another one."""


@pytest.mark.parametrize(
    ("kind", "transformed", "confidence"),
    [("exact", True, OWN), ("exact", False, OTHER), ("sketched", False, OWN), ("sketched", True, OTHER)],
)
def test_values_of_many_seeds_have_the_law_of_the_posterior(device, kind, transformed, confidence):
    built, X = model(device, kind, transformed), batches(device, 4, 1)
    drawn = torch.stack([InflatedThompsonSampling(built, confidence, seed)(X) for seed in range(PATHS)])
    Z, state = built.transform_inputs(X).squeeze(-2), built.state
    ridge, width = confidence.ridge(state), confidence.width(state)
    mean, covariance = state.predict(Z, ridge)[0], state.covariance(Z, Z, ridge)
    assert fits(drawn, mean, width**2 * covariance)
    assert refuted(drawn, mean, 1.5 * width**2 * covariance)
    if ridge != state.ridge:
        assert refuted(drawn, mean, width**2 * state.covariance(Z, Z))


@pytest.mark.parametrize("kind", ["exact", "sketched"])
def test_values_are_fixed_by_the_seed_and_do_not_depend_on_other_rows(device, kind):
    built, X = model(device, kind), batches(device, 3, 4, 3)
    torch.manual_seed(1)
    global_state = torch.get_rng_state()
    acqf, other = (InflatedThompsonSampling(built, SelfNormalized(**BOUND), seed) for seed in (3, 4))
    first = other(X[..., :1, :])  # in another order: slots are drawn one after the other
    values = acqf(X)
    assert torch.equal(torch.get_rng_state(), global_state)
    assert values.shape == (3, 4)
    assert torch.equal(acqf(X), values)
    assert torch.equal(InflatedThompsonSampling(built, SelfNormalized(**BOUND), 3)(X), values)
    assert not torch.equal(acqf(X[..., :1, :]), first)
    close(acqf(X[1]), values[1], 1e-10)
    close(acqf(X[1, 2]), values[1, 2:3], 1e-10)


@pytest.mark.parametrize("confidence", CONFIDENCES.values(), ids=CONFIDENCES)
@pytest.mark.parametrize("kind", ["exact", "sketched"])
def test_values_are_differentiable(device, kind, confidence):
    acqf = InflatedThompsonSampling(model(device, kind), confidence, 3, minus(device))
    assert gradcheck(acqf, batches(device, 2, 2).requires_grad_())


def test_weight_minus_one_minimises_the_same_draw(device):
    built, X = model(device, "exact"), batches(device, 5, 1)
    maximised = InflatedThompsonSampling(built, FixedWidth(2.0), 3)(X)
    close(InflatedThompsonSampling(built, FixedWidth(2.0), 3, minus(device))(X), -maximised, 1e-12)
    shifted = ScalarizedPosteriorTransform(torch.tensor([2.0], dtype=torch.float64, device=device), offset=3.0)
    close(InflatedThompsonSampling(built, FixedWidth(2.0), 3, shifted)(X), 2 * maximised + 3, 1e-12)


# As a sampling strategy


@pytest.mark.parametrize("kind", ["exact", "sketched"])
def test_a_strategy_samples_where_draws_are_largest(device, kind):
    built, X, confidence = model(device, kind), batches(device, 50), SelfNormalized(**BOUND)
    Z = built.transform_inputs(X)
    for transform, sign in ((None, 1), (minus(device), -1)):
        sampling = InflatedPosteriorSampling(built, confidence, 3, transform)
        drawn, again = sampling(X, 7), sampling(X, 7)
        expected = X[(sign * inflated_draws(confidence, built.state, Z, 7, seeded(3))).argmax(-1)]
        assert torch.equal(drawn, expected)
        assert not torch.equal(drawn, again)
        same = InflatedPosteriorSampling(built, confidence, 3, transform)
        assert torch.equal(same(X, 7), drawn)
        assert torch.equal(same(X, 7), again)
        assert sampling(X).shape == (1, 2)


def test_what_is_proved_is_said(device):
    exact, sketched = model(device, "exact", transformed=False), model(device, "sketched", transformed=False)
    for rule in (InflatedThompsonSampling, InflatedPosteriorSampling):
        assert rule(exact, FixedWidth(1.0)).guarantee is None
        assert rule(model(device, "exact"), SelfNormalized(**BOUND)).guarantee is None  # fitted transforms
        assert "probability" in rule(exact, SelfNormalized(**BOUND)).guarantee
        mixture = MartingaleMixture(**BOUND)
        assert rule(sketched, mixture).guarantee == mixture.guarantee


# As a method


def played(confidence, **kwargs) -> Method:
    return Method("ts", matern(1.5), RIDGE, confidence, rule=ThompsonSampling(), **kwargs)


@pytest.mark.parametrize("confidence", [FixedWidth(1.0), MartingaleMixture(**BOUND)], ids=["plain", "cmm"])
@pytest.mark.parametrize("dictionary", [None, FixedDictionary(ANCHORS)], ids=["exact", "sketched"])
def test_a_method_chooses_where_a_draw_is_largest(device, dictionary, confidence):
    (X, y), Z = data(device), unit_square(30, 9).to(device)
    method = played(confidence, dictionary=dictionary)
    state = method.state(Z)
    state.update(X, y)
    expected = inflated_draws(confidence, state, Z, 1, seeded(3)).argmax(-1).tolist()
    assert [method.choose(state, Z, seeded(3))] == expected
    batch = method.choose_batch(state, Z, 40, seeded(3))
    assert batch == inflated_draws(confidence, state, Z, 40, seeded(3)).argmax(-1).tolist()
    assert 1 < len(set(batch)) < 40
    assert state.n == 30
    torch.manual_seed(3)
    assert method.choose_batch(state, Z, 40) == batch  # without a generator, torch's own


def test_ties_go_to_the_first_point(device):
    state = KernelRidge(rbf(), RIDGE)
    Z = unit_square(1, 9).to(device).expand(5, 2)
    assert played(FixedWidth(0.0001)).choose(state, Z[:1], seeded(3)) == 0
    sketched = NystromRidge(rbf(), RIDGE, FixedDictionary(Z[:1]))  # no residual: five equal values
    assert played(FixedWidth(1.0)).choose(sketched, Z, seeded(3)) == 0


def test_an_acquisition_of_a_method_draws_from_the_generator(device):
    method, X = played(SelfNormalized(**BOUND)), batches(device, 5, 1)
    built = method.model(*((part if part.ndim > 1 else part.unsqueeze(-1)) for part in data(device)))
    acqf = method.acquisition(built, seeded(3))
    assert isinstance(acqf, InflatedThompsonSampling)
    assert acqf.confidence is method.confidence
    assert torch.equal(acqf(X), method.acquisition(built, seeded(3))(X))
    assert not torch.equal(acqf(X), method.acquisition(built, seeded(4))(X))
    torch.manual_seed(1)
    first = method.acquisition(built)(X)
    assert not torch.equal(method.acquisition(built)(X), first)
    torch.manual_seed(1)
    assert torch.equal(method.acquisition(built)(X), first)


def test_a_multiplier_spreads_the_draws(device):
    method = played(SelfNormalized(**BOUND)).with_multiplier(0.3)
    assert isinstance(method.rule, ThompsonSampling)
    assert method.confidence.guarantee is None
    assert float(method.confidence.width(method.state())) == pytest.approx(0.3 / math.sqrt(RIDGE))


@pytest.mark.parametrize("sketched", [False, True])
def test_thompson_sampling_has_far_less_regret_than_chance(sketched):
    regret = {}
    for name in ("ts", "random"):
        regret[name] = 0.0
        for seed in range(2):
            problem, same = (
                RKHSBandit("rbf", 0.3, dim=2, norm=3.0, noise_std=0.1, n_arms=40, fixed=True, seed=seed)
                for _ in range(2)
            )
            dictionary = GreedyDictionary(0.01) if sketched else None
            method = (
                Method("ts", problem.kernel, 0.01, FixedWidth(1.0), dictionary, rule=ThompsonSampling())
                if name == "ts"
                else Method("random", problem.kernel, 0.01, None, rule=UniformChoice())
            )
            rows = list(bandit.play(method, problem, 150, seed))
            again = list(bandit.play(method, same, 30, seed))
            assert [row["regret"] for row in rows[:30]] == [row["regret"] for row in again]
            regret[name] += rows[-1]["cumulative"]
    assert regret["ts"] < 0.25 * regret["random"]


# What is refused


@pytest.mark.parametrize("count", [0, -1, 1.5, math.nan])
def test_impossible_numbers_of_draws_are_refused(device, count):
    state, _, Z = fed("exact", device)
    with pytest.raises(InvalidInput, match="count"):
        centred_draws(state, Z, count)
    with pytest.raises(InvalidInput, match="size"):
        played(FixedWidth(1.0)).choose_batch(state, Z, count)


@pytest.mark.parametrize("name", STATES)
def test_points_that_do_not_fit_are_refused(device, name):
    state, _, Z = fed(name, device)
    for wrong in (Z[0], Z[:0], Z.unsqueeze(0), [[0.1, 0.2]]):
        with pytest.raises(InvalidInput, match="X must"):
            centred_draws(state, wrong)
    with pytest.raises(InvalidInput, match="columns"):
        centred_draws(state, Z[:, :1])
    with pytest.raises(InvalidInput, match="columns"):
        draw_path(state, Z[:, :1])
    with pytest.raises(InvalidInput, match="NaN"):
        centred_draws(state, Z * math.nan)


@pytest.mark.parametrize("kernel", [periodic, composite], ids=["periodic", "product"])
def test_kernels_without_random_features_are_refused_by_functions_only(device, kernel):
    (X, y), Z = data(device), unit_square(3000, 9).to(device)
    exact, sketched = KernelRidge(kernel(), RIDGE), NystromRidge(kernel(), RIDGE, FixedDictionary(ANCHORS))
    for state in (exact, sketched):
        state.update(X, y)
        with pytest.raises(InvalidInput, match=r"no random features.*RBFKernel.*finite set"):
            draw_path(state, Z)
        assert centred_draws(state, Z[:20]).shape == (1, 20)
    assert centred_draws(sketched, Z).shape == (1, 3000)
    with pytest.raises(InvalidInput, match="no random features"):
        centred_draws(exact, Z)


def test_imagined_observations_are_drawn_too(device):
    state, formulas, Z = fed("exact", device)
    view = Hypothetical(state, Z[:1])
    S = formulas.covariance(Z, Z, RIDGE)
    expected = S - S[:, :1] @ S[:1] / (S[0, 0] + RIDGE)
    assert fits(centred_draws(view, Z, DRAWS, seeded(3)), 0.0, expected)
    assert fits(paths(view, Z), 0.0, expected)
    frozen = BatchView(state, Z)
    frozen.observe(0)
    after = Hypothetical(state, Z[:1])
    assert fits(centred_draws(frozen, Z, DRAWS, seeded(3)), 0.0, after.covariance(Z, Z))
    assert fits(paths(frozen, Z), 0.0, after.covariance(Z, Z))
    assert centred_draws(view, unit_square(3000, 9).to(device)).shape == (1, 3000)


def test_what_is_no_model_seed_or_transform_is_refused(device):
    built = model(device, "exact")
    for rule in (InflatedThompsonSampling, InflatedPosteriorSampling):
        with pytest.raises(InvalidInput, match="model"):
            rule(torch.nn.Linear(2, 1), FixedWidth(1.0))
        with pytest.raises(InvalidInput, match="seed"):
            rule(built, FixedWidth(1.0), seed=0.5)
        with pytest.raises(InvalidInput, match="posterior_transform"):
            rule(built, FixedWidth(1.0), posterior_transform=lambda posterior: posterior)
    with pytest.raises(InvalidInput, match="has no confidence"):
        played(None)
