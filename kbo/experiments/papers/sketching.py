"""EK-UCB (Zenati et al. 2022, arXiv:2202.05638, App. F) and BKB (Calandriello et al. 2019, arXiv:1903.05594).

Three contextual environments with ten actions (``kbo.problems.contextual``), T = 1000 rounds, ridge = mu = 10, bounds
``mean + 0.1 sqrt(leverage)`` without a guarantee, and the protocol of the authors' code: action 0.82 is pulled in one
uncounted round before the first. Regret is against the best action on offer; the authors' is against the best of all
reals. SupK-UCB has the multiplier 1, as in their code: with 0.1 it is sure of everything before it has seen anything.
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

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kbo.experiments.draw import lines as plots
from kbo.experiments.draw import tables
from kbo.experiments.papers import sketching_plots as sketch_plots
from kbo.experiments.papers import sketching_studies as sketch_studies
from kbo.experiments.papers.catalogue import Paper
from kbo.experiments.papers.sketching_methods import ENVIRONMENTS, game, greedy, paper_players, variants
from kbo.experiments.sweep.cells import Cell, concatenate
from kbo.experiments.sweep.runner import Sweep, Workers, sweep

if TYPE_CHECKING:
    import pandas as pd

RIDGE, RIDGES = 10.0, (1.0, 10.0, 100.0)
SEEDS, SEEDS_PER_RIDGE = 10, 3

_QUICK = "\n(--quick: tiny sizes, so the figures are not those of the paper)"

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


def cells(environments: Iterable[str], ridges: Iterable[float], seeds: int, quick: bool) -> list[Cell]:
    """The players of the paper in these environments, seed by seed."""
    named = list(environments)
    return [
        game(name, quick).cell(player, seed)
        for seed in range(2 if quick else seeds)
        for ridge in ridges
        for name in named
        for player in paper_players(ridge)
    ]


def regret(number: int, environment: str, folder: Path, quick: bool, workers: Workers, progress: bool) -> str:
    """Figures 1 to 3: cumulative regret against rounds."""
    found = sweep(cells([environment], [RIDGE], SEEDS, quick), folder / "cells", workers=workers, progress=progress)
    if found.rows.empty:
        return found.checked("")
    picture, title = folder / f"figure{number}.png", f"cumulative regret, {environment}, ridge {RIDGE:g}"
    plots.regret(found.rows, picture, title=title)
    return _with_table(found, title, picture, quick)


def regret_against_time(
    number: int, environment: str, folder: Path, quick: bool, workers: Workers, progress: bool
) -> str:
    """Figures 4 to 6: the regret of figures 1 to 3 against CPU time."""
    found = sweep(cells([environment], [RIDGE], SEEDS, quick), folder / "cells", workers=workers, progress=progress)
    if found.rows.empty:
        return found.checked("")
    picture, title = folder / f"figure{number}.png", f"cumulative regret against CPU time, {environment}, one thread"
    sketch_plots.regret_against_time(found.rows, picture, title=title)
    return _with_table(found, title, picture, quick)


def sizes(number: int, environment: str, folder: Path, quick: bool, workers: Workers, progress: bool) -> str:
    """Figures 7 to 9: how many anchors the sketches of figures 1 to 3 have."""
    found = sweep(cells([environment], [RIDGE], SEEDS, quick), folder / "cells", workers=workers, progress=progress)
    if found.rows.empty:
        return found.checked("")
    picture, title = folder / f"figure{number}.png", f"size of the dictionary, {environment}, ridge {RIDGE:g}"
    plots.medians(found.rows.dropna(subset="m"), "m", picture, title=title, ylabel="number of anchors m")
    return _with_table(found, title, picture, quick)


def regularisation(number: int, environment: str, folder: Path, quick: bool, workers: Workers, progress: bool) -> str:
    """Figures 10 to 12: the regret at three ridges."""
    asked = cells([environment], RIDGES, SEEDS_PER_RIDGE, quick)
    found = sweep(asked, folder / "cells", workers=workers, progress=progress)
    if found.rows.empty:
        return found.checked("")
    picture, title = folder / f"figure{number}.png", f"cumulative regret, {environment}, three ridges"
    panels = {f"ridge = mu = {ridge:g}": part for ridge, part in found.rows.groupby("ridge", sort=True)}
    plots.regret_grid(panels, picture, title=title)
    found.rows["problem"] = found.rows["problem"] + [f", ridge {ridge:g}" for ridge in found.rows["ridge"]]
    return _with_table(found, title, picture, quick)


def dictionaries(folder: Path, quick: bool, workers: Workers, progress: bool) -> str:
    """Regret and size of every kind of dictionary beside the exact posterior, in the three environments."""
    found = _all_dictionaries(folder, quick, workers, progress)
    if found.rows.empty:
        return found.checked("")
    pictures = folder / "dictionaries.png", folder / "dictionaries-m.png"
    methods = found.rows.groupby("method", sort=False)
    panels = _by_environment(concatenate(part for method, part in methods if method != "supk-ucb"))
    plots.regret_grid(panels, pictures[0], title=f"cumulative regret of all dictionaries, ridge {RIDGE:g}")
    plots.regret_grid(
        {name: part.dropna(subset="m") for name, part in panels.items()},
        pictures[1],
        title=f"sizes of all dictionaries, ridge {RIDGE:g}",
        value="m",
        ylabel="number of anchors m",
    )
    return _with_table(found, "all dictionaries", pictures[0], quick) + f"\n         {pictures[1]}"


def table_1(folder: Path, quick: bool, workers: Workers, progress: bool) -> str:
    """Regret, anchors and CPU time after T rounds, beside an independent implementation and the authors' code."""
    found = _all_dictionaries(folder, quick, workers, progress)
    if found.rows.empty:
        return found.checked("")
    lines: list[tuple[str, ...]] = [
        ("environment", "method", "regret", "anchors", "CPU s", "independent", "authors' code")
    ]
    for position, (environment, rows) in enumerate(_by_environment(found.rows).items()):
        for row in tables.typed(tables.summary(rows, {})):
            measured = tables.spread(row.mean, row.sd), tables.count(row.m), f"{row.cpu_seconds:.2f}"
            others = (known.get(row.method, (tables.NONE,) * 3)[position] for known in (_REFERENCE, _AUTHORS))
            lines.append((environment, row.method, *measured, *others))
    file = folder / "table1.md"
    ruled = [lines[0], ("---",) * len(lines[0]), *lines[1:]]
    file.write_text("\n".join(f"| {' | '.join(line)} |" for line in ruled) + "\n" + _QUICK * quick, encoding="utf-8")
    runs, rounds = found.rows["seed"].nunique(), found.rows["round"].max()
    heading = f"after T = {rounds} rounds, {runs} runs: mean ± standard deviation; the two on the right: 3 runs each"
    return found.checked(f"{heading}\n\n{tables.aligned(lines)}\n{_QUICK * quick}\ntable    {file}")


