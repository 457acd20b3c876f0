"""The price of exact bounds: CMM against DMM, against growing factors and against the cone program; sketches."""

from __future__ import annotations

from collections.abc import Callable

import cvxpy as cp
import torch
from torch import Tensor

from kbo.confidence import MartingaleMixture
from kbo.confidence.mixture.radius import DMM_GRID
from kbo.experiments.bench.race import Row, Work, agree, faster, medians
from kbo.problems import RKHSBandit
from kbo.regression import FixedDictionary, KernelRidge, NystromRidge, Posterior

_ARMS, _IN_A_ROW = 100, 32
"""Steps in a row: as many as there are between two refreshes of the eigenbasis at n = 1000."""


def _problem() -> RKHSBandit:
    return RKHSBandit("matern52", 0.5, dim=3, n_arms=_ARMS, seed=0)


def _mixture(kind: str) -> MartingaleMixture:
    return MartingaleMixture(0.1, 10.0, 0.01, kind, _problem().scale(1000))


def _fed(state: Posterior, n: int, device: torch.device, problem: RKHSBandit | None = None) -> Posterior:
    """The state after n uniform observations, a thousand at a time."""
    problem, generator = problem or _problem(), torch.Generator().manual_seed(1)
    for start in range(0, n, 1000):
        X = torch.rand(min(1000, n - start), 3, generator=generator, dtype=torch.float64)
        state.update(X.to(device), problem.observe(X).to(device))
    return state


def _steps(
    state: Posterior,
    score: Callable[[Posterior, Tensor], Tensor],
    device: torch.device,
    problem: RKHSBandit | None = None,
) -> Work:
    """A step that scores fresh arms, and observes the best."""
    generator, problem = torch.Generator().manual_seed(2), problem or _problem()

    def step() -> tuple[Tensor, Tensor]:
        arms = torch.rand(_ARMS, 3, generator=generator, dtype=torch.float64).to(device)
        best = score(state, arms)
        chosen = arms[int(best[0])].unsqueeze(0)
        state.update(chosen, problem.observe(chosen.cpu()).to(device))
        return best[1:], best[1:]

    return step


def _leader(confidence: MartingaleMixture) -> Callable[[Posterior, Tensor], Tensor]:
    return lambda state, arms: torch.tensor(confidence.argmax_upper(state, arms), dtype=torch.float64)


def _dmm_by_factors(state: Posterior, arms: Tensor) -> Tensor:
    """DMM-UCB as it is usually done: a growing Cholesky factor for each of the five ridges."""
    confidence = _mixture("dmm")
    square, bounds = confidence.squared_radius(state), []
    for ridge in (confidence.mixture_ridge * g for g in DMM_GRID):
        mean, variance = state.predict(arms, ridge)
        slack = square + ridge * confidence.norm_bound**2 - state.quad(ridge)
        bounds.append(mean + (slack / ridge * variance).sqrt())
    upper = torch.stack(bounds).amin(0)
    return torch.stack([upper.argmax().to(upper), upper.max()])


def _exact_bounds(device: torch.device, quick: bool) -> list[Row]:
    """A step of CMM-UCB against the grid, on the same state and on growing factors; each with its updates."""
    n = 200 if quick else 1000
    ridge = _mixture("cmm").mixture_ridge
    cmm, dmm, factors = (
        _steps(_fed(KernelRidge(_problem().kernel, ridge), n, device), score, device)
        for score in (_leader(_mixture("cmm")), _leader(_mixture("dmm")), _dmm_by_factors)
    )
    agree(dmm, factors)
    cmm()
    exact, grid, five = medians(device, [cmm] * _IN_A_ROW, [dmm] * _IN_A_ROW, [factors] * _IN_A_ROW)
    return [
        Row(
            "a step of CMM-UCB, 100 fresh arms / DMM-UCB, same state",
            n,
            exact,
            grid,
            "" if quick else "at most 1.5 times",
            exact <= 1.5 * grid,
        ),
        faster("a step of CMM-UCB / DMM-UCB on five growing factors", n, exact, five, 1.0),
    ]


def _cone(device: torch.device, quick: bool) -> list[Row]:
    """Exact bounds by search against the paper's cone program, one per arm: timed for one arm, times 100."""
    n = 50 if quick else 200
    confidence, problem = _mixture("cmm"), _problem()
    state = _fed(KernelRidge(problem.kernel, confidence.mixture_ridge), n, device)
    assert isinstance(state, KernelRidge)
    assert state.data is not None
    arms = torch.rand(_ARMS, 3, generator=torch.Generator().manual_seed(3), dtype=torch.float64).to(device)
    X, y, radius = state.data.X, state.data.y.cpu().numpy(), float(confidence.squared_radius(state)) ** 0.5

    def program() -> tuple[Tensor, Tensor]:
        K = state.prior(torch.cat([X, arms[:1]]), torch.cat([X, arms[:1]])).cpu()
        root = torch.linalg.cholesky(K + 1e-10 * torch.eye(n + 1)).numpy()
        a, K = cp.Variable(n + 1), K.numpy()  # f = sum_i a_i k(x_i, .)
        constraints = [cp.norm(K[:-1] @ a - y) <= radius, cp.norm(root.T @ a) <= confidence.norm_bound]
        value = cp.Problem(cp.Maximize(K[-1] @ a), constraints).solve(solver=cp.CLARABEL)
        return (found := torch.tensor([float(value)])), found  # pyright: ignore[reportArgumentType]

    def one_arm() -> tuple[Tensor, Tensor]:
        return (found := confidence.upper(state, arms[:1]).cpu().float()), found

    def choice() -> tuple[Tensor, Tensor]:
        return (found := torch.tensor([confidence.argmax_upper(state, arms)[1]])), found

    def all_arms() -> tuple[Tensor, Tensor]:
        return (found := confidence.upper(state, arms)), found

    agree(one_arm, program)
    chosen, everything, cone = medians(device, [choice] * 10, [all_arms] * 5, program)
    return [
        faster("CMM-UCB chooses among 100 arms / 100 cone programs", n, chosen, _ARMS * cone, None if quick else 3000),
        faster("CMM bounds of all 100 arms / 100 cone programs", n, everything, _ARMS * cone, None),
    ]


def _sketch(device: torch.device, quick: bool) -> list[Row]:
    """A step of CMM-UCB on a sketch, late against early: it must not grow with n."""
    early, late, m = (1000, 2000, 50) if quick else (10_000, 100_000, 200)
    problem = RKHSBandit("rbf", 0.5, dim=3, n_arms=_ARMS, seed=0)
    sample = torch.rand(2000, 3, generator=torch.Generator().manual_seed(4), dtype=torch.float64).to(device)
    dictionary = FixedDictionary.pivoted(problem.kernel, sample, m)
    works = []
    for n in (early, late):
        confidence = MartingaleMixture(0.1, 10.0, 0.01, "cmm")
        state = _fed(NystromRidge(problem.kernel, 0.01, dictionary), n, device, problem)
        works.append(_steps(state, _leader(confidence), device, problem))
        works[-1]()
    before, after = medians(device, *([work] * _IN_A_ROW for work in works))
    name = f"a step of CMM-UCB on a sketch, m = {m}, 100 arms / the same at n = {early}"
    return [Row(name, late, after, before, "at most 1.3 times", after <= 1.3 * before)]


BENCHMARKS = [_exact_bounds, _cone, _sketch]
