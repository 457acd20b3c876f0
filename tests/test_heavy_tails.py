"""Noise with a bounded variance: what clipping leaves of it, the bounds against dense formulas, and their coverage.

``python -m tests.test_heavy_tails`` prints the table of docs/theory/heavy_tails.md.
"""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel
from torch import Tensor

from kbo import KernelRidge
from kbo.confidence import AdaptiveMixture, Clipped, HeavyTailed, MartingaleMixture, NoiseBounds, SelfNormalized
from kbo.confidence.heavy_tails import bias_at, level
from kbo.errors import InvalidInput
from kbo.regression import AdaptiveRidge, FixedDictionary, NystromRidge, Posterior, View, track
from tests.dense import Dense, Sketched, close, gram
from tests.laws.states import rbf, seeded, unit_square


def student(shape: tuple[int, ...], seed: int) -> Tensor:
    """Student's t with 2.5 degrees of freedom, of variance 1: its fourth moment is infinite."""
    rng = seeded(seed)
    square = 2 * torch._standard_gamma(torch.full(shape, 1.25, dtype=torch.float64), generator=rng)
    return torch.randn(shape, generator=rng, dtype=torch.float64) / (square / 2.5).sqrt() / math.sqrt(5)


@pytest.mark.parametrize("seed", range(20))
def test_clipped_noise_is_sub_gaussian_of_its_level_with_little_bias(seed):
    """Laws on a few points with standard deviation s, among them those of two points, on which the proofs are sharp."""
    rng = seeded(seed)
    s, b, width = (float(v) for v in torch.exp(torch.randn(3, generator=rng, dtype=torch.float64)))
    e = torch.randn(2 + seed % 4, generator=rng, dtype=torch.float64) * 10 ** (
        2 * torch.rand(1, generator=rng).double()
    )
    p = torch.rand(len(e), generator=rng, dtype=torch.float64) ** 4
    p = p / p.sum()
    e = e - p @ e
    e = s * e / (p @ e.square()).sqrt()
    rates = torch.linspace(-20, 20, 401, dtype=torch.float64) / s
    for f in (0.0, 0.3 * width, width):  # the function, between l = 0 and u = width
        clipped = (f + e).clamp(-b, width + b)
        centred = clipped - p @ clipped
        assert abs(float(p @ clipped) - f) <= bias_at(b, s) * (1 + 1e-12)
        moment = torch.logsumexp(rates[:, None] * centred + p.log(), -1)
        assert (moment <= rates.square() * level(width, b, s) ** 2 / 2 + 1e-12).all()


def test_bias_and_level_are_attained():
    s, b = 0.7, 1.3
    root = math.hypot(s, b)  # Scarf's law: E (e - b)+ is largest on b -+ sqrt(s^2 + b^2)
    up = (root - b) / (2 * root)
    assert up * (b + root) ** 2 + (1 - up) * (b - root) ** 2 == pytest.approx(s**2)
    assert up * root == pytest.approx(bias_at(b, s))
    c = b + bias_at(b, s)
    p, rate = s**2 / (s**2 + c**2), 2 * math.log((c / s) ** 2) / (c + s**2 / c)
    moment = math.log(p * math.exp(rate * c) + (1 - p) * math.exp(-rate * s**2 / c))
    assert moment == pytest.approx(rate**2 * level(0.0, b, s) ** 2 / 2)


def reference(y: Tensor, s: float, B: float, delta: float, a: float) -> tuple[Tensor, Tensor]:
    """Lower and upper bounds [R n + 1] before and after every pull of one arm with k = 1, for targets y [R n]."""
    t = s * 0.5 * 1.05 ** torch.arange(100).double()
    W, S, square = (torch.zeros(len(y), dtype=torch.float64) for _ in range(3))
    lower, upper = [], []
    for i in range(y.shape[1] + 1):
        radius = torch.log1p(W / a) + 2 * math.log(1 / delta)
        margin = (torch.sqrt(s**2 * radius + a * B**2) + square.sqrt()) / math.sqrt(a) * torch.sqrt(a / (W + a))
        lower.append(S / (W + a) - margin)
        upper.append(S / (W + a) + margin)
        if i == y.shape[1]:
            return torch.stack(lower, 1), torch.stack(upper, 1)
        low, high = lower[-1].clamp_min(-B), upper[-1].clamp_max(B)
        beta = (torch.sqrt(s**2 + t**2) - t) / 2
        c = ((high - low)[:, None] + t + beta).clamp_min(s)
        two_point = torch.sqrt((c**4 - s**4) / (4 * c**2 * torch.log(c / s)))
        kappa = torch.minimum((high - low)[:, None] / 2 + t, torch.where(c > s, two_point, s))
        best = (radius.sqrt()[:, None] * kappa + math.sqrt(i + 1) * beta).argmin(1)
        w = (s / kappa.gather(1, best[:, None])[:, 0]) ** 2
        square = square + w * beta[best] ** 2
        W, S = W + w, S + w * torch.minimum(torch.maximum(y[:, i], low - t[best]), high + t[best])
    raise AssertionError


