"""Dictionaries choose the points that their papers say, and a sketch that follows them is the one made from scratch."""

from __future__ import annotations

import math
import pickle

import pytest
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from experiments.problems import stationary_kernel
from kbo.regression import (
    BatchedResampling,
    Dictionary,
    FixedDictionary,
    FixedPoints,
    GreedyDictionary,
    LeverageResampling,
    NystromRidge,
    OnlineRowSampling,
)
from kbo.regression.sketch.leverage import Uniforms
from tests.dense import Dense, close, gram
from tests.laws.states import matern, normal, rbf, seeded, unit_square


def stream(n: int, places: int, device, seed: int = 0) -> tuple[Tensor, Tensor]:
    """n observations, the same place twice now and then."""
    X = unit_square(places, seed)[torch.randint(places, (n,), generator=seeded(seed + 1))]
    y = torch.sin(5 * X.sum(-1)) + 0.3 * normal(n, seed + 2)
    return X.to(device), y.to(device)


class Scratch:
    """The DTC posterior for given anchors, by dense algebra over distinct places."""

    def __init__(self, kernel: Kernel, anchors: Tensor, X: Tensor, y: Tensor, ridge: float) -> None:
        self.kernel, self.anchors, self.ridge = kernel, anchors, ridge
        self.L = torch.linalg.cholesky(gram(kernel, anchors, anchors))
        places, number, counts = torch.unique(X, dim=0, return_inverse=True, return_counts=True)
        sums = y.new_zeros(len(places)).index_add(0, number, y)
        B = self.features(places)
        self.G, self.By = (B * counts) @ B.mT, B @ sums
        self.M = self.G + ridge * torch.eye(len(B)).to(B)
        self.yy = y @ y

    def features(self, Z: Tensor) -> Tensor:
        k = gram(self.kernel, self.anchors, Z)
        return torch.linalg.solve_triangular(self.L, k, upper=False)

    def residual(self, Z: Tensor) -> Tensor:
        return gram(self.kernel, Z, Z).diagonal() - self.features(Z).square().sum(0)

    def answers(self, Z: Tensor) -> dict[str, Tensor]:
        z = self.features(Z)
        inverse = torch.linalg.solve(self.M, z)
        return {
            "mean": self.By @ inverse,
            "variance": self.residual(Z) + self.ridge * (z * inverse).sum(0),
            "log_det": torch.linalg.slogdet(self.M / self.ridge)[1],
            "quad": self.yy - self.By @ torch.linalg.solve(self.M, self.By),
            "effective_dimension": torch.linalg.solve(self.M, self.G).trace(),
        }


def answers(state, Z: Tensor, ridge: float | None = None) -> dict[str, Tensor]:
    posterior = state.at(ridge)
    found = dict(zip(("mean", "variance"), posterior.predict(Z), strict=True))
    for name in ("log_det", "quad", "effective_dimension"):
        found[name] = getattr(posterior, name)()
    return found


