"""Laws of every confidence bound, and the order of the bounds that the theorems state."""

from __future__ import annotations

import math
from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck

from kbo import KernelRidge
from kbo.confidence import (
    BKB,
    EKUCB,
    KUCB,
    FixedWidth,
    ImprovedGPUCB,
    MartingaleMixture,
    SelfNormalized,
    norm_lower_bound,
    squared_radius,
)
from kbo.confidence.mixture import dual
from kbo.errors import InvalidInput, RefutedAssumptions
from kbo.regression import (
    BatchedResampling,
    BatchView,
    FixedDictionary,
    GreedyDictionary,
    Hypothetical,
    LeverageResampling,
    NystromRidge,
    OnlineRowSampling,
    Posterior,
    Tracked,
    View,
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
    scope="session", params=[bound for bound in BOUNDS if not bound.other_numbers], ids=lambda bound: bound.name
)
def bound(request) -> Bound:
    """One for each way to compute a bound."""
    return request.param


def kernel(scale: float = 1.0, nu: float | None = 2.5) -> Kernel:
    scaled = ScaleKernel(MaternKernel(nu=nu) if nu else RBFKernel()).double()
    scaled.base_kernel.lengthscale, scaled.outputscale = 0.4, torch.tensor(scale, dtype=torch.float64)
    return scaled


def function(norm: float, seed: int, k: Kernel | None = None):
    """A function of known norm in the RKHS of the kernel."""
    centres, weights = unit_square(15, seed), torch.randn(15, generator=seeded(seed), dtype=torch.float64)
    k = kernel() if k is None else k
    weights = weights * norm / torch.sqrt(weights @ gram(k, centres, centres) @ weights)
    return lambda X: gram(k, X, centres.to(X)) @ weights.to(X)


def noisy_data(n: int, device, seed: int = 0, norm: float = 4.0, noise_std: float = 0.3) -> tuple[Tensor, Tensor]:
    X = unit_square(n, seed + 50)
    y = function(norm, seed)(X) + noise_std * torch.randn(n, generator=seeded(seed + 1), dtype=torch.float64)
    return X.to(device), y.to(device)


def fed(X: Tensor, y: Tensor, ridge: float = SETTING.ridge, k: Kernel | None = None) -> KernelRidge:
    state = KernelRidge(kernel() if k is None else k, ridge)
    state.update(X, y)
    return state


# Laws of every bound


@pytest.mark.parametrize("n", [0, 1, 40])
def test_equals_the_dense_formula(printed, device, n):
    X, y = noisy_data(n, device)
    Z = torch.cat([unit_square(6, 1).to(device), X[:2]])
    expected = printed.formula(Dense(kernel(), X, y), Z, SETTING)
    confidence, state = printed.make(SETTING), fed(X, y)
    for one, other in zip(confidence.interval(state, Z), expected, strict=True):
        close(one, other, max(printed.tol, 1e-8))
    close(confidence.lower(state, Z), expected[0], max(printed.tol, 1e-8))
    close(confidence.upper(state, Z), expected[1], max(printed.tol, 1e-8))


def test_equals_the_dense_formula_on_a_sketch(printed, device):
    (X, y), points = noisy_data(40, device), unit_square(8, 4).to(device)
    Z = torch.cat([unit_square(6, 1).to(device), X[:2]])
    state = NystromRidge(kernel(), SETTING.ridge, FixedDictionary(points))
    state.update(X, y)
    reference = Sketched(kernel(), X, y, points)
    reference.error = float(state.residual_norm())
    assert float(torch.linalg.matrix_norm(reference.residual, 2)) <= (1 + 1e-12) * reference.error
    expected = printed.formula(reference, Z, replace(SETTING, norm_bound=30.0))
    found = printed.make(replace(SETTING, norm_bound=30.0)).interval(state, Z)
    for one, other in zip(found, expected, strict=True):
        close(one, other, max(printed.tol, 1e-8))


