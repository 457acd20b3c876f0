"""Laws of every confidence bound, and the order of the bounds that the theorems state."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck

from kbo import KernelRidge
from kbo.confidence import (
    BKB,
    EKUCB,
    FixedWidth,
    ImprovedGPUCB,
    MartingaleMixture,
    SelfNormalized,
    norm_lower_bound,
)
from kbo.errors import InvalidInput, RefutedAssumptions
from kbo.regression import (
    BatchedResampling,
    BatchView,
    FixedDictionary,
    FixedPoints,
    GreedyDictionary,
    Hypothetical,
    LeverageResampling,
    NystromRidge,
    OnlineRowSampling,
    Posterior,
)
from tests import dense
from tests.dense import Dense, Sketched, close, gram
from tests.laws.confidences import BOUNDS, LAWS, Bound, Setting
from tests.laws.states import Whitened, normal, unit_square

SETTING = Setting()


def over(bounds: list[Bound]):
    """Return a fixture of each of the bounds."""
    return pytest.fixture(scope="session", params=bounds, ids=lambda bound: bound.name)


@over(BOUNDS)
def printed(request) -> Bound:
    """Every formula, also those that differ from another one in numbers only."""
    return request.param


@over([bound for bound in BOUNDS if not bound.other_numbers])
def bound(request) -> Bound:
    """One for each way to compute a bound."""
    return request.param


def kernel(scale: float = 1.0) -> Kernel:
    kernel = ScaleKernel(MaternKernel(nu=2.5)).double()
    kernel.base_kernel.lengthscale = 0.4
    kernel.outputscale = torch.tensor(scale, dtype=torch.float64)
    return kernel


def function(norm: float, seed: int):
    """A function of known norm in the RKHS of the kernel."""
    centres = unit_square(15, seed)
    weights = normal(15, seed)
    weights *= norm / torch.sqrt(weights @ gram(kernel(), centres, centres) @ weights)
    return lambda X: gram(kernel(), X, centres) @ weights


def noisy_data(n: int, device, seed: int = 0, norm: float = 4.0, noise_std: float = 0.3):
    X = unit_square(n, seed + 50)
    y = function(norm, seed)(X) + noise_std * normal(n, seed + 1)
    return X.to(device), y.to(device)


def fed(X: Tensor, y: Tensor, ridge: float = SETTING.ridge, k: Kernel | None = None) -> KernelRidge:
    state = KernelRidge(k or kernel(), ridge)
    state.update(X, y)
    return state


def sketched(X: Tensor, y: Tensor, points: Tensor, ridge: float = SETTING.ridge) -> NystromRidge:
    state = NystromRidge(kernel(), ridge, FixedDictionary(points))
    state.update(X, y)
    return state


def alike(found, expected, bound: Bound) -> None:
    close(torch.stack(found), torch.stack(expected), max(bound.tol, 1e-8))


# Laws of every bound


@pytest.mark.parametrize("n", [0, 40])
def test_equals_the_dense_formula(printed, device, n):
    X, y = noisy_data(n, device)
    Z = torch.cat([unit_square(2, 1).to(device), X[:1]])
    expected = printed.formula(Dense(kernel(), X, y), Z, SETTING)
    confidence = printed.make(SETTING)
    state = fed(X, y)
    alike(confidence.interval(state, Z), expected, printed)
    alike((confidence.lower(state, Z), confidence.upper(state, Z)), expected, printed)
    assert (expected[0] < expected[1]).all()


def test_equals_the_dense_formula_on_a_sketch(printed, device):
    X, y = noisy_data(40, device)
    points = unit_square(8, 4).to(device)
    Z = torch.cat([unit_square(2, 1).to(device), X[:1]])
    state = sketched(X, y, points)
    reference = Sketched(kernel(), X, y, points)
    reference.error = float(state.error.norm())
    assert float(torch.linalg.matrix_norm(reference.residual, 2)) <= (1 + 1e-12) * reference.error
    setting = replace(SETTING, norm_bound=30.0)
    expected = printed.formula(reference, Z, setting)
    alike(printed.make(setting).interval(state, Z), expected, printed)


def test_weights_are_data_that_were_whitened_by_hand(bound, device):
    """The theorem of docs/theory/observations.md; chaining has a set of its own in units of the points."""
    X, y = noisy_data(40, device)
    Z = unit_square(6, 1).to(device)
    weights = normal(40, 3).exp().to(device)
    weighted = KernelRidge(kernel(), SETTING.ridge)
    weighted.update(X, y, weights)
    rows = torch.cat([X, weights.unsqueeze(-1)], -1)
    whitened = fed(rows, weights.sqrt() * y, k=Whitened(kernel()))
    confidence = bound.make(SETTING)
    if not bound.name.startswith("chaining"):
        expected = confidence.interval(whitened, torch.cat([Z, torch.ones_like(Z[:, :1])], -1))
        alike(confidence.interval(weighted, Z), expected, bound)
    proved = confidence.guarantee_on(weighted)
    plain = confidence.guarantee_on(whitened)
    if bound.name == "third-party" or plain is None:
        assert proved is None
    else:
        assert proved.startswith(plain)
        assert "weight" in proved.removeprefix(plain)


def test_the_lower_bound_mirrors_the_upper_bound(bound, device):
    X, y = noisy_data(40, device)
    Z = unit_square(20, 1).to(device)
    confidence = bound.make(SETTING)
    close(confidence.lower(fed(X, y), Z), -confidence.upper(fed(X, -y), Z), 1e-12)


@pytest.mark.parametrize("law", LAWS)
def test_exactly_the_listed_changes_of_units_leave_the_bounds_what_they_are(printed, device, law):
    X, y = noisy_data(40, device)
    Z = unit_square(6, 1).to(device)
    plain = torch.stack(printed.make(SETTING).interval(fed(X, y), Z))
    other = LAWS[law](SETTING, 40.0)
    state = fed(X, other.factor * y, other.ridge, kernel(other.kernel))
    changed = torch.stack(printed.make(other).interval(state, Z)) / other.factor
    follows = torch.allclose(changed, plain, rtol=1e-7, atol=1e-7)
    assert follows == (law in printed.units)


def test_a_bound_does_not_depend_on_the_other_rows(bound, device):
    confidence = bound.make(SETTING)
    state = fed(*noisy_data(40, device))
    Z = unit_square(24, 1).to(device)
    interval = torch.stack(confidence.interval(state, Z))
    close(torch.stack(confidence.interval(state, Z[7])), interval[:, 7], bound.tol)
    batched = torch.stack(confidence.interval(state, Z.reshape(2, 3, 4, 2)))
    close(batched, interval.reshape(2, 2, 3, 4), bound.tol)
    assert confidence.upper(state, Z[:0]).shape == (0,)


def test_gradients_of_bounds_are_exact_also_with_pending_points(bound, device):
    confidence = bound.make(SETTING)
    state = fed(*noisy_data(12, device))
    Z, P = (unit_square(2, seed).to(device).requires_grad_() for seed in (1, 3))
    assert gradcheck(lambda Z: confidence.upper(state, Z), Z)
    assert gradcheck(lambda Z: confidence.lower(state, Z), Z)
    assert gradcheck(lambda Z, P: confidence.upper(Hypothetical(state, P), Z), (Z, P))


def test_bounds_stay_float32(bound, device):
    X, y = noisy_data(30, device)
    Z = unit_square(5, 1).to(device)
    confidence = bound.make(SETTING)
    single = torch.stack(confidence.interval(fed(X.float(), y.float()), Z.float()))
    assert single.dtype == torch.float32
    close(single.double(), torch.stack(confidence.interval(fed(X, y), Z)), 1e-3)


def test_pending_points_narrow_the_bounds_as_the_dense_formula_says_also_in_batches(bound, device):
    X, y = noisy_data(30, device)
    state = fed(X, y)
    confidence = bound.make(SETTING)
    P = unit_square(8, 3).reshape(2, 4, 2).to(device)
    Z = unit_square(6, 1).reshape(2, 3, 2).to(device)
    found = torch.stack(confidence.interval(Hypothetical(state, P), Z))
    for i in range(2):
        expected = bound.formula(dense.Hallucinated(Dense(kernel(), X, y), P[i]), Z[i], SETTING)
        alike(list(found[:, i]), expected, bound)


def largest_is_found(confidence, state: Posterior, Z: Tensor) -> None:
    upper = confidence.upper(state, Z)
    row, value = confidence.argmax_upper(state, Z)
    most = pytest.approx(float(upper.max()), rel=1e-7)
    assert (value, float(upper[row])) == (most, most)


def test_tracked_points_have_the_same_bounds_and_argmax_upper_is_the_row_of_the_largest(
    bound, device
):
    X, y = noisy_data(40, device)
    Z = unit_square(60, 1).to(device)
    state = KernelRidge(kernel(), SETTING.ridge)
    tracked = FixedPoints(state, Z)
    confidence = bound.make(SETTING)
    for piece in (slice(0, 0), slice(0, 2), slice(2, 30)):
        tracked.update(X[piece], y[piece])
        expected = confidence.interval(fed(X[: piece.stop], y[: piece.stop]), Z)
        alike(confidence.interval(tracked, Z), expected, bound)
        largest_is_found(confidence, state, Z)
        largest_is_found(confidence, tracked, Z)


# One bound against another


def states(X: Tensor, y: Tensor, Z: Tensor, ridge: float) -> list[Posterior]:
    """One set of data behind each kind of state."""
    exact = fed(X, y, ridge)
    return [exact, FixedPoints(exact, Z), sketched(X, y, unit_square(25, 4).to(X), ridge)]


@settings(max_examples=8)
@given(
    seed=st.integers(0, 1000),
    n=st.integers(0, 40),
    sigma=st.floats(0.1, 2),
    B=st.floats(2, 20),
    delta=st.floats(0.001, 0.5),
    eta=st.floats(1e-3, 1),
    log_ridge=st.floats(-2, 2),
    times=st.floats(1.05, 30),
)
def test_the_theorems_that_put_one_bound_inside_another(
    device, seed, n, sigma, B, delta, eta, log_ridge, times
):
    """AMM strictly inside AY and IGP at equal ridge, AY inside K-UCB; CMM inside DMM inside AMM, and any ridge."""
    X, y = noisy_data(n, device, seed)
    Z = unit_square(12, seed).to(device)
    ridge = 10**log_ridge
    state = fed(X, y, ridge)

    def ends(confidence, state=state) -> Tensor:
        lower, upper = confidence.interval(state, Z)
        return torch.stack([-lower, upper])

    def amm(ridge: float) -> Tensor:
        return ends(MartingaleMixture(sigma, B, delta, "amm", sigma**2 / ridge, [ridge]))

    ay = ends(SelfNormalized(sigma, B, delta))
    assert (amm(ridge) < ay).all()
    assert (amm(1 + eta) < ends(ImprovedGPUCB(sigma, B, delta, eta))).all()
    assert (ay <= ends(EKUCB(sigma, B, delta, 0.0)) + 1e-9).all()
    for one in states(X, y, Z, 0.1):
        scale = 1 / ridge
        large = max(B, times * float(norm_lower_bound(one, sigma, delta, scale)))

        def mixture(kind, ridges=None, large=large, scale=scale, one=one):
            return ends(MartingaleMixture(sigma, large, delta, kind, scale, ridges), one)

        cmm = mixture("cmm")
        dmm = mixture("dmm")
        size = cmm.abs()
        assert (cmm <= dmm + 1e-12 * size).all()
        assert (dmm <= mixture("amm") + 1e-9 * size).all()
        assert (cmm <= mixture("amm", [eta * sigma**2 / scale]) + 1e-7 * size).all()


def test_amm_may_be_wider_than_the_self_normalised_bound_at_another_ridge_than_its_own():
    X, y = noisy_data(20, "cpu", 0)
    ridge = 0.01
    state = fed(X, y, ridge)
    Z = unit_square(12, 0)
    bound = SelfNormalized(0.1, 50.0, 0.1)
    for scale, is_narrower in ((0.1**2 / ridge, True), (0.001, False)):
        amm = MartingaleMixture(0.1, 50.0, 0.1, "amm", scale, [ridge])
        assert ((amm.upper(state, Z) < bound.upper(state, Z)) == is_narrower).all()


@pytest.mark.parametrize("options", [{"kind": "amm", "ridges": [1, 2]}, {"ridges": [1, -1]}])
def test_ridges_that_a_mixture_cannot_take_are_refused(options):
    with pytest.raises(InvalidInput, match="ridges"):
        MartingaleMixture(0.3, 4.2, 0.1, **options)


@pytest.mark.parametrize(("seed", "sigma", "norm"), [(0, 0.3, 30.0), (6, 1.0, 5.0), (24, 0.05, 90)])
def test_the_largest_bound_of_the_exact_mixture_is_found_among_many_arms(device, seed, sigma, norm):
    X, y = noisy_data(2 * seed, device, seed, noise_std=sigma)
    Z = torch.cat([unit_square(100, seed).to(device), X])
    for state in states(X, y, Z, sigma**2):
        least = float(norm_lower_bound(state, sigma, 0.1))
        confidence = MartingaleMixture(sigma, max(norm, 1.02 * least), 0.1, "cmm")
        largest_is_found(confidence, state, Z)
        lower = confidence.lower(state, Z)
        row, value = confidence.argmax_lower(state, Z)
        assert value == pytest.approx(float(lower[row]), rel=1e-5)
        assert value >= float(lower.max()) - 1e-3 * float(lower.max() - lower.min())


# Refutation


def test_norm_lower_bound_equals_the_dense_formula(device):
    X, y = noisy_data(60, device, norm=10.0, noise_std=0.1)
    formulas = Dense(kernel(), X, y)
    coarse = [0.001, 0.01, 0.1]
    expected = dense.norm_lower_bound(formulas, coarse, 0.1, 0.1, 2.0)
    close(norm_lower_bound(fed(X, y), 0.1, 0.1, 2.0, coarse), expected)
    fine = np.geomspace(1e-7, 1e3, 2000).tolist()
    expected = dense.norm_lower_bound(formulas, fine, 0.1, 0.1, 1.0)
    close(norm_lower_bound(fed(X, y), 0.1, 0.1), expected, 1e-5)


@pytest.mark.parametrize(("kind", "ridges"), [("cmm", None), ("dmm", [0.05])])
def test_a_norm_bound_is_refuted_exactly_below_the_norm_lower_bound(device, kind, ridges):
    X, y = noisy_data(60, device, norm=10.0, noise_std=0.1)
    Z = unit_square(20, 0).to(device)
    for state in states(X, y, Z, 0.1):
        least = float(norm_lower_bound(state, 0.1, 0.1, 1.5, ridges))
        assert 0.1 < least < 10
        above = MartingaleMixture(0.1, 1.00001 * least, 0.1, kind, 1.5, ridges)
        lower, upper = above.interval(state, Z)
        assert (lower <= upper).all()
        below = MartingaleMixture(0.1, 0.99999 * least, 0.1, kind, 1.5, ridges)
        for question in (below.interval, below.upper, below.lower, below.argmax_upper):
            with pytest.raises(RefutedAssumptions, match="norm_at_least") as caught:
                question(state, Z)
            figures = caught.value.figures
            assert 0.99999 * least == figures["norm_bound"] < figures["norm_at_least"] <= 10


def test_neither_no_data_nor_hallucinated_points_refute(device):
    assert norm_lower_bound(KernelRidge(kernel(), 0.1), 0.3, 0.1) == 0
    assert norm_lower_bound(fed(*noisy_data(3, device)), 5.0, 0.1) == 0
    P = torch.linspace(0, 1, 40, dtype=torch.float64, device=device).unsqueeze(-1)
    state = fed(P[::7], torch.full_like(P[::7, 0], 2.5), 0.1, RBFKernel().double())
    for kind in ("dmm", "cmm"):
        bound = MartingaleMixture(1.0, 1.5, 0.1, kind)
        assert torch.stack(bound.interval(Hypothetical(state, P), P)).isfinite().all()


# Sketches


def sketch_of_a_function(seed: int, noise_std: float):
    """A sketch of some kind of a function of norm 4, and the data."""
    X, y = noisy_data(60, "cpu", seed, noise_std=noise_std)
    points = unit_square(20, seed + 5)
    dictionaries = [
        FixedDictionary(points),
        FixedDictionary(X[:1]),
        FixedDictionary(points + 50),
        FixedDictionary(0.5 + 1e-2 * points),
        OnlineRowSampling(0.5, 1.0, seed=seed),
        GreedyDictionary(0.3),
        LeverageResampling(0.5, seed=seed),
        BatchedResampling(0.5, 3.0, most=6, seed=seed),
    ]
    ridge = (1e-3, 0.05, 0.5, 5.0)[seed // 8 % 4]
    state = NystromRidge(kernel(), ridge, dictionaries[seed % 8])
    state.update(X, y)
    return state, X, y


def test_widened_bounds_contain_the_function_whatever_the_dictionary():
    """Without noise always, for then only what the sketch misses is to be paid; the norm alone is too little."""
    n_narrow = dict.fromkeys(("self-normalised", "improved-gp-ucb", "ek-ucb"), 0)
    for seed in range(24):
        state, X, _ = sketch_of_a_function(seed, 1e-9)
        Z = torch.cat([unit_square(30, seed + 9), X[:10], state.anchors])
        truth = function(4.0, seed)(Z)
        bounds = (
            SelfNormalized(1e-9, 4.0, 0.1),
            ImprovedGPUCB(1e-9, 4.0, 0.1, 0.01),
            EKUCB(1e-9, 4.0, 0.1, float(state.error.norm())),
        )
        for name, bound in zip(n_narrow, bounds, strict=True):
            lower, upper = bound.interval(state, Z)
            assert ((lower - 1e-7 <= truth) & (truth <= upper + 1e-7)).all()
            mean, variance = state.at(bound.ridge(state)).predict(Z)
            n_narrow[name] += bool(((truth - mean).abs() > 4.0 * variance.sqrt() + 1e-7).any())
            # Anchors as close to dependent as rounding permits have no guarantee at small ridges.
            assert bound.guarantee_on(state) is not None or seed % 8 == 3
    assert min(n_narrow.values()) > 0


def test_what_is_claimed_on_sketches_and_on_imagined_observations():
    """While a sketch misses at most what the radius covers; of a state with imagined observations, nothing."""
    X, y = noisy_data(30, "cpu")
    P = unit_square(5, 3)
    exact = fed(X, y)
    state = NystromRidge(kernel(), SETTING.ridge, GreedyDictionary(0.2))
    state.update(X, y)
    error = float(state.error.norm())
    assert error > SETTING.ridge

    def bkb(factor: float) -> BKB:
        return BKB(0.3, 4.0, 0.1, 1 - SETTING.ridge / error / factor)

    def ek_ucb(factor: float) -> EKUCB:
        return EKUCB(0.3, 4.0, 0.1, factor * error)

    for make in (bkb, ek_ucb):
        assert "for this round" in make(1.001).guarantee_on(state)
        assert make(0.999).guarantee_on(state) is None
        assert make(0.999).guarantee_on(exact) is not None
    k_ucb = ek_ucb(0.0)
    assert k_ucb.guarantee_on(state) is FixedWidth(2.0).guarantee_on(state) is None
    assert k_ucb.guarantee_on(exact) is not None
    batch = BatchView(exact, P)
    observed = BatchView(exact, P)
    observed.observe(2)
    pending = Hypothetical(exact, P)
    for bound in (
        SelfNormalized(0.3, 4.0, 0.1),
        MartingaleMixture(0.3, 4.0, 0.1),
        ImprovedGPUCB(0.3, 4.0, 0.1, 0.01),
    ):
        assert bound.guarantee_on(state) is not None
        assert bound.guarantee_on(batch) is not None
        for view in (observed, pending, Hypothetical(pending, P)):
            assert bound.guarantee_on(view) is None
