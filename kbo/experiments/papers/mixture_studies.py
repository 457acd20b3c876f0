"""Studies beyond Flynn & Reeb (2024): validity of the bounds, the optimality gap, an unknown norm, sketches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd
import torch

from kbo import bandit, recipes
from kbo.confidence import Confidence, MartingaleMixture, UnknownNorm, norm_lower_bound, squared_radius
from kbo.experiments.draw import lines
from kbo.experiments.papers import mixture
from kbo.experiments.papers.experiment import TOLERANCE, Frame, Plan, cells_of, misses, rounds_of
from kbo.problems import RKHSBandit
from kbo.regression import FixedDictionary, KernelRidge, NystromRidge

DELTA = 0.1
_KERNELS = ("rbf", "matern52", "matern32", "matern12")
_FAILED = "failed: "


def validity(quick: bool) -> Plan:
    """Failures of any bound, at any round and any of 200 points, in 1000 runs of 300 adaptive rounds."""
    runs, rounds = (20, 40) if quick else (1000, 300)

    def counts(rows: Frame) -> Frame:
        failed = rows.filter(like=_FAILED).rename(columns=lambda name: name.removeprefix(_FAILED))
        return failed.agg(["sum", "count"]).T.set_axis(["failed", "runs"], axis=1)

    return Plan(
        f"runs of {rounds} adaptive rounds in which a bound failed; promised: at most {DELTA:.0%}",
        {"": counts},
        cells=cells_of(watch, range(runs), [{"rounds": rounds}], at_once=20),
    )


def watch(seed: int, rounds: int) -> list[dict[str, Any]]:
    """Whether each bound ever failed beside the function, in one run of DMM-UCB on fixed arms."""
    name = _KERNELS[seed % len(_KERNELS)]
    problem = RKHSBandit(name, 0.3, dim=2, norm=5.0, noise_std=0.3, n_arms=200, fixed=True, seed=50_000 + seed)
    arms, B, sigma = problem.fixed_arms, problem.norm_bound, problem.noise_std
    assert arms is not None
    methods = {
        method: recipes.make(method, problem.kernel, sigma, B, DELTA, horizon=rounds)
        for method in ("ay-gp-ucb", "igp-ucb", "amm-ucb", "dmm-ucb", "cmm-ucb")
    }
    truth, state = problem.mean(arms), methods["dmm-ucb"].state(arms)
    sketched = NystromRidge(problem.kernel, state.ridge, FixedDictionary(arms[:20]))
    failed = dict.fromkeys([*methods, "sketched cmm-ucb", "f in the mixture's set", "norm lower bound"], False)
    misfit = 0.0
    for t, x, y in rounds_of(methods["dmm-ucb"], problem, state, rounds):
        sketched.update(x, y)
        misfit += float((y - problem.mean(x)) ** 2)
        failed["f in the mixture's set"] |= misfit > float(squared_radius(state, sigma, DELTA))
        everything = t % 100 == 0 or t in (20, 50, rounds)  # these follow from the set, and cost more
        for method, recipe in methods.items():
            if method != "cmm-ucb" or everything:
                failed[method] |= _outside(recipe.confidence, state, arms, truth)
        if everything:
            failed["sketched cmm-ucb"] |= _outside(methods["cmm-ucb"].confidence, sketched, arms, truth)
        if everything or t % 10 == 0:
            failed["norm lower bound"] |= float(norm_lower_bound(state, sigma, DELTA)) > B
    return [{"kernel_name": name, **{f"{_FAILED}{method}": value for method, value in failed.items()}}]


def _outside(confidence: Confidence | None, *at: Any) -> bool:
    assert confidence is not None
    error, half = misses(confidence, *at)
    return bool((error > half + TOLERANCE).any())


def gap(quick: bool) -> Plan:
    """The gap of the recommended arm against its regret, and the round when it is small; 200 problems of 1000 arms."""
    count, rounds = (2, 30) if quick else (200, 300)
    title = f"optimality gap: {count} problems of 1000 arms, Matérn 5/2 0.5, d = 2, δ = {DELTA:g}"
    methods = ("cmm-ucb", "dmm-ucb", "amm-ucb", "ay-gp-ucb")
    look: dict[str, Any] = {"values": ["relative"], "ylabel": "gap / range", "band": "quartiles"}
    return Plan(
        title,
        {"": _gaps},
        {".png": partial(lines.against_rounds, title=title, **look)},
        cells_of(play_with_gap, range(count), [{"method": method, "rounds": rounds} for method in methods]),
        prepare=lambda rows: rows.assign(relative=rows["gap"] / rows["range"]),
    )


def _gaps(rows: Frame) -> Frame:
    """A line for every method: runs with more regret than the gap, stops at a gap of 5 %, the gap at the end."""
    above = rows.assign(above=rows["simple_regret"] > rows["gap"], stop=rows["round"].where(rows["relative"] <= 0.05))
    runs = above.groupby(["method", "seed"], sort=False).agg(
        above=("above", "any"), stop=("stop", "min"), end=("relative", "last")
    )
    return runs.groupby("method", sort=False).agg(
        **{
            "runs": ("above", "size"),
            "regret above gap": ("above", "sum"),
            "stops at 5% of the range": ("stop", "count"),
            "median stop": ("stop", "median"),
            "median gap / range at the end": ("end", "median"),
        }
    )


def play_with_gap(method: str, seed: int, rounds: int) -> list[dict[str, Any]]:
    """Gap and simple regret every five rounds."""
    problem = RKHSBandit("matern52", 0.5, dim=2, n_arms=1000, fixed=True, seed=60_000 + seed)
    assert problem.fixed_arms is not None
    values = problem.mean(problem.fixed_arms)
    numbers = problem.kernel, problem.noise_std, problem.norm_bound, DELTA
    made = recipes.make(method, *numbers, scale=problem.scale(rounds), horizon=rounds)
    kept = ("round", "gap", "simple_regret", "cpu_seconds")
    return [
        {**{key: row[key] for key in kept}, "range": float(values.max() - values.min())}
        for row in bandit.play(made, problem, rounds, seed, gap_every=5)
        if "gap" in row
    ]


def _final_regret(rows: Frame) -> Frame:
    """Mean regret at the end of every method on every problem; the last line sums the problems."""
    last = rows[rows["round"] == rows["round"].max()]
    table = last.pivot_table(index=["kernel", "lengthscale"], columns="method", values="cumulative", sort=False)
    table.loc[("sum", ""), :] = table.sum()
    return table


def _relative_to(baseline: str, rows: Frame) -> Frame:
    total = _final_regret(rows).iloc[-1]
    return (total / total[baseline]).to_frame().T.set_axis([f"sum against {baseline}"])


def norm(quick: bool) -> Plan:
    """The lower confidence bound of the norm after n uniform data, and regret when the norm is unknown."""
    found = {}
    for name in ("rbf", "matern32"):
        bounds = pd.DataFrame([_norm_bounds(name, seed) for seed in range(2 if quick else 20)])
        found[name] = bounds.agg(["mean", "max"]).T.stack()
    table = pd.DataFrame(found).T
    methods = ("cmm-ucb", "cmm-ucb-doubling", "cmm-ucb-practical")
    return Plan(
        "the norm unknown",
        {
            "lower confidence bound of the norm (truth 10) after n observations of 20 problems": lambda _: table,
            "cumulative regret at the end, means over the same problems": _final_regret,
            "": partial(_relative_to, "cmm-ucb"),
        },
        cells=mixture.cells(mixture.problems(quick).values(), quick, methods),
    )


def _norm_bounds(kernel: str, seed: int) -> dict[str, float]:
    problem = RKHSBandit(kernel, 0.5, seed=70_000 + seed)
    state, found, generator = KernelRidge(problem.kernel, problem.noise_std**2), {}, torch.Generator().manual_seed(seed)
    for more in (20, 80, 200):
        X = torch.rand(more, problem.dim, generator=generator, dtype=torch.float64)
        state.update(X, problem.observe(X))
        found[f"n = {state.n}"] = float(norm_lower_bound(state, problem.noise_std, 0.01))
    return found


MULTIPLES = (1.02, 1.05, 1.1, 1.15, 1.2, 1.25, 1.5, 2.0)

_UNSEEN: list[Mapping[str, Any]] = [
    {"kernel": "rbf", "lengthscale": 0.35, "dim": 2, "norm": 5.0},
    {"kernel": "matern52", "lengthscale": 0.35, "dim": 2, "norm": 5.0},
    {"kernel": "matern32", "lengthscale": 0.7, "dim": 3, "norm": 20.0},
    {"kernel": "rbf", "lengthscale": 0.3, "dim": 3, "norm": 3.0},
]
"""Problems that no table has."""


def multiple(quick: bool) -> Plan:
    """Regret with multiples of the norm's lower bound instead of the norm."""
    rounds, seeds = (20, 1) if quick else (300, 10)
    return Plan(
        "cumulative regret, means over the same problems",
        {"": _final_regret, "relative": partial(_relative_to, "known")},
        cells=cells_of(
            play_unknown,
            range(seeds),
            [
                {"method": method, "rounds": rounds, **problem}
                for problem in _UNSEEN
                for method in ("known", "doubling", *map(str, MULTIPLES))
            ],
        ),
    )


