"""Online noise bounds and states whose ridge follows them: every number against the dense recursion, then the laws.

``python -m tests.test_noise 300`` compares at t = 0 .. 300 over more kernels and ridges and prints what deviates most.
"""

from __future__ import annotations

import copy
import itertools
import math
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from gpytorch.kernels import Kernel, LinearKernel, RBFKernel, ScaleKernel
from torch import Tensor

from experiments.problems import stationary_kernel
from kbo import AdaptiveRidge, KernelRidge, bandit
from kbo._base.linalg import GrowingCholesky
from kbo.acquisition import InflatedThompsonSampling, KernelUCB
from kbo.confidence import (
    AdaptiveMixture,
    AdaptiveSelfNormalized,
    NoiseBounds,
    NoiseLevel,
    SelfNormalized,
    energy,
)
from kbo.confidence.noise.residuals import Fit
from kbo.errors import IllConditionedWarning, InvalidInput, RefutedAssumptions
from kbo.models import AdaptiveRidgeGP
from kbo.regression import Error, FixedDictionary, LeverageResampling, NystromRidge, View
from kbo.regression.sketch.error import rounding
from tests import dense, dense_noise
from tests.dense import Dense, Sketched, gram
from tests.dense_noise import Step, noise_bounds
from tests.laws.states import Whitened, rbf, seeded

VARIANTS = ["paper", "tight", "tight+grid", "mixture"]
OPEN = ["tight+grid", "mixture"]
"""The variants that do without an upper bound."""

DELTA = 0.3
EPS = torch.finfo(torch.float64).eps
Z = torch.linspace(-0.2, 1.2, 7, dtype=torch.float64).unsqueeze(-1)


def diagonal_of_error(sketch):
    """Return the diagonal of E over the rows, times their counts, rounded up."""
    rows = sketch.rows
    lost = rounding(rows.m, rows.prior, rows.spread)
    return (rows.counts * (rows.residual + lost)).numpy()


@dataclass(frozen=True)
class Case:
    """Data and what is known of them.

    ``arms``: the points are drawn from so many; 0 for ever new ones. ``anchors``: points of a fixed dictionary, 0 for
    an exact posterior; ``living``: a dictionary that changes instead.
    """

    kernel: str = "rbf"
    C: float = 1.0
    upper: float | None = 1.0
    lower: float = 0.0
    noise_std: float = 0.1
    arms: int = 3
    largest_ridge: float | None = None
    anchors: int = 0
    living: bool = False
    rounds: int = 40

    def make_kernel(self) -> Kernel:
        return stationary_kernel(self.kernel, 0.3)

    def data(self, T: int) -> tuple[Tensor, Tensor]:
        """Points [T 1] in [0, 1] and targets [T]."""
        X = torch.rand(1000, 1, generator=seeded(0), dtype=torch.float64)[:T]
        X = (X * self.arms).floor() / self.arms if self.arms else X
        noise = self.noise_std * torch.randn(1000, generator=seeded(1), dtype=torch.float64)[:T]
        return X, 0.8 * self.C * gram(self.make_kernel(), X, X.new_full((1, 1), 0.4))[:, 0] + noise

    def bounds(self, variant: str) -> NoiseLevel:
        return noise_bounds(variant, self.C, DELTA, self.upper, self.lower, self.largest_ridge)

    def points(self) -> Tensor:
        return torch.linspace(0, 1, self.anchors, dtype=torch.float64).unsqueeze(-1)

    def state(self, variant: str) -> AdaptiveRidge:
        bounds, kernel = self.bounds(variant), self.make_kernel()
        if not (self.living or self.anchors):
            return AdaptiveRidge(KernelRidge(kernel, bounds.ridge), bounds)
        dictionary = LeverageResampling(2.0) if self.living else FixedDictionary(self.points())
        return AdaptiveRidge(NystromRidge(kernel, bounds.ridge, dictionary), bounds)

    def fed(self, variant: str, T: int) -> AdaptiveRidge:
        state = self.state(variant)
        state.update(*self.data(T))
        return state

    def formulas(self, state: AdaptiveRidge, X: Tensor, y: Tensor) -> Dense:
        if (self.living or self.anchors) and len(y):
            return Sketched(
                self.make_kernel(), X, y, state.state.anchors if self.living else self.points()
            )
        return Dense(self.make_kernel(), X, y)


