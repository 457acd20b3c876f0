"""States whose ridge follows the data, and the models and methods built on them."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from botorch.models.transforms import Normalize, Standardize
from botorch.optim import optimize_acqf
from gpytorch.kernels import LinearKernel, MaternKernel, RBFKernel
from torch import Tensor

from kbo import (
    AdaptiveRidge,
    IllConditionedWarning,
    InvalidInput,
    KernelRidge,
    NystromRidge,
    RefutedAssumptions,
    recipes,
)
from kbo.acquisition import InflatedPosteriorSampling, InflatedThompsonSampling, KernelUCB
from kbo.confidence import (
    AdaptiveMixture,
    AdaptiveSelfNormalized,
    ImprovedGPUCB,
    MartingaleMixture,
    NoiseBounds,
    SelfNormalized,
)
from kbo.models import AdaptiveRidgeGP
from kbo.regression import BatchView, FixedDictionary, Hypothetical, View, track
from kbo.regression.exact.one_ridge import Factor
from tests.dense import Dense, close

UPPER = {"paper": 1.0, "tight": 1.0, "tight+grid": 1.0, "mixture": None}


def rbf():
    kernel = RBFKernel().double()
    kernel.lengthscale = 1.0
    return kernel


def data(n: int, device="cpu", noise: float = 0.1, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    X = torch.rand(n, 1, generator=generator, dtype=torch.float64)
    y = torch.sin(2 * X[:, 0]) + noise * torch.randn(n, generator=generator, dtype=torch.float64)
    return X.to(device), y.to(device)


def noise_bounds(variant: str, **kwargs) -> NoiseBounds:
    return NoiseBounds(
        **{"norm_bound": 5.0, "delta": 0.1, "lower": 0.05, "upper": UPPER[variant], "variant": variant, **kwargs}
    )


def confidence(variant: str):
    return AdaptiveMixture("dmm") if variant == "mixture" else AdaptiveSelfNormalized()


@pytest.fixture(params=UPPER)
def variant(request) -> str:
    return request.param


def fed(variant: str, X: Tensor, y: Tensor, base=KernelRidge) -> AdaptiveRidge:
    bounds = noise_bounds(variant)
    state = AdaptiveRidge(base(rbf(), bounds.ridge), bounds)
    state.update(X, y)
    return state


def sketched(kernel, ridge: float) -> NystromRidge:
    return NystromRidge(kernel, ridge, FixedDictionary(torch.linspace(0, 1, 9, dtype=torch.float64).unsqueeze(-1)))


def test_the_ridge_moves_and_answers_are_those_of_the_ridge_of_now(variant, device):
    X, y = data(420, device)
    state = fed(variant, X, y)
    assert state.ridge < noise_bounds(variant).ridge
    assert state.ridge == state.schedule.ridge == state.state.ridge
    Z, formulas = X[:7] + 0.01, Dense(rbf(), X, y)
    close(torch.stack(state.predict(Z)), torch.stack(formulas.predict(Z, state.ridge)))
    close(state.covariance(Z, Z), formulas.covariance(Z, Z, state.ridge))
    for name in ("log_det", "quad", "effective_dimension"):
        close(getattr(state, name)(), getattr(formulas, name)(state.ridge))


def test_the_caller_keeps_a_description(variant):
    bounds = noise_bounds(variant)
    before = repr(bounds)
    AdaptiveRidge(KernelRidge(rbf(), 1.0), bounds).update(*data(50))
    assert repr(bounds) == before


@pytest.mark.parametrize("base", [KernelRidge, sketched])
def test_one_by_one_in_blocks_forked_and_restored_are_the_same(variant, base):
    X, y = data(160)
    whole = fed(variant, X, y, base)
    parts = fed(variant, X[:70], y[:70], base)
    fork = parts.fork()
    restored = AdaptiveRidge(base(rbf(), 1.0), noise_bounds(variant))
    restored.load_state_dict(parts.state_dict())
    for state in (parts, fork, restored):
        state.update(X[70:71], y[70:71])
        state.update(X[71:], y[71:])
        assert repr(state.schedule) == repr(whole.schedule)
        assert (state.schedule.upper, state.schedule.lower, state.ridge) == pytest.approx(
            (whole.schedule.upper, whole.schedule.lower, whole.ridge), rel=1e-9
        )
        close(torch.stack(state.predict(X)), torch.stack(whole.predict(X)))


def test_bounds_that_were_constructed_otherwise_cannot_be_restored(variant):
    saved = fed(variant, *data(20)).state_dict()
    other = noise_bounds(variant, norm_bound=4.0)
    with pytest.raises(InvalidInput, match="construct them equally"):
        AdaptiveRidge(KernelRidge(rbf(), 1.0), other).load_state_dict(saved)


def test_bad_data_change_nothing(variant):
    X, y = data(30)
    state = fed(variant, X, y)
    before = repr(state)
    bad = y[:3].clone()
    bad[2] = math.nan
    with pytest.raises(InvalidInput, match="NaN"):
        state.update(X[:3], bad)
    with pytest.raises(InvalidInput, match="columns"):
        state.update(X[:3].repeat(1, 2), y[:3])
    assert repr(state) == before
    assert state.n == 30


def test_a_ridge_on_a_grid_costs_few_factorisations(monkeypatch):
    """A hundred arms, ten thousand rounds: as many factors as the grid has steps, besides those of repeats."""
    built: list[float] = []
    begin = Factor.__init__
    monkeypatch.setattr(
        Factor, "__init__", lambda self, ridge, data, k: (built.append(ridge), begin(self, ridge, data, k))[1]
    )
    arms = torch.linspace(0, 1, 20, dtype=torch.float64).unsqueeze(-1)
    generator = torch.Generator().manual_seed(0)
    bounds = noise_bounds("tight+grid")
    state = AdaptiveRidge(KernelRidge(rbf(), bounds.ridge), bounds)
    for _ in range(2000):
        x = arms[torch.randint(20, (1,), generator=generator)]
        state.update(x, torch.sin(2 * x[:, 0]) + 0.1 * torch.randn(1, generator=generator, dtype=torch.float64))
    assert len(set(built)) <= 8
    assert state.schedule.upper < 0.12


def test_tracked_points_equal_predictions_while_the_ridge_moves(variant):
    X, y = data(420)
    Z = torch.linspace(0, 1, 15, dtype=torch.float64).unsqueeze(-1)
    bounds = noise_bounds(variant)
    state = track(AdaptiveRidge(KernelRidge(rbf(), bounds.ridge), bounds), Z)
    for start in range(0, 420, 20):
        state.update(X[start : start + 20], y[start : start + 20])
        close(torch.stack(state.predict(Z)), torch.stack(state.state.predict(Z, state.ridge)))
    assert state.ridge < bounds.ridge


def test_imagined_observations_leave_the_noise_bounds_alone(variant):
    X, y = data(200)
    state = fed(variant, X, y)
    views = Hypothetical(state, X[:2] + 0.1), BatchView(state, X[:9].clone())
    views[1].observe(3)
    for view in views:
        assert view.schedule is state.schedule
        assert confidence(variant).guarantee_on(view) is None
        lower, upper = confidence(variant).interval(view, X[:9])
        assert (lower < upper).all()
    assert confidence(variant).guarantee_on(state) is not None


def test_no_theorem_about_a_fixed_ridge_claims_anything_at_a_moving_one():
    state = fed("tight+grid", *data(60))
    numbers = {"noise_std": 0.1, "norm_bound": 5.0, "delta": 0.1}
    assert SelfNormalized(**numbers).guarantee_on(state) is None
    assert SelfNormalized(**numbers, least_ridge=1e-6).guarantee_on(state) is not None
    assert ImprovedGPUCB(**numbers, eta=0.1).guarantee_on(state) is not None  # a ridge of its own
    assert MartingaleMixture(**numbers).guarantee_on(state) is not None


def test_theorem_2_is_theorem_1_with_the_log_determinant_of_the_least_ridge(device):
    X, y = data(30, device)
    state = KernelRidge(rbf(), 0.04)
    state.update(X, y)
    bound, formulas = SelfNormalized(0.2, 3.0, 0.05, least_ridge=0.01), Dense(rbf(), X, y)
    noise = 0.2 * (2 * math.log(20) + formulas.log_det(0.01)) ** 0.5
    close(bound.width(state), 3.0 + noise / 0.2)
    with pytest.raises(InvalidInput, match="below least_ridge"):
        SelfNormalized(0.2, 3.0, 0.05, least_ridge=0.05).width(state)


def test_a_confidence_that_reads_the_noise_says_where_from():
    state = KernelRidge(rbf(), 0.1)
    with pytest.raises(InvalidInput, match="AdaptiveRidge"):
        AdaptiveSelfNormalized().upper(state, torch.zeros(1, 1, dtype=torch.float64))
    with pytest.raises(InvalidInput, match="another event"):
        AdaptiveMixture().upper(fed("tight+grid", *data(5)), torch.zeros(1, 1, dtype=torch.float64))
    with pytest.raises(InvalidInput, match="needs an upper bound"):
        NoiseBounds(5.0, 0.1, variant="paper")
    with pytest.raises(InvalidInput, match="must be one of"):
        NoiseBounds(5.0, 0.1, variant="grid")


def test_without_a_bound_yet_points_are_ranked_by_their_standard_deviation():
    X, y = data(3)
    for variant in ("tight+grid", "mixture"):
        bounds = noise_bounds(variant, upper=None)
        state = AdaptiveRidge(KernelRidge(rbf(), bounds.ridge), bounds)
        state.update(X, y)
        Z, bound = torch.linspace(0, 1, 30, dtype=torch.float64).unsqueeze(-1), confidence(variant)
        assert bound.upper(state, Z).isinf().all()
        assert bound.argmax_upper(state, Z) == (int(state.predict(Z)[1].argmax()), math.inf)
        model = AdaptiveRidgeGP(X, y.unsqueeze(-1), rbf(), bounds)
        close(KernelUCB(model, bound)(Z.unsqueeze(-2)), state.predict(Z)[1].sqrt())


def test_a_floor_that_follows_the_data_never_makes_an_upper_bound_false():
    """A kernel whose diagonal grows: the point far away makes the precision coarser, not the deviation smaller."""
    generator = torch.Generator().manual_seed(0)
    X = 1 + torch.rand(700, 1, generator=generator, dtype=torch.float64)
    X = torch.cat([X, torch.tensor([[3e5]], dtype=torch.float64)])
    y = torch.randn(701, generator=generator, dtype=torch.float64)
    kernel = (LinearKernel() * RBFKernel()).double()
    kernel.kernels[0].variance, kernel.kernels[1].lengthscale = 1.0, 1e-4
    for variant in ("paper", "tight"):
        bounds = NoiseBounds(1e5, 0.1, upper=1.0, variant=variant)
        state = AdaptiveRidge(KernelRidge(kernel, bounds.ridge), bounds)
        state.state.update(X[:650], y[:650])  # what happens on the way does not matter here
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", IllConditionedWarning)
            state.update(X[650:], y[650:])
        assert state.schedule.upper >= 1.0


def test_a_ridge_that_was_moved_by_hand_leaves_no_guarantee():
    state, bound = KernelRidge(rbf(), 0.1), SelfNormalized(0.1, 5.0, 0.1)
    state.move_ridge(0.2)
    state.update(*data(20))
    assert bound.guarantee_on(state) is not None
    state.move_ridge(0.05)
    for one in (state, state.fork(), track(state, data(20)[0])):
        assert bound.guarantee_on(one) is None
    assert SelfNormalized(0.1, 5.0, 0.1, least_ridge=0.01).guarantee_on(state) is not None
    assert SelfNormalized(0.1, 5.0, 0.1, least_ridge=0.06).guarantee_on(state) is None
    with pytest.raises(InvalidInput, match="schedule alone"):
        fed("tight+grid", *data(20)).move_ridge(0.1)


def test_a_guarantee_names_what_was_told_and_none_is_left_once_refuted():
    assert "at least 0.05 and at most 1," in noise_bounds("tight").guarantee
    assert "an unknown level" in NoiseBounds(5.0, 0.1).guarantee
    state = fed("mixture", *data(80))
    assert AdaptiveMixture().guarantee_on(state) == noise_bounds("mixture").guarantee
    state.schedule._lower = 10.0
    assert AdaptiveMixture().guarantee_on(state) is None
    with pytest.raises(RefutedAssumptions):
        AdaptiveMixture().upper(state, data(3)[0])


class Rounded(View):
    """A posterior whose quadratic forms are known to rounding only."""

    rounding = 0.5


def test_rounding_widens_noise_bounds_on_both_sides(variant):
    X, y = data(420)
    state = KernelRidge(rbf(), noise_bounds(variant, upper=1.0).ridge)
    state.update(X, y)
    plain, rounded = (noise_bounds(variant, upper=1.0, lower=0.001) for _ in range(2))
    for _ in range(2):  # the second time at the ridge of the first
        plain.n = rounded.n = 0
        plain.update(state)
        rounded.update(Rounded(state))
    assert rounded.lower < plain.lower
    assert rounded.upper >= plain.upper
    assert (rounded.upper > plain.upper) or plain.upper == 1.0


# Models


def test_a_conditioned_model_equals_one_built_from_all_data(variant):
    X, y = data(120)
    Y, Z = y.unsqueeze(-1), torch.rand(6, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    whole = AdaptiveRidgeGP(X, Y, rbf(), noise_bounds(variant))
    grown = AdaptiveRidgeGP(X[:80], Y[:80], rbf(), noise_bounds(variant))
    grown = grown.condition_on_observations(X[80:81], Y[80:81]).condition_on_observations(X[81:], Y[81:])
    assert repr(grown.state.schedule) == repr(whole.state.schedule)
    close(grown.posterior(Z).mean, whole.posterior(Z).mean)
    close(grown.posterior(Z).variance, whole.posterior(Z).variance)


@pytest.mark.parametrize("q", [1, 2])
def test_a_model_drives_optimize_acqf(variant, q):
    X, y = data(120)
    model = AdaptiveRidgeGP(
        X * 3, y.unsqueeze(-1), rbf(), noise_bounds(variant), input_transform=Normalize(1), dictionary=None
    )
    box = torch.tensor([[0.0], [3.0]], dtype=torch.float64)
    chosen, value = optimize_acqf(KernelUCB(model, confidence(variant)), box, q=q, num_restarts=2, raw_samples=32)
    grid = torch.linspace(0, 3, 400, dtype=torch.float64).reshape(-1, 1, 1)
    assert chosen.shape == (q, 1)
    if q == 1:
        best = KernelUCB(model, confidence(variant))(grid).max()
        assert float(value) >= float(best) - 1e-4 * abs(float(best))


def test_a_sketched_model_follows_its_noise_too():
    X, y = data(300)
    dictionary = FixedDictionary(torch.linspace(0, 3, 6, dtype=torch.float64).unsqueeze(-1))
    model = AdaptiveRidgeGP(
        X * 3,
        y.unsqueeze(-1),
        rbf(),
        noise_bounds("tight+grid"),
        dictionary,
        input_transform=Normalize(1),
        outcome_transform=Standardize(1),
    )
    bounds = model.state.schedule
    assert model.state.state.m == 6
    noise = 0.1 / float(y.std())
    assert bounds.lower < noise < bounds.upper < 3 * noise


def test_states_and_models_refuse_bounds_that_have_seen_data():
    X, y = data(20)
    used = fed("tight+grid", X, y).schedule
    with pytest.raises(InvalidInput, match="has seen 20"):
        AdaptiveRidge(KernelRidge(rbf(), 1.0), used)
    with pytest.raises(InvalidInput, match="have seen 20"):
        AdaptiveRidgeGP(X, y.unsqueeze(-1), rbf(), used)


def test_an_acquisition_refuses_what_is_no_confidence():
    X, y = data(20)
    model = AdaptiveRidgeGP(X, y.unsqueeze(-1), rbf(), noise_bounds("mixture"))
    for rule in (KernelUCB, InflatedThompsonSampling, InflatedPosteriorSampling):
        with pytest.raises(InvalidInput, match=r"confidence must .* got the class AdaptiveMixture: call it"):
            rule(model, AdaptiveMixture)


def test_nothing_is_drawn_from_fantasies():
    X, y = data(20)
    model = AdaptiveRidgeGP(X, y.unsqueeze(-1), rbf(), noise_bounds("tight"))
    fantasies = model.condition_on_observations(torch.rand(4, 1, 1).double(), torch.rand(4, 1, 1).double())
    with pytest.raises(InvalidInput, match="fantasies"):
        InflatedPosteriorSampling(fantasies, AdaptiveSelfNormalized())(X, num_samples=2)
    with pytest.raises(InvalidInput, match="fantasies"):
        InflatedThompsonSampling(fantasies, AdaptiveSelfNormalized())(X.unsqueeze(1))


# Methods


def test_a_method_whose_ridge_moves_refuses_a_ridge_and_a_multiplier():
    numbers = (MaternKernel().double(), 1.0, 5.0, 0.1)
    with pytest.raises(InvalidInput, match="ridge of its own"):
        recipes.make("kernel-ucb-adaptive", *numbers, ridge=1.0)
    with pytest.raises(InvalidInput, match="multiplier"):
        recipes.make("kernel-ucb-adaptive", *numbers, multiplier=1.0)
    with pytest.raises(InvalidInput, match="noise_upper"):
        recipes.make("kernel-ucb-fixed", *numbers)


def test_refuted_assumptions_end_a_run():
    """A norm bound a hundred times too small: what the function leaves unexplained looks like noise."""
    X, y = data(400, noise=0.001)
    state = AdaptiveRidge(KernelRidge(rbf(), 1.0), NoiseBounds(0.02, 0.1, upper=0.01))
    state.update(X, y)
    assert state.schedule.refuted
    assert state.schedule.lower > state.schedule.upper
    with pytest.raises(RefutedAssumptions, match=r"that was given, 0\.01, is too small.*noise_at_least"):
        AdaptiveSelfNormalized().upper(state, X[:1])


def test_a_norm_that_is_too_small_is_refuted_in_terms_of_what_was_given():
    X, y = data(60, noise=0.01)
    state = AdaptiveRidge(KernelRidge(rbf(), 1.0), NoiseBounds(0.1, 0.2, upper=0.02, variant="mixture"))
    state.update(X, y)
    state.schedule._lower = 0.0  # as if the noise bounds had noticed nothing
    with pytest.raises(RefutedAssumptions, match=r"Raise norm_bound, or the upper bound.*delta = 0\.2"):
        AdaptiveMixture("cmm").interval(state, X[:5])
