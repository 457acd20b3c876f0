"""The sketched posterior: what it leaves out is measured safely, so mixture bounds on it hold for any dictionary.

The laws of every posterior and bound, and their formulas, are in ``tests/laws``.
"""

from __future__ import annotations

import pytest
import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel
from torch import Tensor

from kbo import KernelRidge
from kbo.confidence import MartingaleMixture, SelfNormalized, norm_lower_bound
from kbo.regression import (
    FixedDictionary,
    LeverageResampling,
    NystromRidge,
    OnlineRowSampling,
)
from kbo.regression.sketch.error import BLOCK
from tests import dense
from tests.dense import Sketched, close, gram
from tests.laws.states import matern, normal, rbf, seeded, unit_square
from tests.parts import once


def targets(X: Tensor) -> Tensor:
    return torch.sin(5 * X.sum(-1)) + 0.3 * normal(len(X), 1).to(X)


def fed(kernel: Kernel, points: Tensor, X: Tensor) -> NystromRidge:
    state = NystromRidge(kernel, 0.05, FixedDictionary(points))
    state.update(X, targets(X))
    return state


def error(kernel: Kernel, points: Tensor, X: Tensor) -> Tensor:
    """``K - k(X, Z) k(Z, Z)^+ k(Z, X)``, for any points."""
    values, vectors = torch.linalg.eigh(gram(kernel, points, points))
    kept = values > 1e-13 * values.sum()
    B = gram(kernel, X, points) @ vectors[:, kept] / values[kept].sqrt()
    return gram(kernel, X, X) - B @ B.mT


# Dictionaries that explain nothing, repeat themselves, or are chosen by pivots


def test_what_the_dictionary_leaves_out_is_never_counted_as_explained(device):
    """The variance of a point that the dictionary does not see is that of the prior."""
    X = unit_square(30, 1).to(device)
    for points in (100 + X[:3], X[:0]):
        sketch = fed(rbf(), points, X)
        mean, variance = sketch.predict(X)
        close(mean, torch.zeros_like(mean))
        close(variance, torch.ones_like(mean))
        assert sketch.error.trace == pytest.approx(sketch.trace)
        close(sketch.at().log_det(), X.new_tensor(0.0))
        close(sketch.at().quad(), targets(X).square().sum())
    assert sketch.predict(X[:0])[1].shape == (0,)
    assert sketch.across(X[:0].unsqueeze(-2)).grid([0.1, 1.0]).mean.shape == (2, 0, 1)


def test_a_pivoted_dictionary_takes_the_point_that_is_explained_least_until_all_are(device):
    kernel = matern(1.5)
    X = unit_square(60, 1).to(device)
    chosen = []
    rest = gram(kernel, X, X).diagonal()
    for _ in range(12):
        chosen.append(int((rest > rest.max() - 1e-9).nonzero()[0]))  # the first of several
        rest = error(kernel, X[chosen], X).diagonal()
    assert torch.equal(FixedDictionary.pivoted(kernel, X, 12).points, X[chosen])
    assert len(FixedDictionary.pivoted(matern(0.5), X[:5].repeat(4, 1), 20).points) == 5
    many = unit_square(200, 1).to(device)
    assert len(FixedDictionary.pivoted(rbf(), many, 200, 1e-3).points) < 60


def test_both_forms_of_the_dtc_variance_agree_also_where_the_dictionary_has_no_data(device):
    """One ridge at few points is form (2) of ``inverse_root.py``; many points and many ridges are form (1)."""
    X = unit_square(40, 1).to(device)
    far = 50 + unit_square(6, 2).to(device)
    sketch = fed(matern(1.5), torch.cat([X[:5], far]), X)
    Z = torch.cat([unit_square(500, 3).to(device), X[:5], far])  # more than 32 for each point
    ridges = [0.01, 0.05, 2.0]
    many = sketch.across(Z.unsqueeze(-2)).grid(ridges)
    for i, ridge in enumerate(ridges):
        posterior = sketch.at(ridge)
        few = torch.cat([torch.stack(posterior.predict(part)) for part in Z.split(50)], 1)
        close(torch.stack(posterior.predict(Z)), few, 1e-12)
        close(many.mean[i, :, 0], few[0], 1e-12)
        close(many.covariance[i, :, 0, 0], few[1], 1e-12)
        close(posterior.covariance(Z, Z).diagonal(), few[1], 1e-12)
    for name in ("log_det", "quad", "rss"):
        expected = torch.stack([getattr(sketch.at(ridge), name)() for ridge in ridges])
        close(getattr(sketch.across(), name)(ridges), expected, 1e-12)


