"""Covers against Algorithm 2 as written on paper, and the laws of every cover, net, chain and memory of chains."""

from __future__ import annotations

import copy
import pickle

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

from experiments.problems import GraphBandit, stationary_kernel
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
from kbo.confidence.chaining.memory import ChainMemory
from kbo.kernels import PrecomputedKernel
from kbo.regression import FixedDictionary, FixedPoints, GreedyDictionary, NystromRidge, Posterior
from tests import dense_chaining
from tests.dense import Dense, Sketched
from tests.dense_chaining import Covers, is_covered, is_separated
from tests.laws.states import normal, seeded, unit_square


def scaled(name: str, kappa: float, lengthscale: float) -> Kernel:
    kernel = ScaleKernel(stationary_kernel(name, lengthscale)).double()
    kernel.outputscale = torch.tensor(kappa**2, dtype=torch.float64)
    return kernel


def rbf(lengthscale: float = 0.3) -> Kernel:
    return stationary_kernel("rbf", lengthscale)


def linear() -> Kernel:
    kernel = LinearKernel().double()
    kernel.variance = 1.0
    return kernel


def objects(count: int = 400) -> Kernel:
    """Of so many objects; no stationary kernel."""
    features = torch.randn(count, 6, generator=seeded(3), dtype=torch.float64)
    return PrecomputedKernel(features @ features.T / 6)


def graphs(n: int, seed: int) -> Tensor:
    shuffled_arms = GraphBandit(400).arms()[torch.randperm(400, generator=seeded(seed))]
    return shuffled_arms[torch.arange(n) % 400]


def shuffled(count: int, n: int, seed: int) -> Tensor:
    return torch.randperm(count, generator=seeded(seed))[:n].double().unsqueeze(-1)


def top(kernel: Kernel, Z: Tensor) -> float:
    """The largest k(x, x)."""
    with torch.no_grad():
        return float(kernel.to(Z)(Z, diag=True).max())


SETS = {  # a kernel, and points that it understands
    "rbf": (rbf, unit_square),
    "matern12": (lambda: scaled("matern12", 0.3, 0.5), unit_square),
    "matern52": (lambda: scaled("matern52", 7.0, 0.4), unit_square),
    "graphs": (linear, graphs),
    "objects": (objects, lambda n, seed: shuffled(400, n, seed)),
    "duplicates": (rbf, lambda n, seed: unit_square(9, 1)[torch.arange(n) % 9]),
}


def data(points, n: int, device, places: int | None = None) -> tuple[Tensor, Tensor]:
    """n observations, repeated ones among them if there are fewer places."""
    places = max(n, 1) if places is None else places
    X = points(places, 50)[torch.arange(n) % places]
    return X.to(device), normal(n, 51).to(device)


def compare(state: Posterior, formulas: Dense, Z: Tensor, ridge: float) -> Covers:
    """Equal indices, sizes and values at all levels."""
    confidence, expected = Chaining(0.07, points=Z), Covers(formulas, Z, ridge)
    found = confidence.chain(state)
    assert found.sizes == expected.sizes
    assert found.centres(len(found)).tolist() == expected.order
    for level, eps in enumerate(expected.radii, start=1):
        assert found.radius(level) == pytest.approx(eps, rel=1e-12)
        assert found.centres(level).tolist() == expected.order[: expected.sizes[level - 1]]
    assert confidence.bonus(state).heights == pytest.approx(expected.heights(0.07), rel=1e-12)
    return expected


# Against the dense formulas


@pytest.mark.parametrize(
    ("n", "size", "ridge"), [(0, 37, 3.0), (1, 1, 0.02), (10, 120, 1e-6), (70, 100, 1e-6)]
)
@pytest.mark.parametrize("name", SETS)
def test_chains_are_those_of_the_paper(device, name, n, size, ridge):
    kernel, points = SETS[name]
    (X, y), Z = data(points, n, device), points(size, 1).to(device)
    ridge *= top(kernel(), Z)
    state = KernelRidge(kernel(), ridge)
    state.update(X, y)
    expected = compare(state, Dense(kernel(), X, y), Z, ridge)
    assert n < 70 or name not in ("rbf", "graphs") or len(expected.sizes) > 5


