"""Durand, Maillard & Pineau (2018), JMLR 19: streaming kernel regression with adaptive mean, variance and ridge.

One function on [0, 1] (``kbo.problems.StreamingBandit``): 100 fixed arms, Gaussian noise 0.1, norm 2.06. Methods are
told a norm of at most 5, delta = 0.1, and a noise level in [0.01, 1]; oracles are told 0.1, "fixed" takes 1 for it.

| figure | shows | points |
|---|---|---|
| 1 | the function, data, envelopes | uniform |
| 2 | heights of envelopes above the function: oracle, fixed and adaptive ridge | uniform |
| 3 | noise bounds of all forms | uniform |
| 4 | upper noise bounds from a fixed and from the adaptive ridge | uniform |
| 5 | the ridge | uniform |
| 6 | regret of Kernel UCB | played |
| 7 | regret of Kernel TS | played |
| 8 | Theorem 1 against Lemma 3 in Kernel TS | played |

The numbers follow the story of the paper and not the order of its prints. The experiments share their cells.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from kbo import bandit
from kbo.confidence import SelfNormalized, WangDeFreitas, widths
from kbo.experiments.bandits import BanditMethod
from kbo.experiments.draw import tables
from kbo.experiments.papers import streaming_plots, streaming_studies, streaming_uniform
from kbo.experiments.papers.catalogue import Paper
from kbo.experiments.papers.streaming_methods import DELTA, dear, game, told_players, ts_players, ucb_players
from kbo.experiments.sweep.cells import Cell, concatenate
from kbo.experiments.sweep.runner import Sweep, Workers, sweep
from kbo.recipes import Method, ThompsonSampling
from kbo.regression import Posterior

if TYPE_CHECKING:
    import pandas as pd

SEEDS, DEAR_SEEDS = 40, 10
_ROUNDS = (500, 1000, 2000)

_INDEPENDENT = {
    "kernel-ucb-oracle": ((14.9, 1.5), (18.9, 1.9), (24.6, 2.9)),
    "kernel-ucb-fixed": ((130.6, 1.3), (211.8, 2.4), (322.7, 3.3)),
    "kernel-ucb-adaptive, paper": ((153.4, 1.2), (173.1, 1.5), (181.0, 1.7)),
    "kernel-ucb-adaptive": ((60.8, 1.0), (64.7, 1.3), (70.1, 2.2)),
    "kernel-ts-oracle": ((66.4, 3.4), (93.7, 3.8), (129.4, 4.4)),
    "kernel-ts-fixed": ((188.8, 4.6), (357.3, 6.3), (661.4, 6.7)),
    "kernel-ts-adaptive, paper": ((197.5, 4.4), (330.2, 5.7), (415.2, 7.2)),
    "kernel-ts-adaptive": ((136.1, 3.6), (166.4, 4.6), (198.6, 5.7)),
}
"""Regret at T = 500, 1000, 2000 by an independent implementation, mean and standard deviation."""

_BURN_IN = "burn-in: as long as the noise bound has not moved, the paper's adaptive form is worse than fixed"
_QUICK = "\n(--quick: tiny sizes, so the figures are not those of the paper)"


def _played(players: Iterable[BanditMethod], folder: Path, quick: bool, workers: Workers, progress: bool) -> Sweep:
    """Players on the problem, seed by seed; the dear ones on fewer seeds."""
    chosen = list(players)
    cells = [
        game(quick).cell(player, seed)
        for seed in range(2 if quick else SEEDS)
        for player in chosen
        if seed < DEAR_SEEDS or not dear(player)
    ]
    return sweep(cells, folder / "cells", workers=workers, progress=progress)


def table_1(folder: Path, quick: bool, workers: Workers, progress: bool) -> str:
    """Cumulative regret at T = 500, 1000, 2000 of everything, beside an independent implementation."""
    players = [*ucb_players(), BanditMethod("cmm-ucb-adaptive"), *told_players(), *ts_players()]
    found = _played(players, folder, quick, workers, progress)
    if found.rows.empty:
        return found.checked("")
    table = _table(found.rows, (10, 20, 40) if quick else _ROUNDS)
    csv, markdown = folder / "table1.csv", folder / "table1.md"
    table.to_csv(csv, index=False)
    markdown.write_text(f"{tables.markdown(table)}\n{_QUICK * quick}", encoding="utf-8")
    heading = "cumulative regret, mean ± standard deviation over the runs; published: an independent implementation"
    return found.checked(f"{heading}\n\n{tables.text(table)}\n{_QUICK * quick}\ntable    {csv}\n         {markdown}")


def _table(rows: pd.DataFrame, marks: tuple[int, ...]) -> pd.DataFrame:
    parts = [rows[rows["round"] <= T].assign(problem=f"T = {T}") for T in marks]
    reference = {
        (f"T = {T}", method): figures
        for method, line in _INDEPENDENT.items()
        for T, figures in zip(_ROUNDS, line, strict=True)
    }
    return tables.summary(concatenate(parts), reference)


def regret(
    number: int, players: list[BanditMethod], title: str, folder: Path, quick: bool, workers: Workers, progress: bool
) -> str:
    """Figures 6 and 7: cumulative regret against rounds."""
    found = _played(players, folder, quick, workers, progress)
    if found.rows.empty:
        return found.checked("")
    picture = folder / f"figure{number}.png"
    streaming_plots.curves(
        found.rows,
        ["cumulative"],
        picture,
        title=title,
        ylabel="cumulative regret",
        note=_BURN_IN,
        ends=True,
        log=False,
    )
    table = tables.text(_table(found.rows, (40,) if quick else _ROUNDS))
    return found.checked(f"{title}\n\n{table}\n{_QUICK * quick}\npicture  {picture}")


class _Lemma3(WangDeFreitas):
    """Lemma 3 at the ridge of the state, for draws from ``N(mean, v^2 sigma^2 / ridge covariance)``, Sec. 6.4.

    Only at ``noise_std^2`` is it a lemma.
    """

    def ridge(self, state: Posterior) -> float:
        return state.ridge

    def width(self, state: Posterior) -> Tensor:
        v = widths.wang_de_freitas(state.log_det(), self.noise_std, self.norm_bound, self.delta)
        return v * self.noise_std / math.sqrt(state.ridge)


def play_inflated(bound: str, oracle_ridge: bool, seed: int, rounds: int, every: int) -> list[dict[str, Any]]:
    """Regret of Kernel TS inflated by "Theorem 1" or "Lemma 3", at ridge sigma^2 / C^2 or sigma^2."""
    world = game(quick=False).environment(seed)
    sigma, C = world.noise_std, world.norm_bound
    confidence = {"Theorem 1": SelfNormalized, "Lemma 3": _Lemma3}[bound](sigma, C, DELTA / 12)
    ridge = (sigma / C) ** 2 if oracle_ridge else sigma**2
    method = Method(bound, world.kernel, ridge, confidence, rule=ThompsonSampling())
    return [row for row in bandit.play(method, world, rounds, seed) if row["round"] % every == 0]


_RIDGES = {False: "ridge σ², where Lemma 3 is valid", True: "ridge σ² / C², where it is not"}


def theorem_against_lemma(folder: Path, quick: bool, workers: Workers, progress: bool) -> str:
    """Figure 8: Theorem 1 and Lemma 3 as inflation of Kernel TS that is told the noise, at two ridges."""
    rounds, every, seeds = (40, 10, 2) if quick else (1000, 20, SEEDS)
    cells = [
        Cell(
            f"{__name__}:play_inflated",
            {"bound": bound, "oracle_ridge": oracle_ridge, "seed": seed, "rounds": rounds, "every": every},
            f"inflated {bound} {'oracle' if oracle_ridge else 'variance'} T{rounds} seed{seed}",
        )
        for seed in range(seeds)
        for oracle_ridge in _RIDGES
        for bound in ("Theorem 1", "Lemma 3")
    ]
    found = sweep(cells, folder / "cells", workers=workers, progress=progress)
    if found.rows.empty:
        return found.checked("")
    rows = found.rows.assign(method=found.rows["bound"], problem=[_RIDGES[at] for at in found.rows["oracle_ridge"]])
    panels = {str(name): part for name, part in rows.groupby("problem", sort=False)}
    picture, title = folder / "figure8.png", "cumulative regret of Kernel TS inflated by Theorem 1 and by Lemma 3"
    note = (
        "Theorem 1, valid at both ridges and for all rounds, is better only where Lemma 3, for one round, is not valid"
    )
    streaming_plots.regret_panels(panels, picture, title=title, note=note)
    table = tables.text(tables.summary(rows, {}))
    return found.checked(f"{title}\n{note}\n\n{table}\n{_QUICK * quick}\npicture  {picture}")


PAPER = Paper(
    title="Durand, Maillard & Pineau (2018), Streaming kernel regression with provably adaptive regularization",
    tables={1: table_1},
    figures={
        **streaming_uniform.FIGURES,
        6: partial(regret, 6, ucb_players(), "cumulative regret of Kernel UCB"),
        7: partial(regret, 7, ts_players(), "cumulative regret of Kernel TS"),
        8: theorem_against_lemma,
    },
    studies={**streaming_studies.STUDIES, "width": streaming_uniform.width},
)
"""What of the paper can be repeated."""
