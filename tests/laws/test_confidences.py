"""Laws of every confidence bound, and the order of the bounds that the theorems state."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import cvxpy as cp
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
from kbo.confidence.bkb import leverage_sum
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
from tests.laws.states import Whitened, seeded, unit_square

SETTING = Setting()


@pytest.fixture(scope="session", params=BOUNDS, ids=lambda bound: bound.name)
def printed(request) -> Bound:
    """Every formula, also those that differ from another one in numbers only."""
    return request.param


@pytest.fixture(
    scope="session",
    params=[bound for bound in BOUNDS if not bound.other_numbers],
    ids=lambda bound: bound.name,
)
def bound(request) -> Bound:
    """One for each way to compute a bound."""
    return request.param


def kernel(scale: float = 1.0, nu: float | None = 2.5) -> Kernel:
    scaled = ScaleKernel(MaternKernel(nu=nu) if nu else RBFKernel()).double()
    scaled.base_kernel.lengthscale, scaled.outputscale = (
        0.4,
        torch.tensor(scale, dtype=torch.float64),
    )
    return scaled


def function(norm: float, seed: int, k: Kernel | None = None):
    """A function of known norm in the RKHS of the kernel."""
    centres, weights = (
        unit_square(15, seed),
        torch.randn(15, generator=seeded(seed), dtype=torch.float64),
    )
    k = kernel() if k is None else k
    weights = weights * norm / torch.sqrt(weights @ gram(k, centres, centres) @ weights)
    return lambda X: gram(k, X, centres.to(X)) @ weights.to(X)


def noisy_data(
    n: int, device, seed: int = 0, norm: float = 4.0, noise_std: float = 0.3
) -> tuple[Tensor, Tensor]:
    X = unit_square(n, seed + 50)
    y = function(norm, seed)(X) + noise_std * torch.randn(
        n, generator=seeded(seed + 1), dtype=torch.float64
    )
    return X.to(device), y.to(device)


def fed(X: Tensor, y: Tensor, ridge: float = SETTING.ridge, k: Kernel | None = None) -> KernelRidge:
    state = KernelRidge(kernel() if k is None else k, ridge)
    state.update(X, y)
    return state


def alike(found: tuple[Tensor, Tensor], expected: tuple[Tensor, Tensor], bound: Bound) -> None:
    close(torch.stack(found), torch.stack(expected), max(bound.tol, 1e-8))


# Laws of every bound


@pytest.mark.parametrize("n", [0, 40])
def test_equals_the_dense_formula(printed, device, n):
    X, y = noisy_data(n, device)
    Z = torch.cat([unit_square(2, 1).to(device), X[:1]])
    expected = printed.formula(Dense(kernel(), X, y), Z, SETTING)
    confidence, state = printed.make(SETTING), fed(X, y)
    alike(confidence.interval(state, Z), expected, printed)
    alike((confidence.lower(state, Z), confidence.upper(state, Z)), expected, printed)
    assert (expected[0] < expected[1]).all()


def test_equals_the_dense_formula_on_a_sketch(printed, device):
    (X, y), points = noisy_data(40, device), unit_square(8, 4).to(device)
    Z = torch.cat([unit_square(2, 1).to(device), X[:1]])
    state = NystromRidge(kernel(), SETTING.ridge, FixedDictionary(points))
    state.update(X, y)
    reference = Sketched(kernel(), X, y, points)
    reference.error = float(state.error.norm())
    assert float(torch.linalg.matrix_norm(reference.residual, 2)) <= (1 + 1e-12) * reference.error
    expected = printed.formula(reference, Z, replace(SETTING, norm_bound=30.0))
    alike(printed.make(replace(SETTING, norm_bound=30.0)).interval(state, Z), expected, printed)


def test_weights_are_data_that_were_whitened_by_hand(bound, device):
    """The theorem of docs/theory/observations.md; chaining has a set of its own in units of the points."""
    (X, y), Z = noisy_data(40, device), unit_square(6, 1).to(device)
    weights = torch.exp(torch.randn(40, generator=seeded(3), dtype=torch.float64)).to(device)
    weighted, whitened = (
        KernelRidge(kernel(), SETTING.ridge),
        KernelRidge(Whitened(kernel()), SETTING.ridge),
    )
    weighted.update(X, y, weights)
    whitened.update(torch.cat([X, weights.unsqueeze(-1)], -1), weights.sqrt() * y)
    confidence = bound.make(SETTING)
    if not bound.name.startswith("chaining"):
        expected = confidence.interval(whitened, torch.cat([Z, torch.ones_like(Z[:, :1])], -1))
        alike(confidence.interval(weighted, Z), expected, bound)
    proved, plain = confidence.guarantee_on(weighted), confidence.guarantee_on(whitened)
    if bound.name == "third-party":
        assert proved is None
        assert (
            "the theorem is about one noise level, and the observations have weights"
            in confidence.objections(weighted)
        )
    else:
        assert (proved is None) == (plain is None)
        assert proved is None or (
            proved.startswith(str(plain)) and "weight" in proved.removeprefix(str(plain))
        )


def test_the_lower_bound_mirrors_the_upper_bound(bound, device):
    X, y = noisy_data(40, device)
    confidence, Z = bound.make(SETTING), unit_square(20, 1).to(device)
    close(confidence.lower(fed(X, y), Z), -confidence.upper(fed(X, -y), Z), 1e-12)


@pytest.mark.parametrize("law", LAWS)
def test_exactly_the_listed_changes_of_units_leave_the_bounds_what_they_are(printed, device, law):
    X, y = noisy_data(40, device)
    Z, other = unit_square(6, 1).to(device), LAWS[law](SETTING, 40.0)
    plain = torch.stack(printed.make(SETTING).interval(fed(X, y), Z))
    changed = printed.make(other).interval(
        fed(X, other.factor * y, other.ridge, kernel(other.kernel)), Z
    )
    follows = torch.allclose(torch.stack(changed) / other.factor, plain, rtol=1e-7, atol=1e-7)
    assert follows == (law in printed.units)


def test_a_bound_does_not_depend_on_the_other_rows(bound, device):
    confidence, state, Z = (
        bound.make(SETTING),
        fed(*noisy_data(40, device)),
        unit_square(24, 1).to(device),
    )
    lower, upper = confidence.interval(state, Z)
    for i in (0, 7, 23):
        close(
            torch.stack(confidence.interval(state, Z[i])),
            torch.stack([lower[i], upper[i]]),
            bound.tol,
        )
    batched = torch.stack(confidence.interval(state, Z.reshape(2, 3, 4, 2)))
    close(batched, torch.stack([lower, upper]).reshape(2, 2, 3, 4), bound.tol)
    assert confidence.upper(state, Z[:0]).shape == (0,)


def test_gradients_of_bounds_are_exact_also_with_pending_points(bound, device):
    confidence, state = bound.make(SETTING), fed(*noisy_data(12, device))
    Z, P = (unit_square(2, seed).to(device).requires_grad_() for seed in (1, 3))
    assert gradcheck(lambda Z: confidence.upper(state, Z), Z)
    assert gradcheck(lambda Z: confidence.lower(state, Z), Z)
    assert gradcheck(lambda Z, P: confidence.upper(Hypothetical(state, P), Z), (Z, P))


def test_bounds_stay_float32(bound, device):
    X, y = noisy_data(30, device)
    Z, confidence = unit_square(5, 1).to(device), bound.make(SETTING)
    for state in (fed(X.float(), y.float()), KernelRidge(kernel(), SETTING.ridge)):
        single = torch.stack(confidence.interval(state, Z.float()))
        assert single.dtype == torch.float32
    expected = confidence.interval(fed(X, y), Z)
    close(
        torch.stack(confidence.interval(fed(X.float(), y.float()), Z.float())).double(),
        torch.stack(expected),
        1e-3,
    )


def test_pending_points_narrow_the_bounds_as_the_dense_formula_says(bound, device):
    X, y = noisy_data(30, device)
    P, Z, state = unit_square(4, 3).to(device), unit_square(2, 1).to(device), fed(X, y)
    expected = bound.formula(dense.Hallucinated(Dense(kernel(), X, y), P), Z, SETTING)
    alike(bound.make(SETTING).interval(Hypothetical(state, P), Z), expected, bound)


def test_pending_points_come_in_batches(bound, device):
    state, confidence = fed(*noisy_data(30, device)), bound.make(SETTING)
    P, Z = (
        unit_square(8, 3).reshape(2, 4, 2).to(device),
        unit_square(6, 1).reshape(2, 3, 2).to(device),
    )
    targets = torch.linspace(-1, 1, 8, dtype=torch.float64, device=device).reshape(2, 4)
    for values in ([None, None], targets):
        upper = confidence.upper(Hypothetical(state, P, None if values[0] is None else values), Z)
        shared = confidence.lower(Hypothetical(state, P[0], values[0]), Z)
        for i in range(2):
            close(
                upper[i],
                confidence.upper(Hypothetical(state, P[i], values[i]), Z[i]),
                max(bound.tol, 1e-8),
            )
            close(
                shared[i],
                confidence.lower(Hypothetical(state, P[0], values[0]), Z[i]),
                max(bound.tol, 1e-8),
            )


def test_tracked_points_have_the_same_bounds_and_argmax_upper_is_the_row_of_the_largest(
    bound, device
):
    (X, y), Z = noisy_data(40, device), unit_square(60, 1).to(device)
    state, confidence = KernelRidge(kernel(), SETTING.ridge), bound.make(SETTING)
    tracked = FixedPoints(state, Z)
    for piece in (slice(0, 0), slice(0, 2), slice(2, 40)):
        tracked.update(X[piece], y[piece])
        alike(
            confidence.interval(tracked, Z),
            confidence.interval(fed(X[: piece.stop], y[: piece.stop]), Z),
            bound,
        )
        for one in (state, tracked):
            upper, (row, value) = confidence.upper(one, Z), confidence.argmax_upper(one, Z)
            assert value == pytest.approx(float(upper.max()), rel=1e-7)
            assert float(upper[row]) == pytest.approx(float(upper.max()), rel=1e-7)


def test_impossible_settings_are_refused():
    good = {"noise_std": 0.3, "norm_bound": 2.0, "delta": 0.1}
    for make in (SelfNormalized, MartingaleMixture, BKB, partial(EKUCB, projection=0.0)):
        for bad in ({name: value} for name in good for value in (0.0, math.nan, math.inf, "large")):
            with pytest.raises(InvalidInput):
                make(**{**good, **bad})
    for bad in (
        {"kind": "d"},
        {"ridges": []},
        {"ridges": [1, -1]},
        {"scale": 0.0},
        {"kind": "amm", "ridges": [1, 2]},
    ):
        with pytest.raises(InvalidInput):
            MartingaleMixture(**{**good, "kind": "dmm", **bad})


def test_without_data_bounds_are_those_of_the_prior(device):
    Z, (sigma, B, ridge), state = (
        unit_square(3, 1).to(device),
        (0.3, 8.0, 0.05),
        KernelRidge(kernel(2.0), 0.1),
    )
    for confidence, one, expected, tol in (
        (
            SelfNormalized(sigma, B, 0.1),
            KernelRidge(kernel(), ridge),
            sigma * math.sqrt(2 * math.log(10) / ridge) + B,
            0,
        ),
        (MartingaleMixture(sigma, B, 0.1, "cmm"), state, B * math.sqrt(2.0), 0),
        (MartingaleMixture(sigma, B, 0.1, "amm", ridges=[1e9]), state, B * math.sqrt(2.0), 1e-6),
    ):
        close(
            torch.stack(confidence.interval(one, Z)),
            Z.new_tensor([[-expected], [expected]]).expand(2, 3),
            tol or 1e-8,
        )


# One bound against another


def states(X: Tensor, y: Tensor, Z: Tensor, ridge: float) -> dict[str, Posterior]:
    """One set of data behind each kind of state."""
    k = kernel()
    exact, sketch = (
        fed(X, y, ridge, k),
        NystromRidge(k, ridge, FixedDictionary(unit_square(25, 4).to(X))),
    )
    sketch.update(X, y)
    return {"exact": exact, "tracked": FixedPoints(exact, Z), "sketched": sketch}


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
    (X, y), Z, ridge = noisy_data(n, device, seed), unit_square(30, seed).to(device), 10**log_ridge
    state, sign = fed(X, y, ridge), torch.tensor([[-1.0], [1.0]]).to(Z)

    def mixture(kind: str, scale: float, ridges=None, state=state, B=B) -> Tensor:
        return sign * torch.stack(
            MartingaleMixture(sigma, B, delta, kind, scale, ridges).interval(state, Z)
        )

    ay, igp, loose = (
        sign * torch.stack(one.interval(state, Z))
        for one in (
            SelfNormalized(sigma, B, delta),
            ImprovedGPUCB(sigma, B, delta, eta),
            EKUCB(sigma, B, delta, 0.0),
        )
    )
    assert (mixture("amm", sigma**2 / ridge) < ay).all()
    assert (mixture("amm", sigma**2 / (1 + eta), [1 + eta]) < igp).all()
    assert (ay <= loose + 1e-9).all()
    for one in states(X, y, Z, 0.1).values():
        c = 1 / ridge
        large = max(B, times * float(norm_lower_bound(one, sigma, delta, c)))
        cmm, dmm, amm = (mixture(kind, c, None, one, large) for kind in ("cmm", "dmm", "amm"))
        assert (cmm <= dmm + 1e-12 * cmm.abs()).all()
        assert (dmm <= amm + 1e-9 * cmm.abs()).all()
        assert (cmm <= mixture("amm", c, [eta * sigma**2 / c], one, large) + 1e-7 * cmm.abs()).all()


@pytest.mark.parametrize("seed", [0, 6, 24])
def test_the_largest_bound_of_the_exact_mixture_is_found_among_many_arms(device, seed):
    generator = seeded(seed)
    sigma, log_B = (
        10 ** float(-1.5 * torch.rand(1, generator=generator)),
        float(2 * torch.rand(1, generator=generator)),
    )
    X, y = noisy_data(2 * seed, device, seed, noise_std=sigma)
    Z = torch.cat([unit_square(200, seed).to(device), X])
    for state in states(X, y, Z, sigma**2).values():
        least = float(norm_lower_bound(state, sigma, 0.1))
        confidence = MartingaleMixture(sigma, max(4 * 10**log_B, 1.02 * least), 0.1, "cmm")
        upper, (row, value) = confidence.upper(state, Z), confidence.argmax_upper(state, Z)
        assert value == pytest.approx(float(upper.max()), rel=1e-7)
        assert float(upper[row]) == pytest.approx(float(upper.max()), rel=1e-7)
        lower, (row, value) = confidence.lower(state, Z), confidence.argmax_lower(state, Z)
        assert value == pytest.approx(float(lower[row]), rel=1e-5)
        spread = float(lower.max() - lower.min())
        assert value >= float(lower.max()) - 1e-3 * spread


def largest_value(k: Kernel, X: Tensor, y: Tensor, z: Tensor, radius: float, norm: float) -> float:
    """``max f(z)`` over ``|f(X) - y| <= radius`` and ``||f|| <= norm``, as a cone program."""
    K = gram(k, torch.cat([X, z]), torch.cat([X, z])).cpu()
    L = torch.linalg.cholesky(K + 1e-13 * torch.eye(len(K))).numpy()
    w = cp.Variable(len(K))  # f = L w on X and z, and ||f|| = |w|
    program = cp.Problem(
        cp.Maximize(L[-1] @ w),
        [cp.norm(L[:-1] @ w - y.cpu().numpy()) <= radius, cp.norm(w) <= norm],
    )
    return program.solve(solver=cp.CLARABEL)


@pytest.mark.parametrize(("nu", "n", "norm_bound"), [(1.5, 12, 4.2), (None, 3, 20.0)])
def test_dmm_is_above_the_cone_program_and_reaches_it_on_a_fine_grid(device, nu, n, norm_bound):
    k, sigma, delta = kernel(nu=nu), 0.3, 0.1
    X, y = noisy_data(n, device, seed=n)
    state, Z = fed(X, y, k=k), torch.cat([unit_square(3, 1).to(device), X[:1]])
    radius = math.sqrt(dense.squared_radius(Dense(k, X, y), sigma, delta, 1.0))
    optimum = torch.tensor([largest_value(k, X, y, z[None], radius, norm_bound) for z in Z]).to(Z)
    lowest = torch.tensor([-largest_value(k, X, -y, z[None], radius, norm_bound) for z in Z]).to(Z)
    fine = np.geomspace(1e-8, 1e4, 900).tolist()
    coarse = MartingaleMixture(sigma, norm_bound, delta, "dmm").interval(state, Z)
    exact = MartingaleMixture(sigma, norm_bound, delta, "dmm", ridges=fine).interval(state, Z)
    assert (coarse[0] <= lowest + 1e-6).all()
    assert (coarse[1] >= optimum - 1e-6).all()
    close(exact[0], lowest, 1e-4)
    close(exact[1], optimum, 1e-4)


# Refutation


def test_norm_lower_bound_equals_the_dense_formula(device):
    X, y = noisy_data(60, device, norm=10.0, noise_std=0.1)
    ridges = [0.001, 0.01, 0.1]
    close(
        norm_lower_bound(fed(X, y), 0.1, 0.1, 2.0, ridges),
        dense.norm_lower_bound(Dense(kernel(), X, y), ridges, 0.1, 0.1, 2.0),
    )
    fine = np.geomspace(1e-7, 1e3, 4000).tolist()
    close(
        norm_lower_bound(fed(X, y), 0.1, 0.1),
        dense.norm_lower_bound(Dense(kernel(), X, y), fine, 0.1, 0.1, 1.0),
        1e-5,
    )


@pytest.mark.parametrize(("kind", "ridges"), [("cmm", None), ("dmm", [0.05])])
def test_a_norm_bound_is_refuted_exactly_below_the_norm_lower_bound(device, kind, ridges):
    X, y = noisy_data(60, device, norm=10.0, noise_std=0.1)
    Z = unit_square(20, 0).to(device)
    for state in states(X, y, Z, 0.1).values():
        least = float(norm_lower_bound(state, 0.1, 0.1, 1.5, ridges))
        assert 0.1 < least < 10
        lower, upper = MartingaleMixture(0.1, 1.00001 * least, 0.1, kind, 1.5, ridges).interval(
            state, Z
        )
        assert (lower <= upper).all()
        for question in ("interval", "upper", "lower", "argmax_upper"):
            with pytest.raises(RefutedAssumptions, match="norm_at_least") as caught:
                getattr(MartingaleMixture(0.1, 0.99999 * least, 0.1, kind, 1.5, ridges), question)(
                    state, Z
                )
            figures = caught.value.figures
            assert (figures["n"], figures["noise_std"], figures["norm_bound"]) == (
                60,
                0.1,
                0.99999 * least,
            )
            assert figures["norm_bound"] < figures["norm_at_least"] <= 10


def test_neither_no_data_nor_hallucinated_points_refute(device):
    assert norm_lower_bound(KernelRidge(kernel(), 0.1), 0.3, 0.1) == 0
    assert norm_lower_bound(fed(*noisy_data(3, device)), 5.0, 0.1) == 0
    P = torch.linspace(0, 1, 40, dtype=torch.float64, device=device).unsqueeze(-1)
    state = fed(P[::7], torch.full_like(P[::7, 0], 2.5), 0.1, RBFKernel().double())
    for kind in ("dmm", "cmm"):
        bounds = torch.stack(
            MartingaleMixture(1.0, 1.5, 0.1, kind).interval(Hypothetical(state, P), P)
        )
        assert bounds.isfinite().all()


# The promise itself


@pytest.mark.parametrize("name", ["self-normalised", "cmm"])
def test_bounds_hold_at_all_rounds_and_points_more_often_than_promised(device, name):
    bound, runs, broken = next(b for b in BOUNDS if b.name == name), 10, 0
    Z = unit_square(40, 1).to(device)
    for seed in range(runs):
        truth, setting = function(4.0, seed)(Z), Setting(norm_bound=4.0)
        X, y = noisy_data(60, device, seed)
        state, held = KernelRidge(kernel(), setting.ridge), True
        for i in range(0, 60, 20):
            state.update(X[i : i + 20], y[i : i + 20])
            lower, upper = bound.make(setting).interval(state, Z)
            held &= bool(((lower <= truth) & (truth <= upper)).all())
            assert (
                norm_lower_bound(state, setting.noise_std, setting.delta, setting.scale) <= 4.0
                or not held
            )
        broken += not held
    assert broken <= SETTING.delta * runs


# Sketches


def sketched_data(
    seed: int, noise_std: float, n: int = 60
) -> tuple[NystromRidge, Tensor, Tensor, Tensor]:
    """A sketch of some kind of a function of norm 4, the data, and points with the function's values."""
    X, y = noisy_data(n, "cpu", seed, noise_std=noise_std)
    points, ridge = unit_square(20, seed + 5), (1e-3, 0.05, 0.5, 5.0)[seed // 8 % 4]
    dictionary = [
        lambda: FixedDictionary(points),
        lambda: FixedDictionary(X[:1]),
        lambda: FixedDictionary(points + 50),
        lambda: FixedDictionary(0.5 + 1e-2 * points),
        lambda: OnlineRowSampling(0.5, 1.0, seed=seed),
        lambda: GreedyDictionary(0.3),
        lambda: LeverageResampling(0.5, seed=seed),
        lambda: BatchedResampling(0.5, 3.0, most=6, seed=seed),
    ][seed % 8]()
    state = NystromRidge(kernel(), ridge, dictionary)
    state.update(X, y)
    Z = torch.cat([unit_square(30, seed + 9), X[:10], state.anchors])
    return state, X, y, Z


@pytest.mark.parametrize("seed", [9, 18, 27, 4])
def test_the_sum_of_leverages_is_at_least_the_exact_effective_dimension(seed):
    state, X, y, _ = sketched_data(seed, 0.3)
    exact, sketch = Dense(kernel(), X, y), Sketched(kernel(), X, y, state.anchors)
    for ridge in (1e-3, 0.05, 2.0, 50.0):
        state.move_ridge(ridge)
        found = leverage_sum(state)
        close(
            found, sketch.leverage_sum(ridge), 1e-4
        )  # lifted by the rounding of a nearly singular dictionary
        assert float(found) >= (1 - 1e-9) * float(exact.at(ridge).effective_dimension())
    close(found, (state.predict(X)[1] / ridge).sum(), 1e-4)


WIDE = {
    "self-normalised": lambda state, sigma, delta: SelfNormalized(sigma, 4.0, delta),
    "improved-gp-ucb": lambda state, sigma, delta: ImprovedGPUCB(sigma, 4.0, delta, 0.01),
    "ek-ucb": lambda state, sigma, delta: EKUCB(sigma, 4.0, delta, float(state.error.norm())),
}


@pytest.mark.parametrize("noise_std", [1e-9, 0.3])
def test_widened_bounds_contain_the_function_whatever_the_dictionary(noise_std):
    """Without noise always, for then only what the sketch misses is to be paid; with noise as often as promised."""
    broken, narrow = dict.fromkeys(WIDE, 0), dict.fromkeys(WIDE, 0)
    for seed in range(24):
        state, _, _, Z = sketched_data(seed, noise_std)
        truth = function(4.0, seed)(Z)
        for name, make in WIDE.items():
            bound = make(state, noise_std, 0.1)
            lower, upper = bound.interval(state, Z)
            broken[name] += not bool(((lower - 1e-7 <= truth) & (truth <= upper + 1e-7)).all())
            mean, variance = state.at(bound.ridge(state)).predict(Z)
            narrow[name] += not bool(((truth - mean).abs() <= 4.0 * variance.sqrt() + 1e-7).all())
            # Anchors as close to dependent as rounding permits have no guarantee at small ridges.
            assert bound.guarantee_on(state) is not None or seed % 8 == 3
    assert max(broken.values()) <= (3 if noise_std > 0.1 else 0)
    assert (
        noise_std > 0.1 or min(narrow.values()) > 0
    )  # sometimes the norm bound alone would be too narrow


def test_what_is_claimed_on_sketches_and_on_imagined_observations():
    """While a sketch misses at most what the radius covers; of a state with imagined observations, nothing."""
    (X, y), P = noisy_data(30, "cpu"), unit_square(5, 3)
    state, exact = NystromRidge(kernel(), SETTING.ridge, GreedyDictionary(0.2)), fed(X, y)
    state.update(X, y)
    error = float(state.error.norm())
    assert error > SETTING.ridge
    eps = {times: 1 - times * SETTING.ridge / error for times in (0.999, 1.001)}
    for enough, short in (
        (BKB(0.3, 4.0, 0.1, eps[0.999]), BKB(0.3, 4.0, 0.1, eps[1.001])),
        (EKUCB(0.3, 4.0, 0.1, 1.001 * error), EKUCB(0.3, 4.0, 0.1, 0.999 * error)),
    ):
        assert "for this round" in enough.guarantee_on(state)
        assert short.guarantee_on(state) is None
        assert short.guarantee_on(exact) is not None
    k_ucb = EKUCB(0.3, 4.0, 0.1, 0.0)
    assert k_ucb.guarantee_on(state) is FixedWidth(2.0).guarantee_on(state) is None
    assert k_ucb.guarantee_on(exact) is not None
    bounds = (
        SelfNormalized(0.3, 4.0, 0.1),
        MartingaleMixture(0.3, 4.0, 0.1),
        ImprovedGPUCB(0.3, 4.0, 0.1, 0.01),
    )
    assert all(bound.guarantee_on(state) is not None for bound in bounds)
    batch = BatchView(exact, P)
    assert all(bound.guarantee_on(batch) is not None for bound in bounds)
    batch.observe(2)
    for view in (batch, Hypothetical(exact, P), Hypothetical(Hypothetical(exact, P), P)):
        assert all(bound.guarantee_on(view) is None for bound in bounds)
