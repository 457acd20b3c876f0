"""The time of kbo over that of straight-line functions of the same arithmetic (``straight/``), on the same data."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from kbo.confidence import Chaining, Confidence, FixedWidth, MartingaleMixture
from kbo.confidence.mixture.radius import DMM_GRID
from kbo.experiments.bench.race import Bench, Goal, Result, agree, race
from kbo.experiments.bench.setups import uniform
from kbo.experiments.bench.straight import chains, points, rounds, tuning
from kbo.optimize.context import Restriction
from kbo.optimize.fitting import fit, unit_kernel
from kbo.optimize.proposal import Search, argmax_upper
from kbo.problems import stationary_kernel
from kbo.regression import BatchedResampling, FixedDictionary, KernelRidge, NystromRidge, Posterior, Tracked
from kbo.regression.sketch.leverage import Uniforms
from kbo.space import Space

_LENGTHSCALE, _RIDGE, _WIDTH = 0.2, 0.1, 1.0
_LINE = "{} / straight-line PyTorch"


def _bandit(n: int, arms: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Return arms [n A 3] in units of the lengthscale, and the rows [n 3] and noisy targets [n] that are observed."""
    X = uniform(n * arms, 3, seed=1).reshape(n, arms, 3).to(device)
    noise = torch.randn(n, generator=torch.Generator().manual_seed(2), dtype=torch.float64).to(device)
    return X / _LENGTHSCALE, X[:, 0] / _LENGTHSCALE, torch.sin(5 * X[:, 0]).sum(-1) + 0.1 * noise


def _follow(state: Posterior, confidence: Confidence, arms: Tensor, X: Tensor, y: Tensor) -> Tensor:
    """Return the largest bounds of kbo over the arms of each round, one row more after each."""
    most = []
    for points_, x, target in zip(arms, X.split(1), y.split(1), strict=True):
        most.append(confidence.argmax_upper(state, points_)[1])
        state.update(x, target)
    return torch.tensor(most, dtype=torch.float64)


def exact_rounds(device: torch.device, n: int, arms: int) -> list[Result]:
    """Time rounds of K-UCB."""
    data, kernel = _bandit(n, arms, device), stationary_kernel("rbf", 1.0)
    works = {
        "kbo": lambda: _follow(KernelRidge(kernel, _RIDGE), FixedWidth(_WIDTH), *data),
        "straight": lambda: torch.tensor(rounds.exact(*data, _RIDGE, _WIDTH)),
    }
    return _against(device, n, f"{n} rounds of K-UCB, {arms} arms", works, 1.25 if n <= 2000 else 1.1)


def sketched_rounds(device: torch.device, n: int, m: int, arms: int) -> list[Result]:
    """Time rounds of EK-UCB whose dictionary stays."""
    data, kernel = _bandit(n, arms, device), stationary_kernel("rbf", 1.0)
    anchors = uniform(m, 3, seed=3).to(device) / _LENGTHSCALE
    dictionary = FixedDictionary(anchors)
    works = {
        "kbo": lambda: _follow(NystromRidge(kernel, _RIDGE, dictionary), FixedWidth(_WIDTH), *data),
        "straight": lambda: torch.tensor(rounds.sketched(anchors, *data, _RIDGE, _WIDTH)),
    }
    return _against(device, n, f"{n} rounds of EK-UCB, m = {m}, {arms} arms", works)


def batched_rounds(device: torch.device, n: int, arms: int) -> list[Result]:
    """Time rounds of BBKB, whose dictionary is drawn again once enough has been learned; with the same draws."""
    data, kernel = _bandit(n, arms, device), stationary_kernel("rbf", 1.0)
    ridge, sampled, growth = 10.0, 5.0, 3.0  # a batch of dozens of rounds

    def kbo() -> Tensor:
        state = NystromRidge(kernel, ridge, BatchedResampling(sampled, growth, seed=0))
        return _follow(state, FixedWidth(_WIDTH), *data)

    def straight() -> Tensor:
        return torch.tensor(rounds.batched(*data, ridge, _WIDTH, sampled, growth, Uniforms(0).many))

    return _against(device, n, f"{n} rounds of BBKB, {arms} arms", {"kbo": kbo, "straight": straight})


