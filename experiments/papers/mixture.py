"""Flynn & Reeb (2024), "Tighter confidence bounds for sequential kernel regression", arXiv:2403.12732, Sec. 7.

The problem is the synthetic contextual bandit (``experiments.problems.RKHSBandit``): T = 1000 rounds of 100 new arms,
norm 10, Gaussian noise 0.1, delta = 0.01, ten seeds. Table 1 and figures 2 and 4 show the same runs. The studies are
not in the paper: validity of the bounds, the optimality gap, an unknown norm, and sketches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from experiments import bandits
from experiments.bandits import BanditProblem
from experiments.output import lines, tables
from experiments.papers.experiment import (
    TOLERANCE,
    Frame,
    Paper,
    Plan,
    cells_of,
    intervals,
    misses,
    plan_of_regret,
    plan_of_table,
    rounds_of,
)
from experiments.problems import RKHSBandit
from experiments.sweep.cells import Cell
from kbo import bandit
from kbo.confidence import (
    MIXED_SCALES,
    Confidence,
    MartingaleMixture,
    UnknownNorm,
    norm_lower_bound,
    squared_radius,
)
from kbo.regression import FixedDictionary, KernelRidge, NystromRidge, Posterior

KERNELS: dict[str, dict[str, Any]] = {
    "RBF 0.5": {"kernel": "rbf", "lengthscale": 0.5},
    "RBF 0.2": {"kernel": "rbf", "lengthscale": 0.2},
    "Matérn 5/2 0.5": {"kernel": "matern52", "lengthscale": 0.5},
    "Matérn 5/2 0.2": {"kernel": "matern52", "lengthscale": 0.2},
    "Matérn 3/2 0.5": {"kernel": "matern32", "lengthscale": 0.5},
    "Matérn 3/2 0.2": {"kernel": "matern32", "lengthscale": 0.2},
}
"""Kernel and lengthscale, by the name of a problem."""

METHODS = ("cmm-ucb", "dmm-ucb", "amm-ucb", "ay-gp-ucb", "igp-ucb", "random")
"""The methods, in the order of tables and legends."""

_TABLE_1 = {
    "dmm-ucb": ((32.2, 20.9), (491, 117), (130, 46), (795, 206), (196, 78), (814, 344)),
    "amm-ucb": ((88.8, 6.1), (1206, 21), (197, 24), (1662, 90), (316, 51), (1741, 351)),
    "ay-gp-ucb": ((136.9, 12.7), (1518, 39), (332, 45), (2382, 135), (546, 70), (2421, 569)),
    "igp-ucb": ((314, 111), (1433, 123), (553, 68), (1853, 106), (656, 67), (1708, 376)),
    "random": ((4282, 1015), (3872, 784), (4265, 778), (3678, 559), (4175, 681), (3442, 1080)),
}

PUBLISHED: tables.Published = {
    (problem, method): values
    for method, row in _TABLE_1.items()
    for problem, values in zip(KERNELS, row, strict=True)
}
"""Table 1 in print: cumulative regret at T = 1000, d = 3, mean and standard deviation over 10 runs."""


def problems(quick: bool, dim: int = 3) -> dict[str, BanditProblem]:
    """The problems of the paper by name; two tiny ones for ``quick``."""
    rounds = 1000
    names = list(KERNELS)
    if quick:
        rounds = 30
        names = ["RBF 0.2", "Matérn 5/2 0.5"]
    return {
        name: BanditProblem("rkhs", {**KERNELS[name], "dim": dim}, rounds=rounds, every=10)
        for name in names
    }


def _cells(
    chosen: Iterable[BanditProblem], quick: bool, methods: Iterable[str] = METHODS
) -> list[Cell]:
    """The runs of methods on problems: ten seeds, two for ``quick``."""
    seeds = 10
    if quick:
        seeds = 2
    return bandits.cells(chosen, methods, seeds)


def _named(rows: Frame) -> Frame:
    """The rows with the names of their problems."""
    names = {tuple(setting.values()): name for name, setting in KERNELS.items()}
    return rows.assign(
        problem=[names[pair] for pair in zip(rows["kernel"], rows["lengthscale"], strict=True)]
    )


def table_1(quick: bool) -> Plan:
    """Cumulative regret of all methods on all six kernels, beside the published figures."""
    title = "cumulative regret, mean ± standard deviation over the runs; published: Flynn & Reeb (2024), Table 1"
    return plan_of_table(title, _cells(problems(quick).values(), quick), _named, PUBLISHED)


def bounds(quick: bool) -> Plan:
    """Figure 1: lower and upper bounds of a function of one variable, from the same observations; always quick."""
    options = {"kernel": "matern32", "lengthscale": 0.5, "dim": 1, "n_arms": 10}
    problem = BanditProblem("rkhs", options, rounds=10)
    environment = problem.environment(seed=0)
    X = environment.arms()
    y = environment.observe(X)
    grid = torch.linspace(0, 1, 401, dtype=torch.float64).unsqueeze(-1)
    truth = environment.mean(grid)
    made = {name: problem.make(name) for name in ("ay-gp-ucb", "amm-ucb", "cmm-ucb", "dmm-ucb")}
    found = intervals(made, X, y, grid)
    widths = {name: float((upper - lower).mean()) for name, (lower, upper) in found.items()}
    title = f"bounds at delta = {problem.delta:g} after {len(X)} observations: Matérn 3/2, lengthscale 0.5"
    panels = {title: ((X[:, 0], y), found)}
    return Plan(
        title,
        {"": lambda _: pd.DataFrame({"mean width of the interval": widths})},
        {".png": lambda _, path: lines.bounds(grid[:, 0], truth, panels, path, title="")},
    )


def regret(dim: int, quick: bool) -> Plan:
    """Figures 2, 5 and 6: cumulative regret against rounds, a panel for every kernel."""
    published = None
    if dim == 3:
        published = PUBLISHED
    cells = _cells(problems(quick, dim).values(), quick)
    title = f"cumulative regret, d = {dim}"
    return plan_of_regret(title, cells, _named, published, panel="problem")


def time_per_step(quick: bool) -> Plan:
    """Figure 4: CPU time per step against rounds, on Matérn 5/2, lengthscale 0.5, d = 3."""
    name = "Matérn 5/2 0.5"
    title = f"CPU time per step, {name}, d = 3, 100 arms, one thread"
    picture = partial(lines.time_per_step, title=title)
    return Plan(title, files={".png": picture}, cells=_cells([problems(quick)[name]], quick))


def misspecified(quick: bool) -> Plan:
    """Figure 7: the methods are given B in {10, 20} and sigma in {0.1, 0.2}; the truth stays 10 and 0.1."""
    problem = problems(quick)["Matérn 5/2 0.5"]
    environment = problem.environment(0)
    true = {"given_norm": environment.norm_bound, "given_noise_std": environment.noise_std}
    variants = [  # true numbers are not given explicitly, so these runs are those of table 1
        replace(problem, given_norm=norm, given_noise_std=noise_std)
        for noise_std in (None, 0.2)
        for norm in (None, 20.0)
    ]

    def with_given(rows: Frame) -> Frame:
        given = rows.reindex(columns=list(true)).astype(float).fillna(true).to_numpy()
        names = [f"given B = {norm:g}, sigma = {noise:g}" for norm, noise in given]
        return rows.assign(problem=names)

    title = "cumulative regret, Matérn 5/2 0.5; truly B = 10, sigma = 0.1"
    return plan_of_regret(title, _cells(variants, quick, METHODS[:-1]), with_given, panel="problem")


DELTA = 0.1
"""Probability of failure in the studies of validity and of the gap."""

_FAILED = "failed: "


def validity(quick: bool) -> Plan:
    """Share of 1000 runs of 300 adaptive rounds in which a bound fails, at any round and any of 200 points."""
    runs = 1000
    rounds = 300
    if quick:
        runs = 20
        rounds = 40

    def counts(rows: Frame) -> Frame:
        failed = rows.filter(like=_FAILED).rename(columns=lambda name: name.removeprefix(_FAILED))
        return failed.agg(["sum", "count"]).T.set_axis(["failed", "runs"], axis=1)

    return Plan(
        f"runs of {rounds} adaptive rounds in which a bound failed; promised: at most {DELTA:.0%}",
        {"": counts},
        cells=cells_of(watch, range(runs), [{"rounds": rounds}], at_once=20),
    )


def watch(seed: int, rounds: int) -> list[dict[str, Any]]:
    """Whether each bound ever failed to contain the function, in one run of DMM-UCB on fixed arms."""
    kernel = ("rbf", "matern52", "matern32", "matern12")[seed % 4]
    problem = RKHSBandit(
        kernel, 0.3, dim=2, norm=5.0, noise_std=0.3, n_arms=200, fixed=True, seed=50_000 + seed
    )
    arms = problem.fixed_arms
    assert arms is not None
    truth = problem.mean(arms)
    B = problem.norm_bound
    sigma = problem.noise_std
    named = {
        method: bandit.make(method, problem.kernel, sigma, B, DELTA, horizon=rounds)
        for method in ("ay-gp-ucb", "igp-ucb", "amm-ucb", "dmm-ucb", "cmm-ucb")
    }
    cmm = named["cmm-ucb"].confidence
    state = named["dmm-ucb"].state(arms)
    sketched = NystromRidge(problem.kernel, state.ridge, FixedDictionary(arms[:20]))
    others = ["sketched cmm-ucb", "f in the mixture's set", "norm lower bound"]
    failed = dict.fromkeys([*named, *others], False)
    squared_misfit = 0.0
    for t, x, y in rounds_of(named["dmm-ucb"], problem, state, rounds):
        sketched.update(x, y)
        squared_misfit += float((y - problem.mean(x)) ** 2)
        square = float(squared_radius(state, sigma, DELTA))
        failed["f in the mixture's set"] |= squared_misfit > square
        # The bounds of CMM follow from that set and cost more, so they are computed in some rounds only.
        is_milestone = t % 100 == 0 or t in (20, 50, rounds)
        for name, method in named.items():
            if name != "cmm-ucb" or is_milestone:
                failed[name] |= _outside(method.confidence, state, arms, truth)
        if is_milestone:
            failed["sketched cmm-ucb"] |= _outside(cmm, sketched, arms, truth)
        if is_milestone or t % 10 == 0:
            failed["norm lower bound"] |= float(norm_lower_bound(state, sigma, DELTA)) > B
    row = {f"{_FAILED}{name}": has_failed for name, has_failed in failed.items()}
    return [{"kernel_name": kernel, **row}]


def _outside(confidence: Confidence | None, state: Posterior, arms: Tensor, truth: Tensor) -> bool:
    """Whether the function is outside the bounds at some arm."""
    assert confidence is not None
    error, half = misses(confidence, state, arms, truth)
    return bool((error > half + TOLERANCE).any())


def gap(quick: bool) -> Plan:
    """The gap of the recommended arm against its regret, and the round when it is small; 200 problems of 1000 arms."""
    count = 200
    rounds = 300
    if quick:
        count = 2
        rounds = 30
    title = f"optimality gap: {count} problems of 1000 arms, Matérn 5/2 0.5, d = 2, δ = {DELTA:g}"
    methods = ("cmm-ucb", "dmm-ucb", "amm-ucb", "ay-gp-ucb")
    arguments = [{"method": method, "rounds": rounds} for method in methods]
    picture = partial(
        lines.against_rounds,
        title=title,
        values=["relative"],
        ylabel="gap / range",
        band="quartiles",
    )
    return Plan(
        title,
        {"": _gaps},
        {".png": picture},
        cells_of(play_with_gap, range(count), arguments),
        prepare=lambda rows: rows.assign(relative=rows["gap"] / rows["range"]),
    )


def _gaps(rows: Frame) -> Frame:
    """A line for every method: runs with more regret than the gap, stops at a gap of 5 %, the gap at the end."""
    above = rows.assign(
        above=rows["simple_regret"] > rows["gap"],
        stop=rows["round"].where(rows["relative"] <= 0.05),
    )
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
    value_range = float(values.max() - values.min())
    made = bandit.make(
        method,
        problem.kernel,
        problem.noise_std,
        problem.norm_bound,
        DELTA,
        scale=problem.scale(rounds),
        horizon=rounds,
    )
    rows = []
    for row in bandit.play(made, problem, rounds, seed, gap_every=5):
        if "gap" in row:
            kept = {key: row[key] for key in ("round", "gap", "simple_regret", "cpu_seconds")}
            rows.append({**kept, "range": value_range})
    return rows


def _final_regret(rows: Frame) -> Frame:
    """Mean regret at the end of every method on every problem; the last line sums the problems."""
    last = rows[rows["round"] == rows["round"].max()]
    table = last.pivot_table(
        index=["kernel", "lengthscale"], columns="method", values="cumulative", sort=False
    )
    table.loc[("sum", ""), :] = table.sum()
    return table


def _relative_to(baseline: str, rows: Frame) -> Frame:
    """Regret of every method, summed over the problems, divided by the regret of the ``baseline``."""
    total = _final_regret(rows).iloc[-1]
    return (total / total[baseline]).to_frame().T.set_axis([f"sum against {baseline}"])


def norm(quick: bool) -> Plan:
    """The lower confidence bound of the norm after n uniform data, and regret when the norm is unknown."""
    seeds = 20
    if quick:
        seeds = 2
    found = {}
    for kernel in ("rbf", "matern32"):
        bounds = pd.DataFrame([_norm_bounds(kernel, seed) for seed in range(seeds)])
        found[kernel] = bounds.agg(["mean", "max"]).T.stack()
    table = pd.DataFrame(found).T
    methods = ("cmm-ucb", "cmm-ucb-doubling", "cmm-ucb-practical")
    heading = (
        f"lower confidence bound of the norm (truth 10) after n observations of {seeds} problems"
    )
    return Plan(
        "the norm unknown",
        {
            heading: lambda _: table,
            "cumulative regret at the end, means over the same problems": _final_regret,
            "": partial(_relative_to, "cmm-ucb"),
        },
        cells=_cells(problems(quick).values(), quick, methods),
    )


def _norm_bounds(kernel: str, seed: int) -> dict[str, float]:
    """The lower confidence bound of the norm after 20, 100 and 300 uniform observations."""
    problem = RKHSBandit(kernel, 0.5, seed=70_000 + seed)
    state = KernelRidge(problem.kernel, problem.noise_std**2)
    generator = torch.Generator().manual_seed(seed)
    found = {}
    for count in (20, 80, 200):
        X = torch.rand(count, problem.dim, generator=generator, dtype=torch.float64)
        state.update(X, problem.observe(X))
        found[f"n = {state.n}"] = float(norm_lower_bound(state, problem.noise_std, 0.01))
    return found


_UNSEEN: list[dict[str, Any]] = [
    {"kernel": "rbf", "lengthscale": 0.35, "dim": 2, "norm": 5.0},
    {"kernel": "matern52", "lengthscale": 0.35, "dim": 2, "norm": 5.0},
    {"kernel": "matern32", "lengthscale": 0.7, "dim": 3, "norm": 20.0},
    {"kernel": "rbf", "lengthscale": 0.3, "dim": 3, "norm": 3.0},
]
"""Problems that are in no table."""


def multiple(quick: bool) -> Plan:
    """Regret with multiples of the norm's lower bound instead of the norm."""
    rounds = 300
    seeds = 10
    if quick:
        rounds = 20
        seeds = 1
    multiples = ("1.02", "1.05", "1.1", "1.15", "1.2", "1.25", "1.5", "2.0")
    arguments = [
        {"method": method, "rounds": rounds, **problem}
        for problem, method in product(_UNSEEN, ("known", "doubling", *multiples))
    ]
    return Plan(
        "cumulative regret, means over the same problems",
        {"": _final_regret, "relative": partial(_relative_to, "known")},
        cells=cells_of(play_unknown, range(seeds), arguments),
    )


