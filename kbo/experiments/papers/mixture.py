"""Flynn & Reeb (2024), "Tighter confidence bounds for sequential kernel regression", arXiv:2403.12732, Sec. 7.

The synthetic contextual bandit (``kbo.problems.RKHSBandit``): T = 1000 rounds of 100 new arms, norm 10, Gaussian
noise 0.1, delta = 0.01, ten seeds. The experiments share their cells: table 1 and figures 2 and 4 show the same runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

import pandas as pd
import torch

from kbo.experiments import bandits
from kbo.experiments.bandits import BanditProblem
from kbo.experiments.draw import lines, tables
from kbo.experiments.papers.experiment import Frame, Paper, Plan, intervals, plan_of_regret, store
from kbo.experiments.sweep.cells import Cell

KERNELS = {
    "RBF 0.5": ("rbf", 0.5),
    "RBF 0.2": ("rbf", 0.2),
    "Matérn 5/2 0.5": ("matern52", 0.5),
    "Matérn 5/2 0.2": ("matern52", 0.2),
    "Matérn 3/2 0.5": ("matern32", 0.5),
    "Matérn 3/2 0.2": ("matern32", 0.2),
}
"""Name of a problem -> kernel and lengthscale."""

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
    (problem, method): values for method, row in _TABLE_1.items() for problem, values in zip(KERNELS, row, strict=True)
}
"""Table 1 in print: cumulative regret at T = 1000, d = 3, mean and standard deviation over 10 runs."""


def problems(quick: bool, dim: int = 3) -> dict[str, BanditProblem]:
    """The problems of the paper by name; two tiny ones for ``quick``."""
    rounds, names = (30, list(KERNELS)[1:3]) if quick else (1000, list(KERNELS))
    found = {}
    for name in names:
        kernel, lengthscale = KERNELS[name]
        options = {"kernel": kernel, "lengthscale": lengthscale, "dim": dim}
        found[name] = BanditProblem("rkhs", options, rounds=rounds, every=10)
    return found


def cells(chosen: Iterable[BanditProblem], quick: bool, methods: Iterable[str] = METHODS) -> list[Cell]:
    """Every method on every problem: ten seeds, two for ``quick``."""
    return bandits.cells(chosen, methods, 2 if quick else 10)


def named(rows: Frame) -> Frame:
    """The rows with the name of their problem."""
    names = {setting: name for name, setting in KERNELS.items()}
    return rows.assign(problem=[names[pair] for pair in zip(rows["kernel"], rows["lengthscale"], strict=True)])


def table_1(quick: bool) -> Plan:
    """Cumulative regret of all methods on all six kernels, beside the published figures."""
    summary = partial(tables.summary, published=PUBLISHED)
    return Plan(
        "cumulative regret, mean ± standard deviation over the runs; published: Flynn & Reeb (2024), Table 1",
        {"": partial(tables.final, published=PUBLISHED)},
        {".csv": store(summary), ".md": store(lambda rows: tables.crossed(summary(rows)))},
        cells(problems(quick).values(), quick),
        prepare=named,
    )


def bounds(quick: bool) -> Plan:
    """Figure 1: lower and upper bounds of a function of one variable, from the same observations; always quick."""
    problem = BanditProblem("rkhs", {"kernel": "matern32", "lengthscale": 0.5, "dim": 1, "n_arms": 10}, rounds=10)
    environment = problem.environment(seed=0)
    X = environment.arms()
    y, grid = environment.observe(X), torch.linspace(0, 1, 401, dtype=torch.float64).unsqueeze(-1)
    methods = {name: problem.make(name) for name in ("ay-gp-ucb", "amm-ucb", "cmm-ucb", "dmm-ucb")}
    found = intervals(methods, X, y, grid)
    widths = {name: float((upper - lower).mean()) for name, (lower, upper) in found.items()}
    title = f"bounds at delta = {problem.delta:g} after {len(X)} observations: Matérn 3/2, lengthscale 0.5"
    parts, truth = {title: ((X[:, 0], y), found)}, environment.mean(grid)
    return Plan(
        title,
        {"": lambda _: pd.DataFrame({"mean width of the interval": widths})},
        {".png": lambda _, path: lines.bounds(grid[:, 0], truth, parts, path, title="")},
    )


def regret(dim: int, quick: bool) -> Plan:
    """Figures 2, 5 and 6: cumulative regret against rounds, a panel for every kernel."""
    played, published = cells(problems(quick, dim).values(), quick), PUBLISHED if dim == 3 else None
    return plan_of_regret(f"cumulative regret, d = {dim}", played, named, published, panel="problem")


def time_per_step(quick: bool) -> Plan:
    """Figure 4: CPU time per step against rounds, on Matérn 5/2, lengthscale 0.5, d = 3."""
    name = "Matérn 5/2 0.5"
    title = f"CPU time per step, {name}, d = 3, 100 arms, one thread"
    picture = partial(lines.time_per_step, title=title)
    return Plan(title, files={".png": picture}, cells=cells([problems(quick)[name]], quick))


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
        numbers = rows.reindex(columns=list(true)).astype(float).fillna(true).to_numpy()
        return rows.assign(problem=[f"given B = {norm:g}, sigma = {noise:g}" for norm, noise in numbers])

    title = "cumulative regret, Matérn 5/2 0.5; truly B = 10, sigma = 0.1"
    return plan_of_regret(title, cells(variants, quick, METHODS[:-1]), with_given, panel="problem")


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
)
"""The tables and figures; ``mixture_studies`` adds the studies."""