def chained_rounds(device: torch.device, n: int, arms: int, times: int) -> list[Result]:
    """Time rounds of Chaining-UCB on fixed arms after n observations, with one computation of all covers."""
    ridge, delta, kernel = 0.01, 0.1, stationary_kernel("rbf", 1.0)
    points_, X = (uniform(N, 2, seed).to(device) / 0.1 for N, seed in ((arms, 1), (n + times, 2)))
    y = torch.sin(X).sum(-1)

    def kbo() -> Tensor:
        state = Tracked(KernelRidge(kernel, ridge), points_)
        state.update(X[:n], y[:n])
        fixed = points_.expand(times, -1, -1)
        return _follow(state, Chaining(delta, points=points_), fixed, X[n:], y[n:])

    def straight() -> Tensor:
        return torch.tensor(chains.rounds(n, points_, X, y, ridge, delta))

    name = f"{times} rounds of Chaining-UCB, {arms} points"
    return _against(device, n, name, {"kbo": kbo, "straight": straight})


def mixture_rounds(device: torch.device, n: int, arms: int, times: int) -> list[Result]:
    """Time rounds of DMM-UCB and CMM-UCB after n observations, against DMM on growing factors."""
    Z, X, y = _bandit(n + times, arms, device)
    kernel = stationary_kernel("rbf", 1.0)
    mixture = {kind: MartingaleMixture(0.1, 10.0, 0.1, kind) for kind in ("dmm", "cmm")}
    a0 = mixture["dmm"].mixture_ridge
    ridges = [a0, *(a0 * g for g in DMM_GRID if g != 1)]

    def kbo(kind: str) -> Tensor:
        state = KernelRidge(kernel, a0)
        state.update(X[:n], y[:n])
        return _follow(state, mixture[kind], Z[n:], X[n:], y[n:])

    works = {
        "dmm": lambda: kbo("dmm"),
        "cmm": lambda: kbo("cmm"),
        "straight": lambda: torch.tensor(rounds.mixture(n, Z[n:], X, y, ridges, 0.1, 10.0, 0.1)),
    }
    agree(works["dmm"], works["straight"])
    name = f"{times} rounds of {{}}, {arms} arms"
    return race(
        device,
        n,
        works,
        [
            (_LINE.format(name.format("DMM-UCB")), "dmm", "straight", Goal(1.25)),
            (name.format("CMM-UCB") + " / DMM-UCB", "cmm", "dmm", Goal(1.15)),
        ],
    )


def many_points(device: torch.device, n: int, m: int) -> list[Result]:
    """Time the best of n arms, and a joint draw over them, through m anchors."""
    anchors, X = uniform(m, 3, seed=3).to(device) / _LENGTHSCALE, uniform(n, 3, seed=4).to(device) / _LENGTHSCALE
    seen = uniform(2000, 3, seed=5).to(device) / _LENGTHSCALE
    state = NystromRidge(stationary_kernel("rbf", 1.0), _RIDGE, FixedDictionary(anchors))
    state.update(seen, torch.sin(seen).sum(-1))
    sketch = state.sketch
    data, upper = (sketch.features.anchors, sketch.G, sketch.By, X), FixedWidth(_WIDTH).argmax_upper
    works = {
        "kbo": lambda: torch.tensor([upper(state, X)[0]]),
        "straight": lambda: torch.tensor([points.best(*data, _RIDGE, _WIDTH)]),
    }
    draws = {
        "kbo": lambda: (state.predict(X)[0] + state.at().draw(X, 1, torch.Generator().manual_seed(6)))[0],
        "straight": lambda: points.draw(*data, _RIDGE, *(z.to(device) for z in _normal(state.m, n))),
    }
    return [
        *_against(device, n, f"best of {n} arms, m = {m}", works, 1.1),
        *_against(device, n, f"draw over {n} points, m = {m}", draws, 1.1),
    ]


