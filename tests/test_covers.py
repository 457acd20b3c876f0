"""Covers against Algorithm 2 as written on paper, and the laws of every cover, net, chain and memory of chains.

``python -m tests.test_covers 2000`` compares chains of up to 2000 points.
"""

from __future__ import annotations

import copy
import pickle
import sys

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
from tests.laws.states import seeded, unit_square


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
    return GraphBandit(400).arms()[torch.randperm(400, generator=seeded(seed))][
        torch.arange(n) % 400
    ]


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
    places = n if places is None else places
    X = points(places, 50)[torch.arange(n) % max(places, 1)] if n else points(1, 50)[:0]
    return X.to(device), torch.randn(n, generator=seeded(51), dtype=torch.float64).to(device)


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
    (X, y), Z = data(unit_square, 40, device, places=30), unit_square(150, 0).to(device)
    anchors = unit_square(15, 7).to(device)
    dictionary = GreedyDictionary(0.2) if kind == "greedy" else FixedDictionary(anchors)
    state = (
        KernelRidge(kernel, 0.05) if kind == "tracked" else NystromRidge(kernel, 0.05, dictionary)
    )
    seen = FixedPoints(state, Z) if "tracked" in kind else state
    seen.update(X, y)
    anchors = state.anchors if kind == "greedy" else anchors
    compare(
        seen, Dense(kernel, X, y) if kind == "tracked" else Sketched(kernel, X, y, anchors), Z, 0.05
    )


def test_a_point_at_exactly_the_radius_is_covered_by_the_first_that_covers_most():
    """Distances under this kernel are 1 = eps_1 between neighbours of a ring, sqrt(2) else, all without rounding."""
    gram = torch.eye(8, dtype=torch.float64)
    for i in range(8):
        gram[i, (i + 1) % 8] = gram[(i + 1) % 8, i] = 0.5
    Z = torch.arange(8, dtype=torch.float64).unsqueeze(-1)
    found = Chain(PosteriorMetric(KernelRidge(PrecomputedKernel(gram), 0.1), Z), 1.0, 1)
    assert found.centres(1).tolist() == [0, 3, 5]
    compare(
        KernelRidge(PrecomputedKernel(gram), 0.1),
        Dense(PrecomputedKernel(gram), Z[:0], Z[:0, 0]),
        Z,
        0.1,
    )


# Covers of a matrix of distances

COVERS = (greedy_cover, first_fit_net)


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
    n, steps = draw(st.integers(1, 14)), draw(st.sampled_from([2, 4, 8]))
    numbers = draw(st.lists(st.integers(0, steps), min_size=n * n, max_size=n * n))
    D = torch.tensor(numbers, dtype=torch.float64).reshape(n, n).triu(1) / 4
    return D + D.T, draw(st.integers(0, steps)) / 4


@given(matrices(), st.randoms(use_true_random=False))
def test_greedy_covers_and_chains_of_a_matrix_are_those_of_brute_force(case, random):
    D, radius = case
    part = Matrix(D)[torch.tensor([random.random() < 0.7 for _ in D])]
    among = D.numpy()[np.ix_(part.numbers, part.numbers)]
    assert greedy_cover(part, radius).tolist() == dense_chaining.greedy(among, radius)
    assert greedy_cover(Matrix(D), radius).tolist() == dense_chaining.greedy(D.numpy(), radius)
    found = Chain(Matrix(D), 2.0, 5)
    assert (found.centres(5).tolist(), found.sizes) == dense_chaining.hierarchy(
        D.numpy(), [2.0, 1.0, 0.5, 0.25, 0.125]
    )


def test_a_covered_point_is_no_centre():
    """Point 0 covers 1 and 4 .. 7; then 1 would cover 2 and 3, but is covered."""
    D = 2 * (1 - torch.eye(8, dtype=torch.float64))
    for a, b in [(0, 1), (0, 4), (0, 5), (0, 6), (0, 7), (1, 2), (1, 3)]:
        D[a, b] = D[b, a] = 1.0
    assert greedy_cover(Matrix(D), 1.0).tolist() == [0, 2, 3]


