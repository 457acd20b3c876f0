"""Dictionaries choose the points that their papers say, and a sketch that follows them is the one made from scratch.

``python -m tests.test_dictionaries 200 10000`` counts in how many of 200 runs leverages are as accurate as BKB says,
and compares streams of 10000 observations with dense formulas.
"""

from __future__ import annotations

import math
import pickle
import sys
from collections import Counter

import pytest
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from experiments.problems import stationary_kernel
from kbo import KernelRidge
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
from tests.laws.states import matern, rbf, seeded, unit_square


def stream(n: int, places: int, device, seed: int = 0) -> tuple[Tensor, Tensor]:
    """n observations, the same place twice now and then."""
    X = unit_square(places, seed)[torch.randint(places, (n,), generator=seeded(seed + 1))]
    noise = torch.randn(n, generator=seeded(seed + 2), dtype=torch.float64)
    return X.to(device), (torch.sin(5 * X.sum(-1)) + 0.3 * noise).to(device)


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
        return torch.linalg.solve_triangular(
            self.L, gram(self.kernel, self.anchors, Z), upper=False
        )

    def answers(self, Z: Tensor) -> dict[str, Tensor]:
        z, prior = self.features(Z), gram(self.kernel, Z[:1], Z[:1])[0, 0]
        inverse = torch.linalg.solve(self.M, z)
        return {
            "mean": self.By @ inverse,
            "variance": prior - z.square().sum(0) + self.ridge * (z * inverse).sum(0),
            "log_det": torch.linalg.slogdet(self.M / self.ridge)[1],
            "quad": self.yy - self.By @ torch.linalg.solve(self.M, self.By),
            "effective_dimension": torch.linalg.solve(self.M, self.G).trace(),
        }


def answers(state, Z: Tensor) -> dict[str, Tensor]:
    mean, variance = state.predict(Z)
    numbers = {
        "log_det": state.at().log_det(),
        "quad": state.at().quad(),
        "effective_dimension": state.at().effective_dimension(),
    }
    return {"mean": mean, "variance": variance, **numbers}


def fed(dictionary: Dictionary, kernel: Kernel, X: Tensor, y: Tensor, ridge: float) -> NystromRidge:
    state = NystromRidge(kernel, ridge, dictionary)
    state.update(X, y)
    return state


def fed_one_by_one(state: NystromRidge, X: Tensor, y: Tensor) -> NystromRidge:
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
    points, weights = torch.cat([Z, x]), torch.cat([1 / p.sqrt(), p.new_ones(1)])
    K, k = (
        weights[:, None] * gram(kernel, points, points) * weights,
        weights * gram(kernel, points, x)[:, 0],
    )
    rest = gram(kernel, x, x)[0, 0] - k @ torch.linalg.solve(K + mu * torch.eye(len(K)).to(K), k)
    return float((1 + eps) / mu * rest)


@pytest.mark.parametrize(("mu", "gamma"), [(0.1, 2.0), (0.3, 5.0)])
def test_online_row_sampling_is_the_printed_formula_point_by_point(device, mu, gamma):
    kernel, (X, y) = matern(1.5), stream(80, 40, device)
    dictionary, draws = WatchedRows(mu, gamma, seed=3), Uniforms(3)
    state, chosen, p = NystromRidge(kernel, 0.2, dictionary), X[:0], X.new_empty(0)
    for i in range(80):
        x = X[i : i + 1]
        expected = min(1.0, gamma * printed_tau(kernel, chosen, p, x, mu, eps=0.5))
        state.update(x, y[i : i + 1])
        assert state.dictionary.seen[i] == pytest.approx(expected, abs=1e-10)
        if draws.next() < expected:
            chosen, p = torch.cat([chosen, x]), torch.cat([p, p.new_tensor([expected])])
        first = [j for j in range(len(chosen)) if not (chosen[:j] == chosen[j]).all(-1).any()]
        assert torch.equal(state.anchors, chosen[first])
    assert len(chosen) > len(first)  # some places were sampled twice
    assert 5 < len(first) < 40


def test_the_oversampling_of_resampling_is_that_of_the_theory():
    dictionary = LeverageResampling.for_horizon(100, 0.01, 0.4)
    assert dictionary.oversampling == pytest.approx(
        6 * (1.4 / 0.6) * math.log(4 * 100 / 0.01) / 0.16
    )


# BKB and BBKB


