"""Bracketed minimisation finds the bottom of any valley, wherever it lies, to one part in ten million."""

from __future__ import annotations

import copy
import math
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from kbo.confidence.mixture.line_search import minimise, minimise_one

LOW, HIGH = -30.0, 40.0
GRID = torch.tensor([0.1, 0.3, 1.0, 3.0, 10.0], dtype=torch.float64).log()

# x = t - c for a centre c; every shape has its minimum 0 at x = 0 and curvature 1 at most.
SHAPES = {
    "round": lambda x: torch.sqrt(1 + x.square()) - 1,
    "flat sides": lambda x: x.square() / (2 + x.square()),
    "slow sides": lambda x: torch.log1p(x.square()) / 2,
    "steep to the left": lambda x: torch.expm1(-x) + x,
    "steep to the right": lambda x: torch.expm1(x) - x,
    "flat floor": lambda x: (x.abs() - 0.5).clamp_min(0).square() / 2,
    "flat to the left, steep to the right": lambda x: torch.where(x < 0, x.square() / (2 + x.square()), x.square() / 2),
}


def between(low: float, high: float) -> Tensor:
    return torch.cat([GRID.new_tensor([low]), GRID, GRID.new_tensor([high])])


class Valleys:
    """Several functions at once: one shape, one centre and one size for each."""

    def __init__(self, shapes, centres, sizes, device="cpu") -> None:
        self.shapes = [SHAPES[shape] for shape in shapes]
        self.c = torch.tensor(centres, dtype=torch.float64, device=device)
        self.s = torch.tensor(sizes, dtype=torch.float64, device=device)
        self.asked: list[Tensor] = []

    def __call__(self, t: Tensor) -> Tensor:
        self.asked.append(t)
        return self.at(t)

    def at(self, t: Tensor) -> Tensor:
        """Arguments [... B]."""
        return torch.stack([f(x) for f, x in zip(self.shapes, (t - self.c).unbind(-1), strict=True)], -1) * self.s

    def select(self, rows: Tensor) -> Valleys:
        """Some of the functions, which go on recording together."""
        part = copy.copy(self)
        part.shapes, part.c, part.s = [self.shapes[row] for row in rows.tolist()], self.c[rows], self.s[rows]
        return part

    def minimise(self, low: float = LOW, high: float = HIGH) -> tuple[Tensor, Tensor]:
        grid = between(low, high).to(self.c)
        return minimise(self, self.select, grid, self.at(grid.unsqueeze(-1)))


def on_a_dense_grid(f: Valleys, low: float, high: float) -> Tensor:
    """Minima [B] by refining a grid."""
    a, b = torch.full_like(f.c, low), torch.full_like(f.c, high)
    for _ in range(6):
        t = a + (b - a) * torch.linspace(0, 1, 201, dtype=a.dtype, device=a.device).unsqueeze(-1)
        best = f.at(t).argmin(0)
        a, b = (t.gather(0, (best + side).clamp(0, 200).unsqueeze(0))[0] for side in (-1, 1))
    return f.at(t).amin(0)


valley = st.tuples(st.sampled_from(sorted(SHAPES)), st.floats(-25, 35), st.floats(0.01, 1))


@pytest.mark.parametrize("shape", SHAPES)
def test_finds_the_minimum_of_one_valley_wherever_it_lies(device, shape):
    for centre in (-25.0, -7.3, -2.2, -0.4, 0.0, 0.01, 1.9, 2.4, 8.8, 35.0):
        f = Valleys([shape], [centre], [1.0], device)
        t, value = f.minimise()
        assert 0 <= float(value) < 1e-7
        assert LOW <= float(t) <= HIGH
        assert torch.equal(value, f.at(t))
        assert len(f.asked) <= 70