def play_unknown(method: str, seed: int, rounds: int, **options: Any) -> list[dict[str, Any]]:
    """The regret of CMM-UCB with the true norm, with doubling, or with a multiple of the norm's lower bound."""
    problem = RKHSBandit(**options, seed=80_000 + seed)
    sigma = problem.noise_std
    scale = problem.scale(rounds)
    confidence: Confidence
    if method == "known":
        confidence = MartingaleMixture(sigma, problem.norm_bound, 0.01, "cmm", scale)
    elif method == "doubling":
        confidence = UnknownNorm(sigma, 0.01, scale=scale, multiple=None)
    else:
        confidence = UnknownNorm(sigma, 0.01, scale=scale, multiple=float(method))
    made = bandit.Method(partial(KernelRidge, problem.kernel, sigma**2 / scale), confidence)
    return list(bandit.play(made, problem, rounds, seed))[-1:]


def sketch(quick: bool) -> Plan:
    """Mean width of the upper bound above f, exact and sketched, after n uniform observations."""
    n = 1000
    sizes = [50, 100, 200, 400]
    if quick:
        n = 100
        sizes = [10, 20]
    found = {
        "rbf 0.5": _widths("rbf", 0.5, n, sizes),
        "rbf 0.2": _widths("rbf", 0.2, n, sizes),
        "matern52 0.5": _widths("matern52", 0.5, n, sizes),
    }
    return Plan(
        f"mean of upper bound - f at 300 points, n = {n}, d = 3, norm 10, noise 0.1, delta 0.01",
        {"": lambda _: pd.DataFrame(found).T},
    )