@pytest.mark.parametrize("kind", ["tracked", "tracked-fixed", "greedy"])
def test_chains_under_other_posteriors(device, kind):
    kernel = scaled("matern52", 2.0, 0.4)
    X, y = data(unit_square, 40, device, places=30)
    Z = unit_square(150, 0).to(device)
    if kind == "tracked":
        state = KernelRidge(kernel, 0.05)
    else:
        fixed = FixedDictionary(unit_square(15, 7).to(device))
        state = NystromRidge(kernel, 0.05, GreedyDictionary(0.2) if kind == "greedy" else fixed)
    seen = state if kind == "greedy" else FixedPoints(state, Z)
    seen.update(X, y)
    formulas = Dense(kernel, X, y) if kind == "tracked" else Sketched(kernel, X, y, state.anchors)
    compare(seen, formulas, Z, 0.05)


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
    assert cover.net_of(whole, radius, torch.tensor(order)).tolist() == expected
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cover, "NET_BLOCK", at_once)
        patch.setattr(cover, "CENTRE_BLOCK", at_once)
        assert cover.net_of(whole, radius, torch.tensor(order)).tolist() == expected
    centres = greedy_cover(whole, radius)
    assert len(set(centres.tolist())) == len(centres)
    assert covers(whole, centres, radius)
    for some in (centres, centres[:-1]):
        assert covers(whole, some, radius) == is_covered(table, radius, some.tolist())


@pytest.mark.parametrize("make", [greedy_cover, first_fit_net])
def test_lone_points_equal_points_and_radii_at_exactly_the_distance(make):
    """Also where the square of a float and its power of 2 are rounded to different sides."""
    apart = 1 - torch.eye(7).double()
    for radius in (0.0, 0.5):
        assert make(Matrix(apart[:1, :1]), radius).tolist() == [0]
        assert make(Matrix(0 * apart), radius).tolist() == [0]
        assert sorted(make(Matrix(apart), radius).tolist()) == list(range(7))
    assert make(Matrix(apart)[:0], 0.5).tolist() == []
    radii = [k / 9_991 for k in range(1, 9_991)]
    for radius in [*(r for r in radii if r**2 != r * r), 1e-3, 1.0, 1e200]:
        assert make(Matrix(radius * apart), radius).tolist() == [0]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda apart: greedy_cover(Matrix(apart), -1.0), "radius"),
        (lambda apart: first_fit_net(Matrix(apart), -1.0), "radius"),
        (lambda apart: greedy_cover(apart, 0.2), "metric"),
        (lambda apart: greedy_cover(Matrix(torch.zeros(10_001, 0)), 1.0), "take first_fit_net"),
        (lambda apart: PosteriorMetric(KernelRidge(rbf(), 0.1), apart[0]), "points"),
        (lambda apart: Chain(Matrix(apart), 1.0, 3).centres(4), "level must be 1 to 3"),
    ],
)
def test_mistakes_are_named(make, says):
    with pytest.raises(InvalidInput, match=says):
        make(1 - torch.eye(3).double())


# Distances under a posterior


def metric(
    n: int = 20, size: int = 150, kernel: Kernel | None = None, ridge: float = 0.01, device="cpu"
) -> tuple[PosteriorMetric, np.ndarray]:
    """A set under a posterior, and its distances by dense formulas."""
    kernel = kernel or rbf()
    X, y = data(unit_square, n, device)
    state = KernelRidge(kernel, ridge)
    state.update(X, y)
    Z = unit_square(size, 0).to(device)
    return PosteriorMetric(state, Z), Covers(Dense(kernel, X, y), Z, ridge).D


def test_distances_and_graphs_are_those_of_the_dense_formula_in_parts_and_blocks(
    monkeypatch, device
):
    found, D = metric(device=device)
    squares = found.squared(found)
    expected = torch.from_numpy(D**2).to(device)
    torch.testing.assert_close(squares, expected, rtol=1e-9, atol=1e-12)
    part = torch.tensor([5, 77, 5, 149], device=device)
    of_part = found[part].squared(found[10:90])
    torch.testing.assert_close(of_part, squares[part][:, 10:90], atol=1e-13, rtol=0)
    assert torch.equal(found[part][1:3].points, found.points[part][1:3])
    graph = torch.from_numpy(D <= 0.4).to(device)
    assert torch.equal(found.ranks([0.4]) > 0, graph)
    monkeypatch.setattr("kbo.confidence.chaining.metric.BLOCK", {"cpu": 300, "cuda": 300})
    assert torch.equal(found.ranks([0.4]) > 0, graph)


def test_a_kernel_that_returns_what_it_keeps_is_not_written_to():
    X = unit_square(5, 0)
    state = KernelRidge(ConstantKernel().double(), 0.1)
    state.update(X, X[:, 0])
    squares = PosteriorMetric(state, X).squared(PosteriorMetric(state, X))
    assert squares == pytest.approx(0.0, abs=1e-12)