def fits(device: torch.device, n: int) -> list[Result]:
    """Time a fit of kernel and noise, which is on the CPU wherever the data are."""
    X, y = _trials(n)

    def kbo() -> Tensor:
        found = fit(X, y)
        return torch.tensor([found.log_density, 2 * math.log(found.noise_std)])

    def straight() -> Tensor:
        theta, density = tuning.fit(X, y)
        return torch.tensor([density, theta[-1]])

    return _against(torch.device("cpu"), n, "a fit of minimize", {"kbo": kbo, "straight": straight})


def searches(device: torch.device, n: int) -> list[Result]:
    """Time a search for the point of the largest bound; candidates are on the CPU, their scores on the device."""
    X, y = _trials(n)
    starts, d = X[y.topk(5).indices], X.shape[1]
    X, y, space, kernel = X.to(device), y.to(device), Space([(0, 1)] * d).on(device), unit_kernel(d)
    state = KernelRidge(kernel, _RIDGE)
    state.update(X, y)
    L = torch.linalg.cholesky(state.prior(X, X) + _RIDGE * torch.eye(n).to(X))
    alpha = torch.cholesky_solve(y.unsqueeze(-1), L)[:, 0]
    scales = 1 / kernel.lengthscale[0].to(X)

    def kbo() -> Tensor:
        search = Search(space, Restriction(space), starts, n, torch.Generator().manual_seed(3))
        return argmax_upper(FixedWidth(_WIDTH), state, search)

    def straight() -> Tensor:
        return tuning.search(X, L, alpha, scales, starts, _WIDTH, torch.Generator().manual_seed(3))

    return _against(device, n, "a search of minimize", {"kbo": kbo, "straight": straight})


def _trials(n: int) -> tuple[Tensor, Tensor]:
    """Return points [n 6] of the unit cube and standardised noisy values [n]."""
    X, noise = uniform(n, 6, seed=1), torch.randn(n, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    y = torch.sin(5 * X[:, :3]).sum(-1) + 0.1 * noise
    return X, (y - y.mean()) / y.std()


def _normal(m: int, n: int) -> tuple[Tensor, Tensor]:
    """Return the numbers [m] and [n] of a draw."""
    rng = torch.Generator().manual_seed(6)
    weights = torch.randn(m, 1, generator=rng, dtype=torch.float64)[:, 0]
    return weights, torch.randn(1, n, generator=rng, dtype=torch.float64)[0]


def _against(device: torch.device, n: int, name: str, works: dict, most: float = 1.25) -> list[Result]:
    agree(*works.values())
    return race(device, n, works, [(_LINE.format(name), "kbo", "straight", Goal(most))])


BENCHES = [
    *(Bench(exact_rounds, {"n": n, "arms": 10}, {"n": 50}) for n in (50, 200, 1000)),
    *(Bench(sketched_rounds, {"n": 1000, "m": m, "arms": 10}, {"n": 50}) for m in (50, 200, 1000)),
    *(Bench(batched_rounds, {"n": n, "arms": 10}, {"n": 50}) for n in (50, 200, 1000)),
    *(Bench(mixture_rounds, {"n": n, "arms": 100, "times": 32}, {"n": 50}) for n in (50, 200, 1000)),
    *(Bench(chained_rounds, {"n": n, "arms": 1000, "times": 32}, {"n": 50}) for n in (50, 200, 1000)),
    Bench(chained_rounds, {"n": 200, "arms": 10_000, "times": 32}, {"arms": 100}),
    *(Bench(fits, {"n": n}, {"n": 20}) for n in (50, 200, 500, 2000)),
    *(Bench(searches, {"n": n}, {"n": 20}) for n in (50, 200, 500)),
    Bench(many_points, {"n": 1_000_000, "m": 200}, {"n": 1000}),
]