# The residual


@pytest.mark.parametrize("n", [1, 32, 33, BLOCK + 1])
def test_the_residual_is_never_below_its_norm_nor_above_its_trace(device, n):
    repeated = unit_square(2, 1)[torch.randint(2, (n,), generator=seeded(1))]
    cases = [
        (matern(0.5), unit_square(n, 0), 20),
        (rbf(), repeated, 3),
        (matern(2.5), 0.05 * unit_square(n, 2), 1),
    ]
    for kernel, X, m in cases if n <= BLOCK else cases[:1]:
        X = X.to(device)
        points = unit_square(m, 9).to(device)
        sketch = fed(kernel, points, X)
        E = error(kernel, points, X)
        bound = float(sketch.error.norm())
        norm = float(torch.linalg.eigvalsh(E)[-1])
        close(sketch.error.trace, E.trace(), 1e-6)
        assert norm <= bound * (1 + 1e-13)  # ulps of the norm that the test computes
        assert bound <= float(sketch.error.trace)
        if 2 * m < n == 32:  # one complete block, whose norm is computed in full
            assert bound <= norm * (1 + 1e-6) + 1e-6


@pytest.mark.parametrize(
    "dictionary",
    [
        OnlineRowSampling(0.1, 1.0, most=5),
        LeverageResampling(3.0, most=5),
    ],
    ids=lambda dictionary: type(dictionary).__name__,
)
def test_the_residual_follows_repeats_and_weights_at_every_moment_of_a_stream(device, dictionary):
    """Also where anchors leave: norms that were computed for earlier ones may be too small."""
    X = unit_square(30, 3).repeat(2, 1).to(device)
    weights = 0.5 + unit_square(60, 6)[:, 0].to(device)
    state = NystromRidge(matern(1.5), 0.1, dictionary)
    for i in range(60):
        state.update(X[i : i + 1], targets(X[i : i + 1]), weights[i : i + 1])
        bound = float(state.error.norm())
        if i % 5 in (0, 1):
            rows, which = X[: i + 1].unique(dim=0, return_inverse=True)
            scale = weights.new_zeros(len(rows)).index_add_(0, which, weights[: i + 1]).sqrt()
            E = scale.outer(scale) * error(matern(1.5), state.anchors, rows)
            each = E.diagonal().clamp_min(0)
            close(state.error.trace, each.sum(), 1e-8)
            for ridge in (0.1, 2.0):
                close(state.error.log_det(ridge), (each / ridge).log1p().sum(), 1e-8)
            assert float(torch.linalg.eigvalsh(E)[-1]) <= bound * (1 + 1e-12) + 1e-12