def test_weights_are_data_that_were_whitened_by_hand(bound, device):
    """The theorem of docs/theory/weights.md; chaining has a set of its own in units of the points."""
    (X, y), Z = noisy_data(40, device), unit_square(6, 1).to(device)
    weights = torch.exp(torch.randn(40, generator=seeded(3), dtype=torch.float64)).to(device)
    weighted, whitened = KernelRidge(kernel(), SETTING.ridge), KernelRidge(Whitened(kernel()), SETTING.ridge)
    weighted.update(X, y, weights)
    whitened.update(torch.cat([X, weights.unsqueeze(-1)], -1), weights.sqrt() * y)
    confidence = bound.make(SETTING)
    if not bound.name.startswith("chaining"):
        expected = confidence.interval(whitened, torch.cat([Z, torch.ones_like(Z[:, :1])], -1))
        for one, other in zip(confidence.interval(weighted, Z), expected, strict=True):
            close(one, other, max(bound.tol, 1e-8))
    proved, plain = confidence.guarantee_on(weighted), confidence.guarantee_on(whitened)
    if bound.name == "third-party":
        assert proved is None
        assert "the theorem is about one noise level, and the observations have weights" in confidence.objections(
            weighted
        )
    else:
        assert (proved is None) == (plain is None)
        assert proved is None or (proved.startswith(str(plain)) and "weight" in proved.removeprefix(str(plain)))


@pytest.mark.parametrize("n", [0, 40])
def test_lower_is_below_upper(bound, device, n):
    lower, upper = bound.make(SETTING).interval(fed(*noisy_data(n, device)), unit_square(50, 1).to(device))
    assert (lower < upper).all()


def test_the_lower_bound_mirrors_the_upper_bound(bound, device):
    X, y = noisy_data(40, device)
    confidence, Z = bound.make(SETTING), unit_square(20, 1).to(device)
    close(confidence.lower(fed(X, y), Z), -confidence.upper(fed(X, -y), Z), 1e-12)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("s", [1e-3, 40.0])
def test_exactly_the_listed_changes_of_units_leave_the_bounds_what_they_are(printed, device, law, s):
    X, y = noisy_data(40, device)
    Z, other = unit_square(20, 1).to(device), LAWS[law](SETTING, s)
    plain = torch.stack(printed.make(SETTING).interval(fed(X, y), Z))
    changed = printed.make(other).interval(fed(X, other.factor * y, other.ridge, kernel(other.kernel)), Z)
    follows = torch.allclose(torch.stack(changed) / other.factor, plain, rtol=1e-7, atol=1e-7)
    assert follows == (law in printed.units)


def test_a_bound_does_not_depend_on_the_other_rows(bound, device):
    confidence, state, Z = bound.make(SETTING), fed(*noisy_data(40, device)), unit_square(24, 1).to(device)
    lower, upper = confidence.interval(state, Z)
    for i in (0, 7, 23):
        close(torch.stack(confidence.interval(state, Z[i])), torch.stack([lower[i], upper[i]]), bound.tol)
    batched = torch.stack(confidence.interval(state, Z.reshape(2, 3, 4, 2)))
    close(batched, torch.stack([lower, upper]).reshape(2, 2, 3, 4), bound.tol)
    assert confidence.upper(state, Z[:0]).shape == (0,)


def test_gradients_of_bounds_are_exact(bound, device):
    confidence, state = bound.make(SETTING), fed(*noisy_data(20, device))
    Z = unit_square(4, 1).to(device).requires_grad_()
    assert gradcheck(lambda Z: confidence.upper(state, Z), Z)
    assert gradcheck(lambda Z: confidence.lower(state, Z), Z)


def test_bounds_stay_float32(bound, device):
    X, y = noisy_data(30, device)
    Z, confidence = unit_square(5, 1).to(device), bound.make(SETTING)
    single = torch.stack(confidence.interval(fed(X.float(), y.float()), Z.float()))
    assert single.dtype == torch.float32
    close(single.double(), torch.stack(confidence.interval(fed(X, y), Z)), 1e-3)


def test_gradients_of_bounds_equal_wide_finite_differences(bound, device):
    """Wider than the search for a best ridge is exact, so that its error does not hide in the difference."""
    confidence, state = bound.make(SETTING), fed(*noisy_data(20, device))
    z, step = unit_square(1, 2).to(device)[0].requires_grad_(), 1e-3
    for side in (confidence.upper, confidence.lower):
        (gradient,) = torch.autograd.grad(side(state, z), z)
        for i, e in enumerate(step * torch.eye(2).to(z)):
            with torch.no_grad():
                difference = (side(state, z + e) - side(state, z - e)) / (2 * step)
            close(gradient[i], difference, 1e-3)


