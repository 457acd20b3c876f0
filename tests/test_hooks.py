"""What users write for kbo to call may return plain numbers; what cannot be used is refused by name."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

import kbo
from kbo.confidence import AlternatingWidth, Confidence, WidthConfidence
from kbo.errors import InvalidInput
from kbo.optimize.search.search import Search
from kbo.optimize.strategies import Alternate, Strategy, UpperBoundPoint
from kbo.regression import AdaptiveRidge, KernelRidge, PriorMean, RidgeSchedule
from kbo.space import Params
from tests.dense import close
from tests.laws.states import rbf, unit_square

X, Z = unit_square(9, 1), unit_square(4, 2)
Y = torch.sin(4 * X).sum(-1)

NUMBERS = [2, np.float64(2.0), np.array(2.0), torch.tensor(2.0), torch.tensor([2.0])]
NOT_NUMBERS = [None, "2.0", math.nan, torch.tensor([2.0, 2.0]), [2.0]]


def fed(state: Any = None) -> Any:
    state = KernelRidge(rbf(), 0.1) if state is None else state
    state.update(X, Y)
    return state


class Wide(WidthConfidence):
    """A width that is whatever it is given."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def width(self, state: Any) -> Any:
        return self._value


class AtRidgeOne(Confidence):
    """Two standard deviations around the mean at ridge 1, or infinite bounds."""

    def __init__(self, finite: bool = True) -> None:
        self._finite = finite

    def ridge(self, state: Any) -> float:
        return 1.0

    def finite_on(self, state: Any) -> bool:
        return self._finite

    def interval(self, state: Any, X: Tensor) -> tuple[Tensor, Tensor]:
        mean, variance = state.at(1.0).predict(X)
        margin = 2 * variance.sqrt() if self._finite else torch.inf
        return mean - margin, mean + margin


class Chosen(RidgeSchedule):
    """A ridge that is whatever it is given, after the first observation."""

    def __init__(self, value: Any) -> None:
        self.ridge, self._value, self.n = 0.1, value, 0

    def update(self, state: Any) -> None:
        self.ridge, self.n = self._value, state.n


def widened(value: Any) -> Tensor:
    draws = Wide(value).inflated(fed(), Z, torch.ones(4, dtype=torch.float64))
    return torch.stack([*Wide(value).interval(fed(), Z), draws])


def ridged(value: Any) -> Tensor:
    return torch.stack(fed(AdaptiveRidge(KernelRidge(rbf(), 0.1), Chosen(value))).predict(Z))


HOOKS: dict[str, Callable[[Any], Tensor]] = {
    "the width of a confidence": widened,
    "the ridge of a schedule": ridged,
}


@pytest.mark.parametrize("hook", HOOKS)
def test_numbers_of_any_type_are_taken_and_what_is_no_number_is_refused_by_name(hook):
    expected = HOOKS[hook](torch.tensor(2.0, dtype=torch.float64))
    for number in NUMBERS:
        close(HOOKS[hook](number), expected, 1e-12)
    for value in NOT_NUMBERS:
        with pytest.raises(InvalidInput, match=rf"{hook.split()[-1]}|{hook.split()[1]}"):
            HOOKS[hook](value)


def test_a_prior_mean_of_another_shape_is_refused_with_the_shape_that_fits():
    words = r"mean must return a tensor of shape \[9\] .*got a Tensor of shape"
    with pytest.raises(InvalidInput, match=words):
        fed(PriorMean(KernelRidge(rbf(), 0.1), lambda x: x))
    with pytest.raises(InvalidInput, match=r"tensor of shape .*got 0\.5"):
        fed(PriorMean(KernelRidge(rbf(), 0.1), lambda x: 0.5))


def test_a_kernel_of_another_shape_is_refused_with_the_shape_that_fits():
    class Wrong(Kernel):
        def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Any:
            K = (x1.unsqueeze(-2) * x2.unsqueeze(-3)).sum(-1)
            return K.diagonal(dim1=-2, dim2=-1) if diag else K[..., :-1]

    state = KernelRidge(Wrong(), 0.1)
    words = r"forward of the kernel Wrong must return a tensor of shape \[... \d+ \d+\]"
    with pytest.raises(InvalidInput, match=words):
        fed(state).predict(Z)


def test_a_word_of_covers_that_no_theorem_knows_is_refused_with_the_nearest_one():
    class OfTheClass(AtRidgeOne):
        covers = frozenset({"weights", "sketches"})

    class OfTheObject(AtRidgeOne):
        def __init__(self) -> None:
            super().__init__()
            self.covers = frozenset({"sketches"})

    words = "has the word 'sketches': did you mean 'sketch'.* 'sketch', 'weights', 'moved ridge'"
    for bound in (OfTheClass, OfTheObject):
        with pytest.raises(InvalidInput, match=words):
            bound()


def test_alternating_widths_are_at_least_one():
    with pytest.raises(InvalidInput, match="AlternatingWidth needs at least one multiplier"):
        AlternatingWidth()


def test_draws_and_ranks_of_a_bound_are_those_at_its_ridge():
    state = fed(KernelRidge(rbf(), 0.01))
    mean, variance = state.at(1.0).predict(Z)
    close(AtRidgeOne().inflated(state, Z, variance.sqrt()), mean + 2 * variance.sqrt())
    points = unit_square(40, 4)
    most_uncertain = int(state.at(1.0).predict(points)[1].argmax())
    assert most_uncertain != int(state.predict(points)[1].argmax())
    assert AtRidgeOne(finite=False).argmax_upper(state, points)[0] == most_uncertain


def optimizer_with(strategies: Any) -> kbo.Optimizer:
    return kbo.Optimizer({"x": (0.0, 1.0)}, setting=kbo.Practical(strategies=strategies))


def test_strategies_are_a_list_of_which_one_applies():
    with pytest.raises(InvalidInput, match="no strategy returned parameters for trial 0, of"):
        optimizer_with([UpperBoundPoint()]).ask()
    for strategies in ((), UpperBoundPoint(), [UpperBoundPoint]):
        with pytest.raises(InvalidInput, match="strategies must be a list"):
            optimizer_with(strategies)


def test_strategies_take_turns():
    class Named(Strategy):
        def __init__(self, name: str) -> None:
            self.name = name

        def propose(self, search: Search) -> Params:
            return search.random()

        def describe(self) -> str:
            return self.name

    optimizer = optimizer_with([Alternate(Named("a"), Named("b"), Named("c"))])
    for _ in range(5):
        optimizer.tell(optimizer.ask(), 1.0)
    assert [optimizer.explain(i).strategy for i in range(5)] == ["a", "b", "c", "a", "b"]
