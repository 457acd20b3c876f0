"""Bracketed minimisation finds the bottom of any valley, wherever it lies, to one part in ten million."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from kbo.confidence.ridge_search import (
    bracket_by_walk,
    brackets_on_grid,
    minimise,
    minimise_one,
)

GRID = torch.tensor([0.1, 0.3, 1.0, 3.0, 10.0], dtype=torch.float64).log()

# x = t - c for a centre c; every shape has its minimum 0 at x = 0 and curvature 1 at most, but the last, which falls.
SHAPES = {
    "round": lambda x: torch.sqrt(1 + x.square()) - 1,
    "flat sides": lambda x: x.square() / (2 + x.square()),
    "slow sides": lambda x: torch.log1p(x.square()) / 2,
    "steep to the left": lambda x: torch.expm1(-x) + x,
    "steep to the right": lambda x: torch.expm1(x) - x,
    "flat floor": lambda x: (x.abs() - 0.5).clamp_min(0).square() / 2,
    "flat to the left, steep to the right": lambda x: torch.where(
        x < 0, x.square() / (2 + x.square()), x.square() / 2
    ),
    "falling": lambda x: -torch.tanh(x / 9),
}
valley = st.tuples(st.sampled_from(sorted(SHAPES)), st.floats(-35, 45), st.floats(0.01, 1))
ends = st.tuples(st.floats(-30, -2.5), st.floats(2.5, 40))


def between(low: float, high: float) -> Tensor:
    return torch.cat([GRID.new_tensor([low]), GRID, GRID.new_tensor([high])])


class Valleys:
    """Several functions at once: one shape, one centre and one size for each."""

    def __init__(self, valleys) -> None:
        shapes, centres, sizes = zip(*valleys, strict=True)
        self.shapes = [SHAPES[shape] for shape in shapes]
        self.c, self.s = (
            torch.tensor(numbers, dtype=torch.float64) for numbers in (centres, sizes)
        )
        self.asked: list[Tensor] = []

    def __call__(self, t: Tensor) -> Tensor:
        self.asked.append(t)
        return self.at(t)

    def at(self, t: Tensor) -> Tensor:
        """Arguments [... B]."""
        return (
            torch.stack(
                [f(x) for f, x in zip(self.shapes, (t - self.c).unbind(-1), strict=True)], -1
            )
            * self.s
        )

    def least(self, low: float, high: float) -> Tensor:
        """The minimum at the centre, or at the end that is nearest to it or at which the function is lowest."""
        ends = self.c.new_tensor([[low], [high]]).expand(2, len(self.c))
        return torch.minimum(self.at(ends).amin(0), self.at(self.c.clamp(low, high)))


@given(several=st.lists(valley, min_size=1, max_size=8), ends=ends)
@example(
    [(shape, c, 1.0) for shape in SHAPES for c in (-25.0, -7.3, -2.2, 0.01, 1.9, 8.8, 35.0)],
    (-30.0, 40.0),
)
def test_finds_the_minima_of_many_valleys_at_once_within_the_limits(several, ends):
    f, grid = Valleys(several), between(*ends)
    t, value = minimise(f, brackets_on_grid(grid, f.at(grid.unsqueeze(-1))))
    least = f.least(*ends)
    assert (value <= least + 1e-7 * (1 + least.abs())).all()
    assert (value >= least - 1e-15 * (1 + least.abs())).all()
    assert torch.equal(value, f.at(t))
    assert len(f.asked) <= 70
    assert all(((ends[0] <= asked) & (asked <= ends[1])).all() for asked in (t, *f.asked))
    for i, one in enumerate(several):  # it does not depend on the other functions
        alone = Valleys([one])
        found = minimise(alone, brackets_on_grid(grid, alone.at(grid.unsqueeze(-1))))[1]
        torch.testing.assert_close(found[0], value[i], rtol=1e-7, atol=1e-7)


@given(one=valley, ends=ends, begin=st.integers(0, 6))
def test_finds_the_minimum_of_one_valley_in_plain_numbers(one, ends, begin):
    f, grid, called = Valleys([one]), between(*ends).tolist(), []

    def value(t: float) -> float:
        called.append(t)
        return float(f.at(torch.tensor([t], dtype=torch.float64)))

    t, found = minimise_one(value, bracket_by_walk(value, grid, begin))
    least = float(f.least(*ends))
    allowed = least + 1e-7 * max(1, abs(least))
    assert least - 1e-15 * max(1, abs(least)) <= found == value(t) <= allowed
    assert ends[0] <= min(called) <= max(called) <= ends[1]
    assert len(called) <= 75


@pytest.mark.parametrize("value", [math.nan, -math.inf])
def test_a_function_that_is_not_a_number_or_minus_infinity_ends_the_search(value):
    called = []

    def f(t: float) -> float:
        called.append(t)
        return value

    found = minimise_one(f, bracket_by_walk(f, GRID.tolist(), 2))[1]
    assert found == pytest.approx(value, nan_ok=True)
    assert len(called) == 3