@given(matrices(), st.integers(1, 4))
def test_every_cover_of_a_matrix_covers_and_nets_are_separated(case, at_once):
    D, radius = case
    whole, table = Matrix(D), D.numpy()
    net = first_fit_net(whole, radius).tolist()
    assert is_covered(table, radius, net)
    assert is_separated(table, radius, net)
    order, expected = list(range(len(D)))[::-1], []
    for i in order:
        if all(float(D[i, j]) > radius for j in expected):
            expected.append(i)
    assert cover.net_of(whole, radius, torch.tensor(order)).tolist() == expected
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cover, "NET_BLOCK", at_once)
        patch.setattr(cover, "CENTRE_BLOCK", at_once)
        assert cover.net_of(whole, radius, torch.tensor(order)).tolist() == expected
    centres = greedy_cover(whole, radius)
    assert is_covered(table, radius, centres.tolist())
    assert len(set(centres.tolist())) == len(centres)
    assert covers(whole, centres, radius)
    assert covers(whole, centres[:-1], radius) == is_covered(table, radius, centres[:-1].tolist())


def test_lone_points_equal_points_and_radii_at_exactly_the_distance():
    """Also where the square of a float and its power of 2 are rounded to different sides."""
    apart = 1 - torch.eye(7).double()
    for make in COVERS:
        for radius in (0.0, 0.5):
            assert make(Matrix(torch.zeros(1, 1).double()), radius).tolist() == [0]
            assert make(Matrix(torch.zeros(7, 7).double()), radius).tolist() == [0]
            assert sorted(make(Matrix(apart), radius).tolist()) == list(range(7))
        for radius in [r for r in (k / 9_991 for k in range(1, 9_991)) if r**2 != r * r] + [
            1e-3,
            1.0,
            1e200,
        ]:
            assert make(Matrix(radius * apart), radius).tolist() == [0]
    assert greedy_cover(Matrix(apart)[:0], 0.5).tolist() == []


APART = 1 - torch.eye(3).double()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: greedy_cover(Matrix(APART), -1.0), "radius"),
        (lambda: first_fit_net(Matrix(APART), -1.0), "radius"),
        (lambda: greedy_cover(APART, 0.2), "metric"),
        (lambda: greedy_cover(Matrix(torch.zeros(10_001, 0)), 1.0), "take first_fit_net"),
        (lambda: PosteriorMetric(KernelRidge(rbf(), 0.1), unit_square(3, 0)[0]), "points"),
        (lambda: Chain(Matrix(APART), 1.0, 3).centres(4), "level must be 1 to 3"),
    ],
)
def test_mistakes_are_named(make, says):
    with pytest.raises(InvalidInput, match=says):
        make()


# Distances under a posterior


def metric(
    n: int = 20, size: int = 150, kernel: Kernel | None = None, ridge: float = 0.01, device="cpu"
) -> tuple[PosteriorMetric, np.ndarray]:
    """A set under a posterior, and its distances by dense formulas."""
    kernel = rbf() if kernel is None else kernel
    X, y = data(unit_square, n, device)
    state, Z = KernelRidge(kernel, ridge), unit_square(size, 0).to(device)
    state.update(X, y)
    return PosteriorMetric(state, Z), Covers(Dense(kernel, X, y), Z, ridge).D


def test_distances_and_graphs_are_those_of_the_dense_formula_in_parts_and_blocks(
    monkeypatch, device
):
    found, D = metric(device=device)
    torch.testing.assert_close(
        found.squared(found), torch.from_numpy(D**2).to(device), rtol=1e-9, atol=1e-12
    )
    part = torch.tensor([5, 77, 5, 149], device=device)
    torch.testing.assert_close(
        found.squared(found)[part][:, 10:90], found[part].squared(found[10:90]), atol=1e-13, rtol=0
    )
    assert torch.equal(found[part][1:3].points, found.points[part][1:3])
    graph = torch.from_numpy(D <= 0.4).to(device)
    assert torch.equal(found.ranks([0.4]) > 0, graph)
    monkeypatch.setattr("kbo.confidence.chaining.metric.BLOCK", {"cpu": 300, "cuda": 300})
    assert torch.equal(found.ranks([0.4]) > 0, graph)


