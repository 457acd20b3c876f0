"""Certificates that no point keeps a limit: after how many trials, by the gap to the limit."""

from __future__ import annotations

import math

import kbo
from experiments.output import tables
from experiments.papers.experiment import Frame, Plan, cells_of, store
from experiments.problems import RKHSBandit, stationary_kernel
from experiments.sweep.cells import Rows
from kbo.optimize import Certified, Constraint, Optimizer
from kbo.space import Int

GAPS = (0.2, 0.3, 0.4, -0.1)
"""Differences between the limit and the largest value; with a negative one the problem is feasible."""

_SIDE = 10
_NORM = 2.0
_NOISE = 0.1
_LENGTHSCALE = 0.3


def run(seed: int, gap: float, trials: int) -> Rows:
    """Optimise a function under a lower limit on another one, on a grid of 100 points, until there is a certificate.

    Args:
        seed: Seed of both functions and their noise. They have norm 2, a Matern 5/2 kernel and noise level 0.1.
        gap: The limit minus the largest value.
        trials: Largest number of trials.

    Returns:
        One row: ``found``, the number of trials, NaN without a certificate.
    """
    objective = _function(2 * seed)
    quantity = _function(2 * seed + 1)
    space = kbo.Space({name: Int(0, _SIDE - 1) for name in "ab"})
    points = space.points(_SIDE**2)
    assert points is not None
    limit = float(quantity.mean(space.features(points)).max()) + gap
    kernel = stationary_kernel("matern52", _LENGTHSCALE)
    setting = Certified(kernel, noise_std=_NOISE, norm_bound=_NORM)
    constraint = Constraint("g", lower=limit, noise_std=_NOISE, norm_bound=_NORM)
    optimizer = Optimizer(space, setting=setting, constraints=[constraint], seed=seed)
    for trial in range(1, trials + 1):
        params = optimizer.ask()
        x = space.features(space.unit(params).unsqueeze(0))
        optimizer.tell(params, (float(objective.observe(x)), {"g": float(quantity.observe(x))}))
        if optimizer.insight.infeasible() is not None:
            return [{"found": trial}]
    return [{"found": math.nan}]


def _function(seed: int) -> RKHSBandit:
    return RKHSBandit("matern52", _LENGTHSCALE, 2, norm=_NORM, noise_std=_NOISE, seed=seed)


def infeasible(quick: bool) -> Plan:
    """Each of the gaps."""
    seeds = 7
    trials = 200
    if quick:
        seeds = 1
        trials = 8
    return Plan(
        f"trials until no point can keep the limit, certified with probability 0.9; at most {trials}",
        {"": summary},
        {".md": store(summary), ".csv": store(lambda rows: rows)},
        cells_of(run, range(seeds), [{"gap": gap, "trials": trials} for gap in GAPS]),
    )


def summary(rows: Frame) -> Frame:
    """Return a line for each gap: the number of runs with a certificate, and the number of trials until then."""
    by_gap = rows.groupby("gap")["found"]
    table = by_gap.agg(["size", "count", "median", "min", "max"])
    table = table.rename(columns={"size": "runs", "count": "certificates", "median": "trials"})
    return table.astype(object).where(table.notna(), tables.NONE)