CASES = {
    "three-arms": Case(),
    "one-arm": Case(arms=1, C=0.3, noise_std=0.05, lower=0.04, rounds=180),
    "own-grid": Case(largest_ridge=7.0, C=3.0),
    "no-upper": Case(upper=None, arms=2, noise_std=0.3, rounds=60),
    "sketch": Case(arms=0, anchors=4),
    "living-sketch": Case("matern32", arms=0, living=True),
}
RUNS = [  # the sandwich needs an upper bound and has no grid
    (name, variant)
    for name, case in CASES.items()
    for variant in VARIANTS
    if variant in OPEN or (case.upper is not None and case.largest_ridge is None)
]


def compared(
    case: Case, variant: str, T: int
) -> Iterator[tuple[AdaptiveRidge, Step, dict[str, float], float]]:
    """A state after 0 .. T observations, the step of the dense recursion, how far each number is off, and may be.

    To factorise ``K + ridge`` in float64, however well, is to factorise it with an error of some eps times its norm.
    That moves ``ridge (K + ridge)^-1 y`` by some ``eps |K| / ridge`` of itself, and ``|K| <= Tr K``.
    """
    (X, y), states, sketch, errors, allowed = case.data(T), [case.state(variant)], None, None, 0.0
    for x, target in zip(X.split(1), y.split(1), strict=True):
        states.append(states[-1].fork())
        states[-1].update(x, target)
    if case.living or case.anchors:
        # What kbo says of its error is at least the truth, which other tests check, and its bounds pay for it.
        errors = [(s.error.norm(), diagonal_of_error(s.state.sketch)) for s in states]
        sketch = [case.formulas(s, X[:t], y[:t]).K.numpy() for t, s in enumerate(states)]
    K, known = (
        gram(case.make_kernel(), X, X).numpy(),
        (case.upper, case.lower, variant, case.largest_ridge),
    )
    steps = dense_noise.recursion(K, y.numpy(), case.C, DELTA / 3, *known, sketch, errors)
    for state, step in zip(states, steps, strict=True):
        b, t, energy = state.schedule, max(step.t, 1), float(y[: step.t].square().sum())
        # The lower bound is a difference: of quad and ridge C^2, or of residuals and what the norm explains. Residuals
        # of a sketch, which keeps sums only, are differences of energies.
        size = (
            step.sh
            + case.C * math.sqrt(step.ridge / t)
            + (math.sqrt(energy / t) if sketch else 0.0)
        )
        if "mixture" in variant:
            size = max(size, (step.rss + step.ridge * case.C**2) / t / max(step.lower, 1e-300))
        off = {
            "upper": (b.upper, step.upper, step.upper),
            "lower": (b.lower, step.lower, max(size, step.lower)),
            "ridge": (state.ridge, step.ridge, step.ridge),
            "rss": (float(state.at().rss()), step.rss, energy if sketch else step.rss),
            "log_det": (float(state.at().log_det()), 2 * step.gamma, 2 * step.gamma),
        }
        if "mixture" not in variant and not b.refuted:
            width = (step.radius + case.C * math.sqrt(float(state.error.norm()))) / math.sqrt(
                step.ridge
            )
            off["D"] = (b.deviation(state), step.D, step.D)
            off["width"] = (float(AdaptiveSelfNormalized().width(state)), width, width)
        allowed = max(
            allowed,
            1e-9 + 5 * EPS * float(state.trace) / (min(state.ridge, b.least_ridge_used) or 1),
        )
        yield (
            state,
            step,
            {k: 0.0 if a == d else abs(a - d) / max(s, 1e-300) for k, (a, d, s) in off.items()},
            allowed,
        )


