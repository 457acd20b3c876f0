"""The time of exact bounds: CMM against DMM, against growing factors and against the cone program; sketches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from experiments.bench.race import Bench, Goal, Result, Work, agree, medians, race
from experiments.bench.setups import uniform
from experiments.problems import RKHSBandit
from kbo.confidence import MartingaleMixture
from kbo.confidence.ridge_search import DMM_GRID
from kbo.regression import FixedDictionary, KernelRidge, NystromRidge, Posterior

_ARMS = 100

_IN_A_ROW = 32
"""Number of steps in a row: the number between two refreshes of the eigenbasis at n = 1000."""


def _problem() -> RKHSBandit:
    return RKHSBandit("matern52", 0.5, dim=3, n_arms=_ARMS, seed=0)


def _mixture(kind: str) -> MartingaleMixture:
    return MartingaleMixture(0.1, 10.0, 0.01, kind, _problem().scale(1000))


def _updated(state: Posterior, n: int, device: torch.device, problem: RKHSBandit) -> Posterior:
    """The state after n uniform observations, a thousand at a time."""
    generator = torch.Generator().manual_seed(1)
    for start in range(0, n, 1000):
        X = torch.rand(min(1000, n - start), 3, generator=generator, dtype=torch.float64)
        state.update(X.to(device), problem.observe(X).to(device))
    return state


Choose = Callable[[Posterior, Tensor], tuple[int, float]]
"""A function of a posterior and arms that returns the index of an arm and its bound."""


def _steps(state: Posterior, choose: Choose, device: torch.device, problem: RKHSBandit) -> Work:
    """A step that scores fresh arms and observes the best."""
    generator = torch.Generator().manual_seed(2)

    def step() -> Tensor:
        arms = torch.rand(_ARMS, 3, generator=generator, dtype=torch.float64).to(device)
        index, bound = choose(state, arms)
        chosen = arms[index : index + 1]
        state.update(chosen, problem.observe(chosen.cpu()).to(device))
        return torch.tensor([bound])

    return step


def _dmm_by_factors(state: Posterior, arms: Tensor) -> tuple[int, float]:
    """Choose by DMM-UCB in the usual way, with a growing Cholesky factor for each of the five ridges."""
    confidence = _mixture("dmm")
    square = confidence.widened_squared_radius(state)
    bounds = []
    for factor in DMM_GRID:
        ridge = confidence.mixture_ridge * factor
        mean, variance = state.at(ridge).predict(arms)
        slack = square + ridge * confidence.norm_bound**2 - state.at(ridge).quad()
        bounds.append(mean + (slack / ridge * variance).sqrt())
    upper = torch.stack(bounds).amin(0)
    return int(upper.argmax()), float(upper.max())


def exact_steps(device: torch.device, n: int) -> list[Result]:
    """Time a step of CMM-UCB against the grid of DMM-UCB, on the same state and on growing factors, with updates."""
    ridge = _mixture("cmm").mixture_ridge

    def steps(choose: Choose) -> Work:
        state = _updated(KernelRidge(_problem().kernel, ridge), n, device, _problem())
        return _steps(state, choose, device, _problem())

    cmm = steps(_mixture("cmm").argmax_upper)
    dmm = steps(_mixture("dmm").argmax_upper)
    factors = steps(_dmm_by_factors)
    agree(dmm, factors)
    cmm()
    works = {"cmm": [cmm] * _IN_A_ROW, "dmm": [dmm] * _IN_A_ROW, "factors": [factors] * _IN_A_ROW}
    lines = [
        ("a step of CMM-UCB, 100 fresh arms / DMM-UCB, same state", "cmm", "dmm", Goal(1.5)),
        ("a step of CMM-UCB / DMM-UCB on five growing factors", "cmm", "factors", Goal(1.0)),
    ]
    return race(device, n, works, lines)


def cone_programs(device: torch.device, n: int) -> list[Result]:
    """Time exact bounds by search against the paper's cone program: it is solved for one arm, and counted 100 times."""
    confidence = _mixture("cmm")
    problem = _problem()
    state = KernelRidge(problem.kernel, confidence.mixture_ridge)
    _updated(state, n, device, problem)
    arms = uniform(_ARMS, 3, seed=3).to(device)

    def program() -> Tensor:
        return _cone_program(confidence, state, arms[:1])

    def choice() -> object:
        return confidence.argmax_upper(state, arms)

    def everything() -> Tensor:
        return confidence.upper(state, arms)

    agree(lambda: confidence.upper(state, arms[:1]), program)
    times = medians(device, choice=[choice] * 10, everything=[everything] * 5, cone=program)
    cones = _ARMS * times["cone"]
    first = "CMM-UCB chooses among 100 arms / 100 cone programs"
    second = "CMM bounds of all 100 arms / 100 cone programs"
    return [
        Result(first, times["choice"], cones, Goal(1 / 4000), n),
        Result(second, times["everything"], cones, n=n),
    ]


def _cone_program(confidence: MartingaleMixture, state: KernelRidge, arm: Tensor) -> Tensor:
    """The exact upper bound [1] at an arm [1 3]: the largest ``f(x)`` in the confidence set of the paper.

    By the representer theorem the maximum is at some ``f = sum_i a_i k(x_i, .)``, over the data and the arm.
    """
    import cvxpy as cp

    assert state.data is not None
    n = len(state.data.X)
    points = torch.cat([state.data.X, arm])
    gram = state.prior(points, points).cpu()
    root = torch.linalg.cholesky(gram + 1e-10 * torch.eye(n + 1)).numpy()
    K = gram.numpy()
    y = state.data.y.cpu().numpy()
    radius = float(confidence.widened_squared_radius(state)) ** 0.5
    a = cp.Variable(n + 1)
    is_near_data = cp.norm(K[:-1] @ a - y) <= radius
    has_norm = cp.norm(root.T @ a) <= confidence.norm_bound
    program = cp.Problem(cp.Maximize(K[-1] @ a), [is_near_data, has_norm])
    value: Any = program.solve(solver=cp.CLARABEL)
    return torch.tensor([float(value)])


def sketched_steps(device: torch.device, early: int, n: int, m: int) -> list[Result]:
    """Time a late step of CMM-UCB on a sketch against an early one: the time must not grow with n."""
    problem = RKHSBandit("rbf", 0.5, dim=3, n_arms=_ARMS, seed=0)
    dictionary = FixedDictionary.pivoted(problem.kernel, uniform(2000, 3, seed=4).to(device), m)
    works = {}
    for name, size in (("before", early), ("after", n)):
        confidence = MartingaleMixture(0.1, 10.0, 0.01, "cmm")
        state = _updated(NystromRidge(problem.kernel, 0.01, dictionary), size, device, problem)
        step = _steps(state, confidence.argmax_upper, device, problem)
        step()
        works[name] = [step] * _IN_A_ROW
    name = f"a step of CMM-UCB on a sketch, m = {m}, 100 arms / the same at n = {early}"
    return race(device, n, works, [(name, "after", "before", Goal(1.3))])


BENCHES = [
    Bench(exact_steps, {"n": 1000}, {"n": 200}),
    Bench(cone_programs, {"n": 200}, {"n": 50}),
    Bench(
        sketched_steps,
        {"early": 10_000, "n": 100_000, "m": 200},
        {"early": 1000, "n": 2000, "m": 50},
    ),
]
