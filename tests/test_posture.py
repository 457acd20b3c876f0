"""What is claimed and what is not: guarantees by posterior, refutation, cautious practical intervals."""

import math

import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel

import kbo
from kbo.confidence import (
    BKB,
    KUCB,
    FiniteSet,
    FixedWidth,
    ImprovedGPUCB,
    MartingaleMixture,
    SelfNormalized,
    certify,
    optimality_gap,
    widths,
)
from kbo.errors import InvalidInput, RefutedAssumptions
from kbo.models import NystromGP
from kbo.optimize.settings import Practical
from kbo.problems import RKHSBandit
from kbo.regression import FixedDictionary, KernelRidge, NystromRidge, Tracked


def on_a_bad_sketch(seed: int = 0):
    problem = RKHSBandit("rbf", 0.3, dim=2, norm=5.0, seed=seed)
    far = 0.1 * torch.rand(6, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    state = NystromRidge(problem.kernel, 0.01, FixedDictionary(far))
    X = torch.rand(400, 2, generator=torch.Generator().manual_seed(seed + 1), dtype=torch.float64)
    state.update(X, problem.observe(X))
    return problem, state, torch.rand(200, 2, dtype=torch.float64)


def test_a_theorem_about_exact_posteriors_claims_nothing_on_a_sketch():
    _, state, _ = on_a_bad_sketch()
    for bound in (FiniteSet(50, 0.1), KUCB(0.1, 5.0, 0.1), BKB(0.1, 5.0, 0.1)):
        assert bound.guarantee_on(state) is None
        assert bound.guarantee_on(KernelRidge(RBFKernel(), 0.1)) == bound.guarantee is not None


BOUNDS = {
    "self-normalised": SelfNormalized(0.1, 5.0, 0.1),
    "improved-gp-ucb": ImprovedGPUCB(0.1, 5.0, 0.1, 0.01),
    "cmm": MartingaleMixture(0.1, 5, 0.1),
}


def test_what_claims_a_guarantee_on_a_bad_sketch_holds_there():
    failed = {**dict.fromkeys(BOUNDS, 0), "as if exact": 0}
    for seed in range(5):
        problem, state, Z = on_a_bad_sketch(seed)
        as_if_exact = widths.abbasi_yadkori(state.log_det(), state.ridge, 0.1, 5.0, 0.1)
        truth = problem.mean(Z)
        for name, bound in {**BOUNDS, "as if exact": FixedWidth(float(as_if_exact))}.items():
            lower, upper = bound.interval(state, Z)
            failed[name] += not bool(((lower <= truth) & (truth <= upper)).all())
            assert (bound.guarantee_on(state) == bound.guarantee is not None) == (name in BOUNDS)
    assert failed.pop("as if exact") > 0
    assert not any(failed.values())


@pytest.mark.parametrize("method", ["amm-ucb", "ay-gp-ucb", "dmm-ucb", "cmm-ucb"])
def test_every_certified_method_reports_a_contradiction(method):
    kernel = MaternKernel(nu=2.5).double()
    kernel.lengthscale = 1.0
    setting = kbo.Certified(kernel, noise_std=0.1, norm_bound=0.5, delta=0.1)
    with pytest.raises(RefutedAssumptions, match="larger norm"):
        kbo.minimize(lambda p: 5 * math.sin(9 * p["x"]), {"x": (0.0, 1.0)}, 20, method=method, setting=setting)


def test_a_practical_interval_usually_holds_the_truth_and_its_mean_lies_inside():
    noise, inside, at_an_end = torch.Generator().manual_seed(0), 0, 0
    for seed in range(4):

        def objective(p):
            return -2.5 + 8 * (p["x"] - 0.6) ** 2 + 0.2 * float(torch.randn((), generator=noise))

        result = kbo.minimize(objective, {"x": (0.0, 1.0)}, 20, seed=seed)
        truth = -2.5 + 8 * (result.params["x"] - 0.6) ** 2
        inside += result.lower <= truth <= result.upper
        at_an_end += result.value in (result.lower, result.upper)
    assert inside >= 3
    assert at_an_end == 0


@pytest.mark.parametrize("method", ["cmm-ucb-doubling", "cmm-ucb-practical"])
def test_the_practical_setting_guesses_the_norm_itself(method):
    with pytest.raises(InvalidInput, match="norm_factor"):
        kbo.Optimizer({"x": (0.0, 1.0)}, method=method, setting=Practical())


def test_a_method_without_bounds_cannot_stop_on_a_gap():
    with pytest.raises(InvalidInput, match="random"):
        kbo.minimize(lambda p: p["x"], {"x": (0.0, 1.0)}, 5, method="random", stop_at_gap=1.0)


@pytest.mark.parametrize(
    ("what", "build"),
    [
        ("noise_std", lambda: kbo.Certified(RBFKernel(), -0.1, 1.0)),
        ("kernel", lambda: kbo.Certified("rbf", 0.1, 1.0)),
        ("delta", lambda: kbo.Certified(RBFKernel(), 0.1, 1.0, 2.0)),
        ("noise_std", lambda: kbo.confidence.UnknownNorm(-0.1, 0.1)),
        (
            "columns",
            lambda: NystromGP(torch.rand(5, 2).double(), torch.rand(5, 1).double(), RBFKernel(), 0.1, points(3)),
        ),
        (
            "at least one row",
            lambda: optimality_gap(SelfNormalized(1, 1, 0.1), KernelRidge(RBFKernel(), 1), points(2).points[:0]),
        ),
        ("m must be a whole number of at least 1", lambda: FixedDictionary.pivoted(RBFKernel(), points(2).points, -1)),
        (
            "in_force",
            lambda: certify(kbo.confidence.UnknownNorm(0.1, 0.1), KernelRidge(RBFKernel(), 1), torch.rand(2).double()),
        ),
        ("state must be a kbo.regression.Posterior", lambda: Tracked(RBFKernel(), points(2).points)),
    ],
)
def test_mistakes_are_named_where_they_are_made(what, build):
    with pytest.raises(InvalidInput, match=what):
        build()


def points(dim: int) -> FixedDictionary:
    return FixedDictionary(torch.rand(5, dim, dtype=torch.float64))


def test_tracked_points_are_recognised_by_what_they_are():
    X = torch.rand(3, 3, dtype=torch.float64)
    state = KernelRidge(RBFKernel(), 0.1)
    state.update(torch.rand(4, 3, dtype=torch.float64), torch.rand(4, dtype=torch.float64))
    tracked = Tracked(state, X)
    for ridge in (None, [0.1, 1.0]):
        for Z in (X, X.T, X.unsqueeze(-2), X[0], X[:1]):
            actual, expected = torch.stack(tracked.predict(Z, ridge)), torch.stack(state.predict(Z, ridge))
            torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("sketched", [False, True])
def test_a_path_stays_what_it_was_when_the_state_learns(sketched):
    X, y = torch.rand(30, 2, dtype=torch.float64), torch.rand(30, dtype=torch.float64)
    state = NystromRidge(RBFKernel(), 0.1, FixedDictionary(X[:8])) if sketched else KernelRidge(RBFKernel(), 0.1)
    state.update(X[:20], y[:20])
    path, ridges = state.all_ridges().path(X[:5].unsqueeze(-2)), torch.tensor([0.1, 1.0], dtype=torch.float64)
    before = path.grid(ridges)
    state.update(X[20:], y[20:])
    state.predict(X, [0.1, 1.0])
    for old, now in zip(before, path.grid(ridges), strict=True):
        torch.testing.assert_close(now, old, rtol=0, atol=0)
