"""Covers against Algorithm 2 as written on paper, and the laws of every cover, net, chain and memory of chains.

``python -m tests.test_covers 2000`` compares chains of up to 2000 points.
"""

from __future__ import annotations

import copy
import math
import pickle
import sys
from itertools import pairwise

import numpy as np
import pytest
import torch
from gpytorch.kernels import Kernel, LinearKernel, MaternKernel, RBFKernel, ScaleKernel
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from kbo import InvalidInput, KernelRidge
from kbo.confidence import Chaining
from kbo.covers import (
    Chain,
    DistanceMatrix,
    PosteriorMetric,
    chain,
    covers,
    farthest_point_net,
    first_fit_net,
    greedy,
    greedy_cover,
)
from kbo.covers.neighbours import Neighbours
from kbo.covers.reuse import ChainMemory
from kbo.kernels import PrecomputedKernel
from kbo.problems import GraphBandit
from kbo.regression import FixedDictionary, GreedyDictionary, NystromRidge, Posterior, Tracked, track
from tests import dense_chaining
from tests.dense import Dense, Sketched
from tests.dense_chaining import Covers, is_covered, is_separated
from tests.laws.states import seeded


def uniform(n: int, d: int = 2, seed: int = 0) -> Tensor:
    return torch.rand(n, d, generator=seeded(seed), dtype=torch.float64)


def plane(n: int, seed: int) -> Tensor:
    return uniform(n, 2, seed)


def scaled(base: Kernel, kappa: float, lengthscale: float) -> Kernel:
    kernel = ScaleKernel(base).double()
    kernel.outputscale, base.lengthscale = torch.tensor(kappa**2, dtype=torch.float64), lengthscale
    return kernel


def rbf(lengthscale: float = 0.3) -> Kernel:
    kernel = RBFKernel().double()
    kernel.lengthscale = lengthscale
    return kernel


def linear() -> Kernel:
    kernel = LinearKernel().double()
    kernel.variance = 1.0
    return kernel


def objects(count: int = 400) -> Kernel:
    """Of so many objects; no stationary kernel."""
    features = torch.randn(count, 6, generator=seeded(3), dtype=torch.float64)
    return PrecomputedKernel(features @ features.T / 6)


def graphs(n: int, seed: int) -> Tensor:
    return GraphBandit(400).arms()[torch.randperm(400, generator=seeded(seed))][torch.arange(n) % 400]


def numbers(n: int, seed: int) -> Tensor:
    return shuffled(400, n, seed)


def shuffled(count: int, n: int, seed: int) -> Tensor:
    return torch.randperm(count, generator=seeded(seed))[:n].double().unsqueeze(-1)


def top(kernel: Kernel, Z: Tensor) -> float:
    """The largest k(x, x)."""
    with torch.no_grad():
        return float(kernel.to(Z)(Z, diag=True).max())


SETS = {  # a kernel, and points that it understands
    "rbf": (rbf, plane),
    "matern12": (lambda: scaled(MaternKernel(nu=0.5), 0.3, 0.5), plane),
    "matern52": (lambda: scaled(MaternKernel(nu=2.5), 7.0, 0.4), plane),
    "graphs": (linear, graphs),
    "objects": (objects, numbers),
}


def data(points, n: int, device, places: int | None = None) -> tuple[Tensor, Tensor]:
    """n observations, repeated ones among them if there are fewer places."""
    places = n if places is None else places
    X = points(places, 50)[torch.arange(n) % max(places, 1)] if n else points(1, 50)[:0]
    return X.to(device), torch.randn(n, generator=seeded(51), dtype=torch.float64).to(device)


def same(found: Chain, heights: list[float], expected: Covers, delta: float) -> None:
    """Equal indices, sizes and values at all levels."""
    assert found.sizes == expected.sizes
    assert found.centres(len(found)).tolist() == expected.order
    for level, eps in enumerate(expected.radii, start=1):
        assert found.radius(level) == pytest.approx(eps, rel=1e-12)
        assert found.centres(level).tolist() == expected.order[: expected.sizes[level - 1]]
    assert heights == pytest.approx(expected.heights(delta), rel=1e-12)


def compare(state: Posterior, formulas: Dense, Z: Tensor, ridge: float) -> Covers:
    confidence = Chaining(0.07, points=Z)
    expected = Covers(formulas, Z, ridge)
    same(confidence.chain(state), confidence.bonus(state).heights, expected, 0.07)
    return expected


# Against the dense formulas