# Chains

LARGE = {
    "rbf": rbf,
    "matern12": lambda: scaled("matern12", 7.0, 0.5),
    "sum": lambda: rbf() + scaled("matern52", 0.3, 0.2),  # no Euclidean neighbours
}


def nested_covers(found: Chain, D: np.ndarray, slack: float) -> None:
    """Every level covers and is part of the next, no point comes twice, and there are none without need."""
    everything = found.centres(len(found)).tolist()
    assert len(set(everything)) == len(everything)
    assert found.sizes == sorted(found.sizes)
    for level in range(1, len(found) + 1):
        centres = found.centres(level).tolist()
        assert centres == everything[: found.sizes[level - 1]]
        assert is_covered(D, found.radius(level), centres, 2 * slack)


@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize(("n", "at_once"), [(0, 10), (30, 60)])
def test_chains_of_large_sets_are_nested_covers(monkeypatch, device, n, name, at_once):
    found, D = metric(n, 300, LARGE[name](), 1e-4, device)
    monkeypatch.setattr(cover, "AT_ONCE", at_once)
    kappa = float(found.state.prior_variance(found.points).max()) ** 0.5
    chained = Chain(found, kappa, 9)
    nested_covers(chained, D, found.slack)
    assert 1 <= chained.sizes[0] < 40
    later = Chain(found, kappa, 3)
    later.extend(found, 9)
    later.extend(found, 4)  # fewer than there are
    assert later.sizes == chained.sizes
    assert torch.equal(later.centres(9), chained.centres(9))
    assert (found.radial() is None) == (name == "sum")


def test_no_square_matrix_of_floats_is_ever_formed(monkeypatch):
    sizes = []
    squared = PosteriorMetric.squared

    def watched(self, other):
        out = squared(self, other)
        sizes.append(out.numel())
        return out

    monkeypatch.setattr(PosteriorMetric, "squared", watched)
    Z = unit_square(3000, 0)
    state = KernelRidge(rbf(0.1), 0.05)
    state.update(*data(unit_square, 30, "cpu"))
    Chaining(0.1, points=Z).chain(state)
    monkeypatch.setattr(cover, "AT_ONCE", 1000)
    large = Chaining(0.1, points=Z).chain(state)
    assert 512**2 // 4 <= max(sizes) <= 2**19 < 3000**2 / 16
    assert covers(PosteriorMetric(state, Z), large.centres(len(large)), large.radius(len(large)))


# Memory


class Game:
    """A posterior that learns, and the dense distances of a set under it."""

    def __init__(self, ridge: float = 0.05, anchors: Tensor | None = None) -> None:
        self.ridge = ridge
        self.anchors = anchors
        self.X, self.y = data(unit_square, 80, "cpu")
        self.Z = unit_square(120, 0)

    def state(
        self, n: int, ridge: float | None = None, kernel: Kernel | None = None, start: int = 0
    ) -> Posterior:
        model = kernel or rbf(), ridge or self.ridge
        state = KernelRidge(*model)
        if self.anchors is not None:
            state = NystromRidge(*model, FixedDictionary(self.anchors))
        state.update(self.X[start:n], self.y[start:n])
        return state

    def distances(self, n: int) -> np.ndarray:
        data = rbf(), self.X[:n], self.y[:n]
        formulas = Dense(*data) if self.anchors is None else Sketched(*data, self.anchors)
        return Covers(formulas, self.Z, self.ridge).D


@pytest.fixture(params=[None, unit_square(15, 7)], ids=["exact", "sketched"])
def game(request) -> Game:
    return Game(anchors=request.param)


@pytest.mark.parametrize("how", ["grown", "rebuilt", "forked", "tracked"])
def test_a_chain_is_kept_while_data_arrive_and_still_covers(monkeypatch, game, how):
    monkeypatch.setattr("kbo.confidence.chaining.memory.GROWTH", 3.0)
    confidence = Chaining(0.1, points=game.Z)
    state = game.state(20)
    first = confidence.chain(state)
    sizes = list(first.sizes)
    for n in (21, 60):
        if how == "tracked":
            state = FixedPoints(game.state(n), game.Z)
        elif how == "rebuilt":
            state = game.state(0)
            state.update(game.X[:n], 5 * game.y[:n])  # distances do not depend on targets
        else:
            state = state.fork() if how == "forked" else state
            state.update(game.X[state.n : n], game.y[state.n : n])
        assert confidence.chain(state) is first
        assert first.sizes[: len(sizes)] == sizes
        nested_covers(first, game.distances(n), 1e-12)
        # The bonus is that of the sizes which are kept, at the t of now.
        heights = confidence.bonus(state).heights
        for level, height in enumerate(heights, 1):
            term = dense_chaining.term(first.sizes[level - 1] + 1, level, n + 1, 0.1)
            assert height == pytest.approx(first.radius(level) * term)
    assert confidence.chain(game.state(61)) is not first  # three times as many


