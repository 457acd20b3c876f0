"""EK-UCB (Zenati et al. 2022, arXiv:2202.05638, App. F) and BKB (Calandriello et al. 2019, arXiv:1903.05594).

Three contextual environments with ten actions (``kbo.problems.contextual``), T = 1000 rounds, ridge = mu = 10, bounds
``mean + 0.1 sqrt(leverage)`` without a guarantee, and the protocol of the authors' code: action 0.82 is pulled in one
uncounted round before the first. Regret is against the best action on offer; the authors' is against the best of all
reals. SupK-UCB has the multiplier 1, as in their code: with 0.1 its bounds exclude arms before any observation.
The oversampling of CBKB and CBBKB is 10 C, as there, with C = 1 for CBKB.

| figures | show | order |
|---|---|---|
| 1, 2, 3 | regret against rounds, ridge 10 | Chessboard, Step Diagonal, Bump |
| 4, 5, 6 | the same regret against CPU time | the same |
| 7, 8, 9 | size of the dictionary against rounds | the same |
| 10, 11, 12 | regret against rounds at ridge = mu = 1, 10, 100 | the same |
| 13 | variance starvation: BKB's figure 2 | |

The numbers follow this list and not the order of the prints. The experiments share their cells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from kbo.experiments import bandits
from kbo.experiments.bandits import BanditMethod, BanditProblem
from kbo.experiments.draw import lines, tables
from kbo.experiments.papers.catalogue import Paper
from kbo.experiments.papers.experiment import Frame, Plan, by, figures, store
from kbo.experiments.sweep.cells import Cell
from kbo.kernels import freeze
from kbo.problems import stationary_kernel
from kbo.regression import KernelRidge, LeverageResampling, NystromRidge

ENVIRONMENTS = {"Chessboard": "chessboard", "Step Diagonal": "step-diagonal", "Bump": "bump"}
"""Name of an environment in pictures -> its problem."""

RIDGE, RIDGES = 10.0, (1.0, 10.0, 100.0)
SEEDS, SEEDS_PER_RIDGE = 10, 3

_FIRST, _MULTIPLIER = 2, 0.1
_GREEDY_THRESHOLD = 0.1
"""The unexplained part of a point above which the greedy dictionary takes it: a hundredth of the ridge 10."""

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
"""Three runs of the authors' code, scored like ours. It samples with another probability than the paper's eq. 41."""


def problem(environment: str, quick: bool, rounds: int = 1000) -> BanditProblem:
    """The problem of that environment with the protocol of the authors' code; a tiny one if ``quick``."""
    return BanditProblem(ENVIRONMENTS[environment], rounds=30 if quick else rounds, delta=0.1, first=_FIRST, every=10)


def exact(ridge: float) -> BanditMethod:
    """K-UCB."""
    return BanditMethod("k-ucb", ridge=ridge, multiplier=_MULTIPLIER)


def sketched(ridge: float) -> dict[str, BanditMethod]:
    """Methods with random dictionaries at ridge = mu, by name; the last two are not in the figures of the paper."""

    def method(name: str, recipe: str, **dictionary: Any) -> BanditMethod:
        return BanditMethod(name, recipe, ridge, _MULTIPLIER, dictionary)

    found = [
        method("ek-ucb", "ek-ucb", kind="kors", mu=ridge, gamma=ridge),
        method("c-bkb", "c-bkb", kind="bkb", oversampling=10.0),
        method("c-bbkb", "c-bbkb", kind="bbkb", oversampling=100.0, growth=10.0),
        method("ek-ucb, gamma 1", "ek-ucb", kind="kors", mu=ridge, gamma=1.0),
        method("c-bbkb, C = 3", "c-bbkb", kind="bbkb", oversampling=30.0, growth=3.0),
    ]
    return {each.method: each for each in found}


def methods(ridge: float) -> list[BanditMethod]:
    """The methods of the paper's figures at ridge = mu."""
    paper = [sketched(ridge)[name] for name in ("ek-ucb", "c-bkb", "c-bbkb")]
    return [exact(ridge), *paper, BanditMethod("supk-ucb", ridge=ridge, multiplier=1.0)]