@pytest.mark.parametrize("ridge", [1e-6, 0.02, 3.0])
@pytest.mark.parametrize("n", [0, 1, 10, 70])
@pytest.mark.parametrize("name", SETS)
def test_chains_are_those_of_the_paper(device, name, n, ridge):
    kernel, points = SETS[name]
    size = {0: 37, 1: 60, 10: 120, 70: 100}[n]
    (X, y), Z = data(points, n, device), points(size, 1).to(device)
    ridge *= top(kernel(), Z)
    state = KernelRidge(kernel(), ridge)
    state.update(X, y)
    expected = compare(state, Dense(kernel(), X, y), Z, ridge)
    if name in ("rbf", "graphs") and n == 70 and ridge < 1e-5:
        assert len(expected.sizes) > 5


@pytest.mark.parametrize("size", [1, 2, 3, 16, 17, 400])
def test_sets_of_any_size(device, size):
    (X, y), Z = data(plane, 12, device), uniform(size).to(device)
    state = KernelRidge(rbf(), 0.01)
    state.update(X, y)
    compare(state, Dense(rbf(), X, y), Z, 0.01)


def test_repeated_observations_and_duplicate_points(device):
    X, y = data(plane, 70, device, places=9)
    Z = torch.cat([uniform(60), X[:9].cpu(), uniform(60)[::2], X[:4].cpu()]).to(device)
    state = KernelRidge(rbf(), 1e-3)
    state.update(X, y)
    expected = compare(state, Dense(rbf(), X, y), Z, 1e-3)
    assert len(expected.sizes) > 5
    # Of points that are equal only the first is ever chosen.
    assert len({tuple(Z[i].tolist()) for i in expected.order}) == len(expected.order)


@pytest.mark.parametrize("size", [10, 150])
@pytest.mark.parametrize("kind", ["tracked", "fixed", "tracked-fixed", "greedy"])
def test_chains_under_other_posteriors(device, kind, size):
    kernel = scaled(MaternKernel(nu=2.5), 2.0, 0.4)
    (X, y), Z = data(plane, 40, device, places=30), uniform(size).to(device)
    anchors = uniform(15, seed=7).to(device)
    dictionary = GreedyDictionary(0.2) if kind == "greedy" else FixedDictionary(anchors)
    state = KernelRidge(kernel, 0.05) if kind == "tracked" else NystromRidge(kernel, 0.05, dictionary)
    seen = track(state, Z) if "tracked" in kind else state
    seen.update(X, y)
    anchors = state.anchors if kind == "greedy" else anchors
    compare(seen, Dense(kernel, X, y) if kind == "tracked" else Sketched(kernel, X, y, anchors), Z, 0.05)


def test_a_point_at_exactly_the_radius_is_covered_by_the_first_that_covers_most():
    """Distances under this kernel are 1 = eps_1 between neighbours of a ring, sqrt(2) else, all without rounding."""
    gram = torch.eye(8, dtype=torch.float64)
    for i in range(8):
        gram[i, (i + 1) % 8] = gram[(i + 1) % 8, i] = 0.5
    Z = torch.arange(8, dtype=torch.float64).unsqueeze(-1)
    found = Chain(PosteriorMetric(KernelRidge(PrecomputedKernel(gram), 0.1), Z), 1.0, 1)
    assert found.centres(1).tolist() == [0, 3, 5]
    compare(KernelRidge(PrecomputedKernel(gram), 0.1), Dense(PrecomputedKernel(gram), Z[:0], Z[:0, 0]), Z, 0.1)


# Covers of a matrix of distances


@st.composite
def matrices(draw) -> tuple[Tensor, float]:
    """Distances on a coarse grid, so that ties and points at exactly the radius abound."""
    n, steps = draw(st.integers(1, 14)), draw(st.sampled_from([2, 4, 8]))
    numbers = draw(st.lists(st.integers(0, steps), min_size=n * n, max_size=n * n))
    D = torch.tensor(numbers, dtype=torch.float64).reshape(n, n).triu(1) / 4
    return D + D.T, draw(st.integers(0, steps)) / 4


def brute_force(D: Tensor, radius: float, among: list[int]) -> list[int]:
    alive, chosen = set(among), []
    while alive:
        best = max(sorted(alive), key=lambda i: sum(float(D[i, j]) <= radius for j in alive))
        chosen.append(best)
        alive -= {j for j in alive if float(D[best, j]) <= radius}
    return chosen


@given(matrices(), st.randoms(use_true_random=False))
def test_greedy_covers_are_those_of_brute_force(case, random):
    D, radius = case
    everything = list(range(len(D)))
    some = sorted(random.sample(everything, random.randint(0, len(D))))
    assert greedy_cover(D, radius).tolist() == brute_force(D, radius, everything)
    assert greedy_cover(D, radius, torch.tensor(some, dtype=torch.long)).tolist() == brute_force(D, radius, some)
    assert greedy_cover(D, radius).tolist() == dense_chaining.greedy(D.numpy(), radius)