def test_a_chain_is_computed_anew_where_it_may_not_hold(game):
    moved = game.state(20)
    moved.move_ridge(0.01)
    others = [
        moved,
        game.state(30, ridge=0.049),
        game.state(30, ridge=0.051),
        game.state(30, kernel=rbf(0.31)),
        game.state(30, start=1),  # other data
        game.state(19),
        game.state(41),  # grown by the factor
    ]
    if game.anchors is not None:
        others.append(Game(anchors=unit_square(15, 8)).state(30))
    confidence = Chaining(0.1, points=game.Z)
    for state in others:
        first = confidence.chain(game.state(20))
        assert confidence.chain(state) is not first
        assert confidence.bonus(state).heights == Chaining(0.1, points=game.Z).bonus(state).heights


def test_a_chain_belongs_to_its_points_and_is_left_behind_by_copies():
    game = Game()
    state = game.state(20)
    confidence = Chaining(0.1)
    first = confidence.chain(state, game.Z)
    assert confidence.chain(state, game.Z.clone()) is first
    assert confidence.chain(state, game.Z[:-1]) is not first
    first = confidence.chain(state, game.Z)
    moved = game.Z.clone()
    moved[77, 1] += 1e-9
    assert confidence.chain(state, moved) is not first
    for twin in (copy.deepcopy(confidence), pickle.loads(pickle.dumps(confidence))):
        assert twin.chain(state, moved) is not confidence.chain(state, moved)
    memory = pickle.loads(pickle.dumps(ChainMemory()))
    assert memory.chain(state, game.Z, 0.5)[1] == 2


def changed_gram() -> Kernel:
    scale = torch.ones(400, dtype=torch.float64)
    scale[1] = 0.9
    return PrecomputedKernel(scale.outer(scale) * objects().gram)


def product(nu: float) -> Kernel:
    """All its numbers are the same, whatever nu is."""
    return RBFKernel(active_dims=[0]).double() * MaternKernel(nu=nu, active_dims=[1]).double()


def grid() -> Tensor:
    line = torch.linspace(0, 1, 32, dtype=torch.float64)
    return torch.cartesian_prod(line, line)


def far_pairs() -> Tensor:
    """The kernel is zero between all of them, but for pairs that are next to each other."""
    return torch.cat([20 * unit_square(300, 0), 20 * unit_square(300, 0) + 1e-3])


@pytest.mark.parametrize(
    ("first", "second", "Z"),
    [
        (product(2.5), product(0.5), grid()),
        (rbf(0.02), rbf(0.001), far_pairs()),
        (objects(), changed_gram(), torch.arange(100, dtype=torch.float64).unsqueeze(-1)),
    ],
    ids=["smoothness on a grid", "far points", "Gram matrix"],
)
def test_a_kernel_that_differs_anywhere_is_another(first, second, Z):
    confidence = Chaining(0.1, points=Z)
    chains = []
    for kernel in (first, first, second):
        state = KernelRidge(kernel, 0.1)
        state.update(Z[:5], Z[:5, 0])
        chains.append(confidence.chain(state))
    assert chains[0] is chains[1] is not chains[2]


def test_deeper_levels_are_added_when_points_become_known_and_covers_shrink_when_they_are_refreshed(
    monkeypatch, game
):
    monkeypatch.setattr("kbo.confidence.chaining.memory.GROWTH", 100.0)
    game.ridge = 1e-4
    confidence = Chaining(0.1, points=game.Z)
    first = confidence.chain(game.state(1))
    sizes = list(first.sizes)
    state = game.state(70)
    assert confidence.chain(state) is first
    assert len(first) > len(sizes)
    assert first.sizes[: len(sizes)] == sizes
    nested_covers(first, game.distances(70), 1e-12)
    assert len(confidence.bonus(state).heights) == len(first)
    assert len(confidence.bonus(game.state(1)).heights) == len(sizes)
    assert sum(Chaining(0.1, points=game.Z).chain(state).sizes[:3]) < sum(first.sizes[:3])