def _widths(kernel: str, lengthscale: float, n: int, sizes: Sequence[int]) -> dict[str, float]:
    """The mean of upper bound - f, for three kinds on the exact posterior, and for CMM on sketches of given sizes."""
    problem = RKHSBandit(kernel, lengthscale, seed=1)
    X = torch.rand(n, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    Z = torch.rand(300, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    y = problem.observe(X)
    truth = problem.mean(Z)
    sigma = problem.noise_std
    scale = problem.scale(n)
    kinds = {
        kind: MartingaleMixture(sigma, problem.norm_bound, 0.01, kind, scale)
        for kind in ("cmm", "dmm", "amm")
    }
    exact = KernelRidge(problem.kernel, sigma**2 / scale)
    exact.update(X, y)
    found = {}
    for kind, confidence in kinds.items():
        found[f"exact {kind}"] = float((confidence.upper(exact, Z) - truth).mean())
    for m in sizes:
        dictionary = FixedDictionary.pivoted(problem.kernel, X, m)
        state = NystromRidge(problem.kernel, exact.ridge, dictionary)
        state.update(X, y)
        found[f"m = {m}"] = float((kinds["cmm"].upper(state, Z) - truth).mean())
    return found


def scales(quick: bool) -> Plan:
    """Mean half width with one covariance scale and with the average over ``MIXED_SCALES``."""
    marks = [100, 400, 1000]
    seeds = range(80_000, 80_010)
    if quick:
        marks = [20, 40]
        seeds = range(80_000, 80_001)
    found = {}
    for kernel, lengthscale in (("rbf", 0.2), ("rbf", 0.5), ("matern52", 0.5), ("matern32", 0.2)):
        runs = pd.DataFrame([_half_widths(kernel, lengthscale, seed, marks) for seed in seeds])
        means = runs.mean().to_dict()
        for n, kind in product(marks, ("dmm", "cmm")):
            by_scale = {scale: means[n, kind, scale] for scale in MIXED_SCALES}
            best = min(by_scale, key=by_scale.__getitem__)
            found[f"{kernel} {lengthscale:g}, n = {n}, {kind}"] = {
                "c = 1": by_scale[1.0],
                "best": by_scale[best],
                "best c": best,
                "averaged": means[n, kind, "averaged"],
            }
    return Plan(
        f"mean half width at 100 points, d = 2, norm 10, noise 0.1, delta 0.01; means over {len(seeds)} problems",
        {"": lambda _: pd.DataFrame(found).T},
    )


def _half_widths(
    kernel: str, lengthscale: float, seed: int, marks: Sequence[int]
) -> dict[tuple[int, str, float | str], float]:
    """The mean half width by number of observations, kind and scale, "averaged" for the average over the scales."""
    problem = RKHSBandit(kernel, lengthscale, 2, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    X = torch.rand(max(marks), 2, generator=generator, dtype=torch.float64)
    Z = torch.rand(100, 2, generator=generator, dtype=torch.float64)
    y = problem.observe(X)
    sigma = problem.noise_std
    scales: dict[float | str, Any] = {scale: scale for scale in MIXED_SCALES}
    scales["averaged"] = MIXED_SCALES
    found = {}
    for n in marks:
        state = KernelRidge(problem.kernel, sigma**2)
        state.update(X[:n], y[:n])
        for kind, name in product(("dmm", "cmm"), scales):
            confidence = MartingaleMixture(sigma, problem.norm_bound, 0.01, kind, scales[name])
            lower, upper = confidence.interval(state, Z)
            found[n, kind, name] = float((upper - lower).mean() / 2)
    return found


PAPER = Paper(
    title="Flynn & Reeb (2024), Tighter confidence bounds for sequential kernel regression",
    tables={1: table_1},
    figures={
        1: bounds,
        2: partial(regret, 3),
        4: time_per_step,
        5: partial(regret, 2),
        6: partial(regret, 4),
        7: misspecified,
    },
    studies={
        "validity": validity,
        "gap": gap,
        "norm": norm,
        "multiple": multiple,
        "sketch": sketch,
        "scales": scales,
    },
)


if __name__ == "__main__":
    from experiments.papers.command import main

    main("mixture")