def test_a_kernel_that_returns_what_it_keeps_is_not_written_to():
    state, X = KernelRidge(ConstantKernel().double(), 0.1), unit_square(5, 0)
    state.update(X, X[:, 0])
    assert PosteriorMetric(state, X).squared(PosteriorMetric(state, X)) == pytest.approx(
        0.0, abs=1e-12
    )


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
    later = Chain(found, kappa, 3)
    nested_covers(chained, D, found.slack)
    assert 1 <= chained.sizes[0] < 40
    later.extend(found, 9)
    later.extend(found, 4)  # fewer than there are
    assert later.sizes == chained.sizes
    assert torch.equal(later.centres(9), chained.centres(9))
    assert (found.radial() is None) == (name == "sum")


def test_no_square_matrix_of_floats_is_ever_formed(monkeypatch):
    largest, squared = [0], PosteriorMetric.squared

    def watched(self, other):
        out = squared(self, other)
        largest[0] = max(largest[0], out.numel())
        return out

    monkeypatch.setattr(PosteriorMetric, "squared", watched)
    X, y = data(unit_square, 30, "cpu")
    state, Z = KernelRidge(rbf(0.1), 0.05), unit_square(3000, 0)
    state.update(X, y)
    Chaining(0.1, points=Z).chain(state)
    monkeypatch.setattr(cover, "AT_ONCE", 1000)
    large = Chaining(0.1, points=Z).chain(state)
    assert 512**2 // 4 <= largest[0] <= 2**19 < 3000**2 / 16
    assert covers(PosteriorMetric(state, Z), large.centres(len(large)), large.radius(len(large)))


# Memory


class Game:
    """A posterior that learns, and the dense distances of a set under it."""

    def __init__(self, ridge: float = 0.05, sketched: bool = False) -> None:
        self.ridge, self.anchors = ridge, unit_square(15, 7) if sketched else None
        (self.X, self.y), self.Z = data(unit_square, 80, "cpu"), unit_square(120, 0)

    def state(
        self, n: int, ridge: float | None = None, kernel: Kernel | None = None, start: int = 0
    ) -> Posterior:
        ridge, kernel = ridge or self.ridge, kernel or rbf()
        if self.anchors is None:
            state = KernelRidge(kernel, ridge)
        else:
            state = NystromRidge(kernel, ridge, FixedDictionary(self.anchors))
        state.update(self.X[start:n], self.y[start:n])
        return state

    def distances(self, n: int) -> np.ndarray:
        X, y = self.X[:n], self.y[:n]
        found = Dense(rbf(), X, y) if self.anchors is None else Sketched(rbf(), X, y, self.anchors)
        return Covers(found, self.Z, self.ridge).D


@pytest.fixture(params=[False, True], ids=["exact", "sketched"])
def game(request) -> Game:
    return Game(sketched=request.param)


@pytest.mark.parametrize("how", ["grown", "rebuilt", "forked", "tracked"])
def test_a_chain_is_kept_while_data_arrive_and_still_covers(monkeypatch, game, how):
    monkeypatch.setattr("kbo.confidence.chaining.memory.GROWTH", 3.0)
    confidence, state = Chaining(0.1, points=game.Z), game.state(20)
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
        terms = [
            dense_chaining.term(size + 1, i, n + 1, 0.1) for i, size in enumerate(first.sizes, 1)
        ]
        heights = [first.radius(i) * term for i, term in enumerate(terms, 1)]
        assert confidence.bonus(state).heights == pytest.approx(
            heights[: len(confidence.bonus(state).heights)]
        )
    assert confidence.chain(game.state(61)) is not first  # three times as many


def test_a_chain_is_computed_anew_where_it_may_not_hold(game):
    confidence = Chaining(0.1, points=game.Z)
    others = [
        game.state(30, ridge=0.049),
        game.state(30, ridge=0.051),
        game.state(30, kernel=rbf(0.31)),
        game.state(30, start=1),  # other data
        game.state(19),
        game.state(41),  # grown by the factor
    ]
    if game.anchors is not None:
        other = Game(sketched=True)
        other.anchors = unit_square(15, 8)
        others.append(other.state(30))
    moved = game.state(20)
    moved.move_ridge(0.01)
    for state in (*others, moved):
        first = confidence.chain(game.state(20))
        assert confidence.chain(state) is not first
        assert confidence.bonus(state).heights == Chaining(0.1, points=game.Z).bonus(state).heights


