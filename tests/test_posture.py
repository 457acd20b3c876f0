"""What is claimed and what is not: guarantees by posterior, bounds that wrap others, laws for one's own posterior."""

import itertools
import re
from functools import partial
from pathlib import Path

import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel

import kbo
from kbo.confidence import (
    BKB,
    EKUCB,
    Confidence,
    ImprovedGPUCB,
    MartingaleMixture,
    SelfNormalized,
    norm_lower_bound,
)
from kbo.regression import KernelRidge
from kbo.regression.exact.kernel_ridge import ExactAt
from kbo.testing import check_posterior
from tests.laws.states import features
from tests.third_party_posterior import LinearRegression

ROOT = Path(kbo.__file__).parent.parent
POINTS = torch.rand(30, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def observed():
    state = KernelRidge(RBFKernel(), 0.1)
    state.update(POINTS[:20], POINTS[:20, 0])
    return state


# Bounds that wrap others


class Narrowest(Confidence):
    covers = frozenset({"sketch", "weights", "moved ridge"})

    def __init__(self, *bounds):
        self.bounds = dict(enumerate(bounds))
        self.guarantee = "holds for all"

    def interval(self, state, X):
        intervals = [bound.interval(state, X) for bound in self.bounds.values()]
        lower, upper = zip(*intervals, strict=True)
        return torch.stack(lower).amax(0), torch.stack(upper).amin(0)

    def underlying_bounds(self):
        return list(self.bounds.values())


class Doubtful(SelfNormalized):
    def objections(self, state):
        return [*super().objections(state), "the data are doubtful"]


def written(page, start):
    """The class that a page defines."""
    lines = (ROOT / page).read_text().split(start)[1].splitlines()[1:]
    body = itertools.takewhile(lambda line: not line or line.startswith(" "), lines)
    names = {"Confidence": Confidence}
    exec("\n".join([start, *body]), names)
    return names[start.split()[1].split("(")[0]]


def wrappers(bound):
    """The bound inside of others: one of this file, and those of the pages."""
    non_negative = written("docs/howto.md", "class NonNegative(Confidence):")
    known_range = written("tutorials/2_your_own_bound.py", "class KnownRange(Confidence):")
    return [
        Narrowest(bound),
        non_negative(bound),
        known_range(bound, -5.0, 5.0),
        Narrowest(non_negative(bound)),
    ]


def test_a_bound_that_wraps_another_has_its_objections():
    moved = observed()
    moved.move_ridge(0.5)  # chosen after the data
    held = SelfNormalized(0.5, 2.0, 0.1)
    for bound, state in ((held, moved), (Doubtful(0.5, 2.0, 0.1), observed())):
        assert bound.objections(state)
        for wrapped in wrappers(bound):
            assert set(bound.objections(state)) <= set(wrapped.objections(state))
            assert wrapped.guarantee_on(state) is None
    assert not held.objections(observed())
    assert all(wrapped.guarantee_on(observed()) for wrapped in wrappers(held))


# The laws of a posterior, for one's own


class Jittered(KernelRidge):
    def update(self, X, y, weights=None):
        super().update(X + 1e-6, y, weights)


class Shared(KernelRidge):
    def fork(self):
        return self


class Centred(KernelRidge):
    def compute_at(self, ridge):
        return CentredAt(self, ridge, self.factor(ridge))


class CentredAt(ExactAt):
    def predict(self, X):
        mean, variance = super().predict(X)
        return mean - mean.mean(-1, keepdim=True), variance


def test_posteriors_obey_the_laws_or_do_not_pass():
    kernel = MaternKernel(nu=2.5).double()
    check_posterior(lambda ridge: KernelRidge(kernel, ridge), POINTS[:12])
    check_posterior(lambda ridge: LinearRegression(features, ridge), POINTS[:12])
    for kind in (Jittered, Shared, Centred):
        with pytest.raises(AssertionError):
            check_posterior(lambda ridge, kind=kind: kind(kernel, ridge), POINTS[:12])


def test_the_page_about_extensions_needs_no_other_file_of_the_repository():
    """Its listings are files of the tests, to which the laws are applied; they and its blocks import kbo alone."""
    page = (ROOT / "docs" / "extending.md").read_text()
    listings = re.findall(r"{literalinclude} \.\./(tests/third_party_\w+\.py)", page)
    assert sorted(listings) == ["tests/third_party_confidence.py", "tests/third_party_posterior.py"]
    for text in (page, *((ROOT / listing).read_text() for listing in listings)):
        assert not re.findall(r"^(?:from|import) tests\b", text, re.MULTILINE)


NORM_BOUNDS = {
    "dmm": partial(MartingaleMixture, kind="dmm"),
    "self-normalized": SelfNormalized,
    "igp-ucb": partial(ImprovedGPUCB, eta=0.1),
    "bkb": BKB,
    "k-ucb": partial(EKUCB, projection=0.0),
}


@pytest.mark.parametrize("name", NORM_BOUNDS)
def test_a_norm_bound_of_the_same_data_is_an_objection(name):
    kind = NORM_BOUNDS[name]
    state = observed()
    least = norm_lower_bound(state, 0.01, 0.1)
    for norm_bound in (least, 1.005 * least):
        of_data = kind(0.01, norm_bound, 0.1)
        assert any("chosen without them" in reason for reason in of_data.objections(state))
        assert of_data.guarantee_on(state) is None
    assert kind(0.01, 1.02 * least, 0.1).guarantee_on(state)
