"""EK-UCB (Zenati et al. 2022, arXiv:2202.05638, App. F) and BKB (Calandriello et al. 2019, arXiv:1903.05594).

There are three contextual environments with ten actions (``experiments.problems.contextual``), T = 1000 rounds, ridge =
mu = 10, and bounds ``mean + 0.1 sqrt(leverage)`` without a guarantee. As in the authors' code, action 0.82 is pulled in
one uncounted round before the first. Regret is relative to the best offered action; the authors' is relative to the
best real number. As in their code, SupK-UCB has the multiplier 1 (with 0.1 its bounds exclude arms before any
observation), and the oversampling of CBKB and CBBKB is 10 C, with C = 1 for CBKB.

The figures have other numbers than in print. Figures 1 to 9 show the same runs, and 13 is figure 2 of BKB.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from experiments import bandits
from experiments.bandits import BanditMethod, BanditProblem
from experiments.output import lines, tables
from experiments.papers.experiment import (
    Experiment,
    Frame,
    Paper,
    Plan,
    cells_of,
    plan_of_regret,
    rounds_of,
    store,
)
from experiments.problems import stationary_kernel
from experiments.sweep.cells import Cell, concatenate
from kbo.kernels import freeze
from kbo.regression import KernelRidge, LeverageResampling, NystromRidge

ENVIRONMENTS = {"Chessboard": "chessboard", "Step Diagonal": "step-diagonal", "Bump": "bump"}
"""The name of a problem, by the name of the environment in pictures."""

RIDGE = 10.0
RIDGES = (1.0, 10.0, 100.0)
SEEDS = 10
_MULTIPLIER = 0.1
"""Multiplier of the square root of the leverage."""

_REFERENCE = {
    "k-ucb": ("57.0 ± 4.6", "365 ± 81", "27.8 ± 10.9"),
    "ek-ucb": ("57.0, m 55-77", "365, m 49-71", "27.8, m 1002"),
    "ek-ucb, gamma 1": ("127, m 41-45", "406", "229, m 121"),
    "c-bbkb, C = 3": ("69, 74 and 85", tables.NONE, tables.NONE),
}
"""Three runs of an independent implementation."""

_AUTHORS = {
    "ek-ucb": ("227 ± 36, m 86-91", "446 ± 12, m 98-100", "102, m 18-19"),
    "c-bkb": ("63 ± 10", "423 ± 47", "15-32"),
    "c-bbkb": ("424 ± 94", "713 ± 19", "84 ± 72"),
}
"""Three runs of the authors' code, with regret as here. It samples with another probability than the paper's eq. 41."""


def methods(ridge: float) -> dict[str, BanditMethod]:
    """Methods at ridge = mu by name, those of the paper's figures first."""
    kinds: dict[str, dict[str, Any] | None] = {
        "k-ucb": None,
        "ek-ucb": {"kind": "kors", "mu": ridge, "gamma": ridge},
        "c-bkb": {"kind": "bkb", "oversampling": 10.0},
        "c-bbkb": {"kind": "bbkb", "oversampling": 100.0, "growth": 10.0},
        "supk-ucb": None,
        "ek-ucb, gamma 1": {"kind": "kors", "mu": ridge, "gamma": 1.0},
        "c-bbkb, C = 3": {"kind": "bbkb", "oversampling": 30.0, "growth": 3.0},
    }
    found = {}
    for name, kind in kinds.items():
        recipe = None
        if kind is not None:
            recipe, _, _ = name.partition(",")
        multiplier = _MULTIPLIER
        if name == "supk-ucb":
            multiplier = 1.0
        found[name] = BanditMethod(name, recipe, ridge, multiplier, kind)
    return found


def _of_paper(ridge: float) -> list[BanditMethod]:
    """The methods of the paper's figures."""
    return list(methods(ridge).values())[:5]


def _cells(
    environments: Iterable[str], chosen: Iterable[BanditMethod], seeds: int, quick: bool
) -> list[Cell]:
    """The methods in these environments with the protocol of the authors' code."""
    rounds = 1000
    if quick:
        rounds = 30
        seeds = 2
    problems = [
        BanditProblem(ENVIRONMENTS[name], rounds=rounds, delta=0.1, first=2, every=10)
        for name in environments
    ]
    return bandits.cells(problems, chosen, seeds)