def test_pulls_of_one_arm_equal_the_reference(device):
    y, x = 1.5 + 0.5 * student((2, 25), 3), torch.zeros(1, 1, dtype=torch.float64, device=device)
    lower, upper = reference(y, 0.5, 2.0, 0.1, 0.7)
    for run in range(2):
        state = Clipped(KernelRidge(rbf(), 0.7), bounds := HeavyTailed(0.5, 2.0, 0.1))
        found = [torch.cat(bounds.interval(state, x))]
        for target in y[run].to(device):
            state.update(x, target.reshape(1))
            found.append(torch.cat(bounds.interval(state, x)))
        close(torch.stack(found, 1).cpu(), torch.stack([lower[run], upper[run]]))


def test_coverage_where_bounds_for_sub_gaussian_noise_of_that_deviation_fail():
    """Runs of 60 pulls, the arm at the norm bound."""
    runs, delta = 8000, 0.001
    y = 1 + student((runs, 60), 0)
    lower, upper = reference(y, 1.0, 1.0, delta, 1.0)
    assert int(((lower > 1) | (upper < 1)).any(1).sum()) <= runs * delta
    n, total = torch.arange(1, 61).double(), y.cumsum(1)
    cost, deviation = torch.log1p(n) + 2 * math.log(1 / delta), torch.sqrt(1 / (n + 1))
    missed = (total / (n + 1) - 1).abs()
    ay, amm = (cost.sqrt() + 1) * deviation, (cost + 1).sqrt() * deviation
    outside_F = (y - 1).square().cumsum(1) > y.square().cumsum(1) - total.square() / (n + 1) + cost
    for failed in (missed > ay, missed > amm, outside_F):  # the last one is the set of CMM
        assert int(failed.any(1).sum()) > 5 * runs * delta


class Recorded(View):
    """The targets and weights that a posterior takes in."""

    def __init__(self, state: Posterior) -> None:
        super().__init__(state)
        self.seen: list[tuple[Tensor, Tensor]] = []

    def update(self, X: Tensor, y: Tensor, weights: Tensor | None = None) -> None:
        self.seen.append((y, weights))
        super().update(X, y, weights)


@pytest.mark.parametrize("sketched", [False, True])
def test_the_interval_is_that_of_the_dense_formulas(sketched):
    X, Z, ridge, bounds = unit_square(30, 1), unit_square(6, 2), 0.3, HeavyTailed(0.3, 4.0, 0.1)
    anchors = unit_square(8, 4)
    state = Clipped(
        NystromRidge(rbf(), ridge, FixedDictionary(anchors)) if sketched else KernelRidge(rbf(), ridge), bounds
    )
    state.state = inner = Recorded(state.state)
    state.update(X, X.sin().sum(-1) + 0.3 * student((30,), 1))
    y, w = (torch.cat(part) for part in zip(*inner.seen, strict=True))
    d = Sketched(rbf(), X, y, anchors, w) if sketched else Dense(rbf(), X, y, w)
    error = float(state.residual_norm())
    missed = 4.0 * math.sqrt(error)
    noise = 0.09 * (d.log_det(ridge) + state.residual_log_det(ridge) + 2 * math.log(10))
    square = ((d.quad(ridge) + noise).sqrt() + state.bias + missed) ** 2 - (
        (d.quad(ridge) + noise).sqrt() + state.bias
    ) ** 2
    width = (torch.sqrt(noise + square + ridge * 16) + state.bias) / math.sqrt(ridge)
    mean, variance = d.predict(Z, ridge)
    close(
        torch.stack(bounds.interval(state, Z)),
        torch.stack([mean - width * variance.sqrt(), mean + width * variance.sqrt()]),
    )
    assert (error > 0) == sketched


def test_only_the_bounds_that_clipped_the_targets_prove_something():
    X, bounds = unit_square(10, 1), HeavyTailed(0.3, 4.0, 0.1)
    state = Clipped(KernelRidge(rbf(), 0.3), bounds)
    state.update(X, student((10,), 2))
    plain = KernelRidge(rbf(), 0.3)
    plain.update(X, student((10,), 2))
    for view in (state, state.fork(), track(state, X)):
        assert HeavyTailed(0.3, 4.0, 0.1).guarantee_on(view) == bounds.guarantee
    assert HeavyTailed(0.3, 4.0, 0.2).guarantee_on(state) is bounds.guarantee_on(plain) is None
    for other in (SelfNormalized(0.3, 4.0, 0.1), MartingaleMixture(0.3, 4.0, 0.1)):
        assert any("clipped" in reason for reason in other.objections(state))
        assert other.guarantee_on(plain) is not None
    with pytest.raises(InvalidInput, match="clipped for"):
        Clipped(KernelRidge(rbf(), 0.3), HeavyTailed(0.3, 4.0, 0.2)).load_state_dict(state.state_dict())
    state.state.update(X[:1], X[:1, 0])  # past the clipping
    assert bounds.guarantee_on(state) is None
    with pytest.raises(InvalidInput, match="empty"):
        Clipped(plain, bounds)


