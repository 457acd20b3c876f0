"""The time of kbo, divided by the time of straight-line functions with the same arithmetic.

These functions have no classes, checks or choices: their time is the cost of the arithmetic in PyTorch on this machine.
Kernels have variance 1. An update and a prediction each make their own solve, because a posterior does not know which
point a rule will choose.
"""

from __future__ import annotations

import torch
from torch import Tensor

from experiments.bench.race import Bench, Goal, Result, agree, race
from experiments.bench.setups import uniform
from experiments.problems import stationary_kernel
from kbo.confidence import Confidence, FixedWidth
from kbo.regression import FixedDictionary, KernelRidge, NystromRidge, Posterior

_LENGTHSCALE = 0.2
_RIDGE = 0.1
_WIDTH = 1.0


def exact(arms: Tensor, X: Tensor, y: Tensor, ridge: float, width: float) -> list[float]:
    """Return the largest ``mean + width std`` of arms [T A d], row X[t], y[t] following: a Cholesky factor L grows."""
    T = len(X)
    z = torch.empty_like(y)
    L = X.new_zeros(T, T).mT
    most = []
    for t in range(T):
        V = torch.linalg.solve_triangular(L[:t, :t], _gaussian(X[:t], arms[t]), upper=False)
        std = (1 - V.square().sum(0)).clamp_min_(0).sqrt_()
        most.append(float((z[:t] @ V).add_(std, alpha=width).max()))
        k = _gaussian(X[:t], X[t : t + 1])
        v = torch.linalg.solve_triangular(L[:t, :t], k, upper=False)[:, 0]
        L[t, :t] = v
        L[t, t] = (1 + ridge - float(v @ v)) ** 0.5
        z[t] = (y[t] - v @ z[:t]) / L[t, t]
    return most


def sketched(
    anchors: Tensor, arms: Tensor, X: Tensor, y: Tensor, ridge: float, width: float
) -> list[float]:
    """Return the same through anchors [m d] that stay: ``S S' = (B B' + ridge I)^-1`` follows every reward."""
    m = len(anchors)
    identity = torch.eye(m).to(anchors)
    factor = torch.linalg.cholesky(_gaussian(anchors, anchors))
    W = torch.linalg.solve_triangular(factor, identity, upper=False)
    S = identity / ridge**0.5
    By = X.new_zeros(m)
    G = X.new_zeros(m, m)
    B = X.new_empty(len(X), m)
    most = []
    for t in range(len(X)):
        z = W @ _gaussian(anchors, arms[t])
        variance = (1 - z.square().sum(0)).clamp_min_(0)
        std = variance.add_((S.mT @ z).square_().sum(0), alpha=ridge).sqrt_()
        most.append(float(((S @ (By @ S)) @ z).add_(std, alpha=width).max()))
        b = (W @ _gaussian(anchors, X[t : t + 1]))[:, 0]
        v = b @ S
        a = 1 + float(v @ v)
        S.addr_(S @ v, v, alpha=-1 / (a + a**0.5))
        G.addr_(b, b)
        By.add_(b, alpha=float(y[t]))
        B[t] = b
    return most


def _gaussian(X: Tensor, Z: Tensor) -> Tensor:
    """Return the kernel matrix [n m] of points [n d] and [m d] in units of the lengthscale."""
    distances = torch.cdist(X, Z, compute_mode="donot_use_mm_for_euclid_dist")
    return distances.square_().mul_(-0.5).exp_()


def exact_rounds(device: torch.device, n: int, arms: int) -> list[Result]:
    """Time rounds of K-UCB."""
    data = _bandit(n, arms, device)
    kernel = stationary_kernel("rbf", 1.0)
    works = {
        "kbo": lambda: _follow(KernelRidge(kernel, _RIDGE), FixedWidth(_WIDTH), *data),
        "straight": lambda: torch.tensor(exact(*data, _RIDGE, _WIDTH)),
    }
    return _against(device, n, f"{n} rounds of K-UCB, {arms} arms", works)


def sketched_rounds(device: torch.device, n: int, m: int, arms: int) -> list[Result]:
    """Time rounds of EK-UCB whose dictionary stays."""
    data = _bandit(n, arms, device)
    kernel = stationary_kernel("rbf", 1.0)
    anchors = uniform(m, 3, seed=3).to(device) / _LENGTHSCALE
    dictionary = FixedDictionary(anchors)
    works = {
        "kbo": lambda: _follow(NystromRidge(kernel, _RIDGE, dictionary), FixedWidth(_WIDTH), *data),
        "straight": lambda: torch.tensor(sketched(anchors, *data, _RIDGE, _WIDTH)),
    }
    return _against(device, n, f"{n} rounds of EK-UCB, m = {m}, {arms} arms", works)


def _bandit(n: int, arms: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Return arms [n A 3] in units of the lengthscale, and the rows [n 3] and noisy targets [n] that are observed."""
    Z = uniform(n * arms, 3, seed=1).reshape(n, arms, 3).to(device)
    X = Z[:, 0]
    noise = torch.randn(n, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    y = torch.sin(5 * X).sum(-1) + 0.1 * noise.to(device)
    return Z / _LENGTHSCALE, X / _LENGTHSCALE, y


def _follow(state: Posterior, confidence: Confidence, arms: Tensor, X: Tensor, y: Tensor) -> Tensor:
    """Return the largest bounds of kbo over the arms of each round, one row more after each."""
    most = []
    for points, x, target in zip(arms, X.split(1), y.split(1), strict=True):
        most.append(confidence.argmax_upper(state, points)[1])
        state.update(x, target)
    return torch.tensor(most, dtype=torch.float64)


def _against(device: torch.device, n: int, name: str, works: dict) -> list[Result]:
    """Time kbo against the straight-line function, which must give the same bounds."""
    agree(*works.values())
    line = (f"{name} / straight-line PyTorch", "kbo", "straight", Goal(1.8))
    return race(device, n, works, [line])


BENCHES = [
    *(Bench(exact_rounds, {"n": n, "arms": 10}, {"n": 50}) for n in (50, 200, 1000)),
    *(Bench(sketched_rounds, {"n": 1000, "m": m, "arms": 10}, {"n": 50}) for m in (50, 200, 1000)),
]
