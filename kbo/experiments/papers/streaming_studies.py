"""Studies of noise bounds: their coverage, noise outside of the assumptions, and regret in long runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd

from kbo.confidence import AdaptiveMixture, Confidence, NoiseBounds
from kbo.errors import RefutedAssumptions
from kbo.experiments import bandits
from kbo.experiments.bandits import BanditMethod, BanditProblem
from kbo.experiments.draw import tables
from kbo.experiments.papers import streaming, streaming_uniform
from kbo.experiments.papers.experiment import TOLERANCE, Frame, Plan, cells_of, misses, rounds_of
from kbo.experiments.papers.streaming_uniform import ADAPTIVE, DELTA, FORMS, MIXTURE, ORACLE, problem
from kbo.experiments.sweep.cells import Cell

_SKETCH = {"kind": "greedy", "threshold": 0.01}
WATCHED = {
    **{name: FORMS[name].method for name in ("paper", "tight", "tight+grid", "mixture")},
    "tight+grid, sketched": BanditMethod(ADAPTIVE, dictionary=_SKETCH),
    "mixture, sketched": BanditMethod(MIXTURE, dictionary=_SKETCH),
}
"""Methods by the form of their noise bounds."""

FAILURES = ("upper < sigma", "lower > sigma", "envelope", "cmm envelope", "refuted")
"""Failures of a run; the envelope of CMM is computed beside that of DMM."""

_NORM = 2.06


def watch(form: str, noise: str, seed: int, rounds: int, noise_upper: float | None) -> list[dict[str, Any]]:
    """Failures of a method on 100 fixed arms, when the norm bound is the norm of the function; see ``FAILURES``.

    Returns:
        One row: the failures, the last noise bounds, the last round, and ``closest``, the largest
        ``|f - centre| / half width`` of the envelope that was seen.
    """
    options = {"noise": noise, "norm": _NORM, "norm_bound": _NORM}
    run = BanditProblem("streaming", options, rounds, DELTA, noise_upper=noise_upper, noise_lower=0.01)
    environment, method = run.environment(seed), run.make(WATCHED[form], seed)
    arms, sigma = environment.fixed_arms, environment.noise_std
    assert arms is not None
    at = (state := method.state(arms)), arms, environment.mean(arms)
    bounds, confidence, t = state.schedule, method.confidence, 0
    assert isinstance(bounds, NoiseBounds)
    assert confidence is not None
    failed, closest, cmm = dict.fromkeys(FAILURES, False), 0.0, AdaptiveMixture("cmm")
    steps = rounds_of(method, environment, state, rounds)
    try:
        for t in range(1, rounds + 1):
            next(steps)
            if t % 10 == 0 or t == rounds:
                closest = max(closest, _reach(confidence, *at))
                if bounds.variant == "mixture" and (t % 100 == 0 or t in (20, 50, rounds)):
                    failed["cmm envelope"] |= _reach(cmm, *at) > 1 + TOLERANCE
    except RefutedAssumptions:
        failed["refuted"] = True
    failed |= {"upper < sigma": bounds.upper < sigma, "lower > sigma": bounds.lower > sigma}
    failed["envelope"] = closest > 1 + TOLERANCE
    seen = {"upper": bounds.upper, "lower": bounds.lower, "closest": closest, "ended": t}
    return [{**failed, **seen}]


def _reach(confidence: Confidence, state: Any, *at: Any) -> float:
    """The largest ``|f - centre| / half width`` over the arms; 0 as long as there are no bounds."""
    if not confidence.finite_on(state):
        return 0.0
    error, half = misses(confidence, state, *at)
    return float((error / half).max())


def _cells(forms: list[str], noise: str, seeds: Sequence[int], rounds: int, noise_upper: float | None) -> list[Cell]:
    arguments = [{"form": form, "noise": noise, "rounds": rounds, "noise_upper": noise_upper} for form in forms]
    return cells_of(watch, seeds, arguments, at_once=20)


def coverage(quick: bool) -> Plan:
    """Failures in 1000 adaptive runs of 300 rounds, half with Gaussian, half with Rademacher noise."""
    runs, rounds = (2, 40) if quick else (1000, 300)
    forms, half = [form for form in WATCHED if form != "tight"], runs // 2
    return Plan(
        f"runs of {rounds} adaptive rounds in which something failed; promised: at most {DELTA:.0%} of a form\n"
        f"noise 0.1, known to lie in [0.01, 0.3]; norm bound = norm = {_NORM:g}; envelopes at all arms, every tenth",
        {"": partial(_counts, ["noise"])},
        cells=[
            *_cells(forms, "gaussian", range(90_000, 90_000 + half), rounds, 0.3),
            *_cells(forms, "rademacher", range(90_000 + half, 90_000 + runs), rounds, 0.3),
        ],
    )


def outside(quick: bool) -> Plan:
    """Failures with noise outside of the assumptions: Laplace, and rare spikes; 300 runs each."""
    runs, rounds = (2, 40) if quick else (300, 300)
    forms = {0.2: ["paper", "tight", "tight+grid", "mixture"], None: ["tight+grid", "mixture"]}  # others need a bound

    def with_known(rows: Frame) -> Frame:
        known = rows["noise_upper"].astype(float)
        return rows.assign(known=["none" if value != value else f"{value:g}" for value in known])

    return Plan(
        f"runs of {rounds} adaptive rounds in which something failed; the assumptions are false, nothing is promised\n"
        f"noise of standard deviation 0.1; known: an upper bound beforehand; norm bound = norm = {_NORM:g}",
        {"": partial(_counts, ["noise", "known"])},
        cells=[
            cell
            for start, noise in ((95_000, "spikes"), (96_000, "laplace"))
            for noise_upper, some in forms.items()
            for cell in _cells(some, noise, range(start, start + runs), rounds, noise_upper)
        ],
        prepare=with_known,
    )


def _counts(by: list[str], rows: Frame) -> Frame:
    """Failed runs and their failures, a line for every form and setting."""
    groups = rows.groupby([*by, "form"], sort=False)
    table = groups[list(FAILURES)].sum().astype(object)
    table.insert(0, "runs", groups.size())
    without_cmm = [WATCHED[form].method != MIXTURE for form in table.index.get_level_values("form")]
    table.loc[without_cmm, "cmm envelope"] = tables.NONE
    ends = groups.agg(closest=("closest", "max"), upper=("upper", "median"), lower=("lower", "median"))
    return table.join(ends.rename(columns={"upper": "median upper", "lower": "median lower"}))


def slope(quick: bool) -> Plan:
    """Regret a round near the end of 5000 rounds, of adaptive methods and of the one that is given the noise level."""
    rounds, seeds, tail = (40, 2, 20) if quick else (5000, 20, 1000)

    def slopes(rows: Frame) -> Frame:
        table = rows.pivot_table(index="seed", columns=["round", "method"], values="cumulative", sort=False)
        found = 1000 * (table[rounds] - table[rounds - tail]) / tail
        against = found.sub(found[ORACLE], axis=0)
        return pd.DataFrame(
            {
                "slope": found.apply(tables.with_error),
                "median": found.median(),
                "minus oracle": against.apply(tables.with_error),
                "regret at the end": table[rounds].mean(),
            }
        )

    return Plan(
        f"1000 times the regret a round, rounds {rounds - tail} to {rounds}: mean ± standard error, {seeds} seeds;\n"
        "differences are paired by seed",
        {"": slopes},
        cells=bandits.cells([problem(quick, rounds, every=100)], (ORACLE, ADAPTIVE, MIXTURE), seeds),
    )


PAPER = replace(
    streaming.PAPER,
    studies={"slope": slope, "coverage": coverage, "outside": outside, "width": streaming_uniform.width},
)