def test_tracked_points_have_the_same_bounds(bound, device):
    X, y = noisy_data(40, device)
    state, Z = KernelRidge(kernel(), SETTING.ridge), unit_square(12, 1).to(device)
    tracked, confidence = Tracked(state, Z), bound.make(SETTING)
    for piece in (slice(0, 3), slice(3, 20), slice(20, 40)):
        tracked.update(X[piece], y[piece])
        expected = confidence.interval(fed(X[: piece.stop], y[: piece.stop]), Z)
        for one, other in zip(confidence.interval(tracked, Z), expected, strict=True):
            close(one, other, max(bound.tol, 1e-8))


def test_pending_points_narrow_the_bounds_as_the_dense_formula_says(bound, device):
    X, y = noisy_data(30, device)
    P, Z, state = unit_square(4, 3).to(device), unit_square(5, 1).to(device), fed(X, y)
    expected = bound.formula(dense.Hallucinated(Dense(kernel(), X, y), P), Z, SETTING)
    found = bound.make(SETTING).interval(Hypothetical(state, P), Z)
    for one, other in zip(found, expected, strict=True):
        close(one, other, max(bound.tol, 1e-8))


def test_pending_points_come_in_batches(bound, device):
    state, confidence = fed(*noisy_data(30, device)), bound.make(SETTING)
    P, Z = unit_square(8, 3).reshape(2, 4, 2).to(device), unit_square(6, 1).reshape(2, 3, 2).to(device)
    targets = torch.linspace(-1, 1, 8, dtype=torch.float64, device=device).reshape(2, 4)
    for values in (None, targets):
        upper = confidence.upper(Hypothetical(state, P, values), Z)
        shared = confidence.lower(Hypothetical(state, P[0], None if values is None else values[0]), Z)
        assert upper.shape == shared.shape == (2, 3)
        for i in range(2):
            one = Hypothetical(state, P[i], None if values is None else values[i])
            first = Hypothetical(state, P[0], None if values is None else values[0])
            close(upper[i], confidence.upper(one, Z[i]), max(bound.tol, 1e-8))
            close(shared[i], confidence.lower(first, Z[i]), max(bound.tol, 1e-8))


def test_gradients_of_bounds_with_pending_points_are_exact(bound, device):
    confidence, state = bound.make(SETTING), fed(*noisy_data(12, device))
    Z, P = (unit_square(2, seed).to(device).requires_grad_() for seed in (1, 3))
    assert gradcheck(lambda Z, P: confidence.upper(Hypothetical(state, P), Z), (Z, P))


def test_argmax_upper_is_the_row_of_the_largest_upper_bound(bound, device):
    Z = unit_square(150, 1).to(device)
    state, confidence = KernelRidge(kernel(), SETTING.ridge), bound.make(SETTING)
    tracked = Tracked(state, Z)
    X, y = noisy_data(40, device)
    for piece in (slice(0, 0), slice(0, 2), slice(2, 25), slice(25, 40)):
        state.update(X[piece], y[piece])
        for one in (state, tracked):
            upper = confidence.upper(one, Z)
            row, value = confidence.argmax_upper(one, Z)
            assert value == pytest.approx(float(upper.max()), rel=1e-7)
            assert float(upper[row]) == pytest.approx(float(upper.max()), rel=1e-7)


def test_arms_that_may_be_best_are_read_alike_on_the_host_and_on_their_device(device, monkeypatch):
    state, Z, bound = fed(*noisy_data(5, device)), unit_square(300, 1).to(device), MartingaleMixture(0.1, 20.0, 0.1)
    found = bound.argmax_upper(state, Z)
    for most in (0, 300):
        monkeypatch.setattr(dual, "_TOGETHER", most)
        assert bound.argmax_upper(state, Z) == pytest.approx(found, rel=1e-9)


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf, "large", None])
@pytest.mark.parametrize("name", ["noise_std", "norm_bound", "delta"])
def test_impossible_settings_are_refused(name, value):
    good = {"noise_std": 0.3, "norm_bound": 2.0, "delta": 0.1}
    for make in (
        SelfNormalized,
        MartingaleMixture,
        lambda **kwargs: ImprovedGPUCB(eta=0.01, **kwargs),
        BKB,
        KUCB,
        lambda **kwargs: EKUCB(projection=0.1, **kwargs),
    ):
        kwargs = {"kind": "dmm"} if make is MartingaleMixture else {}
        with pytest.raises(InvalidInput):
            make(**{**good, name: value}, **kwargs)


