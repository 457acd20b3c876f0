"""BoTorch's side: transforms of outcomes, bounds that wrap others, fits of sketches, and the pages about them."""

from __future__ import annotations

import inspect
import itertools
import re
import typing
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import ModelListGP
from botorch.models.transforms import Log, Normalize, Standardize
from botorch.models.transforms.outcome import ChainedOutcomeTransform, OutcomeTransform
from botorch.test_functions import Branin
from gpytorch.kernels import MaternKernel, ScaleKernel
from gpytorch.mlls import ExactMarginalLogLikelihood

import kbo
from kbo.acquisition import AMMUCB, CMMUCB, DMMUCB, ConstrainedKernelUCB, SafeUCB
from kbo.confidence import MIXED_SCALES, Confidence, FixedWidth, SelfNormalized
from kbo.errors import InvalidInput
from kbo.models import KernelRidgeGP, NystromGP
from kbo.regression import KernelRidge
from kbo.testing import check_posterior

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
    "none": lambda: None,
    "standardised": lambda: Standardize(1),
    "log": Log,
    "minus": lambda: Pointwise(minus),
    "minus, standardised": lambda: ChainedOutcomeTransform(first=Pointwise(minus), second=Standardize(1)),
    "one over": lambda: Pointwise(lambda Y: 1 / Y.where(Y > 0, torch.nan)),
}
OTHERS = {
    "square": lambda: Pointwise(lambda Y: (Y - 8.0).square()),
    "wave": lambda: Pointwise(lambda Y: (Y / 3).sin()),
    "clamped at the limit": lambda: Pointwise(lambda Y: Y.clamp_max(8.0)),
    "constant": lambda: Pointwise(torch.zeros_like),
    "log of another": lambda: Pointwise(lambda Y: (Y - 9.0).log()),
}


def limited(kind, transform, limit):
    X = torch.linspace(0, 1, 9, dtype=torch.float64).unsqueeze(-1)
    cost = 2.0 + 10 * X
    kernel = MaternKernel(nu=2.5).double()
    model = KernelRidgeGP(X, cost, kernel, 1e-4, outcome_transform=transform)
    return kind(ModelListGP(KernelRidgeGP(X, X, kernel, 1e-4), model), [FixedWidth(1.0)] * 2, 0, {1: limit})


@pytest.mark.parametrize("limit", [(None, 8.0), (5.0, None), (5.0, 8.0)], ids=str)
@pytest.mark.parametrize("kind", [SafeUCB, ConstrainedKernelUCB])
@pytest.mark.parametrize("name", MONOTONE)
def test_limits_are_those_of_the_data_under_every_monotone_transform(name, kind, limit):
    points = torch.tensor([[0.0], [0.2], [0.4], [0.5], [0.7], [1.0]], dtype=torch.float64)
    cost = 2.0 + 10 * points.squeeze(-1)
    kept = (cost >= (limit[0] or 0.0)) & (cost <= (limit[1] or 100.0))
    assert torch.equal(limited(kind, MONOTONE[name](), limit).slack(points) >= 0, kept)


@pytest.mark.parametrize("name", OTHERS)
def test_a_transform_that_is_not_monotone_is_refused(name):
    with pytest.raises(InvalidInput, match="not monotone"):
        limited(SafeUCB, OTHERS[name](), (None, 8.0))


# Bounds that wrap others


class Known(Confidence):
    """As in docs/howto.md and tutorial 2."""

    def __init__(self, bound):
        self.bound = bound
        self.guarantee = bound.guarantee and f"{bound.guarantee}, for a function that is not negative"

    def interval(self, state, X):
        lower, upper = self.bound.interval(state, X)
        return lower.clamp_min(0.0), upper.clamp_min(0.0)


class Narrowest(Confidence):
    covers_sketches = covers_weights = True

    def __init__(self, *bounds):
        self.bounds = bounds
        self.guarantee = "holds for all"

    def interval(self, state, X):
        lower, upper = zip(*(bound.interval(state, X) for bound in self.bounds), strict=True)
        return torch.stack(lower).amax(0), torch.stack(upper).amin(0)


class NamedBounds(Narrowest):
    def __init__(self, *bounds):
        super().__init__()
        self.bounds = dict(enumerate(bounds))


class Doubtful(SelfNormalized):
    def objections(self, state):
        return [*super().objections(state), "the data are doubtful"]


class Independent(Known):
    def parts(self):
        return []


def howto():
    return block(ROOT / "docs" / "howto.md", "class NonNegative(Confidence):")["NonNegative"]


def tutorial():
    known = block(ROOT / "tutorials" / "2_your_own_bound.py", "class KnownRange(Confidence):")["KnownRange"]
    return lambda bound: known(bound, -5.0, 5.0)


def block(page, start):
    """The names that a class of a page defines."""
    lines = page.read_text().split(start)[1].splitlines()
    body = list(itertools.takewhile(lambda line: not line or line.startswith(" "), lines[1:]))
    names = {"Confidence": Confidence}
    exec("\n".join([start, *body]), names)
    return names


WRAPPERS = {
    "attribute": lambda: Known,
    "tuple": lambda: Narrowest,
    "dictionary": lambda: NamedBounds,
    "twice": lambda: lambda bound: Known(Known(bound)),
    "docs/howto.md": howto,
    "tutorial 2": tutorial,
}


