"""What is claimed and what is not: guarantees by posterior, and cautious practical intervals."""

import pytest
import torch
from gpytorch.kernels import RBFKernel

import kbo
from kbo.confidence import BKB, KUCB, FiniteSet, FixedWidth, SelfNormalized, certify, optimality_gap
from kbo.errors import InvalidInput
from kbo.models import NystromGP
from kbo.optimize.settings import Practical
from kbo.regression import FixedDictionary, KernelRidge, NystromRidge, Tracked


def test_a_theorem_about_exact_posteriors_claims_nothing_on_a_sketch():
    X = torch.rand(40, 2, dtype=torch.float64)
    sketch, exact = NystromRidge(RBFKernel(), 0.01, FixedDictionary(X[:2])), KernelRidge(RBFKernel(), 0.1)
    sketch.update(X, X[:, 0])
    for bound in (FiniteSet(50, 0.1), KUCB(0.1, 5.0, 0.1), BKB(0.1, 5.0, 0.1)):
        assert bound.guarantee_on(sketch) is None
        assert bound.guarantee_on(exact) == bound.guarantee is not None
    assert FixedWidth(2.0).guarantee_on(exact) is None


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


def points(dim: int) -> FixedDictionary:
    return FixedDictionary(torch.rand(5, dim, dtype=torch.float64))


PRIOR = KernelRidge(RBFKernel(), 1)
UNKNOWN = kbo.confidence.UnknownNorm(0.1, 0.1)
MISTAKES = {
    "noise_std": lambda: kbo.Certified(RBFKernel(), -0.1, 1.0),
    "kernel": lambda: kbo.Certified("rbf", 0.1, 1.0),
    "delta": lambda: kbo.Certified(RBFKernel(), 0.1, 1.0, 2.0),
    "norm_factor": lambda: kbo.Optimizer({"x": (0.0, 1.0)}, method="cmm-ucb-practical", setting=Practical()),
    "random": lambda: kbo.minimize(lambda p: p["x"], {"x": (0.0, 1.0)}, 5, method="random", stop_at_gap=1.0),
    "columns": lambda: NystromGP(torch.rand(5, 2).double(), torch.rand(5, 1).double(), RBFKernel(), 0.1, points(3)),
    "at least one row": lambda: optimality_gap(SelfNormalized(1, 1, 0.1), PRIOR, points(2).points[:0]),
    "m must be a whole number": lambda: FixedDictionary.pivoted(RBFKernel(), points(2).points, -1),
    "in_force": lambda: certify(UNKNOWN, PRIOR, torch.rand(2).double()),
    "state must be a kbo.regression.Posterior": lambda: Tracked(RBFKernel(), points(2).points),
}


@pytest.mark.parametrize("words", MISTAKES)
def test_mistakes_are_named_where_they_are_made(words):
    with pytest.raises(InvalidInput, match=words):
        MISTAKES[words]()


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
        assert torch.equal(now, old)
