"""Online noise bounds and states whose ridge follows them: every number against the dense recursion, then the laws."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass

import pytest
import torch
from gpytorch.kernels import LinearKernel, RBFKernel
from torch import Tensor

from experiments.problems import stationary_kernel
from kbo import AdaptiveRidge, KernelRidge, bandit
from kbo.acquisition import KernelUCB
from kbo.confidence import (
    AdaptiveMixture,
    AdaptiveSelfNormalized,
    NoiseBounds,
    NoiseLevel,
    SelfNormalized,
    energy,
)
from kbo.confidence.noise_residuals import RegressionFit, at_least
from kbo.errors import InvalidInput, RefutedAssumptions
from kbo.models import AdaptiveRidgeGP
from kbo.regression import Error, FixedDictionary, NystromRidge, View
from kbo.regression.sketch.error import rounding
from tests import dense, dense_noise
from tests.dense import Dense, Sketched, gram
from tests.dense_noise import noise_bounds
from tests.laws.states import normal, seeded

OPEN = ["tight+grid", "mixture"]
"""The variants that do without an upper bound."""

VARIANTS = ["paper", "tight", *OPEN]
DELTA = 0.3
EPS = torch.finfo(torch.float64).eps
Z = torch.linspace(-0.2, 1.2, 7, dtype=torch.float64).unsqueeze(-1)
KERNEL = stationary_kernel("rbf", 0.3)


@dataclass(frozen=True)
class Case:
    """Data and what is known of them.

    ``arms``: the points are drawn from so many; 0 for ever new ones. ``anchors``: points of a fixed dictionary, 0 for
    an exact posterior.
    """

    C: float = 1.0
    upper: float | None = 1.0
    lower: float = 0.0
    noise_std: float = 0.1
    arms: int = 3
    largest_ridge: float | None = None
    anchors: int = 0
    weighted: bool = False
    rounds: int = 40

    def data(self, T: int) -> tuple[Tensor, Tensor, Tensor]:
        """Points [T 1] in [0, 1], targets [T] and weights [T]."""
        X = torch.rand(1000, 1, generator=seeded(0), dtype=torch.float64)[:T]
        if self.arms:
            X = (X * self.arms).floor() / self.arms
        f = 0.8 * self.C * gram(KERNEL, X, X.new_full((1, 1), 0.4))[:, 0]
        weights = 0.2 + torch.rand(1000, generator=seeded(4)).double()[:T]
        if not self.weighted:
            weights = torch.ones_like(weights)
        return X, f + self.noise_std * normal(1000, 1)[:T], weights

    def bounds(self, variant: str) -> NoiseLevel:
        return noise_bounds(variant, self.C, DELTA, self.upper, self.lower, self.largest_ridge)

    def points(self) -> Tensor:
        return torch.linspace(0, 1, self.anchors, dtype=torch.float64).unsqueeze(-1)

    def state(self, variant: str) -> AdaptiveRidge:
        bounds = self.bounds(variant)
        state = KernelRidge(KERNEL, bounds.ridge)
        if self.anchors:
            state = NystromRidge(KERNEL, bounds.ridge, FixedDictionary(self.points()))
        return AdaptiveRidge(state, bounds)

    def fed(self, variant: str, T: int) -> AdaptiveRidge:
        state = self.state(variant)
        state.update(*self.data(T))
        return state

    def formulas(self, T: int) -> Dense:
        X, y, weights = self.data(T)
        if self.anchors and T:
            return Sketched(KERNEL, X, y, self.points())
        return Dense(KERNEL, X, y, weights)


CASES = {
    "one-arm": Case(arms=1, C=0.3, noise_std=0.05, lower=0.04, rounds=180),
    "three-arms": Case(),
    "weighted": Case(weighted=True, arms=0, lower=0.01),
    "no-upper": Case(upper=None, arms=2, noise_std=0.3, largest_ridge=7.0, C=3.0),
    "sketch": Case(arms=0, anchors=4),
    "coarse-sketch": Case(arms=0, anchors=2),
}


def bound_of(variant: str):
    return AdaptiveMixture("dmm") if variant == "mixture" else AdaptiveSelfNormalized()


def one_by_one(case: Case, variant: str, T: int):
    """The state after 0 .. T observations, and the steps of the dense recursion of whitened data."""
    X, y, weights = case.data(T)
    states = [case.state(variant)]
    for x, target, weight in zip(X.split(1), y.split(1), weights.split(1), strict=True):
        states.append(states[-1].fork())
        states[-1].update(x, target, weight)
    sketch = None
    errors = None
    if case.anchors:
        # What kbo says of its error is at least the truth, which other tests check, and its bounds pay for it.
        sketch = [case.formulas(t).K.numpy() for t in range(T + 1)]
        errors = []
        for state in states:
            rows = state.state.sketch.rows
            lost = rounding(rows.m, rows.prior, rows.spread)
            residuals = rows.counts * (rows.residual + lost)
            errors.append((state.error.norm(), residuals.numpy()))
    root = weights.sqrt()
    K = (root.outer(root) * gram(KERNEL, X, X)).numpy()
    known = case.upper, case.lower, variant, case.largest_ridge, sketch, errors
    steps = dense_noise.recursion(K, (root * y).numpy(), case.C, DELTA / 3, *known)
    return zip(states, steps, strict=True)


@pytest.mark.parametrize(
    ("name", "variant"),
    [
        pytest.param("one-arm", "paper", marks=pytest.mark.thorough),
        ("one-arm", "tight"),
        ("three-arms", "tight+grid"),
        ("three-arms", "mixture"),
        ("weighted", "tight"),
        ("weighted", "mixture"),
        ("no-upper", "tight+grid"),
        ("no-upper", "mixture+strict"),
        *(("sketch", variant) for variant in VARIANTS),
        ("coarse-sketch", "tight"),
        ("coarse-sketch", "tight+grid"),
    ],
)
def test_every_step_is_that_of_the_dense_recursion(name, variant):
    """To factorise ``K + ridge`` in float64, however well, is to do it with an error of some eps times its norm.

    That moves ``ridge (K + ridge)^-1 y`` by some ``eps |K| / ridge`` of itself, and ``|K| <= Tr K``.
    """
    case = CASES[name]
    y = case.data(case.rounds)[1]
    allowed = 0.0
    levels = set()
    rounds = case.rounds
    if "mixture" in variant and not case.anchors:
        rounds = 25
    for state, step in one_by_one(case, variant, rounds):
        b = state.schedule
        t = max(step.t, 1)
        energy = float(y[: step.t].square().sum()) if case.anchors else 0.0
        # The lower bound is a difference: of quad and ridge C^2, or of residuals and what the norm explains. Residuals
        # of a sketch, which keeps sums only, are differences of energies.
        size = step.sh + case.C * math.sqrt(step.ridge / t) + math.sqrt(energy / t)
        if "mixture" in variant:
            size = max(size, (step.rss + step.ridge * case.C**2) / t / max(step.lower, 1e-300))
        compared = [
            (b.upper, step.upper, step.upper),
            (b.lower, step.lower, max(size, step.lower)),
            (state.ridge, step.ridge, step.ridge),
            (float(state.at().rss()), step.rss, energy or step.rss),
            (float(state.at().log_det()), 2 * step.gamma, 2 * step.gamma),
        ]
        if "mixture" not in variant and not b.refuted:
            radius = step.radius + case.C * math.sqrt(float(state.error.norm()))
            width = radius / math.sqrt(step.ridge)
            compared.append((b.deviation(state), step.D, step.D))
            compared.append((float(AdaptiveSelfNormalized().width(state)), width, width))
        least_ridge = min(state.ridge, b.least_ridge_used) or 1
        allowed = max(allowed, 1e-9 + 5 * EPS * float(state.trace) / least_ridge)
        for found, expected, unit in compared:
            assert found == expected or abs(found - expected) <= allowed * unit, step
        levels.add((step.upper, step.lower))
    assert len(levels) >= 15 or name != "one-arm"  # it is not idle
    if "mixture" not in variant and math.isfinite(step.upper):
        width = AdaptiveSelfNormalized().width(state)
        expected = dense.symmetric(case.formulas(step.t), Z, step.ridge, width)
        found = AdaptiveSelfNormalized().interval(state, Z)
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("name", "kind"), [("three-arms", "amm"), ("sketch", "dmm")])
@pytest.mark.parametrize("T", [0, 40])
def test_adaptive_mixtures_are_mixtures_at_the_upper_bound(name, kind, T):
    case = CASES[name]
    state = case.fed("mixture", T)
    confidence = AdaptiveMixture(kind)
    upper = state.schedule.upper
    scales = [upper**2 * 4.0**j for j in range(12)]
    numbers = upper, case.C, DELTA / 3, scales, float(state.error.norm())
    multiples = (1.0,) if kind == "amm" else (0.1, 0.3, 1.0, 3.0, 10.0)
    grid = [multiple * state.ridge for multiple in multiples]
    expected = dense.mixture(case.formulas(T), Z[::3], grid, *numbers)
    found = confidence.interval(state, Z[::3])
    # Bounds are widened by their rounding.
    tol = 1e-6 + 10 * state.error.rounding.at(confidence.least_ridge_on(state))
    torch.testing.assert_close(found, expected, rtol=tol, atol=tol)


def test_a_refutation_names_the_least_norm_of_the_averaged_mixture():
    """The one ridge that the data chose would give a larger norm, without paying for the choice."""
    case = Case(C=0.5, arms=0, upper=0.3)
    X, y, _ = case.data(60)
    state = case.state("mixture")
    state.update(X, 2 * y)
    level = state.schedule.upper
    with pytest.raises(RefutedAssumptions) as refusal:
        AdaptiveMixture("cmm").interval(state, Z)
    ridges = state.schedule.mixture_ridges
    formulas = Dense(KERNEL, X, 2 * y)
    scales = [level**2 / ridge for ridge in ridges]
    grid = torch.logspace(-1, 3, 401, dtype=torch.float64).tolist()
    expected = dense.norm_lower_bound(formulas, grid, level, DELTA / 3, scales)
    assert refusal.value.figures["norm_at_least"] == pytest.approx(float(expected), rel=1e-4)


def test_theorem_2_is_theorem_1_with_the_log_determinant_of_the_least_ridge():
    X, y, _ = Case().data(30)
    state = KernelRidge(KERNEL, 0.04)
    state.update(X, y)
    log_det = float(Dense(KERNEL, X, y).log_det(0.01))
    width = SelfNormalized(0.2, 3.0, 0.05, least_ridge=0.01).width(state)
    assert float(width) == pytest.approx(3.0 + (2 * math.log(20) + log_det) ** 0.5)


# What must follow


@pytest.mark.parametrize("delta", [0.1, 1e-6])
@pytest.mark.parametrize("strict", [True, False])
def test_the_energy_of_a_class_of_noise_is_bounded_by_averages(strict, delta):
    for t in (1, 20, 300, 10_000):
        least, most = energy.averaged(t, delta, strict)
        assert (least, most) == pytest.approx(dense_noise.averaged(t, delta, strict), rel=1e-9)
        assert energy.averaged(t, delta, True)[0] <= least < t < most
        if t > 20:
            lower, upper = energy.stitched(t, delta)
            assert lower < least < most < upper


def answers(state: AdaptiveRidge) -> list[float]:
    b = state.schedule
    return [b.n, b.upper, b.lower, b.ridge, state.ridge, *state.predict(Z)[0].tolist()]


@pytest.mark.parametrize("variant", VARIANTS)
def test_in_blocks_in_forks_restored_by_hand_or_on_a_full_sketch_the_bounds_are_the_same(variant):
    case = Case(arms=2, lower=0.04)
    X, y, _ = case.data(60)
    whole = answers(case.fed(variant, 60))
    bounds = case.bounds(variant)
    first = case.fed(variant, 25)
    before = answers(first)
    sketch = AdaptiveRidge(NystromRidge(KERNEL, 1.0, FixedDictionary(X.unique(dim=0))), bounds)
    sketch.update(X[:25], y[:25])
    assert (bounds.n, bounds.upper, bounds.lower) == (0, 1.0, 0.04)  # a state works on a copy
    for state in (first.fork(), copy.deepcopy(first), sketch):
        tol = 1e-4 if state is sketch else 1e-9
        assert answers(state) == pytest.approx(before, rel=tol)
        for x, target in zip(X[25:].split([1, 0, 34]), y[25:].split([1, 0, 34]), strict=True):
            state.update(x, target)
        assert answers(state) == pytest.approx(whole, rel=tol)
    assert answers(first) == before
    plain = KernelRidge(KERNEL, 1.0)
    for x, target in zip(X.split(1), y.split(1), strict=True):
        plain.update(x, target)
        bounds.update(plain)
        bounds.update(plain)  # nothing new
    assert [bounds.upper, bounds.lower, bounds.ridge] == pytest.approx(whole[1:4], rel=1e-9)


@pytest.mark.parametrize("variant", VARIANTS)
def test_functions_of_the_promised_norm_are_never_taken_for_noise(variant):
    """Without any noise no function of norm at most C may give a positive lower bound: a fact, not a probability."""
    X = torch.rand(12, 1, generator=seeded(0)).double().repeat_interleave(2, 0)
    values, vectors = torch.linalg.eigh(gram(KERNEL, X, X))
    for anchors in (0, 3):
        for i in (-1, -6):
            f = values[i].sqrt() * vectors[:, i]  # norm 1, and the fit shrinks it all alike
            for upper in (float(values[i].sqrt()), 3.0):
                state = Case(anchors=anchors, upper=upper).state(variant)
                state.update(X, f)
                assert state.schedule.lower <= 1e-6


class Rounded(View):
    """A posterior whose quadratic forms are known to rounding only."""

    @property
    def error(self) -> Error:
        error = Error(self.state)
        error.of_quad = 0.05
        return error


@pytest.mark.parametrize("variant", VARIANTS)
def test_rounding_widens_noise_bounds_on_both_sides(variant):
    case = Case(arms=1, C=0.1, noise_std=0.05, upper=0.5, lower=0.001)
    plain = case.bounds(variant)
    rounded = case.bounds(variant)
    state = KernelRidge(KERNEL, plain.ridge)
    state.update(*case.data(120))
    plain.update(state)
    rounded.update(Rounded(state))
    assert rounded.lower < plain.lower
    assert rounded.upper > plain.upper or plain.upper == 0.5


@pytest.mark.parametrize(("eigenvalue", "error"), [(0.8, 0.0), (0.4, 0.2), (0.0, 0.5)])
def test_some_function_of_the_promised_norm_explains_all_residuals_exactly(eigenvalue, error):
    """One value of the sketched kernel ``eigenvalue`` and the exact one ``eigenvalue + error``, without noise."""
    ridge, norm = 0.8, 3.0
    value = norm * math.sqrt(eigenvalue + error)
    residual = ridge / (eigenvalue + ridge) * value
    fit = RegressionFit(1, residual**2, ridge, norm, error, most=4.0)
    assert at_least(fit) == pytest.approx(0, abs=1e-12)


def test_the_cross_term_counts_what_a_sketch_misses():
    for error in (0.0, 1e-3, 0.2):
        fit = RegressionFit(t=50, rss=2.0, ridge=0.1, norm_bound=3.0, error=error, most=80.0)
        expected = 3 * math.sqrt(0.1 * 7.0 + dense_noise.missed(0.1, 7.0, error, 80.0))
        assert fit.cross(7.0) == pytest.approx(expected)


def test_ridges_of_a_mixture_that_rounding_does_not_allow_keep_their_share_of_delta():
    case = Case(arms=0, largest_ridge=1e-8)
    bounds = case.bounds("mixture")
    assert bounds.mixture_delta == pytest.approx(bounds.event_delta)
    state = KernelRidge(KERNEL, bounds.ridge)
    state.update(*case.data(5))
    bounds.update(state)
    kept = len(bounds.mixture_ridges)
    assert 1 < kept < 12
    assert bounds.mixture_delta == pytest.approx(bounds.event_delta * kept / 12)


@pytest.mark.parametrize("variant", ["paper", "tight"])
@pytest.mark.filterwarnings("ignore::kbo.errors.IllConditionedWarning")
def test_a_floor_that_follows_the_data_never_makes_an_upper_bound_false(variant):
    """A kernel whose diagonal grows: the point far away makes the precision coarser, not the deviation smaller."""
    X = 1 + torch.rand(701, 1, generator=seeded(0), dtype=torch.float64)
    X[-1] = 3e5
    kernel = (LinearKernel() * RBFKernel()).double()
    kernel.kernels[0].variance = 1.0
    kernel.kernels[1].lengthscale = 1e-4
    bounds = noise_bounds(variant, 1e5, 0.1, 1.0)
    state = KernelRidge(kernel, bounds.ridge)
    state.update(X, normal(701, 1))
    bounds.update(state)
    assert bounds.upper >= 1.0


# Confidences and messages


@pytest.mark.parametrize("variant", OPEN)
def test_without_an_upper_bound_intervals_are_infinite_and_points_are_ranked_by_their_deviation(
    variant,
):
    case = Case(upper=None)
    X, y, _ = case.data(3)
    state = case.fed(variant, 3)
    bound = bound_of(variant)
    std = state.predict(Z)[1].sqrt()
    assert torch.stack(bound.interval(state, Z)).isinf().all()
    assert bound.argmax_upper(state, Z) == (int(std.argmax()), math.inf)
    model = AdaptiveRidgeGP(X, y.unsqueeze(-1), KERNEL, case.bounds(variant))
    torch.testing.assert_close(KernelUCB(model, bound)(Z.unsqueeze(-2)), std)


@pytest.mark.parametrize("variant", VARIANTS)
def test_contradictory_bounds_are_flagged_and_never_swapped(variant):
    X, y, _ = Case(C=30.0, arms=0).data(60)
    state = Case(C=0.05, upper=0.1).state(variant)
    refuted = []
    for x, target in zip(X.split(1), y.split(1), strict=True):
        state.update(x, target)
        refuted.append(state.schedule.refuted)
    assert refuted[-1]
    assert refuted == sorted(refuted), "what is refuted stays refuted"
    least = state.schedule.lower
    most = state.schedule.upper
    assert least > 0.1 >= most
    confidence = bound_of(variant)
    assert confidence.guarantee_on(state) is None
    figures = {"noise_at_least": least, "noise_at_most": most, "norm_bound": 0.05, "n": 60}
    for ask in (confidence.interval, confidence.argmax_upper):
        with pytest.raises(RefutedAssumptions, match=r"given, 0\.1, is too small") as error:
            ask(state, Z)
        assert error.value.figures == figures


def test_a_guarantee_names_what_was_told_and_the_class_of_noise():
    for variant in (*OPEN, "mixture+strict"):
        words = noise_bounds(variant, 1.0, 0.1, 1.0, 0.05).guarantee
        assert "at least 0.05 and at most 1, which is also its standard deviation" in words
        assert ("mass near zero" in words) == (variant == "mixture")
    assert "an unknown level" in NoiseBounds(5.0, 0.1).guarantee


def used() -> NoiseLevel:
    """Bounds that have seen three observations."""
    return Case().fed("tight", 3).schedule


MISTAKES = {
    "lower = 2 must not be above upper = 1": lambda: NoiseBounds(1.0, 0.1, 1.0, 2.0),
    "kind": lambda: AdaptiveMixture("none"),
    "AdaptiveMixture reads the noise level from the MixtureNoiseBounds that": lambda: (
        AdaptiveMixture().interval(Case().fed("tight+grid", 3), Z)
    ),
    "AdaptiveSelfNormalized reads the noise level from the NoiseBounds that": lambda: (
        AdaptiveSelfNormalized().interval(Case().fed("mixture", 3), Z)
    ),
    "AdaptiveRidge": lambda: AdaptiveSelfNormalized().interval(KernelRidge(KERNEL, 1.0), Z),
    "below least_ridge": lambda: SelfNormalized(1, 3, 0.1, least_ridge=0.05).width(
        KernelRidge(KERNEL, 0.04)
    ),
    "observations already": lambda: AdaptiveRidge(
        Case().fed("tight", 3).state, NoiseBounds(1, 0.1)
    ),
    "has seen 3": lambda: AdaptiveRidge(KernelRidge(KERNEL, 1.0), used()),
    "have seen 3": lambda: AdaptiveRidgeGP(Z, Z, KERNEL, used()),
    "seen 3 observations": lambda: used().update(Case().fed("tight", 2).state),
    "schedule alone": lambda: Case().fed("tight", 3).move_ridge(0.1),
    "no use for ridge": lambda: bandit.make(
        "kernel-ucb-adaptive", KERNEL, 1.0, 5.0, 0.1, ridge=1.0
    ),
}


@pytest.mark.parametrize("says", MISTAKES)
def test_mistakes_are_named(says):
    with pytest.raises(InvalidInput, match=says):
        MISTAKES[says]()
