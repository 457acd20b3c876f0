"""No observation is left out of a dictionary for rounding: not in any order of the data, nor with any kernel or rule.

``python -m tests.test_left_out 600`` prints for 600 observations what each rule leaves, how far means are from those of
the exact posterior, and how wide bounds are; ``python -m tests.test_left_out cost`` what choosing by pivoting costs;
``python -m tests.test_left_out path 3000`` what is left of points along a path.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Iterator

import pytest
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from experiments.problems import stationary_kernel
from kbo import KernelRidge
from kbo.confidence import MartingaleMixture, norm_lower_bound
from kbo.models import NystromGP
from kbo.optimize.surrogates.inducing_points import FocusedDictionary
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
from tests.exact_arithmetic import Exact
from tests.laws.states import matern, seeded, unit_square
from tests.test_dictionaries import Scratch, answers

RIDGE, NOISE_STD, NORM = 0.01, 0.1, 4.0

ROUNDING = 1e-9
"""Fraction of the prior variance that counts as explained."""


def ordered(order: str, n: int) -> Tensor:
    """About n points of [0, 1] in an order, [n 1]."""
    rng = seeded(0)
    line = torch.linspace(0, 1, n, dtype=torch.float64)
    if order == "reversed":
        line = line.flip(0)
    if order == "clustered first":
        cluster = 0.5 + 1e-3 * torch.rand(n // 10, generator=rng, dtype=torch.float64)
        line = torch.cat([cluster, torch.rand(n - n // 10, generator=rng, dtype=torch.float64)])
    if order == "repeated":
        line = line[::3].repeat_interleave(3)
    if order == "shuffled":
        line = line[torch.randperm(n, generator=rng)]
    if order == "near-duplicates":
        line = torch.stack([line[::2], line[::2] + 1e-7], 1).flatten()
    return line.unsqueeze(-1)


ORDERS = ["sorted", "reversed", "clustered first", "repeated", "shuffled", "near-duplicates"]
KERNELS = [("rbf", 0.1), ("rbf", 0.3), ("rbf", 1.0), ("rbf", 3.0), ("matern52", 0.3)]


def function(kernel: Kernel, X: Tensor) -> Tensor:
    """A function of norm ``NORM`` at X."""
    centres, weights = X.new_tensor([[0.13], [0.51], [0.87]]), X.new_tensor([3.0, -2.0, 2.5])
    return (
        gram(kernel, X, centres)
        @ weights
        * NORM
        / (weights @ gram(kernel, centres, centres) @ weights).sqrt()
    )


def observed(kernel: Kernel, X: Tensor) -> Tensor:
    return function(kernel, X) + NOISE_STD * torch.randn(
        len(X), generator=seeded(1), dtype=torch.float64
    )


def at_once(dictionary: Dictionary, kernel: Kernel, X: Tensor, y: Tensor) -> NystromRidge:
    state = NystromRidge(kernel, RIDGE, dictionary)
    state.update(X, y)
    return state


def one_by_one(dictionary: Dictionary, kernel: Kernel, X: Tensor, y: Tensor) -> NystromRidge:
    state = NystromRidge(kernel, RIDGE, dictionary)
    for i in range(len(X)):
        state.update(X[i : i + 1], y[i : i + 1])
    return state


def conditioned(kernel: Kernel, X: Tensor, y: Tensor, parts: int) -> Posterior:
    """The default dictionary of a model whose data come in parts."""
    (first, *others), targets = X.tensor_split(parts), y.unsqueeze(-1).tensor_split(parts)
    model = NystromGP(first, targets[0], kernel, RIDGE)
    for part, values in zip(others, targets[1:], strict=True):
        model = model.condition_on_observations(part, values)
    return model.state


Rule = tuple[float | None, Callable[[Kernel, Tensor, Tensor], Posterior]]

RULES: dict[str, Rule] = {
    "greedy, at once": (1e-3, lambda *data: at_once(GreedyDictionary(1e-3), *data)),
    "greedy, one by one": (1e-3, lambda *data: one_by_one(GreedyDictionary(1e-3), *data)),
    "greedy 1e-6, at once": (1e-6, lambda *data: at_once(GreedyDictionary(1e-6), *data)),
    "greedy 1e-6, one by one": (1e-6, lambda *data: one_by_one(GreedyDictionary(1e-6), *data)),
    "default model": (1e-3, lambda *data: conditioned(*data, parts=1)),
    "default model, conditioned": (1e-3, lambda *data: conditioned(*data, parts=5)),
    "default, one by one": (
        1e-3,
        lambda k, X, y: one_by_one(NystromGP(X, y[:, None], k, RIDGE).dictionary, k, X, y),
    ),
    "all points given": (0.0, lambda k, X, y: at_once(FixedDictionary(X), k, X, y)),
    "pivoted": (
        1e-6,
        lambda k, X, y: at_once(FixedDictionary.pivoted(k, X, len(X), 1e-6), k, X, y),
    ),
    "online row sampling": (None, lambda *data: one_by_one(OnlineRowSampling(RIDGE), *data)),
    "resampling": (None, lambda *data: one_by_one(LeverageResampling(5.0), *data)),
    "batched resampling": (None, lambda *data: one_by_one(BatchedResampling(5.0), *data)),
    "greedy, at most 8": (None, lambda *data: at_once(GreedyDictionary(1e-3, most=8), *data)),
    "greedy, one by one, at most 8": (
        None,
        lambda *data: one_by_one(GreedyDictionary(1e-3, most=8), *data),
    ),
}
"""What an observation may be left with, or None where chance or a limit decide, and a state of the data."""


def left_out(kernel: Kernel, anchors: Tensor, X: Tensor) -> Tensor:
    """What the anchors leave of each point, by the eigenvalues of their matrix, [n]."""
    values, vectors = torch.linalg.eigh(gram(kernel, anchors, anchors))
    kept = values > 1e-14 * values.sum()
    B = gram(kernel, X, anchors) @ vectors[:, kept] / values[kept].sqrt()
    return gram(kernel, X, X).diagonal() - B.square().sum(1)


def cases(
    kernels: list[tuple[str, float]], n: int
) -> Iterator[tuple[Kernel, str, str, Tensor, Tensor]]:
    """Every kernel with every order: the kernel, the names of both, and data."""
    for kind, lengthscale in kernels:
        kernel = stationary_kernel(kind, lengthscale)
        for order in ORDERS:
            X = ordered(order, n)
            yield kernel, f"{kind} {lengthscale}", order, X, observed(kernel, X)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("n", "kernels"),
    [(60, KERNELS[::2]), pytest.param(600, KERNELS, marks=pytest.mark.thorough)],
    ids=["60", "600"],
)
def test_no_order_of_the_data_leaves_more_than_the_rule_allows_or_the_error_says(rule, n, kernels):
    threshold, state_of = RULES[rule]
    for kernel, shape, order, X, y in cases(kernels, n):
        state = state_of(kernel, X, y)
        left = left_out(kernel, state.anchors, X)
        most = float(left.max())
        if threshold is None:
            assert float(left.sum()) <= state.error.trace + n * ROUNDING, (shape, order, most)
        else:
            assert most <= threshold + 3 * ROUNDING, (shape, order, most)


@pytest.mark.parametrize("order", ORDERS)
def test_chosen_anew_in_a_stream_a_sketch_is_what_is_made_from_scratch(order):
    kernel, X = stationary_kernel("rbf", 1.0), ordered(order, 60)
    y, Z = observed(kernel, X), torch.linspace(0, 1, 21, dtype=torch.float64).unsqueeze(-1)
    for dictionary in (GreedyDictionary(1e-6), NystromGP(X, y[:, None], kernel, RIDGE).dictionary):
        tracked = FixedPoints(NystromRidge(kernel, RIDGE, dictionary), Z)
        for i in range(len(X)):
            tracked.update(X[i : i + 1], y[i : i + 1])
            if i % 10 == 9:
                state = tracked.state
                expected = Scratch(kernel, state.anchors, X[: i + 1], y[: i + 1], RIDGE).answers(Z)
                found = {**answers(state, Z), "tracked mean": tracked.predict(Z)[0]}
                for name, value in found.items():
                    wanted = expected[name.removeprefix("tracked ")]
                    assert (
                        float(((value - wanted).abs() / wanted.abs().clamp_min(1)).max()) < 1e-8
                    ), (i, name)


@pytest.mark.parametrize(
    "rule", ["default model", "greedy 1e-6, one by one", "online row sampling"]
)
@pytest.mark.parametrize("order", ["sorted", "clustered first", "near-duplicates"])
def test_answers_are_those_of_exact_arithmetic_for_the_anchors_that_were_chosen(rule, order):
    kernel, X, Z = (
        stationary_kernel("rbf", 1.0),
        ordered(order, 40),
        torch.linspace(0, 1, 5).double().unsqueeze(-1),
    )
    y = observed(kernel, X)
    state = RULES[rule][1](kernel, X, y)
    points = [*Z.tolist(), *state.anchors.tolist()]
    exact = Exact("rbf", kernel.lengthscale.item(), X.tolist(), y.tolist(), points)
    exact = exact.sketched(state.m, len(Z), lambda ridge: 0, 0.0)
    mean, variance, log_det, quad = exact.at(RIDGE)
    found_mean, found_variance = state.predict(Z)
    assert found_mean.tolist() == pytest.approx(list(map(float, mean)), abs=1e-8)
    assert found_variance.tolist() == pytest.approx(list(map(float, variance)), abs=1e-8)
    assert float(state.at().log_det()) == pytest.approx(float(log_det), abs=1e-8)
    assert float(state.at().quad()) == pytest.approx(float(quad), abs=1e-8)


@pytest.mark.parametrize("order", ORDERS)
def test_a_smaller_threshold_never_makes_bounds_wider(order):
    bound = MartingaleMixture(NOISE_STD, NORM + 1, 0.1)
    Z = torch.linspace(0, 1, 41, dtype=torch.float64).unsqueeze(-1)
    for kind, lengthscale in (("rbf", 0.3), ("rbf", 1.0), ("matern52", 0.3)):
        kernel, X = stationary_kernel(kind, lengthscale), ordered(order, 120)
        y, widths = observed(kernel, X), []
        for threshold in (1e-2, 1e-3, 1e-4, 1e-6):
            model = NystromGP(X, y[:, None], kernel, RIDGE, GreedyDictionary(threshold))
            widths.append(width(bound, model.state, Z))
        assert all(fine <= coarse * 1.01 for coarse, fine in itertools.pairwise(widths)), widths


def test_later_parts_of_the_data_enter_a_dictionary_too():
    """Also a part that is small, or comes after given points, and of a dictionary that draws the first part."""
    kernel, X = (
        stationary_kernel("matern52", 0.3),
        torch.linspace(0, 1, 40, dtype=torch.float64).unsqueeze(-1),
    )
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
    kernel, X = stationary_kernel("rbf", 0.3), ordered("sorted", 60)
    weights = 0.1 + 20 * unit_square(60, 3)[:, 0]
    for parts in (1, 60):
        state = NystromRidge(kernel, RIDGE, GreedyDictionary(1e-3))
        for part, own in zip(X.tensor_split(parts), weights.tensor_split(parts), strict=True):
            state.update(part, part[:, 0], own)
        assert float((weights * left_out(kernel, state.anchors, X)).max()) <= 1e-3 + 20 * ROUNDING


def test_samples_follow_where_a_sketch_chooses_its_anchors_anew():
    """The factor of online row sampling is that of the anchors and their weights."""
    kernel, X = stationary_kernel("rbf", 1.0), ordered("sorted", 60)
    state = one_by_one(OnlineRowSampling(RIDGE), kernel, X, X[:, 0])
    dictionary = state.dictionary
    assert len(dictionary._weights) == state.m < 20
    K = gram(kernel, state.anchors, state.anchors)
    noise = dictionary.mu / K.new_tensor(dictionary._weights)
    assert torch.allclose(
        dictionary._factor.L @ dictionary._factor.L.mT, K + noise.diag(), atol=1e-10
    )


def test_what_a_limit_keeps_out_is_said_and_takes_no_guarantee():
    kernel, X = stationary_kernel("rbf", 0.1), ordered("shuffled", 90)
    y, bound = observed(kernel, X), MartingaleMixture(NOISE_STD, NORM + 1, 0.1)
    for dictionary, capped in [
        (GreedyDictionary(1e-3, most=4), True),
        (OnlineRowSampling(RIDGE, most=4), True),
        (FixedDictionary(X[:4]), False),
        (LeverageResampling(1e-4), False),
    ]:
        state = one_by_one(dictionary, kernel, X, y)
        assert state.dictionary.capped == capped
        assert bound.guarantee_on(state) is not None
        assert FixedPoints(state, X).provenance == state.provenance


# Choosers begin anew


def subclasses(kind: type) -> Iterator[type]:
    for one in kind.__subclasses__():
        yield one
        yield from subclasses(one)


BEGUN: dict[str, Callable[[], Dictionary]] = {
    "FixedDictionary": lambda: FixedDictionary(unit_square(5, 3)),
    "GreedyDictionary": lambda: GreedyDictionary(1e-3, most=9),
    "DefaultDictionary": lambda: (
        NystromGP(unit_square(5, 1), unit_square(5, 1)[:, :1], matern(1.5), RIDGE).dictionary
    ),
    "FocusedDictionary": lambda: FocusedDictionary(1e-3, 9, 6),
    "OnlineRowSampling": lambda: OnlineRowSampling(0.1, most=9),
    "LeverageResampling": lambda: LeverageResampling(3.0, most=9),
    "BatchedResampling": lambda: BatchedResampling(3.0, most=9),
}


def test_every_dictionary_of_kbo_is_in_the_law():
    own = {kind.__name__ for kind in subclasses(Dictionary) if kind.__module__.startswith("kbo.")}
    assert own == {*BEGUN}


@pytest.mark.parametrize("name", BEGUN)
def test_a_chooser_that_was_used_begins_as_a_new_one(name):
    X = unit_square(60, 1)
    y = unit_square(60, 2)[:, 0]
    new, used = (NystromRidge(matern(1.5), RIDGE, BEGUN[name]()) for _ in range(2))
    used.update(X[:38], y[:38])
    for i in range(38, 50):
        used.update(X[i : i + 1], y[i : i + 1])
    again = NystromRidge(matern(1.5), RIDGE, used.dictionary)
    assert again.dictionary.capped is False
    assert repr(again.dictionary) == repr(new.dictionary)
    for i in range(len(X)):
        for state in (new, again):
            state.update(X[i : i + 1], y[i : i + 1])
        assert torch.equal(again.anchors, new.anchors)
        assert again.dictionary.capped == new.dictionary.capped


def test_choosers_of_one_description_share_no_list():
    class Counted(GreedyDictionary):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[int] = []

        def accepts(self, point, sketch):
            self.seen.append(sketch.m)
            return super().accepts(point, sketch)

    X, description = unit_square(5, 1), Counted()
    first, second = (one_by_one(description, matern(1.5), X, X[:, 0]) for _ in range(2))
    assert len(first.dictionary.seen) == len(second.dictionary.seen) == 5
    assert not description.seen


# Figures


def table(n: int) -> None:
    """Print for every rule, kernel and order what is left, the error of the mean, and the width of a bound."""
    Z = torch.linspace(0, 1, 301, dtype=torch.float64).unsqueeze(-1)
    bound = MartingaleMixture(NOISE_STD, NORM + 1, 0.1)
    print("| rule | kernel | order | m | most left | mean off by (sd) | width / exact |")
    print("|---|---|---|---|---|---|---|")
    for rule, (_, state_of) in RULES.items():
        for kernel, shape, order, X, y in cases(KERNELS, n):
            exact = KernelRidge(kernel, RIDGE)
            exact.update(X, y)
            state = state_of(kernel, X, y)
            most = float(left_out(kernel, state.anchors, X).max())
            mean, variance = exact.predict(Z)
            off = float(((mean - state.predict(Z)[0]).abs() / variance.sqrt()).max())
            ratio = width(bound, state, Z) / width(bound, exact, Z)
            row = (
                f"| {rule} | {shape} | {order} | {state.m} | {most:.1e} | {off:.2g} | {ratio:.3f} |"
            )
            print(row, flush=True)


def width(bound: MartingaleMixture, state: Posterior, Z: Tensor) -> float:
    """The mean width of a bound at Z."""
    lower, upper = bound.interval(state, Z)
    return float((upper - lower).mean())


def cost() -> None:
    """Print CPU seconds of the default model and of a greedy dictionary, of data that come at once."""
    for n in (1000, 10_000):
        for kind, lengthscale in (("rbf", 0.3), ("matern52", 0.2)):
            kernel, X = stationary_kernel(kind, lengthscale), unit_square(n, 1)
            y = torch.sin(5 * X.sum(-1))
            for name in ("default", "greedy 1e-3"):
                dictionary = None if name == "default" else GreedyDictionary(1e-3)
                start = time.process_time()
                state = NystromGP(X, y[:, None], kernel, RIDGE, dictionary).state
                print(
                    n,
                    kind,
                    lengthscale,
                    name,
                    "m =",
                    state.m,
                    f"{time.process_time() - start:.2f} s",
                    flush=True,
                )


def path(n: int) -> None:
    """Print what greedy dictionaries leave of points along a path, one by one and at once."""
    kernel = stationary_kernel("rbf", 0.3)
    t = torch.linspace(0, 6, n, dtype=torch.float64)
    X = 0.5 + 0.5 * torch.stack([(3 * t).sin(), (4 * t + 1).sin()], 1)
    centres = unit_square(30, 1)
    weights = torch.randn(30, generator=seeded(2), dtype=torch.float64)
    norm = float((weights @ gram(kernel, centres, centres) @ weights).sqrt())
    noise = NOISE_STD * torch.randn(n, generator=seeded(4), dtype=torch.float64)
    y = gram(kernel, X, centres) @ weights + noise
    for threshold in (1e-3, 1e-5, 1e-7):
        for name, fed in (("one by one", one_by_one), ("at once", at_once)):
            state = fed(GreedyDictionary(threshold), kernel, X, y)
            true = float(left_out(kernel, state.anchors, X).clamp_min(0).sum())
            least = float(norm_lower_bound(state, NOISE_STD, 0.1))
            print(
                f"| {threshold:.0e} | {name} | {state.m} | {state.error.trace:.1e} | {true:.1e} | {least:.2f} |",
                flush=True,
            )
    print("norm", norm)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["cost"]:
            cost()
        case ["path", n]:
            path(int(n))
        case n:
            table(*map(int, n or [600]))
