"""Durand et al. (2018) with points drawn uniformly from the arms: noise bounds, ridges, envelopes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd
import torch

from experiments.bandits import BanditMethod, BanditProblem
from experiments.durand_noise import DurandNoiseBounds
from experiments.output import lines
from experiments.papers.experiment import Frame, Plan, cells_of, intervals
from experiments.sweep.cells import Cell
from kbo.bandit.method import Method
from kbo.confidence import AdaptiveMixture, NoiseLevel
from kbo.regression import FixedPoints, KernelRidge, Posterior

UPPER = 1.0
LOWER = 0.01
"""Known bounds on the noise level, which is 0.1."""

DELTA = 0.1
"""Probability of failure."""

ORACLE = "kernel-ucb-oracle"
FIXED = "kernel-ucb-fixed"
ADAPTIVE = "kernel-ucb-adaptive"
MIXTURE = "dmm-ucb-adaptive"


def problem(quick: bool, rounds: int = 2000, every: int = 20) -> BanditProblem:
    """The function of the paper on 100 fixed arms, with a norm bound of 5; a tiny run if ``quick``."""
    if quick:
        rounds = 40
        every = 10
    return BanditProblem(
        "streaming", rounds=rounds, delta=DELTA, noise_upper=UPPER, noise_lower=LOWER, every=every
    )


class _FixedGain(DurandNoiseBounds):
    """Noise bounds for a fixed ridge: the log-determinant is computed at this ridge."""

    def deviation(self, state: Posterior) -> float:
        return 2 * math.log(1 / self.event_delta) + float(state.at(self.ridge).log_det())


FIXED_RIDGE = "paper, fixed ridge"
FIXED_GAIN = "paper, fixed ridge and gain"
_FIXED: dict[str, type[DurandNoiseBounds]] = {
    FIXED_RIDGE: DurandNoiseBounds,
    FIXED_GAIN: _FixedGain,
}
"""Noise bounds at the first ridge, ``upper^2 / C^2``, which does not change.