@pytest.mark.parametrize(
    "kwargs",
    [{"kind": "dnn"}, {"ridges": []}, {"ridges": [1.0, -1.0]}, {"scale": 0.0}, {"kind": "amm", "ridges": [1, 2]}],
)
def test_impossible_mixtures_are_refused(kwargs):
    with pytest.raises(InvalidInput):
        MartingaleMixture(0.3, 2.0, 0.1, **{"kind": "dmm", **kwargs})


# Before the first observation


def test_without_data_the_self_normalised_width_is_noise_plus_norm(device):
    Z, (sigma, B, ridge) = unit_square(3, 1).to(device), (0.3, 8.0, 0.05)
    upper = SelfNormalized(sigma, B, 0.1).upper(KernelRidge(kernel(), ridge), Z)
    close(upper, torch.full_like(upper, sigma * math.sqrt(2 * math.log(10) / ridge) + B))


def test_without_data_the_exact_mixture_is_the_prior_bound(device):
    Z, state = unit_square(3, 1).to(device), KernelRidge(kernel(2.0), 0.1)
    lower, upper = MartingaleMixture(0.3, 8.0, 0.1, "cmm").interval(state, Z)
    close(upper, torch.full_like(upper, 8.0 * math.sqrt(2.0)))
    close(lower, torch.full_like(upper, -8.0 * math.sqrt(2.0)))


def test_without_data_a_mixture_nears_the_prior_bound_as_its_ridge_grows(device):
    Z, state = unit_square(3, 1).to(device), KernelRidge(kernel(2.0), 0.1)
    upper = MartingaleMixture(0.3, 8.0, 0.1, "amm", ridges=[1e9]).upper(state, Z)
    close(upper, torch.full_like(upper, 8.0 * math.sqrt(2.0)), 1e-6)


# One bound against another


numbers = {
    "seed": st.integers(0, 1000),
    "n": st.integers(0, 40),
    "sigma": st.floats(0.1, 2),
    "B": st.floats(2, 20),
    "delta": st.floats(0.001, 0.5),
}


def inside(inner: tuple[Tensor, Tensor], outer: tuple[Tensor, Tensor]) -> bool:
    return bool((inner[0] > outer[0]).all() and (inner[1] < outer[1]).all())


@given(ridge=st.floats(0.01, 10), **numbers)
def test_amm_is_strictly_inside_the_self_normalised_bound_at_equal_ridge(device, seed, n, sigma, B, delta, ridge):
    state, Z = fed(*noisy_data(n, device, seed), ridge), unit_square(30, seed).to(device)
    amm = MartingaleMixture(sigma, B, delta, "amm", scale=sigma**2 / ridge)
    assert inside(amm.interval(state, Z), SelfNormalized(sigma, B, delta).interval(state, Z))


@given(eta=st.floats(1e-3, 1), **numbers)
def test_amm_is_strictly_inside_igp_at_equal_ridge(device, seed, n, sigma, B, delta, eta):
    state, Z = fed(*noisy_data(n, device, seed)), unit_square(30, seed).to(device)
    amm = MartingaleMixture(sigma, B, delta, "amm", scale=sigma**2 / (1 + eta), ridges=[1 + eta])
    assert inside(amm.interval(state, Z), ImprovedGPUCB(sigma, B, delta, eta).interval(state, Z))


def states(X: Tensor, y: Tensor, Z: Tensor, ridge: float) -> dict[str, Posterior]:
    """One set of data behind each kind of state."""
    k = kernel()
    exact, sketch = fed(X, y, ridge, k), NystromRidge(k, ridge, FixedDictionary(unit_square(25, 4).to(X)))
    sketch.update(X, y)
    return {"exact": exact, "tracked": Tracked(exact, Z), "sketched": sketch}