@pytest.mark.parametrize(("name", "variant"), [*RUNS, ("no-upper", "mixture+strict")])
def test_every_step_is_that_of_the_dense_recursion(name, variant):
    case, seen = CASES[name], set()
    for found in compared(case, variant, case.rounds if variant != "mixture" else 60):
        state, step, off, allowed = found
        assert max(off.values()) <= allowed, (step, off)
        seen.add((step.upper, step.lower))
    assert len(seen) >= 15 or name != "one-arm"  # it is not idle
    if "mixture" not in variant and math.isfinite(step.upper):
        found, width = (
            torch.stack(AdaptiveSelfNormalized().interval(state, Z)),
            AdaptiveSelfNormalized().width(state),
        )
        expected = dense.symmetric(
            case.formulas(state, *case.data(case.rounds)), Z, step.ridge, width
        )
        torch.testing.assert_close(found, torch.stack(expected), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("three-arms", "amm"), ("three-arms", "cmm"), ("sketch", "dmm"), ("no-upper", "dmm")],
)
def test_adaptive_mixtures_are_mixtures_at_the_upper_bound(name, kind):
    case, at = CASES[name], Z[::3]
    for T in (0, 40):
        state, (X, y) = case.fed("mixture", T), case.data(T)
        b, found = state.schedule, torch.stack(AdaptiveMixture(kind).interval(state, at))
        if math.isinf(b.upper):
            assert found.isinf().all()
            continue
        d, scales = case.formulas(state, X, y), [b.upper**2 * 4.0**j for j in range(12)]
        numbers = b.upper, case.C, DELTA / 3, scales, float(state.error.norm())
        grid = (
            [state.ridge]
            if kind == "amm"
            else [g * state.ridge for g in (0.1, 0.3, 1.0, 3.0, 10.0)]
        )
        expected = (
            dense.exact_mixture(d, at, *numbers)
            if kind == "cmm"
            else dense.mixture(d, at, grid, *numbers)
        )
        # The dense cmm is searched for on a grid; bounds are widened by their rounding.
        tol = 1e-6 + 10 * state.error.rounding.at(AdaptiveMixture(kind)._least_ridge(state))
        torch.testing.assert_close(found, torch.stack(expected), rtol=tol, atol=tol)


def test_theorem_2_is_theorem_1_with_the_log_determinant_of_the_least_ridge():
    X, y = Case().data(30)
    state = KernelRidge(rbf(), 0.04)
    state.update(X, y)
    noise = 0.2 * (2 * math.log(20) + float(Dense(rbf(), X, y).log_det(0.01))) ** 0.5
    assert float(SelfNormalized(0.2, 3.0, 0.05, least_ridge=0.01).width(state)) == pytest.approx(
        3.0 + noise / 0.2
    )


# Classes of noise


def three_points(mass: float) -> tuple[np.ndarray, np.ndarray]:
    """Values and probabilities of zero with this mass, else one of two signs; variance 1, kurtosis 1 / (1 - mass)."""
    value = 1 / math.sqrt(1 - mass)
    return np.array([-value, 0.0, value]), np.array([(1 - mass) / 2, mass, (1 - mass) / 2])


GRID = np.linspace(-12, 12, 200_001)
LAWS = {  # values, probabilities, whether it is strictly sub-Gaussian, and with no more mass near zero than a Gaussian
    "gaussian": (
        GRID,
        np.exp(-(GRID**2) / 2) / math.sqrt(2 * math.pi) * (GRID[1] - GRID[0]),
        True,
        True,
    ),
    "rademacher": (*three_points(0.0), True, True),
    "uniform": (math.sqrt(3) / 12 * GRID, np.full(len(GRID), 1 / len(GRID)), True, True),
    "a small ball": (*three_points(0.5), True, False),
    "kurtosis 3": (*three_points(2 / 3), True, False),
    "rare spikes": (*three_points(0.9), False, False),
}


