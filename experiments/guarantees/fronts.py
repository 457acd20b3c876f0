"""Figures of docs/reliability.md on the gap of a front, compared with the truth for functions of known norm.

``python -m experiments.guarantees.fronts [RUNS [KIND]]``; one objective is maximised, the other one minimised.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from statistics import median
from typing import NamedTuple

import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel
from torch import Generator, Tensor

import kbo
from kbo.errors import RefutedAssumptions
from kbo.regression import KernelRidge

DELTA = 0.1
NOISE = 0.1
NORMS = (3.0, 2.0)
N_TRIALS = 25
EVALUATIONS = 5000

SPACES = {
    "finite set": {"x": kbo.Int(0, 14), "y": kbo.Int(0, 14)},
    "box": {"x": (0.0, 1.0), "y": (0.0, 1.0)},
}
KINDS = ("random", "hidden peak")

_PEAK = 0.8
"""Share of the squared norm in the peak that the design does not see."""


class Functions(NamedTuple):
    """Two functions ``sum_i k(x, z_i) w_i``, larger values better.

    Attributes:
        kernel: k.
        centres: z [c D].
        weights: w [c 2].
    """

    kernel: Kernel
    centres: Tensor
    weights: Tensor

    def __call__(self, X: Tensor) -> Tensor:
        """Return the values [n 2] at features [n D]."""
        return self.kernel(X, self.centres).to_dense() @ self.weights

    def with_norms(self, norms: Tensor) -> Functions:
        """Return the functions, scaled to norms [2]."""
        gram = self.kernel(self.centres).to_dense()
        own = (self.weights * (gram @ self.weights)).sum(0).sqrt()
        return self._replace(weights=self.weights * norms / own)


class Outcome(NamedTuple):
    """A run whose functions are known.

    Attributes:
        holds: Whether every gap of the run was at least the distance of its front from all points.
        holds_by_means: The same for the last gap, computed from posterior means in place of bounds.
        gap: The last gap.
        share: The largest distance of the front, as a share of the gap.
        proved: Whether all gaps were proved.
    """

    holds: bool
    holds_by_means: bool
    gap: float
    share: float
    proved: bool


def kernel_of(seed: int) -> Kernel:
    """Return one of two kernels."""
    kernel: Kernel = MaternKernel(nu=2.5).double()
    if seed % 2:
        kernel = RBFKernel().double()
    kernel.initialize(lengthscale=0.4)
    return kernel.requires_grad_(False)


def random_functions(kernel: Kernel, generator: Generator) -> Functions:
    """Return functions of the norms ``NORMS`` with random centres and weights."""
    centres = torch.rand(8, 2, generator=generator, dtype=torch.float64)
    weights = torch.randn(8, 2, generator=generator, dtype=torch.float64)
    return Functions(kernel, centres, weights).with_norms(torch.tensor(NORMS).double())


def hidden_peak(kernel: Kernel, design: Tensor, grid: Tensor, generator: Generator) -> Functions:
    """Return functions of norms ``NORMS`` with a peak at the grid point x about which the design [n 2] says least.

    The peak of both is the part of k(., x) that is orthogonal to all k(., x_i) of the design, so it is 0 on the design.
    Among functions of the same norm that are 0 on the design, none is larger at x.
    """
    prior = KernelRidge(kernel, 1e-8)
    prior.update(design, torch.zeros(len(design)).double())
    _, variance = prior.predict(grid)
    place = grid[variance.argmax()].unsqueeze(0)
    n = len(design)
    gram = kernel(design).to_dense() + 1e-10 * torch.eye(n).double()
    weights = torch.randn(n, 2, generator=generator, dtype=torch.float64)
    norms = torch.tensor(NORMS).double()
    seen = Functions(kernel, design, weights).with_norms(norms * (1 - _PEAK) ** 0.5)
    projection = torch.linalg.solve(gram, kernel(design, place).to_dense())
    peak_weights = torch.cat([-projection, torch.ones(1, 1).double()]).expand(-1, 2)
    peak = Functions(kernel, torch.cat([design, place]), peak_weights)
    peak = peak.with_norms(norms * _PEAK**0.5)
    all_weights = peak.weights.clone()
    all_weights[:n] += seen.weights
    return Functions(kernel, peak.centres, all_weights).with_norms(norms)


def distance(values: Tensor, front: Tensor, extents: Tensor) -> float:
    """Return the distance of a front with values [f 2] from all points with values [n 2]; larger values are better.

    It is the smallest number of extents [2] by which the front must improve in both objectives, so that for each point
    some point of the front is at least as good: the additive epsilon indicator of Zitzler et al. (2003), scaled.
    """
    advantage = (values.unsqueeze(1) - front) / extents
    return float(advantage.amax(-1).amin(-1).amax())


def grid_of(optimizer: kbo.Optimizer) -> Tensor:
    """Return the features [n 2] of all points of a finite space, or of a fine grid of a box."""
    points = optimizer.space.points(10_000)
    if points is None:
        axis = torch.linspace(0, 1, 81, dtype=torch.float64)
        points = torch.cartesian_prod(axis, axis)
    return optimizer.space.features(points)


def optimizer_of(kind: str, space: str, kernel: Kernel, seed: int) -> kbo.Optimizer:
    """Return an optimiser in the certified setting, which is given the true norms and noise levels."""
    setting = kbo.Certified(
        kernel, NOISE, NORMS[0], DELTA, completion_independent_of_noise=kind != "random"
    )
    objectives = [kbo.Maximize("f"), kbo.Minimize("g", noise_std=NOISE, norm_bound=NORMS[1])]
    return kbo.Optimizer(SPACES[space], setting=setting, objectives=objectives, seed=seed)


def run(kind: str, space: str, seed: int) -> Outcome:
    """Run the certified setting on functions of a seed, at points that it proposes or at a random design.

    Args:
        kind: One of ``KINDS``; for a hidden peak the design is known before the run.
        space: A key of ``SPACES``.
        seed: Decides the kernel, the functions, the design and the noise.
    """
    generator = Generator().manual_seed(seed)
    kernel = kernel_of(seed)
    optimizer = optimizer_of(kind, space, kernel, seed)
    grid = grid_of(optimizer)
    design = []
    if kind == "random":
        functions = random_functions(kernel, generator)
    else:
        units = torch.rand(N_TRIALS, 2, generator=generator).double()
        design = [optimizer.space.params(unit) for unit in units]
        functions = hidden_peak(kernel, features(optimizer, design), grid, generator)
    truth = functions(grid)
    outcomes = []
    for i in range(N_TRIALS):
        if design:
            params = design[i]
        else:
            params = optimizer.ask()
        noise = NOISE * torch.randn(2, generator=generator, dtype=torch.float64)
        f, g = (functions(features(optimizer, [params]))[0] + noise).tolist()
        optimizer.tell(params, {"f": f, "g": -g})
        if i % 5 == 4:
            outcomes.append(judged(optimizer, functions, grid, truth))
    return outcomes[-1]._replace(
        holds=all(outcome.holds for outcome in outcomes),
        share=max(outcome.share for outcome in outcomes),
        proved=all(outcome.proved for outcome in outcomes),
    )


def features(optimizer: kbo.Optimizer, params: list) -> Tensor:
    """Return the features [n 2] of params."""
    return optimizer.space.features(optimizer.space.units(params))


def judged(optimizer: kbo.Optimizer, functions: Functions, grid: Tensor, truth: Tensor) -> Outcome:
    """Return the outcome of a run so far.

    Args:
        optimizer: The optimiser.
        functions: The true functions.
        grid: Features of the points that the front is compared with [n 2].
        truth: The true values there [n 2].
    """
    gap = optimizer.gap(EVALUATIONS)
    front = optimizer.insight.front()
    assert gap is not None
    assert front is not None
    extents = torch.tensor(list(front.extents.values())).double()
    X = features(optimizer, [point.trial.params for point in front.points])
    true_gap = distance(truth, functions(X), extents)
    gap_of_means = distance(means(optimizer, grid), means(optimizer, X), extents)
    return Outcome(
        true_gap <= gap.value,
        true_gap <= gap_of_means,
        gap.value,
        true_gap / gap.value,
        gap.proved,
    )


def means(optimizer: kbo.Optimizer, X: Tensor) -> Tensor:
    """Return the posterior means of both functions [n 2] at features [n 2]."""
    surrogates = optimizer.insight.quantities.surrogates().values()
    return torch.stack([surrogate.interval(X)[1] for surrogate in surrogates], -1)


def outcomes_of(
    runs: int, kinds: Sequence[str] = KINDS
) -> Iterator[tuple[str, str, list[Outcome]]]:
    """Yield the outcomes of runs, by kind of functions and space."""
    for kind in kinds:
        for space in SPACES:
            outcomes = []
            for seed in range(runs):
                try:
                    outcomes.append(run(kind, space, 150_000 + seed))
                except RefutedAssumptions:  # counted like a failed bound
                    outcomes.append(Outcome(False, False, 0.0, 0.0, False))
            yield kind, space, outcomes


def main(runs: str = "100", *kinds: str) -> None:
    """Print the table."""
    for kind, space, outcomes in outcomes_of(int(runs), kinds or KINDS):
        holds = sum(outcome.holds for outcome in outcomes)
        by_means = sum(outcome.holds_by_means for outcome in outcomes)
        proved = sum(outcome.proved for outcome in outcomes)
        shares = [outcome.share for outcome in outcomes]
        gap = median(outcome.gap for outcome in outcomes)
        share = f"{median(shares):.2f}, {max(shares):.2f}"
        cells = [
            kind,
            space,
            f"{holds} of {runs}",
            proved,
            f"{gap:.2g}",
            share,
            f"{by_means} of {runs}",
        ]
        print(f"| {' | '.join(map(str, cells))} |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
