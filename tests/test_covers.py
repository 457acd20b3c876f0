"""Covers against Algorithm 2 as written on paper, and the laws of every cover, net, chain and memory of chains."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gpytorch.kernels import (
    ConstantKernel,
    Kernel,
    LinearKernel,
    MaternKernel,
    RBFKernel,
    ScaleKernel,
)
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from experiments.problems import stationary_kernel
from kbo import InvalidInput, KernelRidge
from kbo.confidence import Chaining
from kbo.confidence.chaining import (
    Chain,
    PosteriorMetric,
    cover,
    covers,
    first_fit_net,
    greedy_cover,
)
from kbo.kernels import PrecomputedKernel
from kbo.regression import FixedDictionary, FixedPoints, NystromRidge, Posterior
from tests import dense_chaining
from tests.conftest import DEVICE
from tests.dense import Dense, Sketched, close
from tests.dense_chaining import Covers, is_covered, is_separated
from tests.laws.states import normal, unit_square

pytestmark = pytest.mark.usefixtures("device")


def scaled(name: str, kappa: float, lengthscale: float) -> Kernel:
    kernel = ScaleKernel(stationary_kernel(name, lengthscale)).double()
    kernel.outputscale = torch.tensor(kappa**2, dtype=torch.float64)
    return kernel


def rbf(lengthscale: float = 0.3) -> Kernel:
    return stationary_kernel("rbf", lengthscale)


SETS = {  # a kernel, and points that it understands
    "rbf": (rbf, unit_square),
    "matern12": (lambda: scaled("matern12", 0.3, 0.5), unit_square),
    "linear": (lambda: LinearKernel().double(), unit_square),
    "duplicates": (rbf, lambda n, seed: unit_square(9, 1)[torch.arange(n) % 9]),
}


def data(points, n: int) -> tuple[Tensor, Tensor]:
    X = points(n, 50)
    return X.to(DEVICE), normal(n, 51).to(DEVICE)


def compare(state: Posterior, formulas: Dense, Z: Tensor, ridge: float) -> Covers:
    """Equal indices, sizes and values at all levels."""
    confidence = Chaining(0.07, points=Z)
    expected = Covers(formulas, Z, ridge)
    found = confidence.chain(state)
    assert found.sizes == expected.sizes
    assert found.centres(len(found)).tolist() == expected.order
    for level, eps in enumerate(expected.radii, start=1):
        assert found.radius(level) == pytest.approx(eps, rel=1e-12)
    assert confidence.bonus(state).heights == pytest.approx(expected.heights(0.07), rel=1e-12)
    return expected


# Against the dense formulas


@pytest.mark.parametrize("name", SETS)
def test_chains_are_those_of_the_paper(name):
    kernel, points = SETS[name]
    for n, size, ridge in ((0, 37, 3.0), (1, 1, 0.02), (70, 100, 1e-6)):
        X, y = data(points, n)
        Z = points(size, 1).to(DEVICE)
        ridge *= float(KernelRidge(kernel(), 1.0).prior_variance(Z).max())
        state = KernelRidge(kernel(), ridge)
        state.update(X, y)
        expected = compare(state, Dense(kernel(), X, y), Z, ridge)
        assert n < 70 or name not in ("rbf", "linear") or len(expected.sizes) > 5


def test_a_point_at_exactly_the_radius_is_covered_by_the_first_that_covers_most():
    """Distances under this kernel are 1 = eps_1 between neighbours of a ring, sqrt(2) else, all without rounding."""
    gram = torch.eye(8, dtype=torch.float64)
    gram += 0.5 * (gram.roll(1, 0) + gram.roll(-1, 0))
    kernel = PrecomputedKernel(gram)
    Z = torch.arange(8, dtype=torch.float64).unsqueeze(-1)
    state = KernelRidge(kernel, 0.1)
    assert Chain(PosteriorMetric(state, Z), 1.0, 1).centres(1).tolist() == [0, 3, 5]
    compare(state, Dense(kernel, Z[:0], Z[:0, 0]), Z, 0.1)


# Covers of a matrix of distances


class Matrix(PosteriorMetric):
    """A set given by all its distances [N N]."""

    def __init__(self, distances: Tensor, numbers: Tensor | None = None) -> None:
        self.distances, self.device = distances, distances.device
        self.slack = 0.0
        self.numbers = torch.arange(len(distances)) if numbers is None else numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, points: Tensor | slice) -> Matrix:
        return Matrix(self.distances, self.numbers[points])

    def squared(self, other: Matrix) -> Tensor:
        return self.distances[self.numbers.unsqueeze(-1), other.numbers].square()

    def radial(self) -> None:
        return None


@st.composite
def matrices(draw) -> tuple[Tensor, float]:
    """Distances on a coarse grid, so that ties and points at exactly the radius abound."""
    n = draw(st.integers(1, 14))
    steps = draw(st.sampled_from([2, 4, 8]))
    numbers = draw(st.lists(st.integers(0, steps), min_size=n * n, max_size=n * n))
    D = torch.tensor(numbers, dtype=torch.float64).reshape(n, n).triu(1) / 4
    return D + D.T, draw(st.integers(0, steps)) / 4


@given(matrices(), st.randoms(use_true_random=False))
def test_greedy_covers_and_chains_of_a_matrix_are_those_of_brute_force(case, random):
    D, radius = case
    whole = Matrix(D)
    part = whole[torch.tensor([random.random() < 0.7 for _ in D])]
    for points in (whole, part):
        among = D.numpy()[np.ix_(points.numbers, points.numbers)]
        assert greedy_cover(points, radius).tolist() == dense_chaining.greedy(among, radius)
    found = Chain(whole, 2.0, 5)
    expected = dense_chaining.hierarchy(D.numpy(), [2.0, 1.0, 0.5, 0.25, 0.125])
    assert (found.centres(5).tolist(), found.sizes) == expected


def test_a_covered_point_is_no_centre():
    """Point 0 covers 1 and 4 .. 7; then 1 would cover 2 and 3, but is covered."""
    D = 2 * (1 - torch.eye(8, dtype=torch.float64))
    for a, b in [(0, 1), (0, 4), (0, 5), (0, 6), (0, 7), (1, 2), (1, 3)]:
        D[a, b] = D[b, a] = 1.0
    assert greedy_cover(Matrix(D), 1.0).tolist() == [0, 2, 3]


@given(matrices(), st.integers(1, 4))
def test_every_cover_of_a_matrix_covers_and_nets_are_separated(case, at_once):
    D, radius = case
    whole = Matrix(D)
    table = D.numpy()
    net = first_fit_net(whole, radius).tolist()
    assert is_covered(table, radius, net)
    assert is_separated(table, radius, net)
    order = list(range(len(D)))[::-1]
    expected = []
    for i in order:
        if (D[i, expected] > radius).all():
            expected.append(i)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cover, "NET_BLOCK", at_once)
        patch.setattr(cover, "CENTRE_BLOCK", at_once)
        assert cover.net_of(whole, radius, torch.tensor(order)).tolist() == expected
    centres = greedy_cover(whole, radius)
    assert covers(whole, centres, radius)
    for some in (centres, centres[:-1]):
        assert covers(whole, some, radius) == is_covered(table, radius, some.tolist())


@pytest.mark.parametrize("make", [greedy_cover, first_fit_net])
def test_no_points_and_points_at_exactly_the_radius(make):
    """Also where the square of a float and its power of 2 are rounded to different sides."""
    apart = 1 - torch.eye(7).double()
    assert make(Matrix(apart)[:0], 0.5).tolist() == []
    radii = [k / 9_991 for k in range(1, 9_991)]
    for radius in [*(r for r in radii if r**2 != r * r), 1e200]:
        assert make(Matrix(radius * apart), radius).tolist() == [0]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda apart: greedy_cover(apart, 0.2), "metric"),
        (lambda apart: greedy_cover(Matrix(torch.zeros(10_001, 0)), 1.0), "take first_fit_net"),
        (lambda apart: Chain(Matrix(apart), 1.0, 3).centres(4), "level must be 1 to 3"),
    ],
)
def test_mistakes_are_named(make, says):
    with pytest.raises(InvalidInput, match=says):
        make(1 - torch.eye(3).double())


# Chains under a posterior


def nested_covers(found: Chain, D: np.ndarray, slack: float) -> None:
    """Every level covers and is part of the next, and no point comes twice."""
    everything = found.centres(len(found)).tolist()
    assert len(set(everything)) == len(everything)
    assert found.sizes == sorted(found.sizes)
    for level, size in enumerate(found.sizes, 1):
        centres = found.centres(level).tolist()
        assert centres == everything[:size]
        assert is_covered(D, found.radius(level), centres, 2 * slack)


@pytest.mark.parametrize(
    ("kernel", "is_euclidean"),
    [
        (rbf(), True),
        (scaled("matern12", 7.0, 0.5), True),
        (rbf() + scaled("matern52", 0.3, 0.2), False),
    ],
    ids=["rbf", "matern12", "sum"],
)
def test_chains_of_large_sets_are_nested_covers(monkeypatch, kernel, is_euclidean):
    Z = unit_square(300, 0).to(DEVICE)
    for n, at_once in ((0, 10), (30, 60)):
        X, y = data(unit_square, n)
        state = KernelRidge(kernel, 1e-4)
        state.update(X, y)
        found = PosteriorMetric(state, Z)
        D = Covers(Dense(kernel, X, y), Z, 1e-4).D
        close(found.squared(found), torch.from_numpy(D**2).to(Z), 1e-9)
        monkeypatch.setattr(cover, "AT_ONCE", at_once)
        kappa = float(state.prior_variance(Z).max()) ** 0.5
        chained = Chain(found, kappa, 9)
        nested_covers(chained, D, found.slack)
        assert chained.sizes[0] < 40
        later = Chain(found, kappa, 3)
        later.extend(found, 9)
        assert later.sizes == chained.sizes
        assert torch.equal(later.centres(9), chained.centres(9))
        assert (found.radial() is not None) == is_euclidean


def test_a_kernel_that_returns_what_it_keeps_is_not_written_to():
    X = unit_square(5, 0)
    state = KernelRidge(ConstantKernel().double(), 0.1)
    state.update(X, X[:, 0])
    squares = PosteriorMetric(state, X).squared(PosteriorMetric(state, X))
    assert squares == pytest.approx(0.0, abs=1e-12)


# Memory

X, Y = data(unit_square, 80)
Z = unit_square(120, 0).to(DEVICE)
ANCHORS = [None, unit_square(15, 7)]


def learned(
    n: int, anchors: Tensor | None, ridge=0.05, kernel: Kernel | None = None, start: int = 0
) -> Posterior:
    kernel = kernel or rbf()
    state = KernelRidge(kernel, ridge)
    if anchors is not None:
        state = NystromRidge(kernel, ridge, FixedDictionary(anchors))
    state.update(X[start:n], Y[start:n])
    return state


@pytest.mark.parametrize("anchors", ANCHORS, ids=["exact", "sketched"])
def test_a_chain_is_kept_while_data_arrive_and_still_covers(monkeypatch, anchors):
    """Also with deeper levels, when points become known."""
    monkeypatch.setattr("kbo.confidence.chaining.chain.GROWTH", 100.0)
    ridge = 1e-4
    confidence = Chaining(0.1, points=Z)
    state = learned(1, anchors, ridge)
    first = confidence.chain(state)
    sizes = list(first.sizes)
    forked = state.fork()
    rebuilt = learned(0, anchors, ridge)
    tracked = FixedPoints(learned(0, anchors, ridge), Z)
    for grown, n in ((state, 5), (forked, 21), (rebuilt, 60), (tracked, 70)):
        scale = 5 if grown is rebuilt else 1  # distances do not depend on targets
        grown.update(X[grown.n : n], scale * Y[grown.n : n])
        assert confidence.chain(grown) is first
        formulas = Dense(rbf(), X[:n], Y[:n])
        if anchors is not None:
            formulas = Sketched(rbf(), X[:n], Y[:n], anchors.to(X))
        nested_covers(first, Covers(formulas, Z, ridge).D, 1e-12)
        # The bonus is that of the sizes which are kept, at the t of now.
        for level, height in enumerate(confidence.bonus(grown).heights, 1):
            term = dense_chaining.term(first.sizes[level - 1] + 1, level, n + 1, 0.1)
            assert height == pytest.approx(first.radius(level) * term)
    assert first.sizes[: len(sizes)] == sizes
    assert len(confidence.bonus(tracked).heights) == len(first) > len(sizes)
    assert len(confidence.bonus(learned(1, anchors, ridge)).heights) == len(sizes)
    assert sum(Chaining(0.1, points=Z).chain(tracked).sizes[:3]) < sum(first.sizes[:3])


@pytest.mark.parametrize("anchors", ANCHORS, ids=["exact", "sketched"])
def test_a_chain_is_computed_anew_where_it_may_not_hold(anchors):
    moved = learned(20, anchors)
    moved.move_ridge(0.01)
    others = [
        moved,
        learned(30, anchors, 0.049),
        learned(30, anchors, kernel=rbf(0.31)),
        learned(30, anchors, start=1),  # other data
        learned(19, anchors),
        learned(41, anchors),  # more than twice as many
    ]
    if anchors is not None:
        others.append(learned(30, unit_square(15, 8)))
    for state in others:
        confidence = Chaining(0.1)
        first = confidence.chain(learned(20, anchors), Z)
        assert confidence.chain(learned(40, anchors), Z.clone()) is first
        assert confidence.chain(state, Z) is not first
        expected = Chaining(0.1).bonus(state, Z).heights
        assert confidence.bonus(state, Z).heights == expected
    first = confidence.chain(state, Z)
    points = Z.clone()
    points[77, 1] += 1e-9
    assert confidence.chain(state, points) is not first


def test_a_kernel_that_differs_anywhere_is_another():
    """All numbers of these two on a grid are the same."""
    line = torch.linspace(0, 1, 32, dtype=torch.float64)
    grid = torch.cartesian_prod(line, line)
    first, second = (
        RBFKernel(active_dims=[0]).double() * MaternKernel(nu=nu, active_dims=[1]).double()
        for nu in (2.5, 0.5)
    )
    confidence = Chaining(0.1, points=grid)
    chains = []
    for kernel in (first, first, second):
        state = KernelRidge(kernel, 0.1)
        state.update(grid[:5], grid[:5, 0])
        chains.append(confidence.chain(state))
    assert chains[0] is chains[1] is not chains[2]