@given(c=st.floats(0.1, 10), log_ridge=st.floats(-4, 4), times=st.floats(1.05, 30), **numbers)
def test_cmm_is_inside_dmm_inside_amm_and_inside_every_ridge(device, seed, n, sigma, B, delta, c, log_ridge, times):
    Z, (X, y) = unit_square(30, seed).to(device), noisy_data(n, device, seed)
    for state in states(X, y, Z, 0.1).values():
        B = max(B, times * float(norm_lower_bound(state, sigma, delta, c)))
        cmm, dmm, amm, other = (
            torch.stack(MartingaleMixture(sigma, B, delta, kind, c, ridges).interval(state, Z))
            for kind, ridges in [("cmm", None), ("dmm", None), ("amm", None), ("amm", [10**log_ridge * sigma**2 / c])]
        )
        sign, rounding = torch.tensor([[-1.0], [1.0]]).to(Z), 1e-7 * cmm.abs()
        assert (sign * cmm <= sign * dmm + 1e-12 * cmm.abs()).all()
        assert (sign * dmm <= sign * amm + 1e-9 * cmm.abs()).all()
        assert (sign * cmm <= sign * other + rounding).all()


@pytest.mark.parametrize("seed", range(0, 25, 3))
def test_the_largest_bound_of_the_exact_mixture_is_found_among_many_arms(device, seed):
    generator = seeded(seed)
    sigma, log_B = 10 ** float(-1.5 * torch.rand(1, generator=generator)), float(2 * torch.rand(1, generator=generator))
    X, y = noisy_data(2 * seed, device, seed, noise_std=sigma)
    Z = torch.cat([unit_square(200, seed).to(device), X])
    for state in states(X, y, Z, sigma**2).values():
        least = float(norm_lower_bound(state, sigma, 0.1))
        confidence = MartingaleMixture(sigma, max(4 * 10**log_B, 1.02 * least), 0.1, "cmm")
        upper, (row, value) = confidence.upper(state, Z), confidence.argmax_upper(state, Z)
        assert value == pytest.approx(float(upper.max()), rel=1e-7)
        assert float(upper[row]) == pytest.approx(float(upper.max()), rel=1e-7)


def largest_value(k: Kernel, X: Tensor, y: Tensor, z: Tensor, radius: float, norm: float) -> float:
    """``max f(z)`` over ``|f(X) - y| <= radius`` and ``||f|| <= norm``, as a cone program."""
    K = gram(k, torch.cat([X, z]), torch.cat([X, z])).cpu()
    L = torch.linalg.cholesky(K + 1e-13 * torch.eye(len(K))).numpy()
    w = cp.Variable(len(K))  # f = L w on X and z, and ||f|| = |w|
    program = cp.Problem(cp.Maximize(L[-1] @ w), [cp.norm(L[:-1] @ w - y.cpu().numpy()) <= radius, cp.norm(w) <= norm])
    return program.solve(solver=cp.CLARABEL)


@pytest.mark.parametrize(
    ("nu", "n", "norm_bound"), [(2.5, 8, 5.0), (1.5, 12, 4.2), (0.5, 10, 6.0), (2.5, 3, 20.0), (None, 8, 5.0)]
)
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


def test_a_norm_bound_far_too_small_is_refuted_with_figures(device):
    state, Z = fed(*noisy_data(100, device, norm=10.0, noise_std=0.1)), unit_square(5, 1).to(device)
    confidence = MartingaleMixture(0.1, 1.0, 0.1, "dmm")
    for question in (confidence.interval, confidence.upper, confidence.lower):
        with pytest.raises(RefutedAssumptions, match="norm_at_least") as caught:
            question(state, Z)
        figures = caught.value.figures
        assert (figures["n"], figures["norm_bound"], figures["noise_std"]) == (100, 1.0, 0.1)
        assert 1.0 < figures["norm_at_least"] <= 10.0


def test_norm_lower_bound_equals_the_dense_formula(device):
    X, y = noisy_data(60, device, norm=10.0, noise_std=0.1)
    ridges = [0.001, 0.01, 0.1]
    close(
        norm_lower_bound(fed(X, y), 0.1, 0.1, 2.0, ridges),
        dense.norm_lower_bound(Dense(kernel(), X, y), ridges, 0.1, 0.1, 2.0),
    )
    fine = np.geomspace(1e-7, 1e3, 4000).tolist()
    close(
        norm_lower_bound(fed(X, y), 0.1, 0.1), dense.norm_lower_bound(Dense(kernel(), X, y), fine, 0.1, 0.1, 1.0), 1e-5
    )