def _of_environment(title: str, look: Mapping[str, Any], environment: str, quick: bool) -> Plan:
    """Figures 1 to 9: the same runs, drawn in several ways."""
    cells = _cells([environment], _of_paper(RIDGE), SEEDS, quick)
    return plan_of_regret(title.format(environment=environment, ridge=RIDGE), cells, **look)


_SIZE: dict[str, Any] = {"values": ["m"], "ylabel": "number of anchors m"}
_CPU = {"x": "cpu_seconds", "xlabel": "CPU seconds so far", "band": "mean", "log": "x"}
_SHOWN = {
    1: ("cumulative regret, {environment}, ridge {ridge:g}", {"draw": lines.regret}),
    4: ("cumulative regret against CPU time, {environment}, one thread", _CPU),
    7: ("size of the dictionary, {environment}, ridge {ridge:g}", {**_SIZE, "band": "quartiles"}),
}
"""Title and look of the picture, by the number of the first of three figures."""


def regularisation(environment: str, quick: bool) -> Plan:
    """Figures 10 to 12: the regret at three ridges."""

    def prepare(rows: Frame) -> Frame:
        by_ridge = _at_ridges(rows)
        ridges = by_ridge["panel"].str.replace("= mu = ", "")
        return by_ridge.assign(problem=by_ridge["problem"] + ", " + ridges)

    chosen = [method for ridge in RIDGES for method in _of_paper(ridge)]
    cells = _cells([environment], chosen, 3, quick)
    title = f"cumulative regret, {environment}, three ridges"
    return plan_of_regret(title, cells, prepare, panel="panel")


def _at_ridges(rows: Frame) -> Frame:
    """The rows with a panel for every ridge."""
    return rows.assign(panel=[f"ridge = mu = {ridge:g}" for ridge in rows["ridge"]])


def dictionaries(quick: bool) -> Plan:
    """Regret and size of every kind of dictionary beside the exact posterior, in the three environments."""
    # It takes a point if more than a hundredth of the ridge is unexplained there.
    kind = {"kind": "greedy", "threshold": 0.1}
    greedy = BanditMethod("greedy", "ek-ucb", RIDGE, _MULTIPLIER, kind)
    names = {problem: name for name, problem in ENVIRONMENTS.items()}
    draw = partial(lines.against_rounds, panel="problem")
    compared = f"of all dictionaries, ridge {RIDGE:g}"

    def draw_regret(rows: Frame, path: Path) -> None:
        draw(rows[rows["method"] != "supk-ucb"], path, title=f"cumulative regret {compared}")

    return Plan(
        "all dictionaries",
        {"": tables.final},
        {".png": draw_regret, "-m.png": partial(draw, title=f"sizes {compared}", **_SIZE)},
        _cells(ENVIRONMENTS, [*methods(RIDGE).values(), greedy], SEEDS, quick),
        prepare=lambda rows: rows.assign(problem=rows["problem"].map(names)),
    )


def table_1(quick: bool) -> Plan:
    """Regret, anchors and CPU time after T rounds, beside an independent implementation and the authors' code."""

    def table(rows: Frame) -> Frame:
        shown = tables.final(rows)
        shown["independent"] = _beside(shown, _REFERENCE)
        shown["authors' code"] = _beside(shown, _AUTHORS)
        return shown

    size = f"after 1000 rounds, {SEEDS} runs"
    if quick:
        size = "after 30 rounds, 2 runs"
    title = f"{size}: mean ± standard deviation; the two on the right: 3 runs each"
    files = {".md": store(table)}
    return replace(dictionaries(quick), title=title, tables={"": table}, files=files)


def _beside(table: Frame, figures: Mapping[str, Sequence[str]]) -> list[str]:
    """The figures of other implementations for the lines of a table, which are environments and methods."""
    none = [tables.NONE] * len(ENVIRONMENTS)
    position = list(ENVIRONMENTS).index
    return [figures.get(method, none)[position(problem)] for problem, method in table.index]