def test_the_order_of_many_repeats_is_forgotten_and_the_residual_is_bounded(device):
    rows = unit_square(30, 3).to(device)
    points = unit_square(3, 5).to(device)
    state = NystromRidge(rbf(), 0.1, FixedDictionary(points))
    for part in rows.repeat(9 * BLOCK // 30, 1).split(500):
        state.update(part, targets(part))
        trace = state.error.trace
        log_det = state.error.log_det(0.1)
    scale = state.locations[1].sqrt()
    E = scale.outer(scale) * error(rbf(), points, rows)
    assert len(state.sketch.rows.order) < BLOCK
    close(trace, E.trace(), 1e-8)
    close(log_det, (E.diagonal() / 0.1).log1p().sum(), 1e-8)
    norm = torch.linalg.eigvalsh(E)[-1]
    assert norm <= state.error.norm() * (1 + 1e-13) <= 1.05 * norm


# Mixtures


def random_problem(seed: int):
    """Data from a function of known norm, and a dictionary of some kind."""
    generator = seeded(seed)
    d = 1 + seed % 3

    def uniform(n: int) -> Tensor:
        return torch.rand(n, d, generator=generator, dtype=torch.float64)

    n = int(torch.randint(1, 90, (), generator=generator))
    nu = (None, 2.5, 1.5, 0.5)[seed // 7 % 4]
    kernel = MaternKernel(nu=nu).double() if nu else RBFKernel().double()
    kernel.lengthscale = (0.15, 0.4, 1.0)[seed % 3]
    X = uniform(n)
    if seed % 4 == 0:
        X = X[torch.randint(n, (n,), generator=generator)]
    centres = uniform(12)
    weights = torch.randn(12, generator=generator, dtype=torch.float64)
    weights = weights * 3 / torch.sqrt(weights @ gram(kernel, centres, centres) @ weights)
    noise_std = (0.03, 0.1, 0.5)[seed // 3 % 3]
    noise = noise_std * torch.randn(n, generator=generator, dtype=torch.float64)
    y = gram(kernel, X, centres) @ weights + noise
    some = uniform(15)
    dictionaries = [
        FixedDictionary(some),
        FixedDictionary(some[:1]),
        FixedDictionary(some + 50),
        FixedDictionary(some[[0, 1, 0, 2, 1, 0]]),
        FixedDictionary(0.5 + 1e-3 * some),
        FixedDictionary.pivoted(kernel, X, 8),
        FixedDictionary(X),
    ]
    Z = torch.cat([uniform(10), X[:3], centres[:2]])
    exact = KernelRidge(kernel, noise_std**2)
    sketch = NystromRidge(kernel, noise_std**2, dictionaries[seed % 7])
    for state in (exact, sketch):
        state.update(X, y)
    return exact, sketch, Z, noise_std


@pytest.mark.parametrize("seeds", once([range(7), range(7, 70)]), ids=str)
def test_bounds_on_a_sketch_are_never_inside_the_exact_ones(seeds):
    """DMM and AMM on the sketch are compared with the exact CMM too, the maximum over the set of functions."""
    for seed in seeds:
        exact, sketch, Z, noise_std = random_problem(seed)
        B = 3.3 if seed % 5 else 60.0
        scale = (1.0, 0.2)[seed % 2]
        least, guess = (norm_lower_bound(one, noise_std, 0.1, scale) for one in (exact, sketch))
        assert float(guess - least) <= 1e-7 * B, seed
        lower, upper = MartingaleMixture(noise_std, B, 0.1, "cmm", scale).interval(exact, Z)
        for kind in ("cmm", "dmm", "amm"):
            wide = MartingaleMixture(noise_std, B, 0.1, kind, scale).interval(sketch, Z)
            assert (wide[0] <= lower + 1e-7).all(), seed
            assert (wide[1] >= upper - 1e-7).all(), seed


def test_the_norm_lower_bound_of_a_sketch_is_where_its_set_of_functions_becomes_empty(device):
    X = unit_square(80, 1).to(device)
    y = 30 * targets(X)
    points = unit_square(25, 2).to(device)
    sketch = NystromRidge(matern(2.5), 0.1, FixedDictionary(points))
    sketch.update(X, y)
    reference = Sketched(matern(2.5), X, y, points)
    ridges = torch.logspace(-6, 4, 400, dtype=torch.float64, device=device)
    quad = reference.quad(ridges.tolist())
    radius = dense.squared_radius(reference, 0.1, 0.1, 1.0).sqrt()
    error = float(sketch.error.norm()) ** 0.5

    def is_empty(B: float) -> bool:
        return bool(((radius + B * error) ** 2 + ridges * B**2 < quad).any())

    low = 0.0
    high = 1e4
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        if is_empty(middle):
            low = middle
        else:
            high = middle
    assert low > 1
    assert float(norm_lower_bound(sketch, 0.1, 0.1)) == pytest.approx(low, rel=1e-3)
    on_grid = norm_lower_bound(sketch, 0.1, 0.1, ridges=ridges.tolist())
    assert float(on_grid) == pytest.approx(low, rel=1e-7)


def test_a_sketch_need_not_contain_a_bound_that_is_wider_than_the_exact_mixture():
    """One observation: exact AMM and AY are far wider than the exact maximum, and wider than their sketched forms."""
    Z = torch.linspace(0, 1, 11, dtype=torch.float64).unsqueeze(-1)
    exact = KernelRidge(rbf(), 0.001)
    sketch = NystromRidge(rbf(), 0.001, FixedDictionary(Z[2:3]))
    for state in (exact, sketch):
        state.update(Z[:1], Z.new_tensor([0.5]))
    amm = MartingaleMixture(0.1, 1.0, 0.1, "amm", 10.0)
    for bound in (amm, SelfNormalized(0.1, 1.0, 0.1)):
        lower, upper = bound.interval(exact, Z)
        low, high = bound.interval(sketch, Z)
        inside = torch.maximum(low - lower, upper - high)
        assert (inside > 0.1 * (upper - lower)).any()