def near(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    for name, value in found.items():
        error = (value - expected[name]).abs() / expected[name].abs().clamp_min(1)
        assert float(error.max()) < 1e-8, name


def as_scratch(tracked: FixedPoints, X: Tensor, y: Tensor) -> None:
    """Answers of a sketch, and those at its tracked points, are those from scratch for its anchors."""
    state = tracked.state
    Z = tracked.points
    expected = Scratch(state.kernel, state.anchors, X, y, state.ridge).answers(Z)
    near(answers(state, Z), expected)
    near(answers(tracked, Z), expected)


def one_by_one(state: NystromRidge, X: Tensor, y: Tensor) -> NystromRidge:
    for i in range(len(X)):
        state.update(X[i : i + 1], y[i : i + 1])
    return state


# KORS


class WatchedRows(OnlineRowSampling):
    """Writes down the probabilities with which points enter."""

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.seen: list[float] = []

    def accepts(self, point, sketch):
        self.seen.append(self.probability(point))
        return super().accepts(point, sketch)


def printed_tau(kernel: Kernel, Z: Tensor, p: Tensor, x: Tensor, mu: float, eps: float) -> float:
    """Eq. 41 of Zenati et al. (2022) with the new point of weight 1."""
    points = torch.cat([Z, x])
    weights = torch.cat([1 / p.sqrt(), p.new_ones(1)])
    K = weights[:, None] * gram(kernel, points, points) * weights
    k = weights * gram(kernel, points, x)[:, 0]
    rest = gram(kernel, x, x)[0, 0] - k @ torch.linalg.solve(K + mu * torch.eye(len(K)).to(K), k)
    return float((1 + eps) / mu * rest)


@pytest.mark.parametrize(("mu", "gamma"), [(0.1, 2.0), (0.3, 5.0)])
def test_online_row_sampling_is_the_printed_formula_point_by_point(device, mu, gamma):
    kernel = matern(1.5)
    X, y = stream(80, 40, device)
    draws = Uniforms(3)
    state = NystromRidge(kernel, 0.2, WatchedRows(mu, gamma, seed=3))
    chosen = X[:0]
    p = X.new_empty(0)
    for i in range(80):
        x = X[i : i + 1]
        expected = min(1.0, gamma * printed_tau(kernel, chosen, p, x, mu, eps=0.5))
        state.update(x, y[i : i + 1])
        assert state.dictionary.seen[i] == pytest.approx(expected, abs=1e-10)
        if draws.next() < expected:
            chosen = torch.cat([chosen, x])
            p = torch.cat([p, p.new_tensor([expected])])
        first = [j for j in range(len(chosen)) if not (chosen[:j] == chosen[j]).all(-1).any()]
        assert torch.equal(state.anchors, chosen[first])
    assert len(chosen) > len(first)  # some places were sampled twice
    assert 5 < len(first) < 40


def test_the_oversampling_of_resampling_is_that_of_the_theory():
    dictionary = LeverageResampling.for_horizon(100, 0.01, 0.4)
    expected = 6 * (1.4 / 0.6) * math.log(4 * 100 / 0.01) / 0.16
    assert dictionary.oversampling == pytest.approx(expected)


# BKB and BBKB


class Watched:
    """Writes down what a resampling dictionary is asked and what it answers."""

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.seen: list[tuple] = []

    def redraws(self, sketch):
        drawn = super().redraws(sketch)
        rows = sketch.rows
        anchors = sketch.features.anchors.clone()
        self.seen.append((anchors, rows.X.clone(), rows.counts.clone(), drawn))
        return drawn


class WatchedResampling(Watched, LeverageResampling):
    def probabilities(self, sketch):
        self.seen.append(super().probabilities(sketch))
        return self.seen[-1]


class WatchedBatches(Watched, BatchedResampling):
    pass


@pytest.mark.parametrize(("q", "ridge"), [(4.0, 2.0), (0.05, 0.5)])
def test_resampling_draws_with_the_dense_probabilities(device, q, ridge):
    kernel = matern(1.5)
    X, y = stream(60, 25, device)
    draws = Uniforms(4)
    state = NystromRidge(kernel, ridge, WatchedResampling(q, seed=4))
    kept_newest = 0
    for i in range(60):
        state.update(X[i : i + 1], y[i : i + 1])
        probabilities, (anchors, places, counts, drawn) = state.dictionary.seen[-2:]
        scratch = Scratch(kernel, anchors, X[: i + 1], y[: i + 1], ridge)
        leverage = scratch.answers(places)["variance"] / ridge
        expected = 1 - (1 - (q * leverage).clamp_max(1)) ** counts
        close(probabilities, expected, 1e-10)
        assert counts.tolist() == [int((X[: i + 1] == place).all(-1).sum()) for place in places]
        hits = (draws.many(len(places)).to(expected) < expected).nonzero().flatten().tolist()
        kept_newest += not hits
        assert drawn == (hits or [int((places == X[i]).all(-1).nonzero())])
        assert torch.equal(state.anchors, places[drawn])
    assert (kept_newest > 0) == (q < 0.1)


@pytest.mark.parametrize("growth", [1.0, 2.0])
def test_batched_resampling_waits_until_frozen_leverages_add_up(device, growth):
    """Without growth it is resampling after every observation."""
    kernel = matern(1.5)
    X, y = stream(80, 40, device)
    plain = NystromRidge(kernel, 1.0, LeverageResampling(2.0, seed=1))
    state = NystromRidge(kernel, 1.0, WatchedBatches(2.0, growth, seed=1))
    frozen = Scratch(kernel, X[:0], X[:0], y[:0], 1.0)
    spent = 0.0
    batches = 0
    for i in range(80):
        x = X[i : i + 1]
        spent += float(frozen.answers(x)["variance"])
        due = 1 + spent > growth or state.m == 0
        state.update(x, y[i : i + 1])
        plain.update(x, y[i : i + 1])
        assert (state.dictionary.seen[i][-1] is not None) == due
        assert growth > 1 or torch.equal(state.anchors, plain.anchors)
        if due:
            batches += 1
            spent = 0.0
            frozen = Scratch(kernel, state.anchors.clone(), X[: i + 1], y[: i + 1], 1.0)
    assert 3 < batches <= 80 / growth


# Greedy


@pytest.mark.parametrize("threshold", [0.5, 1e-3])
def test_a_greedy_dictionary_takes_exactly_what_is_explained_too_little(device, threshold):
    kernel = matern(1.5)
    X, y = stream(60, 40, device)
    state = one_by_one(NystromRidge(kernel, 0.1, GreedyDictionary(threshold)), X, y)
    scratch = Scratch(kernel, X[:0], X, y, 0.1)
    for x in X.split(1):
        if float(scratch.residual(x)) > threshold:
            scratch = Scratch(kernel, torch.cat([scratch.anchors, x]), X, y, 0.1)
    assert torch.equal(state.anchors, scratch.anchors)
    assert float(scratch.residual(X).max()) <= threshold
    assert float(state.error.trace) <= threshold * 60


# Every dictionary

MAKE = {
    "online": lambda **kwargs: OnlineRowSampling(0.1, 1.0, **kwargs),
    "greedy": lambda most=None, seed=0: GreedyDictionary(0.01, most=most),
    "resampled": lambda **kwargs: LeverageResampling(3.0, **kwargs),
    "batched": lambda **kwargs: BatchedResampling(3.0, 2.0, **kwargs),
}
EAGER = [  # take whatever they may
    OnlineRowSampling(1e-6, 1e9),
    GreedyDictionary(1e-15),
    LeverageResampling(1e15),
    BatchedResampling(1e15, 1.0),
]


@pytest.mark.parametrize("name", MAKE)
def test_a_limit_is_never_exceeded_and_remembered(device, name):
    X, y = stream(60, 50, device)
    state, free = (NystromRidge(matern(1.5), 0.1, MAKE[name](most=most)) for most in (12, None))
    is_within = True
    for i in range(60):
        state.update(X[i : i + 1], y[i : i + 1])
        free.update(X[i : i + 1], y[i : i + 1])
        is_within &= free.m <= 12
        assert state.m <= 12
        if is_within:  # the limit has kept nothing out
            assert torch.equal(state.anchors, free.anchors) or state.dictionary.capped
    assert free.m > 12
    assert state.dictionary.capped
    assert not free.dictionary.capped


@pytest.mark.parametrize("dictionary", EAGER, ids=lambda dictionary: type(dictionary).__name__)
def test_dependent_points_never_enter(device, dictionary):
    places = unit_square(6, 1).to(device)
    X = torch.cat([places[:2], places, places + 1e-9, places[:4], places - 1e-9])
    state = NystromRidge(rbf(), 0.1, dictionary)
    state.update(X, X[:, 0])
    assert state.m == 6
    close(state.anchors[state.anchors[:, 0].argsort()], places[places[:, 0].argsort()], 1e-8)


@pytest.mark.parametrize("name", MAKE)
def test_equal_seeds_choose_equal_points_and_one_description_or_saved_state_serves_several_states(
    device, name
):
    X, y = stream(50, 40, device, 1)
    U, v = stream(50, 40, device, 9)

    def state(dictionary: Dictionary) -> NystromRidge:
        return NystromRidge(matern(1.5), 0.5, dictionary)

    def chosen(X: Tensor, y: Tensor, **options) -> Tensor:
        return one_by_one(state(MAKE[name](**options)), X, y).anchors

    whole = chosen(X, y)
    dictionary = MAKE[name]()
    first = state(dictionary)
    second = state(dictionary)
    for i in range(50):
        first.update(X[i : i + 1], y[i : i + 1])
        second.update(U[i : i + 1], v[i : i + 1])
    assert torch.equal(first.anchors, whole)
    assert torch.equal(second.anchors, chosen(U, v))
    saved = pickle.dumps(one_by_one(state(MAKE[name]()), X[:25], y[:25]))
    for _ in range(2):  # the first would change what the second is given, if they shared it
        loaded = one_by_one(pickle.loads(saved), X[25:], y[25:])
        assert torch.equal(loaded.anchors, whole)
    other = chosen(X, y, seed=2)
    is_same = other.shape == whole.shape and torch.equal(other, whole)
    assert is_same == (name == "greedy")


@pytest.mark.parametrize("ridge", [0.01, 10.0])
@pytest.mark.parametrize(
    ("kernel", "n"),
    [(matern(0.5), 40), (matern(2.5), 40), (stationary_kernel("rbf", 0.1), 40), (rbf(), 200)],
)
def test_with_all_points_a_sketch_is_the_exact_posterior(device, kernel, n, ridge):
    """Also where most points of a smooth kernel are dependent."""
    X = unit_square(n, 5).to(device)
    y = stream(n, n, device)[1]
    Z = unit_square(20, 8).to(device)
    expected = answers(Dense(kernel, X, y), Z, ridge)
    dictionaries = [FixedDictionary(X.flip(0))]
    if n == 40:
        dictionaries.append(GreedyDictionary(1e-15))
    for dictionary in dictionaries:
        state = NystromRidge(kernel, ridge, dictionary)
        state.update(X, y)
        found = answers(state, Z)
        for name, value in expected.items():
            error = (found[name] - value).abs().max() / value.abs().max().clamp_min(1)
            assert float(error) < 1e-8, name
        assert n == 40 or state.m < 150


@pytest.mark.parametrize(
    "dictionary",
    [GreedyDictionary(0.02), OnlineRowSampling(0.1, 3.0), BatchedResampling(2.0, 10.0)],
    ids=lambda dictionary: type(dictionary).__name__,
)
def test_a_long_stream_is_what_is_made_from_scratch(device, dictionary):
    X, y = stream(400, 50, device)
    Z = torch.cat([unit_square(20, 8).to(device), X[:5]])
    tracked = FixedPoints(NystromRidge(matern(1.5), 0.1, dictionary), Z)
    for i in range(400):
        tracked.update(X[i : i + 1], y[i : i + 1])
        if i in (0, 2, 6, 15, 30, 60, 120, 240, 399):
            as_scratch(tracked, X[: i + 1], y[: i + 1])
    assert 15 < tracked.state.m < 200


# Leverages


def worst_ratio(oversampling: float, seed: int) -> tuple[float, float]:
    """Largest factor between a sketched and an exact leverage at all points and times, and the part of
    the places that is in the dictionary at the end."""
    kernel = matern(1.5)
    ridge = 20.0
    X, y = stream(100, 100, "cpu", 10 * seed)
    state = NystromRidge(kernel, ridge, LeverageResampling(oversampling, seed=seed))
    K = gram(kernel, X, X)
    worst = 1.0
    for n in range(1, 101):
        state.update(X[n - 1 : n], y[n - 1 : n])
        if n % 2 == 0:
            inverse = torch.linalg.inv(K[:n, :n] + ridge * torch.eye(n, dtype=torch.float64))
            exact = 1 - ridge * inverse.diagonal()  # K (K + ridge I)^-1
            ratio = state.predict(X[:n])[1] / ridge / exact
            worst = max(worst, float(ratio.max()), 1 / float(ratio.min()))
    return worst, state.m / len(X.unique(dim=0))


@pytest.mark.parametrize("runs", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_leverages_are_within_a_factor_3_with_far_fewer_points_and_not_with_too_few(runs):
    found = [worst_ratio(10.0, seed) for seed in range(runs)]
    assert sum(worst <= 3 for worst, _ in found) >= 0.9 * runs - 1
    assert sum(share for _, share in found) / runs < 0.6
    with_few = [worst_ratio(0.2, seed)[0] for seed in range(runs)]
    assert sum(worst <= 3 for worst in with_few) < 0.9 * runs
