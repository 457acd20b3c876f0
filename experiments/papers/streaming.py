"""Durand, Maillard & Pineau (2018), JMLR 19: streaming kernel regression with adaptive mean, variance and ridge.

The problem is one function on [0, 1] (``experiments.problems.StreamingBandit``) with 100 fixed arms, Gaussian noise 0.1
and norm 2.06. Methods get a norm bound of 5, delta = 0.1, and a noise level in [0.01, 1]. Oracles get the level 0.1,
and "fixed" methods use 1.

Figures 1 to 5 and the study "width" are in ``streaming_uniform``, with points drawn uniformly. The figures are numbered
by topic, and not as in print. The other studies are on noise bounds: their coverage, noise that violates the
assumptions, and regret in long runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from experiments import bandits
from experiments.bandits import BanditMethod, BanditProblem
from experiments.output import tables
from experiments.papers import streaming_uniform
from experiments.papers.experiment import (
    TOLERANCE,
    Frame,
    Paper,
    Plan,
    cells_of,
    misses,
    plan_of_regret,
    plan_of_table,
    rounds_of,
)
from experiments.papers.streaming_uniform import (
    ADAPTIVE,
    DELTA,
    FIXED,
    FORMS,
    MIXTURE,
    ORACLE,
    problem,
)
from experiments.sweep.cells import Cell, concatenate
from kbo import bandit
from kbo.bandit import Method, ThompsonSampling
from kbo.confidence import (
    AdaptiveMixture,
    Confidence,
    MixtureNoiseBounds,
    NoiseLevel,
    SelfNormalized,
    SubGaussian,
    WidthConfidence,
)
from kbo.errors import RefutedAssumptions
from kbo.regression import KernelRidge, Posterior

SEEDS = 40
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
    (f"T = {T}", method): values
    for method, line in _REFERENCE.items()
    for T, values in zip(_ROUNDS, line, strict=True)
}
"""Regret at T = 500, 1000, 2000 by an independent implementation, mean and standard deviation."""

UCB = [
    BanditMethod(ORACLE),
    BanditMethod(FIXED),
    BanditMethod(f"{ADAPTIVE}, paper", ADAPTIVE, noise_bounds="paper"),
    BanditMethod(f"{ADAPTIVE}, tight", ADAPTIVE, noise_bounds="tight"),
    BanditMethod(ADAPTIVE),
    BanditMethod(MIXTURE),
]
"""Methods of figure 6: with the noise level, with its upper bound, and adaptive with its upper bound."""

TS = [
    BanditMethod("kernel-ts-oracle"),
    BanditMethod("kernel-ts-fixed"),
    BanditMethod("kernel-ts-adaptive, paper", "kernel-ts-adaptive", noise_bounds="paper"),
    BanditMethod("kernel-ts-adaptive"),
    BanditMethod("kernel-ts"),
]
"""Methods of figure 7; "kernel-ts" is plain Thompson sampling, given the noise level, without a guarantee."""


def _cells(methods: Sequence[BanditMethod], quick: bool) -> list[Cell]:
    """The runs with all seeds, or with few seeds for methods whose steps take much longer."""
    played = [problem(quick)]
    if quick:
        return bandits.cells(played, methods, 2)
    few = 10
    fast = [method for method in methods if method.method not in ("cmm-ucb", "cmm-ucb-adaptive")]
    first = bandits.cells(played, methods, few)
    return first + bandits.cells(played, fast, range(few, SEEDS))


def at_rounds(marks: Iterable[int], rows: Frame) -> Frame:
    """The rows up to each number of rounds in ``marks``, as separate problems."""
    return concatenate(rows[rows["round"] <= T].assign(problem=f"T = {T}") for T in marks)


def table_1(quick: bool) -> Plan:
    """Cumulative regret at T = 500, 1000, 2000 of everything, beside an independent implementation."""
    marks = _ROUNDS
    if quick:
        marks = (10, 20, 40)
    mixtures = [BanditMethod(name) for name in ("cmm-ucb-adaptive", "dmm-ucb", "cmm-ucb")]
    return plan_of_table(
        "cumulative regret, mean ± standard deviation over the runs; published: an independent implementation",
        _cells([*UCB, *mixtures, *TS], quick),
        partial(at_rounds, marks),
        INDEPENDENT,
    )


def regret(methods: list[BanditMethod], title: str, quick: bool) -> Plan:
    """Figures 6 and 7: cumulative regret against rounds."""
    note = "burn-in: as long as the noise bound has not moved, the paper's adaptive form is worse than fixed"
    plan = plan_of_regret(
        title, _cells(methods, quick), band="deciles", log="", ends=True, note=note
    )
    marks = _ROUNDS
    if quick:
        marks = (40,)

    def table(rows: Frame) -> Frame:
        return tables.final(at_rounds(marks, rows), INDEPENDENT)

    return replace(plan, tables={"": table})


class Lemma3(SubGaussian, WidthConfidence):
    """Lemma 3 (after Wang & de Freitas 2014), for draws from ``N(mean, v^2 sigma^2 / ridge covariance)``, Sec. 6.4.

    As printed, it holds only at ridge ``noise_std^2`` and for one round at a time, and depends on the units. With
    ``g = log_det / 2``,
    ``v^2 = B^2 + sqrt(8 g ln(2/delta)) + sqrt(2 ln(4/delta)) B + 2 g + 2 sigma ln(2/delta)``.
    """

    def __init__(self, noise_std: float, norm_bound: float, delta: float) -> None:
        super().__init__(noise_std, norm_bound, delta)
        self.guarantee: str | None = None

    def width(self, state: Posterior) -> Tensor:
        g = state.at().log_det() / 2
        B = self.norm_bound
        sigma = self.noise_std
        log2 = math.log(2 / self.delta)
        log4 = math.log(4 / self.delta)
        square = (
            B**2 + torch.sqrt(8 * g * log2) + math.sqrt(2 * log4) * B + 2 * g + 2 * sigma * log2
        )
        return torch.sqrt(square) * sigma / math.sqrt(state.ridge)


def play_inflated(
    method: str, oracle_ridge: bool, seed: int, rounds: int, every: int
) -> list[dict[str, Any]]:
    """Regret of Kernel TS inflated by "Theorem 1" or "Lemma 3", at ridge sigma^2 / C^2 or sigma^2."""
    environment = problem(quick=False).environment(seed)
    sigma = environment.noise_std
    C = environment.norm_bound
    inflations = {"Theorem 1": SelfNormalized, "Lemma 3": Lemma3}
    confidence = inflations[method](sigma, C, DELTA / 12)
    ridge = sigma**2
    if oracle_ridge:
        ridge = (sigma / C) ** 2
    made = Method(partial(KernelRidge, environment.kernel, ridge), confidence, ThompsonSampling())
    rows = bandit.play(made, environment, rounds, seed)
    return [row for row in rows if row["round"] % every == 0]


_RIDGES = {False: "ridge σ², where Lemma 3 is valid", True: "ridge σ² / C², where it is not"}


def theorem_against_lemma(quick: bool) -> Plan:
    """Figure 8: Theorem 1 and Lemma 3 as inflation of Kernel TS that is given the noise level, at two ridges."""
    rounds = 1000
    every = 20
    seeds = SEEDS
    if quick:
        rounds = 40
        every = 10
        seeds = 2
    title = "cumulative regret of Kernel TS inflated by Theorem 1 and by Lemma 3"
    note = "Theorem 1, valid at both ridges and for all rounds, is better only where Lemma 3 (for one round) is not"
    methods = [
        {"method": bound, "oracle_ridge": oracle_ridge, "rounds": rounds, "every": every}
        for oracle_ridge in _RIDGES
        for bound in ("Theorem 1", "Lemma 3")
    ]
    plan = plan_of_regret(
        title,
        cells_of(play_inflated, range(seeds), methods),
        lambda rows: rows.assign(problem=rows["oracle_ridge"].map(_RIDGES)),
        panel="problem",
        band="deciles",
        log="",
        note=note,
    )
    return replace(plan, title=f"{title}\n{note}")


_SKETCH = {"kind": "greedy", "threshold": 0.01}
WATCHED = {
    **{name: FORMS[name] for name in ("paper", "tight", "tight+grid", "mixture")},
    "tight+grid, sketched": BanditMethod(ADAPTIVE, dictionary=_SKETCH),
    "mixture, sketched": BanditMethod(MIXTURE, dictionary=_SKETCH),
}
"""Methods by the form of their noise bounds."""

FAILURES = ("upper < sigma", "lower > sigma", "envelope", "cmm envelope", "refuted")
"""Failures of a run; the envelope of CMM is computed beside that of DMM."""

_NORM = 2.06
"""The norm of the function, and the norm bound that is given."""


def watch(
    form: str, noise: str, seed: int, rounds: int, noise_upper: float | None
) -> list[dict[str, Any]]:
    """Failures of a method on 100 fixed arms, when the norm bound is the norm of the function; see ``FAILURES``.

    Returns:
        One row: the failures, the last noise bounds, the last round, and ``closest``, the largest
        ``|f - centre| / half width`` of the envelope that was seen.
    """
    options = {"noise": noise, "norm": _NORM, "norm_bound": _NORM}
    run = BanditProblem(
        "streaming", options, rounds, DELTA, noise_upper=noise_upper, noise_lower=0.01
    )
    environment = run.environment(seed)
    method = run.make(WATCHED[form], seed)
    arms = environment.fixed_arms
    assert arms is not None
    truth = environment.mean(arms)
    state = method.state(arms)
    bounds = state.schedule
    assert isinstance(bounds, NoiseLevel)
    confidence = method.confidence
    assert confidence is not None
    cmm = AdaptiveMixture("cmm")
    failed = dict.fromkeys(FAILURES, False)
    closest = 0.0
    ended = 0
    steps = rounds_of(method, environment, state, rounds)
    try:
        for t in range(1, rounds + 1):
            ended = t
            next(steps)
            if t % 10 == 0 or t == rounds:
                closest = max(closest, _reach(confidence, state, arms, truth))
            is_milestone = t % 100 == 0 or t in (20, 50, rounds)
            if is_milestone and isinstance(bounds, MixtureNoiseBounds):
                failed["cmm envelope"] |= _reach(cmm, state, arms, truth) > 1 + TOLERANCE
    except RefutedAssumptions:
        failed["refuted"] = True
    failed["upper < sigma"] = bounds.upper < environment.noise_std
    failed["lower > sigma"] = bounds.lower > environment.noise_std
    failed["envelope"] = closest > 1 + TOLERANCE
    last = {"upper": bounds.upper, "lower": bounds.lower, "closest": closest, "ended": ended}
    return [{**failed, **last}]


def _reach(confidence: Confidence, state: Posterior, arms: Tensor, truth: Tensor) -> float:
    """The largest ``|f - centre| / half width`` over the arms; 0 while there are no bounds."""
    if not confidence.finite_on(state):
        return 0.0
    error, half = misses(confidence, state, arms, truth)
    return float((error / half).max())


def _watched(
    forms: list[str], noise: str, seeds: Sequence[int], rounds: int, noise_upper: float | None
) -> list[Cell]:
    """Runs of ``watch``, of every form with every seed."""
    arguments = [
        {"form": form, "noise": noise, "rounds": rounds, "noise_upper": noise_upper}
        for form in forms
    ]
    return cells_of(watch, seeds, arguments, at_once=20)


def coverage(quick: bool) -> Plan:
    """Failures in 1000 adaptive runs of 300 rounds, half with Gaussian, half with Rademacher noise."""
    runs = 1000
    rounds = 300
    if quick:
        runs = 2
        rounds = 40
    forms = [form for form in WATCHED if form != "tight"]
    middle = 90_000 + runs // 2
    return Plan(
        f"runs of {rounds} adaptive rounds in which something failed; promised: at most {DELTA:.0%} of a form\n"
        f"noise 0.1, known to lie in [0.01, 0.3]; norm bound = norm = {_NORM:g}; envelopes at all arms, every tenth",
        {"": partial(_counts, ["noise"])},
        cells=[
            *_watched(forms, "gaussian", range(90_000, middle), rounds, 0.3),
            *_watched(forms, "rademacher", range(middle, 90_000 + runs), rounds, 0.3),
        ],
    )


def outside(quick: bool) -> Plan:
    """Failures with noise that violates the assumptions: Laplace, and rare spikes; 300 runs each."""
    runs = 300
    rounds = 300
    if quick:
        runs = 2
        rounds = 40
    # The first two forms need an upper bound.
    forms = {0.2: ["paper", "tight", "tight+grid", "mixture"], None: ["tight+grid", "mixture"]}
    cells = []
    for start, noise in ((95_000, "spikes"), (96_000, "laplace")):
        for noise_upper, some in forms.items():
            cells += _watched(some, noise, range(start, start + runs), rounds, noise_upper)

    def with_known(rows: Frame) -> Frame:
        known = rows["noise_upper"].astype(float).map("{:g}".format)
        return rows.assign(known=known.replace("nan", "none"))

    return Plan(
        f"runs of {rounds} adaptive rounds in which something failed; the assumptions are false, nothing is promised\n"
        f"noise of standard deviation 0.1; known: an upper bound beforehand; norm bound = norm = {_NORM:g}",
        {"": partial(_counts, ["noise", "known"])},
        cells=cells,
        prepare=with_known,
    )


def _counts(by: list[str], rows: Frame) -> Frame:
    """Failed runs and their failures, a line for every form and setting."""
    groups = rows.groupby([*by, "form"], sort=False)
    table = groups[list(FAILURES)].sum().astype(object)
    table.insert(0, "runs", groups.size())
    without_cmm = [WATCHED[form].method != MIXTURE for form in table.index.get_level_values("form")]
    table.loc[without_cmm, "cmm envelope"] = tables.NONE
    ends = groups.agg(
        closest=("closest", "max"), upper=("upper", "median"), lower=("lower", "median")
    )
    return table.join(ends.rename(columns={"upper": "median upper", "lower": "median lower"}))


def slope(quick: bool) -> Plan:
    """Regret per round near the end of 5000 rounds, of adaptive methods and of the method with the noise level."""
    rounds = 5000
    seeds = 20
    tail = 1000
    if quick:
        rounds = 40
        seeds = 2
        tail = 20

    def slopes(rows: Frame) -> Frame:
        table = rows.pivot_table(
            index="seed", columns=["round", "method"], values="cumulative", sort=False
        )
        slope = 1000 * (table[rounds] - table[rounds - tail]) / tail
        differences = slope.sub(slope[ORACLE], axis=0)
        return pd.DataFrame(
            {
                "slope": slope.apply(tables.with_error),
                "median": slope.median(),
                "minus oracle": differences.apply(tables.with_error),
                "regret at the end": table[rounds].mean(),
            }
        )

    return Plan(
        f"1000 times the regret a round, rounds {rounds - tail} to {rounds}: mean ± standard error, {seeds} seeds;\n"
        "differences are paired by seed",
        {"": slopes},
        cells=bandits.cells(
            [problem(quick, rounds, every=100)], (ORACLE, ADAPTIVE, MIXTURE), seeds
        ),
    )


PAPER = Paper(
    title="Durand, Maillard & Pineau (2018), Streaming kernel regression with provably adaptive regularization",
    tables={1: table_1},
    figures={
        **streaming_uniform.FIGURES,
        6: partial(regret, UCB, "cumulative regret of Kernel UCB"),
        7: partial(regret, TS, "cumulative regret of Kernel TS"),
        8: theorem_against_lemma,
    },
    studies={
        "slope": slope,
        "coverage": coverage,
        "outside": outside,
        "width": streaming_uniform.width,
    },
)


if __name__ == "__main__":
    from experiments.papers.command import main

    main("streaming")
