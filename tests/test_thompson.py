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
    Function,
    GreedyDictionary,
    Hypothetical,
    KernelRidge,
    LeverageResampling,
    NystromRidge,
    Posterior,
    RidgeSchedule,
)
from tests.dense import Dense, Sketched, close
from tests.laws.states import composite, matern, rbf, seeded, unit_square

RIDGE, DRAWS, PATHS = 0.1, 4000, 200
ANCHORS = unit_square(5, 30)
BOUND = {"noise_std": 0.2, "norm_bound": 4.0, "delta": 0.1}
OF_NORM = SelfNormalized(**BOUND)


def draws(
    state: Posterior,
    X: Tensor,
    count: int = 1,
    generator: torch.Generator | None = None,
    ridge: float | None = None,
) -> Tensor:
    return state.at(ridge).draw(X, count, generator)


def drawn_function(
    state: Posterior,
    like: Tensor,
    generator: torch.Generator | None = None,
    ridge: float | None = None,
) -> Function:
    return state.at(ridge).draw_function(like, generator)


def data(device, n: int = 30) -> tuple[Tensor, Tensor]:
    X = unit_square(n, 1).to(device)
    X[-5:] = X[:5]  # repeats
    return X, torch.sin(5 * X).sum(-1) + 0.3 * torch.randn(
        n, generator=seeded(2), dtype=torch.float64
    ).to(device)


