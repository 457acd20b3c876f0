"""Flynn & Reeb (2024), "Tighter confidence bounds for sequential kernel regression", arXiv:2403.12732, Sec. 7.

The synthetic contextual bandit (``kbo.problems.RKHSBandit``): T = 1000 rounds of 100 fresh arms, norm 10, Gaussian
noise 0.1, delta = 0.01, ten seeds. The experiments share their cells: table 1 and figures 2 and 4 show the same games.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from kbo import recipes
from kbo.experiments.bandits import BanditProblem
from kbo.experiments.draw import lines as plots
from kbo.experiments.draw import tables
from kbo.experiments.papers import mixture_studies as guarantees
from kbo.experiments.papers.catalogue import Experiment, Paper
from kbo.experiments.sweep.cells import Cell, concatenate
from kbo.experiments.sweep.runner import Sweep, Workers, sweep

if TYPE_CHECKING:
    import pandas as pd

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
"""The methods, in the order of tables and legends; one that kbo does not have is left out."""

_TABLE_1 = {
    "dmm-ucb": ((32.2, 20.9), (491, 117), (130, 46), (795, 206), (196, 78), (814, 344)),
    "amm-ucb": ((88.8, 6.1), (1206, 21), (197, 24), (1662, 90), (316, 51), (1741, 351)),
    "ay-gp-ucb": ((136.9, 12.7), (1518, 39), (332, 45), (2382, 135), (546, 70), (2421, 569)),
    "igp-ucb": ((314, 111), (1433, 123), (553, 68), (1853, 106), (656, 67), (1708, 376)),
    "random": ((4282, 1015), (3872, 784), (4265, 778), (3678, 559), (4175, 681), (3442, 1080)),
}

PUBLISHED: tables.Published = {
    (problem, method): figures
    for method, row in _TABLE_1.items()
    for problem, figures in zip(KERNELS, row, strict=True)
}
"""Table 1 in print: cumulative regret at T = 1000, d = 3, mean and standard deviation over 10 runs."""

_QUICK = "\n(--quick: tiny sizes, so the figures are not those of the paper)"


def games(quick: bool, dim: int = 3) -> dict[str, BanditProblem]:
    """The games of the paper, by the name of their problem; two tiny ones for ``quick``."""
    rounds, every, names = (30, 10, list(KERNELS)[1:3]) if quick else (1000, 10, list(KERNELS))
    found = {}
    for name in names:
        kernel, lengthscale = KERNELS[name]
        options = {"kernel": kernel, "lengthscale": lengthscale, "dim": dim}
        found[name] = BanditProblem("rkhs", options, rounds=rounds, every=every)
    return found


def cells(played: Iterable[BanditProblem], quick: bool, methods: Iterable[str] = METHODS) -> list[Cell]:
    """Every method on every game: ten seeds, two for ``quick``, seed by seed: a part is balanced too."""
    known = [method for method in methods if method in recipes.names()]
    games_ = list(played)
    return [game.cell(method, seed) for seed in range(2 if quick else 10) for game in games_ for method in known]


def table_1(folder: Path, quick: bool, workers: Workers, progress: bool) -> str:
    """Cumulative regret of all methods on all six kernels, beside the published figures."""
    found = sweep(cells(games(quick).values(), quick), folder / "cells", workers=workers, progress=progress)
    if found.rows.empty:
        return found.checked("")
    table = tables.summary(_named(found.rows), PUBLISHED)
    csv, markdown = folder / "table1.csv", folder / "table1.md"
    table.to_csv(csv, index=False)
    markdown.write_text(f"{tables.markdown(table)}\n{_QUICK * quick}", encoding="utf-8")
    heading = "cumulative regret, mean ± standard deviation over the runs; published: Flynn & Reeb (2024), Table 1"
    return found.checked(f"{heading}\n\n{tables.text(table)}\n{_QUICK * quick}\ntable    {csv}\n         {markdown}")


def bounds(folder: Path, quick: bool, workers: Workers, progress: bool) -> str:
    """Figure 1: lower and upper bounds of a function of one variable, from the same observations; always quick."""
    played = BanditProblem("rkhs", {"kernel": "matern32", "lengthscale": 0.5, "dim": 1, "n_arms": 10}, rounds=10)
    problem = played.environment(seed=0)
    X = problem.arms()
    y = problem.observe(X)
    grid = torch.linspace(0, 1, 401, dtype=torch.float64).unsqueeze(-1)
    intervals: dict[str, tuple[Tensor, Tensor]] = {}
    for name in ("ay-gp-ucb", "amm-ucb", "cmm-ucb", "dmm-ucb"):
        if name not in recipes.names():
            continue
        method = played.make(name)
        assert method.confidence is not None
        state = method.state()
        state.update(X, y)
        intervals[name] = method.confidence.interval(state, grid)
    picture = folder / "figure1.png"
    title = f"bounds at delta = {played.delta:g} after {len(X)} observations: Matérn 3/2, lengthscale 0.5"
    plots.bounds(grid[:, 0], problem.mean(grid), (X[:, 0], y), intervals, picture, title=title)
    widths = "\n".join(f"{name:10s} {float((upper - lower).mean()):6.3f}" for name, (lower, upper) in intervals.items())
    return f"mean width of the interval\n{widths}\npicture  {picture}"


def regret(number: int, dim: int, folder: Path, quick: bool, workers: Workers, progress: bool) -> str:
    """Figures 2, 5 and 6: cumulative regret against rounds, a panel for every kernel."""
    found = sweep(cells(games(quick, dim).values(), quick), folder / "cells", workers=workers, progress=progress)
    return _panels(found, "problem", folder / f"figure{number}.png", f"cumulative regret, d = {dim}", quick)


def time_per_step(folder: Path, quick: bool, workers: Workers, progress: bool) -> str:
    """Figure 4: CPU time per step against rounds, on Matérn 5/2, lengthscale 0.5, d = 3."""
    problem = "Matérn 5/2 0.5"
    found = sweep(cells([games(quick)[problem]], quick), folder / "cells", workers=workers, progress=progress)
    if found.rows.empty:
        return found.checked("")
    picture = folder / "figure4.png"
    plots.time_per_step(_named(found.rows), picture, title=f"CPU time per step, {problem}, d = 3, 100 arms, one thread")
    return found.checked(f"picture  {picture}{_QUICK * quick}")


def misspecified(folder: Path, quick: bool, workers: Workers, progress: bool) -> str:
    """Figure 7: the methods are told B in {10, 20} and sigma in {0.1, 0.2}; the truth stays 10 and 0.1."""
    game = games(quick)["Matérn 5/2 0.5"]
    told = [  # what is true is not told again: these games are those of table 1
        replace(game, given_norm=norm, given_noise_std=noise_std) for noise_std in (None, 0.2) for norm in (None, 20.0)
    ]
    played = cells(told, quick, [method for method in METHODS if method != "random"])
    found = sweep(played, folder / "cells", workers=workers, progress=progress)
    if not found.rows.empty:
        world = game.environment(0)
        true = {"given_norm": world.norm_bound, "given_noise_std": world.noise_std}
        numbers = found.rows.reindex(columns=list(true)).astype(float).fillna(true)
        found.rows["told"] = [f"told B = {norm:g}, sigma = {noise:g}" for norm, noise in numbers.to_numpy()]
    return _panels(
        found, "told", folder / "figure7.png", "cumulative regret, Matérn 5/2 0.5; truly B = 10, sigma = 0.1", quick
    )


def _panels(found: Sweep, by: str, picture: Path, title: str, quick: bool) -> str:
    """Draw a panel for every value of a column; a table of the last round to print."""
    if found.rows.empty:
        return found.checked("")
    panels = {str(name): part for name, part in _named(found.rows).groupby(by, sort=False)}
    plots.regret_grid(panels, picture, title=title)
    rows = concatenate(part.assign(problem=name) for name, part in panels.items())
    table = tables.summary(rows, PUBLISHED if set(rows["dim"]) == {3} else {})
    return found.checked(f"{title}\n\n{tables.text(table)}\n{_QUICK * quick}\npicture  {picture}")


def _named(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with the name of their problem, in the order of the paper."""
    names = {setting: name for name, setting in KERNELS.items()}
    order = {"problem": list(KERNELS), "method": list(METHODS)}
    problems = [names[pair] for pair in zip(rows["kernel"], rows["lengthscale"], strict=True)]
    return rows.assign(problem=problems).sort_values(
        ["problem", "method"],
        key=lambda column: column.map(order[str(column.name)].index),
        kind="stable",
        ignore_index=True,
    )


STUDIES: dict[str, Experiment] = {
    "validity": guarantees.validity,
    "gap": guarantees.gap,
    "norm": guarantees.norm,
    "multiple": guarantees.multiple,
    "sketch": guarantees.sketch,
}
"""What we asked beyond the paper, by name."""

PAPER = Paper(
    title="Flynn & Reeb (2024), Tighter confidence bounds for sequential kernel regression",
    tables={1: table_1},
    figures={
        1: bounds,
        2: partial(regret, 2, 3),
        4: time_per_step,
        5: partial(regret, 5, 2),
        6: partial(regret, 6, 4),
        7: misspecified,
    },
    studies=STUDIES,
)
