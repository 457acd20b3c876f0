"""BoTorch's side: transforms of outcomes, bounds that wrap others, laws for one's own posterior, and the page on it."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
import torch
from botorch.models import ModelListGP
from botorch.models.transforms import Log, Standardize
from botorch.models.transforms.outcome import ChainedOutcomeTransform, OutcomeTransform
from gpytorch.kernels import MaternKernel

import kbo
from kbo.acquisition import ConstrainedKernelUCB, SafeUCB
from kbo.confidence import Confidence, FixedWidth, SelfNormalized
from kbo.errors import InvalidInput
from kbo.models import KernelRidgeGP
from kbo.regression import KernelRidge
from kbo.testing import check_posterior
from tests.laws.states import features
from tests.third_party_posterior import LinearRegression

ROOT = Path(kbo.__file__).parent.parent

# Outcome transforms of constraints


class Pointwise(OutcomeTransform):
    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, Y, Yvar=None, X=None):
        return self.function(Y), Yvar


def minus(Y):
    return -Y


MONOTONE = {
    "standardised": lambda: Standardize(1),
    "log": Log,
    "minus, standardised": lambda: ChainedOutcomeTransform(first=Pointwise(minus), second=Standardize(1)),
    "one over": lambda: Pointwise(lambda Y: 1 / Y.where(Y > 0, torch.nan)),
}
OTHERS = {
    "square": lambda: Pointwise(lambda Y: (Y - 8.0).square()),
    "wave": lambda: Pointwise(lambda Y: (Y / 3).sin()),
    "clamped at the limit": lambda: Pointwise(lambda Y: Y.clamp_max(8.0)),
    "log of another": lambda: Pointwise(lambda Y: (Y - 9.0).log()),
}


def limited(kind, transform, limit):
    X, kernel = torch.linspace(0, 1, 9, dtype=torch.float64).unsqueeze(-1), MaternKernel(nu=2.5).double()
    cost = KernelRidgeGP(X, 2.0 + 10 * X, kernel, 1e-4, outcome_transform=transform)
    return kind(ModelListGP(KernelRidgeGP(X, X, kernel, 1e-4), cost), [FixedWidth(1.0)] * 2, 0, {1: limit})


@pytest.mark.parametrize("transform", MONOTONE.values(), ids=MONOTONE)
def test_limits_are_those_of_the_data_under_every_monotone_transform(transform):
    points = torch.tensor([[0.0], [0.2], [0.4], [0.5], [0.7], [1.0]], dtype=torch.float64)
    cost = 2.0 + 10 * points.squeeze(-1)
    for kind, (low, high) in itertools.product((SafeUCB, ConstrainedKernelUCB), ((None, 8.0), (5.0, None), (5.0, 8.0))):
        kept = (cost >= (low or 0.0)) & (cost <= (high or 100.0))
        assert torch.equal(limited(kind, transform(), (low, high)).slack(points) >= 0, kept)


@pytest.mark.parametrize("transform", OTHERS.values(), ids=OTHERS)
def test_a_transform_that_is_not_monotone_is_refused(transform):
    with pytest.raises(InvalidInput, match="not monotone"):
        limited(SafeUCB, transform(), (None, 8.0))


# Bounds that wrap others


class Narrowest(Confidence):
    covers_sketches = covers_weights = True

    def __init__(self, *bounds):
        self.bounds = dict(enumerate(bounds))
        self.guarantee = "holds for all"

    def interval(self, state, X):
        lower, upper = zip(*(bound.interval(state, X) for bound in self.bounds.values()), strict=True)
        return torch.stack(lower).amax(0), torch.stack(upper).amin(0)


class Doubtful(SelfNormalized):
    def objections(self, state):
        return [*super().objections(state), "the data are doubtful"]


class Independent(Narrowest):
    def parts(self):
        return []


def written(page: str, start: str):
    """The class that a page defines."""
    lines = (ROOT / page).read_text().split(start)[1].splitlines()
    names = {"Confidence": Confidence}
    exec("\n".join([start, *itertools.takewhile(lambda line: not line or line.startswith(" "), lines[1:])]), names)
    return names[start.split()[1].split("(")[0]]


def howto(bound):
    return written("docs/howto.md", "class NonNegative(Confidence):")(bound)


def tutorial(bound):
    return written("tutorials/2_your_own_bound.py", "class KnownRange(Confidence):")(bound, -5.0, 5.0)


def observed(ridge=None):
    state, X = KernelRidge(MaternKernel(nu=2.5).double(), 0.25), torch.linspace(0, 1, 6).double().unsqueeze(-1)
    state.update(X, X.squeeze(-1))
    if ridge is not None:
        state.move_ridge(ridge)
    return state


@pytest.mark.parametrize("wrap", [Narrowest, howto, tutorial, lambda bound: Narrowest(howto(bound))])
def test_a_bound_that_wraps_another_has_its_objections(wrap):
    moved, held = observed(ridge=0.5), SelfNormalized(0.5, 2.0, 0.1)  # a ridge that was chosen after the data
    for bound, state in [(held, moved), (Doubtful(0.5, 2.0, 0.1), observed())]:
        assert bound.objections(state)
        assert set(bound.objections(state)) <= set(wrap(bound).objections(state))
        assert wrap(bound).guarantee_on(state) is None
    assert not held.objections(observed())
    assert wrap(held).guarantee_on(observed()) is not None
    assert Independent(held).objections(moved) == []  # which says that it does not rest on its parts


# The laws of a posterior, for one's own


class Jittered(KernelRidge):
    def update(self, X, y, weights=None):
        super().update(X + 1e-6, y, weights)


class Shared(KernelRidge):
    def fork(self):
        return self


class Centred(KernelRidge):
    def predict(self, X, ridge=None):
        mean, variance = super().predict(X, ridge)
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


def test_the_page_about_extensions_needs_no_file_of_the_repository():
    page = (ROOT / "docs" / "extending.md").read_text()
    assert not re.findall(r"^(?:from|import) tests\b", page, re.MULTILINE)
    for name in ("posterior", "confidence"):
        listing = (ROOT / "tests" / f"third_party_{name}.py").read_text().split('"""', 2)[2].strip()
        assert listing in page