@pytest.mark.parametrize("seed", [0, 3, 7])
def test_the_exact_mixture_is_refuted_exactly_below_the_norm_lower_bound(device, seed):
    X, y = noisy_data(10 + 9 * seed, device, seed, norm=10.0, noise_std=0.1)
    Z = unit_square(20, seed).to(device)
    for state in states(X, y, Z, 0.1).values():
        least = float(norm_lower_bound(state, 0.1, 0.1, 1.5))
        assert 0.1 < least < 10
        lower, upper = MartingaleMixture(0.1, (1 + 1e-5) * least, 0.1, "cmm", 1.5).interval(state, Z)
        assert (lower <= upper).all()
        for question in ("interval", "upper", "lower", "argmax_upper"):
            with pytest.raises(RefutedAssumptions):
                getattr(MartingaleMixture(0.1, (1 - 1e-5) * least, 0.1, "cmm", 1.5), question)(state, Z)


def test_the_norm_lower_bound_of_no_data_is_zero(device):
    assert norm_lower_bound(KernelRidge(kernel(), 0.1), 0.3, 0.1) == 0
    assert norm_lower_bound(fed(*noisy_data(3, device)), 5.0, 0.1) == 0


@pytest.mark.parametrize("ridges", [None, [0.05], np.geomspace(1e-4, 1, 30).tolist()])
def test_a_norm_bound_is_refuted_exactly_below_the_norm_lower_bound(device, ridges):
    state, Z = fed(*noisy_data(100, device, norm=10.0, noise_std=0.1)), unit_square(50, 1).to(device)
    least = float(norm_lower_bound(state, 0.1, 0.1, 1.5, ridges))
    assert 1 < least < 10
    kind = "dmm" if ridges else "cmm"
    lower, upper = MartingaleMixture(0.1, 1.001 * least, 0.1, kind, 1.5, ridges).interval(state, Z)
    assert (lower <= upper + 1e-6).all()
    for question in ("interval", "upper", "lower", "argmax_upper"):
        with pytest.raises(RefutedAssumptions):
            getattr(MartingaleMixture(0.1, 0.999 * least, 0.1, kind, 1.5, ridges), question)(state, Z)


# The promise itself


@pytest.mark.parametrize("name", ["self-normalised", "amm", "dmm", "cmm"])
def test_bounds_hold_at_all_rounds_and_points_more_often_than_promised(device, name):
    bound, runs, broken = next(b for b in BOUNDS if b.name == name), 20, 0
    Z = unit_square(40, 1).to(device)
    for seed in range(runs):
        truth, setting = function(4.0, seed)(Z), Setting(norm_bound=4.0)
        X, y = noisy_data(60, device, seed)
        state, held = KernelRidge(kernel(), setting.ridge), True
        for i in range(0, 60, 10):
            state.update(X[i : i + 10], y[i : i + 10])
            lower, upper = bound.make(setting).interval(state, Z)
            held &= bool(((lower <= truth) & (truth <= upper)).all())
            assert norm_lower_bound(state, setting.noise_std, setting.delta, setting.scale) <= 4.0 or not held
        broken += not held
    assert broken <= SETTING.delta * runs


# Sketches


def sketched_data(seed: int, noise_std: float, n: int = 60) -> tuple[NystromRidge, Tensor, Tensor, Tensor]:
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


@pytest.mark.parametrize("seed", [0, 9, 18, 27, 4, 13, 22, 31])  # each dictionary once, each ridge twice
def test_the_sum_of_leverages_is_at_least_the_exact_effective_dimension(seed):
    state, X, y, _ = sketched_data(seed, 0.3)
    exact, sketch = Dense(kernel(), X, y), Sketched(kernel(), X, y, state.anchors)
    for ridge in (1e-3, 0.05, 2.0, 50.0):
        found = state.leverage_sum(ridge)
        close(found, sketch.leverage_sum(ridge), 1e-4)  # lifted by the rounding of a nearly singular dictionary
        assert float(found) >= (1 - 1e-9) * float(exact.effective_dimension(ridge))
    close(state.leverage_sum(), state.leverage(X).sum(), 1e-4)