def test_saved_forked_and_in_blocks_it_continues_the_same():
    X, y, bounds = unit_square(20, 1), student((20,), 2), HeavyTailed(0.3, 2.0, 0.1)
    whole, parts, loaded = (Clipped(KernelRidge(rbf(), 0.3), bounds) for _ in range(3))
    weights = torch.rand(20, generator=seeded(1), dtype=torch.float64) + 0.5
    whole.update(X, y, weights)
    parts.update(X[:12], y[:12], weights[:12])
    loaded.load_state_dict(parts.state_dict())
    for state in (loaded, parts.fork()):
        state.update(X[12:], y[12:], weights[12:])
        close(torch.stack(bounds.interval(state, X)), torch.stack(bounds.interval(whole, X)), 1e-10)
        assert state.bias == pytest.approx(whole.bias, rel=1e-10)
        assert "weight" in str(bounds.guarantee_on(state))
    assert parts.n == 12


class FixedLevels(HeavyTailed):
    """Levels of clipping that know the norm bound only, and no bounds so far: Chowdhury & Gopalan (2019)."""

    def interval(self, state: Posterior, X: Tensor) -> tuple[Tensor, Tensor]:
        infinite = torch.full_like(X[:, 0], math.inf)
        return -infinite, infinite


def main() -> None:
    """Print mean half widths over 200 points of the unit square, and runs with a point outside, for docs/theory."""
    kernels = {
        "RBF 0.5": (RBFKernel, {}, 0.5),
        "RBF 0.2": (RBFKernel, {}, 0.2),
        "Matern 5/2 0.5": (MaternKernel, {"nu": 2.5}, 0.5),
        "Matern 3/2 0.2": (MaternKernel, {"nu": 1.5}, 0.2),
    }
    B, delta, Z = 3.0, 0.05, unit_square(200, 99)
    for (name, (kind, arguments, lengthscale)), s in itertools.product(kernels.items(), (1.5, 0.3, 0.03)):
        kernel = kind(**arguments).double()
        kernel.lengthscale = lengthscale
        centres, coefficients = unit_square(20, 7), torch.randn(20, generator=seeded(7), dtype=torch.float64)
        coefficients = coefficients * B / torch.sqrt(coefficients @ gram(kernel, centres, centres) @ coefficients)
        X, ridge, bounds = unit_square(1000, 8), (4 * s / B) ** 2, HeavyTailed(s, B, delta)
        y = gram(kernel, X, centres) @ coefficients + s * student((1000,), 9)
        truth = gram(kernel, Z, centres) @ coefficients
        clipped, fixed = (
            Clipped(KernelRidge(kernel, ridge), bounds),
            Clipped(KernelRidge(kernel, ridge), FixedLevels(s, B, delta)),
        )
        plain = KernelRidge(kernel, s**2)
        for start, stop in ((0, 100), (100, 400), (400, 1000)):
            row = []
            for state in (clipped, fixed, plain):
                state.update(X[start:stop], y[start:stop])
            for state, confidence in (
                (clipped, bounds),
                (fixed, bounds),
                (plain, SelfNormalized(s, B, delta)),
                (plain, MartingaleMixture(s, B, delta)),
            ):
                lower, upper = confidence.interval(state, Z)
                inside = bool(((lower <= truth) & (truth <= upper)).all())
                row.append(f"{float((upper - lower).mean()) / 2:.3f}{'' if inside else '!'}")
            print(f"| {name} | {B / s:g} | {stop} | " + " | ".join(row) + " |", flush=True)


def test_bounds_of_an_unknown_noise_level_refuse_clipped_targets():
    bounds = NoiseBounds(5.0, 0.1, variant="mixture")
    state = AdaptiveRidge(Clipped(KernelRidge(RBFKernel().double(), 1.0), HeavyTailed(0.1, 0.3, 0.1)), bounds)
    X = torch.rand(20, 1, dtype=torch.float64)
    state.update(X, 2 + 0.1 * torch.randn(20, dtype=torch.float64))
    assert any("clipped" in reason for reason in AdaptiveMixture().objections(state))


if __name__ == "__main__":
    main()
