"""What is claimed and what is not: guarantees by posterior, bounds that wrap others, laws for one's own posterior."""

import itertools
import re
from pathlib import Path

import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel

import kbo
from kbo.confidence import (
    BKB,
    EKUCB,
    Confidence,
    FiniteSet,
    FixedWidth,
    SelfNormalized,
    certify,
    optimality_gap,
)
from kbo.errors import InvalidInput
from kbo.models import NystromGP
from kbo.optimize.settings.practical import Practical
from kbo.regression import FixedDictionary, FixedPoints, KernelRidge, NystromRidge
from kbo.regression.exact import ExactAt
from kbo.testing import check_posterior
from tests.laws.states import features
from tests.third_party_posterior import LinearRegression

ROOT = Path(kbo.__file__).parent.parent


def test_a_theorem_about_exact_posteriors_claims_nothing_on_a_sketch():
    X = torch.rand(40, 2, dtype=torch.float64)
    sketch, exact = (
        NystromRidge(RBFKernel(), 0.01, FixedDictionary(X[:2])),
        KernelRidge(RBFKernel(), 0.1),
    )
    sketch.update(X, X[:, 0])
    for bound in (FiniteSet(50, 0.1), EKUCB(0.1, 5.0, 0.1, 0.0), BKB(0.1, 5.0, 0.1)):
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
    "norm_factor": lambda: kbo.Optimizer(
        {"x": (0.0, 1.0)}, method="cmm-ucb-practical", setting=Practical()
    ),
    "random": lambda: kbo.minimize(
        lambda p: p["x"], {"x": (0.0, 1.0)}, 5, method="random", stop_at_gap=1.0
    ),
    "columns": lambda: NystromGP(
        torch.rand(5, 2).double(), torch.rand(5, 1).double(), RBFKernel(), 0.1, points(3)
    ),
    "at least one row": lambda: optimality_gap(
        SelfNormalized(1, 1, 0.1), PRIOR, points(2).points[:0]
    ),
    "m must be a whole number": lambda: FixedDictionary.pivoted(RBFKernel(), points(2).points, -1),
    "current": lambda: certify(UNKNOWN, PRIOR, torch.rand(2).double()),
    "state must be a kbo.regression.Posterior": lambda: FixedPoints(RBFKernel(), points(2).points),
}


@pytest.mark.parametrize("words", MISTAKES)
def test_mistakes_are_named_where_they_are_made(words):
    with pytest.raises(InvalidInput, match=words):
        MISTAKES[words]()


@pytest.mark.parametrize("sketched", [False, True])
def test_a_path_stays_what_it_was_when_the_state_learns(sketched):
    X, y = torch.rand(30, 2, dtype=torch.float64), torch.rand(30, dtype=torch.float64)
    state = (
        NystromRidge(RBFKernel(), 0.1, FixedDictionary(X[:8]))
        if sketched
        else KernelRidge(RBFKernel(), 0.1)
    )
    state.update(X[:20], y[:20])
    path, ridges = state.across(X[:5].unsqueeze(-2)), [0.1, 1.0]
    before = path.grid(ridges)
    state.update(X[20:], y[20:])
    state.at(1.0).predict(X)
    for old, now in zip(before, path.grid(ridges), strict=True):
        assert torch.equal(now, old)


# Bounds that wrap others


class Narrowest(Confidence):
    covers: frozenset[str] = frozenset({"sketch", "weights", "moved ridge"})

    def __init__(self, *bounds):
        self.bounds = dict(enumerate(bounds))
        self.guarantee = "holds for all"

    def interval(self, state, X):
        lower, upper = zip(
            *(bound.interval(state, X) for bound in self.bounds.values()), strict=True
        )
        return torch.stack(lower).amax(0), torch.stack(upper).amin(0)


class Doubtful(SelfNormalized):
    def objections(self, state):
        return [*super().objections(state), "the data are doubtful"]


class Independent(Narrowest):
    def _parts(self):
        return []


def written(page: str, start: str):
    """The class that a page defines."""
    lines = (ROOT / page).read_text().split(start)[1].splitlines()
    names = {"Confidence": Confidence}
    exec(
        "\n".join(
            [start, *itertools.takewhile(lambda line: not line or line.startswith(" "), lines[1:])]
        ),
        names,
    )
    return names[start.split()[1].split("(")[0]]


def howto(bound):
    return written("docs/howto.md", "class NonNegative(Confidence):")(bound)


def tutorial(bound):
    return written("tutorials/2_your_own_bound.py", "class KnownRange(Confidence):")(
        bound, -5.0, 5.0
    )


def observed(ridge=None):
    state, X = (
        KernelRidge(MaternKernel(nu=2.5).double(), 0.25),
        torch.linspace(0, 1, 6).double().unsqueeze(-1),
    )
    state.update(X, X.squeeze(-1))
    if ridge is not None:
        state.move_ridge(ridge)
    return state


@pytest.mark.parametrize(
    "wrap", [Narrowest, howto, tutorial, lambda bound: Narrowest(howto(bound))]
)
def test_a_bound_that_wraps_another_has_its_objections(wrap):
    moved, held = (
        observed(ridge=0.5),
        SelfNormalized(0.5, 2.0, 0.1),
    )  # a ridge that was chosen after the data
    for bound, state in [(held, moved), (Doubtful(0.5, 2.0, 0.1), observed())]:
        assert bound.objections(state)
        assert set(bound.objections(state)) <= set(wrap(bound).objections(state))
        assert wrap(bound).guarantee_on(state) is None
    assert not held.objections(observed())
    assert wrap(held).guarantee_on(observed()) is not None
    assert (
        Independent(held).objections(moved) == []
    )  # which says that it does not rest on its parts


# The laws of a posterior, for one's own


class Jittered(KernelRidge):
    def update(self, X, y, weights=None):
        super().update(X + 1e-6, y, weights)


class Shared(KernelRidge):
    def fork(self):
        return self


class Centred(KernelRidge):
    def _at(self, ridge):
        return CentredAt(self, ridge, self.factor(ridge))


class CentredAt(ExactAt):
    def predict(self, X):
        mean, variance = super().predict(X)
        return mean - mean.mean(-1, keepdim=True), variance


class Forgetful(KernelRidge):
    def update(self, X, y, weights=None):
        super().update(X[:1], y[:1], weights)


def test_posteriors_obey_the_laws_or_do_not_pass():
    points, kernel = torch.rand(12, 2, dtype=torch.float64), MaternKernel(nu=2.5).double()
    check_posterior(lambda ridge: KernelRidge(kernel, ridge), points)
    check_posterior(lambda ridge: LinearRegression(features, ridge), points)
    for kind in (Jittered, Shared, Centred, Forgetful):
        with pytest.raises(AssertionError):
            check_posterior(lambda ridge, kind=kind: kind(kernel, ridge), points)


def test_the_page_about_extensions_needs_no_other_file_of_the_repository():
    """Its listings are files of the tests, to which the laws are applied; they and its blocks import kbo alone."""
    page = (ROOT / "docs" / "extending.md").read_text()
    listings = re.findall(r"{literalinclude} \.\./(tests/third_party_\w+\.py)", page)
    assert sorted(listings) == ["tests/third_party_confidence.py", "tests/third_party_posterior.py"]
    for text in (page, *((ROOT / listing).read_text() for listing in listings)):
        assert not re.findall(r"^(?:from|import) tests\b", text, re.MULTILINE)