WIDE = {
    "self-normalised": lambda state, sigma, delta: SelfNormalized(sigma, 4.0, delta),
    "improved-gp-ucb": lambda state, sigma, delta: ImprovedGPUCB(sigma, 4.0, delta, 0.01),
    "ek-ucb": lambda state, sigma, delta: EKUCB(sigma, 4.0, delta, float(state.residual_norm())),
}


@pytest.mark.parametrize("noise_std", [1e-9, 0.3])
def test_widened_bounds_contain_the_function_whatever_the_dictionary(noise_std):
    """Without noise always, for then only what the sketch misses is to be paid; with noise as often as promised."""
    broken, narrow = dict.fromkeys(WIDE, 0), dict.fromkeys(WIDE, 0)
    for seed in range(64):
        state, _, _, Z = sketched_data(seed, noise_std)
        truth = function(4.0, seed)(Z)
        for name, make in WIDE.items():
            bound = make(state, noise_std, 0.1)
            lower, upper = bound.interval(state, Z)
            broken[name] += not bool(((lower - 1e-7 <= truth) & (truth <= upper + 1e-7)).all())
            mean, variance = state.predict(Z, bound.ridge(state))
            narrow[name] += not bool(((truth - mean).abs() <= 4.0 * variance.sqrt() + 1e-7).all())
            # Anchors as close to dependent as rounding permits have no guarantee at small ridges.
            assert bound.guarantee_on(state) is not None or seed % 8 == 3
    if noise_std > 0.1:
        assert max(broken.values()) <= 6
    else:
        assert max(broken.values()) == 0
        assert min(narrow.values()) > 0  # sometimes the norm bound alone would be too narrow


def sketch_of(dictionary, n: int = 30) -> NystromRidge:
    state = NystromRidge(kernel(), SETTING.ridge, dictionary)
    state.update(*noisy_data(n, "cpu"))
    return state


def test_bkb_claims_something_while_the_sketch_misses_at_most_what_its_radius_covers():
    state = sketch_of(GreedyDictionary(0.2))
    error = float(state.residual_norm()) / SETTING.ridge
    assert error > 1
    enough, short = 1 - 0.999 / error, 1 - 1.001 / error
    assert "for this round" in BKB(0.3, 4.0, 0.1, eps=enough).guarantee_on(state)
    assert BKB(0.3, 4.0, 0.1, eps=short).guarantee_on(state) is None
    assert BKB(0.3, 4.0, 0.1, eps=enough, printed=True).guarantee_on(state) is None
    assert BKB(0.3, 4.0, 0.1, printed=True).guarantee is None
    exact = fed(*noisy_data(30, "cpu"))
    assert BKB(0.3, 4.0, 0.1).guarantee_on(exact) == BKB(0.3, 4.0, 0.1).guarantee


def test_nothing_is_claimed_where_observations_were_imagined():
    state = fed(*noisy_data(30, "cpu"))
    P = unit_square(5, 3)
    batch = BatchView(state, P)
    bounds = (SelfNormalized(0.3, 4.0, 0.1), MartingaleMixture(0.3, 4.0, 0.1), BKB(0.3, 4.0, 0.1))
    assert all(bound.guarantee_on(batch) is not None for bound in bounds)
    batch.observe(2)
    for view in (batch, Hypothetical(state, P), Hypothetical(Hypothetical(state, P), P)):
        assert all(bound.guarantee_on(view) is None for bound in bounds)


def test_ek_ucb_claims_something_while_the_sketch_misses_at_most_its_projection():
    state = sketch_of(GreedyDictionary(0.2))
    error = float(state.residual_norm())
    assert error > 0.01
    enough, short = (EKUCB(0.3, 4.0, 0.1, times * error) for times in (1.001, 0.999))
    assert "for this round" in enough.guarantee_on(state)
    assert short.guarantee_on(state) is KUCB(0.3, 4.0, 0.1).guarantee_on(state) is None
    exact = fed(*noisy_data(30, "cpu"))
    assert short.guarantee_on(exact) is not None
    assert KUCB(0.3, 4.0, 0.1).guarantee_on(exact) is not None