The first has the information gain at ``lower^2 / C^2``, which the adaptive form needs; the second at the ridge itself.
"""

_MIXTURES = {"amm-adaptive": "amm", "dmm-adaptive": "dmm", "cmm-adaptive": "cmm"}
"""Kinds of ``AdaptiveMixture`` that replace the bound of the method."""

_UNKNOWN_NOISE = {
    "paper": BanditMethod(ADAPTIVE, noise_bounds="paper"),
    "tight": BanditMethod(ADAPTIVE, noise_bounds="tight"),
    "tight+grid": BanditMethod(ADAPTIVE),
    **dict.fromkeys(_MIXTURES, BanditMethod(MIXTURE)),
}
_GIVEN_NOISE = {
    ORACLE: BanditMethod(ORACLE),
    **{kind: BanditMethod(f"{kind}-ucb") for kind in ("amm", "dmm", "cmm")},
}
FORMS = {
    **_UNKNOWN_NOISE,
    **_GIVEN_NOISE,
    FIXED: BanditMethod(FIXED),
    "mixture": BanditMethod(MIXTURE),
    **dict.fromkeys(_FIXED, BanditMethod(FIXED)),
}
"""The method, by the form of its noise bounds and envelope."""


def _make(form: str) -> Method:
    """The method of a form, with its envelope."""
    method = problem(quick=False).make(FORMS[form])
    if form in _MIXTURES:
        return replace(method, confidence=AdaptiveMixture(_MIXTURES[form]))
    return method


def learn(method: str, seed: int, rounds: int, every: int) -> list[dict[str, Any]]:
    """Noise bounds, ridge, and the envelope's height above f and half width, after every ``every`` observations.

    Returns:
        Rows with ``round`` and ``ridge``; ``upper`` and ``lower`` bound on the noise level, if there are any; ``above``
        and ``half``, means over the arms, if there is an envelope.
    """
    environment = problem(quick=False).environment(seed)
    generator = torch.Generator().manual_seed(40_000 + seed)
    arms = environment.fixed_arms
    assert arms is not None
    truth = environment.mean(arms)
    made = _make(method)
    fixed = _FIXED.get(method)
    state = made.state(arms)
    bounds = state.schedule
    if fixed is not None:
        bounds = fixed(environment.norm_bound, DELTA, UPPER, LOWER, printed=True)
        state = FixedPoints(KernelRidge(environment.kernel, bounds.ridge), arms)
    rows = []
    for t in range(1, rounds + 1):
        x = arms[torch.randint(len(arms), (1,), generator=generator)]
        state.update(x, environment.observe(x))
        if fixed is not None and bounds is not None:
            bounds.ridge = state.ridge
            bounds.update(state)
        if t % every == 0:
            row: dict[str, Any] = {"round": t, "ridge": state.ridge}
            if isinstance(bounds, NoiseLevel):
                row |= {"upper": bounds.upper, "lower": bounds.lower}
            if fixed is None and made.confidence is not None:
                lower, upper = made.confidence.interval(state, arms)
                row["above"] = float((upper - truth).mean())
                row["half"] = float((upper - lower).mean() / 2)
            rows.append(row)
    return rows


def _cells(names: Iterable[str], quick: bool) -> list[Cell]:
    """Runs of forms; expensive forms are measured only after every hundred observations."""
    rounds = 1000
    seeds = 20
    every = {"cmm": 100, "cmm-adaptive": 100}
    if quick:
        rounds = 40
        seeds = 2
        every = {}
    arguments = [{"method": name, "rounds": rounds, "every": every.get(name, 10)} for name in names]
    return cells_of(learn, range(seeds), arguments)


def illustration(quick: bool) -> Plan:
    """Figure 1: the function, noisy data and envelopes after 30 and 100 observations; always quick."""
    environment = problem(quick=False).environment(0)
    generator = torch.Generator().manual_seed(40_000)
    X = torch.rand(100, 1, generator=generator, dtype=torch.float64)
    y = environment.observe(X)
    grid = torch.linspace(0, 1, 401, dtype=torch.float64).unsqueeze(-1)
    truth = environment.mean(grid)
    methods = {name: _make(name) for name in (ORACLE, FIXED, "tight+grid", "mixture")}
    panels = {}
    halves = {}
    for n in (30, 100):
        bounds = intervals(methods, X[:n], y[:n], grid)
        panels[f"n = {n}"] = ((X[:n, 0], y[:n]), bounds)
        halves[f"n = {n}"] = {
            name: float((high - low).mean() / 2) for name, (low, high) in bounds.items()
        }
    title = f"envelopes at delta = {DELTA:g}: noise 0.1, norm 2.06, given at most {UPPER:g} and 5"
    note = "the oracle is given the noise; tight+grid: Corollary 1; mixture: DMM at the learned noise level"
    x = grid[:, 0]
    return Plan(
        title,
        {"mean half width of the envelopes": lambda _: pd.DataFrame(halves).T},
        {".png": lambda _, path: lines.bounds(x, truth, panels, path, title=title, note=note)},
    )


def _quantities(names: Sequence[str], title: str, note: str, quick: bool, **look: Any) -> Plan:
    """Figures 2 to 5: quantities of forms against rounds; the text has their medians at some rounds."""

    def medians(rows: Frame) -> Frame:
        marks = [int(rows["round"].max() * part) for part in (0.1, 0.2, 0.3, 0.5, 0.7, 1.0)]
        kept = rows[rows["round"].isin(marks)]
        return kept.pivot_table(
            index="method", columns="round", values=look["values"], aggfunc="median", sort=False
        )

    draw = partial(lines.against_rounds, title=title, band="deciles", note=note, **look)
    heading = f"{title}; medians over seeds"
    return Plan(heading, {"": medians}, {".png": draw}, _cells(names, quick))


_NOISE = {"ylabel": "noise level", "level": ("true noise level", 0.1)}
FIGURES: dict[int, Callable[..., Plan]] = {
    1: illustration,
    2: partial(
        _quantities,
        [ORACLE, FIXED, "paper", "tight+grid", "mixture"],
        "upper envelope minus the function, mean over the arms; uniform points",
        "oracle, fixed: Theorem 1; paper, tight+grid: Corollary 1; through burn-in paper is worse than fixed",
        values=["above"],
        ylabel="mean height above f",
    ),
    3: partial(
        _quantities,
        ["paper", "tight", "tight+grid", "mixture"],
        "upper and lower bound of the noise level, uniform points",
        f"known beforehand: {LOWER:g} to {UPPER:g}; in burn-in upper bounds do not move, the paper's for longest",
        values=["upper", "lower"],
        **_NOISE,
    ),
    4: partial(
        _quantities,
        [FIXED_RIDGE, FIXED_GAIN, "paper", "tight", "tight+grid"],
        "upper bound of the noise level: fixed against adaptive ridge",
        "adaptive beats fixed if both pay the gain of the least ridge possible, not if fixed pays its own",
        values=["upper"],
        **_NOISE,
    ),
    5: partial(
        _quantities,
        ["paper", "tight", "tight+grid", "mixture"],
        "the ridge, uniform points",
        "the mixture takes the ridge with the smallest radius, from a grid of its own",
        values=["ridge"],
        ylabel="ridge",
        level=("oracle: noise variance / norm bound²", (0.1 / 5) ** 2),
    ),
}
"""Envelopes, their heights, noise bounds, fixed against adaptive ridges, ridges."""


def width(quick: bool) -> Plan:
    """Mean half width of the envelopes after 100, 300, 1000 uniform observations, noise level unknown and given."""
    marks = [100, 300, 1000]
    if quick:
        marks = [10, 20, 40]

    def halves(rows: Frame) -> Frame:
        kept = rows[rows["round"].isin(marks)].assign(noise="unknown")
        kept.loc[kept["method"].isin(list(_GIVEN_NOISE)), "noise"] = "given"
        return kept.pivot_table(
            index=["method", "noise"], columns="round", values="half", sort=False
        )

    return Plan(
        "mean half width of the envelopes over the arms, after n uniform observations; means over seeds",
        {"": halves},
        cells=_cells([*_UNKNOWN_NOISE, *_GIVEN_NOISE], quick),
    )
