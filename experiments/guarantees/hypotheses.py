"""Figures of docs/reliability.md about lists of hypotheses, with and without a true one.

``python -m experiments.guarantees.hypotheses [RUNS]``
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from statistics import mean
from typing import NamedTuple

from torch import Tensor

from experiments.problems import RKHSBandit
from experiments.problems.rkhs import SMOOTHNESS, stationary_kernel
from kbo import KernelRidge
from kbo.confidence import MartingaleMixture
from kbo.errors import RefutedAssumptions
from kbo.optimize.surrogates.hypotheses_surrogate import UnionBound, union
from kbo.optimize.surrogates.surrogate import Bound

ROUNDS = 40
NORM = 10.0
NOISE = 0.1
DELTA = 0.1

HYPOTHESES = [
    (kernel, lengthscale)
    for kernel in ("matern12", "matern32", "matern52")
    for lengthscale in (0.1, 0.2, 0.4, 0.8, 1.6)
]
"""Kernel and lengthscale of each hypothesis; all have the same norm bound and noise."""


class Run(NamedTuple):
    """What a list said in one run.

    Attributes:
        wrong: Whether the union missed the function at some point in some round.
        refuted: Whether the data refuted the whole list.
        width: Mean width of the union after the last round; None if the list was refuted.
    """

    wrong: bool
    refuted: bool
    width: float | None


def problem(kernel: str, lengthscale: float, seed: int) -> RKHSBandit:
    """Return a function of norm ``NORM`` on 50 points of an interval, with noise."""
    return RKHSBandit(kernel, lengthscale, 1, NORM, NOISE, n_arms=50, fixed=True, seed=seed)


def false_hypotheses(kernel: str, lengthscale: float) -> list[tuple[str, float]]:
    """Return the hypotheses with a smoother kernel and a longer lengthscale: no space contains the function."""
    smoother = []
    for other, length in HYPOTHESES:
        if SMOOTHNESS[other] > SMOOTHNESS[kernel] and length > lengthscale:
            smoother.append((other, length))
    return smoother


def play(bandit: RKHSBandit, hypotheses: Sequence[tuple[str, float]]) -> Run:
    """Evaluate the point with the largest upper bound of the union in every round."""
    X = bandit.fixed_arms
    f = bandit.mean(X)
    states = [KernelRidge(stationary_kernel(*one), NOISE**2) for one in hypotheses]
    bounds = [Bound(MartingaleMixture(NOISE, NORM, DELTA, "amm"), state) for state in states]
    wrong = False
    lower, upper = interval(union(bounds, len(bounds)), X)
    for _ in range(ROUNDS):
        x = X[upper.argmax()].unsqueeze(0)
        y = bandit.observe(x)
        for state in states:
            state.update(x, y)
        try:
            lower, upper = interval(union(bounds, len(bounds)), X)
        except RefutedAssumptions:
            return Run(wrong, True, None)
        wrong |= bool((f < lower).any() or (f > upper).any())
    return Run(wrong, False, float((upper - lower).mean()))


def interval(bound: UnionBound, X: Tensor) -> tuple[Tensor, Tensor]:
    """Return lower and upper bound [N] of a union at points X [N d]."""
    return bound.confidence.interval(bound.posterior, X)


def main(runs: int) -> None:
    """Print a line for each list: the whole one, the true hypothesis alone, and false ones."""
    rows: dict[str, list[Run]] = {"15, one true": [], "the true one alone": [], "false ones": []}
    truths = [truth for truth in HYPOTHESES if false_hypotheses(*truth)]
    for seed in range(runs):
        truth = truths[seed % len(truths)]
        lists = [HYPOTHESES, [truth], false_hypotheses(*truth)]
        for found, hypotheses in zip(rows.values(), lists, strict=True):
            found.append(play(problem(*truth, seed), hypotheses))
    print("list | runs with a wrong bound | refuted | mean width")
    for name, found in rows.items():
        n_wrong = sum(run.wrong for run in found)
        n_refuted = sum(run.refuted for run in found)
        widths = [run.width for run in found if run.width is not None]
        print(f"{name} | {n_wrong} of {len(found)} | {n_refuted} | {mean(widths):.2f}")


if __name__ == "__main__":
    n_runs = 100
    if len(sys.argv) > 1:
        n_runs = int(sys.argv[1])
    main(n_runs)