class Watched:
    """Writes down what a resampling dictionary is asked and what it answers."""

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.seen: list[tuple] = []

    def redraws(self, sketch):
        drawn, anchors = super().redraws(sketch), sketch.features.anchors.clone()
        places, counts = sketch.rows.X.clone(), sketch.rows.counts.clone()
        self.seen.append((anchors, places, counts, drawn))
        return drawn


class WatchedResampling(Watched, LeverageResampling):
    def probabilities(self, sketch):
        self.seen.append(super().probabilities(sketch))
        return self.seen[-1]


class WatchedBatches(Watched, BatchedResampling):
    pass


@pytest.mark.parametrize(("q", "ridge"), [(4.0, 2.0), (0.05, 0.5)])
def test_resampling_draws_with_the_dense_probabilities(device, q, ridge):
    kernel, (X, y) = matern(1.5), stream(60, 25, device)
    dictionary = WatchedResampling(q, seed=4)
    state, draws, kept_newest = NystromRidge(kernel, ridge, dictionary), Uniforms(4), 0
    for i in range(60):
        state.update(X[i : i + 1], y[i : i + 1])
        probabilities, (anchors, places, counts, drawn) = state.dictionary.seen[-2:]
        leverage = (
            Scratch(kernel, anchors, X[: i + 1], y[: i + 1], ridge).answers(places)["variance"]
            / ridge
        )
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
    kernel, ridge, (X, y) = matern(1.5), 1.0, stream(80, 40, device)
    dictionary, plain = (
        WatchedBatches(2.0, growth, seed=1),
        NystromRidge(kernel, ridge, LeverageResampling(2.0, seed=1)),
    )
    state, spent, frozen = (
        NystromRidge(kernel, ridge, dictionary),
        0.0,
        Scratch(kernel, X[:0], X[:0], y[:0], ridge),
    )
    batches = 0
    for i in range(80):
        x = X[i : i + 1]
        spent += float(frozen.answers(x)["variance"]) / ridge
        due = 1 + spent > growth or state.m == 0
        state.update(x, y[i : i + 1])
        plain.update(x, y[i : i + 1])
        assert (state.dictionary.seen[i][-1] is not None) == due
        assert growth > 1 or torch.equal(state.anchors, plain.anchors)
        if due:
            batches += 1
            spent, frozen = (
                0.0,
                Scratch(kernel, state.anchors.clone(), X[: i + 1], y[: i + 1], ridge),
            )
    assert 3 < batches <= 80 / growth


# Greedy


def test_a_greedy_dictionary_takes_exactly_what_is_explained_too_little(device):
    kernel, (X, y) = matern(1.5), stream(60, 40, device)
    for threshold in (0.5, 1e-3):
        state = fed_one_by_one(NystromRidge(kernel, 0.1, GreedyDictionary(threshold)), X, y)
        chosen = X[:0]

        def residual(points: Tensor, chosen: Tensor) -> Tensor:
            z = Scratch(kernel, chosen, X[:1], y[:1], 0.1).features(points)
            return gram(kernel, points, points).diagonal() - z.square().sum(0)

        for x in X.split(1):
            if float(residual(x, chosen)) > threshold:
                chosen = torch.cat([chosen, x])
        assert torch.equal(state.anchors, chosen)
        assert float(residual(X, chosen).max()) <= threshold
        assert float(state.error.trace) <= threshold * 60


# Every dictionary

MAKE = {
    "online": lambda **kwargs: OnlineRowSampling(0.1, 1.0, **kwargs),
    "greedy": lambda most=None, seed=0: GreedyDictionary(0.01, most=most),
    "resampled": lambda **kwargs: LeverageResampling(3.0, **kwargs),
    "batched": lambda **kwargs: BatchedResampling(3.0, 2.0, **kwargs),
}
EAGER = {  # take whatever they may
    "online": OnlineRowSampling(1e-6, 1e9),
    "greedy": GreedyDictionary(1e-15),
    "resampled": LeverageResampling(1e15),
    "batched": BatchedResampling(1e15, 1.0),
}


@pytest.fixture(params=MAKE)
def name(request) -> str:
    return request.param


def test_a_limit_is_never_exceeded_and_remembered(device, name):
    X, y = stream(60, 50, device)
    state, free = (NystromRidge(matern(1.5), 0.1, MAKE[name](most=most)) for most in (12, None))
    for i in range(60):
        for one in (state, free):
            one.update(X[i : i + 1], y[i : i + 1])
        assert state.m <= 12
        if free.m > 12:
            break
        # Until then the limit has kept nothing out.
        assert torch.equal(state.anchors, free.anchors) or state.dictionary.capped
    for one in (state, free):
        one.update(X[i + 1 :], y[i + 1 :])
    assert state.m <= 12 < free.m
    assert state.dictionary.capped
    assert not free.dictionary.capped