@given(matrices())
def test_chains_of_a_matrix_are_those_of_the_paper(case):
    D, _ = case
    found = Chain(DistanceMatrix(D), 2.0, 5)
    assert (found.centres(5).tolist(), found.sizes) == dense_chaining.hierarchy(D.numpy(), [2.0, 1.0, 0.5, 0.25, 0.125])


@given(matrices(), st.integers(0, 13), st.integers(1, 4))
def test_every_cover_of_a_matrix_covers_and_nets_are_separated(case, first, at_once):
    D, radius = case
    table = D.numpy()
    farthest = farthest_point_net(D, radius, first % len(D)).tolist()
    for net in (first_fit_net(D, radius).tolist(), farthest):
        assert is_covered(table, radius, net)
        assert is_separated(table, radius, net)
    assert farthest[0] == first % len(D)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(greedy, "AT_ONCE", at_once)
        rounds = greedy_cover(D, radius).tolist()
    assert is_covered(table, radius, rounds)
    assert len(set(rounds)) == len(rounds)
    assert covers(D, torch.tensor(rounds), radius)
    assert covers(D, torch.tensor(rounds[:-1], dtype=torch.long), radius) == is_covered(table, radius, rounds[:-1])


@given(matrices())
def test_farthest_point_nets_of_smaller_radii_begin_with_those_of_larger_ones(case):
    D, _ = case
    nets = [farthest_point_net(D, radius / 4).tolist() for radius in range(9)]
    for finer, coarser in pairwise(nets):
        assert finer[: len(coarser)] == coarser


@given(matrices())
def test_first_fit_nets_take_what_no_earlier_point_covers_in_the_order_given(case):
    D, radius = case
    order, expected = list(range(len(D)))[::-1], []
    for i in order:
        if all(float(D[i, j]) > radius for j in expected):
            expected.append(i)
    assert first_fit_net(D, radius, torch.tensor(order)).tolist() == expected


@pytest.mark.parametrize("radius", [0.0, 0.5])
def test_lone_points_equal_points_and_radius_zero(radius):
    alone, equal = torch.zeros(1, 1).double(), torch.zeros(7, 7).double()
    apart = 1 - torch.eye(7).double()
    for cover in (greedy_cover, first_fit_net, farthest_point_net):
        assert cover(alone, radius).tolist() == [0]
        assert cover(equal, radius).tolist() == [0]
        assert sorted(cover(apart, radius).tolist()) == list(range(7))
    assert greedy_cover(apart, 1.0).tolist() == [0]
    assert greedy_cover(apart, radius, torch.zeros(0, dtype=torch.long)).tolist() == []


def test_a_point_at_exactly_the_radius_is_covered_whatever_the_radius():
    """Also where the square of a float and its power of 2 are rounded to different sides."""
    radii = [k / 99_991 for k in range(1, 99_991)]
    odd = [r for r in radii if r**2 != r * r]
    for radius in (*odd, *radii[::10_000], 1e-3, 1e3, 1e200):
        D = radius * (1 - torch.eye(2).double())
        for cover in (greedy_cover, first_fit_net, farthest_point_net):
            assert cover(D, radius).tolist() == [0]


def test_a_matrix_of_any_real_type_is_a_space():
    for dtype in (torch.float32, torch.float64, torch.int64):
        D = 3 * (1 - torch.eye(5, dtype=torch.int64)).to(dtype)
        assert len(greedy_cover(D, 2.0)) == 5
        assert len(greedy_cover(D, 3.0)) == 1


@pytest.mark.parametrize("radius", [-1.0, math.nan, math.inf, "small", None])
def test_impossible_radii_are_refused(radius):
    D = 1 - torch.eye(3).double()
    for cover in (greedy_cover, first_fit_net, farthest_point_net):
        with pytest.raises(InvalidInput, match="radius"):
            cover(D, radius)


@pytest.mark.parametrize(
    "D",
    [
        torch.zeros(3, 2),
        torch.zeros(3),
        torch.tensor([[0.0, 1.0], [2.0, 0.0]]),
        torch.tensor([[0.0, -1.0], [-1.0, 0.0]]),
        torch.tensor([[1.0, 1.0], [1.0, 0.0]]),
        torch.full((2, 2), math.nan),
        [[0.0]],
    ],
)
def test_impossible_matrices_are_refused(D):
    for cover in (greedy_cover, first_fit_net, farthest_point_net):
        with pytest.raises(InvalidInput, match="distances"):
            cover(D, 1.0)
    with pytest.raises(InvalidInput):
        DistanceMatrix(D)


def test_points_of_a_posterior_are_checked():
    state = KernelRidge(rbf(), 0.1)
    for points in (uniform(3)[0], uniform(0), uniform(3).long(), uniform(3).log() * math.inf):
        with pytest.raises(InvalidInput):
            PosteriorMetric(state, points)