def test_bounds_that_do_not_know_of_sketches_claim_nothing_on_them():
    state = sketch_of(GreedyDictionary(0.2))
    assert FixedWidth(2.0).guarantee_on(state) is None
    for bound in (SelfNormalized(0.3, 4.0, 0.1), ImprovedGPUCB(0.3, 4.0, 0.1, 0.01), MartingaleMixture(0.3, 4.0, 0.1)):
        assert bound.guarantee_on(state) is not None


@given(log_ridge=st.floats(-2, 2), **numbers)
def test_the_log_determinant_is_tighter_than_its_bound_by_the_effective_dimension(
    device, seed, n, sigma, B, delta, log_ridge
):
    state, Z = fed(*noisy_data(n, device, seed), 10**log_ridge), unit_square(30, seed).to(device)
    tight, loose = (make(sigma, B, delta).interval(state, Z) for make in (SelfNormalized, KUCB))
    assert (tight[1] <= loose[1] + 1e-9).all()
    assert (tight[0] >= loose[0] - 1e-9).all()


class _Approximate(View):
    """A posterior that claims an approximation error, however exact it is: bounds must only widen."""

    @property
    def residuals(self):
        return torch.tensor([0.5, 0.2], dtype=torch.float64)

    residual_trace, residual_log_det = Posterior.residual_trace, Posterior.residual_log_det

    def residual_norm(self):
        return torch.tensor(0.3, dtype=torch.float64)


def test_mixtures_widen_by_the_error_of_an_approximate_state_as_the_formula_says():
    X, y = torch.rand(12, 2, dtype=torch.float64), torch.randn(12, dtype=torch.float64)
    kernel = RBFKernel().double()
    state = KernelRidge(kernel, 0.25)
    state.update(X, y)
    view, sigma, B, delta, c = _Approximate(state), 0.5, 4.0, 0.1, 2.0
    bound = MartingaleMixture(sigma, B, delta, "dmm", scale=c)
    missed = math.log1p(0.5 * c / sigma**2) + math.log1p(0.2 * c / sigma**2)
    expected = squared_radius(state, sigma, delta, c) + sigma**2 * missed
    assert float(squared_radius(view, sigma, delta, c)) == pytest.approx(float(expected))
    widened = (expected.sqrt() + B * math.sqrt(0.3)) ** 2
    ridges = X.new_tensor(bound.ridges)
    mean, variance = state.predict(X, ridges)
    width = ((widened + ridges * B**2 - state.quad(ridges)) / ridges).sqrt().unsqueeze(-1)
    close(bound.upper(view, X), (mean + width * variance.sqrt()).amin(0))
    assert bool((bound.upper(view, X) > bound.upper(state, X)).all())


def test_norm_lower_bound_of_an_approximate_state_is_where_its_slack_vanishes():
    X, y = torch.rand(12, 2, dtype=torch.float64), 50 * torch.randn(12, dtype=torch.float64)
    state = KernelRidge(RBFKernel().double(), 0.25)
    state.update(X, y)
    view = _Approximate(state)
    grid = MartingaleMixture(0.1, 1.0, 0.1, "dmm").ridges
    least = float(norm_lower_bound(view, 0.1, 0.1, ridges=grid))
    assert 0 < least < float(norm_lower_bound(state, 0.1, 0.1, ridges=grid))
    assert least < float(norm_lower_bound(view, 0.1, 0.1)) < float(norm_lower_bound(state, 0.1, 0.1))
    assert MartingaleMixture(0.1, 1.0001 * least, 0.1, "dmm").upper(view, X).isfinite().all()
    with pytest.raises(RefutedAssumptions):
        MartingaleMixture(0.1, 0.9999 * least, 0.1, "dmm").upper(view, X)


def test_hallucinated_points_never_refute():
    state = KernelRidge(RBFKernel().double(), 0.1)
    state.update(torch.rand(6, 1, dtype=torch.float64), torch.full((6,), 2.5, dtype=torch.float64))
    P = torch.linspace(0, 1, 40, dtype=torch.float64).unsqueeze(-1)
    for kind in ("dmm", "cmm"):
        lower, upper = MartingaleMixture(1.0, 1.5, 0.1, kind).interval(Hypothetical(state, P), P)
        assert torch.isfinite(lower).all()
        assert torch.isfinite(upper).all()