def play_unknown(method: str, seed: int, rounds: int, **options: Any) -> list[dict[str, Any]]:
    """The regret of CMM-UCB with the true norm, with doubling, or with a multiple of the norm's lower bound."""
    problem = RKHSBandit(**options, seed=80_000 + seed)
    sigma, scale = problem.noise_std, problem.scale(rounds)
    if method == "known":
        confidence: Confidence = MartingaleMixture(sigma, problem.norm_bound, 0.01, "cmm", scale)
    else:
        confidence = UnknownNorm(sigma, 0.01, scale=scale, multiple=None if method == "doubling" else float(method))
    made = recipes.Method(method, problem.kernel, sigma**2 / scale, confidence)
    return list(bandit.play(made, problem, rounds, seed))[-1:]


def sketch(quick: bool) -> Plan:
    """Mean width of the upper bound above f, exact and sketched, after n uniform observations."""
    n, sizes = (100, (10, 20)) if quick else (1000, (50, 100, 200, 400))
    found = {
        f"{kernel} {lengthscale:g}": _widths(kernel, lengthscale, n, sizes)
        for kernel, lengthscale in (("rbf", 0.5), ("rbf", 0.2), ("matern52", 0.5))
    }
    return Plan(
        f"mean of upper bound - f at 300 points, n = {n}, d = 3, norm 10, noise 0.1, delta 0.01",
        {"": lambda _: pd.DataFrame(found).T},
    )


def _widths(kernel: str, lengthscale: float, n: int, sizes: tuple[int, ...]) -> dict[str, float]:
    problem = RKHSBandit(kernel, lengthscale, seed=1)
    X, Z = (
        torch.rand(size, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        for size, seed in ((n, 1), (300, 2))
    )
    y, truth, sigma, scale = problem.observe(X), problem.mean(Z), problem.noise_std, problem.scale(n)
    kinds = {kind: MartingaleMixture(sigma, problem.norm_bound, 0.01, kind, scale) for kind in ("cmm", "dmm", "amm")}
    exact = KernelRidge(problem.kernel, sigma**2 / scale)
    exact.update(X, y)
    found = {f"exact {kind}": float((bound.upper(exact, Z) - truth).mean()) for kind, bound in kinds.items()}
    for m in sizes:
        state = NystromRidge(problem.kernel, exact.ridge, FixedDictionary.pivoted(problem.kernel, X, m))
        state.update(X, y)
        found[f"m = {m}"] = float((kinds["cmm"].upper(state, Z) - truth).mean())
    return found


PAPER = replace(
    mixture.PAPER,
    studies={"validity": validity, "gap": gap, "norm": norm, "multiple": multiple, "sketch": sketch},
)