def observed(kernel_ridge=0.25, move=None):
    state = KernelRidge(MaternKernel(nu=2.5).double(), kernel_ridge)
    X = torch.linspace(0, 1, 6, dtype=torch.float64).unsqueeze(-1)
    state.update(X, X.squeeze(-1))
    if move is not None:
        state.move_ridge(move)
    return state


@pytest.mark.parametrize("name", WRAPPERS)
def test_a_bound_that_wraps_another_has_its_objections(name):
    wrap = WRAPPERS[name]()
    for bound, state in [
        (SelfNormalized(0.5, 2.0, 0.1), observed(move=0.5)),  # a ridge that was chosen after the data
        (Doubtful(0.5, 2.0, 0.1), observed()),
    ]:
        assert bound.objections(state)
        assert set(bound.objections(state)) <= set(wrap(bound).objections(state))
        assert wrap(bound).guarantee_on(state) is None
    held = SelfNormalized(0.5, 2.0, 0.1)
    assert not held.objections(observed())
    assert wrap(held).guarantee_on(observed()) is not None


def test_a_bound_that_does_not_rest_on_its_parts_says_so():
    state, bound = observed(move=0.5), SelfNormalized(0.5, 2.0, 0.1)
    assert bound.objections(state)
    assert Independent(bound).objections(state) == []


# Fits of sketched models


def design(n, seed):
    problem, generator = Branin(), torch.Generator().manual_seed(seed)
    box = problem.bounds.double()
    X = box[0] + (box[1] - box[0]) * torch.rand(n, 2, dtype=torch.float64, generator=generator)
    return X, problem(X).unsqueeze(-1), box


def fitted(kind, X, Y, box):
    transforms = {"input_transform": Normalize(2, bounds=box), "outcome_transform": Standardize(1)}
    model = kind(X, Y, ScaleKernel(MaternKernel(nu=2.5, ard_num_dims=2)), 0.01, **transforms)
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return model


@pytest.mark.filterwarnings("ignore:ridge = ")  # without noise the fitted ridge is the least that there is
@pytest.mark.parametrize("seed", [2, 3, 7])
def test_a_sketch_of_few_points_is_fitted_as_the_exact_model(seed):
    X, Y, box = design(40, seed)
    sketch, exact = fitted(NystromGP, X, Y, box), fitted(KernelRidgeGP, X, Y, box)
    assert sketch.state.m >= 36
    assert torch.allclose(sketch.posterior(X).mean, exact.posterior(X).mean, atol=0.1)


def test_the_default_dictionary_grows_with_the_data_as_it_is_chosen_at_once():
    X, Y, _ = design(130, 0)
    kernel = MaternKernel(nu=2.5).double()
    model = NystromGP(X[:60], Y[:60], kernel, 0.01).condition_on_observations(X[60:], Y[60:])
    assert model.state.m >= 100
    assert torch.equal(model.state.anchors, NystromGP(X, Y, kernel, 0.01).state.anchors)


# Signatures and docstrings


@pytest.mark.parametrize("kind", [KernelRidgeGP, NystromGP])
def test_what_a_model_always_needs_has_no_default(kind):
    needed = inspect.signature(kind).parameters
    assert [needed[name].default for name in ("kernel", "ridge")] == [inspect.Parameter.empty] * 2


@pytest.mark.parametrize("kind", [AMMUCB, DMMUCB, CMMUCB])
def test_the_mixture_acquisitions_describe_their_arguments(kind):
    arguments = inspect.getdoc(kind).split("Args:")[1]
    assert all(f"{name}:" in arguments for name in ("model", "noise_std", "norm_bound", "delta", "scale"))
    assert "over sqrt(kernel)" in arguments
    assert typing.get_type_hints(kind.__init__)["scale"] == float | Sequence[float]
    X = torch.linspace(0, 1, 5, dtype=torch.float64).unsqueeze(-1)
    acqf = kind(KernelRidgeGP(X, X, MaternKernel(nu=2.5).double(), 0.01), 0.1, 2.0, 0.1, scale=MIXED_SCALES)
    assert acqf(X.unsqueeze(-2)).isfinite().all()


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


def laws(kind):
    check_posterior(lambda ridge: kind(MaternKernel(nu=2.5).double(), ridge), torch.rand(12, 2, dtype=torch.float64))


def test_kernel_ridge_regression_obeys_the_laws():
    laws(KernelRidge)


def test_a_posterior_from_outside_obeys_the_laws():
    from tests.laws.states import features
    from tests.third_party_posterior import LinearRegression

    points = torch.rand(12, 2, dtype=torch.float64)
    check_posterior(lambda ridge: LinearRegression(features, ridge), points)


@pytest.mark.parametrize("kind", [Jittered, Shared, Centred, Forgetful])
def test_a_posterior_that_breaks_a_law_does_not_pass(kind):
    with pytest.raises(AssertionError):
        laws(kind)


def test_the_page_about_extensions_needs_no_file_of_the_repository():
    page = (ROOT / "docs" / "extending.md").read_text()
    assert not re.findall(r"^(?:from|import) tests\b", page, re.MULTILINE)
    for name in ("posterior", "confidence"):
        listing = (ROOT / "tests" / f"third_party_{name}.py").read_text().split('"""', 2)[2].strip()
        assert listing in page