def starvation(quick: bool) -> Plan:
    """BKB's figure 2: a draw from a GP, observed on [0, 0.5] only; three posteriors on [0, 1]; always quick.

    The kernel is ``exp(-100 |x - x'|^2 / 2)``, with lengthscale 0.1. The noise has standard deviation 0.1, and the
    ridge is its square. DTC and SoR (the sketch without ``k - |z|^2``) have the same dictionary, drawn by BKB.
    """
    kernel = stationary_kernel("rbf", 0.1)
    generator = torch.Generator().manual_seed(1)
    x = torch.linspace(0, 1, 401, dtype=torch.float64)
    observed = 0.5 * torch.rand(215, generator=generator, dtype=torch.float64)
    f = _draw(kernel, torch.cat([x, observed]), generator)
    truth = f[: len(x)]
    y = f[len(x) :] + 0.1 * torch.randn(len(observed), generator=generator, dtype=torch.float64)
    panels = {}
    deviations = {}
    for n in (6, 63, 215):
        exact = KernelRidge(kernel, 0.01)
        exact.update(observed[:n, None], y[:n])
        sketch = NystromRidge(kernel, 0.01, LeverageResampling())
        sketch.update(observed[:n, None], y[:n])
        posteriors = {
            "exact": exact.predict(x[:, None]),
            "DTC (kbo)": sketch.predict(x[:, None]),
            "SoR": _subset_of_regressors(sketch, x[:, None]),
        }
        bands = {}
        means = {}
        for name, (mean, variance) in posteriors.items():
            std = variance.sqrt()
            bands[name] = (mean - 3 * std, mean + 3 * std)
            means[name] = f"{float(std[x >= 0.7].mean()):.3f}"
        panels[f"{n} evaluations, m = {sketch.m}"] = ((observed[:n], y[:n]), bands)
        deviations[n, sketch.m] = means
    title = "variance starvation: Gaussian kernel of lengthscale 0.1, observed on [0, 0.5]"
    heading = "mean standard deviation on [0.7, 1], where there are no data, with m anchors after n evaluations"
    table = pd.DataFrame(deviations).T.rename_axis(["n", "m"])
    look = {"title": title, "note": "mean ± 3 standard deviations", "shade": 0.2}
    return Plan(
        title,
        {heading: lambda _: table},
        {".png": lambda _, path: lines.bounds(x, truth, panels, path, **look)},
    )


def _draw(kernel: Any, x: Tensor, generator: torch.Generator) -> Tensor:
    """A draw [N] from the GP at x [N]."""
    gram = freeze(kernel, x[:, None])(x[:, None], x[:, None])
    values, vectors = torch.linalg.eigh(gram)
    normal = torch.randn(len(x), generator=generator, dtype=torch.float64)
    return vectors @ (values.clamp_min(0).sqrt() * normal)