# Distances under a posterior


def metric(
    n: int = 20, size: int = 150, kernel: Kernel | None = None, ridge: float = 0.01, device="cpu"
) -> tuple[PosteriorMetric, np.ndarray]:
    """A set under a posterior, and its distances by dense formulas."""
    kernel = rbf() if kernel is None else kernel
    X, y = data(plane, n, device)
    state, Z = KernelRidge(kernel, ridge), uniform(size).to(device)
    state.update(X, y)
    return PosteriorMetric(state, Z), Covers(Dense(kernel, X, y), Z, ridge).D


def test_distances_are_those_of_the_dense_formula_whatever_part_is_asked_for(device):
    found, expected = metric(device=device)
    torch.testing.assert_close(found.squared(found), torch.from_numpy(expected**2).to(device), rtol=1e-9, atol=1e-12)
    part = torch.tensor([5, 77, 5, 149], device=device)
    torch.testing.assert_close(
        found.squared(found)[part][:, 10:90], found[part].squared(found[10:90]), atol=1e-13, rtol=0
    )
    assert torch.equal(found[part][1:3].points, found.points[part][1:3])
    assert len(found[part]) == 4


def test_blocks_of_any_size_make_the_same_graph(monkeypatch, device):
    found, D = metric(size=130, device=device)
    graph = torch.from_numpy(D <= 0.4).to(device)
    assert torch.equal(found.ranks([0.4]) > 0, graph)
    monkeypatch.setattr("kbo.covers.metric._BLOCK", {"cpu": 300, "cuda": 300})
    assert torch.equal(found.ranks([0.4]) > 0, graph)
    assert len(list(found.blocks(2**14))) > 5


@pytest.mark.parametrize("radius", [0.0, 0.1, 0.4, 5.0])
@pytest.mark.parametrize("n", [0, 20])
def test_every_cover_of_a_posterior_covers(monkeypatch, device, n, radius):
    found, D = metric(n, device=device)
    slack = found.slack
    nets = {"greedy": greedy_cover(found, radius), "first": first_fit_net(found, radius)}
    nets |= {"farthest": farthest_point_net(found, radius, 11)}
    monkeypatch.setattr(greedy, "AT_ONCE", 20)
    nets |= {"rounds": greedy_cover(found, radius)}
    monkeypatch.setattr("kbo.covers.greedy._TOGETHER", 7)
    monkeypatch.setattr(greedy, "_COLUMNS", 3)
    nets |= {"in pieces": first_fit_net(found, radius)}
    for net in nets.values():
        assert is_covered(D, radius, net.tolist(), 2 * slack)
        assert covers(found, net, radius)
        assert len(net) < 2 or not covers(found, net[:0], radius)
    for name in ("first", "farthest", "in pieces"):
        assert is_separated(D, radius, nets[name].tolist())
    assert torch.equal(nets["first"], nets["in pieces"])
    assert nets["greedy"].tolist() == dense_chaining.greedy(D, math.sqrt(radius**2 + slack))
    if n == 0 and radius == 0.4:
        assert len(nets["greedy"]) < len(nets["rounds"])


def neighbours_of(metric) -> Neighbours | None:
    radial = metric.radial()
    return None if radial is None else Neighbours(*radial)


@pytest.mark.parametrize("kappa", [0.3, 7.0])
@pytest.mark.parametrize("nu", [0.5, 2.5])
@pytest.mark.parametrize("n", [0, 25])
def test_nets_of_euclidean_neighbours_cover(monkeypatch, device, n, nu, kappa):
    found, D = metric(n, 300, scaled(MaternKernel(nu=nu), kappa, 0.4), 0.001 * kappa**2, device)
    nets, none = neighbours_of(found), torch.zeros(0, dtype=torch.long, device=device)
    for part in (1.0, 0.5, 0.1, 1e-3, 0.0):
        radius = part * kappa
        net = nets.net(found, radius, none)
        assert is_covered(D, radius, net.tolist(), 2 * found.slack)
        assert len(net.unique()) == len(net)
        known = first_fit_net(found, 2 * radius)
        more = nets.net(found, radius, known)
        assert is_covered(D, radius, [*known.tolist(), *more.tolist()], 2 * found.slack)
        assert not set(more.tolist()) & set(known.tolist())
        if part == 0.0:
            assert len(net) == 300
        if part == 1.0:
            assert len(net) < 150
        left = nets.uncovered(found, radius, known[::2], torch.arange(300, device=device)[10:])
        far = (D[10:, known[::2].tolist()] ** 2 > radius**2 + found.slack).all(1)
        assert left.tolist() == (far.nonzero()[0] + 10).tolist()
        monkeypatch.setattr("kbo.covers.neighbours._TOGETHER", 13)
        assert torch.equal(nets.net(found, radius, none), net)
        assert torch.equal(nets.net(found, radius, known), more)
        monkeypatch.undo()