@pytest.mark.parametrize("name", LAWS)
def test_a_class_of_noise_has_the_moments_that_its_bounds_assume(name):
    """One step of every supermartingale of ``energy.py``, with the rates as they are implied by its bounds at t = 1."""
    values, weights, strict, gaussian = LAWS[name]
    assert float(weights @ values**2) == pytest.approx(1, abs=1e-4)
    tilts, rates, high = (
        np.linspace(0.1, 8, 40),
        np.geomspace(1e-3, 2, 30),
        np.geomspace(1e-4, 0.49, 30),
    )

    def mean(rate):
        return float(weights @ np.exp(rate * values**2))

    sub_gaussian = all(
        weights @ np.cosh(u * values) <= (1 + 1e-4) * math.exp(u * u / 2) for u in tilts
    )
    upper = all(mean(h) <= (1 + 1e-4) * (1 - 2 * h) ** -0.5 for h in high)
    low = np.array([mean(-g) for g in rates])
    assert (sub_gaussian and upper) == strict
    assert bool((low <= (1 + 1e-9) * (2 + np.exp(-3 * rates)) / 3).all()) == strict
    assert bool((low <= (1 + 1e-9) * (1 + 2 * rates) ** -0.5).all()) == gaussian
    if name == "kurtosis 3":  # where the bound is attained
        np.testing.assert_allclose(low, (2 + np.exp(-3 * rates)) / 3, rtol=1e-12)


@pytest.mark.parametrize("delta", [0.1, 1e-6])
@pytest.mark.parametrize("strict", [True, False])
def test_the_energy_of_a_class_of_noise_is_bounded_by_averages(strict, delta):
    for t in (1, 20, 300, 10_000):
        least, most = energy.averaged(t, delta, strict)
        assert (least, most) == pytest.approx(dense_noise.averaged(t, delta, strict), rel=1e-9)
        assert (
            energy.averaged(t, delta, True)[0] <= least < t < most
        )  # the strict class is the larger one
        if t > 20:
            assert energy.stitched(t, delta)[0] < least < most < energy.stitched(t, delta)[1]


# What must follow


@pytest.mark.parametrize("variant", VARIANTS)
def test_bounds_follow_the_units_of_targets_and_kernel(variant):
    """Bounds scale with the targets, the ridge with the kernel."""
    (X, y), s, scaled = Case().data(40), 37.0, ScaleKernel(stationary_kernel("rbf", 0.3)).double()
    scaled.outputscale = torch.tensor(s)
    found = []
    for kernel, C, unit, prior in (
        (scaled.base_kernel, 1.0, 1.0, 1.0),
        (scaled.base_kernel, s, s, 1.0),
        (scaled, s**-0.5, 1.0, s),
    ):
        bounds = noise_bounds(
            variant, C, DELTA, unit, 0.01 * unit, prior if variant in OPEN else None
        )
        state = AdaptiveRidge(KernelRidge(kernel, bounds.ridge), bounds)
        state.update(X, unit * y)
        confidence = AdaptiveMixture("dmm") if variant == "mixture" else AdaptiveSelfNormalized()
        b, (low, high) = state.schedule, confidence.interval(state, Z)
        found.append(
            [
                b.upper / unit,
                b.lower / unit,
                b.ridge / prior,
                *(low / unit).tolist(),
                *(high / unit).tolist(),
            ]
        )
    assert found[1:] == [pytest.approx(found[0], rel=1e-6, abs=1e-6)] * 2


def answers(state: AdaptiveRidge) -> list[float]:
    schedule = state.schedule
    return [
        schedule.n,
        schedule.upper,
        schedule.lower,
        schedule.ridge,
        state.ridge,
        *state.predict(Z)[0].tolist(),
    ]


@pytest.mark.parametrize("variant", VARIANTS)
def test_in_blocks_in_forks_restored_by_hand_or_on_a_full_sketch_the_bounds_are_the_same(variant):
    case = Case(arms=2, lower=0.04)
    (X, y), whole = case.data(60), answers(case.fed(variant, 60))
    bounds, kernel, first = case.bounds(variant), case.make_kernel(), case.fed(variant, 25)
    restored, fork, before = copy.deepcopy(first), first.fork(), answers(first)
    sketch = AdaptiveRidge(NystromRidge(kernel, 1.0, FixedDictionary(X.unique(dim=0))), bounds)
    sketch.update(X[:25], y[:25])
    assert (bounds.n, bounds.upper, bounds.lower) == (0, 1.0, 0.04)  # a state works on a copy
    for state in (fork, first, restored, sketch):
        assert answers(state) == pytest.approx(before, rel=1e-4 if state is sketch else 1e-12)
        for x, target in zip(X[25:].split([1, 0, 34]), y[25:].split([1, 0, 34]), strict=True):
            state.update(x, target)
        assert answers(state) == pytest.approx(whole, rel=1e-4 if state is sketch else 1e-9)
    plain = KernelRidge(kernel, 1.0)
    for x, target in zip(X.split(1), y.split(1), strict=True):
        plain.update(x, target)
        bounds.update(plain)
        bounds.update(plain)  # nothing new
    assert [bounds.upper, bounds.lower, bounds.ridge] == pytest.approx(whole[1:4], rel=1e-9)