@given(several=st.lists(valley, min_size=1, max_size=8))
def test_finds_the_minima_of_many_valleys_at_once(device, several):
    f = Valleys(*zip(*several, strict=True), device)
    t, value = f.minimise()
    least = on_a_dense_grid(f, LOW, HIGH)
    assert (value <= least + 1e-7).all()
    assert (value >= 0).all()
    assert torch.equal(value, f.at(t))
    assert len(f.asked) <= 70


@given(
    shape=st.sampled_from(sorted(SHAPES)), centre=st.floats(-35, 45), begin=st.integers(0, 6), enough=st.floats(0, 1)
)
def test_finds_the_minimum_of_one_valley_in_plain_numbers(shape, centre, begin, enough):
    f, grid, called = Valleys([shape], [centre], [1.0]), between(LOW, HIGH).tolist(), []

    def value(t: float) -> float:
        called.append(t)
        return float(f.at(torch.tensor([t], dtype=torch.float64)))

    t, found = minimise_one(value, grid, begin)
    least = float(f.at(f.c.clamp(LOW, HIGH)))
    assert least <= found == value(t) <= least + 1e-7 * max(1, abs(least))
    assert LOW <= min(called) <= max(called) <= HIGH
    assert len(called) <= 75
    assert minimise_one(value, grid, begin, enough=least + enough)[1] <= least + enough + 1e-7 * max(1, abs(least))


@given(several=st.lists(valley, min_size=1, max_size=6), low=st.floats(-9, -2.5), high=st.floats(2.5, 9))
def test_stays_within_the_limits_and_finds_a_minimum_at_either(device, several, low, high):
    f = Valleys(*zip(*several, strict=True), device)
    t, value = f.minimise(low, high)
    grid = on_a_dense_grid(f, low, high)
    assert (value <= grid + 1e-7 + 1e-10 * grid.abs()).all()
    assert (value >= f.at(f.c.clamp(low, high)) - 1e-15).all()
    assert min(float(asked.min()) for asked in f.asked) >= low
    assert max(float(asked.max()) for asked in f.asked) <= high
    assert ((low <= t) & (t <= high)).all()


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("side", [torch.tanh, lambda t: t, torch.exp, lambda t: -torch.exp(-t)])
def test_a_function_without_a_valley_has_its_minimum_at_the_limit(sign, side):
    grid = between(-12.0, 12.0)
    t, value = minimise(
        lambda t: sign * side(t), lambda rows: lambda t: sign * side(t), grid, sign * side(grid)[:, None]
    )
    least = float(sign * side(torch.tensor(-12.0 * sign, dtype=torch.float64)))
    assert least <= float(value) <= least + 1e-7 * max(1, abs(least))
    assert -12.0 <= float(t) <= 12.0


def test_a_kink_is_found_to_the_tolerance(device):
    slopes = torch.tensor([[1.0, 1.0], [5.0, 0.1], [0.1, 5.0]], dtype=torch.float64, device=device)
    centres = torch.tensor([0.37, -4.2, 5.1], dtype=torch.float64, device=device)

    def f(t: Tensor, rows: Tensor | slice = slice(None)) -> Tensor:
        x = t - centres[rows]
        return torch.where(x < 0, -slopes[rows, 0] * x, slopes[rows, 1] * x)

    grid = between(LOW, HIGH).to(device)
    t, value = minimise(f, lambda rows: partial(f, rows=rows), grid, f(grid.unsqueeze(-1)))
    assert (value <= 2e-3 * slopes.amax(1)).all()  # the bounds have no kinks; one must not send the search astray
    assert torch.equal(value, f(t))


def test_a_minimum_does_not_depend_on_the_other_functions():
    shapes, centres = list(SHAPES), torch.linspace(-20, 20, len(SHAPES)).tolist()
    together = Valleys(shapes, centres, [1.0] * len(shapes)).minimise()[1]
    for shape, centre, value in zip(shapes, centres, together, strict=True):
        alone = Valleys([shape], [centre], [1.0]).minimise()[1]
        assert math.isclose(float(alone), float(value), abs_tol=1e-7)