def test_the_reach_is_the_distance_at_which_the_prior_says_so():
    found, _ = metric(0, 200, scaled(MaternKernel(nu=0.5), 3.0, 1.0))
    nets = neighbours_of(found)
    # d^2 = 2 * 9 (1 - exp(-r))
    for r in (0.01, 0.2, 1.0):
        assert nets.reach(math.sqrt(18 * -math.expm1(-r))) == pytest.approx(r, rel=1e-9)
    assert nets.reach(5.0) > 2 * math.sqrt(2)


def test_known_points_save_others():
    """One observation makes all near it known: they are covered by the best known one, however far by the prior."""
    state, Z = KernelRidge(rbf(5.0), 1e-6), uniform(100)
    state.update(Z[:1], Z[:1, 0])
    found = PosteriorMetric(state, Z)
    radius = 2.01 * float(found.std.max())
    assert neighbours_of(found).reach(radius) < 5.0
    assert len(neighbours_of(found).net(found, radius, torch.zeros(0, dtype=torch.long))) == 1


def test_only_stationary_kernels_have_euclidean_neighbours():
    both = uniform(20)
    for kernel in (rbf(), scaled(MaternKernel(nu=2.5, active_dims=[1]), 2.0, 0.3)):
        assert neighbours_of(PosteriorMetric(KernelRidge(kernel, 0.1), both)) is not None
    for kernel in (linear(), rbf() + rbf()):
        assert neighbours_of(PosteriorMetric(KernelRidge(kernel, 0.1), both)) is None
    assert neighbours_of(DistanceMatrix(torch.zeros(3, 3))) is None
    numbered = PosteriorMetric(KernelRidge(objects(), 0.1), numbers(9, 0))
    assert neighbours_of(numbered) is None


# Chains


LARGE = {
    "rbf": lambda: rbf(),
    "matern12": lambda: scaled(MaternKernel(nu=0.5), 7.0, 0.5),
    "sum": lambda: rbf() + scaled(MaternKernel(nu=2.5), 0.3, 0.2),  # no Euclidean neighbours
}


def nested_covers(found: Chain, D: np.ndarray, slack: float) -> None:
    """Every level covers and is part of the next, no point comes twice, and there are none without need."""
    everything = found.centres(len(found)).tolist()
    assert len(set(everything)) == len(everything)
    assert found.sizes == sorted(found.sizes)
    for level in range(1, len(found) + 1):
        centres = found.centres(level).tolist()
        assert len(centres) == found.sizes[level - 1]
        assert is_covered(D, found.radius(level), centres, 2 * slack)
        if level > 1:
            assert centres[: found.sizes[level - 2]] == found.centres(level - 1).tolist()


@pytest.mark.parametrize("at_once", [10, 60, 10_000])
@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize("n", [0, 30])
def test_chains_of_sets_of_any_size_are_nested_covers(monkeypatch, device, n, name, at_once):
    found, D = metric(n, 300, LARGE[name](), 1e-4, device)
    monkeypatch.setattr(greedy, "AT_ONCE", at_once)
    monkeypatch.setattr(chain, "AT_ONCE", at_once)
    kappa = float(found.state.prior_variance(found.points).max()) ** 0.5
    chained = Chain(found, kappa, 9)
    assert len(chained) == 9
    nested_covers(chained, D, found.slack)
    assert chained.sizes[-1] <= 300
    assert 1 <= chained.sizes[0] < 40
    later = Chain(found, kappa, 3)
    later.extend(found, 9)
    later.extend(found, 4)  # fewer than there are
    assert later.sizes == chained.sizes
    assert torch.equal(later.centres(9), chained.centres(9))
    assert chained._fine == (at_once < 300)
    assert (chained._neighbours is not None) == (at_once < 300 and name != "sum")


def test_levels_of_a_full_chain_cost_nothing(monkeypatch):
    found, _ = metric(0, 40)
    chained = Chain(found, 1.0, 25)
    assert chained.sizes[-1] == 40
    monkeypatch.setattr(PosteriorMetric, "squared", None)
    chained.extend(found, 40)
    assert chained.sizes[24:] == [40] * 16


def test_no_square_matrix_of_floats_is_ever_formed(monkeypatch):
    largest, squared = [0], PosteriorMetric.squared

    def watched(self, other):
        out = squared(self, other)
        largest[0] = max(largest[0], out.numel())
        return out

    monkeypatch.setattr(PosteriorMetric, "squared", watched)
    X, y = data(plane, 30, "cpu")
    state, Z = KernelRidge(rbf(0.1), 0.05), uniform(3000)
    state.update(X, y)
    found = Chaining(0.1, points=Z).chain(state)
    small = largest[0]
    monkeypatch.setattr(greedy, "AT_ONCE", 1000)
    monkeypatch.setattr(chain, "AT_ONCE", 1000)
    large = Chaining(0.1, points=Z).chain(state)
    assert len(found) == len(large)
    assert 512**2 // 4 <= max(small, largest[0]) <= 2**19 < 3000**2 / 16
    assert covers(PosteriorMetric(state, Z), large.centres(len(large)), large.radius(len(large)))