@pytest.mark.parametrize("variant", VARIANTS)
def test_weights_are_data_that_were_whitened_by_hand(variant):
    """Noise of an unknown common level over known weights."""
    X, weights = (
        Case(arms=0).data(80)[0],
        0.5 + torch.rand(80, generator=seeded(4), dtype=torch.float64),
    )
    y = (
        X[:, 0].sin()
        + 0.1 * torch.randn(80, generator=seeded(5), dtype=torch.float64) / weights.sqrt()
    )
    bounds = noise_bounds(variant, 0.2, 0.1, 1.0, 0.01)
    weighted, whitened = (
        AdaptiveRidge(KernelRidge(kernel, 1.0), bounds) for kernel in (rbf(), Whitened(rbf()))
    )
    weighted.update(X, y, weights)
    whitened.update(torch.cat([X, weights.unsqueeze(-1)], -1), weights.sqrt() * y)
    ours, theirs = (
        (one.schedule.lower, one.schedule.upper, one.ridge) for one in (weighted, whitened)
    )
    assert ours == pytest.approx(theirs, rel=1e-8)
    assert ours[:2] != (0.01, 1.0)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("anchors", [0, 3])
def test_functions_of_the_promised_norm_are_never_taken_for_noise(variant, anchors):
    """Without any noise no function of norm at most C may give a positive lower bound: a fact, not a probability."""
    X, case = (
        torch.rand(12, 1, generator=seeded(0)).double().repeat_interleave(2, 0),
        Case(anchors=anchors),
    )
    values, vectors = torch.linalg.eigh(gram(case.make_kernel(), X, X))
    for i in (-1, -2, -6):
        f = values[i].sqrt() * vectors[:, i]  # norm 1, and the fit shrinks it all alike
        for upper in (0.05, float(values[i].sqrt()), 3.0):
            state = replace(case, upper=upper).state(variant)
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
    plain, rounded = (case.bounds(variant) for _ in range(2))
    state = KernelRidge(case.make_kernel(), plain.ridge)
    state.update(*case.data(120))
    plain.update(state)
    rounded.update(Rounded(state))
    assert rounded.lower < plain.lower
    assert rounded.upper > plain.upper or plain.upper == 0.5


@pytest.mark.parametrize("error", [0.0, 1e-3, 0.2])
def test_the_cross_term_counts_what_a_sketch_misses(error):
    fit, D = Fit(t=50, rss=2.0, ridge=0.1, norm_bound=3.0, error=error, most=80.0), 7.0
    expected = 3 * math.sqrt(0.1 * D + dense_noise.missed(0.1, D, error, 80.0))
    assert fit.cross(D) == pytest.approx(expected)


def test_ridges_of_a_mixture_that_rounding_does_not_allow_keep_their_share_of_delta():
    case = Case(arms=0, largest_ridge=1e-8)
    bounds = case.bounds("mixture")
    assert bounds.mixture_delta == pytest.approx(bounds.event_delta)
    state = KernelRidge(case.make_kernel(), bounds.ridge)
    state.update(*case.data(5))
    bounds.update(state)
    kept = len(bounds.mixture_ridges)
    assert 1 < kept < 12
    assert bounds.mixture_delta == pytest.approx(bounds.event_delta * kept / 12)


@pytest.mark.parametrize("variant", ["paper", "tight"])
def test_a_floor_that_follows_the_data_never_makes_an_upper_bound_false(variant):
    """A kernel whose diagonal grows: the point far away makes the precision coarser, not the deviation smaller."""
    X = torch.cat(
        [
            1 + torch.rand(700, 1, generator=seeded(0), dtype=torch.float64),
            torch.tensor([[3e5]]).double(),
        ]
    )
    kernel = (LinearKernel() * RBFKernel()).double()
    kernel.kernels[0].variance, kernel.kernels[1].lengthscale = 1.0, 1e-4
    bounds = noise_bounds(variant, 1e5, 0.1, 1.0)
    state = KernelRidge(kernel, bounds.ridge)
    state.update(X, torch.randn(701, generator=seeded(1), dtype=torch.float64))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IllConditionedWarning)
        bounds.update(state)
    assert bounds.upper >= 1.0


