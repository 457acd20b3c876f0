"""Figures of docs/reliability.md, the gap of a front: the statement of the gap on functions whose norms are known.

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
"""Part of the squared norm that is in the peak which the design does not see."""


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
        holds: Whether no gap of the run was below the distance of its front from the true one.
        holds_by_means: Whether the last gap is not, with posterior means in place of both bounds.
        gap: The last gap.
        share: The largest distance, as a share of the gap.
        proved: Whether all gaps were proved.
    """

    holds: bool
    holds_by_means: bool
    gap: float
    share: float
    proved: bool


def kernel_of(seed: int) -> Kernel:
    """Return one of two kernels."""
    kernel = (RBFKernel() if seed % 2 else MaternKernel(nu=2.5)).double()
    kernel.initialize(lengthscale=0.4)
    return kernel.requires_grad_(False)


def random_functions(kernel: Kernel, generator: Generator) -> Functions:
    """Return functions of the given norms with random centres and weights."""
    centres = torch.rand(8, 2, generator=generator, dtype=torch.float64)
    weights = torch.randn(8, 2, generator=generator, dtype=torch.float64)
    return Functions(kernel, centres, weights).with_norms(torch.tensor(NORMS).double())


def hidden_peak(kernel: Kernel, design: Tensor, grid: Tensor, generator: Generator) -> Functions:
    """Return functions of the given norms with a peak where a design [n 2] says least.

    The peak of both is the part of k(., x) that is orthogonal to all k(., x_i) of the design, so it changes no
    value there: no function of its norm is larger at x and 0 on the design.
    """
    prior = KernelRidge(kernel, 1e-8)
    prior.update(design, torch.zeros(len(design)).double())
    place = grid[prior.predict(grid)[1].argmax()].unsqueeze(0)
    n = len(design)
    gram = kernel(design).to_dense() + 1e-10 * torch.eye(n).double()
    weights = torch.randn(n, 2, generator=generator, dtype=torch.float64)
    norms = torch.tensor(NORMS).double()
    seen = Functions(kernel, design, weights).with_norms(norms * (1 - _PEAK) ** 0.5)
    projection = torch.linalg.solve(gram, kernel(design, place).to_dense())
    peak = Functions(
        kernel,
        torch.cat([design, place]),
        torch.cat([-projection, torch.ones(1, 1).double()]).expand(-1, 2),
    ).with_norms(norms * _PEAK**0.5)
    together = peak.weights.clone()
    together[:n] += seen.weights
    return Functions(kernel, peak.centres, together).with_norms(norms)


def distance(values: Tensor, front: Tensor, extents: Tensor) -> float:
    """Return the largest distance of points with values [n 2] from those of a front [f 2], in its extents."""
    missing = (values.unsqueeze(1) - front) / extents
    return float(missing.amax(-1).amin(-1).amax())


def grid_of(space: kbo.Optimizer) -> Tensor:
    """Return the features [n 2] of all points of a finite space, or of a fine grid of a box."""
    points = space.space.points(10_000)
    if points is None:
        axis = torch.linspace(0, 1, 81, dtype=torch.float64)
        points = torch.cartesian_prod(axis, axis)
    return space.space.features(points)


def run(kind: str, space: str, seed: int) -> Outcome:
    """Run the certified setting with the true norms and noise on functions of a seed."""
    generator = Generator().manual_seed(seed)
    kernel = kernel_of(seed)
    optimizer = kbo.Optimizer(
        SPACES[space],
        setting=kbo.Certified(
            kernel, NOISE, NORMS[0], DELTA, completion_independent_of_noise=kind != "random"
        ),
        objectives=[kbo.Maximize("f"), kbo.Minimize("g", noise_std=NOISE, norm_bound=NORMS[1])],
        seed=seed,
    )
    grid = grid_of(optimizer)
    design = []
    if kind == "random":
        functions = random_functions(kernel, generator)
    else:
        design = [
            optimizer.space.params(unit)
            for unit in torch.rand(N_TRIALS, 2, generator=generator).double()
        ]
        functions = hidden_peak(kernel, features(optimizer, design), grid, generator)
    truth = functions(grid)
    outcomes = []
    for i in range(N_TRIALS):
        params = design[i] if design else optimizer.ask()
        noise = NOISE * torch.randn(2, generator=generator, dtype=torch.float64)
        f, g = (functions(features(optimizer, [params]))[0] + noise).tolist()
        optimizer.tell(params, {"f": f, "g": -g})
        if i % 5 == 4:
            outcomes.append(judged(optimizer, functions, grid, truth))
    last = outcomes[-1]
    return last._replace(
        holds=all(outcome.holds for outcome in outcomes),
        share=max(outcome.share for outcome in outcomes),
        proved=all(outcome.proved for outcome in outcomes),
    )


def features(optimizer: kbo.Optimizer, params: list) -> Tensor:
    """Return the features [n 2] of params."""
    return optimizer.space.features(optimizer.space.units(params))


def judged(optimizer: kbo.Optimizer, functions: Functions, grid: Tensor, truth: Tensor) -> Outcome:
    """Return whether the gap of a run so far is right."""
    gap = optimizer.gap(EVALUATIONS)
    front = optimizer.insight.front()
    assert gap is not None
    assert front is not None
    extents = torch.tensor(list(front.extents.values())).double()
    X = features(optimizer, [point.trial.params for point in front.points])
    surrogates = optimizer.insight.quantities.surrogates().values()
    means = torch.stack([s.interval(grid)[1] for s in surrogates], -1)
    means_of_front = torch.stack([s.interval(X)[1] for s in surrogates], -1)
    true = distance(truth, functions(X), extents)
    by_means = distance(means, means_of_front, extents)
    return Outcome(true <= gap.value, true <= by_means, gap.value, true / gap.value, gap.proved)


def rows(runs: int, kinds: Sequence[str] = KINDS) -> Iterator[tuple[str, str, list[Outcome]]]:
    """Yield the outcomes of runs, by kind of functions and space."""
    for kind in kinds:
        for space in SPACES:
            outcomes = []
            for seed in range(runs):
                try:
                    outcomes.append(run(kind, space, 150_000 + seed))
                except RefutedAssumptions:  # as likely as a failure
                    outcomes.append(Outcome(False, False, 0.0, 0.0, False))
            yield kind, space, outcomes


def main(runs: str = "100", *kinds: str) -> None:
    """Print the table."""
    for kind, space, outcomes in rows(int(runs), kinds or KINDS):
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