def test_a_chain_belongs_to_its_points():
    game, confidence = Game(), Chaining(0.1)
    first = confidence.chain(state := game.state(20), game.Z)
    assert confidence.chain(state, game.Z.clone()) is first
    assert confidence.chain(state, game.Z[:-1]) is not first
    first, moved = confidence.chain(state, game.Z), game.Z.clone()
    moved[77, 1] += 1e-9
    assert confidence.chain(state, moved) is not first


def changed_gram() -> Kernel:
    gram = objects().gram.clone()
    gram[1] *= 0.9
    gram[:, 1] *= 0.9
    return PrecomputedKernel(gram)


def product(nu: float) -> Kernel:
    """All its numbers are the same, whatever nu is."""
    return RBFKernel(active_dims=[0]).double() * MaternKernel(nu=nu, active_dims=[1]).double()


@pytest.mark.parametrize(
    ("first", "second", "Z"),
    [
        (
            product(2.5),
            product(0.5),
            torch.cartesian_prod(*[torch.linspace(0, 1, 32, dtype=torch.float64)] * 2),
        ),
        # Zero between all points, but for pairs that are next to each other.
        (
            rbf(0.02),
            rbf(0.001),
            torch.cat([20 * unit_square(300, 0), 20 * unit_square(300, 0) + 1e-3]),
        ),
        (objects(), changed_gram(), torch.arange(100, dtype=torch.float64).unsqueeze(-1)),
    ],
    ids=["smoothness on a grid", "far points", "Gram matrix"],
)
def test_a_kernel_that_differs_anywhere_is_another(first, second, Z):
    confidence, states = (
        Chaining(0.1, points=Z),
        [KernelRidge(kernel, 0.1) for kernel in (first, first, second)],
    )
    for state in states:
        state.update(Z[:5], Z[:5, 0])
    kept, same, other = (confidence.chain(state) for state in states)
    assert kept is same is not other


def test_deeper_levels_are_added_when_points_become_known_and_covers_shrink_when_they_are_refreshed(
    monkeypatch, game
):
    monkeypatch.setattr("kbo.confidence.chaining.memory.GROWTH", 100.0)
    game.ridge = 1e-4
    confidence = Chaining(0.1, points=game.Z)
    first = confidence.chain(game.state(1))
    before, sizes = len(first), list(first.sizes)
    state = game.state(70)
    assert confidence.chain(state) is first
    assert len(first) > before
    assert first.sizes[:before] == sizes
    nested_covers(first, game.distances(70), 1e-12)
    assert len(confidence.bonus(state).heights) == len(first)
    assert len(confidence.bonus(game.state(1)).heights) == before
    assert sum(Chaining(0.1, points=game.Z).chain(state).sizes[:3]) < sum(first.sizes[:3])


def test_a_memory_is_left_behind_by_copies_and_pickles():
    game = Game()
    confidence, state = Chaining(0.1, rigorous=True, points=game.Z), game.state(30)
    upper = confidence.upper(state, game.Z)
    for other in (copy.deepcopy(confidence), pickle.loads(pickle.dumps(confidence))):
        assert torch.equal(other.upper(state, game.Z), upper)
        assert other.guarantee == confidence.guarantee
        assert other.chain(state) is not confidence.chain(state)
        assert repr(other) == repr(confidence)
    memory = pickle.loads(pickle.dumps(ChainMemory()))
    assert memory.chain(state, game.Z, 0.5)[1] == 2


def main(most: int = 2000) -> None:
    """Compare chains of sets of up to that many points, posterior by posterior."""
    sets = {**SETS, "objects": (lambda: objects(most), lambda n, seed: shuffled(most, n, seed))}
    del sets["duplicates"]
    for name, (kernel, points) in sets.items():
        for size in (400, most):
            for n in (0, 1, 10, 70):
                for ridge in (1e-6, 0.01, 3.0):
                    (X, y), Z = data(points, n, "cpu"), points(size, 1)
                    factor = top(kernel(), Z)
                    state = KernelRidge(kernel(), ridge * factor)
                    state.update(X, y)
                    expected = compare(state, Dense(kernel(), X, y), Z, ridge * factor)
                    print(
                        f"{name:10s} {size:5d} points, {n:2d} data, ridge {ridge:g}: {expected.sizes}",
                        flush=True,
                    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
