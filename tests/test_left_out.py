"""No observation is left out of a dictionary for rounding: in no order of the data, with no kernel and no rule."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from experiments.problems import stationary_kernel
from kbo.confidence import MartingaleMixture
from kbo.models import NystromGP
from kbo.optimize.surrogates.practical_posterior import FocusedDictionary
from kbo.regression import (
    BatchedResampling,
    Dictionary,
    FixedDictionary,
    FixedPoints,
    GreedyDictionary,
    LeverageResampling,
    NystromRidge,
    OnlineRowSampling,
    Posterior,
)
from tests.dense import gram
from tests.laws.states import matern, normal, seeded, unit_square
from tests.test_dictionaries import as_scratch

RIDGE, NOISE_STD, NORM = 0.01, 0.1, 4.0

ROUNDING = 1e-9
"""Fraction of the prior variance that counts as explained."""

BOUND = MartingaleMixture(NOISE_STD, NORM + 1, 0.1)


def line(n: int) -> Tensor:
    return torch.linspace(0, 1, n, dtype=torch.float64)


def clustered(n: int) -> Tensor:
    points = torch.rand(n, generator=seeded(0), dtype=torch.float64)
    points[: n // 10] = 0.5 + 1e-3 * points[: n // 10]
    return points


ORDERS: dict[str, Callable[[int], Tensor]] = {
    "sorted": line,
    "reversed": lambda n: line(n).flip(0),
    "clustered first": clustered,
    "repeated": lambda n: line(n)[::3].repeat_interleave(3),
    "shuffled": lambda n: line(n)[torch.randperm(n, generator=seeded(0))],
    "near-duplicates": lambda n: (line(n)[::2, None] + torch.tensor([0, 1e-7])).flatten(),
}
KERNELS = [("rbf", 0.1), ("rbf", 0.3), ("rbf", 1.0), ("rbf", 3.0), ("matern52", 0.3)]


def ordered(order: str, n: int) -> Tensor:
    """About n points of [0, 1] in an order, [n 1]."""
    return ORDERS[order](n).unsqueeze(-1)


def observed(kernel: Kernel, X: Tensor) -> Tensor:
    """Noisy values of a function of norm ``NORM`` at X."""
    centres = X.new_tensor([[0.13], [0.51], [0.87]])
    weights = X.new_tensor([3.0, -2.0, 2.5])
    norm = (weights @ gram(kernel, centres, centres) @ weights).sqrt()
    return NORM / norm * gram(kernel, X, centres) @ weights + NOISE_STD * normal(len(X), 1)


def in_parts(
    dictionary: Dictionary, kernel: Kernel, X: Tensor, y: Tensor, parts: int
) -> NystromRidge:
    state = NystromRidge(kernel, RIDGE, dictionary)
    for rows, targets in zip(X.tensor_split(parts), y.tensor_split(parts), strict=True):
        state.update(rows, targets)
    return state


def model(kernel: Kernel, X: Tensor, y: Tensor, dictionary: Dictionary | None = None) -> NystromGP:
    return NystromGP(X, y.unsqueeze(-1), kernel, RIDGE, dictionary)


def conditioned(kernel: Kernel, X: Tensor, y: Tensor) -> Posterior:
    """The default dictionary of a model whose data come in parts."""
    first, *others = zip(X.tensor_split(5), y.unsqueeze(-1).tensor_split(5), strict=True)
    conditioned = NystromGP(*first, kernel, RIDGE)
    for part in others:
        conditioned = conditioned.condition_on_observations(*part)
    return conditioned.state


RULES: dict[str, tuple[float | None, Callable[[Kernel, Tensor, Tensor], Posterior]]] = {
    "greedy, one by one": (1e-3, lambda *data: in_parts(GreedyDictionary(1e-3), *data, 60)),
    "greedy 1e-6, one by one": (1e-6, lambda *data: in_parts(GreedyDictionary(1e-6), *data, 60)),
    "default model": (1e-3, lambda *data: model(*data).state),
    "default model, conditioned": (1e-3, conditioned),
    "all points given": (0.0, lambda k, X, y: in_parts(FixedDictionary(X), k, X, y, 1)),
    "pivoted": (
        1e-6,
        lambda k, X, y: in_parts(FixedDictionary.pivoted(k, X, len(X), 1e-6), k, X, y, 1),
    ),
    "online row sampling": (None, lambda *data: in_parts(OnlineRowSampling(RIDGE), *data, 60)),
    "resampling": (None, lambda *data: in_parts(LeverageResampling(5.0), *data, 20)),
}
"""What an observation may be left with, or None where chance decides, and a state of the data."""


def left_out(kernel: Kernel, anchors: Tensor, X: Tensor) -> Tensor:
    """What the anchors leave of each point, by the eigenvalues of their matrix, [n]."""
    values, vectors = torch.linalg.eigh(gram(kernel, anchors, anchors))
    kept = values > 1e-14 * values.sum()
    B = gram(kernel, X, anchors) @ vectors[:, kept] / values[kept].sqrt()
    return gram(kernel, X, X).diagonal() - B.square().sum(1)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("n", "kernels"),
    [(60, KERNELS[2:3]), pytest.param(600, KERNELS, marks=pytest.mark.thorough)],
    ids=["60", "600"],
)
def test_no_order_of_the_data_leaves_more_than_the_rule_allows_or_the_error_says(rule, n, kernels):
    threshold, state_of = RULES[rule]
    for shape, order in itertools.product(kernels, ORDERS):
        kernel = stationary_kernel(*shape)
        X = ordered(order, n)
        state = state_of(kernel, X, observed(kernel, X))
        left = left_out(kernel, state.anchors, X)
        if threshold is None:
            assert float(left.sum()) <= state.error.trace + n * ROUNDING, (shape, order)
        else:
            assert float(left.max()) <= threshold + 3 * ROUNDING, (shape, order)


@pytest.mark.parametrize("order", ["sorted", "clustered first", "near-duplicates"])
def test_chosen_anew_in_a_stream_a_sketch_is_what_is_made_from_scratch(order):
    kernel = stationary_kernel("rbf", 1.0)
    X = ordered(order, 40)
    y = observed(kernel, X)
    tracked = FixedPoints(NystromRidge(kernel, RIDGE, GreedyDictionary(1e-6)), line(21)[:, None])
    for i in range(len(X)):
        tracked.update(X[i : i + 1], y[i : i + 1])
        if i % 10 == 9:
            as_scratch(tracked, X[: i + 1], y[: i + 1])


def test_a_smaller_threshold_never_makes_bounds_wider():
    kernel = stationary_kernel("rbf", 0.3)
    X = ordered("clustered first", 120)
    y = observed(kernel, X)
    widths = []
    for threshold in (1e-2, 1e-3, 1e-4, 1e-6):
        state = model(kernel, X, y, GreedyDictionary(threshold)).state
        lower, upper = BOUND.interval(state, line(41).unsqueeze(-1))
        widths.append(float((upper - lower).mean()))
    assert all(fine <= coarse * 1.01 for coarse, fine in itertools.pairwise(widths)), widths


def test_later_parts_of_the_data_enter_a_dictionary_too():
    """Also a part that is small, or comes after given points, and of a dictionary that draws the first part."""
    kernel = stationary_kernel("matern52", 0.3)
    X = line(40).unsqueeze(-1)
    given = GreedyDictionary(1e-3)
    given.points = X[:3]
    for dictionary in (GreedyDictionary(1e-3), given, FocusedDictionary(1e-3, 30, 25)):
        state = NystromRidge(kernel, RIDGE, dictionary)
        for part in X.split([20, 15, 5]):
            state.update(part, part[:, 0])
        assert float(left_out(kernel, state.anchors, X).max()) <= 1e-3 + ROUNDING
        if dictionary is given:
            assert torch.equal(state.anchors[:3], X[:3])


def test_weights_count_for_what_may_be_left():
    kernel = stationary_kernel("rbf", 0.3)
    X = ordered("sorted", 60)
    weights = 0.1 + 20 * unit_square(60, 3)[:, 0]
    for parts in (1, 60):
        state = NystromRidge(kernel, RIDGE, GreedyDictionary(1e-3))
        for part, own in zip(X.tensor_split(parts), weights.tensor_split(parts), strict=True):
            state.update(part, part[:, 0], own)
        left = weights * left_out(kernel, state.anchors, X)
        assert float(left.max()) <= 1e-3 + 20 * ROUNDING


# Choosers begin anew


def subclasses(kind: type) -> Iterator[type]:
    for one in kind.__subclasses__():
        yield one
        yield from subclasses(one)


BEGUN = [
    FixedDictionary(unit_square(5, 3)),
    GreedyDictionary(1e-3, most=9),
    model(matern(1.5), unit_square(5, 1), unit_square(5, 1)[:, 0]).dictionary,
    FocusedDictionary(1e-3, 9, 6),
    OnlineRowSampling(0.1, most=9),
    LeverageResampling(3.0, most=9),
    BatchedResampling(3.0, most=9),
]


def test_every_dictionary_of_kbo_is_in_the_law():
    own = {kind for kind in subclasses(Dictionary) if kind.__module__.startswith("kbo.")}
    assert own == set(map(type, BEGUN))


@pytest.mark.parametrize("dictionary", BEGUN, ids=lambda dictionary: type(dictionary).__name__)
def test_a_chooser_that_was_used_begins_as_a_new_one(dictionary):
    X = unit_square(40, 1)
    y = unit_square(40, 2)[:, 0]
    used = NystromRidge(matern(1.5), RIDGE, dictionary)
    used.update(X[:18], y[:18])
    used.update(X[18:30], y[18:30])
    new = NystromRidge(matern(1.5), RIDGE, dictionary)
    again = NystromRidge(matern(1.5), RIDGE, used.dictionary)
    assert repr(again.dictionary) == repr(new.dictionary)
    for i in range(len(X)):
        assert again.dictionary.capped == new.dictionary.capped
        for state in (new, again):
            state.update(X[i : i + 1], y[i : i + 1])
        assert torch.equal(again.anchors, new.anchors)