# Memory


class Game:
    """A posterior that learns, and the dense distances of a set under it."""

    def __init__(self, kernel: Kernel | None = None, ridge: float = 0.05, sketched: bool = False, size: int = 120):
        self.kernel, self.ridge = rbf() if kernel is None else kernel, ridge
        self.anchors = uniform(15, seed=7) if sketched else None
        self.X, self.y = data(plane, 80, "cpu")
        self.Z = uniform(size)

    def state(self, n: int, ridge: float | None = None, kernel: Kernel | None = None, start: int = 0) -> Posterior:
        ridge, kernel = self.ridge if ridge is None else ridge, self.kernel if kernel is None else kernel
        if self.anchors is None:
            state = KernelRidge(kernel, ridge)
        else:
            state = NystromRidge(kernel, ridge, FixedDictionary(self.anchors))
        state.update(self.X[start:n], self.y[start:n])
        return state

    def distances(self, n: int) -> np.ndarray:
        X, y = self.X[:n], self.y[:n]
        found = Dense(self.kernel, X, y) if self.anchors is None else Sketched(self.kernel, X, y, self.anchors)
        return Covers(found, self.Z, self.ridge).D


@pytest.fixture(params=[False, True], ids=["exact", "sketched"])
def game(request) -> Game:
    return Game(sketched=request.param)


@pytest.mark.parametrize("how", ["grown", "rebuilt", "shuffled", "forked", "tracked"])
def test_a_chain_is_kept_while_data_arrive_and_still_covers(game, how):
    confidence, state = Chaining(0.1, points=game.Z, refresh=3.0), game.state(20)
    first = confidence.chain(state)
    sizes = list(first.sizes)
    for n in (21, 30, 60):
        if how == "grown":
            state.update(game.X[state.n : n], game.y[state.n : n])
        elif how == "forked":
            state = state.fork()
            state.update(game.X[state.n : n], game.y[state.n : n])
        elif how == "tracked":
            state = track(game.state(n), game.Z)
        elif how == "rebuilt":
            state = game.state(n)
        else:
            order = torch.randperm(n, generator=seeded(n))
            state = game.state(0)
            state.update(game.X[:n][order], 5 * game.y[:n][order])  # distances do not depend on targets
        assert confidence.chain(state) is first
        assert first.sizes[: len(sizes)] == sizes
        nested_covers(first, game.distances(n), 1e-12)
        # The bonus is that of the sizes which are kept, at the t of now.
        heights = [eps * dense_chaining.term(s + 1, i + 1, n + 1, 0.1) for i, (eps, s) in enumerate(levels(first))]
        assert confidence.bonus(state).heights == pytest.approx(heights[: len(confidence.bonus(state).heights)])
    state = game.state(61)
    assert confidence.chain(state) is not first  # three times as many


def levels(found: Chain) -> list[tuple[float, int]]:
    return [(found.radius(i), found.sizes[i - 1]) for i in range(1, len(found) + 1)]


def test_a_chain_is_computed_anew_where_it_may_not_hold(game):
    confidence, fresh = Chaining(0.1, points=game.Z), Chaining(0.1, points=game.Z)
    longer = rbf(0.31)
    others = [
        game.state(30, ridge=0.049),
        game.state(30, ridge=0.051),
        game.state(30, kernel=longer),
        game.state(30, start=1),  # fewer data
        game.state(19),
        game.state(41),  # grown by the factor
    ]
    if game.anchors is not None:
        other = Game(sketched=True)
        other.anchors = uniform(15, seed=8)
        others.append(other.state(30))
    for state in others:
        first = confidence.chain(game.state(20))
        found = confidence.chain(state)
        assert found is not first
        assert confidence.bonus(state).heights == Chaining(0.1, points=game.Z).bonus(state).heights
    first = fresh.chain(game.state(20))
    moved = game.state(20)
    moved.move_ridge(0.01)
    assert fresh.chain(moved) is not first


def test_a_chain_belongs_to_its_points():
    game = Game()
    confidence, state = Chaining(0.1), game.state(20)
    first = confidence.chain(state, game.Z)
    assert confidence.chain(state, game.Z.clone()) is first
    assert confidence.chain(state, game.Z[:-1]) is not first
    first, moved = confidence.chain(state, game.Z), game.Z.clone()
    moved[77, 1] += 1e-9
    assert confidence.chain(state, moved) is not first