def probability(drawn: Tensor, mean: Tensor | float, covariance: Tensor) -> float:
    """Of a mean, or a covariance (by its likelihood), of draws [count p] as far from ``N(mean, covariance)``."""
    count, p = drawn.shape
    W = torch.linalg.solve_triangular(
        torch.linalg.cholesky(covariance), (drawn - mean).mT, upper=False
    )
    average, S = W.mean(1), W @ W.mT / count
    ratio = count * (S.trace() - torch.linalg.slogdet(S)[1] - p)
    return min(
        chi2.sf(float(count * average @ average), p), chi2.sf(float(ratio), p * (p + 1) // 2)
    )


def fits(drawn: Tensor, mean: Tensor | float, covariance: Tensor) -> bool:
    return probability(drawn, mean, covariance) > 1e-3


def refuted(drawn: Tensor, mean: Tensor | float, covariance: Tensor) -> bool:
    return probability(drawn, mean, covariance) < 1e-6


def documented(formulas: Dense, Z: Tensor, ridge: float) -> Tensor:
    """The covariance of draws over a finite set: on a sketch, the residual is independent from point to point."""
    rest = residual(formulas, Z)
    return formulas.covariance(Z, Z, ridge) - rest + rest.diagonal().diag()


def residual(formulas: Dense, Z: Tensor) -> Tensor:
    if not isinstance(formulas, Sketched):
        return torch.zeros(len(Z), len(Z)).to(Z)
    f = formulas.features(Z)
    return formulas.covariance(Z, Z, 1e12) - f @ f.mT  # at an infinite ridge: the prior


class Grid(RidgeSchedule):
    """A ridge that moves with the number of observations."""

    def __init__(self) -> None:
        self.ridge = 5.0

    def update(self, state: Posterior) -> None:
        self.ridge = 3.0 / state.n  # 0.1 after 30


def sketch() -> NystromRidge:
    return NystromRidge(matern(1.5), RIDGE, FixedDictionary(ANCHORS))


STATES = {
    "exact": lambda Z: KernelRidge(matern(1.5), RIDGE),
    "tracked": lambda Z: FixedPoints(KernelRidge(matern(1.5), RIDGE), Z),
    "moving": lambda Z: FixedPoints(AdaptiveRidge(KernelRidge(matern(1.5), 1.0), Grid()), Z),
    "sketched": lambda Z: sketch(),
    "tracked-sketch": lambda Z: FixedPoints(sketch(), Z),
    "moving-sketch": lambda Z: FixedPoints(AdaptiveRidge(sketch(), Grid()), Z),
}


def fed(name: str, device, n: int = 30) -> tuple[Posterior, Dense, Tensor]:
    """A state with data, the formulas it must follow, and points."""
    (X, y), Z = (
        (data(device, n), unit_square(6, 9).to(device))
        if n
        else ((ANCHORS[:0], ANCHORS[:0, 0]), ANCHORS + 0.1)
    )
    state = STATES[name](Z)
    for x, target in zip(X.split(10), y.split(10), strict=True):
        state.update(x, target)
        state.predict(Z)
    formulas = (
        Sketched(matern(1.5), X, y, ANCHORS.to(X)) if "sketch" in name else Dense(matern(1.5), X, y)
    )
    return state, formulas, Z


# Draws over finite sets


@pytest.mark.parametrize("ridge", [None, 0.8])
@pytest.mark.parametrize("name", STATES)
def test_draws_have_mean_zero_and_the_covariance_of_the_posterior(device, name, ridge):
    state, formulas, Z = fed(name, device)
    assert state.ridge == pytest.approx(RIDGE)
    drawn, expected = (
        draws(state, Z, DRAWS, seeded(3), ridge),
        documented(formulas, Z, ridge or RIDGE),
    )
    assert drawn.shape == (DRAWS, 6)
    assert fits(drawn, 0.0, expected)
    assert refuted(1.1 * drawn, 0.0, expected)
    assert refuted(drawn + 0.1, 0.0, expected)
    if "sketch" in name:
        assert refuted(
            drawn, 0.0, formulas.covariance(Z, Z, ridge or RIDGE)
        )  # the residual is not drawn jointly


@pytest.mark.parametrize("name", ["exact", "tracked", "sketched", "tracked-sketch"])
def test_draws_follow_the_seed_and_samples_add_the_mean(device, name):
    empty, prior, Z = fed(name, device, 0)
    assert fits(draws(empty, Z, DRAWS, seeded(3)), 0.0, documented(prior, Z, RIDGE))
    state, _, Z = fed(name, device)
    global_state = torch.get_rng_state()
    first, path = draws(state, Z, 3, seeded(3)), drawn_function(state, Z, seeded(3))(Z)
    assert torch.equal(first, draws(state, Z, 3, seeded(3)))
    assert torch.equal(path, drawn_function(state, Z, seeded(3))(Z))
    assert not torch.equal(first, draws(state, Z, 3, seeded(4)))
    assert torch.equal(torch.get_rng_state(), global_state)
    (X, y), single = data(device), STATES[name](Z.float())
    single.update(X.float(), y.float())
    assert drawn_function(single, Z.float())(Z.float()).dtype == torch.float32
    assert inflated_draws(OF_NORM, single, Z.float(), 3).dtype == torch.float32
    for draw in (
        lambda: draws(state, Z),
        lambda: drawn_function(state, Z)(Z),
    ):  # without a generator, torch's own
        torch.set_rng_state(global_state)
        first = draw()
        assert not torch.equal(first, draw())
        torch.set_rng_state(global_state)
        assert torch.equal(first, draw())


def test_many_points_are_drawn_without_a_matrix_of_their_size(device, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("a joint covariance was formed")

    monkeypatch.setattr("kbo.regression.posterior.joint_draws", refuse)
    Z, (X, y) = unit_square(20_000, 7).to(device), data(device)
    for state, points in (
        (sketch(), Z),
        (FixedPoints(sketch(), Z), Z),
        (KernelRidge(matern(1.5), RIDGE), Z[:3000]),
    ):
        state.update(X, y)
        drawn = draws(state, points, 1, seeded(3))[0]
        assert drawn.shape == points.shape[:1]
        scaled = drawn / state.predict(points)[1].sqrt()
        assert 0.5 < float(scaled.square().mean()) < 1.7
    with pytest.raises(AssertionError, match="joint covariance"):
        draws(KernelRidge(matern(1.5), RIDGE), Z[:10])


def test_chunks_do_not_change_a_draw(device, monkeypatch):
    (state, _, _), (exact, _, _) = fed("sketched", device), fed("exact", device)
    Z = unit_square(500, 7).to(device)
    whole = draws(state, Z, 2, seeded(3))
    for module in ("sampling", "sketch.nystrom"):
        monkeypatch.setattr(f"kbo.regression.{module}.block_of", lambda on_cpu, device: 35)
    close(draws(state, Z, 2, seeded(3)), whole, 1e-10)
    monkeypatch.setattr("kbo.regression.posterior.MOST_JOINT", 5)
    close(draws(exact, Z, 1, seeded(3))[0], drawn_function(exact, Z, seeded(3))(Z), 1e-10)


def test_the_covariance_of_tracked_points_follows_the_data_and_a_few_ridges_are_remembered(device):
    (X, y), Z = data(device, 80), unit_square(6, 9).to(device)
    state = FixedPoints(KernelRidge(matern(1.5), RIDGE), Z)
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
    return kernel


KERNELS = {
    "sum": lambda: rbf(active_dims=[1]) + matern(2.5),
    "column-scaled-twice": lambda: ScaleKernel(
        ScaleKernel(MaternKernel(nu=0.5, active_dims=[1]))
    ).double(),
    "columns-swapped": lambda: ScaleKernel(swapped()).double(),
}


def paths(state: Posterior, Z: Tensor, ridge: float | None = None) -> Tensor:
    generator = seeded(3)
    return torch.stack([drawn_function(state, Z, generator, ridge)(Z) for _ in range(PATHS)])


@pytest.mark.parametrize(
    ("kernel", "sketched"), [*((kernel, False) for kernel in KERNELS), ("columns-swapped", True)]
)
def test_functions_have_the_joint_covariance_of_the_posterior(device, kernel, sketched):
    (X, y), Z, k = data(device), unit_square(4, 9).to(device), KERNELS[kernel]()
    state = NystromRidge(k, RIDGE, FixedDictionary(ANCHORS)) if sketched else KernelRidge(k, RIDGE)
    formulas = Sketched(k, X, y, ANCHORS.to(X)) if sketched else Dense(k, X, y)
    state.update(X, y)
    drawn, expected = paths(state, Z), formulas.covariance(Z, Z, RIDGE)
    assert fits(drawn, 0.0, expected)
    assert refuted(1.25 * drawn, 0.0, expected)
    assert not sketched or refuted(drawn, 0.0, expected - 0.5 * residual(formulas, Z))


@pytest.mark.parametrize("name", ["exact", "tracked-sketch"])
def test_functions_at_another_ridge_and_before_any_data(device, name):
    state, formulas, Z = fed(name, device)
    drawn = paths(state, Z, 0.8)
    assert fits(drawn, 0.0, formulas.covariance(Z, Z, 0.8))
    assert refuted(drawn, 0.0, formulas.covariance(Z, Z, 0.1))
    empty, prior, Z = fed(name, device, 0)
    assert fits(paths(empty, Z), 0.0, prior.covariance(Z, Z, RIDGE))


@pytest.mark.parametrize("kind", ["exact", "growing", "resampled"])
def test_a_function_stays_when_the_posterior_learns(device, kind):
    (X, y), Z = data(device, 60), unit_square(3, 8).to(device).reshape(1, 3, 2)
    dictionaries = {"growing": GreedyDictionary(0.001), "resampled": LeverageResampling(3.0)}
    state = (
        NystromRidge(rbf(), RIDGE, dictionaries[kind])
        if kind != "exact"
        else KernelRidge(rbf(), RIDGE)
    )
    state.update(X[:20], y[:20])
    path = drawn_function(state, Z, seeded(3))
    before = path(Z)
    assert before.shape == (1, 3)
    close(path(Z[0, 1]), before[0, 1], 1e-10)
    state.update(X[20:], y[20:])
    assert torch.equal(path(Z), before)


def test_kernels_without_random_features_are_refused_by_functions_only(device):
    (X, y), Z = data(device), unit_square(3000, 9).to(device)
    exact, sketched = (
        KernelRidge(composite(), RIDGE),
        NystromRidge(composite(), RIDGE, FixedDictionary(ANCHORS)),
    )
    for state in (exact, sketched):
        state.update(X, y)
        with pytest.raises(InvalidInput, match=r"no random features.*RBFKernel.*finite set"):
            drawn_function(state, Z)
        assert draws(state, Z[:20]).shape == (1, 20)
    assert draws(sketched, Z).shape == (1, 3000)
    with pytest.raises(InvalidInput, match="no random features"):
        draws(exact, Z)


def test_imagined_observations_are_drawn_too(device):
    state, formulas, Z = fed("exact", device)
    S, frozen = formulas.covariance(Z, Z, RIDGE), BatchView(state, Z)
    frozen.observe(0)
    expected = S - S[:, :1] @ S[:1] / (S[0, 0] + RIDGE)
    for view in (Hypothetical(state, Z[:1]), frozen):
        assert fits(draws(view, Z, DRAWS, seeded(3)), 0.0, expected)
    assert fits(paths(view, Z), 0.0, expected)


# Inflation


@pytest.mark.parametrize("name", ["moving", "sketched"])
def test_under_a_width_draws_are_the_mean_plus_width_times_the_deviation(device, name):
    state, _, Z = fed(name, device)
    for confidence in (FixedWidth(2.0), OF_NORM):
        drawn = inflated_draws(confidence, state, Z, 4, seeded(3))
        expected = state.predict(Z)[0] + confidence.width(state).to(Z) * draws(
            state, Z, 4, seeded(3)
        )
        assert torch.equal(drawn, expected)


@pytest.mark.parametrize(("name", "kind"), [("exact", "dmm"), ("tracked-sketch", "cmm")])
def test_draws_fill_any_interval_as_a_standard_deviation(device, name, kind):
    state, formulas, Z = fed(name, device)
    confidence = MartingaleMixture(**BOUND, kind=kind)
    drawn, (lower, upper) = (
        inflated_draws(confidence, state, Z, DRAWS, seeded(3)),
        confidence.interval(state, Z),
    )
    covariance = documented(formulas, Z, RIDGE)
    scale = (upper - lower) / 2 / covariance.diagonal().sqrt()
    assert fits(drawn, (lower + upper) / 2, scale.unsqueeze(-1) * covariance * scale)
    assert refuted(drawn, (lower + upper) / 2, 1.2 * scale.unsqueeze(-1) * covariance * scale)
    assert refuted(drawn, upper, scale.unsqueeze(-1) * covariance * scale)


def test_draws_without_a_finite_bound_are_the_deviation_and_those_of_a_known_value_are_it(device):
    Z = unit_square(6, 9).to(device)
    unknown = AdaptiveRidge(KernelRidge(matern(1.5), 1.0), NoiseBounds(4.0, 0.1))
    drawn = inflated_draws(AdaptiveSelfNormalized(), unknown, Z, 4, seeded(3))
    assert torch.equal(drawn, draws(unknown, Z, 4, seeded(3)))
    known = KernelRidge(LinearKernel().double(), RIDGE)
    assert (
        MartingaleMixture(**BOUND).inflated(known, 0 * Z, torch.zeros(6).to(Z)).tolist()
        == [0.0] * 6
    )


# As an acquisition function


def model(device, kind: str, transformed: bool = True):
    X = 2 * data(device)[0]
    Y = torch.sin(3 * X).sum(-1, keepdim=True) + 0.01 * torch.linspace(0, 1, len(X)).to(
        X
    ).unsqueeze(-1)
    arguments = (
        {"input_transform": Normalize(2), "outcome_transform": Standardize(1)}
        if transformed
        else {}
    )
    if kind == "exact":
        return KernelRidgeGP(X, Y, matern(2.5), 0.05, **arguments)
    return NystromGP(X, Y, matern(2.5), 0.05, FixedDictionary(X[:12].clone()), **arguments)


def minus(device, weight: float = -1.0, offset: float = 0.0) -> ScalarizedPosteriorTransform:
    return ScalarizedPosteriorTransform(
        torch.tensor([weight], dtype=torch.float64, device=device), offset=offset
    )


def batches(device, *shape: int) -> Tensor:
    return 2 * torch.rand(*shape, 2, generator=seeded(6), dtype=torch.float64).to(device)


@pytest.mark.parametrize("kind", ["exact", "sketched"])
def test_every_point_of_a_batch_maximises_a_draw_of_its_own(device, kind):
    built, box = (
        model(device, kind),
        torch.tensor([[0.0, 0.0], [2.0, 2.0]], dtype=torch.float64, device=device),
    )
    acqf, X = InflatedThompsonSampling(built, OF_NORM, seed=3), batches(device, 5, 2)
    single = [
        InflatedThompsonSampling(built, OF_NORM, 3, None, batches(device, j)) for j in range(2)
    ]
    close(acqf(X), (single[0](X[:, :1]) + single[1](X[:, 1:])) / 2, 1e-12)
    options = {"num_restarts": 6, "raw_samples": 128, "options": {"seed": 0, "maxiter": 100}}
    grid = torch.cartesian_prod(
        *[torch.linspace(0, 2, 40, dtype=torch.float64, device=device)] * 2
    ).unsqueeze(1)
    greedy, _ = optimize_acqf(acqf, box, q=2, sequential=True, **options)
    best = sum(float(one(grid).max()) for one in single) / 2
    assert acqf(greedy) > best - 1e-3
    assert torch.pdist(greedy) > 0.01
    joint, value = optimize_acqf(acqf, box, q=2, **options)
    assert joint.shape == (2, 2)
    assert value > acqf(batches(device, 100, 2)).max()


OWN, OTHER = FixedWidth(2.0), ImprovedGPUCB(**BOUND, eta=0.5)
"""At the ridge of the state, and at another one."""


@pytest.mark.parametrize(
    ("kind", "transformed", "confidence"), [("exact", False, OWN), ("sketched", True, OTHER)]
)
def test_values_of_many_seeds_have_the_law_of_the_posterior(device, kind, transformed, confidence):
    built, X = model(device, kind, transformed), batches(device, 4, 1)
    drawn = torch.stack(
        [InflatedThompsonSampling(built, confidence, seed)(X) for seed in range(PATHS)]
    )
    Z, state = built.transform_inputs(X).squeeze(-2), built.state
    ridge, width = confidence.ridge(state), confidence.width(state)
    posterior = state.at(ridge)
    mean, covariance = posterior.predict(Z)[0], posterior.covariance(Z, Z)
    assert fits(drawn, mean, width**2 * covariance)
    assert refuted(drawn, mean, 1.5 * width**2 * covariance)
    if ridge != state.ridge:
        assert refuted(drawn, mean, width**2 * state.at().covariance(Z, Z))


@pytest.mark.parametrize("kind", ["exact", "sketched"])
def test_values_are_fixed_by_the_seed_do_not_depend_on_other_rows_and_are_differentiable(
    device, kind
):
    built, X = model(device, kind), batches(device, 3, 4, 3)
    global_state = torch.get_rng_state()
    acqf, other = (InflatedThompsonSampling(built, OF_NORM, seed) for seed in (3, 4))
    first = other(X[..., :1, :])  # in another order: slots are drawn one after the other
    values = acqf(X)
    assert torch.equal(torch.get_rng_state(), global_state)
    assert values.shape == (3, 4)
    assert torch.equal(acqf(X), values)
    assert torch.equal(InflatedThompsonSampling(built, OF_NORM, 3)(X), values)
    assert not torch.equal(acqf(X[..., :1, :]), first)
    close(acqf(X[1]), values[1], 1e-10)
    close(acqf(X[1, 2]), values[1, 2:3], 1e-10)
    close(
        InflatedThompsonSampling(built, OF_NORM, 3, minus(device, 2.0, 3.0))(X),
        2 * values + 3,
        1e-12,
    )
    for confidence in (
        OF_NORM,
        ImprovedGPUCB(**BOUND, eta=0.01),
        MartingaleMixture(0.2, 8.0, 0.1, kind="dmm"),
    ):
        acqf = InflatedThompsonSampling(built, confidence, 3, minus(device))
        assert gradcheck(acqf, batches(device, 2, 2).requires_grad_())


def test_a_strategy_samples_where_draws_are_largest(device):
    built, X = model(device, "sketched"), batches(device, 50)
    Z = built.transform_inputs(X)
    for transform, sign in ((None, 1), (minus(device), -1)):
        sampling, same = (InflatedPosteriorSampling(built, OF_NORM, 3, transform) for _ in range(2))
        drawn, again = sampling(X, 7), sampling(X, 7)
        assert torch.equal(
            drawn, X[(sign * inflated_draws(OF_NORM, built.state, Z, 7, seeded(3))).argmax(-1)]
        )
        assert not torch.equal(drawn, again)
        assert torch.equal(same(X, 7), drawn)
        assert torch.equal(same(X, 7), again)
        assert sampling(X).shape == (1, 2)


def test_what_is_proved_is_said(device):
    exact, sketched = (
        model(device, "exact", transformed=False),
        model(device, "sketched", transformed=False),
    )
    mixture = MartingaleMixture(**BOUND)
    for rule in (InflatedThompsonSampling, InflatedPosteriorSampling):
        assert rule(exact, FixedWidth(1.0)).guarantee is None
        assert rule(model(device, "exact"), OF_NORM).guarantee is None  # fitted transforms
        assert "probability" in rule(exact, OF_NORM).guarantee
        assert rule(sketched, mixture).guarantee == mixture.guarantee


# As a method


def played(confidence, dictionary=None) -> Method:
    exact = partial(KernelRidge, matern(1.5), RIDGE)
    sketch = partial(NystromRidge, matern(1.5), RIDGE, dictionary)
    return Method(exact if dictionary is None else sketch, confidence, ThompsonSampling())


@pytest.mark.parametrize(
    ("dictionary", "confidence"),
    [(None, FixedWidth(1.0)), (FixedDictionary(ANCHORS), MartingaleMixture(**BOUND))],
    ids=["exact", "sketched"],
)
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
    same = Z[:1].expand(5, 2)  # no residual: five equal values, and the first is taken
    assert method.choose(NystromRidge(rbf(), RIDGE, FixedDictionary(Z[:1])), same, seeded(3)) == 0


def test_a_multiplier_keeps_the_rule():
    spread = played(OF_NORM).with_multiplier(0.3)
    assert isinstance(spread.rule, ThompsonSampling)
    assert spread.confidence.guarantee is None
    assert float(spread.confidence.width(spread.state())) == pytest.approx(0.3 / math.sqrt(RIDGE))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_drawn_functions_do_not_depend_on_the_default_dtype(dtype):
    state, X = KernelRidge(rbf(), 0.1), unit_square(5, 1)
    expected = state.draw_prior(X, seeded(0))(X)
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        assert torch.equal(state.draw_prior(X, seeded(0))(X), expected)
    finally:
        torch.set_default_dtype(before)