def cells(environments: Iterable[str], chosen: Iterable[BanditMethod], seeds: int, quick: bool) -> list[Cell]:
    """The methods in these environments, seed by seed."""
    return bandits.cells([problem(name, quick) for name in environments], chosen, 2 if quick else seeds)


def final(rows: Frame) -> Frame:
    """The table of the last round."""
    return tables.regret(tables.summary(rows, {}))


def _of_environment(title: str, draw: Callable[..., None], environment: str, quick: bool) -> Plan:
    """Figures 1 to 9: the same runs, drawn in several ways."""
    title = title.format(environment=environment, ridge=RIDGE)
    played = cells([environment], methods(RIDGE), SEEDS, quick)
    return Plan(title, {"": final}, {".png": partial(draw, title=title)}, played)


_SHOWN = {
    1: ("cumulative regret, {environment}, ridge {ridge:g}", lines.regret),
    4: (
        "cumulative regret against CPU time, {environment}, one thread",
        partial(lines.against_rounds, x="cpu_seconds", xlabel="CPU seconds so far", band="mean", log="x"),
    ),
    7: (
        "size of the dictionary, {environment}, ridge {ridge:g}",
        lambda rows, path, title: lines.against_rounds(
            rows.dropna(subset="m"), path, title=title, values=["m"], ylabel="number of anchors m", band="quartiles"
        ),
    ),
}
"""Number of the first figure of three -> title and picture."""


def regularisation(environment: str, quick: bool) -> Plan:
    """Figures 10 to 12: the regret at three ridges."""
    title = f"cumulative regret, {environment}, three ridges"

    def draw(rows: Frame, path: Any) -> None:
        panels = {f"ridge = mu = {ridge:g}": part for ridge, part in rows.groupby("ridge", sort=True)}
        lines.against_rounds(panels, path, title=title)

    def table(rows: Frame) -> Frame:
        ridges = [f", ridge {ridge:g}" for ridge in rows["ridge"]]
        return final(rows.assign(problem=rows["problem"] + ridges))

    at_ridges = [method for ridge in RIDGES for method in methods(ridge)]
    return Plan(title, {"": table}, {".png": draw}, cells([environment], at_ridges, SEEDS_PER_RIDGE, quick))


def _with_environment(rows: Frame) -> Frame:
    names = {problem: name for name, problem in ENVIRONMENTS.items()}
    order = list(ENVIRONMENTS).index
    named = rows.assign(problem=rows["problem"].map(names))
    return named.sort_values("problem", key=lambda column: column.map(order), kind="stable", ignore_index=True)


def dictionaries(quick: bool) -> Plan:
    """Regret and size of every kind of dictionary beside the exact posterior, in the three environments."""
    greedy = BanditMethod("greedy", "ek-ucb", RIDGE, _MULTIPLIER, {"kind": "greedy", "threshold": _GREEDY_THRESHOLD})
    more = list(sketched(RIDGE).values())[3:]

    def draw(rows: Frame, path: Any) -> None:
        shown = rows[rows["method"] != "supk-ucb"]
        title = f"cumulative regret of all dictionaries, ridge {RIDGE:g}"
        lines.against_rounds(by(shown, "problem"), path, title=title)

    def draw_sizes(rows: Frame, path: Any) -> None:
        panels, title = by(rows.dropna(subset="m"), "problem"), f"sizes of all dictionaries, ridge {RIDGE:g}"
        lines.against_rounds(panels, path, title=title, values=["m"], ylabel="number of anchors m")

    played = cells(ENVIRONMENTS, [*methods(RIDGE), *more, greedy], SEEDS, quick)
    return Plan(
        "all dictionaries", {"": final}, {".png": draw, "-m.png": draw_sizes}, played, prepare=_with_environment
    )


def table_1(quick: bool) -> Plan:
    """Regret, anchors and CPU time after T rounds, beside an independent implementation and the authors' code."""

    def table(rows: Frame) -> Frame:
        shown, none = final(rows), (tables.NONE,) * len(ENVIRONMENTS)
        position = list(ENVIRONMENTS).index
        for name, known in (("independent", _REFERENCE), ("authors' code", _AUTHORS)):
            shown[name] = [known.get(method, none)[position(environment)] for environment, method in shown.index]
        return shown

    heading = "after {} rounds, {} runs: mean ± standard deviation; the two on the right: 3 runs each"
    return replace(
        dictionaries(quick),
        title=heading.format(*((30, 2) if quick else (1000, SEEDS))),
        tables={"": table},
        files={".md": store(table)},
    )