@pytest.mark.parametrize("sides", [(40, 10), (32, 32), (16, 4)])
def test_a_kernel_that_differs_in_one_direction_only_is_another_also_on_a_grid(sides):
    """Points at equal steps of a grid differ in one coordinate only."""
    Z = torch.cartesian_prod(*(torch.linspace(0, 1, side, dtype=torch.float64) for side in sides))
    X, y = data(plane, 6, "cpu")

    def state(lengthscales: list[float]) -> KernelRidge:
        kernel = RBFKernel(ard_num_dims=2).double()
        kernel.lengthscale = torch.tensor([lengthscales])
        state = KernelRidge(kernel, 0.1)
        state.update(X, y)
        return state

    confidence = Chaining(0.1, points=Z)
    for first, second in (([0.3, 0.8], [0.3, 0.05]), ([0.8, 0.3], [0.05, 0.3])):
        kept, now = confidence.chain(state(first)), state(second)
        found = confidence.chain(now)
        assert found is not kept
        assert covers(PosteriorMetric(now, Z), found.centres(1), found.radius(1))


def test_a_kernel_of_another_smoothness_in_one_direction_is_another_also_on_a_grid():
    """All its numbers are the same."""
    axis = torch.linspace(0, 1, 32, dtype=torch.float64)
    Z, confidence = torch.cartesian_prod(axis, axis), Chaining(0.1)
    states = [
        KernelRidge(RBFKernel(active_dims=[0]).double() * MaternKernel(nu=nu, active_dims=[1]).double(), 0.1)
        for nu in (2.5, 0.5)
    ]
    assert confidence.chain(states[0], Z) is not confidence.chain(states[1], Z)


def test_a_kernel_that_is_zero_between_far_points_is_another_if_its_lengthscale_is():
    Z, X = torch.cat([20 * uniform(300), 20 * uniform(300) + 1e-3]), 20 * uniform(5, seed=50)
    confidence = Chaining(0.1, points=Z)
    states = [KernelRidge(rbf(lengthscale), 0.1) for lengthscale in (0.02, 0.001)]
    for state in states:
        state.update(X, X[:, 0])
    kept = confidence.chain(states[0])
    assert confidence.chain(states[1]) is not kept


def test_gram_matrices_that_differ_anywhere_are_different_kernels():
    gram = objects().gram.clone()
    Z = torch.arange(100, dtype=torch.float64).unsqueeze(-1)
    confidence = Chaining(0.1, points=Z)
    first = confidence.chain(KernelRidge(PrecomputedKernel(gram), 0.1))
    gram[1] *= 0.9
    gram[:, 1] *= 0.9
    assert confidence.chain(KernelRidge(PrecomputedKernel(gram), 0.1)) is not first


def test_distances_are_symmetric_and_zero_on_the_diagonal_up_to_rounding():
    X = uniform(30, 2)
    D = torch.cdist(X, X) + 1e-9 * uniform(30, 30, seed=1)
    exact = (D + D.mT) / 2
    exact.fill_diagonal_(0)
    for net in (greedy_cover, first_fit_net, farthest_point_net):
        assert net(D, 0.3).tolist() == net(exact, 0.3).tolist()
        assert sorted(net(D, 0.0).tolist()) == list(range(30))
    assert covers(D, torch.arange(30), 0.0)
    assert len(Chain(DistanceMatrix(D), 2.0, 3).centres(1)) == 1
    with pytest.raises(InvalidInput, match="zero from every point to itself"):
        greedy_cover(torch.tensor([[5.0, math.inf], [math.inf, 5.0]]), 1.0)
    with pytest.raises(InvalidInput, match="symmetric"):
        greedy_cover(torch.tensor([[0, 1e-9], [9e-9, 0]]), 1.0)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32, torch.int64])
def test_hop_counts_are_distances(dtype):
    far = min(torch.iinfo(dtype).max, 65536)
    D = torch.tensor([[0, far, 3], [far, 0, far], [3, far, 0]], dtype=dtype)
    assert greedy_cover(D, 3.0).tolist() == [0, 1]
    assert not covers(D, torch.tensor([0]), 3.0)


def test_points_may_be_chosen_by_a_mask_or_numbers():
    D = torch.cdist(X := uniform(20, 2), X)
    mask = torch.arange(20) % 2 == 0
    assert greedy_cover(D, 0.2, mask).tolist() == greedy_cover(D, 0.2, mask.nonzero().squeeze(-1)).tolist()
    with pytest.raises(InvalidInput, match="among"):
        greedy_cover(D, 0.2, mask[:5])