def test_a_ridge_on_a_grid_costs_few_factorisations(monkeypatch):
    """As many factors as the grid has steps, besides those of repeats."""
    built: list[float] = []
    factor = KernelRidge.factor

    def counted(self: KernelRidge, ridge: float) -> GrowingCholesky:
        if ridge not in self._factors:
            built.append(ridge)
        return factor(self, ridge)

    monkeypatch.setattr(KernelRidge, "factor", counted)
    assert Case(arms=20).fed("tight+grid", 400).schedule.upper < 0.2
    assert 2 < len(set(built)) <= 8


# Confidences, models and messages


@pytest.mark.parametrize("variant", OPEN)
def test_without_an_upper_bound_intervals_are_infinite_and_points_are_ranked_by_their_standard_deviation(
    variant,
):
    case, bound = (
        Case(upper=None),
        AdaptiveMixture("dmm") if variant == "mixture" else AdaptiveSelfNormalized(),
    )
    state, (X, y) = case.fed(variant, 3), case.data(3)
    std = state.predict(Z)[1].sqrt()
    assert torch.stack(bound.interval(state, Z)).isinf().all()
    assert bound.argmax_upper(state, Z) == (int(std.argmax()), math.inf)
    model = AdaptiveRidgeGP(X, y.unsqueeze(-1), case.make_kernel(), case.bounds(variant))
    torch.testing.assert_close(KernelUCB(model, bound)(Z.unsqueeze(-2)), std)


@pytest.mark.parametrize("variant", VARIANTS)
def test_contradictory_bounds_are_flagged_and_never_swapped(variant):
    X, y = Case(C=30.0, arms=0).data(60)
    state, refuted = Case(C=0.05, upper=0.1).state(variant), []
    for x, target in zip(X.split(1), y.split(1), strict=True):
        state.update(x, target)
        refuted.append(state.schedule.refuted)
    assert refuted[-1]
    assert refuted == sorted(refuted), "what is refuted stays refuted"
    least, most = state.schedule.lower, state.schedule.upper
    assert least > 0.1 >= most
    confidence = AdaptiveMixture() if variant == "mixture" else AdaptiveSelfNormalized()
    assert confidence.guarantee_on(state) is None
    for ask in (confidence.interval, confidence.upper, confidence.argmax_upper):
        with pytest.raises(
            RefutedAssumptions, match=r"that was given, 0\.1, is too small"
        ) as error:
            ask(state, Z)
        assert error.value.figures == {
            "noise_at_least": least,
            "noise_at_most": most,
            "norm_bound": 0.05,
            "n": 60,
        }


def test_a_guarantee_names_what_was_told_and_the_class_of_noise():
    for variant in [*VARIANTS, "mixture+strict"]:
        words = noise_bounds(variant, 1.0, 0.1, 1.0, 0.05).guarantee
        assert "at least 0.05 and at most 1, which is also its standard deviation" in words
        assert ("mass near zero" in words) == (variant == "mixture")
    assert "an unknown level" in NoiseBounds(5.0, 0.1).guarantee