def _subset_of_regressors(sketch: NystromRidge, X: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance ``ridge z'M^-1 z`` [N] at X [N d]."""
    mean, variance = sketch.predict(X)
    features = sketch.sketch.features(X.double())
    unexplained = sketch.prior_variance(X) - features.square().sum(0)
    return mean, (variance - unexplained.clamp_min(0)).clamp_min(0)


def dimension(quick: bool) -> Plan:
    """Dictionary sizes against the effective dimension of the chosen points, on Chessboard at three ridges."""
    rounds = 1000
    every = 50
    seeds = 3
    if quick:
        rounds = 40
        every = 20
        seeds = 1
    sketched = [
        {"method": name, "ridge": ridge, "rounds": rounds, "every": every}
        for ridge in RIDGES
        for name, method in methods(ridge).items()
        if method.dictionary
    ]
    title = f"after {rounds} rounds, means over {seeds} runs"
    cells = cells_of(play_and_measure, range(seeds), sketched)
    return Plan(title, {"": _ratios}, {".png": _draw_sizes}, cells)


def _ratios(rows: Frame) -> Frame:
    """A line for every ridge and method: effective dimension, anchors, and their ratio, at the end."""
    last = rows[rows["round"] == rows["round"].max()]
    table = last.pivot_table(index=["ridge", "method"], values=["dimension", "m"], sort=False)
    return table.assign(ratio=table["m"] / table["dimension"])


def _draw_sizes(rows: Frame, path: Any) -> None:
    """Draw the number of anchors of all methods, and the effective dimension of the first one's points."""
    first = rows[rows["method"] == rows["method"].iloc[0]]
    dimension = first.assign(method="effective dimension", m=first["dimension"])
    lines.against_rounds(
        _at_ridges(concatenate([rows, dimension])),
        path,
        title="dictionary sizes on Chessboard",
        values=["m"],
        ylabel="number of anchors, dimension",
        band="mean",
        panel="panel",
    )


def play_and_measure(
    method: str, ridge: float, seed: int, rounds: int, every: int
) -> list[dict[str, Any]]:
    """The number of anchors ``m`` and the effective dimension of the exact kernel matrix, every so many rounds."""
    problem = BanditProblem("chessboard", rounds=rounds, delta=0.1)
    environment = problem.environment(seed)
    made = problem.make(methods(ridge)[method], seed)
    state = made.state()
    assert isinstance(state, NystromRidge)
    points = []
    rows = []
    for t, x, _ in rounds_of(made, environment, state, rounds):
        points.append(x)
        if t % every == 0:
            X = torch.cat(points)
            spectrum = torch.linalg.eigvalsh(freeze(environment.kernel, X)(X, X)).clamp_min(0)
            effective_dimension = float((spectrum / (spectrum + ridge)).sum())
            rows.append({"round": t, "m": state.m, "dimension": effective_dimension})
    return rows


def time_per_step(quick: bool) -> Plan:
    """CPU time per step on Chessboard: EK-UCB and BBKB to 10^5 rounds, K-UCB to 2000."""
    rounds_of_methods = {"ek-ucb": 100_000, "c-bbkb, C = 3": 100_000, "k-ucb": 2000}
    if quick:
        rounds_of_methods = {"ek-ucb": 400, "c-bbkb, C = 3": 400, "k-ucb": 100}
    cells = []
    for name, rounds in rounds_of_methods.items():
        every = max(1, rounds // 5000)
        problem = BanditProblem("chessboard", rounds=rounds, delta=0.1, every=every)
        cells.append(problem.cell(methods(RIDGE)[name], 0))
    title = "CPU time per step, Chessboard, ridge 10, one thread"
    picture = partial(lines.time_per_step, title=title, log="xy")
    return Plan(title, {"": _steps}, {".png": picture}, cells)


def _steps(rows: Frame) -> Frame:
    """A line for every method: rounds, CPU time, and time of a step, averaged over a fiftieth of the run."""
    found = {}
    for method, run in rows.groupby("method", sort=False):
        width = max(1, len(run) // 50)
        step = 1e6 * run["cpu_seconds"].diff(width) / run["round"].diff(width)
        found[str(method)] = {
            "rounds": run["round"].iloc[-1],
            "CPU s": run["cpu_seconds"].iloc[-1],
            "step at a tenth, us": step.iloc[max(width, len(run) // 10 - 1)],
            "step at the end, us": step.iloc[-1],
            "m": run["m"].iloc[-1],
        }
    return pd.DataFrame(found).T


def _figures() -> dict[int, Experiment]:
    """The figures by number."""
    figures: dict[int, Experiment] = {}
    for first, shown in _SHOWN.items():
        for number, environment in enumerate(ENVIRONMENTS, first):
            figures[number] = partial(_of_environment, *shown, environment)
    for number, environment in enumerate(ENVIRONMENTS, 10):
        figures[number] = partial(regularisation, environment)
    figures[13] = starvation
    return figures


PAPER = Paper(
    title="Zenati et al. (2022), Efficient kernel UCB; Calandriello et al. (2019), Budgeted kernel bandits (BKB)",
    tables={1: table_1},
    figures=_figures(),
    studies={
        "starvation": starvation,
        "dimension": dimension,
        "time": time_per_step,
        "dictionaries": dictionaries,
    },
)
"""The tables, figures and studies."""


if __name__ == "__main__":
    from experiments.papers.command import main

    main("sketching")