_EVALUATIONS = (6, 63, 215)


def starvation(quick: bool) -> Plan:
    """BKB's figure 2: a draw from a GP, observed on [0, 0.5] only; three posteriors on [0, 1]; always quick.

    The kernel is ``exp(-100 |x - x'|^2 / 2)``, a lengthscale of 0.1; the noise has standard deviation 0.1, the ridge is
    its square. DTC and SoR (the sketch without ``k - |z|^2``) have the same dictionary, drawn by BKB.
    """
    kernel, generator = stationary_kernel("rbf", 0.1), torch.Generator().manual_seed(1)
    x = torch.linspace(0, 1, 401, dtype=torch.float64)
    observed = 0.5 * torch.rand(_EVALUATIONS[-1], generator=generator, dtype=torch.float64)
    f = _draw(kernel, torch.cat([x, observed]), generator)
    y = f[len(x) :] + 0.1 * torch.randn(len(observed), generator=generator, dtype=torch.float64)
    panels, deviations = {}, {}
    for n in _EVALUATIONS:
        full, sketch = KernelRidge(kernel, 0.01), NystromRidge(kernel, 0.01, LeverageResampling())
        for state in (full, sketch):
            state.update(observed[:n, None], y[:n])
        posteriors = {"exact": full.predict(x[:, None]), "DTC (kbo)": sketch.predict(x[:, None])}
        posteriors["SoR"] = _subset_of_regressors(sketch, x[:, None])
        bands = {
            name: (mean - 3 * variance.sqrt(), mean + 3 * variance.sqrt())
            for name, (mean, variance) in posteriors.items()
        }
        panels[f"{n} evaluations, m = {sketch.m}"] = ((observed[:n], y[:n]), bands)
        deviations[n, sketch.m] = {
            name: f"{float(variance.sqrt()[x >= 0.7].mean()):.3f}" for name, (_, variance) in posteriors.items()
        }
    title = "variance starvation: Gaussian kernel of lengthscale 0.1, observed on [0, 0.5]"
    note = "mean ± 3 standard deviations"
    return Plan(
        title,
        {
            "mean standard deviation on [0.7, 1], where there are no data, with m anchors after n evaluations": (
                lambda _: pd.DataFrame(deviations).T.rename_axis(["n", "m"])
            )
        },
        {".png": lambda _, path: lines.bounds(x, f[: len(x)], panels, path, title=title, note=note, shade=0.2)},
    )


def _draw(kernel: Any, x: Tensor, generator: torch.Generator) -> Tensor:
    """A draw [N] from the GP at x [N]."""
    gram = freeze(kernel, x[:, None])(x[:, None], x[:, None])
    values, vectors = torch.linalg.eigh(gram)
    return vectors @ (values.clamp_min(0).sqrt() * torch.randn(len(x), generator=generator, dtype=torch.float64))


def _subset_of_regressors(sketch: NystromRidge, X: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance ``ridge z'M^-1 z`` [N] at X [N d]."""
    mean, variance = sketch.predict(X)
    unexplained = sketch.prior_variance(X) - sketch.features(X).square().sum(0)
    return mean, (variance - unexplained.clamp_min(0)).clamp_min(0)


PAPER = Paper(
    title="Zenati et al. (2022), Efficient kernel UCB; Calandriello et al. (2019), Budgeted kernel bandits (BKB)",
    tables=figures({1: table_1}, "table"),
    figures=figures(
        {
            number: partial(_of_environment, *shown, environment)
            for start, shown in _SHOWN.items()
            for number, environment in enumerate(ENVIRONMENTS, start)
        }
        | {number: partial(regularisation, environment) for number, environment in enumerate(ENVIRONMENTS, 10)}
        | {13: starvation}
    ),
)
"""The tables and figures; ``sketching_studies`` adds the studies."""