@pytest.mark.parametrize("dictionary", [None, FixedDictionary(Z)])
def test_a_conditioned_model_equals_one_built_from_all_data(dictionary):
    (X, y), make = (
        Case().data(60),
        lambda X, Y: AdaptiveRidgeGP(X, Y, rbf(), Case().bounds("mixture"), dictionary),
    )
    whole, grown = (make(X[:n], y[:n].unsqueeze(-1)) for n in (60, 40))
    grown = grown.condition_on_observations(X[40:41], y[40:41, None]).condition_on_observations(
        X[41:], y[41:, None]
    )
    assert repr(grown.state.schedule) == repr(whole.state.schedule)
    torch.testing.assert_close(grown.posterior(Z).mean, whole.posterior(Z).mean)
    torch.testing.assert_close(grown.posterior(Z).variance, whole.posterior(Z).variance)
    fantasies = grown.condition_on_observations(
        torch.rand(4, 1, 1).double(), torch.rand(4, 1, 1).double()
    )
    with pytest.raises(InvalidInput, match="fantasies"):
        InflatedThompsonSampling(fantasies, AdaptiveMixture("dmm"))(Z[:1].unsqueeze(1))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: NoiseBounds(1.0, 0.1, 1.0, 2.0), "lower = 2 must not be above upper = 1"),
        (lambda: noise_bounds("paper", 1.0, 0.1), "need an upper bound"),
        (lambda: noise_bounds("paper", 1.0, 1e-7, 1.0), "delta of at least"),
        (lambda: AdaptiveMixture("none"), "kind"),
        (
            lambda: AdaptiveMixture().interval(Case().fed("tight+grid", 3), Z),
            "AdaptiveMixture needs",
        ),
        (
            lambda: AdaptiveSelfNormalized().interval(Case().fed("mixture", 3), Z),
            "AdaptiveSelfNormalized needs",
        ),
        (lambda: AdaptiveSelfNormalized().interval(KernelRidge(rbf(), 1.0), Z), "AdaptiveRidge"),
        (
            lambda: SelfNormalized(0.2, 3.0, 0.1, least_ridge=0.05).width(KernelRidge(rbf(), 0.04)),
            "below least_ridge",
        ),
        (
            lambda: AdaptiveRidge(Case().fed("tight", 3).state, Case().bounds("tight")),
            "observations already",
        ),
        (
            lambda: AdaptiveRidge(KernelRidge(rbf(), 1.0), Case().fed("tight", 3).schedule),
            "has seen 3",
        ),
        (lambda: AdaptiveRidgeGP(Z, Z, rbf(), Case().fed("tight", 3).schedule), "have seen 3"),
        (
            lambda: Case().fed("tight", 3).schedule.update(Case().fed("tight", 2).state),
            "seen 3 observations",
        ),
        (lambda: Case().fed("tight", 3).move_ridge(0.1), "schedule alone"),
        (
            lambda: bandit.make("kernel-ucb-adaptive", rbf(), 1.0, 5.0, 0.1, ridge=1.0),
            "no use for ridge",
        ),
        (
            lambda: bandit.make("kernel-ucb-adaptive", rbf(), 1.0, 5.0, 0.1, multiplier=1.0),
            "multiplier",
        ),
    ],
)
def test_mistakes_are_named(make, says):
    with pytest.raises(InvalidInput, match=says):
        make()


# python -m tests.test_noise 300


LONG = {
    f"{kernel} {arms or 'new'} C={C:g}": Case(kernel, C, upper, lower, 0.1 * upper, arms)
    for kernel, arms, (C, upper, lower) in itertools.product(
        ("rbf", "matern12", "matern32", "matern52"),
        (0, 1, 7),
        ((0.32, 1.0, 0.0), (5.0, 1.0, 0.01), (1e3, 1.0, 0.001), (1e4, 1.0, 0.0)),
    )
} | {
    f"sketch of {kernel} C={C:g}": Case(kernel, C, anchors=6, arms=0)
    for kernel in ("rbf", "matern32")
    for C in (0.32, 5.0, 1e3)
}
"""Ridges from 10 down to 1e-8."""


def main(T: int) -> None:
    """Print the worst deviations of each case, and how large they are against what float64 can do."""
    warnings.simplefilter("ignore", IllConditionedWarning)
    for (name, case), variant in itertools.product(LONG.items(), VARIANTS):
        worst, share = Counter(), 0.0
        for found in compared(case, variant, T):
            _, step, off, allowed = found
            worst, share = (
                worst | Counter(off),
                max(share, *(gap / allowed for gap in off.values())),
            )
        figures = " ".join(f"{what} {gap:.0e}" for what, gap in worst.items())
        print(
            f"{name:22s} {variant:10s} last ridge {step.ridge:.0e} upper {step.upper:.3g} lower {step.lower:.3g} | "
            f"{figures} | of the allowed: {share:.2g}",
            flush=True,
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 300)