def test_dependent_points_never_enter(device, name):
    places = unit_square(6, 1).to(device)
    X = torch.cat([places[:2], places, places + 1e-9, places[:4], places - 1e-9])
    state = fed(EAGER[name], rbf(), X, torch.ones(len(X)).to(X), 0.1)
    assert state.m == 6
    close(state.anchors[state.anchors[:, 0].argsort()], places[places[:, 0].argsort()], 1e-8)


def test_equal_seeds_choose_equal_points_and_one_description_or_saved_state_serves_several_states(
    device, name
):
    (X, y), (U, v), dictionary = stream(50, 40, device, 1), stream(50, 40, device, 9), MAKE[name]()

    def of(dictionary: Dictionary, X: Tensor, y: Tensor) -> NystromRidge:
        return fed_one_by_one(NystromRidge(matern(1.5), 0.5, dictionary), X, y)

    first, second = (NystromRidge(matern(1.5), 0.5, dictionary) for _ in range(2))
    for i in range(50):
        first.update(X[i : i + 1], y[i : i + 1])
        second.update(U[i : i + 1], v[i : i + 1])
    whole, part = of(MAKE[name](), X, y), of(MAKE[name](), X[:25], y[:25])
    assert torch.equal(first.anchors, whole.anchors)
    assert torch.equal(second.anchors, of(MAKE[name](), U, v).anchors)
    saved = pickle.dumps(part)
    for _ in range(2):  # the first would change what the second is given, if they shared it
        state = pickle.loads(saved)
        fed_one_by_one(state, X[25:], y[25:])
        assert torch.equal(state.anchors, whole.anchors)
    other = of(MAKE[name](seed=2), X, y).anchors
    assert (other.shape == whole.anchors.shape and torch.equal(other, whole.anchors)) == (
        name == "greedy"
    )


# All points in the dictionary


@pytest.mark.parametrize("ridge", [0.01, 10.0])
@pytest.mark.parametrize(
    ("kernel", "n"),
    [(matern(0.5), 40), (matern(2.5), 40), (stationary_kernel("rbf", 0.1), 40), (rbf(), 200)],
)
def test_with_all_points_a_sketch_is_the_exact_posterior(device, kernel, n, ridge):
    """Also where most points of a smooth kernel are dependent."""
    assert max(all_points_errors(kernel, ridge, device, n, greedy=n == 40).values()) < 1e-8
    assert (
        n == 40
        or NystromRidge(kernel, ridge, FixedDictionary(unit_square(n, 5).to(device))).m < 150
    )


def all_points_errors(
    kernel: Kernel, ridge: float, device, n: int = 60, greedy: bool = True
) -> dict[str, float]:
    """Largest errors against the dense Gaussian process and the exact state, as parts of the largest value."""
    X, y, Z = unit_square(n, 5).to(device), stream(n, n, device)[1], unit_square(20, 8).to(device)
    exact, dense = KernelRidge(kernel, ridge), Dense(kernel, X, y)
    exact.update(X, y)
    mean, variance = dense.predict(Z, ridge)
    numbers = {
        name: getattr(dense, name)(ridge) for name in ("log_det", "quad", "effective_dimension")
    }
    worst = Counter()
    for dictionary in (FixedDictionary(X.flip(0)), *([GreedyDictionary(1e-15)] if greedy else [])):
        found = answers(fed(dictionary, kernel, X, y, ridge), Z)
        for expected in ({"mean": mean, "variance": variance, **numbers}, answers(exact, Z)):
            for name, value in expected.items():
                error = float(
                    (found[name] - value).abs().max() / max(1.0, float(value.abs().max()))
                )
                worst[name] = max(worst[name], error)
    return dict(worst)


# Long streams

STREAMS = {
    "greedy": lambda: GreedyDictionary(0.02),
    "online": lambda: OnlineRowSampling(0.1, 3.0),
    "batched": lambda: BatchedResampling(2.0, 10.0),
}


