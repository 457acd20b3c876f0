"""Durand, Maillard & Pineau (2018), JMLR 19: streaming kernel regression with adaptive mean, variance and ridge.

One function on [0, 1] (``kbo.problems.StreamingBandit``): 100 fixed arms, Gaussian noise 0.1, norm 2.06. Methods are
given a norm of at most 5, delta = 0.1, and a noise level in [0.01, 1]; oracles are given 0.1, "fixed" takes 1 for it.

Figures 1 to 5 are in ``streaming_uniform``, where points are drawn uniformly. The numbers follow the story of the
paper and not the order of its prints.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor

from kbo import bandit
from kbo.confidence import SelfNormalized, WangDeFreitas, widths
from kbo.experiments import bandits
from kbo.experiments.bandits import BanditMethod
from kbo.experiments.draw import tables
from kbo.experiments.papers import streaming_uniform
from kbo.experiments.papers.experiment import Frame, Paper, Plan, cells_of, plan_of_regret, store
from kbo.experiments.papers.streaming_uniform import ADAPTIVE, DELTA, FIXED, MIXTURE, ORACLE, problem
from kbo.experiments.sweep.cells import Cell, concatenate
from kbo.recipes import Method, ThompsonSampling
from kbo.regression import Posterior

SEEDS, EXPENSIVE_SEEDS = 40, 10
_ROUNDS = (500, 1000, 2000)

_REFERENCE = {
    "kernel-ucb-oracle": ((14.9, 1.5), (18.9, 1.9), (24.6, 2.9)),
    "kernel-ucb-fixed": ((130.6, 1.3), (211.8, 2.4), (322.7, 3.3)),
    "kernel-ucb-adaptive, paper": ((153.4, 1.2), (173.1, 1.5), (181.0, 1.7)),
    "kernel-ucb-adaptive": ((60.8, 1.0), (64.7, 1.3), (70.1, 2.2)),
    "kernel-ts-oracle": ((66.4, 3.4), (93.7, 3.8), (129.4, 4.4)),
    "kernel-ts-fixed": ((188.8, 4.6), (357.3, 6.3), (661.4, 6.7)),
    "kernel-ts-adaptive, paper": ((197.5, 4.4), (330.2, 5.7), (415.2, 7.2)),
    "kernel-ts-adaptive": ((136.1, 3.6), (166.4, 4.6), (198.6, 5.7)),
}

INDEPENDENT: tables.Published = {
    (f"T = {T}", method): values for method, line in _REFERENCE.items() for T, values in zip(_ROUNDS, line, strict=True)
}
"""Regret at T = 500, 1000, 2000 by an independent implementation, mean and standard deviation."""

_BURN_IN = "burn-in: as long as the noise bound has not moved, the paper's adaptive form is worse than fixed"


UCB = [
    BanditMethod(ORACLE),
    BanditMethod(FIXED),
    BanditMethod(f"{ADAPTIVE}, paper", ADAPTIVE, noise_variant="paper"),
    BanditMethod(f"{ADAPTIVE}, tight", ADAPTIVE, noise_variant="tight"),
    BanditMethod(ADAPTIVE),
    BanditMethod(MIXTURE),
]
"""Methods of figure 6: given the noise level, given its upper bound, and given as much but adaptive."""

TS = [
    BanditMethod("kernel-ts-oracle"),
    BanditMethod("kernel-ts-fixed"),
    BanditMethod("kernel-ts-adaptive, paper", "kernel-ts-adaptive", noise_variant="paper"),
    BanditMethod("kernel-ts-adaptive"),
    BanditMethod("kernel-ts"),
]
"""Methods of figure 7; "kernel-ts" is plain Thompson sampling, given the noise level, without a guarantee."""

EXPENSIVE = {"cmm-ucb", "cmm-ucb-adaptive"}
"""Methods whose steps take so much longer that fewer seeds are run."""


def _cells(methods: Sequence[BanditMethod], quick: bool) -> list[Cell]:
    seeds, expensive = (2, 2) if quick else (SEEDS, EXPENSIVE_SEEDS)
    fast = [method for method in methods if method.method not in EXPENSIVE]
    first = bandits.cells([problem(quick)], methods, expensive)
    return first + bandits.cells([problem(quick)], fast, range(expensive, seeds))


def at_rounds(marks: Iterable[int], rows: Frame) -> Frame:
    """The rows up to so many rounds, as problems of their own."""
    return concatenate(rows[rows["round"] <= T].assign(problem=f"T = {T}") for T in marks)


def table_1(quick: bool) -> Plan:
    """Cumulative regret at T = 500, 1000, 2000 of everything, beside an independent implementation."""
    summary = partial(tables.summary, published=INDEPENDENT)
    return Plan(
        "cumulative regret, mean ± standard deviation over the runs; published: an independent implementation",
        {"": partial(tables.final, published=INDEPENDENT)},
        {".csv": store(summary), ".md": store(lambda rows: tables.crossed(summary(rows)))},
        _cells([*UCB, *map(BanditMethod, ("cmm-ucb-adaptive", "dmm-ucb", "cmm-ucb")), *TS], quick),
        prepare=partial(at_rounds, (10, 20, 40) if quick else _ROUNDS),
    )


def regret(methods: list[BanditMethod], title: str, quick: bool) -> Plan:
    """Figures 6 and 7: cumulative regret against rounds."""
    plan = plan_of_regret(title, _cells(methods, quick), band="deciles", log="", ends=True, note=_BURN_IN)
    marks = (40,) if quick else _ROUNDS
    return replace(plan, tables={"": lambda rows: tables.final(at_rounds(marks, rows), INDEPENDENT)})


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
    environment = problem(quick=False).environment(seed)
    sigma, C = environment.noise_std, environment.norm_bound
    confidence = {"Theorem 1": SelfNormalized, "Lemma 3": _Lemma3}[bound](sigma, C, DELTA / 12)
    ridge = (sigma / C) ** 2 if oracle_ridge else sigma**2
    method = Method(bound, environment.kernel, ridge, confidence, rule=ThompsonSampling())
    return [row for row in bandit.play(method, environment, rounds, seed) if row["round"] % every == 0]


_RIDGES = {False: "ridge σ², where Lemma 3 is valid", True: "ridge σ² / C², where it is not"}


def theorem_against_lemma(quick: bool) -> Plan:
    """Figure 8: Theorem 1 and Lemma 3 as inflation of Kernel TS that is given the noise level, at two ridges."""
    rounds, every, seeds = (40, 10, 2) if quick else (1000, 20, SEEDS)
    title = "cumulative regret of Kernel TS inflated by Theorem 1 and by Lemma 3"
    note = (
        "Theorem 1, valid at both ridges and for all rounds, is better only where Lemma 3, for one round, is not valid"
    )
    methods = [
        {"bound": bound, "oracle_ridge": oracle_ridge, "rounds": rounds, "every": every}
        for oracle_ridge in _RIDGES
        for bound in ("Theorem 1", "Lemma 3")
    ]
    plan = plan_of_regret(
        title,
        cells_of(play_inflated, range(seeds), methods),
        lambda rows: rows.assign(method=rows["bound"], problem=[_RIDGES[at] for at in rows["oracle_ridge"]]),
        panel="problem",
        band="deciles",
        log="",
        note=note,
    )
    return replace(plan, title=f"{title}\n{note}")


PAPER = Paper(
    title="Durand, Maillard & Pineau (2018), Streaming kernel regression with provably adaptive regularization",
    tables={1: table_1},
    figures={
        **streaming_uniform.FIGURES,
        6: partial(regret, UCB, "cumulative regret of Kernel UCB"),
        7: partial(regret, TS, "cumulative regret of Kernel TS"),
        8: theorem_against_lemma,
    },
)
"""The tables and figures; ``streaming_studies`` adds the studies."""
