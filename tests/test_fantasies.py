"""Batches of fantasies, of any shapes, equal one model for each fantasy, or are refused with the shapes that fit."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
import torch
from botorch.models import ModelListGP
from botorch.models.transforms import Normalize, Standardize
from gpytorch.kernels import MaternKernel
from torch import Tensor

from kbo.acquisition import (
    CMMUCB,
    DMMUCB,
    ChainingUCB,
    ConstrainedKernelUCB,
    InflatedThompsonSampling,
    KernelUCB,
    SafeExpander,
    SafeUCB,
)
from kbo.confidence import (
    AdaptiveMixture,
    Confidence,
    FixedWidth,
    MartingaleMixture,
    MixtureNoiseBounds,
)
from kbo.errors import InvalidInput
from kbo.models import AdaptiveRidgeGP, KernelRidgeGP, NystromGP, PosteriorGP, PosteriorModel
from kbo.regression import FixedDictionary, FixedPoints, Hypothetical, KernelRidge, PriorMean
from tests.dense import close
from tests.laws.states import features, seeded, unit_square
from tests.parts import once
from tests.third_party_posterior import LinearRegression

RIDGE = 0.05
NUMBERS = 0.3, 9.0, 0.1  # noise level, norm bound, delta
Shape = tuple[int, ...]


def kernel() -> MaternKernel:
    kernel = MaternKernel(nu=2.5).double()
    kernel.lengthscale = 0.5
    return kernel


X = unit_square(9, 1)
DATA = X, torch.sin(4 * X).sum(-1, keepdim=True)
KNOWN = {"train_Yvar": 0.01 + unit_square(9, 2)[:, :1]}


def transforms() -> dict[str, Any]:
    return {"input_transform": Normalize(2), "outcome_transform": Standardize(1)}


MODELS: dict[str, Callable[[], PosteriorModel]] = {
    "exact": lambda: KernelRidgeGP(*DATA, kernel(), RIDGE),
    "transformed": lambda: KernelRidgeGP(*DATA, kernel(), RIDGE, **transforms()),
    "known variances": lambda: KernelRidgeGP(*DATA, kernel(), RIDGE, **KNOWN),
    "sketched": lambda: NystromGP(*DATA, kernel(), RIDGE, FixedDictionary(unit_square(6, 3))),
    "adaptive": lambda: AdaptiveRidgeGP(*DATA, kernel(), MixtureNoiseBounds(9.0, 0.1, upper=1.0)),
    "third-party": lambda: PosteriorGP(*DATA, LinearRegression(features, RIDGE)),
    "prior mean": lambda: PosteriorGP(
        *DATA, PriorMean(KernelRidge(kernel(), RIDGE), lambda X: X.sum(-1))
    ),
}


Make = Callable[[Any, Tensor | None], Any]  # of a model and pending points


def named(kind: Callable, *options: Any) -> Make:
    return lambda model, pending: kind(model, *options, X_pending=pending)


def limited(kind: type, *bounds: Confidence) -> Make:
    limits = bounds, 0, {1: (None, 0.4)}
    return lambda model, pending: kind(ModelListGP(model, model), *limits, X_pending=pending)


MIXTURES = [MartingaleMixture(*NUMBERS, kind="cmm") for _ in range(2)]
ACQUISITIONS: dict[str, Make] = {
    "dmm": named(DMMUCB, *NUMBERS),
    "cmm": named(CMMUCB, *NUMBERS),
    "chaining": named(ChainingUCB, unit_square(12, 4), 0.1),
    "constrained": limited(ConstrainedKernelUCB, FixedWidth(2.0), MIXTURES[0]),
    "safe": limited(SafeUCB, *MIXTURES),
    "expander": limited(SafeExpander, FixedWidth(2.0), FixedWidth(1.0)),
}
SPECIAL = {"adaptive": named(KernelUCB, AdaptiveMixture("dmm"))}
"""Bounds of models for which there are others than those of all models."""


@dataclass(frozen=True)
class Step:
    """Points [... q d] and targets [... q 1] on which a model is conditioned, with variances [q 1] or None."""

    X: Tensor
    Y: Tensor
    noise: Tensor | None

    def on(self, model: PosteriorModel) -> PosteriorModel:
        """Return the fantasies, also where a model would learn data without a batch."""
        return PosteriorModel.condition_on_observations(model, self.X, self.Y, self.noise)

    def part(self, batch: Shape, index: Shape) -> Step:
        """Return the data of one entry of a batch."""
        X, Y = (tensor.expand(*batch, *tensor.shape[-2:])[index] for tensor in (self.X, self.Y))
        return Step(X, Y, self.noise)


def broadcastable(rng: Random, batch: Shape) -> Shape:
    """Return a shape that broadcasts to the batch: some leading axes left out, some of size 1."""
    kept = batch[rng.randint(0, len(batch)) :]
    return tuple(size if rng.random() < 0.7 else 1 for size in kept)


def tensor(rng: Random, *shape: int) -> Tensor:
    return torch.rand(*shape, generator=seeded(rng.getrandbits(40)), dtype=torch.float64)


def batch_of(steps: Sequence[Step], *others: Shape) -> Shape:
    shapes = [part.shape[:-2] for step in steps for part in (step.X, step.Y)]
    return tuple(torch.broadcast_shapes(*others, *shapes))


def drawn(rng: Random, least: int = 1) -> list[Step]:
    """Return up to three steps whose batch shapes broadcast; each has at least so many points."""
    batch = tuple(rng.randint(1, 3) for _ in range(rng.randint(1, 2)))
    steps = []
    for _ in range(rng.randint(1, 3)):
        q = rng.randint(least, 2)
        noise = 0.01 + tensor(rng, q, 1) if rng.random() < 0.4 else None
        X, Y = (tensor(rng, *broadcastable(rng, batch), q, columns) for columns in (2, 1))
        steps.append(Step(X, Y, noise))
    return steps


def fantasies(model: PosteriorModel, steps: Sequence[Step]) -> PosteriorModel:
    for step in steps:
        model = step.on(model)
    return model


def each(function, model: PosteriorModel, steps: Sequence[Step], X: Tensor) -> Tensor:
    """Return a function of a model and points, one entry of the batch after the other, each with its own model."""
    batch = batch_of(steps, X.shape[:-2])
    points = X.expand(*batch, *X.shape[-2:])
    values = []
    for index in itertools.product(*map(range, batch)):
        own = fantasies(model, [step.part(batch, index) for step in steps])
        values.append(function(own, points[index]))
    return torch.stack(values).reshape((*batch, *values[0].shape))


def same(function, model: PosteriorModel, steps: Sequence[Step], X: Tensor, tol: float) -> None:
    """Values and gradients of the batch are those of one model for each entry."""
    at = X.clone().requires_grad_()
    values = function(fantasies(model, steps), at)
    expected = each(function, model, steps, at)
    assert values.shape == expected.shape
    close(values.detach(), expected.detach(), tol)
    slopes = [torch.autograd.grad(part.sum(), at)[0] for part in (values, expected)]
    close(*slopes, 1e3 * tol)


def moments(model: PosteriorModel, X: Tensor) -> Tensor:
    """The posterior mean [... q 1] beside the covariance [... q q]."""
    posterior: Any = model.posterior(X)
    return torch.cat([posterior.mean, posterior.distribution.covariance_matrix], -1)


@pytest.mark.parametrize("seed", once(range(100)))
@pytest.mark.parametrize("name", MODELS)
def test_posteriors_of_batches_are_those_of_one_model_for_each_fantasy(name, seed):
    model = MODELS[name]()
    rng = Random(seed)
    steps = drawn(rng, least=0)
    batch = batch_of(steps)
    assert fantasies(model, steps).batch_shape == batch
    X = tensor(rng, *broadcastable(rng, (2, *batch)), rng.randint(1, 3), 2)
    same(moments, model, steps, X, 1e-8)


@pytest.mark.parametrize("case", once(itertools.product(MODELS, range(12))), ids=str)
def test_acquisition_functions_of_batches_are_those_of_one_model_for_each_fantasy(case):
    name, seed = case
    model = MODELS[name]()
    for number, make in enumerate([SPECIAL[name]] if name in SPECIAL else ACQUISITIONS.values()):
        rng = Random(1000 * seed + number)
        steps = drawn(rng)
        q = 1 if make is ACQUISITIONS["expander"] else rng.randint(1, 3)
        X = tensor(rng, *broadcastable(rng, (2, *batch_of(steps))), q, 2)
        pending = tensor(rng, 2, 2) if rng.random() < 0.5 else None

        def values(model: PosteriorModel, X: Tensor, make=make, pending=pending) -> Tensor:
            found = make(model, pending)(X)
            return found if X.ndim > 2 or model.batch_shape else found.squeeze(0)

        same(values, model, steps, X, 1e-6)


# What does not fit


def batches(n: int, seed: int = 5) -> tuple[Tensor, Tensor]:
    """Batches of four points and their targets."""
    X, Y = (unit_square(4 * n, number).reshape(n, 4, 2) for number in (seed, seed + 1))
    return X, Y[..., :1]


def test_batches_that_do_not_broadcast_are_refused_with_the_shapes_that_would():
    model = MODELS["exact"]()
    two = model.condition_on_observations(*batches(2))
    X, Y = batches(3)
    calls = [
        lambda: two.posterior(X),
        lambda: two.condition_on_observations(X, Y),
        lambda: two.condition_on_observations(X[0], Y),
        lambda: model.condition_on_observations(X[:2], Y),
        lambda: two.state.predict(X),
        lambda: two.state.across(X.unsqueeze(-2)),
        lambda: Hypothetical(two.state, X),
        lambda: MIXTURES[0].interval(two.state, X),
        *(lambda make=make: make(two, None)(X[:, :1]) for make in ACQUISITIONS.values()),
    ]
    words = r"batch shape of .*\(\d,.*\), must broadcast with .*\(\d,.*\)"
    for number, call in enumerate(calls):
        with pytest.raises(InvalidInput, match=words):
            pytest.fail(f"call {number} gave {call()}")


X2, Y2 = batches(2)
SET = unit_square(5, 7)
WIDTH = FixedWidth(1.0)
MEANINGLESS: dict[str, tuple[Callable[[PosteriorModel, PosteriorModel], Any], str]] = {
    "sampling": (lambda one, two: InflatedThompsonSampling(two, WIDTH)(X2[:, :1]), "fantasies"),
    "upper": (lambda one, two: WIDTH.argmax_upper(two.state, SET), r"\(2,\), and one point"),
    "tracked": (
        lambda one, two: Hypothetical(FixedPoints(two.state, SET), SET),
        "in the other order",
    ),
    "targets": (
        lambda one, two: Hypothetical(Hypothetical(one.state, X2), SET, SET[:, 0]),
        "condition on the points with targets first",
    ),
    "Y": (
        lambda one, two: two.condition_on_observations(X2, Y2[..., 0]),
        r"Y must have shape \[... 4 1\]",
    ),
}


@pytest.mark.parametrize(("call", "words"), MEANINGLESS.values(), ids=MEANINGLESS)
def test_what_has_no_meaning_on_a_batch_of_fantasies_is_refused(call, words):
    model = MODELS["exact"]()
    two = model.condition_on_observations(X2, Y2)
    with pytest.raises(InvalidInput, match=words):
        call(model, two)


def test_a_list_of_fantasies_is_conditioned_as_each_of_them():
    model = MODELS["exact"]()
    Y = unit_square(8, 6).reshape(2, 4, 2)
    new = unit_square(3, 7)
    values = unit_square(3, 8)
    both = ModelListGP(model, model).condition_on_observations([X2, X2], Y)
    both = both.condition_on_observations([new, new], values)
    for i in range(2):
        one = model.condition_on_observations(X2, Y[..., i : i + 1])
        one = one.condition_on_observations(new, values[:, i : i + 1])
        close(both.posterior(SET).mean[..., i], one.posterior(SET).mean[..., 0], 1e-12)
