"""Dictionaries choose the points that their papers say, and a sketch that follows them is the one made from scratch."""

from __future__ import annotations

import math
import pickle

import pytest
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from kbo.regression import (
    BatchedResampling,
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


def test_online_row_sampling_is_the_printed_formula_point_by_point(device):
    mu, gamma = 0.1, 2.0
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
    X, y = stream(40, 25, device)
    draws = Uniforms(4)
    state = NystromRidge(kernel, ridge, WatchedResampling(q, seed=4))
    kept_newest = 0
    for i in range(40):
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


def test_batched_resampling_waits_until_frozen_leverages_add_up(device):
    kernel = matern(1.5)
    X, y = stream(80, 40, device)
    growth = 2.0
    state = NystromRidge(kernel, 1.0, WatchedBatches(2.0, growth, seed=1))
    frozen = Scratch(kernel, X[:0], X[:0], y[:0], 1.0)
    spent = 0.0
    batches = 0
    for i in range(80):
        x = X[i : i + 1]
        spent += float(frozen.answers(x)["variance"])
        due = 1 + spent > growth or state.m == 0
        state.update(x, y[i : i + 1])
        assert (state.dictionary.seen[i][-1] is not None) == due
        if due:
            batches += 1
            spent = 0.0
            frozen = Scratch(kernel, state.anchors.clone(), X[: i + 1], y[: i + 1], 1.0)
    assert 3 < batches <= 40


# Greedy


def test_a_greedy_dictionary_takes_exactly_what_is_explained_too_little(device):
    kernel = matern(1.5)
    X, y = stream(60, 40, device)
    for threshold in (0.5, 1e-3):
        state = one_by_one(NystromRidge(kernel, 0.1, GreedyDictionary(threshold)), X, y)
        scratch = Scratch(kernel, X[:0], X, y, 0.1)
        for x in X.split(1):
            if float(scratch.residual(x)) > threshold:
                scratch = Scratch(kernel, torch.cat([scratch.anchors, x]), X, y, 0.1)
        assert torch.equal(state.anchors, scratch.anchors)
        assert float(state.error.trace) <= threshold * 60


# Every dictionary

MAKE = {
    "online": lambda **kwargs: OnlineRowSampling(0.1, 1.0, **kwargs),
    "greedy": lambda most=None, seed=0: GreedyDictionary(0.01, most=most),
    "resampled": lambda **kwargs: LeverageResampling(3.0, **kwargs),
    "batched": lambda **kwargs: BatchedResampling(3.0, 2.0, **kwargs),
}


@pytest.mark.parametrize("name", MAKE)
def test_a_limit_is_never_exceeded_and_remembered(device, name):
    X, y = stream(50, 50, device)
    state = NystromRidge(matern(1.5), 0.1, MAKE[name](most=12))
    free = one_by_one(NystromRidge(matern(1.5), 0.1, MAKE[name]()), X, y)
    for i in range(50):
        state.update(X[i : i + 1], y[i : i + 1])
        assert state.m <= 12 < free.m
    assert state.dictionary.capped
    assert not free.dictionary.capped


SIX = unit_square(6, 1)


@pytest.mark.parametrize(
    "dictionary",  # each takes whatever it may
    [
        OnlineRowSampling(1e-6, 1e9),
        GreedyDictionary(1e-15),
        LeverageResampling(1e15),
        BatchedResampling(1e15, 1.0),
        FixedDictionary(torch.cat([SIX[:2], SIX, SIX + 1e-9])),
    ],
    ids=lambda dictionary: type(dictionary).__name__,
)
def test_dependent_points_never_enter(device, dictionary):
    places = SIX.to(device)
    X = torch.cat([places[:2], places, places + 1e-9, places[:4], places - 1e-9])
    state = NystromRidge(rbf(), 0.1, dictionary)
    state.update(X, X[:, 0])
    assert state.m == 6
    close(state.anchors[state.anchors[:, 0].argsort()], places[places[:, 0].argsort()], 1e-8)


@pytest.mark.parametrize("name", MAKE)
def test_equal_seeds_choose_equal_points_also_from_a_saved_state(device, name):
    X, y = stream(40, 40, device, 1)

    def fed(n: int, seed: int = 0) -> NystromRidge:
        state = NystromRidge(matern(1.5), 0.5, MAKE[name](seed=seed))
        return one_by_one(state, X[:n], y[:n])

    whole = fed(40).anchors
    saved = pickle.dumps(fed(20))
    for _ in range(2):  # the first would change what the second is given, if they shared it
        loaded = one_by_one(pickle.loads(saved), X[20:], y[20:])
        assert torch.equal(loaded.anchors, whole)
    other = fed(40, seed=2).anchors
    is_same = other.shape == whole.shape and torch.equal(other, whole)
    assert is_same == (name == "greedy")


def test_with_all_points_a_sketch_is_the_exact_posterior_also_where_most_are_dependent(device):
    X = unit_square(200, 5).to(device)
    y = stream(200, 200, device)[1]
    Z = unit_square(20, 8).to(device)
    state = NystromRidge(rbf(), 0.01, FixedDictionary(X))
    state.update(X, y)
    found = answers(state, Z)
    for name, value in answers(Dense(rbf(), X, y), Z, 0.01).items():
        error = (found[name] - value).abs().max() / value.abs().max().clamp_min(1)
        assert float(error) < 1e-8, name
    assert state.m < 150


@pytest.mark.parametrize(
    "dictionary",
    [GreedyDictionary(0.02), OnlineRowSampling(0.1, 3.0), BatchedResampling(2.0, 10.0)],
    ids=lambda dictionary: type(dictionary).__name__,
)
def test_a_long_stream_is_what_is_made_from_scratch(device, dictionary):
    X, y = stream(200, 50, device)
    Z = torch.cat([unit_square(20, 8).to(device), X[:5]])
    tracked = FixedPoints(NystromRidge(matern(1.5), 0.1, dictionary), Z)
    for i in range(200):
        tracked.update(X[i : i + 1], y[i : i + 1])
        if i in (0, 6, 15, 60, 199):
            as_scratch(tracked, X[: i + 1], y[: i + 1])
    assert 15 < tracked.state.m < 200