def worst_along(name: str, n: int, device) -> tuple[dict[str, float], NystromRidge]:
    """Largest errors along a stream of n observations, at moments that become rarer."""
    kernel, ridge, (X, y) = matern(1.5), 0.1, stream(n, n // 8, device)
    Z = torch.cat([unit_square(20, 8).to(device), X[:5]])
    state = NystromRidge(kernel, ridge, STREAMS[name]())
    tracked, worst, moment = FixedPoints(state, Z), Counter(), 1
    for i in range(n):
        tracked.update(X[i : i + 1], y[i : i + 1])
        if i + 1 in (moment, n):
            moment = int(1.4 * moment) + 1
            expected = Scratch(kernel, state.anchors, X[: i + 1], y[: i + 1], ridge).answers(Z)
            mean, variance = tracked.predict(Z)
            found = {**answers(state, Z), "tracked mean": mean, "tracked variance": variance}
            for what, value in found.items():
                wanted = expected[what.removeprefix("tracked ")]
                error = float(((value - wanted).abs() / wanted.abs().clamp_min(1)).max())
                worst[what] = max(worst[what], error)
    return dict(worst), state


@pytest.mark.parametrize("name", STREAMS)
def test_a_long_stream_is_what_is_made_from_scratch(device, name):
    worst, state = worst_along(name, 400, device)
    assert max(worst.values()) < 1e-8, worst
    assert 15 < state.m < 200


# Leverages


def worst_ratio(
    dictionary: Dictionary, ridge: float, horizon: int, seed: int
) -> tuple[float, float]:
    """Largest factor between a sketched and an exact leverage at all points and times, and the part of
    the places that is in the dictionary at the end."""
    kernel, (X, y) = matern(1.5), stream(horizon, horizon, "cpu", 10 * seed)
    state, K, worst = NystromRidge(kernel, ridge, dictionary), gram(kernel, X, X), 1.0
    for n in range(1, horizon + 1):
        state.update(X[n - 1 : n], y[n - 1 : n])
        if n % 2 == 0:
            inverse = torch.linalg.inv(K[:n, :n] + ridge * torch.eye(n, dtype=torch.float64))
            exact = 1 - ridge * inverse.diagonal()  # K (K + ridge I)^-1
            ratio = state.predict(X[:n])[1] / ridge / exact
            worst = max(worst, float(ratio.max()), 1 / float(ratio.min()))
    return worst, state.m / len(X.unique(dim=0))


def held(make, runs: int, ridge: float = 20.0, horizon: int = 100) -> tuple[int, float, float]:
    """Runs in which all leverages were within a factor 3 at all times, the mean part of places, the worst factor."""
    found = [worst_ratio(make(seed), ridge, horizon, seed) for seed in range(runs)]
    return (
        sum(worst <= 3 for worst, _ in found),
        sum(share for _, share in found) / runs,
        max(w for w, _ in found),
    )


def of(oversampling: float):
    return lambda seed: LeverageResampling(oversampling, seed=seed)


@pytest.mark.parametrize("runs", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_leverages_are_within_a_factor_3_with_far_fewer_points_and_not_with_too_few(runs):
    good, share, _ = held(of(10.0), runs)
    assert good >= 0.9 * runs - 1
    assert share < 0.6
    assert held(of(0.2), runs)[0] < 0.9 * runs


def main(runs: int = 200, n: int = 10_000) -> None:
    """Print how accurate leverages, sketches with all points, and sketches along a stream are."""
    for kernel, label in (
        (matern(0.5), "12"),
        (matern(1.5), "32"),
        (matern(2.5), "52"),
        (rbf(), "rbf"),
    ):
        for ridge in (1e-4, 1e-3, 0.01, 0.1, 1.0, 10.0):
            worst = all_points_errors(kernel, ridge, "cpu", greedy=label != "rbf")
            print(
                f"all points, {label}, ridge {ridge}:",
                {name: f"{error:.1g}" for name, error in worst.items()},
            )
    for name in STREAMS:
        worst, state = worst_along(name, n, "cpu")
        print(
            f"{name}, {n} observations, m = {state.m}:",
            {what: f"{error:.1g}" for what, error in worst.items()},
        )
    theory = {"theory": lambda seed: LeverageResampling.for_horizon(100, 0.1, seed=seed)}
    for label, make in {**theory, **{f"q = {q}": of(q) for q in (0.2, 1.0, 3.0, 10.0)}}.items():
        good, share, worst = held(make, runs)
        print(
            f"{label}: {good} of {runs} runs within a factor 3 (worst {worst:.2f}), part {share:.2f}"
        )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
