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
    UnknownNorm,
    certify,
    optimality_gap,
)
from kbo.errors import InvalidInput
from kbo.models import NystromGP
from kbo.regression import FixedDictionary, FixedPoints, KernelRidge, NystromRidge
from kbo.regression.exact import ExactAt
from kbo.testing import check_posterior
from tests.laws.states import features
from tests.third_party_posterior import LinearRegression

ROOT = Path(kbo.__file__).parent.parent
LINE = {"x": (0.0, 1.0)}
POINTS = torch.rand(30, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
PRIOR = KernelRidge(RBFKernel(), 1)


def posteriors():
    sketch = NystromRidge(RBFKernel(), 0.1, FixedDictionary(POINTS[:3]))
    exact = KernelRidge(RBFKernel(), 0.1)
    for state in (sketch, exact):
        state.update(POINTS[:20], POINTS[:20, 0])
    return sketch, exact


def test_a_theorem_about_exact_posteriors_claims_nothing_on_a_sketch():
    sketch, exact = posteriors()
    for bound in (FiniteSet(50, 0.1), EKUCB(0.1, 5.0, 0.1, 0.0), BKB(0.1, 5.0, 0.1)):
        assert bound.guarantee_on(sketch) is None
        assert bound.guarantee_on(exact) == bound.guarantee is not None
    assert FixedWidth(2.0).guarantee_on(exact) is None


MISTAKES = {
    "noise_std": lambda: kbo.Certified(RBFKernel(), -0.1, 1.0),
    "kernel": lambda: kbo.Certified("rbf", 0.1, 1.0),
    "delta": lambda: kbo.Certified(RBFKernel(), 0.1, 1.0, 2.0),
    "norm_factor": lambda: kbo.Optimizer(LINE, method="cmm-ucb-practical", setting=kbo.Practical()),
    "random": lambda: kbo.minimize(len, LINE, 5, method="random", stop_at_gap=1.0),
    "columns": lambda: NystromGP(
        POINTS, POINTS[:, :1], RBFKernel(), 0.1, FixedDictionary(torch.rand(5, 3).double())
    ),
    "at least one row": lambda: optimality_gap(SelfNormalized(1, 1, 0.1), PRIOR, POINTS[:0]),
    "m must be a whole number": lambda: FixedDictionary.pivoted(RBFKernel(), POINTS, -1),
    "current": lambda: certify(UnknownNorm(0.1, 0.1), PRIOR, POINTS[0]),
    "state must be a kbo.regression.Posterior": lambda: FixedPoints(RBFKernel(), POINTS),
}


@pytest.mark.parametrize("words", MISTAKES)
def test_mistakes_are_named_where_they_are_made(words):
    with pytest.raises(InvalidInput, match=words):
        MISTAKES[words]()


def test_a_path_stays_what_it_was_when_the_state_learns():
    for state in posteriors():
        path = state.across(POINTS[:5].unsqueeze(-2))
        before = path.grid([0.1, 1.0])
        state.update(POINTS[20:], POINTS[20:, 1])
        state.at(1.0).predict(POINTS)
        for old, now in zip(before, path.grid([0.1, 1.0]), strict=True):
            assert torch.equal(now, old)


# Bounds that wrap others


class Narrowest(Confidence):
    covers: frozenset[str] = frozenset({"sketch", "weights", "moved ridge"})

    def __init__(self, *bounds):
        self.bounds = dict(enumerate(bounds))
        self.guarantee = "holds for all"

    def interval(self, state, X):
        intervals = [bound.interval(state, X) for bound in self.bounds.values()]
        lower, upper = zip(*intervals, strict=True)
        return torch.stack(lower).amax(0), torch.stack(upper).amin(0)


class Doubtful(SelfNormalized):
    def objections(self, state):
        return [*super().objections(state), "the data are doubtful"]


class Independent(Narrowest):
    def _parts(self):
        return []


def written(page, start):
    """The class that a page defines."""
    lines = (ROOT / page).read_text().split(start)[1].splitlines()[1:]
    body = itertools.takewhile(lambda line: not line or line.startswith(" "), lines)
    names = {"Confidence": Confidence}
    exec("\n".join([start, *body]), names)
    return names[start.split()[1].split("(")[0]]


def howto(bound):
    return written("docs/howto.md", "class NonNegative(Confidence):")(bound)


def tutorial(bound):
    known_range = written("tutorials/2_your_own_bound.py", "class KnownRange(Confidence):")
    return known_range(bound, -5.0, 5.0)


@pytest.mark.parametrize(
    "wrap", [Narrowest, howto, tutorial, lambda bound: Narrowest(howto(bound))]
)
def test_a_bound_that_wraps_another_has_its_objections(wrap):
    _, observed = posteriors()
    _, moved = posteriors()
    moved.move_ridge(0.5)  # chosen after the data
    held = SelfNormalized(0.5, 2.0, 0.1)
    for bound, state in [(held, moved), (Doubtful(0.5, 2.0, 0.1), observed)]:
        assert bound.objections(state)
        assert set(bound.objections(state)) <= set(wrap(bound).objections(state))
        assert wrap(bound).guarantee_on(state) is None
    assert not held.objections(observed)
    assert wrap(held).guarantee_on(observed) is not None
    assert Independent(held).objections(moved) == [], "it says that it does not rest on its parts"


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
    kernel = MaternKernel(nu=2.5).double()
    check_posterior(lambda ridge: KernelRidge(kernel, ridge), POINTS[:12])
    check_posterior(lambda ridge: LinearRegression(features, ridge), POINTS[:12])
    for kind in (Jittered, Shared, Centred, Forgetful):
        with pytest.raises(AssertionError):
            check_posterior(lambda ridge, kind=kind: kind(kernel, ridge), POINTS[:12])


def test_the_page_about_extensions_needs_no_other_file_of_the_repository():
    """Its listings are files of the tests, to which the laws are applied; they and its blocks import kbo alone."""
    page = (ROOT / "docs" / "extending.md").read_text()
    listings = re.findall(r"{literalinclude} \.\./(tests/third_party_\w+\.py)", page)
    assert sorted(listings) == ["tests/third_party_confidence.py", "tests/third_party_posterior.py"]
    for text in (page, *((ROOT / listing).read_text() for listing in listings)):
        assert not re.findall(r"^(?:from|import) tests\b", text, re.MULTILINE)
