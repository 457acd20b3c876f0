"""Mean half widths of bounds, each compared with another form of the bound on the same data.

``python -m experiments.guarantees.widths [SEEDS]`` prints the first table of experiments/records/bounds.md.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from statistics import mean
from typing import Any

import torch
from torch import Generator, Tensor

from experiments.problems import RKHSBandit
from kbo import KernelRidge, NystromRidge
from kbo._base.stateful import delegated_to
from kbo.confidence import MIXED_SCALES, Confidence, FiniteSet, MartingaleMixture
from kbo.regression import Error, FixedDictionary, Posterior, View

DELTA = 0.1
SIGMA = 0.1
NORM = 5.0
KERNELS = {
    "RBF 0.2": ("rbf", 0.2),
    "RBF 0.5": ("rbf", 0.5),
    "Matérn 5/2 0.5": ("matern52", 0.5),
    "Matérn 3/2 0.2": ("matern32", 0.2),
}

Pairs = dict[str, tuple[float, float]]
"""Name of a change -> half width before and after it."""


class Traced(View):
    """A sketch whose error in the log-determinant is bounded by a trace."""

    across: Any = delegated_to("state.across")

    @property
    def error(self) -> Error:
        error = self.state.error
        error.log_det = lambda ridge: error.trace / ridge
        return error


def half(confidence: Confidence, state: Posterior, Z: Tensor) -> float:
    """Return the mean half width at Z [N d]; infinity while there is no bound."""
    if not confidence.finite_on(state):
        return math.inf
    lower, upper = confidence.interval(state, Z)
    return float((upper - lower).mean() / 2)


def measured(kernel: str, lengthscale: float, seed: int, marks: Sequence[int]) -> dict[int, Pairs]:
    """Return the half widths at 100 arms in two dimensions after the numbers of observations in ``marks``."""
    game = RKHSBandit(kernel, lengthscale, dim=2, norm=NORM, seed=seed)
    rng = Generator().manual_seed(seed)
    arms = torch.rand(100, 2, generator=rng, dtype=torch.float64)
    X = arms[torch.randint(100, (max(marks),), generator=rng)]
    y = game.observe(X)
    exact = KernelRidge(game.kernel, SIGMA**2)
    dictionary = FixedDictionary.pivoted(game.kernel, arms, 15)
    sketch = NystromRidge(game.kernel, SIGMA**2, dictionary)
    # Every second observation has five times the noise.
    is_noisy = (torch.arange(len(X)) % 2).double()
    noise = torch.randn(len(X), generator=rng, dtype=torch.float64)
    y_noisy = y + 2 * math.sqrt(6) * SIGMA * is_noisy * noise
    weighted = KernelRidge(game.kernel, SIGMA**2)
    unweighted = KernelRidge(game.kernel, 25 * SIGMA**2)
    pairs = {}
    for start in range(0, len(X), 10):
        rows = slice(start, start + 10)
        exact.update(X[rows], y[rows])
        sketch.update(X[rows], y[rows])
        weighted.update(X[rows], y_noisy[rows], 1 / (1 + 24 * is_noisy[rows]))
        unweighted.update(X[rows], y_noisy[rows])
        if exact.n in marks:
            pairs[exact.n] = pairs_on(exact, sketch, weighted, unweighted, arms)
    return pairs


def pairs_on(
    exact: Posterior, sketch: Posterior, weighted: Posterior, unweighted: Posterior, arms: Tensor
) -> Pairs:
    """Return the half widths at the arms [N d] on these states."""
    cmm = MartingaleMixture(SIGMA, NORM, DELTA)
    cmm_scales = MartingaleMixture(SIGMA, NORM, DELTA, scale=MIXED_SCALES)
    dmm = MartingaleMixture(SIGMA, NORM, DELTA, "dmm")
    dmm_scales = MartingaleMixture(SIGMA, NORM, DELTA, "dmm", MIXED_SCALES)
    noisy = MartingaleMixture(5 * SIGMA, NORM, DELTA)
    paper = FiniteSet(100, DELTA, "paper")
    mixture = FiniteSet(100, DELTA, "mixture")
    return {
        "sketch of 15 points, CMM": (half(cmm, Traced(sketch), arms), half(cmm, sketch, arms)),
        "`FiniteSet`": (half(paper, exact, arms), half(mixture, exact, arms)),
        "scales, CMM": (half(cmm, exact, arms), half(cmm_scales, exact, arms)),
        "scales, DMM": (half(dmm, exact, arms), half(dmm_scales, exact, arms)),
        "weights, CMM": (half(noisy, unweighted, arms), half(cmm, weighted, arms)),
    }


def main(seeds: int, marks: Sequence[int] = (100, 400, 1000)) -> None:
    """Print a row for each kernel and change."""
    for name, (kernel, lengthscale) in KERNELS.items():
        runs = [measured(kernel, lengthscale, seed, marks) for seed in range(seeds)]
        for change in runs[0][marks[0]]:
            cells = []
            for n in marks:
                before = mean(run[n][change][0] for run in runs)
                after = mean(run[n][change][1] for run in runs)
                cells.append(f"{before:.3g} → {after:.3g}")
            print(f"| {name} | {change} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    n_seeds = 2
    if len(sys.argv) > 1:
        n_seeds = int(sys.argv[1])
    main(n_seeds)