def test_neighbours_of_clusters_are_listed_in_parts(monkeypatch):
    from kbo.covers import neighbours

    monkeypatch.setattr(neighbours, "_LISTED", 50)
    X = torch.cat([uniform(200, 2), 0.5 + 1e-3 * uniform(200, 2, seed=1)])
    metric = PosteriorMetric(KernelRidge(rbf(0.2), 0.1), X)
    found = neighbours_of(metric)
    assert found is not None
    net = found.net(metric, 0.3, torch.arange(0))
    assert covers(metric, net, 0.3)
    monkeypatch.undo()
    assert torch.equal(net, found.net(metric, 0.3, torch.arange(0)))


def test_a_kernel_that_returns_what_it_keeps_is_not_written_to():
    from gpytorch.kernels import ConstantKernel

    kernel = ConstantKernel().double()
    state, X = KernelRidge(kernel, 0.1), uniform(5, 2)
    state.update(X, X[:, 0])
    assert PosteriorMetric(state, X).squared(PosteriorMetric(state, X)) == pytest.approx(0.0, abs=1e-12)


def test_the_ridge_may_move_before_there_are_data():
    game = Game()
    confidence, state = Chaining(0.1, points=game.Z), game.state(0)
    first = confidence.bonus(state).heights
    state.move_ridge(0.01)
    state.update(game.X[:20], game.y[:20])
    assert confidence.bonus(state).heights == pytest.approx(
        Covers(Dense(rbf(), *state_data(state)), game.Z, 0.01).heights(0.1)
    )
    assert first != confidence.bonus(state).heights


def state_data(state: KernelRidge) -> tuple[Tensor, Tensor]:
    return state.data.X, state.data.y


def test_deeper_levels_are_added_when_points_become_known(game):
    game.ridge = 1e-4
    confidence = Chaining(0.1, points=game.Z, refresh=100.0)
    first = confidence.chain(game.state(1))
    before, sizes = len(first), list(first.sizes)
    state = game.state(70)
    found = confidence.chain(state)
    assert found is first
    assert len(found) > before
    assert found.sizes[:before] == sizes
    nested_covers(found, game.distances(70), 1e-12)
    assert len(confidence.bonus(state).heights) == len(found)
    assert len(confidence.bonus(game.state(1)).heights) == before


def test_covers_shrink_when_they_are_refreshed():
    game = Game(ridge=1e-3)
    kept, fresh = Chaining(0.1, points=game.Z, refresh=100.0), Chaining(0.1, points=game.Z, refresh=1.0)
    for n in (1, 10, 80):
        old, new = kept.chain(game.state(n)), fresh.chain(game.state(n))
    assert sum(new.sizes[:3]) < sum(old.sizes[:3])
    assert kept.chain(game.state(80)) is old


def test_a_memory_is_left_behind_by_copies_and_pickles():
    game = Game()
    confidence, state = Chaining(0.1, rigorous=True, points=game.Z), game.state(30)
    upper = confidence.upper(state, game.Z)
    for other in (copy.deepcopy(confidence), pickle.loads(pickle.dumps(confidence))):
        assert torch.equal(other.upper(state, game.Z), upper)
        assert other.guarantee == confidence.guarantee
        assert other.chain(state) is not confidence.chain(state)
        assert repr(other) == repr(confidence)
    memory = pickle.loads(pickle.dumps(ChainMemory(1.5)))
    assert memory.refresh == 1.5
    chain, depth = memory.chain(state, game.Z, 0.5)
    assert len(chain) == depth == 2


@pytest.mark.parametrize("refresh", [0.99, -1.0, math.nan, math.inf, "often"])
def test_impossible_factors_are_refused(refresh):
    with pytest.raises(InvalidInput, match="refresh"):
        Chaining(0.1, refresh=refresh)


def test_a_tracked_posterior_is_not_asked_for_anything_else():
    game = Game()
    state = game.state(20)
    assert Chaining(0.1, points=game.Z).chain(Tracked(state, game.Z)).sizes == Chaining(0.1).chain(state, game.Z).sizes


def main(most: int = 2000) -> None:
    """Compare chains of sets of up to that many points, posterior by posterior."""
    sets = {**SETS, "objects": (lambda: objects(most), lambda n, seed: shuffled(most, n, seed))}
    for name, (kernel, points) in sets.items():
        for size in (400, most):
            for n in (0, 1, 10, 70):
                for ridge in (1e-6, 0.01, 3.0):
                    (X, y), Z = data(points, n, "cpu"), points(size, 1)
                    factor = top(kernel(), Z)
                    state = KernelRidge(kernel(), ridge * factor)
                    state.update(X, y)
                    expected = compare(state, Dense(kernel(), X, y), Z, ridge * factor)
                    print(f"{name:10s} {size:5d} points, {n:2d} data, ridge {ridge:g}: {expected.sizes}", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