def _all_dictionaries(folder: Path, quick: bool, workers: Workers, progress: bool) -> Sweep:
    players = [*paper_players(RIDGE), *variants(RIDGE), greedy(RIDGE)]
    asked = [
        game(name, quick).cell(player, seed)
        for seed in range(2 if quick else SEEDS)
        for name in ENVIRONMENTS
        for player in players
    ]
    return sweep(asked, folder / "cells", workers=workers, progress=progress)


def _by_environment(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    parts = {str(problem): part for problem, part in rows.groupby("problem", sort=False)}
    return {name: parts[problem] for name, problem in ENVIRONMENTS.items() if problem in parts}


def _with_table(found: Sweep, title: str, picture: Path, quick: bool) -> str:
    table = tables.text(tables.summary(found.rows, {}))
    return found.checked(f"{title}\n\n{table}\n{_QUICK * quick}\npicture  {picture}")


PAPER = Paper(
    title="Zenati et al. (2022), Efficient kernel UCB; Calandriello et al. (2019), Budgeted kernel bandits (BKB)",
    tables={1: table_1},
    figures={
        **{
            number: partial(show, number, environment)
            for start, show in ((1, regret), (4, regret_against_time), (7, sizes), (10, regularisation))
            for number, environment in enumerate(ENVIRONMENTS, start)
        },
        13: partial(sketch_studies.starvation, "figure13.png"),
    },
    studies={
        "starvation": partial(sketch_studies.starvation, "starvation.png"),
        "dimension": sketch_studies.dimension,
        "time": sketch_studies.time_per_step,
        "dictionaries": dictionaries,
    },
)
