"""Do noise bounds and envelopes hold, what if the noise is not as assumed, and does adapting pay in the end?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from kbo.confidence import AdaptiveMixture, Confidence, NoiseBounds
from kbo.errors import RefutedAssumptions
from kbo.experiments.bandits import BanditMethod, BanditProblem
from kbo.experiments.draw import tables
from kbo.experiments.papers.streaming_methods import ADAPTIVE, DELTA, MIXTURE, ORACLE, game
from kbo.experiments.sweep.cells import Cell
from kbo.experiments.sweep.runner import Workers, sweep

if TYPE_CHECKING:
    import pandas as pd

_SKETCH = {"kind": "greedy", "threshold": 0.01}
WATCHED = {
    "paper": BanditMethod(ADAPTIVE, noise_variant="paper"),
    "tight": BanditMethod(ADAPTIVE, noise_variant="tight"),
    "tight+grid": BanditMethod(ADAPTIVE),
    "mixture": BanditMethod(MIXTURE),
    "tight+grid, sketched": BanditMethod(ADAPTIVE, dictionary=_SKETCH),
    "mixture, sketched": BanditMethod(MIXTURE, dictionary=_SKETCH),
}
"""Players by the form of their noise bounds."""

FAILURES = ("upper < sigma", "lower > sigma", "envelope", "cmm envelope", "refuted")
"""What may go wrong in a run; the envelope of CMM is looked at beside that of DMM."""

_NORM, _RUNS_A_CELL = 2.06, 20


def watch(form: str, noise: str, first: int, runs: int, rounds: int, noise_upper: float | None) -> list[dict[str, Any]]:
    """What went wrong in ``runs`` runs with seeds from ``first``; see ``FAILURES``.

    Returns:
        A row for every run: the failures, the last noise bounds, the last round, and ``closest``, the largest
        ``|f - centre| / half width`` of the envelope that was seen.
    """
    return [_watch(form, noise, seed, rounds, noise_upper) for seed in range(first, first + runs)]


def _watch(form: str, noise: str, seed: int, rounds: int, noise_upper: float | None) -> dict[str, Any]:
    """One run of the player on 100 fixed arms; the norm that it is told is that of the function."""
    options = {"noise": noise, "norm": _NORM, "norm_bound": _NORM}
    played = BanditProblem("streaming", options, rounds, DELTA, noise_upper=noise_upper, noise_lower=0.01)
    problem, player = played.environment(seed), played.make(WATCHED[form], seed)
    arms, sigma = problem.fixed_arms, problem.noise_std
    assert arms is not None
    truth, state, cmm = problem.mean(arms), player.state(arms), AdaptiveMixture("cmm")
    bounds, confidence, t = state.schedule, player.confidence, 0
    assert isinstance(bounds, NoiseBounds)
    assert confidence is not None
    failed, closest = dict.fromkeys(FAILURES, False), 0.0
    try:
        for t in range(1, rounds + 1):
            index = player.choose(state, arms)
            state.update(arms[index : index + 1], problem.observe(arms[index : index + 1]))
            if t % 10 == 0 or t == rounds:
                closest = max(closest, _reach(confidence, state, arms, truth))
                if bounds.variant == "mixture" and (t % 100 == 0 or t in (20, 50, rounds)):
                    failed["cmm envelope"] |= _reach(cmm, state, arms, truth) > 1 + 1e-9
    except RefutedAssumptions:
        failed["refuted"] = True
    failed |= {"upper < sigma": bounds.upper < sigma, "lower > sigma": bounds.lower > sigma}
    failed["envelope"] = closest > 1 + 1e-9
    seen = {"upper": bounds.upper, "lower": bounds.lower, "closest": closest, "ended": t}
    return {"seed": seed, **failed, **seen}


def _reach(confidence: Confidence, state: Any, arms: Tensor, truth: Tensor) -> float:
    """The largest ``|f - centre| / half width`` over the arms; 0 as long as there are no bounds."""
    if not confidence.finite_on(state):
        return 0.0
    lower, upper = confidence.interval(state, arms)
    return float(((truth - (lower + upper) / 2).abs() / ((upper - lower) / 2)).max())


def _cells(form: str, noise: str, start: int, runs: int, rounds: int, noise_upper: float | None) -> list[Cell]:
    size = min(runs, _RUNS_A_CELL)
    return [
        Cell(
            f"{__name__}:watch",
            {
                "form": form,
                "noise": noise,
                "first": first,
                "runs": size,
                "rounds": rounds,
                "noise_upper": noise_upper,
            },
            f"watch {form} {noise} {noise_upper or 'none'} {first}",
        )
        for first in range(start, start + runs, size)
    ]


def coverage(folder: Path, quick: bool, workers: Workers, progress: bool) -> str:
    """1000 adaptive runs of 300 rounds, half with Gaussian, half with Rademacher noise: does anything fail?"""
    runs, rounds = (2, 40) if quick else (1000, 300)
    forms = [form for form in WATCHED if form != "tight"]
    parts = [
        _cells(form, noise, start, runs // 2, rounds, 0.3)
        for start, noise in ((90_000, "gaussian"), (90_000 + runs // 2, "rademacher"))
        for form in forms
    ]
    cells = [cell for balanced in zip(*parts, strict=True) for cell in balanced]
    found = sweep(cells, folder / "cells", workers=workers, progress=progress)
    heading = (
        f"runs of {rounds} adaptive rounds in which something failed; promised: at most {DELTA:.0%} of a form\n"
        f"noise 0.1, known to lie in [0.01, 0.3]; norm bound = norm = {_NORM:g}; envelopes at all arms, every tenth"
    )
    return found.checked(f"{heading}\n\n{_counts(found.rows, ['noise'])}" if len(found.rows) else "")


def outside(folder: Path, quick: bool, workers: Workers, progress: bool) -> str:
    """The same with noise that no assumption covers: Laplace, and rare spikes; 300 runs each."""
    runs, rounds = (2, 40) if quick else (300, 300)
    parts = [
        _cells(form, noise, start, runs, rounds, noise_upper)
        for start, noise in ((95_000, "spikes"), (96_000, "laplace"))
        for noise_upper in (0.2, None)
        for form in ("paper", "tight", "tight+grid", "mixture")
        if noise_upper is not None or form not in ("paper", "tight")  # these need one to begin with
    ]
    cells = [cell for balanced in zip(*parts, strict=True) for cell in balanced]
    found = sweep(cells, folder / "cells", workers=workers, progress=progress)
    if found.rows.empty:
        return found.checked("")
    known = found.rows["noise_upper"].astype(float)
    found.rows["known"] = ["none" if value != value else f"{value:g}" for value in known]
    heading = (
        f"runs of {rounds} adaptive rounds in which something failed; the assumptions are false, nothing is promised\n"
        f"noise of standard deviation 0.1; known: an upper bound beforehand; norm bound = norm = {_NORM:g}"
    )
    return found.checked(f"{heading}\n\n{_counts(found.rows, ['noise', 'known'])}")


def _counts(rows: pd.DataFrame, by: list[str]) -> str:
    """How many runs failed and how, a line for every form and setting."""
    lines: list[tuple[str, ...]] = [(*by, "form", "runs", *FAILURES, "closest", "median upper", "median lower")]
    for found, part in rows.groupby([*by, "form"], sort=False):
        key = [str(value) for value in found]  # pyright: ignore[reportGeneralTypeIssues]
        counts = [str(part[name].sum()) for name in FAILURES]
        if not key[-1].startswith("mixture"):
            counts[FAILURES.index("cmm envelope")] = tables.NONE
        ends = f"{part['closest'].max():.2f}", f"{part['upper'].median():.3f}", f"{part['lower'].median():.3f}"
        lines.append((*key, str(len(part)), *counts, *ends))
    return tables.aligned(lines)


def slope(folder: Path, quick: bool, workers: Workers, progress: bool) -> str:
    """Regret a round near the end of 5000: do those that learn the noise reach the one that is told?"""
    rounds, seeds, tail = (40, 2, 20) if quick else (5000, 20, 1000)
    played = game(quick, rounds, every=100)
    methods = (ORACLE, ADAPTIVE, MIXTURE)
    cells = [played.cell(method, seed) for seed in range(seeds) for method in methods]
    found = sweep(cells, folder / "cells", workers=workers, progress=progress)
    if found.rows.empty:
        return found.checked("")
    table = found.rows.pivot_table(index="seed", columns=["method", "round"], values="cumulative", sort=False)
    slopes = {method: 1000 * (table[method, rounds] - table[method, rounds - tail]) / tail for method in methods}
    lines: list[tuple[str, ...]] = [("method", "slope", "median", "minus oracle", "regret at the end")]
    for method, values in slopes.items():
        against = tables.NONE if method == ORACLE else _with_error(values - slopes[ORACLE])
        lines.append(
            (method, _with_error(values), f"{values.median():.2f}", against, f"{table[method, rounds].mean():.1f}")
        )
    heading = (
        f"1000 times the regret a round, rounds {rounds - tail} to {rounds}: mean ± standard error, {seeds} seeds;\n"
        "differences are paired by seed"
    )
    return found.checked(f"{heading}\n\n{tables.aligned(lines)}")


def _with_error(values: Any) -> str:
    return f"{values.mean():.2f} ± {values.sem():.2f}"


STUDIES = {"slope": slope, "coverage": coverage, "outside": outside}
"""Studies of this file by name."""
